"""Closing a client of the library, whose own waits may have no end."""

from __future__ import annotations

import logging
import threading
from typing import Any

CLOSING = 10.0
"""Seconds that one client may take to close: nothing that matters depends on it."""

_log = logging.getLogger(__name__)


def close_in_time(client: Any, url: str) -> None:
    """Close a client, or abandon it after `CLOSING` seconds."""
    met: list[Exception] = []

    def close() -> None:
        try:
            client.close()
        except Exception as error:  # noqa: BLE001 - raised below, where it is waited for
            met.append(error)

    thread = threading.Thread(target=close, name="murk-closing", daemon=True)
    thread.start()
    thread.join(CLOSING)
    if thread.is_alive():
        _log.warning("%s: a client (%s) did not close in time and was abandoned", url, type(client).__name__)
    if met:
        raise met[0]
