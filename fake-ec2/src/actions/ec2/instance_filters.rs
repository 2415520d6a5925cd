//! Every filter of DescribeInstances, and what an instance answers to it.
//!
//! What no instance here has (public and IPv6 addresses, prefixes, product codes, an operator, an Outpost) matches nothing.

use crate::cloud::filter::Test;
use crate::cloud::instance::{Instance, NetworkInterface};
use crate::wire::xml::timestamp;

// fidelity: documented(EC2 API Reference, DescribeInstances: filters)
pub(super) const KNOWN: [&str; 135] = [
    "affinity",
    "architecture",
    "availability-zone",
    "availability-zone-id",
    "block-device-mapping.attach-time",
    "block-device-mapping.delete-on-termination",
    "block-device-mapping.device-name",
    "block-device-mapping.status",
    "block-device-mapping.volume-id",
    "boot-mode",
    "capacity-reservation-id",
    "capacity-reservation-specification.capacity-reservation-preference",
    "capacity-reservation-specification.capacity-reservation-target.capacity-reservation-id",
    "capacity-reservation-specification.capacity-reservation-target.capacity-reservation-resource-group-arn",
    "client-token",
    "current-instance-boot-mode",
    "dns-name",
    "ebs-optimized",
    "ena-support",
    "enclave-options.enabled",
    "hibernation-options.configured",
    "host-id",
    "hypervisor",
    "iam-instance-profile.arn",
    "iam-instance-profile.id",
    "image-id",
    "instance-id",
    "instance-lifecycle",
    "instance-state-code",
    "instance-state-name",
    "instance-type",
    "instance.group-id",
    "instance.group-name",
    "ip-address",
    "ipv6-address",
    "kernel-id",
    "key-name",
    "launch-index",
    "launch-time",
    "maintenance-options.auto-recovery",
    "metadata-options.http-endpoint",
    "metadata-options.http-protocol-ipv4",
    "metadata-options.http-protocol-ipv6",
    "metadata-options.http-put-response-hop-limit",
    "metadata-options.http-tokens",
    "metadata-options.instance-metadata-tags",
    "metadata-options.state",
    "monitoring-state",
    "network-interface.addresses.association.allocation-id",
    "network-interface.addresses.association.association-id",
    "network-interface.addresses.association.carrier-ip",
    "network-interface.addresses.association.customer-owned-ip",
    "network-interface.addresses.association.ip-owner-id",
    "network-interface.addresses.association.public-dns-name",
    "network-interface.addresses.association.public-ip",
    "network-interface.addresses.primary",
    "network-interface.addresses.private-dns-name",
    "network-interface.addresses.private-ip-address",
    "network-interface.association.allocation-id",
    "network-interface.association.association-id",
    "network-interface.association.carrier-ip",
    "network-interface.association.customer-owned-ip",
    "network-interface.association.ip-owner-id",
    "network-interface.association.public-dns-name",
    "network-interface.association.public-ip",
    "network-interface.attachment.attach-time",
    "network-interface.attachment.attachment-id",
    "network-interface.attachment.delete-on-termination",
    "network-interface.attachment.device-index",
    "network-interface.attachment.instance-id",
    "network-interface.attachment.instance-owner-id",
    "network-interface.attachment.network-card-index",
    "network-interface.attachment.status",
    "network-interface.availability-zone",
    "network-interface.deny-all-igw-traffic",
    "network-interface.description",
    "network-interface.group-id",
    "network-interface.group-name",
    "network-interface.ipv4-prefixes.ipv4-prefix",
    "network-interface.ipv6-address",
    "network-interface.ipv6-addresses.ipv6-address",
    "network-interface.ipv6-addresses.is-primary-ipv6",
    "network-interface.ipv6-native",
    "network-interface.ipv6-prefixes.ipv6-prefix",
    "network-interface.mac-address",
    "network-interface.network-interface-id",
    "network-interface.operator.managed",
    "network-interface.operator.principal",
    "network-interface.outpost-arn",
    "network-interface.owner-id",
    "network-interface.private-dns-name",
    "network-interface.private-ip-address",
    "network-interface.public-dns-name",
    "network-interface.requester-id",
    "network-interface.requester-managed",
    "network-interface.status",
    "network-interface.source-dest-check",
    "network-interface.subnet-id",
    "network-interface.tag-key",
    "network-interface.tag-value",
    "network-interface.vpc-id",
    "network-performance-options.bandwidth-weighting",
    "operator.managed",
    "operator.principal",
    "outpost-arn",
    "owner-id",
    "placement-group-name",
    "placement-partition-number",
    "platform",
    "platform-details",
    "private-dns-name",
    "private-dns-name-options.enable-resource-name-dns-a-record",
    "private-dns-name-options.enable-resource-name-dns-aaaa-record",
    "private-dns-name-options.hostname-type",
    "private-ip-address",
    "product-code",
    "product-code.type",
    "ramdisk-id",
    "reason",
    "requester-id",
    "reservation-id",
    "root-device-name",
    "root-device-type",
    "source-dest-check",
    "spot-instance-request-id",
    "state-reason-code",
    "state-reason-message",
    "subnet-id",
    "tag-key",
    "tenancy",
    "tpm-support",
    "usage-operation",
    "usage-operation-update-time",
    "virtualization-type",
    "vpc-id",
];

