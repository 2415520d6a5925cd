//! A cluster with nodes of its own, in which the controller is installed by its chart and runs in pods, with a fake-ec2 that
//! is a Deployment of the cluster too. Kubelets of the instances are played from here.
//!
//! What differs from a process of its own: a replica that is killed gets the SIGTERM that the kubelet sends to every pod.

use super::mirror::Mirror;
use super::observe::follow_ec2;
use super::process::record_line;
use super::real_time::{HEARTBEAT, follow_audit, follow_objects, remove_dead_nodes, watch_writes};
use super::seen::Watcher;
use super::{Backend, Setting};
use crate::account::{self, Account, Pace, REGION};
use crate::chronicle::follow_instances;
use crate::cloud::{Cloud, Ec2, RemoteEc2, STS};
use crate::control_plane::audit::{Follower, Names};
use crate::invariants::Invariants;
use crate::kind::contents::reason;
use crate::kind::{Access, in_cluster_ec2_url};
use crate::permissions::{Permission, iam};
use crate::place::Place;
use crate::recorder::Recorder;
use crate::release::{self, CONTAINER, NAMESPACE, RELEASE};
use crate::under_test::UnderTest;
use anyhow::{Context, anyhow, bail, ensure};
use base64::Engine as _;
use controller_clock::Clock;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long a pod may take until its controller says that it is ready. One that takes longer is left to the steps, which say
/// what it does not do.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How often pods are looked at while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a change of the Deployment is made anew.
const CONFLICTS: u32 = 10;

/// How long a pod that was deleted by force may be seen.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// The port of the metrics in a pod, by the chart's default.
const METRICS_PORT: u16 = 8080;

/// Who signs the tokens of ServiceAccounts in a cluster that kubeadm made.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Where EKS puts the token for AWS.
const TOKEN_FOLDER: &str = "/var/run/secrets/eks.amazonaws.com/serviceaccount";

/// Pods of the release.
const SELECTOR: &str = "app.kubernetes.io/name=karpenter";

/// The cluster.
pub struct Installed {
    access: Access,
    account: Account<RemoteEc2>,
    client: kube::Client,
    controller: UnderTest,
    clock: Clock,
    /// What is set in the container beside what the chart sets.
    environment: BTreeMap<String, String>,
    /// What the chart set, once it is installed.
    of_the_chart: Option<BTreeMap<String, String>>,
    without: Option<Permission>,
    /// Pods by the numbers of their replicas.
    replicas: BTreeMap<usize, String>,
    /// Why a pod ended that nobody ended.
    ended: Rc<RefCell<Option<String>>>,
    recorder: Recorder,
    parts: RefCell<JoinSet<anyhow::Result<()>>>,
}

