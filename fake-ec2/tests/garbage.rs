//! Whatever arrives, the answer is a refusal and nothing breaks.

mod common;

use bytes::Bytes;
use common::Account;
use http::Request;
use proptest::prelude::*;
use std::cell::OnceCell;

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
}
