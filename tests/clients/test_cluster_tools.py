"""Programs that know of Redis Cluster, and find one node with all slots: Headgate before a real cluster."""

import json
import re
import subprocess

import pytest
import redis
from redis.cluster import RedisCluster

from harness.cluster import Cluster
from harness.resp import wait_for

TIMEOUT = 120


@pytest.fixture(scope="module")
def cluster():
    with Cluster(replicas=0) as cluster:
        yield cluster


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    for node in cluster.masters:
        node.tell("FLUSHALL")
    headgate = make_headgate(cluster.url("cluster"), pool=pool)
    with headgate.connect() as client:
        wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    return headgate


def run(*command, check=True, **options):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT, check=check, **options
    ).stdout


def redis_cli(headgate, *arguments, **options):
    return run("redis-cli", "-h", "127.0.0.1", "-p", headgate.port, *arguments, **options)


def test_redis_cli_follows_nobody(headgate, cluster):
    """-c: a redirect would be printed as "-> Redirected to slot"."""
    commands = "".join(f"SET key:{number} {number}\nGET key:{number}\n" for number in range(100)) + "DBSIZE\n"
    output = redis_cli(headgate, "-c", input=commands).split()
    assert output == [word for number in range(100) for word in ("OK", str(number))] + ["100"]
    assert all(node.ask("DBSIZE") for node in cluster.masters)


def test_redis_cli_counts_keys(headgate):
    redis_cli(headgate, input="".join(f"SET key:{number} {number}\n" for number in range(300)))
    assert len(redis_cli(headgate, "--scan").split()) == 300
    assert "Sampled 300 keys in the keyspace!" in redis_cli(headgate, "--bigkeys")


def test_redis_cli_sees_a_cluster_of_one(headgate):
    output = redis_cli(headgate, "--cluster", "check", f"127.0.0.1:{headgate.port}")
    assert "[OK] All 16384 slots covered." in output
    assert f"127.0.0.1:{headgate.port}" in output


def test_redis_benchmark_that_knows_no_cluster(headgate):
    output = run("redis-benchmark", "-h", "127.0.0.1", "-p", headgate.port, "-t", "set,get,incr,lpush,sadd", "-n", 3000,
                 "-r", 1000, "-P", 16, "-q")  # fmt: skip
    assert len(re.findall(r"requests per second", output)) == 5, output


def test_redis_py_cluster(headgate):
    client = RedisCluster(host="127.0.0.1", port=headgate.port, socket_timeout=TIMEOUT)
    nodes = client.get_nodes()
    assert [(node.host, node.port) for node in nodes] == [("127.0.0.1", headgate.port)]
    for number in range(100):
        assert client.set(f"key:{number}", number)
        assert client.get(f"key:{number}") == str(number).encode()
    assert client.dbsize() == 100
    assert sorted(client.scan_iter()) == sorted(f"key:{number}".encode() for number in range(100))
    assert len(client.keys("key:1*")) == 11
    assert client.mset_nonatomic({f"n:{number}": number for number in range(50)})
    assert client.mget_nonatomic([f"n:{number}" for number in range(50)]) == [b"%d" % number for number in range(50)]
    with client.pipeline() as pipeline:
        for number in range(100):
            pipeline.incr(f"counter:{number}")
        assert pipeline.execute() == [1] * 100
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "key:7") == b"7"
    assert client.flushall()
    assert client.dbsize() == 0
    client.close()


def test_redis_py_that_knows_no_cluster(headgate):
    client = redis.Redis(port=headgate.port, socket_timeout=TIMEOUT)
    with client.pipeline(transaction=False) as pipeline:
        for number in range(200):
            pipeline.set(f"key:{number}", number).get(f"key:{number}")
        assert pipeline.execute() == [reply for number in range(200) for reply in (True, str(number).encode())]
    with client.pipeline(transaction=True) as pipeline:
        pipeline.incr("{t}a").incr("{t}b").incr("{t}a")
        assert pipeline.execute() == [1, 1, 2]
    script = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert [script(keys=[f"s:{number}"], args=[number]) for number in range(20)] == list(range(20))
    with pytest.raises(redis.ResponseError, match="CROSSSLOT"):
        client.mget("a", "b")
    subscriber = client.pubsub()
    subscriber.subscribe("news")
    assert subscriber.get_message(timeout=TIMEOUT)["type"] == "subscribe"
    assert redis.Redis(port=headgate.port).publish("news", "x") >= 0
    assert subscriber.get_message(timeout=TIMEOUT)["data"] == b"x"


PHP_REDIS = """
$cluster = new RedisCluster(null, ['127.0.0.1:%d'], 30, 30);
for ($i = 0; $i < 100; $i++) { $cluster->set("key:$i", $i); }
$values = [];
for ($i = 0; $i < 100; $i++) { $values[] = $cluster->get("key:$i"); }
echo json_encode([count($cluster->_masters()), $values]);
"""


def test_php(headgate):
    assert json.loads(run("php", "-r", PHP_REDIS % headgate.port)) == [1, [str(number) for number in range(100)]]
