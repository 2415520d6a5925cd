//! EventBridge JSON to [`Interruption`] (spec §6.2). Unknown kinds are kept as such; a malformed body is a value too,
//! because its message must still be deleted.

use jiff::Timestamp;
use serde::Deserialize;

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// A known event about instances.
    Event(InterruptionKind),
    /// An empty body, an unknown event, or a known one that concerns nobody (`no_op`): counted and deleted.
    Nothing,
    /// Not JSON, or a field of the wrong type: logged, deleted, not counted. Holds the parser's complaint.
    Malformed(String),
}

/// Events that concern instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterruptionKind {
    /// Spot capacity will be reclaimed in two minutes.
    SpotInterrupted,
    /// Capacity of an interruptible reservation will be reclaimed.
    CapacityReservationInterrupted,
    /// Spot capacity is at an elevated risk.
    RebalanceRecommendation,
    /// AWS Health announces maintenance or retirement.
    ScheduledChange,
    /// The instance is stopping or stopped.
    InstanceStopped,
    /// The instance is shutting down or terminated.
    InstanceTerminated,
}

impl InterruptionKind {
    /// The value of the metrics label `message_type` and of the log field `messageKind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
        }
    }
}

impl Interruption {
    /// The value of the metrics label `message_type`; `None` for a malformed body, which is not counted.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Event(kind) => Some(kind.as_str()),
            Self::Nothing => Some("no_op"),
            Self::Malformed(_) => None,
        }
    }
}

/// A parsed body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What it asks for.
    pub interruption: Interruption,
    /// The instances concerned.
    pub instance_ids: Vec<String>,
    /// When it happened.
    pub time: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Envelope {
    version: String,
    source: String,
    detail_type: String,
    time: Option<Timestamp>,
    detail: serde_json::Value,
}

