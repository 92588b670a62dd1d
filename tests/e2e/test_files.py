"""Files of the configuration that change: read again by themselves, as they settle, and only when they are sound."""

import signal
import time

import pytest

from harness.resp import OK, Error, wait_for

# Time in which a reload that must not come would have come: files settle for a second.
LATER = 3.5


def reloads(headgate):
    return headgate.log().count("the configuration was reloaded")


def failures(headgate):
    return headgate.log().count("the configuration was not reloaded: nothing was changed")


def await_reload(headgate, count):
    wait_for(lambda: reloads(headgate) >= count, what=f"reload {count}", seconds=30)


def put(path, text):
    """As editors do: another file takes the place."""
    fresh = path.with_name(path.name + ".fresh")
    fresh.write_text(text)
    fresh.rename(path)


def config(headgate):
    with headgate.admin() as admin:
        return admin("CONFIG").decode()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("one\n")
    path.chmod(0o600)
    return path


def test_a_change_of_the_ini_file_is_taken(redis, make_headgate):
    headgate = make_headgate(redis, max_clients=100)
    text = headgate.config_path.read_text().replace("max_clients = 100", "max_clients = 99")
    put(headgate.config_path, text)
    await_reload(headgate, 1)
    assert "max_clients = 99" in config(headgate)
    headgate.await_log("max_clients is another now")
    time.sleep(LATER)
    assert reloads(headgate) == 1


def test_a_change_is_left_alone_if_so_wished(redis, make_headgate):
    headgate = make_headgate(redis, reload_on_change="off")
    headgate.write_config(max_clients=99)
    time.sleep(LATER)
    assert reloads(headgate) == 0
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")


def test_links_are_followed_as_kubernetes_turns_them(redis, make_headgate, tmp_path):
    """password → ..data/password, ..data → a directory that is exchanged and then removed."""
    for number, text in enumerate(("one", "two")):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "password").write_text(text)
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "password").symlink_to("..data/password")
    headgate = make_headgate(redis, admin_password_file=tmp_path / "password")
    (tmp_path / "..tmp").symlink_to("..1")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    (tmp_path / "..0" / "password").unlink()
    (tmp_path / "..0").rmdir()
    await_reload(headgate, 1)
    with headgate.admin() as admin:
        assert admin("AUTH", "two") == OK


def test_a_file_that_vanishes_changes_nothing(redis, make_headgate, secret):
    headgate = make_headgate(redis, admin_password_file=secret)
    secret.unlink()
    wait_for(lambda: failures(headgate) == 1, what="the complaint", seconds=30)
    headgate.await_log(f"admin_password_file = {secret}: cannot be read: No such file or directory")
    time.sleep(LATER)
    assert failures(headgate) == 1, "it is said once"
    with headgate.admin() as admin:
        assert admin("AUTH", "one") == OK
        answer = admin("RELOAD")
        assert isinstance(answer, Error), answer
        secret.write_text("two\n")
        await_reload(headgate, 1)
    with headgate.admin() as admin:
        assert admin("AUTH", "two") == OK


def test_a_signal_while_the_last_one_is_still_worked_on(redis, make_headgate):
    """Whoever sends it hears nothing: what was written before it must be in force some time after it."""
    headgate = make_headgate(redis, threads=4, reload_on_change="off")
    for number in range(1000, 1040, 2):
        for wanted in (number, number + 1):
            headgate.write_config(max_clients=wanted)
            headgate.signal(signal.SIGHUP)
            time.sleep(0.0005 * (number % 7))
        wait_for(lambda: f"max_clients = {wanted}\n" in config(headgate), what="the last change")


def test_an_included_file_that_was_emptied_takes_no_rule_away(redis, make_headgate, tmp_path):
    """Whoever writes it anew empties it first, and on a full disk that is all that he does."""
    path = tmp_path / "conf.d" / "deny.ini"
    path.parent.mkdir()
    path.write_text("[deny:all]\ncommands = flushall\n")
    headgate = make_headgate(redis, include=tmp_path / "conf.d/*.ini")
    client = headgate.connect()
    path.write_text("")
    wait_for(lambda: f"{path} was emptied" in headgate.log(), what="the log line")
    time.sleep(LATER)
    assert client("FLUSHALL").startswith(b"DENIED all")
    assert reloads(headgate) == 0
    assert headgate.log().count("was emptied") == 1
    path.write_text("[deny:all]\ncommands = flushdb\n")
    await_reload(headgate, 1)
    assert client("FLUSHALL") == OK and client("FLUSHDB").startswith(b"DENIED all")
    path.write_text("")
    wait_for(lambda: headgate.log().count("was emptied") == 2, what="the log line")
    headgate.signal(signal.SIGHUP)
    await_reload(headgate, 2)
    wait_for(lambda: client("FLUSHDB") == OK, what="the rule to be gone")
