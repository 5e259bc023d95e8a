"""Find and escape characters that are invisible or change how other characters are shown."""

import re
import unicodedata
from typing import Final

# A tab counts as a space; a carriage return is allowed only at the end of a line.
_PASSED: Final = re.compile(r"\t|\r?\n")


def unseen_character(text: str) -> tuple[int, str] | None:
    r"""Return the line number of the first invisible character and a description; None if there is none.

    Line feeds, tabs, carriage returns before a line feed and a leading byte order mark are allowed.

    Examples
    --------
    >>> unseen_character("name: a\r\n")
    >>> unseen_character("a: 1\n# b\u2028c: 2")
    (2, 'character 4, U+2028 (LINE SEPARATOR), is invisible or hides text; remove it')
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return None
    for number, line in enumerate(_PASSED.sub(_kept, text.removeprefix("\ufeff")).split("\n"), 1):
        if not line.isprintable():
            at, character = next((at, one) for at, one in enumerate(line, 1) if not one.isprintable())
            name = unicodedata.name(character, "")
            label = f"U+{ord(character):04X}" + (f" ({name})" if name else "")
            return number, f"character {at}, {label}, is invisible or hides text; remove it"
    return None


def _kept(match: re.Match[str]) -> str:
    return " " if match[0] == "\t" else "\n"


def escaped(text: str) -> str:
    r"""Return a text with invisible characters escaped as in a YAML double-quoted scalar.

    Examples
    --------
    >>> escaped("a\x85b\U000e0001")
    'a\\x85b\\U000e0001'
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
