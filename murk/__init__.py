"""Murk: online learning on streams of locally private data."""

import logging

__version__ = "0.3.0"

# Each module logs by a logger of its name. Who sets logging up sees it, and nobody else.
logging.getLogger(__name__).addHandler(logging.NullHandler())
