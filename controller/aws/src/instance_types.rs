//! EC2's description of an instance type and a node class, to core's `InstanceType`: labels, capacity, overhead (spec
//! §3.1–§3.3). Offerings are added by `offerings`.

use crate::data;
use crate::description::{Description, Device};
use crate::kubelet::Kubelet;
use crate::resolved::{ResolvedNodeClass, volume_size};
use controller_api::{AmiFamily, Operator, labels};
use controller_core::catalog::{InstanceType, Overhead};
use controller_core::quantity::Quantity;
use controller_core::requirement::Requirement;
use controller_core::requirements::Requirements;
use controller_core::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
pub(crate) const EFA: &str = "vpc.amazonaws.com/efa";
pub(crate) const NVIDIA_GPU: &str = "nvidia.com/gpu";
pub(crate) const AMD_GPU: &str = "amd.com/gpu";
pub(crate) const GAUDI: &str = "habana.ai/gaudi";
pub(crate) const NEURON: &str = "aws.amazon.com/neuron";
pub(crate) const NEURON_CORE: &str = "aws.amazon.com/neuroncore";

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// The disk of a node that says nothing about disks.
const DEFAULT_STORAGE: Quantity = Quantity::bytes(20 * GIB);
/// What the firmware of arm64 machines keeps before the hypervisor takes its share.
const ARM_FIRMWARE_MIB: u64 = 64;

/// What the resolution of every type shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    pub(crate) vm_memory_overhead_percent: f64,
    pub(crate) reserved_enis: u32,
}

/// The labels a type has whatever class it is launched from; zones are left to [`resolve`].
pub(crate) fn fixed_requirements(description: &Description, region: &str) -> Requirements {
    let d = description;
    let (category, generation) = d.category_and_generation().unzip();
    let (gpu, accelerator) = (only(&d.gpus), only_accelerator(d));
    let kebab = |text: &str| text.to_lowercase().replace(' ', "-");
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let markets = [(d.on_demand, labels::CAPACITY_TYPE_ON_DEMAND), (d.spot, labels::CAPACITY_TYPE_SPOT)];
    let bandwidth = data::limits(&d.name).bandwidth_mbps;
    let nvme = d.local_disk_gb.filter(|_| d.local_disk_is_nvme);
    let present: [(&str, Option<String>); 28] = [
        (labels::INSTANCE_TYPE_LABEL, Some(d.name.clone())),
        (labels::ARCH_LABEL, d.architecture.map(str::to_owned)),
        (labels::OS_LABEL, Some("linux".to_owned())),
        (labels::WINDOWS_BUILD_LABEL, None),
        (labels::REGION_LABEL, Some(region.to_owned())),
        (labels::INSTANCE_CPU_LABEL, Some(d.vcpus.to_string())),
        (labels::INSTANCE_CPU_MANUFACTURER_LABEL, d.cpu_manufacturer.as_deref().map(kebab)),
        (labels::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ_LABEL, number(d.clock_speed_mhz)),
        (labels::INSTANCE_MEMORY_LABEL, Some(d.memory_mib.to_string())),
        (labels::INSTANCE_EBS_BANDWIDTH_LABEL, number(d.ebs_bandwidth_mbps)),
        (labels::INSTANCE_NETWORK_BANDWIDTH_LABEL, bandwidth.map(|mbps| mbps.to_string())),
        (labels::INSTANCE_CATEGORY_LABEL, category.map(str::to_owned)),
        (labels::INSTANCE_GENERATION_LABEL, generation.map(str::to_owned)),
        (labels::INSTANCE_FAMILY_LABEL, d.family().map(str::to_owned)),
        (labels::INSTANCE_SIZE_LABEL, d.size().map(str::to_owned)),
        (
            labels::INSTANCE_CAPABILITY_FLEX_LABEL,
            Some(d.family().is_some_and(|family| family.contains("-flex")).to_string()),
        ),
        (labels::INSTANCE_LOCAL_NVME_LABEL, number(nvme)),
        (labels::INSTANCE_HYPERVISOR_LABEL, Some(d.hypervisor.clone())),
        (labels::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED_LABEL, Some(d.encryption_in_transit.to_string())),
        (labels::NITRO_SANDBOX_LABEL, Some(d.nitro_enclaves.to_string())),
        (labels::INSTANCE_GPU_NAME_LABEL, gpu.map(|gpu| kebab(&gpu.name))),
        (labels::INSTANCE_GPU_MANUFACTURER_LABEL, gpu.map(|gpu| kebab(&gpu.manufacturer))),
        (labels::INSTANCE_GPU_COUNT_LABEL, gpu.map(|gpu| gpu.count.to_string())),
        (labels::INSTANCE_GPU_MEMORY_LABEL, gpu.map(|gpu| gpu.memory_mib.to_string())),
        (labels::INSTANCE_ACCELERATOR_NAME_LABEL, accelerator.map(|device| kebab(&device.name))),
        (labels::INSTANCE_ACCELERATOR_MANUFACTURER_LABEL, accelerator.map(|device| kebab(&device.manufacturer))),
        (labels::INSTANCE_ACCELERATOR_COUNT_LABEL, accelerator.map(|device| device.count.to_string())),
        (labels::CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL, None),
    ];
    let mut requirements: Requirements = present
        .into_iter()
        .map(|(key, value)| match value {
            Some(value) => Requirement::equals(key, value),
            None => Requirement::does_not_exist(key),
        })
        .collect();
    let markets = markets.into_iter().filter(|(offered, _)| *offered).map(|(_, market)| market);
    requirements.replace(Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::In, markets));
    requirements.replace(Requirement::new(labels::INSTANCE_TENANCY_LABEL, Operator::In, ["default", "dedicated"]));
    requirements.replace(Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID_LABEL));
    requirements.replace(Requirement::does_not_exist(labels::CAPACITY_RESERVATION_TYPE_LABEL));
    requirements
}

