"""TLS in tests: a socket that two threads may use at once, contexts, and the options that have Headgate speak it."""

import collections
import errno
import functools
import os
import select
import socket
import ssl
import subprocess
import threading

from harness.certificates import certificates
from harness.resp import RECEIVE_SIZE, Client, Closed

# "tls": all servers and clients of the harness speak TLS, and the tests need not know. Tests may set it for themselves.
TRANSPORT = os.environ.get("HEADGATE_TRANSPORT", "plain")
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def is_usual():
    """Whether servers and clients speak TLS where the test does not say."""
    return TRANSPORT == "tls"


def client_context(identity=None, version=None, ca=None, verify=True):
    """A client that trusts the root of the tests. identity: what it shows of itself; version: the only one it speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    context.load_verify_locations(ca or certificates().ca)
    if identity:
        context.load_cert_chain(*identity)
    if version:
        context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


@functools.lru_cache(maxsize=1)
def usual_context():
    return client_context()


def server_context(identity=None, ca=None, version=None):
    """ca: clients must show a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(identity or certificates().server))
    if ca:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    if version:
        context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


def towards_clients(identity=None, **options):
    """Options of [headgate] for listeners that speak TLS."""
    certificate, key = identity or certificates().server
    return {"tls_certificate": certificate, "tls_key": key, **options}


def towards_redis(identity=None, ca=None, **options):
    """Options of [headgate] for a Redis that speaks TLS. identity: what Headgate shows of itself."""
    options = {"upstream_ca": ca or certificates().ca, **options}
    if identity:
        options.update(upstream_certificate=identity.certificate, upstream_key=identity.key)
    return options


