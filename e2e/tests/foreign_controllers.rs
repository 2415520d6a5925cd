//! Controllers under test that misbehave: each fails its scenario with its last words, the others go on, and no process is
//! left. They are shell scripts on the embedded backend in real time, which needs no tools.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TRYSQUARE: &str = env!("CARGO_BIN_EXE_trysquare");

/// What every controller can do; the second scenario has none.
const FEATURE: &str = "\
Feature: F
  Scenario: Controlled
    Given a cluster set up as the guides describe
    When a pod \"single\" that asks for 1 CPU is created
    Then pod \"single\" is Running within 1s

  Scenario: Alone
    Given a cluster set up as the guides describe, its controller not yet started
    When a pod \"single\" that asks for 1 CPU is created
";

/// A folder with a feature and a controller.
struct Folder(PathBuf);

impl Folder {
    fn with_controller(script: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("foreign-controller-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("f.feature"), FEATURE).unwrap();
        let program = path.join("controller.sh");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    /// The processes that run this folder's controller.
    fn left(&self) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let of_ours = |line: &String| line.contains("controller.sh") && line.contains(self.0.to_str().unwrap());
        lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(of_ours).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The script is started by its absolute path, so that `left` finds it.
fn run(folder: &Folder, more: &[&str]) -> (Option<i32>, String) {
    let program = folder.0.join("controller.sh");
    let mut command = Command::new(TRYSQUARE);
    command.current_dir(&folder.0).stdin(Stdio::null());
    command.args(["test", "f.feature", "--controller", program.to_str().unwrap()]).args(more);
    let output = command.output().unwrap();
    (output.status.code(), text(&output))
}

#[test]
fn one_that_ends_fails_with_its_last_words_and_the_other_scenario_goes_on() {
    let folder = Folder::with_controller("echo 'the moon is missing' >&2; exit 7");
    let (code, told) = run(&folder, &["--report", "out"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("exit status: 7; it said last: the moon is missing"), "{told}");
    assert!(told.contains("1 passed, 1 failed"), "{told}");
    let log = folder.0.join("out/logs/0000/karpenter-0.log");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "the moon is missing\n");
    assert!(folder.left().is_empty());
}

#[test]
fn one_that_dies_later_is_told_at_once_and_not_as_a_time_out() {
    let folder = Folder::with_controller("sleep 20; echo 'out of memory'; exit 137");
    let (code, told) = run(&folder, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("out of memory"), "{told}");
}

#[test]
fn one_that_hangs_fails_what_waits_for_it_and_is_not_left() {
    let folder = Folder::with_controller("exec sleep 3600");
    let (code, told) = run(&folder, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("not within"), "{told}");
    assert!(folder.left().is_empty());
}

#[test]
fn one_that_floods_its_log_fails_and_fills_neither_memory_nor_disk() {
    let folder = Folder::with_controller("exec yes '{\"level\":\"INFO\",\"message\":\"again\"}'");
    let (code, told) = run(&folder, &["--report", "out"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("1 passed, 1 failed"), "{told}");
    let log = std::fs::metadata(folder.0.join("out/logs/0000/karpenter-0.log")).unwrap();
    assert!(log.len() <= 65 << 20, "{} bytes", log.len());
}

#[test]
fn one_whose_tester_is_killed_does_not_live_on() {
    let folder = Folder::with_controller("while true; do sleep 1; done");
    let program = folder.0.join("controller.sh");
    let arguments = ["test", "f.feature", "--name", "Controlled", "--controller", program.to_str().unwrap()];
    let mut child = Command::new(TRYSQUARE)
        .current_dir(&folder.0)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait_until = |wanted: bool| {
        for _ in 0..300 {
            if folder.left().iter().any(|line| line.starts_with("/bin/sh")) == wanted {
                return true;
            }
            #[allow(clippy::disallowed_methods)] // Other processes are waited for, in real time.
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    };
    assert!(wait_until(true), "it never started");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(false), "it lives on: {:?}", folder.left());
}

#[test]
fn one_that_is_not_there_is_told_before_anything_runs() {
    let folder = Folder::with_controller("true");
    let output = Command::new(TRYSQUARE)
        .current_dir(&folder.0)
        .args(["test", "f.feature", "--controller", "./nowhere"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output), "trysquare: --controller ./nowhere: there is no such file\n");
}

#[test]
fn tools_that_are_missing_are_named_in_one_line_with_the_way_to_get_them() {
    let folder = Folder::with_controller("true");
    let mut command = Command::new(TRYSQUARE);
    command.current_dir(&folder.0).env_clear().env("HOME", &folder.0).args([
        "test",
        "f.feature",
        "--backend",
        "apiserver",
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let told = text(&output);
    assert_eq!(told.lines().count(), 1, "{told}");
    for name in ["etcd v3.", "kube-apiserver v1.", "kube-scheduler v1.", "kube-controller-manager v1.", "make tools"] {
        assert!(told.contains(name), "{told}");
    }
}
