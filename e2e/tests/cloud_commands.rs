//! `trysquare interrupt`, `exhaust` and the others, as their users meet them: against a fake-ec2 on a socket. Each test is
//! named for what a user would complain about.

use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, CapacityType, Config, FakeEc2, State};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

/// A served cloud, for as long as the test's process lives.
struct Cloud {
    ec2: FakeEc2,
    setup: Bootstrapped,
    url: String,
}

impl Cloud {
    fn new() -> Self {
        let (ready, started) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = Config { families: vec!["m5".into()], ..Config::default() };
                let ec2 = FakeEc2::new(config, Clock::system());
                let setup = ec2.cloud().bootstrap(Bootstrap::named("demo"));
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}", listener.local_addr().unwrap());
                ready.send(Self { ec2: ec2.clone(), setup, url }).unwrap();
                ec2.serve(listener).await.unwrap();
            });
        });
        started.recv().unwrap()
    }

    /// Launches one instance of this NodeClaim; its id is answered.
    fn launch(&self, market: CapacityType, claim: &str) -> String {
        let image = self.ec2.cloud().images().into_iter().find(|image| image.architecture == "x86_64").unwrap().id;
        let spot = if market == CapacityType::Spot { "&InstanceMarketOptions.MarketType=spot" } else { "" };
        let tag = "TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=karpenter.sh%2Fnodeclaim";
        let form = format!(
            "Action=RunInstances&Version=2016-11-15&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId={image}&\
             SubnetId={}&{tag}&TagSpecification.1.Tag.1.Value={claim}{spot}",
            self.setup.subnet_ids[0]
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let response = runtime.block_on(self.ec2.handle(http::Request::post("/").body(form.into()).unwrap()));
        assert_eq!(response.status(), 200, "{response:?}");
        let text = String::from_utf8_lossy(response.body()).into_owned();
        text.split("<instanceId>").nth(1).and_then(|rest| rest.split('<').next()).unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = trysquare(arguments);
        Ended::from(command.env("AWS_ENDPOINT_URL", &self.url).output().unwrap())
    }

    /// What the command prints for programs.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--format", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
    }

    fn state(&self, id: &str) -> State {
        self.ec2.cloud().instance(id).unwrap().state
    }

    fn noticed(&self, id: &str) -> bool {
        self.ec2.cloud().instance(id).unwrap().reclaim_at.is_some()
    }
}

fn trysquare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trysquare"));
    let repository = std::path::Path::new("..");
    command.current_dir(repository).args(arguments).stdin(Stdio::null()).env_remove("AWS_ENDPOINT_URL");
    command
}

fn without_cloud(arguments: &[&str]) -> Ended {
    Ended::from(trysquare(arguments).output().unwrap())
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ended {
    #[track_caller]
    fn says(&self, code: i32, texts: &[&str]) -> &Self {
        let all = format!("{}{}", self.out, self.err);
        assert_eq!(self.code, Some(code), "{all}");
        for text in texts {
            assert!(all.contains(text), "{text:?} is missing in:\n{all}");
        }
        assert!(!all.contains("panicked"), "{all}");
        self
    }
}

#[test]
fn an_instance_is_interrupted_by_its_id_its_node_or_its_node_claim() {
    let cloud = Cloud::new();
    let ids: Vec<String> =
        ["default-a", "default-b", "default-c"].iter().map(|claim| cloud.launch(CapacityType::Spot, claim)).collect();
    cloud.run(&["interrupt", &ids[0]]).says(0, &[&ids[0], "NodeClaim default-a", "spot notice sent", "in "]);
    let node = cloud.ec2.cloud().instance(&ids[1]).unwrap().private_dns_name;
    // Named twice, it is interrupted once.
    let answers = cloud.json(&["interrupt", &node, "default-b", "default-c"]);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.iter().map(|one| one["instance"].as_str().unwrap()).collect::<Vec<_>>(), [&ids[1], &ids[2]]);
    for id in &ids {
        assert!(cloud.noticed(id), "{id}");
    }
    let reclaim_at = cloud.ec2.cloud().instance(&ids[2]).unwrap().reclaim_at.unwrap();
    assert_eq!(answers[1]["reclaimAt"], reclaim_at.to_string());
    cloud.run(&["cloud"]).says(0, &["notice: "]);
}

#[test]
fn an_instance_that_is_not_there_is_told_with_the_nearest_and_nothing_is_done() {
    let cloud = Cloud::new();
    cloud
        .run(&["terminate", "default-a"])
        .says(1, &["there is no instance or node \"default-a\"", "no instance lives in us-west-2"]);
    let id = cloud.launch(CapacityType::Spot, "default-abcde");
    let ended = cloud.run(&["interrupt", &id, "default-abcd"]);
    ended.says(1, &["no instance or node \"default-abcd\"", "the nearest is default-abcde", &id]);
    assert!(!cloud.noticed(&id), "the other one must not be interrupted either");
}

#[test]
fn an_on_demand_instance_gets_no_spot_notice_and_the_refusal_says_why() {
    let cloud = Cloud::new();
    let (spot, on_demand) =
        (cloud.launch(CapacityType::Spot, "s"), cloud.launch(CapacityType::OnDemand, "default-paid"));
    let ended = cloud.run(&["interrupt", &spot, "default-paid"]);
    ended.says(1, &["is an on-demand instance", &on_demand, &spot, &format!("trysquare terminate {on_demand}")]);
    assert!(!cloud.noticed(&spot));
    assert_eq!(ended.out, "");
}

