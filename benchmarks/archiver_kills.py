"""Archivers killed with SIGKILL at random moments: ``python -m benchmarks.archiver_kills``.

An archiver is killed and started again until its archive is complete, and then another archive is begun, until there
were enough kills. Each archive must have the files, byte for byte, of an archiver that was never killed.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import murk
from benchmarks.history import people
from murk import Task
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import LocalFolder

TASK = """
name: history
features: [{name: smoker, categories: [a, b]}]
target: {name: ill, kind: binary, positive: a, negative: b}
protocol: moments
privacy: {guarantee: {gdp: {mu: 1.0}}}
log: {partitions: 2}
"""
_SHARES = (0.02, 0.3)  # least and largest time until a kill, as shares of an undisturbed run


def archive(url, path, rows):
    """Archive a log up to its end; half of the files are written before they are complete, and grow later."""
    with open_log(url) as log:
        task = log.registered_task()
        archiver = Archiver(log, task, LocalFolder(path), device_for(task).engine(), rows=rows)
        while not archiver.has_archived(log.ends()):
            archiver.step()
            archiver.flush()
        archiver.flush()


def survives(url, path, rows, seconds):
    """Whether an archiver in a process of its own ends before it is killed."""
    child = os.fork()
    if not child:
        archive(url, path, rows)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("an archiver failed: see its error above")
    return os.WIFEXITED(status)


def files_of(path):
    """The files of an archive with their bytes, without drafts that a killed process left."""
    found = {str(each.relative_to(path)): each.read_bytes() for each in Path(path).rglob("*") if each.is_file()}
    drafts = [name for name in found if Path(name).name.startswith(".murk-")]
    return {name: data for name, data in found.items() if name not in drafts}, len(drafts)


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--releases", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=100, help="offsets of a file")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    dice, kills, drafts, archives = random.Random(options.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/log.db"
        murk.run(Task.parse(TASK), people(options.releases), seed=1, log=url, ledger=f"{folder}/ledger.db")
        start = time.monotonic()
        archive(url, f"{folder}/whole", options.rows)
        took, (expected, _) = time.monotonic() - start, files_of(f"{folder}/whole")
        while kills < options.kills:
            path, begun = f"{folder}/killed", kills
            # With few kills left, the last archive may be complete after none.
            while kills < options.kills and not survives(url, path, options.rows, took * dice.uniform(*_SHARES)):
                kills += 1
                drafts += files_of(path)[1] > 0
            archive(url, path, options.rows)
            found, left = files_of(path)
            if found != expected or left:
                sys.exit(f"archive {archives} differs after {kills - begun} kills (seed {options.seed})")
            archives += 1
            shutil.rmtree(path)
    print(
        f"{kills:,} kills, {drafts:,} of them in the middle of a file; {archives:,} archives of {len(expected)} files "
        "each, all identical"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
