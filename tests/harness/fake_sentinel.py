"""Sentinels that say what the test has them say."""

from harness import tls
from harness.fake_redis import FakeRedis
from harness.resp import bulk
from harness.sentinel import NAME

NOBODY = b"*-1\r\n"


class FakeSentinel(FakeRedis):
    """place: (host, port) of the master as it says; None: it knows none. answer: what it answers in place of that. is_slow:
    it keeps those who ask waiting."""

    def __init__(self, server=None):
        super().__init__()
        self.place = place_of(server) if server else None
        self.answer = None
        self.is_slow = False
        self.waiting = []
        self.listeners = []
        self.asked = 0
        self.answers.update(SENTINEL=self._sentinel, SUBSCRIBE=self._subscribe)

    def answer_at_last(self, word=None):
        """Those who were kept waiting while it was slow. word: what it would have said then."""
        self.is_slow = False
        for lane in self.waiting:
            lane.send(word or self.word())

    def word(self):
        return NOBODY if self.place is None else b"*2\r\n" + bulk(self.place[0]) + bulk(self.place[1])

    def _sentinel(self, lane, arguments):
        assert [part.upper() for part in arguments[:2]] == [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"], arguments
        assert arguments[2] == NAME.encode()
        self.asked += 1
        if self.answer is not None:
            return self.answer
        if self.is_slow:
            self.waiting.append(lane)
            return b""
        return self.word()

    def _subscribe(self, lane, arguments):
        self.listeners.append(lane)
        confirmations = [
            b"*3\r\n" + bulk("subscribe") + bulk(channel) + b":%d\r\n" % number
            for number, channel in enumerate(arguments[1:], 1)
        ]
        return b"".join(confirmations)

    def announce(self, channel, message):
        for lane in self.listeners:
            if not lane.closed_by_peer:
                lane.send(b"*3\r\n" + bulk("message") + bulk(channel) + bulk(message))

    def says(self, server):
        self.place = place_of(server) if server else None

    def switches_to(self, server):
        """Says so, and announces it."""
        before = self.place or ("127.0.0.1", 1)
        self.says(server)
        self.announce("+switch-master", f"{NAME} {before[0]} {before[1]} {self.place[0]} {self.place[1]}")


def place_of(server):
    return (server.host, (server.tls_port or server.port) if tls.is_usual() else server.port)


def url_of(sentinels, name=NAME):
    hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
    return f"sentinel{'s' if tls.is_usual() else ''}://{hosts}/{name}"
