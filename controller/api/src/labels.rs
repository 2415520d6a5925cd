//! Every label, annotation, taint and finalizer that carries meaning, under the name other programs know (core spec §1.6,
//! AWS spec §1.1 and §3.1).

// Kubernetes' own labels.

/// Processor architecture: `amd64` or `arm64`.
pub const ARCH_LABEL: &str = "kubernetes.io/arch";
/// Operating system: `linux` or `windows`.
pub const OS_LABEL: &str = "kubernetes.io/os";
/// The node's host name.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The cloud's name of the machine type, such as `m5.large`.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// Build of Windows Server, such as `10.0.20348`.
pub const WINDOWS_BUILD_LABEL: &str = "node.kubernetes.io/windows-build";
/// The zone, such as `us-west-2a`.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The region, such as `us-west-2`.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Keeps a node out of load balancers; the controller sets it while it terminates a node.
pub const EXCLUDE_FROM_LOAD_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Value of [`ARCH_LABEL`] for x86-64.
pub const ARCH_AMD64: &str = "amd64";
/// Value of [`ARCH_LABEL`] for 64-bit Arm.
pub const ARCH_ARM64: &str = "arm64";

// Labels of core.

/// The pool a NodeClaim or Node belongs to.
pub const NODE_POOL_LABEL: &str = "karpenter.sh/nodepool";
/// How the instance is paid for.
pub const CAPACITY_TYPE_LABEL: &str = "karpenter.sh/capacity-type";
/// On a Node: its NodeClaim has recognised it.
pub const REGISTERED_LABEL: &str = "karpenter.sh/registered";
/// On a Node: it was ready for pods once.
pub const INITIALIZED_LABEL: &str = "karpenter.sh/initialized";
/// On a Node: its taints are not to be brought in line with the NodeClaim's.
pub const DO_NOT_SYNC_TAINTS_LABEL: &str = "karpenter.sh/do-not-sync-taints";

/// Value of [`CAPACITY_TYPE_LABEL`]: list price.
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
/// Value of [`CAPACITY_TYPE_LABEL`]: spare capacity that can be reclaimed.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
/// Value of [`CAPACITY_TYPE_LABEL`]: a capacity reservation.
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";

// Labels of the AWS provider.

/// Name of the EC2NodeClass.
pub const NODE_CLASS_LABEL: &str = "karpenter.k8s.aws/ec2nodeclass";
/// Zone id, such as `usw2-az1`.
pub const ZONE_ID_LABEL: &str = "topology.k8s.aws/zone-id";
/// The EBS CSI driver's label for the zone.
pub const EBS_CSI_ZONE_LABEL: &str = "topology.ebs.csi.aws.com/zone";
/// Number of vCPUs.
pub const INSTANCE_CPU_LABEL: &str = "karpenter.k8s.aws/instance-cpu";
/// Who made the processor.
pub const INSTANCE_CPU_MANUFACTURER_LABEL: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// The processor's clock in MHz.
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ_LABEL: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// Memory in MiB.
pub const INSTANCE_MEMORY_LABEL: &str = "karpenter.k8s.aws/instance-memory";
/// EBS bandwidth in Mbit/s.
pub const INSTANCE_EBS_BANDWIDTH_LABEL: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Network bandwidth in Mbit/s.
pub const INSTANCE_NETWORK_BANDWIDTH_LABEL: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// Letters before the generation, such as `c`.
pub const INSTANCE_CATEGORY_LABEL: &str = "karpenter.k8s.aws/instance-category";
/// The number in the family, such as `5`.
pub const INSTANCE_GENERATION_LABEL: &str = "karpenter.k8s.aws/instance-generation";
/// What stands before the dot, such as `m5`.
pub const INSTANCE_FAMILY_LABEL: &str = "karpenter.k8s.aws/instance-family";
/// What stands after the dot, such as `large`.
pub const INSTANCE_SIZE_LABEL: &str = "karpenter.k8s.aws/instance-size";
/// Whether it is a flex type.
pub const INSTANCE_CAPABILITY_FLEX_LABEL: &str = "karpenter.k8s.aws/instance-capability-flex";
/// GB of local NVMe disks.
pub const INSTANCE_LOCAL_NVME_LABEL: &str = "karpenter.k8s.aws/instance-local-nvme";
/// The hypervisor; empty for bare metal.
pub const INSTANCE_HYPERVISOR_LABEL: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Whether traffic between instances is encrypted.
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED_LABEL: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// Whether Nitro enclaves are supported.
pub const NITRO_SANDBOX_LABEL: &str = "karpenter.k8s.aws/nitro-sandbox";
/// Name of the GPU.
pub const INSTANCE_GPU_NAME_LABEL: &str = "karpenter.k8s.aws/instance-gpu-name";
/// Who made the GPU.
pub const INSTANCE_GPU_MANUFACTURER_LABEL: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// Number of GPUs.
pub const INSTANCE_GPU_COUNT_LABEL: &str = "karpenter.k8s.aws/instance-gpu-count";
/// MiB of memory of one GPU.
pub const INSTANCE_GPU_MEMORY_LABEL: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// Name of the accelerator.
pub const INSTANCE_ACCELERATOR_NAME_LABEL: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Who made the accelerator.
pub const INSTANCE_ACCELERATOR_MANUFACTURER_LABEL: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// Number of accelerators.
pub const INSTANCE_ACCELERATOR_COUNT_LABEL: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// `default` or `dedicated`.
pub const INSTANCE_TENANCY_LABEL: &str = "karpenter.k8s.aws/instance-tenancy";
/// The capacity reservation an instance runs in.
pub const CAPACITY_RESERVATION_ID_LABEL: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// `default` or `capacity-block`.
pub const CAPACITY_RESERVATION_TYPE_LABEL: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether the reservation's owner may take it back.
pub const CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The placement group an instance is in.
pub const PLACEMENT_GROUP_ID_LABEL: &str = "karpenter.k8s.aws/placement-group-id";
/// The partition of a partition placement group.
pub const PLACEMENT_GROUP_PARTITION_LABEL: &str = "karpenter.k8s.aws/placement-group-partition";

