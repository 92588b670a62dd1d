"""What looks right in the ini file and does nothing, or harm: -t and a start refuse it, or warn of it."""

import socket

import pytest

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
    """A check and a start say the same, and name the option and what is to be done."""
    result = check(tmp_path, text)
    assert result.returncode == 1, result.stdout + result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr
    started = run_headgate("-c", tmp_path / "headgate.ini")
    assert (started.returncode, started.stderr) == (1, result.stderr)


def assert_warned(tmp_path, text, *words):
    result = check(tmp_path, text)
    assert result.returncode == 0, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in ("warning: ", *words):
        assert word in result.stderr


def assert_sound(tmp_path, text):
    result = check(tmp_path, text)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr


def headgate(**options):
    return "[headgate]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())


# ---- lists ----


def is_denied(reply):
    return isinstance(reply, Error) and reply.startswith(b"DENIED ")


@pytest.mark.parametrize("keys", ("secret:*, *:pin", "secret:*,*:pin", "secret:* *:pin"))
def test_keys_with_commas_are_kept_from_clients(make_shared, keys):
    client = make_shared(f"[deny:secret]\nkeys = {keys}\n").connect()
    for key in ("secret:a", "a:pin", "secret:,"):
        assert is_denied(client("GET", key)), key
    assert client("GET", "a") is None
    assert client("GET", ",") is None


def test_a_comma_that_is_part_of_a_key(make_shared):
    client = make_shared("[deny:secret]\nkeys = a\\,b\n").connect()
    assert is_denied(client("GET", "a,b"))
    assert client("GET", "a") is None


def test_commands_and_clients_with_commas(make_shared):
    client = make_shared("[deny:x]\ncommands = get, set,config|get\nexcept = name:a, name:b\n").connect()
    for command in (("GET", "k"), ("SET", "k", "v"), ("CONFIG", "GET", "port")):
        assert is_denied(client(*command)), command
    for name in "ab":
        client("CLIENT", "SETNAME", name)
        assert client("SET", "k", "v") == OK


@pytest.mark.parametrize("keys", ("'secret:*'", "{a,b}:*", "secret:*,", "a,,b", ",", "a[]", "secret:*; *:pin", "secret:*;*:pin", "secret:*|*:pin"))
@pytest.mark.parametrize("section", ("[deny:x]", "[lease:x]", "[latency]\nenabled = on\n[latency:x]"))
def test_keys_that_would_match_nothing(tmp_path, section, keys):
    assert_refused(tmp_path, f"{section}\nkeys = {keys}\n", "keys = ", "; expected globs")


@pytest.mark.parametrize("commands", ("config|sett", "get|k", "get, !get", "@read, !@read", "!get"))
def test_commands_that_match_nothing(tmp_path, commands):
    assert_refused(tmp_path, f"[deny:x]\ncommands = {commands}\n", "commands = ", "; expected command names")


@pytest.mark.parametrize("keys", ("user|*|cart", "*|cart", "user|*|*", "secret:*\\|*:pin", "a\\;b", "[;|]*:x", "user|[a|b]*"))
def test_keys_with_bars_and_semicolons_in_them(tmp_path, keys):
    assert_sound(tmp_path, f"[deny:x]\nkeys = {keys}\n")


@pytest.mark.parametrize("commands", ("exec discard", "exec", "@transaction !multi !watch !unwatch"))
def test_commands_that_are_never_limited(tmp_path, commands):
    text = f"[limit:x]\nlimit = 5\nwindow = 1s\ncommands = {commands}\n"
    assert_refused(tmp_path, text, f"commands = {commands}", "EXEC and DISCARD")
    assert_sound(tmp_path, text.replace("commands = ", "commands = get "))


def test_a_section_that_is_misspelt(tmp_path):
    assert_refused(tmp_path, "[latancy]\n", "[latancy]: unknown section; expected perhaps [latency")
    assert_refused(tmp_path, "[limits:a]\n", "[limits:a]: unknown section; expected perhaps [limit:NAME]")


