"""Every role at a broker that trusts nobody: it can do its work, no more, and is told in one line what it lacks."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from functools import cache
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAuthorizationFailedError

from murk import Task
from murk.producers import Ledger, Producer
from murk.stream import open_log
from murk.stream.log.kafka.topics import Names
from tests.cli import harness
from tests.cli.harness import LOGGED
from tests.services.clients import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.services.faults.nursery import Nursery
from tests.services.secure import PASSWORDS, RIGHTS, right_names
from tests.services.services import eventually

GUESS, UNKNOWN, LOCK = "Gu3ssed-8Zq", "stranger-8Zq", "sesame-8Zq"
NEVER = (*PASSWORDS.values(), GUESS, LOCK, "Traceback", "unexpected", "kafka.errors", "Enter PEM")
LIMIT = 120
TOPICS = ("releases", "models", "states", "dead-letters")


def clean(text):
    for never in NEVER:
        assert never not in text, text
    return text


@cache
def children(folder):
    return Nursery(folder / "children")


class Run:
    """A `murk` command in a process of its own, started at once."""

    def __init__(self, folder, properties, *arguments):
        self.child = children(folder).murk(*arguments, folder=folder, MURK_KAFKA_CONFIG=str(properties))

    def done(self):
        try:
            status = self.child.wait(LIMIT)
        finally:
            self.child.kill()
        return status, clean(self.child.out), clean(self.child.err)

    def good(self):
        status, out, err = self.done()
        assert status == 0, err
        return out

    def refused(self, *words, status=2):
        found, out, err = self.done()
        *logged, line, end = err.split("\n")
        assert (found, out, end) == (status, "", ""), (found, out, err)
        assert all(LOGGED.match(one) for one in logged), err
        assert line.startswith("murk: "), err
        for word in words:
            assert word in line, err


class Seen(Run):
    """The same as `python -m murk`, whose command line others on the machine see."""

    def __init__(self, folder, properties, *arguments):
        self.out, self.err = (folder / f"{uuid.uuid4().hex}.{one}" for one in ("out", "err"))
        environment = os.environ | {"PYTHONPATH": str(harness.ROOT), "MURK_KAFKA_CONFIG": str(properties)}
        with self.out.open("w") as out, self.err.open("w") as err:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "murk", *map(str, arguments)], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip

    def look(self):
        """What they see of it."""
        return clean(Path(f"/proc/{self.child.pid}/cmdline").read_text())

    def done(self):
        try:
            self.child.wait(LIMIT)
        finally:
            self.child.kill()
            self.child.wait()
        return self.child.returncode, clean(self.out.read_text()), clean(self.err.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    task = harness.TASK + "log: {partitions: 1}\n"
    return harness.world(tmp_path_factory.mktemp("secure"), rows=60, task=task)


@pytest.fixture(scope="module")
def users(secure_broker, folder):
    """Each user's settings."""
    return {user: secure_broker.properties(folder / f"{user}.properties", user) for user in PASSWORDS}


def new_log(broker, folder, users):
    """A log whose roles have their rights; set up by the operator."""
    name = f"s{uuid.uuid4().hex[:10]}"
    broker.allow_task(name)
    url = f"{broker.url}/{name}"
    Run(folder, users["operator"], "topics", "task.yaml", "--log", url).good()
    return name, url


@pytest.fixture(scope="module")
def log(secure_broker, folder, users):
    return new_log(secure_broker, folder, users)


def admin_sends(broker, topic, value):
    producer = KafkaProducer(**broker.client("admin"), enable_idempotence=False)
    try:
        producer.send(topic, value, key=b"x", partition=0).get(timeout=60)
    finally:
        producer.close()


def read_one():
    """In a child: a program that logs everything."""
    logging.basicConfig(level=logging.DEBUG, force=True)
    if sys.argv[2:]:
        logging.getLogger("kafka").setLevel(logging.DEBUG)
    logging.getLogger("everything").debug("is heard")
    with open_log(sys.argv[1], create=False) as log:
        print(log.end(0))  # noqa: T201


@pytest.mark.parametrize("asked", [[], ["asked"]], ids=["everything", "the client's, too"])
def test_a_program_that_logs_everything_logs_nobodys_credentials(secure_broker, folder, users, asked):
    """The client's loggers name users from INFO on; they are heard where a program asks for them alone."""
    _, url = new_log(secure_broker, folder, users)
    child = children(folder).call(
        "tests.services.test_security:read_one", url, *asked, MURK_KAFKA_CONFIG=str(users["reader"])
    )
    assert (child.wait(LIMIT), child.out) == (0, "0\n"), child.err
    assert "DEBUG:everything:is heard" in child.err
    if asked:
        assert "DEBUG:kafka" in child.err
    else:
        assert not re.search("(DEBUG|INFO):kafka", clean(child.err))


