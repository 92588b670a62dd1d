"""Clients of all kinds, while passwords, users, Redis and Headgate itself change under them. Each client has a twin, which
says the same to a Redis of its own: replies are the same, byte by byte. A client that was closed, or refused, has done what
its twin has: all before the last reply, perhaps some behind it in their order, nothing twice."""

import contextlib
import os
import signal
import time

import pytest

from harness import world
from harness.admin import stats
from harness.resp import OK, Closed, Error, encode, same, wait_for
from harness.servers import Headgate, Redis
from harness.upgrade import Line, is_alive, kill_line

PAIRS, ROUNDS, SECONDS, DATABASES = 9, 24, 200, 3
USERS = ("ann", "bob", "cat")
# Each may do something that another one may not.
RIGHTS = {"ann": "+@all", "bob": "+@all -eval -getset", "cat": "+@all -append -client|setname"}
NAMES = ("text", "number", "list", "log", "block", "big")
BIG = 100_000
REFUSED = {
    "kill": (b"ERR headgate: no connection to Redis", b"LOADING "),
    "busy": (b"BUSY ", b"EXECABORT Transaction discarded because of: BUSY "),
    "crowd": (b"ERR headgate: no connection to Redis", b"ERR max number of clients reached"),
}
# What they send behind these would mean something else.
CLOSED_BEHIND = {"MULTI", "WATCH", "SELECT", "AUTH", "HELLO", "RESET", "NO-EVICT"}
# Nobody may know whose requests were carried out.
LOSSES = ("kill", "lanes", "drain")
CLOSED = (Closed, ConnectionError)
QUIET_SECONDS = 3  # more than what has come of a client that is gone is run within, and than access_check


def is_message(value):
    return isinstance(value, list) and len(value) == 3 and value[0] == b"message"


def brief(value):
    """To be shown."""
    if isinstance(value, (list, tuple)):
        return [brief(part) for part in value]
    return value if len(repr(value)) < 140 else value[:30]


