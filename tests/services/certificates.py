"""Certificate authorities that last a day, and what they sign."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority of its own; ``path`` is its certificate (PEM)."""

    def __init__(self, folder, name):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._sign(self._name, self._key.public_key(), authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(self._certificate))

    def issue(self, name, password=None):
        """Paths of a new certificate for ``CN=name`` on this machine and of its key, the latter with a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(_pem(self._sign(_named(name), key.public_key(), authority=False)))
        secret.touch(mode=0o600)
        secret.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked),
        )
        return certificate, secret

    def _sign(self, name, public, *, authority):
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        else:
            places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates):
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
