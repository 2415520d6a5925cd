//! DaemonSets: the pods that every new node carries besides those it is built for.

use super::pod::{OwnerKind, Pod};
use k8s_openapi::api::apps::v1 as api;

/// A DaemonSet parsed once.
#[derive(Clone, Debug)]
pub struct DaemonSet {
    /// Namespace and name.
    pub name: super::PodName,
    /// The uid, by which pods name it as their owner.
    pub uid: String,
    template: Pod,
}

impl DaemonSet {
    /// Reads an API DaemonSet.
    pub fn from_api(daemon_set: &api::DaemonSet) -> Self {
        let metadata = &daemon_set.metadata;
        let template = daemon_set.spec.template.clone();
        let mut pod = Pod::from_spec(&template.metadata.unwrap_or_default(), &template.spec.unwrap_or_default(), &[]);
        let name = super::PodName::new(
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        );
        pod.name = name.clone();
        Self { name, uid: metadata.uid.clone().unwrap_or_default(), template: pod }
    }

    /// The pod to plan with: the newest live one, else the template. The template's required node affinity always counts,
    /// because the DaemonSet's controller replaces it on each pod by the name of that pod's node (core spec §3.5).
    pub fn representative<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> Pod {
        let newest =
            pods.into_iter().filter(|pod| self.owns(pod) && pod.is_active()).max_by_key(|pod| (pod.created, &pod.uid));
        let mut pod = newest.unwrap_or(&self.template).clone();
        pod.required_terms.clone_from(&self.template.required_terms);
        pod
    }

    /// Whether the pod is one of this DaemonSet's.
    pub fn owns(&self, pod: &Pod) -> bool {
        pod.owners.iter().any(|owner| owner.kind == OwnerKind::DaemonSet && owner.uid == self.uid)
    }
}
