"""What is served by HTTP: each path, and that it says what is so."""

import http.client
import json
import re
import signal
import socket

import pytest

from harness.admin import send_and_await, stats
from harness.http import ask, samples, stats_json
from harness.latency import SPIN
from harness.resp import OK, PONG, Error, encode, wait_for
from harness.rules import check_file
from harness.servers import BINARY, REPOSITORY, Headgate, free_port
from harness.several import Several
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

MEASURED = "[latency]\nenabled = on\nslowlog_threshold = 10ms\nbiglog_reply = 10kb\n[events]\nenabled = on\n"

RULES = "[limit:few]\nlimit = 2\nwindow = 5m\nkeys = counted\nper = name\n[lease:locks]\nkeys = lock:*\n"


def test_a_take_over_is_not_ready_and_ready(started, redis):
    """Who connects is answered by the new one at once, while the old one drains and says so to who stays with it."""
    old = started(redis, drain_timeout="20s")
    busy = old.connect()
    send_and_await(old, busy, encode("SET", "k", "v")[:-4])
    kept = http.client.HTTPConnection("127.0.0.1", old.http_port, timeout=30)
    assert ask(old, "/live", connection=kept).status == 200
    new = Headgate(redis, start=False, **{name: old.options[name] for name in ("listen", "admin", "http")})
    try:
        new.launch([BINARY, "-c", str(new.config_path), "--take-over"])
        new.await_log("HTTP on")
        old.signal(signal.SIGTERM)
        old.await_log("draining")
        assert ask(old, "/ready", connection=kept).status == 503
        wait_for(lambda: ask(old, "/ready").status == 200, what="the new one to be ready")
        for _ in range(20):
            assert ask(old, "/ready").status == 200
        kept.close()
        busy.close()
        assert old.wait() == 0
        assert ask(old, "/ready").status == 200
    finally:
        new.finish()


def test_metrics_has_every_counter(started, redis):
    headgate = started(redis, MEASURED)
    with headgate.connect() as client:
        assert client("PING") == PONG
    shown = samples(ask(headgate, "/metrics").text)
    names = {series.split("{")[0] for series in shown}
    told = stats(headgate)
    for name in told:
        if name in ("headgate_version", "process_id", "uptime_in_seconds", "threads", "pool", "config_file", "upstream",
                    "redis_version", "redis_clock_offset_us", "resident_bytes", "counting_since_seconds"):  # fmt: skip
            continue
        expected = "headgate_" + name.replace("_days", "_seconds").replace("_minutes", "_records")
        assert expected + ("_now" if name + "_total" in told else "") in names, name
    assert shown["headgate_clients_accepted_total"] == stats(headgate)["clients_accepted_total"]


def test_operations_with_series_of_their_own_are_bounded(started, redis):
    """Names that clients choose cannot make series without end; what is beyond is told together."""
    headgate = started(redis, "[latency]\nenabled = on\nby = name\nmax_interfaces = 2000\n")
    with headgate.connect() as client:
        for i in range(900):
            client("CLIENT", "SETNAME", f"n{i}")
            client("GET", "k")

    def all_are_counted():
        shown = samples(ask(headgate, "/metrics").text)
        counts = {k: int(v) for k, v in shown.items() if k.startswith("headgate_request_duration_seconds_count")}
        return counts if sum(counts.values()) >= 1800 else None

    counts = wait_for(all_are_counted, what="all requests to be counted")
    assert len(counts) <= 257
    assert counts['headgate_request_duration_seconds_count{operation="other"}'] > 100
    assert len(stats_json(headgate)["operations"]) <= 2000


def test_page_is_one_document_without_outside_resources(started, redis):
    headgate = started(redis)
    page = ask(headgate, "/")
    assert page.headers["content-type"].startswith("text/html") and page.text.lower().startswith("<!doctype html>")
    assert page.text.count("<script") == page.text.count("</script>") == 1
    for tag in re.findall(r"<(?!a )[a-z]+ [^>]*", page.text.split("<style>")[0] + page.text.split("</style>")[1].split("<script>")[0]):
        assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", tag), tag
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_all_answers_say_how_they_may_be_used(started, redis):
    headgate = started(redis)
    for path in ("/", "/metrics", "/stats.json", "/counters.json", "/live", "/ready", "/nothing"):
        answer = ask(headgate, path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        if path in ("/", "/live"):
            head = ask(headgate, path, method="HEAD")
            assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(answer.body)))


