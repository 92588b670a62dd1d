"""The tables of docs/clients.md: printing them, and what was recorded there, with which a run is compared.

A cell of the first table is a feature: SAME, LACKS or WRONG. The second one is about what clients cost.
"""

SAME, LACKS, WRONG = "=", "–", "✗"
# How many more connections than recorded are no loss: some are opened and closed as others need them.
MORE_CONNECTIONS = 3

COSTS = ["library", "version", "RESP", "direct", "session", "shared", "exclusive lanes", "lost requests"]
BEGIN, END = "<!-- written by scripts/test-clients --record -->", "<!-- end -->"


def table(head, rows):
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


def write(path, lines):
    """Puts the tables in the place of those that the page has."""
    text = path.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


def is_worse(cell, known):
    """known: as recorded, or None."""
    if known == LACKS:
        return cell == WRONG
    return cell != known if known == SAME else cell == WRONG and known is None


def costs_more(costs, known):
    """Of the second table's row: more connections than were recorded."""
    if not known:
        return False
    return costs["shared"] > int(known["shared"]) + MORE_CONNECTIONS