// Annotations of core.

/// `true` keeps the object from voluntary disruption; on a pod also a duration.
pub const DO_NOT_DISRUPT_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";
/// Hash of a pool's template.
pub const NODE_POOL_HASH_ANNOTATION: &str = "karpenter.sh/nodepool-hash";
/// Version of that hash.
pub const NODE_POOL_HASH_VERSION_ANNOTATION: &str = "karpenter.sh/nodepool-hash-version";
/// When a terminating NodeClaim's pods are deleted regardless of everything, in RFC 3339.
pub const TERMINATION_TIMESTAMP_ANNOTATION: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Whether `minValues` was lowered for a NodeClaim.
pub const MIN_VALUES_RELAXED_ANNOTATION: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// DRA drivers a NodeClaim's pods need.
pub const REQUESTED_DRA_DRIVERS_ANNOTATION: &str = "karpenter.sh/requested-dra-drivers";
/// A NodeOverlay changed the price.
pub const PRICE_OVERLAY_APPLIED_ANNOTATION: &str = "karpenter.sh/price-overlay-applied";
/// A NodeOverlay changed the capacity.
pub const CAPACITY_OVERLAY_APPLIED_ANNOTATION: &str = "karpenter.sh/capacity-overlay-applied";
/// Legacy; reserved.
pub const PROVIDER_COMPATIBILITY_ANNOTATION: &str = "compatibility.karpenter.sh/provider";
/// A pod that stands for spare capacity.
pub const CAPACITY_BUFFER_FAKE_POD_ANNOTATION: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// Name of the buffer such a pod belongs to.
pub const CAPACITY_BUFFER_NAME_ANNOTATION: &str = "karpenter.sh/capacity-buffer-name";
/// Namespace of that buffer.
pub const CAPACITY_BUFFER_NAMESPACE_ANNOTATION: &str = "karpenter.sh/capacity-buffer-namespace";

// Annotations of the AWS provider.

/// Hash of an EC2NodeClass.
pub const NODE_CLASS_HASH_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// Version of that hash.
pub const NODE_CLASS_HASH_VERSION_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// The instance profile a NodeClaim was launched with.
pub const INSTANCE_PROFILE_NAME_ANNOTATION: &str = "karpenter.k8s.aws/instance-profile-name";
/// The NodeClaim's instance carries its name tags.
pub const TAGGED_ANNOTATION: &str = "karpenter.k8s.aws/tagged";
/// The NodeClaim's instance carries the cluster name tag.
pub const CLUSTER_NAME_TAGGED_ANNOTATION: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";

// Finalizers and taints.

