"""Task files, and what stands on a log about the log itself."""

import base64
import json
import tempfile
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import yaml

from murk import Task
from murk.monitoring.reference import read_reference
from murk.populations.ledger_places import noted
from murk.protocols.device import device_for
from murk.stream.log.kafka.consumers import letters
from murk.stream.log.kafka.topics import Names
from murk.stream.log.kafka.transactions import TOPICS, announced_topics
from murk.task.yaml import read_yaml
from tests.fuzz.mutate import alter, spoil, strange, written
from tests.fuzz.targets import FindingError, Target
from tests.protocols import MOMENTS, PROTOCOLS

FULL = """\
name: full
features:
  - {name: age, low: 21, high: 35}
  - {name: origin, categories: [JFK, LGA, EWR]}
target: {name: delay, kind: real, low: -10, high: 60}
missing: error
privacy:
  guarantee: {zcdp: {rho: 0.5}}
  levels: {strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 2.0}}}
  per_person: {gdp: {mu: 4.0}}
  mechanism: gaussian
learner: {step: noise-aware, radius: 5, averaging: polyak, weighting: inverse-variance}
max_staleness: {releases: 100, share: 0.02}
granularity: 1h
expiry: 3d
duplicates: 1000
log: {partitions: 4, retention: 10d}
"""
CLASSES = """\
name: classes
features: [{name: a, low: 0, high: 1}, {name: b, low: -1, high: 1}]
target: {name: kind, kind: classes, classes: [x, y, z]}
privacy: {guarantee: {pure: {epsilon: 1.0}}, mechanism: laplace}
"""
REAL = "name: r\nfeatures: [{name: a, low: 0, high: 1}]\ntarget: {name: t, kind: real, low: 0, high: 1}\n"
TEXTS = [
    *(protocol.text() for protocol in PROTOCOLS),
    FULL,
    CLASSES,
    REAL + "protocol: examples\nexamples: {release: separate, split: 0.4}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\n",
    REAL + "protocol: scores\nscores: {exponent: 0.5}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\n",
    REAL + "protocol: moments\nmoments: {link: cubic}\npublic: {file: p.csv}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\n",
    REAL + "protocol: summaries\nsummaries: {rows: 64}\nprivacy: {guarantee: {approx: {epsilon: 1, delta: 1.0e-6}}}\n",
]


