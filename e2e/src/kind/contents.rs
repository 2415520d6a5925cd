//! What a kind cluster holds before the first scenario, and how it is set back to that: through the API, object by object, as
//! its store is the cluster's own affair.

use super::{Access, Clusters, EC2_NAMESPACE, wait};
use crate::control_plane::is_established;
use crate::fake_cluster;
use crate::release::{self, RELEASE};
use crate::things::manifests::apply_object;
use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PropagationPolicy,
};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const FAKE_EC2: &str = include_str!("fake_ec2.yaml");

/// Where it is noted what the cluster held at first, for a run that finds the cluster there.
const NOTES: &str = "contents";

/// The label of the one node that is kind's own, and of none that the controller makes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// How long everything that a scenario made may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(90);

/// Why a container does not run, where waiting is in vain.
const HOPELESS: [&str; 4] = ["CrashLoopBackOff", "ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError"];

/// How many kinds are listed at a time.
const LISTED_AT_A_TIME: usize = 8;

/// What the control plane makes and removes by itself, beside what it makes for owners.
const MADE_BY_ITSELF: [&str; 6] =
    ["Event", "EndpointSlice", "Endpoints", "IPAddress", "ComponentStatus", "PodCertificateRequest"];

/// An object by kind, namespace and name.
type Key = String;

/// What a cluster held at first.
#[derive(Debug, Default)]
pub(super) struct Contents {
    keys: BTreeSet<Key>,
    definitions: Vec<CustomResourceDefinition>,
}

impl Contents {
    /// Installs everything but the controller.
    pub(super) async fn install(access: &Access, of: &Clusters, ec2_image_id: &str) -> anyhow::Result<Self> {
        let client = access.client().await?;
        let mut contents = Self { keys: noted(&client).await?, definitions: of.definitions.read()? };
        if !contents.keys.is_empty() {
            contents.set_back(access).await.context("setting the cluster back that was there")?;
        }
        define(&client, &contents.definitions).await?;
        release::authorise_other(&client).await?;
        keep_to_itself(&client).await?;
        for object in documents(fake_cluster::STAGE)? {
            if let Some(object) = on_nodes_of_the_cloud(object) {
                apply_object(&client, object).await.context("setting the stage")?;
            }
        }
        // Named by its content too, so that an image that was made anew takes the place of the running one.
        let fake_ec2 = FAKE_EC2.replace("IMAGE_ID", ec2_image_id).replace("IMAGE", &of.ec2_image);
        for object in documents(&fake_ec2)? {
            apply_object(&client, object).await.context("installing fake-ec2")?;
        }
        available(&client, EC2_NAMESPACE, "fake-ec2").await?;
        network_is_there(&client).await?;
        if contents.keys.is_empty() {
            contents.keys = everything(&client).await?.into_iter().map(|object| object.key).collect();
            note(&client, &contents.keys).await?;
        }
        Ok(contents)
    }

    /// Removes what was not there at first, and puts back what is missing.
    pub(super) async fn set_back(&self, access: &Access) -> anyhow::Result<()> {
        let client = access.client().await?;
        // The controller first: it would go on to work.
        access.helm(&["uninstall", RELEASE, "--ignore-not-found"], None).await?;
        let started = tokio::time::Instant::now();
        loop {
            let rest = self.rest(&client).await?;
            if rest.is_empty() {
                break;
            }
            if started.elapsed() > GONE_WITHIN {
                let names: Vec<&str> = rest.iter().take(5).map(|object| object.key.as_str()).collect();
                bail!("{} objects do not go, such as {}", rest.len(), names.join(", "));
            }
            for object in &rest {
                remove(&client, object).await?;
            }
        }
        for namespace in Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await? {
            let events: Api<Event> = Api::namespaced(client.clone(), &namespace.name_any());
            events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        }
        define(&client, &self.definitions).await
    }

    /// What was not there at first, but for what something of the cluster's own made, directly or not.
    async fn rest(&self, client: &kube::Client) -> anyhow::Result<Vec<Found>> {
        Ok(rest(everything(client).await?, &self.keys))
    }
}

fn rest(mut all: Vec<Found>, keys: &BTreeSet<Key>) -> Vec<Found> {
    let mut kept = keys.clone();
    loop {
        let before = kept.len();
        let of_kept = all.iter().filter(|object| object.owners.iter().any(|owner| kept.contains(owner)));
        let of_kept: Vec<Key> = of_kept.map(|object| object.key.clone()).collect();
        kept.extend(of_kept);
        if kept.len() == before {
            all.retain(|object| !kept.contains(&object.key));
            return all;
        }
    }
}

/// An object that was found.
struct Found {
    key: Key,
    owners: Vec<Key>,
    resource: ApiResource,
    meta: ObjectMeta,
}

fn key(kind: &str, namespace: Option<&str>, name: &str) -> Key {
    format!("{kind}/{}/{name}", namespace.unwrap_or_default())
}

