"""Sound requests of each command and subcommand, from which the forms are made.

The arguments come from COMMAND DOCS; where what it says would stop, block or change the server for everybody, or says
too little, they are written here.
"""

# Of these only the words of the command are changed: a changed value could harm the server (become a replica, sleep).
WORDS_ONLY = set(
    "replicaof slaveof psync sync debug shutdown pfselftest swapdb client|kill failover".split()
)
# Without their last argument they would end the server, or keep it busy for long.
NEVER_SHORTER = {"shutdown", "pfselftest"}
# They write a stream without end, stop other clients, speak to them, or start processes: each is sent apart.
APART = set(
    (
        "monitor sync psync client|pause client|unpause client|kill replicaof slaveof failover debug bgsave save bgrewriteaof "
        "flushall flushdb shutdown publish spublish"
    ).split()
)

SHA = "0" * 40
LIBRARY = '#!lua name=l{n}\nredis.register_function("f{n}", function() return 1 end)'

# {n} is a number that no other form has.
WRITTEN = {
    name: [line.split(" ") if line else [] for line in lines[1:].split("|")]
    for name, _, lines in (row.partition(":") for row in """
acl|deluser: u{n}
acl|dryrun: default get k{n}
acl|getuser: default
acl|log: |RESET
acl|setuser: u{n} on
auth: low pw|default any|low wrong|wrong
bgsave:
client|caching: YES|NO
client|capa: redirect
client|import-source: on|off
client|kill: ID 999999999|USER nobody|ID 999999999 SKIPME no|1.2.3.4:5
client|list: |TYPE normal|ID 1
client|no-evict: on|off
client|no-touch: on|off
client|pause: 1|1 WRITE
client|reply: ON|OFF|SKIP
client|setinfo: LIB-NAME library|LIB-VER 1
client|setname: name{n}
client|tracking: on|off|on BCAST|on OPTIN|on OPTOUT|on NOLOOP|on REDIRECT 999999999|on BCAST PREFIX k{n}
client|unblock: 999999999|999999999 TIMEOUT|999999999 ERROR
config|get: hz
config|set: hz 10|hz 10 maxmemory 0
debug: SLEEP 0|OBJECT k{n}|PROTOCOL STRING|PROTOCOL PUSH|nothing
failover: ABORT
fcall: f{n} 0
fcall_ro: f{n} 0
function|delete: l{n}
hello: |2|3|3 AUTH low pw|2 AUTH low wrong|3 SETNAME name{n}|3 AUTH low pw SETNAME name{n}|2 AUTH default any
module|load: /nothing
module|loadex: /nothing
monitor:
pfselftest: extra
psubscribe: k{n}:*
psync: ? -1
punsubscribe: |k{n}:*
replconf: listening-port 1|ack 0|getack *|capa eof|rdb-only 1|nothing 1
replicaof: NO ONE
reset:
script|debug: NO|YES|SYNC
select: 1|0|99
shutdown: nothing
slaveof: NO ONE
swapdb: 0 0
sync:
wait: 0 0|1 0
waitaof: 0 0 0|0 1 0
""".strip("\n").split("\n"))
}
WRITTEN |= {
    "eval": [["return 1", "0"], ["return redis.call('GET', KEYS[1])", "1", "k{n}"]],
    "evalsha": [[SHA, "0"]],
    "evalsha_ro": [[SHA, "0"]],
    "eval_ro": [["return 1", "0"]],
    "function|load": [[LIBRARY], ["REPLACE", LIBRARY]],
    "migrate": [["127.0.0.1", "1", "k{n}", "0", "10"], ["127.0.0.1", "1", "", "0", "10", "KEYS", "k{n}"]],
    "script|load": [["return {n}"]],
}

VALUES_BY_NAME = {"numkeys": "1", "timeout": "0", "cursor": "0", "milliseconds": "0", "host": "127.0.0.1", "port": "1"}
VALUES_BY_NAME |= {"count": "1", "id": "1-1", "index": "0", "lastid": "1-1"}
VALUES_BY_TYPE = {"key": "k{n}", "string": "v", "integer": "1", "double": "1", "pattern": "*", "unix-time": "9999999999"}


class Word:
    """An argument with what it is: a name, a subcommand, an option or a value."""

    def __init__(self, text, role):
        self.text = text if isinstance(text, bytes) else text.encode()
        self.role = role

    def __repr__(self):
        return repr(self.text)


def value_of(argument):
    if argument["name"] in VALUES_BY_NAME and argument["type"] != "key":
        return VALUES_BY_NAME[argument["name"]]
    if argument["name"] in ("channel", "shardchannel"):
        return "k{n}"
    return VALUES_BY_TYPE.get(argument["type"], "v")


def written(argument, wanted):
    """The words of one argument. wanted: the path of positions within it that has to be taken, or nothing."""
    words = [Word(argument["token"], "option")] if argument.get("token") else []
    inner = argument["arguments"]
    if argument["type"] == "pure-token":
        return words or [Word("v", "value")]
    if argument["type"] == "oneof":
        position = wanted[0] if wanted else 0
        return words + written(inner[position], wanted[1:])
    if argument["type"] == "block":
        return words + listed(inner, wanted)
    return words + [Word(value_of(argument), "value")]


def listed(arguments, wanted):
    words = []
    for position, argument in enumerate(arguments):
        chosen = bool(wanted) and wanted[0] == position
        if chosen or "optional" not in argument["flags"]:
            words += written(argument, wanted[1:] if chosen else ())
    return words


def option_paths(arguments, before=()):
    """Where there is a word of an option."""
    for position, argument in enumerate(arguments):
        path = before + (position,)
        if argument.get("token"):
            yield path
        yield from option_paths(argument["arguments"], path)


def filler(row):
    """What COMMAND DOCS says nothing of."""
    missing = max(0, abs(row.arity) - len(row.words))
    return [Word("k{n}" if place == 0 else "1", "value") for place in range(missing)]


def bases_of(row):
    """Lists of words, the shortest first."""
    start = [Word(row.name, "name")] + ([Word(row.subcommand, "subcommand")] if row.subcommand else [])
    if row.full_name in WRITTEN:
        return [start + [Word(text, role_of(text)) for text in words] for words in WRITTEN[row.full_name]]
    if row.arguments is None:
        return [start + filler(row)]
    bases = [start + listed(row.arguments, ())]
    for path in option_paths(row.arguments):
        base = start + listed(row.arguments, path)
        if [word.text for word in base] not in [[word.text for word in known] for known in bases]:
            bases.append(base)
    return bases


def role_of(text):
    """Of those written here: options are words of letters alone."""
    is_word = text.replace("-", "").isalpha() and len(text) > 1 and text not in ("low", "pw", "wrong")
    return "option" if is_word else "value"
