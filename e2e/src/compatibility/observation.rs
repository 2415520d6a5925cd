//! What one controller made of an input: what it asked of AWS, and what it wrote into the cluster.

use super::normal::{Masks, form, keyed};
use crate::backend::{Backend, RealTime};
use anyhow::Context;
use base64::Engine as _;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool, labels};
use fake_ec2::JournalEntry;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes down what there is now.
pub(super) async fn observe(backend: &RealTime) -> anyhow::Result<Value> {
    let kube = backend.kube();
    let ec2 = &backend.account().ec2;
    let mut claims = list::<NodeClaim>(&kube).await?;
    let nodes = list::<Node>(&kube).await?;
    let pool = |claim: &NodeClaim| claim.labels().get(labels::NODE_POOL_LABEL).cloned().unwrap_or_default();
    // Names are drawn at random: claims are told apart by what they ask for.
    let asked = |claim: &NodeClaim| {
        let mut requirements = serde_json::to_value(&claim.spec.requirements).unwrap_or_default();
        sort_requirements(&mut requirements);
        (serde_json::to_string(&claim.spec.resources).unwrap_or_default(), requirements.to_string())
    };
    claims.sort_by_cached_key(|claim| (pool(claim), asked(claim), claim.name_any()));
    let mut masks = Masks::default();
    if let Some((endpoint, authority)) = &backend.account().options().served {
        masks.add(endpoint, "<endpoint>");
        masks.add(authority, "<authority>");
    }
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut titles = Vec::new();
    for claim in &claims {
        let number = numbers.entry(pool(claim)).and_modify(|number| *number += 1).or_insert(1);
        let title = format!("{} {number}", pool(claim));
        masks.add(claim.name_any(), format!("<claim {title}>"));
        let status = claim.status.clone().unwrap_or_default();
        masks.add(status.node_name.clone(), format!("<node {title}>"));
        masks.add(status.provider_id.rsplit('/').next().unwrap_or_default(), format!("<instance {title}>"));
        titles.push(title);
    }
    for template in ec2.cloud().launch_templates() {
        masks.add(template.name, "<template>");
    }
    let journal = ec2.cloud().journal();
    let journal: Vec<&Arc<JournalEntry>> = journal.iter().filter(|entry| entry.user_agent != "administrator").collect();
    for entry in &journal {
        for name in ["LaunchTemplateName", "InstanceProfileName"] {
            let Some(value) = entry.param(name) else { continue };
            // A profile that the input names itself is the same for both.
            if value.starts_with("demo_") || value.starts_with("karpenter.k8s.aws/") {
                masks.add(value, if name == "InstanceProfileName" { "<profile>" } else { "<template>" });
            }
        }
    }
    let classes = list::<Ec2NodeClass>(&kube).await?;
    let pools = list::<NodePool>(&kube).await?;
    for metadata in classes.iter().map(|class| &class.metadata).chain(pools.iter().map(|pool| &pool.metadata)) {
        masks.add(metadata.uid.clone().unwrap_or_default(), "<uid>");
    }
    for metadata in claims.iter().map(|claim| &claim.metadata).chain(nodes.iter().map(|node| &node.metadata)) {
        masks.add(metadata.uid.clone().unwrap_or_default(), "<uid>");
    }
    let masks = masks.sorted();

    let mut node_claims = Map::new();
    for (claim, title) in claims.iter().zip(&titles) {
        node_claims.insert(title.clone(), object(claim)?);
    }
    let instances: BTreeMap<String, Value> = ec2
        .cloud()
        .instances()
        .into_iter()
        .filter(|instance| !instance.state.is_ending())
        .map(|instance| {
            // EC2's own tags tell which fleet and template it was.
            let tags: BTreeMap<_, _> = instance.tags.iter().filter(|(key, _)| !key.starts_with("aws:")).collect();
            let facts = json!({
                "type": instance.instance_type, "image": instance.image_id, "subnet": instance.subnet_id,
                "tags": tags,
            });
            (masks.text(&instance.id), facts)
        })
        .collect();
    let by_name = |objects: Vec<(String, Value)>| Value::Object(objects.into_iter().collect());
    let mut named_pools = Vec::new();
    for pool in &pools {
        named_pools.push((pool.name_any(), object(pool)?));
    }
    let mut named_classes = Vec::new();
    for class in &classes {
        named_classes.push((class.name_any(), object(class)?));
    }
    let mut named_nodes = Vec::new();
    for node in &nodes {
        let mut value = object(node)?;
        // What the kubelet reports is the kit's own.
        if let Some(fields) = value.as_object_mut() {
            fields.remove("status");
        }
        named_nodes.push((masks.text(&node.name_any()), value));
    }
    let observed = json!({
        "requests": requests(&journal, &masks),
        "checks": checks(&journal, &masks),
        "instances": instances,
        "NodeClaims": node_claims,
        "NodePools": by_name(named_pools),
        "EC2NodeClasses": by_name(named_classes),
        "Nodes": by_name(named_nodes),
        "events": events(&kube, &masks).await?,
    });
    Ok(masks.value(observed))
}

