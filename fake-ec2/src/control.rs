//! The handle that sets the scene and looks behind it: typed methods, no HTTP.

use crate::actions::{Context, cloudformation, open_session};
use crate::bootstrap::{
    Bootstrap, Bootstrapped, access_entry, add_oidc_provider, add_queue, add_role, add_rule, bootstrap, bootstrapped,
};
use crate::cloud::capacity::CapacityType;
use crate::cloud::catalogue::{InstanceType, Offering, Zone};
use crate::cloud::identity::{Cluster, Credentials, InstanceProfile, SessionPolicies};
use crate::cloud::image::Image;
use crate::cloud::instance::Instance;
use crate::cloud::launch_template::LaunchTemplate;
use crate::cloud::network::{SecurityGroup, Subnet};
use crate::cloud::queue::Draft;
use crate::cloud::reservation::{CapacityReservation, PlacementGroup};
use crate::cloud::roles::NewRole;
use crate::cloud::spot_request::SpotRequest;
use crate::cloud::stack::{StackOptions, StackRequest};
use crate::cloud::tags::Tags;
use crate::cloud::throttle::Throttling;
use crate::cloud::{Cloud, bus};
use crate::config::{Iam, Limits};
use crate::error::ApiError;
use crate::fault::{FaultId, FaultRule};
use crate::iam::caller::Caller;
use crate::iam::decision::Asking;
use crate::iam::facts::Keys;
use crate::journal::JournalEntry;
use crate::server::{FakeEc2, lock};
use crate::state::{Snapshot, StateError};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Which status check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    /// The instance status check.
    Instance,
    /// The system status check.
    System,
}

/// A control method was given an id or name of something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownResource(pub String);

impl std::fmt::Display for UnknownResource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} does not exist", self.0)
    }
}

impl std::error::Error for UnknownResource {}

/// An instance, and what the rest of the account says of it.
#[derive(Clone, Debug)]
pub struct WholeInstance {
    /// The instance.
    pub instance: Instance,
    /// The name of its image, while that exists.
    pub image_name: Option<String>,
    /// The memory of its type.
    pub memory_mib: Option<u64>,
    /// The role that its instance profile holds now: its credentials are what the instance gets next.
    pub role: Option<String>,
    /// At the present price, which is what it costs from now on.
    pub usd_per_hour: Option<f64>,
}

impl WholeInstance {
    pub(crate) fn of(cloud: &Cloud, instance: &Instance) -> Self {
        let profile = instance.profile.as_ref().and_then(|profile| {
            cloud.identity.profiles.get(&profile.name).filter(|present| present.arn == profile.arn)
        });
        Self {
            image_name: cloud.images.images.get(&instance.image_id).map(|image| image.name.clone()),
            memory_mib: cloud
                .catalogue
                .offering(instance.instance_type)
                .map(|offering| offering.instance_type.memory_mib),
            role: profile.and_then(|profile| profile.role.clone()),
            usd_per_hour: match instance.capacity_type {
                CapacityType::OnDemand => cloud.on_demand_price(instance.instance_type),
                CapacityType::Spot => cloud.spot_price(instance.instance_type, &instance.zone).map(|(price, _)| price),
            },
            instance: instance.clone(),
        }
    }
}

/// Typed access to the account, for embedders. Cheap to clone.
#[derive(Clone)]
pub struct Control(FakeEc2);

/// Setting the scene.
impl Control {
    pub(crate) fn new(ec2: FakeEc2) -> Self {
        Self(ec2)
    }

    /// Creates VPC, subnets, security group (both tagged for discovery), node role with its access entry, queue with the
    /// event rules of the getting-started guide, and the EKS cluster. A reset through the control API does it again.
    pub fn bootstrap(&self, options: Bootstrap) -> Bootstrapped {
        lock(&self.0.inner.bootstraps).push(options.clone());
        self.0.locked(|cloud, now| bootstrap(cloud, now, &options))
    }

    /// As [`Control::bootstrap`], where there is no cluster of this name yet; what belongs to it is answered either way. A
    /// reset makes it anew.
    pub fn ensure_bootstrap(&self, options: Bootstrap) -> Bootstrapped {
        let present = self.0.locked(|cloud, _| bootstrapped(cloud, &options.cluster_name));
        match present {
            None => self.bootstrap(options),
            Some(present) => {
                lock(&self.0.inner.bootstraps).push(options);
                present
            }
        }
    }

