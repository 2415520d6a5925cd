"""boto3 and the AWS command line against the fake-ec2 program, which the environment variable FAKE_EC2 names.

Each test gets a program of its own where it changes things (`fresh`), and shares one where it only looks (`shared`).
"""

import json
import os
import subprocess
import urllib.request

import boto3
import botocore.config
import pytest
import shapes

FAMILIES = "m5,c5,m6g,c7g,p5"


class Cloud:
    """A running fake-ec2, and clients of it."""

    def __init__(self, *more):
        program = os.environ.get("FAKE_EC2")
        if not program:
            raise pytest.UsageError("FAKE_EC2 has to name the built program; `make clients-test` does so")
        arguments = [program, "--format", "json", "--bootstrap", "demo", "--families", FAMILIES, *more]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.started = json.loads(self.process.stdout.readline())
        self.url = self.started["endpointUrl"]
        self.stage = self.started["bootstrap"]
        self.environment = self.started["environment"]

    def settle_at_once(self):
        """Makes the account anew: instances are running, and have passed their checks, at once."""
        pace = json.dumps({"pace": {"pendingMs": 0, "statusChecksMs": 0}}).encode()
        urllib.request.urlopen(self.started["controlUrl"] + "reset", pace).close()

    def client(self, service, credentials=None, **more):
        """A client of the account's administrator, or of an assumed role."""
        credentials = credentials or {}
        # No retries: a test is to see the first answer.
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=30)
        client = boto3.session.Session().client(
            service,
            endpoint_url=self.url,
            region_name=self.environment["AWS_REGION"],
            aws_access_key_id=credentials.get("AccessKeyId", self.environment["AWS_ACCESS_KEY_ID"]),
            aws_secret_access_key=credentials.get("SecretAccessKey", self.environment["AWS_SECRET_ACCESS_KEY"]),
            aws_session_token=credentials.get("SessionToken"),
            config=config,
            **more,
        )
        shapes.register(client)
        return client

    def image(self):
        parameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
        return self.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]

    def launch(self, count=1, **more):
        """The ids of new instances."""
        answer = self.client("ec2").run_instances(
            ImageId=self.image(),
            InstanceType="m5.large",
            SubnetId=self.stage["subnetIds"][0],
            MinCount=count,
            MaxCount=count,
            **more,
        )
        return [instance["InstanceId"] for instance in answer["Instances"]]

    def end(self):
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0, "SIGTERM ends it cleanly"


@pytest.fixture(scope="session")
def shared():
    cloud = Cloud()
    yield cloud
    cloud.end()


@pytest.fixture
def fresh():
    cloud = Cloud()
    yield cloud
    cloud.end()


@pytest.fixture
def enforced():
    """Policies decide, and there is nothing yet of what a stack is to make."""
    cloud = Cloud("--iam", "enforce", "--without-prerequisites")
    yield cloud
    cloud.end()


@pytest.fixture
def refused():
    """Calls what must be refused; answers code, message and HTTP status as botocore sees them."""

    def call(function, **arguments):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            function(**arguments)
        response = caught.value.response
        assert response["ResponseMetadata"]["RequestId"], response
        error = response["Error"]
        return error["Code"], error["Message"], response["ResponseMetadata"]["HTTPStatusCode"]

    return call