# ---- what depends on something else ----


@pytest.mark.parametrize("section", ("counters", "events"))
@pytest.mark.parametrize("latency", ("", "[latency]\n", "[latency]\nenabled = no\n"))
def test_logs_of_what_is_not_measured(tmp_path, section, latency):
    text = f"{latency}[{section}]\nenabled = yes\n"
    assert_refused(tmp_path, text, f"[{section}] enabled = on", "[latency] with enabled = on in the file")
    assert_sound(tmp_path, f"[{section}]\nenabled = yes\n[latency]\nenabled = yes\n")
    assert_sound(tmp_path, f"[{section}]\nenabled = no\n")


def test_latency_rules_of_what_is_not_measured(tmp_path):
    assert_warned(tmp_path, "[latency:orders]\nkeys = order:*\n", ":1: [latency:orders]: does nothing", "enabled = on")
    assert_sound(tmp_path, "[latency:orders]\nkeys = order:*\n[latency]\nenabled = on\n")


@pytest.mark.parametrize(
    "section, all_options, options",
    (
        ("deny", "keys = a*", "keys = a*"),
        ("deny", "max_bytes = 1mb", "commands = set\nmax_bytes = 2mb"),
        ("lease", "keys = a*", "keys = a*\nkind = hash"),
        ("lease", "keys = lock:*", "keys = lock:job:*"),
        ("lease", "keys = x:? lock:*", "keys = lock:job:*, lock:[ab]?\\*, lock:x"),
        ("deny", "keys = secret:*", "keys = secret:a, secret:b:*\ncommands = set"),
        ("latency", "commands = get", "commands = get"),
        ("latency", "", "keys = a*"),
        ("latency", "keys = a*", "keys = a:*"),
    ),
)
def test_rules_that_never_apply(tmp_path, section, all_options, options):
    latency = "[latency]\nenabled = on\n"
    text = f"{latency}[{section}:a]\n{all_options}\n[{section}:b]\n{options}\n"
    assert_warned(tmp_path, text, f"[{section}:b]: never applies: [{section}:a] before it takes all that it means")
    assert_sound(tmp_path, f"{latency}[{section}:a]\nkeys = x*\n[{section}:b]\nkeys = y*\n")


@pytest.mark.parametrize("section", ("lease", "deny"))
@pytest.mark.parametrize(
    "earlier, later",
    (
        ("lock:job:*", "lock:*"),
        ("lock:?*", "lock:job:*"),
        ("lock:[a-z]*", "lock:job"),
        ("lock:*:a", "lock:job:a"),
        ("lock:job*", "lock:jo*"),
        ("lock:\\**", "lock:\\*x"),
        ("lock:job", "lock:job?"),
    ),
)
def test_rules_behind_one_that_may_leave_them_something(tmp_path, section, earlier, later):
    """What is not plain to see is not said."""
    assert_sound(tmp_path, f"[{section}:a]\nkeys = {earlier}\n[{section}:b]\nkeys = {later}\n")


def test_leases_of_which_some_keys_are_another_rules(tmp_path):
    text = "[lease:a]\nkeys = lock:*\n[lease:b]\nkeys = job:* lock:job:*\n"
    assert_warned(tmp_path, text, "[lease:b]: never applies to lock:job:*: [lease:a] before it takes these keys")


@pytest.mark.parametrize(
    "rule",
    (
        "[lease:x]\n",
        "[deny:x]\n",
        "[limit:x]\nlimit = 1\nwindow = 1s\nper = user\n",
        "[latency]\nenabled = on\n[latency:x]\n",
    ),
)
def test_braces_that_stand_for_themselves(tmp_path, rule):
    warning = ":x]: the braces of job:{*}:lock stand for themselves"
    assert_warned(tmp_path, f"{rule}keys = a:*, job:{{*}}:lock\n", warning, "write * for any text")
    for keys in ("job:{7}:lock", "job:\\{*}:lock", "job:[{*}]x", "job:{[*]}"):
        assert_sound(tmp_path, f"{rule}keys = {keys}\n")
    assert_sound(tmp_path, "[limit:x]\nlimit = 1\nwindow = 1s\nper = key\nkeys = job:{*}:lock\n")