    /// Adds an image; its id is answered.
    pub fn add_image(&self, mut image: Image) -> String {
        self.0.locked(|cloud, _| {
            if image.id.is_empty() {
                image.id = cloud.ids.resource("ami");
            }
            let id = image.id.clone();
            cloud.images.images.insert(id.clone(), image);
            id
        })
    }

    /// Publishes a new release of every image family for one Kubernetes minor: `linux` is a date as in `v20260115`
    /// without the `v`, `bottlerocket` a version. Parameters named "recommended" and "latest" follow.
    pub fn release_images(&self, kubernetes_version: &str, linux: &str, bottlerocket: &str) {
        self.0
            .locked(|cloud, now| cloud.images.release(cloud.config.seed, kubernetes_version, linux, bottlerocket, now));
    }

    /// Marks an image as deprecated from now on.
    pub fn deprecate_image(&self, id: &str) -> Result<(), UnknownResource> {
        self.change(id, |cloud, now| cloud.images.images.get_mut(id).map(|image| image.deprecated_at = Some(now)))
    }

    /// Takes an image away.
    pub fn remove_image(&self, id: &str) -> Result<(), UnknownResource> {
        self.change(id, |cloud, _| cloud.images.images.remove(id).map(drop))
    }

    /// Sets an SSM parameter.
    pub fn set_parameter(&self, name: &str, value: &str) {
        self.0.locked(|cloud, now| cloud.images.set_parameter(name, value, now));
    }

    /// Takes an SSM parameter away.
    pub fn remove_parameter(&self, name: &str) -> Result<(), UnknownResource> {
        self.change(name, |cloud, _| cloud.images.parameters.remove(name).map(drop))
    }

    /// The value of an SSM parameter.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.0.locked(|cloud, _| cloud.images.parameters.get(name).map(|parameter| parameter.value.clone()))
    }

    /// Creates a role that EC2 may assume; its ARN is answered.
    pub fn add_role(&self, name: &str) -> String {
        self.0.locked(|cloud, now| add_role(cloud, now, name, "ec2.amazonaws.com"))
    }

    /// Takes a role away, also out of its profiles.
    pub fn remove_role(&self, name: &str) -> Result<(), UnknownResource> {
        self.change(name, |cloud, _| {
            for profile in cloud.identity.profiles.values_mut().filter(|profile| profile.role.as_deref() == Some(name))
            {
                profile.role = None;
            }
            cloud.identity.roles.remove(name).map(drop)
        })
    }

    /// Adds a capacity reservation; an empty id is filled in. The id is answered.
    pub fn add_capacity_reservation(&self, mut reservation: CapacityReservation) -> String {
        self.0.locked(|cloud, _| {
            if reservation.id.is_empty() {
                reservation.id = cloud.ids.resource("cr");
            }
            cloud.keep_reservation(reservation)
        })
    }

    /// Changes a capacity reservation: counts, state, end date.
    pub fn change_capacity_reservation(
        &self,
        id: &str,
        change: impl FnOnce(&mut CapacityReservation),
    ) -> Result<(), UnknownResource> {
        self.change(id, |cloud, _| {
            let mut changed = cloud.reservations.get(id)?.clone();
            change(&mut changed);
            cloud.keep_reservation(changed);
            Some(())
        })
    }

    /// Adds a placement group; an empty id is filled in. The id is answered.
    pub fn add_placement_group(&self, mut group: PlacementGroup) -> String {
        self.0.locked(|cloud, _| {
            if group.id.is_empty() {
                group.id = cloud.ids.resource("pg");
            }
            let id = group.id.clone();
            cloud.placement_groups.insert(id.clone(), group);
            id
        })
    }

    /// Adds an empty queue; its URL is answered.
    pub fn add_queue(&self, name: &str) -> String {
        self.0.locked(|cloud, now| add_queue(cloud, now, name))
    }

    /// Takes a queue away with everything in it.
    pub fn remove_queue(&self, name: &str) -> Result<(), UnknownResource> {
        self.change(name, |cloud, _| cloud.queues.remove(name).map(drop))
    }

    /// Sends the events that match `pattern` (an EventBridge event pattern) to a queue.
    pub fn add_rule(&self, name: &str, pattern: &Value, queue: &str) -> Result<(), ApiError> {
        let pattern = bus::check_pattern(&pattern.to_string())?;
        self.0.locked(|cloud, _| add_rule(cloud, name, pattern, queue));
        Ok(())
    }

    /// Takes an event rule away.
    pub fn remove_rule(&self, name: &str) -> Result<(), UnknownResource> {
        self.change(name, |cloud, _| cloud.bus.rules.remove(name).map(drop))
    }

    /// Adds or overwrites tags of any resource.
    pub fn set_tags<K: Into<String>, V: Into<String>>(
        &self,
        resource: &str,
        tags: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), UnknownResource> {
        let tags: Tags = tags.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self.change(resource, |cloud, _| cloud.tags_mut(resource).map(|present| present.extend(tags)))
    }

    /// Takes a tag off a resource; it is no error if it has none of this key.
    pub fn remove_tag(&self, resource: &str, key: &str) -> Result<(), UnknownResource> {
        self.change(resource, |cloud, _| cloud.tags_mut(resource).map(|present| drop(present.remove(key))))
    }

    /// Makes a subnet report exactly this many free addresses.
    pub fn set_available_addresses(&self, subnet: &str, count: u32) -> Result<(), UnknownResource> {
        self.change(subnet, |cloud, _| cloud.network.subnets.get_mut(subnet).map(|subnet| subnet.set_available(count)))
    }

    /// Deletes a launch template behind everyone's back.
    pub fn remove_launch_template(&self, id: &str) -> Result<(), UnknownResource> {
        self.change(id, |cloud, _| cloud.templates.remove(id).map(drop))
    }

    fn change(&self, id: &str, work: impl FnOnce(&mut Cloud, Timestamp) -> Option<()>) -> Result<(), UnknownResource> {
        self.0.locked(work).ok_or_else(|| UnknownResource(id.into()))
    }
}

