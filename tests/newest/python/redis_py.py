"""redis-py with its default settings. scripts/clients_program.py tells what a program is asked and answers."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import protocol
import redis
from redis.cache import CacheConfig

host, port = sys.argv[1], int(sys.argv[2])

ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}"
PATIENCE = 20.0


def connect(**options):
    if os.environ.get("TESTED_BY_TLS"):
        own = {"ssl_certfile": os.environ.get("TESTED_CERTIFICATE"), "ssl_keyfile": os.environ.get("TESTED_KEY")}
        options = {"ssl": True, **own, **options}
    return redis.Redis(host=host, port=port, **options)


def strings(client, key):
    yield client.set(key, "first")
    yield client.get(key)
    yield client.get(key + ":none")
    yield [client.incr(key + ":count") for _ in range(3)]
    yield client.set(key + ":timed", "second", ex=1000)
    yield client.mget(key, key + ":timed", key + ":none")


def pipeline(client, key):
    with client.pipeline(transaction=False) as batch:
        for number in range(50):
            batch.rpush(key, number)
        batch.lrange(key, 0, -1)
        yield batch.execute()


def transaction(client, key):
    with client.pipeline() as batch:
        yield batch.set(key, 1).incr(key).get(key).execute()


def watch(client, key):
    client.set(key, 5)

    def double(batch):
        value = int(batch.get(key))
        batch.multi()
        batch.set(key, value * 2)
        batch.get(key)

    yield client.transaction(double, key)


def script(client, key):
    add = client.register_script(ADD)
    yield [add(keys=[key], args=[number]) for number in (7, 8)]


def scan(client, key):
    for number in range(30):
        client.set(f"{key}:{number}", number)
    yield sorted(client.scan_iter(match=key + ":*"))


def greeting(client, key):
    """Every way to begin a connection: RESP, names, users, databases, wrong passwords."""
    for options in ({"protocol": 2}, {"protocol": 3}, {"client_name": "tested"}, {"db": 3}, {"protocol": 3, "db": 3},
                    {"username": "tested", "password": "secret"},
                    {"username": "tested", "password": "wrong", "retry": None}):  # fmt: skip
        with connect(**options) as own:
            try:
                own.set(key, options.get("username", "nobody"))
                yield [own.get(key), client.get(key), own.client_getname(), own.acl_whoami()]
            except redis.RedisError as error:
                yield str(error)


def concurrent(_client, key):
    """One client in many threads: a pool of connections."""

    def work(number):
        client.set(f"{key}:{number}", number)
        return client.get(f"{key}:{number}"), client.incr(key) > 0

    with connect() as client, ThreadPoolExecutor(10) as threads:
        yield list(threads.map(work, range(100)))


def blocked(client):
    return client.info("clients")["blocked_clients"]


def wait_until(holds):
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)


def abandoned(client, key):
    """A client that goes away while it blocks takes nothing with it."""
    own = connect()
    waiting = own.connection_pool.get_connection()
    waiting.send_command("BLPOP", key, 0)
    wait_until(lambda: blocked(client) == 1)
    yield blocked(client)
    waiting.disconnect()
    own.close()
    wait_until(lambda: blocked(client) == 0)
    yield [client.rpush(key, "kept"), client.lrange(key, 0, -1)]


def timeouts(_client, key):
    """What comes after a reply that nobody waits for any more is the right one."""
    with connect(socket_timeout=1.0, retry=None) as own:
        try:
            yield own.blpop(key, timeout=4)
        except redis.TimeoutError:
            yield "timed out"
        yield [own.set(key + ":after", "mine"), own.get(key + ":after"), own.echo(key)]


def blocking(client, key):
    yield client.blpop(key, timeout=1)
    client.rpush(key, "there")
    yield client.blpop(key, timeout=20)
    other = connect()
    push = threading.Timer(0.1, other.rpush, (key, "pushed"))
    push.start()
    yield client.blpop(key, timeout=20)
    push.join()
    other.close()


subscribers = {}


def message(subscriber, of_shards=False):
    """The next thing that comes, whatever it is."""
    read = subscriber.get_sharded_message if of_shards else subscriber.get_message
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if came := read(timeout=1):
            return [came["type"], came["channel"], came["data"]]
    return "nothing came"


def subscribe(client, key):
    subscriber = subscribers[key] = client.pubsub()
    subscriber.subscribe(key)
    yield message(subscriber)
    yield client.publish(key, "hello")
    yield message(subscriber)


def unsubscribe(_client, key):
    subscriber = subscribers.pop(key.replace("unsubscribe", "subscribe"))
    subscriber.unsubscribe()
    yield message(subscriber)
    subscriber.close()


def patterns(client, key):
    with client.pubsub() as subscriber:
        subscriber.psubscribe(key + ":*")
        yield message(subscriber)
        yield client.publish(key + ":one", "hello")
        yield message(subscriber)
        subscriber.punsubscribe()
        yield message(subscriber)


def shards(client, key):
    with client.pubsub() as subscriber:
        subscriber.ssubscribe(key)
        yield message(subscriber)
        yield client.spublish(key, "hello")
        yield message(subscriber)


def caching(client, key):
    client.set(key, "old")
    with connect(protocol=3, cache_config=CacheConfig()) as cached:
        try:
            cached.ping()
        except redis.ConnectionError as error:
            if "client-side caching is supported by" in str(error):
                raise protocol.Unsupported(error) from None
            raise
        yield [cached.get(key) for _ in range(3)]
        client.set(key, "new")
        end = time.monotonic() + PATIENCE
        while cached.get(key) != b"new" and time.monotonic() < end:
            time.sleep(0.01)
        yield [cached.get(key), cached.get_cache().size]


# What servers have had since Redis 7.0, and commands of modules: each as words, % for the key. DELIFEQ, which Headgate
# gives to all servers, is not among them.
NEWER = (
    "HSET % one 1 two 2|HEXPIRE % 1000 FIELDS 1 one|HPERSIST % FIELDS 1 one|HGETEX % EX 100 FIELDS 1 two"
    "|HGETDEL % FIELDS 1 two|HSETEX % EX 100 FIELDS 1 three 3|HTTL % FIELDS 1 none|SET %:s old|SET %:s new IFEQ old"
    "|SET %:s other IFEQ old|GET %:s|DELEX %:s IFEQ other|EXISTS %:s|DIGEST %:s"
    "|MSETEX 1 %:m v EX 100|VADD %:v VALUES 2 1 2 a|VADD %:v VALUES 2 2 1 b|VCARD %:v|VSIM %:v VALUES 2 1 2 COUNT 1"
    "|VDIM %:v|XADD %:x 1-1 f v|XDELEX %:x KEEPREF IDS 1 1-1|XACKDEL %:x g IDS 1 1-1|BITOP ONE %:b %:s %:s"
    "|COMMANDLOG LEN slow|COMMANDLOG RESET slow"
    "|CLUSTERSCAN 0|FUNCTION STATS|JSON.SET %:j $ 1|JSON.GET %:j|FT._LIST|BF.ADD %:f a|BF.EXISTS %:f a"
    "|GRAPH.QUERY %:g CREATE(:N{v:1})|GRAPH.LIST|GRAPH.DELETE %:g"
)


def all_of(client, words, key):
    for line in words.split("|"):
        try:
            yield [line, client.execute_command(*line.replace("%", key).split())]
        except redis.RedisError as error:
            yield [line, error]


def newer(client, key):
    """Replies as they come, errors too: a server that has it not says so in the same words."""
    for line, reply in all_of(client, NEWER, key):
        # How long a query of a graph took is in its reply.
        yield line if line.startswith("GRAPH.QUERY") and not isinstance(reply, Exception) else [line, reply]


# Documents, an index over them, and filters: each as words, % for the key.
MODULES = (
    'JSON.SET % $ {"name":"gate","size":[1,2],"deep":{"a":1}}|JSON.GET % $..a|JSON.ARRAPPEND % $.size 3'
    "|JSON.NUMINCRBY % $.deep.a 41|JSON.TYPE % $.size|JSON.OBJKEYS % $|JSON.MERGE % $.deep {\"b\":2}|JSON.GET %"
    "|JSON.MSET %:one $ 1 %:two $ 2|JSON.MGET %:one %:two %:none $|JSON.DEL % $.deep|JSON.GET % $.none.deeper"
    "|FT.CREATE %:index ON JSON PREFIX 1 %:d: SCHEMA $.t AS t TEXT $.n AS n NUMERIC SORTABLE $.g AS g TAG"
    '|JSON.SET %:d:1 $ {"t":"open_gate","n":1,"g":"a"}|JSON.SET %:d:2 $ {"t":"shut_gate","n":2,"g":"b"}'
    "|FT.SEARCH %:index @n:[1,2] SORTBY n RETURN 1 n|FT.SEARCH %:index @g:{b} NOCONTENT|FT.SEARCH %:index @n:["
    "|FT.AGGREGATE %:index * GROUPBY 1 @g REDUCE SUM 1 @n AS s SORTBY 1 @g|FT.TAGVALS %:index g|FT.EXPLAIN %:index gate"
    "|FT.ALTER %:index SCHEMA ADD $.m AS m NUMERIC|FT.DICTADD %:dict a b|FT.DICTDUMP %:dict|FT.SUGADD %:sug word 1"
    "|FT.SUGGET %:sug wo|FT.ALIASADD %:alias %:index|FT.SEARCH %:alias @g:{a} NOCONTENT|FT.DROPINDEX %:index"
    "|BF.RESERVE %:bf 0.01 100|BF.MADD %:bf a b|BF.MEXISTS %:bf a c|CF.ADD %:cf a|CF.EXISTS %:cf a"
    "|CMS.INITBYDIM %:cms 10 2|CMS.INCRBY %:cms a 3|CMS.QUERY %:cms a|TOPK.RESERVE %:top 2|TOPK.ADD %:top a a b"
    "|TOPK.LIST %:top|TDIGEST.CREATE %:td|TDIGEST.ADD %:td 1 2 3|TDIGEST.MAX %:td"
)


def modules(client, key):
    """As they are; in a pipeline; as a transaction; a cursor over several requests; and where one waits."""
    known = {entry[b"name"] if isinstance(entry, dict) else entry[1] for entry in client.execute_command("MODULE", "LIST")}
    if not {b"ReJSON", b"search", b"bf"} <= known:
        raise protocol.Unsupported("the modules for JSON, search and filters")
    yield list(all_of(client, MODULES, key))
    for whole in (False, True):
        with client.pipeline(transaction=whole) as batch:
            for line in MODULES.split("|")[:12]:
                batch.execute_command(*line.replace("%", key).split())
            yield batch.execute(raise_on_error=False)
    client.execute_command("FT.CREATE", key + ":i", "PREFIX", "1", key + ":h:", "SCHEMA", "n", "NUMERIC", "SORTABLE")
    for number in range(10):
        client.hset(f"{key}:h:{number}", "n", number)
    asked = ["FT.AGGREGATE", key + ":i", "*", "LOAD", "1", "@n", "SORTBY", "1", "@n", "WITHCURSOR", "COUNT", "4"]
    part, cursor = client.execute_command(*asked)
    while cursor:
        yield part
        part, cursor = client.execute_command("FT.CURSOR", "READ", key + ":i", cursor)
    yield client.execute_command("FT.DROPINDEX", key + ":i", "DD")
    yield client.exists(key + ":h:1")


def cluster_mode(_client, key):
    """It learns where the slots are, and goes to the node of each key."""
    names = [f"{key}:{number}" for number in range(20)]
    with redis.RedisCluster(host=host, port=port) as cluster:
        yield [[cluster.set(name, name), cluster.get(name)] for name in names]
        with cluster.pipeline() as batch:
            for name in names:
                batch.append(name, "!").get(name)
            yield batch.execute()
        with cluster.pipeline(transaction=True) as batch:
            yield batch.set(f"{{{key}}}a", 1).incr(f"{{{key}}}a").get(f"{{{key}}}a").execute()
        yield cluster.mget_nonatomic(names)
        yield cluster.register_script(ADD)(keys=[f"{{{key}}}b"], args=[7])
        yield cluster.blpop([f"{{{key}}}c"], timeout=1)
        yield sorted(cluster.scan_iter(match=key + ":*"))
        subscriber = cluster.pubsub()
        subscriber.ssubscribe(key)
        yield message(subscriber, of_shards=True)
        yield cluster.spublish(key, "hello")
        yield message(subscriber, of_shards=True)
        subscriber.close()
        yield cluster.delete(*names)


def killed(client, key):
    """Until the server has been killed and is there again, without its data."""
    client.set(key, "before")
    lost, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if client.get(key) is None:
                break
        except redis.RedisError:
            lost += 1
        time.sleep(0.01)
    yield f"lost={lost}"
    yield [client.set(key + ":after", "there"), client.get(key + ":after"), client.get(key)]


protocol.serve(
    redis.__version__,
    connect,
    [strings, pipeline, transaction, watch, script, scan, greeting, concurrent, abandoned, timeouts, blocking]
    + [subscribe, unsubscribe, patterns, shards, caching, newer, modules, cluster_mode, killed],
    redis.Redis.close,
)
