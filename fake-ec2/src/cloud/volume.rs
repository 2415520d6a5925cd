//! Volumes. Those in use are parts of their instances; those that no instance has are here.

use super::catalogue::Zone;
use super::instance::{Instance, State, Volume};
use super::launch_template::BlockDevice;
use super::resource::Kind;
use super::{Cloud, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A volume that no instance has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct FreeVolume {
    pub volume: Volume,
    pub zone: String,
    pub zone_id: String,
    /// When it has been created.
    pub ready_at: Timestamp,
}

impl FreeVolume {
    /// `creating` or `available`.
    pub fn status(&self, now: Timestamp) -> &'static str {
        if self.ready_at <= now { "available" } else { "creating" }
    }
}

/// What a kind of volume may be: sizes in GiB, operations per second, MiB per second.
struct Limits {
    volume_type: &'static str,
    size_gib: (u32, u32),
    iops: Option<(u32, u32)>,
    throughput: Option<(u32, u32)>,
}

// fidelity: documented(EC2 API Reference, CreateVolume: Size, Iops, Throughput)
const LIMITS: [Limits; 7] = [
    limits("gp2", (1, 16_384), None, None),
    limits("gp3", (1, 65_536), Some((3_000, 80_000)), Some((125, 2_000))),
    limits("io1", (4, 16_384), Some((100, 64_000)), None),
    limits("io2", (4, 65_536), Some((100, 256_000)), None),
    limits("sc1", (125, 16_384), None, None),
    limits("st1", (125, 16_384), None, None),
    limits("standard", (1, 1_024), None, None),
];

const fn limits(
    volume_type: &'static str,
    size_gib: (u32, u32),
    iops: Option<(u32, u32)>,
    throughput: Option<(u32, u32)>,
) -> Limits {
    Limits { volume_type, size_gib, iops, throughput }
}

/// The type of a volume of which nobody says which.
// fidelity: documented(EC2 API Reference, CreateVolume: gp2 is the default)
const DEFAULT_TYPE: &str = "gp2";

/// Refuses what no volume can be.
// fidelity: documented(EC2 API Reference, CreateVolume: valid ranges); assumed: which code each has
pub(crate) fn check_device(device: &BlockDevice) -> Result<(), ApiError> {
    let name = device.volume_type.as_deref().unwrap_or(DEFAULT_TYPE);
    let limits = LIMITS.iter().find(|limits| limits.volume_type == name).ok_or_else(|| {
        let known: Vec<&str> = LIMITS.iter().map(|limits| limits.volume_type).collect();
        let message =
            format!("Value ({name}) for parameter volumeType is invalid. It has to be one of {}", known.join(", "));
        ApiError::client("UnknownVolumeType", message)
    })?;
    within("size", name, device.volume_size_gib, Some(limits.size_gib))?;
    within("iops", name, device.iops, limits.iops)?;
    within("throughput", name, device.throughput, limits.throughput)?;
    if name.starts_with("io") && device.iops.is_none() {
        return Err(ApiError::missing("iops"));
    }
    Ok(())
}

fn within(what: &str, name: &str, value: Option<u32>, range: Option<(u32, u32)>) -> Result<(), ApiError> {
    let Some(value) = value else { return Ok(()) };
    let Some((minimum, maximum)) = range else {
        let message = format!("The parameter {what} is not supported for {name} volumes.");
        return Err(ApiError::client("InvalidParameterCombination", message));
    };
    if (minimum..=maximum).contains(&value) {
        return Ok(());
    }
    Err(ApiError::invalid_value(format!(
        "Volume {what} of {value} is invalid for {name} volumes: it has to be between {minimum} and {maximum}."
    )))
}

impl Volume {
    /// A volume without an id.
    pub(crate) fn unnamed(device: BlockDevice, now: Timestamp) -> Self {
        Self { id: String::new(), device, tags: Default::default(), created_at: now, attached_at: now }
    }

