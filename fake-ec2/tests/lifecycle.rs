//! Time: states, events, notices, queues, faults (aws spec §6.2, §12.2; EC2 User Guide).

mod common;

use common::{Account, values};
use fake_ec2::{ApiError, Calls, Config, FaultRule, Impairment, Outcome, State};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

fn state(account: &Account, id: &str) -> State {
    account.ec2.cloud().instance(id).unwrap().state
}

/// Kind, state and time of each event.
fn summary(events: &[Value]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|event| (text(&event["detail-type"]), text(&event["detail"]["state"]), text(&event["time"])))
        .collect()
}

const STATE_CHANGE: &str = "EC2 Instance State-change Notification";

#[tokio::test(start_paused = true)]
async fn an_instance_lives_ends_and_is_forgotten() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    assert_eq!(state(&account, &id), State::Pending);
    sleep(Duration::from_millis(4999)).await;
    assert_eq!(state(&account, &id), State::Pending);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(state(&account, &id), State::Running);
    let body = account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    assert!(body.contains("<currentState><code>32</code><name>shutting-down</name></currentState><previousState><code>16</code><name>running</name></previousState>"), "{body}");
    let again = account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    assert!(
        again.contains(
            "<currentState><code>32</code><name>shutting-down</name></currentState><previousState><code>32</code>"
        ),
        "{again}"
    );
    sleep(Duration::from_secs(30)).await;
    assert_eq!(state(&account, &id), State::Terminated);
    let alive = [
        ("InstanceId.1", id.as_str()),
        ("Filter.1.Name", "instance-state-name"),
        ("Filter.1.Value.1", "running"),
        ("Filter.1.Value.2", "shutting-down"),
    ];
    assert_eq!(values(&account.ok("DescribeInstances", &alive).await, "instanceId").len(), 0);
    let free: Vec<u32> = account.ec2.cloud().subnets().iter().map(|subnet| subnet.available_addresses()).collect();
    assert_eq!(free, [8187; 3], "its address is free again");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        account.refused("DescribeInstances", &[("InstanceId.1", &id)]).await,
        (400, "InvalidInstanceID.NotFound".into())
    );
}

#[tokio::test(start_paused = true)]
async fn one_unknown_id_fails_the_whole_termination() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    let both = [("InstanceId.1", id.as_str()), ("InstanceId.2", "i-0000000000000dead")];
    assert_eq!(account.refused("TerminateInstances", &both).await, (400, "InvalidInstanceID.NotFound".into()));
    assert_eq!(state(&account, &id), State::Pending);
}

#[tokio::test(start_paused = true)]
async fn every_transition_is_an_event_at_its_own_instant() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    sleep(Duration::from_secs(60)).await;
    account.ec2.cloud().terminate(&id).unwrap();
    sleep(Duration::from_secs(60)).await;
    let expected = [("pending", "00:00"), ("running", "00:05"), ("shutting-down", "01:00"), ("terminated", "01:30")];
    let expected: Vec<_> =
        expected.map(|(state, time)| (STATE_CHANGE.into(), state.into(), format!("2026-01-01T00:{time}Z"))).into();
    let events = account.events().await;
    assert_eq!(summary(&events), expected);
    assert_eq!(
        (&events[0]["source"], &events[0]["version"], &events[0]["account"]),
        (&json!("aws.ec2"), &json!("0"), &json!("123456789012"))
    );
    assert_eq!(events[0]["resources"][0], format!("arn:aws:ec2:us-west-2:123456789012:instance/{id}"));
}

