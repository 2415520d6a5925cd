"""What is in the images, and that each does its work in a container with a root it cannot write and no rights."""

import io
import json
import pathlib
import ssl
import subprocess
import tarfile

import boto3
import pytest
from conftest import RESTRICTED, ROOT, SERVE, VERSION, beside, docker, eventually, get, image

PROGRAMS = {"controller": "controller", "fake-ec2": "fake-ec2", "trysquare": "trysquare"}
# Docker puts these into every container.
DOCKERS = {".dockerenv", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf", "dev/console"}


@pytest.fixture
def files():
    """The regular files of an image, by path."""

    def read(name):
        container = docker("create", image(name)).stdout.strip()
        try:
            archive = subprocess.run(["docker", "export", container], check=True, capture_output=True).stdout
        finally:
            docker("rm", container)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = {member.name: member for member in tar.getmembers()}
            return members, {
                path: tar.extractfile(member).read()
                for path, member in members.items()
                if member.isfile() and path not in DOCKERS
            }

    return read


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_image_holds_its_program_and_nothing_else_that_runs(name, files):
    members, contents = files(name)
    others = {
        "etc/ssl/certs/ca-certificates.crt",
        "usr/share/licenses/trysquare/LICENSE",
        f"usr/share/sbom/{name}.cdx.json",
    }
    assert {path for path in contents if not path.startswith("features/")} == {PROGRAMS[name], *others}
    executable = {path for path in contents if members[path].mode & 0o111}
    assert executable == {PROGRAMS[name]}
    assert members["tmp"].mode & 0o7777 == 0o1777
    assert any(path.startswith("features/") for path in contents) == (name == "trysquare")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_authorities_are_mozillas_and_only_those(name, files):
    bundle = files(name)[1]["etc/ssl/certs/ca-certificates.crt"].decode()
    trusted = ssl.create_default_context(cadata=bundle).get_ca_certs()
    names = {value for one in trusted for part in one["subject"] for key, value in part if key == "commonName"}
    # Amazon's own, which every endpoint of AWS is signed under.
    assert {"Amazon Root CA 1", "Amazon Root CA 2", "Amazon Root CA 3", "Amazon Root CA 4"} <= names
    mozilla = list(pathlib.Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    assert len(trusted) == len(mozilla) > 100


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bill_of_materials_names_what_is_inside(name, files):
    inside = files(name)[1][f"usr/share/sbom/{name}.cdx.json"]
    beside = (ROOT / f"target/images/{name}.cdx.json").read_bytes()
    assert inside == beside
    bill = json.loads(inside)
    components = {component["name"] for component in bill["components"]}
    assert {"tokio", "hyper", "glibc", "ca-certificates", "rust-std"} <= components
    # Only the controller and the kit call EC2; tools of the tests are in none.
    assert ("aws-sdk-ec2" in components) == (name != "fake-ec2")
    assert "expect-test" not in components
    assert str(ROOT) not in inside.decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_labels_and_user(name):
    config = json.loads(docker("inspect", image(name)).stdout)[0]["Config"]
    assert config["User"] == "65532:65532"
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels["version"] == VERSION
    assert labels["licenses"] == "Apache-2.0"
    assert labels["source"] == "https://github.com/trysquare/trysquare"
    assert {"title", "description", "revision", "created", "url"} <= labels.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_tells_version_and_commit(name):
    start = ["--network=none", *RESTRICTED, "--entrypoint", f"/{PROGRAMS[name]}"]
    told = docker("run", "--rm", *start, image(name), "--version").stdout
    labels = json.loads(docker("inspect", image(name)).stdout)[0]["Config"]["Labels"]
    revision = labels["org.opencontainers.image.revision"]
    assert VERSION in told
    assert name == "controller" or revision[:12] in told


def client(service, url):
    credentials = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client(service, endpoint_url=url, region_name="us-west-2", **credentials)


def test_fake_ec2_answers_boto3_and_ends_at_once(fake_ec2):
    container = fake_ec2()
    ec2 = client("ec2", container.url)
    pages = ec2.get_paginator("describe_instance_types").paginate()
    types = {one["InstanceType"] for page in pages for one in page["InstanceTypes"]}
    assert {"m5.large", "c7g.medium"} <= types
    sqs = client("sqs", container.url)
    queue = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="hello")
    assert sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"] == "hello"
    code, took_s = container.terminate()
    assert code == 0
    assert took_s < 5, "it is the container's first process, to which the kernel delivers only signals that are watched for"


def test_docker_finds_fake_ec2_healthy(fake_ec2):
    container = fake_ec2()

    def healthy():
        health = container.inspect()["State"]["Health"]
        assert health["Status"] == "healthy", health
        return health

    assert eventually(healthy)["Log"][-1]["ExitCode"] == 0


def test_a_container_finds_another_by_its_name(network, fake_ec2):
    fake_ec2("--network", network, "--name", f"{network}-ec2", arguments=["--control-host", f"{network}-ec2"])
    look = ["--network", network, image("trysquare"), "cloud", "--format", "json"]
    told = docker("run", "--rm", *RESTRICTED, *look, "--endpoint-url", f"http://{network}-ec2:4566").stdout
    assert json.loads(told)["instances"] == []
    once = ["--dns-option", "timeout:1", "--dns-option", "attempts:1"]
    nobody = docker("run", "--rm", *RESTRICTED, *once, *look, "--endpoint-url", "http://nobody.invalid:4566", check=False)
    assert nobody.returncode == 3, nobody.stderr


def test_the_controller_runs_against_the_kits_cluster(start):
    cluster = start(*SERVE)
    controller = start(*beside(cluster), image("controller"))
    port = cluster.port(8081)
    try:
        assert eventually(lambda: get(f"http://127.0.0.1:{port}/readyz"))[0] == 200
        assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200
    except Exception as error:
        raise AssertionError(controller.logs()) from error
    code, took_s = controller.terminate()
    assert (code, took_s < 5) == (0, True), controller.logs()
    code, took_s = cluster.terminate()
    assert (code, took_s < 5) == (0, True), cluster.logs()


def test_scenarios_run_in_a_container_that_can_write_nothing():
    done = docker("run", "--rm", "--network=none", *RESTRICTED, image("trysquare"), "test", "--tags", "@essential", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scenarios_repeat_to_the_byte_in_a_static_program():
    """Overriding libc's getrandom is another matter in a static program."""
    words = ["run", "--rm", "--network=none", *RESTRICTED, "--tmpfs=/tmp", image("trysquare")]
    words += ["test", "features/resilience/takeover.feature", "--twice"]
    assert docker(*words, check=False).returncode == 0
    other = docker(*words, "--randomness", "system", check=False)
    assert other.returncode == 1 and "DIFFERENT" in other.stdout, "the comparison must be able to fail"
