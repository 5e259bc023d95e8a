"""A broker that lets nobody in without a password or a certificate, nor do anything without permission."""

import time
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from deploy.broker import Broker, ports

PASSWORDS = {
    "archiver": "archiver-Lp37",
    "admin": "admin-7Jq2",  # may do everything
    "operator": "operator-Kd08",
    "device": "device-x9Lw",
    "gateway": "gateway-Vb55",
    "learner": "learner-Tz41",
    "reader": "reader-Hc17",
    "shuffler": "shuffler-Qe62",
    "nobody": "nobody-m3Rd",  # can log in, and is allowed nothing
}


class Right(NamedTuple):
    """Operations that a role needs on a resource; where that is ``NAME`` or ``PARTITION``, each log's own."""

    role: str
    kind: str
    resource: str
    operations: tuple[str, ...]
    why: str


# Names in full and no prefixes: a right to whatever begins with murk-a- is one to the log a-b as well.
RIGHTS = (
    Right("operator", "TOPIC", "murk-NAME-releases", ("CREATE", "DESCRIBE", "ALTER_CONFIGS"), "set it up"),
    Right("operator", "TOPIC", "murk-NAME-models",
          ("CREATE", "ALTER_CONFIGS", "READ", "WRITE"), "set it up, announce the task"),
    Right("operator", "TOPIC", "murk-NAME-states", ("CREATE", "DESCRIBE", "ALTER_CONFIGS"), "set it up"),
    Right("operator", "TOPIC", "murk-NAME-dead-letters",
          ("CREATE", "DESCRIBE", "ALTER_CONFIGS"), "set it up"),
    Right("operator", "TOPIC", "murk-NAME-estimates",
          ("CREATE", "DESCRIBE", "ALTER_CONFIGS"), "set it up, if it is wanted"),
    Right("operator", "TRANSACTIONAL_ID", "murk-NAME-task", ("WRITE",), "announce the task once"),
    Right("device", "TOPIC", "murk-NAME-releases", ("WRITE",), "send releases"),
    Right("device", "TOPIC", "murk-NAME-models", ("READ",), "read the task and the newest models"),
    Right("gateway", "TOPIC", "murk-NAME-releases", ("WRITE",), "send releases"),
    Right("gateway", "TOPIC", "murk-NAME-models", ("READ",), "read the task and the newest models"),
    Right("gateway", "TOPIC", "murk-NAME-states", ("READ",), "wait until learners have caught up"),
    Right("learner", "TOPIC", "murk-NAME-releases", ("READ",), "learn them"),
    Right("learner", "TOPIC", "murk-NAME-models", ("READ", "WRITE"), "read the task, publish models"),
    Right("learner", "TOPIC", "murk-NAME-states", ("READ", "WRITE"), "commit what was learned"),
    Right("learner", "TOPIC", "murk-NAME-dead-letters", ("WRITE",), "keep what could not be learned"),
    Right("learner", "TOPIC", "murk-NAME-estimates", ("WRITE",), "publish the newest estimate"),
    Right("learner", "GROUP", "murk-NAME", ("READ",), "share the partitions"),
    Right("learner", "TRANSACTIONAL_ID", "murk-NAME-PARTITION", ("WRITE",), "own a partition"),
    Right("archiver", "TOPIC", "murk-NAME-releases", ("READ",), "copy them"),
    Right("archiver", "TOPIC", "murk-NAME-models", ("READ",), "read the task"),
    Right("archiver", "TOPIC", "murk-NAME-states", ("READ",), "copy the models that people answered at"),
    Right("archiver", "TOPIC", "murk-NAME-dead-letters", ("DESCRIBE",), "see that the log is the same one"),
    Right("reader", "TOPIC", "murk-NAME-releases", ("DESCRIBE",), "see how far behind learners are"),
    Right("reader", "TOPIC", "murk-NAME-models", ("READ",), "read the task and the newest models"),
    Right("reader", "TOPIC", "murk-NAME-states", ("READ",), "read what was learned"),
    Right("reader", "TOPIC", "murk-NAME-dead-letters", ("READ",), "list them"),
    Right("reader", "TOPIC", "murk-NAME-estimates", ("READ",), "read the newest estimate"),
)  # fmt: skip
"""What each role needs, and no more. READ and WRITE include DESCRIBE, ALTER_CONFIGS includes DESCRIBE_CONFIGS."""

