"""The services of ``compose.yaml``, or of it and a second file, as processes of this machine.

Commands, environments, settings, health checks and the order of starting are the file's own. What is changed is only
what containers have and processes have not: names of hosts become 127.0.0.1, ports become free ones, and the folders
that are mounted are temporary.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from graphlib import TopologicalSorter
from pathlib import Path

import yaml

from deploy.broker import Broker, ports
from deploy.broker.process import end
from murk.demo import DATA
from tests.cli.processes import Process
from tests.services.services import PROMETHEUS, Prometheus, eventually

ROOT = Path(__file__).parents[2]
FILES = {"compose.yaml": ("compose.yaml",), "compose.shuffled.yaml": ("compose.yaml", "compose.shuffled.yaml")}
"""What is named after each ``-f``."""
OF_PORT = {"9092": "kafka", "9464": "monitor", "9465": "population", "9466": "learner", "8080": "gateway",
           "9467": "gateway", "9468": "shuffler"}  # fmt: skip
"""The service that a number is the port of, where no other is named."""
SERVERS = ("kafka", "input", "prometheus", "grafana")
"""Services that are not Murk's."""
# What the image has in a place of its own (Dockerfile).
IMAGE = {"/usr/share/murk/mothers-1980.csv.gz": str(DATA)}
LIMIT = 300.0


def read(name="compose.yaml"):
    """The file with what ``<<`` brings in, upon those that it is named after."""
    found = {}
    for one in FILES[name]:
        found = merged(found, yaml.safe_load((ROOT / one).read_text()))
    # Those with a profile are started only by somebody who names it.
    services = {name: service for name, service in found["services"].items() if "profiles" not in service}
    return {**found, "services": services}


def merged(below, above):
    """A file over another one, as compose merges them: mappings by key, commands as a whole, other lists appended."""
    made = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        elif isinstance(value, list) and isinstance(made.get(key), list) and key not in ("command", "test"):
            made[key] = made[key] + value
        else:
            made[key] = value
    return made


def properties(environment):
    """Kafka's settings, as its image makes them of KAFKA_* variables."""
    dots = {"___": "-", "__": "_", "_": "."}
    return {
        re.sub("_{1,3}", lambda found: dots[found[0]], name.removeprefix("KAFKA_").lower()): str(value)
        for name, value in environment.items()
        if name != "KAFKA_HEAP_OPTS"
    }


