"""Names of people and records: their normalized spelling, the requests that carry them, and the key that hashes them.

*Spelling.* Names are compared as nicknames in RFC 8266 (section 2.4: white space collapsed, NFKC, only characters
allowed by RFC 8264), except that case counts (base 64), and that all spellings of a number (7, 7.0, 007, 7e0) are one
name. Characters that only look alike (Cyrillic and Latin "a") stay different.

*Key.* A ledger hashes names and file digests under a key in a file beside it. The key is made once, with the first name
or file: under another key everyone would get a new account with nothing spent. While the ledger's write lock is held,
the key is written as ``LEDGER.key.new``; the ledger commits its fingerprint; then the file is renamed to
``LEDGER.key``. A ``LEDGER.key`` beside a ledger without a fingerprint shows that the ledger is not the newest.
"""

from __future__ import annotations

import os
import re
import secrets
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, cast

from murk._internal.atomic_files import sync, warn_if_exposed, write_whole
from murk._internal.printable import INVISIBLE
from murk.errors import MurkError, UserError, reason_of

_ERROR_CODE = "MURK-LEDGER-001"

DIGITS: Final = 64  # largest number of digits that is written out; longer numbers are written with an exponent
_EXACT: Final = 2**53
_WIDTHS: Final = 10
_ROUNDED: Final = "floats distinguish ids of at most 15 digits, and this one has more. Read the column as text"

_NUMBER: Final = re.compile(r"(?P<sign>[-+]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[-+]?[0-9]+))?")
_PLAIN: Final = rf"(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
# Matches a line that may be a number and is not a normalized whole one.
_ODD_NUMBER: Final = re.compile(
    rf"^(?!{_PLAIN}$)(?:[-+',.0-9_`#=()\"][-+',.0-9_`()\"eEdD]*|0[xXoObB][0-9A-Fa-f_]+)$", re.MULTILINE
)
# Characters that programs put between the digits of a number, after NFKC.
_GROUPING: Final = (
    r" .,'_`\u00b4\u00b7\u02b9\u02bc\u02d9\u2018\u2019\u201a\u201b"
    r"\u2022\u2027\u2032\u2219\u22c5\u2396\u3001\u30fb\ufe50"
)
# Digits with thousands signs, a spreadsheet's mark of text, a number sign, brackets for a minus, a Fortran exponent, or
# another base. Digits with hyphens between them, or letters after them, may be ids of another kind.
_UNCLEAR: Final = re.compile(
    rf"[(#=\"'`+-]*[{_GROUPING}]*[0-9](?:[{_GROUPING}]*[0-9])*(?:[eE][-+]?[0-9{_GROUPING}]+)?[{_GROUPING})\"+-]*"
    r"|[-+]?[0-9]*\.[0-9]*[dD][-+]?[0-9]+"
    r"|[-+]?0[xXoObB][0-9A-Fa-f_]+"
)

# Letters, marks, numbers, punctuation and symbols.
_ALLOWED: Final = frozenset("LMNPS")
# Minus sign and Arabic decimal and thousands separators.
_SIGNS: Final = {0x2212: "-", 0x066B: ".", 0x066C: ",", 0x2019: "'"}


class PersonName(str):
    """A normalized name whose original spelling, ``written``, was different."""

    written: str


