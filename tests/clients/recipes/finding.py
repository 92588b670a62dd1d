"""Autocompletion, filters, places, directories and settings."""

import hashlib
import threading

import redis

LETTERS = "`abcdefghijklmnopqrstuvwxyz{"


# ---- autocompletion ----


def recipe_recent_contacts(place):
    """The newest first, a hundred at most; those that begin with what was typed are found by the client."""
    client = place.connect()
    for number in range(130):
        contact = f"friend{number * 17 % 110:03}"
        with client.pipeline() as pipe:
            pipe.lrem("recent:user", 0, contact)
            pipe.lpush("recent:user", contact)
            pipe.ltrim("recent:user", 0, 99)
            pipe.execute()
    return [contact for contact in client.lrange("recent:user", 0, -1) if contact.startswith("friend01")]


def prefix_range(prefix):
    before = LETTERS[LETTERS.index(prefix[-1]) - 1]
    return prefix[:-1] + before + "{", prefix + "{"


def complete(client, place, guild, prefix):
    """Marks both ends of the range in the set, reads between them, and takes the marks away, in one transaction."""
    start, end = (bound + place.token() for bound in prefix_range(prefix))
    key = f"members:{guild}"
    client.zadd(key, {start: 0, end: 0})
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)
                first, last = pipe.zrank(key, start), pipe.zrank(key, end)
                pipe.multi()
                pipe.zrem(key, start, end)
                pipe.zrange(key, first, min(first + 9, last - 2))
                return [name for name in pipe.execute()[-1] if "{" not in name]
            except redis.WatchError:
                continue


def recipe_autocompletion_in_sorted_sets(place):
    client = place.connect()
    names = ["jack", "jill", "jane", "janet", "jan", "bob", "jo", "zed", "ja", "abe"]
    client.zadd("members:guild", dict.fromkeys(names, 0))
    found = [complete(client, place, "guild", prefix) for prefix in ("ja", "j", "z", "q", "jan")]
    by_lex = client.zrangebylex("members:guild", "[ja", "(jb")
    client.zrem("members:guild", "jack")
    return found, by_lex, client.zrange("members:guild", "[j", "[jz", bylex=True), client.zcard("members:guild")


# ---- filters and places ----


def recipe_bloom_filter(place):
    client = place.connect()

    def bits(item):
        digest = hashlib.sha256(item.encode()).digest()
        return [int.from_bytes(digest[at : at + 4], "big") % 8192 for at in range(0, 28, 4)]

    for number in range(300):
        with client.pipeline(transaction=False) as pipe:
            for bit in bits(f"seen{number}"):
                pipe.setbit("bloom:urls", bit, 1)
            pipe.execute()

    def has(item):
        with client.pipeline(transaction=False) as pipe:
            for bit in bits(item):
                pipe.getbit("bloom:urls", bit)
            return all(pipe.execute())

    return all(has(f"seen{number}") for number in range(300)), sum(has(f"unseen{number}") for number in range(300))


def recipe_places_near_by(place):
    client = place.connect()
    client.geoadd("geo:cafes", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    client.geoadd("geo:cafes", (12.758489, 38.788135, "edge1", 17.241510, 38.788135, "edge2"), nx=True)
    return (
        client.geosearch("geo:cafes", longitude=15, latitude=37, radius=200, unit="km", sort="ASC", withdist=True),
        client.geosearch("geo:cafes", member="Palermo", width=400, height=400, unit="km", count=2, sort="DESC"),
        client.geodist("geo:cafes", "Palermo", "Catania", unit="km"),
        client.geohash("geo:cafes", "Palermo", "edge1"),
        client.geosearchstore("geo:near", "geo:cafes", longitude=15, latitude=37, radius=200, unit="km", storedist=True),
    )


# ---- settings and services ----


def recipe_configuration_hash(place):
    """Settings in a hash with a version; who has an old one is told by a message, and reads anew."""
    writer, reader = place.connect(), place.connect()
    heard = reader.pubsub(ignore_subscribe_messages=True)
    heard.subscribe("config:changed")
    heard.get_message(timeout=10)
    seen = []
    for version in range(1, 4):
        with writer.pipeline() as pipe:
            pipe.hset("config:web", mapping={"timeout": version * 10, "version": version})
            pipe.publish("config:changed", version)
            pipe.execute()
        message = None
        while message is None:
            message = heard.get_message(timeout=10)
        seen.append((message["data"], reader.hgetall("config:web")))
    heard.close()
    under_maintenance = [reader.get("is-under-maintenance"), writer.set("is-under-maintenance", "yes")]
    return seen, under_maintenance, reader.hmget("config:web", "timeout", "none")


def recipe_service_directory(place):
    """Instances announce themselves with a time to live; who looks for one takes those that are alive."""
    instances = [place.connect() for _ in range(3)]
    for number, instance in enumerate(instances):
        with instance.pipeline() as pipe:
            pipe.set(f"service:mail:{number}", f"10.0.0.{number}:25", ex=60)
            pipe.sadd("services", f"mail:{number}")
            pipe.execute()
    client = place.connect()
    client.delete("service:mail:1")
    found = client.mget(f"service:{name}" for name in sorted(client.smembers("services")))
    gone = [name for name, where in zip(sorted(client.smembers("services")), found) if where is None]
    return found, client.srem("services", *gone), sorted(client.keys("service:mail:*"))


# ---- transactions ----


def recipe_doubling_an_account(place):
    """Several clients double one account under WATCH: none of them overwrites what another has made of it."""
    clients = [place.connect() for _ in range(4)]
    clients[0].set("account", 1)

    def double(client):
        for _ in range(5):
            with client.pipeline() as pipe:
                while True:
                    try:
                        pipe.watch("account")
                        value = int(pipe.get("account"))
                        pipe.multi()
                        pipe.set("account", value * 2)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        continue

    threads = [threading.Thread(target=double, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return int(clients[0].get("account"))


def recipe_market(place):
    """An item goes from its seller to a buyer, who pays: all of it or nothing."""
    client = place.connect()
    client.hset("users:17", mapping={"name": "Frank", "funds": 43})
    client.hset("users:27", mapping={"name": "Bill", "funds": 125})
    client.sadd("inventory:17", "ItemL", "ItemM")

    def put_up(item, seller, price):
        with client.pipeline() as pipe:
            pipe.watch(f"inventory:{seller}")
            if not pipe.sismember(f"inventory:{seller}", item):
                pipe.unwatch()
                return False
            pipe.multi()
            pipe.zadd("market:", {f"{item}.{seller}": price})
            pipe.srem(f"inventory:{seller}", item)
            return pipe.execute()

    def buy(item, seller, buyer, price):
        with client.pipeline() as pipe:
            pipe.watch("market:", f"users:{buyer}")
            asked, funds = pipe.zscore("market:", f"{item}.{seller}"), int(pipe.hget(f"users:{buyer}", "funds"))
            if asked != price or asked > funds:
                pipe.unwatch()
                return None
            pipe.multi()
            pipe.hincrby(f"users:{seller}", "funds", int(price))
            pipe.hincrby(f"users:{buyer}", "funds", int(-price))
            pipe.sadd(f"inventory:{buyer}", item)
            pipe.zrem("market:", f"{item}.{seller}")
            return pipe.execute()

    return put_up("ItemM", 17, 97), put_up("ItemM", 17, 97), buy("ItemM", 17, 27, 97), buy("ItemM", 17, 27, 97)
