"""The embedded log: one SQLite file, for one machine.

Every append and commit is one transaction with ``synchronous=FULL``, which survives a power failure. Readers need no
lock (WAL). A number, the *epoch*, identifies a chain's owner: taking the chain over increments it, and a commit first
checks, within its transaction, that its epoch is current.
"""
