//! The program as its users meet it: what it prints, which code it ends with, and what it does with wrong input.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

fn fake_ec2(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-ec2"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs what is to end by itself; its code and all it said.
fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = fake_ec2(arguments).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!text.contains("panicked"), "{text}");
    (status.code(), text)
}

/// A running program, which ends with the test.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = fake_ec2(arguments).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(url: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_printed_lines_can_be_pasted_into_a_shell() {
    let mut running = Running::start(&["--bootstrap", "demo", "--families", "m5", "--region", "eu-west-1"]);
    let lines: Vec<String> = (0..9).map(|_| running.line()).collect();
    let value = |name: &str| {
        let start = format!("export {name}=");
        lines.iter().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {name} in {lines:?}"))
    };
    for line in &lines {
        assert!(line.starts_with("# ") || line.starts_with("export "), "{line}");
    }
    assert_eq!((value("AWS_REGION"), value("AWS_DEFAULT_REGION")), ("eu-west-1", "eu-west-1"));
    assert_eq!((value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY")), ("placeholder", "placeholder"));
    let url = value("AWS_ENDPOINT_URL");
    let subnets = get(url, "/?Action=DescribeSubnets&Version=2016-11-15");
    assert_eq!(subnets.matches("<subnetId>").count(), 3, "{subnets}");
    assert!(get(url, "/_trysquare/health").contains("eu-west-1"));
}

#[test]
fn it_ends_cleanly_by_ctrl_c_and_by_sigterm() {
    for signal in ["-INT", "-TERM"] {
        let mut running = Running::start(&["--families", "m5"]);
        running.line();
        assert_eq!(running.end(signal), Some(0), "{signal}");
    }
}

#[test]
fn programs_read_one_line_of_json() {
    let mut running = Running::start(&["--families", "m5", "--bootstrap", "demo", "--format", "json", "--seed", "7"]);
    let started: Value = serde_json::from_str(&running.line()).unwrap();
    let url = started["endpointUrl"].as_str().unwrap();
    assert_eq!(started["environment"]["AWS_ENDPOINT_URL"], url);
    assert_eq!(started["bootstrap"]["subnetIds"].as_array().unwrap().len(), 3);
    assert!(get(url, "/_trysquare/health").starts_with("HTTP/1.1 200 OK"));
    // The same seed gives the same ids.
    let mut again = Running::start(&["--families", "m5", "--bootstrap", "demo", "--format", "json", "--seed", "7"]);
    let again: Value = serde_json::from_str(&again.line()).unwrap();
    assert_eq!(without_queue(&again), without_queue(&started));
}

/// What was set up, without the queue's URL: each process listens at a port of its own.
fn without_queue(started: &Value) -> Value {
    let mut bootstrap = started["bootstrap"].clone();
    assert!(bootstrap["queueUrl"].as_str().unwrap().starts_with(started["endpointUrl"].as_str().unwrap()));
    bootstrap.as_object_mut().unwrap().remove("queueUrl");
    bootstrap
}

#[test]
fn the_printed_queue_url_is_the_one_a_client_is_answered() {
    let mut running = Running::start(&["--families", "m5", "--bootstrap", "demo", "--format", "json"]);
    let (url, started) = started(&mut running);
    let printed = started["bootstrap"]["queueUrl"].as_str().unwrap();
    assert_eq!(printed, format!("{url}/123456789012/demo"));
    assert!(queues(&url).contains(&format!("<QueueUrl>{printed}</QueueUrl>")), "{}", queues(&url));
}

#[test]
fn a_call_is_a_line_of_the_log() {
    let mut running = Running::start(&["--families", "m5", "--log", "info", "--format", "json"]);
    let started: Value = serde_json::from_str(&running.line()).unwrap();
    get(started["endpointUrl"].as_str().unwrap(), "/?Action=DescribeVpcs&Version=2016-11-15");
    let mut log = BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("DescribeVpcs") && line.contains("status=200"), "{line}");
    assert!(!line.contains('\u{1b}'), "no colours in a pipe: {line:?}");
}

#[test]
fn a_port_in_use_ends_with_3_and_the_next_step() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = ended(&["--families", "m5", "--listen", &address]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(&format!("cannot listen on {address}")) && text.contains("--listen 127.0.0.1:0"), "{text}");
}

