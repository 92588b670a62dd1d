"""[server:NAME]: what is wrong with a file that has several, by headgate -t."""

from harness.servers import run_headgate


def test_a_faulty_file(tmp_path):
    for text, said in [
        ("[server:a]\nlisten = h:1\n", "[server:a] upstream =: is missing"),
        ("[server:a]\nupstream = h:1\n", "[server:a] listen =: is missing"),
        ("[server:default]\n", "has this name"),
        ("[server]\n", "rule has no name"),
        ("[server:a b]\n", "not a name"),
        ("[server:a]\nlisten = h:1\nupstream = h:2\nadmin = h:3\n", "[server:a] admin = h:3: is of the whole process"),
        ("[server:a]\nlisten = h:1\nupstream = h:2\nadmin_password = s\n", "admin_password = ********: is of the whole process"),
        ("[server:a]\nlisten = h:1\nupstream = h:2\n[server:b]\nlisten = h:1\nupstream = h:3\n", "are the same address"),
        ("[server:a]\nlisten = 127.0.0.1:6390\nupstream = h:2\n", "127.0.0.1:6390 of admin are the same address"),
        ("[server:a]\nlisten = 127.0.0.1:1\nupstream = 127.0.0.1:1\n", "[server:a] upstream = 127.0.0.1:1: is an address of Headgate itself"),
        (
            "[server:a]\nlisten = 127.0.0.1:1\nupstream = localhost:2\n[server:b]\nlisten = 127.0.0.1:2\nupstream = h:3\n",
            "[server:a] upstream = localhost:2: is an address of Headgate itself",
        ),
        (
            "[server:a]\nlisten = 127.0.0.1:1\nupstream = h:3\n"
            "[server:b]\nlisten = 127.0.0.1:2\nupstream = sentinel://h,127.0.0.1:1/m\n",
            "[server:b] upstream = 127.0.0.1:1: is an address of Headgate itself",
        ),
        (
            "[server:a]\nlisten = 127.0.0.1:1\nupstream = h:3\n[server:b]\nlisten = 127.0.0.1:2\nupstream = cluster://localhost:1\n",
            "[server:b] upstream = localhost:1: is an address of Headgate itself",
        ),
        (
            "[headgate]\nlisten = 127.0.0.1:5\nupstream = 127.0.0.1:2\n[server:b]\nlisten = 127.0.0.1:2\nupstream = h:3\n",
            "127.0.0.1:2 of upstream are the same address",
        ),
        (
            "[server:a]\nlisten = 127.0.0.1:1\nupstream = 127.0.0.1:3\n[listener:l]\nlisten = 127.0.0.1:3\nserver = a\n",
            "is an address of Headgate itself",
        ),
        ("[listener:l]\nlisten = h:1\nserver = x\n", "[listener:l] server = x: there is no [server:x]"),
        (
            "[server:a]\nlisten = h:1\nupstream = h:2\n[listener:l]\nlisten = h:3\n",
            "[listener:l] server =: [headgate] is no server: it says neither listen nor upstream",
        ),
        ("[deny:d]\nservers = x\n", "[deny:d] servers = x: there is no [server:x]"),
        ("[deny:d]\nservers = default, ,x\n", "[deny:d] servers"),
        ("[server:a]\nlisten = h:1\nupstream = h:2\n[deny:d]\nservers = default\n", "[headgate] is no server"),
        (
            "[headgate]\nupstream_password = s3cret\n[server:a]\nlisten = h:1\nupstream = h:2\n",
            "[headgate] upstream_password = ********: belongs to an upstream, and [headgate] has none",
        ),
        (
            "[server:a]\nlisten = h:1\nupstream = h:2\nreconnect_min = 9s\n",
            "[server:a] reconnect_min = 9s: reconnect_min (9s) is longer than reconnect_max (2s)",
        ),
        ("[server:a]\nlisten = rediss://h:1\nupstream = h:2\n", "tls_certificate"),
        (
            "".join(f"[server:s{n}]\nlisten = h:{n + 1}\nupstream = h:{n + 1000}\n" for n in range(65)),
            "[server:s64]: is one server too many; expected at most 64",
        ),
    ]:
        path = tmp_path / "h.ini"
        path.write_text(text)
        result = run_headgate("-t", "-c", path)
        assert result.returncode == 1, text
        assert said in result.stderr, text
        assert "s3cret" not in result.stderr, text


def test_what_two_rules_are_to_each_other_goes_by_server(tmp_path):
    """A rule is not covered by one of another server; one of the same is told of, as ever."""
    servers = "[server:a]\nlisten = 127.0.0.1:1\nupstream = h:1\n[server:b]\nlisten = 127.0.0.1:2\nupstream = h:2\n"
    rules = "[latency]\nenabled = on\nservers = {}\n[latency:x]\ncommands = *\nservers = {}\n[latency:y]\ncommands = get\nservers = {}\n"

    def warnings(*names):
        path = tmp_path / "h.ini"
        path.write_text(servers + rules.format(*names))
        result = run_headgate("-t", "-c", path)
        assert result.returncode == 0, result.stderr
        return result.stderr

    assert "[latency:y]" in warnings("", "a", "a")
    assert "[latency:y]" not in warnings("", "a", "b")
    assert "[latency:y]" not in warnings("", "a", "")
    assert "[latency:x]: does nothing" in warnings("b", "a", "b")


def test_counters_go_by_what_is_measured_where_they_are(tmp_path):
    """Those of all servers count where [latency] measures; where it measures for none of theirs, they are a fault."""
    servers = "[server:a]\nlisten = 127.0.0.1:1\nupstream = h:1\n[server:b]\nlisten = 127.0.0.1:2\nupstream = h:2\n"

    def check(counted):
        path = tmp_path / "h.ini"
        path.write_text(f"{servers}[latency]\nenabled = on\nservers = a\n[counters]\nenabled = on\nservers = {counted}\n")
        return run_headgate("-t", "-c", path)

    assert check("").returncode == check("a b").returncode == check("a").returncode == 0
    assert check("b").returncode == 1 and "[counters] enabled = on: would write nothing" in check("b").stderr
