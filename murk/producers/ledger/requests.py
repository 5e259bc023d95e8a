"""Requests to release: who asks, for which record, at which level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from murk.errors import UserError
from murk.producers.ledger.spelling import PersonName, are_plain, is_unicode, person_name, person_names

Key = str | int
"""Name of a person or record: a text, or a row of a file (counted from 0)."""


_NO_KEY = [None]


@dataclass(frozen=True)
class ReleaseRequests:
    """A block of records that ask to be released.

    ``keys`` identify records: their rows in the file ``source``; without one texts, or None for a record that never
    comes again. ``people`` is None if every row of the file is a person. ``keep_levels`` gives a person who has
    released to the task before the level that they had then.
    """

    keys: Sequence[Key | None] = field(repr=False)
    people: Sequence[str] | None = field(repr=False)
    levels: Sequence[str] = field(repr=False)
    source: str | None = None
    keep_levels: bool = False

    def checked(self) -> ReleaseRequests:
        """Return the requests with people's names normalized by `person_name`; raise a UserError for invalid ones."""
        if self.source is None and self.keys == _NO_KEY and self.people is not None and len(self.people) == 1:
            # Fast path: one record that comes once, of a person with a plain name.
            (name,) = self.people
            if type(name) is str and len(self.levels) == 1 and are_plain(self.people):
                return self
        people = self.keys if self.people is None else self.people
        if not len(self.keys) == len(self.levels) == len(people):
            raise UserError("keys, people and levels must have the same length")
        if self.source is None and self.people is None:
            raise UserError("records that come from no file need people: say whose they are")
        if set(map(type, self.keys)) - ({str, type(None)} if self.source is None else {int}):
            raise UserError("a record's key must be a text; for records of a file, its row, an integer")
        if self.source is None:
            _check_texts([key for key in self.keys if isinstance(key, str)])
        else:
            _check_rows(cast(Sequence[int], self.keys))
        if self.people is None:
            return self
        if set(map(type, self.people)) - {str, PersonName}:
            raise UserError("a person's name must be a text")
        names = person_names(self.people)
        return self if names is self.people else replace(self, people=names)


def known_by(person: Key, source: str | None) -> Key:
    """Return the name of an account: a person's name, or a file's row with its digest; raise a UserError for others."""
    if isinstance(person, str) and source is None:
        return person_name(person)
    if type(person) is int and 0 <= person < 2**62 and source is not None:
        return person
    raise UserError(
        "a person is named by a text; or by a row, an integer from 0 on, together with the digest of its file"
    )


def _check_rows(rows: Sequence[int]) -> None:
    if rows and (min(rows) < 0 or max(rows) >= 2**62):
        raise UserError("a row must be an integer from 0 to 2^62 - 1")


def _check_texts(texts: Sequence[str]) -> None:
    joined = "".join(texts)
    # SQLite may end a text at NUL, and cannot store half a surrogate pair.
    if "" in texts or "\0" in joined or not is_unicode(joined):
        raise UserError("a name of a record must be a text of one character or more, without NUL")
