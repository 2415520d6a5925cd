//! The program as its users meet it: what it prints, which code it ends with, and what it does with wrong input.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

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
    assert_eq!(again["bootstrap"], started["bootstrap"]);
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
        (&["serve"], &["unexpected argument 'serve'"]),
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
