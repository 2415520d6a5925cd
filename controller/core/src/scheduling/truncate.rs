//! `minValues`, and limiting a launch list to its cheapest types (core spec §1.11).

use super::reason::MinValuesUnmet;
use crate::catalog::InstanceType;
use crate::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// At most this many instance types go into one NodeClaim. It is upstream's number; twice as many would bring the object
/// near etcd's limit on its size, and the cloud uses 60 of them.
pub(super) const MAX_INSTANCE_TYPES: usize = 600;

/// Whether instance types offer as many different values as requirements ask for.
pub(super) enum MinValuesOutcome {
    /// They do.
    Met,
    /// They do not.
    Unmet(MinValuesUnmet),
}

/// Collects the values that the types offer until every `minValues` is reached.
pub(super) fn min_values<'a>(
    requirements: &Requirements,
    types: impl IntoIterator<Item = &'a Arc<InstanceType>>,
) -> MinValuesOutcome {
    let wanted: Vec<(&str, usize)> =
        requirements.iter().filter_map(|r| Some((r.key(), r.min_values? as usize))).collect();
    let mut found: BTreeMap<&str, BTreeSet<&str>> = wanted.iter().map(|(key, _)| (*key, BTreeSet::new())).collect();
    let is_met = |found: &BTreeMap<&str, BTreeSet<&str>>| wanted.iter().all(|(key, count)| found[key].len() >= *count);
    if wanted.is_empty() {
        return MinValuesOutcome::Met;
    }
    for instance_type in types {
        for (key, values) in &mut found {
            values.extend(instance_type.requirements.get(key).into_iter().flat_map(|r| r.values()).map(String::as_str));
        }
        if is_met(&found) {
            return MinValuesOutcome::Met;
        }
    }
    let short = wanted.iter().filter(|(key, count)| found[key].len() < *count);
    MinValuesOutcome::Unmet(MinValuesUnmet {
        found: short.map(|(key, _)| ((*key).to_owned(), found[key].len())).collect(),
    })
}

/// The first of types that are in order of price, at most [`MAX_INSTANCE_TYPES`]. Unless `min_values_are_optional`, fails when they
/// no longer offer the values asked for.
pub(super) fn truncate(
    mut types: Vec<Arc<InstanceType>>,
    requirements: &Requirements,
    min_values_are_optional: bool,
) -> Result<Vec<Arc<InstanceType>>, MinValuesUnmet> {
    types.truncate(MAX_INSTANCE_TYPES);
    if min_values_are_optional {
        return Ok(types);
    }
    match min_values(requirements, &types) {
        MinValuesOutcome::Met => Ok(types),
        MinValuesOutcome::Unmet(unmet) => Err(unmet),
    }
}