def release_one():
    """In a child: a device's program."""
    url, ledger = sys.argv[1:]
    with open_log(url, create=False) as log, Ledger(ledger) as accounts:
        producer = Producer(Task.from_document(log.document()), log, accounts)
        print(producer.release({"same_sex": "no", "age": "30", "third_child": "yes"}).outcome)  # noqa: T201
        producer.flush()


def test_every_role_does_its_work(secure_broker, folder, users, tmp_path):
    name, url = new_log(secure_broker, folder, users)
    Run(folder, users["operator"], "topics", "task.yaml", "--log", url, "--check").good()
    learner = Run(folder, users["learner"], "learn", "--log", url, "--json", "-vv")
    monitor = Run(folder, users["reader"], "monitor", "task.yaml", "--log", url, "--port", 0, "--json", "--log-json")
    ledger = ("--ledger", f"{name}.db", "--block", 20)
    gateway = Seen(folder, users["gateway"], "produce", "task.yaml", "--source", "people.csv", "--log", url, *ledger)
    gateway.look()
    gateway.good()

    # A device comes with a certificate, to the other listener.
    device = secure_broker.ssl_properties(tmp_path / "device.properties", "device", key_password=LOCK)
    one = children(folder).call(
        "tests.services.test_security:release_one", f"{secure_broker.ssl_url}/{name}", tmp_path / "own.db",
        MURK_KAFKA_CONFIG=str(device),
    )  # fmt: skip
    assert (one.wait(LIMIT), clean(one.out), clean(one.err)) == (0, "released\n", "")

    eventually(lambda: monitor.child.out.endswith("\n"))
    page = json.loads(monitor.child.out)["url"]

    def shown():
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{page}/api/status") as answer:
            return json.loads(clean(answer.read().decode()))["releases"]

    eventually(lambda: shown() == 61, every=0.5)
    status = json.loads(Run(folder, users["reader"], "status", "--log", url, "--json").good())
    assert (status["releases"], status["dead_letters"]) == (61, {})
    Run(folder, users["reader"], "dead-letters", "--log", url).good()
    for one in (monitor, learner):
        one.child.send(signal.SIGTERM)
        one.good()


def test_no_role_can_do_more(secure_broker, folder, users):
    name, _ = new_log(secure_broker, folder, users)
    for topic in Names(name).all:
        admin_sends(secure_broker, topic, b"there is something to read")
    for role in sorted({right.role for right in RIGHTS}):
        may = {
            (resource, operation)
            for right in RIGHTS
            if right.role == role
            for resource in right_names(right, name, 1)
            for operation in right.operations
        }
        for topic in Names(name).all:
            assert writes(secure_broker, role, topic) == ((topic, "WRITE") in may), (role, topic)
            assert reads(secure_broker, role, topic) == ((topic, "READ") in may), (role, topic)


def writes(broker, user, topic):
    producer = KafkaProducer(**broker.client(user), enable_idempotence=False, allow_auto_create_topics=False)
    try:
        producer.send(topic, b"x", partition=0, key=b"x").get(timeout=60)
    except TopicAuthorizationFailedError:
        return False
    finally:
        producer.close()
    return True


def reads(broker, user, topic):
    consumer = KafkaConsumer(
        **broker.client(user), group_id=None, auto_offset_reset="none", allow_auto_create_topics=False
    )
    place = TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.seek(place, 0)
        cluster = consumer._cluster
        found = eventually(lambda: consumer.poll(timeout_ms=200) or cluster.unauthorized_topics)
        return place in found
    except TopicAuthorizationFailedError:
        return False
    finally:
        consumer.close()


