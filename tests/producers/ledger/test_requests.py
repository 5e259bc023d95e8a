"""What may be asked of a ledger: which keys, names and rows."""

import pytest

from murk.errors import UserError
from murk.producers.ledger.names import ReleaseRequests, are_plain, known_by, person_name

FILE = "f" * 64
LAST = 2**62 - 1
"""The largest row; SQLite's integers end at 2^63."""


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "a\udfff"])
def test_a_key_is_a_text_that_comes_back_as_it_was(key: str) -> None:
    with pytest.raises(UserError, match="text of one character or more, without NUL"):
        ReleaseRequests([key], ["ann"], ["default"]).checked()
    # Beside a record that has none, too.
    with pytest.raises(UserError, match="text of one character or more, without NUL"):
        ReleaseRequests([None, "k", key], ["ann"] * 3, ["default"] * 3).checked()


def test_keys_that_are_taken() -> None:
    for keys in (["k"], [None, "k"], [None, None], ["é", "a b"], []):
        claims = ReleaseRequests(keys, ["ann"] * len(keys), ["default"] * len(keys))
        assert claims.checked() is claims
    for row in (0, LAST):
        claims = ReleaseRequests([row], None, ["default"], source=FILE)
        assert claims.checked() is claims
    for row in (-1, LAST + 1):
        with pytest.raises(UserError, match="a row must be an integer from 0"):
            ReleaseRequests([5, row], None, ["default"] * 2, source=FILE).checked()


@pytest.mark.parametrize("keys", [[1], [1.5], ["k", 1], [b"k"], [True]])
def test_without_a_file_a_record_is_known_by_a_text(keys: list[object]) -> None:
    with pytest.raises(UserError, match="a record's key must be text; for records of a file, its row"):
        ReleaseRequests(keys, ["ann"] * len(keys), ["default"] * len(keys)).checked()  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [["k"], [None], [True], [1.0], [1, "k"]])
def test_records_of_a_file_are_known_by_their_rows(keys: list[object]) -> None:
    with pytest.raises(UserError, match="a record's key must be text; for records of a file, its row"):
        ReleaseRequests(keys, ["ann"] * len(keys), ["default"] * len(keys), source=FILE).checked()  # type: ignore[arg-type]


def test_all_are_of_one_length() -> None:
    for keys, people, levels in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2)):
        with pytest.raises(UserError, match="must have the same length"):
            ReleaseRequests(["k"] * keys, ["ann"] * people, ["default"] * levels).checked()
    with pytest.raises(UserError, match="say whose they are"):
        ReleaseRequests(["k"], None, ["default"]).checked()
    for people in ([5], ["ann", None]):
        with pytest.raises(UserError, match="a person's name must be text"):
            ReleaseRequests(["k"] * len(people), people, ["default"] * len(people)).checked()  # type: ignore[arg-type]


def test_an_account_is_of_a_name_or_of_a_row_and_its_file() -> None:
    assert known_by(" Zoe\u0301 ", None) == "Zo\u00e9"
    assert [known_by(row, FILE) for row in (0, LAST)] == [0, LAST]
    wrong: list[tuple[object, str | None]] = [("ann", FILE), (0, None), (-1, FILE), (LAST + 1, FILE), (True, FILE)]
    for person, source in [*wrong, (None, None), (1.0, FILE)]:
        with pytest.raises(UserError, match="a person's name is text, or a row"):
            known_by(person, source)  # type: ignore[arg-type]


def test_plain_names_are_left_as_they_are() -> None:
    plain = ["ann", "w7", "a-b_c.d@e"]
    assert are_plain(plain)
    for other in ("a b", " ann", "é", "a\tb", ""):
        assert not are_plain([*plain, other])
    assert [person_name(name) for name in ("ann", " Zoe\u0301 ")] == ["ann", "Zo\u00e9"]
