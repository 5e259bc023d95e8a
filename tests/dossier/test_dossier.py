"""A dossier says what task, code and deployment say, changes when they do, and calls on tests that exist."""

import ast
import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk import Task, __version__
from murk.audit import checksum
from murk.dossier.content import EVIDENCE, Claim, Dossier, Sample
from murk.dossier.deployment import Accounts, Deployment, Store, _store, read_accounts, read_deployment
from murk.dossier.example import example_of, levels_of
from murk.dossier.facts import Audit, Facts, read_audit, row, together
from murk.dossier.making import dossier_of
from murk.dossier.necessity import Necessity, necessity_of
from murk.dossier.page import page_of
from murk.dossier.registry import entry_of
from murk.errors import UserError
from murk.privacy import Accountant, ApproxDP, GaussianDP, GaussMixMechanism, PureDP, calibrate, cap_of
from murk.privacy.guarantees import figures, number, percent
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.names import key_path
from murk.stream import open_log
from tests.dossier.test_example import REAL, TASKS, task_of
from tests.producers.ledger.accounts import ask, booked, charge, rho

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FINDING = {
    "name": "sleep", "measure": "mu", "claimed": 1.0, "lower_bound": 0.9, "pair": 1.0, "draws": 1000, "detectable": 1.3,
    "neighbours": {},
}  # fmt: skip
AUDIT = Audit((FINDING,), 0.999, False, "run for this test")
ACCOUNTS = Accounts(
    "people.ledger.db", 40, 80, 1, ("All tasks together: mu = 1 of 2 at most for a person",), True, True
)
STORES = {
    "releases": Store("murk-sleep-releases", "7 days after they arrive", "retention.ms=604800000", 604_800.0),
    "models": Store("murk-sleep-models", "the newest", "cleanup.policy=compact"),
    "states": Store("murk-sleep-states", "the newest", "cleanup.policy=compact"),
    "dead": Store("murk-sleep-dead-letters", "7 days after they arrive", "retention.ms=604800000", 604_800.0),
}
DEPLOYMENT = Deployment("kafka://broker:9092/sleep", "kafka", None, STORES, "SASL_SSL", True, True)


@cache
def example(text: str) -> Any:
    return example_of(task_of(text))


@cache
def levels(text: str) -> Any:
    return levels_of(task_of(text))


def facts(text: str = TASKS["scores"], **others: Any) -> Facts:
    task = task_of(text)
    deployment = replace(DEPLOYMENT, task=task)
    made = Facts(task, "a file", levels(text), example(TASKS["scores"]), deployment, ACCOUNTS, AUDIT, "Sleep.", "We.")
    return replace(made, **others)


@cache
def forecast(people: int, text: str = TASKS["moments"]) -> Necessity:
    return necessity_of(task_of(text), people, "--people")


def dossier(given: Facts, found: Necessity | None = None) -> Dossier:
    return dossier_of(given, found, now=NOW)


def words(found: Dossier, key: str) -> str:
    [section] = [one for one in found.sections if one.key == key]
    return json.dumps(replace(found, summary=(), to_settle=(), sections=(section,)).to_dict())


