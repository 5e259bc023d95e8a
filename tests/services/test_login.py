"""The documented proxy with a login before the monitor, in a real nginx; and Alertmanager's routes."""

import base64
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from deploy.broker.ports import number, reserve
from deploy.broker.process import end, spawn
from tests.monitoring.web.page_server import FakeMonitor, made_up
from tests.services.certificates import Authority
from tests.services.services import eventually, require

ROOT = Path(__file__).parents[2]
NGINX, HTPASSWD, AMTOOL = "/usr/sbin/nginx", "/usr/bin/htpasswd", "/usr/bin/amtool"


@pytest.fixture
def proxy(tmp_path):
    """Address of the proxy, and what trusts its certificate; everything listens on ports of this test."""
    require(NGINX, HTPASSWD)
    monitor = FakeMonitor(lambda: made_up(1000))
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("monitor")
    subprocess.run([HTPASSWD, "-B", "-b", "-c", tmp_path / "passwords", "ada", "secret"], check=True, stderr=-3)
    with reserve() as held:
        text = (ROOT / "deploy" / "nginx" / "monitor.conf").read_text()
        for written, here in {
            "listen 443 ssl": f"listen 127.0.0.1:{number(held)} ssl",
            "/etc/nginx/tls/murk.pem": str(certificate),
            "/etc/nginx/tls/murk.key": str(key),
            "/etc/nginx/murk.htpasswd": str(tmp_path / "passwords"),
            "127.0.0.1:9464": monitor.url.removeprefix("http://").rstrip("/"),
        }.items():
            assert written in text
            text = text.replace(written, here)
        (tmp_path / "monitor.conf").write_text(text)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off;\nuser root;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{ access_log off; include {tmp_path}/monitor.conf; }}\n"
        )
        server = spawn([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], tmp_path / "nginx.log")
        yield f"https://127.0.0.1:{number(held)}", ssl.create_default_context(cafile=authority.path)
        end(server, 10.0)
    monitor.close()


def ask(place, trust, path, password=None, method="GET"):
    """Status and body of an answer; 0 while nobody listens."""
    request = urllib.request.Request(f"{place}{path}", method=method)
    if password is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"ada:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except urllib.error.URLError:
        return 0, b""


def test_nobody_reads_the_page_without_a_password(proxy):
    eventually(lambda: ask(*proxy, "/")[0] != 0)
    for path in ("/", "/api/status", "/page.js", "/runbook/MurkLag", "/healthz"):
        assert ask(*proxy, path)[0] == 401
        assert ask(*proxy, path, "wrong")[0] == 401
    status, body = ask(*proxy, "/", "secret")
    assert status == 200
    assert b"Murk monitor" in body
    assert ask(*proxy, "/api/status", "secret")[0] == 200
    assert ask(*proxy, "/metrics", "secret")[0] == 404
    assert ask(*proxy, "/api/status", "secret", "POST")[0] == 403


def test_every_alert_has_a_route():
    require(AMTOOL)
    file = ROOT / "deploy" / "prometheus" / "alertmanager.yml"
    subprocess.run([AMTOOL, "check-config", str(file)], check=True, capture_output=True)
    rules = yaml.safe_load((file.parent / "rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    receivers = {"critical": "on-call", "warning": "team", "info": "reading"}
    assert {alert["labels"]["severity"] for alert in alerts} == set(receivers)
    for severity, receiver in receivers.items():
        labels = [f"alertname={alerts[0]['alert']}", f"severity={severity}"]
        command = [AMTOOL, "config", "routes", "test", f"--config.file={file}", *labels]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == receiver
