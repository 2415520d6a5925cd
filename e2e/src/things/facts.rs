//! Small facts of objects that several steps read: conditions, events, the parts of a type's name.

use crate::eventually::Seen;
use crate::recorder::PodRemoval;
use crate::world::World;
use anyhow::Context;
use controller_api::{Condition, HasConditions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use std::time::Duration;

/// One condition of an object.
pub fn condition(object: &impl HasConditions, kind: &str) -> Option<Condition> {
    object.condition(kind).cloned()
}

/// All conditions of an object in one line, for the diagnosis of a failure.
pub fn conditions_of(object: &impl HasConditions) -> String {
    let one = |condition: &Condition| {
        let Condition { type_, status, reason, message, .. } = condition;
        let status = status.as_str();
        if message.is_empty() {
            format!("{type_}={status} ({reason})")
        } else {
            format!("{type_}={status} ({reason}: {message})")
        }
    };
    let all: Vec<String> = object.conditions().iter().map(one).collect();
    if all.is_empty() { "no conditions".into() } else { all.join(", ") }
}

/// The category and generation that a type's name tells, as in the guides: `c6a.2xlarge` is category c, generation 6.
pub fn instance_requirements(instance_type: &str) -> anyhow::Result<(String, usize)> {
    let letters: String = instance_type.chars().take_while(char::is_ascii_alphabetic).collect();
    let digits: String = instance_type[letters.len()..].chars().take_while(char::is_ascii_digit).collect();
    let generation = digits.parse().with_context(|| format!("{instance_type:?} tells no generation"))?;
    Ok((letters, generation))
}

impl World {
    /// The name of the subject's node, remembered so that it can be spoken of after the node has gone.
    pub async fn subject_node_name(&self) -> anyhow::Result<String> {
        if let Some(name) = self.subject().await?.node {
            return Ok(name);
        }
        let node = self.subject_node().await?.context("the NodeClaim has no node")?;
        self.remember_node(&node.name_any());
        Ok(node.name_any())
    }

    /// How many pods a Deployment wants.
    pub async fn replicas(&self, deployment: &str) -> anyhow::Result<usize> {
        let deployment = self.api::<Deployment>().get(deployment).await?;
        Ok(deployment.spec.replicas.map_or(1, |replicas| replicas as usize))
    }

    /// Every pod that the controller evicted or deleted, in order.
    pub fn controller_pod_removals(&self) -> Vec<PodRemoval> {
        self.recorder()
            .pod_removals()
            .into_iter()
            .filter(|removal| removal.caller.starts_with(crate::backend::CONTROLLER))
            .collect()
    }

    /// Waits for an event with this reason on an object.
    pub async fn event(&self, reason: &str, kind: &str, name: &str, limit: Duration) -> anyhow::Result<()> {
        self.look_for_event(&format!("event {reason} on {kind} {name}"), limit, |event| {
            let object = &event.involved_object;
            let same = object.kind.as_deref() == Some(kind) && object.name.as_deref() == Some(name);
            same && event.reason.as_deref() == Some(reason)
        })
        .await
    }

    /// Waits for an event with this reason on an object, whose message contains the text.
    pub async fn event_saying(
        &self,
        reason: &str,
        kind: &str,
        name: &str,
        text: &str,
        limit: Duration,
    ) -> anyhow::Result<()> {
        self.look_for_event(&format!("event {reason} on {kind} {name} that says {text:?}"), limit, |event| {
            let object = &event.involved_object;
            let same = object.kind.as_deref() == Some(kind) && object.name.as_deref() == Some(name);
            let told = event.message.as_deref().is_some_and(|message| message.contains(text));
            same && told && event.reason.as_deref() == Some(reason)
        })
        .await
    }

    /// Waits for a Warning event on an object of a kind whose message contains the text.
    pub async fn warning(
        &self,
        kind: &str,
        on: impl Fn(&str) -> bool,
        text: &str,
        limit: Duration,
    ) -> anyhow::Result<()> {
        self.look_for_event(&format!("a Warning event on the {kind}"), limit, |event| {
            let object = &event.involved_object;
            let same = object.kind.as_deref() == Some(kind) && object.name.as_deref().is_some_and(&on);
            let told = event.message.as_deref().is_some_and(|message| message.contains(text));
            same && told && event.type_.as_deref() == Some("Warning")
        })
        .await
    }

    async fn look_for_event(
        &self,
        expected: &str,
        limit: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> anyhow::Result<()> {
        self.eventually(expected, limit, async || {
            let events = self.list::<Event>().await?;
            let line = |event: &Event| {
                let object = &event.involved_object;
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                format!(
                    "{} {} {}/{}: {}",
                    part(&event.type_),
                    part(&event.reason),
                    part(&object.kind),
                    part(&object.name),
                    part(&event.message)
                )
            };
            let found = events.iter().any(&wanted);
            Ok(Seen::when(found, (), || events.iter().map(line).collect::<Vec<_>>().join("\n")))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::instance_requirements;

    #[test]
    fn a_type_tells_its_category_and_generation() {
        assert_eq!(instance_requirements("c6a.2xlarge").unwrap(), ("c".into(), 6));
        assert_eq!(instance_requirements("inf2.xlarge").unwrap(), ("inf".into(), 2));
        assert!(instance_requirements("mac.metal").is_err());
    }
}