    /// Its size in GiB.
    pub fn size_gib(&self) -> u32 {
        self.device.volume_size_gib.unwrap_or(8)
    }

    /// `gp3` and its like.
    pub fn volume_type(&self) -> &str {
        self.device.volume_type.as_deref().unwrap_or(DEFAULT_TYPE)
    }

    /// Operations per second, where its type has a figure for them.
    // fidelity: documented(EBS User Guide, General Purpose SSD volumes: 3 per GiB from 100 to 16,000; gp3 3,000 and 125 MiB/s)
    pub fn iops(&self) -> Option<u32> {
        self.device.iops.or_else(|| match self.volume_type() {
            "gp2" => Some((3 * self.size_gib()).clamp(100, 16_000)),
            "gp3" => Some(3_000),
            _ => None,
        })
    }

    /// MiB per second, where its type has a figure for them.
    pub fn throughput(&self) -> Option<u32> {
        self.device.throughput.or_else(|| (self.volume_type() == "gp3").then_some(125))
    }
}

impl Cloud {
    /// Makes a volume in a zone; its id is answered.
    pub(crate) fn create_volume(&mut self, now: Timestamp, zone: &Zone, mut volume: Volume) -> String {
        volume.id = self.ids.resource("vol");
        let id = volume.id.clone();
        let (zone, zone_id) = (zone.name.to_owned(), zone.id.to_owned());
        // fidelity: assumed: a volume takes as long to be created as an instance to run
        let ready_at = after(now, self.config.pace.pending);
        self.volumes.insert(id.clone(), FreeVolume { volume, zone, zone_id, ready_at });
        id
    }

    /// The instance that has this volume or interface.
    pub(crate) fn owner_of_part(&self, id: &str) -> Option<&Instance> {
        self.parts.get(id).and_then(|owner| self.instances.get(owner))
    }

    /// Notes whose the volumes and interfaces of an instance are.
    pub(crate) fn index_parts(&mut self, instance_id: &str) {
        let Some(instance) = self.instances.get(instance_id) else { return };
        let interfaces = instance.network_interfaces.iter().map(|interface| interface.id.clone());
        let parts = interfaces.chain(instance.volumes.iter().map(|volume| volume.id.clone()));
        self.parts.extend(parts.map(|part| (part, instance_id.to_owned())));
    }

    /// What becomes of the volumes of an instance that ended: they are deleted, unless they are to be kept.
    // fidelity: documented(EC2 User Guide, Preserve data when an instance is terminated: DeleteOnTermination)
    pub(super) fn release_volumes(&mut self, now: Timestamp, instance_id: &str) {
        let Some(instance) = self.instances.get_mut(instance_id) else { return };
        let (zone, zone_id) = (instance.zone.clone(), instance.zone_id.clone());
        for volume in std::mem::take(&mut instance.volumes) {
            self.parts.remove(&volume.id);
            if volume.device.delete_on_termination == Some(false) {
                let (zone, zone_id) = (zone.clone(), zone_id.clone());
                self.volumes.insert(volume.id.clone(), FreeVolume { volume, zone, zone_id, ready_at: now });
            }
        }
    }

    // fidelity: documented(EC2 API Reference, DeleteVolume; Error codes: VolumeInUse, IncorrectState)
    pub(crate) fn delete_volume(&mut self, now: Timestamp, id: &str) -> Result<(), ApiError> {
        if let Some(owner) = self.owner_of_part(id) {
            let message = format!("Volume {id} is currently attached to {}", owner.id);
            return Err(ApiError::client("VolumeInUse", message));
        }
        self.free_volume(now, id)?;
        self.volumes.remove(id);
        Ok(())
    }

