#!/usr/bin/env python3
"""The newest client libraries, directly and through Headgate in both pools, with their default settings.

Fetches the newest version of each library from its language's own registry into build-newest/, builds Headgate, and
runs the same program (tests/newest) three times: each of its clients does ordinary work, blocks, subscribes and, where
the library can, caches. Wanted is that all replies and all data are equal, that nothing fails, and that in the shared
pool at most one exclusive lane in twenty clients is in use when they have done. The exit status is 1 if any of that is
not so, or a library that was asked for could not be run.
"""

import argparse
import collections
import os
import shutil
import signal
import subprocess
import sys
import time

import clients_libraries

ROOT = clients_libraries.ROOT
sys.path.insert(0, str(ROOT / "tests"))

from clients_libraries import LIBRARIES, Missing
from clients_trial import FEATURES, WAYS, Trial, differences
from harness import servers

HEAD = ["library", "version", "RESP", "replies", "data", "errors", "connections: direct, session, shared", "lanes"]


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/test-clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="LIBRARY", help="instead of all that --list shows")
    parser.add_argument("--features", nargs="+", metavar="FEATURE", help="instead of all that --list shows")
    parser.add_argument("--clients", type=int, default=20, metavar="N", help="of each program (20)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="Headgate's workers (1)")
    parser.add_argument(
        "--server", action="append", type=program, metavar="PATH",
        help="a redis-server or valkey-server; may be given several times",
    )
    parser.add_argument("--headgate", type=program, metavar="BINARY", help="instead of building the release")
    parser.add_argument(
        "--tls", nargs="?", const="plainly", choices=("plainly", "certificates"),
        help="by TLS, of Headgate on both sides; with certificates of clients, which some libraries need more settings for",
    )
    parser.add_argument("--fetched", action="store_true", help="take what an earlier run has fetched as it is")
    parser.add_argument("--list", action="store_true", help="show libraries and features")
    options = parser.parse_args()
    if options.clients < 1:
        parser.error("--clients: expected a number from 1")
    options.libraries = chosen(parser, LIBRARIES, options.only)
    options.features = chosen(parser, FEATURES, options.features)
    options.server = options.server or [program("redis-server")]
    return options


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


def prepare(options):
    """(library, command or None, why not), for each library."""
    for library in options.libraries:
        start = time.monotonic()
        try:
            command = clients_libraries.prepare(library, fetched=options.fetched)
            print(f"{library.name}: ready after {time.monotonic() - start:.0f} s", flush=True)
            yield library, command, None
        except Missing as missing:
            print(f"{library.name}: {missing}", flush=True)
            yield library, None, str(missing)


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


def judge(outcomes):
    """The cells of a library's row behind its name, and what is wrong."""
    direct = outcomes["direct"]
    faults = [fault for outcome in outcomes.values() for fault in outcome.faults]
    told = [line for way in WAYS[1:] for line in differences(direct, outcomes[way], way)]
    errors = [f"{way}: {line}" for way, outcome in outcomes.items() for line in outcome.errors()]
    data = all(outcome.digest == direct.digest != b"" for outcome in outcomes.values())
    shown = ", ".join(f"{outcomes[way].connections} for {outcomes[way].clients}" for way in WAYS)
    cells = [
        direct.version,
        direct.resp,
        "differ" if told else "equal",
        "equal" if data else "differ",
        str(len(errors) + len(faults)),
        shown,
        str(outcomes["shared"].lanes),
    ]
    return cells, faults + told + errors + ([] if data else ["data differ"])


def print_table(rows):
    sound = [row for row in rows if len(row) == len(HEAD)]
    widths = [max(len(row[column]) for row in sound) for column in range(len(HEAD))]
    for number, row in enumerate(rows):
        if len(row) == 2:
            print(f"| {row[0].ljust(widths[0])} | {row[1]} |")
            continue
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def sit(server, prepared, options):
    """A table of all libraries before one server. Whether all is well."""
    rows, wrong = [HEAD], []
    for library, command, why_not in prepared:
        if not command:
            rows.append([library.name, f"not run: {why_not}"])
            wrong.append(f"{library.name}: not run")
            continue
        outcomes = {way: Trial(library, command, way, server, options).run() for way in WAYS}
        cells, faults = judge(outcomes)
        rows.append([library.name, *cells])
        times = collections.Counter(faults)
        wrong += [f"{library.name}: {fault}{f' ({count} times)' if count > 1 else ''}" for fault, count in times.items()]
        lacking = outcomes["direct"].lacking()
        print(f"{library.name}: done" + (f", without {'; '.join(lacking)}" if lacking else ""), flush=True)
    print(f"\n{name_of(server)}, {options.clients} clients, {options.threads} worker(s) of Headgate"
          + (", by TLS" if options.tls else "") + "\n")  # fmt: skip
    print_table(rows)
    for line in wrong:
        print(f"! {line}")
    print(flush=True)
    return not wrong


def main():
    options = parse_arguments()
    if options.list:
        for title, table in (("libraries", LIBRARIES), ("features", FEATURES)):
            print(f"{title}: {' '.join(row.name for row in table)}")
        return
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    build(options)
    prepared = list(prepare(options))
    sound = [sit(server, prepared, options) for server in options.server]
    sys.exit(0 if all(sound) else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
