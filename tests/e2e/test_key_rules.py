"""A rule on keys sees what Redis sees: requests of all commands that have keys, spelt as oddly as chance will have it, get
past a rule on secret keys only if Redis touches none of them. What Redis touches is told by its LFU counters, which count
each look at a key here, by what the keys hold, and by COMMAND GETKEYS."""

import pathlib
import random
import re

import pytest

from harness.resp import OK, Error, to_bytes
from harness.rules import launch

RULE = "[deny:secret]\nkeys = secret:*\n"
REFUSAL = b"DENIED secret: "
SCRIPT = "for _, key in ipairs(KEYS) do redis.call('touch', key) end return #KEYS"
LIBRARY = f"#!lua name=l\nredis.register_function{{function_name='f', callback=function(KEYS) {SCRIPT} end, flags={{'no-writes'}}}}"

# Commands with the same arguments have one line. @TYPE is a key that holds one, @new one that is not there; $dump and $sha
# are put in. Words in capitals are options.
TEMPLATES = """
APPEND|DELIFEQ|DELIFEQUALS|GETSET|SETNX @string v; BITCOUNT @string 0 1 BYTE
BITFIELD @string GET u8 0 OVERFLOW SAT INCRBY u8 0 1; BITFIELD_RO @string GET u8 0; BITOP AND @new @string @string
BITPOS|GETBIT|MOVE @string 1; BLMOVE @list @list LEFT RIGHT 0.01; BLMPOP 0.01 2 @list @list LEFT COUNT 2
BLPOP|BRPOP|BRPOPLPUSH @list @list 0.01; BZMPOP 0.01 2 @zset @zset MIN COUNT 2; BZPOPMAX|BZPOPMIN @zset @zset 0.01
CL.THROTTLE @new 5 1 60; COPY @string @new DB 0 REPLACE; DECR|INCR @number; DECRBY @number 2
DEL|EXISTS|TOUCH|UNLINK|WATCH @string @list; DUMP|EXPIRETIME|GET|GETDEL|PERSIST|PEXPIRETIME|PTTL|STRLEN|TTL|TYPE @string
EVAL|EVAL_RO $script 2 @string @list x; EVALSHA|EVALSHA_RO $sha 2 @string @list x; EXPIRE @string 100 NX
EXPIREAT @string 99999999999 XX; FCALL|FCALL_RO f 2 @string @list x; GEOADD @geo NX 1 2 m; GEODIST @geo a b KM
GEOHASH|GEOPOS @geo a b; GEORADIUS @geo 13 38 9000 KM WITHDIST COUNT 3 ASC
GEORADIUS @geo 13 38 9000 KM COUNT 3 ANY STORE @new; GEORADIUS @geo 13 38 9000 KM DESC STORE @new STOREDIST @new
GEORADIUS_RO @geo 13 38 9000 KM WITHCOORD WITHHASH; GEORADIUSBYMEMBER @geo a 9000 KM COUNT 3 ASC
GEORADIUSBYMEMBER @geo a 9000 KM STOREDIST @new STORE @new; GEORADIUSBYMEMBER_RO @geo a 9000 KM COUNT 3
GEOSEARCH @geo FROMMEMBER a BYRADIUS 9000 KM ASC; GEOSEARCHSTORE @new @geo FROMMEMBER a BYRADIUS 9000 KM STOREDIST
GETEX @string EX 100; GETRANGE|SUBSTR @string 0 1; HDEL|HEXISTS|HGET|HSTRLEN @hash f; HGETALL|HKEYS|HLEN|HVALS @hash
HINCRBY|HINCRBYFLOAT @hash n 1; HMGET @hash f n; HMSET|HSET @hash f v; HRANDFIELD @hash 1 WITHVALUES
HSCAN @hash 0 MATCH f COUNT 3; HSETNX @hash g v; INCRBY|INCRBYFLOAT @number 1; LCS @string @string LEN; LINDEX @list 0
LINSERT @list BEFORE string v; LLEN @list; LMOVE @list @list LEFT RIGHT; LMPOP 2 @list @list LEFT COUNT 2; LPOP|RPOP @list 1
LPOS @list string RANK 1 COUNT 1 MAXLEN 9; LPUSH|LPUSHX|RPUSH|RPUSHX @list v; LRANGE|LTRIM @list 0 1; LREM @list 1 string
LSET @list 0 v; MEMORY USAGE @string SAMPLES 5; MGET @string @string
MIGRATE 127.0.0.1 1 @string 0 1 COPY REPLACE AUTH password
MIGRATE 127.0.0.1 1 $empty 0 1 AUTH2 user password KEYS @string @list
MIGRATE 127.0.0.1 1 $empty 0 1 COPY REPLACE AUTH KEYS KEYS @string @list; MSET @string v @new v; MSETNX @new v @new v
OBJECT ENCODING @string; OBJECT FREQ @string; OBJECT REFCOUNT @string; PEXPIRE @string 99999 GT
PEXPIREAT @string 99999999999 LT; PFADD @hll a; PFCOUNT @hll @hll; PFDEBUG ENCODING @hll; PFMERGE @new @hll @hll
PSETEX @string 99999 v; RENAME|RENAMENX @string @new; RESTORE @new 0 $dump REPLACE ABSTTL IDLETIME 5
RESTORE-ASKING @new 0 $dump REPLACE FREQ 5; RPOPLPUSH @list @list; SADD @set m; SCARD|SMEMBERS @set
SDIFF|SINTER|SUNION @set @set; SDIFFSTORE|SINTERSTORE|SUNIONSTORE @new @set @set; SET @string v EX 100 NX GET
SETBIT @string 1 1; SETEX @string 100 v; SETRANGE @string 1 v; SINTERCARD 2 @set @set LIMIT 5; SISMEMBER|SREM @set a
SMISMEMBER @set a b; SMOVE @set @set a; SORT @list BY weight LIMIT 0 5 GET field ALPHA DESC STORE @new
SORT @list BY @*->f GET @* GET # ALPHA; SORT @list ASC ALPHA BY nosort GET @*->f LIMIT 0 5
SORT @set ALPHA GET @* STORE @new BY @*; SORT_RO @list BY @*->f GET @* LIMIT 0 5 ALPHA DESC
SORT_RO @list BY nosort GET # GET @*->f; SPOP|SRANDMEMBER @set 1; SSCAN @set 0 MATCH a COUNT 3; XACK @stream g 1-1
XADD @stream NOMKSTREAM MAXLEN = 10 * f v; XAUTOCLAIM @stream g c 0 0-0 COUNT 2 JUSTID; XCLAIM @stream g c 0 1-1 JUSTID FORCE
XDEL @stream 1-1; XGROUP CREATE @stream h $ MKSTREAM; XGROUP CREATECONSUMER @stream g d; XGROUP DELCONSUMER @stream g c
XGROUP DESTROY @stream g; XGROUP SETID @stream g 0-0; XINFO CONSUMERS @stream g; XINFO GROUPS @stream
XINFO STREAM @stream FULL COUNT 2; XLEN @stream; XPENDING @stream g IDLE 1 - + 2 c; XRANGE @stream - + COUNT 2
XREAD COUNT 2 BLOCK 1 STREAMS @stream @stream 0-0 0-0; XREAD STREAMS @stream 0-0
XREADGROUP GROUP g c COUNT 2 BLOCK 1 NOACK STREAMS @stream @stream > 0-0
XREADGROUP GROUP STREAMS BLOCK NOACK STREAMS @stream >; XREVRANGE @stream + - COUNT 2
XSETID @stream 9-9 ENTRIESADDED 9 MAXDELETEDID 0-0; XTRIM @stream MAXLEN = 10; ZADD @zset NX GT CH INCR 1 m; ZCARD @zset
ZCOUNT @zset 0 9; ZDIFF 2 @zset @zset WITHSCORES; ZDIFFSTORE @new 2 @zset @zset; ZINCRBY @zset 1 a
ZINTER 2 @zset @zset WEIGHTS 1 2 AGGREGATE SUM WITHSCORES; ZINTERCARD 2 @zset @zset LIMIT 5
ZINTERSTORE @new 2 @zset @zset WEIGHTS 1 2 AGGREGATE MAX; ZLEXCOUNT|ZREMRANGEBYLEX @zset - +; ZMPOP 2 @zset @zset MIN COUNT 2
ZMSCORE @zset a b; ZPOPMAX|ZPOPMIN @zset 1; ZRANDMEMBER @zset 1 WITHSCORES; ZRANGE @zset 0 9 BYSCORE REV LIMIT 0 5 WITHSCORES
ZRANGEBYLEX @zset - + LIMIT 0 5; ZRANGEBYSCORE @zset 0 9 WITHSCORES LIMIT 0 5; ZRANGESTORE @new @zset 0 9 BYSCORE LIMIT 0 5
ZRANK|ZREM|ZREVRANK|ZSCORE @zset a; ZREMRANGEBYRANK|ZREMRANGEBYSCORE @zset 0 1; ZREVRANGE @zset 0 1 WITHSCORES
ZREVRANGEBYLEX @zset + - LIMIT 0 5; ZREVRANGEBYSCORE @zset 9 0 WITHSCORES LIMIT 0 5; ZSCAN @zset 0 MATCH a COUNT 3
ZUNION 2 @zset @zset WEIGHTS 1 2 AGGREGATE MIN WITHSCORES; ZUNIONSTORE @new 2 @zset @zset AGGREGATE SUM
"""
TEMPLATES = [line.strip().split(" ") for line in TEMPLATES.strip().replace("\n", ";").split(";")]
TEMPLATES = [[name, *words] for names, *words in TEMPLATES for name in names.split("|")]
# Channels, and what they have in the place of keys.
NO_KEYS = {"spublish", "ssubscribe", "sunsubscribe"}
# Headgate's own, which the server has no keys for.
ADDED = {"cl.throttle", "delifeq", "delifequals"}

