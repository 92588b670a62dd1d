"""What a client could do to the connection that the next one gets: several requests in a row, each a known danger.

Each attack is a list of requests, written as words. {n} is a number that no other attack has.
"""

from harness.resp import encode
from scenarios import Scenario

FORGED = "return redis.error_reply(\"ERR unknown command '{name}'\")"


def requests(text):
    """Words, with blanks between them, and "|" between requests."""
    return [line.split(" ") if line else [] for line in text.split("|")]


FOLLOWERS = requests(
    "PING|ECHO hello|GET k{n}|SET k{n} 1|INCR k{n}|TYPE k{n}|MULTI|EXEC|DISCARD|WATCH k{n}|UNWATCH|SUBSCRIBE evil{n}"
    "|PSUBSCRIBE evil{n}:*|UNSUBSCRIBE|PUBLISH evil{n} hi|SCRIPT EXISTS 0000000000000000000000000000000000000000"
    "|AUTH low wrong|AUTH admin wrong|AUTH low pw|HELLO|HELLO 3|HELLO 9|SELECT 1|SELECT 99|RESET|QUIT|BLPOP k{n} 0.01"
    "|CLIENT ID|CLIENT GETNAME|CLIENT REPLY ON|nosuchcommand|GET\0 k{n}"
) + [
    ["EVAL", "return 1", "0"],
    ["EVAL", FORGED, "0"],
    ["EVAL", "return redis.error_reply('NOAUTH Authentication required.')", "0"],
]

# Commands that change what a connection is.
STATES = requests(
    "AUTH low pw|AUTH low wrong|AUTH default any|HELLO 3|HELLO 2|HELLO 3 AUTH low pw|HELLO 3 AUTH low pw SETNAME n{n}"
    "|HELLO 3 AUTH low pw nothing|HELLO 3 AUTH low pw SETNAME|HELLO 3 AUTH low pw AUTH low wrong|HELLO 3 AUTH\0 low pw"
    "|HELLO 3 auth\0any low pw setname\0 n{n}|HELLO 3 SETNAME n{n} AUTH low wrong|HELLO 3\0 AUTH low pw"
    "|AUTH low\0 pw|AUTH low pw\0|AUTH\0 low pw|SELECT 1|SELECT 1\0|SELECT 01|MULTI|MULTI extra|WATCH k{n}|WATCH"
    "|EXEC|EXEC extra|DISCARD|UNWATCH|SUBSCRIBE evil{n}|SUBSCRIBE evil{n} evil{n} other{n}|SUBSCRIBE|PSUBSCRIBE evil{n}:*"
    "|SSUBSCRIBE evil{n}|UNSUBSCRIBE|UNSUBSCRIBE evil{n}|PUNSUBSCRIBE|SUNSUBSCRIBE evil{n}|CLIENT REPLY SKIP"
    "|CLIENT REPLY OFF|CLIENT REPLY ON|CLIENT REPLY SKIP\0|CLIENT REPLY OFF\0any|CLIENT REPLY\0 OFF"
    "|CLIENT REPLY OFF extra|CLIENT TRACKING on|CLIENT TRACKING on\0 BCAST\0|CLIENT TRACKING off"
    "|CLIENT TRACKING on BCAST PREFIX k{n}|CLIENT CACHING YES|CLIENT NO-EVICT on|CLIENT NO-TOUCH on|CLIENT SETNAME n{n}"
    "|CLIENT SETINFO LIB-NAME\0any n{n}|SCRIPT DEBUG YES|SCRIPT DEBUG\0x YES|READONLY|ASKING|RESET|RESET extra|QUIT"
    "|QUIT extra|WAIT 0 0|REPLCONF capa eof|REPLCONF ack 0|REPLCONF|SYNC x|PSYNC|PSYNC a b c|DEBUG PROTOCOL PUSH"
    "|DEBUG PROTOCOL\0 PUSH|BLPOP k{n} 0.01|BLPOP k{n} 0|XREAD BLOCK\0 10 STREAMS k{n} $"
) + [
    ["EVAL", "return redis.call('SELECT', '1')", "0"],
    ["EVAL", "redis.setresp(3); return redis.call('GET', 'k{n}')", "0"],
]

