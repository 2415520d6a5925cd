//! EC2NodeClasses: finalizer, hash, and a status that says what the selectors find today (AWS spec §1.4–1.8).
//!
//! Beyond upstream, a selector that finds nothing is explained: with the selector and what nearly matched, in an event
//! on the class and on each pod that waits for its pools, and in the log. Conditions and their texts stay upstream's.

use super::{Context, Loop, Requeue, keyed};
use crate::apply::patch::{self, Lock};
use crate::error::{ReconcileError, chain};
use crate::events::{Event, pod_reference, reference};
use crate::mirror::{Change, Kind, Mirror};
use controller_api::{Ec2NodeClass, HasConditions as _, NodeClaim, NodePool, conditions, labels};
use controller_aws::{NearMiss, NearMissResource, NodeClassContext, NodeClassResolution};
use controller_core::drift_hash::{EC2_NODE_CLASS_HASH_VERSION, ec2_node_class_hash};
use controller_core::lifecycle::{annotation, first_few};
use controller_core::requirements::AllowUndefined;
use controller_core::snapshot::{Pod, Pool};
use controller_core::taints;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often a deleted class looks for claims that still use it; their deletion wakes it too.
const FINALIZER_INTERVAL: Duration = Duration::from_secs(600);
/// How long an explanation is not repeated to the same object: a person looks within an hour, and the class is looked
/// at every minute.
const EXPLAINED_FOR: Duration = Duration::from_secs(300);

/// The version of each class seen last, until when that look holds, and what was explained then; by the class's name.
type Looks = Mutex<BTreeMap<String, Look>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    version: Option<String>,
    holds_until: Instant,
    explained: Vec<String>,
}

/// Follows every EC2NodeClass.
pub(crate) async fn run(context: Context) {
    let options = Loop::new("nodeclass", 10).backoff(Duration::from_millis(100), Duration::from_secs(60));
    let looks = Arc::new(Looks::default());
    keyed(context, options, keys, move |context, name| {
        let looks = looks.clone();
        async move { reconcile(&context, &looks, &name).await }
    })
    .await;
}

fn keys(mirror: &Mirror, change: &Change) -> Vec<String> {
    match change.kind {
        Kind::NodeClass => vec![change.name.clone()],
        // A class on its way out waits for its claims.
        Kind::NodeClaim if change.gone => {
            let classes = mirror.node_classes();
            let going = classes.iter().filter(|class| class.metadata.deletion_timestamp.is_some());
            going.filter_map(|class| class.metadata.name.clone()).collect()
        }
        _ => Vec::new(),
    }
}

async fn reconcile(context: &Context, looks: &Looks, name: &str) -> Result<Requeue, ReconcileError> {
    let Some(class) = context.mirror.node_class(name) else {
        lock(looks).remove(name);
        return Ok(Requeue::OnChange);
    };
    if class.metadata.deletion_timestamp.is_some() {
        return finalize(context, &class).await;
    }
    let look = lock(looks).get(name).cloned();
    if let Some(look) = &look
        && look.version == class.metadata.resource_version
        && look.holds_until > Instant::now()
    {
        // Our own status was the change.
        return Ok(Requeue::After(look.holds_until - Instant::now()));
    }
    let class = adopt(context, &class).await?;
    let node_pools = pools_of(context, name);
    let resolution =
        context.cloud.resolve_node_class(&class, &NodeClassContext { node_pools: node_pools.clone() }).await;
    let NodeClassResolution { status, near_misses, requeue_after, failures } = resolution;
    let wanted = Ec2NodeClass { status: Some(status), ..class.clone() };
    let stored = patch::status(context, &class, &wanted).await?;
    let explained = explanations(&stored, &near_misses);
    tell(context, &stored, &node_pools, &explained, look.map(|look| look.explained).unwrap_or_default());
    if !failures.is_empty() {
        lock(looks).remove(name);
        let failures = failures.iter().map(|failure| chain(failure)).collect::<Vec<_>>().join("; ");
        return Err(ReconcileError::Other(failures));
    }
    let explained = explained.into_iter().map(|(_, text)| text).collect();
    let holds_until = Instant::now() + requeue_after;
    lock(looks).insert(name.to_owned(), Look { version: stored.metadata.resource_version, holds_until, explained });
    Ok(Requeue::After(requeue_after))
}

fn pools_of(context: &Context, class: &str) -> Vec<Arc<NodePool>> {
    let mut pools = context.mirror.node_pools();
    pools.retain(|pool| pool.spec.template.spec.node_class_ref.name == class);
    pools
}

fn claims_of(context: &Context, class: &str) -> Vec<Arc<NodeClaim>> {
    let mut claims = context.mirror.node_claims();
    claims.retain(|claim| claim.spec.node_class_ref.name == class);
    claims
}

