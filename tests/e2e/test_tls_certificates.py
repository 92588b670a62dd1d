"""What each kind of certificate gets, of a client and of Redis, in a full handshake and with a session of before; and what
-t says of files that are of no use."""

import collections
import datetime

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID as Use

from harness import tls
from harness import world as clocks
from harness.admin import stats
from harness.certificates import HERE, Authority, certificates, load
from harness.resp import OK, Closed, Error, wait_for
from harness.servers import run_headgate
from harness.tls import client_context

VERSIONS = ("TLSv1.2", "TLSv1.3")
# Seconds from now: where certificates of a test begin or end, and where the calendar is set to then. Redis' tickets last 300.
SOON, LATER, DAY = 120, 200, 86400
RULES = "[identity:app]\ncertificate = cn:app\n"


def at(seconds):
    return datetime.datetime.utcnow() + datetime.timedelta(seconds=seconds)


class World:
    """A certificate, whom to trust for it, and what becomes of them."""

    def __init__(self, directory, names, subject, use, begin=-DAY, end=DAY, authority_end=DAY, crl_end=None):
        self.ahead = 0  # the calendars of Headgates, in seconds
        self.authority = Authority("Headgate test issuer of a day", certificates().root, end=at(authority_end))
        self.identity = certificates().issue("of-a-day", names, subject, self.authority, use, at(begin), at(end))
        self.ca, self.crl = directory / "ca.pem", directory / "crl.pem"
        self.ca.write_bytes(certificates().ca.read_bytes())
        self.crl_end = crl_end and at(crl_end)
        self.revoke()

    def revoke(self, *revoked):
        self.crl.write_bytes(self.authority.revoke(*revoked, end=self.crl_end) + certificates().root.revoke())

    def start(self, headgate, prefix, **options):
        headgate.write_config(**{f"{prefix}_ca": self.ca, f"{prefix}_crl": self.crl if self.crl_end else None}, **options)
        with clocks.ahead(self.ahead):
            headgate.start()
        return headgate

    def set_calendar(self, headgate, seconds):
        self.ahead = seconds
        clocks.skew(headgate.process.pid, seconds)


def later(world, headgate):
    world.set_calendar(headgate, LATER)


def earlier(world, headgate):
    world.set_calendar(headgate, -LATER)


def reload(headgate):
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")


def revoked(world, headgate):
    world.revoke(load(world.identity))
    reload(headgate)


def distrusted(world, headgate):
    world.ca.write_bytes(certificates().other_ca.read_bytes())
    reload(headgate)


# made: how the certificate is, beside good. then: what happens once a session was made with it. client, redis: what that side
# gets then, in a full handshake and with the session.
Row = collections.namedtuple("Row", "made then client redis")
MANY = tuple(f"n{number}.example" for number in range(62))
TABLE = {
    "good": Row({}, None, "served resumed", "served resumed"),
    "expired": Row({"end": SOON}, later, "refused refused", "refused refused"),
    "its authority expired": Row({"authority_end": SOON}, later, "refused refused", "refused refused"),
    "too early": Row({"begin": -SOON}, earlier, "refused refused", "refused refused"),
    "revoked": Row({"crl_end": DAY}, revoked, "refused refused", "refused refused"),
    "list out of date": Row({"crl_end": SOON}, later, "refused refused", "refused refused"),
    "authority not trusted any more": Row({}, distrusted, "refused refused", "refused refused"),
    "another name": Row({"names": ["other.example"], "subject": "other"}, None, "denied denied", "refused refused"),
    "CN alone": Row({"names": []}, None, "served resumed", "refused refused"),
    "64 names": Row({"names": [*HERE[:2], *MANY]}, None, "served resumed", "served resumed"),
    "65 names": Row({"names": [*HERE, *MANY]}, None, "refused refused", "served resumed"),
}


def visit(headgate, context, session=None):
    """What a client gets, and its session."""
    try:
        with tls.connect(headgate.address, context, session=session) as client:
            answer, peer = client("PING"), client.socket.tls
            served = "resumed" if peer.session_reused else "served"
            return "denied" if isinstance(answer, Error) else served, peer.session
    except (OSError, Closed):
        return "refused", None


