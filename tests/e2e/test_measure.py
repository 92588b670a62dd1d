"""Measuring, shown by headgate-probe's meter: each request that has a reply gives one sample, whatever became of it."""

import re
import signal
import threading
import time

import pytest

from harness.admin import stats, text
from harness.probe import PROBE_BINARY
from harness.resp import OK, QUEUED, Closed, Error, encode, wait_for
from harness.servers import Headgate

LINE = re.compile(
    r"(?P<what>\w+) (?P<name>[\w|-]+) count=(?P<count>\d+) error=(?P<error>\d+) local=(?P<local>\d) in=(?P<in>\d+) out=(?P<out>\d+) "
    r"queued=(?P<queued>-?\d+) took=(?P<took>-?\d+) written=(?P<written>-?\d+) head=(?P<head>.*)"
)


class Meter(Headgate):
    def __init__(self, upstream, rules="[meter:all]\n", asked="all", **options):
        super().__init__(upstream, start=False, **options)
        self.write_rules(rules)
        self.launch(["env", f"HEADGATE_PROBE_ASKED={asked}", PROBE_BINARY, "-c", str(self.config_path)])
        self.await_port(self.address)
        self.kept = []

    def read(self):
        """All that was measured up to now and not forgotten by clear(), without PINGs."""
        with self.admin() as admin:
            lines = text(admin("METER")).splitlines()
        self.spots = int(lines.pop().split()[1])
        for line in lines:
            sample = LINE.fullmatch(line).groupdict()
            for name in ("count", "error", "local", "in", "out", "queued", "took", "written"):
                sample[name] = int(sample[name])
            self.kept.append(sample)
        return self.kept

    def clear(self):
        self.read()
        self.kept = []

    def names(self):
        return [sample["name"] for sample in self.read()]


@pytest.fixture
def make_meter():
    meters = []

    def make(upstream, **options):
        meters.append(Meter(upstream, **options))
        return meters[-1]

    yield make
    for meter in meters:
        meter.finish()


@pytest.fixture
def meter(redis, pool, make_meter):
    return make_meter(redis, pool=pool)


def connect(meter):
    client = meter.connect()
    assert client("ECHO", "here") == b"here"
    meter.clear()
    return client


def test_each_request_gives_a_sample(meter):
    client = connect(meter)
    assert client("SET", "a", "1") == OK
    assert client("GET", "a") == b"1"
    assert isinstance(client("INCR", "a", "too", "many"), Error)
    assert isinstance(client("NOSUCH", "a"), Error)
    samples = meter.read()
    assert [(sample["name"], sample["error"], sample["local"]) for sample in samples] == [
        ("set", 0, 0),
        ("get", 0, 0),
        ("incr", 1, 0),
        ("unknown", 1, 0),
    ]
    assert [sample["in"] for sample in samples[:2]] == [len(encode("SET", "a", "1")), len(encode("GET", "a"))]
    assert [sample["out"] for sample in samples[:2]] == [5, 7]
    assert all(sample["what"] == "sample" and sample["head"] == "" for sample in samples)


def test_pipelines_keep_requests_apart(meter):
    client = connect(meter)
    commands = []
    for i in range(500):
        commands += [("SET", f"k{i}", "x" * i), ("GET", f"k{i}"), ("LPOP", f"k{i}"), ("PING",), ("SELECT", "0")]
    replies = client.pipeline(commands)
    samples = meter.read()
    assert [sample["name"] for sample in samples] == [command[0].lower() for command in commands]
    for command, reply, sample in zip(commands, replies, samples):
        assert sample["in"] == len(encode(*command))
        assert sample["error"] == isinstance(reply, Error), command
    assert [sample["out"] for sample in samples[1::5]] == [len(f"${i}\r\n") + i + 2 for i in range(500)]
    assert len(commands) // 127 <= meter.spots < len(commands) / 8


def test_keys_may_make_another_tag(meter):
    client = connect(meter)
    client.pipeline([("SET", "meter:a", "1"), ("SET", "b", "1"), ("set", "meter:", "1"), ("SET", "mete", "1")])
    assert meter.names() == ["asked", "set", "asked", "set"]


