"""Forms: sound requests with one word changed in the ways in which two programs could read it differently."""

import random

from bases import APART, NEVER_SHORTER, WORDS_ONLY, Word, bases_of
from harness.resp import encode

LONG_NAME = 64 << 10
LONG_WORD = 1 << 10
NUMBERS = (b"0", b"1", b"-1", b"01", b"+1", b"9999999999999999999")
RANDOM_NULS = 3


class Form:
    """One request. what: the command, the changed word and the change, for reports and tables."""

    def __init__(self, row, arguments, change, role="name"):
        self.row = row
        self.arguments = arguments
        self.change = change
        self.role = role

    def numbered(self, number):
        digits = b"%d" % number
        return [argument.replace(b"{n}", digits).replace(b"{N}", digits) for argument in self.arguments]

    def bytes(self, number):
        return encode(*self.numbered(number))

    @property
    def what(self):
        return f"{self.row.full_name} {self.role} {self.change}"

    @property
    def is_name_with_nul(self):
        return self.role in ("name", "subcommand") and self.change.startswith("nul")

    @property
    def is_apart(self):
        return self.row.full_name in APART or self.row.name in APART

    def __repr__(self):
        shown = b" ".join(argument[:60] for argument in self.arguments)
        return f"<{self.what}: {shown!r}>"


def mixed(word):
    return bytes(byte ^ 0x20 if place % 2 and bytes([byte]).isalpha() else byte for place, byte in enumerate(word))


def changed_words(word, role, rng):
    """(change, new word) for one word."""
    yield "nul", word + b"\0"
    yield "nul-within", word[:1] + b"\0" + word[1:]
    yield "nul-before", b"\0" + word
    for place in range(RANDOM_NULS):
        yield f"nul-random-{place}", word + b"\0" + rng.randbytes(rng.randint(1, 4)).replace(b"{", b"x")
    yield "upper", word.upper()
    yield "lower", word.lower()
    yield "mixed", mixed(word)
    yield "cut", word[:-1]
    yield "blank-before", b" " + word
    yield "blank-behind", word + b" "
    yield "long", word + b"x" * (LONG_NAME if role in ("name", "subcommand") else LONG_WORD)
    yield "empty", b""
    yield "crlf-within", word[:1] + b"\r\n" + word[1:]
    yield "crlf-behind", word + b"\r\n"
    if role != "value":
        yield "bytes", bytes([0xFF, 0x80]) + word
    if role not in ("name", "subcommand"):
        for number in NUMBERS:
            yield "number-" + number.decode(), number


def keeps_its_number(text, changed):
    """Without it, it would be a key or a channel of many forms, which would tell each other's data."""
    return b"{n}" not in text or b"{n}" in changed or b"{N}" in changed


def changed_requests(words):
    """(change, new list) for the request as a whole."""
    yield "as-it-is", words
    yield "more", words + [Word("extra", "value")]
    if len(words) > 1:
        yield "less", words[:-1]


def placed(words, place, text):
    return [text if at == place else word.text for at, word in enumerate(words)]


class Catalogue:
    """All forms of a server. hits: for names of commands, a NUL and bytes with which this server finds them all the
    same (see hits.py)."""

    def __init__(self, rows, hits, seed):
        self.rows = rows
        self.hits = hits
        self.rng = random.Random(seed)

    def of_names(self):
        """Every command and subcommand, every change of its name."""
        for row in self.rows:
            base = bases_of(row)[0]
            yield from self.whole(row, base)
            for place, word in enumerate(base):
                if word.role in ("name", "subcommand"):
                    yield from self.at(row, base, place)
                    yield from self.found(row, base, place)

    def of_words(self):
        """Every word of an option, and every value."""
        for row in self.rows:
            for number, base in enumerate(bases_of(row)):
                if number > 0:
                    yield from self.whole(row, base)
                if row.full_name in WORDS_ONLY or row.name in WORDS_ONLY:
                    continue
                for place, word in enumerate(base):
                    if word.role == "option" or (word.role == "value" and number == 0):
                        yield from self.at(row, base, place)
                    if word.role == "option":
                        yield from self.twice(row, base, place)

    def whole(self, row, base):
        for change, words in changed_requests(base):
            if change == "less" and (row.full_name in NEVER_SHORTER or row.name in NEVER_SHORTER):
                continue
            yield Form(row, [word.text for word in words], change, "whole")

    def at(self, row, base, place):
        word = base[place]
        for change, text in changed_words(word.text, word.role, self.rng):
            if text != word.text and keeps_its_number(word.text, text):
                yield Form(row, placed(base, place, text), change, word.role)

    def found(self, row, base, place):
        """With a NUL and other bytes behind it, and the server finds it all the same."""
        hit = self.hits.get((row.full_name, place))
        if hit:
            yield Form(row, placed(base, place, hit), "nul-found", base[place].role)

    def twice(self, row, base, place):
        """The option a second time, with what belongs to it."""
        end = place + 1
        while end < len(base) and base[end].role == "value":
            end += 1
        words = base[:end] + base[place:end] + base[end:]
        yield Form(row, [word.text for word in words], "twice", "option")
