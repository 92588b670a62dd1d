"""Which files of a folder call which, by the text: what is handed over to be called back counts for circles_with_callbacks() only."""

import re

# Files that need each other, by folder. No file joins them, and no others come to be.
KNOTS = {
    "proxy/client": [{"client_reply.c", "client_spread.c"}],
    "proxy/conf": [
        {"conf_address.c", "conf_topology.c", "conf_url.c"},
        {"conf_faults.c", "conf_files.c", "conf_modes.c", "conf_sources.c"},
        {"conf_listener.c", "conf_self.c"},
    ],
    "proxy/event": [{"handshaker.c", "reactor.c"}],
    "proxy/net": [{"connection.c", "connection_secure.c"}],
    "proxy/topology": [{"sentinel.c", "sentinel_check.c", "sentinel_source.c"}],
}

# Whoever finds that a client cannot go on calls this one, which lets go of all that the client has.
CLOSES = "proxy/client/client_life.c"

NO_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
DEFINITION = re.compile(r"^(?!static\b)[a-z][\w *]*?\b(\w+)\([^;{]*\)\s*\{", re.MULTILINE)
CALL = re.compile(r"(?<![\w.>])([a-z]\w*)\(")

def calls_in(folder):
    """{file: the files of the folder that it calls}"""
    texts = {path.name: NO_CODE.sub(" ", path.read_text()) for path in sorted(folder.glob("*.c"))}
    owners = {name: file for file, text in texts.items() for name in DEFINITION.findall(text)}
    return {
        file: {owners[name] for name in CALL.findall(text) if name in owners} - {file}
        for file, text in texts.items()
    }  # fmt: skip

def reached(calls, start):
    """All files that may be come to from there."""
    found, ahead = set(), [start]
    while ahead:
        ahead += calls[ahead[0]] - found
        found |= calls[ahead.pop(0)]
    return found

def knots_of(calls):
    """Sets of files of which each comes to each."""
    ways = {file: reached(calls, file) for file in calls}
    knots = []
    for file in calls:
        if file in ways[file] and not any(file in knot for knot in knots):
            knots.append({other for other in ways[file] if file in ways[other]})
    return knots

def check_calls(root):
    folders = sorted({path.parent for part in ("proxy", "policies") for path in (root / part).rglob("*.c")})
    if not any(calls_in(folder) for folder in folders):
        yield f"{root}: no calls found"
    for folder in folders:
        calls = calls_in(folder)
        if CLOSES.startswith(f"{folder.relative_to(root)}/"):
            for called in calls.values():
                called.discard(CLOSES.rpartition("/")[2])
        allowed = KNOTS.get(str(folder.relative_to(root)), [])
        for knot in knots_of(calls):
            if knot not in allowed:
                yield f"{folder}: these files call each other in a circle, which tests/layout/calls.py does not know: {', '.join(sorted(knot))}"
        for knot in allowed:
            if knot not in knots_of(calls):
                yield f"{folder}: tests/layout/calls.py names a circle that is no more as it says: {', '.join(sorted(knot))}"

ANY_DEFINITION = re.compile(r"^[a-z][\w *]*?\b(\w+)\([^;{]*\)\s*\{", re.MULTILINE)
NAME = re.compile(r"(?<![\w.>])([a-z]\w*)\b(?!\()")
CALL_WITH_ARGUMENTS = re.compile(r"(?<![\w.>])([a-z]\w*)\(((?:[^()]|\([^()]*\))*)\)")
SET_FIELD = re.compile(r"(?:\.|->)(\w+) = &?(\w+)\b")
CALLED_FIELD = re.compile(r"(?:\.|->)(\w+)\(")

def needs_in(folder):
    """{file: the files of the folder whose functions it calls, names, or calls back}: who is handed a function with a call needs
    whoever has it, and who calls a function pointer needs all that set a field of that name."""
    texts = {path.name: NO_CODE.sub(" ", path.read_text()) for path in sorted(folder.glob("*.c"))}
    owners = {name: file for file, text in texts.items() for name in DEFINITION.findall(text)}
    needs = {file: set(called) for file, called in calls_in(folder).items()}
    setters = {}
    for file, text in texts.items():
        known = owners | dict.fromkeys(ANY_DEFINITION.findall(text), file)
        needs[file] |= {owners[name] for name in NAME.findall(text) if name in owners}
        for called, arguments in CALL_WITH_ARGUMENTS.findall(text):
            if called in owners:
                needs[owners[called]] |= {known[name] for name in NAME.findall(arguments) if name in known}
        for field, name in SET_FIELD.findall(text):
            setters.setdefault(field, set()).update({known[name]} if name in known else ())
    for file, text in texts.items():
        needs[file] |= {setter for field in CALLED_FIELD.findall(text) for setter in setters.get(field, ())}
    return {file: needed - {file} for file, needed in needs.items()}

def circles_with_callbacks(root):
    folders = {path.parent for part in ("proxy", "policies") for path in (root / part).rglob("*.c")}
    return [knot for folder in sorted(folders) for knot in knots_of(needs_in(folder))]
