//! The smaller services over the wire: EventBridge, SSM, Pricing, STS.

mod common;

use common::{Account, values};
use fake_ec2::{Config, Iam};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

impl Service<'_> {
    async fn ok(&self, action: &str, input: Value) -> Value {
        let (status, value, _) = self.0.json(&format!("{}.{action}", self.1), input).await;
        assert_eq!(status, 200, "{action}: {value}");
        value
    }

    /// The code of a call that must be refused.
    async fn refused(&self, action: &str, input: Value) -> String {
        let (status, value, _) = self.0.json(&format!("{}.{action}", self.1), input.clone()).await;
        assert_eq!(status, 400, "{action} {input}: {value}");
        value["__type"].as_str().unwrap().to_owned()
    }

    /// The sizes of the pages of a list, and its items.
    async fn pages(&self, action: &str, mut input: Value, member: &str) -> (Vec<usize>, Vec<Value>) {
        let (mut sizes, mut items) = (Vec::new(), Vec::new());
        loop {
            let page = self.ok(action, input.clone()).await;
            let part = page[member].as_array().unwrap();
            sizes.push(part.len());
            items.extend(part.clone());
            match page.get("NextToken") {
                Some(token) => input["NextToken"] = token.clone(),
                None => return (sizes, items),
            }
        }
    }
}

/// A JSON service of an account, by the prefix of its targets.
struct Service<'a>(&'a Account, &'static str);

const EVENTS: &str = "AWSEvents";
const SSM: &str = "AmazonSSM";
const PRICING: &str = "AWSPriceListService";

async fn queue(account: &Account, name: &str, attributes: Value) -> (String, String) {
    let input = json!({"QueueName": name, "Attributes": attributes});
    let url = account.sqs("CreateQueue", input).await["QueueUrl"].as_str().unwrap().to_owned();
    (url, format!("arn:aws:sqs:us-west-2:123456789012:{name}"))
}

