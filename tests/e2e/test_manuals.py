"""The manual pages that the program prints: all that its tables have, and nothing that roff would stumble over."""

import re
import subprocess

import pytest

from harness.admin import text
from harness.servers import run_headgate

# groff's programs read each other by stdio, which keeps a world's baton.
pytestmark = pytest.mark.real

PAGES = ["headgate.8", "headgate.ini.5", "headgate-admin.8"]


def source(page):
    result = run_headgate("--reference", page)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown(page):
    """As a reader sees it, on lines that do not end."""
    return subprocess.run("groff -man -Tutf8 -P-cbou -rLL=1000n".split(), input=source(page), check=True, capture_output=True, text=True, timeout=60).stdout


def test_roff_has_nothing_to_say():
    for page, page_source in zip(PAGES, map(source, PAGES)):
        assert page_source.isascii(), page
        for command in ("groff -man -Tutf8 -ww -z", "mandoc -T lint -W warning"):
            result = subprocess.run(command.split(), input=page_source, capture_output=True, text=True, timeout=60)
            assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), page


def test_every_option_of_the_file_is_there():
    options = re.findall(r"^#(\w+) =", run_headgate("--reference", "ini").stdout, flags=re.MULTILINE)
    assert len(options) > 100
    left = re.findall(r"^       (\w+)(?: .*)?$", shown("headgate.ini.5"), flags=re.MULTILINE)
    for option in options:
        assert option in left, option
        left.remove(option)
    # What stands there is what the program says, to the letter.
    page = " ".join(shown("headgate.ini.5").split())
    reference = run_headgate("--reference", "ini").stdout
    for value in re.findall(r"^# Value: (.*)\.$", reference, flags=re.MULTILINE):
        assert " ".join(value.split()) in page, value


def test_the_example_is_sound(tmp_path):
    block = re.search(r"\.nf\n(.*?)\.fi", source("headgate.ini.5"), flags=re.DOTALL).group(1)
    path = tmp_path / "example.ini"
    path.write_text(block.replace(".sp", "").replace("\\-", "-"))
    result = run_headgate("-t", "-c", path)
    assert result.returncode == 0, result.stderr


def test_every_verb_and_counter_is_there(redis, make_headgate):
    page = shown("headgate-admin.8")
    with make_headgate(redis, pool="shared").admin() as admin:
        verbs = [re.split(r"  +", line)[0] for line in text(admin("HELP")).splitlines()]
        counters = re.findall(r"^(\w+) \((gauge|counter)\):", text(admin("HELP", "COUNTERS")), flags=re.MULTILINE)
    assert len(verbs) > 20 and len(counters) > 100
    for verb in verbs:
        assert re.search(rf"^       {re.escape(verb)}( |$)", page, flags=re.MULTILINE), verb
    for name, kind in counters:
        assert re.search(rf"^       {name} {kind}( |$)", page, flags=re.MULTILINE), name


def test_every_option_of_the_command_line_is_there():
    named = re.findall(r"^  (-[-\w]+)", run_headgate("--help").stdout, flags=re.MULTILINE)
    assert len(named) >= 7
    for name in named:
        assert re.search(rf"^       {name}( |$|\[)", shown("headgate.8"), flags=re.MULTILINE), name
