"""The examples for containers fit the program, and each other; nothing here runs Docker or Kubernetes."""

import re

import yaml

from harness.servers import REPOSITORY, run_headgate

EXAMPLES = REPOSITORY / "conf" / "examples"
DEPLOYMENT = EXAMPLES / "kubernetes" / "sidecar.yaml"


def documents():
    return {document["kind"]: document for document in yaml.safe_load_all(DEPLOYMENT.read_text())}


def pod():
    return documents()["Deployment"]["spec"]["template"]["spec"]


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
