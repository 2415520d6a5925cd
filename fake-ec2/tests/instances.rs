//! Instances: attributes one by one, protection, filters, capacity over their lives, reservations and placement groups.

mod common;

use common::{Account, items, values};
use fake_ec2::{CapacityType, Config, State};
use std::time::{Duration, Instant};
use tokio::time::sleep;

async fn run(account: &Account, more: &[(&str, &str)]) -> (u16, String) {
    let (image, subnet) = (account.image("x86_64"), account.setup.subnet_ids[0].clone());
    let mut params = vec![("ImageId", image.as_str()), ("SubnetId", subnet.as_str())];
    for default in [("MinCount", "1"), ("MaxCount", "1"), ("InstanceType", "m5.large")] {
        if !more.iter().any(|(name, _)| *name == default.0) {
            params.push(default);
        }
    }
    params.retain(|(name, _)| !more.iter().any(|(given, _)| given == name));
    params.extend(more);
    account.ec2("RunInstances", &params).await
}

async fn one(account: &Account, more: &[(&str, &str)]) -> String {
    let (status, body) = run(account, more).await;
    assert_eq!(status, 200, "{body}");
    values(&body, "instanceId").remove(0)
}

#[tokio::test(start_paused = true)]
async fn fewer_than_the_minimum_leave_nothing_behind() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    cloud.set_capacity("m5.large", "us-west-2a", CapacityType::OnDemand, 2);
    let (status, body) = run(&account, &[("MinCount", "3"), ("MaxCount", "5")]).await;
    assert_eq!((status, values(&body, "Code")), (500, vec!["InsufficientInstanceCapacity".into()]));
    assert!(cloud.instances().is_empty());
    assert!(values(&account.ok("DescribeInstances", &[]).await, "instanceId").is_empty());
    assert!(cloud.subnets().iter().all(|subnet| subnet.available_addresses() == 8187));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(account.events().await.len(), 0, "nobody heard of them");
    // What was tried for has been given back, and between minimum and maximum what there is is launched.
    let (status, body) = run(&account, &[("MinCount", "1"), ("MaxCount", "5")]).await;
    assert_eq!((status, values(&body, "instanceId").len()), (200, 2));
    let spot = [("MinCount", "2"), ("MaxCount", "2"), ("InstanceMarketOptions.MarketType", "spot")];
    cloud.set_capacity("m5.large", "us-west-2a", CapacityType::Spot, 1);
    assert_eq!(run(&account, &spot).await.0, 500);
    assert!(cloud.spot_requests().is_empty(), "its spot request is gone too");
}

#[tokio::test(start_paused = true)]
async fn protected_instances_neither_end_nor_stop() {
    let account = Account::new();
    let id = one(&account, &[("DisableApiTermination", "true"), ("DisableApiStop", "true")]).await;
    let neighbour = one(&account, &[]).await;
    let elsewhere = one(&account, &[("SubnetId", &account.setup.subnet_ids[1])]).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(account.refused("StopInstances", &[("InstanceId.1", &id)]).await, (400, "OperationNotPermitted".into()));
    let all = [("InstanceId.1", id.as_str()), ("InstanceId.2", &neighbour), ("InstanceId.3", &elsewhere)];
    assert_eq!(account.refused("TerminateInstances", &all).await, (400, "OperationNotPermitted".into()));
    let state = |id: &str| account.ec2.cloud().instance(id).unwrap().state;
    assert_eq!(
        (state(&id), state(&neighbour), state(&elsewhere)),
        (State::Running, State::Running, State::ShuttingDown),
        "those of its zone are kept with it"
    );
    let described =
        account.ok("DescribeInstanceAttribute", &[("InstanceId", &id), ("Attribute", "disableApiTermination")]).await;
    assert!(described.contains("<disableApiTermination><value>true</value></disableApiTermination>"), "{described}");
    account.ok("ModifyInstanceAttribute", &[("InstanceId", &id), ("DisableApiTermination.Value", "false")]).await;
    // The older form.
    let older = [("InstanceId", id.as_str()), ("Attribute", "disableApiStop"), ("Value", "false")];
    account.ok("ModifyInstanceAttribute", &older).await;
    account.ok("StopInstances", &[("InstanceId.1", &id)]).await;
    account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
}

