"""fake-ec2 as boto3 sees it. The steps are those of ../README.md; `--queues-only` leaves the instances out, for a version of
boto3 that still speaks SQS's query protocol."""

import sys

import boto3
import botocore.config
import botocore.exceptions

IMAGE = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
DISCOVERY = {"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}

# No retries: a step is to see the first answer. Where the endpoint is, the environment says.
ONCE = botocore.config.Config(retries={"total_max_attempts": 1})
ec2 = boto3.client("ec2", config=ONCE)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: expected {wanted!r}, and got {got!r}")


def done(step):
    print(f"ok  {step}", flush=True)


def refused(what, code, status, function, **arguments):
    try:
        got = function(**arguments)
    except botocore.exceptions.ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    expect(what, got, (code, status))


def stage():
    image = boto3.client("ssm", config=ONCE).get_parameter(Name=IMAGE)["Parameter"]["Value"]
    subnets = [subnet["SubnetId"] for subnet in ec2.describe_subnets(Filters=[DISCOVERY])["Subnets"]]
    expect("subnets", len(subnets), 3)
    groups = [group["GroupId"] for group in ec2.describe_security_groups(Filters=[DISCOVERY])["SecurityGroups"]]
    expect("security groups", len(groups), 1)
    template = ec2.create_launch_template(
        LaunchTemplateName="smoke",
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": "m5.large",
            "SecurityGroupIds": groups,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "smoke", "Value": "template"}]}],
        },
    )["LaunchTemplate"]
    expect("version of the template", template["LatestVersionNumber"], 1)
    done("a stage: image, subnets, security group, launch template")
    return subnets, template["LaunchTemplateId"]


def fleet(subnets, template):
    answer = ec2.create_fleet(
        Type="instant",
        TargetCapacitySpecification={"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "on-demand"},
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
                "Overrides": [{"InstanceType": kind, "SubnetId": subnets[0]} for kind in ("m5.large", "c5.large")],
            }
        ],
    )
    expect("errors of the fleet", answer["Errors"], [])
    ids = [id for instance in answer["Instances"] for id in instance["InstanceIds"]]
    expect("instances of the fleet", len(ids), 2)
    done("a fleet launches 2 instances")
    return ids


def run(subnets, template):
    instances = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateId": template},
        SubnetId=subnets[1],
        MinCount=4,
        MaxCount=4,
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "smoke", "Value": "run"}]}],
    )["Instances"]
    expect("states of what was run", [instance["State"]["Name"] for instance in instances], ["pending"] * 4)
    done("RunInstances launches 4 instances")
    return [instance["InstanceId"] for instance in instances]


def ids_of(answer):
    return [instance["InstanceId"] for reservation in answer["Reservations"] for instance in reservation["Instances"]]


def filter(ran):
    def filtered(*filters):
        return sorted(ids_of(ec2.describe_instances(Filters=list(filters))))

    by_tag = {"Name": "tag:smoke", "Values": ["run"]}
    expect("by tag", filtered(by_tag), sorted(ran))
    expect("by tag and type", filtered(by_tag, {"Name": "instance-type", "Values": ["m5.*", "m6?.large"]}), sorted(ran))
    expect("by another type", filtered(by_tag, {"Name": "instance-type", "Values": ["c5.*"]}), [])
    done("filters: joined by and, their values by or, with wildcards")


def pages(all):
    pages = [ids_of(page) for page in ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})]
    expect("sizes of pages", [len(page) for page in pages], [5, 1])
    expect("all pages", sorted(id for page in pages for id in page), sorted(all))
    done("pages: each instance once")


def tags(id):
    def tags():
        filters = [{"Name": "resource-id", "Values": [id]}, {"Name": "key", "Values": ["step", "owner"]}]
        return {tag["Key"]: tag["Value"] for tag in ec2.describe_tags(Filters=filters)["Tags"]}

    created = {"step": "a <b> & c", "owner": "Zoë"}
    ec2.create_tags(Resources=[id], Tags=[{"Key": key, "Value": value} for key, value in created.items()])
    expect("tags", tags(), created)
    ec2.delete_tags(Resources=[id], Tags=[{"Key": "step"}])
    expect("tags after one is deleted", tags(), {"owner": "Zoë"})
    done("tags: created, described, deleted")


def errors(subnets, template):
    describe = ec2.describe_instances
    refused("an unknown id", "InvalidInstanceID.NotFound", 400, describe, InstanceIds=["i-0123456789abcdef0"])
    refused("no id", "InvalidInstanceID.Malformed", 400, describe, InstanceIds=["instance"])
    dry_run = {"LaunchTemplate": {"LaunchTemplateId": template}, "SubnetId": subnets[0], "MinCount": 1, "MaxCount": 1}
    refused("a dry run", "DryRunOperation", 412, ec2.run_instances, DryRun=True, **dry_run)
    done("errors: code and status of three")


def terminate(all):
    ended = ec2.terminate_instances(InstanceIds=all)["TerminatingInstances"]
    expect("states", [instance["CurrentState"]["Name"] for instance in ended], ["shutting-down"] * 6)
    ec2.get_waiter("instance_terminated").wait(InstanceIds=all, WaiterConfig={"Delay": 1})
    done("all 6 instances are terminated")


def queue():
    sqs = boto3.client("sqs", config=ONCE)
    protocol = sqs.meta.service_model.protocol
    url = sqs.create_queue(QueueName=f"smoke-{protocol}")["QueueUrl"]
    body = 'a "body" with <marks> & ümläuts'
    # Hidden for a second, so that only a poll that waits finds it.
    sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=1)
    messages = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10).get("Messages", [])
    expect("received", [message["Body"] for message in messages], [body])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    expect("left in the queue", left, dict.fromkeys(names, "0"))
    code = "AWS.SimpleQueueService.NonExistentQueue"
    refused("an unknown queue", code, 400, sqs.get_queue_url, QueueName="nowhere")
    done(f"SQS over {protocol}: sent, received by a long poll, deleted")
    return protocol


if "--queues-only" in sys.argv:
    expect("protocol of this version", queue(), "query")
else:
    staged = stage()
    launched = fleet(*staged)
    ran = run(*staged)
    filter(ran)
    pages(launched + ran)
    tags(ran[0])
    errors(*staged)
    terminate(launched + ran)
    expect("protocol of this version", queue(), "json")
