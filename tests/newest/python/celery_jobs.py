"""Celery as a whole: a worker of its own, with Redis as broker and as the place of results."""

import os
import subprocess
import sys
import time

import celery

URL = os.environ.get("TESTED_URL") or f"redis://{sys.argv[1]}:{sys.argv[2]}/0"
app = celery.Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(task_default_queue="tested", broker_connection_retry_on_startup=True, task_track_started=True)
PATIENCE = 30


@app.task
def add(left, right):
    return left + right


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def fails_once(self):
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task
def fails(text):
    raise ValueError(text)


def jobs(_client, key):
    number = int(key.rpartition(":")[2])
    yield add.delay(number, 1).get(timeout=PATIENCE)
    yield add.apply_async((number, 2), countdown=0.2).get(timeout=PATIENCE)
    yield fails_once.delay().get(timeout=PATIENCE)
    yield repr(fails.delay(key).get(timeout=PATIENCE, propagate=False))
    yield celery.chain(add.s(number, 3), add.s(4)).delay().get(timeout=PATIENCE)
    yield sorted(celery.group(add.s(number, each) for each in range(5)).delay().get(timeout=PATIENCE))
    yield celery.chord((add.s(number, each) for each in range(3)), total.s()).delay().get(timeout=PATIENCE)


@app.task
def total(numbers):
    return sum(numbers)


def main():
    import protocol

    command = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--pool", "threads", "--concurrency", "4"]
    # What it says goes where the program's complaints go, so that only replies are read as such.
    worker = subprocess.Popen(
        [*command, "--loglevel", "WARNING"], cwd=os.path.dirname(os.path.abspath(__file__)), stdout=sys.stderr,
        env={**os.environ, "TESTED_URL": URL, "C_FORCE_ROOT": "yes"},
    )
    try:
        end = time.monotonic() + 2 * PATIENCE
        while not app.control.ping(timeout=1) and time.monotonic() < end:
            pass
        protocol.serve(celery.__version__, lambda: None, [jobs], lambda _client: None)
    finally:
        worker.terminate()
        worker.wait(PATIENCE)


# By the name by which the worker knows this module, too.
if __name__ == "__main__":
    import celery_jobs

    celery_jobs.main()
