"""`murk fit`: further models of one log, each under its own name, killed and carried on."""

import json
import random
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from murk import Task
from murk.learners import IWPSGDClassifier
from murk.privacy import GaussianDP
from murk.stream import open_log
from murk.stream.log.interface import Log
from murk.stream.wire.state import EstimateMessage
from tests.cli.harness import Done, murk, query, refused, run, start, world

HEAD = """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
  - {name: weeks_worked, low: 0, high: 52}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 3.0}}}
log: {partitions: 2}
"""
RELEASES = {
    "examples": "protocol: examples\n",
    "examples, joint": "protocol: examples\nexamples: {release: joint}\n",
}
LOG = "sqlite:///third-child.db"
SUBSET = "name: same-sex\nfeatures: [same_sex]\n"
OTHER = "name: weeks-by-age\nfeatures: [age]\ntarget: weeks_worked\n"


def models(folder: Path, *texts: str) -> list[str]:
    """Write models' files and return their paths."""
    paths = []
    for text in texts:
        name = text.splitlines()[0].removeprefix("name: ")
        (folder / f"{name}.yaml").write_text(text)
        paths.append(f"{name}.yaml")
    return paths


def fit(folder: Path, *texts: str, log: str = LOG, more: tuple[object, ...] = ()) -> Done:
    return murk("fit", *models(folder, *texts), "--log", log, *more, folder=folder)


@pytest.fixture
def log(folder: Path) -> Path:
    """A folder with a log of 1,500 outer products, which its own learner has learned."""
    world(folder, 1_500, HEAD + RELEASES["examples"])
    assert run(folder, "--log", LOG).status == 0
    return folder


def test_several_models_stand_side_by_side_and_cost_nothing(log: Path) -> None:
    before = murk("status", "--log", LOG, "--json", folder=log).json
    spent = query(log / "third-child.ledger.db", "SELECT count(*) FROM debits")
    found = fit(log, SUBSET, OTHER, more=("--json",)).json["models"]
    assert found.keys() == {"same-sex", "weeks-by-age"}
    assert [each["releases"] for each in found.values()] == [1_500, 1_500]
    assert list(found["same-sex"]["coefficients"]) == ["same_sex", "intercept"]
    # In weeks, by a year of age.
    assert found["weeks-by-age"]["per_unit"]["age"]["factor"] == pytest.approx(26 / 7)
    assert found["same-sex"]["guarantee"] == before["guarantee"]
    assert query(log / "third-child.ledger.db", "SELECT count(*) FROM debits") == spent
    after = murk("status", "--log", LOG, "--json", folder=log).json
    assert after == before


def test_models_of_one_command_have_simultaneous_intervals_and_say_so(log: Path) -> None:
    alone = fit(log, SUBSET, more=("--json",)).json
    both = fit(log, SUBSET, OTHER, more=("--json",)).json["models"]["same-sex"]
    assert both["coefficients"] == alone["coefficients"]
    assert (alone["interval"]["level"], both["interval"]["level"]) == (0.95, 0.975)
    width = {
        name: (each["confidence_intervals"]["same_sex"][1] - each["coefficients"]["same_sex"])
        for name, each in (("alone", alone), ("both", both))
    }
    # As of a run, both are for one look, at these levels.
    normal = [NormalDist().inv_cdf(0.5 + level / 2.0) for level in (0.975, 0.95)]
    # So few releases leave noise in the curvature, which widens the wider interval a little more (Fieller).
    assert normal[0] / normal[1] <= width["both"] / width["alone"] < 1.05 * normal[0] / normal[1]
    assert alone["interval"]["looks"]["words"] == "95% at this look only"
    assert both["model"]["simultaneous"] == ["same-sex", "weeks-by-age"]
    assert "simultaneous (Bonferroni) over the 2 models same-sex and weeks-by-age" in both["model"]["words"]
    assert "of this model alone" in alone["model"]["words"]
    text = " ".join(fit(log, SUBSET, OTHER).out.split())
    assert "97.5% at this look only" in text
    assert "simultaneous" in text
    assert "It cost nobody further budget" in text


