"""EC2 through boto3. Expected codes and statuses are those of the EC2 API Reference."""

import base64
import datetime
import re
import shutil
import subprocess

import boto3
import pytest


def test_every_describe_action_is_parsed(shared):
    ec2 = shared.client("ec2")
    assert len(ec2.describe_availability_zones()["AvailabilityZones"]) == 4
    assert [vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"]] == [shared.stage["vpcId"]]
    assert {subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]} == set(shared.stage["subnetIds"])
    assert shared.stage["securityGroupId"] in [
        group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]
    ]
    assert ec2.describe_images(Owners=["amazon"])["Images"]
    assert ec2.describe_instance_types(InstanceTypes=["m5.large"])["InstanceTypes"]
    assert ec2.describe_instance_type_offerings(LocationType="availability-zone")["InstanceTypeOfferings"]
    assert ec2.describe_spot_price_history(MaxResults=5)["SpotPriceHistory"]
    assert ec2.describe_instances()["Reservations"] == []
    assert ec2.describe_instance_status()["InstanceStatuses"] == []
    assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
    assert ec2.describe_tags()["Tags"]


def test_an_instance_type_is_as_published(shared):
    (m5,) = shared.client("ec2").describe_instance_types(InstanceTypes=["m5.large"])["InstanceTypes"]
    assert m5["VCpuInfo"]["DefaultVCpus"] == 2
    assert m5["MemoryInfo"]["SizeInMiB"] == 8192
    assert m5["NetworkInfo"]["MaximumNetworkInterfaces"] == 3
    assert m5["NetworkInfo"]["Ipv4AddressesPerInterface"] == 10
    assert m5["Hypervisor"] == "nitro"
    assert m5["ProcessorInfo"]["SupportedArchitectures"] == ["x86_64"]
    (p5,) = shared.client("ec2").describe_instance_types(InstanceTypes=["p5.48xlarge"])["InstanceTypes"]
    assert (p5["GpuInfo"]["Gpus"][0]["Name"], p5["GpuInfo"]["Gpus"][0]["Count"]) == ("H100", 8)


