//! Fleets beyond one instant call: request and maintain, strategies, limits, attribute-based selection, what is described
//! (EC2 API Reference, EC2 Fleet).

mod common;

use common::{Account, items, values};
use fake_ec2::{CapacityType, Config, Impairment, State};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// A fleet of this type over (type, index of the subnet) overrides; its id is answered.
async fn fleet(
    account: &Account,
    kind: &str,
    target: u32,
    overrides: &[(&str, usize)],
    more: &[(&str, &str)],
) -> String {
    let mut params = vec![("Type", kind)];
    if kind != "instant" {
        // Only instant fleets tag their instances.
        params.push(("TagSpecification.1.ResourceType", "fleet"));
    }
    params.extend(more);
    let (status, body) = account.fleet("on-demand", target, overrides, &params).await;
    assert_eq!(status, 200, "{body}");
    if kind != "instant" {
        assert!(items(&body, "instanceIds").is_empty(), "{body}");
    }
    values(&body, "fleetId").remove(0)
}

/// How many live instances of each type and zone there are.
fn live(account: &Account) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for instance in account.ec2.cloud().instances().into_iter().filter(|instance| !instance.state.is_ending()) {
        *counts.entry((instance.instance_type.to_owned(), instance.zone)).or_default() += 1;
    }
    counts
}

fn total(account: &Account) -> usize {
    live(account).values().sum()
}

