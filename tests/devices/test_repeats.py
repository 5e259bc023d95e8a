"""Web devices repeat answers, and count rows, in the cases in which Python's do."""

import json
import random

import pytest

from murk import Task
from murk.privacy import GaussianDP
from murk.producers import Policy
from tests.devices import web
from tests.producers.world import World

DAY = 86_400
FRIDAY = 1_800_619_200.0  # 2027-01-22, 12:00 UTC: what was held in earlier weeks is due
KINDS = {
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1}",
    "moments": "features: [{name: x, low: 0, high: 1}]\ntarget: {name: y, kind: real, low: 0, high: 1}\n"
    "protocol: moments",
    "examples": "features: [{name: x, low: 0, high: 1}]\ntarget: {name: y, kind: binary, positive: '1'}\n"
    "protocol: examples",
}
PRIVACY = "privacy: {guarantee: {gdp: {mu: 0.5}}, levels: {open: {gdp: {mu: 0.7}}}, window: week, %s}"


def scenario(number):
    """A task, a policy, and what happens on some Fridays."""
    draw = random.Random(number)
    kind = draw.choice(list(KINDS))
    repeat = "repeat: same, " if number % 4 else ""
    weight = "\nweight: {rows: 3}" if kind != "examples" and draw.random() < 0.5 else ""
    privacy = PRIVACY % f"{repeat}lifetime: {{gdp: {{mu: {draw.choice([0.9, 1.2])}}}}}"
    policy = draw.choice([{}, {}, {"lifetime": {"gdp": {"mu": 0.8}}}])
    y, act, steps = "0", "release", []
    for _ in range(14):
        pass_ = 7 * DAY * draw.choice([0, 1, 1, 1, 2])
        # Which of a window's records is held is drawn: they are the same here.
        if pass_ and draw.random() < 0.4:
            y = draw.choice(["0", "1"])
        # An answer at once leaves a web device nothing to hold, and one of Python a record to refuse later.
        act = "hold" if act == "hold" and not pass_ else draw.choice(["release", "release", "hold"])
        level = draw.choice(["default", "default", "default", "open"])
        steps.append({"pass": pass_, "act": act, "record": {"x": 0.25, "y": y}, "level": level})
    if number % 5 == 0:
        steps.insert(10, {"pass": 0, "act": "withdraw", "record": None, "level": None})
    return Task.parse(f"name: visits\n{KINDS[kind]}\n{privacy}{weight}"), policy, steps


def in_python(folder, task, policy, steps):
    """What became of a scenario: outcomes, counts and amounts after each step, and which releases are alike."""
    folder.mkdir()
    limits = {key: GaussianDP(cap["gdp"]["mu"]) for key, cap in policy.items()}
    with World(folder, task.with_simulated(True), policy=Policy(**limits)) as world:
        world.now, outcomes = FRIDAY, []
        for step in steps:
            world.now += step["pass"]
            due = [receipt.outcome for receipt in world.producer.release_held()]
            if step["act"] == "withdraw":
                world.ledger.withdraw("me", task_hash=world.task.hash)
                outcome = "withdrawn"
            else:
                outcome = getattr(world.producer, step["act"])(step["record"], level=step["level"]).outcome
            accounts = world.ledger.account("me").tasks
            levels = [level for account in accounts for level in account.levels]
            repeated = sum(level.released for level in levels if level.mechanism == "repeated")
            held = world.ledger._file.query("SELECT count(*) FROM held")[0][0]
            spent = [cap.spent.units for account in accounts for cap in account.caps if not (cap.window or cap.level)]
            released = sum(level.released for level in levels)
            outcomes.append([due, outcome, released, repeated, held, str(spent[0] if spent else 0)])
        releases = [json.loads(message.value) for message in world.messages()]
        payloads = [(each["level"], each["payload"]) for each in releases]
        memos = world.ledger._file.query("SELECT count(*) FROM memos")[0][0]
        return {"outcomes": outcomes, "alike": [payloads.index(each) for each in payloads], "memos": memos}


@pytest.fixture(scope="module")
def scenarios():
    return [scenario(number) for number in range(24)]


def test_the_same_outcomes_as_in_python(scenarios, tmp_path):
    given = [
        {"document": task.document().decode(), "name": task.name, "begin": FRIDAY, "policy": policy, "steps": steps}
        for task, policy, steps in scenarios
    ]
    results = web.run("repeats.mjs", given=json.dumps(given))
    expected = [in_python(tmp_path / str(place), *each) for place, each in enumerate(scenarios)]
    for place, (found, wanted) in enumerate(zip(results, expected, strict=True)):
        # Nothing is kept without its key, and no key without what it is for.
        assert found.pop("key") == bool(found["memos"] or found["outcomes"][-1][4])
        assert found == wanted, (place, scenarios[place])
    # The scenarios have what they are for.
    last = [each["outcomes"][-1] for each in expected]
    assert sum(repeated for *_, repeated, _, _ in last) > 20
    assert sum(outcome == "refused" for each in expected for _, outcome, *_ in each["outcomes"]) > 20
    assert any(len(set(each["alike"])) > 2 for each in expected)
