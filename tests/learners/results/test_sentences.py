"""Sentences about one name and about several, as English has them."""

from typing import Any

import numpy as np
import pytest

from murk._internal.numbers import listed, many
from murk.inference.stream import StreamChange
from murk.protocols.scores.estimate import Need
from murk.results.diagnosis import _people
from murk.results.text import describe_disagreement, describe_not_learned

LEVELS = {"default": {"guarantee": {"gdp": {"mu": 1.0}}}}


def report(*names: str) -> dict[str, Any]:
    return {
        "odds_ratios": True,
        "effects_note": "",
        "needed": {name: Need(4_000).to_dict() for name in names},
        "not_learned": list(names),
    }


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "a. It would take about 4,000 people in all, at which its interval becomes bounded"),
        (["a", "b"], "a, b. It would take about 4,000 people in all, at which their intervals become bounded"),
    ],
)
def test_what_several_coefficients_need_is_said_of_several(names: list[str], words: str) -> None:
    [sentence] = describe_not_learned(report(*names))
    assert words in sentence


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a"], "Points of a are not learned although the odds ratio is:"),
     (["a", "b", "c"], "Points of a, b and c are not learned although the odds ratios are:")],
)  # fmt: skip
def test_points_that_are_not_learned(names: list[str], words: str) -> None:
    learned = {"interval": [0.1, 0.2]}
    unknown = {"interval": [-np.inf, np.inf]}
    found = {
        "average_effects": dict.fromkeys(names, unknown), "per_unit": dict.fromkeys(names, learned), "not_learned": [],
    }  # fmt: skip
    [sentence] = describe_disagreement(found)
    assert sentence.startswith(words)


def test_lists_and_counts() -> None:
    assert [listed(["a", "b", "c"][:size]) for size in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed(["a", "b"], "or") == "a or b"
    assert [many(count, "person", "people") for count in (1, 2_000)] == ["1 person", "2,000 people"]
    assert ", above all age and income:" in StreamChange(1.0, True, ("age", "income")).words
    for count, words in ((1, "1 person at mu = 1 is too few"), (7, "7 people at mu = 1 are too few")):
        assert _people({"releases": count, "levels": LEVELS}, ["a"], {}).words == words
