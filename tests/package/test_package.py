"""The package for Debian: what is in it, what lintian says, and its life in a bare root. What is installed by hand."""

import os
import re
import shlex
import subprocess

import pytest

from harness.servers import REPOSITORY

def run(*command, **options):
    options.setdefault("timeout", 120)
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout[-4000:]}\n{result.stderr[-8000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    directory = tmp_path_factory.mktemp("package")
    return run(REPOSITORY / "scripts" / "package", directory / "build", timeout=900).strip()


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    root = tmp_path_factory.mktemp("unpacked")
    run("dpkg-deb", "-x", package, root)
    return root


def test_what_it_needs(package):
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert {"adduser", "libc6", "libevent-2.1-7", "libhiredis0.14", "libinih1", "libssl3"} == {
        part.split()[0] for part in depends.split(",")
    }


def test_lintian_finds_nothing(package):
    result = subprocess.run(["lintian", "--allow-root", package], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and result.stdout == "", result.stdout + result.stderr


def test_versions_agree(package):
    version = run("dpkg-deb", "-f", package, "Version").strip()
    project = re.search(r"project\(headgate VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text()).group(1)
    changelog = (REPOSITORY / "packaging" / "debian" / "changelog").read_text()
    assert version == f"{project}-1" == re.match(r"headgate \((.*?)\)", changelog).group(1)


@pytest.mark.parametrize("page", ["man8/headgate.8", "man5/headgate.ini.5", "man8/headgate-admin.8"])
def test_manuals_are_there(unpacked, page):
    path = unpacked / "usr" / "share" / "man" / f"{page}.gz"
    name = path.name.removesuffix(".gz")
    assert run("gzip", "-dc", path) == run(unpacked / "usr" / "bin" / "headgate", "--reference", name)


def test_the_units_name_what_is_installed(unpacked):
    unit = (unpacked / "lib" / "systemd" / "system" / "headgate.service").read_text()
    assert "/usr/local" not in unit and str(REPOSITORY) not in unit
    for path in re.findall(r"(?:file:|=)(/usr/\S+)", unit):
        assert (unpacked / path.lstrip("/")).exists(), path
    for name, number in re.findall(r"man:([\w.-]+)\((\d)\)", unit):
        assert (unpacked / f"usr/share/man/man{number}/{name}.{number}.gz").exists(), name
    assert "man:headgate(8)" in unit


@pytest.mark.parametrize("unit", ["headgate.service", "headgate.socket"])
def test_the_units_are_sound(unpacked, tmp_path, unit):
    """For systemd, that is: with what they name in place, it has nothing to say."""
    for name in ("headgate.service", "headgate.socket"):
        text = (unpacked / "lib" / "systemd" / "system" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/headgate", str(unpacked / "usr/bin/headgate")))
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"}
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / unit]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0 and "headgate" not in result.stdout + result.stderr, result.stdout + result.stderr


def test_the_service_may_do_little(unpacked):
    """Exposure in tenths, as systemd counts it: 0 is nothing, 100 everything."""
    unit = unpacked / "lib" / "systemd" / "system" / "headgate.service"
    run("systemd-analyze", "security", "--offline=true", "--threshold=18", unit)


def test_the_whole_package_is_readable(unpacked):
    for path in unpacked.rglob("*"):
        mode = path.stat().st_mode & 0o7777
        wanted = 0o755 if path.is_dir() or path.parent.name == "bin" else 0o644
        assert mode == wanted, path


def test_its_life_in_a_bare_root(package, tmp_path):
    """Two versions: the second one is the first, packed again with another number and another file."""
    contents, newer = tmp_path / "contents", tmp_path / "newer.deb"
    run("dpkg-deb", "-R", package, contents)
    control = contents / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("Version: 0.", "Version: 1."))
    with open(contents / "etc/headgate/headgate.ini", "a", encoding="utf-8") as file:
        file.write("# Of the next version.\n")
    run("dpkg-deb", "--root-owner-group", "-b", contents, newer)
    done = tmp_path / "done"
    hook = f'{shlex.quote(str(REPOSITORY))}/tests/package/lifecycle "$1" {package} {newer} {done}'
    by_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    run(*by_root, "mmdebstrap", "--variant=apt", "--format=null", f"--customize-hook={hook}", "bookworm", "-", timeout=1200)
    assert done.exists()


def test_it_is_installed_below_another_folder(package, tmp_path):
    """cmake --install, with DESTDIR, as who packs it for something else does."""
    build = os.path.dirname(package)
    run("cmake", "--install", build, "--prefix", "/opt/headgate", env={**os.environ, "DESTDIR": str(tmp_path)})
    top = tmp_path / "opt" / "headgate"
    assert [path.name for path in tmp_path.iterdir()] == ["opt"]
    unit = (top / "lib/systemd/system/headgate.service").read_text()
    assert "ExecStart=/opt/headgate/bin/headgate " in unit and str(tmp_path) not in unit
    for name in ("bin/headgate", "share/man/man8/headgate.8", "share/bash-completion/completions/headgate"):
        assert (top / name).is_file(), name


@pytest.mark.parametrize(
    "typed,expected",
    [
        ("headgate --t", ["--take-over"]),
        ("headgate --u", ["--upgrade"]),
        ("headgate --reference c", ["cluster"]),
        ("headgate --reference head", ["headgate-admin.8", "headgate.8", "headgate.ini.5"]),
        ("headgate -c ", ["a.ini", "sub"]),
    ],
)
def test_completion(tmp_path, typed, expected):
    (tmp_path / "a.ini").touch()
    (tmp_path / "b.txt").touch()
    (tmp_path / "sub").mkdir()
    assert completed(typed, tmp_path) == expected


def completed(typed, directory):
    words = typed.split(" ")
    script = (
        ". /usr/share/bash-completion/bash_completion\n"
        f". {shlex.quote(str(REPOSITORY))}/packaging/headgate.bash\n"
        f"COMP_WORDS=({' '.join(word or repr('') for word in words)}) COMP_CWORD={len(words) - 1}\n"
        f"COMP_LINE='{typed}' COMP_POINT={len(typed)}\n"
        "_headgate headgate\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return sorted(filter(None, run("bash", "-c", script, cwd=directory).splitlines()))


def test_completion_knows_the_command_line(package, tmp_path):
    usage = run(os.path.join(os.path.dirname(package), "headgate"), "--help")
    options = set(re.findall(r"^  (-[-\w]+)", usage, flags=re.MULTILINE)) | set(re.findall(r"also (-[-\w]+)", usage))
    assert len(options) >= 9
    assert set(completed("headgate -", tmp_path)) == options
    assert completed("headgate --p", tmp_path) == ["--ping"]
