//! [`AwsCloud`]: the parts composed, and `CloudProvider` on top of them.

use crate::clients::Clients;
use crate::drift;
use crate::error::{AwsError, Meaning, StartError};
use crate::images::Images;
use crate::instance_profile::InstanceProfiles;
use crate::instances::{Instance, Instances, UnhealthyInstance, instance_id, provider_id};
use crate::interruption::{Queue, QueueMessage};
use crate::launch::{Fleets, LaunchFailures, Launcher, fleets};
use crate::launch_template::LaunchTemplates;
use crate::network::Network;
use crate::node_class::{self, NodeClassContext, NodeClassResolution};
use crate::offerings::Resolver;
use crate::pricing::Pricing;
use crate::resolved::ResolvedNodeClass;
use crate::settings::Settings;
use crate::unavailable::Unavailable;
use crate::validation::Validations;
use async_trait::async_trait;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool, labels};
use controller_clock::Clock;
use controller_core::catalog::{CapacityType, InstanceType};
use controller_core::cloud::{CloudError, CloudProvider};
use controller_core::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

/// AWS, as the controller sees it. Hold it in an `Arc`; every method may be called from several tasks at once.
#[derive(Debug)]
pub struct AwsCloud {
    pub(crate) settings: Settings,
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    pub(crate) cluster: Cluster,
    pub(crate) pricing: Pricing,
    pub(crate) unavailable: Unavailable,
    pub(crate) resolver: Resolver,
    pub(crate) network: Network,
    pub(crate) images: Images,
    pub(crate) profiles: InstanceProfiles,
    pub(crate) templates: LaunchTemplates,
    pub(crate) instances: Instances,
    pub(crate) validations: Validations,
    pub(crate) fleets: Fleets,
    pub(crate) launch_failures: LaunchFailures,
    queue: Option<Queue>,
}

/// What nodes are told of the cluster they join.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) endpoint: String,
    /// Base64 of PEM; empty when unknown.
    pub(crate) ca_bundle: String,
    /// The network of Services, asked of EKS when an AL2023 class first needs it; then it never changes.
    pub(crate) service_cidr: OnceLock<String>,
    version: Mutex<String>,
}

impl Cluster {
    /// The Kubernetes version as `major.minor`.
    pub(crate) fn version(&self) -> String {
        crate::cache::lock(&self.version).clone()
    }
}

