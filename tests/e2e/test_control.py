"""Headgate's own commands to Redis: scripts by digest with one retry, and that they are nobody else's business."""

import pytest

from harness.admin import stats
from harness.fake_redis import always
from harness.resp import PONG, Closed, wait_for
from harness.servers import sanitizer_overhead
from harness.target import client_list, script_calls


def control(headgate):
    return {name: int(value) for name, value in stats(headgate, "control").items()}


def reconnect(redis, headgate):
    """Ends all of Headgate's connections; it makes new ones and asks Redis anew."""
    asked = script_calls(redis)["evalsha"]
    with redis.connect() as client:
        own_id = client("CLIENT", "ID")
        for other in client_list(client):
            if int(other["id"]) != own_id:
                client("CLIENT", "KILL", "ID", other["id"])

    def asked_again():
        with headgate.connect() as client:
            try:
                assert client("PING") == PONG
            except Closed:
                return False
        return script_calls(redis)["evalsha"] > asked

    wait_for(asked_again, what="the script to be run on the new connection")


def test_a_script_is_sent_whole_once(redis, pool, make_headgate):
    headgate = make_headgate(redis, pool=pool)
    wait_for(lambda: control(headgate)["control_script_loads_total"] == 1, what="the first script")
    assert script_calls(redis) == {"eval": 1, "evalsha": 1}
    for number in range(2, 4):
        reconnect(redis, headgate)
        assert control(headgate)["control_script_loads_total"] == 1
        assert script_calls(redis) == {"eval": 1, "evalsha": number}
    assert control(headgate)["control_errors_total"] == 0


def test_a_script_that_redis_has_forgotten_is_sent_again(redis, pool, make_headgate):
    headgate = make_headgate(redis, pool=pool)
    wait_for(lambda: control(headgate)["control_script_loads_total"] == 1, what="the first script")
    for number in range(2, 5):
        with redis.connect() as client:
            client("SCRIPT", "FLUSH", "SYNC")
        reconnect(redis, headgate)
        wait_for(lambda: control(headgate)["control_script_loads_total"] == number, what="the script to be sent again")
        assert script_calls(redis) == {"eval": number, "evalsha": number}
    assert control(headgate)["control_errors_total"] == 0


def test_the_retry_is_only_one(fake, make_headgate):
    """A Redis that never knows a script, not even when it gets it whole, is not asked for ever."""
    asked = []

    def refuse(_lane, arguments):
        asked.append(arguments[0].upper())
        return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"

    fake.answers["EVALSHA"] = fake.answers["EVAL"] = refuse
    headgate = make_headgate(fake.url)
    wait_for(lambda: control(headgate)["control_errors_total"] == 1, what="the error to be counted")
    with headgate.connect() as client:
        assert client("PING") == PONG
    assert asked == [b"EVALSHA", b"EVAL"]


@pytest.mark.parametrize("count, name, reason", ((8 << 20, b":1\r\n", "more than are taken"), (3000, b"+x\r\n", "3000 commands")))
def test_a_list_of_commands_that_is_too_long_is_an_error(fake, make_headgate, count, name, reason):
    """Read, it would take 20 times its bytes, and hold up everybody."""
    fake.answers["COMMAND"] = always(b"*%d\r\n" % count + name * count)
    headgate = make_headgate(fake.url)
    headgate.await_log(reason)
    with headgate.connect() as client:
        assert client("PING") == PONG
    assert (control(headgate)["control_errors_total"] > 0) == (reason == "more than are taken")
    assert headgate.peak_rss() < (64 << 20) + sanitizer_overhead()


def test_clients_are_served_where_scripts_are_forbidden(make_redis, pool, make_headgate):
    redis = make_redis("--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
    headgate = make_headgate(redis, pool=pool)
    with headgate.connect() as client:
        assert client("PING") == PONG
        assert client("SET", "a", "1") == b"OK"
        wait_for(lambda: control(headgate)["control_errors_total"] >= 1, what="the error to be counted")
        assert client("GET", "a") == b"1"
    assert "scripts do not work on this Redis" in headgate.log()
