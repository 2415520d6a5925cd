//! What the `lenient` profile adds to an account.

use crate::cloud::Cloud;
use crate::cloud::catalogue::InstanceType;
use crate::cloud::check_id;
use crate::cloud::image::Image;
use crate::config::Profile;
use crate::wire::{Call, Payload, Service};
use jiff::Timestamp;

/// What there is before the first request: a default VPC with a subnet in each zone.
pub(crate) fn furnish(cloud: &mut Cloud) {
    if cloud.config.profile == Profile::Lenient {
        let Cloud { network, ids, catalogue, .. } = cloud;
        network.create_default_vpc(ids, &catalogue.zones).expect("an account that begins has no default VPC yet");
    }
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
        architecture: architecture.into(),
        root_device: "/dev/xvda".into(),
        state: "available".into(),
        description: "Made up on its first launch, as the lenient profile does".into(),
        public: true,
        ..Image::new(format!("made-up-{id}"), account, now)
    }
}