def test_unix_socket(started, redis, tmp_path):
    path = tmp_path / "http.sock"
    headgate = Headgate(redis, http=f"unix:{path}")
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /live HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert client.makefile("rb").read().endswith(b"\r\n\r\nlive\n")
    finally:
        headgate.finish()
    assert not path.exists()


FAULTS = [
    (["http = 0.0.0.0:{}"], "is open to other machines without a password"), (["http = rediss://127.0.0.1:{}"], "has TLS"),
    (["http = 127.0.0.1:{}", "admin = 127.0.0.1:{}"], "is an address of admin and of http"),
    (["http = 127.0.0.1:{}", "listen = localhost:{}"], "are the same address"),
    (["http = 127.0.0.1:{}", "upstream = 127.0.0.1:{}"], "is an address of http and of upstream"),
]


def test_faults(tmp_path):
    for options, fault in FAULTS:
        port = free_port()
        checked = check_file(tmp_path, [line.format(port) for line in options], section="headgate")
        assert checked.returncode == 1 and fault in checked.stderr, checked.stderr


def test_reload_is_told(started, redis):
    headgate = started(redis)
    with headgate.admin() as admin:
        headgate.write_config(log_level="nonsense")
        admin("RELOAD")
        shown = samples(ask(headgate, "/metrics").text)
        assert shown["headgate_config_last_reload_successful"] == "0"
        headgate.write_config(log_level="info", http_names="headgate.example")
        admin("RELOAD")
    headgate.await_log("the configuration was reloaded")
    # A snapshot may be half a second old, but a text is of one moment.
    wait_for(
        lambda: samples(ask(headgate, "/metrics").text)["headgate_config_last_reload_successful"] == "1",
        what="the reload to be told",
    )
    assert ask(headgate, "/live", headers={"Host": "headgate.example:6391"}).status == 200


def test_metrics_in_the_format_that_was_asked_for(started, redis):
    """A strict parser takes each, and each series is explained."""
    headgate = started(redis, MEASURED + RULES)
    with headgate.connect() as client:
        client("GET", "k")
    wait_for(lambda: "request_duration" in ask(headgate, "/metrics").text, what="the request to be counted")
    plain = ask(headgate, "/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4") and "# EOF" not in plain.text
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    modern = ask(headgate, "/metrics", headers={"Accept": accept})
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n") and "# TYPE headgate_build info" in modern.text
    for parse, answer in ((parse_prometheus, plain), (parse_openmetrics, modern)):
        families = list(parse(answer.text))
        types = {family.name: family.type for family in families}
        assert len(types) == len(families) and all(family.documentation for family in families)
        assert types["headgate_request_duration_seconds"] == "histogram"
        assert types["headgate_requests"] == types["headgate_limit_rule_admitted"] == "counter"
        assert types["headgate_clients_connected"] == types["headgate_lease_rule_held"] == "gauge"


