"""Holds the rules of the source's layout: check_layout.py ROOT [libheadgate_core.a]

- includes point one way: main, admin, worker, client, chain, learn, control, upstream, lane, connection, and at the
  bottom what knows nothing of Redis' connections;
- a policy includes only the contract (and match.h, siphash.h), and nothing in proxy/ but chain.h includes the contract, nothing a policy;
- framing and policies do no I/O and know no event loop;
- what a file in proxy/ exports begins with the name of its module.
"""

import pathlib
import re
import subprocess
import sys

# From the bottom to the top: a module may include those of lower rows, and itself.
ROWS = [
    ["resp", "recycle", "log", "clock", "stats", "script", "version", "text", "workgroup", "directory"],
    ["buffer", "conf", "peer", "word"],
    ["command"],
    ["splice"],
    ["run", "reactor"],
    ["mailbox", "connection"],
    ["lane", "port", "resolver"],
    ["upstream", "lookup"],
    ["control"],
    ["learn"],
    ["chain"],
    ["client"],
    ["worker"],
    ["crew"],
    ["listener", "admin"],
    ["main"],
]
RANKS = {module: rank for rank, row in enumerate(ROWS) for module in row}

# What a module exports beside what begins with its own name.
FURTHER_PREFIXES = {"client": ["observation", "session"], "upstream": ["profile"], "script": ["scripts"]}

CONTRACT = "../policies/policy.h"
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


def check_proxy_file(path):
    module = module_of(path)
    if module not in RANKS:
        yield f"{path}: {module} is no module of the layout"
        return
    for name in includes(path)[0]:
        if name == CONTRACT:
            if path.name != "chain.h":
                yield f"{path}: includes {name}; only chain.h may"
            continue
        if "/" in name:
            yield f"{path}: includes {name} of another folder"
            continue
        other = module_of(pathlib.Path(name))
        if other not in RANKS:
            yield f"{path}: includes {name}, which is no module of the layout"
        elif other != module and RANKS[other] >= RANKS[module]:
            yield f"{path}: includes {name}, which is not below it"
        elif other != module and name.endswith("_private.h"):
            yield f"{path}: includes {name}, which is private to {other}"


def check_no_io(path):
    for name in includes(path)[1]:
        if IO_HEADERS.match(name):
            yield f"{path}: includes <{name}>, but does no I/O"


def check_policy_file(path):
    for name in includes(path)[0]:
        allowed = ("command.h", "conf_table.h", "script.h", "stats.h", "text.h", "word.h") if path.name == "policy.h" else ("policy.h", "match.h", "siphash.h")
        if name not in allowed and not name.startswith(path.stem.split("_")[0] + "_"):
            yield f"{path}: includes {name}; a policy includes policy.h, match.h, siphash.h and headers of its own only"


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


def check(root, library):
    sources = sorted(path for path in (root / "proxy").iterdir() if path.suffix in (".c", ".h", ".inc"))
    policies = sorted(path for path in (root / "policies").iterdir() if path.suffix in (".c", ".h"))
    if len(sources) < 20 or len(policies) < 2:
        yield f"{root}: no sources found"
    for path in sources:
        yield from check_proxy_file(path)
        if module_of(path) == "resp":
            yield from check_no_io(path)
    for path in policies:
        yield from check_policy_file(path)
        if path.suffix == ".c":
            yield from check_no_io(path)
    if library:
        yield from check_exports(library)


def main():
    faults = list(check(pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
