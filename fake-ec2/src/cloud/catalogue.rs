//! What EC2 sells: instance types, where they are offered, and what they cost. Facts of public sources with their dates in
//! `data/README.md`; spot prices per zone are estimates.
//!
//! The tables are part of the program and are read once, line by line, without building anything but slices.

use super::facts::Facts;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

const INSTANCE_TYPES: &str = include_str!("../../data/instance-types.tsv");
const ZONES: &str = include_str!("../../data/zones.tsv");

static TYPES: LazyLock<Vec<InstanceType>> =
    LazyLock::new(|| INSTANCE_TYPES.lines().filter_map(InstanceType::parse).collect());

/// The facts of one instance type that this crate and a simulated kubelet need; `xml` holds the rest.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Named as in DescribeInstanceTypes.
pub struct InstanceType {
    pub name: &'static str,
    pub vcpus: u32,
    pub memory_mib: u64,
    /// `x86_64`, `arm64`, …, comma-separated, in the catalogue's order.
    pub architectures: &'static str,
    pub usage_classes: &'static str,
    pub virtualization_types: &'static str,
    /// Empty for bare metal.
    pub hypervisor: &'static str,
    pub bare_metal: bool,
    pub current_generation: bool,
    /// Interfaces of the default network card.
    pub default_card_interfaces: u32,
    /// Interfaces of all cards.
    pub interfaces: u32,
    pub ipv4_per_interface: u32,
    pub efa_interfaces: u32,
    pub gpus: Vec<Gpu>,
    pub neuron_devices: Vec<NeuronDevice>,
    pub local_storage_gb: u64,
    /// The members of its `item` in DescribeInstanceTypes.
    pub(crate) xml: &'static str,
    pub(crate) facts: OnceLock<Facts>,
}

/// One kind of GPU of an instance type.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Gpu {
    pub manufacturer: &'static str,
    pub name: &'static str,
    pub count: u32,
    pub memory_mib: u64,
}

/// One kind of Neuron device of an instance type.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct NeuronDevice {
    pub name: &'static str,
    pub count: u32,
    pub cores: u32,
}

impl InstanceType {
    fn parse(line: &'static str) -> Option<Self> {
        let mut fields = line.splitn(17, '\t');
        let mut text = || fields.next();
        let parts = |text: &'static str| text.split(';').filter(|part| !part.is_empty());
        Some(Self {
            name: text()?,
            vcpus: text()?.parse().ok()?,
            memory_mib: text()?.parse().ok()?,
            architectures: text()?,
            usage_classes: text()?,
            virtualization_types: text()?,
            hypervisor: text()?,
            bare_metal: text()? == "true",
            current_generation: text()? == "true",
            default_card_interfaces: text()?.parse().ok()?,
            interfaces: text()?.parse().ok()?,
            ipv4_per_interface: text()?.parse().ok()?,
            efa_interfaces: text()?.parse().ok()?,
            gpus: parts(text()?).filter_map(Gpu::parse).collect(),
            neuron_devices: parts(text()?).filter_map(NeuronDevice::parse).collect(),
            local_storage_gb: text()?.parse().ok()?,
            xml: text()?,
            facts: OnceLock::new(),
        })
    }

    /// The type of this name, in any region.
    pub fn named(name: &str) -> Option<&'static Self> {
        let index = TYPES.binary_search_by(|candidate| candidate.name.cmp(name)).ok()?;
        Some(&TYPES[index])
    }

    /// The text before the dot.
    pub fn family(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }

    /// Whether images of this architecture run on it.
    pub fn runs(&self, architecture: &str) -> bool {
        self.architectures.split(',').any(|own| own == architecture)
    }

    /// Whether it is sold this way: `on-demand`, `spot`, `capacity-block`.
    pub fn sold_as(&self, usage_class: &str) -> bool {
        self.usage_classes.split(',').any(|own| own == usage_class)
    }
}

impl Gpu {
    fn parse(text: &'static str) -> Option<Self> {
        let mut parts = text.split(':');
        let (manufacturer, name) = (parts.next()?, parts.next()?);
        Some(Self { manufacturer, name, count: parts.next()?.parse().ok()?, memory_mib: parts.next()?.parse().ok()? })
    }
}

impl NeuronDevice {
    fn parse(text: &'static str) -> Option<Self> {
        let mut parts = text.split(':');
        Some(Self { name: parts.next()?, count: parts.next()?.parse().ok()?, cores: parts.next()?.parse().ok()? })
    }
}

/// One zone of the region.
#[derive(Clone, Debug)]
pub struct Zone {
    /// `us-west-2a`.
    pub name: &'static str,
    /// `usw2-az2`: the same physical zone for every account, unlike the name.
    pub id: &'static str,
}