#[tokio::test(start_paused = true)]
async fn attributes_are_read_and_changed_one_by_one() {
    let account = Account::new();
    let id = one(&account, &[("UserData", "aGVsbG8=")]).await;
    let instance = ("InstanceId", id.as_str());
    let read = async |attribute: &str| {
        let body = account.ok("DescribeInstanceAttribute", &[instance, ("Attribute", attribute)]).await;
        values(&body, attribute).remove(0)
    };
    assert_eq!(read("userData").await, "<value>aGVsbG8=</value>");
    assert_eq!(read("instanceInitiatedShutdownBehavior").await, "<value>stop</value>");
    assert_eq!(read("sourceDestCheck").await, "<value>true</value>");
    assert_eq!(read("rootDeviceName").await, "<value>/dev/xvda</value>");
    account.ok("ModifyInstanceAttribute", &[instance, ("SourceDestCheck.Value", "false")]).await;
    assert_eq!(read("sourceDestCheck").await, "<value>false</value>");
    account.ok("ResetInstanceAttribute", &[instance, ("Attribute", "sourceDestCheck")]).await;
    assert_eq!(read("sourceDestCheck").await, "<value>true</value>");
    let refused = async |more: &[(&str, &str)]| {
        let mut params = vec![instance];
        params.extend(more);
        account.refused("ModifyInstanceAttribute", &params).await.1
    };
    assert_eq!(refused(&[("InstanceType.Value", "m5.xlarge")]).await, "IncorrectInstanceState");
    assert_eq!(refused(&[("UserData.Value", "eA==")]).await, "IncorrectInstanceState");
    assert_eq!(
        refused(&[("SourceDestCheck.Value", "false"), ("DisableApiStop.Value", "true")]).await,
        "InvalidParameterCombination"
    );
    assert_eq!(refused(&[("InstanceInitiatedShutdownBehavior.Value", "nap")]).await, "InvalidParameterValue");
    assert_eq!(refused(&[("GroupId.1", "sg-0000000000000dead")]).await, "InvalidGroup.NotFound");
    assert_eq!(refused(&[("Kernel.Value", "aki-1")]).await, "UnsupportedInstanceAttribute");
    assert_eq!(refused(&[]).await, "MissingParameter");
    sleep(Duration::from_secs(10)).await;
    account.ok("StopInstances", &[("InstanceId.1", &id)]).await;
    sleep(Duration::from_secs(40)).await;
    assert_eq!(refused(&[("InstanceType.Value", "m99.large")]).await, "InvalidInstanceAttributeValue");
    assert_eq!(refused(&[("InstanceType.Value", "m6g.large")]).await, "InvalidInstanceAttributeValue");
    account.ok("ModifyInstanceAttribute", &[instance, ("InstanceType.Value", "m5.xlarge")]).await;
    let by_type = [("Filter.1.Name", "instance-type"), ("Filter.1.Value.1", "m5.xlarge")];
    assert_eq!(
        values(&account.ok("DescribeInstances", &by_type).await, "instanceId"),
        [id.as_str()],
        "the index follows"
    );
    let options = [instance, ("HttpTokens", "required"), ("HttpPutResponseHopLimit", "2")];
    let body = account.ok("ModifyInstanceMetadataOptions", &options).await;
    assert_eq!(
        (values(&body, "httpTokens"), values(&body, "httpPutResponseHopLimit")),
        (vec!["required".into()], vec!["2".into()])
    );
    assert_eq!(
        account.refused("ModifyInstanceMetadataOptions", &[instance, ("HttpPutResponseHopLimit", "65")]).await.1,
        "InvalidParameterValue"
    );
    let body = account.ok("MonitorInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(values(&body, "state"), ["pending"]);
    let body = account.ok("UnmonitorInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(values(&body, "state"), ["disabling"]);
    assert_eq!(values(&account.ok("GetConsoleOutput", &[instance]).await, "output"), [""]);
    let credits = [
        ("InstanceCreditSpecification.1.InstanceId", id.as_str()),
        ("InstanceCreditSpecification.1.CpuCredits", "standard"),
        ("InstanceCreditSpecification.2.InstanceId", "i-0000000000000dead"),
    ];
    let body = account.ok("ModifyInstanceCreditSpecification", &credits).await;
    assert_eq!(values(&body, "code"), ["InstanceCreditSpecification.NotSupported", "InvalidInstanceID.NotFound"]);
}

#[tokio::test(start_paused = true)]
async fn states_change_only_as_documented_and_say_why() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    cloud.set_capacity("m5.large", "us-west-2a", CapacityType::OnDemand, 1);
    let id = one(&account, &[]).await;
    let named = [("InstanceId.1", id.as_str())];
    assert_eq!(account.refused("StopInstances", &named).await, (400, "IncorrectInstanceState".into()), "still pending");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        account.refused("StopInstances", &[named[0], ("Hibernate", "true")]).await.1,
        "UnsupportedHibernationConfiguration"
    );
    account.ok("StopInstances", &named).await;
    assert_eq!(
        account.refused("StartInstances", &named).await,
        (400, "IncorrectInstanceState".into()),
        "still stopping"
    );
    sleep(Duration::from_secs(40)).await;
    account.ok("RebootInstances", &named).await;
    let body = account.ok("DescribeInstances", &named).await;
    assert_eq!(values(&body, "reason"), ["User initiated (2026-01-01 00:00:10 GMT)"]);
    assert!(body.contains("<stateReason><code>Client.UserInitiatedShutdown</code>"), "{body}");
    // A stopped instance has given its capacity back; another takes it.
    let other = one(&account, &[]).await;
    assert_eq!(account.refused("StartInstances", &named).await, (500, "InsufficientInstanceCapacity".into()));
    cloud.kill(&other).unwrap();
    account.ok("StartInstances", &named).await;
    let body = account.ok("DescribeInstances", &named).await;
    assert_eq!((values(&body, "reason"), values(&body, "stateReason").len()), (vec![String::new()], 0));
    assert_eq!(values(&body, "launchTime"), ["2026-01-01T00:00:50.000Z"]);
    account.ok("TerminateInstances", &named).await;
    assert_eq!(account.refused("StopInstances", &named).await, (400, "IncorrectInstanceState".into()));
}

