"""Commands of a server that Headgate's table has not: their kind is guessed, by the flags that COMMAND INFO tells."""

import re

TABLE = "proxy/command/command_table.inc"
# With these a command may touch the state of its connection, or wait: what Headgate guesses should be looked at.
TELLING = {b"blocking", b"pubsub", b"noscript", b"no_multi", b"movablekeys"}


def known_to_headgate(root):
    """Names in its table."""
    return set(re.findall(r'^COMMAND\("([^"]+)"', (root / TABLE).read_text(), re.MULTILINE))


def guessed(look, root):
    """Lines: a command, and its flags that tell something."""
    known = known_to_headgate(root)
    lines = []
    for entry in look("COMMAND"):
        name, flags = entry[0].decode().lower(), {bytes(flag) for flag in entry[2]}
        if name not in known:
            telling = " ".join(sorted(flag.decode() for flag in flags & TELLING))
            lines.append(f"{name} ({telling})" if telling else name)
    return sorted(lines)
