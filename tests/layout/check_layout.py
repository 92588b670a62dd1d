"""Holds the rules of the source's layout: check_layout.py ROOT [libheadgate_core.a]; check_layout.py ROOT --lower: its weight

- proxy/ has one folder for each part, and includes point one way, from the top of FOLDERS to the bottom; nothing but
  main.c lies beside the folders;
- a policy includes the contract (policy/policy.h), what policies share (match/, tables, hashes), and headers of its own; nothing
  in proxy/ includes a policy;
- framing and policies do no I/O and know no event loop;
- a header with _private in its name is included by its own module only;
- what a file in proxy/ exports begins with the name of its module;
- files of one folder call one way, but for those that calls.py names;
- files of tests have names of their own;
- there is no more of it than ratchet.py says.
"""

import pathlib
import re
import subprocess
import sys

from calls import check_calls
from ratchet import check_weight, lower

# A folder may include those above it here, and itself.
FOLDERS = ["base", "tls", "conf", "event", "net", "resp", "command", "upstream", "topology", "policy", "client", "worker", "admin", "http", "process"]
RANKS = {folder: rank for rank, folder in enumerate(FOLDERS)}

# What a module exports beside what begins with its own name.
FURTHER_PREFIXES = {"client": ["expected_reply", "session"], "upstream": ["profile"], "script": ["scripts"]}

CONTRACT = "policy/policy.h"
# What the contract is made of, and so what policies may know besides.
OF_THE_CONTRACT = {"command/command.h", "conf/conf_table.h", "upstream/script.h", "base/stats.h", "base/text.h", "resp/word.h"}
FOR_POLICIES = {CONTRACT, "match/match.h", "conf/conf_server_tls.inc", "conf/filter.h", "conf/glob.h", "conf/words.h", "base/clock.h", "base/fnv.h", "base/percent.h", "base/siphash.h",
                "base/subnet.h", "base/table.h"}
GENERATED = {"version.h"}

IO_HEADERS = re.compile(
    r"(event2?/|event\.h|hiredis/|sys/(epoll|select|socket|un|uio)\.h|netinet/|netdb\.h|poll\.h|unistd\.h|fcntl\.h"
    r"|stdio_ext\.h)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def module_of(path):
    """client_reply.c belongs to client."""
    return re.match(r"[a-z]+", path.name).group()


def includes(path):
    """(in quotes, in angle brackets)"""
    found = INCLUDE.findall(path.read_text())
    return [quoted for quoted, _ in found if quoted], [system for _, system in found if system]


def check_proxy_file(root, path):
    folder = path.parent.name
    for name in includes(path)[0]:
        other = pathlib.PurePath(name)
        if name in GENERATED:
            continue
        if not (root / "proxy" / name).is_file() or other.parent.name not in RANKS:
            yield f"{path}: includes {name}, which is in no folder of proxy/"
        elif folder != "proxy" and RANKS[other.parent.name] > RANKS[folder]:
            yield f"{path}: includes {name}, which is not below {folder}/"
        elif name.endswith("_private.h") and module_of(other) != module_of(path):
            yield f"{path}: includes {name}, which is private to {module_of(other)}"


def check_place(root, path):
    if path.parent == root / "proxy" and path.name != "main.c":
        yield f"{path}: lies beside the folders"
    elif path.parent != root / "proxy" and path.parent.name not in RANKS:
        yield f"{path}: {path.parent.name} is no folder of the layout"


def check_no_io(path):
    for name in includes(path)[1]:
        if IO_HEADERS.match(name):
            yield f"{path}: includes <{name}>, but does no I/O"


def check_policy_file(root, path):
    own = f"{path.parent.name}/{module_of(path)}_"
    for name in includes(path)[0]:
        if name not in FOR_POLICIES and not name.startswith(own):
            yield f"{path}: includes {name}; a policy includes {', '.join(sorted(FOR_POLICIES))} and headers of its own only"


def check_contract(root):
    for name in includes(root / "proxy" / CONTRACT)[0]:
        if name not in OF_THE_CONTRACT:
            yield f"{CONTRACT}: includes {name}, which no policy should have to know"


def check_exports(library):
    """The names that the objects of the library define for others."""
    listing = subprocess.run(["nm", "-g", "--defined-only", library], check=True, capture_output=True, text=True)
    module, count = None, 0
    for line in listing.stdout.splitlines():
        if line.endswith(".o:"):
            module = module_of(pathlib.Path(line))
            continue
        name = line.split()[-1] if line.strip() else ""
        if not name or name.startswith("_"):
            continue
        if module == "scripts":
            module = "script"
        count += 1
        prefixes = [module, *FURTHER_PREFIXES.get(module, [])]
        if not any(name == prefix or name.startswith(prefix + "_") for prefix in prefixes):
            yield f"{library}: {name} of {module} has not the prefix of its module"
    if count < 100:
        yield f"{library}: only {count} names were found"


def sources_in(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in (".c", ".h", ".inc"))


def check_test_names(root):
    """pytest takes each file for a module of that name, and refuses a second one in the same run."""
    seen = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        if path.name in seen:
            yield f"{path}: there is {seen[path.name]}, too; expected names of their own"
        seen[path.name] = path


def check(root, library):
    sources = sources_in(root / "proxy")
    policies = sources_in(root / "policies")
    if len(sources) < 20 or len(policies) < 2:
        yield f"{root}: no sources found"
    for path in sources:
        yield from check_place(root, path)
        yield from check_proxy_file(root, path)
        if path.parent.name == "resp":
            yield from check_no_io(path)
    yield from check_contract(root)
    for path in policies:
        yield from check_policy_file(root, path)
        if path.suffix == ".c":
            yield from check_no_io(path)
    yield from check_calls(root)
    yield from check_test_names(root)
    yield from check_weight(root)
    if library:
        yield from check_exports(library)


def main():
    if sys.argv[2:] == ["--lower"]:
        return lower(pathlib.Path(sys.argv[1]))
    faults = list(check(pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