def function_names(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("key", EVIDENCE)
def test_tests_that_are_called_upon_exist(key: str) -> None:
    assert EVIDENCE[key].tests
    for test in EVIDENCE[key].tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert name.startswith("test_"), test
        assert name in function_names(ROOT / file), test


def test_all_evidence_is_called_upon_and_all_that_is_called_upon_is_known() -> None:
    used = {key for text in TASKS.values() for key in dossier(facts(text)).evidence}
    used |= set(dossier(facts(), forecast(20_000)).evidence)
    used |= set(dossier(facts(web=True, accounts=None)).evidence)
    assert used == set(EVIDENCE)


@pytest.mark.parametrize("text", TASKS.values(), ids=list(TASKS))
def test_every_sentence_has_tests_or_says_where_it_is_from(text: str) -> None:
    unread = facts(text, deployment=None, accounts=None, audit=None, purpose="", controller="")
    of_web = () if task_of(text).of_organisations else (replace(unread, web=True), facts(text, web=True))
    for given in (facts(text), unread, *of_web):
        found = dossier(given)
        for section in found.sections:
            for block in section.blocks:
                if isinstance(block, Claim) and section.key != "not-promised":
                    assert block.evidence or block.source != "code", block.text
        assert not {len(row) != len(one.columns) for one in found.blocks if not isinstance(one, Claim | Sample)
                    for row in one.rows} & {True}  # fmt: skip
        page = page_of(found)
        assert "<script" not in page
        assert "http://" not in page
        assert "https://" not in page
        assert " src=" not in page
        assert "@import" not in page
        assert "url(" not in page


MU = "{gdp: {mu: 1}}"
CHANGES: dict[str, tuple[str, Callable[[], Facts], list[str]]] = {
    "bounds": ("asked", lambda: facts(TASKS["scores"].replace("90", "99")), ["18 to 99"]),
    "a column": ("asked", lambda: facts(TASKS["scores"].replace("smokes", "drinks")), ["drinks"]),
    "the budget": ("guarantee", lambda: facts(TASKS["scores"].replace("mu: 1", "mu: 1.7")), ["mu = 1.7", "80.3%"]),
    "the kind of guarantee": (
        "guarantee",
        lambda: facts(TASKS["scores"].replace(MU, "{pure: {epsilon: 3}}")),
        ["epsilon = 3", "95.3%"],
    ),
    "the mechanism": (
        "guarantee",
        lambda: facts(TASKS["scores"].replace(MU, "{pure: {epsilon: 3}}, mechanism: laplace")),
        ["laplace"],
    ),
    "a level": (
        "guarantee",
        lambda: facts(TASKS["scores"].replace(MU, MU + ", levels: {open: {gdp: {mu: 2.5}}}")),
        ["open (mu = 2.5", "89.5%"],
    ),
    "the cap for the task": (
        "guarantee",
        lambda: facts(TASKS["scores"].replace(MU, MU + ", per_person: {gdp: {mu: 3}}")),
        ["mu = 3", "93.4%"],
    ),
    "the cap over all tasks": (
        "guarantee",
        lambda: facts(accounts=replace(ACCOUNTS, lifetime=("All tasks together: mu = 1 of 9 at most for a person",))),
        ["mu = 1 of 9"],
    ),
    "a public sample": (
        "public",
        lambda: facts(TASKS["scores"] + "public: {set_aside: 50}\n"),
        ["PUBLIC AS THEY ARE", "50 people"],
    ),
    "what the task asks to be kept": (
        "retention",
        lambda: facts(TASKS["scores"] + "log: {retention: 30d}\n", deployment=None),
        ["at least 30 days"],
    ),
    "the shuffler": ("trust", lambda: facts(TASKS["shuffled"]), ["the second guarantee relies on it"]),
    "both promises": (
        "guarantee",
        lambda: facts(TASKS["shuffled"]),
        ["If everybody colludes", "epsilon = 4.907", "18,000 of the 20,000 releases of each crowd", "epsilon = 0.5"],
    ),
    "expiry": ("retention", lambda: facts(TASKS["scores"] + "expiry: 2d\n"), ["2 days at most, then deleted"]),
    "retention at the broker": (
        "retention",
        lambda: facts(
            deployment=replace(DEPLOYMENT, stores={**STORES, "releases": Store("t", "90 days", "", 7_776_000.0)})
        ),
        ["90 days"],
    ),
    "names in the ledger": (
        "retention",
        lambda: facts(accounts=replace(ACCOUNTS, keyed=False)),
        ["no names yet"],
    ),
    "an audit": (
        "measured",
        lambda: facts(audit=replace(AUDIT, findings=({**FINDING, "lower_bound": 1.2},))),
        ["1.2", "REFUTED"],
    ),
    "the protocol": ("trust", lambda: facts(TASKS["summaries"]), ["the organisation"]),
    "why": ("purpose", lambda: facts(purpose="Because."), ["Because."]),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_it_changes_when_what_it_is_about_changes(what: str) -> None:
    key, change, expected = CHANGES[what]
    before, after = words(dossier(facts()), key), words(dossier(change()), key)
    for text in expected:
        assert text in after
        assert text not in before


def test_the_same_facts_give_the_same_page() -> None:
    assert page_of(dossier(facts())) == page_of(dossier(facts()))


def test_whether_a_person_may_have_several_rows_is_settled_first() -> None:
    assert "several rows" in dossier(facts(accounts=None)).to_settle[0]
    assert "several records" in dossier(facts(TASKS["summaries"], accounts=None)).to_settle[0]
    bounded = TASKS["summaries"] + "summaries: {person: patient, rows_per_person: 3}\n"
    assert not any("several records" in one for one in dossier(facts(bounded, accounts=None)).to_settle)


def test_what_is_not_known_is_to_be_settled() -> None:
    known = " ".join(dossier(facts()).to_settle)
    nothing = facts(deployment=None, accounts=None, audit=None, purpose="", controller="")
    unknown = " ".join(dossier(nothing).to_settle)
    for text in ("--purpose", "--controller", "--log", "--ledger", "--audit"):
        assert text in unknown
        assert text not in known
    weak = facts(TASKS["scores"].replace("mu: 1", "mu: 4"))
    assert "is weak: records are told apart in up to 97.8%" in " ".join(dossier(weak).to_settle)
    open_broker = facts(deployment=replace(DEPLOYMENT, encrypted=False, identified=False))
    assert "not encrypted" in " ".join(dossier(open_broker).to_settle)
    assert "may have missed a mu below 1.3 where 1 is claimed" in known
    sharp = facts(audit=replace(AUDIT, findings=({**FINDING, "detectable": 1.05},)))
    assert "may have missed" not in " ".join(dossier(sharp).to_settle)
    refuted = facts(audit=replace(AUDIT, findings=({**FINDING, "lower_bound": 1.01},)))
    assert "REFUTED" in dossier(refuted).to_settle[0]


@pytest.mark.parametrize(
    ("about", "kept", "seconds"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, "7 days after they arrive, then deleted", 604_800),
        (
            {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.ms": "604800000"},
            "7 days after they arrive, then deleted by the broker, a segment at a time: up to 7 days later", 604_800,
        ),
        (
            {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.ms": "86400000"},
            "7 days after they arrive, then deleted by the broker, a segment at a time: up to 1 day later", 604_800,
        ),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "segment.ms": "1"}, "for ever: nothing deletes", math.inf),
        ({"cleanup.policy": "compact", "retention.ms": "604800000"}, "the newest of each partition", math.inf),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "864000000"},
            "the newest of each partition, older ones until the broker compacts; all 10 days after they arrive",
            864_000,
        ),
        ({"cleanup.policy": "delete, compact", "retention.ms": "-1"}, "the newest of each partition", math.inf),
        ({"cleanup.policy": "delete", "retention.ms": "None"}, "not known", None),
        ({"cleanup.policy": "delete"}, "not known", None),
        ({"cleanup.policy": "None", "retention.ms": "1"}, "not known", None),
    ],
)  # fmt: skip
def test_how_long_a_topic_keeps_what(about: dict[str, str], kept: str, seconds: float | None) -> None:
    store = _store("murk-sleep-releases", about)
    assert store.kept.startswith(kept)
    assert store.seconds == seconds
    deployment = replace(DEPLOYMENT, stores={**STORES, "releases": store})
    settle = " ".join(dossier(facts(deployment=deployment)).to_settle)
    # The task asks for eight days.
    assert ("Releases are kept longer than the task asks for" in settle) == (seconds is not None and seconds > 691_200)
    # A topic that `murk topics` creates has segments of a day.
    late = about.get("segment.ms") == "604800000"
    assert ("set segment.ms=86400000 on murk-sleep-releases" in settle) == late


