//! What an EC2NodeClass selects today, as the new status of the class: every sub-result, every condition (spec §1.5, §1.6).
//! Whether instances could be launched from it is `validation`'s part.

use crate::error::AwsError;
use crate::images::ImageError;
use crate::provider::AwsCloud;
use crate::resolved::ResolvedNodeClass;
use crate::validation;
use controller_api::conditions::{
    AMIS_READY, CAPACITY_RESERVATIONS_READY, EC2_NODE_CLASS, EC2_NODE_CLASS_WITHOUT_RESERVATIONS,
    INSTANCE_PROFILE_READY, PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY, SUBNETS_READY, VALIDATION_SUCCEEDED,
};
use controller_api::{Ec2NodeClass, Ec2NodeClassStatus, HasConditions, NodePool};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Values of a tag key that a near miss names: enough to recognise one's own among, and few enough for a message.
const NEAR_MISS_VALUES: usize = 20;

/// What resolution needs to know beyond the class.
#[derive(Clone, Debug, Default)]
pub struct NodeClassContext {
    /// The NodePools that refer to the class. The authorization check uses a type that they would launch.
    pub node_pools: Vec<Arc<NodePool>>,
}

/// The outcome of a resolution.
#[derive(Debug)]
pub struct NodeClassResolution {
    /// The whole new status, conditions included. Parts that could not be looked up are as they were.
    pub status: Ec2NodeClassStatus,
    /// For selectors that found nothing: what nearly matched.
    pub near_misses: Vec<NearMiss>,
    /// When to look again.
    pub requeue_after: Duration,
    /// Look-ups that failed; the caller retries with back-off when there are any.
    pub failures: Vec<ResolutionFailure>,
}

/// A step of a resolution that failed.
#[derive(Debug, thiserror::Error)]
#[error("resolving {step}")]
pub struct ResolutionFailure {
    /// What was being looked up or checked.
    pub step: &'static str,
    /// Why it failed.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// Kinds of things that a selector may miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NearMissResource {
    /// Subnets.
    Subnets,
    /// Security groups.
    SecurityGroups,
}

/// A tag that a selector asks for in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// What was looked for.
    pub resource: NearMissResource,
    /// The tag's key.
    pub key: String,
    /// The value the selector asks for.
    pub wanted: String,
    /// The values that do occur with this key, and how often; empty when nothing carries the key at all.
    pub found: BTreeMap<String, usize>,
}

impl std::fmt::Display for NearMiss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.resource {
            NearMissResource::Subnets => "subnet",
            NearMissResource::SecurityGroups => "security group",
        };
        let (key, wanted) = (&self.key, &self.wanted);
        if self.found.is_empty() {
            return write!(f, "no {what} carries the tag key {key:?}");
        }
        write!(f, "no {what} matches {key}={wanted}, but")?;
        for (index, (value, count)) in self.found.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let plural = if *count == 1 { "" } else { "s" };
            write!(f, "{separator} {count} {what}{plural} with {key}={value}")?;
        }
        Ok(())
    }
}

/// What a step says of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    True,
    False(String, String),
    Unknown(String, String),
}

impl Verdict {
    pub(crate) fn no(reason: &str, message: impl Into<String>) -> Self {
        Self::False(reason.to_owned(), message.into())
    }
}

/// Collects what the steps find.
pub(crate) struct Findings {
    pub(crate) status: Ec2NodeClassStatus,
    verdicts: Vec<(&'static str, Verdict)>,
    near_misses: Vec<NearMiss>,
    requeue_after: Duration,
    failures: Vec<ResolutionFailure>,
}

impl Findings {
    pub(crate) fn judge(&mut self, condition: &'static str, verdict: Verdict) {
        self.verdicts.push((condition, verdict));
    }

    pub(crate) fn requeue(&mut self, after: Duration) {
        self.requeue_after = self.requeue_after.min(after);
    }

