//! What there is in the account, and what somebody with all rights does to it: instances, resources by kind, tags, roles,
//! images, queues and who may join a cluster.

use super::ask::Fields;
use super::journal::check_cursor;
use super::{Outcome, PREFIX, Refusal, of_instance, view, wait};
use crate::bootstrap;
use crate::cloud::Cloud;
use crate::control::{Impairment, UnknownResource, WholeInstance};
use crate::server::FakeEc2;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

type Show = fn(&mut Cloud, Timestamp) -> Vec<Value>;

/// The kinds of `GET /resources/{id}`.
const KINDS: [(&str, Show); 9] = [
    ("clusters", |cloud, _| cloud.clusters.values().map(view::cluster).collect()),
    ("images", |cloud, _| cloud.images.images.values().map(view::image).collect()),
    ("instanceProfiles", |cloud, _| cloud.identity.profiles.values().map(view::instance_profile).collect()),
    ("launchTemplates", |cloud, _| cloud.templates.iter().map(view::launch_template).collect()),
    ("offerings", |cloud, _| cloud.catalogue.offerings().iter().map(view::offering).collect()),
    ("queues", view::queues),
    ("roles", |cloud, _| cloud.identity.roles.values().map(view::role).collect()),
    ("securityGroups", |cloud, _| cloud.network.groups.values().map(view::security_group).collect()),
    ("subnets", |cloud, _| cloud.network.subnets.values().map(view::subnet).collect()),
];

pub(super) fn resources(ec2: &FakeEc2, kind: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let Some(&(_, show)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        let kinds = KINDS.map(|(name, _)| name).join(", ");
        return Err(missing("kind", format!("there is no kind of resources {kind:?}"), kinds));
    };
    Ok(json!({kind: ec2.locked(show)}))
}

pub(super) fn instances(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    Ok(ec2.locked(|cloud, _| {
        let whole = cloud.instances.values().map(|one| view::whole_instance(&WholeInstance::of(cloud, one)));
        let instances: Vec<Value> = whole.collect();
        json!({"instances": instances, "revision": cloud.instance_revision})
    }))
}

pub(super) async fn instances_changed(ec2: &FakeEc2, fields: &mut Fields) -> Outcome {
    let after = fields.number("after", 0..=u64::MAX)?.unwrap_or(0);
    let wait = wait(fields)?;
    fields.finish()?;
    check_cursor(after, ec2.cloud().instance_revision(), "changes of instances were made")?;
    let changed = tokio::time::timeout(wait, ec2.cloud().instances_changed(after)).await;
    Ok(json!({"revision": changed.unwrap_or(after)}))
}

pub(super) fn impair(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    let check = match fields.text("check")?.as_deref() {
        None | Some("system") => Impairment::System,
        Some("instance") => Impairment::Instance,
        Some(other) => {
            return Err(Refusal::invalid("check", format!("there is no status check {other:?}"), "system or instance"));
        }
    };
    let failing = fields.boolean("failing")?.unwrap_or(true);
    fields.finish()?;
    ec2.cloud().impair(id, check, failing).map_err(|_| no_instance(ec2, id))?;
    Ok(json!({"instance": id, "failing": failing}))
}

pub(super) fn schedule_maintenance(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    const CODES: [&str; 5] =
        ["instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot"];
    let (code, not_before) = (fields.text("code")?, fields.text("notBefore")?);
    fields.finish()?;
    let code = fields.required("code", code, &CODES.join(", "))?;
    if !CODES.contains(&code.as_str()) {
        return Err(Refusal::invalid("code", format!("EC2 has no scheduled event {code:?}"), CODES.join(", ")));
    }
    let instant = "an instant, such as 2026-01-08T00:00:00Z";
    let not_before = fields.required("notBefore", not_before, instant)?;
    let not_before: Timestamp = not_before
        .parse()
        .map_err(|_| Refusal::invalid("notBefore", format!("{not_before:?} is no instant"), instant))?;
    ec2.cloud().schedule_maintenance(id, &code, not_before).map_err(|_| no_instance(ec2, id))?;
    Ok(json!({"instance": id, "code": code, "notBefore": not_before}))
}

fn no_instance(ec2: &FakeEc2, id: &str) -> Refusal {
    ec2.locked(|cloud, _| of_instance(cloud, crate::cloud::no_such_instance(&[id])))
}

pub(super) fn set_tags(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let resource = fields.text("resource")?;
    let tags = fields.object("tags")?.map(|mut tags| tags.whole());
    fields.finish()?;
    let resource = fields.required("resource", resource, "the id of a resource that has tags, such as subnet-0123")?;
    let tags = fields.required("tags", tags, "an object of texts")?;
    let tags = tags.as_object().into_iter().flatten().map(|(key, value)| match value.as_str() {
        Some(value) => Ok((key.clone(), value.to_owned())),
        None => Err(Refusal::invalid(&format!("tags.{key}"), format!("tags.{key} is {value}"), "a text")),
    });
    let tags = tags.collect::<Result<Vec<_>, _>>()?;
    ec2.cloud().set_tags(&resource, tags).map_err(|unknown| {
        let expected = format!("an id of GET {PREFIX}/instances or {PREFIX}/resources");
        missing("resource", unknown.to_string(), expected)
    })?;
    Ok(json!({"resource": resource}))
}