def test_of_windows_it_says_what_any_two_records_are_told_apart_in() -> None:
    """A window's guarantee is against a blank record: two records are further apart, and that is what people ask."""
    found = dict(dossier(facts(TASKS["summaries"])).summary)
    # Against a blank record mu = 1, for any two sqrt(2): Phi(sqrt(2) / 2) = 0.7602...
    assert "any two records apart in more than 76.1% of cases" in found["Guarantee"]
    assert "a record from a blank one, as the task states it, in 69.2%" in found["Guarantee"]
    people = dict(dossier(facts()).summary)
    assert "any two records apart in more than 69.2% of cases" in people["Guarantee"]
    assert "blank" not in people["Guarantee"]


RELEASED = {
    "gdp": calibrate("gaussian", GaussianDP(0.5), dimension=3, radius=1.0),
    "gaussian": calibrate("gaussian", ApproxDP(1.0, 1e-6), dimension=3, radius=1.0),
    "pure": calibrate("laplace", PureDP(0.5), dimension=3, radius=1.0),
    "mixture": GaussMixMechanism.calibrate(
        ApproxDP(1.0, 1e-6), rows=100, columns=4, feature_bound=1.0, target_bound=1.0, method="mixing"
    ),
    "linear": GaussMixMechanism.calibrate(
        ApproxDP(1.0, 1e-6), rows=100, columns=4, feature_bound=1.0, target_bound=1.0, method="linear-mixing"
    ),
}


