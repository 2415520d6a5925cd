"""The examples of the AWS command line, replayed by the command line itself: the command as published, but for what has to exist;
its output compared by `published`.

They are the files `examples/SERVICE/COMMAND.rst` that awscli ships, for the actions that a node autoscaler needs
(docs/spec/karpenter-aws.md, section 12.1). An example is a command, the files that it reads, and an output; those without an
output have that of another example or none.

Of section 12.1's actions these have an example here: EC2's RunInstances, CreateFleet, CreateLaunchTemplate, CreateTags,
DeleteLaunchTemplate, TerminateInstances, DescribeInstances, DescribeInstanceTypes, DescribeInstanceTypeOfferings,
DescribeInstanceStatus, DescribeLaunchTemplates, DescribeSubnets, DescribeSecurityGroups, DescribeImages,
DescribeCapacityReservations, DescribePlacementGroups; EKS' DescribeCluster; SQS' GetQueueUrl, ReceiveMessage, DeleteMessage; IAM's
ListInstanceProfiles, GetInstanceProfile, CreateInstanceProfile, DeleteInstanceProfile, AddRoleToInstanceProfile and
RemoveRoleFromInstanceProfile; SSM's GetParameter.

Not replayed, or elsewhere:

- DescribeSpotPriceHistory: prices of 2014, which the fake has not; that of botocore is replayed (test_published_examples.py).
- AssumeRoleWithWebIdentity: the published command is refused by the command line itself, by its `--policy-arns`.
- GetProducts: asks for storage; the fake's price list is that of compute.
- ARC's GetManagedResource: the fake does not play zonal shift.
- DescribeInstances 6: filters by `tag-value`, which AWS's reference no longer lists and the fake refuses; 8: its output is not of the
  form that its command asks for.
- DescribeInstanceTypeOfferings 2 in a zone: its output is another example's, by region.
"""

import base64
import datetime
import os
import pathlib
import re
import shlex
import subprocess

import awscli
import conftest
import pytest
import yaml
from published import differences, texts

# What is published is no JSON, or no command: as it was meant.
MISPRINTS = {
    "file_name.jsonContents of file_name.json::": "file_name.json\n\nContents of ``file_name.json``::",
    "        },\n        ...\n  }\n\n**To describe Spot": "        }\n  ]}\n\n**To describe Spot",
    '"CustomerOwnedIpv4Pool:": \'pool-2EXAMPLE\',': "",
    'MyStringParameter"\n            "DataType"': 'MyStringParameter",\n            "DataType"',
    'MySecureStringParameter"\n            "DataType"': 'MySecureStringParameter",\n            "DataType"',
}


class Command:
    """One published command: which one of its file, what to write for what it says, what of its output is not expected and why, and
    whose output it has if it has none of its own."""

    def __init__(self, service, command, number, meant=None, absent=(), output_of=None):
        self.service, self.command, self.number = service, command, number
        self.meant, self.absent, self.output_of = meant or (lambda stage: {}), set(absent), output_of

    @property
    def action(self):
        return "".join(word.capitalize() for word in self.command.split("-"))

    def published(self, stage):
        """The command's words, the files that it reads, and its output, with what the stage has in place of what is published."""
        example = read(self.service, self.command)[self.number]
        output = example["output"] or (self.output_of is not None and read(self.service, self.command)[self.output_of]["output"])

        def fill(text):
            for said, meant in self.meant(stage).items():
                text = text.replace(said, meant)
            return text

        return shlex.split(fill(example["command"])), {name: fill(text) for name, text in example["files"].items()}, fill(output or "")


