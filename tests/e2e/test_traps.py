"""What looks right in the ini file and does nothing, or harm: -t and a start refuse it, or warn of it."""

import socket

from harness.resp import OK, Client, Error, wait_for
from harness.rules import launch
from harness.servers import free_port, run_headgate


def check(tmp_path, text):
    """-t of such a file."""
    path = tmp_path / "headgate.ini"
    path.write_text(text)
    path.chmod(0o600)
    return run_headgate("-t", "-c", path)


def assert_refused(tmp_path, text, *words):
    """It names the option and what is to be done."""
    result = check(tmp_path, text)
    assert result.returncode == 1, (text, result.stdout + result.stderr)
    assert len(result.stderr.splitlines()) == 1, (text, result.stderr)
    for word in words:
        assert word in result.stderr, text
    return result


def assert_warned(tmp_path, text, *words):
    result = check(tmp_path, text)
    assert result.returncode == 0, (text, result.stderr)
    assert len(result.stderr.splitlines()) == 1, (text, result.stderr)
    for word in ("warning: ", *words):
        assert word in result.stderr, text


def assert_sound(tmp_path, text):
    result = check(tmp_path, text)
    assert (result.returncode, result.stderr) == (0, ""), (text, result.stderr)


def headgate(**options):
    return "[headgate]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())


# ---- lists ----


def is_denied(reply):
    return isinstance(reply, Error) and reply.startswith(b"DENIED ")


def test_lists_with_commas(make_shared):
    for keys in ("secret:*, *:pin", "secret:*,*:pin", "secret:* *:pin"):
        client = make_shared(f"[deny:secret]\nkeys = {keys} a\\,b\n").connect()
        for key in ("secret:a", "a:pin", "secret:,", "a,b"):
            assert is_denied(client("GET", key)), (keys, key)
        assert client("GET", "a") is None and client("GET", ",") is None, keys
    client = make_shared("[deny:x]\ncommands = get, set,config|get\nexcept = name:a, name:b\n").connect()
    for command in (("GET", "k"), ("SET", "k", "v"), ("CONFIG", "GET", "port")):
        assert is_denied(client(*command)), command
    for name in "ab":
        client("CLIENT", "SETNAME", name)
        assert client("SET", "k", "v") == OK


LIMIT = "[limit:x]\nlimit = 5\nwindow = 1s\n"
MEASURED = "[latency]\nenabled = on\n"


def test_lists_that_mean_nothing(tmp_path):
    keys = ("'secret:*'", "{a,b}:*", "secret:*,", "a,,b", ",", "a[]", "secret:*; *:pin", "secret:*;*:pin", "secret:*|*:pin")
    for section, some in (("[deny:x]", keys), ("[lease:x]", keys[:2]), (f"{MEASURED}[latency:x]", keys[-2:])):
        for one in some:
            assert_refused(tmp_path, f"{section}\nkeys = {one}\n", "keys = ", "; expected globs")
    for commands in ("config|sett", "get|k", "get, !get", "@read, !@read", "!get"):
        assert_refused(tmp_path, f"[deny:x]\ncommands = {commands}\n", "commands = ", "; expected command names")
    for one in ("user|*|cart", "*|cart", "user|*|*", "secret:*\\|*:pin", "a\\;b", "[;|]*:x", "user|[a|b]*"):
        assert_sound(tmp_path, f"[deny:x]\nkeys = {one}\n")
    for commands in ("exec discard", "exec", "@transaction !multi !watch !unwatch"):
        assert_refused(tmp_path, f"{LIMIT}commands = {commands}\n", f"commands = {commands}", "EXEC and DISCARD")
        assert_sound(tmp_path, f"{LIMIT}commands = get {commands}\n")
    for wrong, right in (("latancy", "latency"), ("limits:a", "limit:NAME")):
        assert_refused(tmp_path, f"[{wrong}]\n", f"[{wrong}]: unknown section; expected perhaps [{right}")


# ---- what depends on something else ----


def test_what_is_not_measured(tmp_path):
    for section in ("counters", "events"):
        for latency in ("", "[latency]\n", "[latency]\nenabled = no\n"):
            words = (f"[{section}] enabled = on", "[latency] with enabled = on in the file")
            assert_refused(tmp_path, f"{latency}[{section}]\nenabled = yes\n", *words)
        assert_sound(tmp_path, f"[{section}]\nenabled = yes\n[latency]\nenabled = yes\n")
        assert_sound(tmp_path, f"[{section}]\nenabled = no\n")
    assert_warned(tmp_path, "[latency:orders]\nkeys = order:*\n", ":1: [latency:orders]: does nothing", "enabled = on")
    assert_sound(tmp_path, f"[latency:orders]\nkeys = order:*\n{MEASURED}")