LACKING = {
    # What the learner lacks: kind, resource, operation, what it is told.
    "releases": ("TOPIC", "murk-NAME-releases", "READ", "access to the topic murk-NAME-releases"),
    "models-read": ("TOPIC", "murk-NAME-models", "READ", "access to the topic murk-NAME-models"),
    "models-write": ("TOPIC", "murk-NAME-models", "WRITE", "access to the topic murk-NAME-models"),
    "states-read": ("TOPIC", "murk-NAME-states", "READ", "access to the topic murk-NAME-states"),
    "states-write": ("TOPIC", "murk-NAME-states", "WRITE", "access to the topic murk-NAME-states"),
    "dead-letters": ("TOPIC", "murk-NAME-dead-letters", "WRITE", "access to the topic murk-NAME-dead-letters"),
    "group": ("GROUP", "murk-NAME", "READ", "access to the consumer group"),
    "transaction": ("TRANSACTIONAL_ID", "murk-NAME-0", "WRITE", "access to the transactional id"),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_a_learner_is_told_which_right_it_lacks(secure_broker, folder, users, log, lacking):
    kind, resource, operation, told = LACKING[lacking]
    name, url = log
    resource, told = resource.replace("NAME", name), told.replace("NAME", name)
    admin_sends(secure_broker, Names(name).releases, b"no release")
    secure_broker.forbid("learner", kind, resource, operation)
    try:
        Run(folder, users["learner"], "learn", "--log", url, "--json", "--idle", 20).refused(told, "docs/deploy.md")
    finally:
        secure_broker.allow("learner", kind, resource, operation)


@pytest.mark.parametrize(("topic", "operation"), [("releases", "READ"), ("states", "WRITE")])
def test_a_right_that_is_taken_away_while_a_learner_runs(secure_broker, folder, users, log, topic, operation):
    name, url = log
    topic = f"murk-{name}-{topic}"
    learner = Run(folder, users["learner"], "learn", "--log", url, "--json")
    admin_sends(secure_broker, Names(name).releases, b"no release")

    def lag():
        assert learner.child.status is None, learner.done()
        return json.loads(Run(folder, users["reader"], "status", "--log", url, "--json").good())["lag"]

    learner.child.said("taken over at offset")
    eventually(lambda: lag() == 0, every=0.5)
    secure_broker.forbid("learner", "TOPIC", topic, operation)
    try:
        admin_sends(secure_broker, Names(name).releases, b"no release")
        learner.refused(f"access to the topic {topic}", "docs/deploy.md")
    finally:
        secure_broker.allow("learner", "TOPIC", topic, operation)


@pytest.mark.parametrize("operation", ["CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"])
def test_an_operator_is_told_which_right_he_lacks(secure_broker, folder, users, operation):
    name = f"s{uuid.uuid4().hex[:10]}"
    secure_broker.allow_task(name, "operator")
    topic = Names(name).states
    command = ("topics", "task.yaml", "--log", f"{secure_broker.url}/{name}")
    if operation != "CREATE":
        Run(folder, users["operator"], *command).good()
        admin = KafkaAdminClient(**secure_broker.client("admin"))
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"max.message.bytes": "1000"})])
        admin.close()
        # To change settings includes to see them, which may also be allowed alone.
        secure_broker.allow("operator", "TOPIC", topic, "DESCRIBE_CONFIGS")
        secure_broker.forbid("operator", "TOPIC", topic, "ALTER_CONFIGS")
    secure_broker.forbid("operator", "TOPIC", topic, operation)
    Run(folder, users["operator"], *command).refused("docs/deploy.md", "denies this user access to")


def test_who_is_allowed_nothing(secure_broker, folder, users, log):
    _, url = log
    told = ("denies this user access to the topic", "docs/deploy.md")
    runs = [
        Run(folder, users["nobody"], *command, "--log", url)
        for command in (
            ("topics", "task.yaml"), ("learn",), ("status",), ("dead-letters",),
            ("produce", "task.yaml", "--source", "people.csv", "--ledger", "nobody.db"),
            ("monitor", "task.yaml", "--port", 0),
        )
    ]  # fmt: skip
    for run in runs:
        run.refused(*told)
    # A device's rights are not enough for what waits for learners.
    Run(folder, users["device"], "status", "--log", url).refused(*told)


PRINTS_TOKEN = """
import base64, json, time
part = lambda content: base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
print(part({"alg": "none"}) + "." + part({"sub": USER, "iat": time.time(), "exp": time.time() + 600}) + ".")
"""


