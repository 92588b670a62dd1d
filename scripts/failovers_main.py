"""scripts/test-failovers: see there."""

import argparse
import collections
import pathlib
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

from harness.admin import stats
from harness.cluster import Cluster
from harness.sentinel import Group
from harness.servers import Headgate
from harness.upheaval import ClusterUpheaval, Crowd, SentinelUpheaval, upheave


def read_options():
    parser = argparse.ArgumentParser(prog="scripts/test-failovers")
    parser.add_argument("before", nargs="*", choices=("cluster", "sentinels", []), help="both, unless told")
    parser.add_argument("--failovers", type=int, default=50, help="of each (50)")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--threads", type=int, default=4, help="workers of Headgate")
    parser.add_argument("--pool", choices=("shared", "session"), default="shared")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--raw", action="store_true", help="Redis may lose what it has acknowledged; that is counted")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


def figures(crowd, done, seconds):
    errors = sum((client.errors for client in crowd.clients), collections.Counter())
    kinds = ", ".join(f"{count} {kind}" for kind, count in done.items())
    return (
        f"{sum(done.values())} ({kinds}) in {seconds:.0f} s: {crowd.total('requests')} requests, all replies right;"
        f" {sum(errors.values())} errors ({', '.join(f'{count} {name}' for name, count in errors.items())}),"
        f" {crowd.total('reconnects')} connections closed, {crowd.total('lost')}"
        f" acknowledged increments lost; the longest wait {max(client.longest for client in crowd.clients):.1f} s"
    )


def run(options, servers, upheaval, **settings):
    headgate = Headgate(servers.url() if callable(servers.url) else servers.url, pool=options.pool,
                        threads=options.threads, upstream_wait="60s", **settings)  # fmt: skip
    try:
        began = time.monotonic()
        with Crowd(headgate.connect, options.clients, True, options.seed) as crowd:
            crowd.await_rounds()
            say = None if options.quiet else lambda text: print(text, flush=True)
            done = upheave(upheaval, crowd, options.failovers, options.raw, say)
        lost = stats(headgate)["clients_closed_lost_total"]
        print(figures(crowd, done, time.monotonic() - began) + f"; clients_closed_lost_total {lost}", flush=True)
        headgate.finish()
    except BaseException:
        for server in [headgate, *getattr(servers, "sentinels", getattr(servers, "nodes", []))]:
            print(f"---- the log of {server.name} ----\n{server.log()[-3000:]}", flush=True)
        raise
    finally:
        headgate.discard()
        servers.discard()


def main():
    options = read_options()
    for before in options.before or ("cluster", "sentinels"):
        print(f"{before}, pool = {options.pool}, seed {options.seed}", flush=True)
        if before == "cluster":
            cluster = Cluster(replicas=1)
            run(options, cluster, ClusterUpheaval(cluster, options.seed), cross_slot="split")
        else:
            group = Group(down_after=4000)
            run(options, group, SentinelUpheaval(group, options.seed))


if __name__ == "__main__":
    main()
