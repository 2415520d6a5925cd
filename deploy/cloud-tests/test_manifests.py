"""The eksctl configuration and the manifests, with the variables of deploy/README.md put in."""

import json
import os
import pathlib
import subprocess

import jsonschema
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIABLES = {
    "CLUSTER_NAME": "demo",
    "AWS_REGION": "us-west-2",
    "KUBERNETES_VERSION": "1.36",
    "KARPENTER_NAMESPACE": "kube-system",
    "AMI_ALIAS": "al2023@v20251217",
    "NODE_ROLE_ARN": "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo",
    "CONTROLLER_ROLE_ARN": "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo",
    "NODE_GROUP_ROLE_ARN": "arn:aws:iam::123456789012:role/workers",
}


def rendered(path):
    result = subprocess.run(
        [ROOT / "deploy/render.sh", path], env=os.environ | VARIABLES, capture_output=True, text=True, check=True)
    return yaml.safe_load(result.stdout)


@pytest.fixture(scope="module")
def cluster():
    return rendered(ROOT / "deploy/eksctl/cluster.yaml")


def test_the_cluster_is_one_that_eksctl_accepts(cluster):
    module = os.environ.get("EKSCTL_MODULE")
    assert module, "EKSCTL_MODULE is to be the folder of eksctl's module: run this by make cloud-test"
    schema = json.loads((pathlib.Path(module) / "pkg/apis/eksctl.io/v1alpha5/assets/schema.json").read_text())
    # The schema describes an ARN as eksctl's program holds it; in a file it is text.
    schema["definitions"]["ARN"] = {"type": "string", "pattern": "^arn:"}
    jsonschema.Draft7Validator(schema).validate(cluster)


def test_the_cluster_has_what_the_controller_needs(cluster):
    assert cluster["metadata"]["tags"] == {"karpenter.sh/discovery": "demo"}
    assert cluster["accessConfig"]["accessEntries"] == [{"principalARN": VARIABLES["NODE_ROLE_ARN"], "type": "EC2_LINUX"}]
    assert cluster["iam"]["withOIDC"] is True
    assert cluster["iam"]["podIdentityAssociations"] == [
        {"namespace": "kube-system", "serviceAccountName": "karpenter", "roleARN": VARIABLES["CONTROLLER_ROLE_ARN"]}]
    assert {"name": "eks-pod-identity-agent"} in cluster["addons"]
    assert cluster["managedNodeGroups"][0]["minSize"] >= 2, "two replicas share no node"


def test_the_older_way_to_admit_nodes_is_accepted_too(cluster):
    """What stands as a comment is right when it is taken up."""
    text = (ROOT / "deploy/eksctl/cluster.yaml").read_text()
    lines = text.split("# iamIdentityMappings:", 1)[1].split("\n\n", 1)[0].splitlines()
    mapping = yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines[1:]))
    entries = yaml.safe_load(rendered(ROOT / "deploy/manifests/aws-auth.yaml")["data"]["mapRoles"])
    assert [entry["rolearn"] for entry in entries] == [VARIABLES["NODE_GROUP_ROLE_ARN"], VARIABLES["NODE_ROLE_ARN"]]
    for entry in [*mapping, *entries]:
        assert entry["username"] == "system:node:{{EC2PrivateDNSName}}"
        assert entry["groups"] == ["system:bootstrappers", "system:nodes"]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/manifests").glob("*.yaml")), ids=lambda path: path.name)
def test_every_image_has_a_version(path):
    """An image without one is another image tomorrow."""
    containers = rendered(path).get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    for container in containers:
        assert ":" in container["image"].rsplit("/", 1)[1] and not container["image"].endswith(":latest"), container
