//! Instances: describe, terminate, tag, and what AWS says of their health. Descriptions and terminations are coalesced.

use crate::batch::{Batcher, Window};
use crate::cache::lock;
use crate::error::AwsError;
use aws_sdk_ec2::types::{Filter, InstanceStateName, StatusType, Tag};
use aws_smithy_types::DateTime;
use controller_api::labels;
use controller_core::catalog::CapacityType;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// States an instance that still counts can be in; `terminated` is what callers wait for.
const LIVE_STATES: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Window of describe and terminate (spec §2.3).
const WINDOW: Window = Window { idle: Duration::from_millis(100), longest: Duration::from_secs(1), most: 500 };

/// How long a failed status check must last before it counts (spec §6.3).
const IMPAIRED_FOR: SignedDuration = SignedDuration::from_secs(120);

/// An instance as EC2 described it last (spec §2.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    pub state: String,
    /// The image it was launched from.
    pub image_id: String,
    /// Its type.
    pub instance_type: String,
    /// The name of its zone.
    pub zone: String,
    /// The id of its zone.
    pub zone_id: String,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// `default`, `dedicated` or `host`.
    pub tenancy: String,
    /// Its subnet.
    pub subnet_id: String,
    /// Its security groups.
    pub security_groups: BTreeSet<String>,
    /// How many of its interfaces are EFAs.
    pub efa_interfaces: usize,
    /// When it was launched.
    pub launch_time: Option<Timestamp>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// Whether it is on its way out.
    pub fn is_terminating(&self) -> bool {
        self.state == "shutting-down" || self.state == "terminated"
    }

    fn read(instance: &aws_sdk_ec2::types::Instance) -> Option<Self> {
        let placement = instance.placement();
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        let reserved = instance.capacity_reservation_id().is_some()
            && instance
                .capacity_reservation_specification()
                .and_then(|specification| specification.capacity_reservation_preference())
                .is_some_and(|preference| preference.as_str() == "capacity-reservations-only");
        let capacity_type = if instance.spot_instance_request_id().is_some_and(|id| !id.is_empty()) {
            CapacityType::Spot
        } else if reserved {
            CapacityType::Reserved
        } else {
            CapacityType::OnDemand
        };
        let tenancy = placement.and_then(|placement| placement.tenancy()).map(|tenancy| tenancy.as_str());
        Some(Self {
            id: instance.instance_id()?.to_owned(),
            state: instance.state()?.name()?.as_str().to_owned(),
            image_id: text(instance.image_id()),
            instance_type: text(instance.instance_type().map(|kind| kind.as_str())),
            zone: text(placement.and_then(|placement| placement.availability_zone())),
            zone_id: text(placement.and_then(|placement| placement.availability_zone_id())),
            capacity_type,
            tenancy: tenancy.filter(|tenancy| !tenancy.is_empty()).unwrap_or("default").to_owned(),
            subnet_id: text(instance.subnet_id()),
            security_groups: instance
                .security_groups()
                .iter()
                .filter_map(|group| group.group_id().map(str::to_owned))
                .collect(),
            efa_interfaces: instance
                .network_interfaces()
                .iter()
                .filter(|interface| matches!(interface.interface_type(), Some("efa" | "efa-only")))
                .count(),
            launch_time: instance.launch_time().and_then(timestamp),
            tags: instance
                .tags()
                .iter()
                .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
                .collect(),
        })
    }
}

/// `aws:///<zone>/<instance id>`.
pub(crate) fn provider_id(zone: &str, id: &str) -> String {
    format!("aws:///{zone}/{id}")
}

/// The instance id in a provider id, which is `<anything>:///<zone>/<instance id>`.
pub(crate) fn instance_id(provider_id: &str) -> Option<&str> {
    let (_, path) = provider_id.split_once(":///")?;
    let (_, id) = path.split_once('/')?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// What AWS finds wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnhealthyCategory {
    /// The instance's own check fails (`instance_status`).
    InstanceStatus,
    /// The check of the machine below it fails (`system_status`).
    SystemStatus,
    /// AWS will stop, reboot or retire it (`event_status`).
    EventStatus,
}

impl UnhealthyCategory {
    /// The value of the metrics label `category`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstanceStatus => "InstanceStatus",
            Self::SystemStatus => "SystemStatus",
            Self::EventStatus => "EventStatus",
        }
    }

    /// The message kind in logs and the reason in metrics.
    pub fn kind(self) -> &'static str {
        match self {
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
        }
    }
}

/// An instance that is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyInstance {
    /// Its id.
    pub instance_id: String,
    /// Everything that is wrong with it.
    pub categories: BTreeSet<UnhealthyCategory>,
}

type Described = Result<Option<Arc<Instance>>, AwsError>;