def test_rules_that_never_apply(tmp_path):
    for section, earlier, later in (
        ("deny", "keys = a*", "keys = a*"),
        ("deny", "max_bytes = 1mb", "commands = set\nmax_bytes = 2mb"),
        ("deny", "keys = secret:*", "keys = secret:a, secret:b:*\ncommands = set"),
        ("lease", "keys = a*", "keys = a*\nkind = hash"),
        ("lease", "keys = lock:*", "keys = lock:job:*"),
        ("lease", "keys = x:? lock:*", "keys = lock:job:*, lock:[ab]?\\*, lock:x"),
        ("latency", "commands = get", "commands = get"),
        ("latency", "", "keys = a*"),
        ("latency", "keys = a*", "keys = a:*"),
    ):
        words = f"[{section}:b]: never applies: [{section}:a] before it takes all that it means"
        assert_warned(tmp_path, f"{MEASURED}[{section}:a]\n{earlier}\n[{section}:b]\n{later}\n", words)
    text = "[lease:a]\nkeys = lock:*\n[lease:b]\nkeys = job:* lock:job:*\n"
    assert_warned(tmp_path, text, "[lease:b]: never applies to lock:job:*: [lease:a] before it takes these keys")


def test_braces_that_stand_for_themselves(tmp_path):
    for rule in ("[lease:x]\n", "[deny:x]\n", f"{LIMIT}per = user\n", f"{MEASURED}[latency:x]\n"):
        warning = ":x]: the braces of job:{*}:lock stand for themselves"
        assert_warned(tmp_path, f"{rule}keys = a:*, job:{{*}}:lock\n", warning, "write * for any text")
    for keys in ("job:{7}:lock", "job:\\{*}:lock", "job:[{*}]x", "job:{[*]}"):
        assert_sound(tmp_path, f"[deny:x]\nkeys = {keys}\n")
    assert_sound(tmp_path, f"{LIMIT}per = key\nkeys = job:{{*}}:lock\n")


def test_rules_with_options_that_do_nothing(tmp_path):
    for rule in ("[deny:x]\nkeys = a*\n", LIMIT):
        for clients in ("user:*", "ip:10.0.0.1, name:*", "ip:0.0.0.0/0", "ip:::/0"):
            assert_warned(tmp_path, f"{rule}except = {clients}\n", "[", "nothing: except = ", "is every client")
    assert_warned(tmp_path, f"{LIMIT}on_error = deny\n", "[limit:x]: on_error has no meaning without scope = global")
    assert_refused(tmp_path, "[limit:x]\nlimit = 0\nwindow = 1s\n", "limit = 0: is not set")
    assert_warned(tmp_path, "[lease:x]\nkeys = *\n", "[lease:x]: watches every key")
    assert_warned(tmp_path, "[lease:x]\nkeys = lock:*\nmax_hold = 10s\n", "max_hold is shorter than ttl")


# ---- Headgate before itself ----