async fn received(account: &Account, url: &str) -> Vec<String> {
    let input = json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 2});
    let answer = account.sqs("ReceiveMessage", input).await;
    let messages = answer["Messages"].as_array().cloned().unwrap_or_default();
    messages.iter().map(|message| message["Body"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn targets_are_sent_what_they_ask_for() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let (url, arn) = queue(&account, "mine", json!({})).await;
    let (fifo_url, fifo) =
        queue(&account, "mine.fifo", json!({"FifoQueue": "true", "ContentBasedDeduplication": "true"})).await;
    events.ok("PutRule", json!({"Name": "r", "EventPattern": r#"{"source": ["my.app"]}"#})).await;
    let targets = json!([
        {"Id": "constant", "Arn": arn, "Input": "{\"fixed\": 1}"},
        {"Id": "path", "Arn": arn, "InputPath": "$.detail.a"},
        {"Id": "fifo", "Arn": fifo, "SqsParameters": {"MessageGroupId": "g"}, "InputPath": "$.detail"},
        {"Id": "none", "Arn": arn, "InputPath": "$.detail.none"},
    ]);
    let answer = events.ok("PutTargets", json!({"Rule": "r", "Targets": targets})).await;
    assert_eq!(answer, json!({"FailedEntryCount": 0, "FailedEntries": []}));
    let listed = events.ok("ListTargetsByRule", json!({"Rule": "r"})).await;
    assert_eq!(listed["Targets"].as_array().unwrap().len(), 4);
    assert_eq!(listed["Targets"][1], targets[2]);
    let entry = json!({"Source": "my.app", "DetailType": "t", "Detail": r#"{"a": {"b": 2}}"#});
    events.ok("PutEvents", json!({"Entries": [entry]})).await;
    let mut bodies = received(&account, &url).await;
    bodies.sort();
    assert_eq!(bodies, [r#"{"b":2}"#, r#"{"fixed": 1}"#]);
    assert_eq!(received(&account, &fifo_url).await, [r#"{"a":{"b":2}}"#]);
}

#[tokio::test(start_paused = true)]
async fn targets_fail_one_by_one_and_are_five_at_most() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let arn = "arn:aws:sqs:us-west-2:123456789012:demo";
    events.ok("PutRule", json!({"Name": "r", "EventPattern": r#"{"source": ["x"]}"#})).await;
    let put = |targets: Value| json!({"Rule": "r", "Targets": targets});
    let answer = events
        .ok(
            "PutTargets",
            put(json!([
                {"Id": "good", "Arn": arn},
                {"Id": "lambda", "Arn": "arn:aws:lambda:us-west-2:123456789012:function:f"},
                {"Id": "group", "Arn": format!("{arn}.fifo")},
                {"Id": "both", "Arn": arn, "Input": "{}", "InputPath": "$.detail"},
                {"Id": "text", "Arn": arn, "Input": "{"},
            ])),
        )
        .await;
    let failed: Vec<&Value> = answer["FailedEntries"].as_array().unwrap().iter().map(|one| &one["TargetId"]).collect();
    assert_eq!(
        (&answer["FailedEntryCount"], failed),
        (&json!(4), vec![&json!("lambda"), &json!("group"), &json!("both"), &json!("text")])
    );
    let five: Vec<Value> = (0..5).map(|index| json!({"Id": index.to_string(), "Arn": arn})).collect();
    assert_eq!(events.refused("PutTargets", put(json!(five))).await, "LimitExceededException");
    assert_eq!(events.refused("PutTargets", put(json!([]))).await, "ValidationException");
    let answer = events.ok("RemoveTargets", json!({"Rule": "r", "Ids": ["good", "none"]})).await;
    assert_eq!((&answer["FailedEntryCount"], &answer["FailedEntries"][0]["TargetId"]), (&json!(1), &json!("none")));
    assert_eq!(
        events.refused("RemoveTargets", json!({"Rule": "other", "Ids": ["x"]})).await,
        "ResourceNotFoundException"
    );
}

#[tokio::test(start_paused = true)]
async fn events_fail_one_by_one() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let entry =
        |source: &str, kind: &str, detail: &str| json!({"Source": source, "DetailType": kind, "Detail": detail});
    let answer = events
        .ok(
            "PutEvents",
            json!({"Entries": [
                entry("a", "t", "{}"), entry("", "t", "{}"), entry("a", "", "{}"), json!({"Source": "a", "DetailType": "t"}),
                entry("a", "t", "{"), entry("a", "t", "[]"), entry("aws.ec2", "t", "{}"),
            ]}),
        )
        .await;
    assert_eq!(answer["FailedEntryCount"], 6);
    let codes: Vec<Option<&str>> =
        answer["Entries"].as_array().unwrap().iter().map(|entry| entry["ErrorCode"].as_str()).collect();
    let invalid = Some("InvalidArgument");
    let malformed = Some("MalformedDetail");
    assert_eq!(codes, [None, invalid, invalid, invalid, malformed, malformed, Some("NotAuthorizedForSourceException")]);
    assert!(answer["Entries"][0]["EventId"].is_string());
    let eleven = vec![entry("a", "t", "{}"); 11];
    assert_eq!(events.refused("PutEvents", json!({"Entries": eleven})).await, "ValidationException");
    // A source of 1, a type of 1 and a detail make 256 KiB, and one byte more.
    let detail = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 10));
    events.ok("PutEvents", json!({"Entries": [entry("a", "t", &detail(262_144))]})).await;
    assert_eq!(
        events.refused("PutEvents", json!({"Entries": [entry("a", "t", &detail(262_145))]})).await,
        "ValidationException"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_keeps_the_time_it_is_given() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let (url, arn) = queue(&account, "mine", json!({})).await;
    events.ok("PutRule", json!({"Name": "r", "EventPattern": r#"{"source": ["a"]}"#})).await;
    events.ok("PutTargets", json!({"Rule": "r", "Targets": [{"Id": "q", "Arn": arn}]})).await;
    let entry = json!({"Source": "a", "DetailType": "t", "Detail": "{}", "Time": 1_700_000_000});
    events.ok("PutEvents", json!({"Entries": [entry]})).await;
    let event: Value = serde_json::from_str(&received(&account, &url).await[0]).unwrap();
    assert_eq!(event["time"], "2023-11-14T22:13:20Z");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_rule_sends_nothing() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let (url, arn) = queue(&account, "mine", json!({})).await;
    events.ok("PutRule", json!({"Name": "r", "EventPattern": r#"{"source": ["a"]}"#, "State": "DISABLED"})).await;
    events.ok("PutTargets", json!({"Rule": "r", "Targets": [{"Id": "q", "Arn": arn}]})).await;
    let send = json!({"Entries": [{"Source": "a", "DetailType": "t", "Detail": "{}"}]});
    for (action, state, expected) in [("", "DISABLED", 0), ("EnableRule", "ENABLED", 1), ("DisableRule", "DISABLED", 0)]
    {
        if !action.is_empty() {
            events.ok(action, json!({"Name": "r"})).await;
        }
        assert_eq!(events.ok("DescribeRule", json!({"Name": "r"})).await["State"], state);
        events.ok("PutEvents", send.clone()).await;
        assert_eq!(received(&account, &url).await.len(), expected, "{state}");
    }
    assert_eq!(events.refused("EnableRule", json!({"Name": "none"})).await, "ResourceNotFoundException");
}

#[tokio::test(start_paused = true)]
async fn rules_are_listed_in_pages_by_name_and_by_target() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let arn = "arn:aws:sqs:us-west-2:123456789012:demo";
    for index in 0..5 {
        let name = format!("page-{index}");
        events.ok("PutRule", json!({"Name": name, "EventPattern": r#"{"source": ["x"]}"#})).await;
        events.ok("PutTargets", json!({"Rule": name, "Targets": [{"Id": "q", "Arn": arn}]})).await;
    }
    let (sizes, rules) = events.pages("ListRules", json!({"NamePrefix": "page-", "Limit": 2}), "Rules").await;
    assert_eq!((sizes, &rules[4]["Name"]), (vec![2, 2, 1], &json!("page-4")));
    let (sizes, names) =
        events.pages("ListRuleNamesByTarget", json!({"TargetArn": arn, "Limit": 4}), "RuleNames").await;
    assert_eq!(sizes, [4, 4, 1], "with the four rules of the installation");
    assert!(names.contains(&json!("page-0")) && names.contains(&json!("demo-RebalanceRule")));
    let none = events.ok("ListRuleNamesByTarget", json!({"TargetArn": format!("{arn}-none")})).await;
    assert_eq!(none, json!({"RuleNames": []}));
    for input in [json!({"Limit": 0}), json!({"Limit": 101}), json!({"NextToken": "?"})] {
        assert_eq!(events.refused("ListRules", input).await, "ValidationException");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_the_default_bus_and_rules_have_tags() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let bus = "arn:aws:events:us-west-2:123456789012:event-bus/default";
    let buses = events.ok("ListEventBuses", json!({})).await;
    assert_eq!((&buses["EventBuses"][0]["Name"], &buses["EventBuses"][0]["Arn"]), (&json!("default"), &json!(bus)));
    assert_eq!(events.ok("DescribeEventBus", json!({})).await["Arn"], bus);
    for (action, input) in [
        ("DescribeEventBus", json!({"Name": "other"})),
        ("ListRules", json!({"EventBusName": "other"})),
        ("PutRule", json!({"Name": "r", "EventPattern": "{\"a\": [1]}", "EventBusName": "other"})),
    ] {
        assert_eq!(events.refused(action, input).await, "ResourceNotFoundException", "{action}");
    }
    let rule =
        json!({"Name": "r", "EventPattern": "{\"a\": [1]}", "EventBusName": bus, "Tags": [{"Key": "a", "Value": "b"}]});
    let arn = events.ok("PutRule", rule).await["RuleArn"].clone();
    events.ok("TagResource", json!({"ResourceARN": arn, "Tags": [{"Key": "c", "Value": "d"}]})).await;
    events.ok("UntagResource", json!({"ResourceARN": arn, "TagKeys": ["a"]})).await;
    let tags = events.ok("ListTagsForResource", json!({"ResourceARN": arn})).await;
    assert_eq!(tags, json!({"Tags": [{"Key": "c", "Value": "d"}]}));
    events.ok("TagResource", json!({"ResourceARN": bus, "Tags": [{"Key": "x", "Value": "y"}]})).await;
    let missing = json!({"ResourceARN": "arn:aws:events:us-west-2:123456789012:rule/none"});
    assert_eq!(events.refused("ListTagsForResource", missing).await, "ResourceNotFoundException");
    for input in [
        json!({"Name": "r"}),
        json!({"Name": "a b", "EventPattern": "{\"a\": [1]}"}),
        json!({"Name": "x".repeat(65), "EventPattern": "{\"a\": [1]}"}),
        json!({"Name": "r", "EventPattern": "{\"a\": [1]}", "State": "PAUSED"}),
        json!({"Name": "r", "ScheduleExpression": "rate(5 minutes)"}),
    ] {
        assert_eq!(events.refused("PutRule", input).await, "ValidationException");
    }
    assert_eq!(
        events.refused("PutRule", json!({"Name": "r", "EventPattern": "{}"})).await,
        "InvalidEventPatternException"
    );
}

#[tokio::test(start_paused = true)]
async fn patterns_can_be_tried() {
    let account = Account::new();
    let events = Service(&account, EVENTS);
    let event = json!({"id": "1", "account": "a", "source": "s", "time": "t", "region": "r", "resources": [],
        "detail-type": "d", "detail": {"size": 5}});
    for (pattern, expected) in
        [(r#"{"detail": {"size": [{"numeric": [">", 4]}]}}"#, true), (r#"{"source": ["x"]}"#, false)]
    {
        let answer = events.ok("TestEventPattern", json!({"EventPattern": pattern, "Event": event.to_string()})).await;
        assert_eq!(answer, json!({"Result": expected}));
    }
    let partial = json!({"EventPattern": r#"{"source": ["x"]}"#, "Event": "{}"});
    assert_eq!(events.refused("TestEventPattern", partial).await, "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn a_parameter_has_versions_and_labels() {
    let account = Account::new();
    let ssm = Service(&account, SSM);
    let put = |value: &str, overwrite: bool| json!({"Name": "/my/size", "Value": value, "Type": "String", "Overwrite": overwrite});
    assert_eq!(ssm.ok("PutParameter", put("one", false)).await, json!({"Version": 1, "Tier": "Standard"}));
    assert_eq!(ssm.refused("PutParameter", put("two", false)).await, "ParameterAlreadyExists");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(ssm.ok("PutParameter", put("two", true)).await["Version"], 2);
    let labelled = ssm
        .ok(
            "LabelParameterVersion",
            json!({"Name": "/my/size", "ParameterVersion": 1, "Labels": ["good", "1st", "aws-x"]}),
        )
        .await;
    assert_eq!(labelled, json!({"InvalidLabels": ["1st", "aws-x"], "ParameterVersion": 1}));
    let get = async |name: &str| ssm.ok("GetParameter", json!({"Name": name})).await["Parameter"].clone();
    assert_eq!(
        get("/my/size").await,
        json!({"Name": "/my/size", "Type": "String", "Value": "two", "Version": 2, "LastModifiedDate": 1_767_225_660,
               "ARN": "arn:aws:ssm:us-west-2:123456789012:parameter/my/size", "DataType": "text"})
    );
    for (selector, value) in [(":1", "one"), (":2", "two"), (":good", "one")] {
        let parameter = get(&format!("/my/size{selector}")).await;
        assert_eq!((&parameter["Value"], &parameter["Selector"]), (&json!(value), &json!(selector)));
        assert_eq!(parameter["Name"], "/my/size");
    }
    assert_eq!(get("arn:aws:ssm:us-west-2:123456789012:parameter/my/size").await["Value"], "two");
    for selector in ["3", "none"] {
        let name = format!("/my/size:{selector}");
        assert_eq!(ssm.refused("GetParameter", json!({"Name": name})).await, "ParameterVersionNotFound");
    }
    // A label is on one version at a time.
    ssm.ok("LabelParameterVersion", json!({"Name": "/my/size", "Labels": ["good"]})).await;
    assert_eq!(get("/my/size:good").await["Value"], "two");
    let history = ssm.ok("GetParameterHistory", json!({"Name": "/my/size"})).await;
    let told: Vec<(&Value, &Value)> = history["Parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| (&version["Value"], &version["Labels"]))
        .collect();
    assert_eq!(told, [(&json!("one"), &json!([])), (&json!("two"), &json!(["good"]))]);
    let removed = ssm
        .ok("UnlabelParameterVersion", json!({"Name": "/my/size", "ParameterVersion": 2, "Labels": ["good", "x"]}))
        .await;
    assert_eq!(removed, json!({"RemovedLabels": ["good"], "InvalidLabels": ["x"]}));
    let eleven: Vec<String> = (0..10).map(|index| format!("l{index}")).collect();
    ssm.ok("LabelParameterVersion", json!({"Name": "/my/size", "Labels": eleven})).await;
    let more = json!({"Name": "/my/size", "Labels": ["more"]});
    assert_eq!(ssm.refused("LabelParameterVersion", more).await, "ParameterVersionLabelLimitExceeded");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_versions_are_kept_and_a_label_holds_the_oldest() {
    let account = Account::new();
    let ssm = Service(&account, SSM);
    let put = |value: usize| json!({"Name": "n", "Value": value.to_string(), "Type": "String", "Overwrite": true});
    for value in 1..=101 {
        ssm.ok("PutParameter", put(value)).await;
    }
    let (sizes, versions) = ssm.pages("GetParameterHistory", json!({"Name": "n"}), "Parameters").await;
    assert_eq!((sizes, &versions[0]["Version"], &versions[99]["Version"]), (vec![50, 50], &json!(2), &json!(101)));
    ssm.ok("LabelParameterVersion", json!({"Name": "n", "ParameterVersion": 2, "Labels": ["keep"]})).await;
    assert_eq!(ssm.refused("PutParameter", put(102)).await, "ParameterMaxVersionLimitExceeded");
}

#[tokio::test(start_paused = true)]
async fn parameters_are_checked() {
    let account = Account::new();
    let ssm = Service(&account, SSM);
    let with = |more: Value| {
        let mut input = json!({"Name": "n", "Value": "v", "Type": "String"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    for (more, code) in [
        (json!({"Name": "a b"}), "ValidationException"),
        (json!({"Name": "a/b"}), "ValidationException"),
        (json!({"Name": "AWSome"}), "ValidationException"),
        (json!({"Name": "/aws/service/x"}), "AccessDeniedException"),
        (json!({"Name": format!("/a{}", "/b".repeat(15))}), "HierarchyLevelLimitExceededException"),
        (json!({"Type": null}), "ValidationException"),
        (json!({"Type": "Number"}), "ValidationException"),
        (json!({"Value": ""}), "ValidationException"),
        (json!({"Value": "x".repeat(4097)}), "ValidationException"),
        (json!({"Value": "x".repeat(8193), "Tier": "Advanced"}), "ValidationException"),
        (json!({"Value": "{{ssm:x}}"}), "ValidationException"),
        (json!({"AllowedPattern": "["}), "InvalidAllowedPatternException"),
        (json!({"AllowedPattern": "\\d+"}), "ParameterPatternMismatchException"),
        (json!({"DataType": "aws:ec2:image"}), "ValidationException"),
        (json!({"Overwrite": true, "Tags": [{"Key": "a", "Value": "b"}]}), "ValidationException"),
        (json!({"KeyId": "alias/x"}), "ValidationException"),
    ] {
        assert_eq!(ssm.refused("PutParameter", with(more.clone())).await, code, "{more}");
    }
    let large = ssm.ok("PutParameter", with(json!({"Value": "x".repeat(4097), "Tier": "Intelligent-Tiering"}))).await;
    assert_eq!(large["Tier"], "Advanced");
    let downgrade = with(json!({"Tier": "Standard", "Overwrite": true}));
    assert_eq!(ssm.refused("PutParameter", downgrade).await, "ValidationException");
    let change = with(json!({"Type": "StringList", "Overwrite": true}));
    assert_eq!(ssm.refused("PutParameter", change).await, "HierarchyTypeMismatchException");
    ssm.ok("PutParameter", with(json!({"Name": "secret", "Type": "SecureString"}))).await;
    let hidden = ssm.ok("GetParameter", json!({"Name": "secret"})).await["Parameter"]["Value"].clone();
    assert_ne!(hidden, "v");
    let shown = ssm.ok("GetParameter", json!({"Name": "secret", "WithDecryption": true})).await;
    assert_eq!(shown["Parameter"]["Value"], "v");
}

#[tokio::test(start_paused = true)]
async fn parameters_are_described_by_filters_and_deleted() {
    let account = Account::new();
    let ssm = Service(&account, SSM);
    for (name, kind, team) in
        [("/a/one", "String", "x"), ("/a/b/two", "StringList", "y"), ("three", "SecureString", "x")]
    {
        let tags = json!([{"Key": "team", "Value": team}]);
        ssm.ok("PutParameter", json!({"Name": name, "Value": "v", "Type": kind, "Tags": tags})).await;
    }
    let names = async |filters: Value| -> Vec<String> {
        let answer = ssm.ok("DescribeParameters", json!({"ParameterFilters": filters})).await;
        answer["Parameters"].as_array().unwrap().iter().map(|one| one["Name"].as_str().unwrap().to_owned()).collect()
    };
    for (filters, expected) in [
        (json!([]), vec!["/a/b/two", "/a/one", "three"]),
        (json!([{"Key": "Name", "Values": ["/a/one", "three"]}]), vec!["/a/one", "three"]),
        (json!([{"Key": "Name", "Option": "BeginsWith", "Values": ["/a"]}]), vec!["/a/b/two", "/a/one"]),
        (json!([{"Key": "Name", "Option": "Contains", "Values": ["t"]}]), vec!["/a/b/two", "three"]),
        (json!([{"Key": "Path", "Values": ["/a"]}]), vec!["/a/one"]),
        (json!([{"Key": "Path", "Option": "Recursive", "Values": ["/a"]}]), vec!["/a/b/two", "/a/one"]),
        (json!([{"Key": "Type", "Values": ["SecureString"]}]), vec!["three"]),
        (json!([{"Key": "KeyId", "Values": ["alias/aws/ssm"]}]), vec!["three"]),
        (json!([{"Key": "tag:team", "Values": ["x"]}, {"Key": "Type", "Values": ["String"]}]), vec!["/a/one"]),
    ] {
        assert_eq!(names(filters.clone()).await, expected, "{filters}");
    }
    for (filter, code) in [
        (json!({"Key": "Colour", "Values": ["x"]}), "InvalidFilterKey"),
        (json!({"Key": "Name", "Option": "Like", "Values": ["x"]}), "InvalidFilterOption"),
        (json!({"Key": "Name", "Values": []}), "InvalidFilterValue"),
    ] {
        assert_eq!(ssm.refused("DescribeParameters", json!({"ParameterFilters": [filter]})).await, code);
    }
    let (sizes, _) = ssm.pages("DescribeParameters", json!({"MaxResults": 2}), "Parameters").await;
    assert_eq!(sizes, [2, 1]);
    let below = ssm
        .ok(
            "GetParametersByPath",
            json!({"Path": "/a", "Recursive": true, "ParameterFilters": [{"Key": "Type", "Values": ["String"]}]}),
        )
        .await;
    assert_eq!((below["Parameters"].as_array().unwrap().len(), &below["Parameters"][0]["Name"]), (1, &json!("/a/one")));
    ssm.ok(
        "AddTagsToResource",
        json!({"ResourceType": "Parameter", "ResourceId": "three", "Tags": [{"Key": "n", "Value": "m"}]}),
    )
    .await;
    ssm.ok("RemoveTagsFromResource", json!({"ResourceType": "Parameter", "ResourceId": "three", "TagKeys": ["team"]}))
        .await;
    let tags = ssm.ok("ListTagsForResource", json!({"ResourceType": "Parameter", "ResourceId": "three"})).await;
    assert_eq!(tags, json!({"TagList": [{"Key": "n", "Value": "m"}]}));
    let deleted = ssm.ok("DeleteParameters", json!({"Names": ["three", "none"]})).await;
    assert_eq!(deleted, json!({"DeletedParameters": ["three"], "InvalidParameters": ["none"]}));
    ssm.ok("DeleteParameter", json!({"Name": "/a/one"})).await;
    assert_eq!(ssm.refused("DeleteParameter", json!({"Name": "/a/one"})).await, "ParameterNotFound");
    let several = ssm.ok("GetParameters", json!({"Names": ["/a/one", "/a/b/two:1", "/a/b/two:2"]})).await;
    assert_eq!(several["InvalidParameters"], json!(["/a/one", "/a/b/two:2"]));
    assert_eq!(several["Parameters"][0]["Name"], "/a/b/two");
}

#[tokio::test(start_paused = true)]
async fn every_kubernetes_version_has_its_images() {
    let account = Account::new();
    let ssm = Service(&account, SSM);
    for minor in 30..=36 {
        let eks = format!("/aws/service/eks/optimized-ami/1.{minor}");
        let mut paths: Vec<String> = ["x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard"]
            .map(|variant| format!("{eks}/amazon-linux-2023/{variant}/recommended/image_id"))
            .to_vec();
        for variant in ["", "-nvidia"] {
            for architecture in ["x86_64", "arm64"] {
                paths.push(format!(
                    "/aws/service/bottlerocket/aws-k8s-1.{minor}{variant}/{architecture}/latest/image_id"
                ));
            }
        }
        let older = ["amazon-linux-2", "amazon-linux-2-arm64", "amazon-linux-2-gpu"]
            .map(|variant| format!("{eks}/{variant}/recommended/image_id"));
        for path in &paths {
            let image = ssm.ok("GetParameter", json!({"Name": path})).await["Parameter"]["Value"].clone();
            account.ok("DescribeImages", &[("ImageId.1", image.as_str().unwrap())]).await;
        }
        for path in older {
            match minor <= 32 {
                true => drop(ssm.ok("GetParameter", json!({"Name": path})).await),
                false => assert_eq!(ssm.refused("GetParameter", json!({"Name": path})).await, "ParameterNotFound"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn prices_are_found_by_every_kind_of_filter() {
    let account = Account::new();
    let pricing = Service(&account, PRICING);
    let types = async |filters: Value| -> Vec<String> {
        let input = json!({"ServiceCode": "AmazonEC2", "Filters": filters, "FormatVersion": "aws_v1"});
        let (_, products) = pricing.pages("GetProducts", input, "PriceList").await;
        let instance_type = |product: &Value| {
            let product: Value = serde_json::from_str(product.as_str().unwrap()).unwrap();
            product["product"]["attributes"]["instanceType"].as_str().unwrap().to_owned()
        };
        products.iter().map(instance_type).collect()
    };
    let shared = json!({"Type": "TERM_MATCH", "Field": "tenancy", "Value": "Shared"});
    let by = |kind: &str, value: &str| json!([shared, {"Type": kind, "Field": "instanceType", "Value": value}]);
    assert_eq!(types(by("TERM_MATCH", "m5.large")).await, ["m5.large"]);
    assert_eq!(types(by("EQUALS", "m5.large")).await, ["m5.large"]);
    assert_eq!(types(by("ANY_OF", "m5.large, c5.large")).await, ["c5.large", "m5.large"]);
    assert!(types(by("CONTAINS", "m5.")).await.iter().all(|name| name.starts_with("m5.")));
    assert!(!types(by("NONE_OF", "m5.large,c5.large")).await.contains(&"m5.large".to_owned()));
    let two = json!([shared, {"Type": "TERM_MATCH", "Field": "vcpu", "Value": "2"}, {"Type": "TERM_MATCH", "Field": "memory", "Value": "8 GiB"}]);
    assert_eq!(types(two).await, ["m5.large", "m6g.large"]);
    for input in [
        json!({"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v2"}),
        json!({"ServiceCode": "AmazonEC2", "Filters": [{"Type": "LIKE", "Field": "a", "Value": "b"}]}),
        json!({"ServiceCode": "AmazonEC2", "MaxResults": 101}),
        json!({}),
    ] {
        assert_eq!(pricing.refused("GetProducts", input).await, "InvalidParameterException");
    }
    let token = json!({"ServiceCode": "AmazonEC2", "NextToken": "?"});
    assert_eq!(pricing.refused("GetProducts", token).await, "InvalidNextTokenException");
}

#[tokio::test(start_paused = true)]
async fn the_price_list_tells_its_attributes_and_their_values() {
    let account = Account::new();
    let pricing = Service(&account, PRICING);
    let services = pricing.ok("DescribeServices", json!({})).await;
    assert_eq!(
        (&services["FormatVersion"], &services["Services"][0]["ServiceCode"]),
        (&json!("aws_v1"), &json!("AmazonEC2"))
    );
    let names = services["Services"][0]["AttributeNames"].as_array().unwrap();
    for name in names {
        let input = json!({"ServiceCode": "AmazonEC2", "AttributeName": name});
        assert!(!pricing.pages("GetAttributeValues", input, "AttributeValues").await.1.is_empty(), "{name}");
    }
    let input = json!({"ServiceCode": "AmazonEC2", "AttributeName": "tenancy"});
    let values = pricing.ok("GetAttributeValues", input).await["AttributeValues"].clone();
    assert_eq!(values, json!([{"Value": "Dedicated"}, {"Value": "Shared"}]));
    let input = json!({"ServiceCode": "AmazonEC2", "AttributeName": "instanceType", "MaxResults": 10});
    let (sizes, types) = pricing.pages("GetAttributeValues", input, "AttributeValues").await;
    assert!(sizes.len() > 1 && types.contains(&json!({"Value": "m5.large"})));
    assert_eq!(
        pricing.refused("DescribeServices", json!({"ServiceCode": "AmazonS3"})).await,
        "InvalidParameterException"
    );
    let colour = json!({"ServiceCode": "AmazonEC2", "AttributeName": "colour"});
    assert_eq!(pricing.refused("GetAttributeValues", colour).await, "InvalidParameterException");
}

/// An STS call signed with this key, and with its token if it has one.
async fn sts(account: &Account, action: &str, more: &str, key: &str, token: &str) -> (u16, String) {
    let body = format!("Action={action}&Version=2011-06-15{more}");
    let mut request = http::Request::post("/").header(
        "authorization",
        format!("AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/sts/aws4_request, Signature=0"),
    );
    if !token.is_empty() {
        request = request.header("x-amz-security-token", token);
    }
    let response = account.ec2.handle(request.body(body.into()).unwrap()).await;
    (response.status().as_u16(), common::text(&response))
}

#[tokio::test(start_paused = true)]
async fn a_session_token_makes_its_bearer_the_same_user_for_a_while() {
    let account = Account::with(Config { families: vec!["m5".into()], iam: Iam::Enforce, ..Config::default() });
    let (status, body) = sts(&account, "GetSessionToken", "&DurationSeconds=900", "someone", "").await;
    assert_eq!(status, 200, "{body}");
    let value = |name: &str| values(&body, name).remove(0);
    let (key, token) = (value("AccessKeyId"), value("SessionToken"));
    assert!(key.starts_with("ASIA"));
    assert_eq!(value("Expiration"), "2026-01-01T00:15:00.000Z");
    let (_, told) = sts(&account, "GetCallerIdentity", "", &key, &token).await;
    assert_eq!(values(&told, "Arn"), ["arn:aws:iam::123456789012:user/someone"]);
    assert_eq!(sts(&account, "GetCallerIdentity", "", &key, "wrong").await.0, 403);
    assert_eq!(sts(&account, "GetSessionToken", "", &key, &token).await.0, 403, "a token gets no other");
    sleep(Duration::from_secs(900)).await;
    let (status, told) = sts(&account, "GetCallerIdentity", "", &key, &token).await;
    assert_eq!((status, values(&told, "Code")), (403, vec!["ExpiredToken".into()]));
    for seconds in ["899", "129601"] {
        let more = format!("&DurationSeconds={seconds}");
        let (status, told) = sts(&account, "GetSessionToken", &more, "someone", "").await;
        assert_eq!((status, values(&told, "Code")), (400, vec!["ValidationError".into()]), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn access_keys_belong_to_the_account() {
    let account = Account::new();
    let (_, body) = sts(&account, "GetAccessKeyInfo", "&AccessKeyId=AKIAIOSFODNN7EXAMPLE", "someone", "").await;
    assert_eq!(values(&body, "Account"), ["123456789012"]);
    let (status, body) = sts(&account, "GetAccessKeyInfo", "&AccessKeyId=short", "someone", "").await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["ValidationError".into()]));
}