SHUFFLER_RIGHTS = (
    Right("shuffler", "TOPIC", "murk-INPUT-releases", ("READ", "DELETE"), "take them in, and delete them"),
    Right("shuffler", "TOPIC", "murk-INPUT-models", ("READ", "WRITE"), "read the task, relay the log's models"),
    Right("shuffler", "TOPIC", "murk-INPUT-states", ("READ", "WRITE"), "commit what was taken in"),
    Right("shuffler", "TOPIC", "murk-INPUT-dead-letters", ("DESCRIBE",), "see that the log is the same one"),
    Right("shuffler", "TRANSACTIONAL_ID", "murk-INPUT-PARTITION", ("WRITE",), "own a partition of the input log"),
    Right("shuffler", "TOPIC", "murk-NAME-releases", ("WRITE",), "append crowds"),
    Right("shuffler", "TOPIC", "murk-NAME-models", ("READ", "WRITE"), "read task and models, keep its mark"),
    Right("shuffler", "TOPIC", "murk-NAME-states", ("DESCRIBE",), "see that the log is the same one"),
    Right("shuffler", "TOPIC", "murk-NAME-dead-letters", ("DESCRIBE",), "see that the log is the same one"),
    Right("shuffler", "TRANSACTIONAL_ID", "murk-NAME-shuffler", ("WRITE",), "append a crowd as one"),
)
"""What a shuffler needs, of input log and log. On the input log devices, gateways and the operator have `RIGHTS`."""


