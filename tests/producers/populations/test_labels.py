"""A file with one label only: refused where that tells nothing of anybody, and values are told of simulations alone."""

import csv
from pathlib import Path

import pytest

from murk.errors import UserError
from murk.producers import FileSource
from murk.producers.populations.labels import SMALLEST_GROUP, LabelSurvey, undeclared
from tests.producers.world import TEXT, make_task


def survey(
    folder: Path,
    labels: list[str],
    simulated: bool,
    text: str = TEXT,
    people: list[str] | None = None,
    organisations: bool = False,
) -> LabelSurvey:
    names = people or [f"w{row}" for row in range(len(labels))]
    with (folder / "people.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "same_sex", "origin", "third_child", "who"])
        writer.writerows([28, "no", "JFK", label, name] for label, name in zip(labels, names, strict=True))
    who = {"organisation_column" if organisations else "person_column": "who"} if people else {}
    source = FileSource(folder / "people.csv", make_task(simulated=simulated, text=text), **who)
    found = LabelSurvey(source)
    for block in source.blocks(size=7):
        found.add(block)
    return found


@pytest.mark.parametrize(
    ("label", "said"), [("yes", "'yes' in all rows with a value"), ("no", "'yes' in no row"), ("", "'yes' in no row")]
)
def test_a_simulation_is_told_what_there_is(tmp_path: Path, label: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as found:
        survey(tmp_path, [label] * 3, True).check()
    if label:
        assert f"It has '{label}' in 3" in str(found.value)


CLASSES = TEXT.replace(
    '{name: third_child, kind: binary, positive: "yes", negative: "no"}',
    "{name: third_child, kind: classes, classes: [none, one, more]}",
)


@pytest.mark.parametrize(("label", "said"), [("one", "has one class in all rows"), ("", "has a class in no row")])
@pytest.mark.parametrize("simulated", [True, False])
def test_of_several_classes_one_is_not_enough(tmp_path: Path, label: str, said: str, simulated: bool) -> None:
    with pytest.raises(UserError, match=f"{said}, so that nothing could be learned.*Spell classes as") as found:
        survey(tmp_path, [label] * SMALLEST_GROUP, simulated, text=CLASSES).check()
    assert ("It has 'one' in 20." in str(found.value)) == (simulated and label == "one")
    survey(tmp_path, ["one"] * SMALLEST_GROUP + ["more"], simulated, text=CLASSES).check()


def test_the_ten_most_frequent_values_are_told(tmp_path: Path) -> None:
    text = TEXT.replace(', negative: "no"', "").replace('"yes"}', "Yes}")
    labels = [f"v{place}" for place in range(12) for _ in range(1200 - 100 * place)]
    with pytest.raises(UserError, match="in no row") as found:
        survey(tmp_path, labels, True, text=text).check()
    told = ", ".join(f"'v{place}' in {1200 - 100 * place:,}" for place in range(10))
    assert f"It has {told}. Spell" in str(found.value)


def test_labels_that_are_not_declared_are_counted(tmp_path: Path) -> None:
    """Of a binary target without `negative`, in a simulation alone."""
    text = TEXT.replace(', negative: "no"', "")
    labels = ["yes", "no", "No", "no", "", " Yes "]
    assert undeclared(survey(tmp_path, labels, True, text=text)._source) == {"rows": 4, "values": 3}
    for simulated, other in ((False, text), (True, TEXT), (True, CLASSES)):
        labels = ["one"] if other == CLASSES else ["yes", "no"]
        assert undeclared(survey(tmp_path, labels, simulated, text=other)._source) is None


def test_real_releases_of_too_few_are_told_nothing(tmp_path: Path) -> None:
    """Of people, not of rows: one person's many records say what that person's label is."""
    survey(tmp_path, ["no"] * (SMALLEST_GROUP - 1), False).check()
    survey(tmp_path, ["no"] * 60, False, people=[f"w{row % (SMALLEST_GROUP - 1)}" for row in range(60)]).check()
    for people in (None, [f"w{row % SMALLEST_GROUP}" for row in range(60)]):
        rows = SMALLEST_GROUP if people is None else 60
        with pytest.raises(UserError, match="'yes' in no row") as found:
            survey(tmp_path, ["no"] * rows, False, people=people).check()
        assert "It has" not in str(found.value)
    # Records of an organisation are of a person each.
    with pytest.raises(UserError, match="'yes' in no row"):
        survey(tmp_path, ["no"] * SMALLEST_GROUP, False, people=["clinic"] * SMALLEST_GROUP, organisations=True).check()


def test_two_labels_are_enough(tmp_path: Path) -> None:
    for simulated in (True, False):
        survey(tmp_path, ["no"] * 30 + ["yes"], simulated).check()
    real = TEXT.replace(
        '{name: third_child, kind: binary, positive: "yes", negative: "no"}',
        "{name: third_child, kind: real, low: 0, high: 1}",
    )
    survey(tmp_path, ["0"] * 30, True, text=real).check()