/// A type as sold in the region.
#[derive(Clone, Debug)]
pub struct Offering {
    /// What is sold.
    pub instance_type: &'static InstanceType,
    /// Names of the zones it is sold in.
    pub zones: Vec<&'static str>,
    /// On-demand USD per hour; `None` where no price is published.
    pub on_demand: Option<f64>,
    /// USD per hour of a dedicated bare-metal instance.
    pub dedicated: Option<f64>,
    /// The Spot Advisor's interruption band: 0 (under 5 % a month) to 4 (over 20 %).
    pub interruption_band: u8,
    /// Spot USD per hour by zone name.
    pub spot: BTreeMap<&'static str, f64>,
}

/// The catalogue as seen in one region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) zones: Vec<Zone>,
    offerings: Vec<Offering>,
}

impl Catalogue {
    pub(crate) fn new(region: &str, families: &[String]) -> Self {
        let zones: Vec<Zone> = ZONES.lines().filter_map(|line| zone(line, region)).collect();
        let chosen = |name: &str| {
            families.is_empty() || families.iter().any(|family| name.split('.').next() == Some(family.as_str()))
        };
        let lines = offerings_of(region).lines().filter(|line| chosen(line.split('\t').next().unwrap_or_default()));
        let offerings = lines.filter_map(|line| offering(line, &zones)).collect();
        Self { zones, offerings }
    }

    /// In the order of their names.
    pub(crate) fn offerings(&self) -> &[Offering] {
        &self.offerings
    }

    pub(crate) fn offering(&self, name: &str) -> Option<&Offering> {
        let index = self.offerings.binary_search_by(|offering| offering.instance_type.name.cmp(name)).ok()?;
        Some(&self.offerings[index])
    }

    pub(crate) fn zone(&self, name: &str) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.name == name)
    }
}

/// The regions whose offerings the catalogue holds.
pub fn regions() -> &'static [&'static str] {
    &["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-northeast-1", "ap-northeast-3"]
}

fn offerings_of(region: &str) -> &'static str {
    match region {
        "us-east-1" => include_str!("../../data/offerings-us-east-1.tsv"),
        "us-east-2" => include_str!("../../data/offerings-us-east-2.tsv"),
        "us-west-2" => include_str!("../../data/offerings-us-west-2.tsv"),
        "eu-west-1" => include_str!("../../data/offerings-eu-west-1.tsv"),
        "ap-northeast-1" => include_str!("../../data/offerings-ap-northeast-1.tsv"),
        "ap-northeast-3" => include_str!("../../data/offerings-ap-northeast-3.tsv"),
        _ => "",
    }
}

fn zone(line: &'static str, region: &str) -> Option<Zone> {
    let mut fields = line.split('\t');
    (fields.next()? == region).then_some(())?;
    Some(Zone { name: fields.next()?, id: fields.next()? })
}

fn offering(line: &'static str, zones: &[Zone]) -> Option<Offering> {
    let mut fields = line.split('\t');
    let instance_type = InstanceType::named(fields.next()?)?;
    let by_letter = |letter: &str| zones.iter().find(|zone| zone.name.ends_with(letter)).map(|zone| zone.name);
    let price = |text: &str| text.parse::<f64>().ok().filter(|price| *price > 0.0);
    Some(Offering {
        instance_type,
        zones: fields.next()?.split(',').filter_map(by_letter).collect(),
        on_demand: price(fields.next()?),
        dedicated: price(fields.next()?),
        interruption_band: fields.next()?.parse().unwrap_or(0),
        spot: fields
            .next()?
            .split(',')
            .filter_map(|part| part.split_once('='))
            .filter_map(|(letter, text)| Some((by_letter(letter)?, price(text)?)))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        assert_eq!(TYPES.len(), INSTANCE_TYPES.lines().count());
        assert!(TYPES.windows(2).all(|pair| pair[0].name < pair[1].name), "binary search needs sorted names");
        for region in regions() {
            let catalogue = Catalogue::new(region, &[]);
            assert_eq!(catalogue.offerings().len(), offerings_of(region).lines().count(), "{region}");
            assert!(catalogue.offerings().iter().all(|offering| !offering.zones.is_empty()), "{region}");
        }
    }

    #[test]
    fn m5_large_in_oregon_is_as_published() {
        let catalogue = Catalogue::new("us-west-2", &["m5".into()]);
        let offering = catalogue.offering("m5.large").unwrap();
        let instance_type = offering.instance_type;
        assert_eq!((instance_type.vcpus, instance_type.memory_mib), (2, 8192));
        assert_eq!((instance_type.default_card_interfaces, instance_type.ipv4_per_interface), (3, 10));
        assert_eq!(offering.on_demand, Some(0.096));
        assert_eq!(catalogue.zone("us-west-2a").unwrap().id, "usw2-az2");
        assert!(catalogue.offering("c5.large").is_none(), "only the chosen families are offered");
    }
}
