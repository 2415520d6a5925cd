//! Many clients at once, on the program itself: a thousand long polls, what they take, and what is left afterwards.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const POLLS: usize = 1_000;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start() -> Self {
        // A connection takes a file on this side, too.
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit { current: maximum.map_or(Some(8_192), |most| Some(most.min(8_192))), maximum },
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-ec2"));
        // One heap for all threads, so that what is measured is what is kept and not how it is spread.
        let command = command.args(["--format", "json"]).env("MALLOC_ARENA_MAX", "1").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let address = started["endpointUrl"].as_str().unwrap().trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    async fn ask(&self, head: &str, body: &str) -> String {
        ask(self.address.clone(), head.to_owned(), body.to_owned()).await
    }

    async fn sqs(&self, action: &str, body: &str) -> String {
        self.ask(&format!("POST / HTTP/1.1\r\nx-amz-target: AmazonSQS.{action}"), body).await
    }

    /// What the program has in memory that is no file, in KiB.
    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    async fn until(&self, what: &str, ready: impl AsyncFn() -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !ready().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{what} has not come true"));
    }

    async fn waiting(&self) -> u64 {
        let health = self.ask("GET /_trysquare/health HTTP/1.1", "").await;
        let health: Value = serde_json::from_str(health.split_once("\r\n\r\n").unwrap().1).unwrap();
        health["waitingCalls"].as_u64().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ask(address: String, head: String, body: String) -> String {
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let length = body.len();
    let request = format!("{head}\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A hundred at a time, as a system's queue of connections that wait to be accepted may hold no more.
async fn polls(program: &Program, url: &str) -> JoinSet<String> {
    let mut polls = JoinSet::new();
    while polls.len() < POLLS {
        for _ in 0..100 {
            let head = "POST / HTTP/1.1\r\nx-amz-target: AmazonSQS.ReceiveMessage".to_owned();
            let body = format!(r#"{{"QueueUrl": "{url}", "WaitTimeSeconds": 20}}"#);
            polls.spawn(ask(program.address.clone(), head, body));
        }
        program.until("that all polls wait", async || program.waiting().await == polls.len() as u64).await;
    }
    polls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_long_polls_wait_get_a_message_each_and_leave_nothing_behind() {
    let program = Program::start();
    let created = program.sqs("CreateQueue", r#"{"QueueName": "many"}"#).await;
    let created: Value = serde_json::from_str(created.split_once("\r\n\r\n").unwrap().1).unwrap();
    let url = created["QueueUrl"].as_str().unwrap();
    let before = program.memory_kib();
    let mut afterwards = Vec::new();
    for round in 0..6 {
        let mut waiting = polls(&program, url).await;
        let during = program.memory_kib();
        // 64 KiB each would be the buffers of a careless server alone.
        assert!(during < before + POLLS as u64 * 64, "{before} KiB before, {during} KiB with {POLLS} polls");
        for batch in 0..POLLS / 10 {
            let entry = |number: usize| format!(r#"{{"Id": "{number}", "MessageBody": "{round} {batch} {number}"}}"#);
            let entries: Vec<String> = (0..10).map(entry).collect();
            let body = format!(r#"{{"QueueUrl": "{url}", "Entries": [{}]}}"#, entries.join(","));
            assert!(program.sqs("SendMessageBatch", &body).await.contains("Successful"));
        }
        let mut received = std::collections::BTreeSet::new();
        while let Some(answer) = waiting.join_next().await {
            let answer = answer.unwrap();
            let value: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert!(received.insert(value["Messages"][0]["Body"].as_str().unwrap().to_owned()), "{answer}");
        }
        assert_eq!(received.len(), POLLS);
        assert_eq!(program.waiting().await, 0);
        program.sqs("PurgeQueue", &format!(r#"{{"QueueUrl": "{url}"}}"#)).await;
        // The journal keeps calls on purpose.
        program.ask("POST /_trysquare/reset HTTP/1.1", "").await;
        program.sqs("CreateQueue", r#"{"QueueName": "many"}"#).await;
        afterwards.push(program.memory_kib());
    }
    // The allocator keeps what the busiest moment took, in pieces that fit better from round to round. What grows beyond that
    // by a kibibyte for each poll would be kept by somebody.
    assert!(afterwards[5] <= afterwards[3] + 2 * POLLS as u64, "{before} KiB at first, then {afterwards:?} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_that_are_given_up_take_no_message() {
    let program = Program::start();
    let created = program.sqs("CreateQueue", r#"{"QueueName": "left"}"#).await;
    let created: Value = serde_json::from_str(created.split_once("\r\n\r\n").unwrap().1).unwrap();
    let url = created["QueueUrl"].as_str().unwrap();
    let waiting = polls(&program, url).await;
    drop(waiting);
    program.until("that none waits", async || program.waiting().await == 0).await;
    program.sqs("SendMessage", &format!(r#"{{"QueueUrl": "{url}", "MessageBody": "kept"}}"#)).await;
    let received = program.sqs("ReceiveMessage", &format!(r#"{{"QueueUrl": "{url}"}}"#)).await;
    assert!(received.contains(r#""Body":"kept""#), "{received}");
}
