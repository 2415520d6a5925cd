//! What the `lenient` profile adds to an account.

use crate::cloud::Cloud;
use crate::cloud::catalogue::InstanceType;
use crate::cloud::check_id;
use crate::cloud::image::Image;
use crate::cloud::network::{Cidr, SecurityGroup, Subnet, Vpc};
use crate::cloud::tags::Tags;
use crate::config::Profile;
use crate::wire::{Call, Payload, Service};
use jiff::Timestamp;

/// What there is before the first request.
pub(crate) fn furnish(cloud: &mut Cloud) {
    if cloud.config.profile == Profile::Lenient {
        add_default_vpc(cloud);
    }
}

/// A VPC with a subnet in each zone and its default security group.
// fidelity: documented(VPC User Guide, Default VPCs: 172.31.0.0/16, a public /20 subnet in each zone)
fn add_default_vpc(cloud: &mut Cloud) {
    let cidr = Cidr::parse("172.31.0.0/16").expect("the constant range is well-formed");
    let id = cloud.ids.resource("vpc");
    cloud.network.vpcs.insert(id.clone(), Vpc { id: id.clone(), cidr, tags: Tags::new() });
    for (index, zone) in cloud.catalogue.zones.clone().iter().enumerate() {
        let subnet_id = cloud.ids.resource("subnet");
        let mut subnet = Subnet::new(subnet_id.clone(), id.clone(), zone, cidr.part(index as u32, 20), Tags::new());
        subnet.map_public_ip_on_launch = true;
        cloud.network.subnets.insert(subnet_id, subnet);
    }
    let group = SecurityGroup {
        id: cloud.ids.resource("sg"),
        name: "default".into(),
        description: "default VPC security group".into(),
        vpc_id: id,
        tags: Tags::new(),
    };
    cloud.network.groups.insert(group.id.clone(), group);
}

/// Registers the images that a request wants to launch and nobody has registered.
pub(crate) fn admit(cloud: &mut Cloud, now: Timestamp, call: &Call) {
    if cloud.config.profile == Profile::Strict || call.service != Service::Ec2 {
        return;
    }
    let Payload::Form(form) = &call.payload else { return };
    // `ImageId`, and those of templates, specifications and overrides; `ImageId.1` only asks.
    let wanted: Vec<String> = form.ending_with("ImageId").map(str::to_owned).collect();
    let mut types = form.ending_with("InstanceType").filter_map(InstanceType::named);
    let architecture = types.next().map_or("x86_64", |one| one.architectures.split(',').next().unwrap_or("x86_64"));
    for id in wanted {
        if check_id(&id, "ami", "InvalidAMIID.Malformed").is_ok() && !cloud.images.images.contains_key(&id) {
            cloud.images.images.insert(id.clone(), made_up(&id, architecture, &cloud.config.account, now));
        }
    }
}

fn made_up(id: &str, architecture: &str, account: &str, now: Timestamp) -> Image {
    Image {
        id: id.into(),
        name: format!("made-up-{id}"),
        architecture: architecture.into(),
        owner_id: account.into(),
        owner_alias: None,
        created_at: now,
        deprecated_at: None,
        platform: None,
        root_device: "/dev/xvda".into(),
        state: "available".into(),
        description: "Made up on its first launch, as the lenient profile does".into(),
        tags: Tags::new(),
    }
}
