"""CONFIG on the admin port: the options one by one, and values that are set at run time."""

import pytest

from harness.admin import text
from harness.resp import OK, PONG, Closed, Error, encode, wait_for
from harness.several import Several

RULES = "[limit:search]\ncommands = echo get\nper = connection\nlimit = 3\nwindow = 1m\n"


@pytest.fixture
def headgate(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", reload_on_change="off", max_clients=100, upstream_password="")
    headgate.write_rules(RULES)
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
    return headgate


@pytest.fixture
def admin(headgate):
    with headgate.admin() as admin:
        yield admin


def get(admin, *patterns):
    reply = [item.decode() for item in admin("CONFIG", "GET", *patterns)]
    return dict(zip(reply[::2], reply[1::2], strict=True))


def show(admin, name):
    """The fields of the option's line."""
    lines = text(admin("CONFIG", "SHOW", name)).splitlines()
    assert len(lines) == 1, lines
    return dict(part.split("=", 1) for part in lines[0].split(" "))


def change(admin, *pairs):
    """CONFIG SET, once the change before, of others, is through."""
    answer = None

    def is_taken():
        nonlocal answer
        answer = admin("CONFIG", "SET", *pairs)
        return not (isinstance(answer, Error) and b"under way" in bytes(answer))

    wait_for(is_taken, what="the change to be taken")
    return answer


def test_get_gives_names_and_values(admin):
    assert get(admin, "max_clients") == {"max_clients": "100"}
    assert get(admin, "MAX_CL*", "pool", "max_clients") == {"max_clients": "100", "pool": "shared"}
    assert get(admin, "nonsense") == {}
    everything = get(admin, "*")
    assert len(everything) > 70 and everything["lanes"] == "8" and "" in everything.values()
    assert get(admin, "limit:search.*")["limit:search.limit"] == "3"
    assert get(admin, "*.commands") == {"limit:search.commands": "echo get"}


def test_show_says_who_says_so(headgate, admin):
    line = show(admin, "max_clients")
    place = headgate.config_path.read_text().splitlines().index("max_clients = 100") + 1
    assert line["value"] == "100" and line["default"] == "10000" and line["reload"] == "yes" and line["set"] == "yes"
    assert line["source"] == f"{headgate.config_path}:{place}"
    assert show(admin, "lanes")["source"] == "default" and show(admin, "lanes")["reload"] == "restart"
    assert show(admin, "limit:search.limit")["source"].startswith(str(headgate.config_path))
    assert change(admin, "max_clients", 50) == OK
    line = text(admin("CONFIG", "SHOW", "max_clients")).strip()
    assert 'value=50 default=10000 reload=yes set=yes source="CONFIG SET"' in line
    assert isinstance(admin("CONFIG", "SHOW", "nonsense"), Error)
    assert len(text(admin("CONFIG", "SHOW")).splitlines()) == len(get(admin, "*"))


def test_secrets_are_not_told(redis, make_headgate, tmp_path):
    (tmp_path / "password").write_text("from a file\n")
    headgate = make_headgate(
        redis, admin_password_file=tmp_path / "password", upstream_password="open sesame", sentinel_password=""
    )
    with headgate.admin() as admin:
        assert admin("AUTH", "from a file") == OK
        values = get(admin, "*")
        assert values["admin_password"] == values["upstream_password"] == "********"
        assert values["sentinel_password"] == ""
        assert show(admin, "admin_password")["source"] == str(tmp_path / "password")
        shown = text(admin("CONFIG", "SHOW")) + str(values) + text(admin("CONFIG"))
        assert "sesame" not in shown and "from a file" not in shown
        answer = change(admin, "upstream_password", "another secret", "max_clients", "none")
        assert isinstance(answer, Error) and b"another secret" not in bytes(answer)
        assert isinstance(change(admin, "upstream_password", "********"), Error)
        assert change(admin, "upstream_password", "another secret") == OK
    assert "sesame" not in headgate.log() and "another secret" not in headgate.log()


def is_served(headgate):
    """Whether one client more is. With TLS it is closed before it could be told why not."""
    try:
        with headgate.connect() as client:
            return client("PING") == PONG
    except (Closed, OSError):
        return False


def test_set_is_as_a_reload(headgate, admin):
    first = headgate.connect()
    assert first("PING") == PONG
    assert change(admin, "max_clients", 1) == OK
    assert not is_served(headgate)
    assert change(admin, "max_clients", 5, "CLIENT_pipeline_limit", 7) == OK
    assert get(admin, "client_pipeline_limit", "max_clients") == {"client_pipeline_limit": "7", "max_clients": "5"}
    with headgate.connect() as second:
        assert second("PING") == PONG
    assert "max_clients = 5" in text(admin("CONFIG"))
    assert "main: max_clients is another now" in headgate.log()


UNSOUND = [
    (("max_clients", "many"), b"[headgate] max_clients = many: is not a whole number; expected a number from 1"),
    (("max_clients", ""), b"is empty"), (("max_clientz", "5"), b'expected a known option, perhaps "max_clients"'),
    (("lanes", "2"), b"takes a restart"), (("log_file", "/tmp/x"), b"for the file alone"),
    (("admin_password", "x"), b"for the file alone"), (("admin_changes", "anyone"), b"for the file alone"),
    (("upstream_password_file", "/etc/passwd"), b"for the file alone"),
    (("limit:search.limit", "x"), b"[limit:search] limit = x: is not a"),
    (("nonsense.limit", "1"), b"there is no such section"),
    (("reconnect_min", "1h"), b"reconnect_min (1h) is longer than reconnect_max ("),
    (("max_clients", "5", "MAX_CLIENTS", "6"), b"is given twice"), (("max_clients", "5\r\n+OK"), b"control character"),
    (("max_clients", b"5\0"), b"control character"), (("", "5"), b"unknown option"), (("allow", "x" * 5000), b"too long"),
    (("allow", "10.0.0.0/8 nonsense"), b"allow"),
]


def test_what_is_not_sound_changes_nothing(headgate, admin):
    before = get(admin, "*")
    for pairs, problem in UNSOUND:
        answer = change(admin, "drain_timeout", "7s", *pairs)
        assert isinstance(answer, Error) and bytes(answer).startswith(b"ERR nothing was changed: "), answer
        assert problem in bytes(answer) and b"CONFIG SET:" not in bytes(answer), answer
        assert get(admin, "*") == before, pairs


def test_a_reload_says_what_is_gone(headgate, admin):
    assert change(admin, "max_clients", 50, "limit:search.limit", 9) == OK
    lines = text(admin("RELOAD", "VERBOSE")).splitlines()
    for name in ("max_clients", "limit:search.limit"):
        assert f"{name} was set at run time; from now on it is as the file says" in lines
        assert f"{name} was set at run time" in headgate.log()
    assert "max_clients is another now" in lines and "[limit:search] is another now" in lines
    assert get(admin, "max_clients", "limit:search.limit") == {"max_clients": "100", "limit:search.limit": "3"}
    assert show(admin, "max_clients")["source"].startswith(str(headgate.config_path))
    wait_for(lambda: admin("RELOAD", "VERBOSE") == b"nothing was changed in the file\n", what="the next one")


def test_a_pipeline_of_changes_is_taken_in_order(headgate, admin):
    for number in range(1, 30):
        admin.send(encode("CONFIG", "SET", "max_clients", number) + encode("CONFIG", "GET", "max_clients"))
    replies = admin.read_many(58)
    assert replies[::2] == [OK] * 29
    assert [int(reply[1]) for reply in replies[1::2]] == list(range(1, 30))


def test_who_asks_may_be_gone_before_the_answer(headgate):
    for number in range(20):
        with headgate.admin() as admin:
            admin.request("CONFIG", "SET", "max_clients", 60 + number)
    with headgate.admin() as admin:
        assert change(admin, "max_clients", 90) == OK


def test_several_servers(make_redis, make_headgate):
    several = Several(make_headgate, {"a": make_redis(), "b": make_redis()}, own={"b": {"max_clients": 7}}, max_clients=50)
    with several.headgate.admin() as admin:
        assert get(admin, "*max_clients") == {"max_clients": "50", "server:a.max_clients": "50", "server:b.max_clients": "7"}
        assert show(admin, "server:a.max_clients")["source"] == show(admin, "max_clients")["source"]
        assert get(admin, "upstream", "listen", "server:*.drain_timeout") == {}
        assert change(admin, "server:a.cut_through", "128kb") == OK
        assert change(admin, "max_clients", 322) == OK
        assert get(admin, "*max_clients") == {"max_clients": "322", "server:a.max_clients": "322", "server:b.max_clients": "7"}
        told = {"cut_through": "64kb", "server:a.cut_through": "128kb", "server:b.cut_through": "64kb"}
        assert get(admin, "*cut_through") == told
        assert b"is of the whole process" in bytes(change(admin, "server:a.drain_timeout", "1s"))
        assert b"takes a restart" in bytes(change(admin, "server:a.lanes", "3"))
        assert isinstance(change(admin, "upstream_user", "x"), Error)
        assert isinstance(admin("SERVER", "a", "CONFIG", "GET", "lanes"), Error)
    for name in ("a", "b"):
        assert several.connect(name)("PING") == PONG