#[tokio::test(start_paused = true)]
async fn every_filter_of_the_reference_is_known_and_those_of_use_find() {
    let account = Account::new();
    account.ok("CreateKeyPair", &[("KeyName", "key"), ("KeyType", "ed25519")]).await;
    let id = one(
        &account,
        &[
            ("KeyName", "key"),
            ("Monitoring.Enabled", "true"),
            ("HibernationOptions.Configured", "true"),
            ("MetadataOptions.HttpTokens", "required"),
            ("TagSpecification.1.ResourceType", "network-interface"),
            ("TagSpecification.1.Tag.1.Key", "front"),
        ],
    )
    .await;
    one(&account, &[("SubnetId", &account.setup.subnet_ids[1])]).await;
    let instance = account.ec2.cloud().instance(&id).unwrap();
    let interface = &instance.network_interfaces[0];
    let address = instance.private_ip.to_string();
    for (name, value) in [
        ("key-name", "key"),
        ("monitoring-state", "enabled"),
        ("hibernation-options.configured", "true"),
        ("metadata-options.http-tokens", "required"),
        ("network-interface.tag-key", "front"),
        ("network-interface.network-interface-id", &interface.id),
        ("network-interface.addresses.private-ip-address", &address),
        ("private-ip-address", &address),
        ("block-device-mapping.volume-id", &instance.volumes[0].id),
        ("availability-zone-id", &instance.zone_id),
        ("subnet-id", &instance.subnet_id),
        ("reservation-id", &instance.reservation_id),
        ("private-dns-name", &instance.private_dns_name),
    ] {
        let filter = [("Filter.1.Name", name), ("Filter.1.Value.1", value)];
        assert_eq!(
            values(&account.ok("DescribeInstances", &filter).await, "instanceId"),
            [id.as_str()],
            "{name}={value}"
        );
    }
    for name in ["operator.managed", "network-interface.ipv6-addresses.is-primary-ipv6", "tpm-support", "outpost-arn"] {
        let filter = [("Filter.1.Name", name), ("Filter.1.Value.1", "x")];
        assert!(values(&account.ok("DescribeInstances", &filter).await, "instanceId").is_empty(), "{name}");
    }
    let unknown = [("Filter.1.Name", "colour"), ("Filter.1.Value.1", "blue")];
    assert_eq!(account.refused("DescribeInstances", &unknown).await, (400, "InvalidParameterValue".into()));
}

