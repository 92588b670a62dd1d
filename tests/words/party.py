"""A client that never waits: it takes what has come, and tells frames from what is no frame yet."""

from harness.resp import Client


class Pending(Exception):
    """The rest of the frame has not come yet."""


class Party(Client):
    """One connection. drain() takes what is there; replies are the whole frames so far, raw what is no RESP."""

    def __init__(self, address):
        super().__init__(address)
        self.replies = []
        self.closed = False
        self.is_raw = False

    def _fill(self):
        raise Pending()

    def write(self, data):
        """Sends; a peer that has closed meanwhile is no failure here, as what it said is compared."""
        try:
            self.socket.settimeout(self.timeout)
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def drain(self):
        """True if anything new came."""
        news = False
        self.socket.settimeout(0.0)
        while not self.closed:
            try:
                data = self.socket.recv(1 << 18)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            news = True
            self.closed = data == b""
            self.buffer += data
        if news:
            self._take_frames()
        return news

    def _take_frames(self):
        while not self.is_raw and self.position < len(self.buffer):
            start = self.position
            try:
                self.replies.append(self.read())
            except Pending:
                self.position = start
                return
            except (AssertionError, ValueError, KeyError):
                self.position = start
                self.is_raw = True

    @property
    def rest(self):
        return bytes(self.buffer[self.position :])