def test_a_command_prints_the_token_of_a_user(secure_broker, folder, users):
    _, url = new_log(secure_broker, folder, users)
    program = folder / "token.py"
    program.write_text(PRINTS_TOKEN.replace("USER", '"reader"'))
    command = f"{sys.executable} {program}"
    properties = secure_broker.token_properties(folder / "token.properties", command)
    status = json.loads(Run(folder, properties, "status", "--log", url, "--json").good())
    assert status["dead_letters"] == {}
    program.write_text(PRINTS_TOKEN.replace("USER", f'"{UNKNOWN}"'))
    Run(folder, properties, "status", "--log", url).refused("denies this user access to the topic", "docs/deploy.md")
    program.write_text(f"print('{GUESS}'); raise SystemExit(3)")
    Run(folder, properties, "status", "--log", url).refused("sasl.token.command", "ended with status 3")


WRONG = {
    "password": ("refuses user name or password", "MURK_KAFKA_"),
    "user": ("refuses user name or password", "MURK_KAFKA_"),
    "mechanism": ("does not offer this sasl.mechanism",),
    "authority": ("certificate cannot be verified", "ssl.ca.file"),
    "system-authorities": ("certificate cannot be verified", "ssl.ca.file"),
    "host": ("certificate cannot be verified", "host name"),
    "plain-to-tls": ("this port speaks TLS", "security.protocol"),
    "sasl-plain-to-tls": ("this port speaks TLS", "security.protocol"),
    "tls-to-plain": ("the TLS handshake failed", "security.protocol"),
    "no-certificate": ("requires a certificate that it trusts", "ssl.certificate.file"),
    "stranger's-certificate": ("requires a certificate that it trusts", "ssl.certificate.file"),
    "locked-key": ("ssl.key.password",),
    "key-s-password": ("ssl.key.password",),
}


@pytest.fixture(scope="module")
def mistaken(secure_broker, broker, folder):
    """All the mistakes at once: some of them wait, and there is no need to wait one after the other."""
    made = iter(range(100))

    def change(**other):
        path = secure_broker.properties(folder / f"wrong-{next(made)}.properties", "reader")
        lines = dict(line.split("=", 1) for line in path.read_text().splitlines())
        lines |= {key.replace("_", "."): value for key, value in other.items()}
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items() if value is not None))
        return path

    def certificate(**other):
        return secure_broker.ssl_properties(folder / f"wrong-{next(made)}.properties", "reader", **other)

    locked = certificate(key_password=LOCK)
    unlocked = folder / "locked.properties"
    unlocked.write_text("".join(line for line in locked.read_text().splitlines(True) if "password" not in line))
    wrong_lock = folder / "wrong-lock.properties"
    wrong_lock.touch(mode=0o600)
    wrong_lock.write_text(locked.read_text().replace(LOCK, GUESS))
    none = folder / "no-certificate.properties"
    none.write_text(
        "".join(line for line in locked.read_text().splitlines(True) if "ssl.ca" in line or "secur" in line)
    )
    tls, ssl = f"{secure_broker.url}/x", f"{secure_broker.ssl_url}/x"
    cases = {
        "password": (tls, change(sasl_password=GUESS)),
        "user": (tls, change(sasl_username=UNKNOWN)),
        "mechanism": (tls, change(sasl_mechanism="PLAIN")),
        "authority": (tls, change(ssl_ca_file=secure_broker.stranger.path)),
        "system-authorities": (tls, change(ssl_ca_file=None)),
        # The same address written otherwise, and not as the certificate has it.
        "host": (tls.replace("127.0.0.1", "[::ffff:127.0.0.1]"), change()),
        "plain-to-tls": (tls, change(security_protocol="PLAINTEXT")),
        "sasl-plain-to-tls": (tls, change(security_protocol="SASL_PLAINTEXT")),
        "tls-to-plain": (f"{broker.url}/x", change()),
        "no-certificate": (ssl, none),
        "stranger's-certificate": (ssl, None),
        "locked-key": (ssl, unlocked),
        "key-s-password": (ssl, wrong_lock),
    }
    runs = {
        what: Run(folder, properties, "status", "--log", url)
        for what, (url, properties) in cases.items()
        if properties is not None
    }
    # Its file lies where the other signer keeps it, and is written again for nobody else.
    stranger = certificate(signer=secure_broker.stranger)
    runs["stranger's-certificate"] = Run(folder, stranger, "status", "--log", ssl)
    yield runs
    for run in runs.values():
        run.child.kill()


@pytest.mark.parametrize("what", WRONG)
def test_whoever_cannot_get_in_is_told_why(mistaken, what):
    mistaken[what].refused(*WRONG[what])


def test_nobody_there_may_help_to_try_again(folder, users):
    Run(folder, users["reader"], "status", "--log", "kafka://127.0.0.1:1/x").refused("cannot be reached", status=1)
