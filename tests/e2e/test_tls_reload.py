"""New certificates, keys and authorities without one closed connection, and files that are no good."""

import re
import ssl

import pytest

from harness import tls
from harness.admin import stats
from harness.certificates import certificates
from harness.resp import OK, PONG, Error, wait_for
from harness.servers import run_headgate
from harness.tls import client_context, towards_clients
from harness.visitors import Stayers


@pytest.fixture
def files(tmp_path):
    """Copies of a certificate and its key, to be replaced: files.install(identity)."""

    class Files:
        certificate, key, ca = tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem"

        def install(self, identity, ca=None):
            self.certificate.write_bytes(identity.certificate.read_bytes())
            self.key.write_bytes(identity.key.read_bytes())
            self.key.chmod(0o600)
            self.ca.write_bytes((ca or certificates().ca).read_bytes())

    files = Files()
    files.install(certificates().server)
    return files


@pytest.fixture
def headgate(redis, pool, make_headgate, files):
    headgate = make_headgate(redis, pool=pool, start=False, tls=True)
    headgate.write_config(upstream_ca=None, upstream=redis.url, **towards_clients((files.certificate, files.key)))
    headgate.start()
    return headgate


def reload(headgate):
    with headgate.admin() as admin:
        return admin("RELOAD")


def shown(headgate, ca=None):
    """The serial number of the certificate that a new client is shown, or None if it does not trust that."""
    context = client_context(ca=ca or certificates().both_ca)
    try:
        with tls.connect(headgate.address, context) as client:
            assert client("PING") == PONG
            return client.socket.tls.getpeercert()["serialNumber"]
    except ssl.SSLError:
        return None


def trusts(headgate, ca):
    return shown(headgate, ca) is not None


def test_another_certificate_under_load(headgate, files):
    """With authority, back and forth."""
    load = Stayers(headgate.connect)
    subscriber, blocked = headgate.connect(), headgate.connect()
    assert subscriber("SUBSCRIBE", "news")[0] == b"subscribe"
    blocked.request("BLPOP", "queue", 0)
    before = shown(headgate)
    for turn in range(4):
        new = certificates().other_server if turn % 2 == 0 else certificates().server
        files.install(new)
        assert reload(headgate) == OK
        authority = certificates().other_ca if turn % 2 == 0 else certificates().ca
        wait_for(lambda: trusts(headgate, authority), what="the other certificate")
        load.await_more()
    assert shown(headgate) == before
    client = headgate.connect()
    assert client("PUBLISH", "news", "x") == 1 and client("RPUSH", "queue", "a") == 1
    assert subscriber.read()[2] == b"x" and blocked.read() == [b"queue", b"a"]
    load.end()
    assert load.faults == []


BROKEN = {
    "no file": lambda files: files.certificate.unlink(),
    "an empty file": lambda files: files.certificate.write_bytes(b""),
    "no certificate": lambda files: files.certificate.write_bytes(b"nonsense\n"),
    "half a certificate": lambda files: files.certificate.write_bytes(files.certificate.read_bytes()[:300]),
    "a key of another": lambda files: files.key.write_bytes(certificates().other_server.key.read_bytes()),
    "no key": lambda files: files.key.write_bytes(b"nonsense\n"),
    "a directory": lambda files: (files.certificate.unlink(), files.certificate.mkdir()),
}


def test_a_file_that_does_not_load_changes_nothing(headgate, files):
    """The check finds it, too."""
    before = shown(headgate)
    client = headgate.connect()
    for name, spoil in BROKEN.items():
        spoil(files)
        assert isinstance(reload(headgate), Error), name
        assert shown(headgate) == before and client("PING") == PONG
        result = run_headgate("-t", "-c", headgate.config_path)
        assert result.returncode == 1, name
        assert re.search(r"headgate\.ini:\d+: .*(tls_certificate|tls_key)", result.stderr), (name, result.stderr)
        wait_for(lambda: re.search(r"tls_certificate|tls_key|server\.(pem|key)", headgate.log()), what="why")
        if files.certificate.is_dir():
            files.certificate.rmdir()
        files.install(certificates().server)


def test_days_until_a_certificate_expires(headgate, files):
    """A counter, and below two weeks a warning."""
    days = {name: value for name, value in stats(headgate).items() if "days" in name}
    assert "89" in days.values() or "90" in days.values(), days
    files.install(certificates().expiring)
    assert reload(headgate) == OK
    wait_for(lambda: "5" in [value for name, value in stats(headgate).items() if "days" in name], what="5 days")
    wait_for(lambda: re.search(r"warning.*expires", headgate.log(), re.I), what="a warning")


def test_another_authority_for_redis_under_load(make_redis, make_headgate, pool, files):
    """Redis and Headgate move to other certificates: first both authorities are trusted, then Redis shows another."""
    redis = make_redis("--tls-auth-clients", "yes", tls=True)
    files.install(certificates().client)
    headgate = make_headgate(redis.tls_url, pool=pool, upstream_ca=files.ca, upstream_certificate=files.certificate,
                             upstream_key=files.key)  # fmt: skip
    load = Stayers(headgate.connect)
    load.await_more()
    files.ca.write_bytes(certificates().both_ca.read_bytes())
    assert reload(headgate) == OK
    load.await_more()
    with redis.connect() as direct:
        other = certificates().other_server
        assert direct("CONFIG", "SET", "tls-cert-file", other.certificate, "tls-key-file", other.key,
                      "tls-ca-cert-file", certificates().both_ca) == OK  # fmt: skip
    files.install(certificates().other_client, certificates().other_ca)
    assert reload(headgate) == OK
    load.await_more()
    # New lanes are made with the new ones.
    blocked = [headgate.connect() for _ in range(5)]
    for client in blocked:
        client.request("BLPOP", "queue", 0)
    with redis.connect() as direct:
        wait_for(lambda: b"blocked_clients:5" in direct("INFO", "clients"), what="five lanes more")
    load.await_more()
    load.end()
    assert load.faults == []


def test_verification_that_is_switched_on_by_a_reload(make_redis, make_headgate):
    """Lanes of before are not kept: they go to a server that nobody has verified."""
    wrong = certificates().wrong_host
    redis = make_redis("--tls-cert-file", wrong.certificate, "--tls-key-file", wrong.key, tls=True)
    headgate = make_headgate(redis.tls_url, upstream_ca=certificates().ca, upstream_verify="off", upstream_wait="300ms")
    wait_for(lambda: headgate.told("SET", "k", "v") == OK, what="the first lane")
    headgate.write_config(upstream_verify="on")
    assert reload(headgate) == OK
    with redis.connect() as direct:
        direct("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    wait_for(lambda: isinstance(headgate.told("GET", "k"), Error), what="a refusal")