def read(service, command):
    """The examples of a command, in order: `command`, `files` and `output`."""
    text = pathlib.Path(awscli.__file__).with_name("examples").joinpath(service, f"{command}.rst").read_text().replace("\r", "")
    for printed, meant in MISPRINTS.items():
        text = text.replace(printed, meant)
    examples, heading = [], ""
    for block in blocks(text):
        if block[0] != " ":
            heading = block.strip().splitlines()[-1]
        elif block.lstrip().startswith("aws "):
            # Of Windows' ways to go on in the next line there is no use here.
            if " ^\n" not in block and " `\n" not in block:
                examples.append({"command": block.replace("\\\n", " "), "files": {}, "output": None})
        elif file := re.search(r"(?:Contents of (?:``)?|^)([\w.]+\.(?:json|txt))", heading):
            examples[-1]["files"][file[1]] = block
        elif re.search("[Oo]utput", heading) and examples[-1]["output"] is None:
            examples[-1]["output"] = block
    return examples


def blocks(text):
    """Paragraphs of prose, and what is indented, which may have empty lines in it."""
    lines, indented = [], False
    for line in text.splitlines() + ["end"]:
        if line.strip() and (line[0] in " \t") != indented:
            if any(lines):
                yield "\n".join(lines).strip("\n") + "\n"
            lines, indented = [], not indented
        lines.append(line.replace("\t", "  "))


def parsed(output):
    """A document, or the rows of a text. Published ones leave parts out by an ellipsis, and have commas too many."""
    shown = "\n".join(line for line in output.splitlines() if line.strip() != "...")
    if shown.lstrip()[:1] in ("{", "["):
        return yaml.load(shown, JsonLoader)
    return [line.split() for line in shown.splitlines() if line.strip()]