impl Installed {
    /// Sets the stage of a scenario. The controller is not installed yet.
    ///
    /// # Errors
    /// Where the cluster or its fake-ec2 does not answer.
    pub async fn start(
        setting: Setting,
        seed: u64,
        families: Vec<String>,
        recorder: Recorder,
        invariants: Invariants,
    ) -> anyhow::Result<Self> {
        let Setting { on, place, .. } = setting;
        let Some(Place::Kind(access)) = place else {
            bail!("no cluster was made ready for the backend {}", on.backend)
        };
        let clock = Clock::system();
        recorder.set_clock(clock.clone());
        let authority = base64::engine::general_purpose::STANDARD.encode(&access.certificate_authority_pem);
        let mut pace = Pace::quick();
        pace.kubelets.heartbeat = Some(HEARTBEAT);
        let options = account::Options {
            clock: clock.clone(),
            seed,
            region: REGION.into(),
            families,
            served: Some((access.url.clone(), authority)),
            pace,
            issuer: Some(ISSUER.into()),
            enforce_iam: on.enforce_iam,
        };
        let ec2 = RemoteEc2::at(&format!("http://127.0.0.1:{}", access.ec2_port))?;
        let account = Account::reset(ec2.clone(), options).await.context("setting the account in the cluster")?;
        if on.enforce_iam {
            if let Some(permission @ Permission::Iam { .. }) = &on.without {
                bail!("on kind {permission} cannot be taken away; on embedded and apiserver it can");
            }
            account.cloud.deploy_stack().await?;
        }
        let client = access.client().await?;
        let changed = Arc::new(Notify::new());
        let mut parts = JoinSet::new();
        let audit = Follower::from_the_end_of(&access.audit_log(), Names::default())?;
        parts.spawn_local(follow_audit(audit, watch_writes(&recorder, &invariants, &changed)));
        parts.spawn_local(follow_ec2(&ec2, recorder.clone(), invariants.clone(), changed.clone()));
        let mirror = Mirror::default();
        follow_objects(&mut parts, &mirror, &client, &recorder, &changed);
        parts.spawn_local(follow_instances(&ec2, clock.clone(), recorder.chronicler().clone()));
        let watcher = Watcher { kube: mirror, ec2: ec2.clone(), clock: clock.clone(), recorder: recorder.clone() };
        parts.spawn_local(watcher.watch(invariants, changed));
        parts.spawn_local(account.kubelets(client.clone(), recorder.clone()));
        parts.spawn_local(remove_dead_nodes(client.clone(), async move |provider_id: &str| {
            exists(&ec2, provider_id).await
        }));
        let mut environment = aws_environment(on.enforce_iam.then(|| account.account_id()).as_deref());
        environment.extend(on.environment);
        Ok(Self {
            access,
            account,
            client,
            controller: on.controller,
            clock,
            environment,
            of_the_chart: None,
            without: on.without,
            replicas: BTreeMap::new(),
            ended: Rc::default(),
            recorder,
            parts: RefCell::new(parts),
        })
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Installs the chart with no replica.
    async fn install(&mut self) -> anyhow::Result<()> {
        let chart = self.access.chart.to_str().context("the path of the chart is no UTF-8")?.to_owned();
        let values = self.values().to_string();
        let arguments = ["upgrade", "--install", RELEASE, &chart, "--skip-crds", "--values", "-"];
        self.access.helm(&arguments, Some(&values)).await.context("installing the chart")?;
        if let Some(Permission::Rbac(rule)) = &self.without {
            release::take_away(&self.client, rule).await?;
        }
        self.of_the_chart = Some(environment_of(&self.deployments().get(RELEASE).await?));
        Ok(())
    }

    fn values(&self) -> Value {
        let mut values = release::values(account::CLUSTER);
        let (repository, tag) =
            self.access.controller_image.rsplit_once(':').unwrap_or((&self.access.controller_image, ""));
        values["controller"] = json!({
            "image": {"repository": repository, "tag": tag},
            // One node carries every replica here, with little room.
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        });
        values["replicas"] = json!(0);
        values["affinity"] = json!({"podAntiAffinity": null});
        values["topologySpreadConstraints"] = json!([]);
        values["logLevel"] = json!("debug");
        if self.account.options().enforce_iam {
            // What EKS adds to the pod of such a ServiceAccount.
            let source = json!({"serviceAccountToken": {"path": "token", "audience": STS}});
            values["extraVolumes"] = json!([{"name": "aws-iam-token", "projected": {"sources": [source]}}]);
            values["controller"]["extraVolumeMounts"] =
                json!([{"name": "aws-iam-token", "mountPath": TOKEN_FOLDER, "readOnly": true}]);
        }
        let account = release::account_of(&self.controller);
        if account != RELEASE {
            values["serviceAccount"] = json!({"create": false, "name": account});
        }
        values
    }

    /// Sets the container's environment and the number of replicas as they are wanted now, however often the cluster's own
    /// controllers are faster.
    async fn roll_out(&self, replicas: usize) -> anyhow::Result<()> {
        for _ in 0..CONFLICTS {
            match self.change_deployment(replicas).await {
                Err(error) if is_conflict(&error) => tokio::time::sleep(LOOK_EVERY).await,
                outcome => return outcome,
            }
        }
        self.change_deployment(replicas).await
    }

    async fn change_deployment(&self, replicas: usize) -> anyhow::Result<()> {
        let deployments = self.deployments();
        let mut deployment = deployments.get(RELEASE).await?;
        let wanted = self.wanted_environment()?;
        let containers = deployment.spec.template.spec.as_mut().map(|spec| &mut spec.containers);
        let container =
            containers.and_then(|containers| containers.iter_mut().find(|container| container.name == CONTAINER));
        let container = container.with_context(|| format!("the Deployment {RELEASE} has no container {CONTAINER}"))?;
        let variables = container.env.get_or_insert_default();
        // What has a source, such as the pod's own name, is the chart's affair.
        variables.retain(|variable| variable.value_from.is_some() && !wanted.contains_key(&variable.name));
        let variable = |(name, value): (&String, &String)| k8s_openapi::api::core::v1::EnvVar {
            name: name.clone(),
            value: Some(value.clone()),
            value_from: None,
        };
        variables.extend(wanted.iter().map(variable));
        deployment.spec.replicas = Some(i32::try_from(replicas)?);
        deployments.replace(RELEASE, &Default::default(), &deployment).await.context("changing the Deployment")?;
        Ok(())
    }

    /// What the chart sets, changed by what scenarios set and take away.
    fn wanted_environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut wanted = self.of_the_chart.clone().context("the chart is not installed")?;
        wanted.extend(self.environment.clone());
        wanted.retain(|_, value| value != TAKEN_AWAY);
        Ok(wanted)
    }

