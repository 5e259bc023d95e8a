"""A broker that lets nobody in without a password or a certificate, nor do anything without permission."""

from functools import cached_property

from deploy.broker import Broker, ports

PASSWORDS = {
    "admin": "admin-7Jq2",  # may do everything
    "device": "device-x9Lw",
    "learner": "learner-Tz41",
    "nobody": "nobody-m3Rd",  # can log in, and is allowed nothing
}


class SecureBroker(Broker):
    """A broker with TLS, in two ways: with a password (``url``), and with a certificate of one's own (``ssl_url``).

    ``authority`` signed the broker's certificate, ``stranger`` did not. Whoever shows a certificate with
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
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
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

    def allow(self, user, kind, name, *operations, prefix=False):
        """Permit a user operations on a resource: ``allow("device", "TOPIC", "t", "WRITE", "DESCRIBE")``.

        With ``prefix`` the permission holds for all names that start with ``name``.
        """
        from kafka.admin import (
            ACL,
            ACLOperation,
            ACLPermissionType,
            ACLResourcePatternType,
            KafkaAdminClient,
            ResourcePattern,
            ResourceType,
        )

        reach = ACLResourcePatternType.PREFIXED if prefix else ACLResourcePatternType.LITERAL
        resource = ResourcePattern(ResourceType[kind], name, reach)
        permissions = [
            ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, resource)
            for operation in operations
        ]
        admin = KafkaAdminClient(**self.client("admin"))
        try:
            refused = admin.create_acls(permissions)["failed"]
        finally:
            admin.close()
        assert not refused, refused

    def allow_task(self, name):
        """What devices and learners of a task need, and no more."""
        everything = f"murk-{name}-"
        self.allow("device", "TOPIC", f"{everything}releases", "WRITE", "DESCRIBE")
        self.allow("device", "TOPIC", f"{everything}models", "READ", "DESCRIBE")
        self.allow("learner", "TOPIC", everything, "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", prefix=True)
        self.allow("learner", "GROUP", f"murk-{name}", "READ", "DESCRIBE")
        self.allow("learner", "TRANSACTIONAL_ID", everything, "WRITE", "DESCRIBE", prefix=True)


def _write(path, lines):
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path
