"""Fleets, spot requests, launch template versions and reservations through boto3, which refuses answers it cannot read."""

import botocore.exceptions
import pytest


def template(ec2, cloud, name="nodes", **more):
    data = {
        "ImageId": cloud.image(),
        "InstanceType": "m5.large",
        "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 2},
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": cloud.stage["subnetIds"][0], "Description": "front"}],
        **more,
    }
    return ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)["LaunchTemplate"]["LaunchTemplateId"]


def test_template_versions(fresh):
    ec2 = fresh.client("ec2")
    id = template(ec2, fresh)
    ec2.create_launch_template_version(LaunchTemplateId=id, SourceVersion="1", LaunchTemplateData={"InstanceType": "m5.xlarge"})
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=id, Versions=["$Latest", "$Default"])
    rows = [(row["VersionNumber"], row["DefaultVersion"], row["LaunchTemplateData"]["InstanceType"]) for row in versions["LaunchTemplateVersions"]]
    assert rows == [(2, False, "m5.xlarge"), (1, True, "m5.large")]
    data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert data["CpuOptions"] == {"CoreCount": 1, "ThreadsPerCore": 2}
    assert data["NetworkInterfaces"][0]["Description"] == "front"
    assert ec2.modify_launch_template(LaunchTemplateId=id, DefaultVersion="2")["LaunchTemplate"]["DefaultVersionNumber"] == 2
    deleted = ec2.delete_launch_template_versions(LaunchTemplateId=id, Versions=["1", "2"])
    assert [row["VersionNumber"] for row in deleted["SuccessfullyDeletedLaunchTemplateVersions"]] == [1]
    assert deleted["UnsuccessfullyDeletedLaunchTemplateVersions"][0]["ResponseError"]["Code"] == "unexpectedError"


def test_a_fleet_that_maintains_its_capacity(fresh):
    ec2 = fresh.client("ec2")
    id = template(ec2, fresh)
    requirements = {"VCpuCount": {"Min": 2, "Max": 2}, "MemoryMiB": {"Min": 4096}, "CpuManufacturers": ["intel"]}
    configs = [{"LaunchTemplateSpecification": {"LaunchTemplateId": id, "Version": "$Latest"}, "Overrides": [{"InstanceType": "c5.large", "Priority": 1.0}]}]
    target = {"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "on-demand"}
    fleet = ec2.create_fleet(LaunchTemplateConfigs=configs, TargetCapacitySpecification=target)["FleetId"]
    while (data := ec2.describe_fleets(FleetIds=[fleet])["Fleets"][0])["FulfilledCapacity"] < 2:
        assert data["ActivityStatus"] == "pending_fulfillment"
    assert (data["FleetState"], data["Type"], data["ActivityStatus"]) == ("active", "maintain", "fulfilled")
    assert data["LaunchTemplateConfigs"][0]["Overrides"] == [{"InstanceType": "c5.large", "Priority": 1.0}]
    active = ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"]
    assert [row["InstanceType"] for row in active] == ["c5.large", "c5.large"]
    history = ec2.describe_fleet_history(FleetId=fleet, StartTime="2020-01-01T00:00:00Z")["HistoryRecords"]
    assert [row["EventInformation"]["EventSubType"] for row in history] == ["submitted", "active", "launched", "launched"]
    assert ec2.modify_fleet(FleetId=fleet, TargetCapacitySpecification={"TotalTargetCapacity": 1})["Return"] is True
    deleted = ec2.delete_fleets(FleetIds=[fleet, "fleet-x"], TerminateInstances=True)
    assert deleted["SuccessfulFleetDeletions"][0]["CurrentFleetState"] == "deleted_terminating"
    assert deleted["UnsuccessfulFleetDeletions"][0]["Error"]["Code"] == "fleetIdMalformed"
    by_attributes = {"LaunchTemplateSpecification": configs[0]["LaunchTemplateSpecification"], "Overrides": [{"InstanceRequirements": requirements}]}
    answer = ec2.create_fleet(Type="instant", LaunchTemplateConfigs=[by_attributes], TargetCapacitySpecification=target)
    (group,) = answer["Instances"]
    assert len(group["InstanceIds"]) == 2 and group["LaunchTemplateAndOverrides"]["Overrides"]["InstanceRequirements"] == requirements
    types = ec2.get_instance_types_from_instance_requirements(
        ArchitectureTypes=["x86_64"], VirtualizationTypes=["hvm"], InstanceRequirements=requirements
    )
    assert [row["InstanceType"] for row in types["InstanceTypes"]] == ["c5.large", "m5.large"]


def test_spot_requests_and_reservations(fresh):
    ec2 = fresh.client("ec2")
    subnet = fresh.stage["subnetIds"][0]
    specification = {"ImageId": fresh.image(), "InstanceType": "m5.large", "SubnetId": subnet}
    (request,) = ec2.request_spot_instances(LaunchSpecification=specification, Type="persistent")["SpotInstanceRequests"]
    assert (request["State"], request["LaunchSpecification"]["SubnetId"]) == ("open", subnet)
    id = request["SpotInstanceRequestId"]
    ec2.get_waiter("spot_instance_request_fulfilled").wait(SpotInstanceRequestIds=[id], WaiterConfig={"Delay": 1})
    (cancelled,) = ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[id])["CancelledSpotInstanceRequests"]
    assert cancelled == {"SpotInstanceRequestId": id, "State": "cancelled"}
    reservation = ec2.create_capacity_reservation(
        InstanceType="c5.large", InstancePlatform="Linux/UNIX", AvailabilityZone="us-west-2a", InstanceCount=1
    )["CapacityReservation"]
    assert (reservation["State"], reservation["AvailableInstanceCount"]) == ("active", 1)
    assert ec2.cancel_capacity_reservation(CapacityReservationId=reservation["CapacityReservationId"])["Return"] is True
    group = ec2.create_placement_group(GroupName="near", Strategy="cluster")["PlacementGroup"]
    assert (group["Strategy"], group["State"]) == ("cluster", "available")
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        ec2.create_placement_group(GroupName="near", Strategy="cluster")
    assert refused.value.response["Error"]["Code"] == "InvalidPlacementGroup.Duplicate"


def test_attributes(fresh):
    ec2 = fresh.client("ec2")
    specification = {"ImageId": fresh.image(), "InstanceType": "m5.large", "SubnetId": fresh.stage["subnetIds"][0]}
    (instance,) = ec2.run_instances(MinCount=1, MaxCount=1, **specification)["Instances"]
    id = instance["InstanceId"]
    ec2.modify_instance_attribute(InstanceId=id, DisableApiTermination={"Value": True})
    described = ec2.describe_instance_attribute(InstanceId=id, Attribute="disableApiTermination")
    assert described["DisableApiTermination"] == {"Value": True}
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        ec2.terminate_instances(InstanceIds=[id])
    assert refused.value.response["Error"]["Code"] == "OperationNotPermitted"
    options = ec2.modify_instance_metadata_options(InstanceId=id, HttpTokens="required")["InstanceMetadataOptions"]
    assert options["HttpTokens"] == "required"
    assert ec2.get_launch_template_data(InstanceId=id)["LaunchTemplateData"]["InstanceType"] == "m5.large"
    assert ec2.get_console_output(InstanceId=id)["Output"] == ""
