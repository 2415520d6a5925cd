//! Dead-letter queues, and the tasks that move messages back.

mod common;

use common::Account;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const WORK: &str = "arn:aws:sqs:us-west-2:123456789012:work";
const DEAD: &str = "arn:aws:sqs:us-west-2:123456789012:dead";

/// A queue `work` whose messages go to `dead` after two receives.
struct Scene {
    account: Account,
}

fn url(name: &str) -> String {
    format!("https://sqs.us-west-2.amazonaws.com/123456789012/{name}")
}

fn redrive(target: &str, count: impl Into<Value>) -> String {
    json!({"deadLetterTargetArn": target, "maxReceiveCount": count.into()}).to_string()
}

impl Scene {
    async fn new() -> Self {
        let scene = Self { account: Account::new() };
        scene.create("dead", json!({})).await;
        scene.create("work", json!({"RedrivePolicy": redrive(DEAD, 2), "VisibilityTimeout": "0"})).await;
        scene
    }

    async fn create(&self, name: &str, attributes: Value) {
        self.account.sqs("CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await;
    }

    async fn send(&self, name: &str, body: &str) -> Value {
        self.account.sqs("SendMessage", json!({"QueueUrl": url(name), "MessageBody": body})).await
    }

    async fn receive(&self, name: &str) -> Vec<Value> {
        let input = json!({"QueueUrl": url(name), "MaxNumberOfMessages": 10, "AttributeNames": ["All"]});
        self.account.sqs("ReceiveMessage", input).await["Messages"].as_array().cloned().unwrap_or_default()
    }

    /// Receives until what is in `work` is dead.
    async fn bury(&self) {
        for _ in 0..3 {
            self.receive("work").await;
        }
    }

    async fn refused(&self, action: &str, input: Value) -> (u16, String, String) {
        let (status, value, _) = self.account.json(&format!("AmazonSQS.{action}"), input).await;
        let code = value["__type"].as_str().unwrap_or_else(|| panic!("{action} was not refused: {value}"));
        let code = code.rsplit('#').next().unwrap().to_owned();
        (status, code, value["message"].as_str().unwrap_or_default().to_owned())
    }

    fn counts(&self, name: &str) -> (usize, usize, usize) {
        self.account.ec2.cloud().queue_counts(name).unwrap()
    }

    async fn task(&self) -> Value {
        self.account.sqs("ListMessageMoveTasks", json!({"SourceArn": DEAD})).await["Results"][0].clone()
    }
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_received_too_often_goes_to_the_dead_letter_queue() {
    let scene = Scene::new().await;
    let sent = scene.send("work", "poison").await;
    seconds(3).await;
    for count in ["1", "2"] {
        assert_eq!(scene.receive("work").await[0]["Attributes"]["ApproximateReceiveCount"], count);
    }
    assert_eq!(scene.receive("work").await.len(), 0);
    let dead = scene.receive("dead").await;
    assert_eq!((&dead[0]["Body"], &dead[0]["MessageId"]), (&json!("poison"), &sent["MessageId"]));
    let attributes = &dead[0]["Attributes"];
    assert_eq!(attributes["DeadLetterQueueSourceArn"], WORK);
    assert_eq!(attributes["ApproximateReceiveCount"], "3", "receives are counted across all queues");
    assert_eq!(attributes["SentTimestamp"], "1767225600000", "in a standard queue a message keeps its age");
    assert_eq!(scene.counts("work"), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_message_expires_by_when_it_was_sent_first() {
    let scene = Scene::new().await;
    scene.send("work", "x").await;
    seconds(50).await;
    scene.bury().await;
    let input = json!({"QueueUrl": url("dead"), "Attributes": {"MessageRetentionPeriod": "60"}});
    scene.account.sqs("SetQueueAttributes", input).await;
    seconds(10).await;
    assert_eq!(scene.counts("dead"), (1, 0, 0));
    seconds(1).await;
    assert_eq!(scene.counts("dead"), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_polls_the_dead_letter_queue_is_woken() {
    let scene = Scene::new().await;
    scene.send("work", "x").await;
    let poll = scene.account.sqs("ReceiveMessage", json!({"QueueUrl": url("dead"), "WaitTimeSeconds": 20}));
    let later = async {
        seconds(2).await;
        scene.bury().await;
    };
    let (received, ()) = tokio::join!(poll, later);
    assert_eq!((&received["Messages"][0]["Body"], scene.account.elapsed_ms()), (&json!("x"), 2_000));
}

#[tokio::test(start_paused = true)]
async fn a_redrive_policy_names_a_queue_of_the_same_kind_and_a_count() {
    let scene = Scene::new().await;
    scene.create("d.fifo", json!({"FifoQueue": "true"})).await;
    scene.create("closed", json!({"RedriveAllowPolicy": json!({"redrivePermission": "denyAll"}).to_string()})).await;
    let by_queue = json!({"redrivePermission": "byQueue", "sourceQueueArns": [WORK]}).to_string();
    scene.create("mine", json!({"RedriveAllowPolicy": by_queue})).await;
    let arn = |name: &str| format!("arn:aws:sqs:us-west-2:123456789012:{name}");
    let set = |name: &str, policy: &str| json!({"QueueUrl": url(name), "Attributes": {"RedrivePolicy": policy}});
    for (name, policy) in [
        ("work", "{".to_owned()),
        ("work", "[]".to_owned()),
        ("work", json!({"maxReceiveCount": 3}).to_string()),
        ("work", json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": 3, "other": 1}).to_string()),
        ("work", redrive(DEAD, 0)),
        ("work", redrive(DEAD, 1001)),
        ("work", redrive(DEAD, "many")),
        ("work", redrive(&arn("none"), 3)),
        ("work", redrive("arn:aws:sqs:us-east-1:123456789012:dead", 3)),
        ("work", redrive(&arn("d.fifo"), 3)),
        ("work", redrive(&arn("closed"), 3)),
        ("dead", redrive(&arn("mine"), 3)),
    ] {
        let (status, code, message) = scene.refused("SetQueueAttributes", set(name, &policy)).await;
        assert_eq!((status, code.as_str()), (400, "InvalidParameterValue"), "{policy}");
        assert!(message.contains("RedrivePolicy"), "{message}");
    }
    for policy in [redrive(&arn("mine"), "1000"), redrive(DEAD, 1), json!({"deadLetterTargetArn": DEAD}).to_string()] {
        scene.account.sqs("SetQueueAttributes", set("work", &policy)).await;
    }
    let asked = json!({"QueueUrl": url("work"), "AttributeNames": ["RedrivePolicy"]});
    let answer = scene.account.sqs("GetQueueAttributes", asked.clone()).await;
    let policy: Value = serde_json::from_str(answer["Attributes"]["RedrivePolicy"].as_str().unwrap()).unwrap();
    assert_eq!(policy, json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": 10}), "ten by default");
    scene.account.sqs("SetQueueAttributes", set("work", "")).await;
    assert_eq!(scene.account.sqs("GetQueueAttributes", asked).await, json!({}), "an empty text takes it away");
    for policy in [
        json!({}),
        json!({"redrivePermission": "perhaps"}),
        json!({"redrivePermission": "byQueue"}),
        json!({"redrivePermission": "byQueue", "sourceQueueArns": vec![WORK; 11]}),
        json!({"redrivePermission": "allowAll", "sourceQueueArns": [WORK]}),
    ] {
        let input = json!({"QueueUrl": url("dead"), "Attributes": {"RedriveAllowPolicy": policy.to_string()}});
        assert_eq!(scene.refused("SetQueueAttributes", input).await.1, "InvalidParameterValue", "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn sources_of_a_dead_letter_queue_are_listed_in_pages() {
    let scene = Scene::new().await;
    scene.create("more", json!({"RedrivePolicy": redrive(DEAD, 5)})).await;
    let list = json!({"QueueUrl": url("dead")});
    let all = scene.account.sqs("ListDeadLetterSourceQueues", list).await;
    assert_eq!(all, json!({"queueUrls": [url("more"), url("work")]}));
    let first =
        scene.account.sqs("ListDeadLetterSourceQueues", json!({"QueueUrl": url("dead"), "MaxResults": 1})).await;
    assert_eq!(first["queueUrls"], json!([url("more")]));
    let input = json!({"QueueUrl": url("dead"), "MaxResults": 1, "NextToken": first["NextToken"]});
    let second = scene.account.sqs("ListDeadLetterSourceQueues", input).await;
    assert_eq!(second, json!({"queueUrls": [url("work")]}));
    let none = scene.account.sqs("ListDeadLetterSourceQueues", json!({"QueueUrl": url("work")})).await;
    assert_eq!(none, json!({"queueUrls": []}));
}

#[tokio::test(start_paused = true)]
async fn a_task_moves_messages_back_to_where_they_came_from() {
    let scene = Scene::new().await;
    let sent = scene.send("work", "again").await;
    scene.bury().await;
    seconds(10).await;
    scene.account.sqs("StartMessageMoveTask", json!({"SourceArn": DEAD})).await;
    seconds(1).await;
    let task = scene.task().await;
    assert_eq!(
        task,
        json!({"Status": "COMPLETED", "SourceArn": DEAD, "ApproximateNumberOfMessagesMoved": 1,
               "ApproximateNumberOfMessagesToMove": 1, "StartedTimestamp": 1_767_225_610_000_i64})
    );
    assert_eq!((scene.counts("dead"), scene.counts("work")), ((0, 0, 0), (1, 0, 0)));
    let message = &scene.receive("work").await[0];
    assert_ne!(message["MessageId"], sent["MessageId"], "a redriven message is a new one");
    assert_eq!(message["Attributes"]["SentTimestamp"], "1767225610000");
    assert_eq!(message["Attributes"]["ApproximateReceiveCount"], "1");
    assert!(message["Attributes"].get("DeadLetterQueueSourceArn").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_task_keeps_its_rate_and_can_be_cancelled() {
    let scene = Scene::new().await;
    scene.create("other", json!({})).await;
    for _ in 0..10 {
        scene.send("dead", "x").await;
    }
    let start = json!({"SourceArn": DEAD, "DestinationArn": "arn:aws:sqs:us-west-2:123456789012:other",
        "MaxNumberOfMessagesPerSecond": 3});
    let handle = scene.account.sqs("StartMessageMoveTask", start.clone()).await["TaskHandle"].clone();
    sleep(Duration::from_millis(500)).await;
    assert_eq!((scene.counts("dead").0, scene.counts("other").0), (7, 3));
    sleep(Duration::from_millis(1000)).await;
    assert_eq!((scene.counts("dead").0, scene.counts("other").0), (4, 6));
    let (status, code, _) = scene.refused("StartMessageMoveTask", start).await;
    assert_eq!((status, code.as_str()), (400, "UnsupportedOperation"), "one at a time");
    let task = scene.task().await;
    assert_eq!((&task["Status"], &task["TaskHandle"]), (&json!("RUNNING"), &handle));
    assert_eq!(task["MaxNumberOfMessagesPerSecond"], 3);
    let cancelled = scene.account.sqs("CancelMessageMoveTask", json!({"TaskHandle": handle})).await;
    assert_eq!(cancelled, json!({"ApproximateNumberOfMessagesMoved": 6}));
    seconds(5).await;
    assert_eq!(scene.counts("other").0, 6);
    let task = scene.task().await;
    assert_eq!((&task["Status"], task.get("TaskHandle")), (&json!("CANCELLED"), None));
    assert_eq!(scene.refused("CancelMessageMoveTask", json!({"TaskHandle": handle})).await.1, "UnsupportedOperation");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_go_on_fails_and_tells_why() {
    let scene = Scene::new().await;
    scene.send("dead", "sent here by hand").await;
    scene.account.sqs("StartMessageMoveTask", json!({"SourceArn": DEAD})).await;
    seconds(1).await;
    let task = scene.task().await;
    assert_eq!((&task["Status"], &task["FailureReason"]), (&json!("FAILED"), &json!("CouldNotDetermineMessageSource")));
    assert_eq!(scene.counts("dead"), (1, 0, 0), "the message stays");
}

#[tokio::test(start_paused = true)]
async fn tasks_need_a_dead_letter_queue_that_exists() {
    let scene = Scene::new().await;
    let none = "arn:aws:sqs:us-west-2:123456789012:none";
    for (action, input, expected) in [
        ("StartMessageMoveTask", json!({}), (400, "MissingParameter")),
        ("StartMessageMoveTask", json!({"SourceArn": none}), (404, "ResourceNotFoundException")),
        ("StartMessageMoveTask", json!({"SourceArn": WORK}), (400, "InvalidParameterValue")),
        (
            "StartMessageMoveTask",
            json!({"SourceArn": DEAD, "DestinationArn": none}),
            (404, "ResourceNotFoundException"),
        ),
        ("StartMessageMoveTask", json!({"SourceArn": DEAD, "DestinationArn": DEAD}), (400, "InvalidParameterValue")),
        (
            "StartMessageMoveTask",
            json!({"SourceArn": DEAD, "MaxNumberOfMessagesPerSecond": 501}),
            (400, "InvalidParameterValue"),
        ),
        ("ListMessageMoveTasks", json!({"SourceArn": none}), (404, "ResourceNotFoundException")),
        ("ListMessageMoveTasks", json!({"SourceArn": DEAD, "MaxResults": 11}), (400, "InvalidParameterValue")),
        ("CancelMessageMoveTask", json!({"TaskHandle": "x"}), (400, "InvalidParameterValue")),
    ] {
        let (status, code, _) = scene.refused(action, input.clone()).await;
        assert_eq!((status, code.as_str()), expected, "{action} {input}");
    }
    assert_eq!(scene.account.sqs("ListMessageMoveTasks", json!({"SourceArn": DEAD})).await, json!({"Results": []}));
}

#[tokio::test(start_paused = true)]
async fn the_ten_latest_tasks_are_told_newest_first() {
    let scene = Scene::new().await;
    for _ in 0..12 {
        scene.account.sqs("StartMessageMoveTask", json!({"SourceArn": DEAD})).await;
        seconds(2).await;
    }
    let list = scene.account.sqs("ListMessageMoveTasks", json!({"SourceArn": DEAD, "MaxResults": 10})).await;
    let started: Vec<i64> =
        list["Results"].as_array().unwrap().iter().map(|task| task["StartedTimestamp"].as_i64().unwrap()).collect();
    assert_eq!(started.len(), 10);
    assert!(started.is_sorted_by(|newer, older| newer > older), "{started:?}");
    let one = scene.account.sqs("ListMessageMoveTasks", json!({"SourceArn": DEAD})).await;
    assert_eq!(one["Results"].as_array().unwrap().len(), 1, "one by default");
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_buries_in_order_and_frees_the_group() {
    let scene = Scene::new().await;
    scene.create("d.fifo", json!({"FifoQueue": "true"})).await;
    let policy = redrive("arn:aws:sqs:us-west-2:123456789012:d.fifo", 1);
    scene.create("w.fifo", json!({"FifoQueue": "true", "RedrivePolicy": policy, "VisibilityTimeout": "10"})).await;
    for body in ["1", "2"] {
        let input = json!({"QueueUrl": url("w.fifo"), "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body});
        scene.account.sqs("SendMessage", input).await;
    }
    let one = json!({"QueueUrl": url("w.fifo")});
    assert_eq!(scene.account.sqs("ReceiveMessage", one.clone()).await["Messages"][0]["Body"], "1");
    seconds(11).await;
    assert_eq!(scene.account.sqs("ReceiveMessage", one).await["Messages"][0]["Body"], "2", "the first is dead");
    let dead = scene.receive("d.fifo").await;
    assert_eq!((&dead[0]["Body"], &dead[0]["Attributes"]["MessageGroupId"]), (&json!("1"), &json!("g")));
    assert_eq!(dead[0]["Attributes"]["SentTimestamp"], "1767225611000", "in a FIFO queue its age starts anew");
}
