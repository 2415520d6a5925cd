//! Why each instance type of a pool is no place for a pod: types that fail by the same rule are one entry.

use super::ask::PodClass;
use super::packing::{Packing, Workbench, without_simulation};
use super::reason::{Met, MinValuesUnmet, NoInstanceType, Refusal, TypeRule, TypesLeftOut};
use super::sets::SetId;
use crate::host_ports;
use crate::requirements::Requirements;
use std::sync::Arc;

/// The refusal of a node on which no type is left, or too few.
pub(super) fn explain(
    packing: &Packing,
    class: &PodClass<'_>,
    bench: &mut Workbench<'_, '_>,
    set: SetId,
    min_values: Option<MinValuesUnmet>,
) -> Refusal {
    let requirements = Requirements::clone(bench.sets.get(set));
    let template = &*bench.template;
    let pod = class.pod;
    let wanted = packing.requests().plus(&pod.requests);
    let mut met = Met::default();
    let mut types = TypesLeftOut::new(without_simulation(requirements.clone()), wanted.clone());
    for index in packing.types.iter() {
        let candidate = &template.types[index];
        let instance_type = &candidate.instance_type;
        let daemons = &template.groups[candidate.group];
        let room = instance_type.allocatable().minus(&daemons.overhead);
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
        let rule = match types.rule(instance_type, &room) {
            Some(labels @ TypeRule::Labels { .. }) => labels,
            _ if !ports => TypeRule::DaemonSetPort,
            Some(rule) => rule,
            None => TypeRule::MinValues,
        };
        types.add(rule, instance_type, &room);
    }
    let (least, largest) = template.overheads();
    Refusal::InstanceTypes(Arc::new(NoInstanceType {
        min_values,
        met,
        resources: (pod.requests.plus(&least), pod.requests.plus(&largest)),
        pod_cpu: pod.requests.get(crate::resources::CPU),
        types,
    }))
}