async fn described(account: &Account, id: &str, name: &str) -> String {
    let body = account.ok("DescribeFleets", &[("FleetId.1", id)]).await;
    values(&body, name).into_iter().next().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn maintain_replaces_what_ends_and_follows_its_target() {
    let account = Account::new();
    account.template("nodes").await;
    let id = fleet(&account, "maintain", 2, &[("m5.large", 0)], &[]).await;
    assert_eq!((total(&account), described(&account, &id, "fleetState").await.as_str()), (0, "submitted"));
    assert_eq!(described(&account, &id, "activityStatus").await, "pending_fulfillment");
    sleep(Duration::from_secs(10)).await;
    assert_eq!((total(&account), described(&account, &id, "fleetState").await.as_str()), (2, "active"));
    assert_eq!(
        (described(&account, &id, "activityStatus").await, described(&account, &id, "fulfilledCapacity").await),
        ("fulfilled".into(), "2".into())
    );
    let victim = account.ec2.cloud().instances()[0].id.clone();
    account.ec2.cloud().kill(&victim).unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(total(&account), 2, "another in its place");
    let modify = [("FleetId", id.as_str()), ("TargetCapacitySpecification.TotalTargetCapacity", "3")];
    account.ok("ModifyFleet", &modify).await;
    assert_eq!(described(&account, &id, "fleetState").await, "modifying");
    sleep(Duration::from_secs(10)).await;
    assert_eq!((total(&account), described(&account, &id, "fleetState").await.as_str()), (3, "active"));
    account.ok("ModifyFleet", &[modify[0], ("TargetCapacitySpecification.TotalTargetCapacity", "1")]).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(total(&account), 1, "the excess is terminated");
    let keep = [
        modify[0],
        ("TargetCapacitySpecification.TotalTargetCapacity", "0"),
        ("ExcessCapacityTerminationPolicy", "no-termination"),
    ];
    account.ok("ModifyFleet", &keep).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(total(&account), 1, "the excess is kept");
}

#[tokio::test(start_paused = true)]
async fn maintain_waits_for_capacity_and_request_does_not() {
    let account = Account::new();
    account.template("nodes").await;
    let cloud = account.ec2.cloud();
    cloud.set_capacity("m5.large", "us-west-2a", CapacityType::OnDemand, 1);
    let request = fleet(&account, "request", 2, &[("m5.large", 0)], &[]).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!((total(&account), described(&account, &request, "activityStatus").await.as_str()), (1, "error"));
    let maintain = fleet(&account, "maintain", 1, &[("m5.large", 0)], &[]).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!((total(&account), described(&account, &maintain, "activityStatus").await.as_str()), (1, "error"));
    cloud.restore("*", "*", CapacityType::OnDemand);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(total(&account), 2, "only the fleet that maintains its capacity has tried again");
    let own = account.ok("DescribeFleetInstances", &[("FleetId", &request)]).await;
    cloud.kill(&values(&own, "instanceId")[0]).unwrap();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(total(&account), 1, "a request replaces nothing");
    let modify = [("FleetId", request.as_str()), ("TargetCapacitySpecification.TotalTargetCapacity", "3")];
    assert_eq!(account.refused("ModifyFleet", &modify).await, (400, "FleetNotInModifiableState".into()));
}

#[tokio::test(start_paused = true)]
async fn deleting_leaves_or_ends_the_instances() {
    let account = Account::new();
    account.template("nodes").await;
    let (first, second) = (
        fleet(&account, "maintain", 1, &[("m5.large", 0)], &[]).await,
        fleet(&account, "maintain", 1, &[("c5.large", 1)], &[]).await,
    );
    let instant = fleet(&account, "instant", 1, &[("m5.xlarge", 2)], &[]).await;
    sleep(Duration::from_secs(10)).await;
    let unknown = "fleet-00000000-0000-4000-8000-000000000000";
    let delete = |ids: &[&str], terminate: &str| {
        let mut params = vec![("TerminateInstances".to_owned(), terminate.to_owned())];
        params.extend(ids.iter().enumerate().map(|(index, id)| (format!("FleetId.{}", index + 1), (*id).to_owned())));
        params
    };
    let call = async |params: Vec<(String, String)>| {
        let params: Vec<_> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        account.ok("DeleteFleets", &params).await
    };
    let body = call(delete(&[&first, unknown, "fleet-x", &instant], "false")).await;
    assert_eq!(values(&body, "currentFleetState"), ["deleted_running"]);
    assert_eq!(values(&body, "previousFleetState"), ["active"]);
    assert_eq!(values(&body, "code"), ["fleetIdDoesNotExist", "fleetIdMalformed", "fleetNotInDeletableState"]);
    let body = call(delete(&[&second, &instant], "true")).await;
    assert_eq!(values(&body, "currentFleetState"), ["deleted_terminating", "deleted_terminating"]);
    assert_eq!(total(&account), 1, "the first fleet's instance goes on");
    assert_eq!(described(&account, &first, "fleetState").await, "deleted_running");
    assert_eq!(described(&account, &second, "fleetState").await, "deleted");
    let left = account.ok("DescribeFleetInstances", &[("FleetId", &first)]).await;
    account.ec2.cloud().terminate(&values(&left, "instanceId")[0]).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((described(&account, &first, "fleetState").await.as_str(), total(&account)), ("deleted", 0));
    sleep(Duration::from_secs(49 * 3600)).await;
    assert_eq!(
        account.refused("DescribeFleets", &[("FleetId.1", &first)]).await,
        (400, "InvalidFleetId.NotFound".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_fleet_ends_when_its_time_is_over() {
    let account = Account::new();
    account.template("nodes").await;
    let more = [
        ("ValidFrom", "2026-01-01T00:10:00Z"),
        ("ValidUntil", "2026-01-01T01:00:00Z"),
        ("TerminateInstancesWithExpiration", "true"),
    ];
    let id = fleet(&account, "maintain", 1, &[("m5.large", 0)], &more).await;
    sleep(Duration::from_secs(599)).await;
    assert_eq!(total(&account), 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(total(&account), 1);
    sleep(Duration::from_secs(3000)).await;
    assert_eq!(total(&account), 0);
    let history = [("FleetId", id.as_str()), ("StartTime", "2026-01-01T00:00:00Z"), ("EventType", "fleet-change")];
    let body = account.ok("DescribeFleetHistory", &history).await;
    assert_eq!(values(&body, "eventSubType"), ["submitted", "active", "expired", "deleted_terminating", "deleted"]);
}

#[tokio::test(start_paused = true)]
async fn history_and_instances_are_told_and_the_bus_hears_of_them() {
    let account = Account::new();
    account.template("nodes").await;
    let pattern = serde_json::json!({"source": ["aws.ec2fleet"]});
    account.ec2.cloud().add_queue("fleets");
    account.ec2.cloud().add_rule("fleets", &pattern, "fleets").unwrap();
    let id = fleet(&account, "maintain", 2, &[("m5.large", 0)], &[]).await;
    sleep(Duration::from_secs(10)).await;
    let body = account.ok("DescribeFleetInstances", &[("FleetId", &id)]).await;
    assert_eq!(
        (values(&body, "instanceId").len(), values(&body, "instanceHealth")),
        (2, vec!["healthy".into(), "healthy".into()])
    );
    let start = ("StartTime", "2026-01-01T00:00:00Z");
    let body = account.ok("DescribeFleetHistory", &[("FleetId", &id), start]).await;
    assert_eq!(values(&body, "eventSubType"), ["submitted", "active", "launched", "launched"]);
    assert_eq!(values(&body, "eventType")[2], "instance-change");
    let page = account.ok("DescribeFleetHistory", &[("FleetId", &id), start, ("MaxResults", "3")]).await;
    let token = values(&page, "nextToken").remove(0);
    let rest = account.ok("DescribeFleetHistory", &[("FleetId", &id), start, ("NextToken", &token)]).await;
    assert_eq!(values(&rest, "eventSubType"), ["launched"]);
    assert_eq!(account.ec2.cloud().queue_counts("fleets"), Some((4, 0, 0)));
    // Instant fleets have neither.
    let instant = fleet(&account, "instant", 1, &[("m5.large", 0)], &[]).await;
    assert_eq!(account.refused("DescribeFleetHistory", &[("FleetId", &instant), start]).await.0, 400);
    assert_eq!(account.refused("DescribeFleetInstances", &[("FleetId", &instant)]).await.0, 400);
    let all = account.ok("DescribeFleets", &[]).await;
    assert_eq!(values(&all, "fleetId"), [id.as_str()], "an instant fleet is described only if it is named");
    let named = account.ok("DescribeFleets", &[("FleetId.1", &instant)]).await;
    assert_eq!((items(&named, "instanceIds").len(), values(&named, "type")), (1, vec!["instant".into()]));
    let by_state = [("Filter.1.Name", "fleet-state"), ("Filter.1.Value.1", "deleted")];
    assert!(values(&account.ok("DescribeFleets", &by_state).await, "fleetId").is_empty());
}

#[tokio::test(start_paused = true)]
async fn unhealthy_instances_are_replaced_where_it_is_asked_for() {
    let account = Account::new();
    account.template("nodes").await;
    let id = fleet(&account, "maintain", 1, &[("m5.large", 0)], &[("ReplaceUnhealthyInstances", "true")]).await;
    sleep(Duration::from_secs(10)).await;
    let body = account.ok("DescribeFleetInstances", &[("FleetId", &id)]).await;
    let sick = values(&body, "instanceId").remove(0);
    account.ec2.cloud().impair(&sick, Impairment::System, true).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(account.ec2.cloud().instance(&sick).unwrap().state, State::Terminated);
    assert_eq!(total(&account), 1);
}

#[tokio::test(start_paused = true)]
async fn weights_count_and_pools_share() {
    let account = Account::new();
    account.template("nodes").await;
    let weights = [("LaunchTemplateConfigs.1.Overrides.1.WeightedCapacity", "4")];
    let (_, body) = account.fleet("on-demand", 10, &[("m5.2xlarge", 0)], &weights).await;
    assert_eq!(items(&body, "instanceIds").len(), 3, "ten units of four each: {body}");
    let pools = [("SpotOptions.AllocationStrategy", "lowest-price"), ("SpotOptions.InstancePoolsToUseCount", "2")];
    let overrides = [("m5.large", 0), ("m5.large", 1), ("m5.large", 2)];
    let before = live(&account);
    let (_, body) = account.fleet("spot", 6, &overrides, &pools).await;
    assert_eq!(items(&body, "instanceIds").len(), 6, "{body}");
    let counts: Vec<usize> =
        live(&account).into_iter().filter(|(pool, _)| !before.contains_key(pool)).map(|(_, count)| count).collect();
    assert_eq!(counts, [3, 3], "the two cheapest of three pools");
    account.ec2.cloud().exhaust("m5.large", "*", CapacityType::Spot);
    account.ec2.cloud().restore("m5.large", "us-west-2c", CapacityType::Spot);
    let (_, body) = account.fleet("spot", 2, &overrides, &pools).await;
    assert_eq!(items(&body, "instanceIds").len(), 2, "the pool that is left takes it all: {body}");
    let diversified = [("SpotOptions.AllocationStrategy", "diversified")];
    account.ec2.cloud().restore("*", "*", CapacityType::Spot);
    let all = [("c5.large", 0), ("c5.large", 1), ("c5.large", 2)];
    account.fleet("spot", 6, &all, &diversified).await;
    let counts: Vec<usize> =
        live(&account).into_iter().filter(|((name, _), _)| name == "c5.large").map(|(_, count)| count).collect();
    assert_eq!(counts, [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_single_type_or_zone_and_a_minimum_are_kept_to() {
    let account = Account::new();
    account.template("nodes").await;
    let cloud = account.ec2.cloud();
    // The cheapest type has room for one only; the other for all three.
    cloud.set_capacity("c5.large", "us-west-2a", CapacityType::OnDemand, 1);
    let more = [("OnDemandOptions.SingleInstanceType", "true"), ("OnDemandOptions.MinTargetCapacity", "3")];
    let overrides = [("c5.large", 0), ("m5.large", 0)];
    let (_, body) = account.fleet("on-demand", 3, &overrides, &more).await;
    assert_eq!(
        (items(&body, "instanceIds").len(), values(&body, "errorCode")),
        (3, vec!["InsufficientInstanceCapacity".into()])
    );
    assert_eq!(live(&account).into_iter().collect::<Vec<_>>(), [(("m5.large".into(), "us-west-2a".into()), 3)]);
    // What was tried has left no trace: neither instances nor taken capacity nor events.
    let free: u32 = cloud.subnets().iter().map(|subnet| subnet.available_addresses()).max().unwrap();
    assert_eq!(free, 8187);
    let (_, body) = account.fleet("on-demand", 1, &[("c5.large", 0)], &[]).await;
    assert_eq!(items(&body, "instanceIds").len(), 1, "its place was given back: {body}");
    let zones = [("OnDemandOptions.SingleAvailabilityZone", "true"), ("OnDemandOptions.MinTargetCapacity", "2")];
    cloud.exhaust("m5.xlarge", "us-west-2a", CapacityType::OnDemand);
    let before = total(&account);
    let (_, body) = account.fleet("on-demand", 2, &[("m5.xlarge", 0), ("m5.xlarge", 1)], &zones).await;
    assert_eq!(items(&body, "instanceIds").len(), 2);
    assert_eq!(live(&account)[&("m5.xlarge".to_owned(), "us-west-2b".to_owned())], 2);
    cloud.exhaust("*", "*", CapacityType::OnDemand);
    let (status, body) = account.fleet("on-demand", 2, &[("m5.xlarge", 1)], &zones).await;
    assert_eq!((status, items(&body, "instanceIds").len(), total(&account)), (200, 0, before + 2));
}

#[tokio::test(start_paused = true)]
async fn a_maximum_total_price_and_a_maximum_price_stop_launches() {
    let account = Account::new();
    account.template("nodes").await;
    // m5.large costs 0.096 on demand.
    let (_, body) =
        account.fleet("on-demand", 5, &[("m5.large", 0)], &[("OnDemandOptions.MaxTotalPrice", "0.2")]).await;
    assert_eq!((items(&body, "instanceIds").len(), values(&body, "errorCode").len()), (2, 1), "{body}");
    let price = account.ec2.cloud().spot_price("m5.large", "us-west-2a").unwrap();
    let below = format!("{:.6}", price / 2.0);
    let (_, body) =
        account.fleet("spot", 1, &[("m5.large", 0)], &[("LaunchTemplateConfigs.1.Overrides.1.MaxPrice", &below)]).await;
    assert_eq!(
        (values(&body, "errorCode"), values(&body, "maxPrice")),
        (vec!["SpotMaxPriceTooLow".into()], vec![below])
    );
}

#[tokio::test(start_paused = true)]
async fn priorities_decide_among_pools_of_the_same_depth() {
    let account = Account::new();
    account.template("nodes").await;
    let more = [
        ("SpotOptions.AllocationStrategy", "capacity-optimized-prioritized"),
        ("LaunchTemplateConfigs.1.Overrides.1.Priority", "2"),
        ("LaunchTemplateConfigs.1.Overrides.2.Priority", "1"),
    ];
    let (_, body) = account.fleet("spot", 1, &[("m5.large", 0), ("m5.large", 1)], &more).await;
    assert_eq!(values(&body, "availabilityZone")[0], "us-west-2b", "{body}");
    assert_eq!(values(&values(&body, "fleetInstanceSet")[0], "priority"), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn reserved_capacity_goes_first_where_it_is_asked_for() {
    let account = Account::new();
    account.template("nodes").await;
    let reserve = [
        ("InstanceType", "m5.xlarge"),
        ("InstancePlatform", "Linux/UNIX"),
        ("AvailabilityZone", "us-west-2a"),
        ("InstanceCount", "2"),
    ];
    account.ok("CreateCapacityReservation", &reserve).await;
    let more = [("OnDemandOptions.CapacityReservationOptions.UsageStrategy", "use-capacity-reservations-first")];
    account.fleet("on-demand", 3, &[("m5.large", 0), ("m5.xlarge", 0)], &more).await;
    let pool = |name: &str| (name.to_owned(), "us-west-2a".to_owned());
    assert_eq!(live(&account), BTreeMap::from([(pool("m5.xlarge"), 2), (pool("m5.large"), 1)]));
}

#[tokio::test(start_paused = true)]
async fn attributes_choose_types() {
    let account = Account::with(Config {
        families: ["m5", "c5", "m6g", "p5", "t3", "c5d", "r5"].map(String::from).to_vec(),
        ..Config::default()
    });
    let requirements = |more: &[(&str, &str)]| {
        let mut all =
            vec![("VCpuCount.Min".to_owned(), "2".to_owned()), ("MemoryMiB.Min".to_owned(), "8192".to_owned())];
        all.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        all
    };
    let types = async |architecture: &str, more: &[(&str, &str)]| {
        let mut params = vec![
            ("ArchitectureType.1".to_owned(), architecture.to_owned()),
            ("VirtualizationType.1".to_owned(), "hvm".to_owned()),
        ];
        params.extend(
            requirements(more).into_iter().map(|(name, value)| (format!("InstanceRequirements.{name}"), value)),
        );
        let params: Vec<_> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        values(&account.ok("GetInstanceTypesFromInstanceRequirements", &params).await, "instanceType")
    };
    let small = [("VCpuCount.Max", "4"), ("MemoryMiB.Max", "16384")];
    assert_eq!(types("x86_64", &small).await, ["c5.xlarge", "c5d.xlarge", "m5.large", "m5.xlarge", "r5.large"]);
    assert_eq!(types("arm64", &small).await, ["m6g.large", "m6g.xlarge"]);
    let with = |more: (&'static str, &'static str)| [small[0], small[1], more];
    assert_eq!(types("x86_64", &with(("LocalStorage", "required"))).await, ["c5d.xlarge"]);
    assert_eq!(types("x86_64", &with(("ExcludedInstanceType.1", "c5*"))).await, ["m5.large", "m5.xlarge", "r5.large"]);
    assert_eq!(types("x86_64", &with(("BurstablePerformance", "required"))).await, ["t3.large", "t3.xlarge"]);
    assert_eq!(types("x86_64", &with(("MemoryGiBPerVCpu.Min", "8"))).await, ["r5.large"]);
    assert_eq!(types("x86_64", &[("AcceleratorName.1", "h100"), ("AcceleratorCount.Min", "8")]).await, ["p5.48xlarge"]);
    assert_eq!(types("x86_64", &with(("CpuManufacturer.1", "amd"))).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_by_attributes_is_protected_from_prices_and_counts_in_units() {
    let families = ["m7i", "m7a", "r7i"].map(String::from).to_vec();
    let account = Account::with(Config { families, ..Config::default() });
    account.template("nodes").await;
    let prefix = "LaunchTemplateConfigs.1.Overrides.1.";
    let fleet = async |market: &str, more: &[(&str, &str)]| {
        let requirements = [("VCpuCount.Min", "2"), ("VCpuCount.Max", "2"), ("MemoryMiB.Min", "8192")];
        let mut params: Vec<(String, String)> = requirements
            .map(|(name, value)| (format!("{prefix}InstanceRequirements.{name}"), value.to_owned()))
            .to_vec();
        params.push((format!("{prefix}SubnetId"), account.setup.subnet_ids[0].clone()));
        params.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let params: Vec<_> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        account.fleet(market, 3, &[], &params).await.1
    };
    let types = |body: &str| {
        let mut types = values(body, "instanceType");
        types.dedup();
        types
    };
    // m7i.large costs 0.1008, m7a.large 0.11592 and r7i.large 0.1323: 20 % above the cheapest is 0.12096.
    let cloud = account.ec2.cloud();
    for cheap in ["m7i.large", "m7a.large"] {
        cloud.exhaust(cheap, "*", CapacityType::OnDemand);
    }
    let body = fleet("on-demand", &[]).await;
    assert_eq!((types(&body), items(&body, "instanceIds").len()), (vec!["m7i.large".into(), "m7a.large".into()], 0));
    let echoed =
        "<instanceRequirements><memoryMiB><min>8192</min></memoryMiB><vCpuCount><max>2</max><min>2</min></vCpuCount>";
    assert!(body.contains(echoed), "{body}");
    let threshold = format!("{prefix}InstanceRequirements.OnDemandMaxPricePercentageOverLowestPrice");
    let body = fleet("on-demand", &[(&threshold, "40")]).await;
    assert_eq!(
        (live(&account).into_keys().next().unwrap().0.as_str(), items(&body, "instanceIds").len()),
        ("r7i.large", 3)
    );
    cloud.restore("*", "*", CapacityType::OnDemand);
    let body = fleet("on-demand", &[("TargetCapacitySpecification.TargetCapacityUnitType", "vcpu")]).await;
    assert_eq!(items(&body, "instanceIds").len(), 2, "three vCPUs take two instances of two: {body}");
    // Spot: a tenth of the on-demand price of the cheapest admits nothing.
    let threshold = format!("{prefix}InstanceRequirements.MaxSpotPriceAsPercentageOfOptimalOnDemandPrice");
    assert_eq!(items(&fleet("spot", &[(&threshold, "10")]).await, "instanceIds").len(), 0);
    assert_eq!(items(&fleet("spot", &[(&threshold, "100")]).await, "instanceIds").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_itself_is_refused() {
    let account = Account::new();
    account.template("nodes").await;
    for (more, code) in [
        (vec![("OnDemandOptions.MinTargetCapacity", "1")], "InvalidParameterCombination"),
        (vec![("Type", "maintain"), ("SpotOptions.SingleInstanceType", "true")], "InvalidParameterCombination"),
        (
            vec![("SpotOptions.AllocationStrategy", "diversified"), ("SpotOptions.InstancePoolsToUseCount", "2")],
            "InvalidParameterCombination",
        ),
        (vec![("SpotOptions.AllocationStrategy", "prioritized")], "InvalidParameterValue"),
        (vec![("OnDemandOptions.AllocationStrategy", "diversified")], "InvalidParameterValue"),
        (vec![("ReplaceUnhealthyInstances", "true")], "InvalidParameterCombination"),
        (vec![("ValidUntil", "2027-01-01T00:00:00Z")], "InvalidParameterCombination"),
        (
            vec![
                ("Type", "maintain"),
                ("TagSpecification.1.ResourceType", "fleet"),
                ("ValidUntil", "2025-01-01T00:00:00Z"),
            ],
            "InvalidParameterValue",
        ),
        (vec![("TargetCapacitySpecification.TargetCapacityUnitType", "vcpu")], "InvalidParameterCombination"),
        (vec![("Type", "eternal")], "InvalidParameterValue"),
        (vec![("Type", "maintain"), ("TagSpecification.1.ResourceType", "instance")], "InvalidParameterValue"),
        (vec![("LaunchTemplateConfigs.1.Overrides.1.WeightedCapacity", "0")], "InvalidParameterValue"),
        (vec![("LaunchTemplateConfigs.1.Overrides.1.InstanceRequirements.VCpuCount.Min", "1")], "MissingParameter"),
        (
            vec![
                ("LaunchTemplateConfigs.1.Overrides.1.InstanceRequirements.VCpuCount.Min", "1"),
                ("LaunchTemplateConfigs.1.Overrides.1.InstanceRequirements.MemoryMiB.Min", "1"),
            ],
            "InvalidParameterCombination",
        ),
        (
            vec![("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "none")],
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        (vec![("TargetCapacitySpecification.SpotTargetCapacity", "2")], "InvalidTargetCapacitySpecification"),
    ] {
        let (status, body) = account.fleet("on-demand", 1, &[("m5.large", 0)], &more).await;
        assert_eq!((status, values(&body, "Code")), (400, vec![code.to_owned()]), "{more:?}");
    }
    assert_eq!(
        account.refused("DescribeFleets", &[("FleetId.1", "fleet-1")]).await,
        (400, "InvalidFleetId.Malformed".into())
    );
}
