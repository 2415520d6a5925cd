//! The claims that a pod's volumes stand for.

use super::PodName;
use k8s_openapi::api::core::v1 as api;

/// A volume of a pod that a claim stands behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVolume {
    /// A claim of its own namespace, by name.
    Claim(String),
    /// A claim made for this pod alone, named after the pod and this volume.
    Ephemeral(String),
}

impl PodVolume {
    /// Reads the volumes of a pod; those without a claim do not matter.
    pub(super) fn from_api(spec: &api::PodSpec) -> Vec<Self> {
        let volumes = spec.volumes.iter().flatten();
        volumes
            .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => Some(Self::Claim(claim.claim_name.clone())),
                (None, Some(_)) => Some(Self::Ephemeral(volume.name.clone())),
                (None, None) => None,
            })
            .collect()
    }

    /// The claim's namespace and name, for that pod.
    pub fn claim(&self, pod: &PodName) -> PodName {
        let name = match self {
            Self::Claim(name) => name.clone(),
            Self::Ephemeral(volume) => format!("{}-{volume}", pod.name),
        };
        PodName::new(&pod.namespace, name)
    }
}
