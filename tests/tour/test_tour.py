"""The tour: what scripts/run prints is pasted into a terminal as it stands, and shows what it says; README shows the same."""

import re
import time

import pytest

from harness.resp import wait_for
from harness.servers import REPOSITORY
from harness.terminal import Terminal, essence
from running import TOUR, Run, steps, tour_port

README = (REPOSITORY / "README.md").read_text()
MOST_LINES = 60
NUMBERS = range(5)


class Tour:
    """scripts/run --port, the text that it has printed, and a terminal in which steps are pasted, once and in order."""

    def __init__(self, directory):
        port = tour_port()
        self.run = Run("--port", port).await_start()
        self.terminal = Terminal(directory)
        self.ports = {port - 1: "6379", port: "6380", port + 10: "6390"}
        self.outputs = []
        wait_for(lambda: len(steps(self.text())) == len(NUMBERS) and "SLOWLOG 1" in self.text(), what="the whole tour")

    def text(self):
        """The tour as it was printed, up to the log lines behind it."""
        printed = re.search(r"^# 1\. .*?^printf .*SLOWLOG.*?\n", self.run.printed(), flags=re.MULTILINE | re.DOTALL)
        return printed[0] if printed else ""

    def usual(self, text):
        """With the ports that stand in README."""
        return re.sub(r"\b\d{4,5}\b", lambda match: self.ports.get(int(match[0]), match[0]), text)

    def output(self, number):
        while len(self.outputs) <= number:
            self.outputs.append(self._take(steps(self.text())[len(self.outputs)]))
        return self.outputs[number]

    def _take(self, step):
        if "minute=" not in step:
            return self.terminal.paste(step)
        # Not at the end of a minute: the figures would be those of the next. They come late on a slow machine.
        wait_for(lambda: time.time() % 60 < 45, 20, "the next minute")
        lines = self.terminal.paste(step)
        questions = "\n".join(step.strip().splitlines()[-2:])
        wait_for(lambda: "count=1000 " in lines[0] or lines.__setitem__(slice(None), self.terminal.paste(questions)), 30)
        return lines

    def close(self):
        self.terminal.close()
        self.run.end()


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    tour = Tour(tmp_path_factory.mktemp("terminal"))
    yield tour
    tour.close()


def commands(step):
    return [line for line in step.splitlines() if line and not line.startswith("#")]


def promises(step):
    """What the step says that it shows, as patterns of lines."""
    shown = re.search(r"^#    shows: (.*)$", step, flags=re.MULTILINE)[1]
    return [".*".join(map(re.escape, promise.split("…"))) for promise in shown.split(" | ")]


def session():
    """The tour of README: its heading's text, to the next one."""
    return re.search(r"^## (.*?\n)(?=^## )", README, flags=re.MULTILINE | re.DOTALL)[1]


def shown_session():
    return re.search(r"^```console\n(.*?)^```", session(), flags=re.MULTILINE | re.DOTALL)[1]


def typed(step):
    return [line[2:] for line in step.splitlines() if line.startswith("$ ")]


def shown(step):
    return [line for line in step.splitlines()[1:] if line and not line.startswith(("$ ", "#    "))]


# ---- what scripts/run prints ----


def test_it_prints_five_things_to_try(tour):
    assert len(steps(TOUR)) == len(NUMBERS)
    assert tour.usual(tour.text()) == TOUR
    assert [step[:4] for step in steps(tour.text())] == [f"# {number + 1}." for number in NUMBERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_step_shows_what_it_says(tour, number):
    lines = tour.output(number)
    patterns = promises(steps(TOUR)[number])
    assert len(patterns) >= 3
    rest = iter(lines)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in rest), f"no {pattern} in\n" + "\n".join(lines)


def test_the_lock_is_held_beyond_its_three_seconds(tour):
    taken, left, gone = tour.output(0)
    assert (taken, gone) == ("OK", "(integer) -2")
    assert 0 < int(left.removeprefix("(integer) ")) <= 3000


def test_the_sixth_write_only_is_refused(tour):
    lines = tour.output(1)
    assert lines[:6] == ["OK"] + [f"(integer) {number}" for number in range(1, 6)]
    assert lines[6].startswith("(error) RATELIMITED noisy: ")
    assert lines[7:] == ["OK", "(integer) 6"]


def test_the_figures_of_redis_are_those_of_the_report(tour):
    report, _, greatest = tour.output(3)
    assert float(greatest.split('"')[1]) == pytest.approx(float(re.search(r" max=(\S+)", report)[1]), abs=0.001)


# ---- what README shows ----


def test_readme_opens_with_the_tour():
    before = README.split("\n## ")[0]
    assert len(session().splitlines()) <= MOST_LINES
    assert len(before.splitlines()) <= 10
    assert not re.search(r"(?i)forward|byte|throughput|faster|speed|multiplex", before)
    assert "scripts/run" in session()


@pytest.mark.parametrize("number", NUMBERS)
def test_readme_types_what_is_printed(number):
    readme, printed = steps(shown_session())[number], steps(TOUR)[number]
    assert readme.splitlines()[0] == printed.splitlines()[0]
    assert typed(readme) == commands(printed)


@pytest.mark.parametrize("number", NUMBERS)
def test_readme_shows_what_happens(tour, number):
    assert essence(shown(steps(shown_session())[number])) == essence(tour.output(number))


# ---- its end ----


def test_ctrl_c_ends_it_all(tour):
    for number in NUMBERS:
        tour.output(number)
    redis, headgate = (int(port) for port in list(tour.ports)[:2])
    assert tour.run.interrupt() == 130
    for port in (redis, headgate):
        asked = tour.terminal.paste(f"redis-cli -p {port} PING")
        assert "Connection refused" in asked[0], asked