/// Every object that can be listed and deleted.
async fn everything(client: &kube::Client) -> anyhow::Result<Vec<Found>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await.context("which kinds there are")?;
    let kinds: Vec<(ApiResource, Scope)> = discovery
        .groups()
        .flat_map(|group| group.recommended_resources())
        .filter(|(resource, can)| {
            can.supports_operation(verbs::LIST)
                && can.supports_operation(verbs::DELETE)
                && !MADE_BY_ITSELF.contains(&resource.kind.as_str())
        })
        .map(|(resource, can)| (resource, can.scope))
        .collect();
    let lists = futures::stream::iter(kinds).map(|(resource, scope)| list(client.clone(), resource, scope));
    let found: Vec<Vec<Found>> = lists.buffered(LISTED_AT_A_TIME).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

async fn list(client: kube::Client, resource: ApiResource, scope: Scope) -> anyhow::Result<Vec<Found>> {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let objects = match api.list_metadata(&ListParams::default()).await {
        Ok(objects) => objects,
        // The kind went meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("listing {}", resource.plural)),
    };
    let found = |object: PartialObjectMeta<DynamicObject>| {
        let meta = object.metadata;
        let namespace = meta.namespace.as_deref().filter(|_| scope == Scope::Namespaced);
        let name = meta.name.clone().unwrap_or_default();
        let owners = meta.owner_references.iter().flatten();
        // A Node owns across namespaces: the mirror of a static pod.
        let owners =
            owners.flat_map(|owner| [key(&owner.kind, namespace, &owner.name), key(&owner.kind, None, &owner.name)]);
        Found { key: key(&resource.kind, namespace, &name), owners: owners.collect(), resource: resource.clone(), meta }
    };
    Ok(objects.into_iter().map(found).collect())
}

/// Deletes an object without waiting for anybody.
async fn remove(client: &kube::Client, object: &Found) -> anyhow::Result<()> {
    let Found { resource, meta, key, .. } = object;
    let api: Api<DynamicObject> = match &meta.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let name = meta.name.clone().unwrap_or_default();
    let gone = |result: kube::Result<()>| match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.with_context(|| format!("removing {key}")),
    };
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    if meta.deletion_timestamp.is_none() || resource.kind == "Pod" {
        gone(api.delete(&name, &parameters).await.map(drop))?;
    }
    if meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) {
        let patch = json!({"metadata": {"finalizers": null}});
        gone(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))?;
    }
    Ok(())
}

async fn define(client: &kube::Client, definitions: &[CustomResourceDefinition]) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition.name_any();
        apply_object(client, serde_json::to_value(definition)?)
            .await
            .with_context(|| format!("installing CRD {name}"))?;
    }
    wait("the CRDs are established", async || {
        let list = api.list(&ListParams::default()).await?;
        let established = list.iter().filter(|crd| is_established(crd)).count();
        Ok((established < definitions.len()).then(|| format!("{established} of {} are", definitions.len())))
    })
    .await
}

/// Keeps the node of the cluster for its own programs, as the taint of a system node group does on EKS, and its own
/// DaemonSets on it: the nodes of fake-ec2 run no programs.
async fn keep_to_itself(client: &kube::Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let own = ListParams::default().labels(CONTROL_PLANE);
    let taint = json!({"spec": {"taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]}});
    for node in nodes.list(&own).await? {
        nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(&taint)).await?;
    }
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), release::NAMESPACE);
    // The pods that run stay: without kube-proxy, nothing reaches the API server for a while.
    let selector = json!({"spec": {
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": null},
        "template": {"spec": {"nodeSelector": {CONTROL_PLANE: ""}}},
    }});
    for set in sets.list(&ListParams::default()).await?.items.iter().filter(|set| !is_of_the_stage(&set.name_any())) {
        sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&selector)).await?;
    }
    Ok(())
}

/// Waits until the network of the cluster works: without kube-proxy or names no pod reaches the API server.
async fn network_is_there(client: &kube::Client) -> anyhow::Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), release::NAMESPACE);
    wait("the cluster's own DaemonSets run", async || {
        let all = sets.list(&ListParams::default()).await?;
        let waiting: Vec<String> = all.iter().filter(|set| !is_running(set)).map(ResourceExt::name_any).collect();
        Ok((!waiting.is_empty()).then(|| waiting.join(", ")))
    })
    .await?;
    available(client, release::NAMESPACE, "coredns").await
}

fn is_running(set: &DaemonSet) -> bool {
    let Some(status) = &set.status else { return false };
    status.observed_generation == set.metadata.generation && status.number_ready == status.desired_number_scheduled
}

const STAGE_PREFIX: &str = "eks-";

fn is_of_the_stage(name: &str) -> bool {
    name.starts_with(STAGE_PREFIX)
}

