//! What the control API shows, as JSON.

use crate::cloud::capacity::{Capacity, CapacityType};
use crate::cloud::catalogue::Offering;
use crate::cloud::identity::{AccessEntry, Cluster, InstanceProfile, PodIdentityAssociation, Role};
use crate::cloud::image::Image;
use crate::cloud::launch_template::LaunchTemplate;
use crate::cloud::network::{SecurityGroup, Subnet};
use crate::cloud::{Cloud, Emitted};
use crate::control::WholeInstance;
use crate::journal::JournalEntry;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn state(cloud: &mut Cloud, now: Timestamp, faults: usize) -> Value {
    let queues = queues(cloud, now);
    json!({
        "now": now,
        "region": cloud.config.region,
        "account": cloud.config.account,
        "clusters": cloud.clusters.keys().collect::<Vec<_>>(),
        "instances": cloud.instances.values().map(|one| instance(&WholeInstance::of(cloud, one))).collect::<Vec<_>>(),
        "queues": queues,
        "capacity": capacity(cloud),
        "faults": faults,
    })
}

pub(super) fn queues(cloud: &mut Cloud, now: Timestamp) -> Vec<Value> {
    let counts = cloud.queues.iter_mut().map(|(name, queue)| (name.clone(), queue.counts(now)));
    let counts: Vec<_> = counts.collect();
    let queue = |(name, (visible, in_flight, delayed)): (String, (usize, usize, usize))| {
        let url = cloud.queue_url(&name);
        json!({"name": name, "url": url, "visible": visible, "inFlight": in_flight, "delayed": delayed})
    };
    counts.into_iter().map(queue).collect()
}

fn instance(WholeInstance { instance, usd_per_hour, .. }: &WholeInstance) -> Value {
    json!({
        "id": instance.id,
        "instanceType": instance.instance_type,
        "zone": instance.zone,
        "capacityType": instance.capacity_type.name(),
        "state": instance.state.name(),
        "stateSince": instance.state_since,
        "launchedAt": instance.launched_at,
        // Two minutes after a spot notice.
        "reclaimAt": instance.reclaim_at,
        // At the present price, which is what it costs from now on.
        "pricePerHourUsd": usd_per_hour,
        "privateIp": instance.private_ip,
        "privateDnsName": instance.private_dns_name,
        "tags": instance.tags,
    })
}

/// With all that the instance itself, its users and AWS know of it.
pub(super) fn whole_instance(whole: &WholeInstance) -> Value {
    let WholeInstance { instance: one, image_name, memory_mib, role, usd_per_hour: _ } = whole;
    let groups = one.security_groups.iter().map(|(id, name)| json!({"id": id, "name": name}));
    let events = one
        .scheduled_events
        .iter()
        .map(|event| json!({"id": event.id, "code": event.code, "notBefore": event.not_before}));
    let more = json!({
        "imageId": one.image_id,
        "imageName": image_name,
        "architecture": one.architecture,
        "vcpus": one.vcpus,
        "memoryMib": memory_mib,
        "zoneId": one.zone_id,
        "subnetId": one.subnet_id,
        "securityGroups": groups.collect::<Vec<_>>(),
        "stateReason": one.state_reason.as_ref().map(|(code, message)| json!({"code": code, "message": message})),
        "instanceProfile": one.profile.as_ref().map(|profile| json!({"arn": profile.arn, "name": profile.name})),
        "role": role,
        "launchTemplate": one
            .launch_template
            .as_ref()
            .map(|template| json!({"id": template.id, "name": template.name, "version": template.version})),
        // Base64, as it was given.
        "userData": one.user_data,
        "instanceImpairedSince": one.instance_impaired_since,
        "systemImpairedSince": one.system_impaired_since,
        "scheduledEvents": events.collect::<Vec<_>>(),
    });
    let mut shown = instance(whole);
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.extend(more);
    }
    shown
}

/// Where capacity is short. The last rule that covers a pool decides, so that `rules` reads from top to bottom.
pub(super) fn capacity(cloud: &Cloud) -> Value {
    let capacity: &Capacity = &cloud.capacity;
    let rules = capacity.rules().iter().map(|rule| {
        json!({
            "instanceType": rule.instance_type,
            "zone": rule.zone,
            "capacityType": rule.capacity_type.name(),
            "exhausted": rule.exhausted,
        })
    });
    let sized = capacity.sized().map(|(instance_type, zone, capacity_type, free)| {
        json!({"instanceType": instance_type, "zone": zone, "capacityType": capacity_type.name(), "free": free})
    });
    json!({"rules": rules.collect::<Vec<_>>(), "sized": sized.collect::<Vec<_>>()})
}

/// The instances that are neither going nor gone.
pub(super) fn living(cloud: &Cloud) -> Vec<String> {
    let living = cloud.instances.values().filter(|instance| !instance.state.is_ending());
    living.map(|instance| instance.id.clone()).collect()
}

/// The instances that a spot notice can be sent to.
pub(super) fn interruptible(cloud: &Cloud) -> Vec<String> {
    let living = cloud.instances.values().filter(|instance| !instance.state.is_ending());
    let spot = living.filter(|instance| instance.capacity_type == CapacityType::Spot);
    spot.map(|instance| instance.id.clone()).collect()
}

