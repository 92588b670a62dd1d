"""What a test asks of Redis, and of a script of lua/ that Redis knows."""

import pathlib

from harness.resp import Error, encode

LUA = pathlib.Path(__file__).resolve().parents[2] / "lua"


class Refused(Exception):
    """An error of Redis, where none was expected."""


class Asker:
    """One connection, which is asked by texts: ask("SET key", value). Blanks part the words of the first one; numbers
    and whatever may have blanks follow. A float is written so that it is read as the very same."""

    def __init__(self, client):
        self.client = client

    def __call__(self, words, *arguments):
        reply = self.client(*words.split(), *arguments)
        if isinstance(reply, Error):
            raise Refused(f"{words}: {reply.decode()}")
        return as_text(reply)

    def error(self, words, *arguments):
        """The text of the error that there has to be."""
        reply = self.client(*words.split(), *arguments)
        assert isinstance(reply, Error), f"no error: {words}: {reply!r}"
        return reply.decode()

    def all(self, *commands):
        """In one write; none of them may be refused."""
        self.client.send(b"".join(encode(*command.split()) for command in commands))
        for command, reply in zip(commands, self.client.read_many(len(commands))):
            if isinstance(reply, Error):
                raise Refused(f"{command}: {reply.decode()}")

    def script(self, name, clock=""):
        """clock: Lua code in front of it, which brings a clock of the test's own."""
        return Script(self, name, self("SCRIPT LOAD", clock + (LUA / f"{name}.lua").read_text()))


def as_text(reply):
    if isinstance(reply, list):
        return [as_text(part) for part in reply]
    return reply.decode("latin-1") if isinstance(reply, bytes) else reply


class Script:
    """One that Redis knows, called with its keys, blanks between them, and its arguments."""

    def __init__(self, ask, name, digest):
        self.ask, self.name, self.digest = ask, name, digest

    def words(self, keys, verb="EVALSHA"):
        return f"{verb} {self.digest} {len(keys.split())} {keys}"

    def __call__(self, keys, *arguments):
        return self.ask(self.words(keys), *arguments)

    def read(self, keys, *arguments):
        """The same, by which Redis refuses a script that writes."""
        return self.ask(self.words(keys, "EVALSHA_RO"), *arguments)

    def error(self, keys, *arguments):
        return self.ask.error(self.words(keys), *arguments)