def person_name(name: str) -> str:
    r"""Return a person's normalized name: NFKC, white space collapsed, numbers in one spelling.

    The result is a `PersonName` if it was written differently. Raises UserError, which does not quote the name, if it
    is empty, has an invisible, unassigned or non-text character, or is a number with a comma.

    >>> person_name(" Zoe\u0301\u00a0 Li ") == person_name("Zo\u00e9 Li")
    True
    >>> [person_name(one) for one in ("7", "7.0", "007", "+7", "7e0", "\uff17", "\u0667", "7.50", "1e3")]
    ['7', '7', '7', '7', '7', '7', '7', '7.5', '1000']
    """
    if isinstance(name, PersonName):
        return name
    if not isinstance(name, str):
        raise UserError("a person's name must be text")
    text = name.strip()
    if text.isascii():
        seen = text.isprintable()
    else:
        text = unicodedata.normalize("NFKC", text)
        text = "".join(" " if unicodedata.category(each) == "Zs" else each for each in text).strip()
        seen = all(each == " " or is_seen(each) for each in text)
    if not text:
        raise UserError("a person's name must have one character or more besides white space")
    if not seen:
        raise UserError(
            "a person's name has an invisible or non-text character (a control, format, private or unassigned "
            "character, a filler, a variation selector, a blank), which would give them a second account: remove it"
        )
    if "  " in text:
        text = re.sub(" {2,}", " ", text)
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(each)) if unicodedata.category(each) == "Nd" else each for each in text)
    text = _number(text)
    if text == name:
        return name
    normalized = PersonName(text)
    normalized.written = name
    return normalized


def are_plain(names: Sequence[str]) -> bool:
    """Return whether a quick check shows that all names are normalized."""
    joined = "\n".join(names)
    if not joined.isascii() or " " in joined or "" in names:
        return False
    together = joined.replace("\n", "") if len(names) > 1 else joined
    lines = max(0, len(names) - 1)
    return together.isprintable() and joined.count("\n") == lines and _ODD_NUMBER.search(joined) is None


def number_name(value: float | Decimal) -> str:
    """Return the name of a person whose id was read as a float or decimal; raise a UserError if it is inexact."""
    whole = int(value) if value == value and abs(value) != float("inf") else None
    if whole is None or whole != value:
        raise UserError("this names nobody: not a whole number. Give every row a name: text, or a whole number")
    if isinstance(value, float) and abs(whole) >= _EXACT:
        raise UserError(f"this names several people at once: {_ROUNDED}")
    return str(whole)


def name_of(value: Any) -> str:
    """Return the name of an account from a raw value of a column; raise a UserError if it names nobody."""
    if type(value) not in (str, int, float, Decimal) or not str(value).strip():
        raise UserError("this names nobody. Give every row a name: text, or a whole number")
    # Programs read ids as floats where the column has a gap.
    return person_name(str(value) if isinstance(value, str | int) else number_name(value))


@lru_cache(maxsize=4096)
def is_seen(character: str) -> bool:
    """Return whether a character may occur in a name: it is text and visible."""
    return not INVISIBLE.match(character) and unicodedata.category(character)[0] in _ALLOWED


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded; bytes of a file that are not UTF-8 become surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_unclear(text: str) -> bool:
    """Return whether a name is a number with more than its digits, which programs read in different ways."""
    if not text.isascii():
        # Some signs enclose digits, such as an enclosing keycap.
        text = "".join(each for each in text if unicodedata.category(each) not in ("Me", "Mn"))
    return _UNCLEAR.fullmatch(text) is not None


def _number(text: str) -> str:
    if text.isdigit() and len(text) <= DIGITS and text.isascii():
        return text.lstrip("0") or "0"
    match = _NUMBER.fullmatch(text if text.isascii() else text.translate(_SIGNS))
    if match is None:
        if _is_unclear(text if text.isascii() else text.translate(_SIGNS)):
            raise UserError(
                "a person's name is a number with more than its digits (grouped, marked, in another base or script), "
                "which programs read in different ways: write its digits only"
            )
        return text
    sign, whole, part, written = match["sign"], match["whole"], match["part"] or "", match["power"] or ""
    power = written.lstrip("+-").lstrip("0")
    if not whole + part:
        return text
    if len(power) > 9:
        raise UserError("a person's name is a number out of range: write it with fewer digits, or with a letter")
    exponent = int(power or "0") * (-1 if written[:1] == "-" else 1) - len(part)
    digits = (whole + part).lstrip("0")
    short = digits.rstrip("0")
    exponent += len(digits) - len(short)
    if not short:
        return "0"
    sign = "-" if sign == "-" else ""
    # Programs write floats with a point or a signed exponent.
    inexact = exponent >= 0 and (part or written[:1] in ("+", "-"))
    if inexact and (exponent + len(short) > 16 or int(short) * 10**exponent >= _EXACT):
        raise UserError(f"a person's name is a number that a program has rounded: {_ROUNDED}")
    if 0 <= exponent <= DIGITS - len(short):
        return sign + short + "0" * exponent
    if -DIGITS <= exponent < 0:
        padded = short.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{short}e{exponent}"


