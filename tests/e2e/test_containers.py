"""The examples for containers fit the program, and each other; nothing here runs Docker or Kubernetes."""

import re

import pytest
import yaml

from harness.servers import REPOSITORY, run_headgate

EXAMPLES = REPOSITORY / "conf" / "examples"
DOCKERFILE = EXAMPLES / "container" / "Dockerfile"
DEPLOYMENT = EXAMPLES / "kubernetes" / "sidecar.yaml"


def instructions():
    """Of the Dockerfile: (name, rest), with lines that go on joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line]


def documents():
    return {document["kind"]: document for document in yaml.safe_load_all(DEPLOYMENT.read_text())}


def pod():
    return documents()["Deployment"]["spec"]["template"]["spec"]


def installed_in_stage(number):
    stage, found = -1, []
    for name, rest in instructions():
        stage += name == "FROM"
        match = re.search(r"--no-install-recommends\s+(.*?)(?:&&|$)", rest)
        if stage == number and name == "RUN" and match:
            found += match.group(1).split()
    return set(found)


def test_the_image_has_what_is_needed():
    packages = (REPOSITORY / "scripts" / "packages.txt").read_text()
    needed = set(re.findall(r"^build (\S+)$", packages, flags=re.MULTILINE)) - {"redis-server", "redis-tools"}
    assert installed_in_stage(0) == needed
    # What the package for Debian depends on, which its own test compares with what is linked.
    package = (REPOSITORY / "tests" / "package" / "test_package.py").read_text()
    libraries = set(re.findall(r'"(lib[\w.-]+)"', package.split("def test_what_it_needs")[1].split("def ")[0])) - {"libc6"}
    assert len(libraries) >= 4 and libraries <= installed_in_stage(1)


def check_command(words):
    """A command line of headgate that it understands."""
    assert words[0] == "headgate"
    usage = run_headgate("--help").stdout
    for word in words[1:]:
        if word.startswith("-"):
            assert re.search(rf"^  {re.escape(word.split('=')[0])}\b", usage, flags=re.MULTILINE), word


def test_the_health_check_can_be_run():
    checks = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    assert len(checks) == 1
    check_command(yaml.safe_load(checks[0].split("CMD ")[1]))


def test_the_container_takes_its_redis_from_the_environment(monkeypatch):
    from harness import servers

    monkeypatch.setitem(servers.ENVIRONMENT, "REDIS", "elsewhere:1234")
    result = run_headgate("-T", "-c", EXAMPLES / "container" / "headgate.ini")
    assert result.returncode == 0 and "upstream = elsewhere:1234" in result.stdout, result.stderr


def test_the_map_is_the_file():
    stored = documents()["ConfigMap"]["data"]["headgate.ini"]
    assert stored == (EXAMPLES / "kubernetes" / "headgate.ini").read_text()


def test_the_map_is_sound(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    secret.chmod(0o400)
    text = documents()["ConfigMap"]["data"]["headgate.ini"].replace("/var/run/secrets/redis/password", str(secret))
    path = tmp_path / "headgate.ini"
    path.write_text(text)
    result = run_headgate("-t", "-c", path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_can_be_run(probe):
    command = pod()["initContainers"][0][probe]["exec"]["command"]
    if probe == "startupProbe":
        assert command == ["test", "-S", "/run/headgate/headgate.sock"]
    else:
        check_command(command)


def test_a_drain_fits_into_the_time_that_there_is():
    text = documents()["ConfigMap"]["data"]["headgate.ini"]
    drain = int(re.search(r"^drain_timeout = (\d+)s$", text, flags=re.MULTILINE).group(1))
    assert drain + 5 <= pod()["terminationGracePeriodSeconds"]


def test_every_mount_has_its_volume_and_every_path_its_mount():
    volumes = {volume["name"] for volume in pod()["volumes"]}
    mounted = {}
    for container in pod()["initContainers"] + pod()["containers"]:
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes
            mounted.setdefault(container["name"], set()).add(mount["mountPath"])
    text = documents()["ConfigMap"]["data"]["headgate.ini"]
    for path in re.findall(r"(?:unix:|= )(/[\w/.-]+)", text):
        assert path.rsplit("/", 1)[0] in mounted["headgate"], path
    url = pod()["containers"][0]["env"][0]["value"]
    assert url.startswith("unix:///run/headgate/") and "/run/headgate" in mounted["application"]
    assert "/run/headgate-admin" not in mounted["application"]
