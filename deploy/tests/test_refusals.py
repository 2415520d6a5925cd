"""What the chart refuses, and in which words."""

import pytest
import yaml

from kit import CRD_CHART, CHART, VALUES, helm_template, upstream, version, run, tool

MINIMAL = ("--values", VALUES / "minimal.yaml")


def refused(*arguments, **more):
    done = helm_template(*arguments, **more)
    assert done.returncode != 0, "it was accepted"
    return done.stderr


def test_a_missing_cluster_name_is_a_sentence():
    sentence = "settings.clusterName is not set. Give it the name of the EKS cluster"
    assert sentence in refused()
    assert sentence in refused("--set", "settings.clusterName=")
    assert sentence in refused(*MINIMAL, "--set", "settings.clusterName=null")


@pytest.mark.parametrize(
    "value, words",
    [
        ("settings.isolatedVPC=perhaps", ["'/settings/isolatedVPC'", "true, false"]),
        ("settings.clusterName=7", ["'/settings/clusterName'", "got number, want string"]),
        ("settings.clusterEndpoint=api.example.com", ["'/settings/clusterEndpoint'", "https?://"]),
        ("settings.clusterCABundle=-----BEGIN", ["'/settings/clusterCABundle'", "-----BEGIN"]),
        ("settings.batchMaxDuration=soon", ["'/settings/batchMaxDuration'", "soon"]),
        ("settings.batchIdleDuration=1", ["'/settings/batchIdleDuration'", "got number, want string"]),
        ("settings.amiRefreshInterval=1 minute", ["'/settings/amiRefreshInterval'", "1 minute"]),
        ("settings.preferencePolicy=respect", ["'/settings/preferencePolicy'", "'Respect', 'Ignore'"]),
        ("settings.minValuesPolicy=Lax", ["'/settings/minValuesPolicy'", "'Strict', 'BestEffort'"]),
        ("settings.vmMemoryOverheadPercent=7.5", ["'/settings/vmMemoryOverheadPercent'", "7.5"]),
        ("settings.vmMemoryOverheadPercent=-0.1", ["'/settings/vmMemoryOverheadPercent'", "-0.1"]),
        ("settings.reservedENIs=-1", ["'/settings/reservedENIs'", "-1"]),
        ("settings.featureGates.nodeRepair=on", ["'/settings/featureGates/nodeRepair'", "true, false"]),
        ("settings.featureGates=NodeRepair", ["'/settings/featureGates'", "want object"]),
        ("logLevel=loud", ["'/logLevel'", "'debug', 'info', 'error'"]),
        ("logOutputPaths=stdout", ["'/logOutputPaths'", "want array"]),
        ("replicas=two", ["'/replicas'", "want integer"]),
        ("replicas=-1", ["'/replicas'", "-1"]),
        ("controller.metrics.port=99999", ["'/controller/metrics/port'", "65,535"]),
        ("controller.image.digest=latest", ["'/controller/image/digest'", "sha256:"]),
        ("controller.image.repository=", ["'/controller/image/repository'"]),
        ("controller.env.AWS_REGION=us-west-2", ["'/controller/env'", "want array"]),
        ("imagePullPolicy=Sometimes", ["'/imagePullPolicy'", "'IfNotPresent'"]),
        ("tolerations.key=x", ["'/tolerations'", "want array"]),
        ("nodeSelector.pool=7", ["'/nodeSelector/pool'", "want string"]),
        ("podDisruptionBudget.maxUnavailable=half", ["'/podDisruptionBudget/maxUnavailable'", "half"]),
        ("serviceAccount.create=maybe", ["'/serviceAccount/create'", "true, false"]),
        ("serviceMonitor=true", ["'/serviceMonitor'", "want object"]),
        ("dnsPolicy=Sometimes", ["'/dnsPolicy'", "'ClusterFirst'"]),
    ],
)
def test_wrong_types_and_ranges(value, words):
    answer = refused(*MINIMAL, "--set", value)
    assert "specifications of the schema" in answer
    assert [word for word in words if word not in answer] == [], answer


