//! EC2's description of an instance type, parsed once: what is missing in the answer is settled here.

use aws_sdk_ec2::types::{
    ArchitectureType, EbsOptimizedSupport, EnaSupport, EphemeralNvmeSupport, InstanceTypeInfo, NitroEnclavesSupport,
    UsageClassType,
};

/// One instance type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// `amd64` or `arm64`; `None` for architectures Kubernetes nodes do not have.
    pub(crate) architecture: Option<&'static str>,
    /// Whether the first architecture named is arm64, of whose memory the firmware keeps more.
    pub(crate) arm_first: bool,
    pub(crate) on_demand: bool,
    pub(crate) spot: bool,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u64,
    pub(crate) cpu_manufacturer: Option<String>,
    pub(crate) clock_speed_mhz: Option<u64>,
    pub(crate) ebs_bandwidth_mbps: Option<u64>,
    /// Size of all local disks; `None` without local disks.
    pub(crate) local_disk_gb: Option<u64>,
    pub(crate) local_disk_is_nvme: bool,
    /// Empty for bare metal.
    pub(crate) hypervisor: String,
    pub(crate) encryption_in_transit: bool,
    pub(crate) nitro_enclaves: bool,
    pub(crate) nested_virtualization: bool,
    pub(crate) ena: bool,
    pub(crate) efa_interfaces: u32,
    /// Interfaces of the default network card.
    pub(crate) default_card_interfaces: u32,
    /// Index and interfaces of every network card.
    pub(crate) cards: Vec<(i32, u32)>,
    pub(crate) ipv4_per_interface: u32,
    pub(crate) gpus: Vec<Device>,
    pub(crate) inference_accelerators: Vec<Device>,
    pub(crate) neuron_devices: Vec<Device>,
}

/// GPUs or accelerators of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) manufacturer: String,
    pub(crate) count: u32,
    /// Memory of one GPU.
    pub(crate) memory_mib: u64,
    /// Cores of one Neuron device.
    pub(crate) cores: u32,
}

impl Description {
    /// Reads EC2's description; `None` for one without a name.
    pub(crate) fn read(info: &InstanceTypeInfo) -> Option<Self> {
        let processor = info.processor_info();
        let architectures = processor.map(|processor| processor.supported_architectures()).unwrap_or_default();
        let features = processor.map(|processor| processor.supported_features()).unwrap_or_default();
        let usage = info.supported_usage_classes();
        let network = info.network_info();
        let cards: Vec<(i32, u32)> = network
            .map(|network| network.network_cards())
            .unwrap_or_default()
            .iter()
            .map(|card| (card.network_card_index().unwrap_or(0), unsigned(card.maximum_network_interfaces())))
            .collect();
        let default_card = network.and_then(|network| network.default_network_card_index()).unwrap_or(0);
        let disks = info.instance_storage_info().filter(|_| info.instance_storage_supported().unwrap_or(false));
        let ebs = info.ebs_info().filter(|ebs| ebs.ebs_optimized_support() == Some(&EbsOptimizedSupport::Default));
        Some(Self {
            name: info.instance_type()?.as_str().to_owned(),
            architecture: architectures.iter().find_map(|architecture| match architecture {
                ArchitectureType::X8664 => Some("amd64"),
                ArchitectureType::Arm64 => Some("arm64"),
                _ => None,
            }),
            arm_first: architectures.first() == Some(&ArchitectureType::Arm64),
            on_demand: usage.contains(&UsageClassType::OnDemand),
            spot: usage.contains(&UsageClassType::Spot),
            vcpus: unsigned(info.v_cpu_info().and_then(|cpu| cpu.default_v_cpus())),
            memory_mib: large(info.memory_info().and_then(|memory| memory.size_in_mib())),
            cpu_manufacturer: processor.and_then(|processor| processor.manufacturer()).map(str::to_owned),
            clock_speed_mhz: processor
                .and_then(|processor| processor.sustained_clock_speed_in_ghz())
                .map(|ghz| (ghz * 1000.0).round() as u64),
            ebs_bandwidth_mbps: ebs
                .and_then(|ebs| ebs.ebs_optimized_info()?.maximum_bandwidth_in_mbps())
                .map(|mbps| large(Some(i64::from(mbps)))),
            local_disk_gb: disks.map(|disks| large(disks.total_size_in_gb())),
            local_disk_is_nvme: disks.is_some_and(|disks| {
                disks.nvme_support().is_some_and(|support| *support != EphemeralNvmeSupport::Unsupported)
            }),
            hypervisor: info.hypervisor().map(|hypervisor| hypervisor.as_str().to_owned()).unwrap_or_default(),
            encryption_in_transit: network
                .and_then(|network| network.encryption_in_transit_supported())
                .unwrap_or(false),
            nitro_enclaves: info.nitro_enclaves_support() == Some(&NitroEnclavesSupport::Supported),
            nested_virtualization: features.iter().any(|feature| feature.as_str() == "nested-virtualization"),
            ena: network.and_then(|network| network.ena_support()).is_some_and(|ena| *ena != EnaSupport::Unsupported),
            efa_interfaces: unsigned(network.and_then(|network| network.efa_info()?.maximum_efa_interfaces())),
            default_card_interfaces: cards
                .iter()
                .find(|(index, _)| *index == default_card)
                .map_or(0, |(_, interfaces)| *interfaces),
            cards,
            ipv4_per_interface: unsigned(network.and_then(|network| network.ipv4_addresses_per_interface())),
            gpus: info.gpu_info().map(|gpus| gpus.gpus()).unwrap_or_default().iter().map(gpu).collect(),
            inference_accelerators: info
                .inference_accelerator_info()
                .map(|accelerators| accelerators.accelerators())
                .unwrap_or_default()
                .iter()
                .map(|device| Device {
                    name: text(device.name()),
                    manufacturer: text(device.manufacturer()),
                    count: unsigned(device.count()),
                    ..Device::default()
                })
                .collect(),
            neuron_devices: info
                .neuron_info()
                .map(|neuron| neuron.neuron_devices())
                .unwrap_or_default()
                .iter()
                .map(|device| Device {
                    name: text(device.name()),
                    manufacturer: "aws".to_owned(),
                    count: unsigned(device.count()),
                    cores: unsigned(device.core_info().and_then(|cores| cores.count())),
                    ..Device::default()
                })
                .collect(),
        })
    }

