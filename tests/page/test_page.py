"""The page in a real Chromium: that it shows what is so, escapes what is hostile, and can be used by everybody."""

import contextlib
import http.server
import threading

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness.http import start_with_http
from harness.latency import SPIN
from harness.resp import Closed, wait_for
from harness.servers import Redis, free_port
from harness.several import Several

RULES = """
[latency]
enabled = on
slowlog_threshold = 10ms
biglog_reply = 10kb
[events]
enabled = on
[limit:few]
limit = 2
window = 5m
keys = counted
per = name
[lease:locks]
keys = lock:*
"""
NASTY = "<img src=x onerror='window.pwned=1'><script>window.pwned=2</script>"
SIZES = {"desktop": (1360, 900), "phone": (360, 780)}


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    # What an attacker's name server says.
    options.add_argument("--host-resolver-rules=MAP evil.example 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=webdriver.chrome.service.Service("/usr/bin/chromedriver"), options=options)
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def busy():
    """A Headgate with somebody in front of it who never stops."""
    redis = Redis()
    headgate = start_with_http(redis, RULES)
    stopping = threading.Event()
    player = threading.Thread(target=play, args=(headgate, stopping))
    player.start()
    yield headgate
    stopping.set()
    player.join()
    headgate.finish()
    redis.discard()


def play(headgate, stopping):
    with headgate.connect() as client, headgate.connect() as holder:
        client("CLIENT", "SETNAME", "<b>greedy</b>")
        holder("SET", "lock:" + NASTY, "token", "NX", "PX", "30000")
        client("EVAL", SPIN, 0, 20_000)
        client("SET", NASTY, "x" * 20000)
        while not stopping.wait(0.05):
            client("GET", NASTY)
            client("INCR", "counted")
            client("GET", "small")


@pytest.fixture
def page(browser, busy):
    """The page, open, with figures of two answers."""
    show(browser)
    open_page(browser, busy)
    return browser


def show(browser, size="desktop", dark=False):
    width, height = SIZES[size]
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def open_page(browser, headgate):
    browser.get("about:blank")  # the page of the test before asks no more
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{headgate.http_port}/")
    wait_for(lambda: tile(browser, "Median") not in ("", "–"), what="figures")


# By one script each: elements that were found may be others when they are asked, as the page makes them anew.
TILE = """
const found = [...document.querySelectorAll(".tile")].find((one) => one.innerText.startsWith(arguments[0]));
return found ? found.querySelector(".value").innerText : "";
"""


def tile(browser, name):
    return browser.execute_script(TILE, name)


def text(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def complaints(browser):
    """What the console has of errors, such as what the page's policy forbids."""
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def is_slow_one_shown(page, busy):
    """Makes another one each time: on a busy machine others are slow as well, and the last ones are shown."""
    with busy.connect() as client:
        client("EVAL", SPIN, 0, 20_000)
    return "EVAL" in text(page, "#slow-table")


def test_shows_what_is_so(page, busy):
    wait_for(lambda: "lock:" in text(page, "#leases-table"), what="the lease")
    wait_for(lambda: "limit:few" in text(page, "#events-table"), what="the refusals")
    wait_for(lambda: tile(page, "Requests") not in ("–", "0 /s"), what="requests")
    wait_for(lambda: tile(page, "Errors") not in ("–", "0 /s"), what="errors")
    wait_for(lambda: "–" not in tile(page, "Batches"), what="requests in one write and read")
    assert text(page, "#state") == "ready"
    for operation in ("get", "incr", "eval"):
        wait_for(lambda: page.find_elements(By.CSS_SELECTOR, f"[data-operation='{operation}']"), what=operation)
    limits = text(page, "#limits-table")
    assert "few" in limits and "name:<b>greedy</b>" in limits and "min" in limits
    assert "held" in text(page, "#leases-table")
    wait_for(lambda: is_slow_one_shown(page, busy), what="the slow request")
    assert "GET" in text(page, "#big-table")
    assert "shared" in text(page, "#clients-table") and "shared" in text(page, "#lanes-table")
    assert page.find_elements(By.CSS_SELECTOR, "#latency canvas") and page.find_elements(By.CSS_SELECTOR, "#throughput canvas")
    page.execute_script("document.querySelector('#counters summary').click()")
    wait_for(lambda: "requests taken from clients" in text(page, "#counters-table"), what="the counters")
    assert complaints(page) == []


def test_updates_by_itself_and_pauses(page):
    before = text(page, "#operations-table")
    wait_for(lambda: text(page, "#operations-table") != before, what="another answer")
    button = page.find_element(By.ID, "pause")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    asked = "return performance.getEntriesByName(location.origin + '/stats.json').length"
    button.click()
    count = page.execute_script(asked)
    wait_for(lambda: page.execute_script(asked) > count, what="an answer after the pause")


def test_what_clients_choose_stays_text(page):
    wait_for(lambda: NASTY[:20] in text(page, "#hot-table") + text(page, "#big-table"), what="the key")
    assert page.execute_script("return window.pwned") is None
    assert page.find_elements(By.CSS_SELECTOR, "table img, table script, table b") == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_fits_and_can_be_read(browser, busy, size, dark):
    show(browser, size, dark)
    open_page(browser, busy)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    ratio = browser.execute_script(CONTRAST)
    assert ratio >= 4.5
    light = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in light[4:-1].split(",")) < 200) == dark


