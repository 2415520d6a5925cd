//! Launching one instance for a NodeClaim: choose types, prepare templates, request a fleet, read what came of it (spec §4).

use crate::batch::{Batcher, Window};
use crate::cache::lock;
use crate::error::{AwsError, Meaning, failure_reason};
use crate::filters::{self, Candidate, Choice, NoCandidates};
use crate::fleet::{FleetConfig, FleetError, FleetRequest, FleetShare, Launched, Override, deal};
use crate::instance_types::EFA;
use crate::instances::provider_id;
use crate::launch_template::{Template, interfaces};
use crate::network::Pick;
use crate::offerings::ResolveError;
use crate::provider::{AwsCloud, describe_cluster};
use crate::resolved::ResolvedNodeClass;
use crate::user_data::{self, Bootstrap, UserDataError};
use controller_api::conditions::READY;
use controller_api::{AmiFamily, Ec2NodeClass, HasConditions, NodeClaim, labels};
use controller_core::catalog::{CapacityType, InstanceType};
use controller_core::cloud::CloudError;
use controller_core::drift_hash::{EC2_NODE_CLASS_HASH_VERSION, ec2_node_class_hash};
use controller_core::requirements::Requirements;
use controller_core::resources::{PODS, Resources};
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";

/// Window of fleet requests (spec §2.3).
const WINDOW: Window = Window { idle: Duration::from_millis(35), longest: Duration::from_secs(1), most: 1000 };

/// Merges equal fleet requests.
pub(crate) type Fleets = Batcher<String, (), Result<FleetShare, AwsError>>;

pub(crate) fn fleets() -> Fleets {
    Batcher::new(WINDOW)
}

/// A launch that failed in one place, for the metric `cloudprovider_instance_launch_failures_total`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchFailure {
    /// The zone's name.
    pub zone: String,
    /// The zone's id.
    pub zone_id: String,
    /// The market.
    pub capacity_type: CapacityType,
    /// The reason, as conditions have it.
    pub reason: &'static str,
}

/// Counts of failures. Bounded by zones × markets × reasons.
#[derive(Debug, Default)]
pub(crate) struct LaunchFailures(Mutex<BTreeMap<LaunchFailure, u64>>);

impl LaunchFailures {
    fn count(&self, failure: LaunchFailure) {
        *lock(&self.0).entry(failure).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> Vec<(LaunchFailure, u64)> {
        lock(&self.0).iter().map(|(failure, count)| (failure.clone(), *count)).collect()
    }
}

/// What a launch template takes from the NodeClaim.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimFacts {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) startup_taints: Vec<Taint>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) enclaves: bool,
}

/// What distinguishes the templates of one launch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TemplateGroup {
    pub(crate) image_id: String,
    pub(crate) max_pods: u32,
    pub(crate) efas: u32,
}

/// One launch.
pub(crate) struct Launcher<'a> {
    pub(crate) cloud: &'a AwsCloud,
    pub(crate) class: ResolvedNodeClass<'a>,
    pub(crate) node_class: &'a Ec2NodeClass,
    pub(crate) claim: &'a NodeClaim,
}

/// How a try ended, when not with an instance.
enum Failure {
    /// A launch template vanished behind our back: worth one more try at once.
    TemplateMissing(Vec<String>, AwsError),
    Final(CloudError),
}

impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        Self::Final(error)
    }
}

