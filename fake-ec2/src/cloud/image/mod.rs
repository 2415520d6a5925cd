//! Images, the snapshots behind them, and the public SSM parameters that name the published ones.

mod published;
mod snapshot;

pub use snapshot::Snapshot;

use super::instance::State;
use super::launch_template::BlockDevice;
use super::resource::Kind;
use super::tags::Tags;
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A machine image.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Image {
    pub id: String,
    pub name: String,
    pub architecture: String,
    pub owner_id: String,
    pub owner_alias: Option<String>,
    pub created_at: Timestamp,
    pub deprecated_at: Option<Timestamp>,
    pub platform: Option<String>,
    pub root_device: String,
    pub block_devices: Vec<BlockDevice>,
    /// `pending` or `available`.
    pub state: String,
    pub description: String,
    pub boot_mode: Option<String>,
    pub imds_support: Option<String>,
    pub ena_support: bool,
    /// Whether everybody may launch it.
    pub public: bool,
    /// The accounts that may launch it besides its owner.
    pub launch_accounts: BTreeSet<String>,
    pub source_instance_id: Option<String>,
    /// Id and region of the image it is a copy of.
    pub source_image: Option<(String, String)>,
    pub tags: Tags,
}

/// A public parameter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parameter {
    pub(crate) value: String,
    pub(crate) version: u64,
    pub(crate) modified_at: Timestamp,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Images {
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    /// The ids of images that were deregistered.
    deregistered: BTreeSet<String>,
}

/// What somebody asks of a new image.
#[derive(Debug)]
pub(crate) struct NewImage<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) tags: Tags,
    /// Tags for the snapshots that are made.
    pub(crate) snapshot_tags: Tags,
}

/// The size of a root volume of which nobody says how large it is.
// fidelity: assumed: published images have a root volume of 20 GiB gp3
const ROOT_SIZE_GIB: u32 = 20;

impl Image {
    /// A private image of which no more is known.
    pub(crate) fn new(name: String, owner: &str, created_at: Timestamp) -> Self {
        Self {
            id: String::new(),
            name,
            architecture: String::new(),
            owner_id: owner.into(),
            owner_alias: None,
            created_at,
            deprecated_at: None,
            platform: None,
            root_device: String::new(),
            block_devices: Vec::new(),
            state: String::new(),
            description: String::new(),
            boot_mode: None,
            imds_support: None,
            ena_support: true,
            public: false,
            launch_accounts: BTreeSet::new(),
            source_instance_id: None,
            source_image: None,
            tags: Tags::new(),
        }
    }

    /// The root volume of an image of which nothing else is known.
    fn root(device_name: &str, snapshot_id: Option<String>) -> BlockDevice {
        BlockDevice {
            device_name: device_name.into(),
            volume_size_gib: Some(ROOT_SIZE_GIB),
            volume_type: Some("gp3".into()),
            snapshot_id,
            ..BlockDevice::default()
        }
    }

    /// The devices of a launch: the image's, the root first, each overridden by the request's of that name, and its others.
    // fidelity: documented(EC2 User Guide, Block device mappings: entries override those of the AMI by device name)
    pub(crate) fn devices(&self, requested: &[BlockDevice]) -> Vec<BlockDevice> {
        let is_root = |device: &&BlockDevice| device.device_name == self.root_device;
        let root = self.block_devices.iter().find(is_root).cloned();
        let root = root.unwrap_or_else(|| Self::root(&self.root_device, None));
        let mut devices = vec![root];
        devices.extend(self.block_devices.iter().filter(|device| !is_root(device)).cloned());
        for wanted in requested {
            match devices.iter_mut().find(|device| device.device_name == wanted.device_name) {
                Some(device) => override_device(device, wanted),
                None => devices.push(wanted.clone()),
            }
        }
        // fidelity: documented(EC2 API Reference, BlockDeviceMapping: VirtualName is an instance store volume, none of EBS)
        devices.retain(|device| !device.no_device && device.rest.get("VirtualName").is_none());
        devices
    }

    /// Whether this account may see and launch it.
    pub(crate) fn is_for(&self, account: &str) -> bool {
        self.public || self.owner_id == account || self.launch_accounts.contains(account)
    }
}

