"""The settings of a broker that is alone and has little to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def plain(folder: Path, port: int, controller: int) -> dict[str, str]:
    """Settings of one node that is broker and controller, open to this machine only.

    Parameters
    ----------
    folder
        Where the topics are kept.
    port, controller
        Ports of the broker and of its controller.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder),
        # A mistyped name is an error, not a new topic.
        "auto.create.topics.enable": "false",
        # After a kill, the controller takes the new broker only when it has given up the old one (default: 9 s).
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        # The controller notes that nothing has happened (default: twice a second, a fifth of what an idle broker does).
        "metadata.max.idle.interval.ms": "5000",
        # There is no second node to copy anything to.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        # Learners come and go by the second here: nothing waits for more of them, and the dead are noticed soon.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }


def text(settings: Mapping[str, str]) -> str:
    """The settings as a Java properties file."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
