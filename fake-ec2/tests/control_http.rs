//! The control API as its users meet it: through a socket.

mod served;

use fake_ec2::{SocketOptions, State};
use jiff::Timestamp;
use serde_json::{Value, json};
use served::{Served, message};
use std::time::Duration;

const SPOT: &str = "&InstanceMarketOptions.MarketType=spot";

/// Status, field and both texts of a refusal.
fn refusal(answer: &(u16, Value)) -> (u16, &str, String) {
    let (status, value) = answer;
    let texts = format!("{} | {}", value["error"].as_str().unwrap(), value["expected"].as_str().unwrap_or_default());
    (*status, value["field"].as_str().unwrap_or_default(), texts)
}

#[track_caller]
fn refused(answer: &(u16, Value), status: u16, field: &str, texts: &[&str]) {
    let (its_status, its_field, its_texts) = refusal(answer);
    assert_eq!((its_status, its_field), (status, field), "{its_texts}");
    for text in texts {
        assert!(its_texts.contains(text), "{text:?} is missing in {its_texts}");
    }
}

#[tokio::test]
async fn it_says_what_it_is_and_what_there_is() {
    let served = Served::new().await;
    for path in ["/health", "/ready"] {
        let health = served.done("GET", path, "").await;
        assert_eq!((&health["name"], &health["status"]), (&json!("fake-ec2"), &json!("ok")));
        assert_eq!((&health["region"], &health["account"]), (&json!("us-west-2"), &json!("123456789012")));
    }
    for path in ["", "/"] {
        let index = served.done("GET", path, "").await;
        let paths: Vec<&str> =
            index["paths"].as_array().unwrap().iter().map(|path| path["path"].as_str().unwrap()).collect();
        assert!(paths.contains(&"/_trysquare/state") && paths.contains(&"/_trysquare/journal"), "{paths:?}");
    }
    assert_eq!(served.done("GET", "/openapi.json", "").await["openapi"], "3.1.0");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_what_there_is() {
    let served = Served::new().await;
    let all = ["GET /_trysquare/state", "POST /_trysquare/instances/{id}/interrupt"];
    refused(&served.control("GET", "/stat", "").await, 404, "path", &["/_trysquare/stat", all[0], all[1]]);
    refused(&served.control("GET", "/instances//interrupt", "").await, 404, "path", &[]);
    refused(&served.control("DELETE", "/state", "").await, 405, "method", &["does not take DELETE", "GET"]);
    let answer = served.send("PUT /_trysquare/faults HTTP/1.1", "").await;
    assert!(answer.head.contains("allow: get, post, delete"), "{answer:?}");
    // The rest of the socket speaks AWS's protocols.
    assert!(served.send("GET /_trysquared HTTP/1.1", "").await.body.contains("MissingAction"));
}

#[tokio::test]
async fn a_web_page_cannot_drive_it() {
    let served = Served::new().await;
    let exhaust = r#"{"instanceType":"*","zone":"*","capacityType":"spot"}"#;
    for (headers, field) in [
        ("host: localhost\r\norigin: https://example.com", "Origin"),
        ("host: localhost\r\norigin: null", "Origin"),
        ("host: localhost\r\nsec-fetch-site: cross-site", "Sec-Fetch-Site"),
        ("host: rebound.example.com", "Host"),
        ("host: localhost\r\nhost: example.com", "Host"),
        ("x-none: there is no host", "Host"),
    ] {
        let mut client = served.connect().await;
        client.write(&message(&format!("POST /_trysquare/capacity/exhaust HTTP/1.1\r\n{headers}"), exhaust)).await;
        let answer = client.answer().await;
        let value: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
        refused(&(answer.status, value), 403, field, &[]);
    }
    let state = served.done("GET", "/state", "").await;
    assert_eq!(state["capacity"]["rules"], json!([]), "nothing was done");
}

#[tokio::test]
async fn a_container_is_asked_by_the_name_it_was_given() {
    let hosts = vec!["fake-ec2.test".to_owned()];
    let served = Served::with(SocketOptions { control_hosts: hosts, ..SocketOptions::default() }).await;
    for (host, status) in [("fake-ec2.test:80", 200), ("127.0.0.1:1", 200), ("other.test", 403)] {
        let mut client = served.connect().await;
        client.write(&message(&format!("GET /_trysquare/state HTTP/1.1\r\nhost: {host}"), "")).await;
        assert_eq!(client.answer().await.status, status, "{host}");
    }
}

#[tokio::test]
async fn health_is_told_under_whatever_name_it_is_asked() {
    let served = Served::new().await;
    for path in ["health", "ready"] {
        for host in ["host.docker.internal:32768", "172.17.0.1:32768", "some-container"] {
            let mut client = served.connect().await;
            client.write(&message(&format!("GET /_trysquare/{path} HTTP/1.1\r\nhost: {host}"), "")).await;
            assert_eq!(client.answer().await.status, 200, "{path} {host}");
        }
        let mut client = served.connect().await;
        client.write(&message(&format!("GET /_trysquare/{path} HTTP/1.1\r\nhost: a\r\norigin: https://a"), "")).await;
        assert_eq!(client.answer().await.status, 403, "a web page: {path}");
    }
}

#[tokio::test]
async fn the_state_shows_instances_with_their_price_and_tags() {
    let served = Served::new().await;
    let on_demand = served
        .launch(
            "&TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=b",
        )
        .await;
    let spot = served.launch(SPOT).await;
    served.ec2.cloud().set_spot_price("m5.large", "us-west-2a", 0.0123);
    let state = served.done("GET", "/state", "").await;
    let find = |id: &str| state["instances"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap();
    let shown = find(&on_demand);
    assert_eq!(shown["instanceType"], "m5.large");
    assert_eq!((&shown["zone"], &shown["capacityType"]), (&json!("us-west-2a"), &json!("on-demand")));
    // As published; data/README.md.
    assert_eq!((&shown["pricePerHourUsd"], &shown["tags"]), (&json!(0.096), &json!({"a": "b"})));
    assert_eq!((&shown["state"], &shown["reclaimAt"]), (&json!("pending"), &Value::Null));
    assert_eq!((&find(&spot)["capacityType"], &find(&spot)["pricePerHourUsd"]), (&json!("spot"), &json!(0.0123)));
    assert_eq!(state["clusters"], json!(["demo"]));
    assert_eq!(state["queues"][0]["name"], "demo");
}

#[tokio::test]
async fn a_spot_notice_reaches_the_queue_and_comes_true_after_two_minutes() {
    let served = Served::new().await;
    let id = served.launch(SPOT).await;
    let before = served.ec2.cloud().instance(&id).unwrap().launched_at;
    let answer = served.done("POST", &format!("/instances/{id}/interrupt"), "").await;
    let reclaim_at: Timestamp = answer["reclaimAt"].as_str().unwrap().parse().unwrap();
    assert!(reclaim_at.duration_since(before) >= jiff::SignedDuration::from_secs(120));
    assert_eq!(served.ec2.cloud().instance(&id).unwrap().reclaim_at, Some(reclaim_at));
    let again = served.done("POST", &format!("/instances/{id}/interrupt"), "{}").await;
    assert_eq!(again, answer, "a second notice changes nothing");
    let path = "/events?detailType=EC2%20Spot%20Instance%20Interruption%20Warning";
    let events = served.done("GET", path, "").await;
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "{events}");
    assert_eq!(events["events"][0]["event"]["detail"], json!({"instance-id": id, "instance-action": "terminate"}));
    assert_eq!(events["events"][0]["targets"].as_array().unwrap().len(), 1);
    let url = served.setup.queue_url.clone().unwrap();
    // The state changes of the launch come first.
    for _ in 0..10 {
        let poll = format!(r#"{{"QueueUrl":"{url}","WaitTimeSeconds":20}}"#);
        if served.sqs("ReceiveMessage", &poll).await.body.contains("Interruption Warning") {
            return;
        }
    }
    panic!("no notice in the queue");
}

#[tokio::test]
async fn what_an_instance_cannot_do_is_refused_with_those_that_can() {
    let served = Served::new().await;
    let on_demand = served.launch("").await;
    let spot = served.launch(SPOT).await;
    let interrupt = served.control("POST", &format!("/instances/{on_demand}/interrupt"), "").await;
    refused(&interrupt, 409, "instance", &[&on_demand, "is an on-demand instance", &spot]);
    let unknown = served.control("POST", "/instances/i-0000/terminate", "").await;
    refused(&unknown, 404, "instance", &["The instance ID 'i-0000' does not exist", &spot, &on_demand]);
    let terminated = served.done("POST", &format!("/instances/{spot}/terminate"), "").await;
    assert_eq!((&terminated["previousState"], &terminated["state"]), (&json!("pending"), &json!("shutting-down")));
    assert_eq!(served.ec2.cloud().instance(&spot).unwrap().state, State::ShuttingDown);
    let ending = served.control("POST", &format!("/instances/{spot}/interrupt"), "").await;
    refused(&ending, 409, "instance", &["is not in a state from which it can be interrupted"]);
    refused(
        &served.control("POST", &format!("/instances/{spot}/rebalance"), "").await,
        409,
        "instance",
        &["shutting-down"],
    );
    let body = served.control("POST", &format!("/instances/{on_demand}/terminate"), r#"{"force":true}"#).await;
    refused(&body, 400, "force", &["not known", "no fields at all"]);
}

#[tokio::test]
async fn exhausted_pools_refuse_launches_until_they_are_restored() {
    let served = Served::new().await;
    let launch = async || {
        let image = served.ec2.cloud().images().into_iter().find(|image| image.architecture == "x86_64").unwrap().id;
        let subnet = &served.setup.subnet_ids[0];
        let launch = format!(
            "Action=RunInstances&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId={image}&SubnetId={subnet}"
        );
        served.ec2(&launch).await
    };
    let rule = json!({"instanceType": "m5.large", "zone": "us-west-2a", "capacityType": "*"});
    let answer = served.done("POST", "/capacity/exhaust", &rule.to_string()).await;
    assert_eq!(answer["capacity"]["rules"].as_array().unwrap().len(), 2, "one for each market: {answer}");
    let refused = launch().await;
    assert!(refused.body.contains("<Code>InsufficientInstanceCapacity</Code>"), "{refused:?}");
    let answer = served.done("POST", "/capacity/restore", "").await;
    assert_eq!(answer["capacity"]["rules"], json!([]));
    assert_eq!(launch().await.status, 200);
}

#[tokio::test]
async fn a_pool_that_does_not_exist_is_not_exhausted() {
    let served = Served::new().await;
    for (body, field, texts) in [
        (r#"{"zone":"*","capacityType":"spot"}"#, "instanceType", &["missing", "or * for all"][..]),
        (r#"{"instanceType":"m5.lrge","zone":"*","capacityType":"spot"}"#, "instanceType", &["m5.lrge", "m5.large, "]),
        (
            r#"{"instanceType":"c9.large","zone":"*","capacityType":"spot"}"#,
            "instanceType",
            &["not offered in us-west-2"],
        ),
        (r#"{"instanceType":"*","zone":"us-west-2z","capacityType":"spot"}"#, "zone", &["us-west-2a, us-west-2b"]),
        (r#"{"instanceType":"*","zone":"*","capacityType":"Spot"}"#, "capacityType", &["spot, on-demand or *"]),
        (r#"{"instanceType":7,"zone":"*","capacityType":"spot"}"#, "instanceType", &["instanceType is 7"]),
        (
            r#"{"instanceType":"*","zone":"*","capacityType":"spot","size":1}"#,
            "size",
            &["capacityType, instanceType, zone"],
        ),
        (r#"["*"]"#, "body", &["an array"]),
        (r#"{"instanceType""#, "body", &["not JSON"]),
    ] {
        refused(&served.control("POST", "/capacity/exhaust", body).await, 400, field, texts);
    }
    assert_eq!(served.done("GET", "/state", "").await["capacity"]["rules"], json!([]));
}

#[tokio::test]
async fn faults_strike_are_listed_and_removed() {
    let served = Served::new().await;
    let rule = json!({
        "service": "ec2",
        "action": "DescribeVpcs",
        "calls": {"first": 1},
        "outcome": {"error": {"code": "RequestLimitExceeded", "message": "Request limit exceeded.", "status": 503}},
    });
    let added = served.done("POST", "/faults", &rule.to_string()).await;
    assert_eq!((&added["id"], &added["matched"]), (&json!(1), &json!(0)));
    let struck = served.ec2("Action=DescribeVpcs").await;
    assert_eq!(struck.status, 503);
    assert!(struck.body.contains("<Code>RequestLimitExceeded</Code>"), "{struck:?}");
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
    let listed = served.done("GET", "/faults", "").await;
    let listed = &listed["faults"][0];
    assert_eq!(listed["matched"], 2);
    for member in ["service", "action", "calls", "outcome"] {
        assert_eq!(listed[member], rule[member], "{member}");
    }
    served.done("POST", "/faults", r#"{"action":"DescribeVpcs","outcome":"lostReply"}"#).await;
    assert_eq!(served.done("DELETE", "/faults/1", "").await, json!({"removed": 1}));
    refused(&served.control("DELETE", "/faults/1", "").await, 404, "id", &["no fault rule \"1\""]);
    assert_eq!(served.done("DELETE", "/faults", "").await, json!({"removed": 1}));
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
}

#[tokio::test]
async fn a_fault_is_delayed_or_counts_by_parameter() {
    let served = Served::new().await;
    let rule = r#"{"parameter":{"name":"VpcId.1","value":"vpc-1"},"outcome":{"delayMs":300}}"#;
    served.done("POST", "/faults", rule).await;
    let quick = tokio::time::timeout(Duration::from_millis(250), served.ec2("Action=DescribeVpcs&VpcId.1=vpc-1")).await;
    assert!(quick.is_err(), "it was to take 300 ms");
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
    assert_eq!(served.done("GET", "/faults/1", "").await["matched"], 1);
}

#[tokio::test]
async fn a_fault_that_cannot_be_meant_is_refused_by_its_field() {
    let served = Served::new().await;
    for (body, field, texts) in [
        (r#"{}"#, "outcome", &["missing", "lostRequest"][..]),
        (r#"{"outcome":"explode"}"#, "outcome", &["\"explode\"", "hang"]),
        (r#"{"outcome":{}}"#, "outcome", &["delayMs"]),
        (r#"{"outcome":{"delayMs":1,"error":{"code":"A"}}}"#, "outcome", &["one of its kinds"]),
        (r#"{"outcome":{"delayMs":-1}}"#, "outcome.delayMs", &["from 0 to 3600000"]),
        (r#"{"outcome":{"error":{}}}"#, "outcome.error.code", &["InsufficientInstanceCapacity"]),
        (r#"{"outcome":{"error":{"code":"A\r\nB"}}}"#, "outcome.error.code", &["other characters"]),
        (r#"{"outcome":{"error":{"code":"A","status":200}}}"#, "outcome.error.status", &["400 to 599"]),
        (r#"{"outcome":{"error":{"code":"A","more":1}}}"#, "outcome.error.more", &["code, message, status"]),
        (r#"{"outcome":"hang","service":"s3"}"#, "service", &["ec2, sqs, ssm"]),
        (r#"{"outcome":"hang","calls":"some"}"#, "calls", &["{\"nth\": N}"]),
        (r#"{"outcome":"hang","calls":{"nth":0}}"#, "calls", &[]),
        (r#"{"outcome":"hang","calls":{"nth":1,"first":2}}"#, "calls", &[]),
        (r#"{"outcome":"hang","parameter":{"name":"a"}}"#, "parameter.value", &["missing"]),
    ] {
        refused(&served.control("POST", "/faults", body).await, 400, field, texts);
    }
    assert_eq!(served.done("GET", "/faults", "").await, json!({"faults": []}));
}

#[tokio::test]
async fn the_journal_tells_the_latest_calls_and_filters_them() {
    let served = Served::new().await;
    served.ec2("Action=DescribeVpcs&VpcId.1=vpc-0123").await;
    served.ec2("Action=DescribeSubnets").await;
    served.sqs("ListQueues", "{}").await;
    let calls = async |query: &str| {
        let journal = served.done("GET", &format!("/journal{query}"), "").await;
        let calls = journal["calls"].as_array().unwrap().clone();
        calls.iter().map(|call| call["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(calls("").await, ["DescribeVpcs", "DescribeSubnets", "ListQueues"]);
    assert_eq!(calls("?limit=1").await, ["ListQueues"]);
    assert_eq!(calls("?after=1&limit=10").await, ["DescribeSubnets", "ListQueues"]);
    assert_eq!(calls("?service=ec2").await, ["DescribeVpcs", "DescribeSubnets"]);
    assert_eq!(calls("?action=DescribeSubnets").await, ["DescribeSubnets"]);
    assert_eq!(calls("?errors=true").await, ["DescribeVpcs"]);
    let journal = served.done("GET", "/journal?limit=1&errors=true", "").await;
    let call = &journal["calls"][0];
    assert_eq!((&call["status"], &call["errorCode"]), (&json!(400), &json!("InvalidVpcID.NotFound")));
    assert_eq!(call["parameters"], json!({"VpcId.1": "vpc-0123"}));
    let form = "Action=DescribeVpcs&VpcId.1=vpc-0123&Version=2016-11-15";
    assert_eq!(call["requestBytes"], form.len());
    refused(&served.control("GET", "/journal?limit=0", "").await, 400, "limit", &["1 to 1000"]);
    refused(&served.control("GET", "/journal?service=s3", "").await, 400, "service", &["ec2, sqs"]);
    refused(&served.control("GET", "/journal?errors=maybe", "").await, 400, "errors", &["true or false"]);
    refused(
        &served.control("GET", "/journal?tail=3", "").await,
        400,
        "tail",
        &["action, after, caller, errorCode, errors, limit, parameter, responses, service, waitS"],
    );
}

#[tokio::test]
async fn an_event_that_somebody_sends_goes_where_the_rules_say() {
    let served = Served::new().await;
    let event = json!({"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "EC2"}});
    assert_eq!(served.done("POST", "/events", &event.to_string()).await, json!({"targets": 1}));
    let other = json!({"source": "mine", "detail-type": "Nothing", "detail": {}});
    assert_eq!(served.done("POST", "/events", &other.to_string()).await, json!({"targets": 0}));
    let events = served.done("GET", "/events?limit=1", "").await;
    assert_eq!(events["events"][0]["event"], other);
    refused(&served.control("POST", "/events", r#"{"source":"a"}"#).await, 400, "detail-type", &["whole event"]);
    refused(&served.control("POST", "/events", r#"{"source":"a","detail-type":"b"}"#).await, 400, "detail", &[]);
}

#[tokio::test]
async fn a_follower_of_the_journal_waits_and_misses_nothing() {
    let served = Served::new().await;
    let calls = |page: &Value| -> Vec<(u64, String)> {
        let call = |call: &Value| (call["sequence"].as_u64().unwrap(), call["action"].as_str().unwrap().to_owned());
        page["calls"].as_array().unwrap().iter().map(call).collect()
    };
    for action in ["DescribeVpcs", "DescribeSubnets", "DescribeImages"] {
        served.ec2(&format!("Action={action}")).await;
    }
    // The earliest after the cursor, where without one they are the latest.
    let page = served.done("GET", "/journal?after=0&limit=2&responses=true", "").await;
    assert_eq!(calls(&page), [(1, "DescribeVpcs".to_owned()), (2, "DescribeSubnets".to_owned())]);
    assert_eq!(page["missing"], 0);
    assert!(page["calls"][0]["response"].as_str().unwrap().contains("<vpcId>"), "{page}");
    let (waited, asked) = tokio::join!(served.done("GET", "/journal?after=3&waitS=50&service=sqs", ""), async {
        // The first is none that is waited for.
        served.ec2("Action=DescribeVpcs").await;
        served.sqs("ListQueues", "{}").await
    });
    assert_eq!(asked.status, 200);
    assert_eq!(calls(&waited), [(5, "ListQueues".to_owned())]);
    let none = served.done("GET", "/journal?after=5&waitS=1", "").await;
    assert_eq!(none, json!({"calls": [], "missing": 0}));
    let ahead = served.control("GET", "/journal?after=6", "").await;
    refused(&ahead, 400, "after", &["after is 6, and only 5 calls", "0 to 5"]);
    refused(&served.control("GET", "/journal?waitS=51", "").await, 400, "waitS", &["0 to 50"]);
    served.done("POST", "/reset", "").await;
    // What is gone is told at once, however long one would wait.
    let after_reset = served.done("GET", "/journal?after=2&waitS=50", "").await;
    assert_eq!(after_reset, json!({"calls": [], "missing": 3}));
    served.ec2("Action=DescribeVpcs").await;
    let after_reset = served.done("GET", "/journal?after=5", "").await;
    assert_eq!((calls(&after_reset), &after_reset["missing"]), (vec![(6, "DescribeVpcs".to_owned())], &json!(0)));
}

#[tokio::test]
async fn an_answer_holds_no_more_than_a_few_megabytes_of_calls() {
    let served = Served::new().await;
    let filter = "x".repeat(3 << 20);
    for _ in 0..4 {
        served.ec2(&format!("Action=DescribeVpcs&Filter.1.Name=tag:a&Filter.1.Value.1={filter}")).await;
    }
    let sequences = async |after: u64| -> Vec<u64> {
        let page = served.done("GET", &format!("/journal?after={after}"), "").await;
        page["calls"].as_array().unwrap().iter().map(|call| call["sequence"].as_u64().unwrap()).collect()
    };
    // The third passes the bound of 8 MiB.
    assert_eq!(sequences(0).await, [1, 2, 3]);
    assert_eq!(sequences(3).await, [4]);
}

#[tokio::test]
async fn a_reset_goes_back_to_the_start_or_to_another() {
    let served = Served::new().await;
    let first = served.launch("").await;
    served.done("POST", "/faults", r#"{"action":"DescribeVpcs","outcome":"unauthorized"}"#).await;
    let before = served.done("GET", "/instances", "").await["revision"].as_u64().unwrap();
    let changed_path = format!("/instances/changed?waitS=50&after={before}");
    let (changed, answer) = tokio::join!(served.done("GET", &changed_path, ""), served.done("POST", "/reset", ""));
    assert!(changed["revision"].as_u64().unwrap() > before, "whoever waits for a change sees the reset");
    let stage = &answer["bootstraps"][0];
    assert_eq!((&stage["cluster"], &stage["subnetIds"]), (&json!("demo"), &json!(served.setup.subnet_ids)));
    assert_eq!((&answer["region"], &answer["seed"], &answer["journal"]), (&json!("us-west-2"), &json!(0), &json!(1)));
    assert_eq!(served.done("GET", "/instances", "").await["instances"], json!([]));
    assert_eq!(served.done("GET", "/faults", "").await, json!({"faults": []}));
    assert_eq!(served.launch("").await, first, "the same seed and the same requests give the same ids");

    let other = json!({
        "seed": 5,
        "region": "eu-west-1",
        "families": ["c5"],
        "pace": {"pendingMs": 0, "shuttingDownMs": 3_600_000},
        "bootstrap": {"cluster": "other", "endpoint": "https://192.0.2.1:6443", "certificateAuthority": "Y2VydA=="},
    });
    let answer = served.done("POST", "/reset", &other.to_string()).await;
    assert_eq!((&answer["region"], &answer["seed"]), (&json!("eu-west-1"), &json!(5)));
    let clusters = served.done("GET", "/resources/clusters", "").await;
    let cluster = &clusters["clusters"][0];
    assert_eq!((&cluster["name"], &cluster["endpoint"]), (&json!("other"), &json!("https://192.0.2.1:6443")));
    assert_eq!(cluster["certificateAuthority"], "Y2VydA==");
    assert_eq!(cluster["accessEntries"][0]["principalArn"], answer["bootstraps"][0]["nodeRoleArn"]);
    let offerings = served.done("GET", "/resources/offerings", "").await;
    assert!(offerings["offerings"].as_array().unwrap().iter().all(|one| {
        let name = one["instanceType"].as_str().unwrap();
        name.starts_with("c5.") && one["zones"][0] == "eu-west-1a"
    }));
    // Nothing of that is left in the next.
    let answer = served.done("POST", "/reset", "{}").await;
    assert_eq!((&answer["region"], &answer["bootstraps"][0]["cluster"]), (&json!("us-west-2"), &json!("demo")));
    assert_eq!(served.launch("").await, first);
}

#[tokio::test]
async fn a_reset_that_cannot_be_meant_changes_nothing() {
    let served = Served::new().await;
    let id = served.launch("").await;
    for (body, field, texts) in [
        (r#"{"region":"mars-1"}"#, "region", &["mars-1", "us-west-2"][..]),
        (r#"{"families":["m5","m55"]}"#, "families", &["\"m55\"", "m5, "]),
        (r#"{"families":"m5"}"#, "families", &["an array of texts"]),
        (r#"{"iam":"on"}"#, "iam", &["\"on\"", "off or enforce"]),
        (r#"{"seed":-1}"#, "seed", &["whole number"]),
        (r#"{"pace":{"pendingMs":86400001}}"#, "pace.pendingMs", &["0 to 86400000"]),
        (r#"{"pace":{"pending":1}}"#, "pace.pending", &["pendingMs", "statusChecksMs"]),
        (r#"{"bootstrap":{}}"#, "bootstrap.cluster", &["missing"]),
        (r#"{"bootstrap":{"cluster":"-a"}}"#, "bootstrap.cluster", &["\"-a\"", "100 letters"]),
        (r#"{"bootstrap":{"cluster":"a","endpoint":"a:1"}}"#, "bootstrap.endpoint", &["https://"]),
        (r#"{"bootstrap":{"cluster":"a","certificateAuthority":"?"}}"#, "bootstrap.certificateAuthority", &["base64"]),
        (r#"{"sed":1}"#, "sed", &["iam, kubernetesVersion, limits, pace, profile, region, secureTransport, seed"]),
    ] {
        refused(&served.control("POST", "/reset", body).await, 400, field, texts);
    }
    assert_eq!(served.done("GET", "/instances", "").await["instances"][0]["id"], id.as_str());
}

#[tokio::test]
async fn an_instance_is_shown_whole_impaired_and_scheduled_for_maintenance() {
    let served = Served::new().await;
    let id = served.launch("&UserData=aGVsbG8=").await;
    let command = |command: &str| format!("/instances/{id}/{command}");
    served.done("POST", &command("impair"), "").await;
    served.done("POST", &command("impair"), r#"{"check":"instance"}"#).await;
    served.done("POST", &command("impair"), r#"{"check":"instance","failing":false}"#).await;
    let maintenance = r#"{"code":"instance-retirement","notBefore":"2030-01-01T00:00:00Z"}"#;
    served.done("POST", &command("maintenance"), maintenance).await;
    let answer = served.done("GET", "/instances", "").await;
    let shown = &answer["instances"][0];
    assert_eq!(
        (&shown["userData"], &shown["memoryMib"], &shown["vcpus"]),
        (&json!("aGVsbG8="), &json!(8192), &json!(2))
    );
    assert_eq!((&shown["role"], &shown["stateReason"]), (&Value::Null, &Value::Null));
    assert_eq!(shown["subnetId"], served.setup.subnet_ids[0].as_str());
    let image = served.ec2.cloud().images().into_iter().find(|image| shown["imageId"] == *image.id).unwrap();
    assert_eq!(shown["imageName"], image.name);
    assert!(shown["systemImpairedSince"].is_string() && shown["instanceImpairedSince"].is_null(), "{shown}");
    let event = &shown["scheduledEvents"][0];
    assert_eq!((&event["code"], &event["notBefore"]), (&json!("instance-retirement"), &json!("2030-01-01T00:00:00Z")));
    for (path, body, status, field, texts) in [
        ("/instances/i-0/impair", "", 404, "instance", &["'i-0' does not exist", &id][..]),
        (&command("impair"), r#"{"check":"both"}"#, 400, "check", &["system or instance"]),
        (
            &command("maintenance"),
            r#"{"notBefore":"2030-01-01T00:00:00Z"}"#,
            400,
            "code",
            &["missing", "system-reboot"],
        ),
        (
            &command("maintenance"),
            r#"{"code":"party","notBefore":"2030-01-01T00:00:00Z"}"#,
            400,
            "code",
            &["\"party\""],
        ),
        (&command("maintenance"), r#"{"code":"instance-stop","notBefore":"soon"}"#, 400, "notBefore", &["\"soon\""]),
        ("/instances/i-0/maintenance", maintenance, 404, "instance", &[&id]),
    ] {
        refused(&served.control("POST", path, body).await, status, field, texts);
    }
    let ahead = served.control("GET", "/instances/changed?after=100", "").await;
    refused(&ahead, 400, "after", &["after is 100"]);
}

#[tokio::test]
async fn what_the_handle_does_to_the_account_is_done_over_http_too() {
    let served = Served::new().await;
    let cloud = served.ec2.cloud();
    let subnet = &served.setup.subnet_ids[0];
    let tags = json!({"resource": subnet, "tags": {"aws:cloudformation:stack-name": "demo"}});
    served.done("POST", "/tags", &tags.to_string()).await;
    assert!(
        cloud.subnets().iter().any(|one| one.id == *subnet && one.tags.contains_key("aws:cloudformation:stack-name"))
    );
    let role = served.done("POST", "/roles", r#"{"name":"Workers"}"#).await;
    assert_eq!(role["arn"], "arn:aws:iam::123456789012:role/Workers");
    let entry = json!({"principalArn": role["arn"], "type": "EC2_LINUX"}).to_string();
    served.done("POST", "/clusters/demo/access-entries", &entry).await;
    assert_eq!(
        cloud.cluster("demo").unwrap().access_entries["arn:aws:iam::123456789012:role/Workers"].kind,
        "EC2_LINUX"
    );
    let removal = "/clusters/demo/access-entries?principalArn=arn:aws:iam::123456789012:role/Workers";
    assert_eq!(served.done("DELETE", removal, "").await, json!({"removed": 1}));
    assert_eq!(served.done("DELETE", removal, "").await, json!({"removed": 0}));
    let release = r#"{"kubernetesVersion":"1.36","date":"20270101","bottlerocketVersion":"9.9.9"}"#;
    served.done("POST", "/images", release).await;
    assert!(cloud.images().iter().any(|image| image.name.ends_with("1.36-v20270101")));
    served.done("POST", "/queues", r#"{"name":"second"}"#).await;
    served.done("POST", "/queues/second/messages", r#"{"body":"no JSON"}"#).await;
    assert_eq!(cloud.queue_counts("second"), Some((1, 0, 0)));
    assert_eq!(served.done("DELETE", "/queues/second", "").await, json!({"removed": 1}));
    assert_eq!(cloud.queue_counts("second"), None);
    served.done("POST", "/faults", r#"{"action":"DescribeVpcs","outcome":"unauthorized"}"#).await;
    let denied = served.ec2("Action=DescribeVpcs").await;
    assert_eq!(denied.status, 403);
    assert!(denied.body.contains("<Code>UnauthorizedOperation</Code>") && denied.body.contains("ec2:DescribeVpcs"));
    for kind in ["clusters", "images", "offerings", "queues", "roles", "securityGroups", "subnets"] {
        let answer = served.done("GET", &format!("/resources/{kind}"), "").await;
        assert!(!answer[kind].as_array().unwrap().is_empty(), "{kind}: {answer}");
    }
    for kind in ["instanceProfiles", "launchTemplates"] {
        assert_eq!(served.done("GET", &format!("/resources/{kind}"), "").await, json!({kind: []}));
    }
}

#[tokio::test]
async fn prices_and_addresses_are_set_and_a_spot_offering_withdrawn() {
    let served = Served::new().await;
    let spot =
        |more: &str| format!(r#"{{"instanceType":"m5.large","zone":"us-west-2a","capacityType":"spot",{more}}}"#);
    served.done("POST", "/prices", &spot(r#""usdPerHour":0.0123"#)).await;
    assert_eq!(served.ec2.cloud().spot_price("m5.large", "us-west-2a"), Some(0.0123));
    let answer = served.done("POST", "/prices", &spot(r#""withdrawn":true"#)).await;
    assert_eq!(answer["usdPerHour"], Value::Null);
    assert_eq!(served.ec2.cloud().spot_price("m5.large", "us-west-2a"), None);
    assert!(served.ec2.cloud().spot_price("m5.large", "us-west-2b").is_some());
    let on_demand = r#"{"instanceType":"m5.large","capacityType":"on-demand","usdPerHour":0.5}"#;
    served.done("POST", "/prices", on_demand).await;
    assert_eq!(served.ec2.cloud().on_demand_price("m5.large"), Some(0.5));
    let subnet = &served.setup.subnet_ids[0];
    served.done("POST", &format!("/subnets/{subnet}"), r#"{"availableAddresses":3}"#).await;
    let subnets = served.ec2.cloud().subnets();
    let left = subnets.iter().find(|one| one.id == *subnet).unwrap().available_addresses();
    assert_eq!(left, 3);
}

#[tokio::test]
async fn what_cannot_be_done_to_the_account_is_refused_by_its_field() {
    let served = Served::new().await;
    let subnet = &served.setup.subnet_ids[0];
    let number = json!({"resource": subnet, "tags": {"a": 1}}).to_string();
    for (method, path, body, status, field, texts) in [
        ("GET", "/resources/buckets", "", 404, "kind", &["\"buckets\"", "securityGroups, subnets"][..]),
        ("POST", "/tags", r#"{"resource":"subnet-0","tags":{}}"#, 404, "resource", &["subnet-0 does not exist"]),
        ("POST", "/tags", &number, 400, "tags.a", &["tags.a is 1", "a text"]),
        ("POST", "/tags", r#"{"tags":{}}"#, 400, "resource", &["missing"]),
        ("POST", "/prices", r#"{"instanceType":"m5.large"}"#, 400, "capacityType", &["missing", "spot or on-demand"]),
        (
            "POST",
            "/prices",
            r#"{"instanceType":"m5.large","capacityType":"spot","usdPerHour":1}"#,
            400,
            "zone",
            &["missing", "differ by zone"],
        ),
        (
            "POST",
            "/prices",
            r#"{"instanceType":"m5.large","capacityType":"spot","zone":"us-west-2a","usdPerHour":-1}"#,
            400,
            "usdPerHour",
            &["-1", "above 0"],
        ),
        (
            "POST",
            "/prices",
            r#"{"instanceType":"m5.large","capacityType":"on-demand","withdrawn":true}"#,
            400,
            "withdrawn",
            &["on-demand"],
        ),
        (
            "POST",
            "/prices",
            r#"{"instanceType":"m5.huge","capacityType":"on-demand","usdPerHour":1}"#,
            404,
            "instanceType",
            &["m5.huge", "offerings"],
        ),
        ("POST", "/subnets/subnet-0", r#"{"availableAddresses":0}"#, 404, "id", &["subnet-0", "resources/subnets"]),
        ("POST", "/roles", r#"{"name":"a b"}"#, 400, "name", &["\"a b\"", "64 letters"]),
        ("POST", "/roles", r#"{"name":"KarpenterNodeRole-demo"}"#, 409, "", &["already"]),
        ("POST", "/images", r#"{"date":"20270101"}"#, 400, "kubernetesVersion", &["missing", "1.36"]),
        (
            "POST",
            "/images",
            r#"{"kubernetesVersion":"1.36","date":"2027","bottlerocketVersion":"1"}"#,
            400,
            "date",
            &["eight digits"],
        ),
        ("POST", "/queues", r#"{"name":"a.fifo"}"#, 400, "name", &["80 letters"]),
        ("DELETE", "/queues/none", "", 404, "queue", &["\"none\"", "demo"]),
        ("POST", "/queues/none/messages", r#"{"body":"a"}"#, 404, "queue", &["\"none\"", "demo"]),
        ("POST", "/queues/demo/messages", "{}", 400, "body", &["missing"]),
        (
            "POST",
            "/clusters/demo/access-entries",
            r#"{"principalArn":"me"}"#,
            400,
            "principalArn",
            &["\"me\"", "arn:aws:iam"],
        ),
        (
            "POST",
            "/clusters/demo/access-entries",
            r#"{"principalArn":"arn:aws:iam::123456789012:role/a","type":"LINUX"}"#,
            400,
            "type",
            &["EC2_LINUX"],
        ),
        (
            "POST",
            "/clusters/none/access-entries",
            r#"{"principalArn":"arn:aws:iam::123456789012:role/a"}"#,
            404,
            "cluster",
            &["\"none\"", "demo"],
        ),
        ("POST", "/faults", r#"{"outcome":"unauthorized"}"#, 400, "action", &["missing", "CreateFleet"]),
    ] {
        refused(&served.control(method, path, body).await, status, field, texts);
    }
}

#[tokio::test]
async fn a_clock_set_forward_lets_what_is_due_happen() {
    let served = Served::new().await;
    let id = served.launch("").await;
    let real = served.done("GET", "/clock", "").await;
    assert_eq!((&real["mode"], &real["offsetMs"], &real["scale"]), (&json!("real"), &json!(0), &json!(1.0)));
    let set = served.done("POST", "/clock", r#"{"mode": "offset", "offsetMs": 3600000}"#).await;
    assert_eq!((&set["mode"], &set["scale"]), (&json!("offset"), &json!(1.0)));
    let offset = set["offsetMs"].as_i64().unwrap();
    assert!((3_599_999..=3_600_001).contains(&offset), "{set}");
    let instance = served.ec2.cloud().instance(&id).unwrap();
    assert_eq!(instance.state, State::Running);
    let back = served.control("POST", "/clock", r#"{"mode": "real"}"#).await;
    refused(&back, 409, "mode", &["the clock does not go back", "/_trysquare/reset"]);
    // Forty minutes in each second: what is terminated is gone after an hour.
    served.done("POST", "/clock", r#"{"mode": "scaled", "scale": 2400}"#).await;
    served.done("POST", &format!("/instances/{id}/terminate"), "").await;
    let gone = async {
        while served.ec2.cloud().instance(&id).is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("a minute and an hour pass in two seconds");
    served.done("POST", "/reset", "").await;
    assert_eq!(served.done("GET", "/clock", "").await["mode"], "real");
}

#[tokio::test]
async fn a_clock_that_cannot_be_meant_is_refused_by_its_field() {
    let served = Served::new().await;
    for (body, field, text) in [
        ("{}", "mode", "real, offset or scaled"),
        (r#"{"mode": "fast"}"#, "mode", "no mode \"fast\""),
        (r#"{"mode": "scaled"}"#, "scale", "such as 60"),
        (r#"{"mode": "scaled", "scale": 0}"#, "scale", "a number from 0.001 to 86400"),
        (r#"{"mode": "scaled", "scale": -1}"#, "scale", "a number from"),
        (r#"{"mode": "offset", "offsetMs": -1}"#, "offsetMs", "a whole number"),
        (r#"{"mode": "offset", "now": "tomorrow"}"#, "now", "an instant"),
        (r#"{"mode": "offset", "now": "2926-01-01T00:00:00Z"}"#, "now", "within ten years"),
        (r#"{"mode": "offset", "now": "2026-01-01T00:00:00Z", "offsetMs": 1}"#, "now", "one of the two"),
        (r#"{"mode": "offset", "offset": 1}"#, "offset", "is offsetMs meant?"),
        (r#"{"mode": "real", "scale": 2}"#, "scale", "not known"),
    ] {
        refused(&served.control("POST", "/clock", body).await, 400, field, &[text]);
    }
    assert_eq!(served.done("GET", "/clock", "").await["mode"], "real");
}

#[tokio::test]
async fn an_account_goes_from_one_program_to_another() {
    let (one, other) = (Served::new().await, Served::new().await);
    let id = one.launch("").await;
    one.done("POST", "/faults", r#"{"action": "CreateFleet", "outcome": "throttled"}"#).await;
    let snapshot = one.done("GET", "/snapshot", "").await;
    assert_eq!((&snapshot["format"], &snapshot["version"]), (&json!("fake-ec2 state"), &json!(1)));
    let answer = other.done("PUT", "/snapshot", &snapshot.to_string()).await;
    assert_eq!((&answer["instances"], &answer["queues"]), (&json!(1), &json!(1)));
    assert_eq!(other.ec2.cloud().instance(&id).unwrap().id, id);
    assert_eq!(other.done("GET", "/faults", "").await["faults"].as_array().unwrap().len(), 1);
    let wrong = other.control("PUT", "/snapshot", &snapshot.to_string()[..1000]).await;
    refused(&wrong, 400, "body", &["it is broken"]);
    assert!(other.ec2.cloud().instance(&id).is_some(), "nothing was done");
    // Larger than what AWS's own calls may bring.
    let padded = format!("{}{}", " ".repeat(5 << 20), snapshot);
    other.done("PUT", "/snapshot", &padded).await;
}

#[tokio::test]
async fn a_cluster_is_set_up_on_request() {
    let served = Served::new().await;
    let made = served.done("POST", "/bootstrap", r#"{"cluster": "second"}"#).await;
    assert_eq!((&made["cluster"], &made["region"]), (&json!("second"), &json!("us-west-2")));
    assert_eq!(made["subnetIds"].as_array().unwrap().len(), 3);
    assert!(served.ec2.cloud().cluster("second").is_some());
    refused(&served.control("POST", "/bootstrap", r#"{"cluster": "second"}"#).await, 409, "cluster", &["already"]);
    refused(&served.control("POST", "/bootstrap", r#"{"cluster": "a b"}"#).await, 400, "cluster", &["no name"]);
    refused(&served.control("POST", "/bootstrap", r#"{"clustr": "a"}"#).await, 400, "clustr", &["is cluster meant?"]);
    // How the program was started is not changed by it.
    served.done("POST", "/reset", "").await;
    assert!(served.ec2.cloud().cluster("second").is_none());
    assert!(served.ec2.cloud().cluster("demo").is_some());
}

#[tokio::test]
async fn the_journal_is_waited_for_until_a_call_matches() {
    let served = Served::new().await;
    served.ec2("Action=DescribeVpcs").await;
    let after = served.done("GET", "/journal", "").await["calls"][0]["sequence"].as_u64().unwrap();
    let path = format!("/journal?after={after}&waitS=30&action=DescribeSubnets&errorCode=InvalidSubnetID.NotFound");
    let waiting = served.done("GET", &path, "");
    let calling = async {
        served.ec2("Action=DescribeSubnets").await;
        served.ec2("Action=DescribeVpcs").await;
        served.ec2("Action=DescribeSubnets&SubnetId.1=subnet-00000000000000000").await;
    };
    let (found, ()) = tokio::join!(waiting, calling);
    let calls = found["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{found}");
    assert_eq!(calls[0]["parameters"], json!({"SubnetId.1": "subnet-00000000000000000"}));
    let by_parameter = "/journal?parameter=SubnetId.1%3Dsubnet-00000000000000000";
    assert_eq!(served.done("GET", by_parameter, "").await["calls"].as_array().unwrap().len(), 1);
    assert_eq!(served.done("GET", "/journal?caller=nobody", "").await["calls"], json!([]));
    refused(&served.control("GET", "/journal?parameter=x", "").await, 400, "parameter", &["a name and a value"]);
}

#[tokio::test]
async fn a_reset_takes_every_field_of_a_configuration() {
    let served = Served::new().await;
    let body = json!({
        "region": "eu-west-1", "account": "210987654321", "seed": 3, "profile": "lenient", "iam": "off", "families": ["m5"],
        "kubernetesVersion": "1.35", "pace": {"pendingMs": 0}, "eventDelayMs": 1, "consistencyDelayMs": 2,
        "limits": {"onDemandVcpus": 1, "spotVcpusByClass": {"p": 96}, "fleets": 2},
        "throttling": {"rates": {"ec2": {"DescribeSubnets": {"burst": 1, "perSecond": 0}}}}, "secureTransport": false, "verifySignatures": false, "accessKeys": {"test": "test"},
    });
    let answer = served.done("POST", "/reset", &body.to_string()).await;
    assert_eq!((&answer["region"], &answer["account"]), (&json!("eu-west-1"), &json!("210987654321")));
    let vpcs = served.ec2("Action=DescribeVpcs").await.body;
    assert!(vpcs.contains("172.31.0.0/16"), "{vpcs}");
    assert_eq!(served.ec2("Action=DescribeSubnets").await.status, 200);
    assert!(served.ec2("Action=DescribeSubnets").await.body.contains("RequestLimitExceeded"));
    for (body, field, text) in [
        (json!({"account": "1"}), "account", "twelve digits"),
        (json!({"profile": "loose"}), "profile", "strict or lenient"),
        (json!({"kubernetesVersion": "1"}), "kubernetesVersion", "1.36"),
        (json!({"limits": {"onDemandVcpu": 1}}), "limits.onDemandVcpu", "is limits.onDemandVcpus meant?"),
        (json!({"limits": {"spotVcpusByClass": {"q": 1}}}), "limits.spotVcpusByClass.q", "highMemory"),
        (json!({"throttling": {"rates": {"s3": {}}}}), "service", "not played here"),
        (json!({"throttling": {"rates": {"ec2": {"X": {}}}}}), "throttling.rates.ec2.X.burst", "come at once"),
        (json!({"accessKeys": {"a/b": "c"}}), "accessKeys.a/b", "letters, digits and _"),
        (json!({"accessKeys": {"a": 7}}), "accessKeys.a", "the secret access key"),
        (json!({"eventDelayMs": "soon"}), "eventDelayMs", "a whole number"),
    ] {
        refused(&served.control("POST", "/reset", &body.to_string()).await, 400, field, &[text]);
    }
}

#[tokio::test]
async fn a_moto_reset_is_there_with_the_lenient_profile_alone() {
    let served = Served::new().await;
    let answer = served.send("POST /moto-api/reset HTTP/1.1", "").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert!(answer.body.contains("--profile lenient"), "{answer:?}");
}