def test_transactions(meter):
    client = connect(meter)
    replies = client.pipeline([("MULTI",), ("INCR", "n"), ("NOSUCH",), ("EXEC",), ("MULTI",), ("INCR", "n"), ("EXEC",)])
    assert replies[1] == QUEUED and isinstance(replies[3], Error) and replies[6] == [1]
    samples = meter.read()
    assert [(sample["name"], sample["error"]) for sample in samples] == [
        ("multi", 0),
        ("incr", 0),
        ("unknown", 1),
        ("exec", 1),
        ("multi", 0),
        ("incr", 0),
        ("exec", 0),
    ]


def test_answers_of_headgate_are_local(meter, pool):
    client = connect(meter)
    assert client("CLIENT", "SETNAME", "me") == OK
    assert isinstance(client("GET", "probe:reply:x"), Error)
    assert client("QUIT") == OK
    samples = meter.read()
    quit_is_local = int(pool == "shared")
    assert [(sample["local"], sample["error"]) for sample in samples][1:] == [(1, 1), (quit_is_local, 0)]
    assert samples[0]["error"] == 0


def test_what_is_held_has_waited(meter):
    client = connect(meter)
    assert client("SET", "probe:hold:150:x", "1") == OK
    assert client("SET", "after", "1") == OK
    held, after = meter.read()
    assert held["queued"] >= 150000 and held["took"] >= held["queued"]
    assert after["queued"] < held["queued"]


def test_redis_time_is_told_apart(meter, redis):
    client = connect(meter)
    with redis.connect() as direct:
        direct("CONFIG", "SET", "enable-debug-command", "yes")
    client("DEBUG", "SLEEP", "0.2")
    client("BLPOP", "nothing", "0.3")
    slept, blocked = meter.read()
    assert (slept["name"], blocked["name"]) == ("debug", "blpop")
    if not slept["error"]:
        assert 200000 <= slept["took"] and slept["took"] - slept["queued"] >= 200000
    assert blocked["took"] >= 300000


def test_long_requests_and_replies(meter):
    client = connect(meter)
    value = "v" * 3_000_000
    assert client("SET", "long", value) == OK
    assert client("RPUSH", "list", *["x" * 50_000] * 20) == 20
    assert client("GET", "long") == value.encode()
    assert client("PING") == b"PONG"
    samples = meter.read()
    assert [sample["name"] for sample in samples] == ["set", "rpush", "get", "ping"]
    assert samples[0]["in"] == len(encode("SET", "long", value))
    assert samples[1]["in"] == len(encode("RPUSH", "list", *["x" * 50_000] * 20))
    assert samples[2]["out"] == len(f"${len(value)}\r\n") + len(value) + 2


def test_what_passes_as_bytes_has_no_sample(meter):
    """Which reply is whose is not known behind CLIENT REPLY, whether there are replies or not."""
    client = connect(meter)
    client.send(encode("INCR", "a") + encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "v" * BEYOND_CUT_THROUGH))
    client.send(encode("CLIENT", "REPLY", "ON") + encode("STRLEN", "a"))
    assert client.read_many(3) == [1, OK, BEYOND_CUT_THROUGH]
    assert meter.names() == ["incr"]


def test_subscribers_stay_in_step(meter):
    other = connect(meter)
    client = connect(meter)
    client.send(encode("SUBSCRIBE", "a", "b"))
    assert [client.read()[1] for _ in range(2)] == [b"a", b"b"]
    assert other("PUBLISH", "a", "m") == 1
    assert client.read() == [b"message", b"a", b"m"]
    client.send(encode("UNSUBSCRIBE"))
    assert {client.read()[1] for _ in range(2)} == {b"a", b"b"}
    assert client("STRLEN", "x") == 0
    assert client("SET", "x", "1") == OK
    names = meter.names()
    assert names[-2:] == ["strlen", "set"] and names.count("subscribe") == 1 and names.count("unsubscribe") == 1


def test_lost_requests_are_errors(meter, redis):
    client = connect(meter)
    client.send(encode("BLPOP", "nothing", "0"))
    wait_for(lambda: b"blocked_clients:1" in redis.connect()("INFO", "clients"), what="the client to be blocked")
    redis.kill()
    with pytest.raises(Closed):
        client.read()
    wait_for(lambda: "blpop" in meter.names(), what="the sample")
    (lost,) = [sample for sample in meter.kept if sample["name"] == "blpop"]
    assert (lost["error"], lost["local"]) == (1, 0)