def test_rules_that_only_observe_leave_something_to_others(tmp_path):
    assert_sound(tmp_path, "[deny:a]\nkeys = a*\naction = observe\n[deny:b]\nkeys = a*\n")
    assert_sound(tmp_path, "[deny:a]\nkeys = a*\nexcept = user:x\n[deny:b]\nkeys = a*\n")


@pytest.mark.parametrize("rule", ("[deny:x]\nkeys = a*\n", "[limit:x]\nlimit = 1\nwindow = 1s\n"))
@pytest.mark.parametrize("clients", ("user:*", "ip:10.0.0.1, name:*", "ip:0.0.0.0/0", "ip:::/0"))
def test_rules_that_except_every_client(tmp_path, rule, clients):
    assert_warned(tmp_path, f"{rule}except = {clients}\n", "[", "nothing: except = ", "is every client")


def test_limits_with_options_of_another_scope(tmp_path):
    rule = "[limit:x]\nlimit = 1\nwindow = 1s\n"
    assert_warned(tmp_path, f"{rule}on_error = deny\n", "[limit:x]: on_error has no meaning without scope = global")
    assert_refused(tmp_path, "[limit:x]\nlimit = 0\nwindow = 1s\n", "limit = 0: is not set")


def test_leases_on_everything(tmp_path):
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


def self_pairs():
    pairs = [
        ("127.0.0.1:6380", "localhost:6380"),
        ("localhost:6380", "127.0.0.1:6380"),
        ("127.0.0.1:6380", "LocalHost:6380"),
        ("127.0.0.1:6380", "redis.localhost:6380"),
        ("0.0.0.0:6380", "127.0.0.1:6380"),
        ("0.0.0.0:6380", "127.9.9.9:6380"),
        ("0.0.0.0:6380", "localhost:6380"),
        ("0.0.0.0:6380", f"{socket.gethostname()}:6380"),
        ("127.0.0.1:6380", "0.0.0.0:6380"),
        ("127.0.0.1:6380", "[::ffff:127.0.0.1]:6380"),
        ("[::1]:6380", "localhost:6380"),
        ("[::]:6380", "[::1]:6380"),
        ("[::1]:6380", "[::]:6380"),
        ("127.0.0.1:1, 127.0.0.1:6380", "localhost:6380"),
        ("127.0.0.1:6380", "localhost.:6380"),
        ("localhost.:6380", "127.0.0.1:6380"),
        ("127.0.0.1:6380", "redis.localhost.:6380"),
        ("0.0.0.0:6380", f"{socket.gethostname()}.:6380"),
        ("proxy.example:6380", "proxy.example.:6380"),
        ("127.0.0.1:6380", "0x7f000001:6380"),
        ("0x7f000001:6380", "127.0.0.1:6380"),
    ]
    if own_address() is not None:
        pairs.append(("0.0.0.0:6380", f"{own_address()}:6380"))
    return pairs


@pytest.mark.parametrize("listen, upstream", self_pairs())
def test_an_upstream_that_is_headgate_itself(tmp_path, listen, upstream):
    text = headgate(listen=listen, upstream=upstream)
    assert_refused(tmp_path, text, " of listen and ", " of upstream", "expected the address of Redis upstream")
    text = headgate(listen="127.0.0.1:1", admin=listen, admin_password="x", upstream=upstream)
    assert check(tmp_path, text).returncode == 1
    text = headgate(listen=listen) + f"[latency]\nenabled = on\nupstream = {upstream}\n"
    assert_refused(tmp_path, text, "[latency] upstream = ", "is an address of Headgate itself")