/// Resolves one type for one class. `offered_in` are the zones EC2 offers it in, `memory` what a node of it really had.
pub(crate) fn resolve(
    description: &Description,
    fixed: &Requirements,
    offered_in: &BTreeSet<String>,
    class: &ResolvedNodeClass<'_>,
    sizing: Sizing,
    memory: Option<Quantity>,
) -> InstanceType {
    let mut requirements = fixed.clone();
    let zones = class.zones();
    let usable: Vec<(&str, &str)> =
        zones.iter().filter(|(zone, _)| offered_in.contains(**zone)).map(|(zone, id)| (*zone, *id)).collect();
    requirements.replace(Requirement::new(labels::ZONE_LABEL, Operator::In, usable.iter().map(|(zone, _)| *zone)));
    let zone_ids: Vec<&str> = usable.iter().map(|(_, id)| *id).filter(|id| !id.is_empty()).collect();
    if !zone_ids.is_empty() {
        requirements.replace(Requirement::new(labels::ZONE_ID_LABEL, Operator::In, zone_ids));
    }
    let capacity = capacity(description, class, sizing, memory);
    let overhead = overhead(description, class, &capacity);
    InstanceType { name: description.name.clone(), requirements, offerings: Vec::new(), capacity, overhead }
}

fn capacity(d: &Description, class: &ResolvedNodeClass<'_>, sizing: Sizing, memory: Option<Quantity>) -> Resources {
    let gpus = |manufacturer: &str| sum(d.gpus.iter().filter(|gpu| gpu.manufacturer == manufacturer));
    let neuron_cores = d.neuron_devices.first().map_or(0, |device| device.count * device.cores);
    let efa = class.efa_only_interfaces().unwrap_or(d.efa_interfaces);
    let count = |count: u32| Quantity::units(i64::from(count));
    Resources::new()
        .with(CPU, count(d.vcpus))
        .with(MEMORY, memory.unwrap_or_else(|| expected_memory(d, sizing.vm_memory_overhead_percent)))
        .with(EPHEMERAL_STORAGE, ephemeral_storage(d, class))
        .with(PODS, count(pods(d, class, sizing.reserved_enis)))
        .with(POD_ENI, count(data::limits(&d.name).branch_interfaces))
        .with(NVIDIA_GPU, count(gpus("NVIDIA")))
        .with(AMD_GPU, count(gpus("AMD")))
        .with(GAUDI, count(gpus("Habana")))
        .with(NEURON, count(sum(d.neuron_devices.iter())))
        .with(NEURON_CORE, count(neuron_cores))
        .with(EFA, count(efa))
}

