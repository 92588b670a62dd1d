"""The pages for people say what is so: links, files, functions, commands, verbs, counters, log lines, kinds of commands."""

import os
import re

import pytest

from harness.admin import text
from harness.resp import Error
from harness.rules import launch
from harness.servers import REPOSITORY, run_headgate

FIRST_PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*FIRST_PAGES, *sorted((REPOSITORY / "docs").rglob("*.md"))]
# Those for whoever changes Headgate, which name functions, types and files of the source.
PAGES_OF_SOURCE = [REPOSITORY / "CONTRIBUTING.md"] + [
    page
    for page in PAGES
    if page.parent.name == "internals" or page.stem in ("architecture", "open-ends", "performance", "testing")
]
SOURCES = [
    path
    for folder in ("proxy", "policies", "tests", "lua")
    for path in sorted((REPOSITORY / folder).rglob("*"))
    if path.suffix in (".c", ".h", ".inc", ".lua", ".py", ".in")
]
# Of the C library, and of the system.
FUNCTIONS_OF_OTHERS = {"bind", "getaddrinfo", "open_memstream"}
FOLDERS = ("proxy", "policies", "lua", "conf", "tests", "scripts", "docs", ".ci")


def page(name):
    return (REPOSITORY / name).read_text()


def id_of(path):
    return str(path.relative_to(REPOSITORY))


def without_code(markdown):
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def section(markdown, heading):
    """The text from that heading to the next of any level."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", markdown, flags=re.MULTILINE | re.DOTALL)
    assert match, f"no heading {heading}"
    return match.group(1)


def rows(markdown):
    """The cells of a table's rows, without the head."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if not set("".join(row)) <= set("-")][1:]