@pytest.mark.parametrize(
    ("kind", "capped"), [*product(RELEASED, [False]), *product(["pure", "gaussian", "mixture"], [True])]
)
def test_a_ledger_and_a_dossier_state_the_same_of_the_same_releases(tmp_path: Path, kind: str, capped: bool) -> None:
    mechanism = RELEASED[kind]
    asked = getattr(mechanism, "stated", None) or mechanism.guarantee
    lifetime = cap_of(ApproxDP(20.0, 1e-4)) if capped else None
    charges = [Charge.of("default", asked, mechanism)]
    with booked(tmp_path / "ledger.db", charges, caps=[], lifetime=lifetime) as ledger:
        for count in range(1, 5):
            assert ask(ledger) == "released"
            account, claims = ledger.account("ann"), together(mechanism, count)
            assert account.guarantee == account.tasks[0].guarantee == claims[0]
            [line] = read_accounts(ledger.path).spent
            # Of pure releases a ledger states the joint mu, and a dossier that and their epsilon.
            stated = next((claim for claim in claims if claim.kind == "gdp"), claims[0])
            assert f"{figures(stated)} at most for a" in line
            if capped:
                spent = mechanism.cost("approx") * count
                assert f"; of the cap, {spent.rounded()} of epsilon = 20, delta = 0.0001 (the sum of" in line
            attack, mu, epsilon, _ = row(*claims)
            assert attack == percent(min(claim.max_attack_accuracy for claim in claims))
            assert mu == (number(getattr(stated, "mu")) if stated.kind == "gdp" else "-")  # noqa: B009
            if isinstance(stated, ApproxDP):
                assert stated.delta == 1e-6
                assert epsilon.endswith(" at delta 1e-06")
                assert figures(stated).startswith(f"epsilon = {number(float(epsilon.split()[0]))},")


def test_a_ledger_of_several_mechanisms_states_one_figure(tmp_path: Path) -> None:
    charges = [
        Charge.of(kind, getattr(made, "stated", None) or made.guarantee, made) for kind, made in RELEASED.items()
    ]
    with booked(tmp_path / "ledger.db", charges, caps=[]) as ledger:
        whole = Accountant()
        for kind, made in RELEASED.items():
            ask(ledger, level=kind)
            whole.compose(made)
            account = ledger.account("ann")
            assert account.guarantee == whole.strongest()
        ask(ledger, "bob", level="gdp")
        assert account.guarantee is not None
        [line] = ledger.describe_together()
        words = figures(account.guarantee)
        assert line == f"All tasks together: {words} at most for a person; no cap over all tasks (--lifetime)"
        exact = account.guarantee.to_dict()["approx"]
        assert f"epsilon = {exact['epsilon']:.10g}, delta = {exact['delta']:.10g}" in "\n".join(account.describe())


