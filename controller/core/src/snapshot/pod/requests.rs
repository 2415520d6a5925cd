//! What a pod asks of its node: containers, init containers, sidecars, pod-level requests and overhead, by the rules of
//! kube-scheduler.

use crate::quantity::{Quantity, QuantityError};
use crate::resources::Resources;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;

/// The pod's effective request, without counting the pod itself. Quantities that cannot be read go to `invalid`.
///
/// Ordinary init containers run one after another before the rest, beside the sidecars started so far, so the pod needs
/// the larger of the two phases. While a resize is in flight, the larger of what is wanted and what is allocated counts.
pub(super) fn of(spec: &PodSpec, statuses: &[ContainerStatus], invalid: &mut Vec<QuantityError>) -> Resources {
    let mut running = Resources::new();
    for container in &spec.containers {
        let mut requests = requests(container, invalid);
        if let Some(status) = statuses.iter().find(|status| status.name == container.name) {
            requests.raise_to(&read(status.allocated_resources.as_ref(), invalid));
        }
        running.add(&requests);
    }
    let mut sidecars = Resources::new();
    let mut starting = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        let requests = requests(container, invalid);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&requests);
            starting.raise_to(&sidecars);
        } else {
            starting.raise_to(&sidecars.plus(&requests));
        }
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    // Requests of the pod as a whole replace the sum, resource by resource; limits of it only where nothing is asked.
    let whole = spec.resources.as_ref();
    for (name, quantity) in read(whole.and_then(|r| r.limits.as_ref()), invalid).iter() {
        if !running.contains(name) {
            running.set(name, quantity);
        }
    }
    for (name, quantity) in read(whole.and_then(|r| r.requests.as_ref()), invalid).iter() {
        running.set(name, quantity);
    }
    running.add(&read(spec.overhead.as_ref(), invalid));
    running
}

/// A container's requests. A limit without a request is a request: the API server fills it in for pods, but a DaemonSet's
/// template has not been through that.
fn requests(container: &Container, invalid: &mut Vec<QuantityError>) -> Resources {
    let resources = container.resources.as_ref();
    let mut requests = read(resources.and_then(|r| r.limits.as_ref()), invalid);
    for (name, quantity) in read(resources.and_then(|r| r.requests.as_ref()), invalid).iter() {
        requests.set(name, quantity);
    }
    requests
}

fn read(list: Option<&BTreeMap<String, ApiQuantity>>, invalid: &mut Vec<QuantityError>) -> Resources {
    let read_one = |(name, quantity): (&String, &ApiQuantity)| match Quantity::from_api(quantity) {
        Ok(quantity) => Some((name.clone(), quantity)),
        Err(error) => {
            invalid.push(error);
            None
        }
    };
    list.into_iter().flatten().filter_map(read_one).collect()
}
