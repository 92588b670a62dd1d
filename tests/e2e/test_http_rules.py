"""What each rule has counted, as metrics and in /stats.json."""


from harness.http import ask, samples, stats_json
from harness.resp import OK, Error, wait_for

LIMITS = "[limit:writes]\ncommands = set\nkeys = k*\nper = user\nlimit = 3\nwindow = 1h\n"
LIMITS += "[limit:watched]\ncommands = get\nper = user\nlimit = 1\nwindow = 1h\naction = observe\n"
LEASES = "[lease:jobs]\nkeys = lock:*\nrenew = 1/100\nmax_hold = 1h\n"


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


def test_leases(started, redis):
    headgate = started(redis, LEASES, threads=3)
    holders = [headgate.connect() for _ in range(3)]
    for number, holder in enumerate(holders):
        assert holder("SET", f"lock:{number}", "me", "NX", "PX", 30_000) == OK

    def count(name, rule="jobs"):
        return int(shown(headgate).get(f'headgate_lease_rule_{name}{{rule="{rule}"}}', 0))

    wait_for(lambda: count("acquired_total") == 3 and count("held") == 3, what="the locks to be watched")
    wait_for(lambda: count("renewals_total") > 3, what="renewals")
    with redis.connect() as thief:
        thief("SET", "lock:0", "thief")
    wait_for(lambda: count("lost_total") == 1 and count("held") == 2, what="the loss")
    assert holders[1]("DEL", "lock:1") == 1
    wait_for(lambda: count("held") == 1, what="the release")
    # A lock goes over to the rule that has its key now.
    headgate.write_rules(LEASES.replace("jobs", "others"))
    with headgate.admin() as admin:
        admin("RELOAD")
    wait_for(lambda: count("held", "others") == 1 and count("held") == 0, what="the lock to go over")
    told = rules_of(headgate)
    assert told["lease", "jobs"]["lost"] == 1 and told["lease", "others"]["held"] == 1