def test_people_who_are_rows_come_first_and_are_no_hashes() -> None:
    rows = dossier(facts(accounts=replace(ACCOUNTS, keyed=False, rows=40, files=1)))
    assert "several rows of a file" in rows.to_settle[0]
    assert "People are rows of a file" in rows.to_settle[1]
    assert "--person" in rows.to_settle[1]
    assert "keyed hashes" not in words(rows, "retention")
    assert "people as rows of a file" in words(rows, "retention")
    settle = " ".join(rows.to_settle)
    assert "Who holds the file of records, and runs the gateway? Towards them nothing is promised" in settle
    named = " ".join(dossier(facts()).to_settle)
    assert "People are rows" not in named
    assert "Who holds the file of records" not in named


def test_releases_to_a_small_task_stay_in_a_file() -> None:
    task = task_of(TASKS["scores"])
    with_file = replace(DEPLOYMENT, kind="file", task=task)
    settle = " ".join(dossier(facts(deployment=with_file)).to_settle)
    assert "Releases are never deleted while the log exists: it keeps the newest 65,536" in settle
    many = facts(deployment=with_file, accounts=replace(ACCOUNTS, people=65_536))
    assert "never deleted" not in " ".join(dossier(many).to_settle)
    assert "never deleted" not in " ".join(dossier(facts()).to_settle)


def test_all_of_an_organisation_names_any_two_records_first() -> None:
    text = TASKS["summaries"].replace("mu: 1}}", "mu: 1}}, per_person: {gdp: {mu: 2}}")
    found = dict(dossier(facts(text)).summary)
    # Phi(sqrt(2)) = 0.9213..., Phi(1) = 0.8413...
    assert "any two records are told apart in at most 92.2%; a record from a blank one" in found["Per task"]
    assert "84.2%" in found["Per task"]


def test_small_words() -> None:
    found = dossier(facts())
    assert "in 1 audit; closest" in dict(found.summary)["Measured"]
    assert "All tasks together, by the ledger people.ledger.db: mu = 1 of 2" in words(found, "guarantee")
    assert "clamped and missing" in words(found, "trust")
    assert "Ledger.loosen" in words(found, "not-promised")
    assert "at delta 1e-05" in words(found, "guarantee")
    assert '<span class="option">--person</span>' in page_of(found)
    unread = words(dossier(facts(deployment=None)), "retention")
    assert '"source": "deployment"' not in unread


def test_it_does_not_say_that_releases_cannot_be_linked() -> None:
    found = dossier(facts())
    assert "Who can read both the log and a gateway's ledger" in " ".join(found.to_settle)
    withdrawing = words(found, "withdrawal")
    assert "pseudonymous, not anonymous" in withdrawing
    assert "keeps no link" not in withdrawing
    assert "one person's releases to two tasks" in words(found, "leaves")
    assert "order, time of arrival" in words(found, "not-promised")


def test_a_simulation_is_marked_everywhere() -> None:
    task = task_of(TASKS["scores"]).with_simulated(True)
    found = dossier(facts(task=task))
    assert found.simulated
    assert "SIMULATED" in found.to_settle[0]
    assert "protect nobody" in page_of(found)


def test_public_rows_do_not_make_it_long() -> None:
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (4000, task_of(TASKS["scores"]).coding.size))
    rows[:, -1] = 1.0
    task = task_of(TASKS["scores"] + "public: {file: rows.csv}\n").with_public(rows, np.ones(4000, np.int64))
    assert len(task.document()) > 100_000
    found = dossier(facts(task=task))
    texts = [block.text for section in found.sections for block in section.blocks if isinstance(block, Sample)]
    assert max(map(len, texts)) < 4000
    assert "more characters" in texts[-1]


def test_texts_of_others_are_only_text() -> None:
    page = page_of(dossier(facts(purpose="<script>alert(1)</script>", controller='"><img src=x>')))
    assert "<script" not in page
    assert "<img" not in page