@pytest.mark.parametrize(
    "name, suggestion",
    [
        ("settings.clusterNmae", "settings.clusterName"),
        ("settings.clustername", "settings.clusterName"),
        ("settings.interuptionQueue", "settings.interruptionQueue"),
        ("settings.isolatedVpc", "settings.isolatedVPC"),
        ("settings.reservedEnis", "settings.reservedENIs"),
        ("settings.clusterCaBundle", "settings.clusterCABundle"),
        ("settings.featureGates.nodeRepar", "settings.featureGates.nodeRepair"),
        ("settings.featuregates.nodeRepair", "settings.featureGates"),
        ("setting.clusterName", "settings"),
        ("clusterName", "settings.clusterName"),
        ("interruptionQueue", "settings.interruptionQueue"),
        ("nodeRepair", "settings.featureGates.nodeRepair"),
        ("settings.logLevel", "logLevel"),
        ("image.tag", "controller.image"),
        ("resources.requests", "controller.resources"),
        ("replica", "replicas"),
        ("serviceaccount.name", "serviceAccount"),
        ("controller.image.repo", None),
        ("settings.aws.clusterName", None),
        ("webhook.enabled", None),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(name, suggestion):
    answer = refused(*MINIMAL, "--set", f"{name}=x")
    # The key that is wrong is the first that is not known; what it holds is then not looked at.
    refused_names = [line.strip() for line in answer.splitlines() if line.startswith("  ")]
    assert len(refused_names) == 1, answer
    key, _, question = refused_names[0].partition(": ")
    assert name == key or name.startswith(f"{key}.")
    assert question == (f"did you mean {suggestion}?" if suggestion else "")


def test_all_misspelt_names_are_told_at_once():
    answer = refused(*MINIMAL, "--set", "settings.isolatedVpc=true,replica=3")
    assert "settings.isolatedVPC?" in answer and "replicas?" in answer


def test_free_maps_and_globals_take_any_name():
    free = "nodeSelector.anything=x,podLabels.anything=x,controller.resources.anything=x,global.anything=x"
    assert helm_template(*MINIMAL, "--set", free).returncode == 0


def test_several_replicas_need_leader_election():
    answer = refused(*MINIMAL, "--set", "settings.disableLeaderElection=true")
    assert "settings.disableLeaderElection is true and replicas is 2" in answer


@pytest.mark.parametrize("chart", [CHART, CRD_CHART], ids=["karpenter", "karpenter-crd"])
def test_an_unsupported_version_of_kubernetes(chart):
    arguments = MINIMAL if chart == CHART else ()
    answer = refused(*arguments, chart=chart, kubernetes="v1.24.17")
    assert "requires kubeVersion: >=1.25.0-0 which is incompatible with Kubernetes v1.24.17" in answer
    for supported in ("v1.25.0", "v1.33.1-eks-1a2b3c4"):
        done = helm_template(*arguments, chart=chart, kubernetes=supported)
        assert done.returncode == 0, done.stderr


def test_an_unknown_value_of_the_definitions_chart():
    answer = refused("--set", "additionalAnnotation.a=b", chart=CRD_CHART)
    assert "'additionalAnnotation' not allowed" in answer


# What Karpenter's own chart takes


def test_every_value_of_karpenters_chart_is_accepted():
    values = upstream() / "charts/karpenter/values.yaml"
    done = helm_template("--values", values, *MINIMAL)
    assert done.returncode == 0, done.stderr
    # A value of theirs that ours did not know would have been refused; that theirs are read at all is seen here.
    assert yaml.safe_load(values.read_text())["controller"]["image"]["digest"] in done.stdout


@pytest.mark.parametrize(
    "value", ["settings.isolatedVPC=true", "settings.reservedENIs=2", "settings.vmMemoryOverheadPercent=0.1", "hostNetwork=true"]
)
def test_words_and_numbers_are_accepted_as_text_too(value):
    assert helm_template(*MINIMAL, "--set-string", value).stdout == helm_template(*MINIMAL, "--set", value).stdout
