//! What the actions need with which people set a stage: each is asked for the resources it names, and for those it makes
//! with the tags they are given.
//!
//! // fidelity: documented(Service Authorization Reference, Actions defined by Amazon EC2: resource types)

use super::permissions::{arn, on_resource, tagging};
use super::security_groups::target_group;
use crate::actions::permissions::plain;
use crate::cloud::Cloud;
use crate::cloud::network::Vpc;
use crate::cloud::tags::Tags;
use crate::iam::Permission;
use crate::wire::query::Query;
use std::collections::{BTreeMap, BTreeSet};

/// The parameters by which an action names what it is about, and the kinds of resources it makes.
type Needs = (&'static str, &'static [&'static str], &'static [&'static str]);

#[rustfmt::skip] // A table: one line for each action.
const ACTIONS: [Needs; 50] = [
    ("AssociateRouteTable", &["RouteTableId", "SubnetId"], &[]),
    ("AssociateVpcCidrBlock", &["VpcId"], &[]),
    ("AttachInternetGateway", &["InternetGatewayId", "VpcId"], &[]),
    ("AttachVolume", &["InstanceId", "VolumeId"], &[]),
    ("AuthorizeSecurityGroupEgress", &["GroupId"], &["security-group-rule"]),
    ("AuthorizeSecurityGroupIngress", &["GroupId"], &["security-group-rule"]),
    ("CopyImage", &["SourceImageId"], &["image", "snapshot"]),
    ("CreateImage", &["InstanceId"], &["image", "snapshot"]),
    ("CreateInternetGateway", &[], &["internet-gateway"]),
    ("CreateKeyPair", &[], &["key-pair"]),
    ("CreateNetworkInterface", &["SecurityGroupId", "SubnetId"], &["network-interface"]),
    ("CreateRoute", &["RouteTableId"], &[]),
    ("CreateRouteTable", &["VpcId"], &["route-table"]),
    ("CreateSecurityGroup", &["VpcId"], &["security-group"]),
    ("CreateSnapshot", &["VolumeId"], &["snapshot"]),
    ("CreateSubnet", &["VpcId"], &["subnet"]),
    ("CreateVolume", &["SnapshotId"], &["volume"]),
    ("CreateVpc", &[], &["vpc"]),
    ("DeleteInternetGateway", &["InternetGatewayId"], &[]),
    ("DeleteKeyPair", &["KeyName", "KeyPairId"], &[]),
    ("DeleteNetworkInterface", &["NetworkInterfaceId"], &[]),
    ("DeleteRoute", &["RouteTableId"], &[]),
    ("DeleteRouteTable", &["RouteTableId"], &[]),
    ("DeleteSecurityGroup", &["GroupId"], &[]),
    ("DeleteSnapshot", &["SnapshotId"], &[]),
    ("DeleteSubnet", &["SubnetId"], &[]),
    ("DeleteVolume", &["VolumeId"], &[]),
    ("DeleteVpc", &["VpcId"], &[]),
    ("DeregisterImage", &["ImageId"], &[]),
    ("DescribeImageAttribute", &["ImageId"], &[]),
    ("DescribeVpcAttribute", &["VpcId"], &[]),
    ("DetachInternetGateway", &["InternetGatewayId", "VpcId"], &[]),
    ("DetachVolume", &["InstanceId", "VolumeId"], &[]),
    ("DisableImageDeprecation", &["ImageId"], &[]),
    ("DisassociateRouteTable", &["AssociationId"], &[]),
    ("DisassociateVpcCidrBlock", &["AssociationId"], &[]),
    ("EnableImageDeprecation", &["ImageId"], &[]),
    ("ImportKeyPair", &[], &["key-pair"]),
    ("ModifyImageAttribute", &["ImageId"], &[]),
    ("ModifySecurityGroupRules", &["GroupId", "SecurityGroupRule"], &[]),
    ("ModifySubnetAttribute", &["SubnetId"], &[]),
    ("ModifyVpcAttribute", &["VpcId"], &[]),
    ("RegisterImage", &["BlockDeviceMapping"], &["image"]),
    ("ReplaceRoute", &["RouteTableId"], &[]),
    ("ReplaceRouteTableAssociation", &["AssociationId", "RouteTableId"], &[]),
    ("ResetImageAttribute", &["ImageId"], &[]),
    ("RevokeSecurityGroupEgress", &["GroupId"], &[]),
    ("RevokeSecurityGroupIngress", &["GroupId"], &[]),
    ("UpdateSecurityGroupRuleDescriptionsEgress", &["GroupId"], &[]),
    ("UpdateSecurityGroupRuleDescriptionsIngress", &["GroupId"], &[]),
];

/// What the action needs, if it is one of these.
pub(super) fn needed(cloud: &Cloud, action: &str, query: &Query<'_>) -> Option<Vec<Permission>> {
    let (_, parameters, kinds) = ACTIONS.iter().find(|(name, _, _)| *name == action)?;
    let given = given_tags(query);
    let ids: BTreeSet<String> = parameters.iter().flat_map(|parameter| named(cloud, query, parameter)).collect();
    let mut needed: Vec<Permission> = ids.iter().filter_map(|id| on_resource(cloud, action, id)).collect();
    for kind in *kinds {
        // A key pair has its name before it is made.
        let id = if *kind == "key-pair" { query.text("KeyName").unwrap_or("*") } else { "*" };
        let tags = given.get(kind).cloned().unwrap_or_default();
        needed.push(plain("ec2", action, arn(cloud, kind, id)).bringing(&tags));
    }
    needed.extend(tagging(cloud, action, given.iter().map(|(kind, tags)| (*kind, tags))));
    Some(needed)
}

/// The tags that the request brings, by kind of resource.
fn given_tags<'a>(query: &Query<'a>) -> BTreeMap<&'a str, Tags> {
    let mut all: BTreeMap<&str, Tags> = BTreeMap::new();
    for part in query.structures("TagSpecification") {
        let kind = part.text("ResourceType").unwrap_or_default();
        all.entry(kind).or_default().extend(part.tags("Tag").unwrap_or_default());
    }
    all
}

/// The ids of what a parameter names.
fn named(cloud: &Cloud, query: &Query<'_>, parameter: &str) -> Vec<String> {
    let text = query.text(parameter);
    let network = &cloud.network;
    let owned = |id: &String| vec![id.clone()];
    match parameter {
        "AssociationId" => {
            let association = text.unwrap_or_default();
            let table = network.associated_table(association).map(|table| owned(&table.id));
            let has = |vpc: &&Vpc| vpc.cidr_associations.iter().any(|own| own.id == association);
            table.unwrap_or_else(|_| network.vpcs.values().find(has).map(|vpc| owned(&vpc.id)).unwrap_or_default())
        }
        "BlockDeviceMapping" => {
            let devices = query.structures(parameter).into_iter();
            devices.filter_map(|device| device.owned("Ebs.SnapshotId")).collect()
        }
        "GroupId" => target_group(cloud, query).map(|group| owned(&group.id)).unwrap_or_default(),
        "KeyName" => text.and_then(|name| cloud.key_pairs.get(name)).map(|pair| owned(&pair.id)).unwrap_or_default(),
        "SecurityGroupRule" => {
            let rules = query.structures(parameter).into_iter();
            rules.filter_map(|rule| rule.owned("SecurityGroupRuleId")).collect()
        }
        _ => query.list(parameter).into_iter().chain(text).map(str::to_owned).collect(),
    }
}
