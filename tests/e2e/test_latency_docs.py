"""What docs/latency.md tells to type gives what REPORT says, as it stands there. redis-cli is sent to the servers of the
test."""

import os
import re
import subprocess
import time

import pytest

from harness.latency import ON, await_report, counter, interfaces
from harness.resp import OK, wait_for
from harness.rules import launch
from harness.servers import REPOSITORY

REDIS_CLI = """#!/bin/bash
case " $* " in
*" -p 6390 "*) exec {cli} "${{@/#6390/{admin}}}" ;;
*) exec {cli} -p {redis} "$@" ;;
esac
"""
GETS = 500


def snippets(heading):
    """The commands of that section, each as it is typed."""
    page = (REPOSITORY / "docs" / "latency.md").read_text()
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", page, flags=re.MULTILINE | re.DOTALL).group(1)
    blocks = re.findall(r"^```\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert blocks and all(block.startswith("$ ") for block in blocks)
    return [re.sub(r"^\$ ", "", block, flags=re.MULTILINE) for block in blocks]


@pytest.fixture
def shell(redis, make_headgate, tmp_path):
    """Runs what is typed; gives what was printed. measure() has so many more GETs on record, and gives the report."""
    headgate = launch(make_headgate, redis, "shared", ON)
    client = headgate.connect()
    cli = subprocess.run(["which", "redis-cli"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "redis-cli").write_text(REDIS_CLI.format(redis=redis.port, admin=headgate.admin_port, cli=cli))
    (tmp_path / "redis-cli").chmod(0o755)

    def run(typed):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "C"}
        result = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", typed],
            capture_output=True, text=True, timeout=30, cwd=tmp_path, env=environment, check=False,
        )
        assert result.returncode == 0 and not result.stderr, result.stderr
        return result.stdout

    def measure():
        client.pipeline([("GET", "k")] * GETS)
        run.measured += GETS
        return await_report(headgate, "get", run.measured)

    run.measured = 0
    run.measure = measure
    return run


def test_reading_with_redis_cli(shell):
    first, second = snippets("Reading them with redis-cli")
    for _ in range(5):
        minute = time.time() // 60
        report = shell.measure()
        words = shell(first + second).split()
        # The first command reads the minute that it finds, which may have begun since.
        if time.time() // 60 == minute:
            break
    total, count = float(words[words.index("sum") + 1]), int(words[words.index("count") + 1])
    assert GETS <= count <= shell.measured and 0 < total
    if count == shell.measured:
        assert total / count == pytest.approx(float(report["mean"]), abs=0.001)
        assert float(words[words.index("max") + 1]) == pytest.approx(float(report["max"]))
        # REPORT never says more than the greatest, which a bucket's middle may be.
        assert float(words[-1]) == pytest.approx(float(report["p99"]), rel=0.045)


def test_the_rights_that_are_named_are_enough(redis, make_headgate):
    page = (REPOSITORY / "docs" / "latency.md").read_text()
    named = re.search(r"connects to that Redis needs\s+(.*?)\n\n", page, flags=re.DOTALL).group(1)
    rights = [f"+{name.lower()}" for name in re.findall(r"[A-Z]{2,}", named)]
    assert "+zunionstore" in rights and "+ltrim" in rights
    with redis.connect() as direct:
        # What any connection of Headgate's needs, and nothing else.
        assert direct("ACL", "SETUSER", "sidecar", "on", ">secret", "~headgate:*", "+@connection", *rights) == OK
    logs = "slowlog_threshold = 1us\n[counters]\nenabled = on\n[events]\nenabled = on\n"
    headgate = launch(make_headgate, redis, "shared", ON + logs, upstream_user="sidecar", upstream_password="secret")
    client = headgate.connect()
    for count in (10, 20):
        client.pipeline([("GET", "headgate:any")] * 10)
        await_report(headgate, "get", count)
    wait_for(lambda: "get" in interfaces(headgate, "REPORT", "*"), 30, "it to be listed")
    with headgate.admin() as admin:
        for question in (("COUNTER", "requests", "1"), ("RECENT", "slow", "warning"), ("COMMON", "slow", "warning")):
            wait_for(lambda: b" " in admin(*question), 30, f"{question} to answer")
    assert counter(headgate, "flush_failures_total") == 0