def test_who_goes_has_no_reply(meter, redis):
    """Redis lets go of a blocked client whose connection ends: that request was not answered."""
    client = connect(meter)
    client.send(encode("BLPOP", "nothing", "0"))
    wait_for(lambda: b"blocked_clients:1" in redis.connect()("INFO", "clients"), what="the client to be blocked")
    client.close()
    wait_for(lambda: b"blocked_clients:0" in redis.connect()("INFO", "clients"), what="the client to be gone")
    assert all(sample["error"] for sample in meter.read())
    other = connect(meter)
    assert other("STRLEN", "x") == 0
    assert meter.names() == ["strlen"]


def test_slow_ones_are_told_again_with_their_heads(redis, pool, make_meter):
    meter = make_meter(redis, pool=pool, rules="[meter:all]\nslower = 100ms\n")
    client = connect(meter)
    assert client("SET", "quick", "1") == OK
    assert client("SET", "probe:hold:150:x", "value") == OK
    # On a busy machine the quick one may be told of again, too.
    wait_for(lambda: len(samples_of(meter, "probe:hold")) == 2, what="the slow one to be written")
    quick, (slow, written) = samples_of(meter, "quick")[0], samples_of(meter, "probe:hold")
    assert written["what"] == "written"
    assert quick["head"] == "*3..$3..SET..$5..quick..$1..1.."
    assert slow["head"] == "*3..$3..SET..$16..probe:hold:150:x..$5..value.." == written["head"]
    assert written["written"] >= 0 and written["took"] == slow["took"]
    assert client("SET", "y" * 1000, "1") == OK
    assert len(meter.read()[-1]["head"]) == 256


def samples_of(meter, word):
    return [sample for sample in meter.read() if word in sample["head"]]


GATHERING = "[meter:all]\ngather = 200\n"
STALL = "local t = redis.call('TIME') repeat local n = redis.call('TIME') until (n[1]-t[1])*1e6+n[2]-t[2] > {}"


def sums(samples, name):
    """(requests, errors, bytes in, bytes out) of all samples of that name."""
    mine = [sample for sample in samples if sample["name"] == name]
    return tuple(sum(sample[figure] for sample in mine) for figure in ("count", "error", "in", "out"))


def test_pipelines_are_told_of_together(redis, pool, make_meter):
    """Which requests share a sample depends on how they came; what the samples add up to does not."""
    meter = make_meter(redis, pool=pool, rules=GATHERING, asked="nothing")
    client = connect(meter)
    commands = [("SET", "a", "1")] * 100 + [("GET", "a")] * 300 + [("LPOP", "a")] * 50 + [("GET", "a"), ("STRLEN", "a")]
    client.pipeline(commands)
    samples = meter.read()
    wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    assert sums(samples, "set") == (100, 0, 100 * len(encode("SET", "a", "1")), 500)
    assert sums(samples, "get") == (301, 0, 301 * len(encode("GET", "a")), 301 * 7)
    assert sums(samples, "lpop") == (50, 50, 50 * len(encode("LPOP", "a")), 50 * len(wrong))
    assert sums(samples, "strlen") == (1, 0, len(encode("STRLEN", "a")), 4)
    assert len(samples) < len(commands) / 4
    names = [sample["name"] for sample in samples]
    assert names == sorted(names, key=["set", "get", "lpop", "strlen"].index) or names[-2:] == ["get", "strlen"]


