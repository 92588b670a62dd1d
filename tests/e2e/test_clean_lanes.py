"""What a client leaves behind reaches nobody: a lane is given to another client only if every command on it is known to
leave nothing, and was answered as its success is. Attacks by renamed commands, hidden subscriptions and forged replies;
tests/words and tests/crosstalk have those on who gets the lane next.
"""

import itertools
import time

import pytest

from harness.admin import stats
from harness.resp import NULL, OK, Error, encode, wait_for
from harness.rules import launch

RENAMED = [
    option
    for name in ("client", "subscribe", "auth", "select", "hello", "multi", "monitor", "reset", "script")
    for option in ("--rename-command", name, f"k{name}")
]

RULES = "[deny:flush]\ncommands = flushall\nexcept = user:admin\n"


@pytest.fixture
def renamed(make_redis):
    redis = make_redis(*RENAMED)
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">pw", "allkeys", "allchannels", "+@all") == OK
        assert direct("ACL", "SETUSER", "admin", "on", ">secret", "allkeys", "allchannels", "+@all") == OK
    return redis


SHEBANG = '#!lua "x\\r\\n{}"\nreturn 1'
SPLITTERS = {
    "eval": lambda text: encode("EVAL", SHEBANG.format(text), 0),
    "eval_engine": lambda text: encode("EVAL", '#!"l\\r\\n{}"\nreturn 1'.format(text), 0),
    "eval_flags": lambda text: encode("EVAL", '#!lua "flags=x\\r\\n{}"\nreturn 1'.format(text), 0),
    "script_load": lambda text: encode("SCRIPT", "LOAD", SHEBANG.format(text)),
    "function_load": lambda text: encode("FUNCTION", "LOAD", '#!lua "foo=x\\r\\n{}"\nreturn 1'.format(text)),
    "function_engine": lambda text: encode("FUNCTION", "LOAD", '#!"lua\\r\\n{}" name=x\nreturn 1'.format(text)),
    # Those that only some servers say in several lines.
    "raised": lambda text: encode("EVAL", 'error("x\\r\\n{}")'.format(text), 0),
    "raised_table": lambda text: encode("EVAL", 'error({{err="x\\r\\n{}"}})'.format(text), 0),
    "function_list": lambda text: encode("FUNCTION", "LIST", f"x\r\n{text}"),
}


def test_an_error_of_several_lines_reaches_nobody_else(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    with headgate.connect() as victim, headgate.connect() as other:
        for name, splitter in SPLITTERS.items():
            forged = splitter("+forged") * 20
            for attack in (forged, encode("MULTI") + forged + encode("EXEC")):
                with headgate.connect() as attacker:
                    attacker.send(attack)
                    victim.send(encode("ECHO", "mine") * 20)
                    other.send((encode("EVAL", "return ARGV[1]", 0, "mine") + encode("MULTI") + encode("EXEC")) * 5)
                    assert victim.read_many(20) == [b"mine"] * 20, name
                    assert other.read_many(15) == [b"mine", OK, []] * 5, name
            victim.assert_silent(0.05)
    assert stats(headgate)["lanes_desynced_total"] == "0"


@pytest.fixture
def judged(renamed, make_headgate, pool):
    return launch(make_headgate, renamed, pool, RULES)


def assert_flush_is_refused(headgate, redis, attack):
    with redis.connect() as direct:
        direct("SET", "k", "v")
        with headgate.connect() as attacker:
            for part in (*attack, encode("FLUSHALL") * 3):
                try:
                    attacker.send(part)
                except OSError:
                    break
                time.sleep(0.02)
                direct("PUBLISH", "evil", "message")
            attacker.read_until_quiet(0.1)
        assert direct("GET", "k") == b"v", attack


ATTACKS = [
    (encode("ksubscribe", "evil"), encode("AUTH", "admin", "wrong")),
    (encode("SUBSCRIBE", "evil"), encode("AUTH", "admin", "wrong")),
    (encode("CLIENT", "REPLY", b"SKIP\0"), encode("SUBSCRIBE", "evil"), encode("kauth", "admin", "wrong")),
    (encode("kclient", "REPLY", "SKIP"), encode("GET", "x"), encode("kauth", "admin", "wrong"), encode("SET", "x", "y"),
     encode("SET", "x", "y")),
    (encode("kclient", "REPLY", "SKIP"), encode("kauth", "admin", "wrong"), encode("EVAL", "return {ok='OK'}", 0)),
    (encode("kclient", "REPLY", "OFF"), encode("kauth", "admin", "wrong"), encode("kclient", "REPLY", "ON")),
    (encode("HELLO", "3", b"AUTH\0x", "admin", "wrong"),),
    (encode("kauth", "admin", "wrong") + encode("EVAL", "return {ok='OK'}", 0),),
    (encode("kmulti"), encode("kauth", "admin", "wrong"), encode("EXEC")),
    (encode("REPLCONF", "listening-port", "1"), encode("kauth", "admin", "wrong")),
    (encode("SYNC", "x"),),
    (encode("PSYNC", "x"),),
    (encode("SYNC", "x"), encode("kauth", "admin", "wrong")),
    (encode("PSYNC", "?", "-1", "x", "y"), encode("GET", "x")),
]  # fmt: skip


def test_nobody_becomes_an_exception(judged, renamed):
    for attack in ATTACKS:
        assert_flush_is_refused(judged, renamed, attack)
        assert_flush_is_refused(judged, renamed, [b"".join(attack)])


def test_names_that_redis_does_not_tell_of(make_redis, make_headgate, pool):
    """Any of them may be AUTH, and nobody sees what it is answered."""
    password = "p" * 1_000_000
    redis = make_redis("--rename-command", "COMMAND", "", "--rename-command", "AUTH", "xauth")
    headgate = launch(make_headgate, redis, pool, RULES.replace("admin", "default"))
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">" + password, "allkeys", "+@all") == OK
        direct("SET", "k", "v")
        with headgate.connect() as client:
            client.send(encode("CLIENT", "REPLY", "SKIP") + encode("PING"))
            assert client("xauth", "low", password) == OK
            client.request("FLUSHALL")
            client.assert_closed()
        assert direct("GET", "k") == b"v"


