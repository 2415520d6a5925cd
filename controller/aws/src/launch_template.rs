//! Launch templates: what they contain (pure), and that each exists exactly while it is used (spec §4.3).
//!
//! A template's name is a hash of its content, so equal launches share one and a change makes another. One that is not used
//! for a minute is deleted; templates of an earlier process are found again by their tag.

use crate::cache::Cache;
use crate::error::AwsError;
use crate::instances::filter;
use crate::resolved::{ResolvedNodeClass, volume_size};
use aws_sdk_ec2::types::{
    CapacityReservationPreference, ConnectionTrackingSpecificationRequest, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCapacityReservationSpecificationRequest, LaunchTemplateCpuOptionsRequest,
    LaunchTemplateEbsBlockDeviceRequest, LaunchTemplateEnclaveOptionsRequest, LaunchTemplateHttpTokensState,
    LaunchTemplateIamInstanceProfileSpecificationRequest, LaunchTemplateInstanceMetadataEndpointState,
    LaunchTemplateInstanceMetadataOptionsRequest, LaunchTemplateInstanceMetadataProtocolIpv6,
    LaunchTemplateInstanceMetadataTagsState, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
    LaunchTemplatePlacementRequest, LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest,
    NestedVirtualizationSpecification, RequestLaunchTemplateData, ResourceType, Tag, TagSpecification, Tenancy,
    VolumeType,
};
use controller_api::{BlockDeviceMapping, ConnectionTracking, InterfaceType, MetadataOptions};
use controller_clock::Clock;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a template is kept after its last use.
const LIFETIME: Duration = Duration::from_secs(60);
/// Templates known. EC2 allows 5,000 in a region; more than this in use within a minute would mean a runaway.
const TEMPLATES: usize = 5_000;

/// Everything that decides a template's content. Two equal ones are one template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(crate) image_id: String,
    /// Not yet in base64.
    pub(crate) user_data: String,
    pub(crate) instance_profile: String,
    pub(crate) detailed_monitoring: bool,
    pub(crate) block_devices: Vec<BlockDeviceMapping>,
    pub(crate) nested_virtualization: Option<String>,
    pub(crate) metadata_options: MetadataOptions,
    pub(crate) network_interfaces: Vec<Interface>,
    pub(crate) tenancy: String,
    pub(crate) enclaves: bool,
    /// Whether launches must stay out of capacity reservations; nothing is said about them otherwise.
    pub(crate) avoid_reservations: bool,
    /// Tags for the resources that a fleet request cannot tag.
    pub(crate) tags: BTreeMap<String, String>,
    /// Whether spot requests are among those resources.
    pub(crate) spot: bool,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Interface {
    pub(crate) card: Option<i32>,
    pub(crate) device: i32,
    pub(crate) kind: Option<&'static str>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) associate_public_ip: Option<bool>,
    pub(crate) ipv4_prefixes: Option<i32>,
    pub(crate) ipv6_prefixes: Option<i32>,
    pub(crate) ipv6: bool,
    pub(crate) connection_tracking: Option<ConnectionTracking>,
}

/// The interfaces of an instance of `class` with `efas` elastic fabric adapters asked for by pods.
pub(crate) fn interfaces(class: &ResolvedNodeClass<'_>, efas: u32, ipv6: bool) -> Vec<Interface> {
    let security_groups: Vec<String> = class.status.security_groups.iter().map(|group| group.id.clone()).collect();
    let prefixes = class.spec.ip_prefix_count;
    let plain = Interface {
        security_groups: security_groups.clone(),
        associate_public_ip: class.spec.associate_public_ip_address,
        ipv4_prefixes: prefixes.filter(|_| !ipv6),
        ipv6_prefixes: prefixes.filter(|_| ipv6),
        ipv6,
        connection_tracking: class.spec.connection_tracking.clone(),
        ..Interface::default()
    };
    let own = class.spec.network_interfaces.as_deref().unwrap_or_default();
    if !own.is_empty() {
        let interface = |own: &controller_api::NetworkInterface| {
            let base = match own.interface_type {
                InterfaceType::EfaOnly => {
                    Interface { security_groups: security_groups.clone(), ..Interface::default() }
                }
                InterfaceType::Interface => plain.clone(),
            };
            let (card, kind) = (Some(own.network_card_index), Some(own.interface_type.as_str()));
            Interface { card, device: own.device_index, kind, ..base }
        };
        return own.iter().map(interface).collect();
    }
    if efas > 0 {
        let interface = |index: u32| {
            let (card, device) = (i32::try_from(index).ok(), i32::from(index > 0));
            Interface { card, device, kind: Some("efa"), ..plain.clone() }
        };
        return (0..efas).map(interface).collect();
    }
    vec![plain]
}

impl Template {
    /// The name: a number that follows from the content.
    pub(crate) fn name(&self) -> String {
        let digest = Sha256::digest(format!("{self:?}"));
        let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("karpenter.k8s.aws/{number}")
    }

