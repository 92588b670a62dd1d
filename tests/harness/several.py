"""One Headgate before several Redis servers: [server:NAME] sections, and what the admin port says of each."""

from harness import tls
from harness.admin import text
from harness.resp import Client, Error
from harness.servers import free_port


class Several:
    """servers: by name, a Redis, or an address as text. default: another that is that of [headgate]. own: options of each
    by its name; common: those of [headgate]."""

    def __init__(self, make_headgate, servers, rules="", default=None, own=None, start=True, **common):
        self.headgate = make_headgate(default or "", start=False, **{"pool": None, **common})
        self.redis = {**({"default": default} if default else {}), **servers}
        self.ports = {name: free_port() for name in servers}
        self.own = own or {}
        if default is None:
            self.headgate.write_config(listen=None, upstream=None)
            self.headgate.port = next(iter(self.ports.values()))
        else:
            self.ports = {"default": self.headgate.port, **self.ports}
        self.write(rules)
        if start:
            self.headgate.start()

    def section(self, name):
        redis = self.redis[name]
        options = {
            "listen": f"{'rediss://' if self.headgate.speaks_tls else ''}127.0.0.1:{self.ports[name]}",
            "upstream": self.headgate._upstream(redis),
            **self.own.get(name, {}),
        }
        return "\n".join([f"[server:{name}]", *(f"{option} = {value}" for option, value in options.items())]) + "\n"

    def write(self, rules):
        self.rules = rules
        self.headgate.write_rules("".join(self.section(name) for name in self.redis if name != "default") + rules)

    def address(self, name):
        return ("127.0.0.1", self.ports[name])

    def connect(self, name):
        make = tls.connect if self.headgate.speaks_tls else Client
        self.headgate.clients.append(make(self.address(name)))
        return self.headgate.clients[-1]

    def reply(self, *question):
        with self.headgate.admin() as admin:
            return admin(*question)

    def ask(self, *question):
        """What the admin port answers, as text."""
        reply = self.reply(*question)
        assert isinstance(reply, bytes) and not isinstance(reply, Error), reply
        return text(reply)

    def stat(self, name, server=None):
        """A counter of STATS: of all, or of that one server."""
        ahead = ("SERVER", server) if server else ()
        lines = self.ask(*ahead, "STATS").splitlines()
        return int(next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:")))