# The least contrast between text and what is behind it, as WCAG reckons it.
CONTRAST = """
const parse = (c) => c.match(/[\\d.]+/g).map(Number);
const shine = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * r + .7152 * g + .0722 * b; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
  if (c.length === 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
let least = 21;
for (const e of document.querySelectorAll("h1, h2, h3, p, th, td, a, .tag, .pill, .value, .name, button, label, summary")) {
  if (!e.textContent.trim() || !e.offsetParent || e.closest(".uplot")) continue;
  const a = shine(parse(getComputedStyle(e).color).slice(0, 3)), b = shine(behind(e));
  least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
}
return least;
"""


def test_by_keyboard(page):
    body = page.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert page.switch_to.active_element.text == "To the figures"
    page.execute_script("document.querySelector(\"[data-operation='get']\").focus()")
    webdriver.ActionChains(page).send_keys(Keys.ENTER).perform()
    wait_for(lambda: page.find_element(By.ID, "operation").get_attribute("value") == "get", what="the choice")
    # What is in focus stays so when figures come.
    before = text(page, "#operations-table")
    wait_for(lambda: text(page, "#operations-table") != before, what="another answer")
    focused = page.execute_script("return document.activeElement.dataset.operation")
    assert focused == "get"
    assert page.execute_script("return document.activeElement.getAttribute('aria-pressed')") == "true"
    assert "Latency of get" in page.find_element(By.ID, "latency").get_attribute("aria-label")


def test_filter(page):
    page.find_element(By.ID, "filter").send_keys("inc")
    names = page.execute_script("return [...document.querySelectorAll('#operations-table .pick')].map((one) => one.dataset.operation)")
    assert names and all("inc" in name for name in names)
    page.find_element(By.ID, "filter").send_keys("no such")
    assert "No operation" in text(page, "#operations-table")


def test_says_what_it_is_to_a_screen_reader(page):
    faults = page.execute_script("""
      const faults = [];
      for (const tag of ["header", "nav", "main", "footer", "h1"])
        if (document.querySelectorAll(tag).length !== 1) faults.push(tag);
      for (const t of document.querySelectorAll("table")) {
        if (t.closest("details:not([open])")) continue;
        if (!t.caption && !t.closest(".uplot")) faults.push(t.id + ": no caption");
        for (const th of t.querySelectorAll("th")) if (!th.scope && !t.closest(".uplot")) faults.push(t.id + ": no scope");
      }
      for (const e of document.querySelectorAll("section, nav, [role=region]"))
        if (!e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby"))) faults.push(e.id + ": no name");
      for (const e of document.querySelectorAll("input, select")) if (!e.labels.length) faults.push(e.id + ": no label");
      for (const e of document.querySelectorAll("[role=img]")) if (!e.getAttribute("aria-label")) faults.push(e.id);
      if (!document.documentElement.lang) faults.push("lang");
      if (document.querySelectorAll("[aria-live]").length !== 1) faults.push("aria-live");
      return faults;
    """)
    assert faults == []