def test_examples_for_prometheus_name_what_there_is(started, redis):
    """Each name of the alerts and the dashboard is one of /metrics, and each expression is sound as far as JSON goes."""
    headgate = started(redis, MEASURED + RULES)
    with headgate.connect() as client:
        client("GET", "k")
    wait_for(lambda: "request_duration" in ask(headgate, "/metrics").text, what="the request to be counted")
    names = {series.split("{")[0] for series in samples(ask(headgate, "/metrics").text)}
    examples = REPOSITORY / "conf" / "examples" / "prometheus"
    dashboard = json.loads((examples / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 30
    alerts = (examples / "headgate-alerts.yml").read_text()
    used = set(re.findall(r"\bheadgate_\w+", "\n".join(expressions) + alerts))
    assert len(used) > 40 and used <= names, used - names
    # What is told by rule is there to be looked at, and what is wrong with a rule raises an alert that names it.
    by_rule = {name for name in names if "_rule_" in name}
    assert len(by_rule) == 10 and by_rule <= used, by_rule - used
    alerts_by_rule = [alert for alert in alerts.split("- alert:")[1:] if "_rule_" in alert]
    assert len(alerts_by_rule) == 3 and all("$labels.rule" in alert for alert in alerts_by_rule), alerts_by_rule


@pytest.fixture
def make_several(make_headgate, make_redis):
    """A cache and a queue behind one Headgate with HTTP."""

    def make(rules=MEASURED, **options):
        port = free_port()
        servers = {"cache": make_redis(), "queue": make_redis()}
        several = Several(make_headgate, servers, rules, http=f"127.0.0.1:{port}", **options)
        several.headgate.http_port = port
        wait_for(lambda: ask(several.headgate, "/ready").status == 200, what="both to be reached")
        return several

    return make


def server_of(series):
    found = re.search(r'[{,]server="(\w+)"', series)
    return found.group(1) if found else None


@pytest.mark.parametrize("openmetrics, threads", [(False, 1), (True, 3)])
def test_metrics_of_several_servers(make_several, openmetrics, threads):
    several = make_several(threads=threads)
    with several.connect("cache") as cache, several.connect("queue") as queue:
        for _ in range(30):
            cache("GET", "k")
        for _ in range(4):
            queue("LPUSH", "k", "v")
            queue("GET", "k")
        accept = {"Accept": "application/openmetrics-text"} if openmetrics else {}
        count = 'headgate_request_duration_seconds_count{{server="{}",operation="{}"}}'

        def counted():
            text = ask(several.headgate, "/metrics", headers=accept).text
            shown = samples(text)
            whole = shown.get(count.format("cache", "get")) == "30" and shown.get(count.format("queue", "lpush")) == "4"
            return (text, shown) if whole else None

        text, shown = wait_for(counted, what="the requests to be counted")
        assert shown[count.format("queue", "get")] == "4" and count.format("cache", "lpush") not in shown
        assert shown['headgate_operation_errors_total{server="queue",operation="get"}'] == "4"
        assert shown['headgate_clients_connected{server="cache"}'] == "1"
        assert int(shown['headgate_requests_total{server="cache"}']) >= 30 > int(shown['headgate_requests_total{server="queue"}'])
        assert shown['headgate_worker_threads{server="queue"}'] == str(threads)
    # A strict parser takes families that come once only, with all of their series together.
    parse = parse_openmetrics if openmetrics else parse_prometheus
    families = [family.name for family in parse(text)]
    assert len(families) == len(set(families))
    of_all = {series.split("{")[0] for series in shown if server_of(series) is None}
    for name in ("build_info", "start_time_seconds", "draining", "resident_memory_bytes", "reloads_total",
                 "config_last_reload_successful"):  # fmt: skip
        assert f"headgate_{name}" in of_all
    of_each = {name: {series.split("{")[0] for series in shown if server_of(series) == name} for name in ("cache", "queue")}
    assert not of_all & of_each["cache"] and of_each["cache"] == of_each["queue"]
    assert len(of_each["cache"]) > 4 * len(of_all)
    for name in ("cache", "queue"):
        port = several.redis[name].port
        assert any(s.startswith("headgate_upstream_info{") and server_of(s) == name and f":{port}" in s for s in shown)


def test_not_ready_if_one_server_is_without_redis(make_several):
    several = make_several()
    several.redis["queue"].kill()
    wait_for(lambda: ask(several.headgate, "/ready").status == 503, what="the loss of one to be noticed")
    assert ask(several.headgate, "/ready").text == "Redis cannot be reached: queue\n"
    with several.connect("cache") as client:
        assert client("PING") == PONG
    assert samples(ask(several.headgate, "/metrics").text)['headgate_upstream_up{server="cache"}'] == "1"
    several.redis["cache"].kill()
    wait_for(lambda: "cache" in ask(several.headgate, "/ready").text, what="the loss of the other to be noticed")
    assert ask(several.headgate, "/ready").text == "Redis cannot be reached: cache, queue\n"
    several.redis["queue"].start()
    wait_for(lambda: "queue" not in ask(several.headgate, "/ready").text, what="the one to be back")
    several.redis["cache"].start()
    wait_for(lambda: ask(several.headgate, "/ready").status == 200, what="both to be back")


def test_stats_json_of_several_servers(make_several):
    several = make_several(MEASURED + RULES, threads=3)
    with several.connect("cache") as cache, several.connect("queue") as queue, several.connect("queue") as idle:
        for name, client in (("c", cache), ("q", queue)):
            client("CLIENT", "SETNAME", name)
            client("SET", "lock:" + name, "token", "NX", "PX", "30000")
            client("SET", "big" + name, "x" * 20000)
            client("GET", "big" + name)
        assert idle("PING") == PONG
        for _ in range(5):
            cache("INCR", "counted")
        cache("EVAL", SPIN, 0, 20_000)

        def whole():
            told = stats_json(several.headgate)
            refusals = any(event["count"] == 3 for event in told["events"] if event["kind"] == "refusals")
            return told if len(told["leases"]) == len(told["big"]) == 2 and told["slow"] and refusals else None

        told = wait_for(whole, what="all to be told of")
    servers = [(line["server"], line["up"], line["clients"], line["threads"]) for line in told["servers"]]
    assert servers == [("cache", True, 1, 3), ("queue", True, 2, 3)]
    assert told["threads"] == 6 and told["ready"] is True and told["clients"]["count"] == 3
    assert {(row["server"], row["name"]) for row in told["clients"]["rows"]} == {("cache", "c"), ("queue", "q"), ("queue", "")}
    assert {(line["server"], line["key"]) for line in told["leases"]} == {("cache", "lock:c"), ("queue", "lock:q")}
    assert all(lease["left"] > 0 for lease in told["leases"])
    assert {(line["server"], line["command"].split('"')[3]) for line in told["big"]} == {("cache", "bigc"), ("queue", "bigq")}
    assert any(entry["command"].startswith('"EVAL" "(') and entry["server"] == "cache" for entry in told["slow"])
    assert "redis.call" not in str(told), "values are shown to nobody unasked"
    rules = [(line["server"], line["admitted"], line["refused"]) for line in told["limits"] if "admitted" in line]
    assert rules == [("cache", 2, 3), ("queue", 0, 0)]
    offender = next(line for line in told["limits"] if "offender" in line)
    assert offender["offender"] == "name:c" and 0 < offender["next_admission_ms"] <= 300000
    operations = {(operation["server"], operation["name"]): operation for operation in told["operations"]}
    incr = operations["cache", "incr"]
    assert (incr["count"], incr["errors"], sum(incr["buckets"][1::2])) == (5, 3, 5) and ("queue", "incr") not in operations
    assert told["counters"]["clients_connected"] == 3 and told["counters"]["limit_refused_total"] == 3


def test_alerts_join_what_servers_have_with_what_the_process_has(make_several):
    """Without a word of it series with the label and series without it have nothing to do with each other."""
    several = make_several()
    shown = samples(ask(several.headgate, "/metrics").text)
    of_all = {series.split("{")[0] for series in shown if server_of(series) is None}
    alerts = (REPOSITORY / "conf" / "examples" / "prometheus" / "headgate-alerts.yml").read_text().split("- alert:")[1:]
    mixed = 0
    for alert in alerts:
        used = set(re.findall(r"\bheadgate_\w+", re.split(r"\n *(?:for|labels):", alert.partition("expr:")[2])[0]))
        if used & of_all and used - of_all:
            mixed += 1
            assert "ignoring (server)" in alert, alert
    assert mixed > 0


LIMITS = "[limit:writes]\ncommands = set\nkeys = k*\nper = user\nlimit = 3\nwindow = 1h\n"
LIMITS += "[limit:watched]\ncommands = get\nper = user\nlimit = 1\nwindow = 1h\naction = observe\n"


def shown(headgate, **options):
    return samples(ask(headgate, "/metrics", **options).text)


def rules_of(headgate):
    return {(rule.pop("policy"), rule.pop("rule")): rule for rule in stats_json(headgate)["rules"]}


def test_limits(started, redis):
    headgate = started(redis, LIMITS, threads=3)
    clients = [headgate.connect() for _ in range(3)]
    for number in range(5):
        reply = clients[number % 3]("SET", "k", "v")
        assert reply == OK if number < 3 else isinstance(reply, Error)
    for client in clients:
        client("GET", "k")
        client("GET", "k")
    values = shown(headgate)
    assert values['headgate_limit_rule_admitted_total{rule="writes"}'] == "3"
    assert values['headgate_limit_rule_refused_total{rule="writes"}'] == "2"
    assert values['headgate_limit_rule_delayed_total{rule="writes"}'] == "0"
    assert values['headgate_limit_rule_tracked{rule="writes"}'] == "1"
    assert values['headgate_limit_rule_refused_total{rule="watched"}'] == "0"
    assert values['headgate_limit_rule_observed_total{rule="watched"}'] == "5"
    told = rules_of(headgate)
    assert told["limit", "writes"] == {"admitted": 3, "refused": 2, "delayed": 0, "observed": 0, "tracked": 1}
    # A rule that is gone has no series, and one that stays goes on.
    headgate.write_rules(LIMITS.split("[limit:watched]")[0])
    with headgate.admin() as admin:
        admin("RELOAD")
    wait_for(lambda: not any('rule="watched"' in series for series in shown(headgate)), what="the rule to be gone")
    assert isinstance(clients[0]("SET", "k", "v"), Error)
    wait_for(lambda: shown(headgate)['headgate_limit_rule_refused_total{rule="writes"}'] == "3", what="the count")
