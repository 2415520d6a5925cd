//! The account goes through JSON and is the same afterwards: the same requests have the same answers, down to the ids.

mod common;

use common::{Account, values};
use controller_clock::Clock;
use fake_ec2::{CapacityType, Config, FakeEc2, FaultRule, Outcome};
use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

/// What the tests ask of both accounts: header `x-amz-target` or none, and the body.
type Question = (Option<&'static str>, String);

fn form(text: &str) -> Question {
    (None, text.to_owned())
}

async fn ask(ec2: &FakeEc2, (target, body): &Question) -> (u16, String) {
    let mut request =
        Request::post("/").header("authorization", "AWS4-HMAC-SHA256 Credential=KEY/20260101/x/ec2/aws4_request");
    if let Some(target) = target {
        request = request.header("x-amz-target", *target);
    }
    let is_iam = body.contains("Version=2010-05") || body.contains("Version=2011");
    let request = if is_iam { Request::post("/") } else { request };
    let response = ec2.handle(request.body(body.clone().into()).unwrap()).await;
    (response.status().as_u16(), common::text(&response))
}

/// An account in which something of everything is under way.
async fn busy() -> Account {
    let account = Account::new();
    account.launch("spot", "m5.large").await;
    account.launch_more().await;
    let url = account.setup.queue_url.clone().unwrap();
    for number in 0..4 {
        account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": format!("message {number}")})).await;
    }
    account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": "late", "DelaySeconds": 90})).await;
    account.sqs("ReceiveMessage", json!({"QueueUrl": url, "MaxNumberOfMessages": 2})).await;
    let template = std::fs::read_to_string("tests/stack.yaml").unwrap();
    let (status, body) = account
        .form(
            "2010-05-15",
            "CreateStack",
            &[
                ("StackName", "s"),
                ("TemplateBody", &template),
                ("Capabilities.member.1", "CAPABILITY_NAMED_IAM"),
                ("Parameters.member.1.ParameterKey", "ClusterName"),
                ("Parameters.member.1.ParameterValue", "other"),
            ],
        )
        .await;
    assert_eq!(status, 200, "{body}");
    let cloud = account.ec2.cloud();
    cloud.exhaust("c5.large", "us-west-2a", CapacityType::Spot);
    cloud.set_capacity("m5.xlarge", "us-west-2b", CapacityType::OnDemand, 1);
    cloud.set_spot_price("m5.large", "us-west-2a", 0.0345);
    cloud.set_on_demand_price("m5.large", 0.1);
    cloud.assume_role(&account.setup.node_role_name, "me").unwrap();
    let spot = cloud.instances().into_iter().find(|one| one.capacity_type == CapacityType::Spot).unwrap();
    cloud.interrupt(&spot.id).unwrap();
    cloud.fault(FaultRule {
        outcome: Outcome::Delay(Duration::from_millis(10)),
        ..FaultRule::throttled("DescribeVpcs")
    });
    account
}

impl Account {
    async fn launch_more(&self) {
        let more = [("ClientToken", "the-same")];
        let (status, body) = self.fleet("on-demand", 2, &[("m5.large", 0), ("m5.xlarge", 1)], &more).await;
        assert_eq!(status, 200, "{body}");
    }
}

/// Describes everything, repeats a request under its token, launches, sends, receives, deletes.
fn questions(account: &Account) -> Vec<Question> {
    let queue = json!({"QueueUrl": account.setup.queue_url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"]});
    let subnet = &account.setup.subnet_ids[1];
    let image = account.image("x86_64");
    let mut all: Vec<Question> = [
        "DescribeInstances",
        "DescribeInstanceStatus",
        "DescribeSpotInstanceRequests",
        "DescribeSubnets",
        "DescribeVpcs",
        "DescribeSecurityGroups",
        "DescribeLaunchTemplates",
        "DescribeLaunchTemplateVersions&LaunchTemplateName=nodes",
        "DescribeImages",
        "DescribeTags",
        "DescribeSpotPriceHistory&InstanceType.1=m5.large",
        "DescribeInstanceTypes&InstanceType.1=m5.large",
    ]
    .iter()
    .map(|action| form(&format!("Action={action}&Version=2016-11-15")))
    .collect();
    all.push(form(&format!(
        "Action=RunInstances&Version=2016-11-15&MinCount=1&MaxCount=2&InstanceType=m5.xlarge&ImageId={image}&SubnetId={subnet}"
    )));
    all.push(form(&format!(
        "Action=RunInstances&Version=2016-11-15&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId={image}&SubnetId={subnet}"
    )));
    all.push((Some("AmazonSQS.ReceiveMessage"), queue.to_string()));
    all.push((Some("AmazonSQS.GetQueueAttributes"), queue.to_string()));
    all.push((
        Some("AmazonSSM.GetParametersByPath"),
        json!({"Path": "/aws/service/eks", "Recursive": true}).to_string(),
    ));
    all.push((Some("AWSEvents.ListRules"), "{}".into()));
    for stack in ["DescribeStacks", "DescribeStackEvents&StackName=s", "ListStackResources&StackName=s"] {
        all.push(form(&format!("Action={stack}&Version=2010-05-15")));
    }
    for iam in ["ListRoles", "ListInstanceProfiles", "ListPolicies&Scope=Local", "ListOpenIDConnectProviders"] {
        all.push(form(&format!("Action={iam}&Version=2010-05-08")));
    }
    all
}

async fn same_answers(account: &Account, copy: &FakeEc2) {
    let mut done = 0;
    for question in questions(account) {
        let (original, copied) = (ask(&account.ec2, &question).await, ask(copy, &question).await);
        assert_eq!(original, copied, "{question:?}");
        done += u32::from(original.0 == 200);
    }
    // All but the launch from the pool that may have no place left.
    assert!(done >= questions(account).len() as u32 - 1, "{done}");
}

fn copy_of(account: &Account) -> FakeEc2 {
    let text = account.ec2.cloud().snapshot().to_string();
    let snapshot: Value = serde_json::from_str(&text).unwrap();
    // Quite another account, before.
    let copy = FakeEc2::new(Config { seed: 99, ..Config::default() }, account.clock.clone());
    copy.cloud().add_queue("gone");
    copy.cloud().restore_snapshot(&snapshot).unwrap();
    copy
}

#[tokio::test(start_paused = true)]
async fn a_restored_account_answers_as_the_one_it_was_taken_from() {
    let account = busy().await;
    let copy = copy_of(&account);
    assert_eq!(copy.cloud().queue_counts("gone"), None);
    same_answers(&account, &copy).await;
    // What is under way comes true: states, the reclaim after the notice, messages that become visible, deliveries.
    for pause_s in [1, 31, 95, 3_700] {
        tokio::time::sleep(Duration::from_secs(pause_s)).await;
        same_answers(&account, &copy).await;
    }
    let original: Vec<_> = account.ec2.cloud().instances();
    assert_eq!(format!("{original:?}"), format!("{:?}", copy.cloud().instances()));
    assert_eq!(account.ec2.cloud().snapshot()["cloud"]["agenda"], copy.cloud().snapshot()["cloud"]["agenda"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_remembered_and_faults_go_on_counting() {
    let account = busy().await;
    let copy = copy_of(&account);
    let more = [("ClientToken", "the-same")];
    let overrides = [("m5.large", 0), ("m5.xlarge", 1)];
    let (_, first) = account.fleet("on-demand", 2, &overrides, &more).await;
    let twin = Account { ec2: copy, clock: account.clock.clone(), setup: account.setup.clone(), epoch: account.epoch };
    let (status, again) = twin.fleet("on-demand", 2, &overrides, &more).await;
    assert_eq!((status, values(&again, "fleetId")), (200, values(&first, "fleetId")));
    assert_eq!(twin.ec2.cloud().snapshot()["faults"], account.ec2.cloud().snapshot()["faults"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_taken_before_is_deleted_by_its_handle_after() {
    let account = Account::new();
    let url = account.setup.queue_url.clone().unwrap();
    account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": "one"})).await;
    let received = account.sqs("ReceiveMessage", json!({"QueueUrl": url})).await;
    let copy = copy_of(&account);
    assert_eq!(copy.cloud().queue_counts("demo"), Some((0, 1, 0)));
    let input = json!({"QueueUrl": url, "ReceiptHandle": received["Messages"][0]["ReceiptHandle"]});
    ask(&copy, &(Some("AmazonSQS.DeleteMessage"), input.to_string())).await;
    assert_eq!(copy.cloud().queue_counts("demo"), Some((0, 0, 0)));
    assert_eq!(account.ec2.cloud().queue_counts("demo"), Some((0, 1, 0)));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_state_is_refused_and_changes_nothing() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let good = cloud.snapshot();
    let changed = |pointer: &str, value: Value| {
        let mut snapshot = good.clone();
        *snapshot.pointer_mut(pointer).unwrap() = value;
        snapshot
    };
    let mut deep = json!(1);
    for _ in 0..300 {
        deep = json!([deep]);
    }
    let mut more = good.clone();
    more["more"] = json!(1);
    for (snapshot, expected) in [
        (json!({}), "no state of fake-ec2"),
        (json!([]), "no state of fake-ec2"),
        (json!({"format": "package.json", "version": 1}), "its format is \"package.json\""),
        (changed("/version", json!(2)), "it has version 2 of the format; this program reads 1"),
        (changed("/cloud/config/region", json!("mars-1")), "it plays \"mars-1\"; the catalogue holds"),
        (changed("/cloud/instances", json!(7)), "expected a map"),
        (changed("/faults", deep), "nested deeper than 200 levels"),
        (more, "unknown field `more`"),
    ] {
        let error = cloud.restore_snapshot(&snapshot).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(cloud.snapshot(), good);
}

#[tokio::test(start_paused = true)]
async fn what_requests_may_nest_can_be_read_back() {
    let account = Account::new();
    let mut deep = json!("deepest");
    for _ in 0..110 {
        deep = json!([deep]);
    }
    let url = account.setup.queue_url.clone().unwrap();
    let input = json!({"QueueUrl": url, "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "String", "StringValue": deep}}});
    account.json("AmazonSQS.SendMessage", input).await;
    let snapshot = account.ec2.cloud().snapshot();
    account.ec2.cloud().restore_snapshot(&snapshot).unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_message_finds_it_in_the_restored_account() {
    let account = Account::new();
    let url = account.setup.queue_url.clone().unwrap();
    let empty = account.ec2.cloud().snapshot();
    account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": "one"})).await;
    let full = account.ec2.cloud().snapshot();
    account.ec2.cloud().restore_snapshot(&empty).unwrap();
    let cloud = account.ec2.cloud();
    let poll = account.sqs("ReceiveMessage", json!({"QueueUrl": url, "WaitTimeSeconds": 20}));
    let restore = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(cloud.waiting_calls(), 1);
        cloud.restore_snapshot(&full).unwrap();
    };
    let (received, ()) = tokio::join!(poll, restore);
    assert_eq!(received["Messages"][0]["Body"], "one");
    assert_eq!(account.elapsed_ms(), 3_000);
    assert_eq!(cloud.waiting_calls(), 0);
}

#[tokio::test]
async fn an_account_is_kept_in_a_file() {
    let folder = std::env::temp_dir().join(format!("fake-ec2-state-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("account.json");
    let ec2 = FakeEc2::new(Config::default(), Clock::system());
    {
        let mut file = fake_ec2::StateFile::open(&path).unwrap();
        assert!(!file.load(&ec2));
        ec2.cloud().add_queue("kept");
        file.save(&ec2).unwrap();
        let error = fake_ec2::StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("another fake-ec2 keeps its state there"), "{error}");
    }
    let again = FakeEc2::new(Config { seed: 5, ..Config::default() }, Clock::system());
    assert!(fake_ec2::StateFile::open(&path).unwrap().load(&again));
    assert_eq!(again.cloud().queue_counts("kept"), Some((0, 0, 0)));
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = fake_ec2::StateFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("broken") && error.contains("left as it is"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap().len(), whole.len() / 2);
    std::fs::remove_dir_all(&folder).unwrap();
}
