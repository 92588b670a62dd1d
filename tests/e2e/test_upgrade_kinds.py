"""What clients have and see over an upgrade: figures of [latency], identities, TLS, streams."""


from harness.certificates import certificates
from harness.latency import ON, on_record
from harness.resp import OK, wait_for
from harness.tls import client_context, towards_clients


def add_user(redis, user):
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", user, "on", f">{user}-word", "~*", "&*", "+@all") == OK


# ---- figures ----


def test_each_request_is_on_record_once(make_line, redis):
    """Each of three processes writes its own part of the minute, and the last of it when its clients are gone."""
    line = make_line(ON, threads=4)
    clients, sent = [], 0

    def ask_all(times):
        for client in clients:
            for _ in range(times):
                assert client("GET", "key") is None
        return times * len(clients)

    for _ in range(3):
        clients += [line.headgate.connect() for _ in range(3)]
        sent += ask_all(7)
        if len(clients) < 9:
            line.upgrade()
        sent += ask_all(5)
    # The first two end by themselves, the last one by a signal.
    for client in clients[:6]:
        assert client("GET", "key") is None
        client.close()
    line.await_end(line.pids[0])
    line.await_end(line.pids[1])
    for client in clients[6:]:
        assert client("GET", "key") is None
    line.finish()
    sums = on_record(redis)
    assert (sums["count"], sums["hist"]) == (sent + 9, sent + 9), sums


# ---- identities ----


def test_identities_with_credentials(make_line, redis):
    """Who comes as which user: the same in both; a user who is renewed is renewed for both."""
    add_user(redis, "app")
    rule = "[identity:here]\naddress = 127.0.0.1\nupstream_user = app\nupstream_password = {}\n"
    line = make_line(rule.format("app-word"))
    old = line.headgate.connect()
    assert old("ACL", "WHOAMI") == b"app"
    line.upgrade()
    fresh = line.headgate.connect()
    assert [old("ACL", "WHOAMI"), fresh("ACL", "WHOAMI")] == [b"app", b"app"]
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "app", ">second-word", "<app-word") == OK
    line.headgate.write_rules(rule.format("second-word"))
    with line.headgate.admin() as admin:
        admin("RELOAD")
    wait_for(lambda: line.headgate.log().count("the configuration was reloaded") == 2, 30, "both to have it")
    another = line.headgate.connect()
    assert [client("ACL", "WHOAMI") for client in (old, fresh, another)] == [b"app"] * 3


# ---- TLS ----


def test_tls_clients(make_line):
    """A ticket is good for the process that gave it: at the new one it is a handshake as of a new client."""
    line = make_line(
        "[identity:app]\ncertificate = cn:app\n", tls=True, client_certificates="optional", tls_ca=certificates().both_ca,
        **towards_clients(),
    )  # fmt: skip
    context = client_context()
    old = line.headgate.connect(context)
    assert old("SET", "key", "value") == OK
    line.upgrade()
    for _ in range(2):
        fresh = line.headgate.connect(context, session=old.socket.tls.session)
        assert fresh("GET", "key") == b"value" and not fresh.socket.tls.session_reused
    again = line.headgate.connect(context, session=fresh.socket.tls.session)
    assert again("GET", "key") == b"value" and again.socket.tls.session_reused
    assert old("GET", "key") == b"value"
