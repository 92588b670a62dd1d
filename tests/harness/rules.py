"""Headgate with rules of policies, from the start or by a reload, and what it says of a file of them."""

import subprocess
import time

from harness.resp import OK, Error, wait_for
from harness.servers import BINARY


def launch(make_headgate, redis, pool, rules, listen=None, **options):
    """The rules are there from the start: no request can be earlier. listen: another address beside the usual one."""
    headgate = make_headgate(redis, pool=pool, start=False, **options)
    if listen:
        headgate.write_config(listen=f"{headgate.options['listen']}, {listen}")
    headgate.write_rules(rules)
    headgate.start()
    return headgate


def reload(headgate, rules, *clients):
    """Other rules, in force for these clients at the end: a rule of another policy, new each time, shows when their
    workers have them."""
    generation = f"generation:{time.monotonic_ns()}"
    headgate.write_rules(rules + f"[deny:generation]\ncommands = strlen\nkeys = {generation}\n")
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
    for client in clients:
        wait_for(lambda: isinstance(client("STRLEN", generation), Error), what="the new rules")


def check_file(tmp_path, options, section="limit:a"):
    """What headgate -t says of a file with that one section."""
    path = tmp_path / "h.ini"
    path.write_text("\n".join([f"[{section}]", *options]) + "\n")
    return subprocess.run([BINARY, "-t", "-c", path], capture_output=True, text=True, timeout=30)
