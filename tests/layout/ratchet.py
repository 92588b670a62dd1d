"""How much there is, which may not grow: a small table of figures, each of which only goes down."""

import re

from calls import circles_with_callbacks

# Who comes below one of these lowers it in the same commit; who comes above it takes away elsewhere what was added. A figure is
# not raised.
FIGURES = {
    "lines of C in proxy/ and policies/": 91733,
    "lines of tests": 69887,
    "words of documentation": 103561,
    "fields of struct client": 99,
    "files of the largest circle within a folder, callbacks included": 27,
}

C = {".c", ".h", ".inc"}
OF_TESTS = C | {".py", ".lua", ".sh", ".js", ".go", ".java", ".rs", ".php"}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def lines(root, folders, suffixes):
    paths = (path for folder in folders for path in (root / folder).rglob("*") if path.suffix in suffixes)
    return sum(path.read_bytes().count(b"\n") for path in paths)


def words(root):
    """Of all that is written by hand or kept beside it: build trees have none of their own."""
    paths = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "conf").rglob("*.md")]
    return sum(len(path.read_text().split()) for path in paths)


def fields(root, name):
    """Of a struct of proxy/, each name that is declared in it."""
    for path in sorted((root / "proxy").rglob("*.h")):
        found = re.search(rf"^struct {name} \{{\n(.*?)^\}};", COMMENT.sub("", path.read_text()), re.DOTALL | re.MULTILINE)
        if found:
            return sum(declared.count(",") + 1 for declared in re.findall(r"^[^;]+;", found[1], re.MULTILINE))
    return 0


def measure(root):
    return dict(zip(FIGURES, (
        lines(root, ["proxy", "policies"], C),
        lines(root, ["tests"], OF_TESTS),
        words(root),
        fields(root, "client"),
        max(map(len, circles_with_callbacks(root))),
    )))  # fmt: skip


def check_weight(root):
    for what, figure in measure(root).items():
        bound = FIGURES[what]
        if not figure:
            yield f"tests/layout/ratchet.py finds no {what}"
        elif figure > bound:
            yield (f"{figure} {what}, {figure - bound} more than tests/layout/ratchet.py lets be: take as much away in this"
                   " change, of what is said twice, what hardly anyone needs, or what another mechanism does already")
        elif figure < bound:
            print(f"{figure} {what}, and tests/layout/ratchet.py lets {bound} be: --lower lowers it, in this commit")


def lower(root):
    """Writes the figures into this file, where they are lower."""
    path = root / "tests" / "layout" / "ratchet.py"
    text = path.read_text()
    for what, figure in measure(root).items():
        text = text.replace(f'"{what}": {FIGURES[what]},', f'"{what}": {min(figure, FIGURES[what])},')
    path.write_text(text)
