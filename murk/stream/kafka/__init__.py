"""The log on a Kafka cluster; `murk.stream.open_log` opens it by URL.

One log is four topics, each with a partition for every chain:

- ``murk-NAME-releases``: what devices send, with the broker's own append time;
- ``murk-NAME-models``: each chain's newest iterate, compacted; and the task's document, under the key ``task``;
- ``murk-NAME-states``: each chain's state and, in a header, the offset that belongs to it, compacted;
- ``murk-NAME-dead-letters``: what could not be learned.

A chain has one partition of each topic to itself, so that nothing that happens to one chain holds up another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream.kafka.log import KafkaLog


def open_kafka(url: str, *, create: bool, name: str | None) -> KafkaLog:
    """Open a log on a cluster; see `murk.stream.open_log`.

    Raises
    ------
    UserError
        When the client library is missing, beside what `KafkaLog` raises.
    """
    try:
        from murk.stream.kafka.log import KafkaLog
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kafka", "crc32c"):
            raise
        raise UserError('a log on Kafka needs the client library: pip install "murk[kafka]"') from error
    return KafkaLog(url, create=create, name=name)
