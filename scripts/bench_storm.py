"""What established clients notice of handshakes: the time that a PING takes, with nothing else to do, and while so many
ClientHellos that came at once are answered. The handshakes go no further: a full one with RSA costs the server most by
then, and the clients next to nothing."""
import contextlib
import multiprocessing
import selectors
import socket
import ssl
import time
from statistics import median, quantiles

import bench_tls_targets

HELLOS = 1000
QUIET_SECONDS = 2.0
PATIENCE = 60.0
# p50 and p99 within the storm, at most so many times that of quiet times …
BAR = 2.0
# … or so many ms, whichever is more.
BAR_MS = 1.0


def client_hello(context):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def ping(target, context, ended, results):
    """Asks again and again; sends (begin, duration) of all in the end."""
    samples = []
    with socket.create_connection((target.host, target.port), timeout=PATIENCE) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_hostname=target.host) as client:
            while not ended.is_set():
                begin = time.monotonic()
                client.sendall(b"*1\r\n$4\r\nPING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
                samples.append((begin, time.monotonic() - begin))
    results.send(samples)


def storm(target, hello):
    """(begin, end) of one: all hellos are sent, and all are answered."""
    sockets = [socket.create_connection((target.host, target.port), timeout=PATIENCE) for _ in range(HELLOS)]
    # Until the server has taken all of them in.
    time.sleep(0.5)
    with selectors.DefaultSelector() as waiting:
        begin = time.monotonic()
        for raw in sockets:
            raw.sendall(hello)
            waiting.register(raw, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(PATIENCE):
                assert key.fileobj.recv(1)
                waiting.unregister(key.fileobj)
        end = time.monotonic()
    for raw in sockets:
        raw.close()
    time.sleep(0.3)
    return begin, end


def milliseconds_within(samples, begin, end):
    return [duration * 1e3 for start, duration in samples if begin <= start < end]


def measure(target, certificate, rounds):
    """Lists of durations in ms: in quiet times, and within each storm; and how long the storms took."""
    context = certificate.client_context()
    ended = multiprocessing.Event()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pinger = multiprocessing.Process(target=ping, args=(target, context, ended, sender))
    pinger.start()
    time.sleep(1.0)
    quiet = time.monotonic()
    time.sleep(QUIET_SECONDS)
    hello = client_hello(context)
    storms = [storm(target, hello) for _ in range(rounds)]
    ended.set()
    samples = receiver.recv()
    pinger.join()
    within = [milliseconds_within(samples, *window) for window in storms]
    return milliseconds_within(samples, quiet, quiet + QUIET_SECONDS), within, [end - begin for begin, end in storms]


def p99(values):
    return quantiles(values, n=100)[98]


def line(name, values):
    return f"  {name:<24}{len(values):>8}{median(values):>9.3f}{p99(values):>9.3f}{max(values):>9.3f}"


def run(options, verdict):
    certificate = bench_tls_targets.Certificate("rsa:2048")
    try:
        for name in options.targets:
            with contextlib.ExitStack() as stack:
                redis = bench_tls_targets.start_redis(certificate, options.connections)
                stack.callback(redis[0].stop)
                target = bench_tls_targets.STARTERS[name][0]("down", redis, options, certificate)
                stack.callback(target.stop)
                quiet, within, seconds = measure(target, certificate, options.rounds)
            print(f"\n{name}: a PING of an established client, RSA of 2048 bits\n")
            print(f"  {'':<24}{'pings':>8}{'p50 ms':>9}{'p99 ms':>9}{'most':>9}")
            print(line("quiet", quiet))
            for values, took in zip(within, seconds):
                print(line(f"{HELLOS} hellos, {took:.2f} s", values))
            p50, worst = median(map(median, within)), median(map(p99, within))
            good = all(value <= max(BAR * usual, BAR_MS) for value, usual in ((p50, median(quiet)), (worst, p99(quiet))))
            bar = f"  p50 and p99 at most {BAR:g} times as long, or {BAR_MS:g} ms: {verdict(good)}"
            print(bar if name == "headgate" else "")
    finally:
        certificate.remove()
