"""Largest sizes of what a log takes."""

from typing import Final

MAX_MESSAGE: Final = 1_000_000  # longest message in bytes: a Kafka broker's default limit, less its envelope
MAX_STATE: Final = 8 * 2**20  # longest state of a chain in bytes
