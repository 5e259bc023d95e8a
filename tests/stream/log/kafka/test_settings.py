"""Encryption and credentials: from a file and the environment, and shown to nobody."""

import errno
import os
import ssl
import sys
from pathlib import Path

import pytest
from kafka.net.manager import KafkaConnectionManager

from murk.errors import UserError
from murk.stream.log.kafka.connection import settings as connection_settings
from murk.stream.log.kafka.connection import tokens
from murk.stream.log.kafka.connection.settings import Settings, set_below

SECRET = "hunter2-S3CR3T"


@pytest.fixture(autouse=True)
def _nothing_from_a_configuration_file():
    """What a command that ran in this process was configured with."""
    set_below({}, "")
    yield
    set_below({}, "")


def write(tmp_path, text):
    path = tmp_path / "kafka.properties"
    path.write_text(text)
    return {"MURK_KAFKA_CONFIG": str(path)}


def refused(environment, *words):
    with pytest.raises(UserError) as caught:
        Settings.read(environment)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_nothing_set_is_no_encryption():
    assert Settings.read({}) == Settings()
    assert Settings.read({"MURK_KAFKA_CONFIG": "", "MURK_KAFKA_HOME": "/x", "PATH": "/y"}) == Settings()


def test_a_section_is_of_one_cluster(tmp_path):
    environment = write(
        tmp_path,
        "ssl.ca.file=/dev/null\nsasl.username=everywhere\n[one:9092]\nsecurity.protocol=SASL_SSL\n"
        f"sasl.username=first\nsasl.password={SECRET}\n[two:9092]\nsecurity.protocol=SSL\n",
    )
    one, two, other = (
        Settings.read(environment, servers=servers)
        for servers in (("zero:1", "one:9092"), ("two:9092",), ("one:9093",))
    )
    assert (one.security_protocol, one.sasl_username, one.sasl_password) == ("SASL_SSL", "first", SECRET)
    assert (two.security_protocol, two.sasl_username, two.sasl_password) == ("SSL", "everywhere", None)
    assert (other.security_protocol, other.sasl_password) == ("PLAINTEXT", None)
    assert {one.ssl_ca_file, two.ssl_ca_file, other.ssl_ca_file} == {"/dev/null"}
    for line in ("[one]", "[one:x]", "[]", f"[{SECRET}"):
        refused(write(tmp_path, f"{line}\nsasl.username=x\n"), "line 1", "write [HOST:PORT]")
    # A typing mistake in a section of another cluster is found, too.
    refused(write(tmp_path, f"[one:9092]\nsasl.pasword={SECRET}\n"), "did you mean sasl.password")


def test_file_and_environment(tmp_path):
    environment = write(
        tmp_path,
        "# comment\n\nsecurity.protocol = SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=one\n"
        f"sasl.password={SECRET}=more\nsession.timeout.ms=6000\n",
    )
    found = Settings.read(environment)
    assert found.security_protocol == "SASL_SSL"
    assert found.sasl_mechanism == "SCRAM-SHA-256"
    assert (found.sasl_username, found.sasl_password) == ("one", f"{SECRET}=more")
    assert found.session_timeout_ms == 6000
    # The environment wins.
    other = Settings.read(environment | {"MURK_KAFKA_SASL_USERNAME": "two", "MURK_KAFKA_SESSION_TIMEOUT_MS": "7000"})
    assert (other.sasl_username, other.sasl_password) == ("two", f"{SECRET}=more")
    assert other.session_timeout_ms == 7000


def test_the_process_s_own_environment_is_read(monkeypatch):
    monkeypatch.setenv("MURK_KAFKA_SASL_USERNAME", "somebody")
    assert Settings.read().sasl_username == "somebody"


def test_no_password_is_shown():
    environment = {
        "MURK_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "MURK_KAFKA_SASL_USERNAME": "one",
        "MURK_KAFKA_SASL_PASSWORD": SECRET,
        "MURK_KAFKA_SSL_KEY_PASSWORD": SECRET,
    }
    found = Settings.read(environment)
    assert found.client()["sasl_plain_password"] == SECRET
    assert SECRET not in repr(found)
    assert SECRET not in str(found)