/// Finalizer and hash (§1.6, §1.7). When the way of hashing changes, claims of the old way take the new hash over
/// first, so that the change alone replaces nothing; a claim that has drifted stays drifted.
async fn adopt(context: &Context, class: &Ec2NodeClass) -> Result<Ec2NodeClass, ReconcileError> {
    let hash = ec2_node_class_hash(class, context.settings.aws.cluster_ca_bundle.as_deref());
    let annotations = class.metadata.annotations.as_ref();
    let version = annotations.and_then(|all| all.get(labels::NODE_CLASS_HASH_VERSION_ANNOTATION));
    if version.is_none_or(|version| version != EC2_NODE_CLASS_HASH_VERSION) {
        for claim in claims_of(context, class.metadata.name.as_deref().unwrap_or_default()) {
            rehash(context, &claim, &hash).await?;
        }
    }
    let mut adopted = class.clone();
    let finalizers = adopted.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == labels::NODE_CLASS_TERMINATION_FINALIZER) {
        finalizers.push(labels::NODE_CLASS_TERMINATION_FINALIZER.to_owned());
    }
    adopted.metadata.annotations.get_or_insert_default().extend([
        (labels::NODE_CLASS_HASH_ANNOTATION.to_owned(), hash),
        (labels::NODE_CLASS_HASH_VERSION_ANNOTATION.to_owned(), EC2_NODE_CLASS_HASH_VERSION.to_owned()),
    ]);
    patch::object(context, class, &adopted, Lock::Optimistic).await
}

async fn rehash(context: &Context, claim: &NodeClaim, hash: &str) -> Result<(), ReconcileError> {
    if annotation(claim, labels::NODE_CLASS_HASH_VERSION_ANNOTATION) == Some(EC2_NODE_CLASS_HASH_VERSION) {
        return Ok(());
    }
    let mut hashed = claim.clone();
    let annotations = hashed.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODE_CLASS_HASH_VERSION_ANNOTATION.to_owned(), EC2_NODE_CLASS_HASH_VERSION.to_owned());
    if claim.condition(conditions::DRIFTED).is_none() {
        annotations.insert(labels::NODE_CLASS_HASH_ANNOTATION.to_owned(), hash.to_owned());
    }
    patch::object(context, claim, &hashed, Lock::None).await.map(drop)
}

/// The end of a class (§1.8): its claims first, then what was made for it.
async fn finalize(context: &Context, class: &Ec2NodeClass) -> Result<Requeue, ReconcileError> {
    let finalizers = class.metadata.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|one| one == labels::NODE_CLASS_TERMINATION_FINALIZER) {
        return Ok(Requeue::OnChange);
    }
    let claims = claims_of(context, class.metadata.name.as_deref().unwrap_or_default());
    if !claims.is_empty() {
        let names: Vec<String> = claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect();
        let message = format!("Waiting on NodeClaim termination for {}", first_few(&names, 5));
        let event = Event::normal(reference(class), "WaitingOnNodeClaimTermination", message);
        context.events.publish(event.dedupe([class.metadata.uid.clone().unwrap_or_default()]));
        return Ok(Requeue::After(FINALIZER_INTERVAL));
    }
    context.cloud.finalize_node_class(class).await.map_err(|error| ReconcileError::Other(chain(&error)))?;
    patch::remove_finalizer(context, class, labels::NODE_CLASS_TERMINATION_FINALIZER).await?;
    Ok(Requeue::OnChange)
}