def test_says_when_nobody_answers(browser):
    show(browser)
    redis = Redis()
    headgate = start_with_http(redis, RULES)
    try:
        browser.get(f"http://127.0.0.1:{headgate.http_port}/")
        wait_for(lambda: text(browser, "#state") == "ready", what="the state")
        redis.kill()
        wait_for(lambda: text(browser, "#state") == "Redis cannot be reached", what="the outage to be shown")
        headgate.kill()
        wait_for(lambda: text(browser, "#state").startswith("no answer"), what="the end to be shown")
        redis.start()
        headgate.start()
        wait_for(lambda: text(browser, "#state") == "ready", what="the return to be shown")
    finally:
        headgate.finish()
        redis.discard()


@pytest.mark.parametrize("size", SIZES)
def test_several_servers(browser, make_headgate, make_redis, size):
    """Each row says whose it is, and operations of one name stay apart."""
    servers, port = {"cache": make_redis(), "queue": make_redis()}, free_port()
    several = Several(make_headgate, servers, RULES, http=f"127.0.0.1:{port}")
    several.headgate.http_port = port
    stopping, killing = threading.Event(), threading.Event()

    def ask_all():
        with several.connect("cache") as cache, several.connect("queue") as queue:
            cache("SET", "lock:c", "token", "NX", "PX", "60000")
            queue("SET", "lock:q", "token", "NX", "PX", "60000")
            while not stopping.wait(0.05):
                cache("GET", "k")
                try:
                    queue("GET", "k")
                except Closed:
                    assert killing.is_set()  # it was at Redis, and what has become of it nobody knows
                    return

    player = threading.Thread(target=ask_all)
    player.start()
    try:
        show(browser, size)
        open_page(browser, several.headgate)
        wait_for(lambda: text(browser, "#state") == "ready", what="the state")
        assert "cache, queue" in text(browser, "#where")
        rows = "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        for name, line in zip(("cache", "queue"), browser.execute_script(rows, "#servers-table"), strict=True):
            assert str(servers[name].port) in line[0] and line[2] == "up" and line[-1] == name
        wait_for(lambda: len(browser.execute_script(rows, "#leases-table")) == 2, what="the leases")
        for table, shown in (("#clients-table", None), ("#lanes-table", None), ("#leases-table", ("lock:c", "lock:q"))):
            lines = browser.execute_script(rows, table)
            assert {line[-1] for line in lines} == {"cache", "queue"}
            if shown:
                assert sorted((line[0], line[-1]) for line in lines) == list(zip(shown, ("cache", "queue"), strict=True))
        for name in ("cache get", "queue get"):
            wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, f"[data-operation='{name}']"), what=name)
        assert "server" not in text(browser, "#operations-table thead")
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert complaints(browser) == []
        killing.set()
        servers["queue"].kill()
        wait_for(lambda: text(browser, "#state") == "Redis cannot be reached: queue", what="the outage to be shown")
        wait_for(lambda: [line[2] for line in browser.execute_script(rows, "#servers-table")] == ["up", "away"], what="who is away")
    finally:
        stopping.set()
        player.join()


def test_one_server_has_no_table_of_servers(page):
    assert not page.find_element(By.ID, "servers").is_displayed()
    assert "server" not in text(page, "#clients-table thead")


@contextlib.contextmanager
def other_site():
    """A web server of somebody else: its address."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title>")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Empty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


ASK_FROM_ELSEWHERE = """
const [url, mode, done] = arguments;
fetch(url, { mode }).then((r) => r.text().then((t) => done([r.type, r.status, t.length])), (e) => done(["refused", String(e)]));
"""


def test_other_sites_learn_nothing(browser, busy):
    url = f"http://127.0.0.1:{busy.http_port}/stats.json"
    with other_site() as site:
        browser.get(site)
        for mode in ("cors", "no-cors"):
            told = browser.execute_async_script(ASK_FROM_ELSEWHERE, url, mode)
            assert told[0] in ("refused", "opaque"), told
        browser.execute_script("const f = document.createElement('iframe'); f.src = arguments[0]; document.body.append(f)", url[:-10])
    busy.await_log("it comes from a page of another site")


def test_a_name_that_was_made_to_lead_here_is_refused(browser, busy):
    browser.get(f"http://evil.example:{busy.http_port}/")
    assert "http_names" in browser.find_element(By.TAG_NAME, "body").text