@pytest.mark.parametrize(
    "action, member, size, arguments",
    [
        ("describe_instance_types", "InstanceTypes", 5, {}),
        ("describe_instance_type_offerings", "InstanceTypeOfferings", 5, {"LocationType": "availability-zone"}),
        ("describe_spot_price_history", "SpotPriceHistory", 7, {"ProductDescriptions": ["Linux/UNIX"]}),
        ("describe_images", "Images", 5, {}),
        ("describe_subnets", "Subnets", 5, {}),
        ("describe_security_groups", "SecurityGroups", 5, {}),
        ("describe_vpcs", "Vpcs", 5, {}),
        ("describe_tags", "Tags", 5, {}),
    ],
)
def test_pages_together_are_everything_once(shared, action, member, size, arguments):
    ec2 = shared.client("ec2")
    everything = getattr(ec2, action)(**arguments)[member]
    pages = list(ec2.get_paginator(action).paginate(PaginationConfig={"PageSize": size}, **arguments))
    assert all(len(page[member]) <= size for page in pages)
    assert [item for page in pages for item in page[member]] == everything
    assert len(pages) == max(1, -(-len(everything) // size))


def test_instances_come_in_pages(fresh):
    ec2 = fresh.client("ec2")
    ids = {instance for _ in range(3) for instance in fresh.launch(4)}
    paginator = ec2.get_paginator("describe_instances")
    seen = [
        instance["InstanceId"]
        for page in paginator.paginate(PaginationConfig={"PageSize": 5})
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    ]
    assert len(seen) == 12 and set(seen) == ids


def test_page_sizes_and_tokens_out_of_range_are_refused(shared, refused):
    ec2 = shared.client("ec2")
    assert refused(ec2.describe_instances, MaxResults=4)[::2] == ("InvalidParameterValue", 400)
    assert refused(ec2.describe_instances, MaxResults=1001)[::2] == ("InvalidParameterValue", 400)
    assert refused(ec2.describe_instance_types, MaxResults=5, NextToken="nonsense")[0] in (
        "InvalidNextToken",
        "InvalidParameterValue",
    )
    some = {"InstanceIds": ["i-0123456789abcdef0"], "MaxResults": 5}
    assert refused(ec2.describe_instances, **some)[::2] == ("InvalidParameterCombination", 400)


def test_filters_join_by_and_and_their_values_by_or_with_wildcards(shared):
    ec2 = shared.client("ec2")

    def names(*filters):
        answer = ec2.describe_instance_types(
            Filters=[{"Name": name, "Values": list(values)} for name, values in filters]
        )
        return sorted(one["InstanceType"] for one in answer["InstanceTypes"])

    assert names(("instance-type", ["m5.large", "c5.large"])) == ["c5.large", "m5.large"]
    assert names(("instance-type", ["?5.large"])) == ["c5.large", "m5.large"]
    assert names(("instance-type", ["m*.large"]), ("processor-info.supported-architecture", ["arm64"])) == ["m6g.large"]
    assert names(("instance-type", ["m5.*"]), ("bare-metal", ["true"])) == ["m5.metal"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": ["de*"]}])["Subnets"]
    assert len(subnets) == 3
    assert ec2.describe_subnets(Filters=[{"Name": "tag-key", "Values": ["other"]}])["Subnets"] == []


def test_unknown_filters_and_ids_are_refused_as_ec2_refuses_them(shared, refused):
    ec2 = shared.client("ec2")
    code, message, status = refused(ec2.describe_subnets, Filters=[{"Name": "colour", "Values": ["red"]}])
    assert (code, message, status) == ("InvalidParameterValue", "The filter 'colour' is invalid", 400)
    missing = "i-0123456789abcdef0"
    code, message, status = refused(ec2.describe_instances, InstanceIds=[missing])
    assert (code, status) == ("InvalidInstanceID.NotFound", 400)
    assert message == f"The instance ID '{missing}' does not exist"
    assert refused(ec2.describe_instances, InstanceIds=["nonsense"])[::2] == ("InvalidInstanceID.Malformed", 400)
    assert refused(ec2.describe_subnets, SubnetIds=["subnet-0123"])[::2] == ("InvalidSubnetID.NotFound", 400)
    assert refused(ec2.describe_security_groups, GroupIds=["sg-0123"])[::2] == ("InvalidGroup.NotFound", 400)
    assert refused(ec2.describe_vpcs, VpcIds=["vpc-0123"])[::2] == ("InvalidVpcID.NotFound", 400)
    assert refused(ec2.describe_images, ImageIds=["ami-0123"])[::2] == ("InvalidAMIID.NotFound", 400)
    assert refused(ec2.describe_instance_types, InstanceTypes=["m5.huge"])[::2] == ("InvalidInstanceType", 400)
    template = {"LaunchTemplateNames": ["nobody"]}
    assert refused(ec2.describe_launch_templates, **template)[::2] == (
        "InvalidLaunchTemplateName.NotFoundException",
        400,
    )


@pytest.mark.parametrize(
    "action, arguments",
    [
        ("describe_instances", {}),
        ("describe_subnets", {}),
        ("describe_instance_types", {}),
        ("describe_launch_templates", {}),
        ("describe_images", {}),
        ("describe_spot_price_history", {}),
        ("create_tags", {"Tags": [{"Key": "a", "Value": "b"}]}),
    ],
)
def test_a_dry_run_says_that_it_would_have_succeeded(shared, refused, action, arguments):
    ec2 = shared.client("ec2")
    if action == "create_tags":
        arguments = {**arguments, "Resources": [shared.stage["vpcId"]]}
    code, message, status = refused(getattr(ec2, action), DryRun=True, **arguments)
    assert (code, status) == ("DryRunOperation", 412)
    assert message == "Request would have succeeded, but DryRun flag is set."


def test_a_dry_run_launches_nothing(fresh, refused):
    ec2 = fresh.client("ec2")
    launch = {"ImageId": fresh.image(), "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    launch["SubnetId"] = fresh.stage["subnetIds"][0]
    assert refused(ec2.run_instances, DryRun=True, **launch)[::2] == ("DryRunOperation", 412)
    assert ec2.describe_instances()["Reservations"] == []


def test_an_instance_runs_and_ends(fresh):
    ec2 = fresh.client("ec2")
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "one"}]}]
    (instance_id,) = fresh.launch(UserData="#!/bin/sh\n", TagSpecifications=tags)
    ec2.get_waiter("instance_running").wait(
        InstanceIds=[instance_id], WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    (reservation,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    (instance,) = reservation["Instances"]
    assert instance["State"] == {"Code": 16, "Name": "running"}
    assert instance["Placement"]["AvailabilityZone"] == "us-west-2a"
    assert instance["Tags"] == [{"Key": "Name", "Value": "one"}]
    assert instance["PrivateIpAddress"].startswith("192.168.")
    assert isinstance(instance["LaunchTime"], datetime.datetime)
    assert "InstanceLifecycle" not in instance
    (status,) = ec2.describe_instance_status(InstanceIds=[instance_id])["InstanceStatuses"]
    assert status["InstanceStatus"]["Status"] == "initializing"
    (change,) = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    again = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == "shutting-down"


def test_stopping_and_starting(fresh, refused):
    ec2 = fresh.client("ec2")
    (instance_id,) = fresh.launch()
    assert refused(ec2.stop_instances, InstanceIds=[instance_id])[::2] == ("IncorrectInstanceState", 400)
    ec2.get_waiter("instance_running").wait(InstanceIds=[instance_id], WaiterConfig={"Delay": 1})
    (change,) = ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"]
    assert change["CurrentState"]["Name"] == "stopping"
    ec2.reboot_instances(InstanceIds=[instance_id])
    assert refused(ec2.start_instances, InstanceIds=[instance_id])[::2] == ("IncorrectInstanceState", 400)


def test_a_repeated_client_token_launches_nothing_new(fresh, refused):
    first = fresh.launch(ClientToken="one")
    assert fresh.launch(ClientToken="one") == first
    ec2 = fresh.client("ec2")
    launch = {"ImageId": fresh.image(), "MinCount": 1, "MaxCount": 1, "SubnetId": fresh.stage["subnetIds"][0]}
    assert refused(ec2.run_instances, InstanceType="c5.large", ClientToken="one", **launch)[::2] == (
        "IdempotentParameterMismatch",
        400,
    )


def template(cloud, name="nodes"):
    data = {
        "ImageId": cloud.image(),
        "SecurityGroupIds": [cloud.stage["securityGroupId"]],
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    return cloud.client("ec2").create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)[
        "LaunchTemplate"
    ]


def test_launch_templates_live_and_have_versions(fresh, refused):
    ec2 = fresh.client("ec2")
    created = template(fresh)
    assert (created["DefaultVersionNumber"], created["LatestVersionNumber"]) == (1, 1)
    assert refused(template, cloud=fresh)[::2] == ("InvalidLaunchTemplateName.AlreadyExistsException", 400)
    second = ec2.create_launch_template_version(
        LaunchTemplateId=created["LaunchTemplateId"],
        SourceVersion="1",
        LaunchTemplateData={"InstanceType": "m5.large"},
    )["LaunchTemplateVersion"]
    assert (second["VersionNumber"], second["LaunchTemplateData"]["InstanceType"]) == (2, "m5.large")
    versions = ec2.describe_launch_template_versions(LaunchTemplateName="nodes", Versions=["$Latest", "$Default"])
    assert sorted(version["VersionNumber"] for version in versions["LaunchTemplateVersions"]) == [1, 2]
    first = [version for version in versions["LaunchTemplateVersions"] if version["VersionNumber"] == 1][0]
    assert first["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 20
    found = ec2.describe_launch_templates(Filters=[{"Name": "launch-template-name", "Values": ["no*"]}])
    assert len(found["LaunchTemplates"]) == 1
    ec2.delete_launch_template(LaunchTemplateName="nodes")
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []


def fleet(cloud, market="spot", count=2, **more):
    override = {"InstanceType": "m5.large", "SubnetId": cloud.stage["subnetIds"][0]}
    return cloud.client("ec2").create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "nodes", "Version": "$Latest"},
                "Overrides": [override, {**override, "InstanceType": "c5.large"}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
        **more,
    )


def test_an_instant_fleet_answers_its_instances(fresh):
    template(fresh)
    ec2 = fresh.client("ec2")
    answer = fleet(fresh, SpotOptions={"AllocationStrategy": "price-capacity-optimized"})
    assert answer["Errors"] == []
    (launched,) = answer["Instances"]
    assert (launched["Lifecycle"], len(launched["InstanceIds"])) == ("spot", 2)
    assert launched["InstanceType"] in ("m5.large", "c5.large")
    instances = [
        instance
        for reservation in ec2.describe_instances(InstanceIds=launched["InstanceIds"])["Reservations"]
        for instance in reservation["Instances"]
    ]
    assert {instance["InstanceLifecycle"] for instance in instances} == {"spot"}
    requests = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert {request["InstanceId"] for request in requests} == set(launched["InstanceIds"])
    assert {request["State"] for request in requests} == {"active"}


def test_a_fleet_without_capacity_answers_errors_and_no_instances(fresh):
    import json, urllib.request

    template(fresh)
    body = json.dumps({"instanceType": "*", "zone": "us-west-2a", "capacityType": "on-demand"}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{fresh.url}/_trysquare/capacity/exhaust", data=body)).close()
    answer = fleet(fresh, market="on-demand")
    assert answer["Instances"] == []
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"InsufficientInstanceCapacity"}
    assert {error["Lifecycle"] for error in answer["Errors"]} == {"on-demand"}
    assert {error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] for error in answer["Errors"]} == {
        "m5.large",
        "c5.large",
    }


def test_tags_are_made_described_and_deleted(fresh, refused):
    ec2 = fresh.client("ec2")
    (instance_id,) = fresh.launch()
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    described = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"]
    assert described == [
        {"Key": "a", "ResourceId": instance_id, "ResourceType": "instance", "Value": "1"},
        {"Key": "b", "ResourceId": instance_id, "ResourceType": "instance", "Value": "2"},
    ]
    ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": "a", "Value": "other"}, {"Key": "b"}])
    left = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"]
    assert [tag["Key"] for tag in left] == ["a"], "a tag is deleted only if the value given is its own"
    reserved = {"Resources": [instance_id], "Tags": [{"Key": "aws:a", "Value": ""}]}
    assert refused(ec2.create_tags, **reserved)[::2] == ("InvalidParameterValue", 400)
    missing = {"Resources": ["i-0123456789abcdef0"], "Tags": [{"Key": "a", "Value": ""}]}
    assert refused(ec2.create_tags, **missing)[::2] == ("InvalidInstanceID.NotFound", 400)


def test_spot_prices_are_below_on_demand_and_by_zone(shared):
    answer = shared.client("ec2").describe_spot_price_history(
        InstanceTypes=["m5.large"],
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.datetime.now(datetime.timezone.utc),
    )
    rows = answer["SpotPriceHistory"]
    assert {row["AvailabilityZone"] for row in rows} >= {"us-west-2a", "us-west-2b", "us-west-2c"}
    assert all(0 < float(row["SpotPrice"]) < 0.096 for row in rows), "0.096 is the published on-demand price"
    assert all(isinstance(row["Timestamp"], datetime.datetime) for row in rows)


def test_an_action_that_is_not_there_is_refused_as_ec2_refuses_unknown_ones(shared, refused):
    code, message, status = refused(shared.client("ec2").describe_vpc_peering_connections)
    assert (code, status) == ("InvalidAction", 400)
    assert message == "The action DescribeVpcPeeringConnections is not valid for this web service."


def test_a_lost_reply_is_a_broken_connection_that_botocore_retries(fresh):
    import json, urllib.request

    import boto3

    rule = json.dumps({"action": "DescribeVpcs", "calls": {"first": 1}, "outcome": "lostReply"}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{fresh.url}/_trysquare/faults", data=rule)).close()
    ec2 = boto3.client("ec2", endpoint_url=fresh.url, region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    answer = ec2.describe_vpcs()
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1 and len(answer["Vpcs"]) == 1


def test_a_network_is_set_up_and_taken_down(fresh):
    ec2 = fresh.client("ec2")
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "team", "Value": "blue"}]}]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)["Vpc"]
    vpc_id = vpc["VpcId"]
    ec2.get_waiter("vpc_available").wait(VpcIds=[vpc_id])
    assert vpc["Tags"] == [{"Key": "team", "Value": "blue"}]
    ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True})
    attribute = ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute="enableDnsHostnames")
    assert attribute["EnableDnsHostnames"] == {"Value": True}
    subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.0.1.0/24", AvailabilityZone="us-west-2b")["Subnet"]
    ec2.modify_subnet_attribute(SubnetId=subnet["SubnetId"], MapPublicIpOnLaunch={"Value": True})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc_id)
    table = ec2.create_route_table(VpcId=vpc_id)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    association = ec2.associate_route_table(RouteTableId=table, SubnetId=subnet["SubnetId"])
    assert association["AssociationState"] == {"State": "associated"}
    (described,) = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]
    assert [route["GatewayId"] for route in described["Routes"]] == ["local", gateway]
    group = ec2.create_security_group(GroupName="web", Description="for tests", VpcId=vpc_id)["GroupId"]
    answer = ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 443,
                "ToPort": 443,
                "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "everybody"}],
                "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
                "UserIdGroupPairs": [{"GroupId": group}],
            }
        ],
    )
    rules = answer["SecurityGroupRules"]
    assert [rule.get("CidrIpv4") for rule in rules] == ["0.0.0.0/0", None, None]
    assert [rule.get("CidrIpv6") for rule in rules] == [None, "::/0", None]
    assert rules[2]["ReferencedGroupInfo"]["GroupId"] == group
    (described,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    (permission,) = described["IpPermissions"]
    assert permission["IpRanges"] == [{"CidrIp": "0.0.0.0/0", "Description": "everybody"}]
    # What was described can be revoked as it is.
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=described["IpPermissions"])
    assert ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"] == []
    instance = ec2.run_instances(
        ImageId=fresh.image(),
        InstanceType="m5.large",
        SubnetId=subnet["SubnetId"],
        SecurityGroupIds=[group],
        MinCount=1,
        MaxCount=1,
    )["Instances"][0]["InstanceId"]
    of_group = [{"Name": "group-id", "Values": [group]}]
    (interface,) = ec2.describe_network_interfaces(Filters=of_group)["NetworkInterfaces"]
    assert (interface["Attachment"]["InstanceId"], interface["SubnetId"]) == (instance, subnet["SubnetId"])
    ec2.terminate_instances(InstanceIds=[instance])
    waiter = ec2.get_waiter("instance_terminated")
    waiter.config.delay = 1
    waiter.wait(InstanceIds=[instance])
    ec2.delete_security_group(GroupId=group)
    ec2.disassociate_route_table(AssociationId=association["AssociationId"])
    ec2.delete_route_table(RouteTableId=table)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc_id)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    ec2.delete_vpc(VpcId=vpc_id)