/// Who may do what.
impl Control {
    /// Lets policies decide from now on, or nobody.
    pub fn set_iam(&self, mode: Iam) {
        self.0.locked(|cloud, _| cloud.config.iam = mode);
    }

    /// Creates a role with a trust policy of one's own; its ARN is answered.
    pub fn create_role(&self, name: &str, trust_policy: &Value) -> Result<String, ApiError> {
        let new =
            NewRole { name: name.into(), path: "/".into(), trust_policy: trust_policy.to_string(), tags: Tags::new() };
        self.0.locked(|cloud, now| cloud.create_role(now, new).map(|role| role.arn.clone()))
    }

    /// Gives a role a policy of its own, in the place of an earlier one of that name.
    pub fn put_role_policy(&self, role: &str, name: &str, document: &Value) -> Result<(), ApiError> {
        self.0.locked(|cloud, _| cloud.put_role_policy(role, name, &document.to_string()))
    }

    /// Attaches a managed policy, the account's own or one of AWS's, to a role.
    pub fn attach_role_policy(&self, role: &str, policy_arn: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, _| cloud.attach_policy(role, policy_arn))
    }

    /// Detaches a managed policy from a role.
    pub fn detach_role_policy(&self, role: &str, policy_arn: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, _| cloud.detach_policy(role, policy_arn))
    }

    /// The names and documents of the policies that speak for a role: its own by name, the attached ones by ARN.
    pub fn role_policies(&self, role: &str) -> BTreeMap<String, Value> {
        self.0.locked(|cloud, _| cloud.identity.documents_of(role))
    }

    /// Credentials of a role for an hour, whoever its trust policy lets in.
    pub fn assume_role(&self, role: &str, session_name: &str) -> Result<Credentials, UnknownResource> {
        self.0.locked(|cloud, now| {
            if !cloud.identity.roles.contains_key(role) {
                return Err(UnknownResource(role.into()));
            }
            let hour = Duration::from_secs(3600);
            Ok(open_session(cloud, now, role, session_name, hour, Tags::new(), SessionPolicies::default()).credentials)
        })
    }

    /// Trusts an OpenID Connect issuer, in the place of an earlier provider for it; the provider's ARN is answered.
    pub fn add_oidc_provider(&self, issuer: &str, client_ids: &[&str]) -> String {
        self.0.locked(|cloud, now| add_oidc_provider(cloud, now, issuer, client_ids))
    }

    /// Creates a CloudFormation stack and answers its outputs. A stack that fails has rolled back, and its error tells which
    /// resource failed and why.
    pub fn create_stack(
        &self,
        name: &str,
        template: &str,
        parameters: &[(&str, &str)],
        capabilities: &[&str],
    ) -> Result<BTreeMap<String, String>, ApiError> {
        let request = StackRequest {
            options: StackOptions::default(),
            template: template.into(),
            parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            capabilities: capabilities.iter().map(|capability| (*capability).to_owned()).collect(),
            tags: Tags::new(),
        };
        self.as_administrator(|cloud, context| cloudformation::create(cloud, context, name, &request))
    }

    /// Deletes a stack with everything in it.
    pub fn delete_stack(&self, name: &str) -> Result<(), ApiError> {
        let missing = || ApiError::client("ValidationError", format!("Stack with id {name} does not exist"));
        let deleted = self.as_administrator(|cloud, context| cloudformation::delete(cloud, context, name));
        deleted.unwrap_or_else(|| Err(missing()))
    }

    fn as_administrator<T>(&self, work: impl FnOnce(&mut Cloud, &Context<'_>) -> T) -> T {
        self.0.locked(|cloud, now| {
            let caller = Caller::administrator(&cloud.config.account, "control");
            let asking = Asking { caller: &caller, common: &Keys::default() };
            work(cloud, &Context { now, started: now, asking })
        })
    }

    /// Takes an identity provider away.
    pub fn remove_oidc_provider(&self, arn: &str) -> Result<(), UnknownResource> {
        self.change(arn, |cloud, _| cloud.identity.oidc_providers.remove(arn).map(drop))
    }

    /// Tells what an issuer signs its tokens with: a JSON Web Key Set of RSA or P-256 keys. Tokens of issuers whose keys are
    /// not known are believed.
    pub fn set_issuer_keys(&self, issuer: &str, keys: &Value) {
        self.0.locked(|cloud, _| cloud.identity.issuer_keys.insert(issuer.into(), keys.clone()));
    }
}

