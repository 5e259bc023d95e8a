"""Find and escape characters that are invisible or change how other characters are shown."""

import re
import unicodedata
from typing import Final

# Characters without a visible glyph, though most of them count as printable.
INVISIBLE: Final = (
    # Default_Ignorable_Code_Point of the Unicode Character Database: without a glyph of their own.
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
    # With a blank glyph: braille pattern blank, object replacement, Khitan filler, hieroglyphic blanks, null notehead.
    (0x2800, 0x2800),
    (0xFFFC, 0xFFFC),
    (0x16FE4, 0x16FE4),
    (0x13441, 0x13442),
    (0x1D159, 0x1D159),
)
_BLANK: Final = re.compile("[{}]".format("".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE)))
# A tab counts as a space; a carriage return is allowed only at the end of a line.
_PASSED: Final = re.compile(r"\t|\r?\n")


def unseen_character(text: str) -> tuple[int, str] | None:
    r"""Return the line number of the first invisible character and a description; None if there is none.

    Line feeds, tabs, carriage returns before a line feed and a leading byte order mark are allowed.

    >>> unseen_character("name: a\r\n")
    >>> unseen_character("a: 1\n# b\u2028c: 2")
    (2, 'character 4, U+2028 (LINE SEPARATOR), is invisible or hides text; remove it')
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return None
    for number, line in enumerate(_PASSED.sub(_kept, text.removeprefix("\ufeff")).split("\n"), 1):
        if not _is_visible(line):
            at, character = next((at, one) for at, one in enumerate(line, 1) if not _is_visible(one))
            name = unicodedata.name(character, "")
            label = f"U+{ord(character):04X}" + (f" ({name})" if name else "")
            return number, f"character {at}, {label}, is invisible or hides text; remove it"
    return None


def _kept(match: re.Match[str]) -> str:
    return " " if match[0] == "\t" else "\n"


def escaped(text: str) -> str:
    r"""Return text with invisible characters escaped as in a YAML double-quoted scalar.

    >>> escaped("a\x85b\U000e0001")
    'a\\x85b\\U000e0001'
    """
    return text if _is_visible(text) else "".join(map(_escape, text))


def _is_visible(text: str) -> bool:
    return text.isprintable() and (text.isascii() or _BLANK.search(text) is None)


def _escape(character: str) -> str:
    if _is_visible(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
