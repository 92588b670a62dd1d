"""The recipes that articles and books teach, each as an application has it: client code that knows no Headgate.

A recipe is a function that is given a Place, and gives what it has seen, as plain values: the same on a Redis of its own
and through Headgate. Times are asked of the Place where they get into keys or answers, so that both runs see the same.
"""

import itertools
import json

import redis


class Place:
    """One run of a recipe: connections to where it runs, a clock that stands still until it is set, and names."""

    def __init__(self, address):
        self.address = address
        self.now = 1_700_000_000
        self.clients = []
        self.numbers = itertools.count(1)

    def connect(self):
        client = redis.Redis(*self.address, decode_responses=True, socket_timeout=30)
        self.clients.append(client)
        return client

    def token(self):
        """As a uuid, but the same each time."""
        return f"token-{next(self.numbers):04}"

    def close(self):
        for client in self.clients:
            client.close()
            client.connection_pool.disconnect()


def recipes_of(*modules):
    """All of them by name: functions that are called recipe_…"""
    found = {}
    for module in modules:
        for name, function in vars(module).items():
            if name.startswith("recipe_"):
                assert name not in found, name
                found[name.removeprefix("recipe_")] = function
    return found


def data_of(client, without_scores=()):
    """The data set as plain values, but Headgate's own keys. without_scores: beginnings of keys of sorted sets whose
    scores are times of the real clock."""
    data = {}
    for key in sorted(client.scan_iter(count=1000)):
        if not key.startswith("headgate:"):
            bare = any(key.startswith(begin) for begin in without_scores)
            data[key] = [client.type(key), client.ttl(key) >= 0, value_of(client, key, bare)]
    return data


def value_of(client, key, bare):
    kind = client.type(key)
    if kind == "string":
        # It may be a bitmap or a HyperLogLog, and no text.
        return client.eval("return redis.sha1hex(redis.call('GET', KEYS[1]))", 1, key)
    if kind == "hash":
        return sorted(client.hgetall(key).items())
    if kind == "list":
        return client.lrange(key, 0, -1)
    if kind == "set":
        return sorted(client.smembers(key))
    members = client.zrange(key, 0, -1, withscores=True)
    return [member for member, _ in members] if bare else members


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
