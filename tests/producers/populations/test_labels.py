"""A file with one label only: a simulation refuses it, and values are told of simulations alone."""

from pathlib import Path

import pytest

from murk.errors import UserError
from murk.populations import FileSource
from murk.populations.file_work import LabelSurvey, undeclared
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from tests.producers.world import TEXT, make_task

LABELS = {"alike": ["no"] * 30, "differing": ["no"] * 29 + ["yes"]}


def write_labels(path: Path, labels: list[str]) -> Path:
    path.write_text("age,same_sex,origin,third_child\n" + "".join(f"28,no,JFK,{label}\n" for label in labels))
    return path


def survey(
    folder: Path,
    labels: list[str],
    simulated: bool,
    text: str = TEXT,
) -> LabelSurvey:
    path = write_labels(folder / "people.csv", labels)
    source = FileSource(path, make_task(simulated=simulated, text=text))
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


@pytest.mark.parametrize(
    ("label", "said"), [("one", "has one class in all rows"), ("", "has a declared class in no row")]
)
@pytest.mark.parametrize("simulated", [True, False])
def test_of_several_classes_one_is_not_enough(tmp_path: Path, label: str, said: str, simulated: bool) -> None:
    with pytest.raises(UserError, match=f"{said}, so nothing could be learned.*Spell classes as") as found:
        survey(tmp_path, [label] * 20, simulated, text=CLASSES).check()
    assert ("It has 'one' in 20." in str(found.value)) == (simulated and label == "one")
    survey(tmp_path, ["one"] * 20 + ["more"], simulated, text=CLASSES).check()


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


def test_real_releases_are_never_refused_for_their_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether releases arrive would tell one person's label to anyone who knows all others."""
    monkeypatch.chdir(tmp_path)
    alike, differing = (write_labels(tmp_path / f"{name}.csv", labels) for name, labels in LABELS.items())
    found = {}
    for path in (alike, differing):
        task = make_task(simulated=False)
        crowd = PopulationConfig(path)
        with LocalRun(task, crowd, f"sqlite:///{path.stem}.db", f"{path.stem}.ledger.db") as run:
            list(run.steps())
            found[path.stem] = run.releases, run.population.findings
    assert found["alike"][0] == found["differing"][0] == 30
    assert found["differing"][1] == ()
    [said] = found["alike"][1]
    assert "'yes' in no row, so nothing could be learned. Spell positive" in said
    assert "It has" not in said


def test_two_labels_are_enough(tmp_path: Path) -> None:
    for simulated in (True, False):
        survey(tmp_path, ["no"] * 30 + ["yes"], simulated).check()
    real = TEXT.replace(
        '{name: third_child, kind: binary, positive: "yes", negative: "no"}',
        "{name: third_child, kind: real, low: 0, high: 1}",
    )
    survey(tmp_path, ["0"] * 30, True, text=real).check()
