//! FIFO queues: groups, deduplication, repeated receives; and what standard queues make of groups.

mod common;

use common::Account;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

struct Fifo {
    account: Account,
    url: String,
}

impl Fifo {
    async fn new() -> Self {
        Self::with(json!({})).await
    }

    async fn with(mut attributes: Value) -> Self {
        let account = Account::new();
        attributes["FifoQueue"] = json!("true");
        let input = json!({"QueueName": "work.fifo", "Attributes": attributes});
        let url = account.sqs("CreateQueue", input).await["QueueUrl"].as_str().unwrap().to_owned();
        Self { account, url }
    }

    async fn ok(&self, action: &str, mut input: Value) -> Value {
        input["QueueUrl"] = json!(self.url);
        self.account.sqs(action, input).await
    }

    async fn refused(&self, action: &str, mut input: Value) -> (String, String) {
        input["QueueUrl"] = json!(self.url);
        refused(&self.account, action, input).await
    }

    async fn send(&self, group: &str, body: &str) -> Value {
        self.ok("SendMessage", json!({"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body}))
            .await
    }

    async fn receive(&self, max: u32) -> Vec<Value> {
        self.receive_with(json!({"MaxNumberOfMessages": max})).await
    }

    async fn receive_with(&self, input: Value) -> Vec<Value> {
        self.ok("ReceiveMessage", input).await["Messages"].as_array().cloned().unwrap_or_default()
    }

    async fn delete(&self, message: &Value) {
        self.ok("DeleteMessage", json!({"ReceiptHandle": message["ReceiptHandle"]})).await;
    }
}

async fn refused(account: &Account, action: &str, input: Value) -> (String, String) {
    let (status, value, _) = account.json(&format!("AmazonSQS.{action}"), input).await;
    assert_eq!(status, 400, "{action}: {value}");
    let code = value["__type"].as_str().unwrap().rsplit('#').next().unwrap().to_owned();
    (code, value["message"].as_str().unwrap().to_owned())
}

fn bodies(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["Body"].as_str().unwrap()).collect()
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_tells_so_in_its_name_and_its_attributes() {
    let fifo = Fifo::new().await;
    let names = ["FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"];
    let answer = fifo.ok("GetQueueAttributes", json!({"AttributeNames": names})).await;
    assert_eq!(
        answer["Attributes"],
        json!({"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
               "FifoThroughputLimit": "perQueue"})
    );
    for (name, fifo_queue) in
        [("work.fifo", None), ("plain", Some("true")), (".fifo", Some("true")), ("a.b.fifo", Some("true"))]
    {
        let attributes = fifo_queue.map_or(json!({}), |value| json!({"FifoQueue": value}));
        let input = json!({"QueueName": name, "Attributes": attributes});
        assert_eq!(refused(&fifo.account, "CreateQueue", input).await.0, "InvalidParameterValue", "{name}");
    }
    fifo.account.sqs("CreateQueue", json!({"QueueName": "plain", "Attributes": {"FifoQueue": "false"}})).await;
    for attributes in [
        json!({"FifoQueue": "false"}),
        json!({"DeduplicationScope": "group"}),
        json!({"FifoThroughputLimit": "perMessageGroupId"}),
        json!({"ContentBasedDeduplication": "yes"}),
    ] {
        let (code, _) = fifo.refused("SetQueueAttributes", json!({"Attributes": attributes})).await;
        assert_eq!(code, "InvalidAttributeValue", "{attributes}");
    }
    let high = json!({"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"});
    fifo.ok("SetQueueAttributes", json!({"Attributes": high})).await;
}

#[tokio::test(start_paused = true)]
async fn messages_need_a_group_and_a_way_to_tell_duplicates() {
    let fifo = Fifo::new().await;
    let (code, message) = fifo.refused("SendMessage", json!({"MessageBody": "x", "MessageDeduplicationId": "d"})).await;
    assert_eq!((code.as_str(), message.contains("MessageGroupId")), ("MissingParameter", true), "{message}");
    let (code, message) = fifo.refused("SendMessage", json!({"MessageBody": "x", "MessageGroupId": "g"})).await;
    assert_eq!((code.as_str(), message.contains("ContentBasedDeduplication")), ("InvalidParameterValue", true));
    for (group, id) in [("g g", "d"), ("g", "d d"), ("", "d"), ("g", ""), (&*"g".repeat(129), "d"), ("g", "ä")] {
        let input = json!({"MessageBody": "x", "MessageGroupId": group, "MessageDeduplicationId": id});
        assert_eq!(fifo.refused("SendMessage", input).await.0, "InvalidParameterValue", "{group} {id}");
    }
    let all = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~09azAZ";
    let input = json!({"MessageBody": "x", "MessageGroupId": all, "MessageDeduplicationId": all});
    fifo.ok("SendMessage", input).await;
    let delayed = json!({"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "e", "DelaySeconds": 1});
    assert_eq!(fifo.refused("SendMessage", delayed).await.0, "InvalidParameterValue", "delays are the queue's");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_locked_while_a_message_of_it_is_in_flight() {
    let fifo = Fifo::new().await;
    for (group, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3"), ("b", "b2")] {
        fifo.send(group, body).await;
    }
    let first = fifo.receive(1).await;
    assert_eq!(bodies(&first), ["a1"]);
    let second = fifo.receive(10).await;
    assert_eq!(bodies(&second), ["b1", "b2"], "group a is locked");
    assert_eq!(fifo.receive(10).await.len(), 0);
    fifo.delete(&first[0]).await;
    let third = fifo.receive(10).await;
    assert_eq!(bodies(&third), ["a2", "a3"]);
    fifo.delete(&second[0]).await;
    assert_eq!(fifo.receive(10).await.len(), 0, "b2 is still in flight");
}

#[tokio::test(start_paused = true)]
async fn as_many_as_possible_of_one_group_are_received_together() {
    let fifo = Fifo::new().await;
    for (group, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("b", "b2")] {
        fifo.send(group, body).await;
    }
    assert_eq!(bodies(&fifo.receive(10).await), ["a1", "a2", "b1", "b2", "c1"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_a_group_goes_on_in_its_order() {
    let fifo = Fifo::new().await;
    for body in ["1", "2", "3"] {
        fifo.send("g", body).await;
    }
    let received = fifo.receive_with(json!({"VisibilityTimeout": 10, "MaxNumberOfMessages": 2})).await;
    assert_eq!(bodies(&received), ["1", "2"]);
    fifo.delete(&received[1]).await;
    let poll = fifo.receive_with(json!({"WaitTimeSeconds": 20, "MaxNumberOfMessages": 10})).await;
    assert_eq!((bodies(&poll), fifo.account.elapsed_ms()), (vec!["1", "3"], 10_000));
    let (code, message) = fifo.refused("DeleteMessage", json!({"ReceiptHandle": received[0]["ReceiptHandle"]})).await;
    assert_eq!((code.as_str(), message.contains("The receipt handle has expired")), ("InvalidParameterValue", true));
    fifo.delete(&poll[0]).await;
    fifo.delete(&poll[0]).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_wakes_whoever_waits_for_the_group() {
    let fifo = Fifo::new().await;
    fifo.send("g", "1").await;
    fifo.send("g", "2").await;
    let first = fifo.receive(1).await;
    let later = async {
        seconds(4).await;
        fifo.delete(&first[0]).await;
    };
    let (second, ()) = tokio::join!(fifo.receive_with(json!({"WaitTimeSeconds": 20})), later);
    assert_eq!((bodies(&second), fifo.account.elapsed_ms()), (vec!["2"], 4_000));
}

#[tokio::test(start_paused = true)]
async fn duplicates_are_accepted_and_not_delivered_for_five_minutes() {
    let fifo = Fifo::new().await;
    let send = |body: &str| json!({"MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": "d"});
    let first = fifo.ok("SendMessage", send("one")).await;
    let received = fifo.receive(1).await;
    fifo.delete(&received[0]).await;
    seconds(299).await;
    let second = fifo.ok("SendMessage", send("two")).await;
    assert_eq!(second["SequenceNumber"], first["SequenceNumber"]);
    assert_eq!(second["MessageId"], first["MessageId"]);
    assert_eq!(fifo.receive(1).await.len(), 0, "also after the first was deleted");
    seconds(1).await;
    let third = fifo.ok("SendMessage", send("three")).await;
    assert_ne!(third["MessageId"], first["MessageId"]);
    assert_eq!(bodies(&fifo.receive(1).await), ["three"]);
}

#[tokio::test(start_paused = true)]
async fn the_content_tells_duplicates_where_the_queue_says_so() {
    let fifo = Fifo::with(json!({"ContentBasedDeduplication": "true"})).await;
    let send = |more: Value| {
        let mut input = json!({"MessageBody": "same", "MessageGroupId": "g"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    fifo.ok("SendMessage", send(json!({}))).await;
    fifo.ok("SendMessage", send(json!({"MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}}}))).await;
    // The SHA-256 of the body, given explicitly, is the same id.
    let digest = "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5";
    fifo.ok("SendMessage", send(json!({"MessageDeduplicationId": digest}))).await;
    fifo.ok("SendMessage", send(json!({"MessageDeduplicationId": "own"}))).await;
    let received = fifo.receive_with(json!({"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]})).await;
    let ids: Vec<&Value> = received.iter().map(|message| &message["Attributes"]["MessageDeduplicationId"]).collect();
    assert_eq!(ids, [digest, "own"]);
    assert_eq!(received[0]["Attributes"]["MessageGroupId"], "g");
}

#[tokio::test(start_paused = true)]
async fn duplicates_may_be_told_by_group_alone() {
    let fifo = Fifo::with(json!({"DeduplicationScope": "messageGroup"})).await;
    let send = |group: &str| json!({"MessageBody": group, "MessageGroupId": group, "MessageDeduplicationId": "d"});
    for group in ["a", "b", "a"] {
        fifo.ok("SendMessage", send(group)).await;
    }
    assert_eq!(bodies(&fifo.receive(10).await), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn sequence_numbers_have_twenty_digits_and_grow() {
    let fifo = Fifo::new().await;
    let mut numbers = Vec::new();
    for body in ["1", "2", "3"] {
        numbers.push(fifo.send("g", body).await["SequenceNumber"].as_str().unwrap().to_owned());
    }
    assert!(numbers.iter().all(|number| number.len() == 20), "{numbers:?}");
    assert!(numbers.is_sorted() && numbers[0] != numbers[1]);
    let message = &fifo.receive_with(json!({"AttributeNames": ["SequenceNumber"]})).await[0];
    assert_eq!(message["Attributes"]["SequenceNumber"], numbers[0]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_can_be_repeated_until_its_messages_are_touched() {
    let fifo = Fifo::new().await;
    for body in ["1", "2"] {
        fifo.send("g", body).await;
    }
    let attempt =
        |id: &str| json!({"MaxNumberOfMessages": 10, "VisibilityTimeout": 100, "ReceiveRequestAttemptId": id});
    let first = fifo.receive_with(attempt("t")).await;
    seconds(60).await;
    let again = fifo.receive_with(attempt("t")).await;
    assert_eq!(again, first, "the same messages and handles");
    assert_eq!(fifo.receive_with(attempt("u")).await.len(), 0);
    seconds(60).await;
    assert_eq!(fifo.receive(1).await.len(), 0, "the repetition has hidden them anew");
    fifo.delete(&first[0]).await;
    assert_eq!(fifo.receive_with(attempt("t")).await.len(), 0, "one of them is gone");
    assert_eq!(fifo.refused("ReceiveMessage", attempt("a b")).await.0, "InvalidParameterValue");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_forgotten_after_five_minutes() {
    let fifo = Fifo::new().await;
    fifo.send("g", "1").await;
    let attempt = json!({"VisibilityTimeout": 1000, "ReceiveRequestAttemptId": "t"});
    assert_eq!(fifo.receive_with(attempt.clone()).await.len(), 1);
    seconds(300).await;
    assert_eq!(fifo.receive_with(attempt).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_changed_delay_concerns_the_messages_that_are_there() {
    let fifo = Fifo::with(json!({"DelaySeconds": "100"})).await;
    fifo.send("g", "1").await;
    seconds(10).await;
    assert_eq!(fifo.receive(1).await.len(), 0);
    fifo.ok("SetQueueAttributes", json!({"Attributes": {"DelaySeconds": "15"}})).await;
    assert_eq!(bodies(&fifo.receive_with(json!({"WaitTimeSeconds": 20})).await), ["1"]);
    assert_eq!(fifo.account.elapsed_ms(), 15_000);
}

#[tokio::test(start_paused = true)]
async fn a_standard_queue_takes_groups_and_locks_nothing() {
    let account = Account::new();
    let url = account.sqs("CreateQueue", json!({"QueueName": "fair"})).await["QueueUrl"].clone();
    for body in ["1", "2"] {
        let sent =
            account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": body, "MessageGroupId": "tenant"})).await;
        assert!(sent.get("SequenceNumber").is_none());
    }
    for expected in ["1", "2"] {
        let asked = json!({"QueueUrl": url, "MessageSystemAttributeNames": ["MessageGroupId"]});
        let message = account.sqs("ReceiveMessage", asked).await["Messages"][0].clone();
        assert_eq!((&message["Body"], &message["Attributes"]["MessageGroupId"]), (&json!(expected), &json!("tenant")));
    }
    let input = json!({"QueueUrl": url, "MessageBody": "x", "MessageDeduplicationId": "d"});
    let (code, message) = refused(&account, "SendMessage", input).await;
    assert_eq!((code.as_str(), message.contains("MessageDeduplicationId")), ("InvalidParameterValue", true));
}
