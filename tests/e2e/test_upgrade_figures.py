"""What metrics and LATENCY tell, over upgrades: no counter runs back, and each request is counted once."""

import http.client
import os
import re
import signal
import threading
import time

import pytest

from harness.http import ask, samples
from harness.latency import ON, await_report, interfaces
from harness.resp import wait_for
from harness.servers import free_port
from harness.visitors import Stayers

RULES = ON + "[limit:few]\ncommands = get\nper = user\nlimit = 100\nwindow = 1h\naction = observe\n"


class Scraper(threading.Thread):
    """Reads metrics again and again, as Prometheus does, and keeps what ran back. keeps: on one connection, for as long
    as it is kept."""

    def __init__(self, port, every=0.1, keeps=False):
        super().__init__(daemon=True)
        self.web = type("Web", (), {"http_port": port})
        self.every, self.keeps, self.connection = every, keeps, None
        self.last, self.faults, self.scrapes, self.failures = {}, [], 0, 0
        self.ended = threading.Event()
        self.start()

    def scrape(self):
        if self.keeps and self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.web.http_port, timeout=60)
        text = ask(self.web, "/metrics", connection=self.connection).text
        if self.keeps and self.connection.sock is None:
            self.connection = None
        counters = set(re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE))
        histograms = re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE)
        counters |= {name + end for name in histograms for end in ("_bucket", "_count", "_sum")}
        return {
            series: float(value) for series, value in samples(text).items() if series.partition("{")[0] in counters
        }

    def compare(self, values):
        for series, before in self.last.items():
            if series not in values or values[series] < before:
                self.faults.append((self.scrapes, series, before, values.get(series)))
        self.last = values
        self.scrapes += 1

    def run(self):
        while not self.ended.is_set():
            try:
                self.compare(self.scrape())
            except (OSError, http.client.HTTPException):
                self.failures += 1
                self.connection = None
            time.sleep(self.every)

    def await_more(self, count=5):
        wanted = self.scrapes + count
        wait_for(lambda: self.scrapes >= wanted, 60, "metrics to be read")

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()


@pytest.fixture
def make_scraper():
    scrapers = []

    def make(port, **options):
        scrapers.append(Scraper(port, **options))
        return scrapers[-1]

    yield make
    for scraper in scrapers:
        scraper.ended.set()


def crash(line):
    pid = line.pids.pop()
    os.kill(pid, signal.SIGKILL)
    line.await_end(pid)
    wait_for(lambda: line.pid() == line.pids[-1], 30, "the one before to serve")


def counts(headgate):
    return {name: int(figures["count"]) for name, figures in interfaces(headgate, "LATENCY").items()}


@pytest.mark.threads
@pytest.mark.parametrize("threads", [1, 2])
def test_counters_never_run_back(make_line, make_scraper, threads):
    """Under load, over several upgrades, for who connects anew and for who keeps the connection. Then each request is
    counted once, here and in Redis."""
    web = free_port()
    line = make_line(RULES, http=f"127.0.0.1:{web}", threads=threads)
    scrapers = [make_scraper(web), make_scraper(web, every=0.03), make_scraper(web, keeps=True)]
    stayers = []
    for turn in range(4):
        stayers.append(Stayers(line.headgate.connect, count=3, name=f"stayer-{turn}"))
        stayers[-1].await_more(5)
        for scraper in scrapers:
            scraper.await_more()
        line.upgrade()
        assert stayers[-1].faults == []
    for scraper in scrapers:
        scraper.await_more(15)
        scraper.end()
        assert scraper.faults == [] and scraper.failures == 0
    for some in stayers:
        some.end()
        assert some.faults == []
    turns = sum(sum(some.turns) for some in stayers)
    expected = {name: turns for name in ("set", "get", "incr")}
    wait_for(
        lambda: {name: counts(line.headgate).get(name) for name in expected} == expected,
        30, f"{turns} of each in {counts(line.headgate)}",
    )  # fmt: skip
    for some in stayers:
        some.leave()
    for name in expected:
        await_report(line.headgate, name, turns)


def test_counters_do_not_run_back_when_the_new_process_crashes(make_line, make_scraper):
    """What was shown, the one that serves again knows."""
    web = free_port()
    line = make_line(RULES, http=f"127.0.0.1:{web}", threads=2)
    stayers = Stayers(line.headgate.connect, count=3)
    scraper = make_scraper(web)
    scraper.await_more()
    for _ in range(3):
        line.upgrade()
        with line.headgate.connect() as client:
            for _ in range(2000):
                client("INCR", "fresh")
        scraper.await_more(8)
        crash(line)
        scraper.await_more(8)
    scraper.end()
    stayers.end()
    assert scraper.faults == [] and stayers.faults == []
    least = sum(stayers.turns) + 3 * 2000
    wait_for(lambda: counts(line.headgate)["incr"] >= least, 30, f"{least} in {counts(line.headgate)}")
    stayers.leave()
