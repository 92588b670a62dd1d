"""Runs tests, with one mutant active or none, and tells of each {result, seconds, sites}."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from mutants.reached import Reached
from mutants.tree import ROOT, output_of

STAGES = ("unit", "lua", "fuzz", "wire", "e2e", "words", "fault", "walks", "crosstalk")
PYTEST_STAGES = ("wire", "e2e", "words", "fault")
# Seconds in which what is told to end has to.
PATIENCE = 20


class Runner:
    def __init__(self, tree):
        self.tree, self.running, self.starting = tree, {}, threading.RLock()
        # See scripts/test.
        self.without_aslr = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL).returncode == 0 else []

    def ctests(self, stages):
        """{name: command} of those that ctest would run."""
        found = {}
        for test in json.loads(output_of("ctest", "--test-dir", self.tree.build, "--show-only=json-v1"))["tests"]:
            labels = [entry["value"][0] for entry in test["properties"] if entry["name"] == "LABELS"]
            if labels and labels[0] in stages:
                found[test["name"]] = test["command"]
        return found

    def run(self, command, seconds, folder, mutant, **further):
        """Its exit status; None when it did not end. Whatever it has started is ended, too."""
        environment = {
            **os.environ, "HEADGATE_BINARY": str(self.tree.build / "headgate"), "HEADGATE_MUTANT": str(mutant), "TMPDIR": str(folder),
            "PYTHONPATH": str(ROOT / "scripts"), "PYTHONPYCACHEPREFIX": str(self.tree.folder / "python"), **further,
        }  # fmt: skip
        options = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL, "start_new_session": True}
        with open(folder / "output", "ab") as output, self.starting:
            process = subprocess.Popen([*self.without_aslr, *command], stdout=output, stderr=output, **options)
            self.running[process] = folder
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            return None
        finally:
            end_all(process, folder)
            del self.running[process]

    def run_ctest(self, command, seconds, mutant=0):
        with folder_for_run() as folder:
            reached = Reached(folder / "reached")
            start = time.monotonic()
            status = self.run(command, seconds, folder, mutant, HEADGATE_MUTANTS_REACHED=str(reached.path))
            result = "hung" if status is None else "failed" if status else "passed"
            return {"result": result, "seconds": round(time.monotonic() - start, 3), "sites": reached.sites()}

    def run_pytest(self, names, seconds, mutant=0, beside=1, options=(), of_one=300):
        """{name: what came of it} of those that ended; where the time was over, those that did not are hung."""
        with folder_for_run() as folder:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutants.reached", *options]
            command += ["-n", str(beside), "--dist", "loadgroup"] if beside > 1 else []
            status = self.run([*command, *names], seconds, folder, mutant, HEADGATE_MUTANTS_FOLDER=str(folder), HEADGATE_MUTANTS_SECONDS=str(of_one))
            lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
            if not lines:
                print((folder / "output").read_text(errors="replace")[-3000:])
            ended = {line["test"]: dict(line, result=line["result"] or (status is None and "hung")) for line in lines}
            return {name: test for name, test in ended.items() if test["result"]}

    def stop(self, *_):
        """Ends all that runs, and this process. What has been found is in its file."""
        self.starting.acquire()
        for process, folder in list(self.running.items()):
            end_all(process, folder)
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(130)


@contextlib.contextmanager
def folder_for_run():
    """Where other users may go, too. Its name is short, as are those of sockets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="m-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def end_all(process, folder):
    """Kills what is left of its session, and what works in that folder."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            session = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[3]
            if session == str(process.pid) or os.readlink(f"/proc/{number}/cwd").startswith(f"{folder}/"):
                os.kill(int(number), signal.SIGKILL)
    process.wait()
