"""Gateway and shuffler in one process: what was acknowledged leaves once, in a whole crowd, wherever it is killed."""

import contextlib
import http.client
import itertools
import random
import signal
import threading
import time
import urllib.request
from pathlib import Path

from murk.shuffler.store import Store
from murk.stream import open_log
from murk.task.task import Task
from tests.cli.harness import finish, murk, refused
from tests.gateway.devices import Client, announced, release, wire
from tests.gateway.devices import task as plain_task
from tests.gateway.test_command import begun
from tests.shuffler.crowds import CROWD, Watch, drain, make_task, numbers, shuffler, waiting
from tests.shuffler.test_kills import KILLS

OUT = "out.db"
ASIDE = "privacy: {guarantee: {gdp: {mu: 1.0}}}\npublic: {set_aside: 5}\n"
SHUFFLED = """
name: crowds
features: [{name: age, low: 21, high: 35}]
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
shuffle: {crowd: 1000, promise: {epsilon: 0.5}}
"""


class Devices:
    """People who send their own numbers, and send them again until they are acknowledged or the gateway is gone."""

    def __init__(self, of: Task, name: str = "crowds") -> None:
        self.of, self.name = of, name
        self.acknowledged: set[int] = set()
        self.sent: dict[int, bytes] = {}
        self._numbers = itertools.count()

    def message(self) -> tuple[int, bytes]:
        number = next(self._numbers)
        self.sent[number] = wire(release(self.of, payload=[number], item=number % 16))
        return number, self.sent[number]

    def send(self, client: Client, *people: tuple[int, bytes]) -> int:
        answer = client.post(*(message for _, message in people), name=self.name)
        if answer.status == 202:
            self.acknowledged.update(number for number, _ in people)
        return answer.status

    @contextlib.contextmanager
    def at(self, address: str, threads: int = 3):
        """Send as fast as they are answered, while the block runs."""
        ended = threading.Event()

        def post() -> None:
            again: list[tuple[int, bytes]] = []
            while not ended.is_set():
                # The process is killed in the middle of anything.
                with contextlib.suppress(OSError, http.client.HTTPException), Client(address) as client:
                    while not ended.is_set():
                        again = again or [self.message() for _ in range(8)]
                        if self.send(client, *again) == 202:
                            again = []

        running = [threading.Thread(target=post) for _ in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in running:
                thread.join()


def shuffling(folder: Path, of: Task, *more: object):
    """A gateway's process that shuffles, and its address."""
    url = announced(folder, of)
    return begun(url, folder, "--shuffle", f"sqlite:///{folder}/{OUT}", "--store", "store", *more)


def test_nothing_acknowledged_is_lost_repeated_or_split(tmp_path):
    """``SHUFFLER_KILLS`` times kill -9 at a random moment; the last life is the test's own."""
    of, draw = make_task(partitions=2, duplicates=100_000), random.Random(11)
    devices, watch, lived = Devices(of), None, 0
    for life in range(KILLS):
        process, address = shuffling(tmp_path, of)
        crowds = 0 if watch is None else max(watch.sizes, default=0)
        with open_log(f"sqlite:///{tmp_path}/{OUT}", create=False) as log, devices.at(address):
            watch = watch or Watch(log, CROWD)
            watch.log = log
            before, patience = len(devices.acknowledged), time.monotonic() + 300.0
            # Every other life ends soon after a crowd has left, however quick the devices are.
            left = life % 2
            while len(devices.acknowledged) < before + CROWD or not left:
                assert process.poll() is None, "the gateway ended by itself"
                assert time.monotonic() < patience
                time.sleep(0.01)
                watch.look()
                left = left or max(watch.sizes, default=0) > crowds
            time.sleep(draw.uniform(0.0, 0.3))
            process.kill()
            process.wait()
            watch.look()
            lived += max(watch.sizes, default=0) > crowds
    assert lived >= KILLS // 2
    with (
        open_log(f"sqlite:///{tmp_path}/log.db") as input_log,
        open_log(f"sqlite:///{tmp_path}/{OUT}", create=False) as log,
    ):
        with shuffler(tmp_path, input_log, log, of, clock=time.time) as one:
            drain(one)
            totals = one.totals
        watch.log = log
        watch.look()
        found = numbers(log)
    with contextlib.closing(Store(tmp_path / "store")) as store:
        everyone = found + waiting(store, of)
    assert len(found) == totals.released
    assert len(everyone) == len(set(everyone))
    # Whatever was written without being acknowledged may be there, too.
    assert devices.acknowledged <= set(everyone) <= devices.sent.keys()


def scraped(address: str) -> dict[str, float]:
    """The shuffler's metrics without labels, by name."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=30) as answer:
        lines = [line.split(" ") for line in answer.read().decode().splitlines() if line.startswith("murk_shuffler")]
    return {name.partition("{")[0]: float(value) for name, value in lines if "reason" not in name}


def test_it_forwards_crowds_says_so_and_ends_in_order(tmp_path):
    of = make_task()
    devices = Devices(of)
    process, address = shuffling(tmp_path, of, "--metrics-port", 0, "-v")
    lines = iter(process.stderr.readline, "")
    metrics = next(line for line in lines if "metrics of this gateway at" in line).split(" at ")[1].strip()
    people = [devices.message() for _ in range(CROWD + 9)]
    with Client(address) as client:
        assert devices.send(client, *people[:-9]) == 202
        deadline = time.monotonic() + 60
        while (found := scraped(metrics))["murk_shuffler_crowds_total"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert (found["murk_shuffler_releases_total"], found["murk_shuffler_crowd_releases"]) == (CROWD, CROWD)
    # The gateway may have closed the other one, which was idle.
    with Client(address) as client:
        assert devices.send(client, *people[-9:]) == 202
    with open_log(f"sqlite:///{tmp_path}/log.db", create=False) as input_log:
        # What the shuffler has taken in is deleted.
        while input_log.begin(0) < CROWD + 9:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    # Until the next crowd or period, metrics say nothing of those who arrived since.
    assert scraped(metrics)["murk_shuffler_waiting_releases"] == found["murk_shuffler_waiting_releases"] == 0
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert done.status == 0
    assert done.err.splitlines()[-1].endswith("stopped")
    with open_log(f"sqlite:///{tmp_path}/{OUT}", create=False) as log:
        assert sorted(numbers(log)) == list(range(CROWD))
    with contextlib.closing(Store(tmp_path / "store")) as store:
        assert sorted(waiting(store, of)) == list(range(CROWD, CROWD + 9))


def test_a_shuffler_that_is_replaced_ends_the_gateway(tmp_path):
    """Its releases would wait for ever; whoever looks after it must know."""
    process, _ = shuffling(tmp_path, make_task())
    taken = murk("shuffle", "--from", f"sqlite:///{tmp_path}/log.db", "--to", f"sqlite:///{tmp_path}/{OUT}", "--store",
                 "other", "--replace", "--idle", 0, folder=tmp_path)  # fmt: skip
    assert taken.status == 0, taken.err
    with open_log(f"sqlite:///{tmp_path}/log.db") as input_log:
        input_log.append([(0, Devices(make_task()).message()[1])])
    done = finish(process)
    assert done.status == 2
    assert "another shuffler appends to" in done.err
    assert done.err.count("\n") == 1


def test_what_is_wrong_is_refused(tmp_path):
    url, out = announced(tmp_path, make_task()), f"sqlite:///{tmp_path}/{OUT}"
    refused(murk("gateway", "--log", url, "--port", 0, "--store", "x", folder=tmp_path), "give --shuffle URL, too")
    words = "both the input log and the log of releases"
    refused(murk("gateway", "--log", url, "--port", 0, "--shuffle", url, folder=tmp_path), words)
    process, _ = shuffling(tmp_path, make_task())
    refused(murk("gateway", "--log", url, "--port", 0, "--shuffle", out, "--store", "store", folder=tmp_path),
            "uses the store")  # fmt: skip
    process.kill()
    process.wait()
    # The log of the shuffler is no input log.
    refused(murk("gateway", "--log", out, "--port", 0, "--shuffle", url, folder=tmp_path), "shuffler's input log")
    (tmp_path / "plain").mkdir()
    url = announced(tmp_path / "plain", plain_task())
    refused(murk("gateway", "--log", url, "--port", 0, "--shuffle", out, folder=tmp_path), "is not shuffled")


def test_a_task_is_announced_on_a_file_and_served_from_nothing(tmp_path):
    """As docs/shuffling.md says: `murk topics`, then the gateway. `murk produce` sets a public sample aside."""
    (tmp_path / "task.yaml").write_text(SHUFFLED)
    url, out = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/{OUT}"
    for _ in range(2):
        assert murk("topics", "task.yaml", "--log", url, "--json", folder=tmp_path).json["announced"]
    process, address = begun(url, tmp_path, "--shuffle", out)
    with Client(address) as client:
        assert client.get("/v1/tasks/crowds").status == 200
    process.kill()
    process.wait()
    words = "only a log on Kafka has topics"
    refused(murk("topics", "task.yaml", "--log", url, "--check", folder=tmp_path), words)
    (tmp_path / "aside.yaml").write_text(SHUFFLED.split("shuffle:", maxsplit=1)[0] + ASIDE)
    refused(murk("topics", "aside.yaml", "--log", f"sqlite:///{tmp_path}/x.db", folder=tmp_path), "`murk produce`")
    assert not (tmp_path / "x.db").exists()
