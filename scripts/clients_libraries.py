"""The client libraries: where each comes from, and the program that is written with it.

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

import clients_runtimes

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tests" / "newest"
BUILT = ROOT / "build-newest"

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
# Older cargos would fetch the whole index.
SPARSE = {"CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse"}
TRIES = 3
FETCH_SECONDS = 600

# Of what clients_runtimes has fetched; before all others on PATH.
RUNTIME_FOLDERS = []


class Missing(Exception):
    """A library that cannot be had here, and why."""


def split(package):
    """NAME@VERSION; names of npm may begin with @."""
    name, _, version = package.rpartition("@")
    return name, version


def folder_of(library):
    return BUILT / library.name


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
        [str(word) for word in command], cwd=folder, env=with_runtimes(environment), stdin=subprocess.DEVNULL,
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


def with_runtimes(environment):
    return {**os.environ, **environment, "PATH": os.pathsep.join([*RUNTIME_FOLDERS, os.environ["PATH"]])}


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
        if not shutil.which(command, path=with_runtimes({})["PATH"]):
            raise Missing(f"no {command} on this machine")


# ---- one function a language: fetches the packages, in the versions of the table or the newest ----


def python(library, folder, newest):
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        run(["/usr/bin/python3", "-m", "venv", folder], BUILT)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [split(package)[0] if newest else "==".join(split(package)) for package in library.packages]
    # By force, as an older version that is there would otherwise do where the registry cannot be reached.
    fetch([*pip, *(["--force-reinstall"] if newest else []), *wanted], folder)


def node(library, folder, newest):
    need("node", "npm")
    (folder / "package.json").write_text('{ "name": "headgate-newest", "private": true }\n')
    wanted = [f"{split(package)[0]}@latest" if newest else package for package in library.packages]
    quiet = ["--ignore-scripts", "--engine-strict", "--no-fund", "--no-audit", "--loglevel=error"]
    fetch(["npm", "install", *quiet, *wanted], folder)


def go(library, folder, newest):
    need("go")
    copy(library, folder)
    if not (folder / "go.mod").exists():
        run(["go", "mod", "init", "headgate/newest"], folder)
    wanted = [f"{split(package)[0]}@latest" if newest else package for package in library.packages]
    fetch(["go", "get", *wanted], folder, GOTOOLCHAIN="local")


def java(library, folder, newest):
    need("mvn", "javac")
    shutil.rmtree(folder / "jars", ignore_errors=True)
    (folder / "pom.xml").write_text(pom([dependency(package, newest) for package in library.packages]))
    maven = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--strict-checksums"]
    update = ["--update-snapshots"] if newest else []
    fetch([*maven, *update, "--file", "pom.xml", COPY_DEPENDENCIES, f"-DoutputDirectory={folder / 'jars'}"], folder)


def dependency(package, newest):
    name, version = split(package)
    group, artifact = name.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{'RELEASE' if newest else version}</version></dependency>"
    )


def pom(dependencies):
    own = "<groupId>headgate</groupId><artifactId>newest</artifactId><version>0</version><packaging>pom</packaging>"
    listed = "".join(dependencies)
    return f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{listed}</dependencies></project>\n"


def rust(library, folder, newest):
    need("cargo")
    (folder / "src").mkdir(exist_ok=True)
    crates = [crate(package, newest) for package in library.packages]
    head = f'[package]\nname = "program-{library.name}"\nversion = "0.0.0"\nedition = "2021"\npublish = false\n'
    (folder / "Cargo.toml").write_text(f"{head}\n[dependencies]\n" + "".join(crates))
    copy(library, folder)
    fetch(["cargo", "update", "--quiet"] if newest else ["cargo", "fetch", "--quiet"], folder, **SPARSE)


def crate(package, newest):
    name, version = split(package)
    name, *features = name.split("+")
    listed = ", ".join(f'"{feature}"' for feature in features)
    return f'{name} = {{ version = "{"*" if newest else "=" + version}", features = [{listed}] }}\n'


# ---- and one that builds the program with what was fetched, and gives the command that runs it ----


def copy(library, folder):
    """The program, and what all of its language have in common."""
    sources = SOURCES / library.language
    for source in [library.program, *(path.name for path in sources.glob("[pP]rotocol.*"))]:
        text = (sources / source).read_text()
        for old, new in zip(library.replaced[::2], library.replaced[1::2]):
            text = text.replace(old, new)
        if library.language == "rust":
            source = "src/" + ("main.rs" if source == library.program else source)
        (folder / source).write_text(text)


def python_program(library, folder):
    copy(library, folder)
    return [folder / "bin" / "python", "-B", folder / library.program]


def node_program(library, folder):
    copy(library, folder)
    return ["node", folder / library.program]


def go_program(library, folder):
    copy(library, folder)
    fetch(["go", "mod", "tidy"], folder, GOTOOLCHAIN="local")
    fetch(["go", "build", "-mod=mod", "-o", "program", "."], folder, GOTOOLCHAIN="local")
    return [folder / "program"]


def java_program(library, folder):
    need("javac", "java")
    copy(library, folder)
    run(["javac", "-nowarn", "-cp", "jars/*", "-d", "classes", "Protocol.java", library.program], folder)
    places = f"{folder}/classes:{folder}/jars/*"
    main = library.program.removesuffix(".java")
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", places, main]


def rust_program(library, folder):
    copy(library, folder)
    # One for all programs: their crates have much in common. Nobody debugs them.
    target = BUILT / "target"
    settings = {"CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0", **SPARSE}
    fetch(["cargo", "build", "--quiet"], folder, **settings)
    return [target / "debug" / f"program-{library.name}"]


LANGUAGES = {
    "python": (python, python_program),
    "node": (node, node_program),
    "go": (go, go_program),
    "java": (java, java_program),
    "rust": (rust, rust_program),
}


def find_runtime(library):
    folder = clients_runtimes.folder(library.language, BUILT, fetch)
    if folder and folder not in RUNTIME_FOLDERS:
        RUNTIME_FOLDERS.append(folder)


def prepare(library, fetched=False, newest=False):
    """The command that runs the library's program, with its version of the table, or the newest; or Missing.
    fetched: with what is there."""
    folder = folder_of(library)
    folder.mkdir(parents=True, exist_ok=True)
    fetch_packages, build_program = LANGUAGES[library.language]
    if not fetched:
        try:
            run([ROOT / "scripts" / "install-packages", f"newest:{library.language}"], ROOT)
        except Missing as missing:
            print(f"{library.name}: {missing}", flush=True)  # what is there may do all the same
    find_runtime(library)
    if not fetched:
        fetch_packages(library, folder, newest)
    first, *others = [str(word) for word in build_program(library, folder)]
    return [shutil.which(first, path=with_runtimes({})["PATH"]) or first, *others]
