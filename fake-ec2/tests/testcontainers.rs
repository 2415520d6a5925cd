//! `fake_ec2::testcontainers` on a real Docker engine, with the image that `make image-fake-ec2` has put there. One request over
//! HTTP/1.0, whose answer ends with the connection, needs no client library.

use fake_ec2::Profile;
use fake_ec2::testcontainers::{Endpoint, FakeEc2Image};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use testcontainers::Container;
use testcontainers::runners::SyncRunner as _;

/// A running container and where it answers.
struct Started {
    endpoint: Endpoint,
    _container: Container<FakeEc2Image>,
}

fn start(image: FakeEc2Image) -> Started {
    let container = image.start().expect("Docker runs, and `make image-fake-ec2` made the image");
    let endpoint = Endpoint::of_blocking(&container).expect("its port is published");
    Started { endpoint, _container: container }
}

/// Status and body of one answer.
fn ask(method: &str, url: &str, headers: &str, body: &str) -> (u16, String) {
    let rest = url.strip_prefix("http://").expect("it speaks plain HTTP");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host).expect("it listens");
    let length = body.len();
    let head = format!("{method} /{path} HTTP/1.0\r\nhost: {host}\r\ncontent-length: {length}\r\n{headers}\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

impl Started {
    /// The answer of a query action that must succeed.
    fn query(&self, version: &str, form: &str) -> String {
        let (status, body) = ask("POST", self.endpoint.url(), "", &format!("{form}&Version={version}"));
        assert_eq!(status, 200, "{form}: {body}");
        body
    }

    fn ec2(&self, form: &str) -> String {
        self.query("2016-11-15", form)
    }

    /// What the control API tells.
    fn control(&self, path: &str) -> Value {
        let (status, body) = ask("GET", &format!("{}{path}", self.endpoint.control_url()), "", "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn instances(&self) -> Vec<Value> {
        self.control("state")["instances"].as_array().cloned().unwrap()
    }

    fn image(&self) -> String {
        let name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
        let body = format!(r#"{{"Name": "{name}"}}"#);
        let (status, body) = ask("POST", self.endpoint.url(), "x-amz-target: AmazonSSM.GetParameter\r\n", &body);
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["Parameter"]["Value"].as_str().unwrap().to_owned()
    }

    /// Launches one instance in the first of the cluster's subnets; its id and state are answered.
    fn launch(&self) -> (String, String) {
        let subnet = element(&self.ec2("Action=DescribeSubnets"), "subnetId");
        let image = self.image();
        let answer = self.ec2(&format!(
            "Action=RunInstances&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId={image}&SubnetId={subnet}"
        ));
        let id = element(&answer, "instanceId");
        let described = self.ec2(&format!("Action=DescribeInstances&InstanceId.1={id}"));
        let state = element(described.split_once("<instanceState>").unwrap().1, "name");
        (id, state)
    }

    fn account(&self) -> String {
        element(&self.query("2011-06-15", "Action=GetCallerIdentity"), "Account")
    }
}

/// The text of the first element of this name.
fn element(xml: &str, name: &str) -> String {
    let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name} in {xml}"));
    rest.split('<').next().unwrap().to_owned()
}

#[test]
fn an_instance_is_launched_and_the_control_api_shows_it() {
    let started = start(FakeEc2Image::default().with_bootstrap("demo"));
    assert!(started.instances().is_empty());
    let (id, state) = started.launch();
    assert_eq!(state, "pending");
    let [instance] = started.instances().try_into().expect("there is one");
    assert_eq!(instance["id"], *id);
    assert_eq!(instance["instanceType"], "m5.large");
}

#[test]
fn two_containers_share_nothing_and_the_seed_makes_their_ids() {
    let image = FakeEc2Image::default().with_bootstrap("demo").with_seed(7);
    let (first, second, other) = (start(image.clone()), start(image.clone()), start(image.with_seed(8)));
    let (id, _) = first.launch();
    assert!(second.instances().is_empty(), "the second has none of the first's");
    assert!(other.instances().is_empty());
    assert_eq!(second.launch().0, id, "the same seed and requests give the same ids");
    assert_ne!(other.launch().0, id);
    assert_eq!(first.instances().len(), 1);
}

#[test]
fn an_account_is_what_the_builder_says() {
    let started = start(FakeEc2Image::default().with_region("eu-west-1").with_account("210987654321"));
    assert_eq!(started.account(), "210987654321");
    assert_eq!(element(&started.ec2("Action=DescribeAvailabilityZones"), "regionName"), "eu-west-1");
    assert!(!started.ec2("Action=DescribeVpcs").contains("<vpcId>"), "there is nothing unless asked for");
}

#[test]
fn a_lenient_one_has_a_default_network_and_is_reset_as_moto_is() {
    let started = start(FakeEc2Image::default().with_profile(Profile::Lenient));
    assert_eq!(element(&started.ec2("Action=DescribeVpcs"), "isDefault"), "true");
    assert_eq!(ask("POST", &format!("{}/moto-api/reset", started.endpoint.url()), "", "").0, 200);
}

#[test]
fn a_settings_file_is_read() {
    let settings = "account: \"210987654321\"\npace: {pendingMs: 0}\n";
    let started = start(FakeEc2Image::default().with_bootstrap("demo").with_config(settings));
    assert_eq!(started.account(), "210987654321");
    assert_eq!(started.launch().1, "running", "no time passes in a state that takes none");
}

#[test]
fn what_the_program_refuses_is_told_by_the_error() {
    let refused = FakeEc2Image::default().with_region("mars-north-1").start().map(drop);
    let message = refused.expect_err("there is no such region").to_string();
    assert!(message.contains("mars-north-1") && message.contains("us-west-2"), "{message}");
}

#[tokio::test]
async fn the_same_in_a_runtime() {
    let starting = testcontainers::runners::AsyncRunner::start(FakeEc2Image::default());
    let container = starting.await.expect("Docker runs, and `make image-fake-ec2` made the image");
    let endpoint = Endpoint::of(&container).await.expect("its port is published");
    let answer = ask("GET", &format!("{}health", endpoint.control_url()), "", "");
    assert_eq!(answer.0, 200, "{}", answer.1);
}

#[test]
fn the_readmes_example_is_the_one_that_is_compiled() {
    let source = include_str!("../src/testcontainers.rs");
    let documentation: Vec<_> = source.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let documentation: Vec<_> = documentation.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let example = documentation.split(|line| line.starts_with("```")).nth(1).expect("the module has an example");
    let shown: Vec<_> = example.iter().filter(|line| !line.starts_with('#')).copied().collect();
    assert!(include_str!("../README.md").contains(&shown.join("\n")), "{}", shown.join("\n"));
}
