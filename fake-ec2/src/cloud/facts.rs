//! Facts of an instance type that only its published XML holds: looked up by path, and gathered once for what
//! attribute-based selection asks.

use super::catalogue::InstanceType;

/// Calls `found` with the text of every element at this path. The XML is this crate's own: no attributes, nothing escaped
/// that matters.
pub(crate) fn texts(xml: &'static str, path: &[&str], found: &mut dyn FnMut(&'static str)) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some((tag, after)) = rest.split_once('<').and_then(|(_, from)| from.split_once('>')) {
        rest = after;
        if tag.starts_with('/') {
            open.pop();
            continue;
        }
        open.push(tag);
        if open == path {
            found(rest.split('<').next().unwrap_or(rest));
        }
    }
}

/// What attribute-based selection asks beyond the columns of the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// `intel`, `amd`, `amazon-web-services` or `apple`.
    pub(crate) cpu_manufacturer: String,
    pub(crate) burstable: bool,
    pub(crate) hibernation: bool,
    pub(crate) encryption_in_transit: bool,
    /// `hdd`, `ssd`.
    pub(crate) disk_types: Vec<&'static str>,
    pub(crate) ebs_baseline_mbps: f64,
    pub(crate) network_gbps: f64,
    pub(crate) accelerators: Vec<Accelerator>,
    pub(crate) accelerator_memory_mib: f64,
    /// How many cores it may be launched with.
    pub(crate) valid_cores: Vec<u32>,
    pub(crate) valid_threads: Vec<u32>,
    pub(crate) default_cores: u32,
    pub(crate) default_threads: u32,
    /// Private addresses of one interface.
    pub(crate) addresses_per_interface: u32,
    /// Strategies of placement groups it takes part in.
    pub(crate) placement_strategies: Vec<&'static str>,
}

/// One kind of accelerator.
#[derive(Clone, Debug)]
pub(crate) struct Accelerator {
    /// `gpu`, `fpga`, `inference` or `media`.
    pub(crate) kind: &'static str,
    pub(crate) manufacturer: String,
    pub(crate) name: String,
    pub(crate) count: u32,
}

impl Facts {
    /// The facts of a type, read when they are first asked for.
    pub(crate) fn of(own: &'static InstanceType) -> &'static Self {
        own.facts.get_or_init(|| Self::read(own))
    }

    fn read(own: &'static InstanceType) -> Self {
        let all = |path: &[&str]| {
            let mut values = Vec::new();
            texts(own.xml, path, &mut |value| values.push(value));
            values
        };
        let numbers = |path: &[&str]| -> Vec<u32> { all(path).iter().filter_map(|text| text.parse().ok()).collect() };
        let number = |path: &[&str]| numbers(path).first().copied().unwrap_or(1);
        let is_true = |path: &[&str]| all(path) == ["true"];
        let sum = |path: &[&str]| all(path).iter().filter_map(|text| text.parse::<f64>().ok()).sum::<f64>();
        let mut accelerators = Vec::new();
        for (kind, info, list) in [
            ("gpu", "gpuInfo", "gpus"),
            ("inference", "inferenceAcceleratorInfo", "accelerators"),
            ("fpga", "fpgaInfo", "fpgas"),
            ("media", "mediaAcceleratorInfo", "accelerators"),
        ] {
            let column = |name| all(&[info, list, "item", name]);
            let columns = column("manufacturer").into_iter().zip(column("name")).zip(column("count"));
            accelerators.extend(columns.map(|((manufacturer, name), count)| Accelerator {
                kind,
                manufacturer: manufacturer_name(manufacturer),
                name: name.to_ascii_lowercase().replace(' ', "-"),
                count: count.parse().unwrap_or(0),
            }));
        }
        Self {
            cpu_manufacturer: all(&["processorInfo", "manufacturer"])
                .first()
                .map_or_else(String::new, |name| manufacturer_name(name)),
            burstable: is_true(&["burstablePerformanceSupported"]),
            hibernation: is_true(&["hibernationSupported"]),
            encryption_in_transit: is_true(&["networkInfo", "encryptionInTransitSupported"]),
            disk_types: all(&["instanceStorageInfo", "disks", "item", "type"]),
            ebs_baseline_mbps: sum(&["ebsInfo", "ebsOptimizedInfo", "baselineBandwidthInMbps"]),
            network_gbps: sum(&["networkInfo", "networkCards", "item", "baselineBandwidthInGbps"]),
            accelerators,
            accelerator_memory_mib: sum(&["gpuInfo", "totalGpuMemoryInMiB"])
                + sum(&["inferenceAcceleratorInfo", "totalInferenceMemoryInMiB"])
                + sum(&["fpgaInfo", "totalFpgaMemoryInMiB"])
                + sum(&["mediaAcceleratorInfo", "totalMediaMemoryInMiB"]),
            valid_cores: numbers(&["vCpuInfo", "validCores", "item"]),
            valid_threads: numbers(&["vCpuInfo", "validThreadsPerCore", "item"]),
            default_cores: number(&["vCpuInfo", "defaultCores"]),
            default_threads: number(&["vCpuInfo", "defaultThreadsPerCore"]),
            addresses_per_interface: number(&["networkInfo", "ipv4AddressesPerInterface"]),
            placement_strategies: all(&["placementGroupInfo", "supportedStrategies", "item"]),
        }
    }
}

/// As InstanceRequirements spells makers.
fn manufacturer_name(name: &str) -> String {
    match name {
        "AWS" => "amazon-web-services".into(),
        other => other.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_as_published() {
        let facts = |name| Facts::of(InstanceType::named(name).unwrap());
        let gpu = &facts("p4d.24xlarge").accelerators[0];
        assert_eq!((gpu.kind, gpu.manufacturer.as_str(), gpu.name.as_str(), gpu.count), ("gpu", "nvidia", "a100", 8));
        assert_eq!(facts("p4d.24xlarge").accelerator_memory_mib, 327_680.0);
        assert_eq!(facts("p4d.24xlarge").disk_types, ["ssd"]);
        assert_eq!(facts("a1.large").cpu_manufacturer, "amazon-web-services");
        assert_eq!((facts("a1.large").ebs_baseline_mbps, facts("a1.large").network_gbps), (525.0, 0.75));
        assert!(facts("t3.micro").burstable && !facts("m5.large").burstable);
        assert!(!facts("t3.micro").placement_strategies.contains(&"cluster"));
    }
}
