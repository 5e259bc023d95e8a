"""A stand-in for the monitor: the page's own files and a made-up status, under the monitor's security policy.

For the page's tests, and for looking at the page: ``python -m tests.monitoring.web.page_server --scenario many``.
"""

import argparse
import itertools
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import murk
from deploy.broker.ports import number, reserve
from murk._internal.numbers import finite
from murk.inference.confidence_sequences import Looks
from murk.inference.contrasts import Contrast
from murk.inference.experiments import Experiment, Lift
from murk.privacy import GaussianDP, PureDP

PAGE = Path(murk.__file__).parent / "monitoring" / "web" / "page"
POLICY = "default-src 'self'"
BY_RANDOM_SCALING = "random scaling estimates no covariance"
BOUNDS = [2**power - 1 for power in range(21)]
RANDOM_SCALING = (
    "valid in the limit only; on the demonstration's data nominal 95% intervals of this kind held the truth in "
    "79% to 96% of runs (docs/coverage.md)"
)
MODELS = {
    "gradients": "logistic", "examples": "quadratic loss over |x|^2", "moments": "logistic loss",
    "summaries": "quadratic surrogate of the logistic loss",
}  # fmt: skip
THIRD_CHILD = {"same_sex": 0.1093, "age": 0.2387, "intercept": -0.8291}
UNITS = {
    name: {"label": label, "factor": factor, "shift": 0.0, "scale": "log odds", "low": None, "high": None}
    for name, label, factor in (
        ("same_sex", "same_sex: yes against no", 2.0), ("age", "age: one unit more", 1.0 / 7.0),
        ("intercept", "at the middle of every feature", 1.0),
    )
}  # fmt: skip
HOSTILE = ["<img src=x onerror=\"document.title='stolen'\">", "<b>bold</b>&amp;", "origin=JFK", "x" * 120, "__proto__"]


def counts_until(releases: int, first: int = 1, points: int = 300) -> list[int]:
    """Counts spread evenly over the logarithm, up to the newest."""
    if releases < 1:
        return []
    steps = (round(first * (releases / first) ** (i / points)) for i in range(points + 1))
    return sorted(set(steps) | {releases})


def wander(name: str, n: int) -> float:
    """A standard error's worth of smooth wandering, never the same for two names, always the same for one."""
    seed = sum(ord(letter) * (i + 1) for i, letter in enumerate(name)) % 97 / 7.0
    return sum(math.sin(k * math.log(n + 3.0) + k * seed) for k in (0.7, 1.9, 4.3)) / 1.8


def value_at(name: str, truth: float, n: int) -> float:
    return truth * n / (n + 150.0) + wander(name, n) * 6.0 / math.sqrt(n + 40.0)


def half_at(n: int) -> float | None:
    return 1.96 * 6.0 / math.sqrt(n) if n >= 60 else None


def loss_at(n: int) -> float:
    return 0.61 + 0.6 / math.sqrt(n) + loss_error_at(n) * wander("loss", n)


def loss_error_at(n: int) -> float:
    return 2.4 / math.sqrt(n)


def waiting(n: int) -> int:
    return max(0, round(40 + 30 * wander("lag", n)))