/// The calls, and what List saw last.
#[derive(Debug)]
pub(crate) struct Instances {
    client: aws_sdk_ec2::Client,
    cluster_name: String,
    describe: Batcher<(), String, Described>,
    terminate: Batcher<(), String, Result<(), AwsError>>,
    /// By id. Bounded by the cluster: every List drops what it did not see.
    cache: Mutex<BTreeMap<String, Arc<Instance>>>,
}

impl Instances {
    pub(crate) fn new(client: aws_sdk_ec2::Client, cluster_name: &str) -> Self {
        Self {
            client,
            cluster_name: cluster_name.to_owned(),
            describe: Batcher::new(WINDOW),
            terminate: Batcher::new(WINDOW),
            cache: Mutex::default(),
        }
    }

    /// The instance as it is now; a not-found error once it is gone.
    pub(crate) async fn get(&self, id: &str) -> Result<Arc<Instance>, AwsError> {
        let described = self.describe.submit((), id.to_owned(), |ids| self.describe_each(ids)).await;
        match described.unwrap_or_else(|| Err(abandoned("DescribeInstances"))) {
            Ok(Some(instance)) => {
                lock(&self.cache).insert(id.to_owned(), instance.clone());
                Ok(instance)
            }
            Ok(None) => {
                lock(&self.cache).remove(id);
                Err(not_found(id))
            }
            Err(error) => {
                if error.is_not_found() {
                    lock(&self.cache).remove(id);
                }
                Err(error)
            }
        }
    }

    /// The instance as last seen, asked for only if it never was.
    pub(crate) async fn get_cached(&self, id: &str) -> Result<Arc<Instance>, AwsError> {
        let cached = lock(&self.cache).get(id).cloned();
        match cached {
            Some(instance) => Ok(instance),
            None => self.get(id).await,
        }
    }

    /// One answer per id, in order. Ids that the common answer lacks, all of them if it failed, are asked for one by one:
    /// a single id that is gone fails the whole call. Not so when EC2 is throttling or failing: five hundred calls in the
    /// place of one would keep it so, and every caller tries again.
    async fn describe_each(&self, ids: Vec<String>) -> Vec<Described> {
        let found = match self.describe_ids(&ids).await {
            Err(error) if error.is_transient() => return vec![Err(error); ids.len()],
            found => found.unwrap_or_default(),
        };
        let each = ids.iter().map(async |id| match found.get(id) {
            Some(instance) => Ok(Some(instance.clone())),
            None => Ok(self.describe_ids(std::slice::from_ref(id)).await?.remove(id)),
        });
        join_all(each).await
    }

    async fn describe_ids(&self, ids: &[String]) -> Result<BTreeMap<String, Arc<Instance>>, AwsError> {
        let ids: BTreeSet<String> = ids.iter().cloned().collect();
        let request = self
            .client
            .describe_instances()
            .set_instance_ids(Some(ids.into_iter().collect()))
            .filters(filter("instance-state-name", &LIVE_STATES));
        collect(request).await
    }

    /// Every live instance of this cluster; the cache afterwards holds just these.
    pub(crate) async fn list(&self) -> Result<Vec<Arc<Instance>>, AwsError> {
        let request = self
            .client
            .describe_instances()
            .filters(filter("tag-key", &[labels::NODE_POOL_LABEL]))
            .filters(filter("tag-key", &[labels::NODE_CLASS_LABEL]))
            .filters(filter(&format!("tag:{}", crate::CLUSTER_NAME_TAG), &[&self.cluster_name]))
            .filters(filter("instance-state-name", &LIVE_STATES))
            .max_results(1000);
        let found = collect(request).await?;
        let instances = found.values().cloned().collect();
        *lock(&self.cache) = found;
        Ok(instances)
    }

    /// Begins to terminate an instance.
    pub(crate) async fn terminate(&self, id: &str) -> Result<(), AwsError> {
        let result = self.terminate.submit((), id.to_owned(), |ids| self.terminate_each(ids)).await;
        result.unwrap_or_else(|| Err(abandoned("TerminateInstances")))
    }

    async fn terminate_each(&self, ids: Vec<String>) -> Vec<Result<(), AwsError>> {
        let terminating = match self.terminate_ids(&ids).await {
            // As above.
            Err(error) if error.is_transient() => return vec![Err(error); ids.len()],
            terminating => terminating.unwrap_or_default(),
        };
        let each = ids.iter().map(async |id| {
            if terminating.contains(id) {
                return Ok(());
            }
            self.terminate_ids(std::slice::from_ref(id)).await.map(drop)
        });
        join_all(each).await
    }

