"""The demonstration in a browser: profiles that answer beside the crowd, and a service that is killed in between."""

import contextlib
import importlib.util
import json
import math
import re
import signal

import numpy as np
import pytest
from selenium.common.exceptions import WebDriverException

from deploy.broker.ports import number, reserve
from murk import Task
from murk.demo import experiment
from murk.demo.web import TASK, TRUTH, coded_truth, crowd
from murk.errors import UserError
from murk.inference.units import POINTS, units
from tests.cli.harness import finish, murk, refused, start
from tests.gateway.devices import stored
from tests.services import services

CARD = "document.querySelector('murk-consent').shadowRoot"


class Visitor:
    """A person with a browser profile of their own."""

    def __init__(self, driver, url):
        self.driver = driver
        self.open(url)

    def open(self, url):
        self.driver.get(f"{url}/")
        self.sees(lambda: self.script(f"return {CARD} !== null"))

    def script(self, text):
        return self.driver.execute_script(text)

    def answer(self, **answers):
        """Answer by radio buttons, and share."""
        for name, value in answers.items():
            self.script(f"document.querySelector('[name={name}][value={value}]').click()")
        self.press("share")

    def press(self, name):
        self.script(f"{CARD}.querySelector('#{name}').click()")

    @property
    def card(self):
        return self.script(f"return {CARD}.querySelector('section').innerText")

    @property
    def page(self):
        return self.script("return document.body.innerText")

    @property
    def bytes(self):
        return self.script("return document.querySelector('#bytes').textContent").encode()

    def may_share(self):
        return self.script(f"return !{CARD}.querySelector('#share').disabled")

    def sees(self, look):
        return services.eventually(look)


@pytest.fixture
def profiles(chromium, tmp_path):
    """Three browsers with a profile each."""
    drivers = [chromium]
    try:
        for name in "ab":
            (tmp_path / name).mkdir()
            drivers.append(services.start_chromium(tmp_path / name))
        yield drivers
    finally:
        for driver in drivers[1:]:
            with contextlib.suppress(WebDriverException, OSError):
                driver.quit()


def begun(folder, port=0, kind="--web"):
    process = start("demo", kind, "--json", "--port", port, folder=folder)
    line = process.stdout.readline()
    assert line, process.communicate()
    return process, json.loads(line)


@pytest.fixture
def port():
    """A port that nobody else gets while the service is away."""
    with reserve() as held:
        yield number(held)


def test_profiles_and_a_service_that_is_killed(profiles, tmp_path, port):
    process, where = begun(tmp_path, port)
    try:
        first, second, late = (Visitor(driver, where["url"]) for driver in profiles)
        first.answer(coffee="no", rested="yes")
        second.answer(coffee="yes", rested="no")
        for visitor in (first, second):
            visitor.sees(lambda visitor=visitor: "Your answer was sent, as these bytes" in visitor.page)
            assert "right in at most 69.2% of cases" in visitor.page
            visitor.sees(lambda visitor=visitor: "mu = 1 of at most mu = 1" in visitor.card and not visitor.may_share())
            assert visitor.bytes.decode() in visitor.page
        assert first.bytes != second.bytes
        # The crowd's estimate arrives, beside its truth.
        figures = "return document.querySelector('.effect .figures')?.textContent ?? ''"
        first.sees(lambda: "from" in first.script(figures))
        assert first.script(figures).endswith("truth +8.0")
        assert "interval, 95% at every look" in first.page
        first.driver.get(where["live_page"])
        first.sees(lambda: first.script("return document.querySelector('#status').dataset.state") == "live")
        # Nothing was refused by the content security policy.
        assert [each["message"] for driver in profiles for each in driver.get_log("browser")] == []

        process.kill()
        process.wait()
        late.answer(coffee="yes", rested="yes")
        late.sees(lambda: "Your answer waits in this browser" in late.page)
        late.sees(lambda: "is stored, and is sent when" in late.card and not late.may_share())
        late.sees(lambda: "start it again" in late.page)

        process, again = begun(tmp_path, port)
        assert again == where
        late.sees(lambda: "Your answer was sent, as these bytes" in late.page)
        late.sees(lambda: "is stored" not in late.card)
        late.sees(lambda: "start it again" not in late.page)
        # A second visit.
        first.open(where["url"])
        first.sees(lambda: "this browser keeps no copy" in first.page)
        first.sees(lambda: "Your privacy budget for this task is spent" in first.card and not first.may_share())
        assert "mu = 1 of at most mu = 1" in first.card
        first.press("withdraw")
        first.sees(lambda: "You have withdrawn" in first.card)
        releases = [second.bytes, late.bytes]

        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert (done.status, done.out, done.err) == (0, "", "")
        messages = stored(f"sqlite:///{tmp_path}/murk-demo/web.db")
        assert [messages.count(each) for each in releases] == [1, 1]
        assert len(messages) > len(releases)
    finally:
        process.kill()


