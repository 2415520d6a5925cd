"""Every answer has only what AWS's published shapes have: names, nesting, types and enumerated values."""

import urllib.parse
import urllib.request

import pytest
import shapes

# What an action must be asked for beside nothing.
ARGUMENTS = {
    "DescribeFleetHistory": lambda stage: {"FleetId": stage["fleet"], "StartTime": "2020-01-01T00:00:00Z"},
    "DescribeFleetInstances": lambda stage: {"FleetId": stage["fleet"]},
    "DescribeImageAttribute": lambda stage: {"ImageId": stage["own image"], "Attribute": "launchPermission"},
    "DescribeInstanceAttribute": lambda stage: {"InstanceId": stage["instance"], "Attribute": "userData"},
    "DescribeLaunchTemplateVersions": lambda stage: {"LaunchTemplateId": stage["template"]},
    "DescribeNetworkInterfaceAttribute": lambda stage: {
        "NetworkInterfaceId": stage["interface"],
        "Attribute": "description",
    },
    "DescribeVolumeAttribute": lambda stage: {"VolumeId": stage["volume"], "Attribute": "autoEnableIO"},
    "DescribeVpcAttribute": lambda stage: {"VpcId": stage["vpc"], "Attribute": "enableDnsSupport"},
}

# Where the populated account has something to tell: under which member.
POPULATED = {
    "DescribeAvailabilityZones": "AvailabilityZones",
    "DescribeImages": "Images",
    "DescribeInstanceStatus": "InstanceStatuses",
    "DescribeInstanceTypeOfferings": "InstanceTypeOfferings",
    "DescribeInstanceTypes": "InstanceTypes",
    "DescribeInstances": "Reservations",
    "DescribeLaunchTemplateVersions": "LaunchTemplateVersions",
    "DescribeLaunchTemplates": "LaunchTemplates",
    "DescribeSecurityGroups": "SecurityGroups",
    "DescribeSpotInstanceRequests": "SpotInstanceRequests",
    "DescribeSpotPriceHistory": "SpotPriceHistory",
    "DescribeSubnets": "Subnets",
    "DescribeTags": "Tags",
    "DescribeVpcs": "Vpcs",
}


def populate(cloud):
    """Instances of both markets and in several states, with everything a launch can bring along; what they are called."""
    ec2 = cloud.client("ec2")
    template = ec2.create_launch_template(
        LaunchTemplateName="whole",
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": [{"Key": "kind", "Value": "whole"}]}],
        LaunchTemplateData={
            "ImageId": cloud.image(),
            "InstanceType": "m5.large",
            "UserData": "aGVsbG8=",
            "EbsOptimized": True,
            "Monitoring": {"Enabled": True},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/xvda",
                    "Ebs": {"VolumeSize": 30, "VolumeType": "gp3", "Iops": 4000, "Throughput": 200, "Encrypted": True},
                }
            ],
            "NetworkInterfaces": [
                {"DeviceIndex": 0, "Groups": [cloud.stage["securityGroupId"]], "AssociatePublicIpAddress": False}
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": [{"Key": "kind", "Value": kind}]}
                for kind in ("instance", "volume", "network-interface")
            ],
        },
    )["LaunchTemplate"]["LaunchTemplateId"]
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    ec2.create_fleet(
        Type="instant",
        TargetCapacitySpecification={"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"},
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": specification,
                "Overrides": [
                    {"InstanceType": kind, "SubnetId": cloud.stage["subnetIds"][0], "Priority": 1}
                    # The second cannot be launched from the template's image.
                    for kind in ("m5.large", "m6g.large")
                ],
            }
        ],
        TagSpecifications=[{"ResourceType": "fleet", "Tags": [{"Key": "kind", "Value": "fleet"}]}],
    )
    lasting = ec2.create_fleet(
        Type="maintain",
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": specification,
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": cloud.stage["subnetIds"][2]}],
            }
        ],
    )
    instances = ec2.run_instances(
        LaunchTemplate=specification,
        SubnetId=cloud.stage["subnetIds"][1],
        MinCount=4,
        MaxCount=4,
    )["Instances"]
    ids = [instance["InstanceId"] for instance in instances]
    ec2.get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 1})
    ec2.stop_instances(InstanceIds=ids[1:2])
    ec2.terminate_instances(InstanceIds=ids[2:3])
    whole = ec2.describe_instances(InstanceIds=ids[:1])["Reservations"][0]["Instances"][0]
    return {
        "fleet": lasting["FleetId"],
        "image": cloud.image(),
        "instance": ids[0],
        "own image": ec2.create_image(InstanceId=ids[0], Name="own")["ImageId"],
        "interface": whole["NetworkInterfaces"][0]["NetworkInterfaceId"],
        "template": template,
        "volume": whole["BlockDeviceMappings"][0]["Ebs"]["VolumeId"],
        "vpc": cloud.stage["vpcId"],
    }


def is_played(cloud, action):
    """Whether the fake knows the action, whatever else it says to a request without parameters."""
    form = urllib.parse.urlencode({"Action": action, "Version": "2016-11-15"}).encode()
    try:
        with urllib.request.urlopen(cloud.url, form) as answer:
            return bool(answer.read())
    except urllib.error.HTTPError as refused:
        return b"<Code>InvalidAction</Code>" not in refused.read()


def test_every_describe_action_answers_as_its_shape_says(fresh):
    stage = populate(fresh)
    ec2 = fresh.client("ec2")
    names = {operation: method for method, operation in ec2.meta.method_to_api_mapping.items()}
    played = [action for action in ec2.meta.service_model.operation_names if action.startswith("Describe")]
    played = [action for action in played if is_played(fresh, action)]
    assert set(POPULATED) <= set(played)
    for action in played:
        required = ec2.meta.service_model.operation_model(action).input_shape.required_members
        assert not required or action in ARGUMENTS, f"write into ARGUMENTS what {action} needs: {required}"
        arguments = ARGUMENTS.get(action, lambda stage: {})(stage)
        answer = getattr(ec2, names[action])(**arguments)
        if action in POPULATED:
            assert answer[POPULATED[action]], f"{action} finds nothing in an account that has it"


@pytest.mark.parametrize(
    "body, complaint",
    [
        ("<vpcSet><item><vpcID>vpc-1</vpcID></item></vpcSet>", "there is no <vpcID> in Vpc"),
        ("<vpcs/>", "there is no <vpcs> in DescribeVpcsResult"),
        ("<vpcSet><member/></vpcSet>", "expected item, and got member"),
        ("<vpcSet><item><isDefault>yes</isDefault></item></vpcSet>", "isDefault: yes"),
        ("<vpcSet><item><state>there</state></item></vpcSet>", "'there' is none of pending, available"),
        ("<vpcSet><item><vpcId>a</vpcId><vpcId>b</vpcId></item></vpcSet>", "<vpcId> is there twice"),
        ("<vpcSet><item><vpcId>vpc-1</vpcId><state>available</state></item></vpcSet>", None),
    ],
)
def test_what_is_not_in_a_shape_is_noticed(shared, body, complaint):
    operation = shared.client("ec2").meta.service_model.operation_model("DescribeVpcs")
    answer = {"status_code": 200, "body": f"<DescribeVpcsResponse>{body}</DescribeVpcsResponse>".encode()}
    if complaint is None:
        shapes.check(answer, operation, "ec2")
        return
    with pytest.raises(shapes.Wrong) as wrong:
        shapes.check(answer, operation, "ec2")
    assert complaint in str(wrong.value)
