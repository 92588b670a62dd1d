"""The client libraries and what is tried with each: a row for each version of a library, and one for each feature.

A feature is a function of that name in each program of tests/newest that knows it.
"""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    name: str
    language: str
    packages: tuple  # NAME@VERSION, as its registry names them; of crates NAME+FEATURE@VERSION
    program: str  # in the folder of the language
    of: str = ""  # the library that this is the major version before of
    own_lanes: bool = False  # each connection has one from the start, for what it says: CLIENT ID, CLIENT TRACKING
    holds: int = 0  # lanes that its program keeps, as workers of a queue block and subscribe all the time
    tls: bool = True  # its program can speak TLS
    replaced: tuple = ()  # (text, text) in its program, where the older version has other names
    topologies: bool = False  # it is tried behind sentinels and before a cluster, too
    settings: tuple = ()  # (option, value) of Headgate, where its defaults do not do


def before(library, name, *packages, **changes):
    changes = {"topologies": False, **changes}
    return dataclasses.replace(library, name=name, packages=packages, of=library.name, **changes)


REDIS_PY = Library("redis-py", "python", ("redis@8.1.0",), "redis_py.py", topologies=True)
NODE_REDIS = Library("node-redis", "node", ("redis@6.3.1",), "node_redis.js", topologies=True)
IOREDIS = Library("ioredis", "node", ("ioredis@6.0.0",), "ioredis.js", topologies=True)
GO_REDIS = Library("go-redis", "go", ("github.com/redis/go-redis/v9@v9.23.0",), "go_redis.go", topologies=True)
LETTUCE = Library("lettuce", "java", ("io.lettuce:lettuce-core@7.7.0.RELEASE",), "Lettuce.java", topologies=True)
REDISSON = Library("redisson", "java", ("org.redisson:redisson@4.7.0",), "RedissonObjects.java", topologies=True)
FRED = Library(
    "fred", "rust", ("fred+enable-native-tls+i-all@10.1.0", "tokio+full@1.54.1", "futures-util@0.3.31"), "fred.rs",
    own_lanes=True, topologies=True,
)
BULLMQ = Library("bullmq", "node", ("bullmq@6.7.0", "ioredis@5.11.1"), "bullmq.js", tls=False)

LIBRARIES = [
    REDIS_PY,
    before(REDIS_PY, "redis-py-7", "redis@7.4.1"),
    NODE_REDIS,
    before(NODE_REDIS, "node-redis-5", "redis@5.12.1"),
    IOREDIS,
    before(IOREDIS, "ioredis-5", "ioredis@5.11.1"),
    # It began as ioredis 5.
    Library(
        "iovalkey", "node", ("iovalkey@0.4.0",), "ioredis.js", topologies=True,
        replaced=("require('ioredis')", "require('iovalkey')", "require.resolve('ioredis')", "require.resolve('iovalkey')"),
    ),
    GO_REDIS,
    before(
        GO_REDIS, "go-redis-8", "github.com/go-redis/redis/v8@v8.11.5",
        replaced=("github.com/redis/go-redis/v9", "github.com/go-redis/redis/v8"),
    ),
    Library("rueidis", "go", ("github.com/redis/rueidis@v1.0.79",), "rueidis.go", own_lanes=True, topologies=True),
    LETTUCE,
    before(LETTUCE, "lettuce-6", "io.lettuce:lettuce-core@6.8.1.RELEASE"),
    REDISSON,
    before(
        REDISSON, "redisson-3", "org.redisson:redisson@3.45.1",
        replaced=("ReturnType.LIST", "ReturnType.MULTI"),
    ),
    FRED,
    # With the setting of Headgate that serves it best.
    before(FRED, "fred-brief-ids", *FRED.packages, own_lanes=False, settings=(("client_id_timeout", "100ms"),)),
    BULLMQ,
    before(BULLMQ, "bullmq-5", "bullmq@5.81.5", "ioredis@5.11.1"),
    Library("celery", "python", ("celery@5.7.0", "redis@8.1.0", "packaging@25.0"), "celery_jobs.py", holds=6, tls=False),
    Library(
        "rate-limiter-flexible", "node", ("rate-limiter-flexible@11.4.0", "ioredis@6.0.0"), "rate_limiter_flexible.js",
        tls=False,
    ),
]


@dataclass(frozen=True)
class Feature:
    name: str
    together: bool = False  # with all clients at once, as it takes its time
    holds: bool = False  # a connection of Redis' own for each client for as long as it lasts
    own: bool = False  # opens connections of its own
    costs: bool = False  # connections are counted behind it, although it is done by all together
    kills: bool = False  # Redis is killed and started again meanwhile
    random: bool = False  # names and values of its data differ each time
    also: tuple = ()  # names of ELSEWHERE that try it, too
    mode: bool = False  # of ELSEWHERE: it is a function of programs


FEATURES = [
    Feature("strings", also=("tls", "cluster", "sentinel")),
    Feature("pipeline", also=("tls", "cluster", "sentinel")),
    Feature("transaction", also=("cluster",)),
    Feature("watch", also=("cluster",)),
    Feature("script", also=("cluster",)),
    Feature("scan", also=("cluster",)),
    Feature("greeting", own=True, together=True),
    Feature("concurrent", own=True),
    Feature("abandoned", own=True),
    Feature("timeouts", own=True, together=True),
    Feature("blocking", together=True, also=("tls", "cluster")),
    Feature("subscribe", together=True, holds=True, also=("tls",)),
    Feature("unsubscribe", together=True, also=("tls",)),
    Feature("patterns", together=True),
    Feature("shards", together=True),
    Feature("caching", together=True),
    Feature("newer"),
    Feature("modules"),
    Feature("limits", together=True, costs=True, random=True),
    Feature("jobs", together=True, costs=True, random=True),
    Feature("killed", together=True, kills=True, also=("sentinel",)),
]

# What is tried by itself, in another place: some of the features above (also), or a function of its own (mode).
ELSEWHERE = [
    Feature("tls", together=True),
    Feature("cluster", together=True),
    Feature("cluster_mode", together=True, mode=True),
    Feature("sentinel", together=True),
]
FEATURES += ELSEWHERE