def boto3_resource(cloud):
    """The older, object-like interface of boto3."""
    return boto3.resource(
        "ec2",
        endpoint_url=cloud.url,
        region_name=cloud.environment["AWS_REGION"],
        aws_access_key_id=cloud.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=cloud.environment["AWS_SECRET_ACCESS_KEY"],
    )


def test_the_default_vpc_is_as_documented(fresh):
    ec2 = fresh.client("ec2")
    vpc = ec2.create_default_vpc()["Vpc"]
    assert (vpc["IsDefault"], vpc["CidrBlock"]) == (True, "172.31.0.0/16")
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    assert len(subnets) == len(ec2.describe_availability_zones()["AvailabilityZones"])
    resource = boto3_resource(fresh)
    assert [group.group_name for group in resource.Vpc(vpc["VpcId"]).security_groups.all()] == ["default"]


def test_images_snapshots_and_volumes(fresh):
    ec2 = fresh.client("ec2")
    (instance,) = fresh.launch()
    waiter = ec2.get_waiter("instance_running")
    waiter.config.delay = 1
    waiter.wait(InstanceIds=[instance])
    image = ec2.create_image(InstanceId=instance, Name="golden", NoReboot=True)["ImageId"]
    waiter = ec2.get_waiter("image_available")
    waiter.config.delay = 1
    waiter.wait(ImageIds=[image])
    (described,) = ec2.describe_images(Owners=["self"])["Images"]
    (device,) = described["BlockDeviceMappings"]
    ec2.modify_image_attribute(ImageId=image, LaunchPermission={"Add": [{"UserId": "210987654321"}]})
    permissions = ec2.describe_image_attribute(ImageId=image, Attribute="launchPermission")["LaunchPermissions"]
    assert permissions == [{"UserId": "210987654321"}]
    (snapshot,) = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    assert (snapshot["SnapshotId"], snapshot["State"]) == (device["Ebs"]["SnapshotId"], "completed")
    copy = ec2.copy_image(SourceImageId=image, SourceRegion="us-west-2", Name="copy")["ImageId"]
    assert ec2.describe_images(ImageIds=[copy])["Images"][0]["SourceImageId"] == image
    ec2.deregister_image(ImageId=image)
    ec2.delete_snapshot(SnapshotId=snapshot["SnapshotId"])
    volume = ec2.create_volume(AvailabilityZone="us-west-2a", Size=10, VolumeType="gp3")["VolumeId"]
    waiter = ec2.get_waiter("volume_available")
    waiter.config.delay = 1
    waiter.wait(VolumeIds=[volume])
    ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
    ec2.get_waiter("volume_in_use").wait(VolumeIds=[volume])
    mappings = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["BlockDeviceMappings"]
    assert [mapping["DeviceName"] for mapping in mappings] == ["/dev/xvda", "/dev/sdf"]
    ec2.detach_volume(VolumeId=volume)
    ec2.delete_volume(VolumeId=volume)
    ec2.get_waiter("volume_deleted").wait(VolumeIds=[volume])


