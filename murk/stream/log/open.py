"""Open the log that a URL names; the only place that knows every kind of log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from murk.errors import UserError
from murk.stream.log.interface import Log

ADDRESS: Final = "MURK-LOG-008"
_NOT_PATHS: Final = {
    r"\?([^/]*=|$)": "has a query, which the path of a file does not have",
    r"^/?[A-Za-z][A-Za-z0-9+.-]*:/": "has another scheme within",
}


class Opener(Protocol):
    """Open a log of one kind; see `open_log`."""

    def __call__(self, url: str, *, create: bool, name: str | None, model: str | None = None) -> Log:
        """Open the log at a URL of this scheme."""


def open_log(url: str, *, create: bool = True, name: str | None = None, model: str | None = None) -> Log:
    """Open the log at a URL.

    Raises `UserError` if the URL is invalid, the log does not exist and ``create`` is False, the file is not a log, or
    a broker refuses the settings; ``UnreachableError`` if a broker does not answer.

    >>> import tempfile
    >>> with open_log(f"sqlite:///{tempfile.mkdtemp()}/log.db") as log:
    ...     print(log.document())
    None

    Parameters
    ----------
    url
        ``sqlite:///murk.db`` (relative to the working directory) or ``sqlite:////var/lib/murk.db`` (absolute): the
        embedded log, one file. ``kafka://host:port[,host:port][/NAME]``: topics of a Kafka cluster; its settings are
        read from the file that ``MURK_KAFKA_CONFIG`` names or from the environment, never from the URL.
    create
        Create the log if it does not exist. With False, opening changes nothing, and a read-only log can be opened.
    name
        Name of a cluster's log if the URL does not give it: that of its task. Without either, the cluster's only log.
    model
        Name of a model fitted to the log's releases (`murk.fit`), whose states are then read and written; by default
        those of the task's own learner.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        # Only the scheme may be quoted: the rest of a URL may contain a password.
        raise UserError("the log URL is invalid: write sqlite:///PATH for a file, or kafka://HOST:PORT", code=ADDRESS)
    opener = OPENERS.get(scheme)
    if opener is None:
        raise UserError(
            f"unknown kind of log {scheme!r}: write sqlite:///PATH for a log in a file, or kafka://HOST:PORT",
            code=ADDRESS,
        )
    options = {} if model is None else {"model": model}
    return opener(url, create=create, name=name, **options)


def find_logs(url: str, names: Sequence[str] = ()) -> list[str]:
    """Return the URLs of the logs at a URL; of a cluster those of ``names``, if given, that this user may see.

    Raises as `open_log`, and `UserError` with the code ``NO_LOG`` if a cluster has no log or not the one of the URL.
    """
    if not url.startswith("kafka://"):
        return [url]
    _import_kafka()
    from murk.stream.log.kafka.log import find_urls

    return find_urls(url, names)


def name_in(url: str) -> str | None:
    """Return the name of a cluster's log from its URL: its task's unless `murk topics` was given another.

    >>> name_in("kafka://localhost:9092/third-child"), name_in("kafka://localhost:9092"), name_in("sqlite:///log.db")
    ('third-child', None, None)
    """
    named = re.fullmatch(r"kafka://[^/]+/([^/]+)", url)
    return None if named is None else named[1]


def _open_sqlite(url: str, *, create: bool, name: str | None, model: str | None = None) -> Log:
    rest = url.partition("://")[2]
    if not rest.startswith("/"):
        relative = f"write sqlite:///{rest} for a path relative to the working directory"
        raise UserError(f"{url!r} lacks a slash: {relative}, sqlite:////PATH for an absolute one", code=ADDRESS)
    path = rest[1:]
    if not path or path == ":memory:" or path.endswith("/") or "\0" in path:
        raise UserError(f"{url!r} names no file: write sqlite:///PATH (a log is a file)", code=ADDRESS)
    for pattern, problem in _NOT_PATHS.items():
        if re.search(pattern, path) and not path.startswith("./"):
            # Else a file with the query in its name would be made.
            raise UserError(f"{url!r} {problem}: write sqlite:///PATH, with ./ before a name like this", code=ADDRESS)
    from murk.stream.log.sqlite import SqliteLog

    return SqliteLog(path, create=create, model=model)


def _open_kafka(url: str, *, create: bool, name: str | None, model: str | None = None) -> Log:
    _import_kafka()
    from murk.stream.log.kafka.log import KafkaLog

    return KafkaLog(url, create=create, name=name, model=model)


def _import_kafka() -> None:
    try:
        import murk.stream.log.kafka.log  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kafka", "crc32c"):
            raise
        from murk._internal.extras import missing_extra

        raise missing_extra("a log on Kafka needs kafka-python and crc32c", "kafka") from error


OPENERS: Final[dict[str, Opener]] = {"sqlite": _open_sqlite, "kafka": _open_kafka}  # openers by URL scheme
