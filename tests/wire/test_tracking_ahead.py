"""What lanes are told of clients that have said CLIENT TRACKING ON OPTIN, word by word; and pushes that come meanwhile."""

import pytest

from harness.admin import stats
from harness.resp import OK, Closed, Error, Map, bulk, encode, wait_for

OPTIN = ("CLIENT", "TRACKING", "ON", "OPTIN")
FLUSHED = b">2\r\n$10\r\ninvalidate\r\n_\r\n"


class Said:
    """What the fake was told by CLIENT and MULTI, in order; answers: to say before or in place of OK."""

    def __init__(self, fake):
        self.words = []
        self.answers = {}
        for name in ("CLIENT", "MULTI", "EXEC", "BLPOP"):
            fake.answers[name] = self._answer
        fake.answers["PING"] = lambda _lane, arguments: bulk(arguments[1]) if arguments[1:] else b"+PONG\r\n"

    def _answer(self, _lane, arguments):
        words = " ".join(argument.decode() for argument in arguments)
        self.words.append(words)
        return self.answers.get(words, {"EXEC": b"*0\r\n", "BLPOP": b"*-1\r\n"}.get(words.split()[0], b"+OK\r\n"))


@pytest.fixture
def said(fake):
    return Said(fake)


@pytest.fixture
def headgate(fake, said, make_headgate):
    return make_headgate(fake.url, pool="shared", lanes=1, access_check=0, exclusive_ready=0)


def in_resp3(headgate):
    client = headgate.connect()
    assert isinstance(client("HELLO", 3), Map)
    return client


def ordinary(fake, client):
    client.request("GET", "k")
    fake.expect("GET", "k").reply(b"+v\r\n")
    assert client.read() == b"v"


def given_back(headgate):
    facts = stats(headgate)
    return int(facts["clients_exclusive"]) == 0 and int(facts["lanes_exclusive"]) == int(facts["lanes_pooled"])


def known_right(fake, headgate, said):
    """Redis has shown that the user may."""
    client = in_resp3(headgate)
    assert client(*OPTIN) == OK
    ordinary(fake, client)
    wait_for(lambda: given_back(headgate), what="the lane to be given back")
    assert said.words == ["CLIENT TRACKING ON OPTIN", "CLIENT TRACKING OFF"]
    said.words.clear()
    return client


def test_the_first_asks_and_the_others_do_not(fake, headgate, said):
    known_right(fake, headgate, said)
    for _ in range(3):
        client = in_resp3(headgate)
        assert client(*OPTIN) == OK
        ordinary(fake, client)
        assert client("CLIENT", "TRACKING", "OFF") == OK
    assert said.words == []


def test_told_ahead_of_what_shows_it_and_once(fake, headgate, said):
    client = known_right(fake, headgate, said)
    assert client("BLPOP", "q", 1) is not OK
    assert said.words == ["BLPOP q 1"]
    said.words.clear()
    for _ in range(2):
        client.send(encode("MULTI") + encode("EXEC") + encode("MULTI") + encode("EXEC"))
        assert client.read_many(4) == [OK, [], OK, []]
        ordinary(fake, client)
        wait_for(lambda: given_back(headgate), what="the lane to be given back")
        assert said.words == ["CLIENT TRACKING ON OPTIN", *["MULTI", "EXEC"] * 2, "CLIENT TRACKING OFF"]
        said.words.clear()
    assert client("CLIENT", "CACHING", "YES") == OK
    assert client("CLIENT", "CACHING", "YES") == OK
    assert said.words == ["CLIENT TRACKING ON OPTIN", *["CLIENT CACHING YES"] * 2]
    said.words.clear()
    client.close()
    wait_for(lambda: given_back(headgate), what="the lane to go")
    assert said.words == []


def test_what_comes_until_tracking_has_ended_is_nobodys(fake, headgate, said):
    client = known_right(fake, headgate, said)
    lanes = len(fake.open_lanes())
    said.answers["CLIENT TRACKING OFF"] = FLUSHED + b"+OK\r\n" + FLUSHED
    client.send(encode("MULTI") + encode("EXEC"))
    assert client.read_many(2) == [OK, []]
    ordinary(fake, client)
    wait_for(lambda: given_back(headgate), what="the lane to be given back")
    other = in_resp3(headgate)
    other.send(encode("MULTI") + encode("EXEC"))
    assert other.read_many(2) == [OK, []]
    ordinary(fake, other)
    assert len(fake.open_lanes()) == lanes
    wait_for(lambda: int(stats(headgate, "upstream")["pushes_dropped_total"]) == 2, what="both pushes to be dropped")
    for one in (client, other):
        one.assert_silent(0.02)
    assert int(stats(headgate, "upstream")["lanes_desynced_total"]) == 0


@pytest.mark.parametrize("answer", (b"-NOPERM no\r\n", b"-ERR what\r\n", b":1\r\n"))
def test_who_cannot_be_told_is_closed(fake, headgate, said, answer):
    client = known_right(fake, headgate, said)
    said.answers["CLIENT TRACKING ON OPTIN"] = answer
    client.send(encode("CLIENT", "CACHING", "YES") + encode("PING"))
    with pytest.raises((Closed, OSError)):
        client.read()


@pytest.mark.parametrize("answer", (b"-NOPERM no\r\n", b"-ERR unknown subcommand\r\n", b":1\r\n", b"+QUEUED\r\n"))
def test_what_is_not_ok_opts_nobody_in(fake, headgate, said, answer):
    said.answers["CLIENT TRACKING ON OPTIN"] = answer
    client = in_resp3(headgate)
    for _ in range(3):
        reply = client(*OPTIN)
        assert isinstance(reply, Error) == (answer[:1] == b"-")
    assert said.words == ["CLIENT TRACKING ON OPTIN"] * 3
    said.words.clear()
    client.send(encode("MULTI") + encode("EXEC"))
    assert client.read_many(2) == [OK, []]
    assert said.words == ["MULTI", "EXEC"]
