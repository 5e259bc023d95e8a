"""Where a log on a cluster is: its servers and its name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from murk.errors import UserError

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")


@dataclass(frozen=True)
class Address:
    """Servers to ask first, and the log's name where it is known.

    Examples
    --------
    >>> Address.parse("kafka://one:9092,two:9092/third-child")
    Address(servers=('one:9092', 'two:9092'), name='third-child')
    >>> Address.parse("kafka://localhost:9092").url("third-child")
    'kafka://localhost:9092/third-child'
    """

    servers: tuple[str, ...]
    name: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL.

        Raises
        ------
        UserError
            When it is not ``kafka://host:port[,host:port][/NAME]``, or holds credentials. The URL is not
            repeated in the message: it may hold a password.
        """
        rest = url.partition("://")[2]
        where, slash, name = rest.partition("/")
        if "@" in rest:
            raise UserError(
                "a log's URL holds no credentials: it ends up in logs and in the list of processes. Leave them out, "
                "and name a file of settings in MURK_KAFKA_CONFIG (docs/deploy.md)",
                code="MURK-LOG-008",
            )
        servers = where.split(",")
        for server in servers:
            matched = _SERVER.fullmatch(server)
            if matched is None or not 0 < int(matched[2]) < 2**16:
                raise UserError(
                    "a log on Kafka is named kafka://HOST:PORT[,HOST:PORT][/NAME], and this URL is not so",
                    code="MURK-LOG-008",
                )
        if slash and not _NAME.fullmatch(name):
            raise UserError(
                "the name at the end of a Kafka log's URL has small letters, digits and -: kafka://HOST:PORT/third-child",
                code="MURK-LOG-008",
            )
        return cls(tuple(servers), name or None)

    def url(self, name: str | None) -> str:
        """Return the URL of a log of that name."""
        return f"kafka://{','.join(self.servers)}" + (f"/{name}" if name else "")
