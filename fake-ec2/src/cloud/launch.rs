//! One launch: check what was asked, take capacity and addresses, and bring instances into being.

use super::capacity::CapacityType;
use super::catalogue::{InstanceType, Offering};
use super::facts::Facts;
use super::instance::{Instance, InstanceProfileReference, NetworkInterface, State, TemplateUse, Volume};
use super::launch_template::{BlockDevice, LaunchSpecification, NetworkInterfaceSpecification};
use super::network::Subnet;
use super::spot_request::{SpotRequest, SpotState};
use super::volume::check_device;
use super::{Cloud, after, check_id, launch_options, tags};
use crate::error::ApiError;
use jiff::Timestamp;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The largest user data, decoded.
// fidelity: documented(EC2 User Guide, Run commands at launch: user data is limited to 16 KB)
const MAX_USER_DATA: usize = 16_384;
/// Running instances of a spread placement group per zone.
// fidelity: documented(EC2 User Guide, Spread placement groups: seven per zone)
const SPREAD_LIMIT: usize = 7;

/// A launch that has been merged from template, override and request.
#[derive(Clone, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) specification: &'a Arc<LaunchSpecification>,
    pub(crate) capacity_type: CapacityType,
    pub(crate) template: Option<&'a TemplateUse>,
    pub(crate) fleet_id: Option<&'a str>,
    pub(crate) client_token: Option<&'a str>,
    /// The request it fulfils, if there is one already.
    pub(crate) spot_request: Option<&'a str>,
    pub(crate) count: u32,
    /// With fewer, nothing is launched at all.
    pub(crate) minimum: u32,
}

impl<'a> Launch<'a> {
    /// An on-demand launch of up to this many that comes from nowhere in particular.
    pub(crate) fn of(specification: &'a Arc<LaunchSpecification>, count: u32) -> Self {
        Self {
            specification,
            capacity_type: CapacityType::OnDemand,
            template: None,
            fleet_id: None,
            client_token: None,
            spot_request: None,
            count,
            minimum: 0,
        }
    }
}

/// The placement group (id and name) a launch joins, and its partition.
type Placed = (Option<(String, String)>, Option<u32>);

/// What a specification refers to, looked up.
pub(crate) struct Checked<'a> {
    pub(crate) offering: &'a Offering,
    pub(crate) subnet: &'a Subnet,
    image: &'a super::image::Image,
    groups: Vec<(String, String)>,
    profile: Option<InstanceProfileReference>,
}