def test_a_fit_goes_on_where_it_stopped_and_refuses_another_model_of_its_name(log: Path) -> None:
    first = fit(log, SUBSET, more=("--json", "--replay")).json
    again = fit(log, SUBSET, more=("--json", "--replay")).json
    del first["seconds"], again["seconds"]
    assert again == first
    refused(fit(log, SUBSET.replace("same_sex]", "age]")), "give the changed model another name", status=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: m\nfeatures: [ages]\n", "features: 'ages' is not a column of the log's task, which released same_sex"),
        ("name: m\nfeatures: [age, age]\n", "line 2: features: 'age' is listed twice"),
        ("name: m\nfeature: [age]\n", "line 2: feature: unknown key; did you mean 'features'?"),
        ("name: M\n", "line 1: name: 'M' is not a model's name"),
        ("name: m\nfeatures: [age]\ntarget: age\n", "'age' is the target, which cannot predict itself"),
        ("name: m\nloss: log\n", "outer products, which serve linear fits only (quadratic and squared)"),
        ("name: m\ntarget: age\nloss: quadratic\n", "'quadratic' is not a loss of a real target; one of squared"),
        ("name: m\nlink: softplus\n", "link: has no effect on a log of protocol: examples"),
        ("name: m\nlearner: {huber_c: 1.0}\n", "learner.huber_c: has no effect"),
        ("name: m\ntarget: {name: same_sex, positive: maybe}\n", "'maybe' is not a category of 'same_sex'"),
        ("name: third-child\n", "'third-child' is the name of the log's task"),
        (HEAD, "this is a task, which has `privacy`"),
    ],
)
def test_what_a_log_cannot_serve_is_refused_with_what_it_can(log: Path, text: str, words: str) -> None:
    refused(fit(log, text), words)
    assert query(log / "third-child.db", "SELECT 1 FROM model_states") == []


def test_releases_of_a_model_of_the_task_are_refused(folder: Path) -> None:
    world(folder, 50, HEAD + "protocol: scores\n")
    assert run(folder, "--log", LOG).status == 0
    refused(fit(folder, SUBSET), "serve only the task's own model: leave out everything but the name")
    refused(fit(folder, SUBSET, log="sqlite:///none.db"), "there is no log at none.db")


def test_a_model_publishes_its_own_estimate(log: Path) -> None:
    assert fit(log, SUBSET, more=("--replay",)).status == 0
    with open_log(f"sqlite:///{log}/third-child.db", create=False, model="same-sex") as opened:
        published = EstimateMessage.model_validate_json(opened.estimate() or b"")
    assert (published.name, list(published.coefficients)) == ("same-sex", ["same_sex", "intercept"])
    with open_log(f"sqlite:///{log}/third-child.db", create=False, model="another") as opened:
        assert opened.estimate() is None


def test_a_model_begins_at_the_oldest_message_and_says_so(folder: Path) -> None:
    world(folder, 600, HEAD + RELEASES["examples"] + "duplicates: 100\n")
    assert run(folder, "--log", LOG).status == 0
    with open_log(f"sqlite:///{folder}/third-child.db") as log:
        removed = log.trim(2.0**40)
    found = fit(folder, SUBSET, more=("--json", "--replay")).json
    assert 0 < removed == found["model"]["before"] == 600 - found["releases"]
    assert f"Retention had removed the log's first {removed:,} messages" in found["model"]["words"]
    again = fit(folder, SUBSET, more=("--json",)).json
    assert (again["state_digest"], again["model"]) == (found["state_digest"], found["model"])


KILLS = 6


def committed(path: Path, model: str) -> list[int]:
    with open_log(f"sqlite:///{path}", create=False, model=model) as log:
        return [log.checkpoint(partition).offset for partition in range(2)]