def test_rules_hold_for_a_replica(redis, make_headgate, pool):
    """What Redis sends is no longer RESP; what the replica sends is."""
    headgate = launch(make_headgate, redis, pool, "[deny:config]\ncommands = config\n")
    with redis.connect() as direct:
        before = direct("CONFIG", "GET", "maxmemory-policy")
        with headgate.connect() as replica:
            replica.send(encode("SYNC"))
            assert replica.socket.recv(1) in (b"\n", b"$")
            replica.send(encode("CONFIG", "SET", "maxmemory-policy", "allkeys-random"))
            replica.read_to_end()
        assert direct("CONFIG", "GET", "maxmemory-policy") == before


def test_a_password_that_cannot_be_kept(redis, make_headgate, pool):
    """Redis takes it; whose rules apply then cannot be said."""
    plain, ruled = make_headgate(redis, pool=pool), launch(make_headgate, redis, pool, RULES)
    for number, password in enumerate((b"pa\0ss", b"\0")):
        with redis.connect() as direct:
            assert direct("ACL", "SETUSER", f"low{number}", "on", b">" + password, "allkeys", "+@all") == OK
        with plain.connect() as client:
            assert client("AUTH", f"low{number}", password) == OK
            assert client("ACL", "WHOAMI") == b"low%d" % number
        if pool == "shared":
            with plain.connect() as victim:
                assert victim.pipeline([("MULTI",), ("ACL", "WHOAMI"), ("EXEC",)])[-1] == [b"default"]
        with ruled.connect() as client:
            assert client("AUTH", f"low{number}", password) == OK
            client.request("GET", "x")
            client.assert_closed()


def test_auth_within_a_transaction_is_refused_where_rules_ask(redis, make_headgate, pool):
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">pw", "allkeys", "+@all") == OK
    ruled, plain = launch(make_headgate, redis, pool, RULES), make_headgate(redis, pool=pool)
    for command in (("AUTH", "low", "pw"), ("HELLO", 2, "AUTH", "low", "pw"), ("CLIENT", "SETNAME", "x")):
        with ruled.connect() as client:
            replies = client.pipeline([("MULTI",), command, ("SET", "k", "v"), ("EXEC",), ("ACL", "WHOAMI")])
            assert replies[1] == Error(b"ERR Command not allowed inside a transaction")
            assert replies[3].startswith(b"EXECABORT")
            assert replies[4] == b"default"
        with plain.connect() as client:
            assert client.pipeline([("MULTI",), command, ("EXEC",)])[1] == b"QUEUED"


