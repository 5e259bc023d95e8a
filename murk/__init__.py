"""Murk: online learning on streams of locally private data."""

__version__ = "0.3.0"
