"""A page with the web device, and a gateway behind it that applies the worker's own rules."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from murk.protocols.device import person_device_for
from murk.stream.wire.codec import RejectedError, WireRules, decode
from murk.task.task import Task
from tests.devices import web

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Three questions</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,"></head><body>
<form><label>Age <input id="age" type="number" value="28"></label></form>
<murk-consent heading="A third child?">Does having two children of the same sex make a third more likely?</murk-consent>
<script type="module">
import { connect } from "./murk.js";
import { defineCard } from "./card.js";
defineCard();
const first = new URLSearchParams(location.search).get("first") === "wait" ? "wait" : async () => true;
window.begin = () => connect({ gateway: location.origin, task: "third-child", first });
window.device = await window.begin();
const card = document.querySelector("murk-consent");
card.record = () => ({ age: document.querySelector("#age").value, same_sex: "yes", third_child: "no" });
card.device = window.device;
card.addEventListener("murk-receipt", ({ detail }) => { window.receipt = detail; });
window.ready = true;
</script></body></html>"""


FORM = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Form</title>
<link rel="icon" href="data:,"></head><body><form id="form"><input name="age" value="28"><input name="sex" value="yes">
<input name="third" value="no"></form>
<script>const HASH = "{hash}", once = async () => true;</script>
{example}</body></html>"""


ABOUT = {
    "purpose": "To learn what makes a third child likely; consent.",
    "controller": "University of Example",
    "contact": "privacy@example.org",
    "notice": "https://example.org/privacy",
}


def task_of(cap):
    return with_privacy(f"per_person: {{gdp: {{mu: {cap}}}}}")


def with_privacy(more):
    """A task whose privacy block has a key more."""
    return Task.parse(f"""
    name: third-child
    about: {json.dumps(ABOUT)}
    features: [{{name: age, low: 21, high: 35}}, {{name: same_sex, categories: ["no", "yes"]}}]
    target: {{name: third_child, kind: binary, positive: "yes", negative: "no"}}
    privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}, {more}}}
    """)


class Gateway(ThreadingHTTPServer):
    """Serves the page, the task and its releases; `received` are the messages that the worker would learn."""

    daemon_threads = True

    def __init__(self, task):
        super().__init__(("127.0.0.1", 0), Handler)
        self.task, self.received, self.away, self.page = task, [], False, PAGE
        self.ahead = 0  # seconds by which its clock is ahead
        problem = person_device_for(task)
        magnitudes = {level: each.magnitude for level, each in problem.mechanisms.items()}
        self.rules = WireRules(
            task.hash,
            simulated=False,
            lengths=getattr(problem, "lengths", (problem.dimension,)),
            magnitudes=magnitudes,
            kind=problem.kind,
        )

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def ids(self):
        return {json.loads(message)["id"] for message in self.received}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.ahead if timestamp is None else timestamp)

    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path in ("/murk.js", "/scores.js", "/card.js", "/ohttp.js"):
            self.answer(200, (web.built() / "dist" / path[1:]).read_bytes(), "text/javascript")
        elif path.endswith("/model"):
            self.answer(204)
        elif path.startswith("/v1/tasks/"):
            self.answer(200, self.server.task.document())
        else:
            self.answer(200, self.server.page.encode(), "text/html")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/account/first-ledger":
            self.answer(200)
            return
        if self.server.away:
            self.answer(503)
            return
        try:
            decode(body, self.server.rules)
        except RejectedError as error:
            self.answer(422, json.dumps({"accepted": 0, "refused": [{"index": 0, "reason": error.reason}]}).encode())
            return
        self.server.received.append(body)
        self.answer(202, b'{"accepted":1,"refused":[]}')


@contextlib.contextmanager
def served(cap=1.0, task=None):
    server = Gateway(task or task_of(cap))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
