"""The web device gives the same bytes as Python from the same random words."""

import json
from functools import cache

import pytest

from tests.devices import web
from tools.vectors import REPEATING, WEIGHED, vectors

NUMBERS = {"scores": 800, "gradients": 400, "examples": 200, "moments": 200, "univariate": 200}


@cache
def few(records=1):
    """Lines of some records, not to be changed."""
    return tuple(vectors("scores", records, seed=4))


def checked(lines):
    return web.run("vectors.mjs", given="\n".join(json.dumps(line, allow_nan=False) for line in lines))


@pytest.mark.parametrize("protocol", NUMBERS)
def test_same_bytes(protocol):
    web.built()
    lines = list(vectors(protocol, NUMBERS[protocol], seed=23))
    if protocol == "examples":
        assert any('"release":"joint"' in (text := str(line.get("document"))) and '"laplace"' in text for line in lines)
    if protocol == "moments":
        texts = [line["document"] for line in lines if "document" in line and "refused" not in line]
        needed = '"typical":[', '"release":"observed"', '"covariates":null'
        assert sum(all(part in text for part in needed) for text in texts) > 0
    tasks = [json.loads(line["document"]) for line in lines if "document" in line and "refused" not in line]
    assert any("weight" in task for task in tasks) == (protocol in WEIGHED)
    assert any((task.get("experiment") or {}).get("metrics") for task in tasks) == (protocol == "univariate")
    result = checked(lines)
    assert result["wrong"] == 0, result["first"]
    assert (result.get("repeated", 0) > 0) == (protocol in REPEATING)
    assert result["records"] == NUMBERS[protocol]
    # An exp that differs by one unit in the last place moves an integer in one of a million records.
    assert result["steps"] <= 3


@pytest.mark.parametrize(
    "key", ["x", "y", "partition", "query", "quantised", "payload", "bytes", "hash", "costs", "initial", "held", "mean"]
)
def test_each_difference_is_found(key):
    lines = list(few(3))
    place = next(
        place
        for place, line in enumerate(lines)
        if line.get(key) not in (None, {"window": None}) and "refused" not in line
    )
    changed = json.loads(json.dumps(lines[place]))
    if key == "hash":
        # Refused before anything else.
        changed |= {"hash": "0" * 64, "refused": "wrong-hash", "why": "hash"}
        assert checked([changed])["wrong"] == 0
        return
    value = changed[key]
    if key == "costs":
        value["default"]["gdp"][0] = str(int(value["default"]["gdp"][0]) - 1)
    elif key == "held":
        value["due"] += 1
    elif isinstance(value, list):
        value[0] += 2
    else:
        changed[key] = value + 1 if isinstance(value, float | int) else f"{value} "
    lines[place] = changed
    assert checked(lines)["wrong"] > 0


def test_a_refusal_that_fails_is_found():
    lines = [line for line in few() if "refused" in line and "document" in line]
    fine = next(line["document"] for line in few() if "document" in line)
    lines[0] = {**lines[0], "document": fine}
    assert checked(lines)["wrong"] == 1