pub(super) fn attribute(instance: &Instance, account: &str, name: &str, test: Test<'_>) -> bool {
    if let Some(name) = name.strip_prefix("network-interface.") {
        let mut any = instance.network_interfaces.iter();
        return any.any(|own| interface_attribute(instance, own, account, name, test));
    }
    if let Some(name) = name.strip_prefix("block-device-mapping.") {
        return device_attribute(instance, name, test);
    }
    if let Some(name) = name.strip_prefix("metadata-options.") {
        return metadata_attribute(instance, name, test);
    }
    let kept = |path: &str| instance.specification.rest.get(path);
    match name {
        "affinity" => test(kept("Placement.Affinity").unwrap_or("default")),
        "architecture" => test(&instance.architecture),
        "availability-zone" => test(&instance.zone),
        "availability-zone-id" => test(&instance.zone_id),
        "capacity-reservation-id" => optional(instance.capacity_reservation_id.as_deref(), test),
        "capacity-reservation-specification.capacity-reservation-preference" => {
            test(instance.capacity_reservation_preference.as_deref().unwrap_or("open"))
        }
        "capacity-reservation-specification.capacity-reservation-target.capacity-reservation-id" => {
            optional(instance.specification.reservation_id.as_deref(), test)
        }
        "capacity-reservation-specification.capacity-reservation-target.capacity-reservation-resource-group-arn" => {
            optional(
                kept("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn"),
                test,
            )
        }
        "client-token" => optional(instance.client_token.as_deref(), test),
        "ebs-optimized" => flag(instance.ebs_optimized, test),
        "ena-support" => flag(true, test),
        "enclave-options.enabled" => flag(instance.specification.enclave.unwrap_or(false), test),
        "hibernation-options.configured" => test(kept("HibernationOptions.Configured").unwrap_or("false")),
        "host-id" => optional(kept("Placement.HostId"), test),
        "hypervisor" => test("xen"),
        "iam-instance-profile.arn" => optional(instance.profile.as_ref().map(|own| own.arn.as_str()), test),
        "iam-instance-profile.id" => optional(instance.profile.as_ref().map(|own| own.id.as_str()), test),
        "image-id" => test(&instance.image_id),
        "instance-id" => test(&instance.id),
        "instance-lifecycle" => instance.spot_request_id.is_some() && test("spot"),
        "instance-state-code" => test(&instance.state.code().to_string()),
        "instance-state-name" => test(instance.state.name()),
        "instance-type" => test(instance.instance_type),
        "instance.group-id" => instance.security_groups.iter().any(|(id, _)| test(id)),
        "instance.group-name" => instance.security_groups.iter().any(|(_, name)| test(name)),
        "kernel-id" => optional(kept("KernelId"), test),
        "key-name" => optional(instance.key_name.as_deref(), test),
        "launch-index" => test(&instance.launch_index.to_string()),
        "launch-time" => test(&timestamp(instance.launched_at)),
        "maintenance-options.auto-recovery" => test(kept("MaintenanceOptions.AutoRecovery").unwrap_or("default")),
        "monitoring-state" => test(if instance.monitoring { "enabled" } else { "disabled" }),
        "network-performance-options.bandwidth-weighting" => {
            test(kept("NetworkPerformanceOptions.BandwidthWeighting").unwrap_or("default"))
        }
        "owner-id" => test(account),
        "placement-group-name" => optional(instance.placement_group.as_ref().map(|(_, name)| name.as_str()), test),
        "placement-partition-number" => instance.partition.is_some_and(|number| test(&number.to_string())),
        "platform-details" => test("Linux/UNIX"),
        "private-dns-name" => test(&instance.private_dns_name),
        "private-dns-name-options.enable-resource-name-dns-a-record" => {
            test(kept("PrivateDnsNameOptions.EnableResourceNameDnsARecord").unwrap_or("false"))
        }
        "private-dns-name-options.enable-resource-name-dns-aaaa-record" => {
            test(kept("PrivateDnsNameOptions.EnableResourceNameDnsAAAARecord").unwrap_or("false"))
        }
        "private-dns-name-options.hostname-type" => {
            test(kept("PrivateDnsNameOptions.HostnameType").unwrap_or("ip-name"))
        }
        "private-ip-address" => test(&instance.private_ip.to_string()),
        "ramdisk-id" => optional(kept("RamdiskId").or(kept("RamDiskId")), test),
        "reason" => test(&instance.transition_reason),
        "reservation-id" => test(&instance.reservation_id),
        "root-device-name" => optional(instance.volumes.first().map(|own| own.device.device_name.as_str()), test),
        "root-device-type" => test("ebs"),
        "source-dest-check" => flag(instance.source_dest_check, test),
        "spot-instance-request-id" => optional(instance.spot_request_id.as_deref(), test),
        "state-reason-code" => optional(instance.state_reason.as_ref().map(|(code, _)| code.as_str()), test),
        "state-reason-message" => optional(instance.state_reason.as_ref().map(|(_, message)| message.as_str()), test),
        "subnet-id" => test(&instance.subnet_id),
        "tenancy" => test(&instance.tenancy),
        "usage-operation" => test("RunInstances"),
        "usage-operation-update-time" => test(&timestamp(instance.launched_at)),
        "virtualization-type" => test("hvm"),
        "vpc-id" => test(&instance.vpc_id),
        _ => false,
    }
}

