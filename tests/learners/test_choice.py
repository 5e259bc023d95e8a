"""The rule that says which protocol to choose: against the table of docs/protocols.md, and where only one will do."""

import math
import re
from pathlib import Path

import pytest

from murk import Task
from murk.errors import UserError
from murk.planning.choice import expected_error, recommend

PAGE = Path(__file__).parents[2] / "docs/protocols.md"
OFFLINE = ("examples", "once")
SKETCHES = ("summaries", "newton")


def task(d=2, mu=1.0, *, kind="binary", public=5_000, guarantee=None, more=""):
    names = ", ".join(f"{{name: x{j}, low: -1, high: 1}}" for j in range(d))
    targets = {
        "binary": "kind: binary, positive: 'yes'",
        "real": "kind: real, low: -1, high: 1",
        "classes": "kind: classes, classes: [a, b, c]",
    }
    aside = f"public: {{set_aside: {public}}}" if public else ""
    guarantee = guarantee or f"gdp: {{mu: {mu}}}"
    return Task.parse(
        f"name: t\nfeatures: [{names}]\ntarget: {{name: y, {targets[kind]}}}\n{aside}\n{more}\n"
        f"privacy: {{guarantee: {{{guarantee}}}}}"
    )


def table():
    """Rows of the page's tables: kind, public rows, d, n, mu, error of none, of each protocol, what the rule says."""
    kind, found = None, []
    for line in PAGE.read_text().splitlines():
        title = re.match(r"\*\*(Binary|Real) target", line)
        kind = title[1].lower() if title else kind
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = ("scores", "gradients", "examples", "once", "summaries", "newton")[: len(cells) - 6]
        if kind is None or len(cells) not in (11, 12) or not cells[1].isdigit():
            continue
        rows, d, n, mu, none = cells[:5]
        errors = {
            name: math.nan if cell == "-" else float(cell.split("±")[0])
            for name, cell in zip(names, cells[5:-1], strict=True)
        }
        public = 0 if rows == "none" else int(rows.replace(",", ""))
        found.append((kind, public, int(d), int(n.replace(",", "")), float(mu), float(none), errors, cells[-1]))
    return found


def test_the_page_says_what_the_rule_does():
    rows = table()
    assert len(rows) >= 19
    for kind, public, d, n, mu, _, _, said in rows:
        of = task(d, mu, kind=kind, public=public)
        found = [recommend(of, n, online=online) for online in (True, False)]
        assert ", ".join(each.protocol for each in found) == said, (kind, public, d, n)
        assert [bool(each.settings) for each in found] == [False, found[1].protocol == "scores"]


def regrets(choose):
    """How many times the least error the chosen protocol's is, where anything is learned of a binary target."""
    found = []
    for kind, public, d, n, mu, none, errors, _ in table():
        if kind != "binary":
            continue
        for online in (True, False):
            able = {
                name: error
                for name, error in errors.items()
                if name not in SKETCHES and (online or name in OFFLINE) and not math.isnan(error)
            }
            chosen = choose(task(d, mu, public=public), n, online)
            chosen = chosen if online or chosen not in ("scores", "moments") else "once"
            if min(able.values()) < none / 2 and chosen in able:
                found.append(able[chosen] / min(able.values()))
    return found


def test_what_is_chosen_is_about_the_best_that_was_measured():
    found = regrets(lambda of, n, online: recommend(of, n, online=online).protocol)
    assert len(found) >= 10
    assert max(found) < 1.5
    # Who always took examples would be far off.
    assert max(regrets(lambda of, n, online: "examples")) > 2.0


def test_expected_errors_are_those_that_were_measured_within_a_factor_of_three():
    checked = 0
    for kind, public, d, n, mu, none, errors, _ in table():
        for name, error in errors.items():
            if name in SKETCHES:
                continue
            once = ("scores", {"interactive": False}) if public else ("moments", {})
            protocol, settings = once if name == "once" else (name, {})
            wanted = expected_error(task(d, mu, kind=kind, public=public), protocol, n, **settings)
            # Where next to nothing is learned estimates are pulled to zero; of a binary target every protocol counts.
            if math.isnan(error) or wanted > none / 2 or kind != "binary":
                continue
            checked += 1
            assert 1 / 3 < error / wanted < 3, (name, public, d, n, error, wanted)
    assert checked >= 20


