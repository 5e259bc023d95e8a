"""Fixtures with real servers; a conftest does ``from tests.services.fixtures import *``, any number of them."""

import pytest

from tests.services import services
from tests.services.services import Broker, Prometheus

__all__ = ["broker", "chromium", "own_broker", "prometheus", "pytest_runtest_makereport", "secure_broker"]


@pytest.fixture(scope="session")
def broker():
    """A Kafka broker for all tests of this process: use topics of your own, and do not stop it."""
    services.require_kafka()
    return services.shared_broker()


@pytest.fixture(scope="session")
def secure_broker():
    """The same with TLS, passwords and access lists; see tests/services/secure.py."""
    services.require_kafka()
    return services.shared_secure_broker()


@pytest.fixture
def own_broker(tmp_path):
    """A running broker for this test alone, to be killed, frozen and restarted."""
    services.require_kafka()
    with Broker(tmp_path / "kafka") as broker:
        yield broker


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


@pytest.fixture
def chromium(tmp_path):
    """A selenium driver of a headless Chromium."""
    services.require(services.CHROMIUM, services.CHROMEDRIVER)
    folder = tmp_path / "chromium"
    folder.mkdir()
    driver = services.start_chromium(folder)
    yield driver
    driver.quit()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that failed shows what its servers printed last."""
    report = yield
    if report.failed:
        shown = {title for title, _ in report.sections}
        for name, value in getattr(item, "funcargs", {}).items():
            for server in getattr(value, "started", [value]):
                title = f"what {name} printed last"
                if isinstance(server, Broker | Prometheus) and title not in shown:
                    report.sections.append((title, server.said()))
    return report