/// Memory after firmware and hypervisor took their share.
fn expected_memory(d: &Description, overhead_percent: f64) -> Quantity {
    let base = d.memory_mib.saturating_sub(if d.arm_first { ARM_FIRMWARE_MIB } else { 0 });
    let kept = (base as f64 * overhead_percent).ceil() as u64;
    Quantity::mebibytes(i64::try_from(base.saturating_sub(kept)).unwrap_or(i64::MAX))
}

/// The size of the disk that holds the kubelet's files.
fn ephemeral_storage(d: &Description, class: &ResolvedNodeClass<'_>) -> Quantity {
    if let Some(gigabytes) = d.local_disk_gb.filter(|gigabytes| *gigabytes > 0 && class.binds_host_disks()) {
        return format!("{gigabytes}G").parse().unwrap_or(DEFAULT_STORAGE);
    }
    let devices = class.spec.block_device_mappings.as_deref().unwrap_or_default();
    if let Some(size) = devices.iter().filter(|device| device.root_volume).find_map(volume_size) {
        return size;
    }
    let Some(ephemeral) = class.ephemeral_device() else {
        return devices.last().and_then(volume_size).unwrap_or(DEFAULT_STORAGE);
    };
    let on_device = |device: &&controller_api::BlockDeviceMapping| device.device_name.as_deref() == Some(ephemeral);
    let own = devices.iter().filter(on_device).find_map(volume_size);
    // The Linux families' own disk on that device has 20 GiB, the same as the last resort.
    own.unwrap_or(DEFAULT_STORAGE)
}

/// How many pods the node takes.
pub(crate) fn pods(d: &Description, class: &ResolvedNodeClass<'_>, reserved_enis: u32) -> u32 {
    let kubelet = &class.kubelet;
    let pods = kubelet.max_pods.unwrap_or_else(|| pods_by_addresses(d, class, reserved_enis));
    match kubelet.pods_per_core.filter(|per_core| *per_core > 0 && class.family != AmiFamily::Bottlerocket) {
        Some(per_core) => pods.min(per_core.saturating_mul(d.vcpus)),
        None => pods,
    }
}

/// How many pods get an address from the VPC: the first address of an interface is its own, and two pods use the host's.
fn pods_by_addresses(d: &Description, class: &ResolvedNodeClass<'_>, reserved_enis: u32) -> u32 {
    let taken = reserved_enis + class.efa_only_on_first_card();
    match d.default_card_interfaces.saturating_sub(taken) {
        0 => 0,
        usable => usable * d.ipv4_per_interface.saturating_sub(1) + 2,
    }
}

fn overhead(d: &Description, class: &ResolvedNodeClass<'_>, capacity: &Resources) -> Overhead {
    // Amazon Linux reserves by what the type could hold, whatever maxPods says (quirk Q11); others by what it does hold.
    let counted_pods = match class.family {
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Custom => i64::from(pods_by_addresses(d, class, 0)),
        _ => i64::try_from(capacity.get(PODS).value()).unwrap_or(i64::MAX),
    };
    let mut kube_reserved = Resources::new()
        .with(CPU, Quantity::from_milli(reserved_cpu_milli(d.vcpus)))
        .with(MEMORY, Quantity::mebibytes(11 * counted_pods + 255))
        .with(EPHEMERAL_STORAGE, Quantity::bytes(GIB));
    for (name, quantity) in quantities(&class.kubelet.kube_reserved) {
        kube_reserved.set(&name, quantity);
    }
    Overhead {
        kube_reserved,
        system_reserved: quantities(&class.kubelet.system_reserved).collect(),
        eviction_threshold: eviction_threshold(&class.kubelet, capacity),
    }
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the third and fourth, 0.25 % of the rest; each band rounded down.
fn reserved_cpu_milli(vcpus: u32) -> i64 {
    const BANDS: [(u32, u32, f64); 4] = [(0, 1, 0.06), (1, 2, 0.01), (2, 4, 0.005), (4, u32::MAX, 0.0025)];
    let reserved = |&(from, to, share): &(u32, u32, f64)| {
        let milli = f64::from(vcpus.clamp(from, to) - from) * 1000.0;
        // The products are whole numbers or end in .5; the bit added makes 10.0 of 9.999….
        (milli * share + 1e-6).floor() as i64
    };
    BANDS.iter().map(reserved).sum()
}

/// What the kubelet keeps free. Soft thresholds do not count (quirk Q12).
fn eviction_threshold(kubelet: &Kubelet, capacity: &Resources) -> Resources {
    let of = |signal: &str, total: Quantity, default: Quantity| match kubelet.eviction_hard.get(signal) {
        Some(text) => threshold(text, total).unwrap_or(default),
        None => default,
    };
    let (memory, storage) = (capacity.get(MEMORY), capacity.get(EPHEMERAL_STORAGE));
    Resources::new()
        .with(MEMORY, of("memory.available", memory, Quantity::bytes(100 * MIB)))
        .with(EPHEMERAL_STORAGE, of("nodefs.available", storage, share(storage, 10.0)))
}

/// A percentage of `total` or a quantity. 100 % switches the signal off.
fn threshold(text: &str, total: Quantity) -> Option<Quantity> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.parse().ok()?;
            Some(if percent >= 100.0 { Quantity::ZERO } else { share(total, percent) })
        }
        None => text.parse().ok(),
    }
}

