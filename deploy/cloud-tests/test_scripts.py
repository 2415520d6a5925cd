"""deploy/preflight.sh and deploy/render.sh as somebody who sets up a cluster meets them.

Rows of the catalogue: deployment.tools-present, deployment.version-variable-unset, deployment.version-pinned,
deployment.small-node-group-kept, and of deployment.discovery-tags-on-all-node-group-subnets that a missing tag is named.
"""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["aws", "kubectl", "eksctl", "helm"]
VARIABLES = {
    "CLUSTER_NAME": "demo",
    "AWS_REGION": "us-west-2",
    "AWS_ACCOUNT_ID": "123456789012",
    "KUBERNETES_VERSION": "1.36",
    "KARPENTER_NAMESPACE": "kube-system",
    "AMI_ALIAS": "al2023@v20251217",
}


def version():
    """The workspace's version, which is also that of the charts."""
    lines = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1].splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


@pytest.fixture
def workstation(tmp_path):
    """A PATH with the four tools, of which aws answers for account 123456789012, and the usual programs."""
    for tool in TOOLS:
        program = tmp_path / tool
        program.write_text("#!/bin/sh\necho 123456789012\n")
        program.chmod(0o755)
    for program in ["bash", "env", "sh", "sed", "head", "tr", "awk", "cat", "dirname", "grep", "wc"]:
        found = next(folder for folder in ("/usr/bin", "/bin") if os.path.exists(f"{folder}/{program}"))
        (tmp_path / program).symlink_to(f"{found}/{program}")
    return tmp_path


def run(script, workstation, *arguments, **variables):
    environment = {"PATH": str(workstation), "CONTROLLER_VERSION": version()} | VARIABLES | variables
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run(
        [ROOT / "deploy" / script, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def preflight(workstation, *arguments, **variables):
    return run("preflight.sh", workstation, *arguments, **variables)


def missing(result):
    return [line.split(maxsplit=1)[1] for line in result.stdout.splitlines() if line.startswith("missing")]


def test_a_workstation_with_everything_passes(workstation):
    result = preflight(workstation)
    assert (result.returncode, missing(result)) == (0, []), result.stdout + result.stderr
    assert "warning" not in result.stdout


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_tool_is_named(workstation, tool):
    (workstation / tool).unlink()
    result = preflight(workstation)
    assert result.returncode == 1
    assert [problem.split(",")[0] for problem in missing(result)] == [tool]
    assert preflight(workstation, "--without", tool).returncode == 0


@pytest.mark.parametrize("variable", [*VARIABLES, "CONTROLLER_VERSION"])
def test_a_variable_that_is_not_set_is_named(workstation, variable):
    result = preflight(workstation, **{variable: None})
    assert result.returncode == 1
    assert [problem.split()[0] for problem in missing(result)] == [variable]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CONTROLLER_VERSION", "latest"),
        ("CONTROLLER_VERSION", "0"),
        ("CLUSTER_NAME", "my cluster"),
        ("CLUSTER_NAME", "c" * 41),
        ("AWS_REGION", "us-west-2a"),
        ("AWS_ACCOUNT_ID", "1234"),
        ("KUBERNETES_VERSION", "v1.36"),
        ("AMI_ALIAS", "al2023"),
    ],
)
def test_a_value_that_cannot_be_right_is_named_with_what_would_be(workstation, variable, value):
    result = preflight(workstation, **{variable: value})
    assert result.returncode == 1
    assert any(problem.startswith(f'{variable} is "{value}", but must be ') for problem in missing(result)), result.stdout


def test_a_chart_of_another_version_is_named(workstation):
    charts = list(ROOT.glob("deploy/*/Chart.yaml"))
    result = preflight(workstation, CONTROLLER_VERSION="99.0.0")
    assert len(missing(result)) == len(charts)
    assert all("CONTROLLER_VERSION is 99.0.0" in problem for problem in missing(result))


def test_an_image_that_is_not_fixed_is_warned_of(workstation):
    result = preflight(workstation, AMI_ALIAS="al2023@latest")
    assert result.returncode == 0
    assert "warning  AMI_ALIAS is al2023@latest, which is not fixed" in result.stdout


def test_credentials_of_another_account_are_named(workstation):
    result = preflight(workstation, AWS_ACCOUNT_ID="999999999999")
    assert missing(result) == ["the credentials are those of account 123456789012, and AWS_ACCOUNT_ID is 999999999999"]


def test_credentials_that_are_refused_are_told_in_aws_words(workstation):
    (workstation / "aws").write_text("#!/bin/sh\necho 'Unable to locate credentials.' >&2; exit 253\n")
    result = preflight(workstation)
    assert result.returncode == 1 and "Unable to locate credentials." in missing(result)[0]