class Composed:
    """The whole file, started in order; a context manager.

    ``changes`` are texts in the files that are mounted, and what stands there instead.

    Attributes
    ----------
    broker, input log, prometheus
        The servers, once they run.
    running
        Processes of murk by the name of their service, replicas as ``learner 0``, ``learner 1``.
    """

    def __init__(self, folder, file="compose.yaml", changes=()):
        self.folder = Path(folder)
        self.changes = dict(changes)
        self.file = read(file)
        self.services = self.file["services"]
        self.broker = self.input_log = self.prometheus = None
        self.running = {}
        self._held = {}
        self._slowed = {}

    def order(self):
        """Services, each after those that it waits for."""
        graph = {name: list(service.get("depends_on", {})) for name, service in self.services.items()}
        return list(TopologicalSorter(graph).static_order())

    def start(self):
        for name in self.order():
            for other, how in self.services[name].get("depends_on", {}).items():
                self._wait(other, how["condition"])
            getattr(self, f"_start_{name}", self._start_murk)(name)
        return self

    def _wait(self, name, condition):
        if condition == "service_healthy":
            self.healthy(name)
        elif condition == "service_completed_successfully":
            eventually(lambda: self.running[name].poll() is not None, limit=LIMIT)
            assert self.running[name].returncode == 0, self.said(name)
        else:
            assert condition == "service_started"

    def healthy(self, name):
        """Wait until the service's own health check passes; servers of others say themselves when they are ready."""
        if name in SERVERS:
            return
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert (kind, command[0]) == ("CMD", "python")
        for copy, one in enumerate(self.copies(name)):
            asked = [sys.executable, *(self.here(word, name, copy) for word in command[1:])]

            def check(one=one, asked=asked):
                assert self.running[one].poll() is None, self.said(one)
                done = subprocess.run(asked, capture_output=True, env=self._environment({}), check=False)
                return done.returncode == 0

            eventually(check, limit=LIMIT, every=0.5)

    def copies(self, name):
        """Names of the processes of a service."""
        count = self.services[name].get("deploy", {}).get("replicas", 1)
        return [name] if count == 1 else [f"{name} {copy}" for copy in range(count)]

    def _start_kafka(self, name):
        self.broker = ComposedBroker(self.folder / "kafka", self.services[name]["environment"])
        self._held |= {"kafka": self.broker.port}
        self.broker.start()

    def _start_input(self, name):
        self.input_log = ComposedBroker(self.folder / "input", self.services[name]["environment"])
        self._held |= {"input": self.input_log.port}
        self.input_log.start()

    def _start_prometheus(self, name):
        where = {Path(mount.split(":")[1]): ROOT / mount.split(":")[0] for mount in self.services[name]["volumes"]}
        files = {place.name: file.read_text() for place, file in where.items() if file.is_file()}
        files = {
            name: self.scraped(text) if name == "prometheus.yml" else self.here(text) for name, text in files.items()
        }
        # What is named in its command is mounted, and its flags are there.
        assert Path(re.search(r"--config.file=(\S+)", " ".join(self.services[name]["command"]))[1]) in where
        offered = subprocess.run([PROMETHEUS, "--help"], capture_output=True, text=True, check=False)
        for flag in self.services[name]["command"]:
            assert flag.partition("=")[0] in offered.stdout + offered.stderr
        self.prometheus = Prometheus(self.folder / "prometheus", files.pop("prometheus.yml"), files).start()

    def _start_grafana(self, name):
        """There is no Grafana here: its dashboards' queries are what is tested."""

    def _start_murk(self, name):
        service = self.services[name]
        assert service["image"] == "murk"
        for copy, one in enumerate(self.copies(name)):
            self.running[one] = Process(
                self.command(name, copy), self.folder, output=self.folder / f"{one}.log",
                environment=self._environment(service.get("environment", {})),
            )  # fmt: skip

    def command(self, name, copy=0):
        """A service's command, as it is run here."""
        mounted = {**IMAGE}
        for mount in self.services[name].get("volumes", []):
            volume, target = mount.split(":")[:2]
            assert volume in self.file["volumes"]
            (self.folder / "volumes" / volume).mkdir(parents=True, exist_ok=True)
            mounted[target] = str(self.folder / "volumes" / volume)
        for config in self.services[name].get("configs", []):
            mounted[config["target"]] = str(self._mounted(ROOT / self.file["configs"][config["source"]]["file"]))
        places = re.compile("|".join(re.escape(target) for target in sorted(mounted, key=len, reverse=True)))
        return [
            places.sub(lambda found: mounted[found[0]], word)
            if re.match(r"([a-z-]+=)?/", word)
            else self.here(word, name, copy)
            for word in map(str, self.services[name]["command"])
        ]

    def _mounted(self, path):
        text = path.read_text()
        changed = functools.reduce(lambda text, change: text.replace(*change), self.changes.items(), text)
        if changed == text:
            return path
        place = self.folder / path.name
        place.write_text(changed)
        # Beside the task that names it.
        shutil.copy(ROOT / "deploy" / "public.csv", self.folder)
        return place

    def here(self, text, name=None, copy=0):
        """Text of a service, or of one of its copies, with the addresses that services have here."""

        def place(found):
            host, number = found["host"], found["number"]
            service = host if host in self.services else name or OF_PORT[number]
            port = self._port(service if service in ("kafka", "input") else f"{service} {number} {copy}")
            return str(port) if host is None else f"127.0.0.1:{port}"

        hosts, numbers = "|".join([*self.services, "localhost", r"127\.0\.0\.1"]), "|".join(OF_PORT)
        return re.sub(rf"\b(?:(?P<host>{hosts}):)?(?P<number>{numbers})\b", place, text)

    def scraped(self, config):
        """Prometheus' configuration, with the names that containers resolve as the addresses that they have here."""
        found = yaml.safe_load(config)
        for job in found["scrape_configs"]:
            for one in job.pop("dns_sd_configs", []):
                # Other names lead nowhere.
                there = [name for name in one["names"] if name in self.services]
                targets = [
                    self.here(f"{name}:{one['port']}", copy=copy)
                    for name in there
                    for copy, _ in enumerate(self.copies(name))
                ]
                job["static_configs"] = [{"targets": targets}]
        return self.here(yaml.safe_dump(found))

    def _port(self, number):
        if number not in self._held:
            self._held[number] = ports.reserve()
        held = self._held[number]
        return held if isinstance(held, int) else ports.number(held)

    def _environment(self, own):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MURK_")}
        return {**kept, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **own}

    def said(self, name):
        """The last that a process of murk printed."""
        return f"{name}: {(self.folder / f'{name}.log').read_text(errors='replace')[-2000:]}"

    def slow(self, name, share=0.2):
        """From now on let a process run for a share of the time only, so that it leaves the machine to others."""
        process, asked = self.running[name], threading.Event()

        def alternate():
            while not asked.wait(0.5 * share):
                process.send_signal(signal.SIGSTOP)
                asked.wait(0.5 * (1 - share))
                process.send_signal(signal.SIGCONT)

        thread = threading.Thread(target=alternate, name=f"slows {name} down", daemon=True)
        thread.start()
        self._slowed[name] = asked, thread

    def hurry(self, name):
        """Let it run all the time again."""
        if name in self._slowed:
            asked, thread = self._slowed.pop(name)
            asked.set()
            thread.join()

    def stop(self, name):
        """Stop a process as `docker compose stop` does; its exit status."""
        self.hurry(name)
        self.running[name].send_signal(signal.SIGTERM)
        self.running[name].wait(60)
        return self.running[name].returncode

    def close(self):
        for name in list(self._slowed):
            self.hurry(name)
        for process in self.running.values():
            end(process, 30)
        if self.prometheus is not None:
            self.prometheus.stop()
        for broker in (self.broker, self.input_log):
            if broker is not None:
                broker.kill()
                broker.close()
        for held in self._held.values():
            if not isinstance(held, int):
                held.close()
        for name in ("kafka", "input"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException as error:
            for name in self.running:
                error.add_note(self.said(name))
            self.close()
            raise

    def __exit__(self, kind, error, trace):
        if error is not None:
            for name in self.running:
                error.add_note(self.said(name))
        self.close()


class ComposedBroker(Broker):
    """A broker with the settings of the file, at addresses of this machine."""

    def __init__(self, folder, environment):
        super().__init__(folder)
        self._environment = environment
        self._held.append(ports.reserve())

    def settings(self, log):
        numbers = {"9092": self.port, "9093": self._controller, "9094": ports.number(self._held[-1])}

        def here(text):
            text = re.sub(r"(?<=://):|\b(?:kafka|input|localhost):(?=\d)", "127.0.0.1:", text)
            text = text.replace("/var/lib/kafka/data", str(log))
            return re.sub(r"(?<=:)909[234]\b", lambda found: str(numbers[found[0]]), text)

        return {key: here(value) for key, value in properties(self._environment).items()}
