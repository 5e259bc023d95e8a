"""A single-node Kafka broker as a child process."""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.broker import ports, settings
from deploy.broker.errors import BrokerError
from deploy.broker.jars import CLASSES, fetch, java, loaded, tidy
from deploy.broker.process import end, spawn

START_LIMIT = 120.0
"""Seconds after which a broker that is still not ready is given up."""
STOP_LIMIT = 30.0
"""Seconds after which a broker that was asked to stop is killed."""
# A broker with little to do is ready sooner without the optimizing compiler.
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOGGING = {
    "defaultLogLevel": "info",
    "showDateTime": "true",
    "dateTimeFormat": "yyyy-MM-dd HH:mm:ss.SSS",
    # Hundreds of lines at every start, all in server.properties or at their defaults.
    "log.org.apache.kafka.common.config": "warn",
    "log.kafka.server.KafkaConfig": "warn",
}
READY = "Kafka Server started"


class Broker:
    """A Kafka broker of its own, in a folder of its own; a context manager that starts and stops it.

    Parameters
    ----------
    folder
        Keeps topics (``log/``), settings and the broker's output (``broker.log``) between starts.
    port
        Where it listens on 127.0.0.1; a free port by default. It stays the same, and reserved, when the broker
        is stopped or killed, until ``close()``.

    Raises
    ------
    BrokerError
        The port is taken.
    """

    def __init__(self, folder: str | Path, *, port: int | None = None) -> None:
        self.folder = Path(folder).absolute()
        self._held = [ports.reserve(port), ports.reserve()]
        self.port = ports.number(self._held[0])
        self._controller = ports.number(self._held[1])
        self._child: subprocess.Popen[bytes] | None = None
        self._from = 0
        self._lock: int | None = None

    @property
    def bootstrap(self) -> str:
        """Address for a Kafka client."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Address for Murk's ``--log``."""
        return f"kafka://{self.bootstrap}"

    @property
    def pid(self) -> int | None:
        """Process number, None when it does not run."""
        return self._child.pid if self._child is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether its process lives; a frozen one does."""
        return self._child is not None and self._child.poll() is None

    @property
    def output(self) -> Path:
        """File with all that the broker printed, over all its starts."""
        return self.folder / "broker.log"

    def settings(self, log: Path) -> dict[str, str]:
        """All settings, for topics kept in ``log``."""
        return settings.plain(log, self.port, self._controller)

    def users(self) -> Mapping[str, str]:
        """Names and passwords that exist from the first start on."""
        return {}

    def start(self) -> Self:
        """Start it and wait until it serves; nothing happens when it runs already.

        Raises
        ------
        BrokerError
            Another broker has the folder; Java, Maven or the jars are missing, or the broker did not come up, and
            its last lines are in the message.
        """
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_folder()
        libs = fetch()
        log = self.folder / "log"
        if not log.is_dir():
            self._format(libs, log)
        config = self._configure("server.properties", log)
        self._from = self.output.stat().st_size if self.output.exists() else 0
        said = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in LOGGING.items()]
        self._child = spawn(
            [java(), *JVM, *self._classes(libs), *self._tidy(), *said, "-cp", f"{libs}/*", "kafka.Kafka", str(config)],
            self.output,
        )
        self._wait()
        return self

    def stop(self) -> None:
        """Stop it in order; the data and the port are kept."""
        if self._child is not None:
            end(self._child, STOP_LIMIT)

    def kill(self) -> None:
        """Kill it at once, as a power cut would; the data and the port are kept."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def freeze(self) -> None:
        """Let it hang: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)
        if self._child is not None:
            # Until the last of its threads has stopped.
            os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen broker go on."""
        self._signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait until it ends by itself; its exit status."""
        return self._child.wait() if self._child is not None else 0

    def close(self) -> None:
        """Stop it and give its ports and its folder back."""
        self.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for held in self._held:
            held.close()

    def said(self, lines: int = 40) -> str:
        """The last lines that it printed since its last start."""
        return "\n".join(self._printed().splitlines()[-lines:])

    def _classes(self, libs: Path) -> list[str]:
        return loaded(libs)

    def _tidy(self) -> list[str]:
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        return tidy(temporary)

    def _take_folder(self) -> None:
        """Lock the folder itself, before anything in it is written: settings there are the running broker's."""
        if self._lock is not None:
            return
        lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise BrokerError(
                f"another broker uses {self.folder}: stop it, or choose another folder with --data"
            ) from error
        self._lock = lock

    def _signal(self, number: signal.Signals) -> None:
        if not self.running or self._child is None:
            raise BrokerError(f"the broker at {self.bootstrap} does not run: start it first")
        self._child.send_signal(number)

    def _printed(self) -> str:
        if not self.output.exists():
            return ""
        with self.output.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def _configure(self, name: str, log: Path) -> Path:
        config = self.folder / name
        config.touch(mode=0o600)
        config.write_text(settings.text(self.settings(log)))
        return config

    def _format(self, libs: Path, log: Path) -> None:
        # Into another place and then renamed: a start that was killed leaves nothing half-made behind.
        unfinished = log.with_name("log.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        config = self._configure("format.properties", unfinished)
        # Kafka writes its ids like this; a leading hyphen would read as an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        command = [
            java(),
            *JVM,
            *loaded(libs),
            *self._tidy(),
            "-cp",
            f"{libs}/*",
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster,
            "-c",
            str(config),
        ]
        for name, password in self.users().items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"Kafka could not prepare {self.folder}:\n{_explain(done.stdout + done.stderr)}")
        config.unlink()
        unfinished.rename(log)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while READY not in self._printed():
            if not self.running:
                raise BrokerError(f"the broker ended while it started; {self.output} says:\n{_explain(self.said())}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"no broker after {START_LIMIT:.0f} s; {self.output} says:\n{self.said()}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Keeper(Broker):
    """A broker that keeps its classes when it is stopped."""

    def _classes(self, libs: Path) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self.folder / CLASSES}"]


def keep_classes() -> None:
    """Keep the classes of a broker beside the jars that all checkouts share, if they are not there yet.

    Raises
    ------
    BrokerError
        The jars, Java or Maven are missing, or the broker did not come up.
    """
    libs = fetch(shared=True)
    if (libs / CLASSES).is_file() or not os.access(libs, os.W_OK):
        return
    with tempfile.TemporaryDirectory(dir=libs.parent) as place, _Keeper(place) as broker:
        broker.stop()
        made = broker.folder / CLASSES
        # Without it brokers start as well; of one that had to be killed it may be half a file.
        if made.is_file() and broker.wait() >= 0:
            made.rename(libs / CLASSES)


def _explain(said: str) -> str:
    if "UnsupportedClassVersionError" in said:
        version = re.search(r"class file version \d+(\.\d+)?", said)
        return f"Kafka 4.1 needs Java 17 or newer ({version.group() if version else 'this one is older'})"
    if "Failed to acquire lock" in said:
        return f"another broker uses this folder\n{said}"
    return said.strip()
