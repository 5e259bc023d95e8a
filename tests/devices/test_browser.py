"""The web device and its consent card in a real Chromium."""

import base64
import contextlib
import hashlib
import json
import os
import random
import re
import select
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.keys import Keys

from murk.gateway.app import Settings
from murk.gateway.oblivious import ObliviousKeys
from murk.task import Task
from tests.devices import web
from tests.devices.pages import ABOUT, FORM, served, with_privacy
from tests.gateway.devices import announced, serving, stored, task
from tests.gateway.relayed import relaying
from tests.services import services

KILLS = int(os.environ.get("WEB_KILLS", "3"))
ENDLESSLY = """
window.acknowledged = [];
(async () => {
  for (;;) {
    const receipt = await window.device.release({ age: 30 });
    if (receipt.outcome !== "released") break;
    window.acknowledged.push(JSON.parse(receipt.bytes).id);
  }
})();
"""


@pytest.fixture(scope="module", autouse=True)
def _built():
    web.built()


@pytest.fixture
def gateway():
    with served() as server:
        yield server


def opened(driver, gateway, query=""):
    driver.get(f"{gateway.url}/{query}")
    services.eventually(lambda: driver.execute_script("return window.ready === true"))
    services.eventually(
        lambda: driver.execute_script("return document.querySelector('murk-consent').shadowRoot !== null")
    )
    return driver


def card_text(driver):
    return driver.execute_script(
        "return document.querySelector('murk-consent').shadowRoot.querySelector('section').innerText"
    )


def run(driver, script):
    return driver.execute_async_script(f"const done = arguments[0]; (async () => {{ {script} }})().then(done)")


def test_a_page_releases_through_a_relay(chromium, gateway, tmp_path):
    """With the browser's own X25519; the gateway allows no page, and needs not."""
    url, keys = announced(tmp_path, task()), ObliviousKeys([(1, b"k" * 32)])
    with serving(url, settings=Settings(rate=0, keys=keys)) as other, relaying(other.url) as relay:
        driver = opened(chromium, gateway)
        loaded = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('ohttp.js')).length"
        assert driver.execute_script(f"return {loaded}") == 0
        options = {"gateway": other.url, "relay": relay.url, "task": "third-child"}
        options["keys"] = base64.b64encode(keys.configuration).decode()
        receipt = run(driver, f"""
            const {{ connect }} = await import("./murk.js");
            const device = await connect({{ ...{json.dumps(options)}, first: async () => true }});
            return device.release({{ same_sex: "yes", age: 30, third_child: "no" }});
        """)  # fmt: skip
        assert (receipt["outcome"], receipt["delivery"]) == ("released", "sent")
        assert stored(url) == [receipt["bytes"].encode()]
        assert driver.execute_script(f"return {loaded}") == 1


def test_a_person_shares_by_keyboard(chromium, gateway):
    driver = opened(chromium, gateway)
    text = card_text(driver)
    assert "at most 69.2% of cases" in text
    assert "mu = 0 of at most mu = 1" in text
    driver.find_element("css selector", "#age").send_keys(Keys.TAB, Keys.TAB, Keys.TAB)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    receipt = services.eventually(lambda: driver.execute_script("return window.receipt"))
    assert (receipt["outcome"], receipt["delivery"]) == ("released", "sent")
    # The very bytes, which the worker's own rules accepted.
    assert [message.decode() for message in gateway.received] == [receipt["bytes"]]
    services.eventually(lambda: "answer was sent" in card_text(driver))
    assert "mu = 1 of at most mu = 1" in card_text(driver)
    driver.execute_script("document.querySelector('murk-consent').shadowRoot.querySelector('details').open = true")
    assert receipt["bytes"] in card_text(driver)
    status = driver.execute_script(
        "return document.querySelector('murk-consent').shadowRoot.querySelector('[role=status]').textContent"
    )
    assert status.startswith("Your blurred answer was sent. Your privacy budget for this task is spent")
    assert run(driver, "return (await window.device.release({})).reason") == "task-cap"
    assert [entry["message"] for entry in driver.get_log("browser")] == []


