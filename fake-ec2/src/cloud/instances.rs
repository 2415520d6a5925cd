//! Every instance of the account, and an index of what Describe calls and launches ask for, so that neither looks at more
//! instances than it has to.
//!
//! Reading goes straight to the map. Whoever changes an instance leaves a note, and the index is brought up to date before
//! it is asked next.

use super::capacity::CapacityType;
use super::filter::Filters;
use super::instance::Instance;
use super::quota::VcpuClass;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref};
use std::sync::Arc;

/// What the index knows instances by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Facet {
    State,
    Type,
    Image,
    Subnet,
    Reservation,
    SpotRequest,
    Address,
    DnsName,
    ClientToken,
    SecurityGroup,
    CapacityReservation,
    PlacementGroup,
    NetworkInterface,
    Volume,
    TagKey,
    /// Key and value, joined by a character that neither can contain.
    Tag,
}

/// Facet, value and instance id.
type Entry = (Facet, Arc<str>, Arc<str>);

/// All instances by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instances {
    by_id: BTreeMap<String, Instance>,
    index: BTreeSet<Entry>,
    filed: BTreeMap<Arc<str>, Filed>,
    changed: Vec<String>,
    vcpus: BTreeMap<(CapacityType, VcpuClass), u32>,
}

/// The index follows from the instances.
impl Serialize for Instances {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_id.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Instances {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut instances = Self::default();
        for (id, instance) in BTreeMap::<String, Instance>::deserialize(deserializer)? {
            instances.insert(id, instance);
        }
        Ok(instances)
    }
}

/// What the index holds of one instance.
#[derive(Clone, Debug, Default)]
struct Filed {
    values: Vec<(Facet, Arc<str>)>,
    vcpus: Option<(CapacityType, VcpuClass, u32)>,
}

impl Deref for Instances {
    type Target = BTreeMap<String, Instance>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl Instances {
    pub(crate) fn insert(&mut self, id: String, instance: Instance) {
        self.by_id.insert(id.clone(), instance);
        self.file(&id);
    }

    /// The instance, to change it.
    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Instance> {
        let instance = self.by_id.get_mut(id)?;
        if self.changed.last().map(String::as_str) != Some(id) {
            self.changed.push(id.to_owned());
        }
        Some(instance)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Instance> {
        let instance = self.by_id.remove(id)?;
        self.file(id);
        Some(instance)
    }

    /// The instances that pass one of the filters, if there is an index for any, and perhaps not the others; by id, those
    /// after `after`. The index has to be up to date: see [`Self::refresh`].
    pub(crate) fn candidates<'a>(
        &'a self,
        filters: &Filters,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Instance> + 'a> {
        match self.narrowest(filters) {
            Some((facet, values)) => self.merged(facet, &values, after),
            None => {
                let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_owned()));
                Box::new(self.by_id.range((from, Bound::Unbounded)).map(|(_, instance)| instance))
            }
        }
    }

    /// The instances in a placement group, which none ever leaves.
    pub(crate) fn in_placement_group(&self, group: &str) -> impl Iterator<Item = &Instance> {
        self.ids(Facet::PlacementGroup, group, None).filter_map(|id| self.by_id.get(&**id))
    }

    /// The instances in a capacity reservation. The index has to be up to date.
    pub(crate) fn in_capacity_reservation(&self, reservation: &str) -> impl Iterator<Item = &Instance> {
        self.ids(Facet::CapacityReservation, reservation, None).filter_map(|id| self.by_id.get(&**id))
    }

    /// vCPUs of instances that hold capacity.
    pub(crate) fn vcpus(&mut self, capacity_type: CapacityType, class: VcpuClass) -> u32 {
        self.refresh();
        self.vcpus.get(&(capacity_type, class)).copied().unwrap_or(0)
    }

    /// Brings the index up to date.
    pub(crate) fn refresh(&mut self) {
        for id in std::mem::take(&mut self.changed) {
            self.file(&id);
        }
    }

    fn file(&mut self, id: &str) {
        let (id, before) = match self.filed.remove_entry(id) {
            Some((id, before)) => (id, before),
            None => (Arc::from(id), Filed::default()),
        };
        for (facet, value) in before.values {
            self.index.remove(&(facet, value, Arc::clone(&id)));
        }
        if let Some((capacity_type, class, vcpus)) = before.vcpus {
            *self.vcpus.entry((capacity_type, class)).or_default() -= vcpus;
        }
        let Some(instance) = self.by_id.get(&*id) else { return };
        let values = facets(instance);
        self.index.extend(values.iter().map(|(facet, value)| (*facet, Arc::clone(value), Arc::clone(&id))));
        let counted = instance.holds_capacity && !instance.state.is_ending();
        let vcpus = counted.then(|| (instance.capacity_type, VcpuClass::of(instance.instance_type), instance.vcpus));
        if let Some((capacity_type, class, vcpus)) = vcpus {
            *self.vcpus.entry((capacity_type, class)).or_default() += vcpus;
        }
        self.filed.insert(id, Filed { values, vcpus });
    }

    fn ids<'a>(
        &'a self,
        facet: Facet,
        value: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        let value: Arc<str> = Arc::from(value);
        let start = (facet, Arc::clone(&value), Arc::from(after.unwrap_or_default()));
        let from_start = self.index.range((Bound::Excluded(start), Bound::Unbounded));
        from_start.take_while(move |(own, held, _)| *own == facet && *held == value).map(|(_, _, id)| id)
    }

    /// The filter with the fewest instances. Counting stops at growing limits, so that a filter that many pass costs no more
    /// than the one that few pass.
    fn narrowest(&self, filters: &Filters) -> Option<(Facet, Vec<String>)> {
        let usable: Vec<(Facet, Vec<String>)> =
            filters.exact().filter_map(|(name, values)| facet(name, values)).collect();
        for limit in [64, 1024, usize::MAX] {
            let count = |(facet, values): &(Facet, Vec<String>)| {
                values.iter().flat_map(|value| self.ids(*facet, value, None)).take(limit).count()
            };
            let counted = usable.iter().map(|usable| (count(usable), usable));
            let (fewest, chosen) = counted.min_by_key(|(count, _)| *count)?;
            if fewest < limit {
                return Some(chosen.clone());
            }
        }
        None
    }

    /// The instances under any of the values, in the order of their ids.
    fn merged<'a>(
        &'a self,
        facet: Facet,
        values: &[String],
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Instance> + 'a> {
        let mut streams: Vec<_> = values.iter().map(|value| self.ids(facet, value, after).peekable()).collect();
        Box::new(std::iter::from_fn(move || {
            let next = streams.iter_mut().filter_map(|stream| stream.peek().copied()).min()?;
            for stream in &mut streams {
                stream.next_if(|id| *id == next);
            }
            self.by_id.get(&**next)
        }))
    }
}

