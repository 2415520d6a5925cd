//! Hashes of what nodes are made from, to notice when it changed: the NodePool's template (version `v3`, core spec §1.9)
//! and the EC2NodeClass (version `v6`, AWS spec §1.7).
//!
//! Both agree bit for bit with upstream's: a cluster that changes over to this controller must not replace every node.
//! The scheme is that of a Go library which hashes structures by the names of their types and fields, hence the Go names
//! here. `timeAdded` of a template's taint is the one field left out: nobody writes it in a template.

use controller_api::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, Ec2NodeClass, Ec2NodeClassSpec, MetadataOptions,
    NetworkInterface, NodePool,
};
use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeMap;

/// Value of the annotation `karpenter.sh/nodepool-hash-version`.
pub const NODE_POOL_HASH_VERSION: &str = "v3";
/// Value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash-version`.
pub const EC2_NODE_CLASS_HASH_VERSION: &str = "v6";

/// The hash of a NodePool's template without its requirements, as in `karpenter.sh/nodepool-hash`.
pub fn node_pool_hash(pool: &NodePool) -> String {
    let template = &pool.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let object_meta = Struct::new("ObjectMeta")
        .field("Labels", metadata.labels.as_ref().map(map))
        .field("Annotations", metadata.annotations.as_ref().map(map));
    let spec = &template.spec;
    let class = &spec.node_class_ref;
    let class_ref = Struct::new("NodeClassReference")
        .field("Kind", non_empty(&class.kind))
        .field("Name", non_empty(&class.name))
        .field("Group", non_empty(&class.group));
    let nanoseconds = |duration: std::time::Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let grace = spec.termination_grace_period.as_ref().map(|grace| {
        let nanoseconds = nanoseconds(grace.as_duration());
        Struct::new("Duration").field("Duration", (nanoseconds != 0).then(|| int64(nanoseconds))).hash
    });
    let expiry = spec
        .expire_after
        .as_duration()
        .map(|expiry| Struct::new("NillableDuration").field("Duration", Some(int64(nanoseconds(expiry)))).hash);
    let spec = Struct::new("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_deref().map(taints))
        .field("StartupTaints", spec.startup_taints.as_deref().map(taints))
        .field("NodeClassRef", class_ref.unless_zero())
        .field("TerminationGracePeriod", grace)
        .field("ExpireAfter", expiry);
    Struct::new("NodeClaimTemplate")
        .field("ObjectMeta", object_meta.unless_zero())
        .field("Spec", spec.unless_zero())
        .hash
        .to_string()
}

/// The hash of an EC2NodeClass, as in `karpenter.k8s.aws/ec2nodeclass-hash`. The certificate of the cluster's API takes
/// part, because user data contains it.
pub fn ec2_node_class_hash(class: &Ec2NodeClass, ca_bundle: Option<&str>) -> String {
    let family = class.spec.resolved_ami_family().map_or("", |family| family.as_str());
    let kubelet = match &class.spec.kubelet {
        None => "null".to_owned(),
        Some(kubelet) => go_json(&serde_json::Value::Object(kubelet.clone())),
    };
    let parts = [ec2_node_class_spec(&class.spec), text(family), text(ca_bundle.unwrap_or("")), text(&kubelet)];
    parts.into_iter().fold(0, |set, part| set ^ part).to_string()
}

fn ec2_node_class_spec(spec: &Ec2NodeClassSpec) -> u64 {
    let placement_group = spec.placement_group_selector.as_ref().map(|selector| {
        Struct::new("PlacementGroupSelector").text("Name", &selector.name).text("ID", &selector.id).hash
    });
    let cpu_options = spec
        .cpu_options
        .as_ref()
        .map(|options| Struct::new("CPUOptions").text("NestedVirtualization", &options.nested_virtualization).hash);
    Struct::new("EC2NodeClassSpec")
        .field("PlacementGroupSelector", placement_group)
        .field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(boolean))
        .text("UserData", &spec.user_data)
        .field("Role", spec.role.as_deref().and_then(non_empty))
        .text("InstanceProfile", &spec.instance_profile)
        .field("Tags", spec.tags.as_ref().map(map))
        .field("BlockDeviceMappings", spec.block_device_mappings.as_ref().map(|list| set(list, block_device_mapping)))
        .field("InstanceStorePolicy", spec.instance_store_policy.as_ref().map(|policy| text(policy.as_str())))
        .field("NetworkInterfaces", spec.network_interfaces.as_ref().map(|list| set(list, network_interface)))
        .field("DetailedMonitoring", spec.detailed_monitoring.map(boolean))
        .field("MetadataOptions", Some(metadata_options(&spec.metadata_options)))
        .field("ConnectionTracking", spec.connection_tracking.as_ref().map(connection_tracking))
        .text("Context", &spec.context)
        .field("CPUOptions", cpu_options)
        .hash
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    Struct::new("BlockDeviceMapping")
        .text("DeviceName", &mapping.device_name)
        .field("EBS", mapping.ebs.as_ref().map(block_device))
        .field("RootVolume", mapping.root_volume.then(|| boolean(true)))
        .hash
}

