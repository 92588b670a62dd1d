"""Clients that come and go, and clients that stay, while Headgate is replaced beneath them."""

import threading

from harness.resp import OK, Client, Closed, wait_for
from harness.world import breathe


class Visitors:
    """So many clients that connect, ask, and leave, over and over; what went wrong is kept."""

    def __init__(self, address, count=4):
        self.address = address
        self.served = 0
        self.faults = []
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        turn = 0
        while not self.ended.is_set():
            turn += 1
            word = b"%d-%d" % (number, turn)
            try:
                with Client(self.address) as client:
                    fault = None if client("ECHO", word) == word else "another's reply"
            except (OSError, Closed) as error:
                fault = repr(error)
            with self.lock:
                self.served += fault is None
                if fault:
                    self.faults.append(fault)
            breathe()

    def await_more(self, count=60):
        wanted = self.served + count
        wait_for(lambda: self.served >= wanted or self.faults, 60, "visitors to be served")

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()


class Stayers:
    """So many clients that stay, each of which sets, gets and counts what is its own, over and over. What went wrong is
    kept."""

    def __init__(self, connect, count=4, name="stayer"):
        self.name = name
        self.turns = [0] * count
        self.faults = []
        self.ended = threading.Event()
        self.clients = [connect() for _ in range(count)]
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        client, key = self.clients[number], f"{self.name}:{number}"
        try:
            while not self.ended.is_set() and not self.faults:
                turn = self.turns[number] + 1
                word = f"{number}-{turn}".encode()
                replies = [client("SET", key, word), client("GET", key), client("INCR", f"{key}:count")]
                if replies != [OK, word, turn]:
                    self.faults.append((number, turn, replies))
                self.turns[number] = turn
                breathe()
        except (OSError, Closed) as error:
            self.faults.append((number, self.turns[number], repr(error)))

    def await_more(self, count=10):
        """Each of them has had so many more turns."""
        wanted = [turns + count for turns in self.turns]
        wait_for(
            lambda: self.faults or all(turns >= least for turns, least in zip(self.turns, wanted)), 60, "turns of all"
        )

    def end(self):
        """They stop, but stay connected."""
        self.ended.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()

    def leave(self):
        for client in self.clients:
            client.close()
