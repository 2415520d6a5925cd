"""Containers of the images that `make images` loaded into Docker, each with no more rights than Kubernetes' "restricted"
profile leaves it and with a root it cannot write. Every test removes what it started."""

import json
import pathlib
import shlex
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
RESTRICTED = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]


def docker(*words, check=True):
    done = subprocess.run(["docker", *map(str, words)], text=True, capture_output=True)
    assert not check or done.returncode == 0, f"docker {' '.join(map(str, words))}: {done.stderr}"
    return done


def image(name):
    return f"ghcr.io/trysquare/{name}:{VERSION}"


# A new volume takes over the rights of the folder that it covers, and all may write to /tmp.
SERVE = ["--publish", "127.0.0.1::8081", "--volume", "/tmp", image("trysquare"), "serve", "--kubeconfig", "/tmp/kubeconfig"]


def beside(cluster):
    """The options of `docker run` for a controller of the cluster that a container with SERVE serves: its network, its
    files, and what it prints for shells."""

    def exported():
        lines = [line.removeprefix("export ") for line in cluster.logs().splitlines() if line.startswith("export ")]
        assert lines and "paste the lines above" in cluster.logs(), cluster.logs()
        return {name: shlex.split(value)[0] for name, value in (line.split("=", 1) for line in lines)}

    variables = eventually(exported)
    variables |= {"CLUSTER_NAME": "demo", "INTERRUPTION_QUEUE": "demo", "POD_NAMESPACE": "kube-system"}
    environment = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    return ["--network", f"container:{cluster.id}", "--volumes-from", cluster.id, *environment]


def eventually(look, limit_s=30, pause_s=0.05):
    """What `look` answers once it answers without an error; the last error after the limit."""
    until = time.monotonic() + limit_s
    while True:
        try:
            return look()
        except (AssertionError, OSError, urllib.error.URLError):
            if time.monotonic() > until:
                raise
        time.sleep(pause_s)


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status, answer.read()


class Container:
    def __init__(self, *words):
        self.id = docker("run", "--detach", *RESTRICTED, *words).stdout.strip()

    def inspect(self):
        return json.loads(docker("inspect", self.id).stdout)[0]

    def logs(self):
        done = docker("logs", self.id)
        return done.stdout + done.stderr

    def port(self, inside):
        """The port of this machine's loopback address that leads to one of the container's."""
        return int(self.inspect()["NetworkSettings"]["Ports"][f"{inside}/tcp"][0]["HostPort"])

    def terminate(self):
        """Sends SIGTERM, as Kubernetes does; answers the exit code and the seconds it took to end."""
        began = time.monotonic()
        docker("stop", "--time", 20, self.id)
        return self.inspect()["State"]["ExitCode"], time.monotonic() - began


@pytest.fixture
def start():
    """Starts a container; removed at the end of the test."""
    containers = []

    def start(*words):
        containers.append(Container(*words))
        return containers[-1]

    yield start
    for container in containers:
        docker("rm", "--force", "--volumes", container.id)


@pytest.fixture
def fake_ec2(start):
    """A fake-ec2 with a cluster's surroundings, that answers at `.url`."""

    def begin(*docker_options, arguments=()):
        container = start("--publish", "127.0.0.1::4566", *docker_options, image("fake-ec2"), "--bootstrap", "demo", *arguments)
        container.url = f"http://127.0.0.1:{container.port(4566)}"
        status, _ = eventually(lambda: get(f"{container.url}/_trysquare/health"))
        assert status == 200
        return container

    return begin


@pytest.fixture
def network():
    name = f"images-test-{uuid.uuid4().hex[:8]}"
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)
