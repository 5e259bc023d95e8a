"""Tables of the embedded log's file, and what becomes of one of an earlier format."""

from __future__ import annotations

import secrets
import sqlite3

from murk._sqlite import FileKind

VERSION = 2
"""Of the file's format."""


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('identity', ?)", (secrets.token_hex(16),))
    # begin and end stand apart from the messages: they must outlive them.
    connection.execute(
        'CREATE TABLE streams ("partition" INTEGER PRIMARY KEY, begin INTEGER NOT NULL, "end" INTEGER NOT NULL)'
    )
    # With rowids: where there are none, SQLite reads the whole of a row for each comparison of its key.
    connection.execute(
        'CREATE TABLE batches ("partition" INTEGER NOT NULL, "offset" INTEGER NOT NULL, time INTEGER NOT NULL, '
        'value BLOB NOT NULL, number INTEGER NOT NULL DEFAULT 1, PRIMARY KEY ("partition", "offset"))'
    )
    connection.execute(
        'CREATE TABLE dead_letters ("partition" INTEGER, "offset" INTEGER, time INTEGER NOT NULL, '
        "reason TEXT NOT NULL, detail TEXT NOT NULL, value BLOB NOT NULL, "
        'PRIMARY KEY ("partition", "offset")) WITHOUT ROWID'
    )
    connection.execute("CREATE TABLE models (chain INTEGER PRIMARY KEY, message BLOB NOT NULL)")
    connection.execute(
        'CREATE TABLE states (chain INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, "offset" INTEGER NOT NULL, state BLOB)'
    )


def upgrade(connection: sqlite3.Connection) -> None:
    """Make a log of format 1, where each message has a row, one of format 2, within a transaction.

    It takes no time: nothing is copied. A process of an earlier version that still has the file open finds no table.
    """
    connection.execute("ALTER TABLE messages ADD COLUMN number INTEGER NOT NULL DEFAULT 1")
    connection.execute("ALTER TABLE messages RENAME TO batches")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (VERSION,))


LOG_FILE = FileKind("log", int.from_bytes(b"MLog"), VERSION, _create, earlier=(1,))
