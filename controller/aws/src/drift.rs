//! Whether an instance still matches its class, and if not, in what (spec §5.1). Pure.

use crate::instances::Instance;
use crate::resolved::ResolvedNodeClass;
use controller_api::{Ec2NodeClass, NodeClaim, labels};
use controller_core::catalog::InstanceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The class's fields changed since the launch. Undecided, hence no drift, unless all four annotations are there and the
/// versions agree.
pub(crate) fn static_drift(claim: &NodeClaim, class: &Ec2NodeClass) -> Option<&'static str> {
    let read = |annotations: Option<&BTreeMap<String, String>>| {
        let annotations = annotations?;
        let version = annotations.get(labels::NODE_CLASS_HASH_VERSION_ANNOTATION)?;
        Some((annotations.get(labels::NODE_CLASS_HASH_ANNOTATION)?.clone(), version.clone()))
    };
    let (of_claim, claim_version) = read(claim.metadata.annotations.as_ref())?;
    let (of_class, class_version) = read(class.metadata.annotations.as_ref())?;
    (claim_version == class_version && of_claim != of_class).then_some("NodeClassDrift")
}

/// The class maps the claim's type to another image now, or to none.
pub(crate) fn image_drift(
    claim: &NodeClaim,
    class: &ResolvedNodeClass<'_>,
    types: &[Arc<InstanceType>],
) -> Result<Option<&'static str>, String> {
    let label = claim.metadata.labels.as_ref().and_then(|all| all.get(labels::INSTANCE_TYPE_LABEL));
    let name = label.map(String::as_str).unwrap_or_default();
    let instance_type = types.iter().find(|instance_type| instance_type.name == name);
    let instance_type = instance_type.ok_or_else(|| format!("finding node instance type {name:?}"))?;
    if class.images.is_empty() {
        return Err("no amis exist given constraints".to_owned());
    }
    let image = claim.status.as_ref().map(|status| status.image_id.as_str()).unwrap_or_default();
    if image.is_empty() {
        return Err("the nodeclaim has no image id".to_owned());
    }
    let drifted = class.image_for(&instance_type.requirements) != Some(image);
    Ok(drifted.then_some("AMIDrift"))
}

/// The instance has other security groups than the class selects, or sits in a subnet it does not select.
pub(crate) fn network_drift(
    class: &ResolvedNodeClass<'_>,
    instance: &Instance,
) -> Result<Option<&'static str>, String> {
    let groups: BTreeSet<&str> = class.status.security_groups.iter().map(|group| group.id.as_str()).collect();
    if groups.is_empty() {
        return Err("no security groups are present in the status".to_owned());
    }
    if class.status.subnets.is_empty() {
        return Err("no subnets are discovered".to_owned());
    }
    if !instance.security_groups.iter().map(String::as_str).eq(groups) {
        return Ok(Some("SecurityGroupDrift"));
    }
    let selected = class.status.subnets.iter().any(|subnet| subnet.id == instance.subnet_id);
    Ok((!selected).then_some("SubnetDrift"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{m5_large, node_class};
    use crate::instance_types::{Sizing, fixed_requirements, resolve};
    use controller_core::catalog::CapacityType;
    use serde_json::json;

    fn claim(hash: Option<&str>, version: &str, image: &str) -> NodeClaim {
        let annotations = match hash {
            Some(hash) => json!({
                labels::NODE_CLASS_HASH_ANNOTATION: hash,
                labels::NODE_CLASS_HASH_VERSION_ANNOTATION: version,
            }),
            None => json!({}),
        };
        let object = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "n", "labels": {labels::INSTANCE_TYPE_LABEL: "m5.large"}, "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"imageID": image},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn hashes_of_one_version_that_differ_are_drift() {
        let mut class = node_class(json!({}));
        let annotations =
            [(labels::NODE_CLASS_HASH_ANNOTATION, "1"), (labels::NODE_CLASS_HASH_VERSION_ANNOTATION, "v6")];
        class.metadata.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        for (hash, version, expected) in [
            (Some("1"), "v6", None),
            (Some("2"), "v6", Some("NodeClassDrift")),
            (Some("2"), "v5", None),
            (None, "", None),
        ] {
            assert_eq!(static_drift(&claim(hash, version, ""), &class), expected, "{hash:?} {version}");
        }
    }

    #[test]
    fn an_image_that_the_class_no_longer_maps_the_type_to_is_drift() {
        let class = node_class(json!({}));
        let class = ResolvedNodeClass::new(&class);
        let zones = ["us-west-2a".to_owned()].into();
        let sizing = Sizing { vm_memory_overhead_percent: 0.075, reserved_enis: 0 };
        let fixed = fixed_requirements(&m5_large(), "us-west-2");
        let types = [Arc::new(resolve(&m5_large(), &fixed, &zones, &class, sizing, None))];
        assert_eq!(image_drift(&claim(None, "", "ami-amd64"), &class, &types), Ok(None));
        assert_eq!(image_drift(&claim(None, "", "ami-arm64"), &class, &types), Ok(Some("AMIDrift")));
        assert!(image_drift(&claim(None, "", ""), &class, &types).is_err());
        assert_eq!(
            image_drift(&claim(None, "", "ami-1"), &class, &[]),
            Err("finding node instance type \"m5.large\"".to_owned())
        );
    }

    #[test]
    fn other_groups_and_foreign_subnets_are_drift_and_an_empty_status_decides_nothing() {
        let mut class = node_class(json!({}));
        let instance = |groups: &[&str], subnet: &str| Instance {
            id: "i-1".to_owned(),
            state: "running".to_owned(),
            image_id: String::new(),
            instance_type: "m5.large".to_owned(),
            zone: "us-west-2a".to_owned(),
            zone_id: String::new(),
            capacity_type: CapacityType::OnDemand,
            tenancy: "default".to_owned(),
            subnet_id: subnet.to_owned(),
            security_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            efa_interfaces: 0,
            launch_time: None,
            tags: BTreeMap::new(),
        };
        let check = |class: &Ec2NodeClass, groups: &[&str], subnet: &str| {
            network_drift(&ResolvedNodeClass::new(class), &instance(groups, subnet))
        };
        assert_eq!(check(&class, &["sg-1"], "subnet-a"), Ok(None));
        assert_eq!(check(&class, &["sg-1", "sg-2"], "subnet-a"), Ok(Some("SecurityGroupDrift")));
        assert_eq!(check(&class, &["sg-2"], "subnet-x"), Ok(Some("SecurityGroupDrift")), "groups are looked at first");
        assert_eq!(check(&class, &["sg-1"], "subnet-x"), Ok(Some("SubnetDrift")));
        class.status.as_mut().unwrap().subnets.clear();
        assert_eq!(check(&class, &["sg-1"], "subnet-a"), Err("no subnets are discovered".to_owned()));
        class.status.as_mut().unwrap().security_groups.clear();
        assert_eq!(
            check(&class, &["sg-1"], "subnet-a"),
            Err("no security groups are present in the status".to_owned())
        );
    }
}
