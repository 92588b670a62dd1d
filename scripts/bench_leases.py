"""What the watch over locks costs: so many are taken with a lease of 30 s and held for a minute, in which each is renewed
several times. Bar: Headgate takes a tenth of a core for a hundred thousand of them."""
import contextlib
import socket
import time

import bench_targets
from bench_rounds import verdict

LEASE_MS = 30000
SETTLE_SECONDS = 12
ROUNDS = 4
ROUND_SECONDS = 10
PIPELINE = 1000
CORES_PER_LEASE = 0.1 / 100_000


def encode(*arguments):
    parts = [b"*%d\r\n" % len(arguments)]
    parts += [b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments]
    return b"".join(parts)


def take(connection, count):
    """Takes so many locks; all of them have to be granted."""
    for first in range(0, count, PIPELINE):
        numbers = range(first, min(first + PIPELINE, count))
        connection.sendall(b"".join(
            encode(b"SET", b"lock:account:%d" % number, b"6f1c2c1e-5a0b-4a1e-9d53-%012d" % number, b"NX", b"PX",
                   b"%d" % LEASE_MS) for number in numbers))
        wanted = b"+OK\r\n" * len(numbers)
        got = b""
        while len(got) < len(wanted):
            part = connection.recv(65536)
            if not part:
                raise bench_targets.Failure("headgate closed the connection")
            got += part
        if got != wanted:
            raise bench_targets.Failure("a lock was not granted")


def run(options):
    count = options.leases
    with contextlib.ExitStack() as stack:
        redis = bench_targets.start_redis(options.redis_port, options.connections)
        stack.callback(redis.stop)
        headgate = bench_targets.Headgate(redis, options, "leases", f"[lease:bench]\nkeys = lock:*\n[lease]\nmax_leases = {5 * count + 1000}\n")
        stack.callback(headgate.stop)
        before = headgate.resident()
        connection = stack.enter_context(socket.create_connection((headgate.host, headgate.port)))
        take(connection, count)
        print(f"{count} locks with a lease of {LEASE_MS // 1000} s; {(headgate.resident() - before) / count:.0f} bytes "
              "each in Headgate\n")
        time.sleep(SETTLE_SECONDS)
        print(f"{'':<10}{'renewals/s':>11}{'headgate':>10}{'redis':>8}   cores")
        shares = []
        for number in range(ROUNDS):
            start, renewals = time.monotonic(), headgate.counters("lease")["lease_renewals_total"]
            used = headgate.cpu(), redis.cpu()
            time.sleep(ROUND_SECONDS)
            seconds = time.monotonic() - start
            renewals = headgate.counters("lease")["lease_renewals_total"] - renewals
            shares.append((headgate.cpu() - used[0]) / seconds)
            print(f"round {number + 1:<4}{renewals / seconds:>11.0f}{shares[-1]:>10.3f}"
                  f"{(redis.cpu() - used[1]) / seconds:>8.3f}")
        counters = headgate.counters("lease")
        kept = counters["lease_held"] == count
        share = sum(shares) / len(shares)
        print(f"\nheadgate {share:.3f} of a core, bar {count * CORES_PER_LEASE:.3f}: "
              f"{verdict(share <= count * CORES_PER_LEASE)}; all are held still: {verdict(kept)}")
