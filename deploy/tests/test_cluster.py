"""The charts on a genuine API server: what it accepts, install, upgrade, rollback and removal, and the way from Karpenter's own
chart. There are no machines, so no pod starts here and nothing waits for one."""

import json

import pytest
import yaml

from kit import CHART, CRD_CHART, NAMESPACE, RENDERS, VALUES, render, upstream

CLUSTER_NAME = ("--set", "settings.clusterName=demo")
POOLS = "nodepools.karpenter.sh"

# Prometheus' operator is not there; its kind is, so that a ServiceMonitor is at least an object.
SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def done(command):
    assert command.returncode == 0, command.stdout + command.stderr
    return command.stdout


def refused(command):
    assert command.returncode != 0, "it was accepted"
    return command.stderr


def variables(cluster):
    deployment = cluster.get("deployment", "karpenter", "--namespace", NAMESPACE)
    first = deployment["spec"]["template"]["spec"]["containers"][0]
    return deployment, {each["name"]: each.get("value") for each in first["env"]}


@pytest.fixture(scope="module")
def service_monitors(control_plane):
    control_plane.kubectl("apply", "--filename", "-", text_in=json.dumps(SERVICE_MONITORS))
    control_plane.kubectl("wait", "--for", "condition=Established", "crd", SERVICE_MONITORS["metadata"]["name"])


@pytest.mark.parametrize("name", RENDERS)
def test_the_api_server_accepts_every_render(name, cluster, service_monitors):
    text = render("--values", VALUES / f"{name}.yaml")
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", text_in=text)


def test_install_upgrade_rollback_uninstall(cluster):
    said = done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    assert "Without settings.interruptionQueue nobody hears of spot interruptions" in said
    assert "rollout status deployment/karpenter" in said and "kubectl get ec2nodeclasses,nodepools" in said
    installed, before = variables(cluster)
    assert before["CLUSTER_NAME"] == "demo" and "INTERRUPTION_QUEUE" not in before

    done(cluster.helm("upgrade", "karpenter", CHART, *CLUSTER_NAME, "--set", "settings.interruptionQueue=notices"))
    assert variables(cluster)[1]["INTERRUPTION_QUEUE"] == "notices"

    done(cluster.helm("rollback", "karpenter"))
    rolled_back, after = variables(cluster)
    assert after == before
    assert rolled_back["metadata"]["uid"] == installed["metadata"]["uid"]

    done(cluster.helm("uninstall", "karpenter"))
    assert cluster.traces() == []
    assert cluster.get("crd", POOLS)["metadata"]["name"] == POOLS


def test_what_the_service_account_may(cluster):
    done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    may = [
        ("watch", "nodepools.karpenter.sh"),
        ("create", "nodeclaims.karpenter.sh"),
        ("patch", "ec2nodeclasses.karpenter.k8s.aws", "--subresource=status"),
        ("create", "pods", "--subresource=eviction"),
        ("update", "leases.coordination.k8s.io/karpenter-leader-election", "--namespace", NAMESPACE),
        ("get", "services/kube-dns", "--namespace", NAMESPACE),
    ]
    may_not = [
        ("get", "secrets"),
        ("create", "pods"),
        ("create", "nodes"),
        ("delete", "nodepools.karpenter.sh"),
        ("update", "leases.coordination.k8s.io/another", "--namespace", NAMESPACE),
        ("update", "leases.coordination.k8s.io/karpenter-leader-election", "--namespace", "default"),
        ("get", "services/another", "--namespace", NAMESPACE),
    ]
    assert [each for each in may if not cluster.can("karpenter", *each)] == []
    assert [each for each in may_not if cluster.can("karpenter", *each)] == []


def test_admins_may_work_with_karpenters_kinds(cluster):
    done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    cluster.kubectl("wait", "clusterrole/admin", "--timeout=30s", "--for", "jsonpath={.rules[?(@.apiGroups[0]=='karpenter.k8s.aws')]}")


def test_a_refused_value_leaves_nothing(cluster):
    assert "settings.clusterName?" in refused(cluster.helm("install", "karpenter", CHART, "--set", "settings.clusterNmae=x"))
    assert "settings.clusterName is not set" in refused(cluster.helm("install", "karpenter", CHART))
    assert "'/replicas'" in refused(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME, "--set", "replicas=two"))
    assert cluster.traces() == []


# Definitions of another version


def edited(name, edit):
    """A definition of this chart, changed."""
    (path,) = (path for path in (CHART / "crds").iterdir() if yaml.safe_load(path.read_text())["metadata"]["name"] == name)
    definition = yaml.safe_load(path.read_text())
    edit(definition)
    return json.dumps(definition)


def without_replicas(definition):
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["replicas"]
    spec["x-kubernetes-validations"] = [rule for rule in spec["x-kubernetes-validations"] if "replicas" not in rule["rule"]]


def test_definitions_that_lack_a_field(cluster, definitions_restored):
    cluster.kubectl("replace", "--filename", "-", text_in=edited(POOLS, without_replicas))
    said = refused(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    assert f"{POOLS} has no spec.replicas\n" in said
    assert "nodeclaims.karpenter.sh" not in said and "Bring them up to date first" in said
    assert cluster.traces() == []

    done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME, "--set", "checkCustomResourceDefinitions=false"))
    assert f"{POOLS} has no spec.replicas\n" in refused(cluster.helm("upgrade", "karpenter", CHART, *CLUSTER_NAME))

    cluster.definitions(CHART / "crds")
    done(cluster.helm("upgrade", "karpenter", CHART, *CLUSTER_NAME))


