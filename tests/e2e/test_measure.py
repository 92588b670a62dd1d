"""Measuring, shown by headgate-probe's meter: each request that has a reply gives one sample, whatever became of it."""

import re
import time

import pytest

from harness.admin import stats, text
from harness.probe import PROBE_BINARY
from harness.resp import OK, Closed, Error, encode, wait_for
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


def test_what_passes_as_bytes_has_no_sample(meter):
    """Which reply is whose is not known behind CLIENT REPLY, whether there are replies or not."""
    client = connect(meter)
    client.send(encode("INCR", "a") + encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "v" * BEYOND_CUT_THROUGH))
    client.send(encode("CLIENT", "REPLY", "ON") + encode("STRLEN", "a"))
    assert client.read_many(3) == [1, OK, BEYOND_CUT_THROUGH]
    assert meter.names() == ["incr"]


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


# And longer than what is read at once.
BEYOND_CUT_THROUGH = 400_000


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
