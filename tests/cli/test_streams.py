"""Standard streams: closed ones, and others' words on their way to a terminal."""

import io
import json
import os
import pty
import subprocess
import sys
import unicodedata

import click
import pytest
from click.testing import CliRunner

from murk.cli import cli
from murk.cli.output import print_json, progress, table
from murk.cli.streams import PrintableStream, printable_output
from murk.errors import MurkError, UserError, printable

HOSTILE = "a\x1b[2J\x9b31m\u202e\u2028\x07\x7f\r\x85\udce9\U000e0001\u200b.csv"


def is_plain(text):
    return not [
        one for one in text if one not in "\n\t" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


RUN = "run task.yaml --source"
COMMANDS = (
    "run {} --source x.csv", f"{RUN} {{}}", f"{RUN} {{}}.csv", f"{RUN} x.csv --level {{}}",
    f"{RUN} x.csv --person {{}}",
    "init x --source {} --target y --simulation", "init {} --columns a:0..1 --target b:no|yes", "plan {}",
    "plan task.yaml --people {}", "topics {} --log kafka://localhost:1", "monitor {} --log sqlite:///x --port 0",
    "monitor task.yaml --log sqlite:///x --port 0 --allowed-host {}", "produce {} --source x.csv",
    "learn --log sqlite:///{}", "learn --log {}", "learn --log kafka://{}", "learn --idle {}", "status --log sqlite:///{}",
    "dead-letters --log sqlite:///{}", "ledger {}", "ledger x.db --person {}", "audit {}", "dossier {} --out x.html",
    "dossier task.yaml --out {}/x.html", "--config {} learn", "{}", "run --{}",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_a_name_reach_the_terminal_as_it_is(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.yaml").write_text(
        "name: t\nfeatures: [{name: a, low: 0, high: 1}]\ntarget: {name: y, kind: binary}\n"
        "privacy: {guarantee: {gdp: {mu: 1.0}}}\n"
    )
    (tmp_path / "x.csv").write_text("a,y\n1,0\n0,1\n")
    done = CliRunner().invoke(cli, [one.replace("{}", HOSTILE) for one in command.split()])
    assert done.exit_code or command.startswith("init")
    said = done.output + (str(done.exception) if isinstance(done.exception, MurkError | OSError) else "")
    assert said
    # What the system says of a file is printed by `main`, through the same stream.
    assert is_plain(printable(said) if isinstance(done.exception, OSError) else said)


def test_tables_errors_and_progress_show_what_is_not_seen(capsys):
    with printable_output():
        table(HOSTILE, [HOSTILE, "b"], [[HOSTILE, "[red]x"], ["\u00e9", HOSTILE]])
        with progress(HOSTILE, 10) as tick:
            tick(10, HOSTILE)
        click.echo(HOSTILE, err=True)
    out, err = capsys.readouterr()
    assert out.count("\\u009b") == 4
    assert err.count("\\u009b") == 3
    assert is_plain(out + err)
    assert "\u00e9" in out
    assert is_plain(str(UserError(f"{HOSTILE}: no")))
    assert str(UserError("two\nlines \u00e9\t\u4e2d")) == "two\nlines \u00e9\t\u4e2d"


def test_json_stays_what_it_says():
    stream = PrintableStream(io.StringIO())
    stream.write(json.dumps({"path": HOSTILE}, ensure_ascii=False))
    assert is_plain(stream.terminal.getvalue())
    assert json.loads(stream.terminal.getvalue()) == {"path": HOSTILE.replace("\U000e0001", "\U000e0001")}
    assert sys.stdout is not stream
    with printable_output():
        print_json({"a": 1})


def test_streams_are_as_before_afterwards():
    before = sys.stdout, sys.stderr
    with printable_output(), printable_output():
        assert not isinstance(sys.stdout.terminal, PrintableStream)
    assert (sys.stdout, sys.stderr) == before


NOWHERE = """
import os, sys
from murk.cli.streams import open_closed_streams
open_closed_streams()
print("out"); print("err", file=sys.stderr); sys.stdout.flush(); os.write(1, b"x"); os.write(2, b"x")
number = os.open("ledger", os.O_RDWR | os.O_CREAT)
os._exit(0 if number > 2 and not sys.stdin.read() and os.fstat(number).st_size == 0 else 9)
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_closed_streams_lead_nowhere(closed, tmp_path):
    """Else the ledger would be opened under their number, and be written into by whatever a library prints."""
    shut = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {shut}', sys.executable, NOWHERE],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert done.stdout == (b"" if 1 in closed else b"out\nx")


INIT = 'exec "$0" -m murk init x --columns a:0..1 --target "b:no|yes" --out x.yaml'


def test_a_command_without_its_streams_does_its_work(tmp_path):
    for shut, out in ((">&-", b""), ("2>&-", b"x.yaml"), ("<&- >&- 2>&-", b"")):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{INIT} {shut}", sys.executable],
            cwd=tmp_path, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done
        assert done.stdout.startswith(out)
        (tmp_path / "x.yaml").unlink()


def test_headings_are_still_bold_on_a_terminal():
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as screen:
        before = sys.stdout
        sys.stdout = screen
        try:
            with printable_output():
                table("title", ["a"], [["\x1b[2J"]])
        finally:
            sys.stdout = before
    shown = os.read(leader, 10_000)
    os.close(leader)
    assert b"\x1b[1mtitle" in shown
    assert b"\x1b[2J" not in shown
