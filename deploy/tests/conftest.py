"""A genuine control plane for the tests that need one, started by the trysquare program that TRYSQUARE names."""

import json
import os
import subprocess

import pytest

import kit


class Cluster:
    """helm and kubectl with the cluster's kubeconfig."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def helm(self, *arguments, namespace=kit.NAMESPACE):
        return kit.run(kit.tool("helm"), *arguments, "--namespace", namespace, kubeconfig=self.kubeconfig)

    def kubectl(self, *arguments, text_in=None):
        done = kit.run(kit.tool("kubectl"), *arguments, text_in=text_in, kubeconfig=self.kubeconfig)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stderr}"
        return done.stdout

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))

    def can(self, account, verb, resource, *more):
        """Whether the account may, by the API server's own word."""
        user = f"system:serviceaccount:{kit.NAMESPACE}:{account}"
        command = ["auth", "can-i", verb, resource, "--as", user, *more]
        return kit.run(kit.tool("kubectl"), *command, kubeconfig=self.kubeconfig).stdout.strip() == "yes"

    def traces(self, release="karpenter"):
        """What is in the cluster of a release: objects, and helm's own record."""
        kinds = "deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets"
        selector = f"app.kubernetes.io/instance={release}"
        labelled = self.get(kinds, "--all-namespaces", "--selector", selector)["items"]
        records = self.get("secrets", "--all-namespaces", "--selector", f"owner=helm,name={release}")["items"]
        return [f"{each['kind']} {each['metadata']['name']}" for each in labelled + records]

    def definitions(self, folder):
        """Replaces the definitions in the cluster by those in a folder."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename", folder)
        self.kubectl("wait", "--for", "condition=Established", "--timeout=30s", "--filename", folder)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory):
    program = os.environ.get("TRYSQUARE")
    if not program:
        raise pytest.UsageError("TRYSQUARE has to name the built program; `make chart-test` does so")
    for each in ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"):
        kit.tool(each)
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    command = [program, "serve", "--backend", "apiserver", "--format", "json", "--quiet", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--kubeconfig", kubeconfig], stdout=subprocess.PIPE, text=True)
    try:
        # The first document on standard output says that everything answers.
        document = ""
        for line in process.stdout:
            document += line
            if line == "}\n":
                break
        assert json.loads(document)["kubeconfig"] == str(kubeconfig)
        yield Cluster(kubeconfig)
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture
def cluster(control_plane):
    """The cluster without any release, before and after."""
    yield control_plane
    for release in control_plane.helm("list", "--short", "--all").stdout.split():
        control_plane.helm("uninstall", release)


@pytest.fixture
def definitions_restored(control_plane):
    """For tests that change the definitions: the next finds this chart's again."""
    yield
    control_plane.definitions(kit.CHART / "crds")
