"""Servers with TLS for the bench: Redis with a port of each kind, and proxies in each of the three ways: "up" takes
plain clients and speaks TLS to Redis, "down" takes clients by TLS and speaks plainly to Redis, "both" has TLS on both
sides."""
import os
import shutil
import socket
import ssl
import subprocess
import tempfile

import bench_targets
from bench_targets import HOST, Child, Failure, Target, free_port

WAYS = ("up", "down", "both")
CURVE = {"ec": ["-pkeyopt", "ec_paramgen_curve:P-256"]}


class Certificate:
    """One that signs itself, for all servers of the sitting; who is to trust it is given the same file. key: as openssl
    req takes it."""

    def __init__(self, key="ec"):
        self.directory = tempfile.mkdtemp(prefix="bench-certificate-")
        self.file, self.key, self.both = (os.path.join(self.directory, name) for name in ("crt.pem", "key.pem", "all.pem"))
        command = ["openssl", "req", "-x509", "-newkey", key, *CURVE.get(key, []), "-nodes", "-days", "30",
                   "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=IP:{HOST},DNS:localhost", "-out", self.file,
                   "-keyout", self.key]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Failure(f"no certificate:\n{result.stderr[-1000:]}")
        with open(self.both, "wb") as both:
            for path in (self.file, self.key):
                with open(path, "rb") as part:
                    both.write(part.read())

    def load_options(self):
        """Of redis-benchmark."""
        return ["--tls", "--cacert", self.file]

    def client_context(self, version=None):
        context = ssl.create_default_context(cafile=self.file)
        if version:
            context.minimum_version = context.maximum_version = version
        return context

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


class TlsChild(Child):
    """A child whose clients speak TLS. It is there when it accepts connections."""

    def __init__(self, certificate, *arguments, **options):
        self.load_options = certificate.load_options()
        super().__init__(*arguments, **options)

    def is_ready(self):
        try:
            socket.create_connection((self.host, self.port), timeout=2).close()
            return True
        except OSError:
            return False


def start_redis(certificate, connections):
    """(plain, by TLS): two ports of one process."""
    port, tls_port = free_port(), free_port()
    options = ["--tls-port", str(tls_port), "--tls-cert-file", certificate.file, "--tls-key-file", certificate.key,
               "--tls-ca-cert-file", certificate.file, "--tls-auth-clients", "no"]
    plain = bench_targets.start_redis(port, connections, options)
    by_tls = Target("direct TLS", HOST, tls_port, plain.pid)
    by_tls.load_options = certificate.load_options()
    return plain, by_tls


def child(name, way, port, certificate, command, files=()):
    if way == "up":
        return Child(f"{name} {way}", port, command, files)
    return TlsChild(certificate, f"{name} {way}", port, command, files)


def start_headgate(way, redis, settings, certificate):
    port = free_port()
    plain, by_tls = redis
    listen = f"{'' if way == 'up' else 'rediss://'}{HOST}:{port}"
    upstream = f"{HOST}:{plain.port}" if way == "down" else f"rediss://{HOST}:{by_tls.port}"
    text = (f"[headgate]\nlisten = {listen}\nupstream = {upstream}\nadmin = {HOST}:{free_port()}\n"
            f"threads = {settings.threads}\npool = {settings.pool}\nmax_clients = {settings.connections}\n")
    if way != "up":
        text += f"tls_certificate = {certificate.file}\ntls_key = {certificate.key}\n"
    if way != "down":
        text += f"upstream_ca = {certificate.file}\n"
    return child("headgate", way, port, certificate, [settings.headgate, "-c", "headgate.ini"], [("headgate.ini", text)])


def start_haproxy(way, redis, settings, certificate):
    port = free_port()
    plain, by_tls = redis
    bind = f"bind {HOST}:{port}" + ("" if way == "up" else f" ssl crt {certificate.both}")
    server = f"{HOST}:{plain.port}" if way == "down" else f"{HOST}:{by_tls.port} ssl verify required ca-file {certificate.file}"
    most = settings.connections // 2
    text = (f"global\n  nbthread 1\n  maxconn {most}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n"
            f"  timeout server 1h\nlisten redis\n  {bind}\n  maxconn {most}\n  server redis {server}\n")
    command = [bench_targets.find("haproxy"), "-db", "-f", "haproxy.cfg"]
    return child("haproxy", way, port, certificate, command, [("haproxy.cfg", text)])


def start_stunnel(way, redis, _settings, certificate):
    """It has TLS on one side."""
    port = free_port()
    plain, by_tls = redis
    text = f"foreground = yes\npid =\ndebug = 3\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n[redis]\naccept = {HOST}:{port}\n"
    if way == "up":
        text += f"client = yes\nconnect = {HOST}:{by_tls.port}\nverifyChain = yes\nCAfile = {certificate.file}\ncheckIP = {HOST}\n"
    else:
        text += f"client = no\nconnect = {HOST}:{plain.port}\ncert = {certificate.file}\nkey = {certificate.key}\n"
    command = [bench_targets.find("stunnel"), "stunnel.conf"]
    return child("stunnel", way, port, certificate, command, [("stunnel.conf", text)])


STARTERS = {
    "headgate": (start_headgate, WAYS),
    "haproxy": (start_haproxy, WAYS),
    "stunnel": (start_stunnel, ("up", "down")),
}


def start_proxies(redis, settings, certificate, names, keep):
    """All of them in all their ways; keep(server) is told of each as soon as it runs."""
    proxies = []
    for name in names:
        start, ways = STARTERS[name]
        for way in ways:
            if way in settings.ways:
                proxies.append(keep(start(way, redis, settings, certificate)))
    return proxies


class OpensslServer(TlsChild):
    """openssl s_server, which serves one after the other."""

    def __init__(self, certificate):
        port = free_port()
        command = ["openssl", "s_server", "-accept", f"{HOST}:{port}", "-cert", certificate.file, "-key", certificate.key,
                   "-www", "-quiet"]
        super().__init__(certificate, "s_server", port, command)