class TlsSocket:
    """What a connected socket is to a Client or a FakeRedis, over TLS. ssl.SSLSocket lets OpenSSL read and write at
    once when two threads do, which it does not bear; here what goes through OpenSSL is in memory, and locked. The bytes
    on the wire can be seen and cut, too: cut(data) returns the pieces in which they are sent."""

    def __init__(self, raw, context, server=False, name="127.0.0.1", session=None, cut=None, handshake=True):
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server, server_hostname=None if server else name, session=session
        )
        self.state = threading.Lock()
        self.output = threading.Lock()
        self.plain = bytearray()
        self.pieces = collections.deque()
        self.ended = False
        self.cut = cut or (lambda data: [data])
        if handshake:
            self.do_handshake()

    def do_handshake(self):
        try:
            while not self._try(self.tls.do_handshake):
                self._flush()
                self._feed()
        finally:
            # Also the alert that says why it failed.
            self._flush()

    def _try(self, step):
        """False if more has to be read from the wire first."""
        try:
            with self.state:
                step()
            return True
        except ssl.SSLWantReadError:
            return False

    def _feed(self):
        data = self.raw.recv(RECEIVE_SIZE)
        with self.state:
            if data:
                self.incoming.write(data)
            else:
                self.incoming.write_eof()

    def _flush(self):
        """Sends what OpenSSL wants sent, unless somebody else is about to."""
        if self.output.acquire(blocking=False):
            try:
                self._send_pending()
            except (BrokenPipeError, ConnectionResetError):
                # What the other side said before it went is still to be read.
                self.pieces.clear()
            finally:
                self.output.release()

    def _send_pending(self):
        """What was not sent before its time was over is sent first the next time."""
        self._take_pending()
        while self.pieces:
            self._send_piece()

    def _take_pending(self):
        with self.state:
            data = self.outgoing.read()
        self.pieces.extend(self.cut(data) if data else [])

    def _send_piece(self):
        sent = self.raw.send(self.pieces[0])
        self.pieces[0] = self.pieces[0][sent:]
        if not self.pieces[0]:
            self.pieces.popleft()

    def _send_meanwhile(self, wait):
        """Sends what the other side takes, which may be nothing before it is read from. wait: goes on until all is sent
        or there is something to read."""
        if not self.output.acquire(blocking=False):
            return  # somebody else sends
        try:
            self._take_pending()
            while self.pieces and self._may_send(wait):
                self._send_piece()
        except (BrokenPipeError, ConnectionResetError):
            self.pieces.clear()
        finally:
            self.output.release()

    def _may_send(self, wait):
        seconds = self.raw.gettimeout() if wait else 0
        descriptor = self.raw.fileno()
        if descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # closed by another thread meanwhile
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN | select.POLLOUT)
        events = waiting.poll(None if seconds is None else 1000 * seconds)
        if seconds and not events:
            raise TimeoutError("timed out")
        return any(event & select.POLLOUT for _, event in events)

    # ---- what a socket has ----

    def sendall(self, data):
        view = memoryview(data)
        with self.output:
            while view:
                with self.state:
                    written = self.tls.write(view[: 1 << 20])
                view = view[written:]
                self._send_pending()

    def send(self, data):
        """One record, which counts as sent even if its time was over within it."""
        with self.output:
            self._send_pending()
            with self.state:
                written = self.tls.write(memoryview(data)[:16384])
            try:
                self._send_pending()
            except (TimeoutError, BlockingIOError):
                pass
            return written

    def recv(self, count, flags=0):
        while not self.plain and not self.ended:
            self._receive()
            self._send_meanwhile(wait=False)
        data = bytes(self.plain[:count])
        if not flags & socket.MSG_PEEK:
            del self.plain[:count]
        return data

    def _receive(self):
        """One record, if there is one; else what the wire has."""
        try:
            with self.state:
                data = self.tls.read(RECEIVE_SIZE)
            self.plain += data
            self.ended = not data
        except ssl.SSLWantReadError:
            self._send_meanwhile(wait=True)
            self._feed()
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.ended = True

    def shutdown(self, how):
        """SHUT_WR: close_notify, and the end of the bytes behind it, as far as the wire is concerned. That the other side
        has closed is no error, as it is none without TLS: but here close_notify is answered by a reset then."""
        try:
            if how == socket.SHUT_WR:
                self.close_notify()
        except (TimeoutError, BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass  # there is no room for it behind what was sent, or nobody to read it
        try:
            self.raw.shutdown(how)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def close_notify(self):
        try:
            self._try(self.tls.unwrap)
        except ssl.SSLError:
            pass  # it is made, but replies stand before that of the other side
        with self.output:
            self._send_pending()

    def read_close_notify(self):
        """True if the other side has said that it ends, before it ended."""
        try:
            while self.recv(RECEIVE_SIZE):
                continue
        except OSError:
            return False
        with self.state:
            try:
                self.tls.read(1)
            except ssl.SSLEOFError:
                return False
            except ssl.SSLError:
                pass
        return True

    def settimeout(self, seconds):
        self.raw.settimeout(seconds)

    def setsockopt(self, *option):
        self.raw.setsockopt(*option)

    def getsockname(self):
        return self.raw.getsockname()

    def fileno(self):
        return self.raw.fileno()

    def close(self):
        self.raw.close()


def connect_raw(address, timeout=30.0):
    raw = socket.create_connection(address, timeout=timeout)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


def connect(address, context=None, **options):
    """A Client over TLS. options: those of TlsSocket."""
    raw = connect_raw(address)
    try:
        return Client(TlsSocket(raw, context or usual_context(), **options))
    except BaseException:
        raw.close()
        raise


def s_client(address, *arguments, commands=b"PING\r\nQUIT\r\n", ca=None, timeout=30):
    """openssl s_client: what it printed of both kinds, as text. commands: its standard input, None to keep it open."""
    host, port = address
    result = subprocess.run(
        ["openssl", "s_client", "-connect", f"{host}:{port}", "-CAfile", str(ca or certificates().ca)]
        + ["-verify_return_error", *map(str, arguments)],
        input=commands, capture_output=True, timeout=timeout,
    )  # fmt: skip
    return (result.stdout + result.stderr).decode(errors="replace")


def start_with_tls(make_headgate, redis, **options):
    """A Headgate whose clients speak TLS, in front of a Redis that does not."""
    headgate = make_headgate(redis, start=False, tls=True, **options)
    headgate.write_config(upstream=redis.url, upstream_ca=None)
    headgate.start()
    return headgate


def is_refused(connect):
    """Whether the handshake, or what follows it, is refused: TLS 1.3 tells clients only after their handshake."""
    try:
        connect()("PING")
        return False
    except (OSError, Closed):
        return True
