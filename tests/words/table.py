"""What commands, subcommands and options there are: from Headgate's own table and from the server at hand."""

import re

from harness.resp import Error
from harness.servers import REPOSITORY

COMMAND_ROW = re.compile(r'^COMMAND\("([^"]+)",\s*(\w+),\s*(-?\d+),', re.MULTILINE)
SUBCOMMAND_ROW = re.compile(r'^SUBCOMMAND\("([^"]+)",\s*"([^"]+)"', re.MULTILINE)


class Row:
    """A command, or one subcommand of it. arguments: as COMMAND DOCS tells them, or None."""

    def __init__(self, name, subcommand=None, kind="UNKNOWN", arity=-1, arguments=None):
        self.name = name
        self.subcommand = subcommand
        self.kind = kind
        self.arity = arity
        self.arguments = arguments

    @property
    def full_name(self):
        return f"{self.name}|{self.subcommand}" if self.subcommand else self.name

    @property
    def words(self):
        return [self.name.encode()] + ([self.subcommand.encode()] if self.subcommand else [])


def table_rows():
    """Headgate's own rows, by full name."""
    source = (REPOSITORY / "proxy" / "command" / "command_table.inc").read_text()
    rows = {name: Row(name, None, kind, int(arity)) for name, kind, arity in COMMAND_ROW.findall(source)}
    assert len(rows) > 200, "the rows of command_table.inc are written in another way now"
    subcommands = SUBCOMMAND_ROW.findall((REPOSITORY / "proxy" / "command" / "command_subcommands.inc").read_text())
    assert len(subcommands) > 100, "the rows of command_subcommands.inc are written in another way now"
    for name, subcommand in subcommands:
        row = Row(name, subcommand, rows[name].kind, -2)
        rows[row.full_name] = row
    return rows


def pairs(reply):
    return dict(zip(reply[::2], reply[1::2]))


def add_documented(rows, name, subcommand, documentation, arity):
    full_name = f"{name}|{subcommand}" if subcommand else name
    row = rows.setdefault(full_name, Row(name, subcommand, rows[name].kind if name in rows else "UNKNOWN"))
    row.arguments = [argument(entry) for entry in documentation.get(b"arguments", [])]
    row.arity = arity.get(full_name, row.arity)


def argument(entry):
    """One argument of COMMAND DOCS as a dictionary of text."""
    found = {key.decode(): value for key, value in pairs(entry).items()}
    for key in ("name", "type", "token"):
        if key in found:
            found[key] = found[key].decode()
    found["flags"] = {flag.decode() for flag in found.get("flags", [])}
    found["arguments"] = [argument(inner) for inner in found.get("arguments", [])]
    return found


def server_arities(client):
    arities = {}

    def note(entries):
        for entry in entries:
            if isinstance(entry, list) and entry:
                arities[entry[0].decode()] = entry[1]
                if len(entry) > 9:
                    note(entry[9])

    note(client("COMMAND"))
    return arities


def all_rows(client):
    """Headgate's rows, and beyond them what the server has; with the server's own list of arguments."""
    rows = table_rows()
    arity = server_arities(client)
    documents = client("COMMAND", "DOCS")
    assert not isinstance(documents, Error), documents
    for name, entry in pairs(documents).items():
        entry = pairs(entry)
        add_documented(rows, name.decode(), None, entry, arity)
        for inner, document in pairs(entry.get(b"subcommands", [])).items():
            command, subcommand = inner.decode().split("|", 1)
            add_documented(rows, command, subcommand, pairs(document), arity)
    return [rows[name] for name in sorted(rows)]


def containers(rows):
    """Commands that are never sent without a subcommand."""
    return {row.name for row in rows if row.subcommand}