def test_a_ledger_is_read_in_sums_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with booked(path, [charge(rho=30)], [("", rho(60))], lifetime=rho(90)) as ledger:
        for person in ("Annette Vandermeer", "Bernadette"):
            assert ask(ledger, person) == "released"
    found = read_accounts(path)
    assert (found.people, found.releases, found.keyed, found.capped) == (2, 2, True, True)
    assert "Annette" not in repr(found)
    assert (found.counted, found.rows, found.files) == ("2 people", 0, 0)
    assert found.problems == ()
    path.chmod(0o644)
    assert "chmod 600" in read_accounts(path).problems[0]
    path.chmod(0o600)
    key_path(path).unlink()
    [missing] = read_accounts(path).problems
    assert "The key of names is missing" in missing
    assert "beside the ledger" in missing


def saved(task: Task) -> dict[str, Any]:
    content = {
        "holds": True, "confidence": 0.999, "simulated": False, "task": {"name": task.name, "hash": task.hash},
        "murk": __version__, "date": "2026-01-01", "findings": [FINDING],
    }  # fmt: skip
    return {**content, "sha256": checksum(content)}


def test_a_saved_audit_is_of_this_very_task(tmp_path: Path) -> None:
    path, task = tmp_path / "audit.json", task_of(TASKS["scores"])
    path.write_text(json.dumps(saved(task)))
    found = read_audit(path, task)
    assert found.holds
    assert found.origin == f"read from audit.json, made on 2026-01-01 by murk {__version__}"
    assert found.problems == ()
    with pytest.raises(UserError, match="is an audit of a task with the hash"):
        read_audit(path, task_of(TASKS["gradients"]))


def test_an_edited_audit_and_one_of_another_version_are_flagged(tmp_path: Path) -> None:
    path, task = tmp_path / "audit.json", task_of(TASKS["scores"])
    path.write_text(json.dumps({**saved(task), "findings": [{**FINDING, "lower_bound": 1.2}]}))
    found = read_audit(path, task)
    # The file says that nothing was refuted.
    assert not found.holds
    assert ["was changed since" in found.problems[0], "its numbers say the opposite" in found.problems[1]] == [True] * 2
    settle = " ".join(dossier(facts(audit=found)).to_settle)
    assert "REFUTED" in settle
    assert "was changed since `murk audit` wrote it" in settle
    other = {**saved(task), "murk": "0.1.0"}
    path.write_text(json.dumps({**other, "sha256": checksum(other)}))
    [problem] = read_audit(path, task).problems
    assert "an audit of murk 0.1.0" in problem


@pytest.mark.parametrize(
    "change",
    [
        {"task": "x"}, {"task": ["hash"]}, {"task": {}}, {"findings": []}, {"findings": [{**FINDING, "draws": None}]},
        {"findings": [{**FINDING, "draws": 1e999}]}, {"findings": [{key: FINDING[key] for key in ("name", "draws")}]},
    ],
)  # fmt: skip
def test_a_damaged_audit_is_refused_with_the_remedy(tmp_path: Path, change: dict[str, Any]) -> None:
    path, task = tmp_path / "audit.json", task_of(TASKS["scores"])
    path.write_text(json.dumps({**saved(task), **change}))
    with pytest.raises(UserError, match="make it with `murk audit TASK --json"):
        read_audit(path, task)


@pytest.mark.parametrize("wrong", ["", "[]", "{}", '{"findings": 1}', "nonsense", "all"])
def test_what_is_no_audit_is_refused_with_the_remedy(tmp_path: Path, wrong: str) -> None:
    path, task = tmp_path / "audit.json", task_of(TASKS["scores"])
    path.write_text(json.dumps({**saved(task), "task": None}) if wrong == "all" else wrong)
    with pytest.raises(UserError, match="make it with `murk audit TASK --json"):
        read_audit(path, task)
    with pytest.raises(UserError, match="cannot be read"):
        read_audit(tmp_path / "nowhere.json", task)