/// Capacity and market.
impl Control {
    /// Empties a pool: launches from it are refused with `InsufficientInstanceCapacity`. `*` stands for any type or zone.
    pub fn exhaust(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.0.locked(|cloud, _| cloud.capacity.exhaust(instance_type, zone, capacity_type));
    }

    /// Fills a pool again; `*` stands for any type or zone.
    pub fn restore(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.0.locked(|cloud, _| cloud.capacity.restore(instance_type, zone, capacity_type));
    }

    /// Lets a pool give exactly this many more instances; those that end give their place back.
    pub fn set_capacity(&self, instance_type: &str, zone: &str, capacity_type: CapacityType, free: u32) {
        self.0.locked(|cloud, _| cloud.capacity.set_free(instance_type, zone, capacity_type, free));
    }

    /// Sets the account's quotas from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.0.locked(|cloud, _| cloud.config.limits = limits);
    }

    /// Throttles calls from now on; what was called before counts where the buckets are the same.
    pub fn set_throttling(&self, throttling: Throttling) {
        self.0.locked(|cloud, _| cloud.config.throttling = throttling);
    }

    /// Lets Describe calls see new instances, new launch templates and changed tags only after this long.
    pub fn set_consistency_delay(&self, delay: Duration) {
        self.0.locked(|cloud, _| cloud.config.consistency_delay = delay);
    }

    /// Changes a spot price from now on, in USD per hour.
    pub fn set_spot_price(&self, instance_type: &str, zone: &str, price: f64) {
        self.0.locked(|cloud, now| cloud.set_spot_price(now, instance_type, zone, Some(price)));
    }

    /// Takes a spot offering out of the price history: it has no price, and no spot instance is launched there until
    /// [`Control::set_spot_price`] gives it one.
    pub fn withdraw_spot(&self, instance_type: &str, zone: &str) {
        self.0.locked(|cloud, now| cloud.set_spot_price(now, instance_type, zone, None));
    }

    /// Changes an on-demand price, in USD per hour.
    pub fn set_on_demand_price(&self, instance_type: &str, price: f64) {
        self.0.locked(|cloud, _| cloud.set_on_demand_price(instance_type, price));
    }

    /// The present spot price in USD per hour.
    pub fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.0.locked(|cloud, _| cloud.spot_price(instance_type, zone).map(|(price, _)| price))
    }

    /// The present on-demand price in USD per hour.
    pub fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        self.0.locked(|cloud, _| cloud.on_demand_price(instance_type))
    }

    /// What `price-capacity-optimized` sorts spot pools by (price weighed by interruption band); smaller is chosen first.
    pub fn spot_score(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.0.locked(|cloud, _| cloud.spot_score(instance_type, zone))
    }
}