/// So many percent, rounded up to whole bytes.
fn share(total: Quantity, percent: f64) -> Quantity {
    Quantity::bytes((total.as_f64() / 100.0 * percent).ceil() as i64)
}

/// The entries that are quantities; expressions need a feature gate and are refused by validation.
fn quantities(map: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Quantity)> {
    map.iter().filter_map(|(name, text)| Some((name.clone(), text.parse().ok()?)))
}

fn sum<'a>(devices: impl Iterator<Item = &'a Device>) -> u32 {
    devices.map(|device| device.count).sum()
}

/// Labels name a device only if there is just one kind.
fn only(devices: &[Device]) -> Option<&Device> {
    devices.first().filter(|_| devices.len() == 1)
}

fn only_accelerator(d: &Description) -> Option<&Device> {
    if d.neuron_devices.is_empty() { only(&d.inference_accelerators) } else { only(&d.neuron_devices) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{m5_large, node_class};
    use expect_test::{Expect, expect};
    use serde_json::json;

    const SIZING: Sizing = Sizing { vm_memory_overhead_percent: 0.075, reserved_enis: 0 };

    fn resolved(description: &Description, spec: serde_json::Value, sizing: Sizing) -> InstanceType {
        let class = node_class(spec);
        let zones = ["us-west-2a", "us-west-2b", "us-west-2d"].map(str::to_owned).into();
        let fixed = fixed_requirements(description, "us-west-2");
        resolve(description, &fixed, &zones, &ResolvedNodeClass::new(&class), sizing, None)
    }

    #[track_caller]
    fn check_capacity(description: &Description, spec: serde_json::Value, expected: &[(&str, &str)]) {
        let capacity = resolved(description, spec, SIZING).capacity;
        for (name, quantity) in expected {
            assert_eq!(capacity.get(name).to_string(), *quantity, "{name}");
        }
    }

    #[test]
    fn the_worked_example_of_an_m5_large() {
        let m5 = resolved(&m5_large(), json!({}), SIZING);
        assert_eq!(m5.capacity.get(PODS), Quantity::units(29));
        assert_eq!(m5.capacity.get(MEMORY).to_string(), "7577Mi");
        assert_eq!(m5.overhead.kube_reserved.get(MEMORY).to_string(), "574Mi");
        assert_eq!(m5.overhead.kube_reserved.get(CPU).to_string(), "70m");
        assert_eq!(m5.overhead.eviction_threshold.get(MEMORY).to_string(), "100Mi");
        let allocatable = m5.allocatable();
        assert_eq!(allocatable.get(MEMORY).to_string(), "6903Mi");
        assert_eq!(allocatable.get(CPU).to_string(), "1930m");
        // 20 GiB less 1 GiB less a tenth.
        assert_eq!(allocatable.get(EPHEMERAL_STORAGE).value(), (20 - 1 - 2) * i128::from(GIB));
    }

    #[test]
    fn reserved_cpu_is_rounded_down_band_by_band() {
        for (vcpus, milli) in [(1, 60), (2, 70), (3, 75), (4, 80), (5, 82), (8, 90), (16, 110), (96, 310), (192, 550)] {
            assert_eq!(reserved_cpu_milli(vcpus), milli, "{vcpus}");
        }
    }

    #[test]
    fn pods_follow_max_pods_then_pods_per_core_then_addresses() {
        for (kubelet, family, pods) in [
            (json!({}), "al2023@latest", "29"),
            (json!({"maxPods": 110}), "al2023@latest", "110"),
            (json!({"podsPerCore": 4}), "al2023@latest", "8"),
            (json!({"maxPods": 5, "podsPerCore": 4}), "al2023@latest", "5"),
            (json!({"podsPerCore": 0}), "al2023@latest", "29"),
            (json!({"podsPerCore": 4}), "bottlerocket@latest", "29"),
        ] {
            let spec = json!({"kubelet": kubelet, "amiSelectorTerms": [{"alias": family}]});
            check_capacity(&m5_large(), spec, &[("pods", pods)]);
        }
        let reserved = resolved(&m5_large(), json!({}), Sizing { reserved_enis: 1, ..SIZING });
        assert_eq!(reserved.capacity.get(PODS), Quantity::units(2 * 9 + 2));
        assert_eq!(reserved.overhead.kube_reserved.get(MEMORY).to_string(), "574Mi", "as if nothing were reserved");
        let none = resolved(&m5_large(), json!({}), Sizing { reserved_enis: 3, ..SIZING });
        assert_eq!(none.capacity.get(PODS), Quantity::ZERO);
    }

    #[test]
    fn bottlerocket_reserves_memory_by_the_pods_it_holds() {
        let kubelet = json!({"maxPods": 100});
        let of = |family: &str| {
            let spec = json!({"kubelet": kubelet, "amiSelectorTerms": [{"alias": family}]});
            resolved(&m5_large(), spec, SIZING).overhead.kube_reserved.get(MEMORY).to_string()
        };
        assert_eq!(of("bottlerocket@latest"), "1355Mi");
        assert_eq!(of("al2023@latest"), "574Mi");
    }

    #[test]
    fn ephemeral_storage_comes_from_the_disk_with_the_kubelets_files() {
        let disk = |device: &str, size: &str| json!({"deviceName": device, "ebs": {"volumeSize": size}});
        let with_nvme = Description { local_disk_gb: Some(75), local_disk_is_nvme: true, ..m5_large() };
        let custom = json!([{"id": "ami-1"}]);
        for (description, spec, expected) in [
            (m5_large(), json!({}), "20Gi"),
            (m5_large(), json!({"blockDeviceMappings": [disk("/dev/xvda", "100Gi")]}), "100Gi"),
            (m5_large(), json!({"blockDeviceMappings": [disk("/dev/xvdb", "100Gi")]}), "20Gi"),
            (
                m5_large(),
                json!({"blockDeviceMappings": [disk("/dev/xvda", "100Gi"),
                    {"deviceName": "/dev/xvdc", "rootVolume": true, "ebs": {"volumeSize": "50G"}}]}),
                "50G",
            ),
            (with_nvme.clone(), json!({"instanceStorePolicy": "RAID0"}), "75G"),
            (with_nvme, json!({}), "20Gi"),
            (
                m5_large(),
                json!({"amiFamily": "Custom", "amiSelectorTerms": custom,
                    "blockDeviceMappings": [disk("/dev/xvda", "100Gi"), disk("/dev/xvdz", "30Gi")]}),
                "30Gi",
            ),
            (m5_large(), json!({"amiFamily": "Custom", "amiSelectorTerms": custom}), "20Gi"),
        ] {
            check_capacity(&description, spec, &[(EPHEMERAL_STORAGE, expected)]);
        }
    }

    #[test]
    fn arm_machines_give_their_firmware_64_mib() {
        let arm = Description { architecture: Some("arm64"), arm_first: true, ..m5_large() };
        // (8192 − 64) − ceil(8128 × 0.075)
        check_capacity(&arm, json!({}), &[("memory", "7518Mi")]);
    }

    #[test]
    fn hard_eviction_thresholds_replace_the_defaults() {
        let of = |hard: serde_json::Value| {
            let spec = json!({"kubelet": {"evictionHard": hard, "evictionSoft": {"memory.available": "50%"}}});
            let eviction = resolved(&m5_large(), spec, SIZING).overhead.eviction_threshold;
            (eviction.get(MEMORY).value(), eviction.get(EPHEMERAL_STORAGE).value())
        };
        let tenth = 2 * i128::from(GIB);
        let mib = i128::from(MIB);
        assert_eq!(of(json!({"memory.available": "5%"})), ((7577 * mib * 5 + 99) / 100, tenth));
        assert_eq!(of(json!({"memory.available": "500Mi", "nodefs.available": "1Gi"})), (500 * mib, i128::from(GIB)));
        assert_eq!(of(json!({"memory.available": "100%"})), (0, tenth));
    }

    #[test]
    fn accelerators_are_resources_and_a_single_kind_is_a_label() {
        let gpu = |name: &str, count: u32| Device {
            name: name.to_owned(),
            manufacturer: "NVIDIA".to_owned(),
            count,
            memory_mib: 16384,
            cores: 0,
        };
        let one = Description { gpus: vec![gpu("Tesla T4", 4)], ..m5_large() };
        check_capacity(&one, json!({}), &[(NVIDIA_GPU, "4"), (AMD_GPU, "0")]);
        let labels = fixed_requirements(&one, "us-west-2").labels();
        assert_eq!(labels[labels::INSTANCE_GPU_NAME_LABEL], "tesla-t4");
        assert_eq!(labels[labels::INSTANCE_GPU_MEMORY_LABEL], "16384");
        let two = Description { gpus: vec![gpu("T4", 1), gpu("A10G", 1)], ..m5_large() };
        assert!(fixed_requirements(&two, "us-west-2").forbids(labels::INSTANCE_GPU_NAME_LABEL));
        let neuron = Device {
            name: "Inferentia2".to_owned(),
            manufacturer: "aws".to_owned(),
            count: 6,
            cores: 2,
            memory_mib: 0,
        };
        let inf2 = Description { neuron_devices: vec![neuron], ..m5_large() };
        check_capacity(&inf2, json!({}), &[(NEURON, "6"), (NEURON_CORE, "12")]);
        assert_eq!(
            fixed_requirements(&inf2, "us-west-2").labels()[labels::INSTANCE_ACCELERATOR_MANUFACTURER_LABEL],
            "aws"
        );
    }

    #[test]
    fn every_label_of_an_m5_large_is_there() {
        let text: String = resolved(&m5_large(), json!({}), SIZING)
            .requirements
            .iter()
            .map(|requirement| format!("{requirement}\n"))
            .collect();
        check_text(
            &text,
            expect![[r#"
            karpenter.k8s.aws/capacity-reservation-id DoesNotExist
            karpenter.k8s.aws/capacity-reservation-interruptible DoesNotExist
            karpenter.k8s.aws/capacity-reservation-type DoesNotExist
            karpenter.k8s.aws/instance-accelerator-count DoesNotExist
            karpenter.k8s.aws/instance-accelerator-manufacturer DoesNotExist
            karpenter.k8s.aws/instance-accelerator-name DoesNotExist
            karpenter.k8s.aws/instance-capability-flex In [false]
            karpenter.k8s.aws/instance-category In [m]
            karpenter.k8s.aws/instance-cpu In [2]
            karpenter.k8s.aws/instance-cpu-manufacturer In [intel]
            karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz In [3100]
            karpenter.k8s.aws/instance-ebs-bandwidth In [4750]
            karpenter.k8s.aws/instance-encryption-in-transit-supported In [false]
            karpenter.k8s.aws/instance-family In [m5]
            karpenter.k8s.aws/instance-generation In [5]
            karpenter.k8s.aws/instance-gpu-count DoesNotExist
            karpenter.k8s.aws/instance-gpu-manufacturer DoesNotExist
            karpenter.k8s.aws/instance-gpu-memory DoesNotExist
            karpenter.k8s.aws/instance-gpu-name DoesNotExist
            karpenter.k8s.aws/instance-hypervisor In [nitro]
            karpenter.k8s.aws/instance-local-nvme DoesNotExist
            karpenter.k8s.aws/instance-memory In [8192]
            karpenter.k8s.aws/instance-network-bandwidth In [750]
            karpenter.k8s.aws/instance-size In [large]
            karpenter.k8s.aws/instance-tenancy In [dedicated default]
            karpenter.k8s.aws/nitro-sandbox In [false]
            karpenter.sh/capacity-type In [on-demand spot]
            kubernetes.io/arch In [amd64]
            kubernetes.io/os In [linux]
            node.kubernetes.io/instance-type In [m5.large]
            node.kubernetes.io/windows-build DoesNotExist
            topology.k8s.aws/zone-id In [usw2-az1 usw2-az2]
            topology.kubernetes.io/region In [us-west-2]
            topology.kubernetes.io/zone In [us-west-2a us-west-2b]
        "#]],
        );
    }

    #[track_caller]
    fn check_text(text: &str, expected: Expect) {
        expected.assert_eq(text);
    }
}