/// What EKS runs on every node, for the nodes of the cloud alone and under a name of its own: kind has a kube-proxy too. Its
/// DNS serves.
fn on_nodes_of_the_cloud(mut object: Value) -> Option<Value> {
    if object["kind"] != "DaemonSet" {
        return None;
    }
    let name = format!("{STAGE_PREFIX}{}", object["metadata"]["name"].as_str()?);
    object["metadata"]["name"] = json!(name);
    object["spec"]["selector"]["matchLabels"]["k8s-app"] = json!(name);
    object["spec"]["template"]["metadata"]["labels"]["k8s-app"] = json!(name);
    let elsewhere = json!({"matchExpressions": [{"key": CONTROL_PLANE, "operator": "DoesNotExist"}]});
    object["spec"]["template"]["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [elsewhere]}}});
    Some(object)
}

fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    Ok(serde_yaml_ng::Deserializer::from_str(yaml).map(Value::deserialize).collect::<Result<_, _>>()?)
}

/// Waits until a Deployment has all its pods, or says what keeps them.
pub(crate) async fn available(client: &kube::Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    wait(&format!("the Deployment {namespace}/{name} is available"), async || {
        let status = deployments.get(name).await?.status.unwrap_or_default();
        if status.available_replicas.unwrap_or_default() > 0 {
            return Ok(None);
        }
        let pods = pods.list(&ListParams::default()).await?;
        let reasons: Vec<String> = pods.iter().filter_map(reason).collect();
        let reasons = reasons.join("; ");
        // None of these ends by itself.
        ensure!(!HOPELESS.iter().any(|word| reasons.contains(word)), "{reasons}");
        Ok(Some(reasons))
    })
    .await
}

/// Why a pod does not run.
pub(crate) fn reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let states = status.container_statuses.iter().flatten().filter_map(|container| container.state.as_ref());
    let waiting = states.filter_map(|state| state.waiting.as_ref()).map(|waiting| {
        format!("{} {}", waiting.reason.as_deref().unwrap_or_default(), waiting.message.as_deref().unwrap_or_default())
    });
    let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "False");
    let unmet = conditions.filter_map(|condition| condition.message.clone());
    let reasons: Vec<String> = waiting.chain(unmet).collect();
    (!reasons.is_empty()).then(|| format!("{}: {}", pod.name_any(), reasons.join(", ")))
}

async fn noted(client: &kube::Client) -> anyhow::Result<BTreeSet<Key>> {
    let notes: Api<ConfigMap> = Api::namespaced(client.clone(), EC2_NAMESPACE);
    let data = notes.get_opt(NOTES).await?.and_then(|notes| notes.data).unwrap_or_default();
    Ok(data.values().flat_map(|text| text.lines()).map(str::to_owned).collect())
}

async fn note(client: &kube::Client, keys: &BTreeSet<Key>) -> anyhow::Result<()> {
    let own = key("ConfigMap", Some(EC2_NAMESPACE), NOTES);
    let lines: Vec<&str> = keys.iter().map(String::as_str).chain([own.as_str()]).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NOTES, "namespace": EC2_NAMESPACE},
        "data": {"objects": lines.join("\n")},
    });
    apply_object(client, object).await.context("noting what the cluster holds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_node_of_eks_runs_stays_off_the_node_of_kind() {
        let stage = documents(fake_cluster::STAGE).unwrap();
        let sets: Vec<Value> = stage.into_iter().filter_map(on_nodes_of_the_cloud).collect();
        let names: Vec<&Value> = sets.iter().map(|set| &set["metadata"]["name"]).collect();
        assert_eq!(names, ["eks-aws-node", "eks-kube-proxy"]);
        for set in sets {
            let pointer = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0";
            assert_eq!(set.pointer(pointer), Some(&json!({"key": CONTROL_PLANE, "operator": "DoesNotExist"})));
        }
    }

    #[test]
    fn what_a_new_replica_set_of_the_clusters_own_made_stays_and_what_a_scenario_made_goes() {
        let found = |key: &str, owner: Option<&str>| Found {
            key: key.to_owned(),
            owners: owner.into_iter().map(str::to_owned).collect(),
            resource: ApiResource::erase::<Pod>(&()),
            meta: ObjectMeta::default(),
        };
        let keys = BTreeSet::from(["Deployment/trysquare/fake-ec2".to_owned()]);
        let all = vec![
            found("Pod/trysquare/fake-ec2-2-a", Some("ReplicaSet/trysquare/fake-ec2-2")),
            found("ReplicaSet/trysquare/fake-ec2-2", Some("Deployment/trysquare/fake-ec2")),
            found("Deployment/trysquare/fake-ec2", None),
            found("Pod/default/web-1", Some("ReplicaSet/default/web")),
        ];
        let rest: Vec<String> = rest(all, &keys).into_iter().map(|object| object.key).collect();
        assert_eq!(rest, ["Pod/default/web-1"]);
    }

    #[test]
    fn fake_ec2_is_three_objects_that_name_its_image() {
        let objects = documents(&FAKE_EC2.replace("IMAGE", "fake-ec2:1")).unwrap();
        assert_eq!(objects.len(), 3);
        assert_eq!(objects[1].pointer("/spec/template/spec/containers/0/image"), Some(&json!("fake-ec2:1")));
    }
}
