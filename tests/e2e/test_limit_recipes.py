"""docs/limits.md: every ini block loads, and what the page says happens, happens."""

import os
import re
import subprocess

import pytest

from harness.resp import Error, wait_for
from harness.servers import REPOSITORY, run_headgate

PAGE = (REPOSITORY / "docs" / "limits.md").read_text()
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", flags=re.MULTILINE)
SHELL_TIMEOUT = 30
DEBIAN_NODE_PATH = "/usr/share/nodejs"  # as in tests/clients


def blocks(language):
    """(the heading above it, the text) of each code block in that language."""
    found = [(match.start(), match.group(2)) for match in BLOCK.finditer(PAGE) if match.group(1) == language]
    code = [(match.start(), match.end()) for match in BLOCK.finditer(PAGE)]
    headings = [
        (match.start(), match.group(1))
        for match in HEADING.finditer(PAGE)
        if not any(start < match.start() < end for start, end in code)
    ]
    return [([name for place, name in headings if place < start][-1], block) for start, block in found]


def recipe(heading, number=0):
    found = [block for name, block in blocks("ini") if name == heading]
    assert found, f"no ini block under {heading}"
    return found[number]


def rules(ini):
    """Without the section [headgate], which tests write themselves."""
    return re.sub(r"^\[headgate\]\n(?:.*=.*\n)*", "", ini, flags=re.MULTILINE)


def refused(reply, name):
    return isinstance(reply, Error) and reply.startswith(f"RATELIMITED {name}: ".encode())


# ---- what is printed ----


def faults(result):
    """Without the warning of rules that go by addresses, which listen of the recipes does not show."""
    return [line for line in result.stderr.splitlines() if "goes by addresses" not in line]


def test_every_block_loads_and_recipes_can_stand_in_one_file(tmp_path):
    file = tmp_path / "headgate.ini"
    for heading, ini in blocks("ini"):
        file.write_text(ini)
        result = run_headgate("-t", "-c", file)
        assert (result.returncode, faults(result)) == (0, []), heading
    recipes = PAGE[PAGE.index("\n## Recipes\n") :]
    file.write_text("".join(rules(match.group(2)) for match in BLOCK.finditer(recipes) if match.group(1) == "ini"))
    result = run_headgate("-t", "-c", file)
    assert (result.returncode, faults(result)) == (0, [])


def sessions(*headings):
    """(command, what it prints) of the terminal sessions under those headings."""
    text = "".join(block for name, block in blocks("") if name in headings and re.match(r"\$ |127", block))
    parts = re.split(r"^(\$ |127\.0\.0\.1:6390> )(.*)\n", text, flags=re.MULTILINE)[1:]
    assert parts, f"no session under {headings}"
    commands = [("" if prompt == "$ " else "redis-cli -p 6390 ") + command for prompt, command in zip(parts[::3], parts[1::3])]
    return list(zip(commands, parts[2::3]))