fn interface_attribute(instance: &Instance, own: &NetworkInterface, account: &str, name: &str, test: Test<'_>) -> bool {
    match name {
        "addresses.primary" => flag(true, test),
        "addresses.private-ip-address" | "private-ip-address" => test(&own.private_ip.to_string()),
        "addresses.private-dns-name" | "private-dns-name" => own.device_index == 0 && test(&instance.private_dns_name),
        "attachment.attach-time" => test(&timestamp(instance.launched_at)),
        "attachment.attachment-id" => test(&own.attachment_id),
        "attachment.delete-on-termination" => flag(true, test),
        "attachment.device-index" => test(&own.device_index.to_string()),
        "attachment.instance-id" => test(&instance.id),
        "attachment.instance-owner-id" | "owner-id" => test(account),
        "attachment.network-card-index" => test(&own.network_card_index.to_string()),
        "attachment.status" => test("attached"),
        "availability-zone" => test(&instance.zone),
        "group-id" => own.security_groups.iter().any(|(id, _)| test(id)),
        "group-name" => own.security_groups.iter().any(|(_, name)| test(name)),
        "network-interface-id" => test(&own.id),
        "requester-managed" => flag(false, test),
        "source-dest-check" => flag(instance.source_dest_check, test),
        "status" => test("in-use"),
        "subnet-id" => test(&own.subnet_id),
        "tag-key" => own.tags.keys().any(|key| test(key)),
        "tag-value" => own.tags.values().any(|value| test(value)),
        "vpc-id" => test(&instance.vpc_id),
        _ => false,
    }
}

fn device_attribute(instance: &Instance, name: &str, test: Test<'_>) -> bool {
    instance.volumes.iter().any(|own| match name {
        "attach-time" => test(&timestamp(instance.launched_at)),
        "delete-on-termination" => flag(own.device.delete_on_termination.unwrap_or(true), test),
        "device-name" => test(&own.device.device_name),
        "status" => test("attached"),
        "volume-id" => test(&own.id),
        _ => false,
    })
}

fn metadata_attribute(instance: &Instance, name: &str, test: Test<'_>) -> bool {
    let own = &instance.metadata;
    match name {
        "http-endpoint" => optional(own.endpoint.as_deref(), test),
        "http-protocol-ipv4" => test("enabled"),
        "http-protocol-ipv6" => optional(own.protocol_ipv6.as_deref(), test),
        "http-put-response-hop-limit" => own.hop_limit.is_some_and(|limit| test(&limit.to_string())),
        "http-tokens" => optional(own.tokens.as_deref(), test),
        "instance-metadata-tags" => optional(own.tags.as_deref(), test),
        "state" => test("applied"),
        _ => false,
    }
}

fn flag(value: bool, test: Test<'_>) -> bool {
    test(if value { "true" } else { "false" })
}

fn optional(value: Option<&str>, test: Test<'_>) -> bool {
    value.is_some_and(test)
}
