"""One spelling for each person: normalization of names.

Names are compared as nicknames in RFC 8266 (section 2.4: white space collapsed, NFKC, only characters allowed by RFC
8264), with two differences. Case counts, since identifiers in base 64 differ by it alone. The spellings of one number
are one name (7, 7.0, 007, 7e0), since programs write the same id differently. Characters that only look alike (Cyrillic
and Latin "a") stay different.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

from murk.errors import UserError

DIGITS: Final = 64
"""Most digits of a number that is written out; longer ones are written with an exponent."""
_EXACT: Final = 2**53
_WIDTHS: Final = 10
_ROUNDED: Final = "floats have no more than 15 digits to tell ids apart, and this one has more. Read the column as text"

_NUMBER: Final = re.compile(r"(?P<sign>[-+]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[-+]?[0-9]+))?")
_PLAIN: Final = rf"(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
# Matches a line made of number characters that is not a normalized whole number.
_ODD_NUMBER: Final = re.compile(rf"^(?!{_PLAIN}$)[-+.0-9][-+.0-9eE]*$", re.MULTILINE)

# Letters, marks, numbers, punctuation and symbols.
_ALLOWED: Final = frozenset("LMNPS")
_INVISIBLE: Final = (
    # Default_Ignorable_Code_Point of the Unicode Character Database: without a glyph of their own.
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
    # With a blank glyph: braille pattern blank, object replacement, Khitan filler, hieroglyphic blanks, null notehead.
    (0x2800, 0x2800), (0xFFFC, 0xFFFC), (0x16FE4, 0x16FE4), (0x13441, 0x13442), (0x1D159, 0x1D159),
)  # fmt: skip
# Minus sign and Arabic decimal separator.
_SIGNS: Final = {0x2212: "-", 0x066B: "."}


class PersonName(str):
    """A normalized name that was written differently, as its attribute ``written`` says."""

    written: str


def person_name(name: str) -> str:
    """Return a person's normalized name: NFKC, white space collapsed, numbers in one spelling.

    The result is a `PersonName` if it was written differently. Raises UserError, without quoting it, for a name that is
    empty or has an invisible, unassigned or non-text character.

    Examples
    --------
    >>> person_name(" Zoe\u0301\u00a0 Li ") == person_name("Zo\u00e9 Li")
    True
    >>> [person_name(one) for one in ("7", "7.0", "007", "+7", "7e0", "\uff17", "\u0667", "7.50", "1e3")]
    ['7', '7', '7', '7', '7', '7', '7', '7.5', '1000']
    """
    if isinstance(name, PersonName):
        return name
    if not isinstance(name, str):
        raise UserError("a person's name must be a text")
    text = name.strip()
    if text.isascii():
        seen = text.isprintable()
    else:
        text = unicodedata.normalize("NFKC", text)
        text = "".join(" " if unicodedata.category(one) == "Zs" else one for one in text).strip()
        seen = all(one == " " or is_seen(one) for one in text)
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
        text = "".join(str(unicodedata.decimal(one)) if unicodedata.category(one) == "Nd" else one for one in text)
    text = _number(text)
    if text == name:
        return name
    normalized = PersonName(text)
    normalized.written = name
    return normalized


def person_names(names: Sequence[str]) -> Sequence[str]:
    """Return the normalized names of several people; the same object if they are normalized."""
    return names if are_plain(names) else [person_name(name) for name in names]


def are_plain(names: Sequence[str]) -> bool:
    """Return whether all names are surely normalized; a quick check."""
    joined = "\n".join(names)
    if not joined.isascii() or " " in joined or "" in names:
        return False
    together = joined.replace("\n", "") if len(names) > 1 else joined
    return (
        together.isprintable() and joined.count("\n") == max(0, len(names) - 1) and _ODD_NUMBER.search(joined) is None
    )


def number_name(value: float | Decimal) -> str:
    """Return the name of a person whose id was read as a float or decimal: 7.0 is 7.

    Raises UserError if it is not a whole number, or too large for a float to represent exactly.
    """
    whole = int(value) if value == value and abs(value) != float("inf") else None
    if whole is None or whole != value:
        raise UserError("this names nobody: not a whole number. Give every row a name: a text, or a whole number")
    if isinstance(value, float) and abs(whole) >= _EXACT:
        raise UserError(f"this names several people at once: {_ROUNDED}")
    return str(whole)


@lru_cache(maxsize=4096)
def is_seen(character: str) -> bool:
    """Return whether a character may occur in a name: it is text and visible."""
    code = ord(character)
    if any(first <= code <= last for first, last in _INVISIBLE):
        return False
    return unicodedata.category(character)[0] in _ALLOWED


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded, so that all bytes that it was read from were characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def folded_name(name: str) -> str:
    """Return the current name of an account that a ledger stores as ``name`` under earlier rules.

    Characters that are refused now are removed, as people will have to spell the name without them.
    """
    normal = unicodedata.normalize("NFKC", "".join(one for one in name if unicodedata.category(one) != "Cs"))
    seen = "".join(one if one == " " or is_seen(one) else " " * (unicodedata.category(one) == "Zs") for one in normal)
    try:
        return str.__str__(person_name(seen))
    except UserError:
        return name


def earlier_spellings(name: str) -> Iterator[str]:
    """Yield the spellings under which a ledger of earlier rules may store a person's account.

    Numbers may have leading zeros, or the point that programs add in columns with missing values.
    """
    written = getattr(name, "written", name)
    found = dict.fromkeys([unicodedata.normalize("NFC", written.strip()), str.__str__(name)])
    if name.isascii() and name.isdigit():
        found |= dict.fromkeys([f"{name}.0", *(name.zfill(width) for width in range(len(name) + 1, _WIDTHS + 1))])
    if " " in name:
        found |= {name.replace(" ", "\u00a0"): None}
    yield from found


def _number(text: str) -> str:
    """Return the normal spelling of a number, or any other text unchanged."""
    if text.isdigit() and len(text) <= DIGITS and text.isascii():
        return text.lstrip("0") or "0"
    match = _NUMBER.fullmatch(text if text.isascii() else text.translate(_SIGNS))
    if match is None:
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
