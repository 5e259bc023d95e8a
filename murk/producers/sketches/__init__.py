"""Organisations: from a stream of records to one release a window."""
