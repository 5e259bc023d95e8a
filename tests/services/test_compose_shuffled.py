"""`compose.shuffled.yaml` as a deployment: two brokers, and people whose releases reach the second in crowds."""

import json
import urllib.request

import pytest

from murk.stream import open_log
from tests.services.composed import Composed
from tests.services.services import PROMETHEUS, eventually, require, require_kafka
from tests.services.test_prometheus import values

# The file's own is as large as its promise needs to be useful; nothing else depends on how many they are.
CROWD = 4_000
pytestmark = pytest.mark.slow


def test_people_are_learned_from_in_crowds(tmp_path):
    require_kafka()
    require(PROMETHEUS)
    with Composed(tmp_path, "compose.shuffled.yaml", {"crowd: 20000": f"crowd: {CROWD}"}) as composed:
        log_url, input_url = (f"{broker.url}/third-child" for broker in (composed.broker, composed.input_log))

        def shown():
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                composed.here("http://monitor:9464/api/status"), timeout=30
            ) as answer:
                return json.load(answer)

        def learned():
            for name in ("learner 0", "learner 1", "shuffler", "gateway"):
                assert composed.running[name].poll() is None, composed.said(name)
            found = shown()["releases"]
            return found if found >= CROWD else None

        with open_log(log_url, create=False) as log:
            eventually(lambda: (mark := log.crowd_mark()) and mark.crowds, limit=240, every=0.2)
        # People who release as fast as they can would take all cores while others are waited for.
        composed.slow("population", share=0.05)
        seen = eventually(learned, limit=240, every=0.5)
        for name in ("gateway", "shuffler"):
            composed.healthy(name)
        assert composed.stop("population") in (0, 130), composed.said("population")

        def scraped():
            return [told for told in values(composed.prometheus.query("murk_shuffler_releases_total")) if told >= CROWD]

        assert eventually(scraped, limit=60)
        with open_log(log_url, create=False) as log, open_log(input_url, create=False) as input_log:
            # The shuffler gives the input log the model that the log has after the first crowd.
            assert eventually(lambda: input_log.model(0), limit=60) is not None
            assert composed.stop("shuffler") == 0, composed.said("shuffler")
            mark = log.crowd_mark()
            released = sum(1 for _ in log.releases())
            assert released >= max(seen, CROWD * mark.crowds)
            # What was taken in is gone.
            assert sum(map(input_log.begin, range(2))) >= released
