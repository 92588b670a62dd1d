"""redis-cli and redis-benchmark."""

import re
import subprocess

import pytest


def redis_cli(target, *arguments, stdin=None, timeout=30):
    host, port = target.address
    result = subprocess.run(
        ["redis-cli", "-h", host, "-p", str(port), *map(str, arguments)],
        input=stdin, capture_output=True, text=True, timeout=timeout,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_one_command(target):
    assert redis_cli(target, "SET", "k", "v") == "OK\n"
    assert redis_cli(target, "GET", "k") == "v\n"
    assert redis_cli(target, "-3", "HSET", "h", "a", "1") == "1\n"
    assert redis_cli(target, "-3", "--no-raw", "HGETALL", "h") == '1# "a" => "1"\n'
    assert redis_cli(target, "-n", 4, "SET", "k", "in 4") == "OK\n"
    assert redis_cli(target, "GET", "k") == "v\n"


def test_commands_from_a_file(target):
    script = "MULTI\nSET k 1\nINCR k\nEXEC\nSELECT 2\nGET k\nNONSENSE\n"
    lines = redis_cli(target, stdin=script).splitlines()
    assert lines[:5] == ["OK", "QUEUED", "QUEUED", "OK", "2"]
    assert any("unknown command" in line for line in lines)


def test_mass_insertion(target):
    """redis-cli --pipe sends everything, then an ECHO, and counts the replies."""
    commands = "".join(f"SET key{number} value{number}\r\n" for number in range(20_000))
    report = redis_cli(target, "--pipe", stdin=commands)
    assert "errors: 0, replies: 20000" in report
    assert redis_cli(target, "DBSIZE") == "20000\n"


def test_scan_and_statistics(target):
    redis_cli(target, "DEBUG", "POPULATE", "1000")
    assert len(redis_cli(target, "--scan", "--pattern", "key:*").splitlines()) == 1000
    assert "Sampled 1000 keys" in redis_cli(target, "--bigkeys")
    assert "Sampled 1000 keys" in redis_cli(target, "--memkeys")


def test_a_dump_by_replication(target, tmp_path):
    """redis-cli --rdb speaks SYNC: from there on the connection is another protocol."""
    redis_cli(target, "DEBUG", "POPULATE", "1000")
    path = tmp_path / "dump.rdb"
    redis_cli(target, "--rdb", path)
    assert path.read_bytes()[:5] == b"REDIS"
    check = subprocess.run(["redis-check-rdb", str(path)], capture_output=True, text=True, timeout=30)
    assert check.returncode == 0 and "1000 keys read" in check.stdout, check.stdout


@pytest.mark.parametrize(
    "options", [["-c", "50", "-n", "50000", "-P", "64"], ["-c", "20", "-n", "2000", "-d", "16384", "-k", "0"]]
)
def test_benchmark(target, options):
    host, port = target.address
    result = subprocess.run(
        ["redis-benchmark", "-h", host, "-p", str(port), "-t", "set,get,lpush,lpop", "-r", "1000", "-q", *options],
        capture_output=True, text=True, timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(re.findall(r"requests per second", result.stdout)) == 4, result.stdout
    assert "rror" not in result.stdout + result.stderr