    /// The ids that are terminating after the call.
    async fn terminate_ids(&self, ids: &[String]) -> Result<BTreeSet<String>, AwsError> {
        let ids: BTreeSet<String> = ids.iter().cloned().collect();
        let request = self.client.terminate_instances().set_instance_ids(Some(ids.into_iter().collect()));
        let answer = request.send().await.map_err(|error| AwsError::new("EC2", "TerminateInstances", error))?;
        let going = answer.terminating_instances().iter().filter(|change| {
            let state = change.current_state().and_then(|state| state.name());
            matches!(state, Some(InstanceStateName::ShuttingDown | InstanceStateName::Terminated))
        });
        Ok(going.filter_map(|change| change.instance_id().map(str::to_owned)).collect())
    }

    /// Adds the tags whose keys the instance lacks.
    pub(crate) async fn tag(&self, id: &str, tags: &BTreeMap<String, String>) -> Result<(), AwsError> {
        let instance = self.get(id).await?;
        let missing: Vec<Tag> = tags
            .iter()
            .filter(|(key, _)| !instance.tags.contains_key(*key))
            .map(|(key, value)| Tag::builder().key(key).value(value).build())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let request = self.client.create_tags().resources(id).set_tags(Some(missing));
        request.send().await.map_err(|error| AwsError::new("EC2", "CreateTags", error))?;
        Ok(())
    }

    /// Instances with failed checks or scheduled events.
    pub(crate) async fn unhealthy(&self, now: Timestamp) -> Result<Vec<UnhealthyInstance>, AwsError> {
        const EVENTS: [&str; 5] =
            ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];
        let filters = [
            filter("instance-status.status", &["impaired"]),
            filter("system-status.status", &["impaired"]),
            filter("event.code", &EVENTS),
        ];
        let mut seen: BTreeMap<String, BTreeSet<UnhealthyCategory>> = BTreeMap::new();
        for filter in filters {
            let mut pages = self.client.describe_instance_status().filters(filter).into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page.map_err(|error| AwsError::new("EC2", "DescribeInstanceStatus", error))?;
                for status in page.instance_statuses() {
                    let Some(id) = status.instance_id() else { continue };
                    // The three answers describe the same state; the first that names an instance stands.
                    seen.entry(id.to_owned()).or_insert_with(|| categories(status, now));
                }
            }
        }
        seen.retain(|_, categories| !categories.is_empty());
        Ok(seen.into_iter().map(|(instance_id, categories)| UnhealthyInstance { instance_id, categories }).collect())
    }
}

fn categories(status: &aws_sdk_ec2::types::InstanceStatus, now: Timestamp) -> BTreeSet<UnhealthyCategory> {
    let lasting = |summary: Option<&aws_sdk_ec2::types::InstanceStatusSummary>| {
        summary.into_iter().flat_map(|summary| summary.details()).any(|detail| {
            let since = detail.impaired_since().and_then(timestamp);
            detail.status() == Some(&StatusType::Failed)
                && since.is_some_and(|since| now.duration_since(since) >= IMPAIRED_FOR)
        })
    };
    let found = [
        (lasting(status.instance_status()), UnhealthyCategory::InstanceStatus),
        (lasting(status.system_status()), UnhealthyCategory::SystemStatus),
        (!status.events().is_empty(), UnhealthyCategory::EventStatus),
    ];
    found.into_iter().filter(|(found, _)| *found).map(|(_, category)| category).collect()
}

async fn collect(
    request: aws_sdk_ec2::operation::describe_instances::builders::DescribeInstancesFluentBuilder,
) -> Result<BTreeMap<String, Arc<Instance>>, AwsError> {
    let mut pages = request.into_paginator().send();
    let mut found = BTreeMap::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| AwsError::new("EC2", "DescribeInstances", error))?;
        let instances = page.reservations().iter().flat_map(|reservation| reservation.instances());
        found.extend(instances.filter_map(Instance::read).map(|instance| (instance.id.clone(), Arc::new(instance))));
    }
    Ok(found)
}

/// One EC2 filter.
pub(crate) fn filter<Value: AsRef<str>>(name: &str, values: &[Value]) -> Filter {
    let values = values.iter().map(|value| value.as_ref().to_owned()).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// The SDK's instant as ours.
pub(crate) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}

fn not_found(id: &str) -> AwsError {
    let message = format!("The instance ID '{id}' does not exist");
    AwsError::of_answer("EC2", "DescribeInstances", "InvalidInstanceID.NotFound", message)
}

/// The task that was to make the common call is gone.
fn abandoned(operation: &'static str) -> AwsError {
    AwsError::of_answer("EC2", operation, "Abandoned", "the request this one was merged with was cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_are_taken_apart() {
        assert_eq!(instance_id(&provider_id("us-west-2a", "i-0abc")), Some("i-0abc"));
        assert_eq!(instance_id("kwok-aws:///us-west-2a/i-0abc"), Some("i-0abc"));
        for other in ["", "aws:///us-west-2a", "aws:///us-west-2a/", "aws://us-west-2a/i-0abc", "i-0abc"] {
            assert_eq!(instance_id(other), None, "{other}");
        }
    }
}
