"""Sentences about one name and about several, as English has them."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import murk
from murk import Task
from murk._internal.numbers import listed, many
from murk.cli import cli
from murk.inference.stream_change import StreamChange
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


SEVERAL_ROWS = """
name: visits
features: [{name: age, low: 20, high: 90}]
target: {name: back, kind: binary, positive: "yes", negative: "no"}
protocol: examples
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""


def test_how_rows_of_a_person_counted_is_said_everywhere(tmp_path: Path) -> None:
    """In print, in a notebook, among the caveats, and where rows are only sent."""
    rows = "".join(f"p{number % 40},{20 + number % 70},{'yes' if number % 2 else 'no'}\n" for number in range(121))
    (tmp_path / "rows.csv").write_text("person,age,back\n" + rows)
    (tmp_path / "task.yaml").write_text(SEVERAL_ROWS)
    at = {"log": f"sqlite:///{tmp_path}/log.db", "ledger": tmp_path / "ledger.db"}
    result = murk.run(Task.parse(SEVERAL_ROWS), tmp_path / "rows.csv", person="person", seed=1, **at)
    sentence = "one answer a person, so all people have the same weight"
    assert "40 people with 121 rows: one answer" in result.report["counted_rows"]
    assert sentence in " ".join(str(result).split())
    assert sentence in result._repr_html_()
    assert any(sentence in caveat for caveat in result.caveats)
    words = [
        "produce",
        "task.yaml",
        "--source",
        "rows.csv",
        "--person",
        "person",
        "--seed",
        "1",
        "--log",
        "sqlite:///b.db",
    ]
    with chdir(tmp_path):
        sent = CliRunner().invoke(cli, words).output
    assert sentence in " ".join(sent.split())
    # Rows that are people have none.
    rows_alone = murk.run(Task.parse(SEVERAL_ROWS.replace("visits", "rows")), tmp_path / "rows.csv", seed=1)
    assert "the same weight" not in str(rows_alone)
