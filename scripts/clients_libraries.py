"""The newest client libraries: where each comes from, and the program that is written with it.

A library is a row of LIBRARIES and a program in tests/newest. What is fetched goes to build-newest/LIBRARY, and never
anywhere else.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "newest"
BUILT = ROOT / "build-newest"

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
# Older cargos would fetch the whole index.
SPARSE = {"CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse"}
TRIES = 3
FETCH_SECONDS = 600


class Missing(Exception):
    """A library that cannot be had here, and why."""


@dataclass(frozen=True)
class Library:
    name: str
    language: str
    packages: tuple  # as its registry names them
    program: str  # in the folder of the language
    tracks: bool = False  # on each connection from the start, for client-side caching: each has a lane of its own

    @property
    def folder(self):
        return BUILT / self.name


LIBRARIES = [
    Library("redis-py", "python", ("redis",), "redis_py.py"),
    Library("node-redis", "node", ("redis",), "node_redis.js"),
    Library("ioredis", "node", ("ioredis",), "ioredis.js"),
    Library("go-redis", "go", ("github.com/redis/go-redis/v9",), "go_redis.go"),
    Library("rueidis", "go", ("github.com/redis/rueidis",), "rueidis.go", tracks=True),
    Library("jedis", "java", ("redis.clients:jedis",), "Jedis.java"),
    Library("lettuce", "java", ("io.lettuce:lettuce-core",), "Lettuce.java"),
    Library("redis-rs", "rust", ("redis",), "redis_rs.rs"),
]


# ---- running the tools of the languages ----


def end_group(process):
    """The tool and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def run(command, folder, **environment):
    """What it prints; Missing with its last words if it fails."""
    started = subprocess.Popen(
        [str(word) for word in command], cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {FETCH_SECONDS} s") from None
    finally:
        if started.returncode is None:
            end_group(started)
    if started.returncode != 0:
        raise Missing(last_words(command, output))
    return output


def last_words(command, output):
    """The line that says most of what a tool has printed before it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("WARNING")]
    telling = [line for line in lines if re.search(r"error|requires|unsupported|not found", line, re.IGNORECASE)]
    text = (telling or lines[-1:] or ["no word"])[0]
    return f"{pathlib.Path(command[0]).name} failed: {text[:160]}"


def fetch(command, folder, **environment):
    """The same for what needs the network, which fails now and then."""
    for attempt in range(1, TRIES + 1):
        try:
            return run(command, folder, **environment)
        except Missing:
            if attempt == TRIES:
                raise
            time.sleep(2 * attempt)


def need(*commands):
    for command in commands:
        if not shutil.which(command):
            raise Missing(f"no {command} on this machine")


# ---- one function a language: fetches the newest packages ----


def python(library, sources):
    interpreter = library.folder / "bin" / "python"
    if not interpreter.exists():
        run(["/usr/bin/python3", "-m", "venv", library.folder], BUILT)
    # By force, as an older version that is there would otherwise do where the registry cannot be reached.
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"]
    fetch([*pip, *library.packages], library.folder)


def node(library, sources):
    need("node", "npm")
    (library.folder / "package.json").write_text('{ "name": "headgate-newest", "private": true }\n')
    newest = [f"{package}@latest" for package in library.packages]
    quiet = ["--ignore-scripts", "--engine-strict", "--no-fund", "--no-audit", "--loglevel=error"]
    fetch(["npm", "install", *quiet, *newest], library.folder)


def go(library, sources):
    need("go")
    copy(library, sources)
    if not (library.folder / "go.mod").exists():
        run(["go", "mod", "init", "headgate/newest"], library.folder)
    fetch(["go", "get", *[f"{package}@latest" for package in library.packages]], library.folder)


def java(library, sources):
    need("mvn", "javac")
    jars = library.folder / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    group, artifact = library.packages[0].split(":")
    maven = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--strict-checksums", "--update-snapshots"]
    maven += ["--file", sources / "pom.xml", f"-Dgroup={group}", f"-Dartifact={artifact}"]
    fetch([*maven, COPY_DEPENDENCIES, f"-DoutputDirectory={jars}"], library.folder)


def rust(library, sources):
    need("cargo")
    copy_crate(library, sources)
    fetch(["cargo", "update", "--quiet"], library.folder, **SPARSE)


# ---- and one that builds the program with what was fetched, and gives the command that runs it ----


def copy(library, sources):
    """The program, and what all of its language have in common."""
    for source in [library.program, *(path.name for path in sources.glob("[pP]rotocol.*"))]:
        shutil.copy(sources / source, library.folder)


def python_program(library, sources):
    return [library.folder / "bin" / "python", "-B", sources / library.program]


def node_program(library, sources):
    copy(library, sources)
    return ["node", library.folder / library.program]


def go_program(library, sources):
    copy(library, sources)
    fetch(["go", "build", "-mod=mod", "-o", "program", "."], library.folder)
    return [library.folder / "program"]


def java_program(library, sources):
    need("javac", "java")
    copy(library, sources)
    run(["javac", "-cp", "jars/*", "-d", "classes", "Protocol.java", library.program], library.folder)
    places = f"{library.folder}/classes:{library.folder}/jars/*"
    main = library.program.removesuffix(".java")
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", places, main]


def copy_crate(library, sources):
    (library.folder / "src").mkdir(exist_ok=True)
    shutil.copy(sources / "Cargo.toml", library.folder)
    shutil.copy(sources / library.program, library.folder / "src" / "main.rs")


def rust_program(library, sources):
    copy_crate(library, sources)
    target = library.folder / "target"
    fetch(["cargo", "build", "--quiet"], library.folder, CARGO_TARGET_DIR=str(target), **SPARSE)
    return [target / "debug" / "program"]


LANGUAGES = {
    "python": (python, python_program),
    "node": (node, node_program),
    "go": (go, go_program),
    "java": (java, java_program),
    "rust": (rust, rust_program),
}


def prepare(library, fetched=False):
    """The command that runs the library's program, with its newest version; or Missing. fetched: with what is there."""
    library.folder.mkdir(parents=True, exist_ok=True)
    fetch_packages, build_program = LANGUAGES[library.language]
    sources = SOURCES / library.language
    if not fetched:
        try:
            run([ROOT / "scripts" / "install-packages", f"newest:{library.language}"], ROOT)
        except Missing as missing:
            print(f"{library.name}: {missing}", flush=True)  # what is there may do all the same
        fetch_packages(library, sources)
    return [str(word) for word in build_program(library, sources)]