impl AwsCloud {
    /// Runs the start-up sequence (spec §2.1): connectivity, cluster endpoint, Kubernetes version, instance types and
    /// their offerings, queue. `kubernetes_version` is the API server's, used unless EKS is to be asked.
    pub async fn connect(
        settings: Settings,
        clients: Clients,
        clock: Clock,
        kubernetes_version: &str,
    ) -> Result<Self, StartError> {
        check_connectivity(&clients).await?;
        let needs_eks = settings.cluster_endpoint.is_none() || settings.eks_control_plane;
        let described = if needs_eks { Some(describe_cluster(&clients, &settings.cluster_name).await) } else { None };
        let endpoint = match (&settings.cluster_endpoint, &described) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(Ok(cluster))) => {
                cluster.endpoint().map(str::to_owned).ok_or(StartError::ClusterEndpoint(None))?
            }
            (None, Some(Err(error))) => return Err(StartError::ClusterEndpoint(Some(error.clone()))),
            (None, None) => return Err(StartError::ClusterEndpoint(None)),
        };
        tracing::debug!(cluster_endpoint = endpoint, "discovered cluster endpoint");
        let version = match (settings.eks_control_plane, &described) {
            (true, Some(Ok(cluster))) => {
                cluster.version().map(str::to_owned).ok_or(StartError::KubernetesVersion(None))?
            }
            (true, Some(Err(error))) => return Err(StartError::KubernetesVersion(Some(error.clone()))),
            _ => minor_version(kubernetes_version),
        };
        tracing::debug!(version, "discovered kubernetes version");
        let cloud = Self {
            cluster: Cluster {
                endpoint,
                ca_bundle: settings.cluster_ca_bundle.clone().unwrap_or_default(),
                service_cidr: OnceLock::new(),
                version: Mutex::new(version),
            },
            pricing: Pricing::new(&clients.region),
            unavailable: Unavailable::new(clock.clone()),
            resolver: Resolver::new(&settings, &clients.region, clock.clone()),
            network: Network::new(clients.ec2.clone(), clock.clone(), settings.subnet_refresh_interval),
            images: Images::new(clients.ec2.clone(), clients.ssm.clone(), clock.clone(), settings.ami_refresh_interval),
            profiles: InstanceProfiles::new(clients.iam.clone(), &clients.region, &settings, clock.clone()),
            templates: LaunchTemplates::new(clients.ec2.clone(), &settings.cluster_name, clock.clone()),
            instances: Instances::new(clients.ec2.clone(), &settings.cluster_name),
            validations: Validations::new(clock.clone()),
            fleets: fleets(),
            launch_failures: LaunchFailures::default(),
            queue: settings
                .interruption_queue
                .clone()
                .filter(|name| !name.is_empty())
                .map(|name| Queue::new(clients.sqs.clone(), name)),
            settings,
            clients,
            clock,
        };
        cloud.resolver.refresh(&cloud.clients.ec2).await.map_err(StartError::InstanceTypes)?;
        if let Some(queue) = &cloud.queue {
            // A queue that is missing now may appear later; receiving asks again.
            let _ = queue.url().await;
        }
        Ok(cloud)
    }

    /// The region in use.
    pub fn region(&self) -> &str {
        &self.clients.region
    }

    /// The API server's URL as nodes are told it.
    pub fn cluster_endpoint(&self) -> &str {
        &self.cluster.endpoint
    }

    /// The Kubernetes version, as `major.minor`.
    pub fn kubernetes_version(&self) -> String {
        self.cluster.version()
    }

    /// Tells the API server's version anew; call it when it changes (every five minutes is enough).
    pub fn set_kubernetes_version(&self, version: &str) {
        *crate::cache::lock(&self.cluster.version) = minor_version(version);
    }

    /// Asks EKS for the version, where EKS is to be asked. Cadence: 5 minutes.
    pub async fn refresh_kubernetes_version(&self) -> Result<(), AwsError> {
        if self.settings.eks_control_plane {
            let cluster = describe_cluster(&self.clients, &self.settings.cluster_name).await?;
            if let Some(version) = cluster.version() {
                self.set_kubernetes_version(version);
            }
        }
        Ok(())
    }

    /// Learns which launch templates of this cluster exist, so that those of an earlier process are cleaned up. Call it
    /// once after winning the election.
    pub async fn hydrate_launch_templates(&self) -> Result<(), AwsError> {
        self.templates.hydrate().await
    }

    /// Deletes launch templates that were not used for a minute. Cadence: 1 minute, on the elected replica only.
    pub async fn clean_up_launch_templates(&self) -> Result<(), AwsError> {
        self.templates.clean_up().await
    }

    /// Fetches on-demand and spot prices, each independently. Cadence: at start and every 12 hours.
    pub async fn refresh_pricing(&self) -> Result<(), AwsError> {
        let on_demand = async {
            if self.settings.isolated_vpc || self.clients.region.starts_with("us-gov-") {
                return Ok(());
            }
            self.pricing.refresh_on_demand(&self.clients.pricing).await
        };
        let spot = self.pricing.refresh_spot(&self.clients.ec2, self.clock.now());
        let (on_demand, spot) = futures::join!(on_demand, spot);
        on_demand.and(spot)
    }

    /// Reads the catalogue of instance types and offerings anew. Cadence: 12 hours; start-up has done it once.
    pub async fn refresh_instance_types(&self) -> Result<(), AwsError> {
        self.resolver.refresh(&self.clients.ec2).await
    }

    /// Drops cached SSM parameters whose image has been deprecated meanwhile. Cadence: 30 minutes.
    pub async fn refresh_parameters(&self) -> Result<(), AwsError> {
        self.images.invalidate_deprecated(self.clock.now()).await
    }

    /// Looks up everything a node class selects, keeps its instance profile, and checks whether instances could be
    /// launched from it. The answer holds the whole new status.
    pub async fn resolve_node_class(
        &self,
        node_class: &Ec2NodeClass,
        context: &NodeClassContext,
    ) -> NodeClassResolution {
        node_class::resolve(self, node_class, context).await
    }

    /// Removes what was made for a node class: instance profiles and launch templates (spec §1.8). The caller has made
    /// sure that no NodeClaim uses it, and removes the finalizer afterwards.
    pub async fn finalize_node_class(&self, node_class: &Ec2NodeClass) -> Result<(), AwsError> {
        let class = ResolvedNodeClass::new(node_class);
        if !self.settings.isolated_vpc {
            self.profiles.delete_all_of(class.uid).await?;
        }
        self.profiles.delete_legacy(class.name).await?;
        self.templates.delete_all_of(class.name).await?;
        self.validations.forget(class.name);
        Ok(())
    }

    /// Deletes instance profiles that no class and no NodeClaim uses: `in_use` are the names in statuses and in the
    /// annotation `karpenter.k8s.aws/instance-profile-name`. Answers what was deleted. Cadence: 30 minutes.
    pub async fn collect_instance_profiles(&self, in_use: &BTreeSet<String>) -> Result<Vec<String>, AwsError> {
        if self.settings.isolated_vpc { Ok(Vec::new()) } else { self.profiles.collect(in_use).await }
    }

    /// Whether there is a queue to receive from.
    pub fn has_interruption_queue(&self) -> bool {
        self.queue.is_some()
    }

    /// Waits up to 20 seconds for interruption messages. Without a queue it answers at once that there are none.
    pub async fn receive_interruptions(&self) -> Result<Vec<QueueMessage>, AwsError> {
        match &self.queue {
            Some(queue) => queue.receive().await,
            None => Ok(Vec::new()),
        }
    }

    /// Deletes a handled message; without this it comes again after 20 seconds.
    pub async fn delete_message(&self, message: &QueueMessage) -> Result<(), AwsError> {
        match &self.queue {
            Some(queue) => queue.delete(&message.receipt).await,
            None => Ok(()),
        }
    }

    /// Hides an offering for three minutes, as after a spot interruption.
    pub fn mark_unavailable(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.unavailable.mark(instance_type, zone, capacity_type);
    }

    /// Instances that AWS reports as impaired or scheduled for maintenance. Cadence: 1 minute.
    pub async fn describe_instance_status(&self) -> Result<Vec<UnhealthyInstance>, AwsError> {
        self.instances.unhealthy(self.clock.now()).await
    }

    /// Puts those of `tags` on the instance whose keys it does not carry yet. Reads the instance afresh.
    pub async fn tag_instance(&self, provider_id: &str, tags: &BTreeMap<String, String>) -> Result<(), CloudError> {
        let id = instance_id(provider_id).ok_or_else(|| CloudError::NotFound(provider_id.to_owned()))?;
        self.instances.tag(id, tags).await.map_err(|error| cloud_error("tagging instance", id, error))
    }

    /// Learns the real memory of a type from a registered node: `memory` is `node.status.capacity.memory`, `image_id` the
    /// NodeClaim's. Only less than what is believed counts, and only while the class still uses the image.
    pub fn record_memory(&self, node_class: &Ec2NodeClass, instance_type: &str, image_id: &str, memory: Quantity) {
        self.resolver.record_memory(&ResolvedNodeClass::new(node_class), instance_type, image_id, memory);
    }

    /// How many launches failed since start-up, for `cloudprovider_instance_launch_failures_total`.
    pub fn launch_failures(&self) -> Vec<(crate::LaunchFailure, u64)> {
        self.launch_failures.counts()
    }

    /// The instance behind `provider_id`, read afresh.
    pub async fn describe_instance(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let id = instance_id(provider_id).ok_or_else(|| CloudError::NotFound(provider_id.to_owned()))?;
        let instance = self.instances.get(id).await.map_err(|error| cloud_error("getting instance", id, error))?;
        Ok((*instance).clone())
    }

    pub(crate) fn types_of(&self, class: &ResolvedNodeClass<'_>) -> Result<Vec<Arc<InstanceType>>, CloudError> {
        let types = self.resolver.instance_types(class, &self.pricing, &self.unavailable);
        types.map_err(|error| CloudError::Other {
            context: format!("resolving instance types of node class {}", class.name),
            source: Box::new(error),
        })
    }

    /// The NodeClaim that describes a running instance (spec §4.5), as far as the instance alone tells.
    fn describe_as_claim(&self, instance: &Instance) -> NodeClaim {
        let mut claim = NodeClaim::new("", Default::default());
        claim.metadata.name = instance.tags.get("karpenter.sh/nodeclaim").cloned();
        claim.metadata.creation_timestamp =
            instance.launch_time.map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
        if instance.is_terminating() {
            let now = self.clock.now();
            claim.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        }
        let mut labels = self.resolver.labels_of(&instance.instance_type);
        labels.insert(labels::ZONE_LABEL.to_owned(), instance.zone.clone());
        if !instance.zone_id.is_empty() {
            labels.insert(labels::ZONE_ID_LABEL.to_owned(), instance.zone_id.clone());
        }
        labels.insert(labels::CAPACITY_TYPE_LABEL.to_owned(), instance.capacity_type.as_str().to_owned());
        labels.insert(labels::INSTANCE_TENANCY_LABEL.to_owned(), instance.tenancy.clone());
        for key in [labels::NODE_POOL_LABEL, labels::NODE_CLASS_LABEL] {
            if let Some(value) = instance.tags.get(key) {
                labels.insert(key.to_owned(), value.clone());
            }
        }
        claim.metadata.labels = Some(labels);
        claim.status = Some(controller_api::NodeClaimStatus {
            provider_id: provider_id(&instance.zone, &instance.id),
            image_id: instance.image_id.clone(),
            ..Default::default()
        });
        claim
    }
}