    /// Waits for the pod of one more replica, until it is ready or has ended.
    async fn new_pod(&mut self) -> anyhow::Result<String> {
        let started = tokio::time::Instant::now();
        loop {
            let pods = self.pods().list(&ListParams::default().labels(SELECTOR)).await?;
            let known = |pod: &Pod| self.replicas.values().any(|known| *known == pod.name_any());
            let new = pods.items.iter().find(|pod| !known(pod) && pod.metadata.deletion_timestamp.is_none());
            let seen = match new {
                Some(pod) if is_ready(pod) => return Ok(pod.name_any()),
                Some(pod) if ended(pod).is_some() => {
                    let name = pod.name_any();
                    let said = self.last_words(&name).await;
                    bail!("{}; it said last: {said}", ended(pod).unwrap_or_default())
                }
                Some(pod) if started.elapsed() > READY_WITHIN && is_running(pod) => return Ok(pod.name_any()),
                Some(pod) => reason(pod),
                None => None,
            };
            let limit = if new.is_some() { 3 * READY_WITHIN } else { READY_WITHIN };
            ensure!(
                started.elapsed() < limit,
                "no pod of the controller runs: {}",
                seen.unwrap_or_else(|| "there is none".into())
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What a pod wrote before it ended, which goes to the record too.
    async fn last_words(&self, pod: &str) -> String {
        let parameters = |previous| LogParams { container: Some(CONTAINER.into()), previous, ..LogParams::default() };
        let text = match self.pods().logs(pod, &parameters(true)).await {
            Ok(text) => text,
            // It was not started again yet.
            Err(_) => self.pods().logs(pod, &parameters(false)).await.unwrap_or_default(),
        };
        text.lines().for_each(|line| record_line(&self.recorder, line.as_bytes()));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    fn follow_pod(&self, pod: &str) {
        let (pods, name, recorder) = (self.pods(), pod.to_owned(), self.recorder.clone());
        self.parts.borrow_mut().spawn_local(async move {
            let parameters = LogParams { container: Some(CONTAINER.into()), follow: true, ..LogParams::default() };
            // A pod that goes takes its log with it; whether it should have gone is told by its state.
            if let Ok(stream) = pods.log_stream(&name, &parameters).await {
                let mut lines = stream.lines();
                while let Ok(Some(line)) = lines.try_next().await {
                    record_line(&recorder, line.as_bytes());
                }
            }
            std::future::pending().await
        });
        let (pods, name, told) = (self.pods(), pod.to_owned(), self.ended.clone());
        self.parts.borrow_mut().spawn_local(async move {
            let selected = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
            let mut changes = std::pin::pin!(kube::runtime::watcher(pods, selected));
            while let Some(change) = changes.next().await {
                let pod = match change {
                    Ok(kube::runtime::watcher::Event::Apply(pod) | kube::runtime::watcher::Event::InitApply(pod)) => {
                        pod
                    }
                    _ => continue,
                };
                if pod.metadata.deletion_timestamp.is_none()
                    && let Some(end) = ended(&pod)
                {
                    told.borrow_mut().get_or_insert(format!("{name}: {end}"));
                }
            }
            std::future::pending().await
        });
    }
}

fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 409)
}

/// The value that stands for a variable that was taken away, which the chart would set.
const TAKEN_AWAY: &str = "\0";

/// What the pod needs to reach the fake: a role in this account where policies decide, any key where they do not.
fn aws_environment(account: Option<&str>) -> BTreeMap<String, String> {
    let mut variables = vec![
        ("AWS_ENDPOINT_URL", in_cluster_ec2_url()),
        ("AWS_REGION", REGION.to_owned()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
    ];
    variables.extend(match account {
        Some(account) => [
            ("AWS_ROLE_ARN", format!("arn:aws:iam::{account}:role/{}", iam::role())),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", format!("{TOKEN_FOLDER}/token")),
        ],
        None => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "trysquare".to_owned())),
    });
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn exists(ec2: &RemoteEc2, provider_id: &str) -> bool {
    let Some(id) = provider_id.strip_prefix("aws://").and_then(|rest| rest.rsplit('/').next()) else {
        // A node of the cluster's own.
        return true;
    };
    // Who cannot be asked now is asked again.
    ec2.instances()
        .await
        .map_or(true, |all| all.iter().any(|instance| instance.id == id && instance.state != "terminated"))
}

/// The variables of the controller's container that have a value.
fn environment_of(deployment: &Deployment) -> BTreeMap<String, String> {
    let containers = deployment.spec.template.spec.as_ref().map(|spec| &spec.containers);
    let container = containers.into_iter().flatten().find(|container| container.name == CONTAINER);
    let variables = container.and_then(|container| container.env.as_ref()).into_iter().flatten();
    variables.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?))).collect()
}

