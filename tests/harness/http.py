"""Asking Headgate by HTTP."""

import base64
import http.client
import json

from harness.servers import Headgate, free_port

TIMEOUT = 30.0


def start_with_http(redis, rules="", **options):
    """A Headgate with HTTP at headgate.http_port."""
    port = free_port()
    headgate = Headgate(redis, start=False, http=f"127.0.0.1:{port}", **options)
    headgate.http_port = port
    headgate.write_rules(rules)
    headgate.start()
    return headgate


class Answer:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def ask(headgate, path, headers=None, method="GET", body=None, connection=None):
    """One request. connection: one that stays open."""
    used = connection or http.client.HTTPConnection("127.0.0.1", headgate.http_port, timeout=TIMEOUT)
    used.request(method, path, body=body, headers=headers or {})
    response = used.getresponse()
    answer = Answer(response, response.read())
    if connection is None:
        used.close()
    return answer


def stats_json(headgate, **options):
    answer = ask(headgate, "/stats.json", **options)
    assert answer.status == 200, answer.text
    return answer.json()


def basic(password, user="operator"):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def samples(text):
    """{series as it is written: value as text} of metrics."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.rsplit(" ", 1) for line in lines)