ACCOUNT = """
const task = { features: [{ name: "אב" }, { name: "b" }], target: { name: "y" }, privacy: {},
  guarantees: new Map([["default", { approx: { epsilon: 1, delta: 1e-6 } }]]) };
const cap = { currency: "approx", units: 3n * 10n ** 12n, delta: 3n * 10n ** 9n };
const status = { task, caps: [{ cap, spent: 10n ** 12n, spentDelta: 10n ** 9n }], withdrawn: false, changed: %s,
  optOut: false, silentFor: 0, room: true, attackAccuracy: 0.7312, attackAccuracyAtCap: 0.9527, identified: %s };
const card = document.querySelector("murk-consent");
card.device = { status: async () => status };
await card.update();
return [...card.shadowRoot.querySelectorAll("bdi")].map((each) => each.textContent);
"""


def test_the_card_states_the_whole_account(chromium, gateway):
    driver = opened(chromium, gateway)
    assert run(driver, ACCOUNT % ("false", "false")) == ["אב", "b", "y"]
    text = card_text(driver)
    assert "epsilon = 1, delta = 0.000001 of at most epsilon = 3, delta = 0.000003" in text
    assert "at most 73.2% of cases" in text
    assert "all answers that your budget allows together, in at most 95.3%" in text
    assert "or any identifier of you" in text
    assert "has changed its question" not in text
    run(driver, ACCOUNT % ("true", "true"))
    text = card_text(driver)
    assert "or any identifier of you" not in text
    assert "Your login goes with it" in text
    assert "has changed its question" in text
    disabled = "return document.querySelector('murk-consent').shadowRoot.querySelector('#share').disabled"
    assert driver.execute_script(disabled)