/// What answers this filter, with the values as the index has them.
fn facet(name: &str, values: &[String]) -> Option<(Facet, Vec<String>)> {
    let facet = match name {
        "instance-state-name" => Facet::State,
        "instance-type" => Facet::Type,
        "image-id" => Facet::Image,
        "subnet-id" => Facet::Subnet,
        "reservation-id" => Facet::Reservation,
        "spot-instance-request-id" => Facet::SpotRequest,
        "private-ip-address" => Facet::Address,
        "private-dns-name" => Facet::DnsName,
        "client-token" => Facet::ClientToken,
        "instance.group-id" => Facet::SecurityGroup,
        "capacity-reservation-id" => Facet::CapacityReservation,
        "network-interface.network-interface-id" => Facet::NetworkInterface,
        "block-device-mapping.volume-id" => Facet::Volume,
        "tag-key" => Facet::TagKey,
        tag => {
            let key = tag.strip_prefix("tag:")?;
            return Some((Facet::Tag, values.iter().map(|value| pair(key, value)).collect()));
        }
    };
    Some((facet, values.to_vec()))
}

fn facets(instance: &Instance) -> Vec<(Facet, Arc<str>)> {
    let one = |facet, value: &str| (facet, Arc::from(value));
    let mut values = vec![
        one(Facet::State, instance.state.name()),
        one(Facet::Type, instance.instance_type),
        one(Facet::Image, &instance.image_id),
        one(Facet::Subnet, &instance.subnet_id),
        one(Facet::Reservation, &instance.reservation_id),
        one(Facet::Address, &instance.private_ip.to_string()),
        one(Facet::DnsName, &instance.private_dns_name),
    ];
    let optional = [
        (Facet::SpotRequest, &instance.spot_request_id),
        (Facet::ClientToken, &instance.client_token),
        (Facet::CapacityReservation, &instance.capacity_reservation_id),
    ];
    values.extend(optional.into_iter().filter_map(|(facet, value)| Some(one(facet, value.as_deref()?))));
    values.extend(instance.placement_group.iter().map(|(id, _)| one(Facet::PlacementGroup, id)));
    values.extend(instance.security_groups.iter().map(|(id, _)| one(Facet::SecurityGroup, id)));
    values.extend(instance.network_interfaces.iter().map(|own| one(Facet::NetworkInterface, &own.id)));
    values.extend(instance.volumes.iter().map(|own| one(Facet::Volume, &own.id)));
    for (key, value) in &instance.tags {
        values.push(one(Facet::TagKey, key));
        values.push(one(Facet::Tag, &pair(key, value)));
    }
    values
}

fn pair(key: &str, value: &str) -> String {
    format!("{key}\u{1}{value}")
}
