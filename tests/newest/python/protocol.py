"""What a program of tests/newest is asked, and how it answers: scripts/clients_program.py."""

import concurrent.futures
import sys


class Unsupported(Exception):
    """The library has no such thing, or not with this server."""


def outcome(feature, client, key):
    if not feature:
        return ["unsupported"]
    try:
        return [f"reply {reply!r}" for reply in feature(client, key)]
    except Unsupported as reason:
        return [f"unsupported {reason}"]
    except Exception as error:
        return ["error " + f"{type(error).__name__}: {error}".replace("\n", " ")]


def say(line):
    print(line, flush=True)


def serve(version, connect, features, close):
    """features: generators of replies, each given a client and a key of its own."""
    features = {feature.__name__: feature for feature in features}
    clients = [connect() for _ in range(int(sys.argv[3]))]
    say(f"version {version}")
    say("ready")
    for line in sys.stdin:
        _, name, at_once = line.split()
        keys = [f"newest:{name}:{number}" for number in range(len(clients))]
        with concurrent.futures.ThreadPoolExecutor(len(clients) if at_once == "together" else 1) as executor:
            for lines in executor.map(outcome, [features.get(name)] * len(clients), clients, keys):
                for text in lines:
                    say(text)
        say("done")
    for client in clients:
        close(client)
