"""The tree with all mutants in it, below build-mutants/: a copy of this one with its sites changed, and its build."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading

from mutants import sites

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "scripts" / "mutants"
LIBRARIES = ["libevent", "hiredis", "inih", "libssl", "libcrypto"]


class Kept:
    """A dictionary in a file, which is for one plan."""

    def __init__(self, path, digest):
        self.path, self.digest, self.items, self.writing = path, digest, {}, threading.Lock()
        if path.exists() and json.loads(path.read_text())["digest"] == digest:
            self.items = json.loads(path.read_text())["items"]

    def add(self, items):
        """The file has all of it, or what was there before."""
        with self.writing:
            self.items.update(items)
            self.path.with_suffix(".new").write_text(json.dumps({"digest": self.digest, "items": self.items}, indent=1))
            self.path.with_suffix(".new").rename(self.path)


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Tree:
    def __init__(self, sanitized):
        self.folder = ROOT / "build-mutants" / ("asan" if sanitized else "plain")
        self.source, self.build, self.plan_path = self.folder / "tree", self.folder / "build", self.folder / "sites.json"
        self.sanitizer = "address" if sanitized else ""

    def plan(self, count, seed):
        """So many sites: those of the last time, if neither the sources nor what is asked for have changed."""
        paths = sorted(path for folder in ("proxy", "policies") for path in (ROOT / folder).rglob("*.[chi]*"))
        contents = b"".join(path.read_bytes() for path in [*paths, HERE / "sites.py"])
        digest = hashlib.sha256(f"{count} {seed}".encode() + contents).hexdigest()
        plan = Kept(self.plan_path, digest)
        if not plan.items:
            self.copy([])
            self.configure()
            names, arguments = [str(path.relative_to(ROOT)) for path in paths if path.suffix == ".c"], self.arguments()
            found = [site for name in names for site in sites.Source(ROOT, name, arguments).sites]
            plan.add({"found": len(found), "sites": sites.choose(found, count, seed)})
        return plan

    def arguments(self):
        """What libclang is told. It does not know where its own headers are."""
        own = output_of("clang-14", "-print-resource-dir").strip()
        folders = [ROOT / "proxy", ROOT / "policies", self.build / "generated", f"{own}/include"]
        defined = ["-std=c11", "-D_GNU_SOURCE", "-DLANE_CROWD=1", "-DLANE_NEAR_US=1"]
        return [*defined, *(f"-I{folder}" for folder in folders), *output_of("pkg-config", "--cflags", *LIBRARIES).split()]

    def copy(self, chosen):
        """This tree with those sites. Files keep their times, so that what did not change is not compiled again."""
        shutil.rmtree(self.source, ignore_errors=True)
        for name in filter(None, output_of("git", "ls-files", "-z", "-co", "--exclude-standard").split("\0")):
            copy, of_file = self.source / name, [site for site in chosen if site["path"] == name]
            copy.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, copy)
            if of_file:
                copy.write_bytes(sites.mutated(copy.read_bytes(), of_file))
            if chosen and name.startswith(("proxy/", "policies/")):
                # Other sites than before are compiled, and so is what has none any more.
                os.utime(copy, (0, max((ROOT / name).stat().st_mtime, self.plan_path.stat().st_mtime)))
        shutil.copy2(HERE / "mutants.c", self.source / "proxy" / "base")

    def configure(self):
        header = self.source / "scripts" / "mutants" / "mutants.h"
        options = {
            "CMAKE_BUILD_TYPE": "RelWithDebInfo", "CMAKE_C_FLAGS_RELWITHDEBINFO": "-O1 -g1", "HEADGATE_TESTS": "ON",
            "CMAKE_C_FLAGS": f'-w -include "{header}"', "HEADGATE_SANITIZE": self.sanitizer,
        }  # fmt: skip
        command = ["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "CC": "clang"})

    def make(self, chosen, jobs):
        self.copy(chosen)
        self.configure()
        with open(self.folder / "build.log", "w") as log:
            if subprocess.run(["ninja", "-C", self.build, "-k", "0", f"-j{jobs}"], stdout=log, stderr=log).returncode != 0:
                raise SystemExit(f"mutate: it does not build: {log.name}")
