"""`murk plan`: its tables, its choice, and what goes wrong; and the line that a run begins with."""

import json

import pytest
from click.testing import CliRunner

from murk.cli import cli
from murk.errors import MurkError
from tests.cli import harness

TASK = """
name: weeks
features: [{name: age, low: 21, high: 35}]
target: {name: weeks_worked, kind: real, low: 0, high: 52}
protocol: examples
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "public.csv").write_text("age,child\n" + "".join(f"{21 + i % 15},1\n" for i in range(300)))

    def run(*words):
        found = CliRunner().invoke(cli, ["plan", str(tmp_path / "task.yaml"), *map(str, words)])
        if isinstance(found.exception, MurkError):
            return str(found.exception)
        assert found.exception is None, found.exception
        return found.stdout

    return run


def test_a_plan_shows_half_widths_a_choice_and_what_an_error_takes(planned, tmp_path):
    picture = tmp_path / "plan.png"
    shown = planned("--people", 50_000, "--protocol", "moments", "--error", "age=0.5", "--picture", picture)
    for words in (
        "typical population", "age: one unit more", "50,000 at mu = 2", "50,000 at mu = 4", "Of these, ",
        "with 50,000 people",
        "For the requested half-widths, at the task's budget, examples: about",
        "at one planned look; about", "people until it holds at every look",
        "average effects, in the target's units",
    ):  # fmt: skip
        assert words in " ".join(shown.split()), words
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_has_every_forecast_and_people_needed_give_what_was_asked(planned):
    wanted = 0.5
    found = json.loads(planned("--people", 30_000, "--protocol", "examples", "--error", wanted, "--json"))
    # At three budgets of typical people, at the task's own of hard ones.
    assert len(found["forecasts"]) == 3 + 1
    needed = found["people_needed"]["examples"]
    again = json.loads(planned("--people", needed, "--protocol", "examples", "--json"))
    (own,) = (
        one
        for one in again["forecasts"]
        if (one["protocol"], one["budget"], one["design"]) == ("examples", 1.0, "typical")
    )
    assert own["forecast"]["effects"]["age"] == pytest.approx(wanted, rel=0.15)
    assert found["chosen"]["30000"]["protocol"] == "examples"
    # Whoever watches needs (1.7)^2 times as many, and is told beside it.
    watched = found["people_needed_at_every_look"]["examples"]
    assert 2.2 * needed < watched < 4.0 * needed
    assert found["tightest_at"] == 100_000


def test_an_error_of_a_probability_is_in_points_as_the_table_is(planned, tmp_path):
    (tmp_path / "task.yaml").write_text(f"{harness.ANY_PROTOCOL}protocol: examples\n")
    found = json.loads(planned("--people", 30_000, "--protocol", "examples", "--error", "same_sex=2", "--json"))
    needed = found["people_needed"]["examples"]
    # Were it taken for a probability, anybody would do.
    assert 30_000 < needed < 300_000
    half = json.loads(planned("--people", 30_000, "--protocol", "examples", "--error", "same_sex=1", "--json"))
    assert half["people_needed"]["examples"] == pytest.approx(4 * needed, rel=0.15)


def test_public_records_are_the_design(planned, tmp_path):
    found = json.loads(
        planned("--people", 20_000, "--protocol", "examples", "--public", tmp_path / "public.csv", "--json")
    )
    assert [one["name"] for one in found["designs"]] == ["public"]
    (tmp_path / "other.csv").write_text("agee\n22\n23\n")
    assert "age" in planned("--public", tmp_path / "other.csv")


def test_missing_targets_that_the_task_states_widen_the_forecast(planned, tmp_path):
    """Noise hardly changes, and what it hides shrinks by a fifth: all that both plans learn is a tenth less precise."""
    run = "--people", 50_000, "--protocol", "moments"
    complete = json.loads(planned(*run, "--json"))
    (tmp_path / "task.yaml").write_text(TASK.replace("high: 52", "high: 52, missing_share: 0.2"))
    missing = json.loads(planned(*run, "--json"))
    assert (complete["assumed"]["missing_targets"], missing["assumed"]["missing_targets"]) == (0.0, 0.2)
    assert "20% of the targets missing" in " ".join(planned(*run).split())
    # A hard population may not be learned.
    widths = [[each["forecast"]["effects"]["age"] for each in plan["forecasts"]] for plan in (complete, missing)]
    wider = [after / before for before, after in zip(*widths, strict=True) if after is not None and before is not None]
    assert len(wider) >= len(widths[0]) / 2
    assert min(wider) > 1.1


def test_mistakes_are_said_in_a_line(planned):
    for words, said in (
        (("--people", 0), "at least 1"),
        (("--protocol", "score"), "did you mean 'scores'"),
        (("--effect", "agee=2"), "no effect of 'agee'"),
        (("--error", "agee=2"), "no half-width of 'agee'"),
        (("--error", "0"), "above 0"),
        (("--error", "nan"), "half-width"),
        (("--people", 10**23), "at most 10^12"),
        (("--picture", "plan.xyz"), "ends in .png"),
    ):
        found = planned(*words)
        assert said in found, (words, found)
        assert "\n" not in found


RARE = TASK.replace("kind: real, low: 0, high: 52", "kind: binary, positive: 'yes', rate: 0.06")


def test_a_plan_says_which_rate_it_assumes_and_what_another_would_do(planned, tmp_path):
    """A rate that nobody stated is called a guess, with what a rare outcome would do to the forecast."""
    options = ("--people", 100_000, "--protocol", "examples")
    (tmp_path / "task.yaml").write_text(RARE)
    told = " ".join(planned(*options).split())
    assert "6% of the targets positive, as the task states" in told
    assert "guess" not in told
    assert "30% of the targets positive, as stated" in " ".join(planned(*options, "--rate", 0.3).split())
    (tmp_path / "task.yaml").write_text(RARE.replace(", rate: 0.06", ""))
    told = " ".join(planned(*options).split())
    assert "50% of the targets positive, a guess (state target: {rate: ...} or --rate)" in told
    assert "were 5% of the targets positive, with 100,000 people" in told


def test_rows_say_how_many_people_whatever_the_features(planned, tmp_path):
    features = ", ".join(f"{{name: x{index}, low: -1, high: 1}}" for index in range(8))
    target = "target: {name: y, kind: real, low: -1, high: 1}"
    guarantee = "privacy: {guarantee: {gdp: {mu: 4.0}}}"
    text = f"name: wide\nfeatures: [{features}]\n{target}\nprotocol: examples\n{guarantee}\n"
    (tmp_path / "task.yaml").write_text(text)
    found = planned("--people", 1_000_000, "--protocol", "examples")
    assert found.count("1,000,000 at mu = 4") == 2
    assert max(map(len, found.splitlines())) <= 110
    assert " of 8 coefficients; --json has all" in " ".join(found.split())


def test_coefficients_without_average_effects_are_called_so(planned, tmp_path):
    (tmp_path / "task.yaml").write_text(
        TASK.replace("protocol: examples", "protocol: moments\nmoments: {link: cubic}").replace("mu: 2.0", "mu: 8.0")
    )
    shown = planned("--people", 200_000, "--protocol", "moments")
    assert "by moments: coefficients in coded units" in shown
    assert "percentage points" not in shown
    assert "no average effect to compare" in " ".join(shown.split())


def test_a_run_begins_with_a_line_of_it(folder):
    (folder / "task.yaml").write_text(harness.ANY_PROTOCOL)
    (folder / "people.csv").write_text("\n".join(harness.ROWS[:400]) + "\n")
    done = harness.murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder)
    assert "third-child: 399 people at mu = 1: hardly anything can be learned from so few. Assumed: 50% of" in done.err
    # Nothing of it in a run that goes on, and in JSON.
    again = harness.murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", folder=folder)
    assert "hardly" not in again.err