class SecureBroker(Broker):
    """A broker with TLS, in two ways: with a password (``url``), and with a certificate of one's own (``ssl_url``).

    ``authority`` signed the broker's certificate, ``stranger`` did not. Anyone who shows a certificate with
    ``CN=device`` is the same user as who logs in as ``device``. ``allow`` and ``allow_task`` permit; at first
    only ``admin`` may do anything.
    """

    def __init__(self, folder, *, port=None):
        super().__init__(folder, port=port)
        self._held.append(ports.reserve())
        self._ssl_port = ports.number(self._held[-1])
        self.secrets = self.folder / "secrets"

    @property
    def ssl_bootstrap(self):
        return f"127.0.0.1:{self._ssl_port}"

    @property
    def ssl_url(self):
        return f"kafka://{self.ssl_bootstrap}"

    @cached_property
    def authority(self):
        return self._authority("authority")

    @cached_property
    def stranger(self):
        return self._authority("stranger")

    def _authority(self, name):
        from tests.services.certificates import Authority

        folder = self.secrets / name
        folder.mkdir(parents=True, exist_ok=True)
        return Authority(folder, name)

    @cached_property
    def _keystore(self):
        certificate, key = self.authority.issue("broker")
        both = self.secrets / "broker.pem"
        both.touch(mode=0o600)
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        return both

    def users(self):
        return PASSWORDS

    def settings(self, log):
        listeners = f"SASL_SSL://{self.bootstrap},SSL://{self.ssl_bootstrap}"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **super().settings(log),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            # The broker speaks to itself with its certificate, so that no open door is left.
            "inter.broker.listener.name": "SSL",
            "listener.security.protocol.map": "CONTROLLER:SSL,SSL:SSL,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.path),
            "ssl.client.auth": "required",
            "listener.name.sasl_ssl.ssl.client.auth": "none",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            # Tokens without a signature, as of a test.
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:broker",
        }

    def client(self, user, *, password=None, authority=None):
        """Options of a kafka-python client that logs in with a password (by default the right one)."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORDS[user] if password is None else password,
            "ssl_cafile": str((authority or self.authority).path),
        }

    def properties(self, path, user, *, password=None, authority=None):
        """Write a client's properties file (``MURK_KAFKA_CONFIG``) for a login with a password; its path."""
        return _write(
            path,
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": PASSWORDS[user] if password is None else password,
                "ssl.ca.file": (authority or self.authority).path,
            },
        )

    def token_properties(self, path, command):
        """The same for a login with a token that a command prints."""
        lines = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.token.command": command}
        return _write(path, lines | {"ssl.ca.file": self.authority.path})

    def ssl_properties(self, path, user, *, signer=None, authority=None, key_password=None):
        """The same for ``ssl_url``: with a new certificate of the user, signed by ``signer``."""
        certificate, key = (signer or self.authority).issue(user, key_password)
        lines = {
            "security.protocol": "SSL",
            "ssl.ca.file": (authority or self.authority).path,
            "ssl.certificate.file": certificate,
            "ssl.key.file": key,
        }
        return _write(path, lines | ({"ssl.key.password": key_password} if key_password else {}))

    def allow(self, user, kind, name, *operations):
        """Permit a user operations on a resource: ``allow("device", "TOPIC", "t", "WRITE", "DESCRIBE")``."""
        self._permit(_rules(user, kind, name, operations))

    def forbid(self, user, kind, name, *operations):
        """Take back what was permitted."""
        with self._admin() as admin:
            filters = list(map(_filter, _rules(user, kind, name, operations)))
            admin.delete_acls(filters)
            _until(lambda: not any(admin.describe_acls(one)[0] for one in filters))

    def allow_task(self, name, *roles, partitions=1):
        """Permit the roles (by default all) what `RIGHTS` says, for the log of that name."""
        self._permit([
            rule
            for right in RIGHTS
            if not roles or right.role in roles
            for resource in right_names(right, name, partitions)
            for rule in _rules(right.role, right.kind, resource, right.operations)
        ])  # fmt: skip

    def allow_shuffler(self, input_log, name, partitions=1):
        """Permit a shuffler what `SHUFFLER_RIGHTS` says."""
        self._permit([
            rule
            for right in SHUFFLER_RIGHTS
            for resource in right_names(right, name, partitions, input_log)
            for rule in _rules(right.role, right.kind, resource, right.operations)
        ])  # fmt: skip

    def _permit(self, rules):
        waiting = list(map(_filter, rules))

        def are_there():
            waiting[:] = [one for one in waiting if not admin.describe_acls(one)[0]]
            return not waiting

        with self._admin() as admin:
            refused = admin.create_acls(rules)["failed"]
            assert not refused, refused
            _until(are_there)

    @contextmanager
    def _admin(self):
        from tests.services.clients import KafkaAdminClient

        admin = KafkaAdminClient(**self.client("admin"))
        try:
            yield admin
        finally:
            admin.close()


def right_names(right, name, partitions, input_log=""):
    """Names of the resources of a right, for the log of that name, and its input log."""
    resource = right.resource.replace("NAME", name).replace("INPUT", input_log)
    return (
        [resource.replace("PARTITION", str(partition)) for partition in range(partitions)]
        if "PARTITION" in resource
        else [resource]
    )


def _rules(user, kind, name, operations):
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    resource = ResourcePattern(ResourceType[kind], name)
    return [
        ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, resource) for operation in operations
    ]


def _filter(rule):
    from kafka.admin import ACLFilter, ResourcePatternFilter

    pattern = rule.resource_pattern
    return ACLFilter(
        rule.principal, rule.host, rule.operation, rule.permission_type,
        ResourcePatternFilter(pattern.resource_type, pattern.resource_name, pattern.pattern_type),
    )  # fmt: skip


def _until(look):
    """The broker acts on a change of its lists a moment after it took it."""
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _write(path, lines):
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path
