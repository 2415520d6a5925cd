//! Account quotas: vCPUs of running instances by class and market, and the sizes of fleets and templates.

use super::Cloud;
use super::capacity::CapacityType;
use super::catalogue::InstanceType;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};

/// Instance families that share one vCPU quota.
// fidelity: documented(EC2 User Guide, On-Demand Instance quotas; Spot Instance quotas)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is named after its families.
pub enum VcpuClass {
    /// A, C, D, H, I, M, R, T and Z.
    Standard,
    F,
    /// G and VT.
    G,
    Inf,
    P,
    Trn,
    X,
    Dl,
    HighMemory,
    Hpc,
}

impl VcpuClass {
    /// Every class but the standard one, as settings call them.
    pub(crate) const OTHERS: [(&'static str, Self); 9] = [
        ("dl", Self::Dl),
        ("f", Self::F),
        ("g", Self::G),
        ("highMemory", Self::HighMemory),
        ("hpc", Self::Hpc),
        ("inf", Self::Inf),
        ("p", Self::P),
        ("trn", Self::Trn),
        ("x", Self::X),
    ];

    /// The class of a type, told from the letters its name begins with.
    pub fn of(instance_type: &str) -> Self {
        let family = instance_type.split('.').next().unwrap_or(instance_type);
        let letters = family.split(|character: char| character.is_ascii_digit()).next().unwrap_or(family);
        match letters {
            "f" => Self::F,
            "g" | "gr" | "vt" => Self::G,
            "inf" => Self::Inf,
            "p" => Self::P,
            "trn" => Self::Trn,
            "x" => Self::X,
            "dl" => Self::Dl,
            "u" | "u-" => Self::HighMemory,
            "hpc" => Self::Hpc,
            _ => Self::Standard,
        }
    }
}

impl Cloud {
    // fidelity: documented(EC2 API Reference, Error codes: SecurityGroupsPerInterfaceLimitExceeded)
    pub(crate) fn check_groups_per_interface(&self, groups: usize) -> Result<(), ApiError> {
        match groups > self.config.limits.network.security_groups_per_interface as usize {
            true => {
                let message = "The maximum number of security groups per interface has been reached.";
                Err(ApiError::client("SecurityGroupsPerInterfaceLimitExceeded", message))
            }
            false => Ok(()),
        }
    }

    /// Refuses more interfaces than the region may have.
    // fidelity: documented(EC2 API Reference, Error codes: NetworkInterfaceLimitExceeded)
    pub(crate) fn check_interfaces(&self, added: usize) -> Result<(), ApiError> {
        let Some(limit) = self.config.limits.network.network_interfaces else { return Ok(()) };
        let attached: usize = self.instances.values().map(|instance| instance.network_interfaces.len()).sum();
        match attached + self.network.interfaces.len() + added > limit as usize {
            true => {
                let message = "The maximum number of network interfaces has been reached.";
                Err(ApiError::client("NetworkInterfaceLimitExceeded", message))
            }
            false => Ok(()),
        }
    }

    /// Refuses a launch that would exceed the vCPU quota of its class and market.
    // fidelity: documented(EC2 API Reference, Error codes: VcpuLimitExceeded, MaxSpotInstanceCountExceeded)
    pub(super) fn check_vcpus(
        &mut self,
        instance_type: &InstanceType,
        capacity_type: CapacityType,
    ) -> Result<(), ApiError> {
        let class = VcpuClass::of(instance_type.name);
        let Some(limit) = self.config.limits.vcpus(capacity_type, class) else { return Ok(()) };
        if self.instances.vcpus(capacity_type, class) + instance_type.vcpus <= limit {
            return Ok(());
        }
        Err(match capacity_type {
            CapacityType::OnDemand => ApiError::client(
                "VcpuLimitExceeded",
                format!(
                    "You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance \
                     bucket that the specified instance type belongs to. Please visit \
                     http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
                ),
            ),
            CapacityType::Spot => ApiError::client("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_share_the_quota_of_their_class() {
        for (name, class) in [
            ("m5.large", VcpuClass::Standard),
            ("i4i.large", VcpuClass::Standard),
            ("is4gen.medium", VcpuClass::Standard),
            ("t3.micro", VcpuClass::Standard),
            ("trn1.2xlarge", VcpuClass::Trn),
            ("inf2.xlarge", VcpuClass::Inf),
            ("p4d.24xlarge", VcpuClass::P),
            ("g5.xlarge", VcpuClass::G),
            ("gr6.4xlarge", VcpuClass::G),
            ("vt1.3xlarge", VcpuClass::G),
            ("x2gd.medium", VcpuClass::X),
            ("u-6tb1.56xlarge", VcpuClass::HighMemory),
            ("u7i-6tb.112xlarge", VcpuClass::HighMemory),
            ("hpc6a.48xlarge", VcpuClass::Hpc),
            ("dl2q.24xlarge", VcpuClass::Dl),
            ("f2.6xlarge", VcpuClass::F),
        ] {
            assert_eq!(VcpuClass::of(name), class, "{name}");
        }
    }
}
