"""Some hundred clients of several kinds, for as long as it runs: demo.py PORT. They make the page of the tour alive.

Among them are one that writes more than it may, one that holds a lock and hangs, some that send slow and large
requests, and many that want the same key. Keys begin with demo:, lock: and tour:, and are removed at the end.
"""

import random
import signal
import sys
import threading
import time

import redis

ITEMS = 400
LARGE = b"x" * (2 << 20)
# Bounds of what all of them do: they pause between two requests for so many seconds.
READER_PAUSE = (0.02, 0.3)
HOT_PAUSE = (0.01, 0.08)


class Demo:
    def __init__(self, port):
        self.port = port
        self.stopping = threading.Event()

    def pause(self, least, most):
        """True as long as it goes on."""
        return not self.stopping.wait(random.uniform(least, most))

    def connect(self, name):
        return redis.Redis(port=self.port, client_name=name, socket_timeout=20, socket_connect_timeout=5)

    def play(self, role, name):
        """One client: what becomes of a connection, it begins anew."""
        while not self.stopping.is_set():
            try:
                with self.connect(name) as client:
                    role(self, client)
            except (redis.RedisError, OSError):
                self.stopping.wait(1)

    def clean_up(self):
        try:
            with self.connect("cleaner") as client:
                for pattern in ("demo:*", "lock:demo*", "tour:visits"):
                    for key in client.scan_iter(pattern, count=1000):
                        client.delete(key)
        except (redis.RedisError, OSError):
            pass


def item():
    """Some are asked for more often than others."""
    return f"demo:item:{int(random.paretovariate(0.7)) % ITEMS}"


def read(demo, client):
    while demo.pause(*READER_PAUSE):
        choice = random.random()
        if choice < 0.7:
            client.get(item())
        elif choice < 0.85:
            client.hgetall(f"demo:user:{random.randrange(50)}")
        elif choice < 0.95:
            client.mget(item(), item(), item())
        else:
            client.zrange("demo:scores", 0, 9, withscores=True)


def write(demo, client):
    while demo.pause(0.05, 0.5):
        choice = random.random()
        if choice < 0.6:
            client.set(item(), random.randbytes(random.choice([20, 200, 2000])), ex=3600)
        elif choice < 0.8:
            client.hset(f"demo:user:{random.randrange(50)}", mapping={"seen": time.time(), "visits": random.randrange(99)})
        else:
            client.zadd("demo:scores", {f"player:{random.randrange(200)}": random.randrange(10_000)})


def want_the_same(demo, client):
    client.set("demo:feature-flags", "on")
    while demo.pause(*HOT_PAUSE):
        client.get("demo:feature-flags")


def write_too_much(demo, client):
    """The rule of the tour allows five in five minutes to each name."""
    while demo.pause(0.02, 0.2):
        try:
            client.incr("tour:visits")
        except redis.ResponseError:
            pass


def hold_and_hang(demo, client):
    """Its lock would be lost after three seconds; it never extends it, and is gone for half a minute."""
    while demo.pause(0.5, 2):
        if client.set("lock:demo-report", f"holder-{random.random()}", nx=True, ex=3):
            demo.stopping.wait(30)
            client.delete("lock:demo-report")


def wait_for_the_lock(demo, client):
    while demo.pause(1, 3):
        client.set("lock:demo-report", "waiter", nx=True, xx=False, ex=3, get=False)
        if client.get("lock:demo-report") == b"waiter":
            client.delete("lock:demo-report")


def take_locks(demo, client):
    while demo.pause(0.2, 2):
        lock = client.lock(f"lock:demo-job-{random.randrange(8)}", timeout=5)
        if lock.acquire(blocking=False):
            demo.stopping.wait(random.uniform(0.5, 6))
            lock.release()


def be_slow(demo, client):
    while demo.pause(2, 6):
        client.eval("local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n", 0, random.randrange(10**6, 10**7))


def be_large(demo, client):
    while demo.pause(3, 9):
        client.set("demo:export", LARGE[: random.randrange(1 << 20, 2 << 20)], ex=60)
        client.get("demo:export")


def produce(demo, client):
    while demo.pause(0.05, 0.4):
        client.lpush("demo:queue", random.randbytes(60))
        client.ltrim("demo:queue", 0, 999)


def consume(demo, client):
    while not demo.stopping.is_set():
        client.brpop(["demo:queue"], timeout=2)


def subscribe(demo, client):
    with client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("demo:news")
        while not demo.stopping.is_set():
            channel.get_message(timeout=2)


def publish(demo, client):
    while demo.pause(0.2, 1):
        client.publish("demo:news", "something happened")


def pipe(demo, client):
    while demo.pause(0.2, 0.8):
        with client.pipeline(transaction=random.random() < 0.3) as pipeline:
            for _ in range(random.randrange(5, 40)):
                pipeline.get(item())
            pipeline.execute()


def make_mistakes(demo, client):
    client.set("demo:text", "no list")
    while demo.pause(0.5, 2):
        try:
            client.lpush("demo:text", "x")
        except redis.ResponseError:
            pass


# The name of each client, what it does, and how many there are.
CAST = [
    ("web", read, 44),
    ("flags", want_the_same, 16),
    ("api", write, 14),
    ("noisy", write_too_much, 1),
    ("importer", write_too_much, 1),
    ("report", hold_and_hang, 1),
    ("report-standby", wait_for_the_lock, 2),
    ("jobs", take_locks, 6),
    ("analytics", be_slow, 1),
    ("export", be_large, 1),
    ("orders", produce, 3),
    ("worker", consume, 6),
    ("news", subscribe, 4),
    ("editor", publish, 1),
    ("batch", pipe, 4),
    ("intern", make_mistakes, 1),
]


def main():
    demo = Demo(int(sys.argv[1]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: demo.stopping.set())
    players = []
    for name, role, count in CAST:
        for _ in range(count):
            players.append(threading.Thread(target=demo.play, args=(role, name), daemon=True))
            players[-1].start()
    demo.stopping.wait()
    until = time.monotonic() + 4
    for player in players:
        player.join(max(0, until - time.monotonic()))
    demo.clean_up()


main()