def made_up(
    releases: int, *, truth: dict[str, float] = THIRD_CHILD, reference: bool = True, simulated: bool = True,
    name: str = "third-child", partitions: int = 1, dead: dict[str, int] | None = None, first: int = 1,
    healthy: bool = True, intervals: bool = True, now: float | None = None, protocol: str = "gradients",
    refused: int = 0, looks: Looks | None = None, contrasts: tuple[Contrast, ...] = (), arms: tuple[str, ...] = (),
) -> dict:  # fmt: skip
    """The status after so many releases; the same arguments give the same curves."""
    now = time.time() if now is None else now
    steps, examples = protocol in ("gradients", "examples"), protocol == "examples"
    counts = counts_until(releases, first)
    start = now - (releases - first) / 700.0 - 3.0
    rates = [700.0 + 90.0 * math.sin(n / 9000.0) + 30.0 * wander("rate", n) for n in counts]
    estimated = [math.sqrt(len(truth)) * 6.0 / math.sqrt(n) if half_at(n) else None for n in counts]

    def distance(n: int) -> float:
        return math.sqrt(sum((value_at(one, at, n) - at) ** 2 for one, at in truth.items()))

    halves = [half_at(n) if intervals else None for n in counts]
    begun = releases >= 60 and arms != ()
    levels = [("default", GaussianDP(mu=1.0), 0.62), ("strict", GaussianDP(mu=0.5), 0.27), ("open", PureDP(2.0), 0.11)]
    return {
        "version": 1, "now": now, "started": start, "healthy": healthy,
        "problem": None if healthy else "broker-1:9092 does not answer",
        "task": {
            "name": name, "protocol": protocol, "objective": "logistic" if protocol == "gradients" else None,
            "model": MODELS[protocol], "hash": "3f9a0c" + "5e" * 29, "simulated": simulated,
            "log": "kafka://broker-1:9092,broker-2:9092/third-child",
            "levels": [
                {
                    "name": level, "words": promise.describe(), "guarantee": promise.to_dict(), "epsilon": None,
                    "mu": None, "right_at_most": promise.max_attack_accuracy, "learned": round(part * releases),
                }
                for level, promise, part in levels
            ],
            "public_sample": None if simulated else {
                "features": ["same_sex", "age"], "target": "third_child", "people": 5000, "file": None,
                "words": "The features same_sex, age of 5,000 people are public with this task.",
            },
        },
        "releases": releases, "duplicates": releases // 1800, "dead_letters": dead or {},
        "rate": rates[-1] if rates else 0.0, "lag": waiting(releases),
        "records": 250_000 * releases if protocol == "summaries" else None,
        "refused_updates": refused if examples else None,
        "unbiased_loss": {
            "value": loss_at(releases) if releases else None,
            "error": loss_error_at(releases) if releases > 1 else None,
        } if examples else None,
        "staleness": None if protocol != "gradients" else {
            "bounds": BOUNDS,
            "counts": [round(releases * 0.6 * 0.55**i / (1.2 + i)) for i in range(len(BOUNDS) + 1)],
            "mean": 3.71 if releases else None,
        },
        "partitions": [
            {
                "partition": partition, "version": releases // partitions, "offset": releases // partitions + 4,
                "lag": (releases + 31 * partition) % 57,
                "owner": None if partition == 5 else f"learner-{partition % 2}-7c9e1f",
                "iterate_gap": 3.1 / math.sqrt(releases + 1.0) if steps else None,
                "step_size": 0.8 / math.sqrt(releases + 1.0) if steps else None,
                "refused_updates": (refused if partition == 0 else 0) if examples else None,
                "unbiased_loss": loss_at(releases) if examples and releases else None,
                "unbiased_loss_error": loss_error_at(releases) if examples and releases else None,
                "records": 250_000 * releases // partitions if protocol == "summaries" else None,
            }
            for partition in range(partitions)
        ],
        "estimate": {
            "names": list(truth), "values": [value_at(one, at, max(releases, 1)) for one, at in truth.items()],
            "half_widths": [halves[-1] if halves else None for _ in truth], "level": 0.95,
            "fixed_half_widths": [halves[-1] if halves else None for _ in truth],
            "looks": (looks or Looks("fixed-n", 100_000, releases, BY_RANDOM_SCALING)).to_dict(0.95),
            "contrasts": finite([each.to_dict() for each in contrasts]),
            "method": "random scaling" if looks is None else "scores",
            "note": RANDOM_SCALING if looks is None else "by released second moments and curvatures",
            "estimated_error": estimated[-1] if estimated else None,
            "parameter_error": distance(releases) if reference and releases else None,
            # As of the demonstration's task; a name that it has not has no unit.
            "units": {
                one: {**unit, "scale": "log odds" if protocol == "gradients" else "model units"}
                for one, unit in UNITS.items()
                if one in truth
            },
        },
        "experiment": experiment_of(releases, arms) if begun else None,
        "reference": truth if reference else None,
        "history": {
            "lifts": {
                arm: {key: [lift_at(arm, n)[at] for n in counts] for at, key in enumerate(("values", "lows", "highs"))}
                for arm in arms
                if begun
            },
            "releases": counts, "time": [start + (n - first) / 700.0 for n in counts],
            "values": {one: [value_at(one, at, n) for n in counts] for one, at in truth.items()},
            "half_widths": dict.fromkeys(truth, halves),
            "estimated_error": estimated,
            "parameter_error": [distance(n) if reference else None for n in counts],
            "unbiased_loss": [loss_at(n) if examples else None for n in counts],
            "unbiased_loss_error": [loss_error_at(n) if examples and n > 1 else None for n in counts],
            "rate": rates, "dead": [0 for _ in counts], "lag": [waiting(n) for n in counts],
        },
        "pace": {
            "time": [start + (n - first) / 700.0 for n in counts], "rate": [None, *rates[1:]] if rates else [],
            "lag": [waiting(n) for n in counts],
        },
    }  # fmt: skip