@pytest.mark.parametrize(
    "listen, upstream",
    (
        ("127.0.0.1:6380", "localhost:6381"),
        ("127.0.0.1:6380", "127.0.0.2:6380"),
        ("127.0.0.1:6380", "[::1]:6380"),
        ("0.0.0.0:6380", "[::1]:6380"),
        ("[::]:6380", "127.0.0.1:6380"),
        ("0.0.0.0:6380", "192.0.2.7:6380"),
        ("0.0.0.0:6380", "redis.example:6380"),
        ("0.0.0.0:6380", "redis.example.:6380"),
        ("127.0.0.1:6380", "0x7f000002:6380"),
        ("127.0.0.1:6380", "notlocalhost.:6380"),
        ("unix:/nowhere/a.sock", "unix:/nowhere/b.sock"),
    ),
)
def test_an_upstream_that_is_another(tmp_path, listen, upstream):
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


@pytest.mark.parametrize("name", ("0x7f.1", "0x7f000001", "127.1", "0177.0.0.1", "2130706433", "localhost.", "LOCALHOST.", "0x0"))
def test_what_a_check_refuses_a_start_refuses(tmp_path, name):
    """Spellings of loopback that the system reads as such, and a name with the dot that says that it is whole. Some are
    no addresses to Headgate; those that are lead to itself."""
    if not name.lower().startswith("localhost"):
        assert socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)[0][4][0] in ("127.0.0.1", "0.0.0.0")
    path = tmp_path / "headgate.ini"
    for host in ("127.0.0.1", "0.0.0.0", "localhost", "localhost."):
        port = free_port()
        path.write_text(headgate(listen=f"{host}:{port}", admin="", upstream=f"{name}:{port}"))
        check, start = run_headgate("-t", "-c", path), run_headgate("-c", path)
        assert check.returncode == start.returncode == 1
        assert f"{name}:{port}" in check.stderr and "; expected " in check.stderr
        assert start.stderr == check.stderr


def test_one_address_for_clients_and_operators(tmp_path):
    for listen, admin in (("0.0.0.0:6380", "127.0.0.1:6380"), ("127.0.0.1:6380", "localhost:6380")):
        text = headgate(listen=listen, admin=admin)
        assert_refused(tmp_path, text, "are the same address; expected an address for each")
    text = headgate(listen="127.0.0.1:6380", admin="0.0.0.0:6380", admin_password="x")
    assert_refused(tmp_path, text, "are the same address; expected an address for each")


# ---- who gets in ----


@pytest.mark.parametrize("admin", ("0.0.0.0:6390", "[::]:6390", "10.1.2.3:6390", "127.0.0.1:1, ops.example:6390"))
def test_an_admin_port_for_everybody(tmp_path, admin):
    text = headgate(admin=admin)
    assert_refused(tmp_path, text, "is open to other machines without a password; expected admin_password beside it")
    assert_sound(tmp_path, headgate(admin=admin, admin_password="secret"))


def test_a_reload_does_not_open_the_admin_port(redis, make_headgate):
    port = free_port()
    running = make_headgate(redis, admin=f"0.0.0.0:{port}", admin_password="secret")
    running.write_config(admin_password="")
    running.signal(1)
    wait_for(lambda: "without a password" in running.log(), what="the fault")
    with Client(("127.0.0.1", port)) as admin:
        assert admin("STATS").startswith(b"NOAUTH")


@pytest.mark.parametrize("admin", ("127.0.0.1:6390", "127.8.8.8:6390", "localhost:6390", "[::1]:6390", ""))
def test_an_admin_port_for_this_machine(tmp_path, admin):
    assert_sound(tmp_path, headgate(admin=admin))