    /// The volume, if no instance has it and it has been created.
    fn free_volume(&self, now: Timestamp, id: &str) -> Result<&FreeVolume, ApiError> {
        let free = self.volumes.get(id).ok_or_else(|| Kind::VOLUME.missing(id))?;
        match free.status(now) {
            "available" => Ok(free),
            status => Err(ApiError::client("IncorrectState", format!("The volume '{id}' is '{status}'."))),
        }
    }

    // fidelity: documented(EC2 API Reference, AttachVolume; Error codes: VolumeInUse, InvalidVolume.ZoneMismatch, IncorrectState);
    // assumed: attaching takes no time
    pub(crate) fn attach_volume(
        &mut self,
        now: Timestamp,
        id: &str,
        instance_id: &str,
        device: &str,
    ) -> Result<Volume, ApiError> {
        let instance = self.instance(instance_id)?;
        if self.owner_of_part(id).is_some() {
            return Err(ApiError::client("VolumeInUse", format!("{id} is already attached to an instance")));
        }
        let free = self.free_volume(now, id)?;
        if !matches!(instance.state, State::Running | State::Stopped) {
            let message = format!("Instance '{instance_id}' is not 'running' or 'stopped'.");
            return Err(ApiError::client("IncorrectState", message));
        }
        if free.zone != instance.zone {
            let message = format!("The volume '{id}' is not in the same availability zone as instance '{instance_id}'");
            return Err(ApiError::client("InvalidVolume.ZoneMismatch", message));
        }
        if instance.volumes.iter().any(|own| own.device.device_name == device) {
            let message =
                format!("Invalid value '{device}' for unixDevice. Attachment point {device} is already in use");
            return Err(ApiError::invalid_value(message));
        }
        let mut volume = self.volumes.remove(id).expect("it was found above").volume;
        volume.device.device_name = device.into();
        volume.device.delete_on_termination = Some(false);
        volume.attached_at = now;
        self.parts.insert(id.into(), instance_id.into());
        if let Some(instance) = self.instances.get_mut(instance_id) {
            instance.volumes.push(volume.clone());
        }
        self.instance_revision += 1;
        self.revision += 1;
        Ok(volume)
    }

    /// Takes a volume from its instance; how it was attached is answered.
    // fidelity: documented(EC2 API Reference, DetachVolume; Error codes: IncorrectState, InvalidAttachment.NotFound; EBS User
    // Guide, Detach a volume: the root volume of a stopped instance only)
    pub(crate) fn detach_volume(
        &mut self,
        now: Timestamp,
        id: &str,
        instance_id: Option<&str>,
        device: Option<&str>,
    ) -> Result<(String, Volume), ApiError> {
        let Some(instance) = self.owner_of_part(id) else {
            let status = self.volumes.get(id).ok_or_else(|| Kind::VOLUME.missing(id))?.status(now);
            return Err(ApiError::client("IncorrectState", format!("Volume '{id}' is in the '{status}' state.")));
        };
        let index = instance.volumes.iter().position(|own| own.id == id).expect("the index says that it has it");
        let attached_as = &instance.volumes[index].device.device_name;
        if instance_id.is_some_and(|named| named != instance.id) || device.is_some_and(|named| named != attached_as) {
            let message = format!("The volume '{id}' is attached to instance '{}' as {attached_as}.", instance.id);
            return Err(ApiError::client("InvalidAttachment.NotFound", message));
        }
        if index == 0 && instance.state != State::Stopped {
            let message = format!("Unable to detach root volume '{id}' from instance '{}'", instance.id);
            return Err(ApiError::client("OperationNotPermitted", message));
        }
        let (owner, zone, zone_id) = (instance.id.clone(), instance.zone.clone(), instance.zone_id.clone());
        let volume = self.instances.get_mut(&owner).expect("it was found above").volumes.remove(index);
        self.parts.remove(id);
        self.instance_revision += 1;
        self.revision += 1;
        let free = FreeVolume { volume: volume.clone(), zone, zone_id, ready_at: now };
        self.volumes.insert(id.into(), free);
        Ok((owner, volume))
    }
}