def test_unknown_keys_are_named_with_the_nearest(tmp_path):
    refused(write(tmp_path, f"sasl.pasword={SECRET}\n"), "kafka.properties, line 1", "mean sasl.password?")
    refused(write(tmp_path, f"\nzzz={SECRET}\n"), "line 2", "there are security.protocol, sasl.mechanism")
    refused({"MURK_KAFKA_SASL_PASWORD": SECRET}, "MURK_KAFKA_SASL_PASWORD", "mean MURK_KAFKA_SASL_PASSWORD?")


def test_files_that_are_none(tmp_path):
    refused({"MURK_KAFKA_CONFIG": str(tmp_path / "none")}, "MURK_KAFKA_CONFIG names", "No such file")
    refused({"MURK_KAFKA_CONFIG": str(tmp_path)}, "cannot be read (Is a directory)")
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    refused({"MURK_KAFKA_CONFIG": str(tmp_path / "noise")}, "it is not text")
    # A line without a key may be a password.
    refused(write(tmp_path, f"sasl.username=one\n{SECRET}\n"), "kafka.properties, line 2", "key=value")
    refused(write(tmp_path, f"{SECRET}==\n"), "line 1", "no such setting")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    """As its owner is refused it; root may read everything."""
    environment = write(tmp_path, "")

    def refuse(self, *arguments, **more):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", refuse)
    refused(environment, "kafka.properties, which cannot be read (Permission denied)")


def test_values_that_are_none(tmp_path):
    refused({"MURK_KAFKA_SECURITY_PROTOCOL": "TLS"}, "security.protocol is invalid: set it to one of PLAINTEXT")
    refused({"MURK_KAFKA_SASL_MECHANISM": "MD5"}, "sasl.mechanism is invalid", "SCRAM-SHA-512")
    for lacking in ({"MURK_KAFKA_SASL_PASSWORD": SECRET}, {"MURK_KAFKA_SASL_USERNAME": "one"}):
        refused({"MURK_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"} | lacking, "needs sasl.username and sasl.password")
    for key in ("CA", "CERTIFICATE", "KEY"):
        refused({f"MURK_KAFKA_SSL_{key}_FILE": "/none.pem"}, f"ssl.{key.lower()}.file: /none.pem cannot be read")


@pytest.mark.parametrize("value", ["999", "300001", "-1", "1e4", "", "ten", "²000", SECRET])
def test_session_time_outs_out_of_bounds(value):
    refused({"MURK_KAFKA_SESSION_TIMEOUT_MS": value}, "session.timeout.ms is a number from 1000 to 300000")


@pytest.mark.parametrize("value", [1000, 300000])
def test_session_time_outs_at_the_bounds(value):
    assert Settings.read({"MURK_KAFKA_SESSION_TIMEOUT_MS": str(value)}).session_timeout_ms == value


class TestCertificates:
    @pytest.fixture
    def authority(self, tmp_path):
        from tests.services.certificates import Authority

        return Authority(tmp_path, "authority")

    def settings(self, **files):
        return Settings(
            security_protocol="SSL", **{key: None if one is None else str(one) for key, one in files.items()}
        )

    def test_good_ones(self, authority):
        certificate, key = authority.issue("one", SECRET)
        found = self.settings(
            ssl_ca_file=authority.path, ssl_certificate_file=certificate, ssl_key_file=key, ssl_key_password=SECRET
        )
        context = found.client()["ssl_context"]
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert len(context.get_ca_certs()) == 1

    def test_no_authority_of_one_s_own_is_the_system_s(self):
        assert self.settings().context().verify_mode == ssl.CERT_REQUIRED

    @pytest.mark.parametrize("password", [None, "wrong"])
    def test_a_locked_key_never_asks_at_the_terminal(self, authority, password):
        certificate, key = authority.issue("one", SECRET)
        found = self.settings(ssl_certificate_file=certificate, ssl_key_file=key, ssl_key_password=password)
        with pytest.raises(UserError, match=r"ssl\.key\.password") as caught:
            found.context()
        assert SECRET not in str(caught.value)

    def test_no_key_another_key_and_no_certificate(self, authority, tmp_path):
        certificate, _ = authority.issue("one")
        _, key = authority.issue("two")
        for wrong in (None, key):
            with pytest.raises(UserError, match="do not go together"):
                self.settings(ssl_certificate_file=certificate, ssl_key_file=wrong).context()
        (tmp_path / "text").write_text("no certificate")
        with pytest.raises(UserError, match=r"ssl\.ca\.file: .* holds no certificate"):
            self.settings(ssl_ca_file=tmp_path / "text").context()