pub(super) fn add_role(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let name = fields.text("name")?;
    fields.finish()?;
    let expected = "up to 64 letters, digits and +=,.@_-";
    let name = fields.required("name", name, expected)?;
    if name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte)) {
        return Err(Refusal::invalid("name", format!("{name:?} is no name of a role"), expected));
    }
    ec2.locked(|cloud, now| {
        if cloud.identity.roles.contains_key(&name) {
            let error = format!("there is a role {name:?} already");
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        Ok(json!({"name": name, "arn": bootstrap::add_role(cloud, now, &name, "ec2.amazonaws.com")}))
    })
}

pub(super) fn release_images(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let (kubernetes, date) = (fields.text("kubernetesVersion")?, fields.text("date")?);
    let bottlerocket = fields.text("bottlerocketVersion")?;
    fields.finish()?;
    let expected = "a minor version, such as 1.36";
    let kubernetes = fields.required("kubernetesVersion", kubernetes, expected)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !kubernetes.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        let error = format!("{kubernetes:?} is no Kubernetes version");
        return Err(Refusal::invalid("kubernetesVersion", error, expected));
    }
    let expected = "a date of eight digits, such as 20260115";
    let date = fields.required("date", date, expected)?;
    if date.len() != 8 || !is_number(&date) {
        return Err(Refusal::invalid("date", format!("{date:?} is no date of a release"), expected));
    }
    let bottlerocket = fields.required("bottlerocketVersion", bottlerocket, "a version, such as 1.53.0")?;
    ec2.cloud().release_images(&kubernetes, &date, &bottlerocket);
    Ok(json!({"kubernetesVersion": kubernetes, "date": date, "bottlerocketVersion": bottlerocket}))
}

pub(super) fn add_queue(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let name = fields.text("name")?;
    fields.finish()?;
    let expected = "up to 80 letters, digits, - and _";
    let name = fields.required("name", name, expected)?;
    if name.len() > 80 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(Refusal::invalid("name", format!("{name:?} is no name of a queue"), expected));
    }
    Ok(json!({"name": name, "url": ec2.cloud().add_queue(&name)}))
}

pub(super) fn remove_queue(ec2: &FakeEc2, name: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    ec2.cloud().remove_queue(name).map_err(|_| no_queue(ec2, name))?;
    Ok(json!({"removed": 1}))
}

pub(super) fn send_message(ec2: &FakeEc2, name: &str, fields: &mut Fields) -> Outcome {
    let body = fields.text("body")?;
    fields.finish()?;
    let body = fields.required("body", body, "the text of the message")?;
    ec2.cloud().send_raw_message(name, &body).map_err(|error| match error.code.as_ref() {
        "QueueDoesNotExist" => no_queue(ec2, name),
        _ => Refusal::invalid("body", error.message, "a message as SQS takes it"),
    })?;
    Ok(json!({"queue": name}))
}

fn no_queue(ec2: &FakeEc2, name: &str) -> Refusal {
    let names = ec2.locked(|cloud, _| cloud.queues.keys().cloned().collect());
    missing("queue", format!("there is no queue {name:?}"), one_of(names))
}

pub(super) fn add_access_entry(ec2: &FakeEc2, cluster: &str, fields: &mut Fields) -> Outcome {
    const TYPES: [&str; 6] = ["EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", "STANDARD"];
    let kind = fields.text("type")?.unwrap_or_else(|| "STANDARD".into());
    let arn = principal(fields)?;
    if !TYPES.contains(&kind.as_str()) {
        let error = format!("EKS has no access entries of the type {kind:?}");
        return Err(Refusal::invalid("type", error, TYPES.join(", ")));
    }
    ec2.cloud().set_access_entry(cluster, &arn, Some(&kind)).map_err(|unknown| no_cluster(ec2, &unknown))?;
    Ok(json!({"cluster": cluster, "principalArn": arn, "type": kind}))
}

pub(super) fn remove_access_entry(ec2: &FakeEc2, cluster: &str, fields: &mut Fields) -> Outcome {
    let arn = principal(fields)?;
    let present = ec2.cloud().cluster(cluster).is_some_and(|cluster| cluster.access_entries.contains_key(&arn));
    ec2.cloud().set_access_entry(cluster, &arn, None).map_err(|unknown| no_cluster(ec2, &unknown))?;
    Ok(json!({"removed": u8::from(present)}))
}

fn principal(fields: &mut Fields) -> Result<String, Refusal> {
    let arn = fields.text("principalArn")?;
    fields.finish()?;
    let expected = "the ARN of a role or user, such as arn:aws:iam::123456789012:role/NodeRole";
    let arn = fields.required("principalArn", arn, expected)?;
    match arn.starts_with("arn:") && arn.contains(":iam::") {
        true => Ok(arn),
        false => Err(Refusal::invalid("principalArn", format!("{arn:?} is no ARN of IAM"), expected)),
    }
}

fn no_cluster(ec2: &FakeEc2, UnknownResource(name): &UnknownResource) -> Refusal {
    let names = ec2.locked(|cloud, _| cloud.clusters.keys().cloned().collect());
    missing("cluster", format!("there is no cluster {name:?}"), one_of(names))
}

fn one_of(names: Vec<String>) -> String {
    match names.is_empty() {
        true => "there is none".into(),
        false => names.join(", "),
    }
}

pub(super) fn missing(field: &str, error: String, expected: String) -> Refusal {
    Refusal { status: StatusCode::NOT_FOUND, ..Refusal::invalid(field, error, expected) }
}