def lift_at(arm: str, n: int) -> tuple[float, float | None, float | None]:
    """A lift in points with its interval, which is not known before 60 releases."""
    value, half = 100.0 * value_at(arm, 0.05, n), half_at(n)
    return (value, None, None) if half is None else (value, value - 100.0 * half, value + 100.0 * half)


def experiment_of(n: int, arms: tuple[str, ...]) -> dict:
    """The state of an experiment after so many releases; of its second arm nothing is known yet."""
    lifts = [
        Lift(
            arm=arm, value=value, interval=(low, high) if not place else (-math.inf, math.inf),
            fixed_interval=(low, high), relative=3.0 * value, relative_interval=(3.0 * low, 3.0 * high),
            p_value=0.003, e_value=333.0, verdict="open", attrition=None, attrition_interval=None,
            guardrail="safe" if not place else "open",
        )
        for place, arm in enumerate(arms)
        for value, low, high in [lift_at(arm, n)]
    ]  # fmt: skip
    people = dict.fromkeys(["grey", *arms], n // (1 + len(arms)))
    found = Experiment("grey", "points", 0.95, people, 3, 0.02, 30.0, tuple(lifts))
    content: dict = finite(found.to_dict())
    return content


def many(size: int = 40) -> dict[str, float]:
    """More coefficients than the page shows at once, some with names that would like to be markup."""
    plain = [f"origin={a}{b}" for a, b in itertools.product("ABCDEFGH", "KLMNOPQR")]
    names = [*HOSTILE, *plain][:size]
    return {name: math.sin(3.0 * i) for i, name in enumerate(names)}


DEAD = {"stale": 1204, "malformed": 17, "magnitude": 3, "no-such-reason": 1}
SCENARIOS: dict[str, Callable[[int], dict]] = {
    "run": made_up,
    "real": partial(made_up, simulated=False, reference=False, partitions=6, dead=DEAD),
    "many": partial(made_up, truth=many(), name=HOSTILE[0], partitions=4, dead=DEAD | {HOSTILE[0]: 5}),
    "late": partial(made_up, first=180_000),
    "sick": partial(made_up, healthy=False),
    "examples": partial(made_up, protocol="examples", partitions=2, refused=7),
    "moments": partial(made_up, protocol="moments", partitions=2, dead=DEAD),
    "summaries": partial(made_up, protocol="summaries", partitions=2),
    "blind": partial(made_up, intervals=False, reference=False),
    "experiment": partial(made_up, arms=("green", HOSTILE[0])),
}


class FakeMonitor:
    """Serves the page and whatever ``status`` says at that moment; can go away and come back at the same address."""

    def __init__(self, status: Callable[[], dict], port: int = 0) -> None:
        self.status = status
        # Nobody else gets it while this one is away.
        self._held = reserve(port or None)
        self.port = number(self._held)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), partial(_Handler, self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._held.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        # A browser that turns to the next page hangs up in the middle of an answer.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, monitor: FakeMonitor, *args, **more) -> None:
        self.monitor = monitor
        super().__init__(*args, directory=str(PAGE), **more)

    def do_GET(self) -> None:
        if self.path != "/api/status":
            super().do_GET()
            return
        body = json.dumps(self.monitor.status(), allow_nan=False).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the tests' output is for the tests."""


def main() -> None:
    options = argparse.ArgumentParser(description="Show the monitor's page with made-up figures.")
    options.add_argument("--scenario", choices=sorted(SCENARIOS), default="run")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--start", type=int, default=0, help="releases at the beginning")
    options.add_argument("--rate", type=float, default=700.0, help="releases per second")
    chosen = options.parse_args()
    begin = time.monotonic()
    make = SCENARIOS[chosen.scenario]
    monitor = FakeMonitor(lambda: make(chosen.start + int(chosen.rate * (time.monotonic() - begin))), chosen.port)
    print(monitor.url, flush=True)  # noqa: T201
    threading.Event().wait()


if __name__ == "__main__":
    main()
