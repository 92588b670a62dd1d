"""One Headgate that takes over from another, with the same options."""

from harness.resp import wait_for
from harness.servers import BINARY


def successor(make_headgate, headgate):
    """A second one with the options of the first, not started."""
    options = {name: value for name, value in headgate.options.items() if name != "upstream"}
    second = make_headgate(headgate.options["upstream"], start=False, **options)
    second.port, second.admin_port = headgate.port, headgate.admin_port
    return second


def take_over(make_headgate, headgate):
    second = successor(make_headgate, headgate)
    second.launch([BINARY, "-c", str(second.config_path), "--take-over"])
    wait_for(lambda: "serving clients on" in second.log() or not second.is_alive(), 30, "the second one")
    assert second.is_alive(), second.log()
    return second