#[test]
fn instances_are_terminated_and_told_to_rebalance() {
    let cloud = Cloud::new();
    let id = cloud.launch(CapacityType::OnDemand, "default-a");
    cloud.run(&["rebalance", "default-a"]).says(0, &[&id, "rebalance recommendation sent"]);
    cloud.run(&["terminate", "default-a"]).says(0, &[&id, "is shutting-down"]);
    assert_eq!(cloud.state(&id), State::ShuttingDown);
    cloud.run(&["terminate", &id]).says(0, &["was shutting-down already"]);
    cloud.run(&["rebalance", &id]).says(1, &["nothing left to rebalance"]);
    // It has ended, so its name is free for the next.
    let next = cloud.launch(CapacityType::OnDemand, "default-a");
    assert_eq!(cloud.json(&["rebalance", "default-a"])[0]["instance"], next.as_str());
}

#[test]
fn the_instances_are_a_table_with_price_and_node_claim() {
    let cloud = Cloud::new();
    cloud.run(&["cloud"]).says(0, &["No instance lives in us-west-2.", "No capacity is exhausted."]);
    let id = cloud.launch(CapacityType::OnDemand, "default-a");
    // By its other name, too.
    let ended = cloud.run(&["instances"]);
    ended.says(0, &["1 instance, $0.0960 per hour."]);
    let row: Vec<&str> = ended.out.lines().nth(1).unwrap().split_whitespace().collect();
    // The published price of m5.large in Oregon.
    assert_eq!(row[..4], [&id, "m5.large", "us-west-2a", "on-demand"]);
    assert_eq!(row[5..7], ["default-a", "0.0960"]);
    assert!(!ended.out.contains('\u{1b}'), "no colours in a pipe: {:?}", ended.out);
    let json = cloud.json(&["cloud"]);
    assert_eq!(json["instances"][0]["id"], id.as_str());
    cloud.ec2.cloud().kill(&id).unwrap();
    let without = cloud.run(&["cloud"]);
    assert!(!without.out.contains(&id), "{without:?}");
    cloud.run(&["cloud", "--all"]).says(0, &[&id, "terminated"]);
}

#[test]
fn pools_are_exhausted_and_restored() {
    let cloud = Cloud::new();
    cloud
        .run(&["exhaust", "m5.large", "us-west-2a", "spot"])
        .says(0, &["exhausted  spot       m5.large in us-west-2a"]);
    cloud.run(&["exhaust", "*", "*", "*"]).says(0, &["exhausted  on-demand  * in *", "exhausted  spot       * in *"]);
    let restored = cloud.json(&["restore", "m5.large", "us-west-2b", "on-demand"]);
    let rules = restored["capacity"]["rules"].as_array().unwrap();
    assert_eq!(rules.last().unwrap()["exhausted"], false, "{restored}");
    cloud.run(&["cloud"]).says(0, &["restored   on-demand  m5.large in us-west-2b"]);
    cloud.run(&["restore"]).says(0, &["No capacity is exhausted."]);
}

#[test]
fn a_pool_that_does_not_exist_is_refused_with_what_there_is() {
    let cloud = Cloud::new();
    cloud.run(&["exhaust", "m5.lrge", "*", "spot"]).says(1, &["\"m5.lrge\" is not offered", "m5.large, "]);
    cloud.run(&["exhaust", "*", "us-east-1a", "spot"]).says(1, &["is no zone of us-west-2", "us-west-2a, us-west-2b"]);
    cloud.run(&["exhaust", "*", "*", "reserved"]).says(2, &["possible values: spot, on-demand, *"]);
    cloud.run(&["exhaust", "*", "*"]).says(2, &["<MARKET>"]);
}

#[test]
fn without_a_cloud_the_next_step_is_told() {
    for arguments in [&["cloud"][..], &["interrupt", "i-1"], &["restore"]] {
        without_cloud(arguments).says(2, &["AWS_ENDPOINT_URL", "--endpoint-url", "trysquare serve"]);
    }
    let ended = Ended::from(trysquare(&["cloud"]).env("AWS_ENDPOINT_URL", "").output().unwrap());
    ended.says(2, &["no cloud is named"]);
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    without_cloud(&["cloud", "--endpoint-url", &url]).says(3, &["nobody listens at", &url, "trysquare serve"]);
}

#[test]
fn something_else_that_listens_is_not_taken_for_a_cloud() {
    for (answer, complaint) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "it is no fake-ec2"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nokay", "it is no fake-ec2"),
        ("220 mail.example ESMTP\r\n", "does not speak HTTP"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            sender.send(String::from_utf8_lossy(&request[..count]).into_owned()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        without_cloud(&["terminate", "i-1", "--endpoint-url", &url]).says(3, &[complaint]);
        assert!(heard.recv().unwrap().starts_with("GET /_trysquare/health HTTP/1.1\r\n"), "nothing else was sent");
    }
}

#[test]
fn aws_itself_is_never_spoken_to() {
    for url in ["https://ec2.us-west-2.amazonaws.com", "http://ec2.us-west-2.amazonaws.com:80"] {
        without_cloud(&["terminate", "i-1", "--endpoint-url", url]).says(2, &["is AWS itself", "never speaks to"]);
    }
    without_cloud(&["cloud", "--endpoint-url", "https://127.0.0.1:1"]).says(2, &["is https"]);
    without_cloud(&["cloud", "--endpoint-url", "localhost"]).says(2, &["does not begin with http://"]);
}