@pytest.mark.parametrize("page", ["docs/guides/web.md", "devices/web/README.md"])
def test_the_example_of_a_document_works(chromium, gateway, page):
    text = (web.FOLDER.parents[1] / page).read_text()
    (example,) = re.findall(r"^```html\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    example = example.replace("https://murk.example.org", gateway.url).replace("…64 hex digits…", gateway.task.hash)
    gateway.page = FORM.replace("{hash}", gateway.task.hash).replace("{example}", example)
    chromium.get(f"{gateway.url}/")
    share = "return document.querySelector('murk-consent')?.shadowRoot?.querySelector('#share')"
    services.eventually(lambda: chromium.execute_script(share)).click()
    services.eventually(lambda: "answer was sent" in card_text(chromium))
    assert len(gateway.ids) == 1


def test_a_withdrawal_ends_it(chromium, gateway):
    gateway.away = True
    driver = opened(chromium, gateway)
    assert run(driver, "return (await window.device.release({age: 30})).delivery") == "queued"
    driver.execute_script("document.querySelector('murk-consent').shadowRoot.querySelector('#withdraw').click()")
    services.eventually(lambda: "You have withdrawn" in card_text(driver))
    gateway.away = False
    assert run(driver, "await window.device.flush(); return (await window.device.status()).waiting") == 0
    assert gateway.received == []
    assert run(driver, "return (await window.device.status()).message") == ""
    disabled = "return document.querySelector('murk-consent').shadowRoot.querySelector('#share').disabled"
    assert driver.execute_script(disabled)


RECEIPT = """
const made = new Promise((resolve) => { URL.createObjectURL = (blob) => (blob.text().then(resolve), "data:,"); });
document.querySelector("murk-consent").shadowRoot.querySelector("#receipt").click();
return await made;
"""
MESSAGE = "return document.querySelector('murk-consent').shadowRoot.querySelector('pre').textContent"


def test_the_card_says_who_asks_and_gives_a_receipt(chromium, gateway):
    driver = opened(chromium, gateway)
    for words in ABOUT.values():
        assert words in card_text(driver)
    assert "What was sent cannot be taken back" in card_text(driver)
    assert "archive" not in card_text(driver)
    link = driver.execute_script(
        "const link = document.querySelector('murk-consent').shadowRoot.querySelector('dd a');"
        "return [link.href, link.rel]"
    )
    assert link == [ABOUT["notice"], "noopener noreferrer"]
    hidden = "return document.querySelector('murk-consent').shadowRoot.querySelector('#receipt').hidden"
    assert driver.execute_script(hidden)
    message = run(driver, "return (await window.device.release({age: 30})).bytes")
    # Another visit shows what was sent.
    opened(driver, gateway)
    services.eventually(lambda: driver.execute_script(MESSAGE) == message)
    receipt = json.loads(run(driver, RECEIPT))
    assert (receipt["task"], receipt["hash"], receipt["about"]) == (
        "third-child",
        gateway.task.hash,
        {**ABOUT, "archive": None},
    )
    assert receipt["asked"] == ["age", "same_sex", "third_child"]
    assert receipt["promise"]["guarantee"] == {"gdp": {"mu": 1}}
    answers = receipt["answers"]
    assert (answers["message"], answers["sent"], answers["withdrawn"]) == (message, 1, False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", *answers["days"])
    assert "at most 69.2% of cases" in receipt["shown"]
    run(driver, "await window.device.withdraw()")
    services.eventually(lambda: "You have withdrawn" in card_text(driver))
    status = "return document.querySelector('murk-consent').shadowRoot.querySelector('[role=status]').textContent"
    assert "What was sent cannot be taken back" in driver.execute_script(status)
    # It was sent, so it stays; what was only stored is gone, as the test below shows.
    assert driver.execute_script(MESSAGE) == message


HOSTILE = """
const task = { name: "t", about: { notice: "javascript:alert(1)", purpose: "<img src=x>" }, features: [],
  target: { name: "y" }, privacy: {}, guarantees: new Map([["default", { gdp: { mu: 1 } }]]) };
const card = document.querySelector("murk-consent");
card.device = { status: async () => ({ task, caps: [], attackAccuracy: 0.7, attackAccuracyAtCap: 0.7, room: true }) };
await card.update();
return card.shadowRoot.querySelectorAll("a, img").length;
"""


def test_what_a_task_says_about_itself_is_only_text(chromium, gateway):
    driver = opened(chromium, gateway)
    assert run(driver, HOSTILE) == 0
    assert "javascript:alert(1)" in card_text(driver)


EXPERIMENT = Task.parse(f"""
name: third-child
features:
  - {{name: arm, label: Version of this page, categories: [control, treatment], known: true}}
  - {{name: platform, label: Kind of device, categories: [web, ios, other], known: true}}
target: {{name: bought, label: Whether you bought something, kind: binary, positive: "yes", negative: "no"}}
experiment:
  arm: arm
  control: control
  assigned: {{by: device, salt: checkout-7, shares: [0.5, 0.5]}}
  metrics: [{{name: amount, label: What you paid, kind: real, low: 0, high: 200, missing_share: 0}}]
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
about: {json.dumps({**ABOUT, "archive": {"kept": "1825d", "readers": "the shop", "writers": "its archiver"}})}
""")


def test_the_card_says_what_is_sent_as_it_is(chromium):
    with served(task=EXPERIMENT) as gateway:
        driver = opened(chromium, gateway)
        text = card_text(driver)
        assert "Asked about you: Whether you bought something, What you paid." in text
        assert "Of Whether you bought something, What you paid, this device draws one at random" in text
        assert "Sent as they are, without noise: Version of this page, Kind of device." in text
        assert "Drawn at random by this device: Version of this page." in text
        assert "from any other that is the same in what is sent as it is, in at most 69.2% of cases" in text
        assert "one message of these values and random-looking numbers" in text
        assert "kept in an archive for at most 1825 days. Who may read it: the shop. Who may write to it: its" in text
        arm = run(driver, "return await window.device.arm()")
        run(
            driver,
            """
            const card = document.querySelector("murk-consent");
            card.record = () => ({ platform: "ios", bought: "yes", amount: 30 });
            card.shadowRoot.querySelector("#share").click();
        """,
        )
        services.eventually(lambda: "answer was sent" in card_text(driver))
        (message,) = gateway.received
        place = ["control", "treatment"].index(arm)
        metric, cell, *_ = json.loads(message)["payload"]
        assert metric in (0, 1)
        assert cell == 4 * place + 1
        known = json.loads(run(driver, RECEIPT))["sent_as_they_are"]
        assert known == ["Version of this page", "Kind of device"]
        # Another visit has the same arm, by a number that was not sent.
        assert run(opened(driver, gateway), "return await window.device.arm()") == arm


WATCHED = """
<murk-consent>Why?</murk-consent><script type="module">
import { defineCard } from "./card.js";
defineCard();
const card = document.querySelector("murk-consent");
const look = () => {
  window.asked ||= Boolean(card.shadowRoot?.querySelector("#share"));
  window.said = card.shadowRoot?.querySelector("[role=alert]")?.textContent ?? "";
  requestAnimationFrame(look);
};
look();
card.options = { gateway: location.origin, task: "third-child", hash: HASH };
</script>"""


@pytest.mark.parametrize("why", ["mixed", "unknown kind", "other hash"])
def test_nobody_is_asked_what_the_device_refuses(chromium, gateway, why):
    content = json.loads(gateway.task.document())
    if why == "mixed":
        content["features"][1]["known"] = True
    elif why == "unknown kind":
        content["features"].append({"name": "words", "kind": "text"})
    document = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    own = {key: value for key, value in content.items() if key != "log"}
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    pinned = "0" * 64 if why == "other hash" else digest
    gateway.task = SimpleNamespace(document=lambda: document)
    gateway.page = FORM.replace("{hash}", pinned).replace("{example}", WATCHED)
    chromium.get(f"{gateway.url}/")
    said = services.eventually(lambda: chromium.execute_script("return window.said"))
    assert said.startswith("The service does not ask what this page says")
    # The question is shown from the task alone only where its kinds can be answered, and goes with the refusal.
    if why != "other hash":
        assert chromium.execute_script("return window.asked") is False
    assert not chromium.execute_script(
        "return Boolean(document.querySelector('murk-consent').shadowRoot.querySelector('#share'))"
    )
    assert gateway.received == []


def test_an_error_of_the_page_is_on_the_console_and_not_the_storages(chromium, gateway):
    driver = opened(chromium, gateway)
    # Errors of a driver's own scripts would be muted.
    driver.execute_script("""
        const script = document.createElement("script");
        script.textContent = `window.raised = [];
          addEventListener("error", ({ error }) => raised.push(String(error)));
          document.querySelector("murk-consent").record = () => ({ age: document.querySelector("#renamed").value });`;
        document.head.append(script);
        document.querySelector("murk-consent").shadowRoot.getElementById("share").click();
    """)
    services.eventually(lambda: "This page has an error. Nothing was shared." in card_text(driver))
    [raised] = driver.execute_script("return window.raised")
    assert raised.startswith("TypeError")
    assert gateway.received == []
    # The errors of this page are no findings of other tests.
    assert any("TypeError" in entry["message"] for entry in driver.get_log("browser"))


def test_tabs_race_for_the_last_of_a_budget(chromium, gateway):
    opened(chromium, gateway)
    first = chromium.current_window_handle
    chromium.switch_to.new_window("tab")
    opened(chromium, gateway)
    # Each begins at the same moment of the clock that they share.
    start = int((time.time() + 1.0) * 1000)
    release = "async () => { window.own = (await window.device.release({age: 30})).outcome; }"
    begin = f"setTimeout({release}, {start} - Date.now())"
    for handle in (first, chromium.current_window_handle):
        chromium.switch_to.window(handle)
        chromium.execute_script(begin)
    outcomes = []
    for handle in chromium.window_handles:
        chromium.switch_to.window(handle)
        outcomes.append(services.eventually(lambda: chromium.execute_script("return window.own")))
    chromium.close()
    chromium.switch_to.window(first)
    assert sorted(outcomes) == ["refused", "released"]
    assert len(gateway.ids) == 1


def test_global_privacy_control_and_wiped_storage(chromium, gateway):
    driver = opened(chromium, gateway)
    driver.execute_script(
        "Object.defineProperty(navigator, 'globalPrivacyControl', {value: true, configurable: true});"
        "document.querySelector('murk-consent').update()"
    )
    services.eventually(lambda: "Nothing is shared" in card_text(driver))
    assert run(driver, "return (await window.device.release({age: 30})).reason") == "opt-out"
    assert gateway.received == []
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": gateway.url, "storageTypes": "all"})
    opened(driver, gateway, "?first=wait")
    assert "it then stays silent for 7 days" in card_text(driver)
    assert run(driver, "return (await window.device.release({age: 30})).reason") == "new-ledger"
    services.eventually(lambda: "silent for 7 more days" in card_text(driver))
    assert gateway.received == []


AHEAD = "(() => { const now = Date.now; Date.now = () => now() + %d * 1000; })();"
ROWS = """
return new Promise((resolve) => {
  const opening = indexedDB.open("murk");
  opening.onsuccess = () => {
    const reading = opening.result.transaction("rows").objectStore("rows").getAllKeys();
    reading.onsuccess = () => {
      opening.result.close();
      resolve(reading.result.filter((key) => /^(held|memo):/.test(key)));
    };
  };
});
"""


def visited(chromium, gateway, weeks, more=""):
    """Open the page in a later week."""
    gateway.ahead = weeks * 7 * 86_400
    source = {"source": AHEAD % gateway.ahead + more}
    script = chromium.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    try:
        return opened(chromium, gateway)
    finally:
        chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


REPEATING = Task.parse(f"""
name: third-child
about: {json.dumps(ABOUT)}
features: [{{name: age, low: 21, high: 35}}]
target: {{name: third_child, kind: binary, positive: "yes", negative: "no"}}
protocol: moments
weight: {{rows: 3}}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}, window: week, repeat: same, lifetime: {{gdp: {{mu: 1.5}}}}}}
""")


def test_a_person_repeats_an_answer_while_their_records_are_the_same(chromium):
    """Two records of a week are one answer, and the same two a week later the same answer; a third one changes it."""
    with served(task=REPEATING) as gateway:
        hold = "return (await window.device.hold({ age: 30, third_child: 'no' })).outcome"
        for week, count in enumerate([2, 2, 3, 1]):
            driver = visited(chromium, gateway, 2 * week)
            text = card_text(driver)
            assert "A repeated answer costs nothing, as it is the same numbers again." in text
            assert "a new one shows that the record has changed, and when: no noise hides that" in text
            assert "counts as many records as you give before it is made, up to 3" in text
            assert [run(driver, hold) for _ in range(count)] == ["held"] * count
            driver = visited(chromium, gateway, 2 * week + 1.99)
            services.eventually(lambda: len(gateway.ids) == week + 1)  # noqa: B023 - waited for at once
            # What is repeated stays, under its key.
            assert (len(run(driver, ROWS)), driver.execute_script("return localStorage.length")) == (1, 1)
        payloads = [json.loads(message)["payload"] for message in gateway.received]
        # The last one repeats whatever the record is, as mu^2 = 2.25 allows two answers.
        assert [payloads.index(each) for each in payloads] == [0, 0, 2, 2]
        assert run(
            driver, "const { released, repeated } = await window.device.status(); return [released, repeated]"
        ) == [4, 2]
        receipt = json.loads(run(driver, RECEIPT))
        assert (receipt["promise"]["repeat"], receipt["promise"]["rows"], receipt["answers"]["repeated"]) == (
            "same",
            3,
            2,
        )
        run(driver, "await window.device.withdraw()")
        assert (run(driver, ROWS), driver.execute_script("return localStorage.length")) == ([], 0)
        services.eventually(lambda: "You have withdrawn" in card_text(driver))


def test_a_person_answers_once_a_week(chromium):
    """Records are held in the browser's storage and released after their week, by a page that slept for three."""
    week = 7 * 86_400
    task = with_privacy("window: week, lifetime: {gdp: {mu: 2.0}}")
    with served(task=task) as gateway:
        driver = visited(chromium, gateway, 0)
        text = card_text(driver)
        assert "You can answer once a week." in text
        assert "From all answers that your budget allows together, in at most 84.2%." in text
        hold = "return (await window.device.hold({ age: 30, same_sex: 'yes', third_child: 'no' })).outcome"
        assert [run(driver, hold) for _ in range(3)] == ["held"] * 3
        assert (len(run(driver, ROWS)), driver.execute_script("return localStorage.length")) == (1, 1)
        services.eventually(lambda: "What you entered stays on this device" in card_text(driver))
        assert gateway.received == []
        driver = visited(chromium, gateway, 4)
        services.eventually(lambda: len(gateway.ids) == 1)
        assert (run(driver, ROWS), driver.execute_script("return localStorage.length")) == ([], 0)
        # This week's answer is given at once.
        share = "document.querySelector('murk-consent').shadowRoot.querySelector('#share')"
        driver.execute_script(f"{share}.click()")
        services.eventually(lambda: len(gateway.ids) == 2)
        following = run(driver, "return (await window.device.status()).next")
        assert 0 < following - time.time() - 4 * week <= week
        day = time.strftime("%Y-%m-%d", time.gmtime(following))
        services.eventually(lambda: f"You can answer again from {day}." in card_text(driver))
        assert driver.execute_script(f"return {share}.disabled")
        assert run(driver, hold) == "refused"
        driver = visited(chromium, gateway, 5)
        assert run(driver, hold) == "held"
        opt_out = "Object.defineProperty(navigator, 'globalPrivacyControl', { value: true });"
        driver = visited(chromium, gateway, 6, opt_out)
        services.eventually(lambda: run(driver, ROWS) == [])
        assert driver.execute_script("return localStorage.length") == 0
        assert len(gateway.ids) == 2


def test_profiles_that_are_killed(tmp_path):
    """Browsers are killed while they release; none of what they acknowledged is lost, and the cap holds."""
    services.require(services.CHROMIUM, services.CHROMEDRIVER)
    dice, cap = random.Random(1), 2 * KILLS + 4
    with served(cap=(cap + 0.5) ** 0.5) as gateway:
        acknowledged = set()
        for _ in range(KILLS):
            gateway.away = dice.random() < 0.3
            driver = services.start_chromium(tmp_path)
            try:
                opened(driver, gateway)
                driver.execute_script(ENDLESSLY)
                time.sleep(dice.random() * 0.05)
                acknowledged |= set(driver.execute_script("return window.acknowledged"))
                kill(tmp_path / "profile")
            finally:
                with contextlib.suppress(WebDriverException, OSError):
                    driver.quit()
        gateway.away = False
        driver = services.start_chromium(tmp_path)
        try:
            opened(driver, gateway)
            assert run(driver, "await window.device.flush(); return (await window.device.status()).waiting") == 0
            debits = run(driver, "return (await window.device.status()).released")
        finally:
            driver.quit()
        assert acknowledged <= gateway.ids
        assert len(gateway.ids) <= debits <= cap


def kill(profile):
    """Kill the browser of a profile, which this test started."""
    mark = f"--user-data-dir={profile}".encode()
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if mark in words and words[0].endswith(b"chromium") and not any(word.startswith(b"--type=") for word in words):
            handle = os.pidfd_open(int(folder.name))
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                # Until then the profile is its own.
                select.select([handle], [], [])
            finally:
                os.close(handle)
