"""Names with a NUL that a server finds nevertheless.

Redis looks names up by a hash of all bytes and compares what it finds there by strcasecmp(), which ends at the NUL. So
"get\\0xyz" is GET if it happens to fall into the same bucket. Which bytes do that depends on a secret of the server;
COMMAND INFO uses the same table and tells.
"""

import random

from harness.resp import Error

TRIES = 2048


def candidates(word, rng, count):
    return [word + b"\0" + b"%x" % rng.getrandbits(40) for _ in range(count)]


def found_name(client, before, word, rng, tries=TRIES):
    """A changed word that the server takes for it, or None. before: "client|" for its subcommands."""
    names = candidates(word, rng, tries)
    reply = client("COMMAND", "INFO", *(before + name for name in names))
    if isinstance(reply, Error):
        return None
    return next((name for name, entry in zip(names, reply) if isinstance(entry, list) and entry), None)


def find_hits(client, rows, seed):
    """{(full name, place): changed word} for each name of a command and of a subcommand of the server."""
    rng = random.Random(seed)
    hits = {}
    for row in rows:
        if not row.subcommand:
            hits[row.full_name, 0] = found_name(client, b"", row.name.encode(), rng)
        else:
            hits[row.full_name, 1] = found_name(
                client, row.name.encode() + b"|", row.subcommand.encode(), rng, TRIES // 8
            )
    for row in rows:
        if row.subcommand:
            hits[row.full_name, 0] = hits.get((row.name, 0))
    return hits