    pub(crate) fn fail(&mut self, step: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.failures.push(ResolutionFailure { step, source: error.into() });
    }

    /// What is said of `condition` now, or was said before.
    pub(crate) fn verdict_on(&self, condition: &str) -> Verdict {
        let now = self.verdicts.iter().rev().find(|(named, _)| *named == condition).map(|(_, verdict)| verdict.clone());
        now.unwrap_or_else(|| match controller_api::conditions::get(&self.status.conditions, condition) {
            Some(before) if before.is_true() => Verdict::True,
            Some(before) if before.is_false() => Verdict::False(before.reason.clone(), before.message.clone()),
            _ => Verdict::Unknown(String::new(), String::new()),
        })
    }
}

/// Runs every step, each even if an earlier one failed.
pub(crate) async fn resolve(
    cloud: &AwsCloud,
    node_class: &Ec2NodeClass,
    context: &NodeClassContext,
) -> NodeClassResolution {
    let class = ResolvedNodeClass::new(node_class);
    let mut findings = Findings {
        status: node_class.status.clone().unwrap_or_default(),
        verdicts: Vec::new(),
        near_misses: Vec::new(),
        requeue_after: 10 * MINUTE,
        failures: Vec::new(),
    };
    images(cloud, &class, &mut findings).await;
    unsupported_selectors(cloud, &class, &mut findings);
    subnets(cloud, &class, &mut findings).await;
    security_groups(cloud, &class, &mut findings).await;
    match cloud.profiles.ensure(&class).await {
        Ok(name) => {
            findings.status.instance_profile = name;
            findings.judge(INSTANCE_PROFILE_READY, Verdict::True);
        }
        Err(error) => findings.fail("instance profile", error),
    }
    validation::validate(cloud, node_class, context, &mut findings).await;
    conclude(cloud, node_class, findings)
}

async fn images(cloud: &AwsCloud, class: &ResolvedNodeClass<'_>, findings: &mut Findings) {
    match cloud.images.resolve(class, &cloud.cluster.version()).await {
        Ok(images) if images.is_empty() => {
            findings.status.amis = Vec::new();
            findings.judge(AMIS_READY, Verdict::no("AMINotFound", "AMISelector did not match any AMIs"));
            findings.requeue(MINUTE);
        }
        Ok(images) => {
            findings.status.amis = images;
            findings.judge(AMIS_READY, Verdict::True);
            findings.requeue(5 * MINUTE);
        }
        Err(ImageError::Unsupported { reason, message }) => {
            findings.status.amis = Vec::new();
            findings.judge(AMIS_READY, Verdict::no(reason, message));
        }
        Err(error) => findings.fail("amis", error),
    }
}

/// Selectors of a later stage. To ignore them would launch instances elsewhere than asked.
fn unsupported_selectors(cloud: &AwsCloud, class: &ResolvedNodeClass<'_>, findings: &mut Findings) {
    let placement = match class.spec.placement_group_selector {
        None => Verdict::True,
        Some(_) => Verdict::no(
            "PlacementGroupResolutionFailed",
            "Failed to resolve placement group: placement groups are not supported by this controller yet",
        ),
    };
    findings.judge(PLACEMENT_GROUP_READY, placement);
    if !cloud.settings.reserved_capacity {
        return;
    }
    let reservations = match class.spec.capacity_reservation_selector_terms.is_empty() {
        true => Verdict::True,
        false => Verdict::no(
            "CapacityReservationResolutionFailed",
            "capacity reservations are not supported by this controller yet",
        ),
    };
    findings.judge(CAPACITY_RESERVATIONS_READY, reservations);
}

async fn subnets(cloud: &AwsCloud, class: &ResolvedNodeClass<'_>, findings: &mut Findings) {
    match cloud.network.subnets(class).await {
        Ok(subnets) => {
            let verdict = match subnets.is_empty() {
                true => Verdict::no("SubnetsNotFound", "SubnetSelector did not match any Subnets"),
                false => Verdict::True,
            };
            if subnets.is_empty() {
                let terms = class.spec.subnet_selector_terms.iter().filter(|term| term.id.is_none());
                let tags: Vec<_> = terms.flat_map(|term| &term.tags).collect();
                near_misses(cloud, NearMissResource::Subnets, &tags, findings).await;
            }
            findings.status.subnets = subnets;
            findings.judge(SUBNETS_READY, verdict);
            findings.requeue(MINUTE);
        }
        Err(error) => findings.fail("subnets", error),
    }
}

async fn security_groups(cloud: &AwsCloud, class: &ResolvedNodeClass<'_>, findings: &mut Findings) {
    match cloud.network.security_groups(class).await {
        Ok(groups) if groups.is_empty() => {
            let terms = class.spec.security_group_selector_terms.iter();
            let tagged = terms.filter(|term| term.id.is_none() && term.name.is_none());
            let tags: Vec<_> = tagged.flat_map(|term| &term.tags).collect();
            near_misses(cloud, NearMissResource::SecurityGroups, &tags, findings).await;
            findings.status.security_groups = groups;
            let message = "SecurityGroupSelector did not match any SecurityGroups";
            findings.judge(SECURITY_GROUPS_READY, Verdict::no("SecurityGroupsNotFound", message));
            findings.requeue(MINUTE);
        }
        Ok(groups) => {
            findings.status.security_groups = groups;
            findings.judge(SECURITY_GROUPS_READY, Verdict::True);
            findings.requeue(5 * MINUTE);
        }
        Err(error) => findings.fail("security groups", error),
    }
}

/// Asks for each tag by its key alone. A failure here only costs the hint.
async fn near_misses(
    cloud: &AwsCloud,
    resource: NearMissResource,
    tags: &[(&String, &String)],
    findings: &mut Findings,
) {
    for (key, wanted) in tags {
        let carriers: Result<_, AwsError> = match resource {
            NearMissResource::Subnets => cloud.network.tags_of_subnets_with(key).await,
            NearMissResource::SecurityGroups => cloud.network.tags_of_groups_with(key).await,
        };
        let Ok(carriers) = carriers else { continue };
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for value in carriers.iter().filter_map(|tags| tags.get(*key)) {
            if found.len() < NEAR_MISS_VALUES || found.contains_key(value) {
                *found.entry(value.clone()).or_default() += 1;
            }
        }
        let (key, wanted) = ((*key).clone(), (*wanted).clone());
        findings.near_misses.push(NearMiss { resource, key, wanted, found });
    }
}

/// Writes the verdicts into the conditions.
fn conclude(cloud: &AwsCloud, node_class: &Ec2NodeClass, findings: Findings) -> NodeClassResolution {
    let Findings { status, verdicts, near_misses, requeue_after, failures } = findings;
    let set = if cloud.settings.reserved_capacity { EC2_NODE_CLASS } else { EC2_NODE_CLASS_WITHOUT_RESERVATIONS };
    let mut object =
        Ec2NodeClass { metadata: node_class.metadata.clone(), spec: node_class.spec.clone(), status: Some(status) };
    let mut conditions = object.bind_to(set, cloud.clock.now());
    for (condition, verdict) in verdicts {
        match verdict {
            Verdict::True => conditions.set_true(condition),
            Verdict::False(reason, message) => conditions.set_false(condition, &reason, &message),
            Verdict::Unknown(reason, message) => conditions.set_unknown_with_reason(condition, &reason, &message),
        };
    }
    let status = object.status.unwrap_or_default();
    NodeClassResolution { status, near_misses, requeue_after, failures }
}

/// The conditions that validation waits for.
pub(crate) const DEPENDENCIES: [&str; 4] = [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY];
/// The condition that validation judges.
pub(crate) const VALIDATION: &str = VALIDATION_SUCCEEDED;
