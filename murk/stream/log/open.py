"""Opens the log that a URL names: the one place that knows every kind of log."""

from __future__ import annotations

import re
from typing import Final, Protocol

from murk.errors import UserError
from murk.stream.log.base import Log

ADDRESS: Final = "MURK-LOG-008"


class Opener(Protocol):
    """Opens a log of one kind; see `open_log`."""

    def __call__(self, url: str, *, create: bool, name: str | None) -> Log:
        """Open the log at a URL of its scheme."""


def open_log(url: str, *, create: bool = True, name: str | None = None) -> Log:
    """Open the log at a URL.

    Parameters
    ----------
    url
        ``sqlite:///murk.db`` (a path relative to the working directory) or ``sqlite:////var/lib/murk.db``
        (an absolute one, hence four slashes): the embedded log, one file. ``kafka://host:port`` or
        ``kafka://host:port,host:port/NAME``: topics of a Kafka cluster; how to reach it safely is read from
        the environment (``MURK_KAFKA_CONFIG``), never from the URL.
    create
        Create the log where there is none. With False the log must exist; opening then changes nothing in
        it, and a log that may only be read is opened for reading.
    name
        Which of a cluster's logs, where the URL does not say; a task's log has the task's name. Without
        either, the only one that is there.

    Raises
    ------
    UserError
        For a URL that names no log, a missing log with ``create=False``, a file that is not a log, or
        settings that a broker refuses.
    UnreachableError
        When a broker does not answer.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log:
    ...     print(log.document())
    None
    """
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        # Only the part before "://" is ever repeated: the rest of a broker's address may hold a password.
        raise UserError(
            "a log is named by a URL, and this is not one: write sqlite:///PATH for a log in a file, or "
            "kafka://HOST:PORT",
            code=ADDRESS,
        )
    opener = OPENERS.get(scheme)
    if opener is None:
        raise UserError(
            f"there is no log of the kind {scheme!r}: write sqlite:///PATH for a log in a file, or kafka://HOST:PORT",
            code=ADDRESS,
        )
    return opener(url, create=create, name=name)


def _open_sqlite(url: str, *, create: bool, name: str | None) -> Log:
    rest = url.partition("://")[2]
    if not rest.startswith("/"):
        raise UserError(
            f"{url!r} lacks a slash: write sqlite:///{rest} for a path relative to the working directory, "
            "sqlite:////PATH for an absolute one",
            code=ADDRESS,
        )
    path = rest[1:]
    if not path or path == ":memory:" or path.endswith("/") or "\0" in path:
        raise UserError(f"{url!r} names no file: write sqlite:///PATH; a log is a file, so that it lasts", code=ADDRESS)
    from murk.stream.log.sqlite.log import SqliteLog

    return SqliteLog(path, create=create)


def _open_kafka(url: str, *, create: bool, name: str | None) -> Log:
    try:
        from murk.stream.log.kafka.log import KafkaLog
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kafka", "crc32c"):
            raise
        raise UserError(
            'a log on Kafka needs the client library: pip install "murk[kafka]"', code="MURK-CLI-003"
        ) from error
    return KafkaLog(url, create=create, name=name)


OPENERS: Final[dict[str, Opener]] = {"sqlite": _open_sqlite, "kafka": _open_kafka}
"""What opens a log, by the scheme of its URL."""