def test_definitions_of_a_version_before(cluster, definitions_restored):
    def as_beta(definition):
        definition["spec"]["versions"][0]["name"] = "v1beta1"

    cluster.kubectl("delete", "crd", POOLS)
    cluster.kubectl("create", "--filename", "-", text_in=edited(POOLS, as_beta))
    said = refused(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    assert f"{POOLS} does not serve and store version v1; it has v1beta1\n" in said
    assert cluster.traces() == []
    cluster.kubectl("delete", "crd", POOLS)


def test_missing_definitions_are_installed_but_not_by_an_upgrade(cluster, definitions_restored):
    cluster.kubectl("delete", "crd", POOLS)
    done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))
    assert cluster.get("crd", POOLS)["metadata"]["name"] == POOLS
    cluster.kubectl("delete", "crd", POOLS)
    said = refused(cluster.helm("upgrade", "karpenter", CHART, *CLUSTER_NAME, "--set", "replicas=1"))
    assert f"{POOLS} is not there\n" in said
    assert variables(cluster)[0]["spec"]["replicas"] == 2


def test_helm_creates_missing_definitions_before_it_refuses(cluster, definitions_restored):
    """Not ours to change, so the README says it: what a refused first installation may leave are definitions, nothing else."""
    cluster.kubectl("delete", "crd", POOLS)
    dry = cluster.helm("install", "karpenter", CHART, "--dry-run=server")
    assert "settings.clusterName is not set" in refused(dry)
    assert cluster.kubectl("get", "crd", POOLS, "--ignore-not-found") == ""
    assert "settings.clusterName is not set" in refused(cluster.helm("install", "karpenter", CHART))
    assert cluster.get("crd", POOLS)["metadata"]["name"] == POOLS
    assert cluster.traces() == []


# From Karpenter's own charts


def test_from_karpenters_chart_and_back(cluster, definitions_restored):
    cluster.definitions(upstream() / "pkg/apis/crds")
    values = ("--values", VALUES / "upstream.yaml")
    done(cluster.helm("install", "karpenter", upstream() / "charts/karpenter", *values))
    theirs, theirs_variables = variables(cluster)
    assert cluster.can("karpenter", "watch", "replicasets.apps")

    # values/upstream.yaml goes around a value that theirs cannot express, so that a variable is there twice.
    said = done(cluster.helm("upgrade", "karpenter", CHART, *values))
    assert "WARNING: the Deployment had IGNORE_DRA_REQUESTS twice" in said
    assert "IGNORE_DRA_REQUESTS" not in variables(cluster)[1]
    said = done(cluster.helm("upgrade", "karpenter", CHART, *values))
    assert "WARNING" not in said
    ours, ours_variables = variables(cluster)
    assert ours["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert ours["spec"]["template"]["spec"]["containers"][0]["image"].startswith("ghcr.io/trysquare/controller:")
    assert ours_variables["IGNORE_DRA_REQUESTS"] == "false"
    # Nothing of theirs is left in the environment but what ours says too.
    assert "KUBERNETES_MIN_VERSION" not in ours_variables
    assert not cluster.can("karpenter", "watch", "replicasets.apps")

    done(cluster.helm("rollback", "karpenter", "1"))
    back, back_variables = variables(cluster)
    # Of the variable that was there twice, the merge brings back the one of their chart alone, as the README says.
    assert back_variables == {**theirs_variables, "IGNORE_DRA_REQUESTS": "true"}
    for each in (back, theirs):
        del each["spec"]["template"]["spec"]["containers"][0]["env"]
    assert back["spec"]["template"] == theirs["spec"]["template"]
    assert cluster.can("karpenter", "watch", "replicasets.apps")


def test_karpenters_image_is_warned_of(cluster, definitions_restored):
    cluster.definitions(upstream() / "pkg/apis/crds")
    done(cluster.helm("install", "karpenter", upstream() / "charts/karpenter", *CLUSTER_NAME))
    assert "WARNING: this is Karpenter's own image" in done(cluster.helm("upgrade", "karpenter", CHART, "--reuse-values"))
    assert "WARNING" not in done(cluster.helm("upgrade", "karpenter", CHART, "--reset-then-reuse-values", *CLUSTER_NAME))


def test_adopting_definitions(cluster, definitions_restored):
    install = ("upgrade", "--install", "karpenter-crd", CRD_CHART)
    assert "invalid ownership metadata" in refused(cluster.helm(*install))
    uid = cluster.get("crd", POOLS)["metadata"]["uid"]
    done(cluster.helm(*install, "--take-ownership"))
    assert cluster.get("crd", POOLS)["metadata"]["uid"] == uid

    cluster.kubectl("replace", "--filename", "-", text_in=edited(POOLS, without_replicas))
    done(cluster.helm(*install, "--take-ownership"))
    done(cluster.helm("install", "karpenter", CHART, *CLUSTER_NAME))

    done(cluster.helm("uninstall", "karpenter-crd"))
    assert cluster.get("crd", POOLS)["metadata"]["uid"] == uid, "with the definition all its objects would have gone"


def test_from_karpenters_definitions(cluster, definitions_restored):
    """By the README: the two definitions that ours has not stay, with their objects."""
    more = ["nodeoverlays.karpenter.sh", "capacitybuffers.autoscaling.x-k8s.io"]
    done(cluster.helm("upgrade", "--install", "karpenter-crd", upstream() / "charts/karpenter-crd", "--take-ownership"))
    before = {name: cluster.get("crd", name)["metadata"]["uid"] for name in [POOLS, *more]}
    cluster.kubectl("annotate", "crd", *more, "helm.sh/resource-policy=keep")
    done(cluster.helm("upgrade", "karpenter-crd", CRD_CHART))
    assert {name: cluster.get("crd", name)["metadata"]["uid"] for name in before} == before