@pytest.mark.world
@pytest.mark.parametrize(("name", "version"), zip(TABLE, VERSIONS * len(TABLE)))
def test_of_a_client(redis, make_headgate, tmp_path, name, version):
    row = TABLE[name]
    world = World(tmp_path, **{"names": ["app.example"], "subject": "app", "use": Use.CLIENT_AUTH, **row.made})
    headgate = make_headgate(redis, start=False, tls=True, client_certificates="required", allow="identity:app",
                             reload_on_change="off")  # fmt: skip
    headgate.rules = RULES
    world.start(headgate, "tls", upstream=redis.url, upstream_ca=None)
    context = client_context(world.identity, version)
    before, session = visit(headgate, context)
    if row.then:
        assert before == "served"
        row.then(world, headgate)
    assert f"{visit(headgate, context)[0]} {visit(headgate, context, session)[0]}" == row.client
    assert stats(headgate)["tls_resumed_total"] == str(int("refused" not in row.client))


def lane_of(headgate, action):
    """What Redis gets by a lane that is opened after the action."""
    resumed = int(stats(headgate)["upstream_tls_resumed_total"])

    def is_known():
        answer = headgate.told("SET", "k", "v")
        return answer == OK or (isinstance(answer, Error) and "its certificate is not" in headgate.log())

    action()
    wait_for(is_known, what="a lane, or why there is none")
    if stats(headgate)["upstream_up"] == "0":
        return "refused"
    return "resumed" if int(stats(headgate)["upstream_tls_resumed_total"]) > resumed else "served"


@pytest.mark.world
@pytest.mark.parametrize(("name", "version"), zip(TABLE, VERSIONS[::-1] * len(TABLE)))
def test_of_redis(make_redis, make_headgate, tmp_path, name, version):
    """It is expected to be localhost, which is the CN of all, too."""
    row = TABLE[name]
    world = World(tmp_path, **{"names": HERE, "use": Use.SERVER_AUTH, **row.made, "subject": "localhost"})
    redis = make_redis("--tls-cert-file", world.identity.certificate, "--tls-key-file", world.identity.key,
                       "--tls-protocols", version, tls=True)  # fmt: skip

    def kill():
        with redis.connect() as direct:
            direct("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def start():
        headgate = make_headgate(f"rediss://localhost:{redis.tls_port}", start=False, tls=False, lanes=1, threads=1,
                                 upstream_wait="300ms", reload_on_change="off")  # fmt: skip
        return world.start(headgate, "upstream")

    fresh, again = row.redis.split()
    if row.then or fresh == "served":
        headgate = start()
        wait_for(lambda: headgate.told("SET", "k", "v") == OK, what="the first lane")
        if row.then:
            row.then(world, headgate)
        assert lane_of(headgate, kill) == again
    last = start()
    wait_for(lambda: stats(last)["upstream_up"] == "1" or "its certificate is not" in last.log(), what="its first lane")
    assert stats(last)["upstream_up"] == str(int(fresh == "served"))


@pytest.mark.parametrize("option, content, words", [
    ("tls_crl", lambda pki: pki.root.revoke(end=at(-DAY / 2)), "was to be renewed by now"),
    ("tls_ca", lambda pki: pki.root.pem() + Authority("Old", begin=at(-9 * DAY), end=at(-DAY)).pem(), "CN=Old has expired"),
    ("tls_ca", lambda pki: pki.root.pem() + pki.server.certificate.read_bytes(), "CN=server is no authority"),
    ("tls_certificate", lambda pki: pki.server.certificate.read_bytes() + pki.server.key.read_bytes(), "every user of this machine"),
    ("client_certificates", None, "certificate: no client is asked for one"),
])  # fmt: skip
def test_what_the_check_says(redis, make_headgate, tmp_path, option, content, words):
    """And does not say where all is well."""
    headgate = make_headgate(redis, start=False, tls=True, client_certificates="optional", tls_ca=certificates().ca)
    headgate.write_rules(RULES)
    assert words not in run_headgate("-t", "-c", headgate.config_path).stderr
    file = tmp_path / "file"
    if content:
        file.write_bytes(content(certificates()))
        file.chmod(0o644)
    headgate.write_config(**{option: file if content else "none"})
    assert words in run_headgate("-t", "-c", headgate.config_path).stderr