def test_large_ones_of_a_pipeline_are_alone(redis, pool, make_meter):
    meter = make_meter(redis, pool=pool, rules=GATHERING, asked="nothing")
    client = connect(meter)
    sizes = [1, 300, 1, 1, 300, 300, 1]
    client.pipeline([("SET", f"k{size}", "x" * size) for size in sizes])
    client.pipeline([("GET", f"k{size}") for size in sizes])
    samples = meter.read()
    large = [sample for sample in samples if max(sample["in"] // sample["count"], sample["out"] // sample["count"]) >= 200]
    assert [(sample["name"], sample["count"]) for sample in large] == [("set", 1)] * 3 + [("get", 1)] * 3
    assert {sample["in"] for sample in large[:3]} == {len(encode("SET", "k300", "x" * 300))}
    assert {sample["out"] for sample in large[3:]} == {len("$300\r\n") + 302}
    assert sums(samples, "set")[0] == sums(samples, "get")[0] == 7


@pytest.mark.parametrize("rules", (GATHERING, "[meter:all]\ngather = 200\nslower = 1h\n"))
def test_a_pipeline_answered_in_pieces(redis, pool, make_meter, rules):
    """A script in the middle of the pipeline parts the replies, and its requests come cut anywhere."""
    meter = make_meter(redis, pool=pool, rules=rules, asked="nothing")
    client = connect(meter)
    commands = ([("INCR", f"key{'y' * (i % 40)}") for i in range(200)] + [("EVAL", STALL.format(20000), "0")]) * 3
    sent = b"".join(encode(*command) for command in commands)
    for start in range(0, len(sent), 997):
        client.send(sent[start : start + 997])
    replies = client.read_many(len(commands))
    samples = meter.read()
    assert [reply for reply in replies if isinstance(reply, Error)] == []
    count, errors, bytes_in, bytes_out = sums(samples, "incr")
    assert (count, errors) == (600, 0)
    assert bytes_in == 3 * sum(len(encode(*command)) for command in commands[:200])
    assert bytes_out == sum(len(f":{reply}\r\n") for reply in replies if reply is not None)
    assert sums(samples, "eval")[:2] == (3, 0)


@pytest.mark.parametrize("asked", ("all", "nothing"))
def test_slow_ones_of_a_pipeline_have_their_own_heads(redis, pool, make_meter, asked):
    """Quick requests, a slow script, and what had to wait behind it: each slow one is told of again as it was."""
    meter = make_meter(redis, pool=pool, rules="[meter:all]\ngather = 200\nslower = 150ms\n", asked=asked)
    client = connect(meter)
    late = [("SETEX", f"late{i}", "9", "y" * i) for i in range(30)]
    quick = [("SETEX", f"quick{i}", "9", "x" * i) for i in range(30)]
    commands = quick + [("EVAL", STALL.format(200000), "0"), *late]
    client.pipeline(commands)
    wait_for(lambda: len(told_again(meter)) >= 31, what="the slow ones to be written")
    heads = [sample["head"] for sample in told_again(meter)]
    assert len(set(heads)) == len(heads)
    assert set(heads) <= {encode(*command)[:256].decode().replace("\r\n", "..").replace(" ", ".") for command in commands}
    assert {encode(*command).decode().replace("\r\n", "..") for command in late} <= set(heads)
    assert sums([sample for sample in meter.kept if sample["what"] == "sample"], "setex")[0] == 60


def told_again(meter):
    return [sample for sample in meter.read() if sample["what"] == "written"]


def test_measuring_begins_and_ends_with_a_reload(meter, redis):
    client = connect(meter)
    waits = meter.connect()
    waits.send(encode("BLPOP", "list", "0"))
    wait_for(lambda: b"blocked_clients:1" in redis.connect()("INFO", "clients"), what="the client to be blocked")

    def reload(rules):
        meter.write_rules(rules)
        meter.signal(signal.SIGHUP)

    reload("")
    def is_measured():
        meter.clear()
        client("SET", "a", "1")
        return meter.names() == ["set"]

    wait_for(lambda: not is_measured(), what="the end of measuring")
    assert client("RPUSH", "list", "x") == 1
    assert waits.read() == [b"list", b"x"]
    assert waits("GET", "a") == b"1"
    waits.send(encode("BLPOP", "list", "0"))
    wait_for(lambda: b"blocked_clients:1" in redis.connect()("INFO", "clients"), what="the client to be blocked")
    reload("[meter:all]\n")
    wait_for(is_measured, what="measuring again")
    assert client("RPUSH", "list", "y") == 1
    assert waits.read() == [b"list", b"y"]
    meter.clear()
    assert waits("STRLEN", "a") == 1
    assert meter.names() == ["strlen"]


def test_what_was_noted_before_measuring_ended_is_forgotten(redis, make_meter):
    """A request waits for its lane while a reload ends measuring: later ones are measured as themselves again."""
    meter = make_meter(redis, pool="shared", asked="nothing")
    floods, client = [meter.connect() for _ in range(6)], connect(meter)
    data, sent = encode("SET", "big", "x" * 15000) * 1300, []

    def waits():
        # One that came before the lane was full has left.
        client.send(encode("GET", "slow"))
        sent.append(None)
        with meter.admin() as admin:
            lines = text(admin("CLIENTS")).splitlines()
        address = "addr=%s:%d " % client.socket.getsockname()
        return any(address in line and " qbuf=0 " not in line for line in lines)

    def reload(rules):
        meter.write_rules(rules)
        with meter.admin() as admin:
            for _ in range(2):  # the second is taken when the first is done
                wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")

    redis.signal(signal.SIGSTOP)
    senders = [threading.Thread(target=flood.send, args=(data,), daemon=True) for flood in floods]
    for sender in senders:
        sender.start()
    time.sleep(1)
    wait_for(waits, what="the request to wait")
    reload("")
    redis.signal(signal.SIGCONT)
    assert client.read_many(len(sent)) == sent
    for flood in floods:
        flood.read_many(1300)
    reload("[meter:all]\n")
    meter.clear()
    for number in (1, 2, 3):
        assert client("INCR", "n") == number
    assert meter.names() == ["incr", "incr", "incr"]


@pytest.mark.threads
def test_under_load(redis, make_meter):
    meter = make_meter(redis, pool="shared")
    clients = [connect(meter) for _ in range(20)]
    meter.clear()
    for client in clients:
        client.send(b"".join(encode("INCR", f"n{i % 7}") + encode("GET", "n") for i in range(200)))
    for client in clients:
        client.read_many(400)
    names = meter.names()
    assert len(names) == 8000 and names.count("incr") == 4000


# And longer than what is read at once.
BEYOND_CUT_THROUGH = 400_000


def seen(meter):
    return [(sample["name"], sample["in"]) for sample in meter.read()]


def test_long_requests_that_are_kept_count_whole(meter):
    """Of some more comes while they wait, or while a policy waits for the rest."""
    client = connect(meter)
    for key, blocker in (("probe:whole:a", ()), ("a", ("EVAL", STALL.format(50_000), "0"))):
        for cut in (50, 1000, 70_000):
            data = encode("SET", key, "v" * BEYOND_CUT_THROUGH)
            meter.clear()
            client.send((encode(*blocker) if blocker else b"") + data[:cut])
            time.sleep(0.02)
            client.send(data[cut:] + encode("GET", "b"))
            client.read_many(3 if blocker else 2)
            assert seen(meter)[-2:] == [("set", len(data)), ("get", len(encode("GET", "b")))], (key, cut)


def test_a_pipeline_is_told_again_in_its_order(redis, pool, make_meter):
    meter = make_meter(redis, pool=pool, rules="[meter:all]\nslower = 1us\n")
    client = connect(meter)
    keys = [f"k{i}" for i in range(50)]
    client.pipeline([("SET", key, "1") for key in keys])
    wait_for(lambda: len(told_again(meter)) >= len(keys), what="all of them to be written")
    told = [re.search(r"k\d+", sample["head"])[0] for sample in told_again(meter) if sample["name"] == "set"]
    assert told == [key for key in keys if key in told]


def send_until_read(meter, client, *command):
    """When it was sent; at the end Headgate has read it."""

    def bytes_in():
        return int(stats(meter)["client_bytes_in_total"])

    before = bytes_in()
    sent = time.monotonic()
    client.request(*command)
    wait_for(lambda: bytes_in() >= before + len(encode(*command)), what="Headgate to read it")
    return sent


def test_what_waits_behind_others_has_waited(meter):
    """Each from when it came itself, not from when something came last."""
    client, other = connect(meter), connect(meter)
    client.request("SET", "probe:wait:x", "1")
    for name in ("GET", "STRLEN", "EXISTS"):
        send_until_read(meter, client, name, "x")
        time.sleep(0.1)
    assert other("GET", "probe:release:x") == OK
    client.read_many(4)
    took = {sample["name"]: sample["took"] / 1e6 for sample in meter.read()}
    assert took["get"] >= took["strlen"] + 0.1 >= took["exists"] + 0.2


def test_much_that_waits_for_long(meter):
    """More reads than there are marks of a ms: their times are kept apart, within a part of the wait."""
    client, other = connect(meter), connect(meter)
    client.request("SET", "probe:wait:x", "1")
    sent = [send_until_read(meter, client, "STRLEN", "x") for _ in range(150)]
    time.sleep(0.3)
    assert other("GET", "probe:release:x") == OK
    client.read_many(151)
    end = time.monotonic()
    took = [sample["took"] / 1e6 for sample in meter.read() if sample["name"] == "strlen"]
    assert took == sorted(took, reverse=True)
    assert all(time_taken <= end - since for time_taken, since in zip(took, sent))
    assert took[0] - took[-1] >= (sent[-1] - sent[1]) * 0.9