# By the command's own name: what is asked of it once it has another one.
OF_RENAMED = {
    "CLIENT": requests(
        "REPLY SKIP|REPLY OFF|REPLY ON|REPLY SKIP\0|TRACKING on|TRACKING on BCAST|NO-EVICT on|SETNAME n{n}|ID|nothing|"
    ),
    "SUBSCRIBE": requests("evil{n}|evil{n} other{n}|"),
    "PSUBSCRIBE": requests("evil{n}:*"),
    "SSUBSCRIBE": requests("evil{n}"),
    "AUTH": requests("low pw|low wrong|default any"),
    "HELLO": requests("3|3 AUTH low pw|3 AUTH low pw nothing|3 SETNAME n{n}|9"),
    "MULTI": requests(""),
    "SELECT": requests("5|99"),
    "WATCH": requests("k{n}"),
    # Not SYNC: a script that is debugged so stops the server.
    "SCRIPT": requests("DEBUG YES|DEBUG NO"),
    "RESET": requests(""),
    "READONLY": requests(""),
    "QUIT": requests(""),
    "BLPOP": requests("k{n} 0"),
}

CONTAINERS = {"CLIENT", "SCRIPT"}


def other_name(name):
    return "k" + name.lower()


class Numbers:
    """Makes scenarios of lists of requests, each with a number of its own."""

    def __init__(self, names=()):
        self.count = 0
        self.names = names

    def scenario(self, requests, pipelined):
        self.count += 1
        encoded = [encode(*(word.replace("{n}", str(self.count)) for word in words)) for words in requests]
        steps = [b"".join(encoded)] if pipelined else encoded
        chance = any("\0" in word for words in requests for word in words[: 2 if words[0] in CONTAINERS else 1])
        names = {words[0].lower().split("\0")[0] for words in requests} | set(self.names)
        return Scenario(steps, names=names, found_by_chance=chance, what="pipelined" if pipelined else "one by one")


def state_attacks():
    """Each state alone, before and behind each other one, within a transaction, and with each follower behind it."""
    for state in STATES:
        yield [state]
        for second in STATES + FOLLOWERS:
            yield [state, second]
        for end in (["EXEC"], ["DISCARD"], ["RESET"], ["QUIT"], None):
            yield [["MULTI"], state] + ([end] if end else [])
            yield [["MULTI"], state, ["GET", "k{n}"]] + ([end] if end else [])
    for skip in ("SKIP\0", "SKIP", "OFF\0"):
        yield [["CLIENT", "REPLY", skip], ["SUBSCRIBE", "evil{n}"], ["GET", "k{n}"], ["PUBLISH", "evil{n}", "hi"]]
        yield [["CLIENT", "REPLY", skip], ["SUBSCRIBE", "evil{n}"], ["AUTH", "admin", "wrong"]]
        yield [["CLIENT", "REPLY", skip], ["MULTI"], ["SUBSCRIBE", "evil{n}"], ["EXEC"]]
        yield [["CLIENT", "REPLY", skip], ["EVAL", FORGED, "0"], ["GET", "k{n}"]]
    yield [["SUBSCRIBE", "evil{n}"], ["AUTH", "admin", "wrong"], ["UNSUBSCRIBE"], ["GET", "k{n}"]]
    yield [["HELLO", "3"], ["SUBSCRIBE", "evil{n}"], ["AUTH", "admin", "wrong"], ["PUBLISH", "evil{n}", "hi"]]
    yield [
        ["HELLO", "3"],
        ["CLIENT", "TRACKING", "on"],
        ["GET", "k{n}"],
        ["SET", "k{n}", "1"],
        ["CLIENT", "TRACKING", "off"],
    ]
    yield [["HELLO", "3"], ["SUBSCRIBE", "evil{n}"], ["HELLO", "2"], ["UNSUBSCRIBE"], ["GET", "k{n}"]]


def renamed_attacks(name):
    """name: the command that the server has under another name."""
    for words in OF_RENAMED[name]:
        first = [other_name(name)] + words
        forged = ["EVAL", FORGED.replace("{name}", other_name(name)), "0"]
        yield [first]
        yield [first, forged]
        yield [first, forged, ["GET", "k{n}"]]
        yield [["MULTI"], first, ["EXEC"]]
        yield [["GET", "k{n}"], first, ["GET", "k{n}"], ["ECHO", "last"]]
        for follower in FOLLOWERS:
            yield [first, follower]
            yield [first, follower, ["PUBLISH", "evil{n}", "hi"]]
