"""Find and escape characters that are invisible or change how other characters are shown."""

import re
import unicodedata
from typing import Final

# Characters without a visible glyph, though most of them count as printable.
INVISIBLE: Final = re.compile(
    # Characters without a glyph of their own: Default_Ignorable_Code_Point of the Unicode Character Database.
    r"[\u00AD\u034F\u061C\u115F-\u1160\u17B4-\u17B5\u180B-\u180F\u200B-\u200F\u202A-\u202E\u2060-\u206F\u3164"
    r"\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFF8\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF"
    # Characters with a blank glyph: braille pattern blank, object replacement, Khitan filler, hieroglyphic blanks, null
    # notehead.
    r"\u2800\uFFFC\U00016FE4\U00013441-\U00013442\U0001D159]"
)
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
    visible = _PASSED.sub(lambda match: " " if match[0] == "\t" else "\n", text.removeprefix("\ufeff"))
    for number, line in enumerate(visible.split("\n"), 1):
        if not _is_visible(line):
            at, character = next((at, one) for at, one in enumerate(line, 1) if not _is_visible(one))
            name = unicodedata.name(character, "")
            label = f"U+{ord(character):04X}" + (f" ({name})" if name else "")
            return number, f"character {at}, {label}, is invisible or hides text; remove it"
    return None


def escaped(text: str) -> str:
    r"""Return text with invisible characters escaped as in a YAML double-quoted scalar.

    >>> escaped("a\x85b\U000e0001")
    'a\\x85b\\U000e0001'
    """
    return text if _is_visible(text) else "".join(map(_escape, text))


def _is_visible(text: str) -> bool:
    return text.isprintable() and (text.isascii() or INVISIBLE.search(text) is None)


def _escape(character: str) -> str:
    if _is_visible(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
