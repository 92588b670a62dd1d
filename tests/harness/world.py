"""The world that a test lives in (tests/world/README.md), if it does: there time.sleep() costs nothing, and what is drawn
from seed() happens again when the world is run again."""

import contextlib
import ctypes
import os
import random
import time

_library = ctypes.CDLL(None)
_figures = (ctypes.c_uint64 * 5)()


def is_inside():
    return hasattr(_library, "headgate_world") and bool(_library.headgate_world(_figures))


def figures():
    """seed, now (ns since it began), turns, kills, order (a hash of whose turns came when)."""
    return is_inside() and dict(zip(("seed", "now", "turns", "kills", "order"), _figures))


def draws():
    """Random numbers that belong to the world's seed; outside of any, those of seed 0."""
    return random.Random(figures()["seed"] if is_inside() else 0)


def _change(pid, what, amount, permille=0):
    assert _library.headgate_world_change(pid, ctypes.c_char(what), ctypes.c_int64(round(amount)), ctypes.c_int64(permille))


def skew(pid, seconds):
    """Its calendar is ahead of that of others by so much."""
    _change(pid, b"s", seconds * 1e9)


@contextlib.contextmanager
def ahead(seconds):
    """What is started meanwhile has a calendar that is ahead by so much."""
    skew(os.getpid(), seconds)
    yield
    skew(os.getpid(), 0)


def late(pid, seconds, permille=1000):
    """Its threads are late by up to so much, in so many of a thousand cases."""
    _change(pid, b"l", seconds * 1e6, permille)


def end(pid, turns):  # whatever it does then
    _change(pid, b"e", turns)


def breathe():
    """Between the rounds of who asks again and again: in a world that takes the processor for as long as it takes time."""
    time.sleep(0.01)