def test_a_key_pair_is_one_that_openssh_reads(fresh, tmp_path):
    ec2 = fresh.client("ec2")
    made = ec2.create_key_pair(KeyName="mine", KeyType="ed25519")
    (described,) = ec2.describe_key_pairs(KeyNames=["mine"], IncludePublicKey=True)["KeyPairs"]
    if shutil.which("ssh-keygen"):
        path = tmp_path / "key"
        path.write_text(made["KeyMaterial"])
        path.chmod(0o600)
        public = subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True, text=True).stdout
        assert public.split()[:2] == described["PublicKey"].split()[:2]
    imported = ec2.import_key_pair(KeyName="again", PublicKeyMaterial=described["PublicKey"].encode())
    assert imported["KeyFingerprint"] == made["KeyFingerprint"] == described["KeyFingerprint"]


@pytest.mark.parametrize(
    "action, arguments, code",
    [
        ("create_subnet", {"VpcId": "vpc-0123456789abcdef0", "CidrBlock": "10.0.0.0/24"}, "InvalidVpcID.NotFound"),
        ("describe_route_tables", {"RouteTableIds": ["mine"]}, "InvalidRouteTableId.Malformed"),
        ("describe_images", {"ImageIds": ["ami-0123456789abcdef0"]}, "InvalidAMIID.NotFound"),
        ("delete_volume", {"VolumeId": "vol-0123456789abcdef0"}, "InvalidVolume.NotFound"),
        ("create_vpc", {"CidrBlock": "10.0.0.0/8"}, "InvalidVpc.Range"),
        ("create_key_pair", {"KeyName": "rsa"}, "UnsupportedOperation"),
        (
            "create_tags",
            {"Resources": ["igw-0123456789abcdef0"], "Tags": [{"Key": "a", "Value": "b"}]},
            "InvalidInternetGatewayID.NotFound",
        ),
    ],
)
def test_what_cannot_be_done_to_a_stage_is_told(shared, refused, action, arguments, code):
    assert refused(getattr(shared.client("ec2"), action), **arguments)[::2] == (code, 400)


