#!/usr/bin/env python3
"""Client libraries, directly and through Headgate in both pools, with their default settings.

Fetches each library from its language's own registry into build-newest/, builds Headgate, and runs the same program
(tests/newest) three times: each of its clients does ordinary work, blocks, subscribes, and so on. A cell of the table is
one feature of one library. It is = if all replies and all data are equal, nothing fails, and in the shared pool at most
one exclusive lane in twenty clients is in use behind it. The versions are those of scripts/clients_table.py unless
--newest is given. What comes out is compared with the tables in docs/clients.md: the exit status is 1 if a cell is worse
than there.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time

import clients_libraries
import clients_record
from clients_record import LACKS, SAME, WRONG

ROOT = clients_libraries.ROOT
sys.path.insert(0, str(ROOT / "tests"))

import clients_commands
import clients_servers
from clients_libraries import Missing
from clients_table import ELSEWHERE, FEATURES, LIBRARIES
from clients_topologies import Clusters, ClusterTrial, SentinelTrial
from clients_trial import NOT_TRIED, WAYS, Trial, faults_of
from harness import servers
from harness.certificates import certificates

PAGE = ROOT / "docs" / "clients.md"
# Of what is tried elsewhere, which is about the connection: few clients.
FEW_CLIENTS = 5
# Libraries that are tried at the same time: their programs wait most of the time.
AT_ONCE = 2


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/test-clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", nargs="*", metavar="LIBRARY", help="instead of all that --list shows")
    parser.add_argument("--features", nargs="+", metavar="FEATURE", help="instead of all that --list shows")
    parser.add_argument("--newest", action="store_true", help="what the registries have today, of the newest versions")
    parser.add_argument("--clients", type=int, default=20, metavar="N", help="of each program (20)")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help=f"try so many libraries at once ({AT_ONCE})")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="Headgate's workers (1)")
    parser.add_argument(
        "--server", action="append", metavar="PATH",
        help="a redis-server or valkey-server, or one that a registry has: "
        f"{', '.join(clients_servers.SERVERS)}; may be given several times",
    )
    parser.add_argument("--headgate", type=program, metavar="BINARY", help="instead of building the release")
    parser.add_argument(
        "--tls", nargs="?", const="plainly", choices=("plainly", "certificates"),
        help="all by TLS, of Headgate on both sides; with certificates of clients, which some libraries need more settings for",
    )
    parser.add_argument("--fetched", action="store_true", help="take what an earlier run has fetched as it is")
    parser.add_argument("--record", action="store_true", help="write the tables into docs/clients.md")
    parser.add_argument("--times", action="store_true", help="show which features took more than a second")
    parser.add_argument("--commands", action="store_true", help="only show which of the server's commands Headgate guesses")
    parser.add_argument("--list", action="store_true", help="show libraries and features")
    options = parser.parse_args()
    for name in ("clients", "at_once"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected a number from 1")
    options.libraries = chosen_libraries(parser, options)
    options.features = chosen(parser, FEATURES, options.features)
    options.server = options.server or ["redis-server"]
    if options.record and (options.features != FEATURES or len(options.server) > 1):
        parser.error("--record: expected all features and one server")
    return options


def chosen_libraries(parser, options):
    """A library that is named brings the major version before with it."""
    known = [library for library in LIBRARIES if not (options.newest and library.of)]
    names = {name for library in known for name in (library.name, library.of)}
    for name in options.library:
        if name not in names:
            parser.error(f"{name}: expected any of {', '.join(library.name for library in known)}")
    return [library for library in known if not options.library or {library.name, library.of} & set(options.library)]


def chosen(parser, rows, names):
    known = {row.name: row for row in rows}
    for name in names or []:
        if name not in known:
            parser.error(f"{name}: expected any of {', '.join(known)}")
    return [row for row in rows if not names or row.name in names]


def program(path):
    """As an absolute path, since servers run in directories of their own."""
    found = shutil.which(path)
    if not found:
        raise argparse.ArgumentTypeError(f"{path}: cannot be run")
    return os.path.abspath(found)


def build(options):
    if options.headgate:
        servers.BINARY = options.headgate
        return
    done = subprocess.run([ROOT / "scripts" / "build", "release"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"test-clients: the build failed:\n{(done.stdout + done.stderr)[-3000:]}")


class Preparation:
    """Iterates over (library, command or None, why not), one after the other; seconds: that all of it took so far. What
    comes is tried while the next ones are fetched and built."""

    def __init__(self, libraries, options):
        self.libraries = libraries
        self.options = options
        self.seconds = 0.0
        self.prepared = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def __iter__(self):
        for _ in self.libraries:
            yield self.prepared.get()

    def _work(self):
        for library in self.libraries:
            start = time.monotonic()
            try:
                command, why_not = clients_libraries.prepare(library, self.options.fetched, self.options.newest), None
            except Missing as missing:
                command, why_not = None, str(missing)
            except Exception as fault:
                command, why_not = None, repr(fault)
            self.seconds += time.monotonic() - start
            self.prepared.put((library, command, why_not))


def name_of(server):
    """As it says itself."""
    redis = servers.Redis(server=server)
    try:
        with redis.connect() as look:
            lines = look("INFO", "server").decode().splitlines()
    finally:
        redis.discard()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    if facts.get("server_name") == "valkey":
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts['redis_version']}"


@dataclasses.dataclass
class Row:
    """What came out for one library: a cell for each feature, what it costs, and all that is wrong."""

    library: object
    version: str = "?"
    resp: str = "?"
    cells: dict = dataclasses.field(default_factory=dict)
    costs: dict = dataclasses.field(default_factory=dict)
    wrong: list = dataclasses.field(default_factory=list)
    lacking: list = dataclasses.field(default_factory=list)


def in_all_ways(library, command, server, options, trial=Trial):
    """At once, since programs wait most of the time."""
    with concurrent.futures.ThreadPoolExecutor(len(WAYS)) as executor:
        trials = {way: executor.submit(trial(library, command, way, server, options).run) for way in WAYS}
        return {way: trial.result() for way, trial in trials.items()}


def judge(row, outcomes, features):
    """Adds a cell for each feature."""
    for feature in features:
        faults = faults_of(outcomes, feature)
        lacks = outcomes["direct"].lacks(feature)
        row.cells[feature.name] = WRONG if faults else LACKS if lacks else SAME
        row.wrong += [f"{row.library.name}: {feature.name}: {fault}" for fault in faults]
        if lacks and lacks != "unsupported":
            row.lacking.append(f"{feature.name}: {lacks.removeprefix('unsupported ')}")


def try_library(library, command, server, options, clusters):
    here = with_options(options, features=[feature for feature in options.features if feature not in ELSEWHERE])
    row = Row(library)
    if here.features:
        try_here(row, command, server, here)
    for feature in [feature for feature in ELSEWHERE if feature in options.features and not options.tls]:
        if library.tls if feature.name == "tls" else library.topologies:
            judge_elsewhere(row, feature, command, server, options, clusters)
    return row


def with_options(options, **changes):
    return argparse.Namespace(**{**vars(options), **changes})


def try_here(row, command, server, options):
    outcomes = in_all_ways(row.library, command, server, options)
    if options.times:
        say_times(row.library, outcomes)
    direct = outcomes["direct"]
    row.version, row.resp = direct.version or "?", direct.resp or "?"
    judge(row, outcomes, options.features)
    lost = " ".join(str(outcomes[way].lost) for way in WAYS)
    row.costs = {**{way: outcomes[way].connections for way in WAYS}, "lanes": outcomes["shared"].lanes, "lost": lost}


def say_times(library, outcomes):
    for way, outcome in outcomes.items():
        long = [f"{name} {seconds:.1f}" for name, seconds in outcome.seconds.items() if seconds > 1]
        print(f"  {library.name} {way}: {', '.join(long)}", flush=True)


def judge_elsewhere(row, place, command, server, options, clusters):
    """One cell for all that is tried there."""
    features = [place] if place.mode else [feature for feature in FEATURES if place.name in feature.also]
    fewer = with_options(options, clients=FEW_CLIENTS, features=features)
    trials = {
        "tls": Trial,
        "cluster": functools.partial(ClusterTrial, clusters=clusters),
        "cluster_mode": functools.partial(ClusterTrial, clusters=clusters, is_mode=True),
        "sentinel": SentinelTrial,
    }
    fewer.tls = "plainly" if place.name == "tls" else None
    with clusters.lock if place.name.startswith("cluster") else contextlib.nullcontext():
        outcomes = in_all_ways(row.library, command, server, fewer, trials[place.name])
    if options.times:
        say_times(row.library, outcomes)
    faults = [f"{feature.name}: {fault}" for feature in features for fault in faults_of(outcomes, feature)]
    lacks = place.mode and outcomes["direct"].lacks(place)
    row.version = outcomes["direct"].version or row.version
    row.cells[place.name] = WRONG if faults else LACKS if lacks else SAME
    row.wrong += [f"{row.library.name}: {place.name}: {fault}" for fault in faults]


def feature_table(rows, features):
    """The head and the rows."""
    yield ["library", "version", *(feature.name for feature in features)]
    for row in rows:
        yield [row.library.name, row.version, *(row.cells.get(feature.name, LACKS) for feature in features)]


def cost_table(rows):
    yield clients_record.COSTS
    for row in rows:
        if row.costs:
            yield [row.library.name, row.version, row.resp, *(str(cost) for cost in row.costs.values())]


def tables_of(rows, options):
    return list(feature_table(rows, options.features)), list(cost_table(rows))


def worse_cells(row, known, threads):
    """Those that are not as good as recorded; known: (features, costs) as recorded; threads: workers of Headgate."""
    features, costs = (part.get(row.library.name, {}) for part in known)
    worse = [name for name, cell in row.cells.items() if clients_record.is_worse(cell, features.get(name))]
    if row.costs and clients_record.costs_more(row.costs, costs, threads):
        worse.append(f"connections in shared, {costs['shared']} before")
    return worse


def sit(server, options):
    """Tries all libraries before one server, prints the tables, and gives (passed, failed) cells."""
    known = clients_record.recorded(PAGE)
    title, rows, passed, failed = title_of(server, options), [], 0, 0
    start = time.monotonic()
    certificates()  # made once, before threads ask for them
    preparation = Preparation(options.libraries, options)
    with contextlib.closing(Clusters(server)) as clusters:
        for row, seconds in as_they_end(preparation, server, options, clusters):
            rows.append(row)
            worse = worse_cells(row, known, options.threads)
            failed += len(worse)
            passed += sum(cell != LACKS and name not in worse for name, cell in row.cells.items())
            say_row(row, worse, seconds)
            if options.record:
                names = [each.name for each in LIBRARIES]
                clients_record.write(PAGE, title, *tables_of(rows, options), names)
    features, costs = tables_of(sorted(rows, key=lambda row: LIBRARIES.index(row.library)), options)
    print("\n" + "\n".join([title, "", *clients_record.table(*features), "", *clients_record.table(*costs)]) + "\n", flush=True)
    print(f"{time.monotonic() - start:.0f} s, {preparation.seconds:.0f} s of it for what was fetched and built meanwhile")
    return passed, failed


def as_they_end(preparation, server, options, clusters):
    """(row, seconds that it took) of each library; several are tried at the same time."""
    ended = queue.Queue()

    def work(library, command, why_not):
        begin = time.monotonic()
        row = try_or_blame(library, command, why_not, server, options, clusters)
        return row, time.monotonic() - begin

    def start():
        for library, command, why_not in preparation:
            if is_over.is_set():
                return
            executor.submit(work, library, command, why_not).add_done_callback(ended.put)

    is_over = threading.Event()
    executor = concurrent.futures.ThreadPoolExecutor(options.at_once)
    try:
        threading.Thread(target=start, daemon=True).start()
        for _ in options.libraries:
            if future := ended.get():
                yield future.result()
    finally:
        is_over.set()
        executor.shutdown(cancel_futures=True)


def try_or_blame(library, command, why_not, server, options, clusters):
    if command:
        return try_library(library, command, server, options, clusters)
    row = Row(library, cells={feature.name: WRONG for feature in options.features})
    row.wrong.append(f"{library.name}: not run: {why_not}")
    return row


def say_row(row, worse, seconds):
    wrong = sum(cell == WRONG for cell in row.cells.values())
    same = sum(cell == SAME for cell in row.cells.values())
    words = [f"{same} as directly", f"{wrong} wrong" if wrong else "", f"worse: {', '.join(worse)}" if worse else ""]
    print(f"{row.library.name} {row.version}: {', '.join(filter(None, words))}  ({seconds:.0f} s)")
    for line, count in collections.Counter(line for line in row.wrong if not line.endswith(NOT_TRIED)).items():
        print(f"  ! {line}{f' ({count} times)' if count > 1 else ''}")
    for line in row.lacking:
        print(f"  without {line}")
    sys.stdout.flush()


def title_of(server, options):
    today = datetime.datetime.now(datetime.timezone.utc).date()
    text = f"{today}, {name_of(server)}, {options.clients} clients, workers of Headgate: {options.threads}"
    return text + (", by TLS" if options.tls else "")


def show_guesses(server):
    redis = servers.Redis(server=server)
    try:
        with redis.connect() as look:
            lines = clients_commands.guessed(look, ROOT)
    finally:
        redis.discard()
    print(f"{name_of(server)}: {len(lines)} commands whose kind is guessed")
    for line in lines:
        print(f"  {line}")


def main():
    options = parse_arguments()
    if options.list:
        for title, table in (("libraries", LIBRARIES), ("features", FEATURES)):
            print(f"{title}: {' '.join(row.name for row in table)}")
        return
    if options.commands:
        for server in options.server:
            show_guesses(clients_servers.find(server))
        return
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    build(options)
    passed, failed = 0, 0
    for server in [clients_servers.find(name) for name in options.server]:
        counts = sit(server, options)
        passed, failed = passed + counts[0], failed + counts[1]
        options.fetched = True
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