fn override_device(device: &mut BlockDevice, wanted: &BlockDevice) {
    let BlockDevice {
        device_name: _,
        volume_size_gib,
        volume_type,
        iops,
        throughput,
        encrypted,
        kms_key_id,
        snapshot_id,
        initialization_rate,
        delete_on_termination,
        no_device,
        rest,
    } = wanted;
    let own = device.clone();
    *device = BlockDevice {
        device_name: own.device_name,
        volume_size_gib: volume_size_gib.or(own.volume_size_gib),
        volume_type: volume_type.clone().or(own.volume_type),
        iops: iops.or(own.iops),
        throughput: throughput.or(own.throughput),
        encrypted: encrypted.or(own.encrypted),
        kms_key_id: kms_key_id.clone().or(own.kms_key_id),
        snapshot_id: snapshot_id.clone().or(own.snapshot_id),
        initialization_rate: initialization_rate.or(own.initialization_rate),
        delete_on_termination: delete_on_termination.or(own.delete_on_termination),
        no_device: *no_device,
        rest: rest.clone(),
    };
}

impl Images {
    // fidelity: documented(EC2 API Reference, Error codes: InvalidAMIID.NotFound, InvalidAMIID.Unavailable if deregistered)
    pub(crate) fn find(&self, id: &str) -> Result<&Image, ApiError> {
        match self.images.get(id) {
            Some(image) => Ok(image),
            None if self.deregistered.contains(id) => Err(unavailable(id)),
            None => Err(Kind::IMAGE.missing(id)),
        }
    }

    /// The image, if instances can be launched from it.
    pub(crate) fn launchable(&self, id: &str) -> Result<&Image, ApiError> {
        let image = self.find(id)?;
        if image.state == "available" { Ok(image) } else { Err(unavailable(id)) }
    }

    /// The image, if it is this account's to change.
    // fidelity: documented(EC2 API Reference, Error codes: AuthFailure); the sentence as commonly seen.
    pub(crate) fn owned(&mut self, id: &str, account: &str) -> Result<&mut Image, ApiError> {
        if self.find(id)?.owner_id != account {
            return Err(ApiError::new(403, "AuthFailure", format!("Not authorized for image:{id}")));
        }
        Ok(self.images.get_mut(id).expect("it was found above"))
    }

    pub(crate) fn set_parameter(&mut self, name: &str, value: &str, at: Timestamp) {
        let version = self.parameters.get(name).map_or(0, |parameter| parameter.version) + 1;
        self.parameters.insert(name.into(), Parameter { value: value.into(), version, modified_at: at });
    }

    /// The names of the public parameters that name an image.
    pub(crate) fn parameters_of(&self, image: &str) -> impl Iterator<Item = &str> {
        let naming = self.parameters.iter().filter(move |(_, parameter)| parameter.value == image);
        naming.map(|(name, _)| name.as_str())
    }

    /// Which image a snapshot stands behind.
    pub(crate) fn user_of(&self, snapshot: &str) -> Option<&str> {
        let uses = |image: &&Image| image.block_devices.iter().any(|own| own.snapshot_id.as_deref() == Some(snapshot));
        self.images.values().find(uses).map(|image| image.id.as_str())
    }
}

fn unavailable(id: &str) -> ApiError {
    ApiError::client("InvalidAMIID.Unavailable", format!("The image ID '{id}' is not available"))
}

