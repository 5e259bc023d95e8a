"""One spelling for each person: a name as accounts know it, whatever the file or the program that wrote it.

Names are compared as RFC 8266 compares nicknames (section 2.4: white space collapsed, NFKC, an allow-list of characters
by their Unicode properties, RFC 8264), with two differences. Capitals count: identifiers in base 64, such as the record
ids of customer databases, differ by them alone, and folding would let two people share an account. And the spellings of
one number are one name: 7, 7.0, 007 and 7e0 are what different programs make of the same id.

What only looks alike (a Cyrillic and a Latin "a", "rn" and "m") stays different: no property of characters tells.
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
"""Integers of up to so many digits are spelled out; others, and names in scientific notation, by their exponent."""
_EXACT: Final = 2**53
_WIDTHS: Final = 10
_ROUNDED: Final = (
    "floats have no more than 15 digits to tell ids apart, and this one has more. Keep the column as text when the "
    "records are read"
)

_NUMBER: Final = re.compile(r"(?P<sign>[-+]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[-+]?[0-9]+))?")
_PLAIN: Final = rf"(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
# A line that consists of what numbers are written with, and is not a whole number as it is spelled here.
_ODD_NUMBER: Final = re.compile(rf"^(?!{_PLAIN}$)[-+.0-9][-+.0-9eE]*$", re.MULTILINE)

# Letters, marks, numbers, punctuation and symbols. Not control and format characters, halves of surrogate pairs,
# private and unassigned ones, line and paragraph separators.
_ALLOWED: Final = frozenset("LMNPS")
_INVISIBLE: Final = (
    # Default_Ignorable_Code_Point of the Unicode Character Database: without a glyph of their own.
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
    # With a blank glyph: braille pattern blank, Khitan filler, hieroglyphic blanks, null notehead, a place
    # for an object.
    (0x2800, 0x2800), (0xFFFC, 0xFFFC), (0x16FE4, 0x16FE4), (0x13441, 0x13442), (0x1D159, 0x1D159),
)  # fmt: skip
# Minus sign and Arabic decimal separator.
_SIGNS: Final = {0x2212: "-", 0x066B: "."}


class PersonName(str):
    """A name as accounts know it, which was written in another way.

    Attributes
    ----------
    written
        The name as it was written.
    """

    written: str


def person_name(name: str) -> str:
    """Return a person's name as accounts know it: in compatibility form (NFKC), white space collapsed, numbers alike.

    Returns
    -------
    str
        The name; a `PersonName` where it was written in another way.

    Raises
    ------
    UserError
        For a name that is empty, or has a character in it that nobody sees, that is not text, or that Unicode does not
        know. The message does not repeat it.

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
            "a person's name has a character in it that nobody sees or that is no text (a control, format, private or "
            "unassigned character, a filler, a variation selector, a blank): take it out, or the same person would "
            "have two accounts"
        )
    if "  " in text:
        text = re.sub(" {2,}", " ", text)
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(one)) if unicodedata.category(one) == "Nd" else one for one in text)
    text = _number(text)
    if text == name:
        return name
    found = PersonName(text)
    found.written = name
    return found


def person_names(names: Sequence[str]) -> Sequence[str]:
    """The names of several people as accounts know them; the same object where they are so already."""
    return names if are_plain(names) else [person_name(name) for name in names]


def are_plain(names: Sequence[str]) -> bool:
    """Whether all are names as accounts know them, as quickly as most names allow to say so."""
    joined = "\n".join(names)
    if not joined.isascii() or " " in joined or "" in names:
        return False
    together = joined.replace("\n", "") if len(names) > 1 else joined
    return (
        together.isprintable() and joined.count("\n") == max(0, len(names) - 1) and _ODD_NUMBER.search(joined) is None
    )


def number_name(value: float | Decimal) -> str:
    """Return the name of a person whose id a program has read as a number with a point: 7.0 is 7.

    Raises
    ------
    UserError
        For what is no whole number, or so large that floats cannot tell it from its neighbours.
    """
    whole = int(value) if value == value and abs(value) != float("inf") else None
    if whole is None or whole != value:
        raise UserError("this names nobody: it is no whole number. Give every row a name: a text, or a whole number")
    if isinstance(value, float) and abs(whole) >= _EXACT:
        raise UserError(f"this names several people at once: {_ROUNDED}")
    return str(whole)


@lru_cache(maxsize=4096)
def is_seen(character: str) -> bool:
    """Whether a character may stand in a name: it is text, and drawn."""
    code = ord(character)
    if any(first <= code <= last for first, last in _INVISIBLE):
        return False
    return unicodedata.category(character)[0] in _ALLOWED


def folded_name(name: str) -> str:
    """Return the name that somebody's account has from now on whom a ledger knew as ``name`` under earlier rules.

    Characters that are refused now are taken out, so that nobody is met again who spells a name without them.
    """
    normal = unicodedata.normalize("NFKC", "".join(one for one in name if not _is_half(one)))
    seen = "".join(one if one == " " or is_seen(one) else " " * (unicodedata.category(one) == "Zs") for one in normal)
    try:
        return str.__str__(person_name(seen))
    except UserError:
        return name


def earlier_spellings(name: str) -> Iterator[str]:
    """Yield what a person's account may be called in a ledger of earlier rules: composed texts, as they were written.

    A number may have been written with leading zeros, or with the point that programs add beside missing values.
    """
    written = getattr(name, "written", name)
    found = dict.fromkeys([unicodedata.normalize("NFC", written.strip()), str.__str__(name)])
    if name.isascii() and name.isdigit():
        found |= dict.fromkeys([f"{name}.0", *(name.zfill(width) for width in range(len(name) + 1, _WIDTHS + 1))])
    if " " in name:
        found |= {name.replace(" ", "\u00a0"): None}
    yield from found


def _is_half(character: str) -> bool:
    return unicodedata.category(character) == "Cs"


def _number(text: str) -> str:
    """The one spelling of a number; every other text as it is."""
    if text.isdigit() and len(text) <= DIGITS and text.isascii():
        return text.lstrip("0") or "0"
    found = _NUMBER.fullmatch(text if text.isascii() else text.translate(_SIGNS))
    if found is None:
        return text
    sign, whole, part, written = found["sign"], found["whole"], found["part"] or "", found["power"] or ""
    power = written.lstrip("+-").lstrip("0")
    if not whole + part:
        return text
    if len(power) > 9:
        raise UserError("a person's name is a number beyond all bounds: write it with fewer digits, or with a letter")
    exponent = int(power or "0") * (-1 if written[:1] == "-" else 1) - len(part)
    digits = (whole + part).lstrip("0")
    short = digits.rstrip("0")
    exponent += len(digits) - len(short)
    if not short:
        return "0"
    sign = "-" if sign == "-" else ""
    # As programs write floats.
    inexact = exponent >= 0 and (part or written[:1] in ("+", "-"))
    if inexact and (exponent + len(short) > 16 or int(short) * 10**exponent >= _EXACT):
        raise UserError(f"a person's name is a number that a program has rounded: {_ROUNDED}")
    if 0 <= exponent <= DIGITS - len(short):
        return sign + short + "0" * exponent
    if -DIGITS <= exponent < 0:
        padded = short.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{short}e{exponent}"
