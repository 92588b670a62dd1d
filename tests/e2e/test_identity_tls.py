"""Who a client is by its certificate, and who is let in by it."""

import pytest

from harness import tls
from harness.admin import stats, text
from harness.certificates import certificates
from harness.resp import OK, PONG, Closed, Error, wait_for
from harness.rules import launch, reload
from harness.tls import client_context, towards_clients

DENIED = Error(b"DENIED headgate: this client may not connect here (options allow and refuse)")


def identity(name, *options):
    return "\n".join([f"[identity:{name}]", *options]) + "\n"


@pytest.fixture
def make(redis, pool, make_headgate):
    """Clients may show a certificate, and need not."""

    def start(rules, redis=redis, **options):
        options = {"client_certificates": "optional", "tls_ca": certificates().both_ca, **options}
        return launch(make_headgate, redis, pool, rules, tls=True, **towards_clients(**options))

    return start


def connect(headgate, identity=None, version=None, session=None):
    return tls.connect(headgate.address, client_context(identity, version), session=session)


def identities_of(headgate):
    with headgate.admin() as admin:
        lines = text(admin("CLIENTS")).splitlines()
    return sorted(field[len("identity=") :] for line in lines for field in line.split() if field.startswith("identity="))


def has_identity(headgate, client, name):
    assert client("PING") == PONG
    wait_for(lambda: identities_of(headgate) == [name], what=f"{name}, in place of {identities_of(headgate)}")
    return True


VERSIONS = ("TLSv1.2", "TLSv1.3")

WORDS = (
    ("cn:a*", True), ("san:dns:APP.example", True), ("san:uri:spiffe://here/*", True), ("cn:app issuer:*other*", False),
)


def test_a_certificate(make):
    headgate = make("")
    for words, fits in WORDS:
        reload(headgate, identity("me", f"certificate = {words}"))
        for version in VERSIONS:
            with connect(headgate, certificates().client, version) as client:
                assert has_identity(headgate, client, "me" if fits else ""), words


def test_the_same_name_by_another_authority(make):
    """Both are trusted: the name alone does not say which."""
    headgate = make(identity("ours", "certificate = cn:app issuer:*test?issuer*") + identity("app", "certificate = cn:app"))
    with connect(headgate, certificates().client) as client:
        assert has_identity(headgate, client, "ours")
    with connect(headgate, certificates().other_client) as client:
        assert has_identity(headgate, client, "app")


def test_its_own_user_from_the_first_request_on(make, redis, pool):
    with redis.connect() as direct:
        for name in ("app", "guest"):
            assert direct("ACL", "SETUSER", name, "on", "resetpass", f">{name}-secret", "~*", "&*", "+@all") == OK
    rules = identity("app", "certificate = cn:app", "upstream_user = app", "upstream_password = app-secret")
    rules += identity("guest", "address = ip:127.0.0.1", "upstream_user = guest", "upstream_password = guest-secret")
    headgate = make(rules)
    for _ in range(3):
        with connect(headgate, certificates().client) as client:
            answers = client.pipeline([("ACL", "WHOAMI"), ("MULTI",), ("ACL", "WHOAMI"), ("EXEC",)])
            assert (answers[0], answers[3]) == (b"app", [b"app"])
            client("RESET")
            assert client("ACL", "WHOAMI") == b"app"
        with connect(headgate) as client:
            assert client("ACL", "WHOAMI") == b"guest"


def first_words(headgate, identity=None, version=None):
    """What a client hears that asks at once; None: it is closed without a word, perhaps within the handshake."""
    try:
        with connect(headgate, identity, version) as client:
            client.request("PING")
            answer = client.read()
            if isinstance(answer, Error):
                with pytest.raises((Closed, OSError)):
                    client("PING")
            return answer
    except (Closed, OSError):
        return None


@pytest.mark.parametrize("version", VERSIONS)
def test_only_who_shows_the_certificate(make, version):
    headgate = make(identity("app", "certificate = cn:app issuer:*test?issuer*"), allow="identity:app")
    assert first_words(headgate, certificates().client, version) == PONG
    assert first_words(headgate, None, version) == DENIED
    assert first_words(headgate, certificates().other_client, version) == DENIED
    assert stats(headgate)["clients_denied_total"] == "2"
    headgate.await_log("identity none: allow and refuse")
    wait_for(lambda: stats(headgate)["clients_connected"] == "0", what="all to be gone")


def test_nothing_of_the_refused_is_done(make, redis):
    headgate = make(identity("app", "certificate = cn:app"), refuse="identity:app")
    for _ in range(20):
        with connect(headgate, certificates().client) as client:
            client.send(b"*2\r\n$4\r\nINCR\r\n$9\r\nuntouched\r\n" * 50)
            assert client.read() == DENIED
    with redis.connect() as direct:
        assert direct("EXISTS", "untouched") == 0


def test_an_address_is_refused_without_a_handshake(make):
    headgate = make("", refuse="ip:127.0.0.1")
    assert first_words(headgate, certificates().client) is None
    found = stats(headgate)
    assert found["clients_denied_total"] >= "1" and found["tls_handshakes_total"] == "0"