impl Default for Envelope {
    fn default() -> Self {
        Self {
            version: String::new(),
            source: String::new(),
            detail_type: String::new(),
            time: None,
            detail: serde_json::Value::Null,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct InstanceDetail {
    instance_id: String,
    state: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HealthDetail {
    service: String,
    event_type_category: String,
    affected_entities: Vec<AffectedEntity>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffectedEntity {
    entity_value: String,
}

/// Reads a message's body. Matching is exact on version, source and detail type; only `detail` is asked for ids.
pub fn parse(body: Option<&str>) -> Parsed {
    let Some(body) = body else {
        return malformed("the message has no body".to_owned());
    };
    if body.is_empty() {
        return Parsed { interruption: Interruption::Nothing, instance_ids: Vec::new(), time: None };
    }
    read(body).unwrap_or_else(|error| malformed(error.to_string()))
}

fn malformed(complaint: String) -> Parsed {
    Parsed { interruption: Interruption::Malformed(complaint), instance_ids: Vec::new(), time: None }
}

fn read(body: &str) -> Result<Parsed, serde_json::Error> {
    let envelope: Envelope = serde_json::from_str(body)?;
    let about = |interruption, instance_ids| Parsed { interruption, instance_ids, time: envelope.time };
    let nothing = about(Interruption::Nothing, Vec::new());
    if envelope.version != "0" {
        return Ok(nothing);
    }
    let kind = match (envelope.source.as_str(), envelope.detail_type.as_str()) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => InterruptionKind::SpotInterrupted,
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            InterruptionKind::CapacityReservationInterrupted
        }
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => InterruptionKind::RebalanceRecommendation,
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            let detail: InstanceDetail = detail(envelope.detail)?;
            return Ok(match state_change(&detail.state) {
                Some(kind) => about(Interruption::Event(kind), vec![detail.instance_id]),
                None => nothing,
            });
        }
        ("aws.health", "AWS Health Event") => {
            let detail: HealthDetail = detail(envelope.detail)?;
            if detail.service != "EC2" || detail.event_type_category != "scheduledChange" {
                return Ok(nothing);
            }
            let ids = detail.affected_entities.into_iter().map(|entity| entity.entity_value).collect();
            return Ok(about(Interruption::Event(InterruptionKind::ScheduledChange), ids));
        }
        _ => return Ok(nothing),
    };
    let detail: InstanceDetail = detail(envelope.detail)?;
    Ok(about(Interruption::Event(kind), vec![detail.instance_id]))
}

fn state_change(state: &str) -> Option<InterruptionKind> {
    match state.to_ascii_lowercase().as_str() {
        "stopping" | "stopped" => Some(InterruptionKind::InstanceStopped),
        "shutting-down" | "terminated" => Some(InterruptionKind::InstanceTerminated),
        _ => None,
    }
}

/// Reads the detail; a missing one counts as empty.
fn detail<T: Default + for<'de> Deserialize<'de>>(value: serde_json::Value) -> Result<T, serde_json::Error> {
    if value.is_null() { Ok(T::default()) } else { serde_json::from_value(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(source: &str, detail_type: &str, detail: &str) -> String {
        format!(
            r#"{{"version":"0","id":"1","detail-type":"{detail_type}","source":"{source}","account":"123456789012",
                "time":"2026-01-01T00:00:00Z","region":"us-west-2","resources":["arn:aws:ec2:us-west-2a:instance/i-other"],
                "detail":{detail}}}"#
        )
    }

    #[track_caller]
    fn check(body: &str, interruption: Interruption, ids: &[&str]) {
        let parsed = parse(Some(body));
        assert_eq!(parsed.interruption, interruption, "{body}");
        assert_eq!(parsed.instance_ids, ids, "{body}");
    }

    #[test]
    fn every_kind_is_read_and_names_its_instances() {
        let instance = r#"{"instance-id":"i-1","instance-action":"terminate"}"#;
        for (detail_type, kind) in [
            ("EC2 Spot Instance Interruption Warning", InterruptionKind::SpotInterrupted),
            ("EC2 Instance Rebalance Recommendation", InterruptionKind::RebalanceRecommendation),
            (
                "EC2 Capacity Reservation Instance Interruption Warning",
                InterruptionKind::CapacityReservationInterrupted,
            ),
        ] {
            check(&body("aws.ec2", detail_type, instance), Interruption::Event(kind), &["i-1"]);
        }
        let health = r#"{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"x",
            "affectedEntities":[{"entityValue":"i-1"},{"entityValue":"i-2"}]}"#;
        check(
            &body("aws.health", "AWS Health Event", health),
            Interruption::Event(InterruptionKind::ScheduledChange),
            &["i-1", "i-2"],
        );
    }

    #[test]
    fn state_changes_count_only_on_the_way_down() {
        let change = |state: &str| {
            let detail = format!(r#"{{"instance-id":"i-1","state":"{state}"}}"#);
            body("aws.ec2", "EC2 Instance State-change Notification", &detail)
        };
        let event = |kind| (Interruption::Event(kind), vec!["i-1"]);
        for (state, (interruption, ids)) in [
            ("stopping", event(InterruptionKind::InstanceStopped)),
            ("stopped", event(InterruptionKind::InstanceStopped)),
            ("shutting-down", event(InterruptionKind::InstanceTerminated)),
            ("terminated", event(InterruptionKind::InstanceTerminated)),
            ("pending", (Interruption::Nothing, vec![])),
            ("running", (Interruption::Nothing, vec![])),
        ] {
            check(&change(state), interruption, &ids);
        }
    }

    #[test]
    fn foreign_and_irrelevant_messages_are_nothing() {
        for text in [
            String::new(),
            "{}".to_owned(),
            body("aws.ec2", "ec2 spot instance interruption warning", "{}"),
            body("aws.ec2", "EC2 Spot Instance Interruption Warning", "{}")
                .replace(r#""version":"0""#, r#""version":"1""#),
            body("aws.health", "AWS Health Event", r#"{"service":"RDS","eventTypeCategory":"scheduledChange"}"#),
            body("aws.health", "AWS Health Event", r#"{"service":"EC2","eventTypeCategory":"issue"}"#),
        ] {
            check(&text, Interruption::Nothing, &[]);
        }
    }

    #[test]
    fn malformed_bodies_are_told_apart_from_irrelevant_ones() {
        let bad_time =
            body("aws.ec2", "EC2 Instance Rebalance Recommendation", "{}").replace("2026-01-01T00:00:00Z", "noon");
        for text in [Some("not json"), Some(bad_time.as_str()), Some(r#"{"detail-type": 3}"#), None] {
            let parsed = parse(text);
            assert!(matches!(parsed.interruption, Interruption::Malformed(_)), "{text:?} gave {parsed:?}");
            assert_eq!(parsed.interruption.label(), None);
        }
    }
}