impl Launcher<'_> {
    /// Launches; answers the claim hydrated with what was launched.
    pub(crate) async fn launch(&self) -> Result<NodeClaim, CloudError> {
        self.check_class()?;
        let node_pool = self.label(labels::NODE_POOL_LABEL);
        let tags = self.class.tags(&self.cloud.settings.cluster_name, node_pool);
        let tags = tags.map_err(|error| CloudError::NodeClassNotReady(error.to_string()))?;
        let types = self.cloud.resolver.instance_types(&self.class, &self.cloud.pricing, &self.cloud.unavailable);
        let types = types.map_err(|error| match error {
            ResolveError::NoSubnets => refused("SubnetResolutionFailed", "Error getting subnets"),
            _ => refused("InstanceTypeResolutionFailed", "Error resolving instance types"),
        })?;
        match self.attempt(&types, &tags).await {
            Ok(claim) => Ok(claim),
            Err(Failure::Final(error)) => Err(error),
            Err(Failure::TemplateMissing(names, _)) => {
                names.iter().for_each(|name| self.cloud.templates.forget(name));
                self.attempt(&types, &tags).await.map_err(|failure| match failure {
                    Failure::Final(error) => error,
                    Failure::TemplateMissing(names, error) => {
                        names.iter().for_each(|name| self.cloud.templates.forget(name));
                        let prefix = "Launch templates not found when creating fleet request: ";
                        refused("LaunchTemplateNotFound", format!("{prefix}{error}"))
                    }
                })
            }
        }
    }

    /// Refuses a class that is not ready, known not to be, or known for an older generation.
    fn check_class(&self) -> Result<(), CloudError> {
        if self.node_class.metadata.deletion_timestamp.is_some() {
            let message = format!("node class {} is terminating", self.class.name);
            return Err(CloudError::InsufficientCapacity(message));
        }
        match self.node_class.condition(READY) {
            Some(ready) if ready.is_false() => Err(CloudError::NodeClassNotReady(ready.message.clone())),
            Some(ready) if ready.is_true() && ready.observed_generation == self.class.generation => Ok(()),
            Some(ready) if ready.is_true() => Err(CloudError::NodeClassNotReady(format!(
                "NodeClass was reconciled for generation {}, now it has generation {}",
                ready.observed_generation, self.class.generation
            ))),
            _ => Err(refused("NodeClassReadinessUnknown", "NodeClass is in Ready=Unknown")),
        }
    }

    async fn attempt(
        &self,
        types: &[Arc<InstanceType>],
        tags: &BTreeMap<String, String>,
    ) -> Result<NodeClaim, Failure> {
        let requirements = Requirements::from_api(&self.claim.spec.requirements);
        let choice = self.choose(types, &requirements)?;
        let picks = self.pick_subnets(&choice);
        let outcome = self.request(&choice, &picks, tags).await;
        let used = match &outcome {
            Ok(launched) => BTreeSet::from([launched.subnet_id.clone()]),
            Err(_) => BTreeSet::new(),
        };
        self.cloud.network.accounts().give_back(&picks, &used);
        Ok(self.hydrate(&outcome?, &choice))
    }

    fn choose(&self, types: &[Arc<InstanceType>], requirements: &Requirements) -> Result<Choice, CloudError> {
        let requests = Resources::from_api(&self.claim.spec.resources.requests);
        let requests = requests.map_err(|error| CloudError::Other {
            context: "reading the nodeclaim's requests".to_owned(),
            source: Box::new(error),
        })?;
        let choice = filters::choose(types, requirements, &requests, self.min_values_relaxed());
        choice.map_err(|error: NoCandidates| CloudError::InsufficientCapacity(error.to_string()))
    }

    fn min_values_relaxed(&self) -> bool {
        let annotations = self.claim.metadata.annotations.as_ref();
        annotations
            .is_some_and(|all| all.get(labels::MIN_VALUES_RELAXED_ANNOTATION).is_some_and(|value| value == "true"))
    }

    /// One subnet per zone, with addresses set aside for the smallest type that may land there.
    fn pick_subnets(&self, choice: &Choice) -> BTreeMap<String, Pick> {
        let open = |subnet: &&controller_api::Subnet| !self.cloud.unavailable.is_subnet_marked(&subnet.id);
        let subnets: Vec<_> = self.class.status.subnets.iter().filter(open).cloned().collect();
        self.cloud.network.accounts().pick(&subnets, |zone| {
            let offered = |candidate: &&Candidate| candidate.offerings.iter().any(|offering| offering.zone == zone);
            let pods = |candidate: &Candidate| candidate.instance_type.capacity.get(PODS).value();
            let fewest = choice.candidates.iter().filter(offered).map(pods).min().unwrap_or(0);
            i64::try_from(fewest).unwrap_or(0)
        })
    }

    async fn request(
        &self,
        choice: &Choice,
        picks: &BTreeMap<String, Pick>,
        tags: &BTreeMap<String, String>,
    ) -> Result<Launched, Failure> {
        let configs = self.configs(choice, picks, tags).await?;
        if configs.is_empty() {
            // EC2 would refuse a fleet without overrides with an error that tells nobody anything.
            return Err(CloudError::InsufficientCapacity(NoCandidates::Unavailable.to_string()).into());
        }
        let names: Vec<String> = configs.iter().map(|config| config.template.clone()).collect();
        let annotations = self.claim.metadata.annotations.as_ref();
        let request = FleetRequest {
            capacity_type: choice.capacity_type,
            context: self.class.spec.context.clone().filter(|_| !self.min_values_relaxed()),
            tags: tags.clone(),
            prioritized: annotations.is_some_and(|all| all.contains_key(labels::PRICE_OVERLAY_APPLIED_ANNOTATION)),
            configs,
        };
        let share = self.create_fleet(&request).await.map_err(|error| {
            if error.is_launch_template_missing() {
                return Failure::TemplateMissing(names.clone(), error);
            }
            let reason = failure_reason(&error.to_string());
            Failure::Final(refused(reason.reason, format!("Error creating fleet request: {error}")))
        })?;
        self.learn(&share.errors, choice.capacity_type);
        match share.launched {
            Some(launched) => Ok(launched),
            None => Err(failure_of(&share.errors, &names)),
        }
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetShare, AwsError> {
        let client = &self.cloud.clients.ec2;
        let call = |requests: Vec<()>| async move {
            let count = requests.len();
            let input = request.to_input(i32::try_from(count).unwrap_or(i32::MAX));
            match input.send_with(client).await.map_err(|error| AwsError::new("EC2", "CreateFleet", error)) {
                Ok(answer) => deal(&answer, count).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); count],
            }
        };
        let share = self.cloud.fleets.submit(request.key(), (), call).await;
        let abandoned = || AwsError::of_answer("EC2", "CreateFleet", "Abandoned", "the merged request was cancelled");
        share.unwrap_or_else(|| Err(abandoned()))
    }

    /// Groups the candidates by what their template must say and sees to it that every template exists.
    async fn configs(
        &self,
        choice: &Choice,
        picks: &BTreeMap<String, Pick>,
        tags: &BTreeMap<String, String>,
    ) -> Result<Vec<FleetConfig>, CloudError> {
        let facts = self.facts(tags);
        let wants_efa = self.requests(EFA);
        let mut groups: BTreeMap<TemplateGroup, Vec<Override>> = BTreeMap::new();
        for candidate in &choice.candidates {
            let Some(image_id) = self.class.image_for(&candidate.instance_type.requirements) else { continue };
            let capacity = |name: &str| u32::try_from(candidate.instance_type.capacity.get(name).value()).unwrap_or(0);
            let group = TemplateGroup {
                image_id: image_id.to_owned(),
                max_pods: capacity(PODS),
                efas: if wants_efa { capacity(EFA) } else { 0 },
            };
            let overrides = candidate.offerings.iter().filter_map(|offering| {
                Some(Override {
                    instance_type: candidate.instance_type.name.clone(),
                    subnet_id: picks.get(&offering.zone)?.subnet_id.clone(),
                    image_id: image_id.to_owned(),
                    zone: offering.zone.clone(),
                    price: offering.price,
                })
            });
            groups.entry(group).or_default().extend(overrides);
        }
        let mut configs = Vec::new();
        for (group, overrides) in groups.into_iter().filter(|(_, overrides)| !overrides.is_empty()) {
            let template =
                template(self.cloud, &self.class, &facts, &group, choice.capacity_type, choice.tenancy).await?;
            let ensured = self.cloud.templates.ensure(&template).await.map_err(|error| {
                let reason = failure_reason(&error.to_string());
                refused(reason.reason, format!("Error getting launch template configs: {error}"))
            })?;
            configs.push(FleetConfig { template: ensured, overrides });
        }
        Ok(configs)
    }

    fn facts(&self, tags: &BTreeMap<String, String>) -> ClaimFacts {
        ClaimFacts {
            labels: self.claim.metadata.labels.clone().unwrap_or_default(),
            taints: self.claim.spec.taints.clone(),
            startup_taints: self.claim.spec.startup_taints.clone(),
            tags: tags.clone(),
            enclaves: self.requests(NITRO_SANDBOX),
        }
    }

    fn requests(&self, resource: &str) -> bool {
        let requests = Resources::from_api(&self.claim.spec.resources.requests).unwrap_or_default();
        !requests.get(resource).is_zero()
    }

    fn label(&self, key: &str) -> &str {
        self.claim.metadata.labels.as_ref().and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
    }

    /// Remembers what could not be had (spec §3.4).
    fn learn(&self, errors: &[FleetError], capacity_type: CapacityType) {
        let cloud = self.cloud;
        let zones = self.class.zones();
        for error in errors {
            match error.meaning() {
                Meaning::Unfulfillable if !error.instance_type.is_empty() => {
                    tracing::debug!(
                        reason = error.code,
                        instance_type = error.instance_type,
                        zone = error.zone,
                        capacity_type = %capacity_type,
                        "removing offering from offerings"
                    );
                    cloud.unavailable.mark(&error.instance_type, &error.zone, capacity_type);
                    if error.code == "InsufficientFreeAddressesInSubnet" && !error.subnet_id.is_empty() {
                        cloud.unavailable.mark_subnet(&error.subnet_id);
                        cloud.network.accounts().exhaust(&error.subnet_id);
                    }
                }
                Meaning::SpotRoleMissing => cloud.unavailable.mark_market(CapacityType::Spot),
                _ => {}
            }
            cloud.launch_failures.count(LaunchFailure {
                zone: error.zone.clone(),
                zone_id: zones.get(error.zone.as_str()).copied().unwrap_or_default().to_owned(),
                capacity_type,
                reason: failure_reason(&format!("{}: {}", error.code, error.message)).reason,
            });
        }
    }

    /// The claim as the launched instance makes it (spec §4.5).
    fn hydrate(&self, launched: &Launched, choice: &Choice) -> NodeClaim {
        let mut claim = self.claim.clone();
        let mut own = BTreeMap::new();
        let candidate =
            choice.candidates.iter().find(|candidate| candidate.instance_type.name == launched.instance_type);
        let mut status = claim.status.take().unwrap_or_default();
        if let Some(instance_type) = candidate.map(|candidate| &candidate.instance_type) {
            own.extend(instance_type.requirements.labels());
            let nonzero = |resources: &Resources| -> Resources {
                let left = resources.iter().filter(|(_, quantity)| !quantity.is_zero());
                // EFA is there only if the instance got such interfaces.
                let left = left.filter(|(name, _)| {
                    *name != EFA || self.requests(EFA) || self.class.efa_only_interfaces() > Some(0)
                });
                left.map(|(name, quantity)| (name.to_owned(), quantity)).collect()
            };
            status.capacity = nonzero(&instance_type.capacity).to_api();
            status.allocatable = nonzero(&instance_type.allocatable()).to_api();
        }
        own.insert(labels::INSTANCE_TYPE_LABEL.to_owned(), launched.instance_type.clone());
        own.insert(labels::ZONE_LABEL.to_owned(), launched.zone.clone());
        if let Some(zone_id) = self.class.zones().get(launched.zone.as_str()).filter(|id| !id.is_empty()) {
            own.insert(labels::ZONE_ID_LABEL.to_owned(), (*zone_id).to_owned());
        }
        own.insert(labels::CAPACITY_TYPE_LABEL.to_owned(), choice.capacity_type.as_str().to_owned());
        own.insert(labels::INSTANCE_TENANCY_LABEL.to_owned(), choice.tenancy.to_owned());
        claim.metadata.labels.get_or_insert_default().extend(own);
        let hash = ec2_node_class_hash(self.node_class, self.cloud.settings.cluster_ca_bundle.as_deref());
        claim.metadata.annotations.get_or_insert_default().extend(
            [
                (labels::NODE_CLASS_HASH_ANNOTATION, hash),
                (labels::NODE_CLASS_HASH_VERSION_ANNOTATION, EC2_NODE_CLASS_HASH_VERSION.to_owned()),
                (labels::INSTANCE_PROFILE_NAME_ANNOTATION, self.class.status.instance_profile.clone()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        status.provider_id = provider_id(&launched.zone, &launched.instance_id);
        status.image_id = launched.image_id.clone();
        claim.status = Some(status);
        claim
    }
}

/// The template for one group of types.
pub(crate) async fn template(
    cloud: &AwsCloud,
    class: &ResolvedNodeClass<'_>,
    facts: &ClaimFacts,
    group: &TemplateGroup,
    capacity_type: CapacityType,
    tenancy: &str,
) -> Result<Template, CloudError> {
    let service_cidr = match class.family {
        AmiFamily::AL2023 => Some(service_cidr(cloud).await.map_err(|error| {
            CloudError::NodeClassNotReady(format!("resolving the cluster's service CIDR: {error}"))
        })?),
        _ => None,
    };
    let bootstrap = Bootstrap {
        cluster_name: &cloud.settings.cluster_name,
        endpoint: &cloud.cluster.endpoint,
        ca_bundle: &cloud.cluster.ca_bundle,
        service_cidr: service_cidr.as_deref(),
        cluster_dns: cloud.settings.cluster_dns,
        kubelet: &class.kubelet,
        // The user's own number stays; the kubelet itself knows what podsPerCore makes of it.
        max_pods: class.kubelet.max_pods.unwrap_or(group.max_pods),
        labels: user_data::node_labels(class.family, &facts.labels, capacity_type.as_str()),
        taints: user_data::node_taints(&facts.taints, &facts.startup_taints),
        raid0: class.binds_host_disks(),
        custom: class.spec.user_data.as_deref(),
    };
    let user_data = user_data::render(class.family, &bootstrap)
        .map_err(|error: UserDataError| CloudError::NodeClassNotReady(error.to_string()))?;
    if user_data.len() >= user_data::LARGE {
        tracing::info!(
            node_class = class.name,
            bytes = user_data.len(),
            "user data is close to EC2's limit of 16384 bytes"
        );
    }
    Ok(Template {
        image_id: group.image_id.clone(),
        user_data,
        instance_profile: class.status.instance_profile.clone(),
        detailed_monitoring: class.spec.detailed_monitoring.unwrap_or(false),
        block_devices: class.block_devices(),
        nested_virtualization: class
            .spec
            .cpu_options
            .as_ref()
            .and_then(|options| options.nested_virtualization.clone()),
        metadata_options: class.spec.metadata_options.clone(),
        network_interfaces: interfaces(class, group.efas, cloud.settings.ipv6()),
        tenancy: tenancy.to_owned(),
        enclaves: facts.enclaves,
        avoid_reservations: cloud.settings.reserved_capacity,
        tags: facts.tags.clone(),
        spot: capacity_type == CapacityType::Spot,
    })
}

/// The network of the cluster's Services. It never changes, so it is asked for until known and then no more.
pub(crate) async fn service_cidr(cloud: &AwsCloud) -> Result<String, AwsError> {
    if let Some(known) = cloud.cluster.service_cidr.get() {
        return Ok(known.clone());
    }
    let cluster = describe_cluster(&cloud.clients, &cloud.settings.cluster_name).await?;
    let network = cluster.kubernetes_network_config();
    let cidr = match cloud.settings.ipv6() {
        true => network.and_then(|network| network.service_ipv6_cidr()),
        false => network.and_then(|network| network.service_ipv4_cidr()),
    };
    match cidr.filter(|cidr| !cidr.is_empty()) {
        Some(cidr) => Ok(cloud.cluster.service_cidr.get_or_init(|| cidr.to_owned()).clone()),
        None => Err(AwsError::of_answer("EKS", "DescribeCluster", "NoServiceCidr", "the cluster has no service CIDR")),
    }
}

/// What failures of every way amount to (spec §2.7.3).
fn failure_of(errors: &[FleetError], templates: &[String]) -> Failure {
    let text: Vec<String> = {
        let unique: BTreeSet<String> =
            errors.iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
        unique.into_iter().collect()
    };
    let text = format!("with fleet error(s), {}", text.join("; "));
    if let Some(missing) = errors.iter().find(|error| error.code == "InvalidLaunchTemplateName.NotFoundException") {
        let error = AwsError::of_answer("EC2", "CreateFleet", &missing.code, &missing.message);
        return Failure::TemplateMissing(templates.to_vec(), error);
    }
    let no_capacity = |error: &FleetError| matches!(error.meaning(), Meaning::Unfulfillable | Meaning::SpotRoleMissing);
    if !errors.is_empty() && errors.iter().all(no_capacity) {
        return CloudError::InsufficientCapacity(text).into();
    }
    let reason = failure_reason(&text);
    refused(reason.reason, reason.message).into()
}

fn refused(reason: &str, message: impl Into<String>) -> CloudError {
    CloudError::Create { reason: reason.to_owned(), message: message.into() }
}
