"""The embedded log: one SQLite file, for one machine.

Every append and every commit is one transaction with ``synchronous=FULL``: it survives a power failure.
Reading needs no lock and goes on while others write (WAL). Who owns a chain is a number, the *epoch*: taking
a chain over increases it, and a commit first checks, within its own transaction, that it still holds.
"""