def test_an_empty_line_ends_reply_skip(target):
    client = target.connect()
    for empty in (b"\r\n", b"*0\r\n", b"*-1\r\n", b"   \r\n", b"\n"):
        client.send(encode("CLIENT", "REPLY", "SKIP") + empty + encode("ECHO", "a") + encode("ECHO", "b"))
        assert client.read_many(2) == [b"a", b"b"]
        client.send(empty + encode("CLIENT", "REPLY", "SKIP") + encode("ECHO", "c") + empty + encode("ECHO", "d"))
        assert client.read() == b"d"


def test_reply_on_after_a_silent_subscription(target):
    """In RESP2 Redis refuses CLIENT REPLY ON of a subscriber, without a word."""
    client = target.connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SUBSCRIBE", "news") + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == [b"subscribe", b"news", 1]
    target.direct()("PUBLISH", "news", "1")
    assert client.read() == [b"message", b"news", b"1"]
    client.send(encode("UNSUBSCRIBE", "news"))
    assert client.read() == [b"unsubscribe", b"news", 0]
    client.send(encode("CLIENT", "REPLY", "ON") + encode("ECHO", "a"))
    assert client.read_many(2) == [OK, b"a"]


def test_tracking_leaves_no_trace_on_a_lane(redis, make_headgate):
    """Redis remembers by the connection what it has told, also after tracking has ended."""
    headgate = make_headgate(redis, pool="shared", exclusive_ready=0)
    with headgate.connect() as first:
        first("HELLO", 3)
        assert first("CLIENT", "TRACKING", "on") == OK
        first("GET", "private-key")
        assert first("CLIENT", "TRACKING", "off") == OK
        assert first("GET", "x") is NULL
        assert "lane=connection-state" in headgate.admin()("CLIENTS").decode()
    wait_for(lambda: stats(headgate)["lanes_exclusive"] == "0", what="the lane to be closed")
    with headgate.connect() as second:
        second("HELLO", 3)
        assert second("CLIENT", "TRACKING", "on") == OK
        with redis.connect() as direct:
            direct("SET", "private-key", "1")
        second.assert_silent()


MINE = b"$4\r\nmine\r\n"


def debugger_meets_another(connect, victim_connect, read):
    """Two who debug, one of whom leaves; another client comes; the first begins its session. What that client is sent."""
    with connect() as first:
        with connect() as second:
            replies = [first("SCRIPT", "DEBUG", "YES"), second("SCRIPT", "DEBUG", "YES")]
        time.sleep(0.1)
        with victim_connect() as victim:
            assert victim("ECHO", "mine") == b"mine"
            first.send(encode("EVAL", "return 1", 0))
            first.read_until_quiet(0.2)
            victim.send(encode("ECHO", "mine"))
            return replies, read(victim)


def test_the_debugger_of_scripts_reaches_nobody(redis, make_headgate):
    """Redis holds its session with whoever has the memory of a connection that debugged and was closed."""
    replies, sent = debugger_meets_another(redis.connect, redis.connect, lambda victim: victim.read_until_quiet(2))
    assert replies == [OK, OK] and sent != MINE, "this Redis has no such fault"
    headgate = make_headgate(redis, pool="shared")
    for _ in range(2):
        replies, sent = debugger_meets_another(
            headgate.connect, headgate.connect, lambda victim: victim.read_up_to(MINE) + victim.read_until_quiet()
        )
        assert [type(reply) for reply in replies] == [Error, Error]
        assert replies[0].startswith(b"ERR headgate: SCRIPT DEBUG")
        assert sent == MINE


