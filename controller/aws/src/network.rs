//! Subnets and security groups by selector, and how many addresses each subnet has left (spec §2.4, §4.2).

use crate::cache::{Cache, lock};
use crate::error::AwsError;
use crate::instances::filter;
use crate::resolved::ResolvedNodeClass;
use aws_sdk_ec2::types::Filter;
use controller_api::{SecurityGroup, SecurityGroupSelectorTerm, Subnet, SubnetSelectorTerm};
use controller_clock::Clock;
use futures::future::try_join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

/// How long found security groups are believed.
const SECURITY_GROUPS_LIFETIME: Duration = Duration::from_secs(60);
/// Node classes whose look-ups are kept; clusters have a handful.
const CLASSES: usize = 256;

/// One look-up of a selector: all `tags` must match, or the id or name must be one of those listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) filters: Vec<(String, Vec<String>)>,
}

impl Query {
    fn one_of(filter: &str, values: Vec<String>) -> Option<Self> {
        (!values.is_empty()).then(|| Self { filters: vec![(filter.to_owned(), values)] })
    }

    /// Filters for tags: the value `*` asks for the key alone, any other is passed on as it is.
    pub(crate) fn tagged(tags: &BTreeMap<String, String>) -> Self {
        let filters = tags.iter().map(|(key, value)| match value.as_str() {
            "*" => ("tag-key".to_owned(), vec![key.clone()]),
            _ => (format!("tag:{key}"), vec![value.clone()]),
        });
        Self { filters: filters.collect() }
    }

    pub(crate) fn to_filters(&self) -> Vec<Filter> {
        self.filters.iter().map(|(name, values)| filter(name, values)).collect()
    }
}

/// The look-ups of subnet terms. An id wins over tags in the same term (quirk Q1).
pub(crate) fn subnet_queries(terms: &[SubnetSelectorTerm]) -> Vec<Query> {
    let ids = terms.iter().filter_map(|term| term.id.clone()).collect();
    let tagged = terms.iter().filter(|term| term.id.is_none() && !term.tags.is_empty());
    tagged.map(|term| Query::tagged(&term.tags)).chain(Query::one_of("subnet-id", ids)).collect()
}

/// The look-ups of security group terms.
pub(crate) fn security_group_queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<Query> {
    let ids = terms.iter().filter_map(|term| term.id.clone()).collect();
    let names = terms.iter().filter(|term| term.id.is_none()).filter_map(|term| term.name.clone()).collect();
    let tagged = terms.iter().filter(|term| term.id.is_none() && term.name.is_none() && !term.tags.is_empty());
    tagged
        .map(|term| Query::tagged(&term.tags))
        .chain(Query::one_of("group-id", ids))
        .chain(Query::one_of("group-name", names))
        .collect()
}

/// How many addresses a subnet has left.
#[derive(Clone, Copy, Debug, Default)]
struct Addresses {
    described: i64,
    /// What is left after launches that EC2 has not counted yet.
    in_flight: Option<i64>,
    /// Which description `described` comes from.
    description: u64,
}

/// A subnet picked for a launch, with the addresses set aside for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) subnet_id: String,
    pub(crate) zone: String,
    taken: i64,
    description: u64,
}

/// Looks up networks and keeps account of addresses.
#[derive(Debug)]
pub(crate) struct Network {
    client: aws_sdk_ec2::Client,
    subnets: Cache<String, Vec<(Subnet, i64)>>,
    security_groups: Cache<String, Vec<SecurityGroup>>,
    accounts: Accounts,
}

impl Network {
    pub(crate) fn new(client: aws_sdk_ec2::Client, clock: Clock, subnet_lifetime: Duration) -> Self {
        Self {
            client,
            subnets: Cache::new(clock.clone(), subnet_lifetime, CLASSES),
            security_groups: Cache::new(clock, SECURITY_GROUPS_LIFETIME, CLASSES),
            accounts: Accounts::default(),
        }
    }

    /// The class's subnets: most free addresses first, then by id.
    pub(crate) async fn subnets(&self, class: &ResolvedNodeClass<'_>) -> Result<Vec<Subnet>, AwsError> {
        let key = format!("{}-{}", class.uid, class.generation);
        if let Some(known) = self.subnets.get(&key) {
            return Ok(known.into_iter().map(|(subnet, _)| subnet).collect());
        }
        let queries = subnet_queries(&class.spec.subnet_selector_terms);
        let found = try_join_all(queries.iter().map(|query| self.describe_subnets(query.to_filters()))).await?;
        let unique: BTreeMap<String, aws_sdk_ec2::types::Subnet> =
            found.into_iter().flatten().filter_map(|subnet| Some((subnet.subnet_id()?.to_owned(), subnet))).collect();
        let mut subnets: Vec<(Subnet, i64)> = unique.into_iter().map(|(id, subnet)| read_subnet(id, &subnet)).collect();
        subnets.sort_by(|(a, free_a), (b, free_b)| free_b.cmp(free_a).then_with(|| a.id.cmp(&b.id)));
        self.accounts.describe(subnets.iter().map(|(subnet, free)| (subnet.id.as_str(), *free)));
        tracing::debug!(subnets = subnets.len(), "discovered subnets");
        // Nothing found is not remembered: the tag that is missing may be put on at any moment.
        if !subnets.is_empty() {
            self.subnets.insert(key, subnets.clone());
        }
        Ok(subnets.into_iter().map(|(subnet, _)| subnet).collect())
    }