Key = str | int  # name of a person or record: a text, or a row of a file (counted from 0)
_NO_KEY = [None]


@dataclass(frozen=True)
class ReleaseRequests:
    """A block of records whose release is requested.

    ``keys`` identify records: rows of the file ``source``; without a file, a text, or None for a record that is never
    given again. ``people`` is None if every row is a person. With ``keep_levels`` a person stays at the level of their
    earlier releases to the task. ``windows`` are the numbers of the records' windows, if the task's budget renews.
    """

    keys: Sequence[Key | None] = field(repr=False)
    people: Sequence[str] | None = field(repr=False)
    levels: Sequence[str] = field(repr=False)
    source: str | None = None
    keep_levels: bool = False
    windows: Sequence[int] | None = field(default=None, repr=False)

    def checked(self) -> ReleaseRequests:
        """Return the requests with people's names normalized by `person_name`; raise a UserError for invalid ones."""
        if self.source is None and self.keys == _NO_KEY and self.people is not None and len(self.people) == 1:
            # Fast path: one record without a key, of a person with a plain name.
            (name,) = self.people
            lengths = {len(self.levels), 1 if self.windows is None else len(self.windows)}
            if type(name) is str and lengths == {1} and are_plain(self.people):
                return self
        people = self.keys if self.people is None else self.people
        windows = self.keys if self.windows is None else self.windows
        if not len(self.keys) == len(self.levels) == len(people) == len(windows):
            raise UserError("keys, people, levels and windows must have the same length")
        if self.source is None and self.people is None:
            raise UserError("records that come from no file need people: say whose they are")
        if set(map(type, self.keys)) - ({str, type(None)} if self.source is None else {int}):
            raise UserError("a record's key must be text; for records of a file, its row, an integer")
        if self.source is None:
            _check_texts([key for key in self.keys if isinstance(key, str)])
        elif self.keys and not 0 <= min(rows := cast(Sequence[int], self.keys)) <= max(rows) < 2**62:
            raise UserError("a row must be an integer from 0 to 2^62 - 1")
        if self.people is None:
            return self
        if set(map(type, self.people)) - {str, PersonName}:
            raise UserError("a person's name must be text")
        return self if are_plain(self.people) else replace(self, people=[person_name(name) for name in self.people])


def known_by(person: Key, source: str | None) -> Key:
    """Return the name of an account: a person's name, or a file's row with its digest; raise a UserError for others."""
    if isinstance(person, str) and source is None:
        return person_name(person)
    if type(person) is int and 0 <= person < 2**62 and source is not None:
        return person
    raise UserError("a person's name is text, or a row (an integer from 0 on) and the digest of its file")


def _check_texts(texts: Sequence[str]) -> None:
    joined = "".join(texts)
    # SQLite may end a text at NUL, and cannot store half a surrogate pair.
    if "" in texts or "\0" in joined or not is_unicode(joined):
        raise UserError("a record's name must be text of one character or more, without NUL")


Id = str | int | bytes  # stored name of a person or record: a row, or a keyed hash
SUFFIX, DRAFT = ".key", ".key.new"
KEPT = "Without it no account can be found, and nothing is released. The key never changes: put back any copy of it"
KEY_BYTES = 32
LOST_KEY = "MURK-LEDGER-005"
_HEADER = "murk ledger key 1 "