#[async_trait]
impl CloudProvider for AwsCloud {
    async fn create(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<NodeClaim, CloudError> {
        Launcher { cloud: self, class: ResolvedNodeClass::new(node_class), node_class, claim }.launch().await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let provider_id = claim.status.as_ref().map(|status| status.provider_id.as_str()).unwrap_or_default();
        let id = instance_id(provider_id).ok_or_else(|| CloudError::NotFound(provider_id.to_owned()))?;
        let instance = self.instances.get(id).await.map_err(|error| cloud_error("getting instance", id, error))?;
        if instance.is_terminating() {
            return Ok(());
        }
        self.instances.terminate(id).await.map_err(|error| cloud_error("terminating instance", id, error))
    }

    async fn get(&self, provider_id: &str) -> Result<NodeClaim, CloudError> {
        Ok(self.describe_as_claim(&self.describe_instance(provider_id).await?))
    }

    async fn list(&self) -> Result<Vec<NodeClaim>, CloudError> {
        let instances = self
            .instances
            .list()
            .await
            .map_err(|error| CloudError::Other { context: "listing instances".to_owned(), source: Box::new(error) })?;
        Ok(instances.iter().map(|instance| self.describe_as_claim(instance)).collect())
    }

    async fn instance_types(
        &self,
        _pool: &NodePool,
        node_class: &Ec2NodeClass,
    ) -> Result<Vec<Arc<InstanceType>>, CloudError> {
        self.types_of(&ResolvedNodeClass::new(node_class))
    }

    async fn drift_reason(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<Option<String>, CloudError> {
        if let Some(reason) = drift::static_drift(claim, node_class) {
            return Ok(Some(reason.to_owned()));
        }
        let class = ResolvedNodeClass::new(node_class);
        let types = self.types_of(&class)?;
        let undecided = |problem: String| CloudError::Other {
            context: format!("deciding on drift of nodeclaim {}", claim.metadata.name.as_deref().unwrap_or_default()),
            source: problem.into(),
        };
        if let Some(reason) = drift::image_drift(claim, &class, &types).map_err(undecided)? {
            return Ok(Some(reason.to_owned()));
        }
        let provider_id = claim.status.as_ref().map(|status| status.provider_id.as_str()).unwrap_or_default();
        let id = instance_id(provider_id).ok_or_else(|| CloudError::NotFound(provider_id.to_owned()))?;
        let instance =
            self.instances.get_cached(id).await.map_err(|error| cloud_error("getting instance", id, error))?;
        Ok(drift::network_drift(&class, &instance).map_err(undecided)?.map(str::to_owned))
    }
}

/// The error contract: an instance that is not found is gone, all else is retried.
pub(crate) fn cloud_error(doing: &str, id: &str, error: AwsError) -> CloudError {
    if error.is_not_found() {
        return CloudError::NotFound(format!("{doing} {id}: {error}"));
    }
    CloudError::Other { context: format!("{doing} {id}"), source: Box::new(error) }
}

async fn check_connectivity(clients: &Clients) -> Result<(), StartError> {
    let probe = clients.ec2.describe_instance_types().dry_run(true).send().await;
    match probe.map_err(|error| AwsError::new("EC2", "DescribeInstanceTypes", error)) {
        Err(error) if error.meaning() != Meaning::DryRunPassed => Err(StartError::Connectivity(error)),
        _ => Ok(()),
    }
}

/// Asks EKS about the cluster.
pub(crate) async fn describe_cluster(clients: &Clients, name: &str) -> Result<aws_sdk_eks::types::Cluster, AwsError> {
    let answer = clients.eks.describe_cluster().name(name).send().await;
    let answer = answer.map_err(|error| AwsError::new("EKS", "DescribeCluster", error))?;
    answer
        .cluster
        .ok_or_else(|| AwsError::of_answer("EKS", "DescribeCluster", "NoCluster", "the answer names no cluster"))
}

/// `1.36` of `v1.36.2-eks-abc`.
fn minor_version(version: &str) -> String {
    let mut parts = version.trim_start_matches('v').split('.');
    let digits =
        |part: Option<&str>| -> String { part.unwrap_or_default().chars().take_while(char::is_ascii_digit).collect() };
    format!("{}.{}", digits(parts.next()), digits(parts.next()))
}

#[cfg(test)]
mod tests {
    use super::minor_version;

    #[test]
    fn versions_are_cut_to_their_minor() {
        for (version, expected) in [("1.36", "1.36"), ("v1.36.2", "1.36"), ("v1.34+", "1.34"), ("1.35.0-eks-1", "1.35")]
        {
            assert_eq!(minor_version(version), expected, "{version}");
        }
    }
}
