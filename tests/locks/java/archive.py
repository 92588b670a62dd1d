#!/usr/bin/env python3
"""Keeps what Java has read and checked of the classes of each version of Redisson: archive.py VERSION...

Most of what a program of a test takes of the processor is its start, and most of that is its 4,000 classes. Each program
is run once, as a test does, and writes the file by itself when it ends.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from harness.servers import Redis
from laboratory import NAME, Program
from libraries import BUILT, java

LEASE_MS = 2000
END_TIMEOUT = 240.0


def keep(version):
    redis = Redis()
    try:
        errors = redis.directory / "errors"
        command = [*java(version, "-XX:ArchiveClassesAtExit"), *redis.address, "lock", LEASE_MS]
        program = Program(list(map(str, command)), errors)
        assert program.ask("acquire", NAME, LEASE_MS) and program.ask("release", NAME)
        program.process.stdin.close()
        assert program.process.wait(END_TIMEOUT) == 0, errors.read_text(errors="replace")
    finally:
        redis.discard()
    assert (BUILT / "java" / version / "classes.jsa").exists(), "Java has written nothing"


for number in sys.argv[1:]:
    keep(number)