impl Cloud {
    /// Refuses what EC2 would refuse before it looks for capacity.
    // fidelity: documented(EC2 API Reference, Error codes); the sentences as commonly seen.
    pub(crate) fn check_launch(&self, specification: &LaunchSpecification) -> Result<Checked<'_>, ApiError> {
        check_user_data(specification.user_data.as_deref())?;
        let asked = specification.image_id.as_deref().ok_or_else(|| ApiError::missing("ImageId"))?;
        let resolved = self.resolved_image(asked);
        let image_id = resolved.as_deref().unwrap_or(asked);
        check_id(image_id, "ami", "InvalidAMIID.Malformed")?;
        let image = self.images.launchable(image_id)?;
        let name = specification.instance_type.as_deref().unwrap_or("m1.small");
        let offering = self
            .catalogue
            .offering(name)
            .ok_or_else(|| ApiError::invalid_value(format!("Invalid value '{name}' for InstanceType.")))?;
        let own = offering.instance_type;
        if !own.runs(&image.architecture) {
            return Err(ApiError::invalid_value(format!(
                "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified \
                 AMI. Specify an instance type and an AMI that have matching architectures, and try again.",
                own.architectures, image.architecture
            )));
        }
        let subnet = self.launch_subnet(specification)?;
        self.check_options(specification, own, subnet)?;
        if !specification.block_devices.is_empty() {
            // Of what a mapping leaves out the image decides.
            image.devices(&specification.block_devices).iter().try_for_each(check_device)?;
        }
        let groups = self.launch_groups(specification, subnet)?;
        let profile = self.launch_profile(specification)?;
        if !offering.zones.contains(&subnet.zone.as_str()) {
            return Err(ApiError::client(
                "Unsupported",
                format!(
                    "Your requested instance type ({name}) is not supported in your requested Availability Zone ({}). Please retry \
                 your request by not specifying an Availability Zone or choosing {}.",
                    subnet.zone,
                    offering.zones.join(", ")
                ),
            ));
        }
        Ok(Checked { offering, subnet, image, groups, profile })
    }

    /// The image behind `resolve:ssm:name`, `resolve:ssm:name:version` or `resolve:ssm:name:label`.
    // fidelity: documented(EC2 User Guide, Use a Systems Manager parameter instead of an AMI ID); assumed: there is one
    // version of each parameter here, so that a version or label changes nothing.
    pub(crate) fn resolved_image(&self, image: &str) -> Option<String> {
        let name = image.strip_prefix("resolve:ssm:")?;
        let name = name.split_once(':').map_or(name, |(name, _)| name);
        self.images.parameters.get(name).map(|parameter| parameter.value.clone())
    }

    /// Launches up to `launch.count` instances into one pool; answers those it could and, if they are fewer, why. Below
    /// `launch.minimum` it leaves nothing behind.
    pub(crate) fn launch(&mut self, now: Timestamp, launch: &Launch<'_>) -> (Vec<String>, Option<ApiError>) {
        let (mut ids, error) = self.prepare(now, launch);
        if ids.len() < launch.minimum as usize {
            ids.drain(..).for_each(|id| self.unmake(&id));
        }
        self.begin(now, &ids);
        (ids, error)
    }

    /// Makes instances that nobody has heard of yet: whoever asked goes on with [`Self::begin`] or [`Self::unmake`].
    pub(super) fn prepare(&mut self, now: Timestamp, launch: &Launch<'_>) -> (Vec<String>, Option<ApiError>) {
        let mut ids = Vec::new();
        let reservation = self.ids.resource("r");
        for index in 0..launch.count {
            match self.make(now, launch, &reservation, index) {
                Ok(id) => ids.push(id),
                Err(error) => return (ids, Some(error)),
            }
        }
        (ids, None)
    }

    /// Lets prepared instances begin their lives.
    pub(super) fn begin(&mut self, now: Timestamp, ids: &[String]) {
        ids.iter().for_each(|id| self.enter(now, id, State::Pending, None));
    }

    /// Takes a prepared instance back with everything it holds.
    pub(super) fn unmake(&mut self, id: &str) {
        self.relinquish(id);
        let Some(instance) = self.instances.remove(id) else { return };
        for volume in &instance.volumes {
            self.parts.remove(&volume.id);
        }
        if let Some(request) = instance.spot_request_id {
            self.spot_requests.remove(&request);
        }
    }

    fn make(
        &mut self,
        now: Timestamp,
        launch: &Launch<'_>,
        reservation_id: &str,
        index: u32,
    ) -> Result<String, ApiError> {
        let specification = launch.specification;
        let Checked { offering, subnet, image, groups, profile } = self.check_launch(specification)?;
        let own = offering.instance_type;
        let (subnet_id, vpc_id, zone, zone_id) =
            (subnet.id.clone(), subnet.vpc_id.clone(), subnet.zone.clone(), subnet.zone_id.clone());
        let (image_id, architecture) = (image.id.clone(), image.architecture.clone());
        let devices = image.devices(&specification.block_devices);
        let platform = super::reservation::platform_of(image);
        let metadata = launch_options::metadata(&specification.metadata, image);
        check_sold(own, launch.capacity_type)?;
        self.check_price(specification, own.name, &zone, launch.capacity_type)?;
        self.check_vcpus(own, launch.capacity_type)?;
        let reservation =
            self.matching_reservation(specification, (own.name, &zone, platform), launch.capacity_type)?;
        if reservation.is_none() {
            self.check_capacity(own.name, &zone, launch.capacity_type)?;
        }
        let (placement_group, partition) = self.place(specification, own, &zone)?;
        let interfaces = effective_interfaces(specification);
        let named_by_id = launch_options::is_named_by_id(specification, &self.network.subnets[&subnet_id]);
        self.check_interfaces(interfaces.len())?;
        let prefixes: u32 = interfaces.iter().map(|interface| interface.ipv4_prefix_count * 16).sum();
        let tags = self.launch_tags(launch)?;
        // Nothing is taken before this point, so that a refused launch leaves no trace.
        let network_interfaces = self.take_interfaces(&subnet_id, &interfaces, prefixes, &groups, specification)?;
        match reservation.as_ref().and_then(|id| self.reservations.get_mut(id)) {
            Some(reservation) => reservation.available -= 1,
            None => self.capacity.take(own.name, &zone, launch.capacity_type),
        }
        let id = self.ids.resource("i");
        let spot_request_id =
            (launch.capacity_type == CapacityType::Spot).then(|| self.fulfilled_request(now, launch, &id, &zone));
        let volumes = self.create_volumes(now, specification, devices);
        let private_ip = network_interfaces[0].private_ip;
        let instance = Instance {
            id: id.clone(),
            reservation_id: reservation_id.into(),
            fleet_id: launch.fleet_id.map(Into::into),
            image_id,
            architecture,
            instance_type: own.name,
            vcpus: own.vcpus,
            hypervisor: own.hypervisor,
            capacity_type: launch.capacity_type,
            state: State::Pending,
            state_since: now,
            state_reason: None,
            transition_reason: String::new(),
            launched_at: now,
            visible_at: after(now, self.config.consistency_delay),
            vpc_id,
            subnet_id,
            zone,
            zone_id,
            tenancy: specification.tenancy.clone().unwrap_or_else(|| "default".into()),
            private_ip,
            private_dns_name: match named_by_id {
                true => format!("{id}.{}", private_domain(&self.config.region)),
                false => private_dns_name(private_ip, &self.config.region),
            },
            security_groups: network_interfaces[0].security_groups.clone(),
            network_interfaces,
            volumes,
            profile,
            user_data: specification.user_data.clone(),
            metadata,
            monitoring: specification.monitoring.unwrap_or(false),
            ebs_optimized: specification.ebs_optimized.unwrap_or(false),
            disable_api_termination: specification.disable_api_termination.unwrap_or(false),
            disable_api_stop: specification.disable_api_stop.unwrap_or(false),
            shutdown_behavior: specification.shutdown_behavior.clone().unwrap_or_else(|| "stop".into()),
            source_dest_check: true,
            cpu_credits: cpu_credits(specification, own),
            key_name: specification.key_name.clone(),
            client_token: launch.client_token.map(Into::into),
            launch_template: launch.template.cloned(),
            spot_request_id,
            reclaim_at: None,
            capacity_reservation_preference: specification.reservation_preference.clone(),
            capacity_reservation_id: reservation,
            placement_group,
            partition,
            tags,
            instance_impaired_since: None,
            system_impaired_since: None,
            scheduled_events: Vec::new(),
            holds_capacity: true,
            launch_index: index,
            reserved_addresses: prefixes,
            specification: Arc::clone(specification),
        };
        self.instances.insert(id.clone(), instance);
        self.index_parts(&id);
        Ok(id)
    }

    /// The spot request of a new instance: the one it fulfils, or one of its own.
    fn fulfilled_request(&mut self, now: Timestamp, launch: &Launch<'_>, instance: &str, zone: &str) -> String {
        if let Some(request) = launch.spot_request.and_then(|id| self.spot_requests.get_mut(id)) {
            request.state = SpotState::Active;
            request.status = "fulfilled".into();
            request.updated_at = now;
            (request.instance_id, request.launched_zone) = (Some(instance.into()), Some(zone.into()));
            return request.id.clone();
        }
        let id = self.spot_request_id();
        let specification = launch.specification;
        let spot = &specification.spot;
        let request = SpotRequest {
            id: id.clone(),
            persistent: spot.request_type.as_deref() == Some("persistent"),
            state: SpotState::Active,
            status: "fulfilled".into(),
            updated_at: now,
            created_at: now,
            instance_id: Some(instance.into()),
            launched_zone: Some(zone.into()),
            max_price: spot.max_price.clone(),
            valid_from: None,
            valid_until: spot.valid_until,
            interruption_behavior: spot.interruption_behavior.clone().unwrap_or_else(|| "terminate".into()),
            launch_group: None,
            zone_group: None,
            fault: None,
            tags: specification.tags.get("spot-instances-request").cloned().unwrap_or_default(),
            specification: Arc::clone(specification),
        };
        self.spot_requests.insert(id.clone(), request);
        id
    }

    fn launch_subnet(&self, specification: &LaunchSpecification) -> Result<&Subnet, ApiError> {
        let Some(id) = specification.primary_subnet() else {
            return self.default_subnet(specification.zone.as_deref());
        };
        let subnet = self.network.subnet(id)?;
        match specification.zone.as_deref() {
            Some(zone) if zone != subnet.zone => Err(ApiError::invalid_value(format!(
                "The specified subnet {id} is not in the Availability Zone {zone}."
            ))),
            _ => Ok(subnet),
        }
    }

    /// Where a launch goes that names no subnet: the default subnet of its zone, or of the first one.
    // fidelity: documented(EC2 API Reference, RunInstances: SubnetId, Placement; EC2 chooses the zone, here always the first)
    fn default_subnet(&self, zone: Option<&str>) -> Result<&Subnet, ApiError> {
        let Some(vpc) = self.network.default_vpc() else {
            return Err(ApiError::client(
                "VPCIdNotSpecified",
                "No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.",
            ));
        };
        let of_default = |subnet: &&Subnet| subnet.vpc_id == vpc.id && subnet.default_for_zone;
        let in_zone = |subnet: &&Subnet| zone.is_none_or(|zone| zone == subnet.zone);
        let subnets = self.network.subnets.values().filter(of_default).filter(in_zone);
        subnets.min_by(|a, b| a.zone.cmp(&b.zone)).ok_or_else(|| {
            // fidelity: assumed: MissingInput and its sentences, as commonly seen
            let message = match zone {
                Some(zone) => format!("No default subnet for availability zone: '{zone}'."),
                None => format!("No subnets found for the default VPC '{}'. Please specify a subnet.", vpc.id),
            };
            ApiError::client("MissingInput", message)
        })
    }

    fn launch_groups(
        &self,
        specification: &LaunchSpecification,
        subnet: &Subnet,
    ) -> Result<Vec<(String, String)>, ApiError> {
        let primary = specification.network_interfaces.iter().find(|interface| interface.device_index == 0);
        let ids = primary.map_or(&specification.security_group_ids, |interface| &interface.security_group_ids);
        self.check_groups_per_interface(ids.len() + specification.security_group_names.len())?;
        let mut groups = Vec::new();
        for id in ids {
            let group = self.network.group(id)?;
            if group.vpc_id != subnet.vpc_id {
                let message = format!("Security group {id} and subnet {} belong to different networks.", subnet.id);
                return Err(ApiError::client("InvalidParameter", message));
            }
            groups.push((group.id.clone(), group.name.clone()));
        }
        for name in &specification.security_group_names {
            let group = self.network.groups.values().find(|group| group.name == *name && group.vpc_id == subnet.vpc_id);
            let missing =
                || ApiError::client("InvalidGroup.NotFound", format!("The security group '{name}' does not exist"));
            group.map(|group| groups.push((group.id.clone(), group.name.clone()))).ok_or_else(missing)?;
        }
        if groups.is_empty() {
            let default =
                self.network.groups.values().find(|group| group.vpc_id == subnet.vpc_id && group.name == "default");
            groups.extend(default.map(|group| (group.id.clone(), group.name.clone())));
        }
        Ok(groups)
    }

    fn launch_profile(
        &self,
        specification: &LaunchSpecification,
    ) -> Result<Option<InstanceProfileReference>, ApiError> {
        let (name, parameter) = match (&specification.profile_name, &specification.profile_arn) {
            (Some(name), _) => (name.as_str(), "name"),
            (None, Some(arn)) => (arn.rsplit('/').next().unwrap_or(arn), "arn"),
            (None, None) => return Ok(None),
        };
        let profile = self.identity.profiles.get(name).ok_or_else(|| {
            ApiError::invalid_value(format!(
                "Value ({name}) for parameter iamInstanceProfile.{parameter} is invalid. Invalid IAM Instance Profile {parameter}"
            ))
        })?;
        if profile.role.is_none() {
            return Err(ApiError::invalid_value("IAM Instance Profile has no associated IAM Roles"));
        }
        let role = profile.role.as_ref().and_then(|role| self.identity.roles.get(role));
        let (arn, id, name) = (profile.arn.clone(), profile.id.clone(), profile.name.clone());
        Ok(Some(InstanceProfileReference { arn, id, name, role_arn: role.map(|role| role.arn.clone()) }))
    }

    /// Refuses a spot launch whose owner pays less than the present price.
    // fidelity: documented(EC2 API Reference, Error codes: SpotMaxPriceTooLow)
    fn check_price(
        &self,
        specification: &LaunchSpecification,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> Result<(), ApiError> {
        let offered = specification.spot.max_price.as_deref().and_then(|text| text.parse::<f64>().ok());
        let price = self.spot_price(instance_type, zone).map(|(price, _)| price);
        match offered.zip(price) {
            Some((offered, price)) if capacity_type == CapacityType::Spot && offered < price => {
                let message = format!(
                    "Your Spot request price of {offered} is lower than the minimum required Spot request fulfillment price of {price}."
                );
                Err(ApiError::client("SpotMaxPriceTooLow", message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what a pool has no room for.
    pub(super) fn check_capacity(&self, name: &str, zone: &str, capacity_type: CapacityType) -> Result<(), ApiError> {
        let is_withdrawn = capacity_type == CapacityType::Spot && self.is_spot_withdrawn(name, zone);
        if !is_withdrawn && self.capacity.available(name, zone, capacity_type) {
            return Ok(());
        }
        let zones = self.catalogue.offering(name).map_or(&[][..], |offering| &offering.zones[..]);
        let others: Vec<&str> = zones.iter().copied().filter(|other| *other != zone).collect();
        let message = match capacity_type {
            CapacityType::Spot => "There is no Spot capacity available that matches your request.".to_owned(),
            CapacityType::OnDemand => format!(
                "We currently do not have sufficient {name} capacity in the Availability Zone you requested ({zone}). Our \
                 system will be working on provisioning additional capacity. You can currently get {name} capacity by not \
                 specifying an Availability Zone in your request or choosing {}.",
                others.join(", ")
            ),
        };
        Err(ApiError::new(500, "InsufficientInstanceCapacity", message))
    }

    // fidelity: documented(EC2 User Guide, Placement groups: strategies, seven running instances per zone of a spread group,
    // one zone for a cluster group; API Reference, Error codes: InvalidPlacementGroup.Unknown); assumed: the codes of a type
    // that does not take part, and of a second zone.
    fn place(
        &self,
        specification: &LaunchSpecification,
        instance_type: &'static InstanceType,
        zone: &str,
    ) -> Result<Placed, ApiError> {
        let found = match (&specification.placement_group_id, &specification.placement_group_name) {
            (None, None) => return Ok((None, None)),
            (Some(id), _) => self.placement_groups.get(id),
            (None, Some(name)) => self.placement_groups.values().find(|group| group.name == *name),
        };
        let group = found
            .ok_or_else(|| ApiError::client("InvalidPlacementGroup.Unknown", "The Placement Group is unknown."))?;
        let strategy = group.strategy.as_str();
        if !Facts::of(instance_type).placement_strategies.contains(&strategy) {
            let name = instance_type.name;
            let message = format!(
                "{strategy} placement groups are not supported by the '{name}' instance type. Specify a supported instance \
                 type or change the placement group strategy, and try again."
            );
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        let members = self.instances.in_placement_group(&group.id).filter(|instance| !instance.state.is_ending());
        let (here, elsewhere): (Vec<&Instance>, Vec<&Instance>) = members.partition(|instance| instance.zone == zone);
        if let Some(other) = elsewhere.first().filter(|_| strategy == "cluster") {
            let message = format!(
                "The placement group '{}' is in the Availability Zone {}; a cluster placement group can't span zones.",
                group.name, other.zone
            );
            return Err(ApiError::client("InvalidParameterValue", message));
        }
        if strategy == "spread" && here.len() >= SPREAD_LIMIT {
            let message = "We currently do not have sufficient capacity: you have reached the limit of instances in this spread placement group.";
            return Err(ApiError::new(500, "InsufficientInstanceCapacity", message));
        }
        let partition = match (strategy, group.partition_count) {
            ("partition", Some(partitions)) if partitions > 0 => match specification.partition {
                Some(number) if !(1..=partitions).contains(&number) => {
                    let message = format!("The partition number {number} is not between 1 and {partitions}.");
                    return Err(ApiError::invalid_value(message));
                }
                Some(number) => Some(number),
                None => Some(here.len() as u32 % partitions + 1),
            },
            _ => None,
        };
        Ok((Some((group.id.clone(), group.name.clone())), partition))
    }

    fn launch_tags(&self, launch: &Launch<'_>) -> Result<tags::Tags, ApiError> {
        let mut all = launch.specification.tags.get("instance").cloned().unwrap_or_default();
        tags::check(&tags::Tags::new(), &all)?;
        // fidelity: documented(EC2 User Guide, Launch templates and EC2 Fleet: tags that AWS adds by itself)
        if let Some(template) = launch.template {
            all.insert("aws:ec2launchtemplate:id".into(), template.id.clone());
            all.insert("aws:ec2launchtemplate:version".into(), template.version.to_string());
        }
        if let Some(fleet) = launch.fleet_id {
            all.insert("aws:ec2:fleet-id".into(), fleet.into());
        }
        Ok(all)
    }

    fn take_interfaces(
        &mut self,
        subnet_id: &str,
        interfaces: &[NetworkInterfaceSpecification],
        prefixes: u32,
        groups: &[(String, String)],
        specification: &LaunchSpecification,
    ) -> Result<Vec<NetworkInterface>, ApiError> {
        let subnet = self.network.subnets.get_mut(subnet_id).expect("check_launch has looked it up");
        let addresses: u32 = interfaces.iter().map(launch_options::addresses).sum();
        if subnet.available_addresses() < addresses + prefixes {
            let message = format!(
                "There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested number of instances."
            );
            return Err(ApiError::client("InsufficientFreeAddressesInSubnet", message));
        }
        let named: Vec<Ipv4Addr> = interfaces.iter().flat_map(|own| own.private_ips.iter().copied()).collect();
        subnet.take_these(&named)?;
        subnet.reserve(prefixes);
        let tags = specification.tags.get("network-interface").cloned().unwrap_or_default();
        let mut next = || subnet.take_address().expect("the free addresses were counted above");
        let taken = interfaces.iter().map(|interface| NetworkInterface {
            id: self.ids.resource("eni"),
            attachment_id: self.ids.resource("eni-attach"),
            device_index: interface.device_index,
            network_card_index: interface.network_card_index,
            interface_type: interface.interface_type.clone().unwrap_or_else(|| "interface".into()),
            private_ip: interface.private_ips.first().copied().unwrap_or_else(&mut next),
            secondary_ips: match interface.private_ips.get(1..) {
                Some(named) if !named.is_empty() => named.to_vec(),
                _ => (0..interface.secondary_count).map(|_| next()).collect(),
            },
            description: interface.rest.get("Description").unwrap_or_default().to_owned(),
            subnet_id: subnet_id.to_owned(),
            security_groups: groups.to_vec(),
            tags: tags.clone(),
        });
        Ok(taken.collect())
    }

    fn create_volumes(
        &mut self,
        now: Timestamp,
        specification: &LaunchSpecification,
        devices: Vec<BlockDevice>,
    ) -> Vec<Volume> {
        let tags = specification.tags.get("volume").cloned().unwrap_or_default();
        let named =
            |device| Volume { id: self.ids.resource("vol"), tags: tags.clone(), ..Volume::unnamed(device, now) };
        devices.into_iter().map(named).collect()
    }
}

fn check_sold(own: &InstanceType, capacity_type: CapacityType) -> Result<(), ApiError> {
    match own.sold_as(capacity_type.name()) {
        true => Ok(()),
        false => Err(ApiError::client(
            "Unsupported",
            format!("The requested configuration is currently not supported: {} as {capacity_type}.", own.name),
        )),
    }
}

/// How a burstable type is billed beyond its baseline.
// fidelity: documented(EC2 User Guide, Burstable performance instances: unlimited by default except T2)
fn cpu_credits(specification: &LaunchSpecification, own: &'static InstanceType) -> Option<String> {
    let default = if own.family() == "t2" { "standard" } else { "unlimited" };
    let asked = specification.rest.get("CreditSpecification.CpuCredits");
    Facts::of(own).burstable.then(|| asked.unwrap_or(default).to_owned())
}

/// Refuses user data that is not base64 or too long.
pub(crate) fn check_user_data(user_data: Option<&str>) -> Result<(), ApiError> {
    use base64::Engine;
    let Some(text) = user_data else { return Ok(()) };
    match base64::engine::general_purpose::STANDARD.decode(text) {
        Err(_) => Err(ApiError::client("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")),
        Ok(bytes) if bytes.len() > MAX_USER_DATA => {
            Err(ApiError::client("InvalidUserData.Malformed", format!("User data is limited to {MAX_USER_DATA} bytes")))
        }
        Ok(_) => Ok(()),
    }
}

fn effective_interfaces(specification: &LaunchSpecification) -> Vec<NetworkInterfaceSpecification> {
    let mut interfaces = match specification.network_interfaces.as_slice() {
        [] => vec![NetworkInterfaceSpecification::default()],
        some => some.to_vec(),
    };
    let primary = interfaces.iter_mut().find(|interface| interface.device_index == 0);
    if let Some((address, primary)) = specification.private_ip.zip(primary) {
        primary.private_ips = vec![address];
    }
    interfaces
}

// fidelity: documented(VPC User Guide, DNS attributes: private DNS host names)
pub(crate) fn private_dns_name(address: std::net::Ipv4Addr, region: &str) -> String {
    format!("ip-{}.{}", address.to_string().replace('.', "-"), private_domain(region))
}

fn private_domain(region: &str) -> String {
    match region {
        "us-east-1" => "ec2.internal".into(),
        _ => format!("{region}.compute.internal"),
    }
}