def test_an_admin_socket_for_all_users(tmp_path):
    admin = f"unix:{tmp_path}/admin.sock"
    assert_warned(tmp_path, headgate(admin=admin, unix_socket_mode="0777"), "[headgate]: unix_socket_mode lets every")
    assert_sound(tmp_path, headgate(admin=admin, unix_socket_mode="0770"))
    assert_sound(tmp_path, headgate(admin=admin, unix_socket_mode="0777", admin_password="x"))


def test_a_password_that_is_lent_to_everybody(tmp_path):
    text = headgate(listen="0.0.0.0:6380", upstream_password="secret")
    assert_warned(tmp_path, text, "other machines that reach 0.0.0.0:6380 are served without a password")
    assert "secret" not in check(tmp_path, text).stderr
    assert_sound(tmp_path, headgate(listen="127.0.0.1:6380", upstream_password="secret"))


# ---- files ----


@pytest.mark.parametrize("word", ("stderr", "STDOUT", "-", "SysLog", "none"))
def test_a_log_file_that_is_a_word(tmp_path, word):
    assert_refused(tmp_path, headgate(log_file=word), f"log_file = {word}: would be a file of that name")


@pytest.mark.parametrize("path", ("/dev/stderr", "./stderr", "headgate.log", ""))
def test_a_log_file_that_is_a_file(tmp_path, path):
    assert_sound(tmp_path, headgate(log_file=path))


# ---- words for on and off ----


@pytest.mark.parametrize("word", ("yes", "Yes", "on", "ON", "true", "True", "1"))
def test_words_for_on(make_shared, word):
    shown = make_shared(f"[latency]\nenabled = {word}\nhotkeys = NO\n").admin()("CONFIG")
    assert b"\n[latency]\nenabled = on\n" in shown
    assert b"\nhotkeys = off\n" in shown


# ---- addresses that are the same for all ----

ADDRESSES = {
    "per": "[limit:a]\nlimit = 5\nwindow = 1s\nper = user+ip/24\n",
    "except": "[limit:a]\nlimit = 5\nwindow = 1s\nexcept = name:a ip:127.0.0.1\n",
    "except of deny": "[deny:a]\ncommands = @dangerous !info\nexcept = user:admin ip:127.0.0.1\n",
}


@pytest.mark.parametrize("rule", ADDRESSES)
@pytest.mark.parametrize("listen", ("127.0.0.1:6380", "[::1]:6380, localhost:6382", "unix:/tmp/h.sock, 127.1.2.3:1"))
def test_a_rule_by_address_where_all_have_one(tmp_path, rule, listen):
    section = "[deny:a]" if rule.endswith("deny") else "[limit:a]"
    instead = "per = process and uid" if rule == "per" else "user:GLOB and name:GLOB"
    text = headgate(listen=listen) + ADDRESSES[rule]
    assert_warned(tmp_path, text, section, f"{rule.split()[0]} goes by addresses", instead)


@pytest.mark.parametrize("rule", ADDRESSES)
@pytest.mark.parametrize("listen", ("0.0.0.0:6380", "[::]:6380", "127.0.0.1:6380, 10.1.2.3:6380"))
def test_a_rule_by_address_where_others_can_come(tmp_path, rule, listen):
    assert_sound(tmp_path, headgate(listen=listen) + ADDRESSES[rule])


def test_rules_that_do_not_go_by_address(tmp_path):
    assert_sound(tmp_path, "[limit:a]\nlimit = 5\nwindow = 1s\nexcept = name:trip:*\n")


# ---- where warnings are seen ----


def test_warnings_are_logged_at_start_and_at_a_reload(redis, make_headgate):
    running = launch(make_headgate, redis, "shared", "[latency:a]\nkeys = a*\n")
    wait_for(lambda: "[latency:a]: does nothing" in running.log(), what="the warning")
    assert running.log().count("does nothing") == 1, running.log()
    running.write_rules("[latency:b]\nkeys = a*\n")
    running.signal(1)
    wait_for(lambda: "[latency:b]: does nothing" in running.log(), what="the warning")
