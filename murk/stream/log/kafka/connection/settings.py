"""Encryption and credentials of Kafka clients, from a properties file or the environment.

Credentials are never shown, and never taken from a URL or an argument, which other users of the machine can read.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from murk._internal.environment import is_of_service
from murk.errors import UserError

_ERROR_CODE = "MURK-KAFKA-003"

VARIABLE = "MURK_KAFKA_CONFIG"
PREFIX = "MURK_KAFKA_"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKENS = "OAUTHBEARER"
KERBEROS = "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKENS, KERBEROS)

_SECTION = re.compile(r"\[([^\[\]\s]+:[0-9]{1,5})\]")
MOST_CHARACTERS = 100_000  # longest properties file
_below: dict[str, tuple[str, str]] = {}
_warned: set[str] = set()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """Encryption and credentials of a client; keys in a properties file have dots for underscores."""

    security_protocol: str = "PLAINTEXT"  # one of `PROTOCOLS`
    sasl_mechanism: str = "SCRAM-SHA-512"  # one of `MECHANISMS`
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token_command: str | None = field(default=None, repr=False)  # prints a token, for `TOKENS`
    sasl_kerberos_service_name: str = "kafka"  # the brokers' service, for `KERBEROS`
    ssl_ca_file: str | None = None  # PEM; by default the system's authorities
    ssl_certificate_file: str | None = None  # client certificate, if the broker requires one
    ssl_key_file: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    session_timeout_ms: int = 10_000  # time without a heartbeat after which a learner counts as dead

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, servers: Collection[str] = ()) -> Settings:
        """Read the ``MURK_KAFKA_*`` variables, the file named by ``MURK_KAFKA_CONFIG``, and the values of `set_below`.

        The file's section ``[HOST:PORT]`` applies only to the cluster with this bootstrap server. Raises `UserError`,
        naming the key (never the value) that is unknown, missing or invalid.

        >>> Settings.read({"MURK_KAFKA_SECURITY_PROTOCOL": "SSL"}).security_protocol
        'SSL'
        """
        given = sources(environment, servers)
        _warn_of_readable_files(given)
        values = {name: value for name, (value, _) in given.items()}
        session = values.pop("session_timeout_ms", "10000")
        if not session.isdecimal() or not 1_000 <= int(session) <= 300_000:
            raise UserError("session.timeout.ms is a number from 1000 to 300000, in milliseconds")
        settings = cls(**values, session_timeout_ms=int(session))
        settings._check()
        return settings

    def _check(self) -> None:
        for key, value, allowed in (
            ("security.protocol", self.security_protocol, PROTOCOLS),
            ("sasl.mechanism", self.sasl_mechanism, MECHANISMS),
        ):
            if value not in allowed:
                raise UserError(f"{key} is invalid: set it to one of {', '.join(allowed)}")
        if self.is_by_token:
            if not self.sasl_token_command:
                raise UserError(
                    f"sasl.mechanism is {TOKENS}, which needs sasl.token.command, a command that prints a token"
                )
        elif self.is_by_kerberos:
            if find_spec("gssapi") is None:
                raise UserError(
                    f"sasl.mechanism is {KERBEROS}, which needs a library that is not installed: pip install gssapi"
                )
        elif self.security_protocol.startswith("SASL") and not (self.sasl_username and self.sasl_password):
            raise UserError(
                f"security.protocol is {self.security_protocol}, which needs sasl.username and sasl.password in the "
                f"file that {VARIABLE} names, or {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD"
            )
        for key in ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file"):
            path = getattr(self, key)
            if path and not os.access(path, os.R_OK):
                raise UserError(f"{key.replace('_', '.')}: {path} cannot be read: check the path and its permissions")

    @property
    def is_by_token(self) -> bool:
        """Whether clients log in with a token."""
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == TOKENS

    @property
    def is_by_kerberos(self) -> bool:
        """Whether clients log in with the Kerberos ticket of the user who runs them."""
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == KERBEROS

    @property
    def encrypted(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    def context(self) -> ssl.SSLContext:
        """Return the TLS context; raise `UserError`, naming the file that is invalid."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ssl_ca_file:
                context.load_verify_locations(self.ssl_ca_file)
            else:
                context.load_default_certs()
        except (OSError, ValueError) as error:
            raise UserError(f"ssl.ca.file: {self.ssl_ca_file} holds no certificate (PEM)") from error
        if self.ssl_certificate_file:
            try:
                # Without a password, OpenSSL would prompt for one.
                context.load_cert_chain(self.ssl_certificate_file, self.ssl_key_file, self.ssl_key_password or "")
            except (OSError, ValueError) as error:
                raise UserError(
                    f"ssl.certificate.file: {self.ssl_certificate_file}, ssl.key.file and ssl.key.password do not go "
                    "together: give a certificate (PEM), its key (PEM), and the key's password if it has one"
                ) from error
        return context

    def client(self) -> dict[str, Any]:
        """Return the library's arguments."""
        arguments: dict[str, Any] = {"security_protocol": self.security_protocol}
        if self.encrypted:
            arguments["ssl_context"] = self.context()
        if self.is_by_token:
            from murk.stream.log.kafka.connection.tokens import CommandTokens

            tokens = CommandTokens(self.sasl_token_command or "")
            # Errors of the command are raised here; within the client it would seem that no broker can be reached.
            tokens.token()
            arguments |= {"sasl_mechanism": TOKENS, "sasl_oauth_token_provider": tokens}
        elif self.is_by_kerberos:
            arguments |= {"sasl_mechanism": KERBEROS, "sasl_kerberos_service_name": self.sasl_kerberos_service_name}
        elif self.security_protocol.startswith("SASL"):
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments |= {"sasl_plain_username": self.sasl_username, "sasl_plain_password": self.sasl_password}
        return arguments