#[tokio::test(start_paused = true)]
async fn filters_and_pages_agree_with_looking_at_everything() {
    let account = Account::new();
    for index in 0..12 {
        let (subnet, team) = (&account.setup.subnet_ids[index % 3], if index % 2 == 0 { "blue" } else { "red" });
        let tags = [
            ("SubnetId", subnet.as_str()),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "team"),
            ("TagSpecification.1.Tag.1.Value", team),
        ];
        one(&account, &tags).await;
    }
    let all = account.ec2.cloud().instances();
    account.ec2.cloud().kill(&all[3].id).unwrap();
    account.ec2.cloud().set_tags(&all[4].id, [("team", "green")]).unwrap();
    let all = account.ec2.cloud().instances();
    let filter = [
        ("Filter.1.Name", "tag:team"),
        ("Filter.1.Value.1", "blue"),
        ("Filter.1.Value.2", "green"),
        ("Filter.2.Name", "instance-state-name"),
        ("Filter.2.Value.1", "pending"),
    ];
    let wanted: Vec<String> = all
        .iter()
        .filter(|one| ["blue", "green"].contains(&one.tags["team"].as_str()) && one.state == State::Pending)
        .map(|one| one.id.clone())
        .collect();
    let mut found = values(&account.ok("DescribeInstances", &filter).await, "instanceId");
    found.sort();
    assert_eq!(found, wanted);
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let mut params = filter.to_vec();
        params.extend([("MaxResults", "5"), ("NextToken", token.as_str())]);
        let body = account.ok("DescribeInstances", &params).await;
        paged.extend(values(&body, "instanceId"));
        match values(&body, "nextToken").pop() {
            Some(next) => token = next,
            None => break,
        }
    }
    paged.sort();
    assert_eq!(paged, wanted);
}

/// One in ten thousand is found without looking at the rest: a hundred calls by id and by tag take no longer than a few
/// that look at everything. Both are measured in the same run, so that a slow machine slows both.
#[tokio::test]
#[allow(clippy::disallowed_methods)] // It measures real time.
async fn one_in_ten_thousand_is_found_without_looking_at_the_rest() {
    let account = Account::new();
    for _ in 0..10 {
        let (status, body) = run(&account, &[("MinCount", "800"), ("MaxCount", "800")]).await;
        assert_eq!(status, 200, "{body}");
    }
    let id = one(
        &account,
        &[
            ("SubnetId", &account.setup.subnet_ids[1]),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "rare"),
            ("TagSpecification.1.Tag.1.Value", "yes"),
        ],
    )
    .await;
    let begun = Instant::now();
    for _ in 0..3 {
        // A pattern has no index.
        let scan = [("Filter.1.Name", "instance-id"), ("Filter.1.Value.1", "*none*")];
        assert!(values(&account.ok("DescribeInstances", &scan).await, "instanceId").is_empty());
    }
    let scans = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..50 {
        let by_tag = [
            ("Filter.1.Name", "tag:rare"),
            ("Filter.1.Value.1", "yes"),
            ("Filter.2.Name", "instance-state-name"),
            ("Filter.2.Value.1", "pending"),
            ("Filter.2.Value.2", "running"),
        ];
        assert_eq!(values(&account.ok("DescribeInstances", &by_tag).await, "instanceId"), [id.as_str()]);
        assert_eq!(
            values(&account.ok("DescribeInstances", &[("InstanceId.1", &id)]).await, "instanceId"),
            [id.as_str()]
        );
    }
    let found = begun.elapsed();
    assert!(found < scans * 5, "100 calls for one instance took {found:?}, 3 calls that look at all {scans:?}");
}

