"""Prometheus and Chromium, as the other tests use them."""

import http.server
import threading

import pytest

from tests.services.services import eventually

CONFIG = """
global: {scrape_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: self
    static_configs: [{targets: ["127.0.0.1:PORT"]}]
"""
RULES = "groups: [{name: g, interval: 1s, rules: [{record: twice, expr: 2 * answer}]}]"


@pytest.fixture
def site():
    """A web server with one metric and one page; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, text = ("text/plain", "answer 42\n") if self.path == "/metrics" else ("text/html", "<h1>hello</h1>")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments):
            """Nothing on the tests' output."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


def test_prometheus_scrapes_and_follows_rules(prometheus, site):
    server = prometheus(CONFIG.replace("PORT", str(site)), {"rules.yml": RULES})
    found = eventually(lambda: server.query("twice"))
    assert float(found[0]["value"][1]) == 84.0
    with pytest.raises(AssertionError, match="bad_data"):
        server.query("not a query")


def test_chromium_shows_this_machine_only(chromium, site):
    chromium.set_window_size(390, 844)
    chromium.get(f"http://127.0.0.1:{site}/")
    assert chromium.find_element("tag name", "h1").text == "hello"
    told = "const told = arguments[0]; fetch('http://other.example/').then(() => told('reached'), told)"
    assert chromium.execute_async_script(told) != "reached"
    assert chromium.get_screenshot_as_png().startswith(b"\x89PNG")