/// On Nodes and NodeClaims: the instance is terminated first.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// On EC2NodeClasses: what was made for the class is removed first.
pub const NODE_CLASS_TERMINATION_FINALIZER: &str = "karpenter.k8s.aws/termination";
/// On nodes that are about to go; effect `NoSchedule`, no value.
pub const DISRUPTED_TAINT_KEY: &str = "karpenter.sh/disrupted";
/// On nodes that no NodeClaim has recognised yet; effect `NoExecute`, no value.
pub const UNREGISTERED_TAINT_KEY: &str = "karpenter.sh/unregistered";
/// Taints with such keys are expected to go before a node is initialized.
pub const READINESS_TAINT_PREFIX: &str = "readiness.k8s.io/";
/// Kubernetes: the node is not ready.
pub const NOT_READY_TAINT_KEY: &str = "node.kubernetes.io/not-ready";
/// Kubernetes: the node does not report.
pub const UNREACHABLE_TAINT_KEY: &str = "node.kubernetes.io/unreachable";
/// Kubernetes: the cloud's controller has not seen the node yet.
pub const EXTERNAL_CLOUD_PROVIDER_TAINT_KEY: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels instance types define, so that pods may ask for them although no pool names them (core spec §1.6.4, AWS spec
/// §3.1). Sorted.
pub const WELL_KNOWN_LABELS: &[&str] = &[
    CAPACITY_RESERVATION_ID_LABEL,
    CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL,
    CAPACITY_RESERVATION_TYPE_LABEL,
    INSTANCE_ACCELERATOR_COUNT_LABEL,
    INSTANCE_ACCELERATOR_MANUFACTURER_LABEL,
    INSTANCE_ACCELERATOR_NAME_LABEL,
    INSTANCE_CAPABILITY_FLEX_LABEL,
    INSTANCE_CATEGORY_LABEL,
    INSTANCE_CPU_LABEL,
    INSTANCE_CPU_MANUFACTURER_LABEL,
    INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ_LABEL,
    INSTANCE_EBS_BANDWIDTH_LABEL,
    INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED_LABEL,
    INSTANCE_FAMILY_LABEL,
    INSTANCE_GENERATION_LABEL,
    INSTANCE_GPU_COUNT_LABEL,
    INSTANCE_GPU_MANUFACTURER_LABEL,
    INSTANCE_GPU_MEMORY_LABEL,
    INSTANCE_GPU_NAME_LABEL,
    INSTANCE_HYPERVISOR_LABEL,
    INSTANCE_LOCAL_NVME_LABEL,
    INSTANCE_MEMORY_LABEL,
    INSTANCE_NETWORK_BANDWIDTH_LABEL,
    INSTANCE_SIZE_LABEL,
    INSTANCE_TENANCY_LABEL,
    NITRO_SANDBOX_LABEL,
    PLACEMENT_GROUP_ID_LABEL,
    PLACEMENT_GROUP_PARTITION_LABEL,
    CAPACITY_TYPE_LABEL,
    NODE_POOL_LABEL,
    ARCH_LABEL,
    OS_LABEL,
    INSTANCE_TYPE_LABEL,
    WINDOWS_BUILD_LABEL,
    ZONE_ID_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
];

/// Domains whose labels belong to the controller; so do their subdomains.
pub const RESTRICTED_LABEL_DOMAINS: &[&str] = &["karpenter.k8s.aws", "karpenter.sh"];

/// Labels outside those domains that the controller cannot promise.
pub const RESTRICTED_LABELS: &[&str] = &[HOSTNAME_LABEL];

/// Values of labels that have a closed set of them.
pub const WELL_KNOWN_VALUES: &[(&str, &[&str])] = &[
    (CAPACITY_TYPE_LABEL, &[CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT]),
    (INSTANCE_TENANCY_LABEL, &["dedicated", "default"]),
];

/// Resources every node has.
pub const WELL_KNOWN_RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage", "pods"];

/// Older names and what they are called now.
const ALIASES: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", ARCH_LABEL),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE_LABEL),
    ("beta.kubernetes.io/os", OS_LABEL),
    ("failure-domain.beta.kubernetes.io/region", REGION_LABEL),
    ("failure-domain.beta.kubernetes.io/zone", ZONE_LABEL),
    (EBS_CSI_ZONE_LABEL, ZONE_LABEL),
];

/// The name in use today for a label that may go by an older one.
pub fn normalize(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, canonical)| canonical)
}

/// Whether instance types define the label.
pub fn is_well_known(key: &str) -> bool {
    WELL_KNOWN_LABELS.contains(&key)
}

/// Whether users may not require or set the label: it belongs to the controller and no instance type defines it.
pub fn is_restricted(key: &str) -> bool {
    !is_well_known(key) && (is_in_restricted_domain(key) || RESTRICTED_LABELS.contains(&key))
}

/// The part of a label before its slash; empty without one.
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

fn is_in_restricted_domain(key: &str) -> bool {
    let domain = domain(key);
    RESTRICTED_LABEL_DOMAINS
        .iter()
        .any(|restricted| domain.strip_suffix(restricted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The closed set of values of a label, if it has one.
pub fn well_known_values(key: &str) -> Option<&'static [&'static str]> {
    WELL_KNOWN_VALUES.iter().find(|(label, _)| *label == key).map(|(_, values)| *values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_are_normalized_and_others_stay() {
        for (alias, canonical) in [
            ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
            ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
            ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
            ("beta.kubernetes.io/os", "kubernetes.io/os"),
            ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
            ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
            ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
            ("team", "team"),
        ] {
            assert_eq!(normalize(alias), canonical);
        }
    }

    #[test]
    fn labels_of_the_controller_are_restricted_unless_instance_types_define_them() {
        for (key, restricted) in [
            ("karpenter.sh/initialized", true),
            ("karpenter.sh/anything", true),
            ("sub.karpenter.sh/anything", true),
            ("mykarpenter.sh/anything", false),
            ("karpenter.sh", false),
            ("karpenter.k8s.aws/ec2nodeclass", true),
            ("karpenter.k8s.aws/instance-family", false),
            ("karpenter.sh/capacity-type", false),
            ("karpenter.sh/nodepool", false),
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", false),
            ("team", false),
            ("example.com/team", false),
        ] {
            assert_eq!(is_restricted(key), restricted, "{key}");
        }
    }

    #[test]
    fn the_well_known_labels_are_sorted_and_each_once() {
        assert!(WELL_KNOWN_LABELS.is_sorted_by(|one, next| one < next));
    }
}