@dataclass(frozen=True)
class NameKey:
    """Hashes names for storage in a ledger; without a secret it leaves them unchanged."""

    secret: bytes | None = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the key and reveals nothing about its content."""
        return self._hash(b"", b"murk ledger key").hex()

    def person(self, name: Key) -> Id:
        """Return a person's stored name."""
        if self.secret is None or not isinstance(name, str):
            return name
        return self._hash(name.encode(), b"murk person")

    def people(self, names: Sequence[Key]) -> Sequence[Id]:
        """Return people's stored names."""
        return names if self.secret is None else [self.person(name) for name in names]

    def record(self, key: Key | None, person: Id) -> Id | None:
        """Return the stored name of a person's record."""
        if isinstance(person, bytes) and isinstance(key, str):
            # Devices write one text in several canonically equal ways.
            return self._hash(person + unicodedata.normalize("NFC", key).encode(), b"murk record")
        return key

    def source(self, digest: str) -> str:
        """Return the stored name of records with a digest."""
        return digest if self.secret is None else self._hash(digest.encode(), b"murk source").hex()

    def order(self, task_hash: str, digest: str) -> bytes:
        """Return the key of the order in which a file's rows release to a task."""
        return self._hash(f"{task_hash} {digest}".encode(), b"murk order")

    def _hash(self, data: bytes, purpose: bytes) -> bytes:
        # 128 bits: no two of 10^12 names collide by chance, and without the key nobody can construct a collision.
        return blake2b(data, key=self.secret or b"", digest_size=16, person=purpose).digest()


def key_path(ledger: Path, suffix: str = SUFFIX) -> Path:
    """Return the path of a ledger's key: beside the file itself, with links resolved."""
    real = ledger.resolve()
    return real.with_name(real.name + suffix)


def make_key(ledger: Path) -> NameKey:
    """Write a new key under its draft name; call this only while the ledger's write lock is held."""
    key = NameKey(secrets.token_bytes(KEY_BYTES))
    assert key.secret is not None
    path = key_path(ledger, DRAFT)
    try:
        write_whole(path, f"{_HEADER}{key.secret.hex()}\n", own=True, mode=0o600)
    except OSError as error:
        raise MurkError(
            f"the key of the ledger {ledger} cannot be written ({error.strerror}): its directory must be writable, and "
            "have room. Nothing was released"
        ) from error
    return key


def read_key(ledger: Path, fingerprint: str) -> NameKey:
    """Return a ledger's key; raise a UserError, without the key, if it is missing, damaged, or another ledger's."""
    path = key_path(ledger)
    wrong = False
    # Another process may rename the draft between two attempts.
    for candidate in (path, key_path(ledger, DRAFT), path):
        warn_if_exposed(candidate, "the key of people's names")
        try:
            text = candidate.read_text(encoding="ascii")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = reason_of(error, "it is not text")
            raise UserError(f"the key {candidate} of {ledger} cannot be read ({why}). {KEPT}", code=LOST_KEY) from None
        key = _parse(text)
        if key is not None and key.fingerprint == fingerprint:
            return key
        wrong = True
    if wrong:
        raise UserError(f"{path} is damaged, or is the key of a ledger other than {ledger}. {KEPT}", code=LOST_KEY)
    raise UserError(f"the ledger {ledger} hashes names with a key, and {path} is missing. {KEPT} there", code=LOST_KEY)


def _parse(text: str) -> NameKey | None:
    secret = b""
    with suppress(ValueError):
        secret = bytes.fromhex(text.removeprefix(_HEADER).strip())
    return NameKey(secret) if text.startswith(_HEADER) and len(secret) == KEY_BYTES else None


def give_name(ledger: Path, fingerprint: str) -> None:
    """Rename a committed key to its final name, unless another process has or the folder is read-only."""
    path, draft = key_path(ledger), key_path(ledger, DRAFT)
    with suppress(OSError, UserError):
        read_key(ledger, fingerprint)
        if not path.exists():
            os.replace(draft, path)
            sync(path.parent)


def delete_key(ledger: Path) -> None:
    """Overwrite and delete a closed ledger's key; raise `MurkError` if that is not possible."""
    for path in (key_path(ledger), key_path(ledger, DRAFT)):
        try:
            if path.exists():
                with path.open("r+b") as file:
                    file.write(bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                sync(path.parent)
        except OSError as error:
            raise MurkError(
                f"the key {path} of a closed ledger cannot be deleted ({error.strerror}): delete it"
            ) from error
