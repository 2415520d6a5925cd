//! A cluster to deploy the controller to: what `eksctl create cluster` leaves and no more, with a node group whose kubelets
//! run the pods of the controller's Deployment.

use super::Options;
use crate::account::{Account, CLUSTER};
use crate::backend::Program;
use crate::cloud::Cloud;
use crate::control_plane::{Access, User};
use crate::kubelet::Runtime;
use crate::pods::{Pods, Surroundings, agent};
use crate::recorder::Recorder;
use crate::under_test::UnderTest;
use anyhow::{Context, ensure};
use fake_ec2::Iam;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How many nodes the node group has, as deploy/eksctl/cluster.yaml says.
const NODES: usize = 2;
/// Longer than the slowest boot on a busy machine.
const NODES_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where things are.
pub(super) struct Place<'a> {
    pub(super) access: &'a Access,
    pub(super) aws_url: &'a str,
    /// This server's own folder.
    pub(super) folder: &'a Path,
}

/// The folder of the pods' logs.
pub(super) fn logs(folder: &Path) -> PathBuf {
    folder.join("pods")
}

/// Starts the node group's machines and the pod identity agent, and answers what runs pods on them.
pub(super) async fn prepare(
    options: &Options,
    account: &Account,
    place: Place<'_>,
    recorder: &Recorder,
    parts: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<Rc<dyn Runtime>> {
    let Place { access, aws_url, folder } = place;
    for _ in 0..NODES {
        account.cloud.launch_in_node_group(&format!("{CLUSTER}-ng")).await.context("the node group")?;
    }
    let kube = access.client(User::Kubelet).await?;
    // What EKS publishes at the issuer's URL, and STS fetches.
    let keys: Value = kube.request(http::Request::get("/openid/v1/jwks").body(Vec::new())?).await?;
    account.ec2.cloud().set_issuer_keys(crate::control_plane::ISSUER, &keys);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a port for the pod identity agent")?;
    let agent_url = agent::url(&listener)?;
    parts.spawn_local(agent::serve(listener, account.ec2.clone(), CLUSTER.into()));
    std::fs::create_dir_all(logs(folder)).with_context(|| format!("cannot make {}", logs(folder).display()))?;
    Ok(Rc::new(Pods::new(Surroundings {
        kube,
        kube_url: access.url.clone(),
        certificate_authority_pem: access.certificate_authority_pem.clone(),
        ec2: account.ec2.clone(),
        cluster: CLUSTER.into(),
        aws_url: aws_url.to_owned(),
        region: options.region.clone(),
        identities: options.iam == Iam::Enforce,
        agent_url,
        program: Program::of(&UnderTest::Ours)?,
        pace: account.options().pace.kubelets.clone(),
        secrets: folder.join("secrets"),
        logs: logs(folder),
        clock: account.options().clock.clone(),
        recorder: recorder.clone(),
    })))
}

/// Waits until the node group's nodes are Ready.
pub(super) async fn wait_for_nodes(client: &kube::Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let started = tokio::time::Instant::now();
    loop {
        let ready = nodes.list(&ListParams::default()).await?.iter().filter(|node| is_ready(node)).count();
        if ready >= NODES {
            return Ok(());
        }
        ensure!(started.elapsed() < NODES_WITHIN, "{ready} of {NODES} nodes are Ready after {NODES_WITHIN:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