class Pair:
    """A client of Headgate, and its twin, who asks Redis itself once it is known what the client was answered."""

    def __init__(self, walk, number):
        self.walk, self.name, self.draws, self.turn = walk, f"p{number}", walk.draws, 0
        self.real = None
        self.keys = [f"{self.name}:{name}" for name in NAMES]

    def come(self):
        self.real, self.twin = self.walk.headgate.connect(), self.walk.twin.connect()
        self.real.timeout = 60
        self.real.socket.settimeout(60)
        self.heard, self.twin_heard, self.asked, self.last, self.passes = [], [], [], [], False
        self.is_new()

    def is_new(self):
        self.multi = self.watch = self.listens = self.doomed = False
        self.own = self.passes
        self.database = self.logins = 0
        self.login = self.walk.entered(self.walk.default)
        if self.walk.default == "app":
            assert self.twin("AUTH", "app", "app") == OK

    def drop(self):
        self.real.close()
        self.twin.close()
        self.real = None

    def is_stale(self):
        """Redis would let it in as this user no more."""
        return self.login != self.walk.entered(self.login[0])

    def is_reset(self):
        """RESET takes Headgate's user off a connection whose bytes are passed: nothing is answered, or done, behind it."""
        return self.passes and self.walk.default == "app" and self.last[-1:] and self.last[-1][0] == ("RESET",)

    def is_shared(self):
        # Who has no password where one is wanted has a lane of his own.
        unknown = self.login[0] == "default" and self.walk.required
        own = unknown or self.own or self.multi or self.watch or self.listens or self.logins > 10
        return self.walk.pool == "shared" and not own and not self.is_stale()

    # ---- what it asks ----

    def word(self):
        self.turn += 1
        return f"{self.name}:{self.turn}"

    def draw(self, calm):
        """Some commands. calm: none of them depends on what is just being changed."""
        multi, blocks, commands = self.multi, False, []
        calm = calm or (self.login[0] == "default" and self.is_stale())
        for _ in range(self.draws.randint(1, 9)):
            kind = self.draws.random()
            if kind < 0.60:
                command = self.plain()
            elif kind < 0.78:
                command = self.draws.choice(self.transaction(multi))
            elif kind < 0.84 and not (blocks or multi):
                blocks, command = True, ("BLPOP", f"{self.name}:block", 0)
            elif kind < 0.93 or multi or calm:
                command = self.draws.choice(self.connection(multi))
            else:
                command = self.draws.choice((self.auth, self.hello, lambda: ("RESET",)))()
            if multi and command[0] in ("SUBSCRIBE", "UNSUBSCRIBE"):
                self.passes = True  # From now on Headgate passes bytes.
            multi = command[0] == "MULTI" or (multi and command[0] not in ("EXEC", "DISCARD", "RESET"))
            commands.append(command)
        return commands

    def plain(self):
        text, number, items, log, _, big = self.keys
        script = "redis.call('RPUSH', KEYS[2], ARGV[1]) return {redis.call('INCR', KEYS[1]), ARGV[1]}"
        return self.draws.choice((
            ("SET", text, self.word()), ("GET", text), ("GETSET", text, self.word()), ("APPEND", text, self.word()),
            ("INCR", number), ("INCR", number), ("RPUSH", log, self.word()), ("LRANGE", log, -3, -1), ("INCR", log),
            ("RPOPLPUSH", log, items), ("MGET", text, number, big[:-1]), ("ECHO", self.word()), ("HGETALL", self.word()),
            ("EVAL", script, 2, number, log, self.word()), ("EVALSHA", "0" * 40, 0), ("PUBLISH", self.word(), "nobody"),
            ("SET", big, self.word() * (BIG // 8)), ("GET", big), ("EVAL", "return redis.error_reply('MY ' .. ARGV[1])", 0, 1),
            ("EVAL", "redis.call('RPUSH', KEYS[1], ARGV[1]) return {err = 'E ' .. ARGV[1]}", 1, log, self.word()),
            ("NO-SUCH-COMMAND", self.word()), ("XREAD", "COUNT", 1, "STREAMS", text, 0),
        ))  # fmt: skip

    def transaction(self, multi):
        text, number = self.keys[:2]
        return [("EXEC",), ("EXEC",), ("DISCARD",), ("INCR", number)] if multi else [
            ("MULTI",), ("MULTI",), ("MULTI",), ("WATCH", text), ("WATCH", number), ("UNWATCH",), ("EXEC",),
        ]  # fmt: skip

    def connection(self, multi):
        channel = f"{self.name}:channel"
        return [
            ("SELECT", self.draws.randrange(DATABASES)), ("SELECT", self.draws.randrange(DATABASES)), ("SELECT", "x"),
            ("CLIENT", "SETNAME", f"{self.name}-{self.turn}"), ("CLIENT", "GETNAME"), ("CLIENT", "SETNAME", "a b"), ("PING",),
            ("ACL", "WHOAMI"), ("CLIENT", "NO-EVICT", "ON"), ("CLIENT", "SETINFO", "LIB-NAME", "x"),
            # Redis puts the message amid the answer to EXEC.
            ("PUBLISH", self.word() if multi else channel, self.word()),
            *[(word, channel) for word in ("SUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE") if self.draws.random() < 0.5],
        ]  # fmt: skip

    def who(self):
        user = self.draws.choice(USERS)
        passwords = self.walk.passwords[user]
        return user, passwords[-1] if self.draws.random() < 0.8 else self.draws.choice(passwords)

    def auth(self):
        return ("AUTH", self.walk.required or "none") if self.draws.random() < 0.3 else ("AUTH", *self.who())

    def hello(self):
        words = ["HELLO", self.draws.choice((2, 3))]
        words += ["AUTH", *self.who()] if self.draws.random() < 0.5 else []
        return (*words, "SETNAME", self.word()) if self.draws.random() < 0.3 else tuple(words)

    # ---- what it is answered ----

    def read(self, client, heard):
        while is_message(reply := client.read()):
            heard.append(reply)
        return reply

    def ask_twin(self, command):
        """The twin's reply. What it says of the connection holds for both."""
        in_multi = self.multi
        self.twin.request(*command)
        reply = self.read(self.twin, self.twin_heard)
        word, fails = command[0], isinstance(reply, Error)
        if word == "RESET" and not fails:
            self.is_new()
        self.multi = (word == "MULTI" and not fails) or (in_multi and word not in ("EXEC", "DISCARD", "RESET"))
        self.watch = (word == "WATCH" and not fails) or (
            self.watch and word not in ("UNWATCH", "RESET") and not (in_multi and word in ("EXEC", "DISCARD"))
        )
        if word in ("SUBSCRIBE", "UNSUBSCRIBE") and not fails:
            self.listens = word == "SUBSCRIBE" or in_multi
        logs_in = word == "AUTH" or "AUTH" in command[:3]
        if logs_in and not fails:
            self.login = self.walk.entered(command[-2] if len(command) == 3 else command[3] if word == "HELLO" else "default")
        self.logins += word in ("AUTH", "HELLO")
        if word == "SELECT" and not fails and not in_multi:
            self.database = int(command[1])
        keeps = word == "CLIENT" and (command[1] == "NO-EVICT" or in_multi) or self.keys[-1] in command
        keeps = keeps or (in_multi and word in ("SELECT", "SUBSCRIBE", "UNSUBSCRIBE")) or (self.database and word in ("AUTH", "HELLO"))
        # What it is Redis may not have told.
        keeps = keeps or (word == "NO-SUCH-COMMAND" and self.walk.trouble in REFUSED)
        self.own = bool(self.own or keeps or (fails and reply.startswith((b"NOAUTH", b"NOPERM"))))
        return reply

    def refused(self, command, reply):
        """Said to be not carried out: neither is it by the twin."""
        self.walk.figures["refused"] += 1
        # What these would have done when EXEC comes Headgate does not wait for.
        self.own = self.own or (self.multi and command[0] in ("CLIENT", "SELECT", "SUBSCRIBE", "UNSUBSCRIBE"))
        assert b"too many requests" not in reply, f"{self.name}: {brief(command)} answered {reply}"
        if self.walk.trouble == "kill" and reply.startswith(b"ERR headgate: "):
            # What its own lane has of it goes with that; nobody else is refused before the time is over.
            waits = self.is_shared() and not self.last[:-1]
            assert self.walk.away > 20 or not waits, f"{self.name}: {brief(command)} answered {reply} at once"
        self.doomed = self.doomed or (not self.is_shared() and reply.startswith(b"ERR max"))
        self.doomed = self.doomed or (
            reply.startswith((b"ERR headgate: ", b"BUSY ")) and not CLOSED_BEHIND.isdisjoint(command)
        )
        if command[0] == "EXEC" and reply.startswith(b"EXECABORT"):
            self.ask_twin(("DISCARD",) if self.multi else ("UNWATCH",))
        elif self.multi:
            self.ask_twin(("REFUSED",))

    def hear(self):
        """All replies to what it has asked."""
        before, self.last, is_busy = None, [], self.walk.trouble == "busy"  # Of that one of its own lane is told, too.
        for index, command in enumerate(self.asked):
            try:
                reply = self.read(self.real, self.heard)
            except CLOSED:
                return self.lose(index, before)
            except TimeoutError:
                raise AssertionError(f"{self.name}: no answer to {command[:3]}, {brief(self.asked)}") from None
            self.last.append((command, reply))
            before, self.walk.figures["requests"] = reply, self.walk.figures["requests"] + 1
            # Redis has closed the connections of whose user it was told to forget: what was not sent yet is told so.
            refusals = REFUSED.get("kill" if self.walk.trouble == "access" and self.is_stale() else self.walk.trouble, ())
            if isinstance(reply, Error) and reply.startswith(refusals):
                self.refused(command, reply)
                continue
            assert not self.doomed or is_busy, f"{self.name} was answered {reply} behind a refusal: {brief(self.asked)}"
            if isinstance(reply, Error) and reply.startswith(b"NOAUTH") and self.login[0] == "default" and self.is_stale():
                return self.is_out(index)
            if isinstance(reply, Error) and reply.startswith(b"ERR Protocol error: unauthenticated") and self.walk.required:
                return self.is_out(len(self.asked))  # Redis says so, too, or resets the connection before it could be read
            expected = self.ask_twin(command)
            for hello in (reply, expected):
                if command[0] == "HELLO" and isinstance(hello, list) and b"id" in hello:
                    hello[hello.index(b"id") + 1] = 0
            said = f"{self.name}: {brief(command)} answered {brief(reply)}, not {brief(expected)}: {brief(self.asked)}"
            assert same(reply, expected), said
        self.asked = []

    def is_out(self, index):
        """A password is wanted now, and its connection is gone: it has no rights any more until it authenticates."""
        with contextlib.suppress(*CLOSED):
            for command in self.asked[index + 1 :]:
                reply = self.read(self.real, self.heard)
                assert isinstance(reply, Error), f"{self.name}: {brief(command)} answered {reply} behind NOAUTH"
        self.follow([])

    def lose(self, index, before):
        """It was closed behind so many replies: whether it may have been, and how far its twin has to go."""
        refused = self.walk.trouble in REFUSED and isinstance(before, Error)
        excused = self.walk.trouble in LOSSES or self.is_stale() or refused or self.is_reset()
        excused = excused or self.doomed or (self.walk.trouble == "crowd" and self.walk.pool == "session")
        assert excused, f"{self.name} was closed behind {index} of {brief(self.asked)}, {before}, login {self.login}"
        # A drain ends nobody who has a request under way.
        self.follow([] if self.walk.trouble == "drain" or self.is_reset() else self.asked[index:])

    def follow(self, commands):
        """Redis has as many of these as the twin's has then; none was carried out twice, or without one before it."""
        self.walk.figures["closed"] += 1
        time.sleep(QUIET_SECONDS)
        wanted, seen = self.walk.contents(self.walk.redis, self.keys), []
        for command in [None, *commands]:
            if command:
                self.ask_twin(command)
            seen.append(self.walk.contents(self.walk.twin, self.keys))
            if seen[-1] == wanted:
                return self.drop()
        raise AssertionError(f"{self.name}: {wanted} is none of {seen}: {len(commands)} of {brief(self.asked)}, {self.passes}")

    def push(self):
        """Something for it to take, if it blocks."""
        if any(command[0] == "BLPOP" for command in self.asked):
            for server in (self.walk.redis, self.walk.twin):
                with server.connect() as direct:
                    direct("AUTH", "boss", "boss")
                    for number in range(DATABASES):
                        assert direct("SELECT", number) == OK
                        assert isinstance(direct("RPUSH", f"{self.name}:block", f"{self.name}:{self.turn}"), int)

    def compare(self, told):
        """What it hears, and whether it is closed. told: what it was told at last, if it listens."""
        for client, heard in ((self.real, self.heard), (self.twin, self.twin_heard)):
            while told and (not heard or heard[-1][2] != told):
                heard.append(client.read())
                assert is_message(heard[-1]), f"{self.name} is told {heard[-1]} behind {brief(self.last)}"
        closed, twin_closed = self.real.is_closed(), self.twin.is_closed()
        assert closed or same(self.heard, self.twin_heard), f"{self.name} heard {self.heard}, not {self.twin_heard}"
        if twin_closed and not closed:  # Of a user that is deleted; who has had no lane yet is closed when he asks.
            with contextlib.suppress(*CLOSED):
                raise AssertionError(f"{self.name} lives on as {self.login}: {self.real('PING')}")
            closed = True
        if closed:
            excused = twin_closed or self.doomed or self.is_stale() or self.walk.trouble == "drain" or self.is_reset()
            excused = excused or (self.walk.trouble in ("kill", "lanes") and (self.last or not self.is_shared()))
            assert excused, f"{self.name} was closed idle: {brief(self.last)}"
            self.walk.figures["closed"] += 1
            self.drop()
        else:
            self.heard, self.twin_heard, self.doomed = [], [], self.doomed and self.walk.trouble != "busy"


class Walk:
    def __init__(self, draws, pool, directory):
        self.draws, self.pool, self.trouble = draws, pool, None
        self.figures = dict.fromkeys(("requests", "closed", "refused"), 0)
        self.default = draws.choice(("default", "app"))
        self.required, self.count = "", 0
        self.passwords = {user: [user] for user in USERS}
        self.entries = {}  # how often a user has become another one
        self.secret, self.secrets = directory / "secret", ["app"]
        self.secret.write_text("app")
        self.secret.chmod(0o600)
        self.redis, self.twin = self.make_redis(directory / "redis.acl"), self.make_redis(directory / "twin.acl")
        options = {"upstream_user": "app", "upstream_password_file": self.secret} if self.default == "app" else {}
        self.headgate = Headgate(
            self.redis, pool, start=False, threads=draws.choice((1, 2)), lanes=draws.choice((1, 2)), upstream_wait="20s",
            access_check="500ms", reload_on_change="off", **options,
        )  # fmt: skip
        self.line = Line(self.headgate)
        self.pairs = [Pair(self, number) for number in range(PAIRS)]

    def make_redis(self, acl):
        users = {"default": "nopass +@all", "boss": ">boss +@all", "app": ">app +@all"}
        users |= {user: f">{user} {rights}" for user, rights in RIGHTS.items()}
        acl.write_text("".join(f"user {user} on ~* &* {rights}\n" for user, rights in users.items()))
        return Redis("--appendonly", "yes", "--appendfsync", "no", "--aclfile", str(acl), "--busy-reply-threshold", "20")

    def entered(self, user):
        return user, self.entries.get(user, 0)

    def tell(self, server, *command):
        with server.connect() as direct:
            assert direct("AUTH", "boss", "boss") == OK
            answer = direct(*command)
            assert not isinstance(answer, Error), f"{command}: {answer}"
            return answer

    def change(self, *commands):
        """The users of Redis, by itself or through Headgate; those of the twin when all have been answered."""
        direct = self.draws.choice((self.redis, self.headgate))
        for command in commands:
            self.tell(direct, *command)
        self.tell(self.redis, "ACL", "SAVE")
        self.later += commands
        print(direct.name, commands)

    def contents(self, server, keys):
        with server.connect() as direct:
            direct("AUTH", "boss", "boss")
            replies = [(direct("SELECT", number), direct("DEBUG", "DIGEST-VALUE", *keys)) for number in range(DATABASES)]
            return [digests for _, digests in replies]

    # ---- troubles: each a generator that ends the trouble behind its yield ----

    def none(self):
        yield

    def kill(self):
        if world.is_inside():
            world.end(self.redis.process.pid, self.draws.randint(1, 60))
        yield
        self.redis.kill()
        self.away = self.draws.choice((0, 1, 22))
        time.sleep(self.away)
        self.redis.start()
        with self.redis.connect() as direct:
            wait_for(lambda: not bytes(direct("GET", "x") or b"").startswith(b"LOADING"), what="Redis to be loaded")
        # What it has of its file is the user's password, not the option that could be taken back.
        self.tell(self.redis, "CONFIG", "SET", "requirepass", self.required)

    def stop(self):
        self.redis.signal(signal.SIGSTOP)
        yield
        time.sleep(self.draws.uniform(0.1, 9))
        self.redis.signal(signal.SIGCONT)

    def pause(self):
        self.tell(self.redis, "CLIENT", "PAUSE", self.draws.randint(100, 3000), self.draws.choice(("WRITE", "ALL")))
        yield

    def busy(self):
        with self.redis.connect() as script, self.redis.connect() as killer:
            for client in (script, killer):
                assert client("AUTH", "boss", "boss") == OK
            script.request("EVAL", "while true do redis.call('TIME') for _ = 1, 100 do end end", 0)
            time.sleep(self.draws.uniform(0, 0.1))
            yield
            time.sleep(self.draws.uniform(0, 2))
            wait_for(lambda: killer("SCRIPT", "KILL") == OK, what="the script to end")
            assert isinstance(script.read(), Error)

    def crowd(self):
        with self.redis.connect() as direct:
            assert direct("AUTH", "boss", "boss") == OK
            connected = direct("CLIENT", "LIST").count(b"\n") + self.draws.randint(-1, 2)
            assert direct("CONFIG", "SET", "maxclients", max(connected, 1)) == OK
            yield
            time.sleep(self.draws.choice((0.1, 22)))
            assert direct("CONFIG", "SET", "maxclients", 4000) == OK

    def lanes(self):
        yield
        lines = self.tell(self.redis, "CLIENT", "LIST").splitlines()
        for line in self.draws.sample(lines, self.draws.randint(1, len(lines))):
            with self.redis.connect() as direct:
                direct("AUTH", "boss", "boss")
                direct("CLIENT", "KILL", "ID", line.split()[0].split(b"=")[1])

    def access(self):
        self.count += 1
        user, fresh = self.draws.choice(USERS), f"secret-{self.count}"
        kind = self.draws.choice(("password", "delete", "required", "required"))
        if kind == "required" and self.default == "default":
            if not self.required:  # Redis knows who was not let in before; to Headgate whoever is there was let in
                for pair in self.pairs:
                    if pair.real and pair.login[0] == "default" and pair.login[1] % 2:
                        self.leave(pair)
            yield
            user, self.required = "default", "" if self.required else fresh
            self.change(("CONFIG", "SET", "requirepass", self.required))
        elif kind == "password":
            yield
            self.change(("ACL", "SETUSER", user, "resetpass", f">{fresh}"))
        else:
            yield
            again = ("ACL", "SETUSER", user, "on", "~*", "&*", *RIGHTS[user].split(), f">{fresh}")
            self.change(("ACL", "DELUSER", user), again)
        if user in USERS:
            self.passwords[user].append(fresh)
        self.entries[user] = self.entries.get(user, 0) + 1

    def rights(self):
        """Taken and given while nobody asks; Headgate remembers some of them."""
        yield
        self.hear()
        user = self.draws.choice(USERS)
        for server in (self.redis, self.twin):
            sign = "-" if self.count % 2 else "+"
            self.tell(server, "ACL", "SETUSER", user, f"{sign}incr", f"{sign}client|getname", f"{sign}select")
            self.tell(server, "ACL", "SAVE")
        self.count += 1

    def reload(self):
        self.headgate.write_config(exclusive_idle=self.draws.choice((0, 1, 8)), cut_through=self.draws.choice(("16kb", "1mb")))
        os.kill(self.line.pid(), signal.SIGHUP)
        yield

    def upgrade(self):
        if self.draws.random() < 0.5:
            self.line.upgrade()
            yield
        else:
            yield
            self.line.upgrade()

    def drain(self):
        with self.headgate.admin() as admin:
            assert isinstance(admin("DRAIN"), int)
        yield
        time.sleep(self.draws.uniform(0, 1))
        self.line.upgrade()

    def rotate(self):
        if self.default == "default":
            yield
            return
        self.secrets.append(f"app-{len(self.secrets)}")
        self.tell(self.redis, "ACL", "SETUSER", "app", f">{self.secrets[-1]}")
        self.tell(self.redis, "ACL", "SAVE")
        said = self.headgate.log().count("takes the new password of user app")
        self.secret.write_text(self.secrets[-1])
        os.kill(self.line.pid(), signal.SIGHUP)
        yield
        wanted = said + int(self.headgate.options["threads"])
        wait_for(lambda: self.headgate.log().count("takes the new password of user app") >= wanted, 30, "the new password")
        time.sleep(1)
        self.tell(self.redis, "ACL", "SETUSER", "app", f"<{self.secrets[-2]}")
        self.tell(self.redis, "ACL", "SAVE")

    TROUBLES = (none, kill, kill, stop, pause, busy, crowd, lanes, access, access, access)
    TROUBLES += (rights, reload, upgrade, drain, rotate)

    # ---- a round ----

    def send(self, pair, second):
        """One part of it, or the other."""
        data = b"".join(encode(*command) for command in pair.asked)
        cut = int(len(data) * pair.part)
        with contextlib.suppress(*CLOSED):
            pair.real and pair.real.send(data[cut:] if second else data[:cut])

    def round(self, number):
        for pair in self.pairs:
            if not pair.real and self.draws.random() < 0.8:
                pair.come()
        trouble = self.draws.choice(self.TROUBLES)
        self.trouble, self.later = trouble.__name__, []
        print(f"{number}: {self.trouble}", [(pair.name, pair.login, pair.is_shared()) for pair in self.pairs if pair.real])
        self.figures[self.trouble] = self.figures.get(self.trouble, 0) + 1
        active = [pair for pair in self.pairs if pair.real and self.draws.random() < 0.7]
        if self.trouble == "access":  # A password that is just taken away may, or may not, be wanted from these.
            active = [pair for pair in active if pair.login[0] != "default" or not self.required]
        self.draws.shuffle(active)
        for pair in active:
            pair.asked, pair.part = pair.draw(self.trouble == "access"), self.draws.choice((0, 1, self.draws.random()))
            self.send(pair, False)
        for _ in trouble(self):
            for pair in active:
                self.send(pair, True)
            time.sleep(self.draws.choice((0, 0, 0.001, 0.1)))
        if self.trouble == "none" and active:
            self.leave(max(active, key=lambda pair: ("BLPOP", f"{pair.name}:block", 0) in pair.asked))
        self.hear()
        for command in self.later:
            self.tell(self.twin, *command)
        time.sleep(QUIET_SECONDS)
        self.compare()

    def leave(self, pair):
        """Amid what it has asked: somebody who has gone has nothing of others', and others nothing of his."""
        words = [command[0] for command in pair.asked]
        waits = pair.is_shared() and "BLPOP" in words and not {"RESET", "SUBSCRIBE", "AUTH", "HELLO"} & set(words)
        if waits and self.contents(self.twin, [pair.keys[4]]) == [[b"0" * 40]] * DATABASES:
            time.sleep(QUIET_SECONDS)
            pair.real.close()
            time.sleep(1)
            pair.follow(pair.asked[: words.index("BLPOP")])  # What comes now is not for who has gone.
            return pair.push()
        self.draws.choice((pair.real.close, pair.real.reset))()
        pair.push()
        return pair.follow(pair.asked)

    def hear(self):
        for pair in self.pairs:
            pair.real and pair.asked and pair.push()
        order = self.draws.sample(self.pairs, len(self.pairs))
        for pair in order:
            if pair.real:
                pair.hear()

    def compare(self):
        for pair in self.pairs:
            word = pair.word()
            count = [self.tell(server, "PUBLISH", f"{pair.name}:channel", word) for server in (self.redis, self.twin)]
            for server in (self.redis, self.twin) if self.draws.random() < 0.3 else ():
                self.tell(server, "APPEND", pair.keys[0], "driver")
            if pair.real:
                pair.compare(word.encode() if count == [1, 1] else None)
            assert not pair.real or count[0] == count[1], f"{pair.name}: {count} subscribers"
        if len({self.tell(server, "DEBUG", "DIGEST") for server in (self.redis, self.twin)}) > 1:
            both = [(pair, *[self.contents(server, pair.keys) for server in (self.redis, self.twin)]) for pair in self.pairs]
            differ = [(pair.name, brief(pair.last), ours, theirs) for pair, ours, theirs in both if ours != theirs]
            raise AssertionError(f"contents differ behind {self.trouble}: {differ}")
        wait_for(self.is_counted, 10, "all clients, and nobody else, to be counted")

    def is_counted(self):
        figures = stats(self.headgate)
        assert figures["lanes_desynced_total"] == "0"
        clients = int(figures["clients_connected"]) + int(figures["predecessor_clients"])
        return clients == sum(pair.real is not None for pair in self.pairs)

    def is_at_rest(self):
        figures = {name: int(value) for name, value in stats(self.headgate).items() if value.isdigit()}
        lanes = figures["lanes_shared"] + figures["lanes_exclusive"]
        listed = self.tell(self.redis, "CLIENT", "LIST").count(b"\n") - 1
        is_alone = not any(map(is_alive, self.line.pids[:-1]))
        return figures["lanes_exclusive"] == figures["lanes_pooled"] and lanes == listed and is_alone

    def end(self):
        for pair in self.pairs:
            pair.real and pair.drop()
        wait_for(self.is_counted, 30, "all to have left")
        wait_for(self.is_at_rest, 90, "Redis to have no connections but those of a Headgate at rest")
        self.line.finish()


@pytest.mark.world
def test_a_walk(pool, tmp_path, record_property):
    walk, until = Walk(world.draws(), pool, tmp_path), time.monotonic() + SECONDS
    try:
        for number in range(ROUNDS):
            time.monotonic() < until and walk.round(number)
        walk.end()
    except BaseException:
        print(walk.headgate.log_tail())
        raise
    finally:
        kill_line(walk.line)
        for server in (walk.headgate, walk.redis, walk.twin):
            server.discard()
    for name, count in walk.figures.items():
        record_property(name, count)