async fn list<K>(kube: &kube::Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut objects = Api::<K>::all(kube.clone()).list(&ListParams::default()).await?.items;
    objects.sort_by_key(|object| object.meta().name.clone());
    Ok(objects)
}

/// An object without what every object has of its own.
fn object(object: &impl serde::Serialize) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(object).context("an object as JSON")?;
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in
            ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "generateName", "name"]
        {
            metadata.remove(name);
        }
    }
    if let Some(conditions) = value.pointer_mut("/status/conditions") {
        let items = conditions.as_array().cloned().unwrap_or_default();
        let told = |condition: &Value| {
            let mut condition = condition.clone();
            if let Some(fields) = condition.as_object_mut() {
                fields.remove("type");
                fields.remove("lastTransitionTime");
            }
            condition
        };
        *conditions = keyed(&items, "type", told).unwrap_or(Value::Array(items));
    }
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastPodEventTime");
    }
    if let Some(requirements) = value.pointer_mut("/spec/requirements") {
        sort_requirements(requirements);
    }
    for list in ["/status/subnets", "/status/securityGroups", "/status/amis"] {
        let Some(found) = value.pointer_mut(list) else { continue };
        let items = found.as_array().cloned().unwrap_or_default();
        *found = keyed(&items, "id", Clone::clone).unwrap_or(Value::Array(items));
    }
    if let Some(taints) = value.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        for taint in taints.iter_mut() {
            if let Some(fields) = taint.as_object_mut() {
                fields.remove("timeAdded");
            }
        }
        taints.sort_by_key(ToString::to_string);
    }
    Ok(value)
}

/// By their keys, with their values in order: neither order means anything.
fn sort_requirements(requirements: &mut Value) {
    let mut items = requirements.as_array().cloned().unwrap_or_default();
    for item in &mut items {
        if let Some(values) = item.get_mut("values").and_then(Value::as_array_mut) {
            values.sort_by_key(ToString::to_string);
        }
    }
    items.sort_by_key(ToString::to_string);
    *requirements = keyed(&items, "key", Clone::clone).unwrap_or(Value::Array(items));
}

/// What was asked of AWS to have an effect, by action: launches with the templates they name, and what is made or tagged.
fn requests(journal: &[&Arc<JournalEntry>], masks: &Masks) -> Value {
    let template = |name: &str| {
        let made = journal
            .iter()
            .rev()
            .find(|entry| entry.action == "CreateLaunchTemplate" && entry.param("LaunchTemplateName") == Some(name));
        made.map(|entry| parameters(entry, masks))
    };
    let mut launches = Vec::new();
    let mut others: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in journal.iter().filter(|entry| entry.param("DryRun") != Some("true")) {
        match entry.action.as_str() {
            "CreateFleet" => {
                // Equal launches may be asked for at once: it is as if each had been asked for alone.
                let mut asked = fleet(entry, masks, &template);
                let capacity = asked.pointer_mut("/TargetCapacitySpecification/TotalTargetCapacity");
                let count = capacity.map(|capacity| std::mem::replace(capacity, json!("1")));
                let count = count.as_ref().and_then(Value::as_str).and_then(|count| count.parse().ok()).unwrap_or(1);
                launches.extend(std::iter::repeat_n(asked, count));
            }
            "CreateTags" | "CreateInstanceProfile" | "AddRoleToInstanceProfile" | "TagInstanceProfile" => {
                others.entry(entry.action.clone()).or_default().push(parameters(entry, masks));
            }
            _ => {}
        }
    }
    let mut all = Map::new();
    // The order of launches is no promise: by what they ask for.
    launches.sort_by_key(ToString::to_string);
    all.insert("CreateFleet".into(), Value::Array(launches));
    for (action, mut made) in others {
        made.sort_by_key(ToString::to_string);
        all.insert(action, Value::Array(made));
    }
    Value::Object(all)
}