OF_FILE = replace(ACCOUNTS, files=1)
HOLDERS: dict[str, tuple[Callable[[], Facts], list[str], list[str]]] = {
    # who holds what; what the page must say; what would be false
    "device": (
        lambda: facts(accounts=None),
        ["the person's own device (or a gateway", "Each person can see their own account",
         "What leaves the person's device"],
        ["web page", "whoever holds the file", "browser", "Who withdraws"],
    ),
    "file": (
        lambda: facts(accounts=OF_FILE),
        ["whoever holds the file of records and releases from it", "Who withdraws: the people of a file",
         "which whoever holds the ledger runs for them", "What leaves the machine that holds the file of records"],
        ["web page", "Each person can see their own account", "the person's own device (or", "browser profile"],
    ),
    "rows": (
        lambda: facts(accounts=replace(OF_FILE, rows=40)),
        ["All releases of one row of the file", "releases of one row of the file"],
        ["all releases of one person"],
    ),
    "web": (
        lambda: facts(web=True, accounts=None),
        ["whoever serves the web page, more than anybody else", "for a profile", "art. 5(3)", "stays silent for 7 days",
         "card's button Withdraw", "relay, if the page names one", "all releases of one browser profile",
         "Nothing was measured on the code that people's browsers run", "Global Privacy Control",
         "does the page pin the task's hash", "What leaves the person's browser"],
        ["murk ledger LEDGER", "keyed hashes", "Ledger.loosen", "No ledger was read (--ledger)", "block by block",
         "(or a gateway that acts for several people)", "ledger restored from an older copy", "several rows of a file"],
    ),
    "a file and a web page": (
        lambda: facts(web=True, accounts=OF_FILE),
        ["and releases from it; and whoever serves the web page", "murk ledger LEDGER", "card's button Withdraw",
         "What leaves the machine that holds the file of records or the person's browser"],
        ["(or a gateway that acts for several people)"],
    ),
    "organisation": (
        lambda: facts(TASKS["summaries"]),
        ["the organisation that holds the records", "only sums in memory"],
        ["browser", "Each person can see", "Murk stores none\"", "the person's own device"],
    ),
    "shuffled log alone": (
        lambda: facts(TASKS["shuffled"]),
        ["The input log was not read (--intake)", "waits for its crowd of 20,000", "Central guarantees of several"],
        ["in a random order, block by block"],
    ),
    "intake": (
        lambda: facts(TASKS["shuffled"], intake=INTAKE),
        ["releases on the input log", "until the shuffler has taken them in", "intake.db can be read by other users",
         "How many releases has the shuffler dropped"],
        ["The input log was not read (--intake)"],
    ),
}  # fmt: skip
INTAKE = Deployment(
    "sqlite:///intake.db", "file", None,
    {"releases": Store("intake.db", "until the shuffler has taken them in; then they are deleted", "by the shuffler")},
    "a file on this machine", problems=("intake.db can be read by other users of its machine (mode 0644)",),
    role="input log",
)  # fmt: skip


@pytest.mark.parametrize("who", HOLDERS)
def test_sentences_follow_from_who_holds_what(who: str) -> None:
    make, stated, false = HOLDERS[who]
    found = dossier(make())
    text = json.dumps(found.to_dict(), ensure_ascii=False)
    lower = text.lower()
    for words_of in stated:
        assert words_of.lower() in lower, words_of
    for words_of in false:
        assert words_of.lower() not in lower, words_of


def test_what_people_are_told_is_the_purpose() -> None:
    about = TASKS["scores"] + "about: {purpose: Sleep., controller: The clinic, contact: x@example.org}\n"
    told = dossier(facts(about, purpose="", controller=""))
    assert "Purpose: Sleep." in words(told, "purpose")
    assert "Responsible: The clinic; x@example.org" in words(told, "purpose")
    settle = " ".join(told.to_settle)
    assert "--purpose" not in settle
    assert "--controller" not in settle
    other = " ".join(dossier(facts(about, purpose="Advertising.")).to_settle)
    assert "differs from what people are told" in other


