"""The run-book of docs/operations.md: each command that it shows is asked, and answers what is shown."""

import re

import pytest

from harness.admin import text
from harness.http import start_with_http
from harness.resp import OK, Error, wait_for
from harness.servers import REPOSITORY, Redis

PAGE = (REPOSITORY / "docs" / "operations.md").read_text()
BOOK = PAGE[PAGE.index("\n## Run-book\n") : PAGE.index("\n## When things fail\n")]
CASES = re.findall(r"^### (.+)$", BOOK, flags=re.MULTILINE)

RULES = """
[latency]
enabled = on
slowlog_threshold = 10ms
[events]
enabled = on
[limit:api]
commands = set
keys = k
per = user
limit = 2
window = 1h
[lease:jobs]
keys = lock:*
"""


@pytest.fixture(scope="module")
def scene():
    """Something of everything that the run-book looks at."""
    redis = Redis()
    headgate = start_with_http(redis, RULES)
    worker, blocked = headgate.connect(), headgate.connect()
    worker("CLIENT", "SETNAME", "worker-7")
    replies = [worker("SET", "k", "v") for _ in range(4)]
    assert isinstance(replies[-1], Error) and replies[-1].startswith(b"RATELIMITED ")
    worker("GET", "k")
    worker("DEBUG", "SLEEP", "0.05")
    assert worker("SET", "lock:b", "me", "NX", "PX", 20_000) == OK
    blocked.request("BLPOP", "none", 0)
    with headgate.admin() as admin:
        wait_for(lambda: b"lane=blocking" in admin("CLIENTS"), what="the client to block")
        wait_for(lambda: b"lock:b" in admin("LEASES") and b"debug" in admin("EVENTS"), what="what was done to be seen")
    yield headgate
    headgate.finish()
    redis.discard()


def shown():
    """[(command, lines that are shown behind it)]"""
    found = []
    for block in re.findall(r"^```\n(.*?)^```", BOOK, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = re.fullmatch(r"\$ redis-cli --raw -p 6390 (.+)", line)
            if command:
                found.append((command[1], []))
            else:
                found[-1][1].append(line)
    return found


def names(line):
    return re.findall(r"(?:^| )([a-z_0-9]+)[=:]", line)


def test_the_cases_are_there():
    assert CASES == ["Clients are slow", "Clients are refused", "Locks are lost", "Redis fails over", "Memory grows"]
    assert len(shown()) > 9 and all(lines for _, lines in shown())


def test_a_command_answers_what_is_shown(scene):
    for command, lines in shown():
        with scene.admin() as admin:
            answer = admin(*command.split())
        assert not isinstance(answer, Error), answer
        told = text(answer).split("\n")
        for line in lines:
            wanted = names(line)
            assert wanted or line.startswith("# "), command
            assert any([name for name in names(one) if name in wanted] == wanted for one in told), (line, told)
