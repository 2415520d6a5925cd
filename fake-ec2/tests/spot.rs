//! Spot requests: their states and status codes, interruption behaviors, prices over time (EC2 User Guide, Spot Instances).

mod common;

use common::{Account, values};
use fake_ec2::{CapacityType, SpotState, State};
use std::time::Duration;
use tokio::time::sleep;

/// A request for one instance of this type in the first zone; its id is answered.
async fn request(account: &Account, instance_type: &str, more: &[(&str, &str)]) -> String {
    let image = account.image("x86_64");
    let mut params = vec![
        ("LaunchSpecification.ImageId", image.as_str()),
        ("LaunchSpecification.InstanceType", instance_type),
        ("LaunchSpecification.SubnetId", account.setup.subnet_ids[0].as_str()),
    ];
    params.extend(more);
    let body = account.ok("RequestSpotInstances", &params).await;
    assert!(body.contains("<state>open</state><status><code>pending-evaluation</code>"), "{body}");
    values(&body, "spotInstanceRequestId").remove(0)
}

/// State and status code of a request, and its instance.
fn standing(account: &Account, id: &str) -> (SpotState, String, Option<String>) {
    let requests = account.ec2.cloud().spot_requests();
    let found = requests.into_iter().find(|request| request.id == id).unwrap_or_else(|| panic!("{id} is gone"));
    (found.state, found.status, found.instance_id)
}

