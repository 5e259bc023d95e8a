"""One spelling for each person: every character of Unicode, and the spellings of numbers."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.producers.ledger.names import (
    PersonName,
    ReleaseRequests,
    are_plain,
    is_seen,
    number_name,
    person_name,
)

DATA = Path(__file__).parent / "data" / "unicode-15.txt"
# But for letters without case that stay as they are (ideographs, syllables), which are many and alike.
ALL = [
    one
    for one in map(chr, range(0x110000))
    if unicodedata.category(one) not in ("Lo", "Co", "Cn", "Cs") or unicodedata.normalize("NFKC", one) != one
]


def listed(name: str) -> Iterator[str]:
    for line in DATA.read_text().splitlines():
        codes, _, found = line.partition(" ; ")
        if found == name:
            first, *last = codes.split("..")
            yield from map(chr, range(int(first, 16), int((last or [first])[0], 16) + 1))


def test_nothing_that_unicode_lets_a_program_ignore_is_in_a_name() -> None:
    ignorable = list(listed("Default_Ignorable_Code_Point"))
    assert len(ignorable) == 4174
    assert [one for one in ignorable if is_seen(one)] == []


def test_white_space_is_one_space_or_refused() -> None:
    """Also where compatibility characters bring it along."""
    spaces = list(listed("White_Space"))
    assert len(spaces) == 25
    for one in spaces:
        assert person_name(f"{one}ann{one}") == "ann"
        try:
            assert person_name(f"a{one}{one} b") == "a b"
        except UserError:
            assert unicodedata.category(one) in ("Cc", "Zl", "Zp")


def test_what_has_a_blank_glyph_is_not_in_a_name() -> None:
    """As a font draws it: all that it has without a contour."""
    with TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", lazy=True) as font:
        glyphs = font["glyf"]
        blank = {chr(code) for code, name in font.getBestCmap().items() if glyphs[name].numberOfContours == 0}
    assert {"\u2800", "\u00a0"} <= blank
    assert {one for one in blank if is_seen(one) and unicodedata.category(one) != "Zs"} == set()
    for one in (
        "\u115f",
        "\u1160",
        "\u3164",
        "\uffa0",
        "\u17b4",
        "\u180e",
        "\ufe0f",
        "\U000e0100",
        "\U0001d159",
        "\ufffc",
    ):
        with pytest.raises(UserError, match="an invisible or non-text character"):
            person_name(f"a{one}")


def test_a_name_has_the_same_name_again_and_no_character_that_is_refused() -> None:
    """Of every code point, alone and beside a digit."""
    taken = 0
    for one in ALL:
        for text in (one, f"1{one}"):
            try:
                name = str.__str__(person_name(text))
            except UserError:
                continue
            taken += 1
            assert type(person_name(name)) is str
            assert person_name(name) == name
            assert all(char == " " or is_seen(char) for char in name)
    assert taken > 20_000


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=8))
def test_every_text_is_refused_or_has_one_name(text: str) -> None:
    try:
        name = str.__str__(person_name(text))
    except UserError:
        return
    assert person_name(name) == name
    # Compatible texts, with other white space, are one person.
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert person_name(unicodedata.normalize(form, text)) == name
    assert person_name(f"\u3000{name}\u00a0".replace(" ", "\u2009 ")) == name
    if are_plain([text]):
        assert name == text


@pytest.mark.parametrize(
    "one",
    ["7", "7.0", "7.", "007", "+7", "7e0", "70e-1", "0.7E+1", "\uff17", "\u0667", "\u096d.\u0966", "\U0001d7d5",
     "\u2077", "\u2466", " 7 ", "\uff0b\uff17"],
)  # fmt: skip
def test_spellings_of_seven(one: str) -> None:
    assert person_name(one) == "7"
    assert are_plain([one]) == (one == "7")


@pytest.mark.parametrize(
    ("one", "name"),
    [
        ("0", "0"), ("-0.0", "0"), ("000", "0"), ("-7.0", "-7"), ("\u22127", "-7"), ("7.50", "7.5"), (".5", "0.5"),
        ("-0.050", "-0.05"), ("1e3", "1000"), ("12e4", "120000"), ("1E-2", "0.01"), ("\u0667\u066b\u0665", "7.5"),
        ("1e70", "1e70"), ("10e69", "1e70"), ("1" + "0" * 70, "1e70"), ("0.1e71", None),
        ("9007199254740991.0", "9007199254740991"), ("9007199254740992.0", None), ("1.2345678901234568e+16", None),
        ("12345678901234567", "12345678901234567"), ("1e" + "0" * 9000 + "3", "1000"), ("1e9999999999", None),
        ("7a", "7a"), ("1e", "1e"), ("e5", "e5"), ("+", "+"), ("1,a", "1,a"),
        ("O'7", "O'7"), ("7-0", "7-0"), ("NaN", "NaN"), ("P007", "P007"), ("Ann", "Ann"),
    ],
)  # fmt: skip
def test_numbers_have_one_spelling_and_other_texts_stay(one: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(UserError, match=r"rounded: floats distinguish ids of at most 15 digits|out of range"):
            person_name(one)
        return
    assert person_name(one) == name
    assert not are_plain([one]) or one == name


@pytest.mark.parametrize(
    "one",
    [
        "7,0",
        "1,000",
        "-7,50",
        "1,000.0",
        "12,5e3",
        "'7",
        "'007",
        "1.234,5",
        "7.0,1",
        ",5",
        "7,",
        "1,2,",
        "1'234",
        "\u20197",
        "\uff17\uff0c\uff10",
        "7\u066c0",
        "1 234 567",
        "1\u00a0234",
        "1\u202f234\u202f567",
        "1\u2219234\u2219567",
        "1\u2022234",
        "1.234.567",
        "1_234_567",
        "1`234",
        "1\u00b4234",
        "1\u00b7234",
        "1\u02d9234",
        "1\u2396234",
        "1\u3001234",
        "1\ufe50234",
        "1234-",
        "(1234)",
        "#1234",
        "=1234",
        '"1234"',
        "0x4d2",
        "0x7",
        "1.2.3",
        "1.234d3",
        "1234\u20e3",
    ],
)
def test_numbers_that_programs_read_in_different_ways_are_refused(one: str) -> None:
    """Thousands signs, marks and other bases would give a person a second account."""
    assert not are_plain([one])
    with pytest.raises(UserError, match="a number with more than its digits"):
        person_name(one)


@pytest.mark.parametrize(
    "one", ["12345678L", "079-123", "a1 234", "2024-05-31", "4d2f", "12d4", "0xyz", "Room 12", "\u4e00\u4e8c"]
)
def test_ids_with_letters_or_hyphens_stay_as_they_are(one: str) -> None:
    assert person_name(one) == one


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10**15),
    st.integers(0, 3),
    st.sampled_from(["{}", "{}.0", "+{}", "{}.", "{}e0", "{}0e-1", "{}.00e0"]),
)
def test_programs_that_write_the_same_integer_write_the_same_name(value: int, zeros: int, how: str) -> None:
    assert person_name(how.format("0" * zeros + str(value))) == str(value)
    assert person_name(repr(float(value))) == number_name(float(value)) == str(value)


def test_ids_that_a_program_has_read_as_floats() -> None:
    for value in (7.5, float("nan"), float("inf"), -float("inf")):
        with pytest.raises(UserError, match="not a whole number"):
            number_name(value)
    with pytest.raises(UserError, match="names several people at once"):
        number_name(2.0**53)


def test_capitals_count() -> None:
    assert person_name("aB3") != person_name("Ab3")


def test_a_name_remembers_how_it_was_written() -> None:
    name = person_name("007")
    assert isinstance(name, PersonName)
    assert (name, name.written) == ("7", "007")
    assert person_name(name) is name
    assert {name: 1} == {"7": 1}
    claims = ReleaseRequests([None, None], [name, "ann"], ["default"] * 2)
    assert claims.checked().people == ["7", "ann"]
