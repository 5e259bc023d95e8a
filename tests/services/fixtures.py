"""Fixtures with real servers; a conftest does ``from tests.services.fixtures import *``, any number of them."""

import os
import shutil

import pytest

from tests.services import services
from tests.services.secure import SecureBroker
from tests.services.services import Broker, Prometheus
from tests.services.shared import SharedBroker, shared_broker

__all__ = ["broker", "browser", "chromium", "mortal_broker", "own_broker", "prometheus", "pytest_runtest_makereport",
           "secure_broker"]  # fmt: skip


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A Kafka broker for all tests of all processes: use topics of your own, and do not stop it."""
    services.require_kafka()
    folder = tmp_path_factory.getbasetemp()
    # Workers have folders of their own in one of the run.
    with shared_broker(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as broker:
        yield broker


@pytest.fixture(scope="module")
def secure_broker(tmp_path_factory):
    """The same for the tests of a file, with TLS, passwords and access lists; see tests/services/secure.py."""
    services.require_kafka()
    broker = SecureBroker(tmp_path_factory.mktemp("kafka-tls"))
    try:
        yield broker.start()
    finally:
        broker.kill()  # nobody needs the data, so nobody waits for an orderly end
        broker.close()
        shutil.rmtree(broker.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def mortal_broker(tmp_path_factory):
    services.require_kafka()
    broker = Broker(tmp_path_factory.mktemp("kafka-own"))
    try:
        yield broker
    finally:
        broker.kill()  # nobody needs the data, so nobody waits for an orderly end
        broker.close()
        shutil.rmtree(broker.folder, ignore_errors=True)


@pytest.fixture
def own_broker(mortal_broker):
    """A running broker, to be killed, frozen and restarted; the tests of a file have it one after the other."""
    yield mortal_broker.start()
    if mortal_broker.running:
        mortal_broker.thaw()


@pytest.fixture
def prometheus(tmp_path):
    """A function that starts a Prometheus: ``prometheus(config, files={"rules.yml": text})``."""
    services.require(services.PROMETHEUS)
    started = []

    def start(config, files=None):
        server = Prometheus(tmp_path / f"prometheus-{len(started)}", config, files)
        started.append(server)
        return server.start()

    start.started = started
    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A selenium driver of a headless Chromium for the tests of a file."""
    services.require(services.CHROMIUM, services.CHROMEDRIVER)
    driver = services.start_chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture
def chromium(browser):
    """The same as it is at its start: an empty page of an origin that no other test had, and nothing in its logs."""
    yield browser
    browser.get("about:blank")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Network.clearBrowserCache", {})
    for kind in ("browser", "performance"):
        browser.get_log(kind)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that failed shows what its servers printed last."""
    report = yield
    if report.failed:
        shown = {title for title, _ in report.sections}
        for name, value in getattr(item, "funcargs", {}).items():
            for server in getattr(value, "started", [value]):
                title = f"what {name} printed last"
                if isinstance(server, Broker | SharedBroker | Prometheus) and title not in shown:
                    report.sections.append((title, server.said()))
    return report