#[tokio::test(start_paused = true)]
async fn reservations_hold_capacity_until_they_end() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    cloud.set_capacity("m5.large", "us-west-2a", CapacityType::OnDemand, 2);
    let base = [("InstanceType", "m5.large"), ("InstancePlatform", "Linux/UNIX"), ("AvailabilityZone", "us-west-2a")];
    let create = async |more: &[(&str, &str)]| {
        let mut params = base.to_vec();
        params.extend(more);
        account.ec2("CreateCapacityReservation", &params).await
    };
    let (status, body) = create(&[("InstanceCount", "3")]).await;
    assert_eq!((status, values(&body, "Code")), (500, vec!["InsufficientInstanceCapacity".into()]));
    let limited = [
        ("InstanceCount", "2"),
        ("InstanceMatchCriteria", "targeted"),
        ("EndDate", "2026-01-01T01:00:00Z"),
        ("EndDateType", "limited"),
    ];
    let (_, body) = create(&limited).await;
    let id = values(&body, "capacityReservationId").remove(0);
    assert_eq!(
        (values(&body, "state"), values(&body, "availableInstanceCount")),
        (vec!["active".into()], vec!["2".into()])
    );
    // What is reserved is not there for others.
    assert_eq!(run(&account, &[]).await.0, 500);
    let target = [("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", id.as_str())];
    let instance = one(&account, &target).await;
    let describe = [("CapacityReservationId.1", id.as_str())];
    assert_eq!(values(&account.ok("DescribeCapacityReservations", &describe).await, "availableInstanceCount"), ["1"]);
    let modify = |count: &'static str| [("CapacityReservationId", id.clone()), ("InstanceCount", count.to_owned())];
    let modify = async |count: &'static str| {
        let [first, second] = modify(count);
        account.ec2("ModifyCapacityReservation", &[(first.0, &first.1), (second.0, &second.1)]).await
    };
    assert_eq!(modify("3").await.0, 500, "there is no more capacity");
    assert_eq!(modify("1").await.0, 200);
    assert!(run(&account, &target).await.1.contains("ReservationCapacityExceeded"));
    let free = one(&account, &[]).await;
    cloud.terminate(&free).unwrap();
    sleep(Duration::from_secs(3600)).await;
    let body = account.ok("DescribeCapacityReservations", &describe).await;
    assert_eq!(values(&body, "state"), ["expired"]);
    assert_eq!(cloud.instance(&instance).unwrap().state, State::Running, "the instance goes on");
    assert_eq!(cloud.instance(&instance).unwrap().capacity_reservation_id, None);
    let cancel = [("CapacityReservationId", id.as_str())];
    assert_eq!(account.refused("CancelCapacityReservation", &cancel).await.0, 400);
    assert_eq!(
        account.refused("CancelCapacityReservation", &[("CapacityReservationId", "cr-0000000000000dead")]).await,
        (400, "InvalidCapacityReservationId.NotFound".into())
    );
    for (more, code) in [
        (vec![("InstanceCount", "1"), ("EndDateType", "limited")], "MissingParameter"),
        (
            vec![("InstanceCount", "1"), ("EndDateType", "unlimited"), ("EndDate", "2027-01-01T00:00:00Z")],
            "InvalidParameterCombination",
        ),
        (vec![("InstanceCount", "1"), ("EndDate", "2025-01-01T00:00:00Z")], "InvalidParameterValue"),
        (vec![("InstanceCount", "0")], "InvalidParameterValue"),
        (vec![], "MissingParameter"),
    ] {
        assert_eq!(values(&create(&more).await.1, "Code"), [code], "{more:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn open_reservations_are_used_by_themselves_and_survive_an_exhausted_pool() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let base = [
        ("InstanceType", "m5.large"),
        ("InstancePlatform", "Linux/UNIX"),
        ("AvailabilityZoneId", "usw2-az2"),
        ("InstanceCount", "1"),
    ];
    let id = values(&account.ok("CreateCapacityReservation", &base).await, "capacityReservationId").remove(0);
    cloud.exhaust("*", "*", CapacityType::OnDemand);
    let first = one(&account, &[]).await;
    assert_eq!(cloud.instance(&first).unwrap().capacity_reservation_id.as_ref(), Some(&id));
    let only = [("CapacityReservationSpecification.CapacityReservationPreference", "capacity-reservations-only")];
    assert!(run(&account, &only).await.1.contains("ReservationCapacityExceeded"));
    cloud.kill(&first).unwrap();
    let none = [("CapacityReservationSpecification.CapacityReservationPreference", "none")];
    assert!(run(&account, &none).await.1.contains("InsufficientInstanceCapacity"));
    let second = one(&account, &only).await;
    assert_eq!(cloud.instance(&second).unwrap().capacity_reservation_id, Some(id));
}

