"""The CloudFormation template: whole, and no wider than what the controller calls.

What a permission does is shown elsewhere, by scenarios that run under exactly these policies. Here it is compared with the
calls that stand in the controller's source and with the table in deploy/README.md.
"""

import json
import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "deploy/cloudformation/karpenter.yaml"

# Actions that AWS asks for although no call of that name is made: what the calls do besides.
IMPLIED = {
    "ec2:RunInstances": "CreateFleet launches",
    "iam:PassRole": "launches and instance profiles hand a role to EC2",
    "iam:TagInstanceProfile": "CreateInstanceProfile with tags",
}


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms: !Sub x is {"Fn::Sub": x}."""


def short_form(loader, suffix, node):
    construct = {
        yaml.ScalarNode: loader.construct_scalar,
        yaml.SequenceNode: lambda node: loader.construct_sequence(node, deep=True),
        yaml.MappingNode: lambda node: loader.construct_mapping(node, deep=True),
    }[type(node)]
    return {suffix if suffix == "Ref" else f"Fn::{suffix}": construct(node)}


Loader.add_multi_constructor("!", short_form)


@pytest.fixture(scope="module")
def template():
    return yaml.load(TEMPLATE.read_text(), Loader)


def texts(value):
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def statements(policy):
    """The statements of a managed policy, variables still in them."""
    found = []
    for text in texts(policy["Properties"]["PolicyDocument"]):
        if '"Sid"' in text:
            read = json.loads(text)
            found += read.get("Statement", [read])
    return found


def policies(template, on_demand=False):
    return {
        name: statements(resource)
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::IAM::ManagedPolicy" and ("Condition" in resource) <= on_demand
    }


def actions(statement):
    listed = statement["Action"]
    return {listed} if isinstance(listed, str) else set(listed)


def called():
    """service:Action of every call in the controller's source."""
    clients = r"(?:clients\s*\.\s*)?(ec2|eks|iam|pricing|sqs|ssm)|client"
    services = {"instance_profile.rs": "iam", "interruption/mod.rs": "sqs", "pricing.rs": "pricing"}
    found = set()
    for path in (ROOT / "controller/aws/src").rglob("*.rs"):
        home = services.get(str(path.relative_to(ROOT / "controller/aws/src")), "ec2")
        for owner, service, action in re.findall(rf"\b({clients})\s*\.\s*([a-z]+(?:_[a-z]+)+)\(\)", path.read_text()):
            if action == "describe_spot_price_history":
                service = "ec2"
            found.add(f"{service or home}:{''.join(word.capitalize() for word in action.split('_'))}")
    return found


def test_every_statement_is_whole(template):
    for name, found in policies(template, on_demand=True).items():
        assert found, f"{name} has no statements"
        for statement in found:
            assert {"Sid", "Effect", "Action", "Resource"} <= set(statement), statement
            assert statement["Effect"] == "Allow"
    sids = [statement["Sid"] for found in policies(template, on_demand=True).values() for statement in found]
    assert len(sids) == len(set(sids)), "each Sid names one statement"


def test_what_is_allowed_is_what_the_controller_calls(template):
    allowed = {action for found in policies(template).values() for statement in found for action in actions(statement)}
    calls = called()
    assert len(calls) > 20, "the calls are found in the source"
    assert calls - allowed == set(), "called and not allowed"
    assert allowed - calls - set(IMPLIED) == set(), "allowed and not called"


def test_every_statement_names_the_file_that_calls(template):
    """The comment above a statement names source files, and they exist."""
    sids = {statement["Sid"] for found in policies(template).values() for statement in found}
    comment, was_comment, named = "", False, set()
    for line in TEMPLATE.read_text().splitlines():
        is_comment = line.strip().startswith("#")
        if is_comment:
            comment = f"{comment} {line}" if was_comment else line
        was_comment = is_comment
        sid = re.search(r'"Sid": "(\w+)"', line)
        if sid and sid[1] in sids:
            files = re.findall(r"[a-z_/]+\.rs", comment)
            assert files, f"no caller is named for {sid[1]}"
            for file in files:
                path = ROOT / "controller/aws/src" / file.removeprefix("controller/aws/src/")
                assert path.is_file(), f"{sid[1]} names {file}, which does not exist"
            named.add(sid[1])
    assert named == sids


def test_names_are_those_of_karpenter(template):
    names = {
        properties.get("ManagedPolicyName", properties.get("RoleName"))["Fn::Sub"]
        for properties in (resource["Properties"] for resource in template["Resources"].values())
        if "ManagedPolicyName" in properties or "RoleName" in properties
    }
    policy = "KarpenterController{}Policy-${{ClusterName}}"
    kinds = ["NodeLifecycle", "IAMIntegration", "EKSIntegration", "Interruption", "ZonalShift", "ResourceDiscovery"]
    assert names == {policy.format(kind) for kind in kinds} | {
        "KarpenterNodeRole-${ClusterName}", "KarpenterControllerRole-${ClusterName}"}
    queue = template["Resources"]["KarpenterInterruptionQueue"]["Properties"]
    assert (queue["QueueName"], queue["MessageRetentionPeriod"]) == ({"Ref": "ClusterName"}, 300)


def test_every_kind_of_notice_has_a_rule(template):
    rules = {
        (*rule["EventPattern"]["source"], *rule["EventPattern"]["detail-type"])
        for rule in (resource["Properties"] for resource in template["Resources"].values() if resource["Type"] == "AWS::Events::Rule")
    }
    source = (ROOT / "controller/aws/src/interruption/message.rs").read_text()
    read = set(re.findall(r'\("(aws\.[a-z0-9]+)", "([^"]+)"\) =>', source))
    assert len(rules) == 5 and rules == read


def test_the_readme_lists_every_statement_with_its_actions(template):
    readme = (ROOT / "deploy/README.md").read_text()
    rows = dict(re.findall(r"^\| `(Allow\w+)` \| ([^|]+) \|", readme, re.MULTILINE))
    expected = {
        statement["Sid"]: {action.split(":")[1] for action in actions(statement)}
        for found in policies(template, on_demand=True).values()
        for statement in found
    }
    assert {sid: set(re.findall(r"`(?:[a-z0-9-]+:)?(\w+)`", cell)) for sid, cell in rows.items()} == expected
