"""headgate --ping: what a health check hears."""

import socket
import threading

import pytest

from harness.certificates import certificates
from harness.global_limits import Stopped
from harness.servers import free_port, run_headgate
from harness.tls import start_with_tls


def ping(headgate):
    return run_headgate("--ping", "-c", headgate.config_path)


def test_who_serves_is_healthy(redis, make_headgate):
    headgate = make_headgate(redis)
    result = ping(headgate)
    assert (result.returncode, result.stdout) == (0, "+PONG\n"), result.stderr
    headgate.terminate()
    result = ping(headgate)
    assert result.returncode == 1 and "Connection refused" in result.stderr


@pytest.mark.parametrize(
    ("rules", "options", "answer"),
    [
        ("[limit:a]\nper = all\nlimit = 1\nwindow = 1h\n", {}, "-RATELIMITED a"),
        ("[deny:a]\ncommands = @connection\n", {}, "-DENIED a"),
        ("", {"allow": "ip:10.0.0.0/8"}, "-DENIED headgate"),
    ],
)
def test_a_rule_takes_nobody_out_of_service(redis, make_headgate, rules, options, answer):
    headgate = make_headgate(redis, start=False, **options)
    headgate.write_rules(rules)
    headgate.start()
    ping(headgate)
    result = ping(headgate)
    assert result.returncode == 0 and result.stdout.startswith(answer), result


def test_without_redis_it_is_alive_alone(make_headgate):
    headgate = make_headgate(f"127.0.0.1:{free_port()}", upstream_wait="100ms")
    result = ping(headgate)
    assert result.returncode == 1 and result.stdout.startswith("-")
    assert run_headgate("--ping=admin", "-c", headgate.config_path).stdout == "+PONG\n"
    result = run_headgate("--ping=clients", "-c", headgate.config_path)
    assert result.returncode == 1 and "expected --ping or --ping=admin" in result.stderr


def test_where_clients_need_more_the_admin_port_is_asked(redis, make_headgate):
    headgate = make_headgate(redis, start=False)
    headgate.write_config(proxy_protocol="required", proxy_from="10.0.0.0/8", admin_password="secret")
    headgate.start()
    result = ping(headgate)
    assert result.returncode == 0 and result.stdout.startswith("-NOAUTH ")
    headgate.write_config(admin="")
    result = ping(headgate)
    assert result.returncode == 1 and "none can be asked" in result.stderr


def test_where_all_is_tls_it_is_asked_by_tls(redis, make_headgate):
    """Clients' address; where they need a certificate, the admin port; and if that is in vain, too, it is said."""
    headgate = start_with_tls(make_headgate, redis, admin="")
    result = ping(headgate)
    assert (result.returncode, result.stdout) == (0, "+PONG\n"), result.stderr
    with Stopped(headgate):
        result = run_headgate("--ping", "-c", headgate.config_path, timeout=60)
        assert result.returncode == 1 and "timed out" in result.stderr
    headgate.write_config(client_certificates="required", tls_ca=certificates().ca)
    result = ping(headgate)
    assert result.returncode == 1 and "none can be asked" in result.stderr


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 \x1b[2J\r\n", b"+PON", None])
def test_somebody_else_is_not_healthy(tmp_path, answer):
    """Who closes, says something else, says half, says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = tmp_path / "headgate.ini"
        path.write_text(f"[headgate]\nlisten = 127.0.0.1:{server.getsockname()[1]}\n")
        released = threading.Event()

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    released.wait(30)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        result = run_headgate("--ping", "-c", path, timeout=60)
        released.set()
        thread.join()
    assert result.returncode == 1 and "\x1b" not in result.stdout