class JsonLoader(yaml.SafeLoader):
    """JSON with commas too many; an instant is a text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def launched(stage):
    return {
        "ami-0abcdef1234567890": stage["image"],
        "subnet-08fc749671b2d077c": stage["subnet"],
        "sg-0b0384b66d7d692f9": stage["group"],
        "MySecurityGroup": "demo-node",
    }


def described(stage):
    return {
        "i-1234567890abcdef0": stage["instance"],
        "i-0123a456700123456": stage["in partition 3"],
        "ami-0abcdef1234567890": stage["image"],
        "Values=us-east-2c": f"Values={stage['zone']}",
        '"us-east-2c"': f'"{stage["zone"]}"',
        "AmazonSSMRoleForInstancesQuickSetup": "used",
    }


def fleet(stage):
    return {"lt-0e8c754449b27161c": stage["fleet's template"], "subnet-a4f6c5d3": stage["subnet"]}


def template(stage):
    return {
        "subnet-7b16de0c": stage["subnet"],
        "ami-8c1be5f6": stage["image"],
        "ami-b42209de": stage["image"],
        "ami-00068cd7555f543d5": stage["image"],
        "snap-066877671789bd71b": stage["snapshot"],
        # Two in one text is a misprint.
        '"sg-7c227019,sg-903004f8"': f'"{stage["group"]}"',
    }


def tagged(stage):
    ids = {"ami-1234567890abcdef0": stage["own image"], "ami-1a2b3c4d": stage["own image"]}
    return ids | {"i-1234567890abcdef0": stage["instance"]}


def access(stage):
    return {"ExampleInstanceProfile": "used", "Test-Role": stage["role"], "S3Access": stage["role"]}


def queue(stage):
    return {
        "https://sqs.us-east-1.amazonaws.com/80398EXAMPLE/MyQueue": stage["queue"],
        "https://queue.amazonaws.com/80398EXAMPLE/MyQueue": stage["queue"],
        "AQEBRXTo...q2doVA==": stage["receipt handle"],
        "My first message.": "My first message.",
    }


# What the fake does not tell of an instance: public addresses (its README), when its usage last changed, addresses of IPv6.
UNTOLD = {
    "PublicDnsName",
    "PublicIpAddress",
    "NetworkInterfaces.Association",
    "NetworkInterfaces.PrivateIpAddresses.Association",
    "UsageOperationUpdateTime",
    "PrivateDnsNameOptions.EnableResourceNameDnsAAAARecord",
}
# The fake attaches and applies at once, and gives no reason for the state of an instance that is just launched.
AT_ONCE = {"NetworkInterfaces.Attachment.Status", "StateReason", "MetadataOptions.State"}
JUST_LAUNCHED = {f"Instances.{path}" for path in UNTOLD | AT_ONCE}
# Groups have the stage's names.
GROUPS = {"NetworkInterfaces.Groups.GroupName", "SecurityGroups.GroupName"}
DESCRIBED = {f"Reservations.Instances.{path}" for path in UNTOLD | GROUPS}
# The published image is one of Red Hat.
ITS_PLATFORM = {"Images.PlatformDetails", "Images.UsageOperation", "Images.SriovNetSupport"}
# The published cluster is eksctl's, with its tags and its own access; the fake plays no logging (its README) and no health.
ITS_CLUSTER = {"cluster.tags", "cluster.logging", "cluster.health"}
ITS_CLUSTER |= {f"cluster.resourcesVpcConfig.{member}" for member in ("securityGroupIds", "publicAccessCidrs")}

# In this order against one account: those that end something come last.
COMMANDS = [
    # Before the launches, so that filters find what the stage launched.
    Command("ec2", "describe-instances", 0, described, DESCRIBED),
    *(Command("ec2", "describe-instances", number, described, DESCRIBED, output_of=0) for number in (1, 2, 3, 4, 6)),
    Command("ec2", "describe-instances", 8),
    Command("ec2", "describe-instances", 10, described),
    Command("ec2", "describe-instances", 12),
    *(Command("ec2", "run-instances", number, launched, JUST_LAUNCHED, output_of=0) for number in range(6)),
    *(Command("ec2", "create-fleet", number, fleet) for number in range(4)),
    # The catalogue has no valid cores.
    Command("ec2", "describe-instance-types", 0, absent={f"InstanceTypes.VCpuInfo.Valid{what}" for what in ("Cores", "ThreadsPerCore")}),
    Command("ec2", "describe-instance-types", 1),
    *(
        Command("ec2", "describe-instance-type-offerings", number, lambda stage: {"us-east-2": "us-west-2"}, output_of=1)
        for number in (0, 1, 3, 4)
    ),
    Command("ec2", "describe-launch-templates", 0),
    Command("ec2", "describe-instance-status", 0, described),
    Command("ec2", "describe-subnets", 0),
    Command("ec2", "describe-subnets", 1, lambda stage: {"vpc-3EXAMPLE": stage["vpc"]}),
    Command("ec2", "describe-subnets", 2),
    Command("ec2", "describe-security-groups", 0, lambda stage: {"sg-903004f8": stage["own group"]}),
    Command("ec2", "describe-security-groups", 1),
    Command("ec2", "describe-security-groups", 2),
    Command("ec2", "describe-images", 0, lambda stage: {"ami-1234567890EXAMPLE": stage["image"]}, ITS_PLATFORM),
    Command("ec2", "describe-images", 1, absent=ITS_PLATFORM, output_of=0),
    Command("ec2", "describe-images", 2),
    *(Command("ec2", "create-launch-template", number, template) for number in range(3)),
    # The fake tells no allocations of a reservation.
    *(
        Command(
            "ec2",
            "describe-capacity-reservations",
            number,
            lambda stage: {"cr-1234abcd56EXAMPLE": stage["reservation"]},
            {"CapacityReservations.CapacityAllocations"},
        )
        for number in range(2)
    ),
    # Which of the stage's two groups comes first is not said.
    Command("ec2", "describe-placement-groups", 0, absent={"PlacementGroups.Strategy"}),
    *(Command("ec2", "create-tags", number, tagged) for number in range(3)),
    Command("eks", "describe-cluster", 0, lambda stage: {"my-eks-cluster": "demo"}, ITS_CLUSTER),
    Command("sqs", "get-queue-url", 0, queue),
    # The second takes one message, the first what is left; how often it was received before is not the same.
    Command("sqs", "receive-message", 1, queue),
    Command("sqs", "receive-message", 0, queue, {"Messages.Attributes.ApproximateReceiveCount"}),
    Command("sqs", "delete-message", 0, queue),
    Command("iam", "list-instance-profiles", 0),
    Command("iam", "get-instance-profile", 0, access),
    *(Command("ssm", "get-parameter", number) for number in range(4)),
    Command("ec2", "terminate-instances", 0, described),
    Command("ec2", "delete-launch-template", 0, lambda stage: {"lt-0abcd290751193123": stage["template"]}),
    Command("iam", "create-instance-profile", 0),
    Command("iam", "add-role-to-instance-profile", 0, access),
    Command("iam", "remove-role-from-instance-profile", 0, access),
    Command("iam", "delete-instance-profile", 0, access),
]


@pytest.fixture(scope="module")
def cloud():
    # The examples' types.
    cloud = conftest.Cloud("--families", "c3,c4,m1,m4,r3,r4,r5,t2,t3")
    cloud.settle_at_once()
    yield cloud
    cloud.end()


@pytest.fixture(scope="module")
def stage(cloud):
    """What the examples take for granted, under their own names where they give any."""
    ec2, iam, sqs, ssm = (cloud.client(service) for service in ("ec2", "iam", "sqs", "ssm"))
    made = cloud.stage
    stage = {"image": cloud.image(), "subnet": made["subnetIds"][0], "group": made["securityGroupId"], "vpc": made["vpcId"]}
    stage |= {"role": made["nodeRoleName"], "zone": f"{cloud.environment['AWS_REGION']}a", "queue": f"{cloud.url}/123456789012/MyQueue"}
    ec2.create_default_vpc()
    ec2.create_tags(Resources=[stage["subnet"]], Tags=[{"Key": "CostCenter", "Value": "123"}, {"Key": "Name", "Value": "MySubnet"}])
    for name in ("MyKeyPair", "my-key-pair"):
        ec2.create_key_pair(KeyName=name, KeyType="ed25519")
    iam.create_instance_profile(InstanceProfileName="used")
    iam.add_role_to_instance_profile(InstanceProfileName="used", RoleName=stage["role"])

    launch = {"ImageId": stage["image"], "SubnetId": stage["subnet"], "MinCount": 1, "MaxCount": 1}
    tags = [{"Key": "Name", "Value": "my-instance"}, {"Key": "Owner", "Value": "my-team"}]
    described = {
        "EbsOptimized": True,
        "IamInstanceProfile": {"Name": "used"},
        "KeyName": "my-key-pair",
        "MetadataOptions": {"InstanceMetadataTags": "enabled", "HttpTokens": "optional"},
        "PrivateDnsNameOptions": {"HostnameType": "ip-name", "EnableResourceNameDnsARecord": True},
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
    }
    for kind in ("m5.large", "t2.micro", "t3.nano"):
        stage["instance"] = ec2.run_instances(**launch, **described, InstanceType=kind)["Instances"][0]["InstanceId"]
    ec2.create_placement_group(GroupName="my-cluster", Strategy="cluster")
    ec2.create_placement_group(GroupName="HDFS-Group-A", Strategy="partition", PartitionCount=7)
    placement = {"GroupName": "HDFS-Group-A", "PartitionNumber": 3}
    placed = ec2.run_instances(**launch, InstanceType="r4.large", Placement=placement)["Instances"][0]
    stage["in partition 3"] = placed["InstanceId"]

    volume = ec2.create_volume(AvailabilityZone=stage["zone"], Size=8)["VolumeId"]
    stage["snapshot"] = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    image_tags = [{"ResourceType": "image", "Tags": [{"Key": "Type", "Value": "Custom"}]}]
    stage["own image"] = ec2.create_image(InstanceId=stage["instance"], Name="own", TagSpecifications=image_tags)["ImageId"]
    reservation = {"InstanceType": "c5.large", "InstancePlatform": "Linux/UNIX", "InstanceCount": 1, "EbsOptimized": True}
    reserved = ec2.create_capacity_reservation(**reservation, AvailabilityZone=stage["zone"])["CapacityReservation"]
    stage["reservation"] = reserved["CapacityReservationId"]
    for name, key in (("TestTemplate", "template"), ("for a fleet", "fleet's template")):
        data = {"ImageId": stage["image"], "InstanceType": "m5.large"}
        template = ec2.create_launch_template(LaunchTemplateName=name.replace(" ", "-"), LaunchTemplateData=data)["LaunchTemplate"]
        stage[key] = template["LaunchTemplateId"]
    stage["own group"] = security_groups(ec2, made["vpcId"])

    stage["receipt handle"] = messages(sqs)
    for name, kind, value in (
        ("MyStringParameter", "String", "Veni"),
        ("MySecureStringParameter", "SecureString", "16679b88-310b-4895-a943-e0764EXAMPLE"),
        ("MyParameter", "String", "parameter version 1"),
        ("MyParameter", "String", "parameter version 2"),
    ):
        ssm.put_parameter(Name=name, Type=kind, Value=value, Overwrite=True)
    ssm.put_parameter(Name="MySecureStringParameter", Type="SecureString", Value="16679b88-310b-4895-a943-e0764EXAMPLE", Overwrite=True)
    ssm.label_parameter_version(Name="MyParameter", ParameterVersion=2, Labels=["label"])
    return stage


def security_groups(ec2, vpc):
    """One as the first example describes it; and those that the others filter for."""
    for name, tag in (("testfornewinstance", "To-delete"), ("my-security-group", "Keep")):
        specification = [{"ResourceType": "security-group", "Tags": [{"Key": "Test", "Value": tag}]}]
        group = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc, TagSpecifications=specification)["GroupId"]
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ssh])
    tags = [{"ResourceType": "security-group", "Tags": [{"Key": "Name", "Value": "SG1"}]}]
    group = ec2.create_security_group(GroupName="MySecurityGroup", Description="My security group", VpcId=vpc, TagSpecifications=tags)
    own = group["GroupId"]
    office = {"CidrIp": "203.0.113.0/24", "Description": "Access from NY office"}
    ec2.authorize_security_group_ingress(
        GroupId=own,
        IpPermissions=[
            {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]},
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [office]},
        ],
    )
    return own


def messages(sqs):
    """A queue with a message for each example; the receipt handle of one that is received is answered."""
    url = sqs.create_queue(QueueName="MyQueue")["QueueUrl"]
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in (("PostalCode", "ABC123"), ("City", "Any City"))}
    send = lambda: sqs.send_message(QueueUrl=url, MessageBody="My first message.", MessageAttributes=attributes)
    send()
    handle = sqs.receive_message(QueueUrl=url)["Messages"][0]["ReceiptHandle"]
    send(), send()
    return handle


@pytest.mark.parametrize("example", COMMANDS, ids=lambda example: f"{example.service}-{example.command}-{example.number + 1}")
def test_a_command_prints_what_is_published(cloud, stage, example, tmp_path):
    words, files, published = example.published(stage)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "my_script.txt").write_text("#!/bin/sh\n")
    environment = {**os.environ, **cloud.environment, "AWS_PAGER": "", "AWS_CONFIG_FILE": str(tmp_path / "none")}
    # Version 1 of the command line overwrites the endpoint of SQS with AWS's own unless it is an option.
    endpoint = ["--endpoint-url", cloud.url] if example.service == "sqs" else []
    ended = subprocess.run([*words, *endpoint], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, f"{shlex.join(words)}: {ended.stderr}"
    if not published or published.strip() == "None.":
        assert not ended.stdout.strip() or example.service != "iam", ended.stdout
        return
    echoed = set(words) | {text for content in files.values() for text in texts(parsed(content))}
    wrong = list(differences(parsed(published), parsed(ended.stdout), "", example.absent, echoed))
    assert not wrong, "\n".join(wrong) + f"\n\n{ended.stdout}"
