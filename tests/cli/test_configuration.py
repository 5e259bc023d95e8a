"""Settings below flags: one order of precedence, every key known, and nothing of people's privacy set in passing."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from murk import Task
from murk.cli import cli, configuration
from murk.errors import UserError
from murk.stream import open_log
from murk.stream.log.kafka.connection import settings
from tests.cli.harness import ROOT, TASK, murk, refused, world


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("MURK_") and name != "MURK_REQUIRE_SERVICES":
            monkeypatch.delenv(name)
    yield
    settings.set_below({}, "")


def shown(*arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    """What `murk config` says, by setting."""
    done = CliRunner().invoke(
        cli, ["config", "--json", *arguments], env=environment, standalone_mode=False, catch_exceptions=False
    )
    found = json.loads(done.output)
    return {f"{one['command']}.{one['key']}": one for one in found["settings"]}


def wrong(*arguments: str, **environment: str) -> UserError:
    with pytest.raises(UserError) as caught:
        shown(*arguments, **environment)
    return caught.value


def test_one_order_of_precedence(tmp_path: Path) -> None:
    """Each place is taken away in turn, and the next one speaks."""
    file = tmp_path / "murk.toml"
    flags = ["learn", "--log", "sqlite:///flag.db"]
    environment = {"MURK_LEARN_LOG": "sqlite:///own.db", "MURK_LOG": "sqlite:///shared.db"}
    file.write_text('log = "sqlite:///first.db"\n[learn]\nlog = "sqlite:///table.db"\n')
    seen = []

    def look(*arguments: str) -> None:
        one = shown(*(arguments or ["learn"]), **environment)["learn.log"]
        seen.append((one["value"], one["origin"], one["place"]))

    look(*flags)
    look()
    del environment["MURK_LEARN_LOG"]
    look()
    del environment["MURK_LOG"]
    look()
    file.write_text('log = "sqlite:///first.db"\n')
    look()
    file.write_text("")
    look()
    assert seen == [
        ("sqlite:///flag.db", "flag", "--log"),
        ("sqlite:///own.db", "environment", "MURK_LEARN_LOG"),
        ("sqlite:///shared.db", "environment", "MURK_LOG"),
        ("sqlite:///table.db", "file", "murk.toml [learn]"),
        ("sqlite:///first.db", "file", "murk.toml"),
        (None, "default", None),
    ]


@pytest.mark.parametrize("place", ["one", "several", "environment"])
def test_a_monitor_takes_one_log_or_several(tmp_path: Path, place: str) -> None:
    """A path may have spaces, and a single log is set as for all other commands."""
    first = "sqlite:///first of all.db"
    environment = {"MURK_LOG": f"{first}  sqlite:///second.db"} if place == "environment" else {}
    content = f'log = "{first}"' if place == "one" else f'[monitor]\nlog = ["{first}", "sqlite:///second.db"]'
    (tmp_path / "murk.toml").write_text("" if environment else content)
    done = CliRunner().invoke(cli, ["monitor", "--port", "0"], env=environment)
    assert str(done.exception).startswith("there is no log at first of all.db")
    if not environment:
        found = shown("monitor")["monitor.log"]["value"]
        assert found == (first if place == "one" else [first, "sqlite:///second.db"])


def test_what_may_be_repeated_is_set_once_without_brackets(tmp_path: Path) -> None:
    """For a monitor's settings; a single one was once all that `reference` took."""
    (tmp_path / "true values.json").write_text('{"ages": 1}')
    log = "sqlite:///log.db"
    with open_log(log) as opened:
        opened.register_task(Task.parse(TASK).document())
    file, set_at = tmp_path / "murk.toml", '[monitor]\nport = 0\nlog = "sqlite:///log.db"\n'
    (tmp_path / "murk.toml").write_text("")
    cases = (
        (f'{set_at}reference = "true values.json"', {}, "--reference true values.json and the task 'third-child'"),
        (set_at, {"MURK_MONITOR_REFERENCE": "true values.json"}, "--reference true values.json and the task"),
        (f'{set_at}known-within = "-0.5"', {}, "-0.5: an interval has no such half-width"),
        (f'{set_at}task = "none"', {}, "no log carries the task none; there are third-child"),
    )
    for content, environment, words in cases:
        file.write_text(content)
        done = CliRunner().invoke(cli, ["monitor"], env=environment)
        assert words in str(done.exception)
    file.write_text("[plan]\npeople = '5000'\nprotocol = 'scores'\n[monitor]\nallowed-host = 'x.org'\n")
    found = shown()
    assert (found["plan.people"]["value"], found["plan.protocol"]["value"]) == ("5000", "scores")
    for bad in ("people = 'many'", "people = {a = 1}", "protocol = true"):
        file.write_text(f"[plan]\n{bad}\n")
        assert f"[plan] {bad.split()[0]}: " in str(wrong("plan"))


