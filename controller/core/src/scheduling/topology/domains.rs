//! Domains that nodes of the pools can come up in.

use crate::requirement::Operator;
use crate::snapshot::{Pool, node_class_label};
use crate::taints;
use controller_api::labels;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::collections::{BTreeMap, BTreeSet};

/// The domains of one label, each with the taints that one has to tolerate to get there, by pool.
pub(super) struct Domains<'a>(BTreeMap<String, Vec<&'a [Taint]>>);

impl<'a> Domains<'a> {
    /// Every value that a pool's requirements and one of its instance types list together. Values that a pool excludes
    /// count too where its types say nothing, as upstream has it.
    pub(super) fn of_pools(key: &str, pools: &[&'a Pool]) -> Self {
        let mut domains: BTreeMap<String, Vec<&'a [Taint]>> = BTreeMap::new();
        // Under an alias no node carries the label.
        let is_alias = labels::normalize(key) != key;
        for pool in pools.iter().filter(|pool| !is_alias && !pool.instance_types.is_empty() && !is_own_label(key, pool))
        {
            let declared = pool.requirements().get_or_any(key);
            let mut values = BTreeSet::new();
            for instance_type in &pool.instance_types {
                match instance_type.requirements.get(key) {
                    Some(requirement) => values.extend(requirement.intersection(&declared).values().iter().cloned()),
                    None => values.extend(declared.values().iter().cloned()),
                }
            }
            if declared.operator() == Operator::In {
                values.extend(declared.values().iter().cloned());
            }
            for value in values {
                domains.entry(value).or_default().push(pool.taints());
            }
        }
        Self(domains)
    }

    /// Those that someone with these tolerations can reach; all if taints do not matter.
    pub(super) fn open_to<'d>(&'d self, tolerations: Option<&'d [Toleration]>) -> impl Iterator<Item = &'d str> {
        let is_open = move |taints: &[&[Taint]]| {
            tolerations.is_none_or(|tolerations| taints.iter().any(|t| taints::tolerates(t, tolerations).is_ok()))
        };
        self.0.iter().filter(move |(_, taints)| is_open(taints)).map(|(domain, _)| domain.as_str())
    }
}

/// Labels that the controller itself gives to a pool's nodes. Upstream does not see domains in them, and pods spread over
/// pools would otherwise wait for nodes of pools they cannot use.
fn is_own_label(key: &str, pool: &Pool) -> bool {
    let class = &pool.object.spec.template.spec.node_class_ref;
    key == labels::NODE_POOL_LABEL || key == node_class_label(&class.group, &class.kind)
}
