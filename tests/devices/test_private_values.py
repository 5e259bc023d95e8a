"""Of web devices too, only the payload of a release depends on private values."""

import json
import time

import pytest

from benchmarks.paths import web_releases
from tests.devices import web
from tests.producers.test_private_values import beside_the_payload, made


@pytest.mark.parametrize(
    "case", ["binary, gdp", "binary, pure", "real, gdp", "real, pure", "metrics, gdp", "metrics, pure"]
)
def test_only_the_payload_depends_on_private_values(case):
    web.built()
    task, records = made(case)
    now = int(time.time())
    # The same draws for each of them.
    *alike, known = web_releases(task, [*records, records[0] | {"platform": "web"}], 3, now, [5] * (len(records) + 1))
    assert all(beside_the_payload(each) == beside_the_payload(alike[0]) for each in alike)
    # Which metric is drawn, if there are any, and the combination of known columns.
    clear = 1 + case.startswith("metrics")
    (cell,) = {tuple(json.loads(each)["payload"][:clear]) for each in alike}
    assert len(set(alike)) > 1
    assert tuple(json.loads(known)["payload"][:clear]) != cell
