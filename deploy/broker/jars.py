"""The broker's program: jars that Maven copies once into a cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.broker.errors import BrokerError

VERSION = "4.1.0"
POM = Path(__file__).with_name("pom.xml")


def home() -> Path:
    """Folder with the jars: ``$MURK_KAFKA_HOME``, else ``~/.cache/murk/kafka-4.1.0``."""
    chosen = os.environ.get("MURK_KAFKA_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "murk" / f"kafka-{VERSION}"


def java() -> str:
    """Path of the ``java`` program.

    Raises
    ------
    BrokerError
        There is none.
    """
    return _program(
        "java", "Kafka 4.1 runs on Java 17 or newer: install it (Debian: apt-get install default-jre-headless)"
    )


def fetch() -> Path:
    """Folder with the jars, filled through Maven when it is not there yet.

    Any number of processes may call this at once, and any of them may be killed: one copies at a time, into
    a folder beside the final one, which appears whole or not at all.

    Raises
    ------
    BrokerError
        Maven or Java is missing, or Maven failed.
    """
    folder = home()
    if folder.is_dir():
        return folder
    java()
    maven = _program("mvn", "Maven copies Kafka's jars the first time: install it (Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")) as lock:
        if not folder.is_dir():
            unfinished = folder.with_name(folder.name + ".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            _copy(maven, unfinished, lock)
            unfinished.rename(folder)
    return folder


def _copy(maven: str, folder: Path, lock: int) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    # Maven holds the lock as well: it may outlive us, and until it ends nobody else may use that folder.
    done = subprocess.run(
        [maven, "--quiet", "--batch-mode", "--file", str(POM), *goal],
        capture_output=True,
        text=True,
        check=False,
        pass_fds=[lock],
    )
    if done.returncode or not any(folder.glob("kafka-server-*.jar")):
        said = (done.stdout + done.stderr).strip()
        raise BrokerError(f"Maven could not copy Kafka's jars to {folder.parent}; it said:\n{said}")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the system lets go of it when its last holder dies
        yield file.fileno()


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BrokerError(f"{name} is not installed. {remedy}")
    return found
