"""Logs, counters, statistics, visitors, rankings."""

import bisect
import datetime
import math

import redis

PRECISIONS = (1, 5, 60, 300, 3600)


# ---- logs ----


def log_recent(client, name, message, severity="info", pipe=None):
    destination = f"recent:{name}:{severity}"
    pipe = pipe or client.pipeline(transaction=False)
    pipe.lpush(destination, message)
    pipe.ltrim(destination, 0, 99)
    pipe.execute()


def recipe_newest_messages(place):
    client = place.connect()
    for number in range(250):
        log_recent(client, "app", f"message {number}", severity=("info", "error")[number % 5 == 0])
    return client.lrange("recent:app:info", 0, 4), client.llen("recent:app:info"), client.llen("recent:app:error")


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


def recipe_central_log(place):
    """Many write into one list and a stream of their own; one reads, in chunks, and knows where it was."""
    writers = [place.connect() for _ in range(4)]
    for number in range(40):
        writer = writers[number % 4]
        with writer.pipeline(transaction=False) as pipe:
            pipe.rpush("log:central", f"host{number % 4} line {number}")
            pipe.xadd("log:stream", {"host": number % 4, "line": number}, id=f"{number + 1}-0", maxlen=100)
            pipe.publish("log:live", number)
            pipe.execute()
    reader, seen, position = place.connect(), [], 0
    while chunk := reader.lrange("log:central", position, position + 14):
        position += len(chunk)
        reader.set("log:central:position", position)
        seen.append(len(chunk))
    entries = reader.xread({"log:stream": "38-0"})
    reader.delete("log:stream")
    return seen, position, entries


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


# ---- statistics ----


def update_stats(client, place, context, kind, value):
    destination = f"stats:{context}:{kind}"
    start_key = f"{destination}:start"
    minute = place.now // 60 * 60
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(start_key)
                existing = pipe.get(start_key)
                pipe.multi()
                if existing and int(existing) < minute:
                    pipe.rename(destination, f"{destination}:last")
                    pipe.rename(start_key, f"{destination}:pstart")
                    pipe.set(start_key, minute)
                elif not existing:
                    pipe.set(start_key, minute)
                low, high = place.token(), place.token()
                pipe.zadd(low, {"min": value})
                pipe.zadd(high, {"max": value})
                pipe.zunionstore(destination, [destination, low], aggregate="min")
                pipe.zunionstore(destination, [destination, high], aggregate="max")
                pipe.delete(low, high)
                pipe.zincrby(destination, 1, "count")
                pipe.zincrby(destination, value, "sum")
                pipe.zincrby(destination, value * value, "sumsq")
                return pipe.execute()[-3:]
            except redis.WatchError:
                continue


def report(client, context, kind):
    data = dict(client.zrange(f"stats:{context}:{kind}", 0, -1, withscores=True))
    data["average"] = data["sum"] / data["count"]
    numerator = data["sumsq"] - data["sum"] ** 2 / data["count"]
    data["stddev"] = round(math.sqrt(numerator / (data["count"] - 1 or 1)), 9)
    return sorted(data.items())


def recipe_statistics_by_minute(place):
    client = place.connect()
    for number in range(90):
        place.now += 1
        update_stats(client, place, "page", "AccessTime", (number * 37 % 101) / 4)
    return report(client, "page", "AccessTime"), report(client, "page", "AccessTime:last")


# ---- visitors ----


def address_to_number(address):
    number = 0
    for part in address.split("."):
        number = number * 256 + int(part)
    return number