#[tokio::test(start_paused = true)]
async fn placement_groups_place() {
    let account = Account::with(Config { families: vec!["m5".into(), "t3".into()], ..Config::default() });
    let create = async |name: &str, strategy: &str, more: &[(&str, &str)]| {
        let mut params = vec![("GroupName", name), ("Strategy", strategy)];
        params.extend(more);
        account.ec2("CreatePlacementGroup", &params).await
    };
    assert_eq!(create("near", "cluster", &[]).await.0, 200);
    let (_, body) = create("far", "spread", &[]).await;
    assert_eq!((values(&body, "spreadLevel"), values(&body, "state")), (vec!["rack".into()], vec!["available".into()]));
    let (_, body) = create("parts", "partition", &[("PartitionCount", "3")]).await;
    assert_eq!(values(&body, "partitionCount"), ["3"]);
    assert_eq!(values(&create("near", "spread", &[]).await.1, "Code"), ["InvalidPlacementGroup.Duplicate"]);
    assert_eq!(
        values(&create("many", "partition", &[("PartitionCount", "8")]).await.1, "Code"),
        ["InvalidParameterValue"]
    );
    let code = |body: (u16, String)| values(&body.1, "Code").into_iter().next().unwrap_or(body.1);
    let near = ("Placement.GroupName", "near");
    let first = one(&account, &[near]).await;
    let other_zone = ("SubnetId", account.setup.subnet_ids[1].as_str());
    assert_eq!(code(run(&account, &[near, other_zone]).await), "InvalidParameterValue", "a cluster is in one zone");
    assert_eq!(code(run(&account, &[near, ("InstanceType", "t3.micro")]).await), "InvalidParameterCombination");
    assert_eq!(code(run(&account, &[("Placement.GroupName", "none")]).await), "InvalidPlacementGroup.Unknown");
    let far = ("Placement.GroupName", "far");
    let (_, body) = run(&account, &[far, ("MinCount", "7"), ("MaxCount", "8")]).await;
    assert_eq!(values(&body, "instanceId").len(), 7, "seven in a zone: {body}");
    assert_eq!(run(&account, &[far, other_zone]).await.0, 200, "and seven in another");
    let parts = ("Placement.GroupName", "parts");
    let (_, body) = run(&account, &[parts, ("MinCount", "4"), ("MaxCount", "4")]).await;
    assert_eq!(values(&body, "partitionNumber"), ["1", "2", "3", "1"]);
    assert_eq!(code(run(&account, &[parts, ("Placement.PartitionNumber", "4")]).await), "InvalidParameterValue");
    let delete = [("GroupName", "near")];
    assert_eq!(account.refused("DeletePlacementGroup", &delete).await, (400, "InvalidPlacementGroup.InUse".into()));
    account.ec2.cloud().kill(&first).unwrap();
    account.ok("DeletePlacementGroup", &delete).await;
    assert_eq!(account.refused("DeletePlacementGroup", &delete).await, (400, "InvalidPlacementGroup.Unknown".into()));
    let by_strategy = [("Filter.1.Name", "strategy"), ("Filter.1.Value.1", "spread")];
    assert_eq!(values(&account.ok("DescribePlacementGroups", &by_strategy).await, "groupName"), ["far"]);
}

#[tokio::test(start_paused = true)]
async fn types_are_filtered_by_everything_published_of_them() {
    let account =
        Account::with(Config { families: ["m5", "c5d", "t3"].map(String::from).to_vec(), ..Config::default() });
    for (name, value, expected) in [
        ("burstable-performance-supported", "true", "t3."),
        ("instance-storage-info.disk.type", "ssd", "c5d."),
        ("instance-storage-info.total-size-in-gb", "50", "c5d.large"),
        ("ebs-info.ebs-optimized-info.baseline-throughput-in-mbps", "81.25", ".large"),
    ] {
        let filter = [("Filter.1.Name", name), ("Filter.1.Value.1", value)];
        let found = values(&account.ok("DescribeInstanceTypes", &filter).await, "instanceType");
        assert!(!found.is_empty() && found.iter().all(|own| own.contains(expected)), "{name}={value}: {found:?}");
    }
    let unknown = [("Filter.1.Name", "colour"), ("Filter.1.Value.1", "blue")];
    assert_eq!(account.refused("DescribeInstanceTypes", &unknown).await, (400, "InvalidParameterValue".into()));
    let first = account.ok("DescribeInstanceTypes", &[("MaxResults", "5")]).await;
    assert_eq!((items(&first, "instanceTypeSet").len() >= 5, values(&first, "nextToken").len()), (true, 1));
}