def messages(log: Log) -> list[tuple[int, bytes]]:
    return [(partition, one.value) for partition in range(2) for one in log.read(partition, 0, 10_000)]


@pytest.mark.parametrize("name", RELEASES)
def test_killed_fits_end_with_the_bits_of_a_fit_on_the_finished_log(folder: Path, name: str) -> None:
    """The log grows while two models follow it and are killed with SIGKILL, in its middle each time but the last."""
    world(folder, 2_400, HEAD + RELEASES[name])
    assert run(folder, "--log", LOG).status == 0
    texts = (SUBSET, OTHER) if name == "examples" else (SUBSET, "name: by-age\nfeatures: [age]\nloss: probit\n")
    names = [text.splitlines()[0].removeprefix("name: ") for text in texts]
    expected = fit(folder, *texts, more=("--json", "--replay")).json["models"]
    with open_log(f"sqlite:///{folder}/third-child.db", create=False) as whole:
        document, sent = whole.document(), messages(whole)
    assert document is not None
    random.Random(4).shuffle(order := [partition for partition, _ in sent])
    left = {partition: [value for at, value in sent if at == partition] for partition in range(2)}
    sent = [(partition, left[partition].pop(0)) for partition in order]
    grown, moments, struck = folder / "grown.db", random.Random(5), []
    with open_log(f"sqlite:///{grown}") as log:
        log.register_task(document)
        assert Task.from_document(document).log.partitions == 2
        part = len(sent) // KILLS
        for kill in range(KILLS):
            with start(
                "fit", *models(folder, *texts), "--log", "sqlite:///grown.db", "--follow", folder=folder
            ) as child:
                log.append(sent[kill * part : (kill + 1) * part])
                while sum(committed(grown, names[0])) <= kill * part:
                    assert child.poll() is None
                    time.sleep(0.002)
                time.sleep(moments.uniform(0.0, 0.1))
                child.kill()
            struck.append([sum(committed(grown, each)) for each in names])
        log.append(sent[KILLS * part :])
        assert all(0 < offset < len(sent) for offsets in struck[:-1] for offset in offsets[:1])
    found = fit(folder, *texts, log="sqlite:///grown.db", more=("--json",)).json["models"]
    for each in (*found.values(), *expected.values()):
        del each["seconds"]
    assert found == expected
    assert len({each["state_digest"] for each in found.values()}) == 2


def test_a_fit_that_follows_ends_with_its_report_when_it_is_stopped(log: Path) -> None:
    with start("fit", *models(log, SUBSET), "--log", LOG, "--follow", "--json", folder=log) as child:
        while sum(committed(log / "third-child.db", "same-sex")) < 1_500:
            assert child.poll() is None
            time.sleep(0.005)
        child.terminate()
        out, err = child.communicate()
    assert child.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    assert (found["task"], found["releases"], found["lag"]) == ("same-sex", 1_500, 0)


def test_a_learner_learns_the_releases_of_a_log_by_itself(log: Path) -> None:
    """As the task's own learner did, to the bit; what is repeated, expired or of another task is left out."""
    found = murk("status", "--log", LOG, "--json", folder=log).json
    learner = IWPSGDClassifier(
        guarantee=GaussianDP(3.0), classes=("no", "yes"), features=["same_sex", "age", "weeks_worked"], seed=1
    )
    with open_log(f"sqlite:///{log}/third-child.db") as opened:
        [(partition, again), *_] = messages(opened)
        opened.append([(partition, again), (1 - partition, again), (0, b"{}")])
        whole = [release.id for release in opened.releases()]
        parts = [release.id for partition in range(2) for release in opened.releases(partition)]
        for release in opened.releases():
            learner.learn_release(release)
    assert len(whole) == len(set(whole)) == 1_500
    assert parts == whole
    assert learner.n_releases == 1_500
    # Partitions are learned in parallel, so that only sums agree to the last bits.
    assert learner.coefficients() == pytest.approx(found["coefficients"], rel=1e-9)
