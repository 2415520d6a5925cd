"""Stacks, roles and refusals, with policies enforced."""

import json
import os
import pathlib
import subprocess

import pytest

TEMPLATE = pathlib.Path(__file__).parent.parent / "stack.yaml"
DEPLOY = [
    "cloudformation", "deploy", "--stack-name", "s", "--template-file", str(TEMPLATE),
    "--parameter-overrides", "ClusterName=demo",
]  # fmt: skip


@pytest.fixture
def aws(enforced, tmp_path):
    environment = {**os.environ, **enforced.environment, "AWS_PAGER": "", "AWS_CONFIG_FILE": str(tmp_path / "none")}

    def call(*arguments):
        ended = subprocess.run(["aws", *arguments], env=environment, capture_output=True, text=True, timeout=120)
        return ended.returncode, ended.stdout, ended.stderr

    return call


def test_a_stack_is_deployed_changed_and_deleted(aws, enforced):
    code, out, error = aws(*DEPLOY)
    assert code != 0 and "(InsufficientCapabilitiesException)" in error, out + error
    assert "Requires capabilities : [CAPABILITY_NAMED_IAM]" in error
    code, out, error = aws(*DEPLOY, "--capabilities", "CAPABILITY_NAMED_IAM")
    assert code == 0 and "Successfully created/updated stack - s" in out, out + error
    stack = enforced.client("cloudformation").describe_stacks(StackName="s")["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert outputs["NodeRoleArn"] == "arn:aws:iam::123456789012:role/NodeRole-demo"
    code, out, error = aws(*DEPLOY, "--capabilities", "CAPABILITY_NAMED_IAM", "--no-fail-on-empty-changeset")
    assert code == 0 and "No changes to deploy. Stack s is up to date" in out, out + error
    code, out, error = aws(*DEPLOY, "RetentionSeconds=600", "--capabilities", "CAPABILITY_NAMED_IAM")
    assert code == 0, out + error
    code, out, _ = aws("cloudformation", "describe-stack-events", "--stack-name", "s")
    assert json.loads(out)["StackEvents"][0]["ResourceStatus"] == "UPDATE_COMPLETE"
    code, out, _ = aws("cloudformation", "describe-stack-resources", "--stack-name", "s")
    assert len(json.loads(out)["StackResources"]) == 9
    code, out, error = aws("cloudformation", "delete-stack", "--stack-name", "s")
    assert code == 0, error
    code, out, error = aws("cloudformation", "wait", "stack-delete-complete", "--stack-name", "s")
    assert code == 0, error
    assert enforced.client("sqs").list_queues().get("QueueUrls", []) == []


def test_a_template_is_validated(aws):
    code, out, error = aws("cloudformation", "validate-template", "--template-body", f"file://{TEMPLATE}")
    assert code == 0 and json.loads(out)["Capabilities"] == ["CAPABILITY_NAMED_IAM"], error


def test_a_stack_is_created_and_waited_for(enforced):
    formation = enforced.client("cloudformation")
    parameters = [{"ParameterKey": "ClusterName", "ParameterValue": "demo"}]
    wanted = {"StackName": "s", "TemplateBody": TEMPLATE.read_text(), "Capabilities": ["CAPABILITY_NAMED_IAM"]}
    formation.create_stack(**wanted, Parameters=parameters)
    formation.get_waiter("stack_create_complete").wait(StackName="s")
    changed = [*parameters, {"ParameterKey": "WithProfile", "ParameterValue": "true"}]
    formation.update_stack(**wanted, Parameters=changed)
    formation.get_waiter("stack_update_complete").wait(StackName="s")
    profiles = enforced.client("iam").list_instance_profiles()["InstanceProfiles"]
    assert [profile["Roles"][0]["RoleName"] for profile in profiles] == ["NodeRole-demo"]


def test_a_role_may_do_what_its_policies_allow(enforced, refused):
    iam = enforced.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
    allow = {"Effect": "Allow", "Action": "ec2:DescribeSubnets", "Resource": "*"}
    document = lambda statement: json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    role = iam.create_role(RoleName="r", AssumeRolePolicyDocument=document(trust))["Role"]
    policy = iam.create_policy(PolicyName="p", PolicyDocument=document(allow))["Policy"]
    iam.attach_role_policy(RoleName="r", PolicyArn=policy["Arn"])
    assumed = enforced.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="session")
    as_role = lambda service: enforced.client(service, credentials=assumed["Credentials"])
    user = "arn:aws:sts::123456789012:assumed-role/r/session"
    assert as_role("sts").get_caller_identity()["Arn"] == user
    assert len(as_role("ec2").describe_subnets()["Subnets"]) == 3
    told = f"User: {user} is not authorized to perform: "
    for call, arguments, code, status, action in [
        (as_role("ec2").describe_vpcs, {}, "UnauthorizedOperation", 403, "ec2:DescribeVpcs"),
        (as_role("iam").get_role, {"RoleName": "r"}, "AccessDenied", 403, "iam:GetRole"),
        (as_role("sqs").get_queue_url, {"QueueName": "q"}, "AccessDenied", 403, "sqs:getqueueurl"),
        (as_role("ssm").get_parameter, {"Name": "/a"}, "AccessDeniedException", 400, "ssm:GetParameter"),
        (as_role("eks").describe_cluster, {"name": "demo"}, "AccessDeniedException", 403, "eks:DescribeCluster"),
        (as_role("pricing").get_products, {"ServiceCode": "AmazonEC2"}, "AccessDeniedException", 400, "pricing:GetProducts"),
        (as_role("cloudformation").describe_stacks, {}, "AccessDenied", 403, "cloudformation:DescribeStacks"),
    ]:  # fmt: skip
        found, message, http = refused(call, **arguments)
        assert (found, http) == (code, status), message
        assert told + action in message, message


def test_pods_get_the_role_of_their_association(enforced, refused):
    iam, eks = enforced.client("iam"), enforced.client("eks")
    trust = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName="pods", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    wanted = {"clusterName": "demo", "namespace": "kube-system", "serviceAccount": "karpenter"}
    made = eks.create_pod_identity_association(**wanted, roleArn=role)["association"]
    assert made["associationId"].startswith("a-") and made["roleArn"] == role
    listed = eks.list_pod_identity_associations(clusterName="demo", namespace="kube-system")["associations"]
    assert [known["associationId"] for known in listed] == [made["associationId"]]
    assert refused(eks.create_pod_identity_association, **wanted, roleArn=role)[0] == "ResourceInUseException"
    eks.delete_pod_identity_association(clusterName="demo", associationId=made["associationId"])
    assert eks.list_pod_identity_associations(clusterName="demo")["associations"] == []
    issuer = eks.describe_cluster(name="demo")["cluster"]["identity"]["oidc"]["issuer"]
    assert issuer == enforced.stage["oidcIssuer"]
    providers = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
    assert [provider["Arn"] for provider in providers] == [enforced.stage["oidcProviderArn"]]