def own_address():
    """An address of this machine's that is no loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return None


SELVES = [
    ("127.0.0.1:6380", "localhost:6380 redis.LocalHost:6380 0.0.0.0:6380 [::ffff:127.0.0.1]:6380 localhost.:6380 0x7f000001:6380"),
    ("localhost.:6380", "127.0.0.1:6380"),
    ("0x7f000001:6380", "127.0.0.1:6380"),
    ("0.0.0.0:6380", f"127.9.9.9:6380 {socket.gethostname()}:6380"),
    ("[::]:6380", "[::1]:6380"),
    ("127.0.0.1:1, 127.0.0.1:6380", "localhost:6380"),
    ("proxy.example:6380", "proxy.example.:6380"),
]
OTHERS = [
    ("127.0.0.1:6380", "localhost:6381 127.0.0.2:6380 [::1]:6380 0x7f000002:6380 notlocalhost.:6380"),
    ("0.0.0.0:6380", "[::1]:6380 192.0.2.7:6380 redis.example:6380 redis.example.:6380"),
    ("[::]:6380", "127.0.0.1:6380"),
    ("unix:/nowhere/a.sock", "unix:/nowhere/b.sock"),
]


def test_an_upstream_that_is_headgate_itself(tmp_path):
    own = [("0.0.0.0:6380", f"{own_address()}:6380")] if own_address() else []
    for listen, upstreams in SELVES + own:
        for upstream in upstreams.split():
            text = headgate(listen=listen, upstream=upstream)
            assert_refused(tmp_path, text, " of listen and ", " of upstream", "expected the address of Redis upstream")
            text = headgate(listen="127.0.0.1:1", admin=listen, admin_password="x", upstream=upstream)
            assert check(tmp_path, text).returncode == 1, text
            text = headgate(listen=listen) + f"{MEASURED}upstream = {upstream}\n"
            assert_refused(tmp_path, text, "[latency] upstream = ", "is an address of Headgate itself")
    for listen, upstreams in OTHERS:
        for upstream in upstreams.split():
            assert_sound(tmp_path, headgate(listen=listen, upstream=upstream))


def test_a_unix_socket_of_its_own_by_other_spellings(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    own = f"unix:{tmp_path}/run/h.sock"
    for spelling in ("run//h.sock", "run/./h.sock", "run/../run/h.sock", "link/h.sock"):
        text = headgate(listen=own, upstream=f"unix:{tmp_path}/{spelling}")
        assert_refused(tmp_path, text, "expected the address of Redis upstream")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/run/h.sock")
        (tmp_path / "other.sock").symlink_to(tmp_path / "run" / "h.sock")
        text = headgate(listen=own, upstream=f"unix:{tmp_path}/other.sock")
        assert_refused(tmp_path, text, "expected the address of Redis upstream")
    assert_sound(tmp_path, headgate(listen=own, upstream=f"unix:{tmp_path}/run/redis.sock"))


# ---- who gets in ----


def test_an_admin_port_for_everybody(tmp_path):
    for admin in ("0.0.0.0:6390", "[::]:6390", "10.1.2.3:6390", "127.0.0.1:1, ops.example:6390"):
        words = "is open to other machines without a password; expected admin_password beside it"
        assert_refused(tmp_path, headgate(admin=admin), words)
        assert_sound(tmp_path, headgate(admin=admin, admin_password="secret"))
    for admin in ("127.0.0.1:6390", "127.8.8.8:6390", "localhost:6390", "[::1]:6390", ""):
        assert_sound(tmp_path, headgate(admin=admin))
    for listen, admin in (("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.1", "0.0.0.0")):
        text = headgate(listen=f"{listen}:6380", admin=f"{admin}:6380", admin_password="x")
        assert_refused(tmp_path, text, "are the same address; expected an address for each")
    admin = f"unix:{tmp_path}/admin.sock"
    assert_warned(tmp_path, headgate(admin=admin, unix_socket_mode="0777"), "[headgate]: unix_socket_mode lets every")
    assert_sound(tmp_path, headgate(admin=admin, unix_socket_mode="0770"))
    assert_sound(tmp_path, headgate(admin=admin, unix_socket_mode="0777", admin_password="x"))


def test_a_reload_does_not_open_the_admin_port(redis, make_headgate):
    port = free_port()
    running = make_headgate(redis, admin=f"0.0.0.0:{port}", admin_password="secret")
    running.write_config(admin_password="")
    running.signal(1)
    wait_for(lambda: "without a password" in running.log(), what="the fault")
    with Client(("127.0.0.1", port)) as admin:
        assert admin("STATS").startswith(b"NOAUTH")


def test_a_password_that_is_lent_to_everybody(tmp_path):
    text = headgate(listen="0.0.0.0:6380", upstream_password="secret")
    assert_warned(tmp_path, text, "other machines that reach 0.0.0.0:6380 are served without a password")
    assert "secret" not in check(tmp_path, text).stderr
    assert_sound(tmp_path, headgate(listen="127.0.0.1:6380", upstream_password="secret"))


# ---- words ----


def test_a_start_refuses_what_the_check_refuses(tmp_path):
    for text in ("[deny:x]\nkeys = a[]\n", "[limits:a]\n", headgate(listen="127.0.0.1:1", upstream="0x7f.1:1")):
        checked, started = assert_refused(tmp_path, text), run_headgate("-c", tmp_path / "headgate.ini")
        assert (started.returncode, started.stderr) == (1, checked.stderr), text


def test_a_log_file_that_is_a_word(tmp_path):
    for word in ("stderr", "STDOUT", "-", "SysLog", "none"):
        assert_refused(tmp_path, headgate(log_file=word), f"log_file = {word}: would be a file of that name")
    for path in ("/dev/stderr", "./stderr", "headgate.log", ""):
        assert_sound(tmp_path, headgate(log_file=path))


# ---- addresses that are the same for all ----

ADDRESSES = {
    "per": f"{LIMIT}per = user+ip/24\n",
    "except": f"{LIMIT}except = name:a ip:127.0.0.1\n",
    "except of deny": "[deny:x]\ncommands = @dangerous !info\nexcept = user:admin ip:127.0.0.1\n",
}


def test_a_rule_by_address_where_all_have_one(tmp_path):
    for rule, text in ADDRESSES.items():
        instead = "per = process and uid" if rule == "per" else "user:GLOB and name:GLOB"
        for listen in ("127.0.0.1:6380", "[::1]:6380, localhost:6382", "unix:/tmp/h.sock, 127.1.2.3:1"):
            words = (text.split("\n")[0], f"{rule.split()[0]} goes by addresses", instead)
            assert_warned(tmp_path, headgate(listen=listen) + text, *words)
        for listen in ("0.0.0.0:6380", "[::]:6380", "127.0.0.1:6380, 10.1.2.3:6380"):
            assert_sound(tmp_path, headgate(listen=listen) + text)
    assert_sound(tmp_path, f"{LIMIT}except = name:trip:*\n")


# ---- where warnings are seen ----


def test_warnings_are_logged_at_start_and_at_a_reload(redis, make_headgate):
    running = launch(make_headgate, redis, "shared", "[latency:a]\nkeys = a*\n")
    wait_for(lambda: "[latency:a]: does nothing" in running.log(), what="the warning")
    assert running.log().count("does nothing") == 1, running.log()
    running.write_rules("[latency:b]\nkeys = a*\n")
    running.signal(1)
    wait_for(lambda: "[latency:b]: does nothing" in running.log(), what="the warning")