    /// The part before the only dot, such as `m5`; `None` for names of another form.
    pub(crate) fn family(&self) -> Option<&str> {
        self.split_name().map(|(family, _)| family)
    }

    /// The part after the only dot, such as `large`.
    pub(crate) fn size(&self) -> Option<&str> {
        self.split_name().map(|(_, size)| size)
    }

    fn split_name(&self) -> Option<(&str, &str)> {
        self.name.split_once('.').filter(|(_, size)| !size.contains('.'))
    }

    /// Category letters and generation number, such as `("m", "5")`: the first letters of the name and, after an optional
    /// `-…tb` of the high-memory types, the digits behind them (spec §3.1).
    pub(crate) fn category_and_generation(&self) -> Option<(&str, &str)> {
        let (family, _) = self.name.split_once('.')?;
        let letters = family.len() - family.trim_start_matches(|c: char| c.is_ascii_lowercase()).len();
        let (category, rest) = family.split_at(letters);
        let rest = high_memory(rest).unwrap_or(rest);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (letters > 0 && digits > 0).then(|| (category, &rest[..digits]))
    }
}

/// What follows `-<digits>tb`.
fn high_memory(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-')?;
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.strip_prefix("tb").filter(|_| rest.len() < digits.len())
}

fn gpu(device: &aws_sdk_ec2::types::GpuDeviceInfo) -> Device {
    Device {
        name: text(device.name()),
        manufacturer: text(device.manufacturer()),
        count: unsigned(device.count()),
        memory_mib: large(device.memory_info().and_then(|memory| memory.size_in_mib()).map(i64::from)),
        cores: 0,
    }
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}

fn unsigned(value: Option<i32>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

fn large(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (name, family, size, category_and_generation) in [
            ("m5.large", Some("m5"), Some("large"), Some(("m", "5"))),
            ("c7gn.16xlarge", Some("c7gn"), Some("16xlarge"), Some(("c", "7"))),
            ("inf2.xlarge", Some("inf2"), Some("xlarge"), Some(("inf", "2"))),
            ("u-6tb1.metal", Some("u-6tb1"), Some("metal"), Some(("u", "1"))),
            ("u7i-12tb.224xlarge", Some("u7i-12tb"), Some("224xlarge"), Some(("u", "7"))),
            ("m7i-flex.large", Some("m7i-flex"), Some("large"), Some(("m", "7"))),
            ("nodot", None, None, None),
        ] {
            let description = Description { name: name.to_owned(), ..Description::default() };
            assert_eq!(
                (description.family(), description.size(), description.category_and_generation()),
                (family, size, category_and_generation),
                "{name}"
            );
        }
    }
}