def recipe_visitors_by_address(place):
    """Ranges of addresses in a sorted set, what is known of a city in a hash; who came, by city and day."""
    client = place.connect()
    cities = {1: ("Riga", "LV"), 2: ("Oslo", "NO"), 3: ("Lima", "PE")}
    with client.pipeline(transaction=False) as pipe:
        for number, (start, city) in enumerate((("10.0.0.0", 1), ("10.1.0.0", 2), ("10.2.0.0", 3), ("10.3.0.0", 1))):
            pipe.zadd("ip2cityid:", {f"{city}_{number}": address_to_number(start)})
        for city, facts in cities.items():
            pipe.hset("cityid2city:", city, ",".join(facts))
        pipe.execute()
    seen = []
    for address in ("10.0.3.4", "10.1.255.255", "10.3.1.1", "9.9.9.9"):
        found = client.zrevrangebyscore("ip2cityid:", address_to_number(address), 0, start=0, num=1)
        seen.append(client.hget("cityid2city:", found[0].partition("_")[0]) if found else None)
        if found:
            client.hincrby("visits:2023-11-14", found[0].partition("_")[0], 1)
    return seen, client.hgetall("visits:2023-11-14")


def recipe_page_views_and_unique_visitors(place):
    client = place.connect()
    with client.pipeline(transaction=False) as pipe:
        for number in range(600):
            user, page = number * 31 % 97, number % 5
            pipe.incr(f"views:{page}")
            pipe.setbit(f"active:2023-11-{14 + number % 2}", user, 1)
            pipe.pfadd(f"unique:{page}", f"user{user}")
        pipe.execute()
    client.bitop("AND", "active:both", "active:2023-11-14", "active:2023-11-15")
    client.pfmerge("unique:all", *(f"unique:{page}" for page in range(5)))
    return (
        client.mget([f"views:{page}" for page in range(5)]),
        client.bitcount("active:both"),
        client.bitcount("active:2023-11-14", 0, 3),
        client.bitpos("active:both", 0),
        client.bitfield("active:both").get("u8", 0).get("u16", "#1").execute(),
        client.pfcount("unique:all"),
        client.pfcount("unique:0", "unique:1"),
    )


def recipe_online_users(place):
    """A set for each minute, the union of the last five; and the same by one sorted set."""
    client = place.connect()
    for minute in range(8):
        key = f"online:{place.now // 60}"
        for user in range(minute, minute + 4):
            client.sadd(key, f"user{user}")
            client.zadd("online", {f"user{user}": place.now})
        client.expire(key, 600)
        place.now += 60
    keys = [f"online:{place.now // 60 - back}" for back in range(1, 6)]
    client.zremrangebyscore("online", 0, place.now - 300)
    return sorted(client.sunion(keys)), sorted(client.sinter(keys[:2])), client.zrange("online", 0, -1), client.zcard("online")


def recipe_ranking(place):
    client = place.connect()
    for number in range(120):
        client.zincrby("ranking:week", number % 13, f"player{number * 7 % 23}")
    client.zadd("ranking:week", {"player1": 500}, gt=True)
    client.zadd("ranking:week", {"player1": 5}, gt=True)
    client.zunionstore("ranking:month", {"ranking:week": 2, "ranking:none": 1})
    around = client.zrevrank("ranking:week", "player5")
    return (
        client.zrevrange("ranking:week", 0, 4, withscores=True),
        client.zrange("ranking:week", max(0, around - 1), around + 1, desc=True),
        client.zscore("ranking:month", "player1"),
        client.zcount("ranking:week", 10, 60),
        client.zpopmax("ranking:month", 2),
    )


def recipe_latest_items(place):
    """A list of ids that is cut, the items in hashes; a page is fetched in one go by SORT … GET."""
    client = place.connect()
    for number in range(30):
        with client.pipeline() as pipe:
            pipe.hset(f"item:{number}", mapping={"title": f"Item {number}", "by": f"user{number % 3}"})
            pipe.lpush("latest:items", number)
            pipe.ltrim("latest:items", 0, 9)
            pipe.execute()
    return (
        client.lrange("latest:items", 0, -1),
        client.sort("latest:items", start=0, num=3, desc=True, get=["#", "item:*->title"]),
        client.sort("latest:items", by="item:*->by", alpha=True, get="item:*->by", store="latest:by"),
    )
