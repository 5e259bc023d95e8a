"""``python -m deploy.broker``: run a Kafka broker here until Ctrl-C."""

# ruff: noqa: T201 - a program, and what it prints is meant for whoever runs it.

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from deploy.broker.errors import BrokerError
from deploy.broker.jars import FOLDER, fetch, home
from deploy.broker.server import Broker, keep_classes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.broker", description=__doc__.split(": ", 1)[1])
    parser.add_argument("--port", type=int, default=9092, help="port on 127.0.0.1 (default: %(default)s)")
    parser.add_argument(
        "--data", type=Path, default=FOLDER / "data", help="folder kept between starts (default: %(default)s)"
    )
    parser.add_argument(
        "--fetch", action="store_true", help="only copy Kafka's jars into the cache that all checkouts share, then end"
    )
    parser.add_argument(
        "--keep-classes",
        action="store_true",
        help="only keep Java's image of the jars in that cache beside them, with which brokers start in half the time, "
        "then end",
    )
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(port: int, data: Path) -> None:
    if not home().is_dir():
        print(f"Copying Kafka's jars (43 MB) to {home()}, this once", flush=True)
    broker = Broker(data, port=port)
    try:
        broker.start()
        print(f"Kafka listens on {broker.url}")
        print(f"Topics are kept in {broker.folder}; delete it to start again. Ctrl-C stops the broker.")
        print(f"Next, in another terminal:\n  murk demo --log {broker.url}", flush=True)
        status = broker.wait()
        raise BrokerError(f"the broker ended by itself (status {status}); {broker.output} says:\n{broker.said()}")
    except KeyboardInterrupt:
        print("Stopping Kafka", flush=True)
    finally:
        broker.close()


def main() -> int:
    """Run the broker; the exit status: 0 after Ctrl-C or SIGTERM, 1 when there is no broker."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if arguments.fetch:
            fetch(shared=True)
        elif arguments.keep_classes:
            keep_classes()
        else:
            _run(arguments.port, arguments.data)
    except BrokerError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
