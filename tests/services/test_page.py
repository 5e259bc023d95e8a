"""The monitor's page in a real Chromium, before a stand-in that serves made-up figures."""

import contextlib
import hashlib
import json
import math
import re
import signal
import threading
import time
import urllib.parse

import pytest

from murk.demo import DATA
from murk.inference.confidence_sequences import Looks
from murk.inference.contrasts import Contrast
from tests.cli import harness
from tests.monitoring.web.page_server import BY_RANDOM_SCALING, HOSTILE, PAGE, SCENARIOS, FakeMonitor, made_up, many
from tests.services.services import eventually

SIZES = {"phone": (360, 740), "tablet": (820, 1180), "wide": (1440, 900)}
MOTHERS = DATA
PIXELS = "return [...document.querySelectorAll('.plot canvas')].map(canvas => canvas.toDataURL())"


@pytest.fixture
def monitor():
    server = FakeMonitor(lambda: made_up(1000))
    yield server
    server.close()


@pytest.fixture
def page(chromium, monitor):
    return Page(chromium, monitor)


class Page:
    """The page in the browser, with the queries that the tests ask."""

    def __init__(self, driver, monitor):
        self.driver = driver
        self.monitor = monitor

    def open(self, status=None, size="wide", scheme="light", **media):
        self.media(scheme, **media)
        self.resize(size)
        if status is not None:
            self.monitor.status = lambda: status
        self.driver.get(self.monitor.url)
        eventually(lambda: self.state() in ("live", "sick"))
        return self

    def media(self, scheme, **media):
        features = {"prefers-color-scheme": scheme, **media}
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def resize(self, size):
        width, height = SIZES[size]
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0]).innerText", selector)

    def texts(self, selector):
        return self.script("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector)

    def visible(self, selector):
        return self.script("return document.querySelector(arguments[0]).checkVisibility()", selector)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def state(self):
        return self.script("return document.getElementById('status')?.dataset.state")

    def pixels(self):
        return self.script(PIXELS)

    def polls(self, times=2):
        """Wait until the page has asked so many times more."""
        status, seen, done = self.monitor.status, [], threading.Event()

        def counting():
            seen.append(None)
            if len(seen) > times:
                done.set()
            return status()

        self.monitor.status = counting
        assert done.wait(60)
        self.monitor.status = status

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked_hosts(self):
        """Hosts of everything that the browser asked for."""
        hosts = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = urllib.parse.urlsplit(message["params"]["request"]["url"])
                if address.scheme in ("http", "https", "ws", "wss"):
                    hosts.add(address.netloc)
        return hosts


def test_numbers_and_curves_move_while_releases_arrive(page):
    page.open(made_up(1000))
    eventually(lambda: page.text("#releases") == "1,000")
    assert page.driver.title == "1,000 releases · third-child · Murk"
    page.script("document.querySelectorAll('.plot canvas').forEach(canvas => { canvas.kept = true })")
    before, texts = page.pixels(), page.texts("#headline dd, .value, .key b")
    assert len(before) == 3 + 3  # a plot for each coefficient; error, speed, lag
    top = page.script("return document.getElementById('levels-heading').getBoundingClientRect().top")

    page.monitor.status = lambda: made_up(61_234)
    eventually(lambda: page.text("#releases") == "61,234")
    assert page.driver.title.startswith("61,234 releases")
    page.polls(1)
    assert all(old != new for old, new in zip(before, page.pixels(), strict=True))
    changed = sum(old != new for old, new in zip(texts, page.texts("#headline dd, .value, .key b"), strict=True))
    assert changed >= 10
    assert page.script("return [...document.querySelectorAll('.plot canvas')].every(canvas => canvas.kept)")
    # Nothing jumped: what stands below all the figures stands where it stood, but for lines of the histogram.
    moved = page.script("return document.getElementById('levels-heading').getBoundingClientRect().top") - top
    assert abs(moved) <= 5 * 32


def test_plots_hold_what_the_monitor_said(page):
    status = made_up(5000)
    page.open(status)
    value = status["estimate"]["values"][0]
    half = status["estimate"]["half_widths"][0]
    page.find("#natural").click()
    assert page.text(".parameter .value") == f"{value:.2f} ± {half:.2f}".replace("-", "−")
    assert page.text(".parameter .beside").startswith("reference 0.1")
    label = page.script("return document.querySelector('.parameter .plot').getAttribute('aria-label')")
    assert label.startswith("same_sex: ")
    assert "after 5,000 releases" in label
    page.find("#all summary").click()
    rows = eventually(lambda: page.texts("#coefficients th"))
    assert rows == ["same_sex", "age", "intercept"]
    assert page.texts("#partitions tbody td")[0] == "5,000"


def test_updates_leave_the_pointer_alone(page):
    from selenium.webdriver.common.action_chains import ActionChains

    page.open(made_up(20_000))
    ActionChains(page.driver).move_to_element(page.find(".parameter .u-over")).perform()
    eventually(lambda: page.text(".parameter .beside").startswith("at "))
    # The other plots over the same axis read the same place.
    here = page.text(".parameter .beside")
    assert here in page.texts(".parameter:last-child .beside")[0]
    assert page.text("#error-card .at") == f"{here} releases"
    page.monitor.status = lambda: made_up(20_900)
    eventually(lambda: page.text("#releases") == "20,900")
    page.polls()
    assert page.text(".parameter .beside").startswith("at ")
    ActionChains(page.driver).move_to_element(page.find("h1")).perform()
    eventually(lambda: page.text(".parameter .beside").startswith("reference"))


def test_plots_are_read_with_the_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    page.open(made_up(20_000))
    plot = page.find(".parameter .plot")
    assert plot.get_attribute("tabindex") == "0"
    plot.send_keys(Keys.HOME)
    eventually(lambda: page.text(".parameter .beside") == "at 1")
    assert page.text("#announce").startswith("same_sex: ")
    plot.send_keys(Keys.ARROW_RIGHT)
    eventually(lambda: page.text(".parameter .beside") not in ("at 1", ""))
    plot.send_keys(Keys.ESCAPE)
    eventually(lambda: page.text(".parameter .beside").startswith("reference"))


@pytest.mark.parametrize("scenario", ["many", "late", "summaries"])
def test_nothing_is_asked_of_another_host_and_nothing_breaks_the_policy(page, scenario):
    page.open(SCENARIOS[scenario](190_000))
    page.polls()
    assert page.complaints() == []
    assert page.asked_hosts() == {urllib.parse.urlsplit(page.monitor.url).netloc}


def test_the_policy_is_in_force_and_complaints_are_seen(page):
    page.open()
    page.script("const s = document.createElement('style'); s.textContent = 'p {}'; document.head.append(s)")
    assert eventually(lambda: "Content Security Policy" in " ".join(page.complaints()))


def test_hostile_names_are_only_text(page):
    page.open(SCENARIOS["many"](9000))
    page.find("#all summary").click()
    eventually(lambda: page.texts("#coefficients th"))
    assert page.text("h1") == HOSTILE[0]
    assert set(HOSTILE) <= set(page.texts(".parameter h3"))
    assert set(HOSTILE) <= set(page.texts("#coefficients th"))
    assert HOSTILE[0] in page.texts("#dead-table tbody th")
    assert page.script("return document.querySelectorAll('main img, h1 *, h3 *, main b > *').length") == 0
    assert page.driver.title.endswith("· Murk")
    assert page.complaints() == []


def test_twelve_of_many_and_the_rest_can_be_found(page):
    names = list(many())
    page.open(SCENARIOS["many"](9000))
    assert page.texts(".parameter h3") == names[:12]
    assert page.text("#shown") == "1 to 12 of 40"
    page.find("#next").click()
    assert page.texts(".parameter h3") == names[12:24]
    page.find("#next").click()
    page.find("#next").click()
    assert page.texts(".parameter h3") == names[36:]
    assert page.find("#next").get_property("disabled")
    page.find("#filter").send_keys("ORIGIN=b")
    found = [name for name in names if name.startswith("origin=B")]
    assert page.texts(".parameter h3") == found
    assert page.text("#shown") == f"1 to {len(found)} of {len(found)} found among 40"
    page.polls()
    assert page.texts(".parameter h3") == found
    page.find("#filter").send_keys("nothing like this")
    assert page.texts(".parameter h3") == []


def test_a_monitor_that_went_away_is_said_and_comes_back(page):
    page.open(made_up(1000))
    page.monitor.stop()
    try:
        eventually(lambda: page.state() == "lost")
        assert "The monitor cannot be reached" in page.text("#status")
        assert "What is shown is from" in page.text("#status-detail")
        assert page.text("#releases") == "1,000"
        # It is asked less and less often.
        eventually(lambda: "again in 4 s" in page.text("#status-detail"))
    finally:
        page.monitor.start()
    page.monitor.status = lambda: made_up(2000)
    page.find("#status-retry").click()
    eventually(lambda: page.state() == "live" and page.text("#releases") == "2,000")

    page.monitor.stop()
    eventually(lambda: page.state() == "lost")
    page.monitor.start()
    eventually(lambda: page.state() == "live")  # by itself, too


def test_an_answer_that_makes_no_sense_is_not_shown_as_fresh(page):
    page.open(made_up(1000))
    page.monitor.status = lambda: "not a status"
    eventually(lambda: page.state() == "sick")
    page.monitor.status = lambda: made_up(1500) | {"task": None}
    eventually(lambda: "cannot be shown" in page.text("#status"))
    page.monitor.status = lambda: made_up(1500) | {"version": 2}
    eventually(lambda: "does not fit" in page.text("#status"))
    assert page.text("#releases") == "1,000"
    page.monitor.status = lambda: made_up(1600)
    eventually(lambda: page.state() == "live" and page.text("#releases") == "1,600")


def test_a_log_that_cannot_be_read_is_said(page):
    page.open(SCENARIOS["sick"](5000))
    assert page.state() == "sick"
    assert "The log cannot be read" in page.text("#status")
    assert "broker-1:9092 does not answer" in page.text("#status-detail")
    page.monitor.status = lambda: made_up(5001)
    eventually(lambda: page.state() == "live")


@pytest.mark.parametrize(
    ("scenario", "size"), [("many", "phone"), ("experiment", "phone"), ("examples", "wide"), ("summaries", "tablet")]
)
def test_every_size_in_dark_and_light(page, size, scenario):
    looks = {}
    # Opened in the dark, as other tests do by light, and then switched.
    page.open(SCENARIOS[scenario](254_654), size=size, scheme="dark")
    page.find("#all summary").click()
    for scheme in ("dark", "light"):
        page.media(scheme)
        page.polls(1)
        inner, scroll = page.script("return [innerWidth, document.documentElement.scrollWidth]")
        assert scroll <= inner == SIZES[size][0]
        assert page.script(OUTSIDE) == []
        assert page.script(SMALLEST_TEXT) >= 12
        assert page.script(FAINT) == []
        assert page.script(TOUCHING) == []
        looks[scheme] = page.script("return getComputedStyle(document.body).backgroundColor"), page.pixels()[0]
    assert looks["light"][0] != looks["dark"][0]
    assert looks["light"][1] != looks["dark"][1]


def test_plots_recolour_when_the_scheme_changes(page):
    page.open(made_up(30_000))
    # It waits for its answer as long as this takes.
    page.script("AbortSignal.timeout = () => new AbortController().signal")
    asked, answer = threading.Event(), threading.Event()

    def slow():
        asked.set()
        answer.wait()
        return made_up(30_000)

    page.monitor.status = slow
    try:
        assert asked.wait(60)
        # From here on nothing is drawn for the figures' sake.
        light = page.pixels()
        page.media("dark")
        eventually(lambda: all(a != b for a, b in zip(light, page.pixels(), strict=True)))
        page.media("light")
        eventually(lambda: page.pixels() == light)
        assert page.state() == "live"
    finally:
        answer.set()


def test_plots_follow_the_width(page):
    page.open(made_up(30_000))
    page.resize("phone")
    wide = "return Math.max(...[...document.querySelectorAll('.plot canvas')].map(c => c.clientWidth))"
    eventually(lambda: 200 < page.script(wide) <= 360)
    page.resize("tablet")
    eventually(lambda: page.script(wide) > 600)


def test_nothing_moves_for_people_who_asked_for_that(page):
    moving = (
        "return [...document.querySelectorAll('*')].filter(n => getComputedStyle(n).transitionDuration !== '0s').length"
    )
    page.open(made_up(1000), prefers_reduced_motion="no-preference")
    assert page.script(moving) > 0
    page.open(made_up(1000), prefers_reduced_motion="reduce")
    assert page.script(moving) == 0


def test_before_the_first_release(page):
    page.open(made_up(0))
    assert page.text("#releases") == "0"
    assert page.text("#estimated-error") == "–"
    assert page.texts(".empty:not([hidden])") == ["Waiting for the first releases"] * 6
    page.monitor.status = lambda: made_up(1)
    eventually(lambda: page.text("#releases") == "1")
    assert page.texts(".empty:not([hidden])") == []
    assert page.complaints() == []


def test_every_protocol_shows_what_its_learner_knows(page):
    def shown(*selectors):
        return [page.visible(selector) for selector in selectors]

    parts = ("#staleness-section", "#loss-section", "#loss-figure", "#gap-column", "#step-column", "#refused-column")
    page.open(made_up(9000))
    assert shown(*parts) == [True, False, False, True, True, False]
    assert (
        page.text("#protocol")
        == "protocol: gradients (each release is one person's noisy gradient at the newest model)"
    )
    assert (page.text("#model"), page.text("#unit")) == ("logistic", "Releases")
    assert len(page.texts("#partitions tbody td")) == 5
    assert "Refused" not in page.text("#partitions-foot")

    page.open(SCENARIOS["examples"](9000))
    assert shown(*parts) == [False, True, True, True, True, True]
    assert page.text("#model") == "quadratic loss over |x|^2"
    assert page.texts("#partitions tbody td:last-child") == ["7", "0"]
    assert page.text("#refused").startswith("Refused updates: 7 of 9,000 releases were left out")

    page.open(SCENARIOS["moments"](9000))
    assert shown(*parts) == [False] * 6
    assert len(page.texts("#partitions tbody td")) == 2 * 3
    assert page.text("#partitions-foot") == "Version: releases learned."
    # What stood below the staleness does not leave half of the page empty.
    left = page.script("return ['dead', 'lag'].map(n => document.getElementById(`${n}-heading`).offsetLeft)")
    top = page.script("return ['dead', 'lag'].map(n => document.getElementById(`${n}-heading`).offsetTop)")
    assert top[0] == top[1]
    assert left[0] < left[1]

    page.open(SCENARIOS["summaries"](14))
    assert shown(*parts) == [False] * 6
    assert page.driver.title == "14 sketches · third-child · Murk"
    assert page.text("#unit") == "Sketches"
    assert page.text("#duplicates").startswith("learned, of 3,500,000 records;")
    assert "an organisation's noisy moments, or mixture, of many records" in page.text("#protocol")
    assert "everybody but the organisation" in page.text("#promise")
    assert page.complaints() == []


def test_the_loss_comes_with_its_error(page):
    page.open(SCENARIOS["examples"](0))
    assert page.text("#loss") == "–"
    assert page.texts("#loss-card .empty:not([hidden])") == ["Waiting for the first releases"]
    page.monitor.status = lambda: SCENARIOS["examples"](1)
    eventually(lambda: page.text("#releases") == "1")
    assert page.text("#loss-aside") == "mean, estimated from releases"
    before = page.script("return document.querySelector('#loss-card canvas').toDataURL()")

    status = SCENARIOS["examples"](9000) | {"refused_updates": 0}
    page.monitor.status = lambda: status
    eventually(lambda: page.text("#releases") == "9,000")
    value, half = status["unbiased_loss"]["value"], 1.96 * status["unbiased_loss"]["error"]
    assert page.text("#loss") == f"{value:.3f}"
    assert page.text("#loss-aside") == f"± {half:.3f}, estimated from releases"
    assert page.text("#loss-card .key b") == f"{value:.3f} ± {half:.3f}"
    assert page.text("#refused").startswith("Refused updates: none.")
    assert page.script("return document.querySelector('#loss-card canvas').toDataURL()") != before
    label = page.script("return document.querySelector('#loss-card .plot').getAttribute('aria-label')")
    assert label.startswith(f"Loss: unbiased mean {value:.3f} ± {half:.3f}, at 9,000 releases")
    from selenium.webdriver.common.keys import Keys

    page.find("#loss-card .plot").send_keys(Keys.HOME)
    eventually(lambda: page.text("#loss-card .at") == "at 1 releases")
    assert "±" not in page.text("#loss-card .key b")
    assert page.complaints() == []


def test_a_run_that_was_over_before_is_shown_whole(page):
    """As a monitor says it that was opened afterwards: the curve is the log's, and of speed there is one look."""
    status = made_up(250_000)
    last = len(status["history"]["releases"]) - 1
    for key in ("rate", "dead", "lag"):
        status["history"][key] = [None] * last + [0]
    status["rate"] = status["lag"] = 0
    status["pace"] = {"time": [status["now"]], "rate": [None], "lag": [0]}
    page.open(status)
    assert page.texts(".empty:not([hidden])") == []
    label = "return document.querySelector(arguments[0]).getAttribute('aria-label')"
    assert "after 250,000 releases" in page.script(label, ".parameter .plot")
    assert page.script(label, "#rate-card .plot").startswith("Releases per second: latest –, at ")
    from selenium.webdriver.common.keys import Keys

    page.find(".parameter .plot").send_keys(Keys.HOME)
    eventually(lambda: page.text(".parameter .beside") == "at 1")
    page.find(".parameter .plot").send_keys(Keys.ESCAPE)
    assert "come from the log" in page.text("#since")
    assert page.complaints() == []


def test_coefficients_are_read_in_natural_units_at_a_switch(page):
    status = made_up(9000)
    page.open(status)
    [value, *_], [half, *_] = (status["estimate"][key] for key in ("values", "half_widths"))
    switch = page.find("#natural")
    assert (switch.get_attribute("role"), switch.get_attribute("aria-checked")) == ("switch", "true")
    switch.click()
    coded = page.text(".parameter .value")
    urls = "[...document.querySelectorAll('.parameter canvas')].map(canvas => canvas.toDataURL())"
    page.script(f"window.kept = {urls}")
    assert page.texts(".unit:not([hidden])") == []
    page.find("#all summary").click()
    assert switch.get_attribute("aria-checked") == "false"
    switch.click()
    assert switch.get_attribute("aria-checked") == "true"
    # Of same_sex a unit is 2 in coded units.
    low, middle, high = (math.exp(2 * end) for end in (value - half, value, value + half))
    wanted = f"{middle:.2f} ({low:#.3g} to {high:.2f})"
    assert page.text(".parameter .value") == wanted
    assert page.texts(".unit") == [unit["label"] for unit in status["estimate"]["units"].values()]
    assert page.text(".parameter .beside") == f"reference {math.exp(2 * status['reference']['same_sex']):.2f}"
    assert page.text("#scale-words") == "as the odds ratio per unit of its feature"
    assert page.text("#value-column") == "Odds ratio"
    rows = page.texts("#coefficients tr:first-child > *")
    assert rows[1:3] == ["same_sex: yes against no", f"{middle:.2f}"]
    assert rows[3] == f"{low:#.3g} to {high:.2f}"
    drawn = f"return {urls}.map((url, i) => url !== window.kept[i])"
    eventually(lambda: all(page.script(drawn)))
    page.polls()
    assert page.text(".parameter .value") == wanted
    page.resize("phone")
    assert page.script(TOUCHING) == page.script(OUTSIDE) == []
    # A unit's words are not broken into letters.
    assert page.script("return document.querySelector('#coefficients td').getBoundingClientRect().width") >= 100
    page.resize("wide")
    switch.click()
    assert page.text(".parameter .value") == coded
    assert page.texts(".unit:not([hidden])") == []
    eventually(lambda: not any(page.script(drawn)))

    # Effects that are no odds are not raised to anything, and of classes there is nothing to be switched to.
    for unit in status["estimate"]["units"].values():
        unit["scale"] = "target units"
    page.open(status)
    assert page.text(".parameter .value") == f"{2 * value:.2f} ± {2 * half:.2f}"
    # What is impossible is cut.
    status["estimate"]["units"]["same_sex"] |= {"low": -1.0, "high": 2 * value + half}
    page.open(status)
    assert page.text(".parameter .value").endswith(f"to {2 * value + half:.2f})")
    status["estimate"] |= {"units": {}}
    page.open(status)
    assert not page.visible("#natural")
    assert page.complaints() == []


def test_contrasts_are_shown_with_evidence_that_may_be_watched(page):
    contrasts = (
        Contrast(
            "treatment: b against a", "log odds", 0.5, (0.2, 0.8), 1.65, (1.22, 2.23), 10.0, (5.0, 15.0), 0.0004, 2500.0
        ),
        Contrast(HOSTILE[0], "log odds", 0.0, (-math.inf, math.inf), 1.0, (0.0, math.inf), None, None, None, None),
    )
    page.open(made_up(9000, looks=Looks("always-valid", 100_000, 9000), contrasts=contrasts))
    assert page.texts("#contrast-rows td, #contrast-rows th") == [
        "treatment: b against a", "1.65", "1.22 to 2.23", "0.000400", "2,500", HOSTILE[0], "not learned",
        "none", "none", "none",
    ]  # fmt: skip
    assert page.complaints() == []


def test_an_experiment_is_watched(page):
    page.open(made_up(9000))
    assert not page.visible("#experiment")
    page.open(SCENARIOS["experiment"](20))
    assert not page.visible("#experiment")
    status = SCENARIOS["experiment"](90_000)
    page.open(status)
    assert page.visible("#experiment")
    assert page.texts("#lifts h3") == ["green", HOSTILE[0]]
    (low, high), value = status["experiment"]["lifts"][0]["interval"], status["experiment"]["lifts"][0]["value"]
    interval = f"{low:+.1f} to {high:+.1f}".replace("-", "\u2212")
    assert page.texts("#lifts .value") == [f"{value:+.1f} points ({interval})", "too few people"]
    label = page.script("return document.querySelector('#lifts .plot').getAttribute('aria-label')")
    assert label == f"Lift of green: {value:+.1f} points ({interval}). Arrow keys read the curve."
    cells = page.texts("#arm-rows tr:nth-child(2) > *")
    assert cells[:4] == ["green", "30,000", f"{value:+.1f} points", interval]
    assert cells[5:] == ["0.00300", "333", "safe"]
    assert page.texts("#arm-rows th") == ["grey (control)", "green", HOSTILE[0]]
    assert page.text("#experiment-words").splitlines() == status["experiment"]["words"]
    counts = page.text("#experiment-counts")
    assert counts.startswith(
        "The arms' counts do not contradict the stated shares (e = 0.02; alarm from 1,000).\n3 people"
    )
    # A curve is read by keys, and its first point is that of the first interval.
    from selenium.webdriver.common.keys import Keys

    page.find("#lifts .plot").send_keys(Keys.HOME)
    first = next(n for n in status["history"]["releases"] if n >= 60)
    eventually(lambda: page.text("#lifts .at") == f"at {first}")
    before = page.pixels()[0]
    page.monitor.status = lambda: SCENARIOS["experiment"](200_000)
    eventually(lambda: page.pixels()[0] != before)
    late = SCENARIOS["experiment"](90_000)
    for curve in late["history"]["lifts"].values():
        curve["lows"][:-1] = [None] * (len(curve["lows"]) - 1)
    page.open(late)
    assert page.texts("#lifts .empty:not([hidden])") == ["The curve begins with the next releases"] * 2
    page.monitor.status = lambda: status | {"experiment": status["experiment"] | {"stop": "harmed"}}
    eventually(lambda: "alarm" in page.find("#experiment-words").get_attribute("class"))
    assert page.complaints() == []


def test_intervals_are_said_as_what_they_are(page):
    page.open(SCENARIOS["blind"](9000))
    assert page.text("#interval-note").startswith("No intervals: valid in the limit")
    assert page.texts(".beside") == ["no interval"] * 3
    assert not page.visible("#reference-key")
    assert not page.visible("#parameter-error-figure")
    status = made_up(9000)
    assert page.open(status).text("#interval-label") == "nominal 95% at this look only"
    assert BY_RANDOM_SCALING in page.text("#looks")
    status = made_up(9000, looks=Looks("always-valid", 100_000, 9000))
    assert page.open(status).text("#interval-label") == "95% at every look"
    assert page.text("#looks").startswith("95% at every look: with a probability of 95% an interval holds the truth")
    assert not page.visible("#contrasts")
    # Of scores, what has no interval is no estimate either.
    status["estimate"] |= {"method": "scores", "half_widths": [0.1, None, 0.2]}
    shown = page.open(status).texts(".parameter .value")
    assert [text == "not learned" for text in shown] == [False, True, False]
    assert page.texts(".beside")[1] == "too noisy at this privacy level"
    assert not page.visible("#needed")
    taken = {"people": 4000, "budgets": None, "public_rows": None, "at_least": False, "words": "about 4,000 people"}
    status["estimate"] |= {"needed": {"a": taken, "b": taken}}
    assert (
        page.open(status).text("#needed")
        == "Too noisy to learn at this privacy level: a, b would take about 4,000 people."
    )
    status["estimate"] |= {"half_widths": [None] * 3, "note": "none yet: nothing was learned"}
    assert page.open(status).text("#interval-note") == "No intervals: nothing was learned."
    assert page.complaints() == []


def test_what_was_promised_and_what_was_refused(page):
    status = SCENARIOS["real"](9000)
    page.open(status)
    levels = status["task"]["levels"]
    assert page.texts(".level .words") == [level["words"] for level in levels]
    assert page.texts(".level h3") == ["default", "strict", "open"]
    assert "right at most 69.2% of the time" in page.text(".level .right")
    assert "5,580 releases learned at this level (62.0%)" in page.text(".level .learned")
    assert not page.visible("#simulated")
    assert page.text("#public-sample") == status["task"]["public_sample"]["words"]
    assert page.texts("#dead-table tbody td:last-child") == ["1,204", "17", "3", "1"]
    assert page.text("#dead") == "1,225"
    assert page.texts("#partitions .nobody") == ["not recorded"]
    page.open(made_up(9000))
    assert page.text("#simulated").startswith("SIMULATED: protects nobody")
    assert not page.visible("#public-sample")
    assert page.visible("#dead-none")
    assert not page.visible("#dead-table")


TASK = """
name: weeks
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
privacy:
  guarantee: {gdp: {mu: 2.0}}
"""


def test_the_real_monitor_on_a_real_run(chromium, tmp_path):
    (tmp_path / "weeks.yaml").write_text(TASK)
    log = f"sqlite:///{tmp_path / 'weeks.db'}"
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            process = harness.start(*arguments, folder=tmp_path)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        learn = start("run", "weeks.yaml", "--source", MOTHERS, "--log", log, "--ledger", "l.db", "--seed", 7, "--json")
        serve = start("monitor", "weeks.yaml", "--log", log, "--port", 0, "--interval", 0.2, "--wait", "--json")
        page = Page(chromium, None)
        page.resize("wide")
        chromium.get(json.loads(serve.stdout.readline())["url"])
        released = lambda: int(page.text("#releases").replace(",", "").strip() or 0)  # noqa: E731
        eventually(lambda: released() > 0)
        learn.send_signal(signal.SIGSTOP)  # looked at while it stands, so that it is known what moved the page
        time.sleep(3)
        seen, before = released(), page.pixels()
        assert page.text("h1") == "weeks"
        assert page.text("#simulated").startswith("SIMULATED")
        assert page.texts(".parameter h3")[:2] == ["same_sex", "age"]
        learn.send_signal(signal.SIGCONT)
        eventually(lambda: released() > seen)
        eventually(lambda: all(old != new for old, new in zip(before, page.pixels(), strict=True)))
        assert page.state() == "live"
        assert page.complaints() == []


def test_shipped_files_are_the_published_ones_and_name_no_other_host():
    listed = re.findall(r"^([0-9a-f]{64})  (\S+)$", (PAGE / "vendor" / "VERSION").read_text(), re.MULTILINE)
    assert sorted(name for _, name in listed) == ["uPlot.iife.min.js", "uPlot.min.css"]
    for digest, name in listed:
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == digest
    for path in PAGE.iterdir():
        if path.is_file():
            text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
            assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE), path.name
            assert "innerHTML" not in text
            assert len(text.splitlines()) <= 400


