//! SQS as its documentation has it: queues and their attributes, messages, batches, long polls.

mod common;

use common::{Account, values};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// A queue of its own in a fresh account.
struct Scene {
    account: Account,
    url: String,
}

impl Scene {
    async fn new() -> Self {
        Self::with(json!({})).await
    }

    async fn with(attributes: Value) -> Self {
        let account = Account::new();
        let input = json!({"QueueName": "work", "Attributes": attributes});
        let url = account.sqs("CreateQueue", input).await["QueueUrl"].as_str().unwrap().to_owned();
        Self { account, url }
    }

    /// A call about the queue that must succeed.
    async fn ok(&self, action: &str, mut input: Value) -> Value {
        input["QueueUrl"] = json!(self.url);
        self.account.sqs(action, input).await
    }

    /// The code and message of a call about the queue that must be refused, and its status.
    async fn refused(&self, action: &str, mut input: Value) -> (u16, String, String) {
        if input.get("QueueUrl").is_none() {
            input["QueueUrl"] = json!(self.url);
        }
        refused(&self.account, action, input).await
    }

    async fn send(&self, body: &str) -> Value {
        self.ok("SendMessage", json!({"MessageBody": body})).await
    }

    async fn receive(&self, more: Value) -> Vec<Value> {
        let received = self.ok("ReceiveMessage", more).await;
        received["Messages"].as_array().cloned().unwrap_or_default()
    }

    async fn bodies(&self, more: Value) -> Vec<String> {
        let messages = self.receive(more).await;
        messages.iter().map(|message| message["Body"].as_str().unwrap().to_owned()).collect()
    }

    async fn attribute(&self, name: &str) -> Option<String> {
        let answer = self.ok("GetQueueAttributes", json!({"AttributeNames": [name]})).await;
        answer["Attributes"][name].as_str().map(str::to_owned)
    }

    async fn set(&self, name: &str, value: &str) {
        self.ok("SetQueueAttributes", json!({"Attributes": {name: value}})).await;
    }
}