ARCHIVE = "about: {archive: {kept: 1825d, readers: the clinic, writers: its archiver}}\n"


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_an_archive_is_stated_as_far_as_it_is_declared_or_read(declared: bool, read: bool) -> None:
    """Of a deployment without an archive nothing is said."""
    given_text = TASKS["scores"] + ARCHIVE * declared
    given = facts(given_text)
    if read:
        given = replace(given, archive="s3://bucket/sleep", archive_access="Who can read it was not checked.")
    told = dossier(given)
    text, settle = " ".join(words(told, each) for each in ("retention", "withdrawal")), " ".join(told.to_settle)
    kept = entry_of(given)["deployment"]["deployment_model"]["release_type_details"]
    assert ("copies of releases" in text) == ("to be deleted, since a release" in text) == (declared or read)
    assert ("rchive" in text + settle + kept) == (declared or read)
    assert ("1,825 days at most (about.archive)" in text) == declared
    assert (f"People are told: {task_of(given_text).archive_words}" in text) == declared
    assert ("in an archive for at most 1,825 days. Who may read it: the clinic." in kept) == declared
    asks = read and not declared
    assert ("until somebody deletes them" in text) == ("so neither do consent cards" in settle) == asks
    assert ("until somebody deletes it" in kept) == asks
    assert ("was not read (--archive)" in settle) == (declared and not read)
    assert ("Who can read it was not checked." in text) == read


def test_no_store_of_records_is_denied_where_windows_hold_some() -> None:
    renewing = TASKS["scores"].replace(MU, MU + ", per_person: {gdp: {mu: 1}}, window: week")
    held = words(dossier(facts(renewing)), "retention")
    assert "encrypted on the person's device, until the window has ended" in held
    assert "Murk stores none" not in held
    assert "Murk stores none" in words(dossier(facts()), "retention")


def test_repeated_answers_are_stated() -> None:
    same = TASKS["moments"].replace("epsilon: 2}}}", "epsilon: 2}}, window: week, repeat: same}")
    told = dossier(facts(same))
    assert "each person's last answer, with a keyed hash of what it was made of, encrypted in the same place" in words(
        told, "retention"
    )
    assert "No guarantee covers that" in " ".join(told.to_settle)
    assert "last answer" not in words(dossier(facts(same.replace("same", "anew"))), "retention")


def test_a_log_of_releases_is_not_called_open_to_all(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with open_log(url) as log:
        log.register_task(task_of(TASKS["scores"]).document())
        Path(tmp_path / "log.db").chmod(0o644)
        [problem] = read_deployment(log, task_of(TASKS["scores"])).problems
    assert "when each one came" in problem
    assert "need not be secret" not in problem


def test_necessity_is_the_plan_for_the_people_at_hand() -> None:
    moments = TASKS["moments"]
    unknown = dossier(facts(moments))
    assert "How many people are asked is not stated (--people)" in " ".join(unknown.to_settle)
    enough = dossier(facts(moments), forecast(400_000))
    assert "TOO FEW" not in " ".join(enough.to_settle)
    [rows] = [block.rows for one in enough.sections if one.key == "necessity" for block in one.blocks
              if not isinstance(block, Claim | Sample)]  # fmt: skip
    assert [each[0] for each in rows] == ["age: one unit more", "smokes: yes against no"]
    # Less budget, larger errors.
    half, own, twice = (float(cell) for cell in rows[1][1:])
    assert half > 1.2 * own > 1.2 * twice
    few = dossier(facts(moments), forecast(100))
    assert "100 people (--people) are TOO FEW to learn anything" in " ".join(few.to_settle)
    assert "asking for their answers would serve no purpose" in words(few, "necessity")
    refusing = dossier(facts(moments, accounts=replace(ACCOUNTS, refused=7)), forecast(20_000))
    assert "7 requests to release met a cap" in words(refusing, "necessity")
    # Groups are compared where there are several.
    groups = "features: [{name: arm, categories: [a, b, c]}]\n" + REAL + "privacy: {guarantee: {pure: {epsilon: 2}}}\n"
    arms = words(dossier(facts(), forecast(20_000, groups + "protocol: moments\n")), "necessity")
    assert "hardest is arm:" in arms


def test_a_raised_cap_is_an_open_point() -> None:
    raised = replace(ACCOUNTS, raised=("2026-01-02, all tasks: at most mu = 2, then at most mu = 9",))
    found = dossier(facts(accounts=raised))
    assert "A cap was RAISED after it was promised: 2026-01-02, all tasks: at most mu = 2" in " ".join(found.to_settle)
    assert "Caps were raised" in words(found, "guarantee")
    assert "RAISED" not in " ".join(dossier(facts()).to_settle)