def shell_of(headgate, redis):
    """Runs a line of a terminal session; redis-cli prints as on a terminal, and the ports are those of the test."""
    ports = {"6379": redis.port, "6380": headgate.port, "6390": headgate.admin_port}
    environment = {key: value for key, value in os.environ.items() if key != "REDISCLI_AUTH"}

    def run(command):
        exported = re.fullmatch(r"export (\w+)=(\w+)", command)
        if exported:
            environment[exported[1]] = exported[2]
            return ""
        command = re.sub(r"-p (\d{4})\b", lambda match: f"-p {ports[match[1]]}", command)
        command = re.sub(r"\bredis-cli\b", "redis-cli --no-raw", command)
        result = subprocess.run(
            ["bash", "-c", command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=SHELL_TIMEOUT,
        )
        assert result.stderr == "", command
        return result.stdout

    return run, environment


def comparable(printed):
    """Without what depends on the moment."""
    printed = re.sub(r"retry in \d+ ms", "retry in N ms", printed)
    return re.sub(r"next_admission_ms=\d+", "next_admission_ms=N", printed).strip()


def test_five_actions_exactly_as_printed(make, redis):
    """The recipe, then what LIMITS, STATS and LIMIT RESET are said to print after it."""
    headgate = make(rules(recipe("Five actions in sixty seconds, per user")))
    run, environment = shell_of(headgate, redis)
    for command, printed in sessions("Five actions in sixty seconds, per user"):
        assert comparable(run(command)) == comparable(printed), command
    environment.pop("REDISCLI_AUTH")
    shown = sessions("Watching")
    assert len(shown) == 3
    for command, printed in shown:
        # Gauges may lag behind a little.
        wait_for(lambda: comparable(run(command)) == comparable(printed), what=command)
    environment["REDISCLI_AUTH"] = "secret"
    assert comparable(run("redis-cli -p 6380 --user alice INCR n")) == "(integer) 7"


def test_commands_exactly_as_printed(make, redis):
    run, _ = shell_of(make(""), redis)
    for command, printed in sessions("CL.THROTTLE", "DELIFEQ"):
        assert comparable(run(command)) == comparable(printed), command


# ---- what clients see ----


ONE_AT_A_TIME = "[limit:wait]\ncommands = incr incrby\nper = key\nlimit = 1\nwindow = 500ms\n"
# One that is refused still, however late the second request comes.
ONE_AT_A_TIME += "[limit:long]\ncommands = decr decrby\nper = key\nlimit = 1\nwindow = 1h\n"


def code(language):
    found = [block for _, block in blocks(language)]
    assert len(found) == 1, f"{len(found)} blocks of {language}"
    return found[0]


def run_program(command, **environment):
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=SHELL_TIMEOUT, env={**os.environ, **environment}
        )
    except FileNotFoundError:
        pytest.fail(f"{command[0]} is not installed: install the packages of tests/clients/packages.txt")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout.split()


def test_python_honours_the_wait(make):
    import redis as redis_py

    headgate = make(ONE_AT_A_TIME)
    names = {}
    exec(compile(code("python"), "docs/limits.md", "exec"), names)
    client = redis_py.Redis(port=headgate.port)
    assert [names["patiently"](lambda: client.incr("k")) for _ in range(2)] == [1, 2]
    assert client.decr("k") == 1
    with pytest.raises(redis_py.ResponseError, match="^RATELIMITED long: 1 in 1h per key exceeded, retry in"):
        names["patiently"](lambda: client.decr("k"), longest=0.001)
    with pytest.raises(redis_py.ResponseError, match="unknown command"):
        names["patiently"](lambda: client.execute_command("NONSENSE"))
    client.close()


# What is said below the code of the page.
PROGRAMS = {
    "js": """
const { createClient } = require('redis');
(async () => {
  const client = createClient({ socket: { host: '127.0.0.1', port: Number(process.argv[2]) } });
  await client.connect();
  console.log(await patiently(() => client.incr('k')), await patiently(() => client.incr('k')));
  await client.decr('k');
  await patiently(() => client.decr('k'), 1).catch((error) => console.log(error.message.split(' ')[0]));
  await client.quit();
})();
""",
    "ruby": """
require 'redis'
client = Redis.new(port: ARGV[0].to_i)
2.times { puts(patiently { client.incr('k') }) }
client.decr('k')
begin
  patiently(0.001) { client.decr('k') }
rescue Redis::CommandError => error
  puts error.message.split.first
end
""",
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_other_languages_honour_the_wait(make, tmp_path, language):
    headgate = make(ONE_AT_A_TIME)
    program = tmp_path / "program"
    program.write_text(code(language) + PROGRAMS[language])
    runtime = {"js": "/usr/bin/node", "ruby": "ruby"}[language]
    assert run_program([runtime, str(program), str(headgate.port)], NODE_PATH=DEBIAN_NODE_PATH) == ["1", "2", "RATELIMITED"]


# ---- recipes, end to end ----


def smaller(ini, **changes):
    """The recipe with other numbers, which are reached in less time."""
    for option, value in changes.items():
        ini, count = re.subn(rf"^{option} = .*$", f"{option} = {value}", ini, flags=re.MULTILINE)
        assert count == 1, option
    return ini


def test_attempts_to_authenticate(make, redis):
    headgate = make(smaller(recipe("Login attempts", 0), limit=3, window="1h"))
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "alice", "on", ">secret", "~*", "&*", "+@all")
    for _ in range(3):
        assert headgate.connect()("AUTH", "alice", "guess").startswith(b"WRONGPASS")
    client = headgate.connect()
    assert refused(client("AUTH", "alice", "secret"), "auth")
    assert client("ACL", "WHOAMI") == b"default"
