"""The AWS command line, set up by the very lines that the program prints."""

import json
import os
import subprocess

import pytest


@pytest.fixture
def aws(fresh, tmp_path):
    environment = {**os.environ, **fresh.environment, "AWS_PAGER": "", "AWS_CONFIG_FILE": str(tmp_path / "none")}

    def call(*arguments):
        ended = subprocess.run(["aws", *arguments], env=environment, capture_output=True, text=True, timeout=120)
        return ended.returncode, json.loads(ended.stdout) if ended.stdout.strip() else None, ended.stderr

    return call


def test_an_instance_from_launch_to_end(aws, fresh):
    code, answer, error = aws(
        "ec2", "run-instances", "--image-id", fresh.image(), "--instance-type", "m5.large",
        "--subnet-id", fresh.stage["subnetIds"][0], "--count", "2",
    )  # fmt: skip
    assert code == 0, error
    ids = [instance["InstanceId"] for instance in answer["Instances"]]
    assert len(ids) == 2
    code, answer, error = aws("ec2", "describe-instances", "--filters", "Name=instance-type,Values=m5.*")
    assert code == 0 and len(answer["Reservations"][0]["Instances"]) == 2, error
    code, answer, error = aws("ec2", "terminate-instances", "--instance-ids", *ids)
    assert code == 0 and len(answer["TerminatingInstances"]) == 2, error


def test_each_service_is_reached_by_the_one_endpoint(aws, fresh):
    assert aws("sts", "get-caller-identity")[1]["Account"] == "123456789012"
    assert aws("eks", "list-clusters")[1] == {"clusters": ["demo"]}
    # Version 1 of the command line overwrites the endpoint of SQS with AWS's own unless it is an option.
    queues = aws("sqs", "list-queues", "--endpoint-url", fresh.url)
    assert queues[1]["QueueUrls"] == [f"{fresh.url}/123456789012/demo"], queues
    assert aws("iam", "list-roles")[0] == 0
    assert aws("events", "list-rules")[0] == 0
    name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
    assert aws("ssm", "get-parameter", "--name", name)[1]["Parameter"]["Value"].startswith("ami-")
    code, answer, error = aws("pricing", "get-products", "--service-code", "AmazonEC2", "--max-items", "3")
    assert code == 0 and len(answer["PriceList"]) == 3, error


def test_a_refusal_is_told_with_its_code(aws):
    code, _, error = aws("ec2", "describe-instances", "--instance-ids", "i-0123456789abcdef0")
    assert code != 0
    assert "(InvalidInstanceID.NotFound)" in error and "i-0123456789abcdef0" in error
    code, _, error = aws("ec2", "describe-subnets", "--dry-run")
    assert code != 0 and "(DryRunOperation)" in error