async fn refused(account: &Account, action: &str, input: Value) -> (u16, String, String) {
    let (status, value, _) = account.json(&format!("AmazonSQS.{action}"), input).await;
    let code = value["__type"].as_str().unwrap_or_else(|| panic!("{action} was not refused: {value}"));
    let code = code.strip_prefix("com.amazonaws.sqs#").unwrap_or(code).to_owned();
    (status, code, value["message"].as_str().unwrap_or_default().to_owned())
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_queue_has_the_documented_defaults() {
    let scene = Scene::new().await;
    let answer = scene.ok("GetQueueAttributes", json!({"AttributeNames": ["All"]})).await;
    assert_eq!(
        answer["Attributes"],
        json!({
            "QueueArn": "arn:aws:sqs:us-west-2:123456789012:work",
            "ApproximateNumberOfMessages": "0",
            "ApproximateNumberOfMessagesNotVisible": "0",
            "ApproximateNumberOfMessagesDelayed": "0",
            "CreatedTimestamp": "1767225600",
            "LastModifiedTimestamp": "1767225600",
            "VisibilityTimeout": "30",
            "DelaySeconds": "0",
            "MessageRetentionPeriod": "345600",
            "ReceiveMessageWaitTimeSeconds": "0",
            "MaximumMessageSize": "1048576",
            "SqsManagedSseEnabled": "true",
        })
    );
    assert_eq!(scene.ok("GetQueueAttributes", json!({})).await, json!({}), "nothing is asked for");
    let unknown = scene.refused("GetQueueAttributes", json!({"AttributeNames": ["Colour"]})).await;
    assert_eq!((unknown.0, unknown.1.as_str()), (400, "InvalidAttributeName"));
    seconds(5).await;
    scene.set("VisibilityTimeout", "40").await;
    assert_eq!(scene.attribute("LastModifiedTimestamp").await.as_deref(), Some("1767225605"));
    assert_eq!(scene.attribute("CreatedTimestamp").await.as_deref(), Some("1767225600"));
}

#[tokio::test(start_paused = true)]
async fn attributes_have_their_ranges() {
    let scene = Scene::new().await;
    for (name, lowest, highest) in [
        ("VisibilityTimeout", 0_i64, 43_200_i64),
        ("DelaySeconds", 0, 900),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("MaximumMessageSize", 1024, 1_048_576),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ] {
        for value in [lowest, highest] {
            scene.set(name, &value.to_string()).await;
            assert_eq!(scene.attribute(name).await, Some(value.to_string()), "{name}");
        }
        for value in [(lowest - 1).to_string(), (highest + 1).to_string(), "many".into(), String::new()] {
            let (status, code, message) =
                scene.refused("SetQueueAttributes", json!({"Attributes": {name: value}})).await;
            assert_eq!((status, code.as_str()), (400, "InvalidAttributeValue"), "{name}={value}");
            assert!(message.contains(name), "{message}");
        }
    }
    for (name, value, expected) in [
        ("Colour", "red", "InvalidAttributeName"),
        ("QueueArn", "arn", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("SqsManagedSseEnabled", "perhaps", "InvalidAttributeValue"),
        ("FifoQueue", "true", "InvalidAttributeValue"),
        ("Policy", "{", "InvalidAttributeValue"),
    ] {
        let (_, code, _) = scene.refused("SetQueueAttributes", json!({"Attributes": {name: value}})).await;
        assert_eq!(code, expected, "{name}");
    }
    assert_eq!(scene.refused("SetQueueAttributes", json!({})).await.1, "MissingParameter");
}

#[tokio::test(start_paused = true)]
async fn one_kind_of_encryption_at_a_time() {
    let scene = Scene::new().await;
    scene.set("KmsMasterKeyId", "alias/mine").await;
    assert_eq!(scene.attribute("SqsManagedSseEnabled").await.as_deref(), Some("false"));
    scene.set("SqsManagedSseEnabled", "true").await;
    assert_eq!(scene.attribute("KmsMasterKeyId").await, None);
    let both = json!({"Attributes": {"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"}});
    assert_eq!(scene.refused("SetQueueAttributes", both).await.1, "InvalidAttributeValue");
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_created_again_only_with_the_same_attributes() {
    let scene = Scene::with(json!({"VisibilityTimeout": "60"})).await;
    let same = json!({"QueueName": "work", "Attributes": {"VisibilityTimeout": "60"}, "tags": {"a": "b"}});
    assert_eq!(scene.account.sqs("CreateQueue", same).await["QueueUrl"], json!(scene.url));
    for attributes in
        [json!({"VisibilityTimeout": "61"}), json!({"VisibilityTimeout": "60", "DelaySeconds": "1"}), json!({})]
    {
        let input = json!({"QueueName": "work", "Attributes": attributes});
        let (status, value, response) = scene.account.json("AmazonSQS.CreateQueue", input).await;
        assert_eq!((status, &value["__type"]), (400, &json!("com.amazonaws.sqs#QueueNameExists")), "{attributes}");
        assert_eq!(response.headers()["x-amzn-query-error"], "QueueAlreadyExists;Sender");
    }
    for name in ["", "with.dot", "with space", &"x".repeat(81)] {
        let (_, code, _) = refused(&scene.account, "CreateQueue", json!({"QueueName": name})).await;
        let expected = if name.is_empty() { "MissingParameter" } else { "InvalidParameterValue" };
        assert_eq!(code, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_name_can_be_used_after_sixty_seconds() {
    let scene = Scene::new().await;
    scene.ok("DeleteQueue", json!({})).await;
    let (status, value, response) =
        scene.account.json("AmazonSQS.SendMessage", json!({"QueueUrl": scene.url, "MessageBody": "x"})).await;
    assert_eq!((status, &value["__type"]), (400, &json!("com.amazonaws.sqs#QueueDoesNotExist")));
    assert_eq!(response.headers()["x-amzn-query-error"], "AWS.SimpleQueueService.NonExistentQueue;Sender");
    seconds(59).await;
    let again = json!({"QueueName": "work"});
    let (status, code, _) = refused(&scene.account, "CreateQueue", again.clone()).await;
    assert_eq!((status, code.as_str()), (400, "QueueDeletedRecently"));
    seconds(1).await;
    scene.account.sqs("CreateQueue", again).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_purged_once_in_sixty_seconds() {
    let scene = Scene::new().await;
    for body in ["a", "b", "c"] {
        scene.send(body).await;
    }
    scene.receive(json!({})).await;
    scene.ok("PurgeQueue", json!({})).await;
    assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((0, 0, 0)), "those in flight are gone too");
    seconds(59).await;
    assert_eq!(scene.refused("PurgeQueue", json!({})).await.1, "PurgeQueueInProgress");
    seconds(1).await;
    scene.ok("PurgeQueue", json!({})).await;
}

#[tokio::test(start_paused = true)]
async fn addresses_have_to_be_those_of_a_queue() {
    let scene = Scene::new().await;
    for (url, expected) in [
        ("work", "InvalidAddress"),
        ("https://sqs.us-west-2.amazonaws.com/123456789012/other", "QueueDoesNotExist"),
        ("https://sqs.us-west-2.amazonaws.com/210987654321/work", "QueueDoesNotExist"),
        ("", "MissingParameter"),
    ] {
        let (_, code, _) = scene.refused("ListQueueTags", json!({"QueueUrl": url})).await;
        assert_eq!(code, expected, "{url}");
    }
    let owned = |owner: &str| json!({"QueueName": "work", "QueueOwnerAWSAccountId": owner});
    assert_eq!(scene.account.sqs("GetQueueUrl", owned("123456789012")).await["QueueUrl"], json!(scene.url));
    assert_eq!(refused(&scene.account, "GetQueueUrl", owned("210987654321")).await.1, "QueueDoesNotExist");
}

#[tokio::test(start_paused = true)]
async fn queues_are_listed_by_prefix_and_in_pages() {
    let account = Account::new();
    for index in 0..7 {
        account.sqs("CreateQueue", json!({"QueueName": format!("page-{index}")})).await;
    }
    let all = account.sqs("ListQueues", json!({"QueueNamePrefix": "page-"})).await;
    assert_eq!(all["QueueUrls"].as_array().unwrap().len(), 7);
    assert!(all.get("NextToken").is_none(), "there is no token without MaxResults");
    let (mut token, mut sizes) = (Value::Null, Vec::new());
    loop {
        let mut input = json!({"QueueNamePrefix": "page-", "MaxResults": 3});
        if !token.is_null() {
            input["NextToken"] = token.clone();
        }
        let page = account.sqs("ListQueues", input).await;
        sizes.push(page["QueueUrls"].as_array().unwrap().len());
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(account.sqs("ListQueues", json!({"QueueNamePrefix": "none"})).await, json!({}));
    for input in [json!({"MaxResults": 0}), json!({"MaxResults": 1001}), json!({"MaxResults": 1, "NextToken": "?"})] {
        assert_eq!(refused(&account, "ListQueues", input).await.1, "InvalidParameterValue");
    }
}

#[tokio::test(start_paused = true)]
async fn queues_have_tags() {
    let scene = Scene::new().await;
    assert_eq!(scene.ok("ListQueueTags", json!({})).await, json!({}));
    scene.ok("TagQueue", json!({"Tags": {"team": "a", "stage": "test"}})).await;
    scene.ok("TagQueue", json!({"Tags": {"team": "b"}})).await;
    scene.ok("UntagQueue", json!({"TagKeys": ["stage", "none"]})).await;
    assert_eq!(scene.ok("ListQueueTags", json!({})).await, json!({"Tags": {"team": "b"}}));
    let many: serde_json::Map<String, Value> = (0..50).map(|index| (format!("k{index}"), json!("v"))).collect();
    assert_eq!(scene.refused("TagQueue", json!({"Tags": many})).await.1, "InvalidParameterValue");
    assert_eq!(scene.refused("TagQueue", json!({"Tags": {"aws:x": "y"}})).await.1, "InvalidParameterValue");
    assert_eq!(scene.refused("TagQueue", json!({})).await.1, "MissingParameter");
}

#[tokio::test(start_paused = true)]
async fn digests_are_those_that_sdks_compute() {
    let scene = Scene::new().await;
    let attributes = json!({
        "color": {"DataType": "String.favourite", "StringValue": "red"},
        "count": {"DataType": "Number", "StringValue": "1.5e3"},
        "blob": {"DataType": "Binary", "BinaryValue": "AAH/"},
    });
    let trace =
        json!({"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}});
    let input = json!({"MessageBody": "This is a test message", "MessageAttributes": attributes, "MessageSystemAttributes": trace});
    let sent = scene.ok("SendMessage", input).await;
    // Computed apart from this program, with Python's hashlib after AWS's description.
    assert_eq!(sent["MD5OfMessageBody"], "fafb00f5732ab283681e124bf8747ed1");
    assert_eq!(sent["MD5OfMessageAttributes"], "c4e8fde3e697cec81aea0b178dc9bdcc");
    assert_eq!(sent["MD5OfMessageSystemAttributes"], "62a56dd927315f2b2e12832b84617ea5");
    // As SQS itself once answered.
    let known = json!({"Count": {"DataType": "Number", "StringValue": "1"}, "Foo": {"DataType": "String", "StringValue": "Bar"}});
    let input = json!({"MessageBody": "x", "MessageAttributes": known, "DelaySeconds": 900});
    assert_eq!(scene.ok("SendMessage", input).await["MD5OfMessageAttributes"], "324758f82d026ac6ec5b31a3b192d1e3");
    let asked = json!({"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["AWSTraceHeader"]});
    let message = &scene.receive(asked).await[0];
    assert_eq!(message["MD5OfBody"], "fafb00f5732ab283681e124bf8747ed1");
    assert_eq!(message["MD5OfMessageAttributes"], "c4e8fde3e697cec81aea0b178dc9bdcc");
    assert_eq!(message["MessageAttributes"], attributes);
    assert_eq!(message["Attributes"], json!({"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793"}));
}

#[tokio::test(start_paused = true)]
async fn receivers_choose_what_they_are_told() {
    let scene = Scene::with(json!({"VisibilityTimeout": "0"})).await;
    let value = |text: &str| json!({"DataType": "String", "StringValue": text});
    let attributes = json!({"bar.one": value("1"), "bar.two": value("2"), "other": value("3")});
    scene.ok("SendMessage", json!({"MessageBody": "x", "MessageAttributes": attributes})).await;
    let names = |message: &Value| -> Vec<String> {
        message["MessageAttributes"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    for (asked, expected) in [
        (json!([]), vec![]),
        (json!(["All"]), vec!["bar.one", "bar.two", "other"]),
        (json!([".*"]), vec!["bar.one", "bar.two", "other"]),
        (json!(["bar.*"]), vec!["bar.one", "bar.two"]),
        (json!(["other", "none"]), vec!["other"]),
    ] {
        let message = &scene.receive(json!({"MessageAttributeNames": asked})).await[0];
        assert_eq!(names(message), expected, "{asked}");
        assert_eq!(message.get("MD5OfMessageAttributes").is_some(), !expected.is_empty());
        assert!(message.get("Attributes").is_none(), "system attributes were not asked for");
    }
    let message = &scene.receive(json!({"AttributeNames": ["All"]})).await[0];
    let system = message["Attributes"].as_object().unwrap();
    assert_eq!(system["ApproximateReceiveCount"], "6");
    assert_eq!(system["SentTimestamp"], "1767225600000");
    assert_eq!(system["ApproximateFirstReceiveTimestamp"], "1767225600000");
    assert!(system.contains_key("SenderId"));
    assert_eq!(system.len(), 4, "a plain message has no others: {system:?}");
    let unknown = scene.refused("ReceiveMessage", json!({"MessageSystemAttributeNames": ["Colour"]})).await;
    assert_eq!(unknown.1, "InvalidAttributeName");
}

#[tokio::test(start_paused = true)]
async fn wrong_attributes_are_refused() {
    let scene = Scene::new().await;
    let good = json!({"DataType": "String", "StringValue": "v"});
    let eleven: serde_json::Map<String, Value> = (0..11).map(|index| (format!("n{index}"), good.clone())).collect();
    for attributes in [
        json!({"AWS.x": good}),
        json!({"amazon.x": good}),
        json!({".x": good}),
        json!({"x.": good}),
        json!({"x..y": good}),
        json!({"x y": good}),
        json!({"x".repeat(257): good}),
        json!({"x": {"StringValue": "v"}}),
        json!({"x": {"DataType": "Text", "StringValue": "v"}}),
        json!({"x": {"DataType": "String"}}),
        json!({"x": {"DataType": "String", "StringValue": ""}}),
        json!({"x": {"DataType": "String", "BinaryValue": "AA=="}}),
        json!({"x": {"DataType": "Binary", "BinaryValue": "%"}}),
        json!({"x": {"DataType": "Number", "StringValue": "many"}}),
        json!({"x": {"DataType": "Number", "StringValue": "1e127"}}),
        json!({"x": {"DataType": "Number", "StringValue": "9".repeat(39)}}),
        json!(eleven),
    ] {
        let input = json!({"MessageBody": "x", "MessageAttributes": attributes});
        let (status, code, message) = scene.refused("SendMessage", input).await;
        assert_eq!((status, code.as_str()), (400, "InvalidParameterValue"), "{attributes}");
        assert!(message.contains("attribute"), "{message}");
    }
    for system in [json!({"Other": good}), json!({"AWSTraceHeader": good})] {
        let input = json!({"MessageBody": "x", "MessageSystemAttributes": system});
        assert_eq!(scene.refused("SendMessage", input).await.1, "InvalidParameterValue", "{system}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_have_their_characters_and_sizes() {
    let scene = Scene::new().await;
    for body in ["\u{0}", "a\u{b}", "\u{1f}", "\u{fffe}", "x\u{ffff}"] {
        let (status, code, _) = scene.refused("SendMessage", json!({"MessageBody": body})).await;
        assert_eq!((status, code.as_str()), (400, "InvalidMessageContents"), "{}", body.escape_unicode());
    }
    for body in ["\t\n\r", " ", "\u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}"] {
        scene.send(body).await;
    }
    assert_eq!(scene.refused("SendMessage", json!({"MessageBody": ""})).await.1, "MissingParameter");
    scene.send(&"x".repeat(1 << 20)).await;
    let (_, code, message) = scene.refused("SendMessage", json!({"MessageBody": "x".repeat((1 << 20) + 1)})).await;
    assert_eq!(code, "InvalidParameterValue");
    assert!(message.contains("Message must be shorter than 1048576 bytes"), "{message}");
    // An attribute counts by name, type and value: 1 + 6 + 1.
    let with = |length: usize| json!({"MessageBody": "x".repeat(length), "MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}}});
    scene.set("MaximumMessageSize", "1024").await;
    scene.ok("SendMessage", with(1016)).await;
    assert_eq!(scene.refused("SendMessage", with(1017)).await.1, "InvalidParameterValue");
}

#[tokio::test(start_paused = true)]
async fn batches_succeed_and_fail_by_entry() {
    let scene = Scene::new().await;
    let entries = json!([{"Id": "good", "MessageBody": "one"}, {"Id": "bad", "MessageBody": "\u{1}"},
        {"Id": "late", "MessageBody": "two", "DelaySeconds": 901}]);
    let answer = scene.ok("SendMessageBatch", json!({"Entries": entries})).await;
    assert_eq!(answer["Successful"][0]["Id"], "good");
    assert_eq!(answer["Successful"][0]["MD5OfMessageBody"], "f97c5d29941bfb1b2fdab0874906ab82");
    let failed: Vec<(&Value, &Value, &Value)> = answer["Failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failed| (&failed["Id"], &failed["Code"], &failed["SenderFault"]))
        .collect();
    assert_eq!(
        failed,
        [
            (&json!("bad"), &json!("InvalidMessageContents"), &json!(true)),
            (&json!("late"), &json!("InvalidParameterValue"), &json!(true)),
        ]
    );
    let handle = scene.receive(json!({})).await[0]["ReceiptHandle"].clone();
    let entries = json!([{"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 100},
        {"Id": "b", "ReceiptHandle": "nonsense", "VisibilityTimeout": 1}, {"Id": "c", "ReceiptHandle": handle}]);
    let answer = scene.ok("ChangeMessageVisibilityBatch", json!({"Entries": entries})).await;
    assert_eq!(answer["Successful"], json!([{"Id": "a"}]));
    let codes: Vec<&Value> = answer["Failed"].as_array().unwrap().iter().map(|failed| &failed["Code"]).collect();
    assert_eq!(codes, ["ReceiptHandleIsInvalid", "MissingParameter"]);
    let entries = json!([{"Id": "a", "ReceiptHandle": handle}, {"Id": "b", "ReceiptHandle": ""}]);
    let answer = scene.ok("DeleteMessageBatch", json!({"Entries": entries})).await;
    assert_eq!((&answer["Successful"], &answer["Failed"][0]["Id"]), (&json!([{"Id": "a"}]), &json!("b")));
    assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn malformed_batches_are_refused_whole() {
    let scene = Scene::new().await;
    let entry = |id: &str, body: &str| json!({"Id": id, "MessageBody": body});
    let eleven: Vec<Value> = (0..11).map(|index| entry(&index.to_string(), "x")).collect();
    let half = "x".repeat(600_000);
    for (entries, code, older) in [
        (json!([]), "EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest"),
        (json!(eleven), "TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
        (
            json!([entry("a", "x"), entry("a", "y")]),
            "BatchEntryIdsNotDistinct",
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        ),
        (json!([entry("a b", "x")]), "InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId"),
        (json!([entry(&"a".repeat(81), "x")]), "InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId"),
        (
            json!([entry("a", &half), entry("b", &half)]),
            "BatchRequestTooLong",
            "AWS.SimpleQueueService.BatchRequestTooLong",
        ),
    ] {
        let input = json!({"QueueUrl": scene.url, "Entries": entries});
        let (status, value, response) = scene.account.json("AmazonSQS.SendMessageBatch", input).await;
        assert_eq!((status, &value["__type"]), (400, &json!(format!("com.amazonaws.sqs#{code}"))));
        assert_eq!(response.headers()["x-amzn-query-error"], format!("{older};Sender"));
    }
    assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn delays_are_the_queues_or_the_messages_own() {
    let scene = Scene::with(json!({"DelaySeconds": "30"})).await;
    scene.send("queue").await;
    scene.ok("SendMessage", json!({"MessageBody": "own", "DelaySeconds": 5})).await;
    scene.ok("SendMessage", json!({"MessageBody": "none", "DelaySeconds": 0})).await;
    assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((1, 0, 2)));
    assert_eq!(scene.bodies(json!({"WaitTimeSeconds": 20})).await, ["none"]);
    assert_eq!(scene.bodies(json!({"WaitTimeSeconds": 20})).await, ["own"]);
    assert_eq!(scene.account.elapsed_ms(), 5_000);
    // A changed delay of a standard queue concerns later messages alone.
    scene.set("DelaySeconds", "0").await;
    assert_eq!(scene.bodies(json!({})).await, Vec::<String>::new());
    seconds(25).await;
    assert!(scene.bodies(json!({"MaxNumberOfMessages": 10})).await.contains(&"queue".to_owned()));
    assert_eq!(
        scene.refused("SendMessage", json!({"MessageBody": "x", "DelaySeconds": -1})).await.1,
        "InvalidParameterValue"
    );
}

#[tokio::test(start_paused = true)]
async fn visibility_can_be_changed_while_a_message_is_in_flight_and_for_twelve_hours() {
    let scene = Scene::new().await;
    scene.send("x").await;
    let handle = scene.receive(json!({"VisibilityTimeout": 10})).await[0]["ReceiptHandle"].clone();
    let change = |seconds: i64| json!({"ReceiptHandle": handle, "VisibilityTimeout": seconds});
    seconds(9).await;
    scene.ok("ChangeMessageVisibility", change(20)).await;
    seconds(19).await;
    assert_eq!(scene.bodies(json!({})).await, Vec::<String>::new(), "the twenty seconds count from the call");
    let (_, code, message) = scene.refused("ChangeMessageVisibility", change(43_200)).await;
    assert_eq!(code, "InvalidParameterValue", "28 seconds have passed since the receive");
    assert!(message.contains("Total VisibilityTimeout"), "{message}");
    scene.ok("ChangeMessageVisibility", change(43_172)).await;
    scene.ok("ChangeMessageVisibility", change(0)).await;
    assert_eq!(scene.refused("ChangeMessageVisibility", change(5)).await.1, "MessageNotInflight");
    let received = scene.receive(json!({})).await;
    let newer = received[0]["ReceiptHandle"].clone();
    assert_ne!(newer, handle, "each receive has a handle of its own");
    assert_eq!(scene.refused("ChangeMessageVisibility", change(5)).await.1, "InvalidParameterValue");
    scene.ok("DeleteMessage", json!({"ReceiptHandle": newer})).await;
    scene.ok("DeleteMessage", json!({"ReceiptHandle": newer})).await;
    let gone = json!({"ReceiptHandle": newer, "VisibilityTimeout": 5});
    assert_eq!(scene.refused("ChangeMessageVisibility", gone).await.1, "InvalidParameterValue");
    for input in [
        json!({"ReceiptHandle": "x", "VisibilityTimeout": 5}),
        json!({"ReceiptHandle": "AQEB", "VisibilityTimeout": 5}),
    ] {
        assert_eq!(scene.refused("ChangeMessageVisibility", input).await.1, "ReceiptHandleIsInvalid");
    }
    for timeout in [-1, 43_201] {
        assert_eq!(scene.refused("ChangeMessageVisibility", change(timeout)).await.1, "InvalidParameterValue");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_can_be_deleted_after_its_timeout_unless_it_was_received_again() {
    let scene = Scene::with(json!({"VisibilityTimeout": "5"})).await;
    scene.send("x").await;
    let first = scene.receive(json!({})).await[0]["ReceiptHandle"].clone();
    seconds(6).await;
    let second = scene.receive(json!({})).await[0]["ReceiptHandle"].clone();
    scene.ok("DeleteMessage", json!({"ReceiptHandle": first})).await;
    assert_eq!(
        scene.account.ec2.cloud().queue_counts("work"),
        Some((0, 1, 0)),
        "an old handle succeeds without effect"
    );
    seconds(6).await;
    scene.ok("DeleteMessage", json!({"ReceiptHandle": second})).await;
    assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn the_queues_own_wait_time_makes_every_receive_a_long_poll() {
    let scene = Scene::with(json!({"ReceiveMessageWaitTimeSeconds": "12"})).await;
    assert_eq!(scene.bodies(json!({})).await, Vec::<String>::new());
    assert_eq!(scene.account.elapsed_ms(), 12_000);
    assert_eq!(scene.bodies(json!({"WaitTimeSeconds": 0})).await, Vec::<String>::new());
    assert_eq!(scene.account.elapsed_ms(), 12_000, "zero is a short poll");
}

#[tokio::test(start_paused = true)]
async fn a_poll_is_told_that_its_queue_was_deleted() {
    let scene = Scene::new().await;
    let poll = scene.account.json("AmazonSQS.ReceiveMessage", json!({"QueueUrl": scene.url, "WaitTimeSeconds": 20}));
    let later = async {
        seconds(3).await;
        scene.account.sqs("DeleteQueue", json!({"QueueUrl": scene.url})).await
    };
    let ((status, value, _), _) = tokio::join!(poll, later);
    assert_eq!((status, &value["__type"]), (400, &json!("com.amazonaws.sqs#QueueDoesNotExist")));
    assert_eq!(scene.account.elapsed_ms(), 3_000);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_polls_share_the_messages_that_come() {
    let scene = Scene::new().await;
    let polls = (0..1000).map(|_| scene.receive(json!({"WaitTimeSeconds": 20})));
    let sending = async {
        seconds(1).await;
        for index in 0..100 {
            scene.send(&index.to_string()).await;
        }
    };
    let polled = async {
        let mut received = Vec::new();
        for answer in futures(polls).await {
            received.extend(answer);
        }
        received
    };
    let (received, ()) = tokio::join!(polled, sending);
    let mut numbers: Vec<u32> =
        received.iter().map(|message| message["Body"].as_str().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "each message is received once");
    assert_eq!(scene.account.elapsed_ms(), 20_000, "the other polls wait their time");
}

/// All of these at once.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, answer) in waiting.iter_mut().filter(|(_, answer)| answer.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *answer = Some(value);
            }
        }
        match waiting.iter().all(|(_, answer)| answer.is_some()) {
            true => std::task::Poll::Ready(waiting.iter_mut().filter_map(|(_, answer)| answer.take()).collect()),
            false => std::task::Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn messages_expire_by_the_retention_of_now() {
    let scene = Scene::new().await;
    scene.send("old").await;
    seconds(100).await;
    scene.send("new").await;
    scene.set("MessageRetentionPeriod", "60").await;
    assert_eq!(scene.bodies(json!({"MaxNumberOfMessages": 10})).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn permissions_are_statements_of_the_policy() {
    let scene = Scene::new().await;
    let add =
        |label: &str, actions: Value| json!({"Label": label, "AWSAccountIds": ["111122223333"], "Actions": actions});
    scene.ok("AddPermission", add("share", json!(["SendMessage", "GetQueueUrl"]))).await;
    let policy: Value = serde_json::from_str(&scene.attribute("Policy").await.unwrap()).unwrap();
    let statement = &policy["Statement"][0];
    assert_eq!(statement["Sid"], "share");
    assert_eq!(statement["Effect"], "Allow");
    assert_eq!(statement["Principal"]["AWS"][0], "arn:aws:iam::111122223333:root");
    assert_eq!(statement["Action"], json!(["SQS:SendMessage", "SQS:GetQueueUrl"]));
    assert_eq!(statement["Resource"], "arn:aws:sqs:us-west-2:123456789012:work");
    assert_eq!(scene.refused("AddPermission", add("share", json!(["*"]))).await.1, "InvalidParameterValue");
    assert_eq!(scene.refused("AddPermission", add("other", json!(["DeleteQueue"]))).await.1, "InvalidParameterValue");
    let eight = json!([
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "GetQueueUrl",
        "PurgeQueue",
        "GetQueueAttributes",
        "ChangeMessageVisibility",
        "ListDeadLetterSourceQueues"
    ]);
    assert_eq!(scene.refused("AddPermission", add("eight", eight)).await.1, "OverLimit");
    assert_eq!(scene.refused("RemovePermission", json!({"Label": "none"})).await.1, "InvalidParameterValue");
    scene.ok("RemovePermission", json!({"Label": "share"})).await;
    assert_eq!(scene.attribute("Policy").await, None);
}

#[tokio::test(start_paused = true)]
async fn the_query_protocol_carries_everything_too() {
    let account = Account::new();
    let query = async |action: &str, params: &[(&str, &str)]| account.form("2012-11-05", action, params).await;
    let ok = async |action: &str, params: &[(&str, &str)]| {
        let (status, body) = query(action, params).await;
        assert_eq!(status, 200, "{action}: {body}");
        body
    };
    let create = [
        ("QueueName", "work"),
        ("Attribute.1.Name", "VisibilityTimeout"),
        ("Attribute.1.Value", "40"),
        ("Attributes.entry.1.key", "DelaySeconds"),
        ("Attributes.entry.1.value", "0"),
        ("Tag.1.Key", "team"),
        ("Tag.1.Value", "a"),
    ];
    let url = values(&ok("CreateQueue", &create).await, "QueueUrl").remove(0);
    let url = url.as_str();
    let asked = [("QueueUrl", url), ("AttributeName.1", "VisibilityTimeout"), ("AttributeName.2", "DelaySeconds")];
    let body = ok("GetQueueAttributes", &asked).await;
    assert_eq!(
        values(&body, "Attribute"),
        ["<Name>DelaySeconds</Name><Value>0</Value>", "<Name>VisibilityTimeout</Name><Value>40</Value>"]
    );
    let body = ok("ListQueueTags", &[("QueueUrl", url)]).await;
    assert_eq!(values(&body, "Tag"), ["<Key>team</Key><Value>a</Value>"]);
    ok("UntagQueue", &[("QueueUrl", url), ("TagKey.1", "team")]).await;
    let send = [
        ("QueueUrl", url),
        ("SendMessageBatchRequestEntry.1.Id", "a"),
        ("SendMessageBatchRequestEntry.1.MessageBody", "This is a test message"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.1.Name", "color"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType", "String.favourite"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue", "red"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.2.Name", "count"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.DataType", "Number"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.StringValue", "1.5e3"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.3.Name", "blob"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.3.Value.DataType", "Binary"),
        ("SendMessageBatchRequestEntry.1.MessageAttribute.3.Value.BinaryValue", "AAH/"),
        ("SendMessageBatchRequestEntry.2.Id", "b"),
        ("SendMessageBatchRequestEntry.2.MessageBody", "x"),
        ("SendMessageBatchRequestEntry.2.DelaySeconds", "901"),
    ];
    let body = ok("SendMessageBatch", &send).await;
    let successful = &values(&body, "SendMessageBatchResultEntry")[0];
    assert_eq!(values(successful, "MD5OfMessageAttributes"), ["c4e8fde3e697cec81aea0b178dc9bdcc"]);
    let failed = &values(&body, "BatchResultErrorEntry")[0];
    assert_eq!(
        (values(failed, "Id"), values(failed, "Code"), values(failed, "SenderFault")),
        (vec!["b".into()], vec!["InvalidParameterValue".into()], vec!["true".into()])
    );
    let receive =
        [("QueueUrl", url), ("MessageAttributeName.1", "All"), ("AttributeName.1", "ApproximateReceiveCount")];
    let body = ok("ReceiveMessage", &receive).await;
    assert_eq!(values(&body, "Attribute"), ["<Name>ApproximateReceiveCount</Name><Value>1</Value>"]);
    assert_eq!(
        values(&body, "MessageAttribute"),
        [
            "<Name>blob</Name><Value><BinaryValue>AAH/</BinaryValue><DataType>Binary</DataType></Value>",
            "<Name>color</Name><Value><DataType>String.favourite</DataType><StringValue>red</StringValue></Value>",
            "<Name>count</Name><Value><DataType>Number</DataType><StringValue>1.5e3</StringValue></Value>",
        ]
    );
    let share =
        [("QueueUrl", url), ("Label", "l"), ("AWSAccountId.1", "111122223333"), ("ActionName.1", "SendMessage")];
    ok("AddPermission", &share).await;
    ok("PurgeQueue", &[("QueueUrl", url)]).await;
    let (status, body) = query("PurgeQueue", &[("QueueUrl", url)]).await;
    assert_eq!(
        (status, values(&body, "Type"), values(&body, "Code")),
        (403, vec!["Sender".into()], vec!["AWS.SimpleQueueService.PurgeQueueInProgress".into()])
    );
    ok("DeleteQueue", &[("QueueUrl", url)]).await;
    let (_, body) = query("CreateQueue", &[("QueueName", "work")]).await;
    assert_eq!(values(&body, "Code"), ["AWS.SimpleQueueService.QueueDeletedRecently"]);
    let (status, body) = query("Nonsense", &[]).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["InvalidAction".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_query_may_be_sent_to_the_queues_own_address() {
    let scene = Scene::new().await;
    let body = "Action=SendMessage&Version=2012-11-05&MessageBody=here";
    let request = http::Request::post("/123456789012/work").body(body.into()).unwrap();
    assert_eq!(scene.account.ec2.handle(request).await.status(), 200);
    assert_eq!(scene.bodies(json!({})).await, ["here"]);
}

/// Not a bench: it fails only where a cost grows with the number of messages, which makes this take minutes.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_messages_cost_no_more_than_a_few() {
    let scene = Scene::new().await;
    for _ in 0..100_000 {
        scene.account.ec2.cloud().send_raw_message("work", "x").unwrap();
    }
    for _ in 0..3_000 {
        scene.send("x").await;
        let message = scene.receive(json!({})).await.remove(0);
        scene.ok("DeleteMessage", json!({"ReceiptHandle": message["ReceiptHandle"]})).await;
        assert_eq!(scene.account.ec2.cloud().queue_counts("work"), Some((100_000, 0, 0)));
    }
}