fn block_device(device: &BlockDevice) -> u64 {
    // The canonical text of the size: `2G` stays `2G`.
    let size = device.volume_size.as_ref().map(|size| match crate::quantity::Quantity::from_api(size) {
        Ok(quantity) => quantity.to_string(),
        Err(_) => size.0.clone(),
    });
    Struct::new("BlockDevice")
        .field("DeleteOnTermination", device.delete_on_termination.map(boolean))
        .field("Encrypted", device.encrypted.map(boolean))
        .field("IOPS", device.iops.map(int64))
        .text("KMSKeyID", &device.kms_key_id)
        .text("SnapshotID", &device.snapshot_id)
        .field("Throughput", device.throughput.map(int64))
        .field("VolumeInitializationRate", device.volume_initialization_rate.map(int32))
        .text("VolumeSize", &size)
        .text("VolumeType", &device.volume_type)
        .hash
}

fn network_interface(interface: &NetworkInterface) -> u64 {
    let index = |number: i32| (number != 0).then(|| int32(number));
    Struct::new("NetworkInterface")
        .field("NetworkCardIndex", index(interface.network_card_index))
        .field("DeviceIndex", index(interface.device_index))
        .field("InterfaceType", Some(text(interface.interface_type.as_str())))
        .hash
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    Struct::new("MetadataOptions")
        .field("HTTPEndpoint", Some(text(&options.http_endpoint)))
        .field("HTTPProtocolIPv6", Some(text(&options.http_protocol_ipv6)))
        .field("HTTPPutResponseHopLimit", Some(int64(options.http_put_response_hop_limit)))
        .field("HTTPTokens", Some(text(&options.http_tokens)))
        .hash
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Struct::new("ConnectionTracking")
        .field("TCPEstablishedTimeout", tracking.tcp_established_timeout.map(int32))
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .field("UDPTimeout", tracking.udp_timeout.map(int32))
        .hash
}

fn taints(taints: &[Taint]) -> u64 {
    set(taints, |taint| {
        Struct::new("Taint")
            .field("Key", non_empty(&taint.key))
            .field("Value", taint.value.as_deref().and_then(non_empty))
            .field("Effect", non_empty(&taint.effect))
            .hash
    })
}

/// A structure: the hash starts from its type's name and takes in each field that is not zero, in order of declaration.
struct Struct {
    hash: u64,
    zero: bool,
}

impl Struct {
    fn new(type_name: &str) -> Self {
        Self { hash: text(type_name), zero: true }
    }

    fn field(mut self, name: &str, value: Option<u64>) -> Self {
        if let Some(value) = value {
            self.hash = finish(self.hash ^ ordered(text(name), value));
            self.zero = false;
        }
        self
    }

    fn text(self, name: &str, value: &Option<String>) -> Self {
        self.field(name, value.as_deref().map(text))
    }

    fn unless_zero(self) -> Option<u64> {
        (!self.zero).then_some(self.hash)
    }
}

/// FNV-1 with 64 bits: multiply, then xor.
fn fnv1(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(14_695_981_039_346_656_037, |hash: u64, byte| hash.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte))
}

fn text(text: &str) -> u64 {
    fnv1(text.as_bytes())
}

fn non_empty(value: &str) -> Option<u64> {
    (!value.is_empty()).then(|| text(value))
}

fn int64(number: i64) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn int32(number: i32) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn boolean(value: bool) -> u64 {
    fnv1(&[u8::from(value)])
}

fn ordered(a: u64, b: u64) -> u64 {
    fnv1(&[a.to_le_bytes(), b.to_le_bytes()].concat())
}

fn finish(hash: u64) -> u64 {
    fnv1(&hash.to_le_bytes())
}

fn map(entries: &BTreeMap<String, String>) -> u64 {
    finish(entries.iter().fold(0, |hash, (key, value)| hash ^ ordered(text(key), text(value))))
}

fn set<T>(items: &[T], hash: impl Fn(&T) -> u64) -> u64 {
    items.iter().fold(0, |set, item| set ^ hash(item))
}

/// JSON as Go writes a map: keys in order, and `<`, `>`, `&` and two line separators escaped.
fn go_json(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(entries) => {
            let entries: BTreeMap<&String, &Value> = entries.iter().collect();
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{}:{}", go_text(key), go_json(value))).collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_json).collect::<Vec<_>>().join(",")),
        Value::String(text) => go_text(text),
        other => other.to_string(),
    }
}

fn go_text(text: &str) -> String {
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let quoted = serde_json::Value::from(text).to_string();
    escapes.into_iter().fold(quoted, |text, (character, escape)| text.replace(character, escape))
}

#[cfg(test)]
mod tests;
