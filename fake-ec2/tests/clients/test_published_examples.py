"""AWS's published examples, replayed: the request as published, but for what has to exist; the answer compared by `published`.

They are the files `examples-1.json` that botocore ships beside its service models, for the actions that a node autoscaler needs
(docs/spec/karpenter-aws.md, section 12.1) and those around them. Where they have no answer, as of
RunInstances, those of the command line have (test_published_commands.py); that file lists which action has which.
"""

import copy
import datetime

import botocore.loaders
import conftest
import pytest
import test_shapes
from published import differences, texts


class Example:
    """One published example: what it is, what to change in its request, and what of its answer is not expected and why."""

    def __init__(self, service, action, changes=None, absent=(), number=0):
        self.service, self.action, self.number = service, action, number
        self.changes, self.absent = changes or (lambda stage: {}), set(absent)

    def published(self):
        loader = botocore.loaders.Loader()
        examples = loader.load_service_model(self.service, "examples-1")["examples"][self.action]
        return copy.deepcopy(examples[self.number])


# The published image is paravirtual, with a kernel of its own; the fake's images tell nothing of their snapshots.
OLD_IMAGE = {"Images.KernelId", "Images.BlockDeviceMappings"}

# In this order against one account: those that end something come last.
EXAMPLES = [
    Example("ec2", "CreateLaunchTemplate", lambda stage: {"LaunchTemplateData.ImageId": stage["image"]}),
    Example("ec2", "CreateTags", lambda stage: {"Resources": [stage["instance"]]}),
    Example("ec2", "DescribeAvailabilityZones"),
    Example("ec2", "DescribeImages", lambda stage: {"ImageIds": [stage["image"]]}, OLD_IMAGE),
    Example("ec2", "DescribeInstanceStatus", lambda stage: {"InstanceIds": [stage["instance"]]}),
    Example("ec2", "DescribeLaunchTemplates", lambda stage: {"LaunchTemplateIds": [stage["template"]]}),
    Example(
        "ec2",
        "DescribeLaunchTemplateVersions",
        lambda stage: {"LaunchTemplateId": stage["template"]},
        # The stage's template was made without a key pair, and names no subnet.
        {
            "LaunchTemplateVersions.LaunchTemplateData.KeyName",
            "LaunchTemplateVersions.LaunchTemplateData.NetworkInterfaces.SubnetId",
        },
    ),
    Example(
        "ec2",
        "DescribeSpotPriceHistory",
        lambda stage: {"InstanceTypes": ["m5.large"], "StartTime": stage["now"], "EndTime": stage["now"]},
        # Assumed: without EC2-Classic the description no longer tells the network, whatever the filter says.
        {"SpotPriceHistory.ProductDescription"},
    ),
    Example("ec2", "DescribeSubnets", lambda stage: {"Filters": [{"Name": "vpc-id", "Values": [stage["vpc"]]}]}),
    Example(
        "ec2",
        "DescribeTags",
        lambda stage: {"Filters": [{"Name": "resource-id", "Values": [stage["instance"]]}]},
    ),
    Example("iam", "CreateInstanceProfile"),
    Example("iam", "GetInstanceProfile", lambda stage: {"InstanceProfileName": stage["profile"]}),
    Example(
        "iam",
        "GetRole",
        lambda stage: {"RoleName": stage["role"]},
        # When there was a session is not kept of a role.
        {"Role.RoleLastUsed"},
    ),
    Example("eks", "ListClusters"),
    Example("sts", "GetCallerIdentity"),
    Example("ec2", "TerminateInstances", lambda stage: {"InstanceIds": [stage["instance"]]}),
    Example("ec2", "DeleteLaunchTemplate", lambda stage: {"LaunchTemplateId": stage["template"]}),
    Example(
        "iam",
        "RemoveRoleFromInstanceProfile",
        lambda stage: {"InstanceProfileName": stage["profile"], "RoleName": stage["role"]},
    ),
    Example(
        "iam",
        "AddRoleToInstanceProfile",
        lambda stage: {"InstanceProfileName": stage["empty profile"], "RoleName": stage["role"]},
    ),
    Example("iam", "DeleteInstanceProfile", lambda stage: {"InstanceProfileName": stage["profile"]}),
]


@pytest.fixture(scope="module")
def cloud():
    cloud = conftest.Cloud()
    cloud.settle_at_once()
    yield cloud
    cloud.end()


@pytest.fixture(scope="module")
def stage(cloud):
    stage = test_shapes.populate(cloud)
    iam = cloud.client("iam")
    role = cloud.stage["nodeRoleName"]
    for name in ("used", "empty"):
        iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName="used", RoleName=role)
    now = datetime.datetime.now(datetime.UTC)
    return stage | {"profile": "used", "empty profile": "empty", "role": role, "now": now}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.service}-{example.action}")
def test_an_example_is_answered_as_published(cloud, stage, example):
    published = example.published()
    request = published.get("input", {})
    for path, value in example.changes(stage).items():
        *way, last = path.split(".")
        where = request
        for name in way:
            where = where[name]
        where[last] = value
    client = cloud.client(example.service)
    names = {operation: method for method, operation in client.meta.method_to_api_mapping.items()}
    answer = getattr(client, names[example.action])(**request)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    wrong = list(differences(published.get("output") or {}, answer, "", example.absent, set(texts(request))))
    assert not wrong, "\n".join(wrong)


def test_a_difference_is_noticed():
    published = {"Things": [{"State": "available", "Count": 1, "Name": "any", "Gone": "x"}]}
    got = {"Things": [{"State": "pending", "Count": "1", "Name": "other"}]}
    assert list(differences(published, got, "", set())) == [
        "Things.State: expected 'available', and got 'pending'",
        "Things.Count: expected 1, and got '1'",
        "Things.Gone is not there",
    ]
    assert list(differences({"Name": "asked"}, {"Name": "other"}, "", set(), {"asked"})) == [
        "Name: expected 'asked', and got 'other'"
    ]
    assert not list(differences({"VpcId": "vpc-1a2b3c4d"}, {"VpcId": "vpc-0e220a8397b1dcdaf"}, "", set()))
    assert list(differences({"VpcId": "vpc-1a2b3c4d"}, {"VpcId": "subnet-0e220a8397b1dcdaf"}, "", set()))
    assert list(differences({"At": "2017-11-27T09:30:23.000Z"}, {"At": "yesterday"}, "", set()))
    assert list(differences(published, {"Things": []}, "", set()))
