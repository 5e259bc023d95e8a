"""One broker for all processes of a test run, which ends with the last of them.

``python -m tests.services.shared FOLDER`` has the broker as its child. Who uses it holds a lock on a file, shared with
all others, that the system takes back however the process ends.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deploy.broker import Broker
from deploy.broker.server import START_LIMIT
from tests.services.services import eventually

ROOT = Path(__file__).parents[2]


class SharedBroker(NamedTuple):
    """Where it is reached, and what it prints."""

    bootstrap: str
    url: str
    folder: Path

    def said(self, lines=40):
        """The last lines that it printed."""
        return "\n".join((self.folder / "broker.log").read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def shared_broker(folder):
    """The broker of a folder, started by the one who comes first."""
    address = folder / "kafka.json"
    with (folder / "kafka.users").open("w") as users:
        with (folder / "kafka.first").open("w") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            holder = None if address.exists() else _hold(folder)
            # A broker that does not come up says so itself.
            eventually(lambda: address.exists() or _alive(holder, folder), 2 * START_LIMIT)
        bootstrap, url, place = json.loads(address.read_text())
        yield SharedBroker(bootstrap, url, Path(place))
        # A process that this one started may hold the lock, too, and end later.
        fcntl.flock(users, fcntl.LOCK_UN)
    if holder is not None:
        holder.wait()


def _hold(folder):
    with (folder / "kafka.holder").open("w") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.services.shared", folder], cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip


def _alive(holder, folder):
    assert holder is not None
    assert holder.poll() is None, (folder / "kafka.holder").read_text()
    return False


def main(folder):
    """Keep the broker until nobody uses it any more."""
    address = folder / "kafka.json"
    broker = Broker(folder / "kafka").start()
    unfinished = address.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([broker.bootstrap, broker.url, str(broker.folder)]))
    unfinished.rename(address)
    with (folder / "kafka.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        address.unlink()
        broker.kill()  # nobody needs the data, so nobody waits for an orderly end
        broker.close()
        shutil.rmtree(broker.folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