def test_the_debugger_is_refused_within_a_transaction_and_by_any_spelling(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    for words in (("script", "debug", "sync"), ("SCRIPT", "DEBUG", b"YES\0x"), ("SCRIPT", "Debug", "EVIL"), ("SCRIPT", "DEBUG", "YES")):
        with headgate.connect() as client:
            assert client("SCRIPT", "DEBUG", "NO") == OK
            transaction = encode("MULTI") if words[2] == "YES" else b""
            client.send(transaction + encode(*words) + encode("EVAL", "return redis.call('SET', 'k', 'v')", 0))
            replies = client.read_many(2 if transaction else 1)
            assert replies[-1].startswith(b"ERR headgate: SCRIPT DEBUG")
            client.assert_closed()
    assert redis.connect()("EXISTS", "k") == 0, "whoever does not look at the answer would have written"


SUBSCRIBED = encode("SUBSCRIBE", "evil")
OFF, SKIP, ON = (encode("CLIENT", "REPLY", mode) for mode in ("OFF", "SKIP", "ON"))
RESET = encode("RESET")


def forged(reply):
    """Behind a CLIENT REPLY SKIP that Redis refuses, as an answer to what comes behind BLPOP: that is given the refusal."""
    return SKIP + encode("EVAL", f"return {reply}", 0) + encode("BLPOP", "nothing", "0.3")


# The rule is on all but the first two users; Redis lets the third one flush, and not the first two. It refuses CLIENT REPLY,
# to subscribers of RESP2 and to a user who may not use it, and answers everything: so does an answer to another request look
# like that to RESET or AUTH, and nobody may be taken for another than it is.
FORGERIES = (
    ("excepted", SUBSCRIBED + OFF, RESET), ("excepted", SUBSCRIBED + OFF + encode("GET", "x"), RESET),
    ("excepted", SUBSCRIBED + OFF + ON, RESET), ("excepted", SUBSCRIBED + SKIP + encode("PING"), RESET),
    ("excepted", SUBSCRIBED + OFF + ON + SKIP + encode("PING"), RESET), ("mute", OFF, RESET), ("mute", OFF + ON, RESET),
    ("mute", SKIP + encode("PING"), RESET), ("mute", OFF + encode("EVAL", "return {ok='RESET'}", 0), RESET),
    ("mute", SKIP + encode("EVAL", "return {err='ERR unknown command'}", 0), RESET),
    ("mute", forged("{err='WRONGPASS'}"), encode("AUTH", "default", "any")),
    ("mute", forged("{err='WRONGPASS'}"), encode("HELLO", "3", "AUTH", "default", "any")),
    ("mute", forged("{err='NOPERM'}"), RESET), ("plain", forged("{ok='OK'}"), encode("AUTH", "excepted", "wrong")),
    ("plain", forged("{1,2,3,4,5,6}"), encode("HELLO", "2", "AUTH", "excepted", "wrong")),
    ("plain", forged("{ok='RESET'}") + RESET + forged("{ok='OK'}"), encode("AUTH", "excepted", "wrong")),
    *(("plain", ahead + split("+OK") + behind, encode("AUTH", "excepted", "wrong"))
      for split, ahead, behind in zip(SPLITTERS.values(), itertools.cycle((b"", encode("MULTI"), encode("WATCH", "w"))),
                                      itertools.cycle((b"", encode("EXEC"), b"")))),
    *(("excepted", encode("EVAL", SHEBANG.format(line), 0), RESET) for line in ("-ERR unknown", "-NOPERM", "+RESET", "+OK")),
)


@pytest.mark.parametrize("pool, pipelined", (("shared", True), ("shared", False), ("session", True)))
def test_the_answer_to_another_request_makes_nobody_another_user(redis, make_headgate, pool, pipelined):
    with redis.connect() as direct:
        for user in ("excepted -@dangerous", "mute -@dangerous -client|reply", "plain -client|reply -reset"):
            name, *rights = user.split()
            assert direct("ACL", "SETUSER", name, "on", ">pw", "allkeys", "allchannels", "+@all", *rights) == OK
        assert direct("SET", "canary", "sings") == OK
        headgate = launch(make_headgate, redis, pool, "[deny:all]\ncommands = flushall\nexcept = user:excepted user:mute\n")
        for user, opening, change in FORGERIES:
            parts = [opening, change, encode("FLUSHALL") * 3]
            with headgate.connect() as client:
                assert client("AUTH", user, "pw") == OK
                for part in [b"".join(parts)] if pipelined else parts:
                    try:
                        client.send(part)
                    except OSError:
                        break
                    client.read_until_quiet(0.5 if b"BLPOP" in part else 0.1)
            assert direct("GET", "canary") == b"sings", (user, opening, change)


CHANGES = (("AUTH", "default", "any"), ("HELLO", 2, "SETNAME", "x"), ("RESET",), ("CLIENT", "SETNAME", "x"))


def test_where_rules_ask_who_said_client_reply_stays_who_it_is(redis, make_headgate, pool):
    headgate = launch(make_headgate, redis, pool, RULES)
    for changes, mode in itertools.product(CHANGES, (OFF + ON, SKIP + encode("SET", "x", "1") + ON)):
        with headgate.connect() as client:
            client.send(mode + encode("SET", "x", 2) + encode("GET", "x") + encode("FLUSHALL"))
            assert client.read_many(3) == [OK, OK, b"2"] and b"refused-by-headgate" in client.read()
            client.send(encode(*changes))
            client.read()
            client.request("GET", "x")
            client.assert_closed()


def test_a_client_whose_script_failed_may_become_another(redis, make_headgate, pool):
    """An honest error is one line: the fence behind it holds, and the client goes on, on the same connection."""
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">pw", "allkeys", "+@all") == OK
    headgate = launch(make_headgate, redis, pool, RULES)
    with headgate.connect() as client:
        failing = encode("EVAL", "return redis.error_reply('honest')", 0)
        client.send(encode("WATCH", "k") + failing + encode("AUTH", "low", "pw") + encode("ACL", "WHOAMI"))
        replies = client.read_many(4)
        assert replies[0] == OK and b"honest" in replies[1] and replies[2:] == [OK, b"low"]
        assert client("EVAL", "return redis.error_reply('honest')", 0).endswith(b"honest")
        client.send(failing + encode("RESET") + encode("ACL", "WHOAMI") + encode("GET", "x"))
        assert client.read_many(4)[1:] == [b"RESET", b"default", None]
        assert client("FLUSHALL").startswith(b"DENIED flush")