#[tokio::test(start_paused = true)]
async fn no_rule_no_message() {
    let account = Account::new();
    account.ec2.cloud().remove_rule("demo-InstanceStateChangeRule").unwrap();
    account.launch("on-demand", "m5.large").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(account.events().await, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_spot_notice_comes_true_after_exactly_two_minutes() {
    let account = Account::new();
    let id = account.launch("spot", "m5.large").await;
    sleep(Duration::from_secs(10)).await;
    account.events().await;
    let reclaim_at = account.ec2.cloud().interrupt(&id).unwrap();
    let noticed = account.clock.now();
    assert_eq!(account.ec2.cloud().interrupt(&id).unwrap(), reclaim_at, "repeating it changes nothing");
    let warning = account.events().await.pop().unwrap();
    assert_eq!(warning["detail-type"], "EC2 Spot Instance Interruption Warning");
    assert_eq!(warning["detail"], json!({"instance-id": id, "instance-action": "terminate"}));
    assert_eq!(reclaim_at.duration_since(noticed).as_secs(), 120);
    let left = Duration::try_from(reclaim_at.duration_since(account.clock.now())).unwrap();
    sleep(left - Duration::from_millis(1)).await;
    assert_eq!(state(&account, &id), State::Running);
    sleep(Duration::from_millis(1)).await;
    let instance = account.ec2.cloud().instance(&id).unwrap();
    assert_eq!((instance.state, instance.state_since), (State::ShuttingDown, reclaim_at));
    assert_eq!(instance.state_reason.unwrap().0, "Server.SpotInstanceTermination");
    sleep(Duration::from_secs(31)).await;
    let body = account.ok("DescribeSpotInstanceRequests", &[]).await;
    assert!(body.contains("<state>closed</state><status><code>instance-terminated-no-capacity</code>"), "{body}");
    let states: Vec<String> = summary(&account.events().await).into_iter().map(|(_, state, _)| state).collect();
    assert_eq!(states, ["shutting-down", "terminated"]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_terminated_in_time_is_not_reclaimed() {
    let account = Account::new();
    let id = account.launch("spot", "m5.large").await;
    sleep(Duration::from_secs(10)).await;
    account.ec2.cloud().interrupt(&id).unwrap();
    sleep(Duration::from_secs(20)).await;
    account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    sleep(Duration::from_secs(200)).await;
    let instance = account.ec2.cloud().instance(&id).unwrap();
    assert_eq!(instance.state_reason.unwrap().0, "Client.UserInitiatedShutdown");
    assert_eq!(instance.state_since.as_millisecond() - account.epoch.as_millisecond(), 60_000);
    let on_demand = account.ec2.cloud().interrupt("i-0000000000000dead").unwrap_err();
    assert_eq!(on_demand.code, "InvalidInstanceID.NotFound");
}

#[tokio::test(start_paused = true)]
async fn rebalance_and_maintenance_reach_the_queue() {
    let account = Account::new();
    let id = account.launch("spot", "m5.large").await;
    sleep(Duration::from_secs(10)).await;
    account.events().await;
    let cloud = account.ec2.cloud();
    cloud.rebalance(&id).unwrap();
    cloud.schedule_maintenance(&id, "instance-retirement", "2026-01-05T00:00:00Z".parse().unwrap()).unwrap();
    sleep(Duration::from_secs(1)).await;
    let events = account.events().await;
    assert_eq!(events[0]["detail-type"], "EC2 Instance Rebalance Recommendation");
    assert_eq!(events[1]["detail"]["affectedEntities"], json!([{"entityValue": id}]));
    assert_eq!(
        (&events[1]["detail"]["service"], &events[1]["detail"]["eventTypeCategory"]),
        (&json!("EC2"), &json!("scheduledChange"))
    );
    let by_code = [
        ("Filter.1.Name", "event.code"),
        ("Filter.1.Value.1", "instance-stop"),
        ("Filter.1.Value.2", "instance-retirement"),
    ];
    assert_eq!(values(&account.ok("DescribeInstanceStatus", &by_code).await, "instanceId"), [id]);
}

#[tokio::test(start_paused = true)]
async fn status_checks_initialize_pass_and_fail() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    assert_eq!(
        values(&account.ok("DescribeInstanceStatus", &[]).await, "instanceId").len(),
        0,
        "only running instances"
    );
    sleep(Duration::from_secs(10)).await;
    let status = |body: &str| values(&values(body, "instanceStatus")[0], "status")[0].clone();
    assert_eq!(status(&account.ok("DescribeInstanceStatus", &[]).await), "initializing");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(status(&account.ok("DescribeInstanceStatus", &[]).await), "ok");
    account.ec2.cloud().impair(&id, Impairment::System, true).unwrap();
    let impaired = [("Filter.1.Name", "system-status.status"), ("Filter.1.Value.1", "impaired")];
    let body = account.ok("DescribeInstanceStatus", &impaired).await;
    assert_eq!(
        (values(&body, "instanceId"), values(&body, "impairedSince")),
        (vec![id], vec!["2026-01-01T00:05:10.000Z".into()])
    );
    let other = [("Filter.1.Name", "instance-status.status"), ("Filter.1.Value.1", "impaired")];
    assert_eq!(values(&account.ok("DescribeInstanceStatus", &other).await, "instanceId").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_waits_its_time_and_is_woken_by_a_message() {
    let account = Account::new();
    let url = account.setup.queue_url.clone().unwrap();
    let input = json!({"QueueUrl": url, "WaitTimeSeconds": 20});
    assert_eq!(account.sqs("ReceiveMessage", input.clone()).await, json!({}));
    assert_eq!(account.elapsed_ms(), 20_000);
    let cloud = account.ec2.cloud();
    let later = async {
        sleep(Duration::from_secs(7)).await;
        cloud.send_raw_message("demo", "not json").unwrap();
    };
    let (received, ()) = tokio::join!(account.sqs("ReceiveMessage", input), later);
    assert_eq!((&received["Messages"][0]["Body"], account.elapsed_ms()), (&json!("not json"), 27_000));
}

#[tokio::test(start_paused = true)]
async fn a_hidden_message_returns_after_its_timeout_with_a_new_handle() {
    let account = Account::new();
    let url = account.setup.queue_url.clone().unwrap();
    account.ec2.cloud().send_raw_message("demo", "again").unwrap();
    let input = json!({"QueueUrl": url, "WaitTimeSeconds": 20, "VisibilityTimeout": 5, "AttributeNames": ["All"]});
    let first = account.sqs("ReceiveMessage", input.clone()).await;
    let second = account.sqs("ReceiveMessage", input.clone()).await;
    assert_eq!(account.elapsed_ms(), 5_000, "the poll is woken when the message becomes visible");
    assert_eq!(second["Messages"][0]["Attributes"]["ApproximateReceiveCount"], "2");
    account
        .sqs("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": first["Messages"][0]["ReceiptHandle"]}))
        .await;
    assert_eq!(account.ec2.cloud().queue_counts("demo"), Some((0, 1, 0)), "an outdated handle deletes nothing");
    let (status, value, _) =
        account.json("AmazonSQS.DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": "x"})).await;
    assert_eq!((status, value["__type"].as_str()), (400, Some("com.amazonaws.sqs#ReceiptHandleIsInvalid")));
}

#[tokio::test(start_paused = true)]
async fn a_message_past_its_retention_is_not_counted_although_nobody_receives() {
    let account = Account::new();
    account.ec2.cloud().send_raw_message("demo", "old").unwrap();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(account.ec2.cloud().queue_counts("demo"), Some((1, 0, 0)));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(account.ec2.cloud().queue_counts("demo"), Some((0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn rules_made_over_the_wire_feed_their_queue() {
    let account = Account::new();
    let url = account.sqs("CreateQueue", json!({"QueueName": "mine"})).await["QueueUrl"].clone();
    let pattern = json!({"source": ["aws.ec2"], "detail": {"state": ["running"]}}).to_string();
    account.json("AWSEvents.PutRule", json!({"Name": "r", "EventPattern": pattern})).await;
    let targets = json!([{"Id": "1", "Arn": "arn:aws:sqs:us-west-2:123456789012:mine"}]);
    let (_, value, _) = account.json("AWSEvents.PutTargets", json!({"Rule": "r", "Targets": targets})).await;
    assert_eq!(value["FailedEntryCount"], 0);
    account.launch("on-demand", "m5.large").await;
    sleep(Duration::from_secs(60)).await;
    let received = account.sqs("ReceiveMessage", json!({"QueueUrl": url, "MaxNumberOfMessages": 10})).await;
    let messages = received["Messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1);
    assert!(messages[0]["Body"].as_str().unwrap().contains("\"running\""));
}

#[tokio::test(start_paused = true)]
async fn faults_strike_the_calls_they_name() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    cloud.fault(FaultRule::throttled("DescribeVpcs").calls(Calls::Nth(2)));
    for expected in [200, 503, 200] {
        assert_eq!(account.ec2("DescribeVpcs", &[]).await.0, expected);
    }
    let id = cloud.fault(FaultRule::unauthorized("DescribeSubnets").with_parameter("DryRun", "true"));
    assert_eq!(account.refused("DescribeSubnets", &[("DryRun", "true")]).await, (403, "UnauthorizedOperation".into()));
    assert_eq!(account.ec2("DescribeSubnets", &[]).await.0, 200);
    cloud.remove_fault(id);
    assert_eq!(account.ec2("DescribeSubnets", &[("DryRun", "true")]).await.0, 412);
    let slow = FaultRule { outcome: Outcome::Delay(Duration::from_secs(3)), ..FaultRule::throttled("DescribeVpcs") };
    cloud.fault(slow);
    let before = account.elapsed_ms();
    assert_eq!(account.ec2("DescribeVpcs", &[]).await.0, 200);
    assert_eq!(account.elapsed_ms() - before, 3_000);
    let lost = FaultRule { outcome: Outcome::LostReply, ..FaultRule::error("CreateTags", ApiError::client("", "")) };
    cloud.fault(lost);
    let subnet = account.setup.subnet_ids[0].as_str();
    assert_eq!(account.ec2("CreateTags", &[("ResourceId.1", subnet), ("Tag.1.Key", "done")]).await.0, 502);
    assert!(cloud.subnets().iter().any(|own| own.tags.contains_key("done")), "the call was carried out");
    let entry = cloud.journal().pop().unwrap();
    assert_eq!((entry.action.as_str(), entry.status), ("CreateTags", 0));
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_can_stay_invisible_for_a_while() {
    let account = Account::with(Config {
        families: vec!["m5".into()],
        consistency_delay: Duration::from_secs(3),
        ..Config::default()
    });
    let id = account.launch("on-demand", "m5.large").await;
    assert_eq!(
        account.refused("DescribeInstances", &[("InstanceId.1", &id)]).await,
        (400, "InvalidInstanceID.NotFound".into())
    );
    assert_eq!(values(&account.ok("DescribeInstances", &[]).await, "instanceId").len(), 0);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(values(&account.ok("DescribeInstances", &[]).await, "instanceId"), [id]);
}

#[tokio::test(start_paused = true)]
async fn on_demand_instances_stop_and_start_and_spot_instances_do_not() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    sleep(Duration::from_secs(10)).await;
    account.ok("StopInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(state(&account, &id), State::Stopping);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(state(&account, &id), State::Stopped);
    account.ok("StartInstances", &[("InstanceId.1", &id)]).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(state(&account, &id), State::Running);
    let (_, body) = account.fleet("spot", 1, &[("m5.large", 0)], &[]).await;
    let spot = common::items(&body, "instanceIds").pop().unwrap();
    assert_eq!(
        account.refused("StopInstances", &[("InstanceId.1", &spot)]).await,
        (400, "UnsupportedOperation".into())
    );
}

#[tokio::test(start_paused = true)]
async fn run_moves_time_alone_and_watchers_are_woken() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let watch = async {
        let id = account.launch("on-demand", "m5.large").await;
        let mut seen = cloud.instance_revision();
        assert_eq!(state(&account, &id), State::Pending);
        seen = cloud.instances_changed(seen).await;
        assert_eq!((state(&account, &id), account.elapsed_ms()), (State::Running, 5_000));
        cloud.kill(&id).unwrap();
        cloud.instances_changed(seen).await;
        assert_eq!(state(&account, &id), State::Terminated);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(cloud.queue_counts("demo"), Some((3, 0, 0)), "pending, running, terminated");
    };
    tokio::select! {
        biased;
        () = watch => {}
        () = account.ec2.run() => panic!("run never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn observers_see_every_call_in_order() {
    let account = Account::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    account.ec2.cloud().observe(Box::new(move |entry| {
        sender.send((entry.sequence, entry.action.clone(), entry.error_code.clone())).unwrap()
    }));
    account.ec2("DescribeVpcs", &[]).await;
    account.ec2("DescribeUnicorns", &[]).await;
    account.json("AmazonSQS.GetQueueUrl", json!({"QueueName": "none"})).await;
    let seen: Vec<_> = receiver.try_iter().collect();
    assert_eq!(seen[0].1, "DescribeVpcs");
    assert_eq!((seen[1].1.as_str(), seen[1].2.as_deref()), ("DescribeUnicorns", Some("InvalidAction")));
    assert_eq!((seen[2].1.as_str(), seen[2].2.as_deref()), ("GetQueueUrl", Some("QueueDoesNotExist")));
    assert!(seen.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
}
