//! `trysquare serve` as people and their programs meet it: over its sockets, with the files it writes, in more than one at
//! once, and to its end.

#![allow(clippy::disallowed_methods)] // What is tested runs in the system's time.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const TRYSQUARE: &str = env!("CARGO_BIN_EXE_trysquare");
/// Longer than any start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that goes with the test.
struct Served {
    child: Option<Child>,
    folder: PathBuf,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("trysquare-serve-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let child = Command::new(TRYSQUARE)
            .args(["serve", "--quiet", "--kubeconfig"])
            .arg(folder.join("kubeconfig"))
            .arg("--env-file")
            .arg(folder.join("env"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let served = Self { child: Some(child), folder };
        served.wait_until("the variables are written", || served.path("env").exists());
        served
    }

    fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < PATIENCE, "{what} not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn variable(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path("env")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }

    async fn kube(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.variable("KUBECONFIG")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }

    /// What EC2 answers to an action.
    fn aws(&self, form: &str) -> String {
        let address = self.variable("AWS_ENDPOINT_URL").replace("http://", "");
        let mut socket = TcpStream::connect(&address).unwrap();
        let length = form.len();
        let head = "content-type: application/x-www-form-urlencoded\r\nconnection: close";
        write!(socket, "POST / HTTP/1.1\r\nhost: {address}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{form}")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: &str) {
        let process = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    fn end(mut self, signal: &str) -> Output {
        self.signal(signal);
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(TRYSQUARE).arg("serve").args(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn features(name: &str) -> PathBuf {
    Path::new("../features/manifests").join(name)
}

#[tokio::test]
async fn both_sides_answer_on_their_sockets() {
    let served = Served::start(&["--region", "eu-west-1"]);
    let kube = served.kube().await;
    let namespaces = Api::<Namespace>::all(kube.clone()).list(&ListParams::default()).await.unwrap();
    assert!(namespaces.iter().any(|namespace| namespace.metadata.name.as_deref() == Some("kube-system")));
    assert_eq!(kube.apiserver_version().await.unwrap().git_version, "v1.36.3");
    let subnets = served.aws("Action=DescribeSubnets&Version=2016-11-15");
    for zone in ["eu-west-1a", "eu-west-1b", "eu-west-1c"] {
        assert!(subnets.contains(zone), "{subnets}");
    }
    assert_eq!(served.variable("AWS_DEFAULT_REGION"), "eu-west-1");
}

#[tokio::test]
async fn a_deployment_gets_its_node_from_the_controller_and_loses_it_again() {
    let manifests = std::env::temp_dir().join(format!("trysquare-serve-manifests-{}", std::process::id()));
    std::fs::create_dir_all(&manifests).unwrap();
    for name in ["ec2-node-class.yaml", "node-pool.yaml", "nginx.yaml"] {
        std::fs::copy(features(name), manifests.join(name)).unwrap();
    }
    let served = Served::start(&["--controller", "--speed", "30", "--manifests", manifests.to_str().unwrap()]);
    let nodes = Api::<Node>::all(served.kube().await);
    let started = Instant::now();
    let node = loop {
        assert!(started.elapsed() < PATIENCE, "no node became Ready");
        let ready = |node: &Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        if let Some(node) = nodes.list(&ListParams::default()).await.unwrap().items.into_iter().find(ready) {
            break node;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(node.metadata.labels.as_ref().unwrap()["karpenter.sh/nodepool"], "default");
    let instance = node.spec.unwrap().provider_id.unwrap().rsplit('/').next().unwrap().to_owned();
    assert!(served.aws("Action=DescribeInstances&Version=2016-11-15").contains(&instance));
    let deployments = Api::<k8s_openapi::api::apps::v1::Deployment>::default_namespaced(served.kube().await);
    deployments.delete("nginx", &Default::default()).await.unwrap();
    let started = Instant::now();
    while !nodes.list(&ListParams::default()).await.unwrap().items.is_empty() {
        assert!(started.elapsed() < PATIENCE, "the empty node stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let output = served.end("-INT");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&manifests).unwrap();
}

#[tokio::test]
async fn pods_that_wait_in_a_cluster_are_explained_and_others_are_told_what_they_do() {
    let served = Served::start(&["--controller", "--manifests", features("two-pools.yaml").to_str().unwrap()]);
    let pods = Api::<Pod>::default_namespaced(served.kube().await);
    let huge = serde_json::json!({"metadata": {"name": "huge"}, "spec": {"containers": [
        {"name": "main", "image": "web", "resources": {"requests": {"cpu": "500"}}},
    ]}});
    pods.create(&PostParams::default(), &serde_json::from_value(huge).unwrap()).await.unwrap();
    served.wait_until("the large pod is explained", || explain(&served, &[]).1.contains("left out: default/huge\n"));
    let (code, told) = explain(&served, &["--pod", "default/huge"]);
    assert_eq!(code, Some(0), "{told}");
    // The pods of the manifest wait too, and are not asked about.
    assert!(told.contains("pods 1, new nodes 0"), "{told}");
    assert!(told.contains("NodePool spot: no instance type has enough resources"), "{told}");
    assert!(
        told.contains("NodePool on-demand: its nodes carry the taint example.com/reserved=shop:NoSchedule."),
        "{told}"
    );
    let json: serde_json::Value = serde_json::from_str(&explain(&served, &["--format", "json"]).1).unwrap();
    assert!(json[0]["leftOut"].as_array().is_some_and(|entries| !entries.is_empty()), "{json}");
    let (code, told) = explain(&served, &["--pod", "default/none"]);
    assert_eq!((code, told.contains("--pod default/none: there is no such pod")), (Some(2), true), "{told}");
    let (code, told) = explain(&served, &["--pod", "huge"]);
    assert_eq!((code, told.contains("a namespace and a name are wanted")), (Some(2), true), "{told}");
    let (code, told) = explain(&served, &["--kubeconfig", "missing"]);
    assert_eq!((code, told.contains("--kubeconfig missing")), (Some(3), true), "{told}");
}

/// What `trysquare explain` says of the cluster; on standard error where it fails.
fn explain(served: &Served, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(TRYSQUARE);
    for name in ["KUBECONFIG", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env(name, served.variable(name));
    }
    let output = command.arg("explain").args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn a_second_one_is_a_cluster_of_its_own() {
    let (one, two) = (Served::start(&[]), Served::start(&[]));
    assert_ne!(one.variable("AWS_ENDPOINT_URL"), two.variable("AWS_ENDPOINT_URL"));
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("mine".into()), ..Default::default() },
        ..Default::default()
    };
    Api::<ConfigMap>::default_namespaced(one.kube().await).create(&PostParams::default(), &map).await.unwrap();
    let other = Api::<ConfigMap>::default_namespaced(two.kube().await).get_opt("mine").await.unwrap();
    assert!(other.is_none());
}

#[test]
fn ctrl_c_and_sigterm_leave_nothing_behind() {
    for signal in ["-INT", "-TERM"] {
        let served = Served::start(&["--controller"]);
        let (kubeconfig, variables) = (served.path("kubeconfig"), served.path("env"));
        assert!(kubeconfig.exists());
        let output = served.end(signal);
        assert_eq!(output.status.code(), Some(0));
        assert!(!kubeconfig.exists() && !variables.exists());
        assert!(String::from_utf8_lossy(&output.stderr).contains("trysquare: ended"));
    }
}

#[test]
fn the_kubeconfig_can_be_read_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let served = Served::start(&[]);
    assert_eq!(std::fs::metadata(served.path("kubeconfig")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_of_somebody_elses_is_left_alone() {
    let folder = std::env::temp_dir().join(format!("trysquare-serve-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mine = folder.join("config");
    for flag in ["--kubeconfig", "--env-file"] {
        std::fs::write(&mine, "apiVersion: v1\n").unwrap();
        let (code, told) = run(&[flag, mine.to_str().unwrap()]);
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("is there already"), "{told}");
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "apiVersion: v1\n");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_variables_of_a_server_that_runs_are_left_alone() {
    let served = Served::start(&[]);
    let variables = served.path("env");
    let before = std::fs::read_to_string(&variables).unwrap();
    let (code, told) = run(&["--env-file", variables.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("which runs; name another file"), "{told}");
    assert_eq!(std::fs::read_to_string(&variables).unwrap(), before);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, told) = run(&["--listen", &address.to_string()]);
    assert_eq!(code, Some(3));
    assert!(told.contains(&format!("the ports {} (Kubernetes)", address.port())), "{told}");
    assert!(told.contains("leave the port out of --listen"), "{told}");
}

#[test]
fn wrong_arguments_say_what_would_be_right() {
    let cases = [
        (vec!["--listen", "everywhere"], "an IP address with or without a port is wanted"),
        (vec!["--region", "mars-1"], "it has us-east-1"),
        (vec!["--manifests", "no/such/folder"], "there is no such file or folder"),
        (vec!["--speed", "0"], "1..=60"),
        (vec!["--quiet", "--verbose"], "cannot be used with"),
        (vec!["--from-nothing"], "add --backend apiserver"),
        (vec!["--from-nothing", "--backend", "apiserver", "--controller"], "--controller ours: with --from-nothing"),
        (vec!["--iam", "enforce", "--controller"], "it has an administrator's keys"),
        (vec!["--iam", "maybe"], "[possible values: off, enforce]"),
    ];
    for (arguments, expected) in cases {
        let (code, told) = run(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn a_manifest_that_the_server_refuses_is_named_with_its_file() {
    let folder = std::env::temp_dir().join(format!("trysquare-serve-refused-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {}\n";
    std::fs::write(folder.join("wrong.yaml"), manifest).unwrap();
    let (code, told) = run(&["--manifests", folder.to_str().unwrap()]);
    assert_eq!(code, Some(3));
    assert!(told.contains("wrong.yaml") && told.contains(".date: field not declared in schema"), "{told}");
    std::fs::remove_dir_all(&folder).unwrap();
}