@pytest.mark.parametrize("mode", [0o640, 0o644])
def test_a_password_that_others_may_read_is_warned_of_once(tmp_path, caplog, mode):
    environment = write(tmp_path, f"sasl.password={SECRET}\n")
    path = tmp_path / "kafka.properties"
    for given, words in ((0o600, []), (mode, [f"{path} holds a password (sasl.password)"]), (mode, [])):
        path.chmod(given)
        caplog.clear()
        Settings.read(environment)
        assert [message.partition(" and other")[0] for message in caplog.messages] == words
        assert SECRET not in caplog.text
    # Without a password it is nobody's secret.
    other = tmp_path / "other.properties"
    other.write_text("security.protocol=SSL\n")
    Settings.read({"MURK_KAFKA_CONFIG": str(other)})
    assert caplog.messages == []


def test_a_file_of_root_may_be_read_through_a_group(tmp_path, caplog, monkeypatch):
    """As a service reads its secret: it cannot change the mode, and needs the group's."""
    environment = write(tmp_path, f"sasl.password={SECRET}\n")
    path = tmp_path / "kafka.properties"
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    for mode, warned in ((0o640, 0), (0o644, 1)):
        path.chmod(mode)
        Settings.read(environment)
        assert len(caplog.messages) == warned


def test_a_command_prints_a_token_which_is_kept_for_a_minute(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    command = f"{sys.executable} -c \"open('{runs}', 'a').write('x'); print('{SECRET}')\""
    assert tokens.CommandTokens(command).token() == SECRET
    provider = tokens.CommandTokens(command)
    assert [provider.token(), provider.token()] == [SECRET, SECRET]
    assert runs.read_text() == "xx"
    monkeypatch.setattr(tokens, "_FRESH", -1.0)
    assert provider.token() == SECRET
    assert runs.read_text() == "xxx"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{sys.executable} -c \"print('{SECRET}'); raise SystemExit(2)\"", "ended with status 2"),
        (f"{sys.executable} -c \"print('a'); print('{SECRET}')\"", "printed no token"),
        (f"{sys.executable} -c pass {SECRET}", "printed no token"),
        (f"/nowhere/program {SECRET}", "cannot be run"),
        ("", "cannot be run"),
    ],
)
def test_a_command_without_a_token_is_an_error_that_shows_no_secret(command, words):
    with pytest.raises(UserError, match=words) as caught:
        tokens.CommandTokens(command).token()
    assert SECRET not in str(caught.value)


def test_kerberos_needs_its_library_and_takes_the_users_ticket(tmp_path, monkeypatch):
    lines = "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=broker\n"
    path = write(tmp_path, lines)
    monkeypatch.setattr(connection_settings, "find_spec", lambda name: None)
    refused(path, "pip install gssapi")
    monkeypatch.setattr(connection_settings, "find_spec", lambda name: name)
    arguments = Settings.read(path).client()
    del arguments["ssl_context"]
    assert arguments == {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "broker",
    }  # fmt: skip
    # The client knows these names; it refuses others.
    assert arguments.keys() <= KafkaConnectionManager.DEFAULT_CONFIG.keys()


def test_a_token_needs_a_command(tmp_path):
    refused(write(tmp_path, "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"), "sasl.token.command")
