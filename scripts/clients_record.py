"""The tables of docs/clients.md: printing them, and what was recorded there, with which a run is compared.

A cell of the first table is a feature: SAME, LACKS or WRONG. The second one is about what clients cost.
"""

SAME, LACKS, WRONG = "=", "–", "✗"
# How many more connections in shared than recorded are no loss: some are opened for a moment.
MORE_CONNECTIONS = 3

COSTS = ["library", "version", "RESP", "direct", "session", "shared", "exclusive lanes", "lost requests"]
BEGIN, END = "<!-- written by scripts/test-clients --record -->", "<!-- end -->"


def table(head, *rows):
    """The lines of a table; rows: of cells."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def tables_of(text):
    """Each table as {name in the first column: {head of the column: cell}}."""
    found, head = [], None
    for line in text.splitlines():
        if not line.startswith("| "):
            head = None if not line.startswith("|-") else head
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head is None:
            head = cells
            found.append({})
        else:
            found[-1][cells[0]] = dict(zip(head, cells))
    return found


def recorded(path):
    """(features, costs) of each library, as the page has them."""
    text = path.read_text() if path.exists() else ""
    if BEGIN not in text:
        return {}, {}
    features, costs, *_ = [*tables_of(text.split(BEGIN)[1].split(END)[0]), {}, {}]
    return features, costs


def write(path, title, rows, costs, order):
    """Puts the rows of both tables into the page; those of libraries that were not tried stay. order: of all libraries;
    those that are not in it are left out."""
    known = recorded(path)
    tables = [merged(old, new, order) for old, new in zip(known, (rows, costs))]
    text = path.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    body = "\n".join([title, "", *tables[0], "", *tables[1]])
    path.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")


def merged(known, new, order):
    """new: the head, and rows of cells; known: as recorded."""
    head, *rows = new
    found = {name: [name, *(cells.get(column, LACKS) for column in head[1:])] for name, cells in known.items()}
    found.update({row[0]: row for row in rows})
    return table(head, *[found[name] for name in order if name in found])


def is_worse(cell, known):
    """known: as recorded, or None."""
    if known == LACKS:
        return cell == WRONG
    return cell != known if known == SAME else cell == WRONG and known is None


def costs_more(costs, known, threads=1):
    """Of the second table's row: more connections than were recorded; threads: workers, each of which has lanes."""
    if not known:
        return False
    return costs["shared"] > (int(known["shared"]) + MORE_CONNECTIONS) * threads