/// What was asked of AWS only to see whether it may be asked: the kinds of requests, each once.
fn checks(journal: &[&Arc<JournalEntry>], masks: &Masks) -> Value {
    let mut seen: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in journal.iter().filter(|entry| entry.param("DryRun") == Some("true")) {
        let asked =
            if entry.action == "CreateFleet" { fleet(entry, masks, &|_: &str| None) } else { parameters(entry, masks) };
        let told = seen.entry(entry.action.clone()).or_default();
        if !told.contains(&asked) {
            told.push(asked);
        }
    }
    let sorted = seen.into_iter().map(|(action, mut asked)| {
        asked.sort_by_key(ToString::to_string);
        (action, Value::Array(asked))
    });
    Value::Object(sorted.collect())
}

/// The parameters of a call as a tree, without its tokens, and with user data in plain text.
fn parameters(entry: &JournalEntry, masks: &Masks) -> Value {
    let fields = entry.params.as_object().into_iter().flatten();
    let fields: Vec<(String, String)> = fields
        .filter(|(name, _)| !matches!(name.as_str(), "Action" | "Version" | "ClientToken"))
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let text = if name.ends_with("UserData") { plain(&text) } else { text };
            (name.clone(), masks.text(&text))
        })
        .collect();
    let mut tree = form(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    sort_sets(&mut tree);
    tree
}

fn plain(base64: &str) -> String {
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_else(|_| base64.to_owned())
}

/// Lists whose order means nothing.
fn sort_sets(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                sort_sets(value);
                if let (true, Value::Array(items)) = (name.starts_with("SecurityGroup"), value) {
                    items.sort_by_key(ToString::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort_sets),
        _ => {}
    }
}

/// A launch, with the templates in the place of their names and the overrides as a set.
fn fleet(entry: &JournalEntry, masks: &Masks, template: &impl Fn(&str) -> Option<Value>) -> Value {
    let mut asked = parameters(entry, masks);
    let configurations = entry.params.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let number = name.strip_prefix("LaunchTemplateConfigs.")?;
        let number = number.strip_suffix(".LaunchTemplateSpecification.LaunchTemplateName")?;
        Some((number.parse::<usize>().ok()?, value.as_str()?.to_owned()))
    });
    let mut names: Vec<(usize, String)> = configurations.collect();
    names.sort();
    let Some(configs) = asked.get_mut("LaunchTemplateConfigs").and_then(Value::as_array_mut) else { return asked };
    for (config, (_, name)) in configs.iter_mut().zip(&names) {
        let Some(config) = config.as_object_mut() else { continue };
        if let Some(template) = template(name) {
            config.insert("template".into(), template);
        }
        if let Some(overrides) = config.get_mut("Overrides") {
            let mut by_type = Map::new();
            for one in overrides.as_array().into_iter().flatten() {
                let text = |name: &str| one.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                by_type.insert(format!("{} in {}", text("InstanceType"), text("AvailabilityZone")), one.clone());
            }
            *overrides = Value::Object(by_type);
        }
    }
    configs.sort_by_key(|config| {
        let first = config.get("Overrides").and_then(Value::as_object).and_then(|all| all.keys().next().cloned());
        let image = config.pointer("/template/LaunchTemplateData/ImageId").map(ToString::to_string);
        (image, first)
    });
    asked
}

/// Every event once, by its object, reason and words.
async fn events(kube: &kube::Client, masks: &Masks) -> anyhow::Result<Value> {
    let events = Api::<Event>::all(kube.clone()).list(&ListParams::default()).await?.items;
    let mut told = Map::new();
    for event in events {
        let source = event.source.as_ref().and_then(|source| source.component.clone());
        let reporter = event.reporting_component.clone().filter(|name| !name.is_empty()).or(source).unwrap_or_default();
        if !reporter.starts_with("karpenter") {
            continue;
        }
        let object = &event.involved_object;
        let kind = object.kind.clone().unwrap_or_default();
        let name = match kind.as_str() {
            // One line for all of them.
            "Pod" => String::new(),
            _ => object.name.clone().unwrap_or_default(),
        };
        let line = format!(
            "{kind} {name} {}: {}",
            event.reason.clone().unwrap_or_default(),
            event.message.clone().unwrap_or_default()
        );
        told.insert(masks.text(&line), json!(event.type_.clone().unwrap_or_default()));
    }
    Ok(Value::Object(told))
}