#[tokio::test(start_paused = true)]
async fn a_one_time_request_is_fulfilled_and_ends_with_its_instance() {
    let account = Account::new();
    let id = request(
        &account,
        "m5.large",
        &[("TagSpecification.1.ResourceType", "spot-instances-request"), ("TagSpecification.1.Tag.1.Key", "team")],
    )
    .await;
    sleep(Duration::from_secs(2)).await;
    let (state, status, instance) = standing(&account, &id);
    assert_eq!((state, status.as_str()), (SpotState::Active, "fulfilled"));
    let by_filter = [
        ("Filter.1.Name", "launch.instance-type"),
        ("Filter.1.Value.1", "m5.*"),
        ("Filter.2.Name", "tag-key"),
        ("Filter.2.Value.1", "team"),
        ("Filter.3.Name", "type"),
        ("Filter.3.Value.1", "one-time"),
    ];
    let body = account.ok("DescribeSpotInstanceRequests", &by_filter).await;
    assert_eq!(values(&body, "spotInstanceRequestId"), [id.as_str()]);
    assert_eq!(values(&body, "launchedAvailabilityZone"), ["us-west-2a"]);
    assert_eq!(values(&body, "spotPrice"), ["0.096000"], "without a price of one's own, the on-demand price");
    let instance = instance.unwrap();
    assert_eq!(account.ec2.cloud().instance(&instance).unwrap().spot_request_id.as_deref(), Some(id.as_str()));
    account.ok("TerminateInstances", &[("InstanceId.1", &instance)]).await;
    sleep(Duration::from_secs(40)).await;
    let (state, status, _) = standing(&account, &id);
    assert_eq!((state, status.as_str()), (SpotState::Closed, "instance-terminated-by-user"));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_capacity_and_for_its_price() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    cloud.exhaust("m5.large", "us-west-2a", CapacityType::Spot);
    let waiting = request(&account, "m5.large", &[]).await;
    let cheap = request(&account, "c5.large", &[("SpotPrice", "0.0001")]).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(standing(&account, &waiting), (SpotState::Open, "capacity-not-available".into(), None));
    assert_eq!(standing(&account, &cheap), (SpotState::Open, "price-too-low".into(), None));
    cloud.restore("m5.large", "us-west-2a", CapacityType::Spot);
    cloud.set_spot_price("c5.large", "us-west-2a", 0.00009);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(standing(&account, &waiting).0, SpotState::Active);
    assert_eq!(standing(&account, &cheap).0, SpotState::Active);
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_to_its_period() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let later = request(&account, "m5.large", &[("ValidFrom", "2026-01-01T00:10:00Z")]).await;
    cloud.exhaust("c5.large", "*", CapacityType::Spot);
    let short = request(&account, "c5.large", &[("ValidUntil", "2026-01-01T00:05:00Z")]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(standing(&account, &later), (SpotState::Open, "not-scheduled-yet".into(), None));
    sleep(Duration::from_secs(301)).await;
    assert_eq!(standing(&account, &short), (SpotState::Closed, "schedule-expired".into(), None));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(standing(&account, &later).0, SpotState::Active);
    let launched = cloud.instances()[0].launched_at.to_string();
    assert_eq!(launched, "2026-01-01T00:10:00Z", "at its own instant");
}

#[tokio::test(start_paused = true)]
async fn cancelling_leaves_the_instance_alone() {
    let account = Account::new();
    let (active, open) = (
        request(&account, "m5.large", &[]).await,
        request(&account, "c5.large", &[("ValidFrom", "2026-01-02T00:00:00Z")]).await,
    );
    sleep(Duration::from_secs(10)).await;
    let both = [("SpotInstanceRequestId.1", active.as_str()), ("SpotInstanceRequestId.2", open.as_str())];
    let body = account.ok("CancelSpotInstanceRequests", &both).await;
    assert_eq!(values(&body, "state"), ["cancelled", "cancelled"]);
    let (state, status, instance) = standing(&account, &active);
    assert_eq!((state, status.as_str()), (SpotState::Cancelled, "request-canceled-and-instance-running"));
    assert_eq!(account.ec2.cloud().instance(&instance.unwrap()).unwrap().state, State::Running);
    assert_eq!(standing(&account, &open), (SpotState::Cancelled, "canceled-before-fulfillment".into(), None));
    assert_eq!(
        account.refused("CancelSpotInstanceRequests", &[("SpotInstanceRequestId.1", "sir-00000000")]).await,
        (400, "InvalidSpotInstanceRequestID.NotFound".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_persistent_request_gets_another_instance() {
    let account = Account::new();
    let id = request(&account, "m5.large", &[("Type", "persistent")]).await;
    sleep(Duration::from_secs(10)).await;
    let first = standing(&account, &id).2.unwrap();
    account.ec2.cloud().interrupt(&first).unwrap();
    assert_eq!(standing(&account, &id).1, "marked-for-termination");
    sleep(Duration::from_secs(200)).await;
    let (state, status, second) = standing(&account, &id);
    assert_eq!((state, status.as_str()), (SpotState::Active, "fulfilled"));
    assert_ne!(second.as_ref(), Some(&first));
    let reason = account.ec2.cloud().instance(&first).unwrap().state_reason.unwrap().0;
    assert_eq!(reason, "Server.SpotInstanceTermination");
    // Forgetting the first instance does not take the request with it.
    sleep(Duration::from_secs(4000)).await;
    assert_eq!(standing(&account, &id).0, SpotState::Active);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_stops_for_want_of_capacity_starts_by_itself_and_only_by_itself() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let id = request(&account, "m5.large", &[("Type", "persistent"), ("InstanceInterruptionBehavior", "stop")]).await;
    sleep(Duration::from_secs(10)).await;
    account.events().await;
    let instance = standing(&account, &id).2.unwrap();
    cloud.exhaust("m5.large", "us-west-2a", CapacityType::Spot);
    cloud.interrupt(&instance).unwrap();
    let warning = account.events().await.pop().unwrap();
    assert_eq!(warning["detail"]["instance-action"], "stop");
    sleep(Duration::from_secs(160)).await;
    let stopped = cloud.instance(&instance).unwrap();
    assert_eq!(
        (stopped.state, stopped.state_reason.unwrap().0.as_str()),
        (State::Stopped, "Server.SpotInstanceShutdown")
    );
    assert_eq!(
        (standing(&account, &id).0, standing(&account, &id).1.as_str()),
        (SpotState::Open, "instance-stopped-no-capacity")
    );
    assert_eq!(
        account.refused("StartInstances", &[("InstanceId.1", &instance)]).await,
        (400, "IncorrectSpotRequestState".into())
    );
    cloud.restore("m5.large", "us-west-2a", CapacityType::Spot);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cloud.instance(&instance).unwrap().state, State::Running);
    assert_eq!(standing(&account, &id).0, SpotState::Active);
    // Its owner may stop and start it too.
    account.ok("StopInstances", &[("InstanceId.1", &instance)]).await;
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        (standing(&account, &id).0, standing(&account, &id).1.as_str()),
        (SpotState::Disabled, "instance-stopped-by-user")
    );
    account.ok("StartInstances", &[("InstanceId.1", &instance)]).await;
    assert_eq!(standing(&account, &id).0, SpotState::Active);
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_itself_is_refused() {
    let account = Account::new();
    let image = account.image("x86_64");
    let base = [
        ("LaunchSpecification.ImageId", image.as_str()),
        ("LaunchSpecification.InstanceType", "m5.large"),
        ("LaunchSpecification.SubnetId", account.setup.subnet_ids[0].as_str()),
    ];
    for (more, code) in [
        (("InstanceInterruptionBehavior", "stop"), "InvalidParameterCombination"),
        (("ValidUntil", "2025-01-01T00:00:00Z"), "InvalidTime"),
        (("SpotPrice", "-1"), "InvalidParameterValue"),
        (("Type", "sometimes"), "InvalidParameterValue"),
        (("InstanceCount", "0"), "InvalidParameterValue"),
        (("LaunchSpecification.ImageId", "ami-0000000000000dead"), "InvalidAMIID.NotFound"),
    ] {
        let mut params: Vec<_> = base.iter().copied().filter(|(name, _)| *name != more.0).collect();
        params.push(more);
        assert_eq!(account.refused("RequestSpotInstances", &params).await, (400, code.into()), "{more:?}");
    }
    assert!(account.ec2.cloud().spot_requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn prices_are_told_as_they_changed() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let before = cloud.spot_price("m5.large", "us-west-2a").unwrap();
    sleep(Duration::from_secs(3600)).await;
    cloud.set_spot_price("m5.large", "us-west-2a", 0.07);
    sleep(Duration::from_secs(3600)).await;
    cloud.set_spot_price("m5.large", "us-west-2a", 0.08);
    let history = async |more: &[(&str, &str)]| {
        let mut params = vec![("InstanceType.1", "m5.large"), ("AvailabilityZone", "us-west-2a")];
        params.extend(more);
        values(&account.ok("DescribeSpotPriceHistory", &params).await, "spotPrice")
    };
    let first = format!("{before:.6}");
    assert_eq!(history(&[]).await, ["0.080000", "0.070000", first.as_str()], "the latest first");
    let now = "2026-01-01T02:00:00Z";
    assert_eq!(history(&[("StartTime", now), ("EndTime", now)]).await, ["0.080000"]);
    let between = [("StartTime", "2026-01-01T00:30:00Z"), ("EndTime", "2026-01-01T01:30:00Z")];
    assert_eq!(history(&between).await, ["0.070000", first.as_str()], "the change and what held before it");
    assert_eq!(
        history(&[("StartTime", "2026-01-01T01:30:00Z"), ("EndTime", "2026-01-01T01:40:00Z")]).await,
        ["0.070000"]
    );
    assert_eq!(history(&[("ProductDescription.1", "Windows")]).await, Vec::<String>::new());
    assert_eq!(history(&[("ProductDescription.1", "Linux/UNIX (Amazon VPC)"), ("StartTime", now)]).await, ["0.080000"]);
    let backwards = [("StartTime", now), ("EndTime", "2026-01-01T01:00:00Z")];
    assert_eq!(
        account.refused("DescribeSpotPriceHistory", &backwards).await,
        (400, "InvalidParameterCombination".into())
    );
}
