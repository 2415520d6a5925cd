//! Why each instance type of a pool is no place for a pod: types that fail by the same rule are one entry.

use super::ask::PodClass;
use super::packing::{Bench, Packing, without_simulation};
use super::reason::{Met, MinValuesUnmet, NoInstanceType, Refusal, TypeRule};
use super::sets::SetId;
use crate::catalog::InstanceType;
use crate::host_ports;
use crate::quantity::Quantity;
use crate::requirements::Requirements;
use crate::resources::Resources;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The refusal of a node on which no type is left, or too few.
pub(super) fn explain(
    packing: &Packing,
    class: &PodClass<'_>,
    bench: &mut Bench<'_, '_>,
    set: SetId,
    min_values: Option<MinValuesUnmet>,
) -> Refusal {
    let requirements = Requirements::clone(bench.sets.get(set));
    let template = &*bench.template;
    let pod = class.pod;
    let wanted = packing.requests().plus(&pod.requests);
    let mut met = Met::default();
    let mut most = Resources::new();
    let mut by_rule: BTreeMap<TypeRule, Vec<String>> = BTreeMap::new();
    for index in packing.types.iter() {
        let candidate = &template.types[index];
        let instance_type = &candidate.instance_type;
        let daemons = &template.groups[candidate.group];
        let room = instance_type.allocatable().minus(&daemons.overhead);
        most.raise_to(&room);
        let labels = instance_type.requirements.intersects(&requirements);
        let ports = !host_ports::conflict(&daemons.host_ports, &pod.host_ports);
        let fits = wanted.fits(&room) && ports;
        let offering = instance_type.offerings_for(&requirements).next().is_some();
        met.requirements |= labels;
        met.fits |= fits;
        met.offering |= offering;
        met.requirements_and_fits |= labels && fits;
        met.requirements_and_offering |= labels && offering;
        met.fits_and_offering |= fits && offering;
        let rule = match (labels, ports, fits, offering) {
            (false, ..) => TypeRule::Labels { key: first_clash(instance_type, &requirements) },
            (_, false, ..) => TypeRule::DaemonSetPort,
            (_, _, false, _) => {
                let short = wanted.shortages(&room);
                TypeRule::Resources { names: short.into_iter().map(|shortage| shortage.resource).collect() }
            }
            (.., false) => TypeRule::Offering,
            _ => TypeRule::MinValues,
        };
        by_rule.entry(rule).or_default().push(instance_type.name.clone());
    }
    let (least, largest) = template.overheads();
    by_rule.values_mut().for_each(|names| names.sort());
    Refusal::InstanceTypes(Arc::new(NoInstanceType {
        min_values,
        met,
        requirements: without_simulation(requirements),
        resources: (pod.requests.plus(&least), pod.requests.plus(&largest)),
        pod_cpu: pod.requests.get(crate::resources::CPU),
        largest: wanted
            .shortages(&most)
            .into_iter()
            .map(|shortage| (shortage.resource, shortage.available.max(Quantity::ZERO)))
            .collect(),
        by_rule,
    }))
}

/// The label that keeps the type out.
fn first_clash(instance_type: &InstanceType, requirements: &Requirements) -> String {
    let clashes = |key: &&str| {
        let single: Requirements = requirements.get(key).cloned().into_iter().collect();
        !instance_type.requirements.intersects(&single)
    };
    requirements.keys().find(clashes).unwrap_or_default().to_owned()
}
