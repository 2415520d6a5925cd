//! The account on a socket, and clients that write what they like to it.

#![allow(dead_code, unreachable_pub)] // Each test file uses its part.

use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, Config, FakeEc2, SocketOptions};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Longer than any machine takes for what it limits.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Served {
    pub ec2: FakeEc2,
    pub address: SocketAddr,
    pub setup: Bootstrapped,
    pub server: JoinSet<()>,
}

/// An answer, or what there was of one.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Served {
    pub async fn new() -> Self {
        Self::with(SocketOptions::default()).await
    }

    pub async fn with(options: SocketOptions) -> Self {
        let config = Config { families: vec!["m5".into()], ..Config::default() };
        let ec2 = FakeEc2::new(config, Clock::system());
        let setup = ec2.cloud().bootstrap(Bootstrap::named("demo"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        let serving = ec2.clone();
        server.spawn(async move { serving.serve_with(listener, options).await.unwrap() });
        Self { ec2, address, setup, server }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own. `head` is the request line and headers without Host.
    pub async fn send(&self, head: &str, body: &str) -> Answer {
        let mut client = self.connect().await;
        client.write(&message(&format!("{head}\r\nhost: localhost"), body)).await;
        client.answer().await
    }

    /// An EC2 call.
    pub async fn ec2(&self, form: &str) -> Answer {
        self.send("POST / HTTP/1.1", &format!("{form}&Version=2016-11-15")).await
    }

    pub async fn sqs(&self, action: &str, body: &str) -> Answer {
        self.send(&format!("POST / HTTP/1.1\r\nx-amz-target: AmazonSQS.{action}"), body).await
    }

    /// A request of the control API: the status and what it says.
    pub async fn control(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.send(&format!("{method} /_trysquare{path} HTTP/1.1"), body).await;
        let value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("not JSON: {answer:?}"));
        (answer.status, value)
    }

    /// The value of a request of the control API that must succeed.
    pub async fn done(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, value) = self.control(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {value}");
        value
    }

    /// Launches one instance in the first zone; its id is answered.
    pub async fn launch(&self, more: &str) -> String {
        let subnet = &self.setup.subnet_ids[0];
        let image = self.ec2.cloud().images().into_iter().find(|image| image.architecture == "x86_64").unwrap().id;
        let answer = self
            .ec2(&format!(
                "Action=RunInstances&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId={image}&SubnetId={subnet}{more}"
            ))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer.body.split("<instanceId>").nth(1).and_then(|rest| rest.split('<').next());
        id.unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }
}

/// A request with its length; the connection is to close after it.
pub fn message(head: &str, body: &str) -> String {
    format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub struct Client(pub TcpStream);

impl Client {
    /// The server may have closed already, and refuse the rest.
    pub async fn write_bytes(&mut self, bytes: &[u8]) {
        // A server that has refused may not read to the end.
        let _ = self.0.write_all(bytes).await;
    }

    /// So many bytes, before the rest.
    pub async fn some(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        let read = tokio::time::timeout(PATIENCE, self.0.read_exact(&mut bytes)).await;
        read.expect("the server answers").unwrap();
        String::from_utf8(bytes).unwrap()
    }

    pub async fn write(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
    }

    /// Everything until the server closes.
    pub async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, async {
            let mut part = [0; 4096];
            // A reset, too, is an end.
            while let Ok(count @ 1..) = self.0.read(&mut part).await {
                bytes.extend_from_slice(&part[..count]);
            }
        });
        read.await.expect("the server closes the connection");
        String::from_utf8(bytes).unwrap()
    }

    pub async fn answer(&mut self) -> Answer {
        let text = self.rest().await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}