KEYS = {setting.name.replace("_", "."): setting.name for setting in fields(Settings)}  # by key in a properties file
SECRETS = frozenset(setting.name for setting in fields(Settings) if not setting.repr)  # fields that are never shown


def set_below(values: Mapping[str, str], where: str) -> None:
    """Set defaults by key, which the variables and the properties file override; ``where`` is their source."""
    _below.clear()
    _below.update({KEYS[key]: (value, where) for key, value in values.items()})


def sources(environment: Mapping[str, str] | None = None, servers: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """Return the value and source of each field set for a cluster; raise `UserError`, naming the unknown key."""
    environment = os.environ if environment is None else environment
    values = dict(_below)
    path = environment.get(VARIABLE)
    if path:
        of_cluster: dict[str, tuple[str, str]] = {}
        for number, section, key, value in _properties(Path(path)):
            if key not in KEYS:
                raise _unknown(f"{path}, line {number}: there is no such setting", key, KEYS)
            if section is None or section in servers:
                (values if section is None else of_cluster)[KEYS[key]] = value, path
        values |= of_cluster
    variables = {PREFIX + name.upper(): name for name in KEYS.values()}
    for variable, value in environment.items():
        # MURK_KAFKA_HOME tells a local broker where its files are.
        ours = variable.startswith(PREFIX) and variable not in (VARIABLE, PREFIX + "HOME")
        if ours and not is_of_service(variable, environment):
            if variable not in variables:
                raise _unknown(f"there is no setting {variable}", variable, variables)
            values[variables[variable]] = value, variable
    return values


def _warn_of_readable_files(given: Mapping[str, tuple[str, str]]) -> None:
    """Warn once about each file with a password that other users of the machine may read."""
    for name in sorted(SECRETS & given.keys()):
        source = given[name][1]
        if source.startswith(PREFIX) or source in _warned:
            continue
        try:
            status = os.stat(source)
        except OSError:
            continue
        # A service may need to read a file of root's through its group.
        group = stat.S_IRGRP if status.st_uid == os.geteuid() else 0
        if status.st_mode & (stat.S_IROTH | group):
            _warned.add(source)
            words = "%s holds a password (%s) and other users of this machine may read it (mode %04o): chmod 600 %s"
            _log.warning(words, source, name.replace("_", "."), stat.S_IMODE(status.st_mode), source)


def _properties(path: Path) -> Iterator[tuple[int, str | None, str, str]]:
    """Yield the number of each line with a setting, the bootstrap server of its section if any, key and value."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
        if len(text) > MOST_CHARACTERS:
            words = f"which has more than {MOST_CHARACTERS:,} characters: is it the right file?"
            raise UserError(f"{VARIABLE} names {path}, {words}", code="MURK-CONF-001")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{VARIABLE} names {path}, which cannot be read ({reason})", code="MURK-CONF-001") from error
    section = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            matched = _SECTION.fullmatch(line)
            if matched is None:
                raise UserError(f"{path}, line {number}: not a section: write [HOST:PORT]", code="MURK-CONF-001")
            section = matched[1]
            continue
        key, equals, value = line.partition("=")
        if not equals:
            # The line is not repeated: it may be a password without its key.
            raise UserError(f"{path}, line {number}: not a setting: write key=value", code="MURK-CONF-001")
        yield number, section, key.strip(), value.strip()


def _unknown(what: str, key: str, known: Mapping[str, str]) -> UserError:
    # Only a key that resembles a known one is quoted: anything else may be a password.
    near = get_close_matches(key, known, 1)
    there = f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
    return UserError(what + there, code="MURK-CONF-002")
