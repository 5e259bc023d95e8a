"""The broker's program: jars that Maven copies once, into this checkout or into a cache that all checkouts share."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.broker.errors import BrokerError

VERSION = os.environ.get("MURK_KAFKA_VERSION", "4.1.0")
POM = Path(__file__).with_name("pom.xml")
CLASSES = "classes.jsa"
"""Beside the jars: their classes as Java has them in memory, with which a broker starts in half the time."""
FOLDER = Path(__file__).parents[2] / ".kafka"
"""Where a broker for development keeps everything, so that nothing outside the checkout changes."""


def home(*, shared: bool = False) -> Path:
    """Folder with `VERSION`: ``$MURK_KAFKA_HOME``, the shared cache if it is filled, else one in this checkout.

    The shared cache is ``~/.cache/murk/kafka-4.1.0``; with ``shared`` it is meant whether it is filled or not.
    """
    chosen = os.environ.get("MURK_KAFKA_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "murk" / f"kafka-{VERSION}"
    return cache if shared or cache.is_dir() else FOLDER / f"kafka-{VERSION}"


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


def fetch(*, shared: bool = False) -> Path:
    """Folder with the jars, filled through Maven when it is not there yet; see `home`.

    Maven writes beside that folder only, unless the cache that all checkouts share is asked for: then it uses its
    own, as for everything else.

    Any number of processes may call this at once, and any of them may be killed: one copies at a time, into
    a folder beside the final one, which appears whole or not at all.

    Raises
    ------
    BrokerError
        Maven or Java is missing, or Maven failed.
    """
    folder = home(shared=shared)
    if folder.is_dir():
        return folder
    java()
    maven = _program("mvn", "Maven copies Kafka's jars the first time: install it (Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")) as lock:
        if not folder.is_dir():
            unfinished = folder.with_name(folder.name + ".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            own = None if shared else folder.with_name(folder.name + ".maven")
            _copy(maven, unfinished, lock, own)
            unfinished.rename(folder)
            if own is not None:
                shutil.rmtree(own)  # what Maven downloaded; another try after a failure goes on with it
    return folder


def _copy(maven: str, folder: Path, lock: int, own: Path | None) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    goal.append(f"-Dkafka.version={VERSION}")
    environment = dict(os.environ)
    if own is not None:
        own.mkdir(exist_ok=True)
        goal.append(f"-Dmaven.repo.local={own}")
        environment["MAVEN_OPTS"] = " ".join([environment.get("MAVEN_OPTS", ""), *tidy(own)]).strip()
    # Maven holds the lock as well: it may outlive us, and until it ends nobody else may use that folder.
    done = subprocess.run(
        [maven, "--quiet", "--batch-mode", "--file", str(POM), *goal],
        capture_output=True,
        text=True,
        check=False,
        pass_fds=[lock],
        env=environment,
    )
    if done.returncode or not any(folder.glob("kafka-server-*.jar")):
        said = (done.stdout + done.stderr).strip()
        raise BrokerError(f"Maven could not copy Kafka's jars to {folder.parent}; it said:\n{said}")


def tidy(folder: Path) -> list[str]:
    """Options of a Java machine that leaves nothing in the system's folder for temporary files."""
    return ["-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}"]


def loaded(libs: Path) -> list[str]:
    """Options of a Java machine that takes the classes from where they are kept, if they are; else it reads the jars.

    An archive of another Java, or of other jars, is not used.
    """
    classes = libs / CLASSES
    return ["-Xshare:auto", "-Xlog:cds=off", f"-XX:SharedArchiveFile={classes}"] if classes.is_file() else []


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the system releases it when its last holder dies
        yield file.fileno()


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BrokerError(f"{name} is not installed. {remedy}")
    return found