BEFORE_AUTH = (
    ("EVAL", "return 1", 0), ("EVALSHA", "0" * 40, 0), ("FCALL", "f", 0), ("SCRIPT", "LOAD", "return 1"),
    ("CLIENT", "REPLY", "OFF"), ("CLIENT", "REPLY", "SKIP"), ("CLIENT", "TRACKING", "ON"), ("SYNC",), ("MONITOR",),
)  # fmt: skip


def test_who_is_refused_before_auth_goes_on_behind_it(make_redis, make_headgate, pool):
    redis = make_redis("--requirepass", "pw")
    headgate = launch(make_headgate, redis, pool, RULES)
    for words in BEFORE_AUTH:
        told = []
        for connect in (redis.connect, headgate.connect):
            with connect() as client:
                told.append([client(*words), client("AUTH", "pw"), client("CLIENT", "SETNAME", "x"), client("GET", "x")])
        assert told[0] == told[1] and told[0][0].startswith(b"NOAUTH "), words


@pytest.mark.parametrize("rights", (("+@all",), ("+@all", "-ping")))
def test_a_lane_of_a_failed_script_is_used_again(redis, make_headgate, rights):
    """Behind a fence; for who may not PING it is closed, and nobody notices."""
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">pw", "allkeys", *rights) == OK
    headgate = make_headgate(redis, pool="shared")
    with headgate.connect() as client:
        assert client("AUTH", "low", "pw") == OK
        client("GET", "x")
        before = int(stats(headgate)["lanes_opened_total"])
        for _ in range(20):
            assert client("EVAL", "return redis.error_reply('honest')", 0).endswith(b"honest")
            assert client("EVAL", "return {1, 2}", 0) == [1, 2]
            assert client("GET", "x") is None
            time.sleep(0.005)
        opened = int(stats(headgate)["lanes_opened_total"]) - before
        assert opened <= 4 or "-ping" in rights
        assert "lane=shared" in headgate.admin()("CLIENTS").decode()
    assert stats(headgate)["lanes_lost_total"] == "0"


@pytest.mark.parametrize("pool, version", (("shared", "3"), ("session", "2")))
def test_subscribers_reset_behind_scripts(redis, make_headgate, pool, version):
    """They are not closed for it where there are rules, and every message reaches them."""
    headgate = launch(make_headgate, redis, pool, "[deny:all]\ncommands = flushall\n")
    with redis.connect() as direct, headgate.connect() as client:
        client("HELLO", version)
        for script in ("return 'fine'", "return {err='failed'}"):
            client.send(encode("EVAL", script, 0) + encode("SUBSCRIBE", "news", "more"))
            client.read_many(3)
            for number in range(50):
                direct("PUBLISH", "news", f"first-{number}")
                direct("PUBLISH", "news", "x" * 5000)
                if number == 25:
                    client.send(encode("PING", "mine") + encode("RESET") + encode("ECHO", "alive"))
            got = client.read_up_to(b"+RESET\r\n$5\r\nalive\r\n")
            assert b"mine" in got
            assert [b"first-%d\r\n" % number in got for number in range(26)] == [True] * 26
            client("HELLO", version)
        client.send(encode("EVAL", "return {err='failed'}", 0) + encode("SUBSCRIBE", "news") + encode("RESET") + encode("ECHO", "alive"))
        client.read_up_to(b"+RESET\r\n$5\r\nalive\r\n")