AWS = """#!/bin/sh
case "$1 $2" in
  "ec2 describe-subnets") echo "{subnets}" ;;
  "ec2 describe-security-groups") echo "{groups}" ;;
  "eks list-access-entries") printf '{entries}' ;;
  "iam get-role") exit {spot} ;;
  *) echo 123456789012 ;;
esac
"""
KUBECTL = """#!/bin/sh
case "$*" in
  *configmap*) printf '{aws_auth}' ;;
  *) printf '{nodes}' ;;
esac
"""
ROLE = "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo"
PREPARED = {
    "subnets": "subnet-1 subnet-2", "groups": "sg-1", "entries": rf"arn:aws:iam::1:user/me\t{ROLE}\n", "spot": 0,
    "aws_auth": "", "nodes": r"node/a\nnode/b\n",
}


def cluster(workstation, **different):
    facts = PREPARED | different
    (workstation / "aws").write_text(AWS.format(**facts))
    (workstation / "kubectl").write_text(KUBECTL.format(**facts))
    return preflight(workstation, "--cluster")


def test_a_cluster_that_is_prepared_passes(workstation):
    result = cluster(workstation)
    assert result.returncode == 0, result.stdout
    assert "ok       2 subnets with the discovery tag" in result.stdout and "warning" not in result.stdout


@pytest.mark.parametrize(
    ("different", "problem"),
    [
        ({"subnets": ""}, "subnets with the tag karpenter.sh/discovery=demo"),
        ({"groups": "None"}, "security groups with the tag karpenter.sh/discovery=demo"),
        ({"entries": "", "aws_auth": ""}, "an access entry or aws-auth for KarpenterNodeRole-demo"),
        ({"entries": rf"{ROLE}-other\n"}, "an access entry or aws-auth for KarpenterNodeRole-demo"),
    ],
)
def test_what_the_cluster_lacks_is_named(workstation, different, problem):
    result = cluster(workstation, **different)
    assert result.returncode == 1
    assert [found[: len(problem)] for found in missing(result)] == [problem]


def test_the_older_way_to_admit_nodes_is_seen(workstation):
    assert cluster(workstation, entries="", aws_auth=rf"  - rolearn: {ROLE}\n").returncode == 0


@pytest.mark.parametrize(
    ("different", "warning"),
    [
        ({"nodes": r"node/a\n"}, "1 schedulable nodes that the controller does not manage, and its two replicas need two"),
        ({"nodes": ""}, "0 schedulable nodes"),
        ({"spot": 254}, "the account has no service-linked role for spot"),
    ],
)
def test_what_will_make_trouble_later_is_warned_of(workstation, different, warning):
    result = cluster(workstation, **different)
    assert result.returncode == 0
    assert f"warning  {warning}" in result.stdout


def test_the_cluster_is_not_asked_while_something_else_is_missing(workstation):
    result = preflight(workstation, "--cluster", CLUSTER_NAME=None)
    assert result.returncode == 1 and "skipped  the cluster" in result.stdout


def test_an_unknown_option_is_wrong_usage(workstation):
    for arguments in (["--dry-run"], ["--without"], ["--without", "docker"]):
        assert preflight(workstation, *arguments).returncode == 2


def test_variables_are_put_in(workstation):
    result = run("render.sh", workstation, "deploy/manifests/ec2-node-class.yaml", "deploy/manifests/node-pool.yaml")
    assert result.returncode == 0, result.stderr
    assert "role: KarpenterNodeRole-demo\n" in result.stdout and "alias: al2023@v20251217\n" in result.stdout
    assert "\n---\n" in result.stdout and "${" not in result.stdout


def test_a_value_may_hold_any_character(workstation):
    result = run("render.sh", workstation, "deploy/manifests/ec2-node-class.yaml", CLUSTER_NAME=r"a/b&c\1")
    assert r"role: KarpenterNodeRole-a/b&c\1" in result.stdout


def test_nothing_is_printed_where_a_variable_is_missing(workstation):
    result = run("render.sh", workstation, "deploy/manifests/ec2-node-class.yaml", CLUSTER_NAME=None, AMI_ALIAS="")
    assert (result.returncode, result.stdout) == (1, "")
    assert "not set: CLUSTER_NAME AMI_ALIAS;" in result.stderr


def test_a_file_that_does_not_exist_is_wrong_usage(workstation):
    assert run("render.sh", workstation, "deploy/manifests/none.yaml").returncode == 2
    assert run("render.sh", workstation).returncode == 2
