"""TLS towards clients, as openssl, redis-cli, redis-py and a client that writes single bytes see it."""

import functools
import itertools
import ssl
import subprocess

import pytest

from harness.certificates import certificates
from harness.resp import OK, PONG, encode, wait_for
from harness.tls import client_context, is_refused, s_client, start_with_tls

VERSIONS = ("TLSv1.2", "TLSv1.3")


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def make(redis, pool, make_headgate):
    """A Headgate whose clients speak TLS, in front of a Redis that does not."""
    return functools.partial(start_with_tls, make_headgate, redis, pool=pool)


@pytest.fixture
def make_shared(redis, make_headgate):
    """The same, where the pool has nothing to do with it."""
    return functools.partial(start_with_tls, make_headgate, redis)


@pytest.fixture
def headgate(make):
    return make()


def test_a_request_with_the_end_of_the_handshake(headgate, version):
    """What follows the handshake may be read along with it, after which the socket has nothing more to tell."""
    client = headgate.connect(client_context(version=version), handshake=False)
    peer = client.socket
    while not peer._try(peer.tls.do_handshake):
        peer._flush()
        peer._feed()
    if version == "TLSv1.2":
        peer._flush()
    peer.tls.write(encode("PING") * 3)
    peer.raw.sendall(peer.outgoing.read())
    assert client.read_many(3) == [PONG] * 3


def test_replies_come_after_close_notify(headgate, version):
    """The client says that it will send nothing more, and its socket stays open: as a half-closed socket."""
    client, other = (headgate.connect(client_context(version=version)) for _ in range(2))
    other.request("DEBUG", "SLEEP", 1)
    client.send(encode("GET", "k") + encode("ECHO", "last"))
    client.socket.close_notify()
    assert client.read() is None
    assert client.read() == b"last"
    client.assert_closed()
    assert other.read() == OK


def test_a_drain_ends_by_close_notify(make_shared):
    headgate = make_shared()
    clients = [headgate.connect() for _ in range(20)]
    assert [client("PING") for client in clients] == [PONG] * 20
    assert headgate.terminate() == 0
    assert all(client.socket.read_close_notify() for client in clients)


@pytest.mark.parametrize("only, other", [VERSIONS, VERSIONS[::-1]])
def test_one_version_alone(make_shared, only, other):
    headgate = make_shared(tls_protocols=only)
    assert headgate.connect(client_context(version=only))("PING") == PONG
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        headgate.connect(client_context(version=other))
    assert headgate.connect()("PING") == PONG


def test_versions_of_old_are_refused(headgate):
    for old in ["-tls1", "-tls1_1"]:
        said = s_client(headgate.address, old, "-cipher", "ALL:@SECLEVEL=0")
        assert "alert protocol version" in said and "PONG" not in said, old
        assert headgate.serves(), old


WEAK = "NULL:aNULL:RC4:3DES:DES:EXPORT:MD5:PSK:SRP:CAMELLIA:SEED:IDEA:kRSA"


def test_weak_ciphers_are_refused(headgate):
    said = s_client(headgate.address, "-tls1_2", "-cipher", f"{WEAK}:@SECLEVEL=0")
    assert "handshake failure" in said and "PONG" not in said


GROUPS = {"X25519": True, "P-256": True, "X448": False, "ffdhe8192": False}


def test_groups_that_cost_much_are_refused(make_shared):
    """A key exchange by ffdhe8192 takes the server ten milliseconds, and a client that does not do its part nothing."""
    headgate = make_shared()
    for name in GROUPS:
        assert ("Cipher is TLS_" in s_client(headgate.address, "-tls1_3", "-groups", name)) == GROUPS[name], name
        assert headgate.serves(), name


def session_of(client):
    """That of a connection on which something was said: TLS 1.3 sends tickets after the handshake."""
    assert client("PING") == PONG
    return client.socket.tls.session


def test_sessions_are_resumed(make, version):
    headgate = make(threads=4)
    context = client_context(version=version)
    session = session_of(headgate.connect(context))
    reused = 0
    for _ in range(12):
        client = headgate.connect(context, session=session)
        session = session_of(client)
        reused += client.socket.tls.session_reused
    assert reused == 12
    assert client("SET", "k", "v") == OK


def test_early_data_is_refused(headgate, tmp_path):
    """Anybody could send it again."""
    ticket, data = tmp_path / "ticket", tmp_path / "data"
    s_client(headgate.address, "-tls1_3", "-sess_out", ticket)
    data.write_bytes(encode("INCR", "early"))
    said = s_client(headgate.address, "-tls1_3", "-sess_in", ticket, "-early_data", data)
    assert "Early data was accepted" not in said
    assert headgate.connect()("GET", "early") is None


@pytest.mark.parametrize("version, letter", [("-tls1_2", b"R"), ("-tls1_3", b"K"), ("-tls1_3", b"k")])
def test_renegotiation_and_new_keys(headgate, version, letter):
    """By TLS 1.2 a client must not renegotiate; by 1.3 it may take new keys (K: and ask for some). Others do not see it."""
    other = headgate.connect()
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", "%s:%d" % headgate.address, "-CAfile", certificates().ca, version],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said = b""
    taken = (b"+PONG", b"RENEGOTIATING", b"", b"") if letter == b"R" else (b"+PONG", b"KEYUPDATE", b"behind", b"")
    try:
        for line, word in zip((b"PING\r\n", letter + b"\n", b"ECHO behind\r\n", b"QUIT\r\n"), taken):
            process.stdin.write(line)
            process.stdin.flush()
            # Each letter has to come alone.
            while word not in said and (more := process.stdout.read1()):
                said += more
    except BrokenPipeError:
        pass
    said += process.communicate(timeout=30)[0]
    assert b"+PONG" in said
    assert (b"behind" in said) == (version == "-tls1_3")
    assert other("PING") == PONG


BAD = ("client_expired", "client_stranger", "client_self_signed", "server")


@pytest.mark.parametrize("wanted", ["none", "optional", "required"])
def test_certificates_of_clients(make_shared, wanted):
    """Also where the file says otherwise by now, of an address that waits for a restart."""
    headgate = make_shared(client_certificates=wanted, tls_ca=certificates().ca, reload_on_change="off")
    headgate.write_config(listen="rediss://127.0.0.1:1", client_certificates="optional" if wanted == "none" else "none")
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
    for version, name in itertools.product(VERSIONS, [None, "client", *BAD]):
        identity = getattr(certificates(), name) if name else None
        refused = is_refused(lambda: headgate.connect(client_context(identity, version)))
        assert refused == (wanted != "none" and name in BAD or wanted == "required" and name is None), (version, name)
        assert headgate.connect(client_context(certificates().client))("PING") == PONG
