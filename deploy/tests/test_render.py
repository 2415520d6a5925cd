"""What the chart renders: golden files, settings as environment, roles, and the names that make an upgrade go in place."""

import re

import pytest
import yaml

from kit import (
    CHART, CRD_CHART, GOLDEN, RENDERS, ROOT, VALUES, at, container, documented_values, environment, expect, objects, only,
    render, run, settings_of_the_program, schema_values, tool, upstream, version,
)

MINIMAL = ("--values", VALUES / "minimal.yaml")
EVERYTHING = yaml.safe_load((VALUES / "everything.yaml").read_text())


@pytest.mark.parametrize("name", RENDERS)
def test_golden(name):
    expect(GOLDEN / f"{name}.yaml", render("--values", VALUES / f"{name}.yaml"))


@pytest.mark.parametrize("name", RENDERS)
def test_lint(name):
    options = ["--strict", "--kube-version", version("KUBERNETES"), "--values", VALUES / f"{name}.yaml"]
    done = run(tool("helm"), "lint", CHART, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_is_everything():
    """A value that everything.yaml forgets, or sets to its default, is rendered by no golden file."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    # The name stays, and so does leader election: without it there would be no Role to render.
    unchanged = {"global", "settings.disableLeaderElection"}
    for path, _ in schema_values():
        if path not in unchanged:
            assert at(EVERYTHING, path) != at(defaults, path), path


# Settings


def test_every_setting_of_the_program_has_a_value_and_no_other_is_set():
    plain, downward = environment(render("--values", VALUES / "everything.yaml"))
    by_user = {each["name"] for each in EVERYTHING["controller"]["env"]}
    settings = {name: help_text for name, help_text, _ in settings_of_the_program()}
    assert len(settings) > 30, "config.rs is read no more"
    # What has no effect is offered where Karpenter's chart offers it, and not beyond.
    without_effect = {name for name, text in settings.items() if text.startswith("Accepted for compatibility")}
    offered = {"LOG_OUTPUT_PATHS", "LOG_ERROR_OUTPUT_PATHS"}
    assert offered <= without_effect, "these have an effect now"
    only_downward = {"POD_NAMESPACE", "NODE_NAME"}
    assert plain.keys() - by_user | downward == (settings.keys() - without_effect) | offered | only_downward
    assert downward == only_downward | {"CPU_REQUESTS"}


def variable_of(comment):
    found = re.match(r"([A-Z][A-Z_]+)[,:]", comment)
    return found and found[1]


SETTINGS = [(path, variable_of(comment)) for path, _, comment in documented_values() if variable_of(comment)]
GATES = [(path, "FEATURE_GATES") for path, _ in schema_values() if path.startswith("settings.featureGates.")]
GATES += [(path, "AWS_FEATURE_GATES") for path, _ in schema_values() if path.startswith("settings.awsFeatureGates.")]


def test_every_setting_is_documented_with_its_variable():
    settings = {path for path, _ in schema_values() if path.startswith("settings.")}
    assert settings <= {path for path, _ in SETTINGS + GATES}


@pytest.mark.parametrize("path, variable", SETTINGS + GATES)
def test_a_setting_is_one_variable(path, variable, tmp_path):
    value = {"settings.clusterName": "other", "settings.disableLeaderElection": True}.get(path, at(EVERYTHING, path))
    inner = value
    for key in reversed(path.split(".")):
        inner = {key: inner}
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump(inner))
    before, _ = environment(render(*MINIMAL, "--set", "replicas=1"))
    after, _ = environment(render(*MINIMAL, "--set", "replicas=1", "--values", changed))
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {variable}


def test_false_and_zero_are_said():
    """Karpenter's chart leaves them out, and the program's own default holds."""
    zeros = "settings.vmMemoryOverheadPercent=0,settings.reservedENIs=0,settings.ignoreDRARequests=false"
    plain, _ = environment(render(*MINIMAL, "--set", zeros, "--set", "settings.featureGates.reservedCapacity=false"))
    assert plain["VM_MEMORY_OVERHEAD_PERCENT"] == "0"
    assert plain["RESERVED_ENIS"] == "0"
    assert plain["IGNORE_DRA_REQUESTS"] == "false"
    assert "ReservedCapacity=false" in plain["FEATURE_GATES"].split(",")


def test_empty_text_and_null_leave_a_variable_out():
    plain, _ = environment(render(*MINIMAL, "--set", "settings.batchMaxDuration=null,settings.leaderElectionName="))
    assert not plain.keys() & {"BATCH_MAX_DURATION", "LEADER_ELECTION_NAME", "CLUSTER_ENDPOINT", "SCHEDULER_CONFIG"}


def test_whole_numbers_are_printed_whole():
    plain, _ = environment(render(*MINIMAL, "--set", "settings.reservedENIs=1000000"))
    assert plain["RESERVED_ENIS"] == "1000000"


def test_a_variable_of_the_users_own_replaces_ours():
    text = render("--values", VALUES / "upstream.yaml")
    plain, _ = environment(text)
    assert plain["IGNORE_DRA_REQUESTS"] == "false"
    assert plain["AWS_REGION"] == "us-west-2"


def test_defaults_of_the_chart_are_those_of_the_program():
    plain, _ = environment(render(*MINIMAL))
    checked = 0
    for name, _, default in settings_of_the_program():
        if default is not None and name in plain:
            assert plain[name] == default, name
            checked += 1
    assert checked > 15


def test_defaults_of_feature_gates_are_those_of_the_program():
    plain, _ = environment(render(*MINIMAL))
    source = (ROOT / "controller/src/config.rs").read_text()
    gates = dict(re.findall(r'\("(\w+)", (true|false)\)', source[source.index("impl Default for FeatureGates"):]))
    assert len(gates) == 6
    assert dict(gate.split("=") for gate in plain["FEATURE_GATES"].split(",")) == gates


# Ports


def test_without_metrics_there_is_no_service_and_without_health_no_probe():
    off = "controller.metrics.port=0,controller.healthProbe.port=0,serviceMonitor.enabled=true"
    text = render(*MINIMAL, "--set", off)
    assert not {each["kind"] for each in objects(text)} & {"Service", "ServiceMonitor"}
    assert not container(text).keys() & {"ports", "livenessProbe", "readinessProbe"}
    plain, _ = environment(text)
    assert plain["METRICS_PORT"] == plain["HEALTH_PROBE_PORT"] == "0"


def test_without_leader_election_there_is_no_role_for_leases():
    text = render(*MINIMAL, "--set", "settings.disableLeaderElection=true,replicas=1")
    roles = [each["metadata"]["name"] for each in objects(text) if each["kind"] in ("Role", "RoleBinding")]
    assert roles == ["karpenter-dns", "karpenter-dns"]


# Roles

ROLES = [("Role", "karpenter"), ("Role", "karpenter-dns"), ("ClusterRole", "karpenter"), ("ClusterRole", "karpenter-core")]


def permissions(text):
    """Every single thing that the controller's roles allow: namespace, group, resource, verb, name."""
    for kind, name in ROLES:
        role = only(kind, name, text)
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for one in rule.get("resourceNames", ["*"]):
                            yield role["metadata"].get("namespace", "*"), group, resource, verb, one


def test_roles_are_no_wider_than_karpenters():
    theirs = set(permissions(render(*MINIMAL, chart=upstream() / "charts/karpenter")))
    for permission in permissions(render(*MINIMAL)):
        # Theirs has looks at Leases and further verbs without a name: wider, and so it covers ours.
        assert permission in theirs or (*permission[:4], "*") in theirs, permission


def test_no_permission_is_given_twice():
    ours = list(permissions(render(*MINIMAL)))
    assert len(ours) == len(set(ours))


def test_files_named_as_callers_are_there():
    named = [
        path
        for template in ("role.yaml", "clusterrole.yaml", "clusterrole-core.yaml")
        for comment in re.findall(r"^ *#(.*)", (CHART / "templates" / template).read_text(), re.M)
        for path in re.findall(r"[\w/]+\.rs", comment)
    ]
    assert len(named) > 10
    assert [path for path in named if not (ROOT / "controller/src" / path).exists()] == []


# Names


@pytest.mark.parametrize(
    "release, more",
    [
        ("karpenter", []),
        ("my-karpenter", []),
        ("autoscaler", []),
        ("autoscaler", ["--set", "nameOverride=nodes"]),
        ("autoscaler", ["--set", "fullnameOverride=nodes"]),
        ("karpenter", ["--set", "serviceAccount.name=pods-own"]),
        ("karpenter", ["--set", "serviceAccount.create=false"]),
        ("a-release-with-a-name-as-long-as-helm-will-have-it-be", []),
    ],
)
def test_objects_are_called_as_karpenters(release, more):
    ours = render(*MINIMAL, *more, release=release, namespace="nodes")
    theirs = render(*MINIMAL, *more, release=release, namespace="nodes", chart=upstream() / "charts/karpenter")

    def shape(text):
        shapes = set()
        for each in objects(text):
            spec, subjects = each.get("spec", {}), each.get("subjects", [])
            template = spec.get("template", {}).get("spec", {})
            shapes.add(
                (
                    each["kind"],
                    each["metadata"]["name"],
                    each["metadata"].get("namespace"),
                    str(spec.get("selector")),
                    str(each.get("roleRef")),
                    str([(one["name"], one["namespace"]) for one in subjects]),
                    template.get("serviceAccountName"),
                    str([one["name"] for one in template.get("containers", [])]),
                    str([one["name"] for one in spec.get("ports", [])]),
                )
            )
        return shapes

    assert shape(ours) == shape(theirs)


# The definitions' chart


def definitions(text):
    return {each["metadata"]["name"]: each for each in objects(text)}


def test_the_definitions_are_those_of_the_chart():
    source = definitions("---\n".join(path.read_text() for path in sorted((CHART / "crds").iterdir())))
    assert len(source) == 3
    rendered = definitions(render("--set", "additionalAnnotations.team=platform", chart=CRD_CHART))
    for each in rendered.values():
        assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep", "team": "platform"}
    assert rendered == source
    assert definitions(render("--set", "keepOnUninstall=false", chart=CRD_CHART)) == source


def test_lint_of_the_definitions():
    done = run(tool("helm"), "lint", CRD_CHART, "--strict", "--kube-version", version("KUBERNETES"))
    assert done.returncode == 0, done.stdout + done.stderr


# Pods


def test_only_what_has_no_selector_gets_that_of_the_pods():
    spec = only("Deployment", "karpenter", render("--values", VALUES / "everything.yaml"))["spec"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = spec["template"]["spec"]["affinity"]
    assert affinity["podAffinity"][required][0]["labelSelector"] == {"matchLabels": {"app": "dns"}}
    assert affinity["podAntiAffinity"][required][0]["labelSelector"] == spec["selector"]
    assert spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"] == spec["selector"]