@pytest.mark.parametrize(
    "action, member",
    [
        ("describe_account_attributes", "AccountAttributes"),
        ("describe_dhcp_options", "DhcpOptions"),
        ("describe_internet_gateways", "InternetGateways"),
        ("describe_key_pairs", "KeyPairs"),
        ("describe_managed_prefix_lists", "PrefixLists"),
        ("describe_network_acls", "NetworkAcls"),
        ("describe_network_interfaces", "NetworkInterfaces"),
        ("describe_prefix_lists", "PrefixLists"),
        ("describe_regions", "Regions"),
        ("describe_route_tables", "RouteTables"),
        ("describe_security_group_rules", "SecurityGroupRules"),
        ("describe_snapshots", "Snapshots"),
        ("describe_volumes", "Volumes"),
    ],
)
def test_what_describes_a_stage_is_parsed(shared, action, member):
    ec2 = shared.client("ec2")
    assert isinstance(getattr(ec2, action)()[member], list)


def test_every_filter_that_the_api_lists_is_known(shared):
    """The client's own documentation of each Filters parameter lists the names."""
    ec2 = shared.client("ec2")
    for action in [
        "describe_availability_zones",
        "describe_dhcp_options",
        "describe_images",
        "describe_internet_gateways",
        "describe_key_pairs",
        "describe_managed_prefix_lists",
        "describe_network_acls",
        "describe_network_interfaces",
        "describe_prefix_lists",
        "describe_regions",
        "describe_route_tables",
        "describe_security_group_rules",
        "describe_security_groups",
        "describe_snapshots",
        "describe_subnets",
        "describe_tags",
        "describe_volumes",
        "describe_vpcs",
    ]:
        operation = ec2.meta.service_model.operation_model(ec2.meta.method_to_api_mapping[action])
        documentation = operation.input_shape.members["Filters"].documentation
        names = re.findall(r"<li> <p> <code>([^<]+)</code>", documentation)
        assert names, action
        # One filter's values are listed in the same way.
        names = [name for name in names if name not in ("informational", "low", "medium", "high", "critical")]
        for name in names:
            name = {"tag": "tag:team", "tag:&lt;key&gt;": "tag:team"}.get(name, name)
            getattr(ec2, action)(Filters=[{"Name": name, "Values": ["x"]}])