def _names(value, found):
    if isinstance(value, dict):
        for key, inner in value.items():
            found.add(key)
            _names(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _names(inner, found)
    return found


BOMBS = (
    b"[],", b"a,", b"{},", b"- a\n", b"- ", b"a: 1\n", b"? a\n", b"#\n", b"\n", b" ", b"  x\n", b"[", b"{", b"---\n",
    b"%F x\n", b"&a ", b"*a,", b"!!a ", b"'", b'"\\n', b": ", b"a: &a [*a]\n", b"a: |\n x\n", b"<<: ",
)  # fmt: skip


def bomb(rng: Random, honest: bytes) -> bytes:
    """As much as a file may have of what takes long, or much memory, to read as YAML."""
    unit, head = rng.choice(BOMBS), rng.choice((b"", b"a: [", b"a:\n", b"a: '", honest, honest + b"x: ["))
    return head + unit * ((rng.choice((10_000, 999_000)) - len(head)) // len(unit))


def texts() -> Target:
    """Any bytes as a task file: what is read from it is written and read again as the same task."""
    contents = [read_yaml(text, "")[0] for text in TEXTS]
    known = sorted(_names([*contents, *(json.loads(Task.parse(text).document()) for text in TEXTS)], set()))
    plain = [text.encode() for text in TEXTS]
    path = Path(tempfile.mkdtemp()) / "task.yaml"

    def make(rng: Random) -> bytes:
        if rng.random() < 0.002:
            return bomb(rng, rng.choice(plain))
        if rng.random() < 0.35:
            return spoil(rng, rng.choice(plain), plain)
        changed = alter(rng, json.loads(json.dumps(rng.choice(contents))), known)
        if rng.random() < 0.6:
            # JSON is YAML.
            text = written(rng, changed)
        else:
            text = yaml.dump(changed, sort_keys=False, default_flow_style=rng.choice((None, False))).encode(
                "utf-8", "surrogatepass"
            )
        return spoil(rng, text, plain) if rng.random() < 0.1 else text

    def take(data: bytes) -> str:
        path.write_bytes(data)
        return _used(Task.load(path))

    for text in plain:
        take(text)
    return Target(make, take)


def _used(task: Task) -> str:
    """What devices and learners do with a task before anything else."""
    again = Task.from_document(task.document())
    if again != task or again.hash != task.hash:
        raise FindingError("a task that is another one when it was written and read again")
    device = device_for(task)
    device.check_state()
    device.engine()
    return "accepted"


class _Records:
    """A partition of hostile records."""

    def __init__(self, found):
        self.found = found

    def begin(self):
        return 0

    def end(self):
        return len(self.found)

    def read(self, offset, limit):
        return self.found[offset : offset + limit]


def control() -> Target:
    """What a log and a working folder say of themselves: task, topics, dead letters, notes, true coefficients.

    The first byte says which of it the others are.
    """
    folder = Path(tempfile.mkdtemp())
    names = Names("fuzz")
    documents = [Task.parse(text).document() for text in TEXTS]
    public = Task.parse(MOMENTS.text())
    points = np.array([[-1.0, 0.5, 1.0], [1.0, -0.25, 1.0]])
    documents.append(public.with_public(points, np.array([3, 4])).document())
    topics = json.dumps(dict.fromkeys(names.all, "x" * 22)).encode()
    note = json.dumps({"person": None, "level": "default", "seed": 1, "ledger": "0" * 32}).encode()
    truth = json.dumps({"coefficients": {"age": 0.5, "same_sex": -0.1, "intercept": 0.0}}).encode()
    known = sorted(_names([json.loads(document) for document in documents], set()))
    log = SimpleNamespace(url=f"sqlite:///{folder}/log.db", document=lambda: documents[0])

    def document(data: bytes) -> str:
        return _used(Task.from_document(data))

    def topic_ids(data: bytes) -> str:
        announced_topics({TOPICS: data}, names)
        return "accepted"

    def dead(data: bytes) -> str:
        # A record's key, value and headers may each be nothing at all.
        key, value, *words = [part or None for part in data.split(b"\n", 3)] + [None] * 3
        headers = [("reason", words[0]), ("detail", words[1])][: len(data) % 3]
        records = [SimpleNamespace(key=key, value=value, offset=offset, headers=headers) for offset in range(2)]
        list(letters(_Records(records), 0))
        return "accepted"

    def notes(data: bytes) -> str:
        (folder / "log.db.run.json").write_bytes(data)
        noted(log, folder / "ledger.db")
        return "accepted"

    def reference(data: bytes) -> str:
        (folder / "truth.yaml").write_bytes(data)
        read_reference(folder / "truth.yaml")
        return "accepted"

    doors = (document, topic_ids, dead, notes, reference)
    honest = (
        documents,
        [topics],
        [b"0:17\n{}\nschema\nid: missing", b"1:9\n\n\n"],
        [note],
        [truth, b"age: 0.5\nsame_sex: -0.1\n"],
    )

    def make(rng: Random) -> bytes:
        door = rng.choices(range(5), (12, 2, 1, 2, 3))[0]
        base = rng.choice(honest[door])
        if door == 2 or not base.startswith(b"{") or rng.random() < 0.3:
            found = spoil(rng, base, honest[door])
        else:
            content = alter(rng, json.loads(base), known)
            covariates = content.get("covariates") if isinstance(content, dict) else None
            if isinstance(covariates, dict) and rng.random() < 0.5:
                values = np.array([x if isinstance(x := strange(rng), float) else 1.0 for _ in range(6)])
                covariates["points"] = base64.b64encode(values.astype("<f8").tobytes()).decode()
            found = written(rng, content)
        return bytes([door]) + found

    def take(data: bytes) -> str:
        return doors[data[0]](data[1:])

    return Target(make, take)
