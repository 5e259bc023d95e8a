"""Tables of the embedded log's file, and what becomes of one of an earlier format."""

from __future__ import annotations

import secrets
import sqlite3

from murk._sqlite import FileKind

# With rowids: where there are none, SQLite reads the whole of a row for each comparison of its key.
_BATCHES = (
    'CREATE TABLE batches ("partition" INTEGER NOT NULL, "offset" INTEGER NOT NULL, time INTEGER NOT NULL, '
    'sizes BLOB, value BLOB NOT NULL, PRIMARY KEY ("partition", "offset"))'
)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('identity', ?)", (secrets.token_hex(16),))
    # begin and end stand apart from the messages: they must outlive them.
    connection.execute(
        'CREATE TABLE streams ("partition" INTEGER PRIMARY KEY, begin INTEGER NOT NULL, "end" INTEGER NOT NULL)'
    )
    connection.execute(_BATCHES)
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
    """Make a log of format 1, which has a row for each message, one of format 2, within a transaction.

    A process of an earlier version that still has the file open finds no table, and so fails.
    """
    connection.execute(_BATCHES)
    connection.execute(
        'INSERT INTO batches SELECT "partition", "offset", time, NULL, value FROM messages '
        'ORDER BY "partition", "offset"'
    )
    connection.execute("DROP TABLE messages")
    connection.execute("UPDATE meta SET value = 2 WHERE key = 'format'")


LOG_FILE = FileKind("log", int.from_bytes(b"MLog"), 2, _create, earlier=(1,))