    /// The class's security groups by id.
    pub(crate) async fn security_groups(&self, class: &ResolvedNodeClass<'_>) -> Result<Vec<SecurityGroup>, AwsError> {
        let key = format!("{}-{}", class.uid, class.generation);
        if let Some(known) = self.security_groups.get(&key) {
            return Ok(known);
        }
        let queries = security_group_queries(&class.spec.security_group_selector_terms);
        let found = try_join_all(queries.iter().map(|query| self.describe_groups(query.to_filters()))).await?;
        let unique: BTreeMap<String, SecurityGroup> = found
            .into_iter()
            .flatten()
            .filter_map(|group| {
                let id = group.group_id()?.to_owned();
                let name = group.group_name().unwrap_or_default().to_owned();
                Some((id.clone(), SecurityGroup { id, name }))
            })
            .collect();
        let groups: Vec<SecurityGroup> = unique.into_values().collect();
        tracing::debug!(security_groups = groups.len(), "discovered security groups");
        if !groups.is_empty() {
            self.security_groups.insert(key, groups.clone());
        }
        Ok(groups)
    }

    /// The tags of all subnets that carry one of `keys`, whatever the value: for naming near misses.
    pub(crate) async fn tags_of_subnets_with(&self, key: &str) -> Result<Vec<BTreeMap<String, String>>, AwsError> {
        let found = self.describe_subnets(vec![filter("tag-key", &[key])]).await?;
        Ok(found.iter().map(|subnet| tags(subnet.tags())).collect())
    }

    /// The same for security groups.
    pub(crate) async fn tags_of_groups_with(&self, key: &str) -> Result<Vec<BTreeMap<String, String>>, AwsError> {
        let found = self.describe_groups(vec![filter("tag-key", &[key])]).await?;
        Ok(found.iter().map(|group| tags(group.tags())).collect())
    }

    /// The account of addresses.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    async fn describe_subnets(&self, filters: Vec<Filter>) -> Result<Vec<aws_sdk_ec2::types::Subnet>, AwsError> {
        let request = self.client.describe_subnets().set_filters(Some(filters)).max_results(500);
        let subnets = request.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        subnets.map_err(|error| AwsError::new("EC2", "DescribeSubnets", error))
    }

    async fn describe_groups(&self, filters: Vec<Filter>) -> Result<Vec<aws_sdk_ec2::types::SecurityGroup>, AwsError> {
        let request = self.client.describe_security_groups().set_filters(Some(filters)).max_results(500);
        let groups = request.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        groups.map_err(|error| AwsError::new("EC2", "DescribeSecurityGroups", error))
    }
}

fn read_subnet(id: String, subnet: &aws_sdk_ec2::types::Subnet) -> (Subnet, i64) {
    let zone = subnet.availability_zone().unwrap_or_default().to_owned();
    let zone_id = subnet.availability_zone_id().unwrap_or_default().to_owned();
    (Subnet { id, zone, zone_id }, i64::from(subnet.available_ip_address_count().unwrap_or(0)))
}

fn tags(tags: &[aws_sdk_ec2::types::Tag]) -> BTreeMap<String, String> {
    tags.iter().filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()))).collect()
}

/// Free addresses by subnet. Bounded by the account's subnets.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<BTreeMap<String, Addresses>>);