def test_an_experiment_that_a_visitor_stops(chromium, tmp_path):
    process, where = begun(tmp_path, kind="--experiment")
    try:
        visitor = Visitor(chromium, where["url"])
        arm = visitor.sees(lambda: visitor.script("return document.querySelector('#buy').dataset.arm"))
        assert "Sent as they are, without noise: Colour of the button." in visitor.card
        visitor.answer(bought="yes")
        visitor.sees(lambda: "answer was sent" in visitor.card and not visitor.may_share())
        visitor.sees(lambda: "valid: from" in visitor.page)
        assert "naive: from" in visitor.page
        assert "The truth is" not in visitor.page
        visitor.script("document.querySelector('#stop').click()")
        visitor.sees(lambda: "You stopped at" in visitor.page)
        for button, truth in ("green", "0.0"), ("blue", "+4.0"):
            assert re.search(
                rf"{button} against grey: [a-z ]+ by the naive interval, [a-z ]+ by the valid one", visitor.page
            )
            assert f"The truth is {truth} points." in visitor.page
        visitor.open(where["url"])
        assert visitor.sees(lambda: visitor.script("return document.querySelector('#buy').dataset.arm")) == arm
        assert [each["message"] for each in chromium.get_log("browser")] == []
        process.send_signal(signal.SIGINT)
        assert finish(process).status == 0
        messages = [json.loads(each) for each in stored(f"sqlite:///{tmp_path}/murk-demo/experiment.db")]
        assert all(0 <= each["payload"][0] < 4 for each in messages)
        assert len(messages) > 1
    finally:
        process.kill()


def test_two_at_once_and_one_in_the_way(tmp_path):
    process, where = begun(tmp_path)
    try:
        web = ("demo", "--web", "--port")
        refused(murk(*web, where["port"], "--out", "other", folder=tmp_path), "choose another --port (0", status=1)
        refused(murk(*web, 0, folder=tmp_path), "is working on sqlite:///murk-demo/web.db", "another --out")
        other, elsewhere = start(*web, 0, "--out", "other", "--json", folder=tmp_path), None
        try:
            elsewhere = json.loads(other.stdout.readline())
            assert elsewhere["port"] != where["port"]
        finally:
            other.send_signal(signal.SIGTERM)
            assert finish(other).status == 0
    finally:
        process.send_signal(signal.SIGINT)
        assert finish(process).status == 0


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("--web", ("--seed", 1)),
        ("--web", ("--log", "sqlite:///a.db")),
        ("--web", ("--no-picture",)),
        ("--experiment", ("--no-picture",)),
        ("--experiment", ("--web",)),
    ],
)
def test_options_that_do_not_go_with_it(tmp_path, kind, option):
    refused(murk("demo", kind, *option, folder=tmp_path), f"cannot be combined with {kind}")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    from murk.cli import web_demo

    found = importlib.util.find_spec
    monkeypatch.setattr(web_demo, "find_spec", lambda name: None if name == "httptools" else found(name))
    with pytest.raises(UserError, match=r'needs httptools: pip install .*\[gateway\]"'):
        web_demo.serve(tmp_path, 0, as_json=False)
    assert list(tmp_path.iterdir()) == []


def test_the_crowd_has_the_stated_truth():
    """Least squares over all records is within 4.5 standard errors: a false alarm in 2 of 100,000 seeds."""
    size = 100_000
    records = crowd(size)
    x = np.array([[each["sleep"] - 7.0, (each["coffee"] == "yes") - 0.5, 1.0] for each in records])
    y = np.array([each["rested"] == "yes" for each in records], dtype=float)
    estimate, residuals, *_ = np.linalg.lstsq(x, y, rcond=None)
    errors = np.sqrt(residuals[0] / size * np.diag(np.linalg.inv(x.T @ x)))
    for name, value, error in zip(("sleep", "coffee", "intercept"), estimate, errors, strict=True):
        assert abs(value - TRUTH[name]) < 4.5 * error
        # An effect that is a tenth smaller is noticed.
        assert abs(value - 0.9 * TRUTH[name]) > 4.5 * error
    # All chances are within 0 and 1, and all records within the task's bounds.
    assert TRUTH["intercept"] - 3 * TRUTH["sleep"] + TRUTH["coffee"] / 2 > 0.0
    assert TRUTH["intercept"] + 3 * TRUTH["sleep"] - TRUTH["coffee"] / 2 < 1.0
    assert {4.0, 10.0} <= {each["sleep"] for each in records}


def test_the_buttons_have_the_stated_lifts():
    """Shares of each arm, within 4.5 standard errors: a false alarm in 2 of 100,000 seeds."""
    records = experiment.crowd(40_000)
    share, error = {}, {}
    for arm in ("grey", "green", "blue"):
        bought = np.array([each["bought"] == "yes" for each in records if each["button"] == arm])
        share[arm], error[arm] = 100.0 * bought.mean(), 100.0 * bought.std() / math.sqrt(len(bought))
        assert abs(len(bought) / len(records) - 1 / 3) < 0.02
    for arm, lift in experiment.TRUTH.items():
        spread = 4.5 * math.hypot(error[arm], error["grey"])
        assert abs(share[arm] - share["grey"] - lift) < spread
        # The lift of the other button is noticed.
        assert abs(share[arm] - share["grey"] - (4.0 - lift)) > spread


def test_the_truth_in_coded_units():
    task = Task.load(TASK)
    for name, value in coded_truth(task).items():
        unit = units(task)[name]
        assert value * unit.factor + unit.shift == pytest.approx(POINTS * TRUTH[name])