def anchors(markdown):
    """Headings as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", without_code(markdown), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path):
    """The links of a page to others of the tree: (as it stands there, the file, the anchor)."""
    for target in re.findall(r"\]\(([^)]+)\)", without_code(path.read_text())):
        if not target.startswith(("http://", "https://")):
            name, _, anchor = target.partition("#")
            yield target, (path.parent / name).resolve() if name else path, anchor


def test_links_lead_somewhere():
    for path in PAGES:
        for target, file, anchor in links(path):
            assert file.exists(), (path, target)
            assert not anchor or anchor in anchors(file.read_text()), target


def test_every_page_is_linked_to():
    """From README or CONTRIBUTING on, by whatever pages lie between."""
    found, left = set(), list(FIRST_PAGES[:2])
    while left:
        page = left.pop()
        if page not in found:
            found.add(page)
            left += [file for _, file, _ in links(page) if file.suffix == ".md"]
    assert not [id_of(page) for page in PAGES if page not in found]


def test_the_architecture_is_read_in_a_quarter_of_an_hour():
    assert len(page("docs/architecture.md").split()) <= 3500


def test_files_that_are_named_exist():
    """Also those of the source that are named without their folder, in code blocks and drawings, too; scripts can be run."""
    sources = {source.name for source in SOURCES}
    for path in PAGES:
        markdown = path.read_text()
        for name in re.findall(r"`([^`\s]+)`", without_code(markdown)):
            if name.startswith(tuple(folder + "/" for folder in FOLDERS)):
                assert list(REPOSITORY.glob(name.rstrip("/"))), (path, name)
        for name in re.findall(r"\bscripts/[a-z-]+\b(?!\.)", markdown):
            assert os.access(REPOSITORY / name, os.X_OK), (path, name)
        if path in PAGES_OF_SOURCE:
            for name in re.findall(r"(?<![\w/.*<-])(\w+\.(?:c|h|inc|lua))\b(?!\.)", markdown):
                assert name in sources, (path, name)


@pytest.fixture(scope="module")
def code():
    return re.sub(r"/\*.*?\*/", "", "\n".join(path.read_text() for path in SOURCES), flags=re.DOTALL)


def test_functions_and_types_that_are_named_exist(code):
    """Functions and hooks: `name()`, in code blocks and drawings, too."""
    words = set(re.findall(r"\w+", code)) | FUNCTIONS_OF_OTHERS
    for path in PAGES_OF_SOURCE:
        markdown = path.read_text()
        for name in re.findall(r"\b([a-z]\w+)\(\)", markdown) + re.findall(r"`([a-z]\w+)\([^`\n]*\)`", markdown):
            assert name in words, (path, name)
        for name in re.findall(r"`((?:struct|enum) \w+)`", markdown):
            assert re.search(rf"\b{name} {{", code), (path, name)


def test_the_tour_asks_what_can_be_asked(redis, make_headgate):
    """Each command to the admin port in any page is answered without an error."""
    headgate = launch(make_headgate, redis, "shared", "[latency]\nenabled = on\n[counters]\nenabled = on\n[events]\nenabled = on\n")
    pattern = re.compile(r"redis-cli (?:--raw )?-p 6390 ([A-Z]+(?: [a-z0-9]+)*)\b")
    asked = {match for path in PAGES for match in pattern.findall(path.read_text())}
    assert {"LANES", "CLIENTS", "STATS", "STATS traffic", "STATS upstream"} <= asked
    with headgate.admin() as admin:
        # Those that end it come last.
        for words in sorted(asked, key=lambda words: (words == "SHUTDOWN", words == "DRAIN", words)):
            assert not isinstance(admin(*words.split()), Error), words


def test_every_verb_says_what_it_changes(redis, make_headgate):
    with make_headgate(redis, pool="shared").admin() as admin:
        lines = text(admin("HELP")).splitlines()
    notes = {"changes something": "yes", "RESET changes something": "RESET"}
    known = {}
    for line in lines:
        note = re.search(r" \(((?:RESET )?changes something)\)$", line)
        known[re.split(r"  +", line)[0]] = notes[note.group(1)] if note else ""
    shown = {row[0].strip("`"): row[1] for row in rows(section(page("docs/operations.md"), "Admin port")) if len(row) == 3}
    assert known == shown
    assert list(known.values()).count("") > 5


def test_every_counter_has_its_row(redis, make_headgate):
    with make_headgate(redis, pool="shared").admin() as admin:
        lines = text(admin("HELP", "COUNTERS")).splitlines()
        stats = text(admin("STATS")).split("\r\n")
    known = dict(re.match(r"(\w+) \((gauge|counter)\): ", line).groups() for line in lines if "): " in line)
    places, title = {}, ""
    for line in stats:
        title = line[2:] if line.startswith("# ") else title
        places[line.split(":")[0]] = title
    table = {row[0].strip("`"): row[1] for row in rows(section(page("docs/operations.md"), "Counters"))}
    assert table.keys() == known.keys()
    for name, kind in known.items():
        assert table[name] == places[name]
        assert name.endswith("_total") == (kind == "counter"), name
    named = section(page("docs/operations.md"), "Counters")
    for name in places.keys() - known.keys():
        assert not name or name.startswith("#") or f"`{name}`" in named, name


def logging_source():
    """All of it, with strings in one piece, and each line that is logged as by log_info("module", …)."""
    joined = "\n".join(path.read_text() for path in sorted((REPOSITORY / "proxy").rglob("*.c")))
    source = re.sub(r'"\s*\n\s*"', "", joined)
    source = re.sub(r"client_log\(\w+, LOG_LEVEL_(\w+),", lambda found: f'log_{found[1].lower()}("client",', source)
    about = re.compile(r'log_write_about\(LOG_LEVEL_(\w+), [^"]*?"(\w+)"')
    return about.sub(lambda found: f'log_{found[1].lower()}("{found[2]}"', source)


def test_log_lines_are_those_of_the_source():
    """Each piece of a quoted line between what varies stands in a string of the source; and no error is left out."""
    source = logging_source()
    quoted = [(row[0], row[1].strip("`")) for row in rows(section(page("docs/operations.md"), "Log"))]
    assert len(quoted) > 15
    for level, line in quoted:
        module, _, message = line.partition(": ")
        assert f'log_{level}("{module}"' in source, line
        for piece in re.split("…|-ERR", message):
            assert piece in source, piece
    for module in set(re.findall(r'log_error\("(\w+)"', source)):
        assert any(level == "error" and line.startswith(module + ": ") for level, line in quoted), module


def test_every_kind_of_command_has_its_row():
    header = page("proxy/command/command.h")
    kinds = set(re.findall(r"\bCOMMAND_([A-Z_]+)\b", header.split("enum command_kind {")[1].split("};")[0]))
    table = {row[0]: row for row in rows(page("docs/compatibility.md")) if row[0] in kinds}
    assert table.keys() == kinds
    for name, kind in re.findall(r'^COMMAND\("([^"]+)",\s*(\w+),', page("proxy/command/command_table.inc"), flags=re.MULTILINE):
        if kind != "ORDINARY":
            assert name.upper() in table[kind][1].upper().split(", "), name


def test_examples_are_sound_and_enforce():
    """What is copied does what it says; a comment tells how to try a rule before it refuses anybody."""
    for path in sorted((REPOSITORY / "conf" / "examples").glob("*.ini")):
        result = run_headgate("-t", "-c", path)
        assert result.returncode == 0, result.stderr
        lines = path.read_text().splitlines()
        assert not [line for line in lines if re.match(r"action\s*=\s*observe", line)]
        if any(line.startswith(("[limit:", "[deny:")) for line in lines):
            assert [line for line in lines if line.startswith(("#", ";")) and "action = observe" in line], path
