"""docs/recipes.md: each recipe is short, sound and complete, and what it shows happens on a terminal."""

import re

import pytest

from harness.certificates import certificates
from harness.resp import wait_for
from harness.servers import REPOSITORY
from harness.terminal import Terminal, essence

PAGE = (REPOSITORY / "docs" / "recipes.md").read_text()
RECIPE = re.compile(
    r"^### (I want [^\n]*)\n\n```ini\n(.*?)```\n\n```console\n(.*?)```\n\n(.*?)(?=^##|\Z)", flags=re.MULTILINE | re.DOTALL
)
RECIPES = RECIPE.findall(PAGE)
WANTED = 23
MOST_LINES = 5

recipes = pytest.mark.parametrize(("ini", "session"), [found[1:3] for found in RECIPES], ids=[found[0] for found in RECIPES])


def sections(ini):
    """The options of [headgate], and the other sections as text."""
    own = re.match(r"\[headgate\]\n((?:.+=.*\n)*)", ini)
    options = dict(re.split(" *= *", line, maxsplit=1) for line in own[1].splitlines()) if own else {}
    return options, ini[own.end() :] if own else ini


def dialogue(session):
    """(what is typed, the lines that it shows)."""
    parts = re.split(r"^\$ (.*)\n", session, flags=re.MULTILINE)
    assert parts[0] == ""
    return [(command, shown.splitlines()) for command, shown in zip(parts[1::2], parts[2::2])]


@pytest.fixture
def as_here(make_redis, make_headgate, tmp_path):
    """Text with the addresses of this test in place of the usual ones; the Headgate for it comes with start()."""
    redis = make_redis(tls=True)
    headgate = make_headgate(redis, start=False)
    usual = {"6379": redis.port, "6380": headgate.port, "6390": headgate.admin_port}

    def translate(text):
        text = text.replace("cache.example.com:6379", f"127.0.0.1:{redis.tls_port}")
        text = text.replace("/etc/headgate/tls", str(certificates().directory))
        text = re.sub(r"\b(6379|6380|6390)\b", lambda match: str(usual[match[0]]), text)
        return text.replace("/run/headgate", str(tmp_path))

    translate.headgate = headgate
    return translate


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.paste("kill $(jobs -p) 2> /dev/null")
    terminal.close()


def test_they_are_complete():
    assert len(RECIPES) == len(re.findall("^### ", PAGE, flags=re.MULTILINE)) == WANTED
    for want, ini, session, words in RECIPES:
        assert len(ini.splitlines()) <= MOST_LINES, want
        assert dialogue(session)[-1][1], f"{want} shows nothing"
        assert 1 <= len(words.split()) <= 60, want


@pytest.mark.real  # bash tells by itself when a job has ended.
@recipes
def test_it_does_what_it_shows(as_here, terminal, ini, session):
    options, rules = sections(as_here(ini))
    # On a busy machine Redis may take longer to decide than the usual 100 ms.
    as_here.headgate.write_rules(rules.replace("scope = global\n", "scope = global\ndecision_timeout = 30s\n"))
    as_here.headgate.write_config(**options)
    as_here.headgate.start()
    for command, shown in dialogue(session):
        check(terminal, as_here(command), essence(shown))


def check(terminal, command, expected):
    """On a slow machine what was measured is on record, and what was to end has ended, a little later: questions are
    asked again."""
    lines = essence(terminal.paste(command))
    if lines != expected and re.search(r"-p \d+ (REPORT|COUNTER|LEASES|CLIENTS|SLOWLOG|EXISTS)\b", command):
        question = command.split("; ")[-1]
        wait_for(lambda: lines == expected or lines.__setitem__(slice(None), essence(terminal.paste(question))), 30)
    assert lines == expected
