//! Whatever arrives, the answer is a refusal and nothing breaks.

mod common;

use bytes::Bytes;
use common::Account;
use controller_clock::Clock;
use fake_ec2::{Config, FakeEc2};
use http::Request;
use proptest::prelude::*;
use std::cell::OnceCell;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

thread_local! {
    static WORLD: OnceCell<(tokio::runtime::Runtime, Account)> = const { OnceCell::new() };
}

/// The status of one answer; one account per test thread serves all cases.
fn status(request: Request<Bytes>) -> u16 {
    WORLD.with(|world| {
        let (runtime, account) = world.get_or_init(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let account = runtime.block_on(async { Account::new() });
            (runtime, account)
        });
        runtime.block_on(account.ec2.handle(request)).status().as_u16()
    })
}

/// As [`status`], where signatures are checked.
fn verified(request: Request<Bytes>) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let config = Config { verify_signatures: true, families: vec!["m5".into()], ..Config::default() };
        Account::with(config).ec2.handle(request).await.status().as_u16()
    })
}

fn restored(snapshot: &serde_json::Value) -> Result<(), fake_ec2::StateError> {
    let config = Config { families: vec!["m5".into()], ..Config::default() };
    FakeEc2::new(config, Clock::system()).cloud().restore_snapshot(snapshot)
}

/// All that comes back for these bytes, after which nothing more is sent.
fn on_a_connection(bytes: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ec2 = FakeEc2::new(Config { families: vec!["m5".into()], ..Config::default() }, Clock::system());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let talk = async {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        tokio::select! {
            answer = tokio::time::timeout(Duration::from_secs(30), talk) => answer.expect("the connection ends"),
            served = ec2.serve(listener) => panic!("it has stopped serving: {served:?}"),
        }
    })
}

fn action() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "CreateFleet",
        "RunInstances",
        "CreateLaunchTemplate",
        "DescribeInstances",
        "DescribeSubnets",
        "DescribeImages",
        "CreateTags",
        "DescribeInstanceTypes",
        "DescribeSpotPriceHistory",
        "TerminateInstances",
        "DescribeInstanceStatus",
        "DeleteTags",
        "AuthorizeSecurityGroupIngress",
        "CreateImage",
        "CreateNetworkInterface",
        "CreateRoute",
        "CreateSubnet",
        "CreateVolume",
        "CreateVpc",
        "DescribeNetworkInterfaces",
        "DescribeTags",
        "ImportKeyPair",
        "ModifyImageAttribute",
        "ModifySecurityGroupRules",
        "Nonsense",
    ])
}

fn key() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "Filter",
        "1",
        "2",
        "99999999999",
        "-1",
        "Name",
        "Value",
        "InstanceId",
        "LaunchTemplateData",
        "NetworkInterface",
        "DeviceIndex",
        "CidrBlock",
        "IpPermissions",
        "IpProtocol",
        "PublicKeyMaterial",
        "Tag",
        "Key",
        "LaunchTemplateConfigs",
        "Overrides",
        "MaxResults",
        "NextToken",
        "TargetCapacitySpecification",
        "TotalTargetCapacity",
        "Type",
        "ImageId",
        "",
        "UserData",
        "LaunchTemplateName",
        "TagSpecification",
        "ResourceType",
    ]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("."))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("instant".to_owned()),
        Just("1".to_owned()),
        Just("true".to_owned()),
        Just("instance".to_owned()),
        Just("tag-key".to_owned()),
        Just("4294967296".to_owned()),
        Just("ami-".to_owned()),
        "\\PC{0,20}",
        "[*?\\\\]{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let status = status(Request::post("/").body(body.into()).unwrap());
        prop_assert!((400..500).contains(&status), "{status}");
    }

    #[test]
    fn any_parameters_are_answered(action in action(), pairs in prop::collection::vec((key(), value()), 0..8)) {
        let mut body = form_urlencoded::Serializer::new(format!("Action={action}&Version=2016-11-15"));
        for (key, value) in &pairs {
            body.append_pair(key, value);
        }
        let status = status(Request::post("/").body(body.finish().into()).unwrap());
        prop_assert!(status < 500, "{status}");
    }

    #[test]
    fn any_json_is_answered(
        target in prop::sample::select(vec!["AmazonSQS.SendMessage", "AmazonSQS.ReceiveMessage", "AmazonSQS.SendMessageBatch", "AmazonSSM.GetParameters", "AWSPriceListService.GetProducts", "AWSEvents.PutRule", "AWSEvents.PutEvents", "AWSEvents.PutTargets"]),
        body in "\\{(\"(QueueUrl|MessageBody|Entries|Names|Filters|Name|EventPattern|Rule|Targets)\":(\"demo\"|7|\\[\\]|\\[null\\]|\\{\\}|\"\\{\\}\"),?){0,3}\\}",
    ) {
        let status = status(Request::post("/").header("x-amz-target", target).body(body.into()).unwrap());
        prop_assert!(status < 500, "{status}");
    }

    #[test]
    fn any_path_is_answered(path in "/clusters(/[a-z%0-9f]{0,6}){0,4}") {
        if let Ok(request) = Request::get(path).body(Bytes::new()) {
            prop_assert!(status(request) < 500);
        }
    }

    #[test]
    fn any_encoding_of_a_body_is_answered(
        encoding in prop::sample::select(vec!["gzip", "aws-chunked", "aws-chunked,gzip", "gzip, gzip", "deflate", ",", ""]),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let status = status(Request::post("/").header("content-encoding", encoding).body(body.into()).unwrap());
        prop_assert!((400..500).contains(&status), "{status}");
    }

    #[test]
    fn any_signature_is_answered(
        header in "(AWS4-HMAC-SHA256 )?(Credential=[a-zA-Z/0-9]{0,40}|SignedHeaders=[a-z;]{0,20}|Signature=[0-9a-g]{0,70}|,| ){0,6}",
        date in "[0-9TZ]{0,16}|20260101T000000Z",
        query in "(&?X-Amz-(Algorithm|Credential|Date|Expires|SignedHeaders|Signature)=[A-Za-z0-9%/;-]{0,30}){0,6}",
    ) {
        let request = |ec2: &str| {
            let uri = format!("/?Action={ec2}&Version=2016-11-15&{query}");
            Request::get(uri).header("authorization", header.as_str()).header("x-amz-date", date.as_str()).body(Bytes::new())
        };
        if let Ok(request) = request("DescribeVpcs") {
            prop_assert!((400..500).contains(&verified(request)));
        }
        if let Ok(request) = request("DescribeVpcs") {
            prop_assert!(status(request) < 500);
        }
    }

    #[test]
    fn any_state_is_refused(text in "[\\[\\]{}\",:a-z0-9]{0,60}") {
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
            prop_assert!(restored(&value).is_err());
        }
    }
}

proptest! {
    // Each is a connection.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_on_a_connection_end_in_a_refusal_or_its_end(
        head in prop::sample::select(vec!["", "POST / HTTP/1.1\r\nhost: a\r\n", "POST / HTTP/1.1\r\ncontent-length: 40\r\n\r\n", "GET / HTTP/1.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let answer = on_a_connection(&[head.as_bytes(), &rest].concat());
        let status = answer.split(|byte| *byte == b' ').nth(1).map(|status| String::from_utf8_lossy(status).into_owned());
        prop_assert!(answer.is_empty() || status.as_deref().is_some_and(|status| status.starts_with('4')), "{answer:?}");
    }
}