    /// The content as EC2 wants it.
    pub(crate) fn to_data(&self) -> RequestLaunchTemplateData {
        let nested = self.nested_virtualization.as_deref().map(|value| {
            LaunchTemplateCpuOptionsRequest::builder()
                .nested_virtualization(NestedVirtualizationSpecification::from(value))
                .build()
        });
        let avoid = self.avoid_reservations.then(|| {
            LaunchTemplateCapacityReservationSpecificationRequest::builder()
                .capacity_reservation_preference(CapacityReservationPreference::None)
                .build()
        });
        let mut tagged = vec![ResourceType::NetworkInterface];
        tagged.extend(self.spot.then_some(ResourceType::SpotInstancesRequest));
        let tags = tagged.into_iter().map(|kind| {
            LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(kind)
                .set_tags(Some(sdk_tags(&self.tags)))
                .build()
        });
        let devices: Vec<_> = self.block_devices.iter().map(block_device).collect();
        RequestLaunchTemplateData::builder()
            .image_id(&self.image_id)
            .user_data(crate::user_data::encode(&self.user_data))
            .iam_instance_profile(
                LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(&self.instance_profile).build(),
            )
            .monitoring(LaunchTemplatesMonitoringRequest::builder().enabled(self.detailed_monitoring).build())
            .set_block_device_mappings((!devices.is_empty()).then_some(devices))
            .set_cpu_options(nested)
            .metadata_options(metadata_options(&self.metadata_options))
            .set_network_interfaces(Some(self.network_interfaces.iter().map(network_interface).collect()))
            .placement(LaunchTemplatePlacementRequest::builder().tenancy(Tenancy::from(self.tenancy.as_str())).build())
            .enclave_options(LaunchTemplateEnclaveOptionsRequest::builder().enabled(self.enclaves).build())
            .set_capacity_reservation_specification(avoid)
            .set_tag_specifications(Some(tags.collect()))
            .build()
    }
}

/// Tags as the SDK has them.
pub(crate) fn sdk_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

fn block_device(mapping: &BlockDeviceMapping) -> LaunchTemplateBlockDeviceMappingRequest {
    let ebs = mapping.ebs.as_ref().map(|ebs| {
        let number = |value: Option<i64>| value.and_then(|value| i32::try_from(value).ok());
        LaunchTemplateEbsBlockDeviceRequest::builder()
            .set_delete_on_termination(ebs.delete_on_termination)
            .set_encrypted(ebs.encrypted)
            .set_volume_type(ebs.volume_type.as_deref().map(VolumeType::from))
            .set_iops(number(ebs.iops))
            .set_throughput(number(ebs.throughput).filter(|throughput| *throughput != 0))
            .set_kms_key_id(ebs.kms_key_id.clone())
            .set_snapshot_id(ebs.snapshot_id.clone())
            .set_volume_initialization_rate(ebs.volume_initialization_rate)
            .set_volume_size(volume_size(mapping).and_then(|size| {
                const GIB: i128 = 1 << 30;
                i32::try_from((size.value() + GIB - 1) / GIB).ok()
            }))
            .build()
    });
    LaunchTemplateBlockDeviceMappingRequest::builder().set_device_name(mapping.device_name.clone()).set_ebs(ebs).build()
}

fn metadata_options(options: &MetadataOptions) -> LaunchTemplateInstanceMetadataOptionsRequest {
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::from(options.http_endpoint.as_str()))
        .set_http_protocol_ipv6(
            (!options.http_protocol_ipv6.is_empty())
                .then(|| LaunchTemplateInstanceMetadataProtocolIpv6::from(options.http_protocol_ipv6.as_str())),
        )
        .set_http_put_response_hop_limit(i32::try_from(options.http_put_response_hop_limit).ok())
        .http_tokens(LaunchTemplateHttpTokensState::from(options.http_tokens.as_str()))
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn network_interface(interface: &Interface) -> LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let tracking = interface.connection_tracking.as_ref().map(|tracking| {
        ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tracking.tcp_established_timeout)
            .set_udp_stream_timeout(tracking.udp_stream_timeout)
            .set_udp_timeout(tracking.udp_timeout)
            .build()
    });
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(interface.card)
        .device_index(interface.device)
        .set_interface_type(interface.kind.map(str::to_owned))
        .set_groups(Some(interface.security_groups.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip)
        .set_ipv4_prefix_count(interface.ipv4_prefixes)
        .set_ipv6_prefix_count(interface.ipv6_prefixes)
        .set_primary_ipv6(interface.ipv6.then_some(true))
        .set_ipv6_address_count(interface.ipv6.then_some(1))
        .set_connection_tracking_specification(tracking)
        .build()
}

/// Creates, remembers and deletes templates.
#[derive(Debug)]
pub(crate) struct LaunchTemplates {
    client: aws_sdk_ec2::Client,
    cluster_name: String,
    /// Ids by name; each use extends the entry, and what expires is deleted.
    known: Cache<String, String>,
    /// One at a time: two launches with one content must not create it twice, nor clean-up delete what is being ensured.
    gate: tokio::sync::Mutex<()>,
}