@pytest.mark.parametrize(
    "value", ['"first.db"', '["sqlite:///first.db", "kafka://me:hidden@b:1"]', '["sqlite:///first.db", 3]', "[true]"]
)
def test_a_monitors_wrong_logs_are_refused_and_not_quoted(tmp_path: Path, value: str) -> None:
    (tmp_path / "murk.toml").write_text(f"[monitor]\nlog = {value}\n")
    error = str(wrong("monitor"))
    assert "[monitor] log: " in error
    assert "hidden" not in error


def test_commands_take_what_is_set(folder: Path) -> None:
    world(folder, rows=30)
    (folder / "murk.toml").write_text('log = "sqlite:///set.db"\n[run]\nledger = "set.ledger.db"\nblock = 7\n')
    done = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", folder=folder)
    assert done.json["ledger"] == "set.ledger.db"
    assert (folder / "set.db").exists()
    assert murk("status", "--json", folder=folder).json["releases"] == 30
    # Only its own settings reach the demonstration.
    assert shown("demo")["demo.log"]["origin"] == "default"


def test_the_environment_names_a_file_and_the_flag_another(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(f'[monitor]\nhost = "{name}"\n')
    (tmp_path / "murk.toml").write_text('[monitor]\nhost = "here"\n')
    hosts = []
    for arguments, environment in (
        ([], {}),
        ([], {"MURK_CONFIG": "one.toml"}),
        (["--config", "two.toml"], {"MURK_CONFIG": "one.toml"}),
    ):
        done = CliRunner().invoke(
            cli, [*arguments, "config", "--json", "monitor"], env=environment, catch_exceptions=False
        )
        found = json.loads(done.output)
        hosts.append((found["file"], next(one["value"] for one in found["settings"] if one["key"] == "host")))
    assert hosts == [("murk.toml", "here"), ("one.toml", "one"), ("two.toml", "two")]


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        ('lgo = "x"', "murk.toml: lgo: there is no such setting; did you mean log?", "CONF-002"),
        ("[lern]\nwait = true", "murk.toml: lern: there is no such setting; did you mean learn?", "CONF-002"),
        ("[learn]\nmetrics_port = 1", "[learn] metrics_port: there is no such setting; did you mean metr", "CONF-002"),
        ("[kafka]\nsasl.pasword = 'S3CR3T'", "there is no such setting; did you mean sasl.password?", "CONF-002"),
        ("[kafka]\nsession.timeout.ms = [1]", "[kafka] session.timeout.ms: must be text or a number", "CONF-003"),
        ("metrics-host = [1]", "metrics-host: list is not a valid type of value", "CONF-003"),
        ("[monitor]\nport = 'x'", "[monitor] port: 'x' is not a valid integer range", "CONF-003"),
        ("[monitor]\nport = 70000", "70000 is not in the range", "CONF-003"),
        ("[monitor]\nport = true", "bool is not a valid type of value", "CONF-003"),
        ("[learn]\npartition = 1", "int is not a valid type of value", "CONF-003"),
        ("[learn]\nwait = 2", "int is not a valid type of value", "CONF-003"),
        ("idle = 3", "murk.toml: idle: set it in [shuffle] or [learn]", "CONF-002"),
        ('log = "foo"', "murk.toml: log: 'foo' is not a log URL: write sqlite:///PATH", "CONF-003"),
        ('[learn]\nlog = "user:S3CR3T@host"', "[learn] log: the value is not a log URL", "CONF-003"),
        ('lifetime = "much"', "not a guarantee", "CONF-003"),
        ("learn = 3", "must be a table of settings, [learn]", "CONF-003"),
        ("[run]\nseed = 1", "[run] seed: pass --seed to each command", "CONF-004"),
        ("yes = true", "yes: pass --yes to each command", "CONF-004"),
        ("[produce]\nmake-public = 9", "make-public: pass --make-public to each command", "CONF-004"),
        ("log = ", "not TOML: Invalid value (at ", "CONF-001"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, words: str, code: str) -> None:
    (tmp_path / "murk.toml").write_text(text + "\n")
    error = wrong("learn")
    assert words in str(error)
    assert error.code == f"MURK-{code}"
    assert "S3CR3T" not in str(error)


@pytest.mark.parametrize(
    ("name", "value", "words", "code"),
    [
        ("MURK_LERN_LOG", "S3CR3T", "did you mean MURK_LEARN_LOG?", "CONF-002"),
        ("MURK_MONITOR_PORT", "tcp:10.0.0.1", "MURK_MONITOR_PORT: the value is invalid", "CONF-003"),
        ("MURK_SEED", "1", "pass --seed to each command", "CONF-004"),
        ("MURK_RUN_YES", "1", "pass --yes to each command", "CONF-004"),
        ("MURK_RUN_MAKE_PUBLIC", "9", "pass --make-public to each command", "CONF-004"),
        ("MURK_KAFKA_SASL_PASWORD", "S3CR3T", "did you mean MURK_KAFKA_SASL_PASSWORD?", "CONF-002"),
        (
            "MURK_LOG",
            "foo",
            "MURK_LOG: the value is not a log URL: write sqlite:///PATH for a log in a file, or kafka:",
            "CONF-003",
        ),
        ("MURK_KAFKA_CONFIG", "nowhere.properties", "MURK_KAFKA_CONFIG names nowhere.properties", "CONF-001"),
        ("MURK_KAFKA_SESSION_TIMEOUT_MS", "999", "session.timeout.ms is a number from 1000", "KAFKA-003"),
        ("MURK_CONFIG", "nowhere.toml", "nowhere.toml: cannot be read", "CONF-001"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(name: str, value: str, words: str, code: str) -> None:
    error = wrong(**{name: value})
    assert words in str(error)
    assert error.code == f"MURK-{code}"
    assert "S3CR3T" not in str(error)


def of_service(name: str) -> dict[str, str]:
    """What Kubernetes, and a link of Docker, set for a service."""
    base, address = name.upper().replace("-", "_"), "10.0.0.1"
    return {
        f"{base}_SERVICE_HOST": address, f"{base}_SERVICE_PORT": "9464", f"{base}_SERVICE_PORT_HTTP_METRICS": "9464",
        f"{base}_PORT": f"tcp://{address}:9464", f"{base}_NAME": f"/page/{name}", f"{base}_ENV_PASSWORD": "S3CR3T",
        f"{base}_PORT_9464_TCP": f"tcp://{address}:9464", f"{base}_PORT_9464_TCP_PROTO": "tcp",
        f"{base}_PORT_9464_TCP_PORT": "9464", f"{base}_PORT_9464_TCP_ADDR": address,
        f"{base}_PORT_53_UDP": f"udp://{address}:53", f"{base}_PORT_53_UDP_ADDR": address,
        f"{base}_PORT_7_SCTP": f"sctp://{address}:7", f"{base}_PORT_7_SCTP_PROTO": "sctp",
    }  # fmt: skip


@pytest.mark.parametrize("name", [
    "murk", "murk-learner", "murk-monitor", "murk-kafka", "murk-log", "murk-kafka-config", "murk-produce-metrics",
    "murk-config", "murk-env-name", "murk-run", "murk-kafka-sasl",
])  # fmt: skip
def test_services_of_any_name_set_nothing(name: str) -> None:
    """Kubernetes tells of every service of a namespace; ``murk-monitor`` has the variable that sets --port."""
    others = of_service(name)
    found = shown(**others)
    assert {one["origin"] for one in found.values()} == {"default"}
    # What is a setting in earnest is one beside them.
    assert shown(**others, MURK_LEARN_LOG="sqlite:///x.db")["learn.log"]["origin"] == "environment"


def test_other_tools_variables_are_left_alone() -> None:
    others = {"MURK_REQUIRE_SERVICES": "1", "MURK_KERNELS": "/opt", "MURK_SOAK_KILLS": "1", "MURK_LOG": ""}
    assert {one["origin"] for one in shown(**others).values()} == {"default"}


def test_a_file_of_settings_is_small_and_flat(tmp_path: Path) -> None:
    (tmp_path / "murk.toml").write_text("a = " + "[" * 20_000)
    assert "nested too deeply" in str(wrong("learn"))
    (tmp_path / "murk.toml").write_text("#" * 100_001)
    assert "more than 100,000 bytes" in str(wrong("learn"))
    (tmp_path / "murk.toml").unlink()
    (tmp_path / "x.properties").write_text("#" * 100_001)
    assert "more than 100,000 characters" in str(wrong(MURK_KAFKA_CONFIG="x.properties"))


def test_every_variable_of_the_repository_is_known() -> None:
    """So that no campaign, test or image is refused for its own variables."""
    texts = [
        path.read_text()
        for folder in ("tests", "deploy", "benchmarks", ".ci")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".sh", ".yaml", ""}
    ]
    named = set(
        re.findall(
            r"environ(?:\.get\(|\[|\.pop\()\s*\"(MURK_\w+)\"", "\n".join([*texts, (ROOT / "Dockerfile").read_text()])
        )
    )
    assert len(named) > 8
    context = cli.make_context("murk", [], resilient_parsing=True)
    options = cli.settable(context)  # type: ignore[attr-defined]
    configuration.check_variables(dict.fromkeys(named, ""), options)


def test_passwords_are_masked(tmp_path: Path) -> None:
    (tmp_path / "murk.toml").write_text('[kafka]\nsasl.password = "S3CR3T"\nsasl.username = "learner"\n')
    environment = {"MURK_KAFKA_SSL_KEY_PASSWORD": "S3CR3T"}
    found = shown(**environment)
    assert found["kafka.sasl.password"]["value"] == found["kafka.ssl.key.password"]["value"] == "****"
    assert found["kafka.sasl.username"]["value"] == "learner"
    for arguments in (["config"], ["config", "--all"], ["config", "--json"]):
        done = CliRunner().invoke(cli, arguments, env=environment, catch_exceptions=False)
        assert "learner" in done.output
        assert "S3CR3T" not in done.output


@pytest.mark.parametrize("password", ["S3CR3T", "S3/CR3T", "S3@CR3T", "S3://CR3T", "a@b/S3\nCR3T"])
def test_a_password_in_a_url_is_neither_shown_nor_repeated(password: str) -> None:
    url = f"kafka://me:{password}@broker:9092/x"
    done = CliRunner().invoke(cli, ["config", "--json", "learn", "--log", url], catch_exceptions=False)
    assert "kafka://****@broker:9092/x" in done.output
    assert "CR3T" not in done.output
    refused = str(wrong("learn", MURK_LOG=url))
    assert "MURK_LOG: the value contains credentials" in refused
    assert "CR3T" not in refused
    Path("murk.toml").write_text(f"log = {json.dumps(url)}\n")
    assert "CR3T" not in str(wrong("learn"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MURK_LEARN_METRICS_PORT", "the value is invalid: integer range from 0 to 65535 is required"),
        ("MURK_LIFETIME", "the value is invalid: GUARANTEE is required"),
        ("MURK_LEARN_WAIT", "the value is invalid: boolean is required"),
        ("MURK_LOG", "the value is not a log URL"),
    ],
)
def test_a_secret_in_the_wrong_variable_is_not_repeated(name: str, words: str) -> None:
    refused = str(wrong("learn", **{name: "hunter2"}))
    assert f"{name}: {words}" in refused
    assert "hunter2" not in refused


def test_whose_account_is_asked_for_at_each_command(tmp_path: Path) -> None:
    """A forgotten table would narrow a withdrawal; a variable would put a name where `murk config` shows it."""
    for key in ("task", "person", "source"):
        (tmp_path / "murk.toml").write_text(f'[ledger]\n{key} = "Ann"\n')
        assert f"[ledger] {key}: pass --{key} to each command" in str(wrong("ledger"))
        (tmp_path / "murk.toml").unlink()
        variable = f"MURK_LEDGER_{key.upper()}"
        refused = str(wrong(**{variable: "Ann"}))
        assert f"{variable}: pass --{key} to each command" in refused
        assert "Ann" not in refused
    # Others have a column of that name.
    assert shown(MURK_RUN_PERSON="who")["run.person"]["value"] == "who"


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", stat)
    assert r"murk.toml in this folder cannot be read (Permission denied)" in str(wrong())


def test_how_to_reach_a_cluster_has_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "murk.toml").write_text(
        '[kafka]\nsecurity.protocol = "SASL_SSL"\n"sasl.username" = "file"\nsasl.password = "file"\n'
        "session.timeout.ms = 7000\n"
    )
    (tmp_path / "kafka.properties").write_text("sasl.username=properties\nsasl.password=properties\n")
    monkeypatch.setenv("MURK_KAFKA_CONFIG", "kafka.properties")
    monkeypatch.setenv("MURK_KAFKA_SASL_PASSWORD", "variable")
    found = shown()
    # The command has said it to what opens logs.
    ours = settings.Settings.read()
    assert (ours.security_protocol, ours.sasl_username, ours.sasl_password) == ("SASL_SSL", "properties", "variable")
    assert ours.session_timeout_ms == 7000
    assert [found[f"kafka.{key}"]["origin"] for key in ("security.protocol", "sasl.username", "sasl.password")] == [
        "file", "properties", "environment",
    ]  # fmt: skip
    assert found["kafka.sasl.mechanism"]["origin"] == "default"


def test_another_users_file_is_not_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "murk.toml").write_text('log = "sqlite:///theirs.db"\n')
    theirs = os.stat_result((0o100644, 1, 1, 1, 4711, 4711, 30, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self, **_: theirs)
    assert "belongs to another user" in str(wrong())
    assert shown(MURK_CONFIG="murk.toml")["learn.log"]["value"] == "sqlite:///theirs.db"


def test_a_variable_switches_off_what_the_file_switches_on(tmp_path: Path) -> None:
    (tmp_path / "murk.toml").write_text("wait = true\nverbose = 2\n")
    assert (shown("learn")["learn.wait"]["value"], shown("learn")["learn.verbose"]["value"]) == (True, 2)
    off = shown("learn", MURK_LEARN_WAIT="0")["learn.wait"]
    assert (off["value"], off["place"]) == ("0", "MURK_LEARN_WAIT")
    command = cli.get_command(cli.make_context("murk", [], resilient_parsing=True), "learn")
    assert command is not None
    [wait] = [option for option in command.params if option.name == "wait"]
    assert wait.type_cast_value(cli.make_context("murk", [], resilient_parsing=True), off["value"]) is False


def test_the_page_s_file_is_one(tmp_path: Path) -> None:
    [text] = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "murk.toml").write_text(text)
    # Who one is, the page's file leaves to another place; without it no command reaches the cluster.
    assert "which needs sasl.username and sasl.password" in str(wrong())
    known = shown(MURK_KAFKA_SASL_USERNAME="learner", MURK_KAFKA_SASL_PASSWORD="x")
    found = {name: one["value"] for name, one in known.items() if one["origin"] == "file"}
    assert found["learn.metrics-port"] == 9466
    assert found["learn.metrics-host"] == "0.0.0.0"
    assert found["kafka.security.protocol"] == "SASL_SSL"


def test_no_variable_means_two_things() -> None:
    context = cli.make_context("murk", [], resilient_parsing=True)
    meanings: dict[str, set[str]] = {}
    for command, known in cli.settable(context).items():  # type: ignore[attr-defined]
        for key in known:
            for name in configuration.variables(command, key):
                shared = name == configuration.variables("x", key)[-1] and key in configuration.SHARED
                meanings.setdefault(name, set()).add(key if shared else f"{command}.{key}")
    assert {name for name, found in meanings.items() if len(found) > 1} == set()
    assert not {name for name in meanings if name.startswith(("MURK_KAFKA_", "MURK_CONFIG_FILE"))}


def test_an_unknown_command_is_refused(folder: Path) -> None:
    refused(murk("config", "lern", folder=folder), "there is no command 'lern'", "MURK-CLI-002")
