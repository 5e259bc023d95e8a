"""``murk status`` shows intervals that hold at every look while a stream is open, and says what it shows."""

import pytest

from tests.cli.harness import murk

TASK = """
name: trial
features: [{name: arm, categories: [a, b]}]
target: {name: days, kind: real, low: 0, high: 10}
protocol: moments
contrasts: [{feature: arm, category: b, against: a}]
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""
LOG = "sqlite:///trial.db"


@pytest.fixture
def learned(tmp_path):
    """A function that learns 2,000 people of the task with further keys, and returns what `murk run` printed."""
    rows = "".join(f"{'ab'[i % 2]},{4 + i % 2 + i * 37 % 101 / 50}\n" for i in range(2_000))
    (tmp_path / "people.csv").write_text("arm,days\n" + rows)

    def learn(more=""):
        (tmp_path / "trial.yaml").write_text(TASK + more)
        return murk("run", "trial.yaml", "--source", "people.csv", "--seed", 1, folder=tmp_path).out

    return learn


def test_status_of_an_open_stream_holds_at_every_look(learned, tmp_path):
    ended = " ".join(learned().split())
    assert "95% at this look only: an interval that is looked at again and again misses the truth" in ended
    shown = murk("status", "--log", LOG, folder=tmp_path).out
    assert shown.count("95% at every look") >= 3
    assert "95% interval" not in shown
    assert "Contrasts: p-values and e-values hold at every look" in shown
    fixed = murk("status", "--log", LOG, "--intervals", "fixed-n", folder=tmp_path).out
    assert "95% at this look only (as asked)" in " ".join(fixed.split())
    both = murk("status", "--log", LOG, "--json", folder=tmp_path).json
    (low, high), (least, most) = (both[key]["arm"] for key in ("fixed_intervals", "confidence_intervals"))
    assert least < low < high < most
    asked = murk("status", "--log", LOG, "--predict", "arm=b", "--json", folder=tmp_path).json["prediction"]
    (least, most), value = asked["of"]["mean"]["interval"], asked["of"]["mean"]["value"]
    assert 0 < least < value < most < 10
    # The twin: an interval of a single look is strictly inside.
    once = murk("status", "--log", LOG, "--predict", "arm=b", "--intervals", "fixed-n", "--json", folder=tmp_path).json
    inner = once["prediction"]["of"]["mean"]["interval"]
    assert least < inner[0] < value < inner[1] < most
    shown = murk("status", "--log", LOG, "--predict", "arm=b", folder=tmp_path).out
    assert "Prediction at arm = b" in shown
    assert f"{value:.3f}" in shown
    for text, words in (("arm", "'arm' is not NAME=VALUE"), ("arm=z", "does not declare"), ("leg=b", "'arm' is not")):
        assert words in murk("status", "--log", LOG, "--predict", text, folder=tmp_path).err
    wrong = murk("status", "--log", LOG, "--intervals", "ever", folder=tmp_path)
    assert wrong.status == 2
    assert "'ever' is not one of 'always-valid', 'fixed-n'" in wrong.err


def test_a_task_that_has_ended_at_its_size_shows_fixed_intervals(learned, tmp_path):
    learned("people: 2000\n")
    shown = " ".join(murk("status", "--log", LOG, folder=tmp_path).out.split())
    assert "95% at this look only (the task has ended at its 2,000 people)" in shown
    assert "95% at every look" in murk("status", "--log", LOG, "--intervals", "always-valid", folder=tmp_path).out


def test_a_task_may_ask_for_intervals_that_may_be_watched_everywhere(learned):
    assert "95% at every look" in learned("intervals: {tightest_at: 2000}\n")
