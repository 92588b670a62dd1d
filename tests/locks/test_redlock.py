"""RedLock through one Headgate before five masters, by the libraries that have it; one of the masters dies."""

import signal
import time

import pytest

from harness.leases import WORD
from harness.resp import PONG, wait_for
from harness.servers import Headgate, Redis, Server
from harness.several import Several
from laboratory import NAME, PATIENCE, RULE, Program
from libraries import GO, NODE, hash_lock, java, string

MASTERS = [f"m{number}" for number in range(1, 6)]
LEASE = 4000
REDISSON = "redisson-4.7.0-redlock"
LIBRARIES = {
    "redsync": (GO, "redsync", string, ""),
    "node-redlock-5": (NODE, "node-redlock-5", string, ""),
    REDISSON: (java("4.7.0"), "redlock", hash_lock, "prolong_explicit = yes\n"),
}


class Five:
    """Five masters, a Headgate with a server for each, and programs that lock over all of them."""

    def __init__(self, library):
        self.program, self.argument, self.token_of, rule = LIBRARIES[library]
        self.redis, self.programs, self.several = {}, [], None
        try:
            for name in MASTERS:
                self.redis[name] = Redis()
            bounds = {"upstream_wait": "200ms", "upstream_reply_timeout": "1s", "connect_timeout": "500ms"}
            self.several = Several(Headgate, self.redis, f"{RULE}ttl = {LEASE}ms\n{rule}", own={"m2": bounds})
            mine = [*self.redis.values(), self.several.headgate]
            Server.running[:] = [other for other in Server.running if other not in mine]
        except BaseException:
            self.end()
            raise

    def start(self):
        ports = ",".join(str(self.several.ports[name]) for name in MASTERS)
        words = [*self.program, "127.0.0.1", ports, self.argument, *([LEASE] if self.program[0] == "java" else [])]
        headgate = self.several.headgate
        self.programs.append(Program(list(map(str, words)), headgate.directory / f"program-{len(self.programs)}"))
        return self.programs[-1]

    def tokens(self, names=MASTERS):
        """Who has the lock, on each."""
        found = {}
        for name in names:
            with self.redis[name].connect() as look:
                found[name] = self.token_of(look, NAME, LEASE)
        return found

    def await_holders(self, names):
        """Some libraries have the lock as soon as most have given it, and go on to ask the others."""
        wait_for(lambda: all(self.tokens(names).values()), PATIENCE, "a holder on each")

    def assert_kept(self, names, seconds):
        """By the same owner, which has a token for each in some libraries, and one for all in others."""
        self.await_holders(names)
        tokens, end = self.tokens(names), time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.tokens(names) == tokens
            time.sleep(0.05)

    def leases(self):
        lines = self.several.ask("LEASES").splitlines()
        return {dict(WORD.findall(line))["server"] for line in lines}

    def end(self):
        try:
            for program in self.programs:
                program.end()
            if self.several:
                self.several.headgate.finish()
        finally:
            for redis in self.redis.values():
                redis.discard()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_redlock_outlives_a_master(library):
    five = Five(library)
    try:
        one, other = five.start(), five.start()
        assert one.ask("acquire", NAME, LEASE)
        assert not other.ask("acquire", NAME, LEASE)
        five.assert_kept(MASTERS, 1.5 * LEASE / 1000)
        assert five.leases() == set(MASTERS), "each is renewed by itself"
        five.redis["m2"].kill()
        alive = [name for name in MASTERS if name != "m2"]
        wait_for(lambda: five.several.stat("upstream_up", "m2") == 0, PATIENCE, "the dead one to be missed")
        five.assert_kept(alive, 1.5 * LEASE / 1000)
        assert not other.ask("acquire", NAME, LEASE)
        assert one.ask("release", NAME)
        wait_for(lambda: not any(five.tokens(alive).values()), PATIENCE, "the lock to be free")
        assert other.ask("acquire", NAME, LEASE)
        assert not one.ask("acquire", NAME, LEASE)
        five.assert_kept(alive, 1.5 * LEASE / 1000)
        five.redis["m2"].start()
        wait_for(lambda: five.several.connect("m2")("PING") == PONG, PATIENCE, "it to be there again")
        assert other.ask("release", NAME)
        wait_for(lambda: not any(five.tokens().values()), PATIENCE, "the lock to be free")
        assert one.ask("acquire", NAME, LEASE)
        five.assert_kept(MASTERS, 1.5 * LEASE / 1000)
    finally:
        five.end()


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_lock_of_a_dead_process_ends_on_all(library):
    """And before that, of one that hangs it is kept: its connections are there."""
    five = Five(library)
    try:
        one, other = five.start(), five.start()
        assert one.ask("acquire", NAME, LEASE)
        five.await_holders(MASTERS)
        one.signal(signal.SIGSTOP)
        five.assert_kept(MASTERS, 1.5 * LEASE / 1000)
        one.signal(signal.SIGKILL)
        wait_for(lambda: not any(five.tokens().values()), LEASE / 1000 + 5 + PATIENCE, "the locks to end")
        assert other.ask("acquire", NAME, LEASE)
    finally:
        five.end()