/// Instances.
impl Control {
    /// Every instance, also terminated ones while they are still described, by id.
    pub fn instances(&self) -> Vec<Instance> {
        self.0.locked(|cloud, _| cloud.instances.values().cloned().collect())
    }

    /// Every instance as [`Control::instances`], with what the rest of the account says of it.
    pub fn whole_instances(&self) -> Vec<WholeInstance> {
        self.0.locked(|cloud, _| cloud.instances.values().map(|one| WholeInstance::of(cloud, one)).collect())
    }

    /// One instance.
    pub fn instance(&self, id: &str) -> Option<Instance> {
        self.0.locked(|cloud, _| cloud.instances.get(id).cloned())
    }

    /// Counts the changes of instances so far.
    pub fn instance_revision(&self) -> u64 {
        self.0.locked(|cloud, _| cloud.instance_revision)
    }

    /// Waits until instances have changed since `seen`; answers the new count. Start with 0.
    pub async fn instances_changed(&self, seen: u64) -> u64 {
        self.0.wait_for(|cloud| (cloud.instance_revision > seen).then_some(cloud.instance_revision)).await
    }

    /// Sends a spot notice now; the instance is reclaimed two minutes later, at the instant answered.
    pub fn interrupt(&self, instance: &str) -> Result<Timestamp, ApiError> {
        self.0.locked(|cloud, now| cloud.interrupt(now, instance))
    }

    /// Sends a rebalance recommendation.
    pub fn rebalance(&self, instance: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| cloud.rebalance(now, instance))
    }

    /// Terminates an instance as its owner would.
    pub fn terminate(&self, instance: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| cloud.terminate(now, instance).map(drop))
    }

    /// Stops an instance as its owner would.
    pub fn stop(&self, instance: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| cloud.stop(now, instance, false).map(drop))
    }

    /// The host dies: the instance is terminated at once.
    pub fn kill(&self, instance: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| cloud.kill(now, instance))
    }

    /// Makes a status check fail from now on, or pass again.
    pub fn impair(&self, instance: &str, check: Impairment, failing: bool) -> Result<(), UnknownResource> {
        self.change(instance, |cloud, now| {
            let impaired = cloud.instances.get_mut(instance)?;
            let since = failing.then_some(now);
            match check {
                Impairment::Instance => impaired.instance_impaired_since = since,
                Impairment::System => impaired.system_impaired_since = since,
            }
            cloud.replace_unhealthy(now, instance);
            Some(())
        })
    }

    /// Announces maintenance (`instance-retirement`, `system-reboot`, …) in DescribeInstanceStatus and through AWS Health.
    pub fn schedule_maintenance(&self, instance: &str, code: &str, not_before: Timestamp) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| cloud.schedule_maintenance(now, instance, code, not_before))
    }
}