/// Tells whom it concerns that a selector finds nothing.
fn tell(
    context: &Context,
    class: &Ec2NodeClass,
    pools: &[Arc<NodePool>],
    explanations: &[(&'static str, String)],
    told: Vec<String>,
) {
    if explanations.is_empty() {
        return;
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let pools: Vec<Pool> = pools.iter().map(|pool| Pool::new(pool.clone(), Vec::new())).collect();
    let mut pods = context.mirror.pods();
    pods.retain(|pod| pod.is_provisionable() && pools.iter().any(|pool| would_use(pool, pod)));
    for (reason, text) in explanations {
        if !told.contains(text) {
            tracing::error!(EC2NodeClass = name, reason, "{text}");
        }
        let uid = class.metadata.uid.clone().unwrap_or_default();
        let event = Event::warning(reference(class), *reason, text).dedupe([uid]).window(EXPLAINED_FOR);
        context.events.publish(event);
        for pod in &pods {
            let message = format!("No node can be launched, EC2NodeClass {name}: {text}");
            let event = Event::warning(pod_reference(pod), *reason, message).dedupe([pod.uid.as_str()]);
            context.events.publish(event.window(EXPLAINED_FOR));
        }
    }
}

/// Whether the pool could have made a node for the pod, as far as labels and taints say.
fn would_use(pool: &Pool, pod: &Pod) -> bool {
    taints::tolerates(pool.taints(), &pod.tolerations).is_ok()
        && pool.requirements().compatible(&pod.strict_requirements(), AllowUndefined::WellKnown).is_ok()
}

/// One sentence for each selector that finds nothing, with the reason its condition carries.
fn explanations(class: &Ec2NodeClass, near_misses: &[NearMiss]) -> Vec<(&'static str, String)> {
    let is_false = |type_: &str, reason: &str| {
        class.condition(type_).is_some_and(|condition| condition.is_false() && condition.reason == reason)
    };
    let mut explanations = Vec::new();
    if is_false(conditions::SUBNETS_READY, "SubnetsNotFound") {
        let terms = class.spec.subnet_selector_terms.iter().map(|term| term_text(&term.id, &None, &term.tags));
        let text = explain("subnetSelectorTerms", "subnet", terms, near_misses, NearMissResource::Subnets);
        explanations.push(("SubnetsNotFound", text));
    }
    if is_false(conditions::SECURITY_GROUPS_READY, "SecurityGroupsNotFound") {
        let terms = class.spec.security_group_selector_terms.iter();
        let terms = terms.map(|term| term_text(&term.id, &term.name, &term.tags));
        let resource = NearMissResource::SecurityGroups;
        let text = explain("securityGroupSelectorTerms", "security group", terms, near_misses, resource);
        explanations.push(("SecurityGroupsNotFound", text));
    }
    explanations
}

/// What one term asks for: `id=subnet-1` or `karpenter.sh/discovery=demo,team=a`.
fn term_text(id: &Option<String>, name: &Option<String>, tags: &BTreeMap<String, String>) -> String {
    let id = id.iter().map(|id| format!("id={id}"));
    let name = name.iter().map(|name| format!("name={name}"));
    let tags = tags.iter().map(|(key, value)| format!("{key}={value}"));
    id.chain(name).chain(tags).collect::<Vec<_>>().join(",")
}

fn explain(
    field: &str,
    what: &str,
    terms: impl Iterator<Item = String>,
    near_misses: &[NearMiss],
    resource: NearMissResource,
) -> String {
    let terms = terms.collect::<Vec<_>>().join(" or ");
    let misses = near_misses.iter().filter(|miss| miss.resource == resource).map(|miss| near_miss_text(what, miss));
    let misses = misses.collect::<Vec<_>>().join("; ");
    let separator = if misses.is_empty() { "" } else { "; " };
    format!("{field} ({terms}) match no {what}{separator}{misses}")
}

fn near_miss_text(what: &str, miss: &NearMiss) -> String {
    let NearMiss { resource: _, key, wanted, found } = miss;
    let carry = |count: usize| match count {
        1 => format!("1 {what} carries"),
        _ => format!("{count} {what}s carry"),
    };
    let with_wanted = found.get(wanted).copied().unwrap_or_default();
    let others: Vec<String> =
        found.iter().filter(|(value, _)| *value != wanted).map(|(value, count)| format!("{value} ({count})")).collect();
    let with_another: usize = found.values().sum::<usize>() - with_wanted;
    let mut parts = Vec::new();
    if with_wanted > 0 {
        // It is another part of the term that fails.
        parts.push(format!("{} {key}={wanted}", carry(with_wanted)));
    }
    if with_another > 0 {
        parts.push(format!("{} the key {key} with another value: {}", carry(with_another), others.join(", ")));
    }
    match parts.is_empty() {
        true => format!("no {what} carries the key {key}"),
        false => parts.join("; "),
    }
}

/// A panic while the lock was held cannot leave the map half-written, so poisoning carries no news.
fn lock(looks: &Looks) -> std::sync::MutexGuard<'_, BTreeMap<String, Look>> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(found: &[(&str, usize)]) -> NearMiss {
        NearMiss {
            resource: NearMissResource::Subnets,
            key: "karpenter.sh/discovery".into(),
            wanted: "demo".into(),
            found: found.iter().map(|(value, count)| ((*value).to_owned(), *count)).collect(),
        }
    }

    fn check(found: &[(&str, usize)], expected: &str) {
        let terms = ["karpenter.sh/discovery=demo".to_owned()].into_iter();
        let text = explain("subnetSelectorTerms", "subnet", terms, &[miss(found)], NearMissResource::Subnets);
        assert_eq!(text, format!("subnetSelectorTerms (karpenter.sh/discovery=demo) match no subnet; {expected}"));
    }

    #[test]
    fn an_explanation_names_the_selector_and_what_nearly_matched() {
        check(&[], "no subnet carries the key karpenter.sh/discovery");
        check(&[("other", 1)], "1 subnet carries the key karpenter.sh/discovery with another value: other (1)");
        check(
            &[("other", 2), ("test", 1)],
            "3 subnets carry the key karpenter.sh/discovery with another value: other (2), test (1)",
        );
        check(&[("demo", 2)], "2 subnets carry karpenter.sh/discovery=demo");
    }

    #[test]
    fn only_misses_of_the_same_resource_count_and_ids_need_none() {
        let terms = ["id=sg-1".to_owned(), "name=nodes".to_owned()].into_iter();
        let resource = NearMissResource::SecurityGroups;
        let text = explain("securityGroupSelectorTerms", "security group", terms, &[miss(&[])], resource);
        assert_eq!(text, "securityGroupSelectorTerms (id=sg-1 or name=nodes) match no security group");
    }
}
