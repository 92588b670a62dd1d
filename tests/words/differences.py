"""What a client may be told otherwise than by Redis itself: each with its reason. docs/compatibility.md has them all."""

from harness.resp import Error

# Two servers, or two moments, differ in these whatever is between: only whether it is an error is compared.
OF_THE_MOMENT = {
    "acl": "users and log entries of other forms",
    "bitfield": "order among forms",
    "client": "ids, addresses and ages",
    "command": "the order in a hash table",
    "commandlog": "times",
    "config": "what each server was started with",
    "dbsize": "keys of other forms",
    "debug": "addresses in memory, times",
    "function": "libraries of other forms",
    "hello": "the id of the connection",
    "info": "figures",
    "keys": "keys of other forms",
    "lastsave": "a time",
    "latency": "times",
    "lolwut": "drawn by chance",
    "memory": "figures",
    "monitor": "what others ask for",
    "psync": "a stream",
    "pubsub": "channels of other forms",
    "randomkey": "by chance",
    "replconf": "nothing is answered to some of it",
    "role": "the offset of the replication",
    "scan": "keys of other forms",
    "script": "scripts of other forms",
    "slowlog": "times",
    "sync": "a stream",
    "punsubscribe": "the order in a hash table",
    "sunsubscribe": "the order in a hash table",
    "time": "a time",
    "unsubscribe": "the order in a hash table",
    "xadd": "ids are times",
    "xinfo": "times",
}

# How many frames come is not compared either: they are a stream.
STREAMS = {"monitor", "psync", "sync"}

# What they answer depends on the child that the one before has started.
OF_CHILDREN = {"bgsave", "bgrewriteaof", "save"}

# Commands that Headgate adds to servers that have none: docs/limits.md.
ADDED = {"cl.throttle", "delifeq", "delifequals"}


# A name of a command or subcommand with a NUL in it: Redis finds "get\\0xyz" or not, as the hash of its bytes and a secret of
# the server have it, Headgate never passes one on, and answers as Redis does when it does not find it.
UNKNOWN = (b"ERR unknown command '", b"ERR unknown subcommand '")


def closes_without_a_word(scenario):
    """POST and Host: make Redis close at once, with what it owed for requests before; Headgate answers those. With a NUL
    behind them Redis closes, too, and Headgate says that they are unknown. Nothing is left of either."""
    return bool(scenario.names & {"post", "host:"}) and (scenario.found_by_chance or len(scenario.forms) != 1)


def says_unknown_alike(mine, direct):
    """Of a container that the server lacks, Headgate may say that the subcommand is unknown, as it has a NUL in it."""
    return is_unknown(mine) and is_unknown(direct)


def refuses_a_name(scenario, mine):
    """CLIENT SETNAME and SETINFO with a NUL in the name: Redis 7.0 refuses it, 7.2 and later look at what is before it.
    Headgate refuses it for all."""
    return (
        "client" in scenario.names
        and isinstance(mine, Error)
        and mine.endswith(b"cannot contain spaces, newlines or special characters.")
    )


def that_are_always_told(replies):
    """Redis 8.2 says nothing of a wrong password when more stands behind it in what it has read."""
    return [reply for reply in replies if not (isinstance(reply, Error) and reply.startswith(b"WRONGPASS"))]


def is_unknown(reply):
    return isinstance(reply, Error) and reply.startswith(UNKNOWN)


def debugs_scripts(scenario):
    """SCRIPT DEBUG: pool = shared refuses it and closes, as a session of the debugger might reach other clients."""
    return "script" in scenario.names and b"DEBUG" in scenario.all_bytes.upper()


def names_something_by_a_hash(scenario):
    """CONFIG finds the names of options as Redis finds commands, and ACL, COMMAND and LATENCY are told names of commands:
    with a NUL, by chance."""
    return bool(scenario.names & {"acl", "command", "config", "latency"}) and b"\0" in scenario.all_bytes


def asks_for_a_name_that_was_given(scenario):
    """Where CLIENT has another name, Headgate answers CLIENT GETNAME all the same once a name was given by that."""
    return b"KCLIENT" in scenario.all_bytes and b"GETNAME" in scenario.all_bytes


def ends_valkey(scenario):
    """SCRIPT DEBUG YES and a script behind it: Valkey 9.1.2 crashes by itself, without Headgate."""
    return "script" in scenario.names and b"DEBUG" in scenario.all_bytes


def is_apart(scenario):
    """A script that is debugged runs in a process of its own, which keeps others' connections open. Who tracks all keys
    is told of what others do at the same time."""
    return (
        b"DEBUG" in scenario.all_bytes
        or b"BCAST" in scenario.all_bytes
        or any(form.is_apart for form in scenario.forms)
        or bool(scenario.names & STREAMS)
    )


def breaks_its_error_line(scenario):
    """FUNCTION LIST with a line's end in its argument: Redis 7.2 and later, and Valkey, write it into the error as it is.
    What follows is no RESP in most cases, and Headgate closes its client."""
    return any(form.row.full_name == "function|list" and form.change.startswith("crlf") for form in scenario.forms)


def is_not_compared(scenario):
    """What follows a name that one of the servers may have found is another story on each of them."""
    if scenario.names & (STREAMS | ADDED | OF_CHILDREN) or closes_without_a_word(scenario):
        return True
    if (
        breaks_its_error_line(scenario)
        or names_something_by_a_hash(scenario)
        or asks_for_a_name_that_was_given(scenario)
        or debugs_scripts(scenario)
    ):
        return True
    return len(scenario.forms) != 1 and scenario.found_by_chance


def is_of_the_moment(scenario):
    return any(name in OF_THE_MOMENT for name in scenario.names)
