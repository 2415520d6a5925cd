//! The prefix lists that AWS manages for its own services.
//!
//! // fidelity: assumed: their ids and ranges are invented; their names and how many entries a list counts for are documented.

use crate::cloud::ids::digits;

/// A list that AWS manages.
#[derive(Clone, Debug)]
pub(crate) struct PrefixList {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) cidrs: Vec<&'static str>,
}

// fidelity: documented(VPC User Guide, AWS-managed prefix lists: names of the gateway endpoints' services)
pub(crate) fn prefix_lists(region: &str) -> Vec<PrefixList> {
    let services = [("dynamodb", "192.0.2.0/24"), ("s3", "198.51.100.0/24")];
    let list = |(service, cidr)| PrefixList {
        id: format!("pl-{}", &digits(0, &["prefix-list", region, service])[1..9]),
        name: format!("com.amazonaws.{region}.{service}"),
        cidrs: vec![cidr],
    };
    let mut lists: Vec<PrefixList> = services.into_iter().map(list).collect();
    lists.sort_by(|one, other| one.id.cmp(&other.id));
    lists
}
