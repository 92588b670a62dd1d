"""Certificates of a run of the tests: authorities, servers and clients, good ones and every kind of bad one.

All are made at once, when the first is asked for, and go with the process. Keys are on P-256: that is quick.
"""

import atexit
import collections
import datetime
import functools
import ipaddress
import pathlib
import shutil
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.utcnow()
# Names that a certificate of 127.0.0.1 is asked for.
HERE = ("localhost", "127.0.0.1", "::1")

# certificate: what a server sends (the leaf and what is between it and the root); key; ca: whom to trust for it.
Identity = collections.namedtuple("Identity", "certificate key")


class Authority:
    """Signs certificates. parent: who signed its own; None: itself."""

    def __init__(self, name, parent=None, begin=NOW - DAY, end=NOW + 365 * DAY):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = common_name(name)
        self.parent = parent
        signer = parent or self
        builder = certificate_builder(self.name, signer.name, self.key, begin, end)
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True).add_extension(
            x509.KeyUsage(*[use in (5, 6) for use in range(9)]), critical=True
        )
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def chain(self):
        """What is sent behind a leaf: all up to the root, which whoever trusts it has."""
        return self.pem() + self.parent.chain() if self.parent else b""

    def revoke(self, *certificates, end=None):
        """The list of what it has revoked."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(NOW - DAY).next_update(end or NOW + 30 * DAY)
        for certificate in certificates:
            revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(NOW)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def load(identity):
    return x509.load_pem_x509_certificate(identity.certificate.read_bytes())


def common_name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate_builder(name, issuer, key, begin, end):
    return (
        x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    )


def alternative(name):
    """An alternative name, by what it looks like; with "uri:" or "email:" before it, of that kind."""
    kind, _, rest = name.partition(":")
    if kind == "uri":
        return x509.UniformResourceIdentifier(rest)
    if kind == "email":
        return x509.RFC822Name(rest)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Certificates:
    """A directory of them, by attributes: .server is what Headgate or Redis shows clients, .ca is whom clients trust."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="headgate-test-certificates-"))
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        # Those who drop their rights read them, too.
        self.directory.chmod(0o755)
        self.root = Authority("Headgate test root")
        self.issuer = Authority("Headgate test issuer", self.root)
        self.other_root = Authority("Headgate other root")
        self.stranger_root = Authority("Unknown root")
        self.ca = self._write("ca.pem", self.root.pem())
        self.other_ca = self._write("other-ca.pem", self.other_root.pem())
        self.both_ca = self._write("both-ca.pem", self.root.pem() + self.other_root.pem())
        self._make_servers()
        self._make_clients()

    def _make_servers(self):
        self.server = self.issue("server", HERE)
        self.other_server = self.issue("other-server", HERE, authority=self.other_root)
        self.wrong_host = self.issue("wrong-host", ("elsewhere.example", "192.0.2.1"))
        self.named = self.issue("named", ("redis.example",))
        self.expired = self.issue("expired", HERE, begin=NOW - 30 * DAY, end=NOW - DAY)
        self.expiring = self.issue("expiring", HERE, end=NOW + 5 * DAY + DAY / 2)
        self.stranger = self.issue("stranger", HERE, authority=self.stranger_root)
        self.nul_name = self.issue("nul-name", (), subject="localhost\0.evil.example")
        self.nul_alternative = self.issue("nul-alternative", ("localhost\0.evil.example",))

    def _make_clients(self):
        use = ExtendedKeyUsageOID.CLIENT_AUTH
        self.client = self.issue("client", ("app.example", "uri:spiffe://here/app"), subject="app", use=use)
        self.other_client = self.issue("other-client", (), subject="app", use=use, authority=self.other_root)
        self.client_expired = self.issue("client-expired", (), subject="app", use=use, begin=NOW - 3 * DAY, end=NOW - DAY)
        self.client_stranger = self.issue("client-stranger", (), subject="app", use=use, authority=self.stranger_root)
        self.client_self_signed = self.issue("client-self-signed", (), subject="app", use=use, authority=None)
        self.client_nul = self.issue("client-nul", (), subject="app\0.evil", use=use)

    def issue(self, name, names, subject=None, authority="issuer", use=ExtendedKeyUsageOID.SERVER_AUTH,
              begin=NOW - DAY, end=NOW + 90 * DAY):  # fmt: skip
        """Writes a certificate for these names, with its chain, and its key. authority None: it signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = self.issuer if authority == "issuer" else authority
        own = common_name(subject or name)
        builder = certificate_builder(own, authority.name if authority else own, key, begin, end)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([alternative(one) for one in names]), False)
        leaf = builder.sign(authority.key if authority else key, hashes.SHA256())
        pem = leaf.public_bytes(serialization.Encoding.PEM) + (authority.chain() if authority else b"")
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Identity(self._write(f"{name}.pem", pem), self._write(f"{name}.key", private, 0o600))

    def _write(self, name, content, mode=0o644):
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(mode)
        return path


@functools.lru_cache(maxsize=1)
def certificates():
    return Certificates()
