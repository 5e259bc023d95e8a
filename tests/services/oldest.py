"""What is tried with the oldest versions: run by an interpreter that sees these and this checkout alone."""

import json
import sys
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from murk.cli import cli

TASK = """
name: oldest
features: [{name: age, low: 0, high: 100}, {name: sex, categories: [f, m]}]
target: {name: y, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
ROWS = [(age, "fm"[age % 2], "yes" if age % 3 else "no") for age in range(60)]


def murk(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.exit_code == 0, done.output
    return str(done.stdout if hasattr(done, "stdout") else done.output)


def commands() -> None:
    """The command line: click, rich, pydantic, PyYAML, msgspec and River, on CSV and on Parquet."""
    import pyarrow
    from pyarrow import parquet

    Path("task.yaml").write_text(TASK)
    Path("people.csv").write_text("age,sex,y\n" + "".join(f"{a},{s},{y}\n" for a, s, y in ROWS))
    murk("init", "first", "--columns", "a:0..1", "--target", "b:no|yes", "--out", "first.yaml")
    murk("run", "task.yaml", "--source", "people.csv")
    ages, sexes, answers = map(list, zip(*ROWS, strict=True))
    parquet.write_table(pyarrow.table({"age": ages, "sex": sexes, "y": answers}), "people.parquet")
    places = ("--log", "sqlite:///seeded.db", "--ledger", "s.db")
    murk("run", "task.yaml", "--source", "people.parquet", "--seed", "1", *places)
    assert "60" in murk("status", "--log", "sqlite:///seeded.db")
    assert json.loads(murk("ledger", "s.db", "--json"))["releases"] == 60
    murk("config")


def messages() -> None:
    """The wire and the task file in both parsers, and their published schemas."""
    from murk import Task
    from murk.stream.wire.codec import WireRules, decode, encode, json_schema
    from murk.stream.wire.columns import Layout
    from murk.stream.wire.packed import Packed
    from murk.stream.wire.releases import MomentRelease

    task = Task.parse(TASK)
    assert Task.from_document(task.document()) == task
    rules = WireRules("f" * 64, simulated=False, lengths=(2,), magnitudes={"default": 2**40}, kind="moment")
    release = MomentRelease(
        id="0" * 32, task="f" * 64, level="default", partition=0, payload=[1, -2], time=0, expires=9
    )
    assert decode(encode(release), rules) == release
    columns = Layout(rules).read(Packed.of([encode(release)]))
    assert columns is not None
    assert columns.rows(2).tolist() == [[1, -2]]
    assert "moment" in json_schema()


def kernels() -> None:
    """A compiled kernel, and SciPy's functions in a conversion."""
    import numba

    from murk._internal.jit import jit
    from murk.privacy.conversions import gdp_delta, gdp_mu

    assert jit(_doubled)(21) == 42
    assert isinstance(jit(_doubled).compiled, numba.core.dispatcher.Dispatcher)
    assert abs(gdp_delta(gdp_mu(1.0, 1e-6), 1.0) - 1e-6) < 1e-9


def _doubled(x: int) -> int:
    return 2 * x


def monitor() -> None:
    """Metrics in the formats of prometheus-client, off the monitor's server."""
    from murk import Task
    from murk.monitoring import Monitor
    from murk.monitoring.web.routes import monitor_routes
    from murk.monitoring.web.server import Server
    from murk.stream import open_log

    with open_log("sqlite:///seeded.db", create=False) as log:
        watching = Monitor(log, Task.from_document(log.document() or b""))
        watching.poll()
        with Server(monitor_routes(watching)) as server:
            for accept in ("text/plain", "application/openmetrics-text;version=1.0.0"):
                asked = urllib.request.Request(f"{server.url}/metrics", headers={"Accept": accept})
                with urllib.request.urlopen(asked) as answer:
                    assert b"murk_releases_total" in answer.read()
        watching.close()


def kafka() -> None:
    """The client's private parts that are replaced are there."""
    import crc32c

    from murk.stream.log.kafka.connection import clients, network, records

    assert crc32c.crc32c(b"123456789") == 0xE3069283
    assert clients.Network is network.Network
    assert records.IndexedRecords


def main() -> None:
    for step in (commands, messages, kernels, monitor, kafka):
        step()
        sys.stdout.write(f"{step.__name__}\n")


if __name__ == "__main__":
    main()