/// With the body of the answer where it is wanted: most are long, and few readers want them.
pub(super) fn call(entry: &JournalEntry, with_response: bool) -> Value {
    let JournalEntry {
        sequence,
        at,
        answered_at,
        service,
        action,
        caller,
        principal,
        denied,
        user_agent,
        params,
        request_bytes,
        status,
        error_code,
        response,
    } = entry;
    let mut call = json!({
        "sequence": sequence,
        "at": at,
        "answeredAt": answered_at,
        "service": service.name(),
        "action": action,
        "caller": caller,
        "principal": principal,
        "denied": denied.as_ref().map(|denied| json!({"action": denied.action, "resource": denied.resource})),
        "userAgent": user_agent,
        "parameters": params,
        // No answer left if a fault swallowed it.
        "status": (*status != 0).then_some(status),
        "errorCode": error_code,
        "requestBytes": request_bytes,
        "responseBytes": response.len(),
    });
    if with_response {
        call["response"] = entry.response_text().into();
    }
    call
}

pub(super) fn event(emitted: &Emitted) -> Value {
    let Emitted { sequence, event, targets } = emitted;
    let event: Value = serde_json::from_str(event).unwrap_or_default();
    json!({"sequence": sequence, "event": event, "targets": targets})
}

pub(super) fn cluster(cluster: &Cluster) -> Value {
    let entry = |entry: &AccessEntry| {
        let AccessEntry { principal_arn, arn, kind, user_name, groups, policies, created_at, modified_at: _, tags } =
            entry;
        json!({
            "principalArn": principal_arn,
            "arn": arn,
            "type": kind,
            "userName": user_name,
            "groups": groups,
            "accessPolicies": policies.keys().collect::<Vec<_>>(),
            "createdAt": created_at,
            "tags": tags,
        })
    };
    let Cluster {
        name,
        arn,
        version,
        endpoint,
        certificate_authority,
        service_cidr,
        created_at,
        subnet_ids,
        vpc_id,
        security_group_id,
        access_entries,
        oidc_issuer,
        pod_identity_associations,
        control_plane,
    } = cluster;
    let association = |association: &PodIdentityAssociation| {
        let PodIdentityAssociation { id, arn, namespace, service_account, role_arn, created_at, modified_at: _, tags } =
            association;
        json!({
            "id": id,
            "arn": arn,
            "namespace": namespace,
            "serviceAccount": service_account,
            "roleArn": role_arn,
            "createdAt": created_at,
            "tags": tags,
        })
    };
    json!({
        "name": name,
        "arn": arn,
        "status": control_plane.status.name(),
        "version": version,
        "endpoint": endpoint,
        "certificateAuthority": certificate_authority,
        "serviceCidr": service_cidr,
        "createdAt": created_at,
        "subnetIds": subnet_ids,
        "vpcId": vpc_id,
        "securityGroupId": security_group_id,
        "accessEntries": access_entries.values().map(entry).collect::<Vec<_>>(),
        "oidcIssuer": oidc_issuer,
        "podIdentityAssociations": pod_identity_associations.values().map(association).collect::<Vec<_>>(),
    })
}

pub(super) fn image(image: &Image) -> Value {
    json!({
        "id": image.id,
        "name": image.name,
        "architecture": image.architecture,
        "ownerId": image.owner_id,
        "createdAt": image.created_at,
        "deprecatedAt": image.deprecated_at,
        "tags": image.tags,
    })
}

pub(super) fn instance_profile(profile: &InstanceProfile) -> Value {
    let InstanceProfile { id, name, path, arn, created_at, role, tags } = profile;
    json!({"id": id, "name": name, "path": path, "arn": arn, "createdAt": created_at, "role": role, "tags": tags})
}

pub(super) fn launch_template(template: &LaunchTemplate) -> Value {
    let LaunchTemplate { id, name, created_at, visible_at: _, default_version, last_number: _, versions, tags } =
        template;
    json!({
        "id": id,
        "name": name,
        "createdAt": created_at,
        "defaultVersion": default_version,
        "versions": versions.keys().collect::<Vec<_>>(),
        "tags": tags,
    })
}

pub(super) fn offering(offering: &Offering) -> Value {
    let Offering { instance_type, zones, on_demand, dedicated: _, interruption_band, spot } = offering;
    json!({
        "instanceType": instance_type.name,
        "vcpus": instance_type.vcpus,
        "memoryMib": instance_type.memory_mib,
        "zones": zones,
        "onDemandUsd": on_demand,
        "spotUsd": spot,
        "interruptionBand": interruption_band,
    })
}

pub(super) fn role(role: &Role) -> Value {
    json!({"name": role.name, "path": role.path, "arn": role.arn, "createdAt": role.created_at, "tags": role.tags})
}

pub(super) fn security_group(group: &SecurityGroup) -> Value {
    let SecurityGroup { id, name, description, vpc_id, tags, rules: _ } = group;
    json!({"id": id, "name": name, "description": description, "vpcId": vpc_id, "tags": tags})
}

pub(super) fn subnet(subnet: &Subnet) -> Value {
    json!({
        "id": subnet.id,
        "vpcId": subnet.vpc_id,
        "zone": subnet.zone,
        "zoneId": subnet.zone_id,
        "cidr": subnet.cidr.to_string(),
        "availableIpAddressCount": subnet.available_addresses(),
        "tags": subnet.tags,
    })
}