FILLING = {
    "string": [("SET", "v")],
    "number": [("SET", "500000")],  # smaller ones are one object for all keys, with one counter
    "list": [("RPUSH", "string", "hash", "number")],
    "set": [("SADD", "string", "hash", "a")],
    "zset": [("ZADD", "1", "a", "2", "b")],
    "geo": [("GEOADD", "13.36", "38.11", "a", "15.08", "37.50", "b")],
    "hash": [("HSET", "f", "v", "n", "5")],
    "hll": [("PFADD", "x", "y")],
    "stream": [
        ("XADD", "1-1", "f", "v"), ("XGROUP CREATE", "g", "0-0"), ("XGROUP CREATE", "STREAMS", "0-0"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS", ">"),
    ],
}
TYPES = [*FILLING, "new"]
WORDS = b"""STORE STOREDIST BY GET LIMIT KEYS STREAMS BLOCK COUNT GROUP NOACK AUTH AUTH2 COPY REPLACE WEIGHTS AGGREGATE NX
EX ALPHA ASC DESC WITHSCORES LEFT MIN MAX SAMPLES CLAIM ENCODING 1 2 3 01 +1 -1 1.0 x""".split()
COUNTS = [b"1", b"2", b"3", b"4", b"01", b"+1", b"+2", b" 2", b"2 ", b"2\0", b"2x", b"-1", b"2.0", b"0x2", b"00", b"", b"9" * 30]


class Oracle:
    """A Redis with one key of each type for everybody, and one that is secret."""

    def __init__(self, redis):
        self.direct = redis.connect()
        self.direct("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu", "lfu-log-factor", "0", "lfu-decay-time", "0")
        self.sha = self.direct("SCRIPT", "LOAD", SCRIPT)
        assert self.direct("FUNCTION", "LOAD", LIBRARY) == b"l"
        self.dumps = {}
        for kind, commands in FILLING.items():
            for command, *rest in commands:
                reply = self.direct(*command.split(), f"public:{kind}", *rest)
                assert not isinstance(reply, Error), reply
            self.dumps[kind] = self.direct("DUMP", f"public:{kind}")
        self.secrets = [f"secret:{kind}" for kind in TYPES]
        self.filling = [("FLUSHALL",)] + [
            ("RESTORE", f"{group}:{kind}", 0, dump) for group in ("public", "secret") for kind, dump in self.dumps.items()
        ]

    def fill(self):
        """Everything as at first; what is looked at before the request."""
        replies = self.direct.pipeline(self.filling)
        assert replies == [OK] * len(replies)
        values = self.direct("DEBUG", "DIGEST-VALUE", *self.secrets)
        return self._counters(), values

    def _counters(self):
        return self.direct.pipeline([("OBJECT", "FREQ", key) for key in self.secrets])

    def is_touched(self, before):
        counters = self._counters()
        return (counters, self.direct("DEBUG", "DIGEST-VALUE", *self.secrets)) != before

    def names_secrets(self, request):
        keys = self.direct("COMMAND", "GETKEYS", *request)
        return isinstance(keys, list) and any(key.startswith(b"secret:") for key in keys)


class Chance:
    def __init__(self, seed, oracle):
        self.random = random.Random(seed)
        self.values = {"$dump": oracle.dumps["string"], "$sha": oracle.sha, "$script": SCRIPT, "$empty": ""}

    def key(self, kind):
        group = self.random.choice(("public", "public", "secret"))
        return f"{group}:{kind}".encode()

    def request(self, template):
        return [self.key(word[1:]) if word.startswith("@") else to_bytes(self.values.get(word, word)) for word in template]

    def spelling(self, word):
        """Any case of letters, and what Redis does not look at behind a NUL."""
        word = bytes(self.random.choice((letter, letter ^ 32)) if bytes([letter]).isalpha() else letter for letter in word)
        return word + self.random.choice((b"", b"", b"\0", b"\0x"))

    def stray(self):
        choice = self.random.random()
        if choice < 0.3:
            return self.key(self.random.choice(TYPES))
        if choice < 0.4:
            return self.key("*") + self.random.choice((b"", b"->f", b"->", b"\0->f", b"->\0f"))
        if choice < 0.5:
            return self.random.choice(COUNTS)
        return self.spelling(self.random.choice(WORDS))

    def _spell(self, request):
        for index in range(1, len(request)):
            if request[index].isalpha() and request[index].isupper() and self.random.random() < 0.8:
                request[index] = self.spelling(request[index])

    def _miscount(self, request):
        for index in range(1, len(request)):
            if request[index].isdigit():
                request[index] = self.random.choice(COUNTS)

    def _insert(self, request):
        request.insert(self.random.randrange(1, len(request) + 1), self.stray())

    def _replace(self, request):
        request[self.random.randrange(1, len(request))] = self.stray()

    def _remove(self, request):
        if len(request) > 2:
            del request[self.random.randrange(1, len(request))]

    def _double(self, request):
        start = self.random.randrange(1, len(request))
        piece = request[start : start + self.random.choice((1, 2, 3))]
        place = self.random.randrange(1, len(request) + 1)
        request[place:place] = piece

    def _swap(self, request):
        first, second = (self.random.randrange(1, len(request)) for _ in range(2))
        request[first], request[second] = request[second], request[first]

    def mutate(self, request):
        """Most are still sound after one change, few after more."""
        ways = (self._spell, self._spell, self._miscount, self._insert, self._replace, self._remove, self._double, self._swap)
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            self.random.choice(ways)(request)
        return request


def is_harmless(request):
    """None that waits for ever, or for long: a timeout that chance has changed."""
    name = request[0].lower()
    waits = name.startswith((b"bl", b"br", b"bz")) and b"0.01" not in (request[1], request[-1])
    blocks = name in (b"xread", b"xreadgroup") and not all(
        value == b"1" for word, value in zip(request, request[1:]) if word.upper().startswith(b"BLOCK")
    )
    return not waits and not blocks


def is_told_wrongly(request):
    """Where COMMAND GETKEYS names keys that Redis does not touch: of several STORE and STOREDIST, and where a value is
    called as an option or as STREAMS."""
    words = [word.upper().partition(b"\0")[0] for word in request]
    return sum(word in (b"STORE", b"STOREDIST") for word in words) > 1 or words.count(b"STREAMS") > 1


def may_be_a_pattern(request):
    """What BY and GET make up cannot be foreseen; nor does what is refused for its options read anything."""
    return request[0].upper().startswith(b"SORT") and any(b"*" in word for word in request[2:])


@pytest.fixture
def oracle(redis):
    return Oracle(redis)


def test_every_command_with_keys_is_here(redis):
    with redis.connect() as direct:
        told = direct("COMMAND")
    with_keys = set()
    for command in told:
        for row in [command, *command[9]]:
            if row[3] != 0 or b"movablekeys" in [bytes(flag) for flag in row[2]]:
                with_keys.add(command[0].decode())
    assert {template[0].lower() for template in TEMPLATES} - ADDED == with_keys - NO_KEYS


@pytest.mark.parametrize("seed", range(3))
def test_what_passes_touches_no_secret(oracle, redis, make_headgate, pool, seed):
    headgate = launch(make_headgate, redis, pool, RULE)
    chance = Chance(seed, oracle)
    client = headgate.connect()
    refused = passed = needless = 0
    for template in TEMPLATES * 8:
        request = chance.mutate(chance.request(template))
        if not is_harmless(request):
            continue
        before = oracle.fill()
        reply = client(*request)
        shown = b" ".join(request)
        assert not oracle.is_touched(before), (shown, reply)
        if isinstance(reply, Error) and reply.startswith(REFUSAL):
            refused += 1
            # Not for nothing: Redis would have touched a secret, or would have refused it by itself.
            own = oracle.direct(*request) if request[0].lower() not in (b"watch", *(name.encode() for name in ADDED)) else Error()
            is_meant = isinstance(own, Error) or oracle.is_touched(before) or oracle.names_secrets(request)
            assert is_meant or may_be_a_pattern(request), (shown, own)
            needless += not is_meant
        elif not isinstance(reply, Error):
            passed += 1
            assert not oracle.names_secrets(request) or is_told_wrongly(request), (shown, reply)
        if request[0] == b"WATCH":
            assert client("UNWATCH") == OK
    assert refused > 200 and passed > 200
    assert needless < refused / 20


def test_patterns_in_long_requests(oracle, redis, make_headgate, pool):
    """They are judged by all that they say."""
    headgate = launch(make_headgate, redis, pool, RULE)
    client = headgate.connect()
    before = oracle.fill()
    long = "x" * 300_000
    for request in (
        ("SORT", "public:list", "BY", "nosort", "GET", "secret:*", "GET", long),
        ("SORT_RO", "public:list", "BY", "nosort", "GET", "secret:*", "GET", long),
        ("SORT_RO", "public:list", "BY", "nosort", "GET", long, "GET", "secret:*"), ("UNKNOWN", long, "secret:string"),
    ):
        reply = client(*request)
        assert isinstance(reply, Error) and reply.startswith(REFUSAL), (request[:2], reply)
    assert client("SORT", "public:list", "ALPHA", "LIMIT", 0, 1, "GET", long) == [None]
    assert not oracle.is_touched(before)


def test_commands_that_are_not_known(fake, make_headgate):
    """Any of their arguments may be a key."""
    fake.answers["MOD.GET"] = lambda _lane, _arguments: b"+OK\r\n"
    headgate = launch(make_headgate, fake.url, "shared", RULE)
    with headgate.connect() as client:
        for request in (("MOD.GET", "secret:a"), ("MOD.GET", "a", "secret:a"), ("mod.set", "a", "b", "secret:")):
            assert client(*request) == Error(REFUSAL + b"this command is not allowed on such a key")
        assert client("MOD.GET", "a", "b") == OK


def test_what_the_manual_says_of_other_commands(redis, make_headgate):
    """The rules that it proposes refuse all commands of its table."""
    manual = (pathlib.Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    section = manual.partition("#### Keys that a rule sees")[2].partition("\n### ")[0]
    rules = re.search(r"```\n(\[deny:secret\].*?)```", section, re.DOTALL)[1]
    rows = re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)
    commands = [command for row in rows for command in row.replace("\\|", "|").split()]
    assert len(commands) > 30
    headgate = launch(make_headgate, redis, "shared", rules)
    with headgate.connect() as client:
        for command in commands:
            reply = client(*command.split("|"), *["x"] * (2 if "|" not in command else 0))
            assert isinstance(reply, Error) and reply.startswith(b"DENIED ways-around: "), (command, reply)
        assert client("SORT", "l") == [] and client("GET", "k") is None


def test_rules_see_through_another_name(make_redis, make_headgate):
    redis = make_redis("--rename-command", "GET", "fetch", "--rename-command", "SORT", "order")
    headgate = launch(make_headgate, redis, "shared", RULE)
    with headgate.connect() as client:
        assert client("FETCH", "secret:a").startswith(b"DENIED secret: get is not allowed")
        assert client("order", "l", "GET", "secret:*").startswith(b"DENIED secret: sort is not allowed")
        assert client("fetch", "a") is None