impl Accounts {
    /// Takes over what EC2 counted; launches under way are in it now, or forgotten.
    pub(crate) fn describe<'a>(&self, counts: impl Iterator<Item = (&'a str, i64)>) {
        let mut accounts = lock(&self.0);
        for (id, described) in counts {
            let account = accounts.entry(id.to_owned()).or_default();
            *account = Addresses { described, in_flight: None, description: account.description + 1 };
        }
    }

    /// Picks, in each zone, the subnet with most addresses (the first of equals), and sets aside as many as `needed` says
    /// for the zone.
    pub(crate) fn pick(&self, subnets: &[Subnet], needed: impl Fn(&str) -> i64) -> BTreeMap<String, Pick> {
        let mut accounts = lock(&self.0);
        let free = |accounts: &BTreeMap<String, Addresses>, id: &str| {
            accounts.get(id).map_or(0, |account| account.in_flight.unwrap_or(account.described))
        };
        let mut best: BTreeMap<&str, &Subnet> = BTreeMap::new();
        for subnet in subnets {
            let leader = best.entry(&subnet.zone).or_insert(subnet);
            if free(&accounts, &subnet.id) > free(&accounts, &leader.id) {
                *leader = subnet;
            }
        }
        let mut picks = BTreeMap::new();
        for (zone, subnet) in best {
            let taken = needed(zone);
            let left = free(&accounts, &subnet.id) - taken;
            let account = accounts.entry(subnet.id.clone()).or_default();
            account.in_flight = Some(left);
            let (subnet_id, description) = (subnet.id.clone(), account.description);
            picks.insert(zone.to_owned(), Pick { subnet_id, zone: zone.to_owned(), taken, description });
        }
        picks
    }

    /// Gives back what was set aside in subnets that no instance went to, unless EC2 has counted anew meanwhile.
    pub(crate) fn give_back(&self, picks: &BTreeMap<String, Pick>, used: &BTreeSet<String>) {
        let mut accounts = lock(&self.0);
        for pick in picks.values().filter(|pick| !used.contains(&pick.subnet_id)) {
            if let Some(account) =
                accounts.get_mut(&pick.subnet_id).filter(|account| account.description == pick.description)
            {
                account.in_flight = account.in_flight.map(|left| left + pick.taken);
            }
        }
    }

    /// A subnet turned out to be full.
    pub(crate) fn exhaust(&self, subnet_id: &str) {
        lock(&self.0).entry(subnet_id.to_owned()).or_default().in_flight = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(id: Option<&str>, tags: &[(&str, &str)]) -> SubnetSelectorTerm {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SubnetSelectorTerm { id: id.map(str::to_owned), tags }
    }

    fn rendered(queries: &[Query]) -> Vec<String> {
        let filter = |(name, values): &(String, Vec<String>)| format!("{name}={}", values.join(","));
        queries.iter().map(|query| query.filters.iter().map(filter).collect::<Vec<_>>().join(" & ")).collect()
    }

    #[test]
    fn each_tag_term_is_one_look_up_and_all_ids_share_one() {
        let terms = [
            term(Some("subnet-1"), &[]),
            term(None, &[("karpenter.sh/discovery", "demo"), ("tier", "*")]),
            term(Some("subnet-2"), &[("ignored", "x")]),
            term(None, &[("Name", "private-*")]),
        ];
        assert_eq!(
            rendered(&subnet_queries(&terms)),
            ["tag:karpenter.sh/discovery=demo & tag-key=tier", "tag:Name=private-*", "subnet-id=subnet-1,subnet-2"]
        );
    }

    #[test]
    fn security_groups_are_also_found_by_name() {
        let group = |id: Option<&str>, name: Option<&str>| SecurityGroupSelectorTerm {
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
            tags: BTreeMap::new(),
        };
        let terms = [group(None, Some("nodes")), group(Some("sg-1"), None), group(None, Some("efa"))];
        assert_eq!(rendered(&security_group_queries(&terms)), ["group-id=sg-1", "group-name=nodes,efa"]);
    }

    fn subnet(id: &str, zone: &str) -> Subnet {
        Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: String::new() }
    }

    fn picked(picks: &BTreeMap<String, Pick>) -> Vec<&str> {
        picks.values().map(|pick| pick.subnet_id.as_str()).collect()
    }

    #[test]
    fn each_zone_gives_its_roomiest_subnet_counting_launches_under_way() {
        let accounts = Accounts::default();
        let subnets = [subnet("subnet-1", "a"), subnet("subnet-2", "a"), subnet("subnet-3", "b")];
        accounts.describe([("subnet-1", 100), ("subnet-2", 90), ("subnet-3", 5)].into_iter());
        let first = accounts.pick(&subnets, |_| 20);
        assert_eq!(picked(&first), ["subnet-1", "subnet-3"]);
        let second = accounts.pick(&subnets, |_| 20);
        assert_eq!(picked(&second), ["subnet-2", "subnet-3"], "80 are left in the first");
        accounts.give_back(&first, &BTreeSet::from(["subnet-3".to_owned()]));
        assert_eq!(picked(&accounts.pick(&subnets, |_| 0)), ["subnet-1", "subnet-3"], "100 again, against 70");
    }

    #[test]
    fn a_new_count_by_ec2_ends_the_accounting_of_earlier_launches() {
        let accounts = Accounts::default();
        let subnets = [subnet("subnet-1", "a"), subnet("subnet-2", "a")];
        accounts.describe([("subnet-1", 100), ("subnet-2", 99)].into_iter());
        let picks = accounts.pick(&subnets, |_| 50);
        accounts.describe([("subnet-1", 98), ("subnet-2", 99)].into_iter());
        accounts.give_back(&picks, &BTreeSet::new());
        assert_eq!(picked(&accounts.pick(&subnets, |_| 0)), ["subnet-2"], "98 and not 148");
        accounts.exhaust("subnet-2");
        assert_eq!(picked(&accounts.pick(&subnets, |_| 0)), ["subnet-1"]);
    }
}