#[test]
fn wrong_options_end_with_2_and_say_what_would_be_right() {
    for (arguments, texts) in [
        (&["--listen", "here"][..], &["--listen", "127.0.0.1:4566"][..]),
        (&["--listen", "127.0.0.1"], &["an IP address and a port"]),
        (&["--region", "mars-1"], &["mars-1", "us-east-1, us-east-2, us-west-2"]),
        (&["--account", "12"], &["twelve digits"]),
        (&["--families", "m5,m99"], &["no instance family \"m99\"", "m5a, "]),
        (&["--bootstrap", "a b"], &["letters, digits, - and _"]),
        (&["--log", "loud"], &["possible values: off, error"]),
        (&["--seed", "x"], &["--seed"]),
        (&["serve"], &["unrecognized subcommand 'serve'"]),
        (&["--profile", "loose"], &["possible values: strict, lenient"]),
        (&["--access-key", "a/b=c"], &["write ID=SECRET"]),
        (&["--verify-signatures"], &["--access-key ID=SECRET"]),
        (&["bootstrap"], &["--cluster"]),
        (&["health", "ftp://here"], &["such as http://127.0.0.1:4566"]),
        (&["--config", "/nowhere.yaml"], &["--config /nowhere.yaml: No such file"]),
    ] {
        let (code, text) = ended(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        for expected in texts {
            assert!(text.contains(expected), "{expected:?} is missing in {text}");
        }
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let (code, text) = ended(&["--help"]);
    assert_eq!(code, Some(0));
    for expected in ["Examples:", "Exit codes: 0 ended by Ctrl-C or SIGTERM", "--bootstrap <CLUSTER>"] {
        assert!(text.contains(expected), "{text}");
    }
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:?}");
    assert!(ended(&["--version"]).1.starts_with(concat!("fake-ec2 ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_settings_of_policies_are_refused_with_what_would_be_right() {
    for (arguments, expected) in [
        (&["--iam", "strict"][..], "possible values: off, enforce"),
        (&["--without-prerequisites"], "--bootstrap <CLUSTER>"),
        (&["--bootstrap", "demo", "--oidc-issuer", "http://a"], "an issuer is a URL that begins with https://"),
        (&["--bootstrap", "demo", "--oidc-keys", "/nowhere.json"], "--oidc-keys /nowhere.json: No such file"),
        (&["--bootstrap", "demo", "--oidc-keys", "Cargo.toml"], "--oidc-keys Cargo.toml: it is not JSON"),
        (&["--secure-transport", "perhaps"], "possible values: true, false"),
    ] {
        let (code, text) = ended(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

/// A folder of its own, which ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fake-ec2-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn started(running: &mut Running) -> (String, Value) {
    let started: Value = serde_json::from_str(&running.line()).unwrap();
    (started["endpointUrl"].as_str().unwrap().to_owned(), started)
}

fn created_queue(url: &str, name: &str) {
    let answer = get(url, &format!("/?Action=CreateQueue&Version=2012-11-05&QueueName={name}"));
    assert!(answer.contains("<QueueUrl>"), "{answer}");
}

fn queues(url: &str) -> String {
    get(url, "/?Action=ListQueues&Version=2012-11-05")
}

#[test]
fn an_account_in_a_file_goes_on_where_it_ended() {
    let folder = Folder::new("goes-on");
    let file = folder.file("account.json");
    let options = ["--families", "m5", "--format", "json", "--state", &file, "--bootstrap", "demo", "--seed", "4"];
    let mut running = Running::start(&options);
    let (url, first) = started(&mut running);
    created_queue(&url, "kept");
    // Another one at the same time would write over it.
    let (code, text) = ended(&options);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("another fake-ec2 keeps its state there"), "{text}");
    assert_eq!(running.end("-TERM"), Some(0));
    let mut again = Running::start(&options);
    let (url, second) = started(&mut again);
    assert!(queues(&url).contains("/kept</QueueUrl>"));
    assert_eq!(without_queue(&first), without_queue(&second), "the cluster is not set up twice");
    // What was changed a moment ago survives even a sudden end.
    created_queue(&url, "late");
    let saved = (0..200).any(|_| {
        #[allow(clippy::disallowed_methods)] // Another process writes.
        std::thread::sleep(Duration::from_millis(50));
        std::fs::read_to_string(&file).unwrap().contains("\"late\"")
    });
    assert!(saved);
    let _ = again.child.kill();
    // Until it is gone the file is taken.
    let _ = again.child.wait();
    let mut third = Running::start(&["--families", "m5", "--format", "json", "--state", &file]);
    let (url, third_start) = started(&mut third);
    assert!(queues(&url).contains("/late</QueueUrl>"));
    assert_eq!(third_start["account"], "123456789012");
    drop(third);
    let (code, text) = ended(&["--state", &file, "--region", "eu-west-1"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("the region of the saved account is us-west-2, and not eu-west-1"), "{text}");
}

#[test]
fn a_file_that_is_no_state_is_refused_and_left_as_it_is() {
    let folder = Folder::new("no-state");
    let file = folder.file("account.json");
    let mut running = Running::start(&["--families", "m5", "--state", &file]);
    running.line();
    assert_eq!(running.end("-INT"), Some(0));
    let whole = std::fs::read(&file).unwrap();
    for (bytes, expected) in [
        (&whole[..whole.len() - 10], "it is broken"),
        (&whole[..10], "it is broken"),
        (&[][..], "it is broken"),
        (br#"{"name": "left-pad", "version": "1.3.0"}"#, "it is no state of fake-ec2"),
        (br#"{"format": "fake-ec2 state", "version": 99}"#, "version 99 of the format; this program reads 1"),
        (b"\x00\x01\x02", "it is broken"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let (code, text) = ended(&["--families", "m5", "--state", &file]);
        assert_eq!(code, Some(4), "{text}");
        assert!(text.contains(expected) && text.contains("the file is left as it is"), "{text}");
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    let (code, text) = ended(&["--state", &folder.file("no/such/folder.json")]);
    assert_eq!(code, Some(4), "{text}");
}

#[test]
fn a_configuration_file_is_read_strictly() {
    let folder = Folder::new("config");
    let file = folder.file("config.yaml");
    let yaml = "region: eu-west-1\naccount: \"210987654321\"\nfamilies: [m5]\npace:\n  pendingMs: 0\nlimits:\n  spotVcpus: 8\n";
    std::fs::write(&file, yaml).unwrap();
    let mut running = Running::start(&["--config", &file, "--format", "json", "--region", "us-east-1"]);
    let (_, started) = started(&mut running);
    assert_eq!((&started["region"], &started["account"]), (&"us-east-1".into(), &"210987654321".into()));
    for (yaml, texts) in [
        ("regoin: eu-west-1", &["regoin is not known", "is region meant?"][..]),
        ("pace: {pendingMS: 1}", &["pace.pendingMS is not known", "is pace.pendingMs meant?"]),
        ("pace: {pendingMs: soon}", &["pace.pendingMs is \"soon\"", "a whole number from 0 to"]),
        ("account: 123456789012", &["account is 123456789012", "a text"]),
        ("region: mars-1", &["no region \"mars-1\"", "us-west-2"]),
        ("limits: [1]", &["limits is an array", "a JSON object"]),
        ("a: [", &["it is not YAML"]),
        ("- 1", &["the document is an array"]),
    ] {
        std::fs::write(&file, yaml).unwrap();
        let (code, text) = ended(&["--config", &file]);
        assert_eq!(code, Some(2), "{yaml}: {text}");
        for expected in texts {
            assert!(text.contains(expected), "{expected:?} is missing in {text}");
        }
    }
}

#[test]
fn the_actions_are_listed_for_people_and_programs() {
    let (code, text) = ended(&["actions"]);
    assert_eq!(code, Some(0));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for expected in [["ec2", "CreateFleet"], ["sqs", "ReceiveMessage"], ["eks-auth", "AssumeRoleForPodIdentity"]] {
        assert!(lines.iter().any(|line| line == &expected), "{expected:?} is missing in {text}");
    }
    let (_, json) = ended(&["actions", "--format", "json"]);
    let listed: Value = serde_json::from_str(&json).unwrap();
    let services = listed["actions"].as_object().unwrap();
    assert_eq!(services.values().map(|actions| actions.as_array().unwrap().len()).sum::<usize>(), lines.len());
}

#[test]
fn a_running_one_is_asked_for_its_health_and_for_a_cluster() {
    let mut running = Running::start(&["--families", "m5", "--format", "json"]);
    let (url, _) = started(&mut running);
    assert_eq!(ended(&["health", &url]), (Some(0), String::new()));
    let (code, text) = ended(&["bootstrap", "--cluster", "demo", "--endpoint-url", &url]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("# cluster demo: vpc-"), "{text}");
    assert!(text.contains(&format!("export AWS_ENDPOINT_URL={url}\nexport AWS_REGION=us-west-2\n")), "{text}");
    let subnets = get(&url, "/?Action=DescribeSubnets&Version=2016-11-15");
    assert_eq!(subnets.matches("<subnetId>").count(), 3, "{subnets}");
    let (code, text) = ended(&["bootstrap", "--cluster", "demo", "--endpoint-url", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is a cluster \"demo\" already"), "{text}");
    let mut command = fake_ec2(&["bootstrap", "--cluster", "other", "--format", "json"]);
    let output = command.env("AWS_ENDPOINT_URL", &url).output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["bootstrap"]["nodeRoleName"], "KarpenterNodeRole-other");
    assert_eq!(running.end("-TERM"), Some(0));
    let (code, text) = ended(&["health", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("does not answer"), "{text}");
}

#[test]
fn a_lenient_one_has_a_default_vpc_takes_unknown_images_and_is_reset() {
    let mut running =
        Running::start(&["--profile", "lenient", "--listen", "127.0.0.1:0", "--families", "m5", "--format", "json"]);
    let (url, started) = started(&mut running);
    assert_eq!(started["account"], "123456789012");
    let subnets = get(&url, "/?Action=DescribeSubnets&Version=2016-11-15");
    assert_eq!(subnets.matches("<subnetId>").count(), 4, "one in each zone: {subnets}");
    assert!(subnets.contains("<cidrBlock>172.31.48.0/20</cidrBlock>"), "{subnets}");
    let subnet = subnets.split("<subnetId>").nth(1).unwrap().split('<').next().unwrap();
    let launch = format!(
        "/?Action=RunInstances&Version=2016-11-15&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=m5.large&SubnetId={subnet}"
    );
    assert!(get(&url, &launch).contains("<imageId>ami-12c6146b</imageId>"));
    assert!(
        get(&url, "/?Action=DescribeImages&Version=2016-11-15&ImageId.1=ami-0000000f")
            .contains("InvalidAMIID.NotFound")
    );
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /moto-api/reset HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    assert!(!get(&url, "/?Action=DescribeInstances&Version=2016-11-15").contains("<instanceId>"));
    // A strict one knows no such image.
    let mut strict = Running::start(&["--families", "m5", "--bootstrap", "demo", "--format", "json"]);
    let (url, _) = self::started(&mut strict);
    let subnets = get(&url, "/?Action=DescribeSubnets&Version=2016-11-15");
    let subnet = subnets.split("<subnetId>").nth(1).unwrap().split('<').next().unwrap();
    let launch = format!(
        "/?Action=RunInstances&Version=2016-11-15&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=m5.large&SubnetId={subnet}"
    );
    assert!(get(&url, &launch).contains("InvalidAMIID.NotFound"));
}

#[test]
fn the_keys_to_sign_with_are_printed_and_others_refused() {
    let options = ["--families", "m5", "--verify-signatures", "--access-key", "AKIAIOSFODNN7EXAMPLE=s3cr et"];
    let mut running = Running::start(&options);
    let lines: Vec<String> = (0..7).map(|_| running.line()).collect();
    assert!(lines.contains(&"export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE".to_owned()), "{lines:?}");
    assert!(lines.contains(&"export AWS_SECRET_ACCESS_KEY='s3cr et'".to_owned()), "{lines:?}");
    let url = lines[1].strip_prefix("export AWS_ENDPOINT_URL=").unwrap();
    assert!(get(url, "/?Action=DescribeVpcs&Version=2016-11-15").contains("MissingAuthenticationToken"));
    assert!(get(url, "/_trysquare/health").starts_with("HTTP/1.1 200"));
}
