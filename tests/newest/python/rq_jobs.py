"""RQ as a whole: a worker of its own, which forks for each job."""

import os
import subprocess
import sys
import time

import redis
import rq

PATIENCE = 60


def connect():
    return redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))


def double(number):
    return number * 2


def fail(text):
    raise ValueError(text)


def ended(job):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = job.get_status()
        if status in ("finished", "failed"):
            return str(status.value)
        time.sleep(0.02)
    return "not ended"


def jobs(client, key):
    queue = rq.Queue("tested", connection=client)
    number = int(key.rpartition(":")[2])
    done = queue.enqueue(double, number)
    behind = queue.enqueue(double, number + 1, depends_on=done)
    failed = queue.enqueue(fail, key)
    yield [ended(job) for job in (done, behind, failed)]
    yield [done.return_value(), behind.return_value()]
    yield failed.latest_result().exc_string.strip().splitlines()[-1]


def main():
    import protocol

    url = f"redis://{sys.argv[1]}:{sys.argv[2]}/0"
    here = os.path.dirname(os.path.abspath(__file__))
    command = [os.path.join(os.path.dirname(sys.executable), "rq"), "worker", "--quiet", "--url", url, "--path", here]
    worker = subprocess.Popen([*command, "tested"], cwd=here, stdout=sys.stderr)
    try:
        protocol.serve(rq.VERSION, connect, [jobs], redis.Redis.close)
    finally:
        worker.terminate()
        worker.wait(PATIENCE)


# By the name by which the worker knows this module, too.
if __name__ == "__main__":
    import rq_jobs

    rq_jobs.main()