# Elements that reach beyond the window, but for those inside a box that scrolls or cuts.
OUTSIDE = """
  const cut = (n) => n && n !== document.body && (getComputedStyle(n).overflowX !== 'visible' || cut(n.parentElement));
  return [...document.querySelectorAll('body *')].filter(n => n.checkVisibility() && !cut(n.parentElement) &&
    getComputedStyle(n).clipPath === 'none' && n.getBoundingClientRect().right > innerWidth + 0.5)
    .map(n => n.outerHTML.slice(0, 80));
"""
WITH_TEXT = """
  const texts = [...document.querySelectorAll('body *')].filter(n => n.checkVisibility() &&
    [...n.childNodes].some(c => c.nodeType === 3 && c.data.trim()));
"""
SMALLEST_TEXT = WITH_TEXT + "return Math.min(...texts.map(n => parseFloat(getComputedStyle(n).fontSize)));"
# Coefficients whose value runs into what stands beside it.
TOUCHING = """
  const end = (n) => { const r = document.createRange(); r.selectNodeContents(n); return r.getBoundingClientRect(); };
  return [...document.querySelectorAll('.parameter')].filter(card => card.querySelector('.beside').textContent &&
    end(card.querySelector('.value')).right > end(card.querySelector('.beside')).left &&
    end(card.querySelector('.value')).bottom > end(card.querySelector('.beside')).top).map(card => card.innerText);
"""
# Texts whose contrast is below 4.5 (WCAG 2.2, level AA).
FAINT = (
    WITH_TEXT
    + """
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (n) => { for (; n; n = n.parentElement) {
    const c = parts(getComputedStyle(n).backgroundColor); if (c.length < 4 || c[3] === 1) return c; }
    return [255, 255, 255]; };
  const light = (c) => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (n) => {
    const [a, b] = [light(parts(getComputedStyle(n).color)), light(behind(n))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); };
  return texts.filter(n => !n.disabled && contrast(n) < 4.5).map(n => n.outerHTML.slice(0, 80));
"""
)