impl LaunchTemplates {
    pub(crate) fn new(client: aws_sdk_ec2::Client, cluster_name: &str, clock: Clock) -> Self {
        Self {
            client,
            cluster_name: cluster_name.to_owned(),
            known: Cache::new(clock, LIFETIME, TEMPLATES),
            gate: tokio::sync::Mutex::default(),
        }
    }

    /// Sees to it that the template exists; answers its name.
    pub(crate) async fn ensure(&self, template: &Template) -> Result<String, AwsError> {
        let name = template.name();
        // One that is known need not wait until others are made or deleted: clean-up takes only what has expired.
        if self.known.get_and_extend(&name).is_some() {
            return Ok(name);
        }
        let _gate = self.gate.lock().await;
        // Another launch may have made it meanwhile.
        if self.known.get_and_extend(&name).is_some() {
            return Ok(name);
        }
        let id = match self.find(&name).await? {
            Some(id) => id,
            None => self.create(&name, template).await?,
        };
        self.known.insert(name.clone(), id);
        Ok(name)
    }

    /// Forgets a template that EC2 says is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.known.remove(&name.to_owned());
    }

    async fn find(&self, name: &str) -> Result<Option<String>, AwsError> {
        match self.client.describe_launch_templates().launch_template_names(name).send().await {
            Ok(answer) => {
                let id = answer.launch_templates().first().and_then(|found| found.launch_template_id());
                tracing::debug!(launch_template_name = name, "discovered launch template");
                Ok(id.map(str::to_owned))
            }
            Err(error) => match AwsError::new("EC2", "DescribeLaunchTemplates", error) {
                error if error.is_not_found() => Ok(None),
                error => Err(error),
            },
        }
    }

    async fn create(&self, name: &str, template: &Template) -> Result<String, AwsError> {
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(sdk_tags(&template.tags)))
            .build();
        let request = self.client.create_launch_template().launch_template_name(name);
        let request = request.launch_template_data(template.to_data()).tag_specifications(tags);
        let answer = request.send().await.map_err(|error| AwsError::new("EC2", "CreateLaunchTemplate", error))?;
        let id = answer.launch_template().and_then(|created| created.launch_template_id()).unwrap_or_default();
        tracing::debug!(launch_template_name = name, id, "created launch template");
        Ok(id.to_owned())
    }

    /// Takes this cluster's templates into the memory, so that unused ones are cleaned up.
    pub(crate) async fn hydrate(&self) -> Result<(), AwsError> {
        let _gate = self.gate.lock().await;
        for (name, id) in self.list(None).await? {
            if self.known.get(&name).is_none() {
                tracing::debug!(launch_template_name = name, "hydrated launch template cache");
                self.known.insert(name, id);
            }
        }
        Ok(())
    }

    /// Deletes the templates that have not been used for a while. One that cannot be deleted is tried again later.
    pub(crate) async fn clean_up(&self) -> Result<(), AwsError> {
        let mut outcome = Ok(());
        loop {
            // Gone through for each template: after a take-over there may be hundreds, and launches wait at the gate.
            let _gate = self.gate.lock().await;
            let Some((name, id)) = self.known.take_expired() else { return outcome };
            let deleted = self.client.delete_launch_template().launch_template_id(&id).send().await;
            match deleted.map_err(|error| AwsError::new("EC2", "DeleteLaunchTemplate", error)) {
                Err(error) if !error.is_not_found() => {
                    self.known.insert(name, id);
                    outcome = Err(error);
                }
                _ => tracing::debug!(launch_template_name = name, id, "deleted launch template"),
            }
        }
    }

    /// Deletes every template of a class, by name.
    pub(crate) async fn delete_all_of(&self, class: &str) -> Result<(), AwsError> {
        let _gate = self.gate.lock().await;
        for (name, _) in self.list(Some(class)).await? {
            let deleted = self.client.delete_launch_template().launch_template_name(&name).send().await;
            deleted.map_err(|error| AwsError::new("EC2", "DeleteLaunchTemplate", error))?;
            self.known.remove(&name);
            tracing::debug!(launch_template_name = name, "deleted launch template");
        }
        Ok(())
    }

    /// Names and ids of the cluster's templates, or of one class's.
    async fn list(&self, class: Option<&str>) -> Result<Vec<(String, String)>, AwsError> {
        let mut filters = vec![filter(&format!("tag:{}", crate::CLUSTER_NAME_TAG), &[&self.cluster_name])];
        let of_class = format!("tag:{}", controller_api::labels::NODE_CLASS_LABEL);
        filters.extend(class.map(|class| filter(&of_class, &[class])));
        let request = self.client.describe_launch_templates().set_filters(Some(filters)).max_results(200);
        let found = request.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let found = found.map_err(|error| AwsError::new("EC2", "DescribeLaunchTemplates", error))?;
        let named = found.iter().filter_map(|template| {
            Some((template.launch_template_name()?.to_owned(), template.launch_template_id()?.to_owned()))
        });
        Ok(named.collect())
    }
}
