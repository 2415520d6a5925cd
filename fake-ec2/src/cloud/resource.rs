//! The kinds of EC2 resources: how their ids begin, what the API calls them, and how it refuses ids.

use super::check_id;
use crate::error::ApiError;

/// One kind of resource.
#[derive(Debug)]
pub(crate) struct Kind {
    /// What its ids begin with, without the dash.
    pub(crate) prefix: &'static str,
    /// Its name in tag specifications, DescribeTags and ARNs.
    pub(crate) name: &'static str,
    malformed: &'static str,
    not_found: &'static str,
    /// What is said of an id nobody has; `{}` stands for the id.
    sentence: &'static str,
}

macro_rules! kinds {
    ($($constant:ident: $prefix:literal, $name:literal, $malformed:literal, $not_found:literal, $sentence:literal;)*) => {
        impl Kind {
            $(pub(crate) const $constant: Self = Self {
                prefix: $prefix, name: $name, malformed: $malformed, not_found: $not_found, sentence: $sentence,
            };)*
            const ALL: &[Self] = &[$(Self::$constant),*];
        }
    };
}

// fidelity: documented(EC2 API Reference, Error codes: AWS spells `ID` and `Id` as it pleases); the sentences as commonly seen.
kinds! {
    CAPACITY_RESERVATION: "cr", "capacity-reservation", "InvalidCapacityReservationId.Malformed", "InvalidCapacityReservationId.NotFound", "The capacity reservation '{}' does not exist.";
    DHCP_OPTIONS: "dopt", "dhcp-options", "InvalidDhcpOptionsId.Malformed", "InvalidDhcpOptionID.NotFound", "The dhcpOption ID '{}' does not exist";
    FLEET: "fleet", "fleet", "InvalidFleetId.Malformed", "InvalidFleetId.NotFound", "The fleet ID '{}' does not exist";
    IMAGE: "ami", "image", "InvalidAMIID.Malformed", "InvalidAMIID.NotFound", "The image id '[{}]' does not exist";
    INSTANCE: "i", "instance", "InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound", "The instance ID '{}' does not exist";
    INTERNET_GATEWAY: "igw", "internet-gateway", "InvalidInternetGatewayId.Malformed", "InvalidInternetGatewayID.NotFound", "The internetGateway ID '{}' does not exist";
    KEY_PAIR: "key", "key-pair", "InvalidKeyPair.NotFound", "InvalidKeyPair.NotFound", "The key pair '{}' does not exist";
    LAUNCH_TEMPLATE: "lt", "launch-template", "InvalidLaunchTemplateId.Malformed", "InvalidLaunchTemplateId.NotFound", "The launch template ID '{}' does not exist";
    NETWORK_ACL: "acl", "network-acl", "InvalidNetworkAclId.Malformed", "InvalidNetworkAclID.NotFound", "The networkAcl ID '{}' does not exist";
    NETWORK_INTERFACE: "eni", "network-interface", "InvalidNetworkInterfaceId.Malformed", "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '{}' does not exist";
    PLACEMENT_GROUP: "pg", "placement-group", "InvalidPlacementGroupId.Malformed", "InvalidPlacementGroup.Unknown", "The placement group '{}' is unknown.";
    PREFIX_LIST: "pl", "prefix-list", "InvalidPrefixListId.Malformed", "InvalidPrefixListID.NotFound", "The prefix list ID '{}' does not exist";
    ROUTE_TABLE: "rtb", "route-table", "InvalidRouteTableId.Malformed", "InvalidRouteTableID.NotFound", "The routeTable ID '{}' does not exist";
    SECURITY_GROUP: "sg", "security-group", "InvalidGroupId.Malformed", "InvalidGroup.NotFound", "The security group '{}' does not exist";
    SECURITY_GROUP_RULE: "sgr", "security-group-rule", "InvalidSecurityGroupRuleId.Malformed", "InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '{}' does not exist";
    SNAPSHOT: "snap", "snapshot", "InvalidSnapshotID.Malformed", "InvalidSnapshot.NotFound", "The snapshot '{}' does not exist.";
    SPOT_REQUEST: "sir", "spot-instances-request", "InvalidSpotInstanceRequestID.Malformed", "InvalidSpotInstanceRequestID.NotFound", "The spot instance request ID '{}' does not exist";
    SUBNET: "subnet", "subnet", "InvalidSubnetID.Malformed", "InvalidSubnetID.NotFound", "The subnet ID '{}' does not exist";
    VOLUME: "vol", "volume", "InvalidVolumeID.Malformed", "InvalidVolume.NotFound", "The volume '{}' does not exist.";
    VPC: "vpc", "vpc", "InvalidVpcID.Malformed", "InvalidVpcID.NotFound", "The vpc ID '{}' does not exist";
}

impl Kind {
    /// The kind whose ids begin as this one does.
    pub(crate) fn of(id: &str) -> Option<&'static Self> {
        let prefix = id.split_once('-')?.0;
        Self::ALL.iter().find(|kind| kind.prefix == prefix)
    }

    /// Refuses what is not an id of this kind.
    pub(crate) fn check(&self, id: &str) -> Result<(), ApiError> {
        check_id(id, self.prefix, self.malformed)
    }

    /// The refusal of an id that nobody has: malformed, or not found.
    pub(crate) fn missing(&self, id: &str) -> ApiError {
        match self.check(id) {
            Err(malformed) => malformed,
            Ok(()) => ApiError::client(self.not_found, self.sentence.replace("{}", id)),
        }
    }
}
