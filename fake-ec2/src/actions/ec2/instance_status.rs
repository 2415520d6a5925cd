//! DescribeInstanceStatus: status checks and scheduled events, of running instances unless asked for all.

use super::instances::named;
use super::{finish, page};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::instance::{Instance, State};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

const FILTERS: [&str; 17] = [
    "attached-ebs-status.status",
    "availability-zone",
    "availability-zone-id",
    "instance-state-name",
    "instance-state-code",
    "instance-status.status",
    "instance-status.reachability",
    "system-status.status",
    "system-status.reachability",
    "event.code",
    "event.description",
    "event.instance-event-id",
    "event.not-after",
    "event.not-before",
    "event.not-before-deadline",
    "operator.managed",
    "operator.principal",
];

/// What one status check says.
struct Check {
    status: &'static str,
    detail: &'static str,
    impaired_since: Option<Timestamp>,
}

// fidelity: documented(EC2 API Reference, DescribeInstanceStatus; EC2 User Guide, Status checks)
pub(super) fn describe_instance_status(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("InstanceId"), query.filters()?);
    let all = query.boolean("IncludeAllInstances")?.unwrap_or(false);
    let page = page(query, 5, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&FILTERS)?;
    let initializing = SignedDuration::try_from(cloud.config.pace.status_checks).unwrap_or(SignedDuration::ZERO);
    let check = |instance: &Instance, impaired_since: Option<Timestamp>| match (instance.state, impaired_since) {
        (State::Running, Some(_)) => Check { status: "impaired", detail: "failed", impaired_since },
        (State::Running, None) if now.duration_since(instance.state_since) < initializing => {
            Check { status: "initializing", detail: "initializing", impaired_since: None }
        }
        (State::Running, None) => Check { status: "ok", detail: "passed", impaired_since: None },
        _ => Check { status: "not-applicable", detail: "not-applicable", impaired_since: None },
    };
    cloud.instances.refresh();
    let cloud = &*cloud;
    let candidates: Box<dyn Iterator<Item = &Instance>> = match ids.is_empty() {
        true => Box::new(cloud.instances.candidates(&filters, page.after()).filter(|own| own.visible_at <= now)),
        false => {
            named(cloud, now, &ids)?;
            let sorted: BTreeSet<&str> = ids.iter().copied().collect();
            Box::new(sorted.into_iter().filter_map(|id| cloud.instances.get(id)))
        }
    };
    let attribute = |instance: &Instance, name: &str, test: Test<'_>| match name {
        "availability-zone" => test(&instance.zone),
        "availability-zone-id" => test(&instance.zone_id),
        "attached-ebs-status.status" => test(check(instance, None).status),
        "instance-state-name" => test(instance.state.name()),
        "instance-state-code" => test(&instance.state.code().to_string()),
        "instance-status.status" => test(check(instance, instance.instance_impaired_since).status),
        "instance-status.reachability" => test(check(instance, instance.instance_impaired_since).detail),
        "system-status.status" => test(check(instance, instance.system_impaired_since).status),
        "system-status.reachability" => test(check(instance, instance.system_impaired_since).detail),
        "event.code" => instance.scheduled_events.iter().any(|event| test(&event.code)),
        "event.description" => instance.scheduled_events.iter().any(|event| test(&event.description)),
        "event.instance-event-id" => instance.scheduled_events.iter().any(|event| test(&event.id)),
        "event.not-before" => instance.scheduled_events.iter().any(|event| test(&timestamp(event.not_before))),
        "event.not-after" => {
            instance.scheduled_events.iter().any(|event| event.not_after.is_some_and(|at| test(&timestamp(at))))
        }
        _ => false,
    };
    let chosen = candidates
        .filter(|instance| all || instance.state == State::Running)
        .filter(|instance| filters.matches(None, |name, test| attribute(instance, name, test)));
    let paged = page.cut(chosen, |instance| instance.id.clone());
    let mut xml = Xml::new();
    xml.list("instanceStatusSet", paged.items, |xml, instance| {
        xml.text("instanceId", &instance.id);
        xml.text("availabilityZone", &instance.zone);
        if !instance.scheduled_events.is_empty() {
            xml.list("eventsSet", &instance.scheduled_events, |xml, event| {
                xml.text("instanceEventId", &event.id);
                xml.text("code", &event.code);
                xml.text("description", &event.description);
                xml.time("notBefore", event.not_before);
                if let Some(not_after) = event.not_after {
                    xml.time("notAfter", not_after);
                }
            });
        }
        xml.element("instanceState", |xml| {
            xml.value("code", instance.state.code());
            xml.text("name", instance.state.name());
        });
        write_check(xml, "systemStatus", &check(instance, instance.system_impaired_since));
        write_check(xml, "instanceStatus", &check(instance, instance.instance_impaired_since));
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn write_check(xml: &mut Xml, name: &str, check: &Check) {
    xml.element(name, |xml| {
        xml.text("status", check.status);
        xml.list("details", [check], |xml, check| {
            xml.text("name", "reachability");
            xml.text("status", check.detail);
            if let Some(since) = check.impaired_since {
                xml.time("impairedSince", since);
            }
        });
    });
}