fn container_of(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|status| status.name == CONTAINER)
}

fn is_ready(pod: &Pod) -> bool {
    container_of(pod).is_some_and(|status| status.ready)
}

fn is_running(pod: &Pod) -> bool {
    container_of(pod).and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// How the controller in a pod ended, if it did.
fn ended(pod: &Pod) -> Option<String> {
    let status = container_of(pod)?;
    let states = [status.state.as_ref(), status.last_state.as_ref()];
    let end = states.into_iter().flatten().find_map(|state| state.terminated.as_ref())?;
    Some(format!("it ended with exit status {} ({})", end.exit_code, end.reason.as_deref().unwrap_or("no reason")))
}

#[async_trait::async_trait(?Send)]
impl Backend for Installed {
    fn name(&self) -> &'static str {
        "kind"
    }

    fn kube(&self) -> kube::Client {
        self.client.clone()
    }

    fn cloud(&self) -> Rc<dyn Cloud> {
        self.account.cloud.clone()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn replica_named(&self, identity: &str) -> Option<usize> {
        let pod = self.recorder.holder(identity)?;
        self.replicas.iter().find(|(_, name)| **name == pod).map(|(number, _)| *number)
    }

    fn environment(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.environment
    }

    fn set_environment(&mut self, name: &str, value: Option<&str>) {
        self.environment.insert(name.to_owned(), value.unwrap_or(TAKEN_AWAY).to_owned());
    }

    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        if self.controller == UnderTest::Nothing {
            return Ok(());
        }
        if self.of_the_chart.is_none() {
            self.install().await?;
        }
        self.roll_out(self.replicas.len() + 1).await?;
        let pod = self.new_pod().await?;
        self.follow_pod(&pod);
        self.replicas.insert(replica, pod);
        Ok(())
    }

    async fn kill_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        let pod = self.replicas.remove(&replica).with_context(|| format!("replica {replica} does not run"))?;
        self.ended.take();
        let pods = self.pods();
        // The one that goes when there is one replica less.
        let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1000"}}});
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(cost)).await?;
        self.roll_out(self.replicas.len()).await?;
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        match pods.delete(&pod, &at_once).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other.context("killing the controller")?),
        }
        let started = tokio::time::Instant::now();
        while pods.get_opt(&pod).await?.is_some() {
            ensure!(started.elapsed() < GONE_WITHIN, "the pod {pod} does not go");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn replace_controller(&mut self) -> anyhow::Result<()> {
        bail!("on kind no other controller is at hand")
    }

    fn is_controlled(&self) -> bool {
        !self.replicas.is_empty()
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        let mut all = String::new();
        for pod in self.replicas.values() {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{METRICS_PORT}/proxy/metrics");
            let request = http::Request::get(path).body(Vec::new())?;
            all += &self.client.request_text(request).await.context("reading the metrics")?;
        }
        Ok(all)
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn check_alive(&self) -> anyhow::Result<()> {
        if let Some(end) = self.ended.borrow().as_ref() {
            bail!("a replica of the controller: {end}");
        }
        match self.parts.borrow_mut().try_join_next() {
            None => Ok(()),
            Some(ended) => Err(anyhow!("a part of the cluster ended: {ended:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "karpenter-1"},
            "status": {"containerStatuses": [status]},
        }))
        .unwrap()
    }

    #[test]
    fn a_container_that_was_started_again_has_ended_once() {
        let base = json!({"name": "controller", "ready": true, "restartCount": 1, "image": "", "imageID": ""});
        let with = |more: Value| {
            let mut status = base.clone();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pod(status)
        };
        let end = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        assert_eq!(ended(&with(json!({"state": {"running": {}}}))), None);
        let again = with(json!({"state": {"running": {}}, "lastState": end}));
        assert_eq!(ended(&again).as_deref(), Some("it ended with exit status 1 (Error)"));
        assert!(is_running(&again) && is_ready(&again));
    }
}
