//! The whole account as JSON: what it holds, what will happen by itself, the fault rules and how the clock is set. The same
//! requests have the same answers afterwards. The journal, which is about the past, stays where it is.
//!
//! A model type that is new needs `Serialize` and `Deserialize`; a field that holds a constant has the type
//! [`interned::Constant`] and `#[serde(with = "crate::state::interned")]`, a map whose key is no text `#[serde(with = "crate::state::pairs")]`.
//! Fields that are added later need `#[serde(default)]`, or another [`VERSION`].

pub(crate) mod file;
pub(crate) mod interned;
pub(crate) mod pairs;

use crate::clock::Adjustment;
use crate::cloud::Cloud;
use crate::cloud::catalogue::{Catalogue, regions};
use crate::fault::Faults;
use crate::server::{FakeEc2, lock};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the documents are called, so that no other JSON is taken for one.
const FORMAT: &str = "fake-ec2 state";

/// Goes up when documents of earlier programs can no longer be read.
const VERSION: u32 = 1;

/// How deep a document may be nested. Requests are at most 128 deep, and what they bring stands some levels down.
const MAX_DEPTH: usize = 200;

/// Why a document is not an account.
#[derive(Debug)]
pub struct StateError(String);

impl fmt::Display for StateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for StateError {}

/// The account at one instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Snapshot {
    format: String,
    version: u32,
    saved_at: Timestamp,
    /// `None` where the clock is the machine's.
    clock: Option<Adjustment>,
    pub(crate) cloud: Cloud,
    faults: Faults,
}

/// What stands in front of everything else, and is read first.
#[derive(Deserialize)]
struct Heading {
    format: String,
    version: u32,
}

impl Snapshot {
    /// As little as possible is done under the lock: a copy.
    pub(crate) fn of(ec2: &FakeEc2) -> Self {
        let (saved_at, cloud) = ec2.locked(|cloud, now| (now, cloud.clone()));
        let faults = lock(&ec2.inner.faults).clone();
        let clock = ec2.inner.clock.adjustment();
        Self { format: FORMAT.into(), version: VERSION, saved_at, clock, cloud, faults }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("every map of the model has keys that JSON has")
    }

    pub(crate) fn read(json: &[u8]) -> Result<Self, StateError> {
        let broken = |error: serde_json::Error| StateError(format!("it is broken: {error}"));
        if depth(json) > MAX_DEPTH {
            return Err(StateError(format!("it is nested deeper than {MAX_DEPTH} levels, which no state is")));
        }
        let heading: Heading = read_whole(json).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => StateError(format!("it is no state of fake-ec2: {error}")),
            _ => broken(error),
        })?;
        if heading.format != FORMAT {
            return Err(StateError(format!(
                "its format is {:?}, and a state has the format {FORMAT:?}",
                heading.format
            )));
        }
        if heading.version != VERSION {
            let version = heading.version;
            return Err(StateError(format!("it has version {version} of the format; this program reads {VERSION}")));
        }
        let mut snapshot: Self = read_whole(json).map_err(broken)?;
        let config = &snapshot.cloud.config;
        if !regions().contains(&config.region.as_str()) {
            return Err(StateError(format!(
                "it plays {:?}; the catalogue holds {}",
                config.region,
                regions().join(", ")
            )));
        }
        snapshot.cloud.catalogue = Catalogue::new(&config.region, &config.families);
        Ok(snapshot)
    }
}

/// The depth was bounded before, and the parser's own bound is below what requests may bring.
fn read_whole<'de, T: Deserialize<'de>>(json: &'de [u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// How deep arrays and objects are nested.
fn depth(json: &[u8]) -> usize {
    let (mut deepest, mut depth, mut quoted, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl FakeEc2 {
    /// Puts an account in the place of this one.
    pub(crate) fn restore(&self, snapshot: Snapshot) {
        let Snapshot { clock, cloud: saved, faults, format: _, version: _, saved_at: _ } = snapshot;
        // An account in the machine's time leaves the clock as it is, so that it does not go back.
        if let Some(adjustment) = clock {
            self.inner.clock.set(Some(adjustment));
        }
        *lock(&self.inner.faults) = faults;
        self.locked(|cloud, _| {
            let (revision, instance_revision) = (cloud.revision, cloud.instance_revision);
            *cloud = saved;
            // They go on: whoever waits for a change is to see this one.
            cloud.revision = cloud.revision.max(revision) + 1;
            cloud.instance_revision = cloud.instance_revision.max(instance_revision) + 1;
        });
        self.wake_everyone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_what_is_nested_and_not_what_is_quoted() {
        for (json, expected) in [("1", 0), ("{}", 1), (r#"{"a":[[1],{}]}"#, 3), (r#"["[[[","\"[",[1]]"#, 2)] {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }
}
