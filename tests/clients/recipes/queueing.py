"""Queues. A worker may be killed at any step, and nothing is lost."""

import json
import multiprocessing
import os
import signal
import threading

import redis

from . import as_json


def recipe_fifo_queue(place):
    producer, consumer = place.connect(), place.connect()
    taken = []

    def consume():
        while (found := consumer.blpop("queue:email", 20)) and found[1] != "end":
            taken.append(json.loads(found[1])["number"])

    thread = threading.Thread(target=consume)
    thread.start()
    for number in range(50):
        producer.rpush("queue:email", as_json({"number": number}))
    producer.rpush("queue:email", "end")
    thread.join(60)
    return taken, producer.llen("queue:email"), consumer.blpop("queue:email", 0.1)


def execute_later(client, place, queue, name, arguments, delay):
    identifier = place.token()
    item = as_json([identifier, queue, name, arguments])
    if delay > 0:
        client.zadd("delayed:", {item: place.now + delay})
    else:
        client.rpush(f"queue:{queue}", item)
    return identifier


def poll_delayed(client, place):
    """Moves what is due to its queue, under the lock of the item, so that several may do so."""
    moved = []
    while True:
        item = client.zrange("delayed:", 0, 0, withscores=True)
        if not item or item[0][1] > place.now:
            return moved
        text = item[0][0]
        identifier, queue, _, _ = json.loads(text)
        token = place.token()
        if not client.set(f"lock:{identifier}", token, nx=True, ex=10):
            continue
        if client.zrem("delayed:", text):
            client.rpush(f"queue:{queue}", text)
            moved.append(identifier)
        client.eval(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            1, f"lock:{identifier}", token,
        )  # fmt: skip


def recipe_delayed_queue(place):
    client = place.connect()
    for number in range(10):
        execute_later(client, place, "tasks", "mail", [number], delay=number * 10)
    seen = []
    for _ in range(4):
        place.now += 25
        seen.append(poll_delayed(client, place))
    return seen, client.llen("queue:tasks"), client.zcard("delayed:")


# ---- a reliable queue ----

STEPS = ("taken", "worked", "noted", "removed")


def work(address, dies_after):
    """A process of its own: takes a job to its list of those under way, does it, notes the result, and lets go of it."""
    client = redis.Redis(*address, decode_responses=True, socket_timeout=30)

    def reached(step):
        if step == dies_after:
            os.kill(os.getpid(), signal.SIGKILL)

    while job := client.lmove("jobs:waiting", "jobs:taken", "RIGHT", "LEFT"):
        reached("taken")
        result = int(job) ** 2
        reached("worked")
        client.hset("jobs:done", job, result)
        reached("noted")
        client.lrem("jobs:taken", 1, job)
        reached("removed")


def recipe_reliable_queue(place):
    """Each worker is killed at another step; what it had taken goes back, and is done by the next one."""
    client = place.connect()
    client.lpush("jobs:waiting", *range(20))
    processes = multiprocessing.get_context("fork")
    codes, returned = [], []
    for dies_after in (*STEPS, None):
        worker = processes.Process(target=work, args=(place.address, dies_after))
        worker.start()
        worker.join(60)
        codes.append(worker.exitcode)
        back = 0
        while client.lmove("jobs:taken", "jobs:waiting", "LEFT", "RIGHT"):
            back += 1
        returned.append(back)
    done = client.hgetall("jobs:done")
    return codes, returned, sorted((int(job), int(result)) for job, result in done.items()), client.llen("jobs:waiting")


# ---- streams ----


def recipe_stream_with_a_group(place):
    """Two consumers of a group; what the first took and never acknowledged is claimed by the second."""
    client, other = place.connect(), place.connect()
    client.xgroup_create("orders", "group", id="0", mkstream=True)
    for number in range(8):
        client.xadd("orders", {"order": number}, id=f"{number + 1}-1")
    first = client.xreadgroup("group", "a", {"orders": ">"}, count=5)
    acknowledged = client.xack("orders", "group", *(identifier for identifier, _ in first[0][1][:3]))
    second = other.xreadgroup("group", "b", {"orders": ">"}, count=10, block=5000)
    claimed = other.xautoclaim("orders", "group", "b", 0)
    pending = client.xpending("orders", "group")["pending"]
    client.delete("orders")
    return first, acknowledged, second, claimed, pending
