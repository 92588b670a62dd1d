"""Finds the places where a mutant can be, by libclang: expressions and statements in functions that no macro brings. A site
has the text before and after, and C that is either, with @ for whether the mutant is active."""

import hashlib
import re

from clang.cindex import Config, CursorKind, Index, StorageClass, TranslationUnit, TypeKind

Config.set_library_file("libclang-14.so.1")

# Each area's share, and of that the most of one kind, so that what is frequent does not crowd out the rest.
SHARES = {"data path": 0.40, "topology": 0.15, "policies": 0.35, "elsewhere": 0.10}
MOST_OF_A_KIND = 0.25
DATA_PATH = ("proxy/client/", "proxy/upstream/", "proxy/resp/", "proxy/command/")

OPERATORS = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "logic": {"&&": "||", "||": "&&"},
    "arithmetic": {"+": "-", "-": "+"},
}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# What is constant.
SKIPPED = {CursorKind.CXX_UNARY_EXPR, CursorKind.ENUM_DECL, CursorKind.STRUCT_DECL, CursorKind.STATIC_ASSERT}
# What nobody could tell but a sanitizer, or a reader of logs.
KEPT_CALLS = re.compile(r"(free|log_\w+|va_start|va_end)\b")
# What may stand around a call or an assignment.
WRAPPINGS = {CursorKind.UNEXPOSED_EXPR, CursorKind.CSTYLE_CAST_EXPR}


class Source:
    def __init__(self, root, path, arguments):
        self.path, self.bytes, self.sites, self.seen = path, (root / path).read_bytes(), [], {}
        unit = Index.create().parse(str(root / path), args=arguments, options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        own = [cursor for cursor in unit.cursor.get_children() if cursor.location.file and cursor.location.file.name == unit.spelling]
        self.macros = [range_of(cursor) for cursor in own if cursor.kind == CursorKind.MACRO_INSTANTIATION]
        for function in own:
            if function.kind == CursorKind.FUNCTION_DECL and function.is_definition():
                self.function = function.spelling
                self.walk(list(function.get_children())[-1])

    def text(self, start, end):
        return self.bytes[start:end].decode()

    def add(self, kind, start, end, after, code):
        before = self.text(start, end)
        if any(first <= start and end <= last for first, last in self.macros) or "//" in before or "\n#" in before:
            return
        before, after = (" ".join(COMMENT.sub("", text).split()) for text in (before, after))
        identity = (self.path, self.function, kind, before)
        self.seen[identity] = self.seen.get(identity, 0) + 1
        self.sites.append({
            "kind": kind, "path": self.path, "line": self.bytes.count(b"\n", 0, start) + 1, "start": start, "end": end,
            "before": before, "after": after, "code": code, "identity": f"{identity} {self.seen[identity]}",
            "area": area_of(self.path),
        })  # fmt: skip

    def walk(self, cursor):
        children = list(cursor.get_children())
        (start, end), kind = range_of(cursor), cursor.kind
        is_table = kind == CursorKind.VAR_DECL and cursor.type.kind == TypeKind.CONSTANTARRAY
        if kind in SKIPPED or is_table or (kind == CursorKind.VAR_DECL and cursor.storage_class == StorageClass.STATIC):
            return
        if kind == CursorKind.CASE_STMT:
            children = children[-1:]
        elif kind == CursorKind.BINARY_OPERATOR:
            self.operator(*children)
        elif kind in (CursorKind.IF_STMT, CursorKind.WHILE_STMT):
            condition = self.text(*range_of(children[0]))
            self.add("condition", *range_of(children[0]), f"!({condition})", f"@ == (!({condition}))")
        elif kind == CursorKind.INTEGER_LITERAL and re.fullmatch(r"[0-9]+", self.text(start, end)) and self.bytes[start - 1] != ord("["):
            self.add("constant", start, end, f"{self.text(start, end)} + 1", f"({self.text(start, end)} + @)")
        elif kind == CursorKind.RETURN_STMT and self.text(start, end) in ("return true", "return false"):
            other = "false" if self.text(start, end) == "return true" else "true"
            self.add("return", start, end, f"return {other}", f"return @ ? {other} : !{other}")
        elif kind == CursorKind.COMPOUND_STMT:
            for child in children:
                self.statement(child)
        for child in children:
            self.walk(child)

    def sign(self, left, right):
        """What stands between the two sides."""
        return COMMENT.sub("", self.text(range_of(left)[1], range_of(right)[0])).strip()

    def operator(self, left, right):
        sign = self.sign(left, right)
        first, second = self.text(*range_of(left)), self.text(*range_of(right))
        pointers = [side.type.get_canonical().kind for side in (left, right)].count(TypeKind.POINTER)
        for kind, others in OPERATORS.items():
            if sign in others and not (kind == "arithmetic" and pointers):
                changed = f"({first}) {others[sign]} ({second})" if kind == "logic" else f"{first} {others[sign]} {second}"
                code = f"(@ ? (({first}) {others[sign]} ({second})) : (({first}) {sign} ({second})))"
                self.add(kind, range_of(left)[0], range_of(right)[1], changed, code)

    def statement(self, cursor):
        """One that may be left out."""
        inner = cursor
        while inner.kind in WRAPPINGS:
            *_, inner = inner.get_children()
        text = self.text(*range_of(cursor))
        is_assignment = (
            inner.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR
            or (inner.kind == CursorKind.UNARY_OPERATOR and re.search(r"\+\+|--", text))
            or (inner.kind == CursorKind.BINARY_OPERATOR and self.sign(*inner.get_children()) == "=")
        )
        if is_assignment or (inner.kind == CursorKind.CALL_EXPR and not KEPT_CALLS.match(inner.spelling)):
            self.add("assignment" if is_assignment else "call", *range_of(cursor), "", f"if (!@) {text}")


def range_of(cursor):
    return cursor.extent.start.offset, cursor.extent.end.offset


def area_of(path):
    if path.startswith(DATA_PATH):
        return "data path"
    return "policies" if path.startswith("policies/") else "topology" if path.startswith("proxy/topology/") else "elsewhere"


def choose(sites, count, seed):
    """So many of them, by a hash of what they are: in functions that stay as they are it is the same ones. No two overlap."""

    def rank(site):
        return hashlib.sha256(f"{seed} {site['identity']}".encode()).digest()

    def is_apart(site, other):
        return site["path"] != other["path"] or site["end"] <= other["start"] or other["end"] <= site["start"]

    sites, chosen = sorted(sites, key=rank), []
    for area, share in SHARES.items():
        of_area, wanted = [], round(count * share)
        for site in (site for site in sites if site["area"] == area):
            is_rare = [other["kind"] for other in of_area].count(site["kind"]) < max(1, wanted * MOST_OF_A_KIND)
            if len(of_area) < wanted and is_rare and all(is_apart(site, other) for other in of_area):
                of_area.append(site)
        chosen += of_area
    # In an order in which the first of them are spread, too.
    return [dict(site, number=number) for number, site in enumerate(sorted(chosen, key=rank), 1)]


def mutated(content, chosen):
    """The file's bytes with those sites in it."""
    for site in sorted(chosen, key=lambda site: site["start"], reverse=True):
        code = site["code"].replace("@", f"mutants_is({site['number']})", 1)
        content = content[: site["start"]] + code.encode() + content[site["end"] :]
    return content
