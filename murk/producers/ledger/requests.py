"""Who asks to release which record at which level: what a ledger decides about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from murk.errors import UserError
from murk.producers.ledger.spelling import PersonName, are_plain, person_name, person_names

Key = str | int
"""A person's or record's name: a text, or a row of a file (counted from 0)."""


_NO_KEY = [None]


@dataclass(frozen=True)
class ReleaseRequests:
    """One block of records that ask to be released.

    Parameters
    ----------
    keys
        What each record is recognised by: its row in the file ``source``; or without one whatever the caller
        says, and None for a record that will never come again.
    people
        Whose record each is; None where every row of the file is a person of its own.
    levels
        The level that each asks for.
    source
        Digest of the file that the records come from.
    keep_levels
        Give a person who has released to the task before the level that they had then.
    """

    keys: Sequence[Key | None] = field(repr=False)
    people: Sequence[str] | None = field(repr=False)
    levels: Sequence[str] = field(repr=False)
    source: str | None = None
    keep_levels: bool = False

    def checked(self) -> ReleaseRequests:
        """The same with people's names as accounts know them (see `spelling.person_name`).

        Raises
        ------
        UserError
            For a name that is empty, not a text, or not one that the ledger gives back as it was; and where
            the three sequences differ in length.
        """
        if self.source is None and self.keys == _NO_KEY and self.people is not None and len(self.people) == 1:
            # One record that comes once, of somebody whose name is plain: there is nothing else to see.
            (name,) = self.people
            if type(name) is str and len(self.levels) == 1 and are_plain(self.people):
                return self
        people = self.keys if self.people is None else self.people
        if not len(self.keys) == len(self.levels) == len(people):
            raise UserError("keys, people and levels must be of one length")
        if self.source is None and self.people is None:
            raise UserError("records that come from no file need people: say whose they are")
        if set(map(type, self.keys)) - ({str, type(None)} if self.source is None else {int}):
            raise UserError("a record is known by a text; the records of a file by their rows, as integers")
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
    """What an account is known by: a person's name, or the row of a file with a digest.

    Raises
    ------
    UserError
        When it is neither.
    """
    if isinstance(person, str) and source is None:
        return person_name(person)
    if type(person) is int and 0 <= person < 2**62 and source is not None:
        return person
    raise UserError(
        "a person is named by a text; or by a row, an integer from 0 on, together with the digest of its file"
    )


def _check_rows(rows: Sequence[int]) -> None:
    if rows and (min(rows) < 0 or max(rows) >= 2**62):
        raise UserError("a row is an integer from 0 on")


def _check_texts(texts: Sequence[str]) -> None:
    joined = "".join(texts)
    # SQLite's text ends at a NUL here and there, and cannot hold half of a surrogate pair.
    if "" in texts or "\0" in joined or not _is_text(joined):
        raise UserError("a name of a record must be a text of one character or more, without NUL")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
