"""Who asks to release which record at which level: what a ledger decides about."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from murk.errors import UserError

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
        """The same with people's names as accounts know them (see `person_name`).

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
        if set(map(type, self.people)) - {str}:
            raise UserError("a person's name must be a text")
        names = person_names(self.people)
        return self if names is self.people else replace(self, people=names)


def person_name(name: str) -> str:
    """A person's name as accounts know it: in Unicode's composed form (NFC), without white space around it.

    Characters that nobody sees (control and format ones: a tab, a zero-width space, a mark of direction) are refused,
    since names that look alike would be different people with budgets of their own.

    Raises
    ------
    UserError
        For a name that is empty or has such a character in it. The message does not repeat it.

    Examples
    --------
    >>> person_name(" Zoe\u0301 ") == person_name("Zo\u00e9")
    True
    """
    if not isinstance(name, str):
        raise UserError("a person's name must be a text")
    name = unicodedata.normalize("NFC", name.strip())
    if not name:
        raise UserError("a person's name must have one character or more besides white space")
    # Printable texts have none of them, and are quickly recognised.
    if not name.isprintable() and any(map(_unseen, name)):
        raise UserError(
            "a person's name has a control or format character in it, which nobody sees (a tab, a zero-width space, a "
            "mark of direction): take it out, or the same person would have two accounts"
        )
    return name


def person_names(names: Sequence[str]) -> Sequence[str]:
    """The names of several people as accounts know them; the same object where they are so already."""
    return names if are_plain(names) else [person_name(name) for name in names]


def are_plain(names: Sequence[str]) -> bool:
    """Whether all are names as accounts know them, as quickly as most names allow to say so."""
    joined = "".join(names)
    return joined.isascii() and joined.isprintable() and " " not in joined and "" not in names


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


def folded_name(name: str) -> str:
    """The name that somebody's account has from now on who was known by ``name`` when all spellings were allowed."""
    seen = unicodedata.normalize("NFC", "".join(one for one in name if not _unseen(one)).strip())
    return seen or name


def _unseen(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


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
