//! The controller as the chart installs it: what `helm template` makes of it, and which of that a controller needs that runs
//! as a process beside the cluster: its ServiceAccount with all roles, and the environment of its container.

use crate::permissions::rbac::{self, Rule};
use crate::things::manifests::{apply_object, apply_text};
use crate::under_test::UnderTest;
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Api;
use kube::api::PostParams;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The release's name, which is also that of its ServiceAccount, Deployment and roles.
pub(crate) const RELEASE: &str = "karpenter";
/// Where it is installed, as the guides have it.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The container of the controller.
pub(crate) const CONTAINER: &str = "controller";
/// The chart, from the root of the project.
pub(crate) const CHART: &str = "deploy/chart";

/// Who another controller than ours is, and what it may do.
const OTHER_ROLE: &str = include_str!("other_role.yaml");
/// The ServiceAccount in it.
const OTHER_ACCOUNT: &str = "karpenter-other";

/// How long a token is good for: longer than any scenario.
const TOKEN_S: i64 = 24 * 60 * 60;

/// What authorises the controller.
const AUTHORISATION: [&str; 5] = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// A rendered chart.
#[derive(Clone, Debug)]
pub struct Release {
    objects: Vec<Value>,
}

impl Release {
    /// Renders a chart with the helm program.
    ///
    /// # Errors
    /// Where helm refuses it, with helm's words.
    pub fn render(helm: &Path, chart: &Path, values: &Value) -> anyhow::Result<Self> {
        ensure!(
            chart.join("Chart.yaml").is_file(),
            "there is no chart in {}; run from the root of the project",
            chart.display()
        );
        let mut command = Command::new(helm);
        command.args(["template", RELEASE]).arg(chart).args(["--namespace", NAMESPACE, "--values", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", helm.display()))?;
        // A helm that ends before it has read everything says why.
        let _ = child.stdin.take().context("its input is piped")?.write_all(values.to_string().as_bytes());
        let output = child.wait_with_output()?;
        ensure!(
            output.status.success(),
            "helm cannot render {}: {}",
            chart.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Self::parse(&String::from_utf8(output.stdout).context("what helm rendered")?)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let documents = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
        let objects: Vec<Value> = documents.collect::<Result<_, _>>().context("what helm rendered")?;
        Ok(Self { objects: objects.into_iter().filter(|object| !object.is_null()).collect() })
    }

    /// Single rules of the controller's roles.
    pub(crate) fn rules(&self) -> BTreeSet<Rule> {
        rbac::rules(self.authorisation())
    }

    /// The ServiceAccount and everything that says what it may do.
    fn authorisation(&self) -> impl Iterator<Item = &Value> + Clone {
        self.objects.iter().filter(|object| AUTHORISATION.iter().any(|kind| object["kind"] == *kind))
    }

    /// The environment of the controller's container. What only a pod has (its limits) is left out.
    ///
    /// # Errors
    /// Where the chart has no such container.
    pub(crate) fn environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let deployment = self.objects.iter().find(|object| object["kind"] == "Deployment");
        let containers = deployment.and_then(|deployment| deployment.pointer("/spec/template/spec/containers"));
        let container = containers
            .and_then(Value::as_array)
            .and_then(|containers| containers.iter().find(|container| container["name"] == CONTAINER));
        let Some(container) = container else { bail!("the chart's Deployment has no container {CONTAINER:?}") };
        let variables = container["env"].as_array().into_iter().flatten();
        Ok(variables.filter_map(|variable| Some((text(&variable["name"]), value_of(variable)?))).collect())
    }
}

/// The ServiceAccount of a controller. Only ours lives within the roles of its chart.
pub(crate) fn account_of(controller: &UnderTest) -> &'static str {
    match controller {
        UnderTest::Ours | UnderTest::Nothing => RELEASE,
        UnderTest::Upstream | UnderTest::Program(_) => OTHER_ACCOUNT,
    }
}

/// Installs what authorises our controller, and any other.
pub(crate) async fn authorise(kube: &kube::Client, release: &Release) -> anyhow::Result<()> {
    for object in release.authorisation() {
        let about = || format!("installing {} {}", object["kind"], object["metadata"]["name"]);
        apply_object(kube, object.clone()).await.with_context(about)?;
    }
    authorise_other(kube).await
}

/// Installs what authorises any other controller than ours.
pub(crate) async fn authorise_other(kube: &kube::Client) -> anyhow::Result<()> {
    apply_text(kube, OTHER_ROLE).await.context("installing the role of another controller").map(drop)
}

/// A token of a ServiceAccount, for the API server or for somebody else.
pub(crate) async fn token(kube: &kube::Client, account: &str, audience: Option<&str>) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(kube.clone(), NAMESPACE);
    let spec = TokenRequestSpec {
        audiences: audience.map(|audience| vec![audience.to_owned()]),
        expiration_seconds: Some(TOKEN_S),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let status = answer.context("a token for the controller")?.status;
    status.and_then(|status| status.token).context("the API server made no token")
}

/// Takes one rule away from a role of the cluster.
///
/// # Errors
/// Where no role has it.
pub(crate) async fn take_away(kube: &kube::Client, rule: &Rule) -> anyhow::Result<()> {
    let about = || format!("taking rbac/{rule} away");
    match rule.kind.as_str() {
        "Role" => replace(&Api::<Role>::namespaced(kube.clone(), NAMESPACE), rule).await,
        _ => replace(&Api::<ClusterRole>::all(kube.clone()), rule).await,
    }
    .with_context(about)
}

async fn replace<K>(roles: &Api<K>, rule: &Rule) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let role = roles.get(&rule.role).await?;
    let before = serde_json::to_value(&role)?;
    let after = rbac::without(&before, rule);
    ensure!(after != before, "no rule of it says so");
    roles.replace(&rule.role, &PostParams::default(), &serde_json::from_value(after)?).await?;
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The value of a variable, as the controller's pod would see it.
fn value_of(variable: &Value) -> Option<String> {
    if let Some(value) = variable["value"].as_str() {
        return Some(value.to_owned());
    }
    match variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str()? {
        "metadata.namespace" => Some(NAMESPACE.to_owned()),
        _ => None,
    }
}

/// The values of the chart for a cluster of the kit. EKS is asked for the version, as it is the only one that knows it of a
/// control plane that is not there to be asked.
pub(crate) fn values(cluster: &str) -> Value {
    json!({"settings": {"clusterName": cluster, "interruptionQueue": cluster, "eksControlPlane": true}})
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "\
---
# Source: karpenter/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata: {name: karpenter, namespace: kube-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: karpenter, namespace: kube-system}
spec:
  template:
    spec:
      containers:
        - name: controller
          env:
            - {name: CLUSTER_NAME, value: demo}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: MEMORY_LIMIT
              valueFrom: {resourceFieldRef: {resource: limits.memory}}
---
";

    #[test]
    fn a_release_gives_its_permissions_and_its_environment() {
        let release = Release::parse(RENDERED).unwrap();
        let kinds: Vec<&Value> = release.authorisation().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["ServiceAccount"]);
        let environment = release.environment().unwrap();
        let expected = [("CLUSTER_NAME", "demo"), ("POD_NAMESPACE", "kube-system")];
        assert_eq!(environment, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn a_chart_without_a_controller_is_refused() {
        let error = Release::parse("kind: Deployment").unwrap().environment().unwrap_err();
        assert_eq!(error.to_string(), "the chart's Deployment has no container \"controller\"");
    }
}