def test_who_is_trusted_and_who_can_read_decide():
    of = task(10, public=0)
    assert recommend(of, 100_000).protocol == "scores"
    once = recommend(of, 100_000, online=False)
    assert once.protocol == "moments"
    assert "false needs public covariates" in once.refused["scores"]
    trusted = recommend(of, 100_000, online=False, organisation=True)
    assert trusted.protocol == "summaries"
    assert trusted.expected["summaries"] < trusted.expected["moments"] / 4
    assert trusted.reason.startswith("summaries: an expected error of ")
    assert "points per standard deviation of a feature, with" in trusted.reason
    assert "100,000 people" in trusted.reason
    assert next(iter(trusted.to_dict()["expected_error_points"])) == "summaries"
    # Nobody need be trusted for next to nothing.
    assert recommend(task(2, 4.0), 10**7, organisation=True).protocol == "scores"


def test_a_newton_step_is_said_where_it_did_better():
    """Of the page's rows: nowhere is second moments' error less than four fifths of that of a step that is taken."""
    checked = 0
    for kind, _, d, n, mu, _, errors, _ in table():
        of = task(d, mu, kind=kind, public=0)
        if kind == "real":
            assert not recommend(of, n, organisation=True).settings
        elif recommend(of, n, organisation=True).settings == {"method": "newton"}:
            checked += 1
            assert errors["newton"] < 1.25 * errors["summaries"], (d, n, mu)
    assert checked >= 10
    found = recommend(task(10, public=0), 100_000, organisation=True)
    assert (found.protocol, found.settings, found.to_dict()["settings"]) == ("summaries", *[{"method": "newton"}] * 2)
    assert "{method: newton}" in found.reason
    assert found.expected["summaries"] == expected_error(task(10), "summaries", 100_000, method="newton")
    # Its first records are all there are.
    few = recommend(task(10, public=0), 10_000, organisation=True)
    assert (few.protocol, few.settings) == ("summaries", {})
    assert "settings" not in few.to_dict()
    assert not recommend(task(10, public=0), 100_000).settings


@pytest.mark.parametrize(
    ("of", "online", "chosen"),
    [
        (task(3, kind="classes", public=0), True, "scores"),
        (task(3, kind="classes"), True, "scores"),
        (task(99, public=0), True, "gradients"),
        (task(99), False, "scores"),
        (task(3, guarantee="pure: {epsilon: 2}"), False, "scores"),
        (task(3, guarantee="approx: {epsilon: 2, delta: 1.0e-6}"), True, "scores"),
    ],
)
def test_where_few_protocols_will_do(of, online, chosen):
    assert recommend(of, 300_000, online=online).protocol == chosen


def test_what_no_protocol_gives_is_said():
    with pytest.raises(UserError, match=r"no protocol suits the task.*gradients: devices would"):
        recommend(task(99, kind="classes", public=0), 1000, online=False)
    assert recommend(task(3, kind="classes"), 1000, online=False).settings == {"interactive": False}
    with pytest.raises(UserError, match="people=0"):
        recommend(task(), 0)


def test_more_people_and_larger_budgets_expect_less():
    of = task(5)
    assert expected_error(of, "scores", 400_000) == pytest.approx(expected_error(of, "scores", 100_000) / 2)
    assert expected_error(task(5, 2.0), "moments", 10_000) < expected_error(of, "moments", 10_000)


def test_a_task_by_another_protocol_has_that_ones_defaults():
    of = task(3, guarantee="approx: {epsilon: 2, delta: 1.0e-6}", more="objective: logistic")
    assert of.protocol == "gradients"
    assert of.privacy.mechanism == "best"
    scores, examples = of.with_protocol("scores"), of.with_protocol("examples")
    assert scores.objective is None
    assert scores.privacy.mechanism == "best"
    assert examples.privacy.mechanism == "best"
    assert examples.examples.release == "outer"
    plain = task(3).with_protocol("examples")
    assert (plain.privacy.mechanism, plain.examples.release) == (None, "directions")
    # Outer products under a pure guarantee: within the noise of second moments, and far below Gaussian directions'.
    assert expected_error(examples, "examples", 100_000) < expected_error(plain, "examples", 10_000)
    assert of.with_protocol("gradients").objective == "balanced"


@pytest.mark.parametrize("public", [0, 2_000])
def test_the_words_on_hubers_loss_are_of_the_task(public):
    """With public covariates Huber's loss has intervals."""
    words = recommend(task(kind="real", public=public), 100_000).reason
    assert "Huber's loss" in words
    assert ("without an interval" in words) == (not public)


def test_expected_errors_grow_with_the_stated_share_of_missing_targets():
    """What is left of every effect under the same noise is the share of people with a target."""
    complete = task()
    content = complete.document().replace(b'"kind":"binary"', b'"kind":"binary","missing_share":0.2')
    missing = Task.from_document(content)
    assert missing.target.missing_share == 0.2
    for name in ("scores", "moments", "examples", "gradients", "summaries"):
        expected = expected_error(complete, name, 100_000) / 0.8
        assert expected_error(missing, name, 100_000) == pytest.approx(expected)
