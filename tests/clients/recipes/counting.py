"""Logs and counters that are cut by time."""

import bisect
import datetime

import redis

PRECISIONS = (1, 5, 60, 300, 3600)


# ---- logs ----


def log_recent(client, name, message, severity="info", pipe=None):
    destination = f"recent:{name}:{severity}"
    pipe = pipe or client.pipeline(transaction=False)
    pipe.lpush(destination, message)
    pipe.ltrim(destination, 0, 99)
    pipe.execute()


def log_common(client, place, name, message, severity="info"):
    """Counts how often a message comes, by hour: the first of a new hour puts the old counts aside."""
    destination = f"common:{name}:{severity}"
    start_key = f"{destination}:start"
    hour = datetime.datetime.utcfromtimestamp(place.now).replace(minute=0, second=0).isoformat()
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(start_key)
                existing = pipe.get(start_key)
                pipe.multi()
                if existing and existing < hour:
                    pipe.rename(destination, f"{destination}:last")
                    pipe.rename(start_key, f"{destination}:pstart")
                    pipe.set(start_key, hour)
                elif not existing:
                    pipe.set(start_key, hour)
                pipe.zincrby(destination, 1, message)
                log_recent(client, name, message, severity, pipe)
                return
            except redis.WatchError:
                continue


def recipe_message_frequency_by_hour(place):
    client = place.connect()
    for number in range(60):
        place.now += 120
        log_common(client, place, "web", f"message {number % 7}")
    return (
        client.zrevrange("common:web:info", 0, -1, withscores=True),
        client.zrevrange("common:web:info:last", 0, -1, withscores=True),
        client.get("common:web:info:start"),
        client.get("common:web:info:pstart"),
    )


# ---- counters ----


def update_counter(client, place, name, count=1):
    with client.pipeline() as pipe:
        for precision in PRECISIONS:
            key = f"{precision}:{name}"
            pipe.zadd("known:", {key: 0})
            pipe.hincrby(f"count:{key}", place.now // precision * precision, count)
        pipe.execute()


def clean_counters(client, place, samples):
    """One round of the daemon: of each counter only the newest samples stay; who counts meanwhile is not disturbed."""
    index = 0
    while index < client.zcard("known:"):
        key = client.zrange("known:", index, index)[0]
        index += 1
        precision = int(key.partition(":")[0])
        cutoff = place.now - samples * precision
        slices = sorted(map(int, client.hkeys(f"count:{key}")))
        remove = bisect.bisect_right(slices, cutoff)
        if not remove:
            continue
        client.hdel(f"count:{key}", *slices[:remove])
        if remove == len(slices):
            with client.pipeline() as pipe:
                try:
                    pipe.watch(f"count:{key}")
                    if pipe.hlen(f"count:{key}"):
                        pipe.unwatch()
                        continue
                    pipe.multi()
                    pipe.zrem("known:", key)
                    pipe.execute()
                    index -= 1
                except redis.WatchError:
                    pass


def recipe_time_sliced_counters(place):
    client, daemon = place.connect(), place.connect()
    for number in range(200):
        place.now += 7
        update_counter(client, place, ("hits", "sales")[number % 3 == 0], number % 5 + 1)
        if number % 40 == 0:
            clean_counters(daemon, place, samples=12)
    place.now += 100
    clean_counters(daemon, place, samples=12)
    slices = [client.hgetall(f"count:{precision}:hits") for precision in PRECISIONS]
    return [sorted((int(at), int(count)) for at, count in found.items()) for found in slices], client.zrange("known:", 0, -1)