/// Looking around.
impl Control {
    /// The instance types offered here, by name.
    pub fn instance_types(&self) -> Vec<&'static InstanceType> {
        self.0.locked(|cloud, _| cloud.catalogue.offerings().iter().map(|offering| offering.instance_type).collect())
    }

    /// What is sold here: zones and catalogue prices, by type name.
    pub fn offerings(&self) -> Vec<Offering> {
        self.0.locked(|cloud, _| cloud.catalogue.offerings().to_vec())
    }

    /// The region's zones.
    pub fn zones(&self) -> Vec<Zone> {
        self.0.locked(|cloud, _| cloud.catalogue.zones.clone())
    }

    /// Every subnet, by id.
    pub fn subnets(&self) -> Vec<Subnet> {
        self.0.locked(|cloud, _| cloud.network.subnets.values().cloned().collect())
    }

    /// Every security group, by id.
    pub fn security_groups(&self) -> Vec<SecurityGroup> {
        self.0.locked(|cloud, _| cloud.network.groups.values().cloned().collect())
    }

    /// Every launch template, by id.
    pub fn launch_templates(&self) -> Vec<LaunchTemplate> {
        self.0.locked(|cloud, _| cloud.templates.iter().cloned().collect())
    }

    /// Every instance profile, by name.
    pub fn instance_profiles(&self) -> Vec<InstanceProfile> {
        self.0.locked(|cloud, _| cloud.identity.profiles.values().cloned().collect())
    }

    /// Every image, by id.
    pub fn images(&self) -> Vec<Image> {
        self.0.locked(|cloud, _| cloud.images.images.values().cloned().collect())
    }

    /// Every spot request, by id.
    pub fn spot_requests(&self) -> Vec<SpotRequest> {
        self.0.locked(|cloud, _| cloud.spot_requests.values().cloned().collect())
    }

    /// Every capacity reservation, by id.
    pub fn capacity_reservations(&self) -> Vec<CapacityReservation> {
        self.0.locked(|cloud, _| cloud.reservations.values().cloned().collect())
    }

    /// A cluster with its access entries.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.0.locked(|cloud, _| cloud.clusters.get(name).cloned())
    }

    /// Lets a principal into a cluster, or out of it (`None`).
    pub fn set_access_entry(
        &self,
        cluster: &str,
        principal_arn: &str,
        kind: Option<&str>,
    ) -> Result<(), UnknownResource> {
        self.change(cluster, |cloud, now| {
            let entry = kind.map(|kind| access_entry(cloud, now, cluster, principal_arn, kind));
            let entries = &mut cloud.clusters.get_mut(cluster)?.access_entries;
            match entry {
                Some(entry) => drop(entries.insert(principal_arn.into(), entry)),
                None => drop(entries.remove(principal_arn)),
            }
            Some(())
        })
    }

    /// Messages in a queue: visible, in flight, delayed.
    pub fn queue_counts(&self, name: &str) -> Option<(usize, usize, usize)> {
        self.0.locked(|cloud, now| cloud.queues.get_mut(name).map(|queue| queue.counts(now)))
    }
}

/// The account as a whole.
impl Control {
    /// Everything in the account, what will happen by itself, the fault rules and how the clock is set, as JSON.
    pub fn snapshot(&self) -> Value {
        serde_json::json!(Snapshot::of(&self.0))
    }

    /// Puts an account as [`Control::snapshot`] answered it in the place of this one. Its instants stay what they were, so
    /// that what was due in the meantime happens at once.
    pub fn restore_snapshot(&self, snapshot: &Value) -> Result<(), StateError> {
        self.0.restore(Snapshot::read(snapshot.to_string().as_bytes())?);
        Ok(())
    }

    /// How many calls wait for messages.
    pub fn waiting_calls(&self) -> usize {
        self.0.inner.bells.waiters()
    }
}

/// Messages, faults, journal.
impl Control {
    /// Puts a whole event on the bus; answers how many targets it goes to.
    pub fn send_event(&self, event: &Value) -> usize {
        self.0.locked(|cloud, now| cloud.route(now, event))
    }

    /// Puts any text into a queue, valid or not.
    pub fn send_raw_message(&self, queue: &str, body: &str) -> Result<(), ApiError> {
        self.0.locked(|cloud, now| {
            let Cloud { queues, ids, revision, .. } = cloud;
            let missing = || ApiError::client("QueueDoesNotExist", "The specified queue does not exist.");
            let draft = Draft { body: body.into(), sender: "control".into(), ..Draft::default() };
            queues.get_mut(queue).ok_or_else(missing)?.send(now, ids, draft)?;
            *revision += 1;
            Ok(())
        })
    }

    /// Adds a fault rule.
    pub fn fault(&self, rule: FaultRule) -> FaultId {
        lock(&self.0.inner.faults).add(rule)
    }

    /// Takes a fault rule back; answers whether it was there.
    pub fn remove_fault(&self, id: FaultId) -> bool {
        lock(&self.0.inner.faults).remove(id)
    }

    /// Takes every fault rule back.
    pub fn clear_faults(&self) {
        lock(&self.0.inner.faults).clear();
    }

    /// Every call so far, oldest first.
    pub fn journal(&self) -> Vec<Arc<JournalEntry>> {
        lock(&self.0.inner.journal).entries()
    }

    /// Calls `observer` with every call from now on, right after its answer is ready.
    pub fn observe(&self, observer: Box<dyn Fn(&JournalEntry) + Send + Sync>) {
        lock(&self.0.inner.observers).push(Arc::new(observer));
    }
}