impl Cloud {
    // fidelity: documented(EC2 API Reference, Error codes: InvalidAMIName.Malformed, InvalidAMIName.Duplicate; RegisterImage:
    // which characters a name may have)
    pub(crate) fn check_image_name(&self, name: &str) -> Result<(), ApiError> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "()[] ./-'@_".contains(character);
        if !(3..=128).contains(&name.chars().count()) || !name.chars().all(allowed) {
            let message = "AMI names must be between 3 and 128 characters long, and may contain letters, numbers, '(', ')', \
                           '[', ']', ' ', '.', '/', '-', ''', '@' and '_'";
            return Err(ApiError::client("InvalidAMIName.Malformed", message));
        }
        let own = self.images.images.values().filter(|image| image.owner_id == self.config.account);
        match own.into_iter().find(|image| image.name == name) {
            None => Ok(()),
            Some(image) => {
                let message = format!("AMI name {name} is already in use by AMI {}", image.id);
                Err(ApiError::client("InvalidAMIName.Duplicate", message))
            }
        }
    }

    /// Adds an image of this account that is soon available; its id is answered. `image` is without id and state.
    pub(crate) fn add_pending_image(&mut self, now: Timestamp, mut image: Image) -> String {
        let id = self.ids.resource("ami");
        (image.id, image.state) = (id.clone(), "pending".into());
        self.images.images.insert(id.clone(), image);
        // fidelity: assumed: an image takes as long to become available as an instance to run
        self.schedule(after(now, self.config.pace.pending), Due::ImageReady { image: id.clone() });
        id
    }

    pub(super) fn image_ready(&mut self, id: &str) {
        if let Some(image) = self.images.images.get_mut(id) {
            image.state = "available".into();
        }
    }

    /// An image of an instance as it is, with a snapshot of each of its volumes.
    // fidelity: documented(EC2 API Reference, CreateImage: from instances that run or are stopped)
    pub(crate) fn create_image(
        &mut self,
        now: Timestamp,
        instance_id: &str,
        devices: &[BlockDevice],
        new: NewImage<'_>,
    ) -> Result<String, ApiError> {
        let instance = self.instance(instance_id)?;
        if !matches!(instance.state, State::Running | State::Stopped) {
            let (code, state) = ("IncorrectInstanceState", instance.state.name());
            let message =
                format!("The instance '{instance_id}' is {state}: an image is made of one that is running or stopped.");
            return Err(ApiError::client(code, message));
        }
        self.check_image_name(new.name)?;
        let source = self.images.images.get(&instance.image_id);
        let (platform, boot_mode) = source.map_or((None, None), |own| (own.platform.clone(), own.boot_mode.clone()));
        let volumes = instance.volumes.clone();
        let root_device = volumes.first().map_or("/dev/xvda".into(), |volume| volume.device.device_name.clone());
        let (architecture, instance_id) = (instance.architecture.clone(), instance_id.to_owned());
        let mut block_devices = Vec::new();
        for volume in volumes {
            let description = format!("Created by CreateImage({instance_id})");
            let snapshot = self.add_snapshot(now, &volume, &description, new.snapshot_tags.clone());
            block_devices.push(BlockDevice { snapshot_id: Some(snapshot), ..volume.device });
        }
        for wanted in devices {
            match block_devices.iter_mut().find(|own| own.device_name == wanted.device_name) {
                Some(device) => override_device(device, wanted),
                None => block_devices.push(wanted.clone()),
            }
        }
        let image = Image {
            architecture,
            platform,
            boot_mode,
            root_device,
            block_devices,
            source_instance_id: Some(instance_id),
            ..self.own_image(now, new)
        };
        Ok(self.add_pending_image(now, image))
    }

    /// A private image of this account of which no more is known than was asked for.
    pub(crate) fn own_image(&self, now: Timestamp, new: NewImage<'_>) -> Image {
        let image = Image::new(new.name.into(), &self.config.account, now);
        Image { description: new.description.into(), tags: new.tags, ..image }
    }

    /// A copy of an image, with copies of its snapshots.
    pub(crate) fn copy_image(
        &mut self,
        now: Timestamp,
        source_id: &str,
        (encrypted, key): (Option<bool>, Option<String>),
        new: NewImage<'_>,
    ) -> Result<String, ApiError> {
        let source = self.images.launchable(source_id)?.clone();
        // fidelity: documented(EC2 API Reference, CopyImage: with KmsKeyId, the snapshots have to be encrypted)
        if key.is_some() && encrypted != Some(true) {
            let message = "KmsKeyId can be specified only together with Encrypted.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        self.check_image_name(new.name)?;
        let mut block_devices = source.devices(&[]);
        for device in &mut block_devices {
            device.encrypted = encrypted.filter(|encrypted| *encrypted).or(device.encrypted);
            device.kms_key_id = key.clone().or(device.kms_key_id.take());
            let volume = super::instance::Volume::unnamed(device.clone(), now);
            let description = format!("Copied for DestinationAmi from SourceAmi {source_id}");
            device.snapshot_id = Some(self.add_snapshot(now, &volume, &description, new.snapshot_tags.clone()));
        }
        let image = Image {
            architecture: source.architecture,
            platform: source.platform,
            root_device: source.root_device,
            block_devices,
            boot_mode: source.boot_mode,
            imds_support: source.imds_support,
            ena_support: source.ena_support,
            source_image: Some((source_id.into(), self.config.region.clone())),
            ..self.own_image(now, new)
        };
        Ok(self.add_pending_image(now, image))
    }

    /// Takes an image away from further launches; the snapshots that stood behind it are answered.
    // fidelity: documented(EC2 API Reference, DeregisterImage: instances launched from it are not affected)
    pub(crate) fn deregister_image(&mut self, id: &str) -> Result<Vec<String>, ApiError> {
        self.images.owned(id, &self.config.account)?;
        let image = self.images.images.remove(id).expect("it was found above");
        self.images.deregistered.insert(id.into());
        Ok(image.block_devices.into_iter().filter_map(|device| device.snapshot_id).collect())
    }
}
