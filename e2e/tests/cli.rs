//! The program as its users meet it: what it prints, which code it ends with, and what it does with wrong input. Each
//! test is named for what a user would complain about.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const TRYSQUARE: &str = env!("CARGO_BIN_EXE_trysquare");

/// A scenario that passes in no time.
const QUICK: &str = "Feature: F\n  Scenario: Quick\n    When 1m passes\n";

/// A scenario that outlasts every test: a controller at work for years.
const LONG: &str =
    "Feature: F\n  Scenario: Long\n    Given a cluster set up as the guides describe\n    When 9999d passes\n";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("trysquare-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(name: &str, text: &str) -> Self {
        let folder = Self::new();
        folder.write(name, text);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TRYSQUARE);
        command.current_dir(&self.0).args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        run_in(&self.0, arguments)
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
    /// It ended with the code and said every one of the texts, and did not panic.
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

/// Runs in the repository itself.
fn in_repository(arguments: &[&str]) -> Ended {
    run_in(Path::new(".."), arguments)
}

fn run_in(folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(TRYSQUARE);
    Ended::from(command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap())
}

/// Waits, looking ever again, as there is nothing that would tell.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let (_open, never) = mpsc::channel::<()>();
    for _ in 0..1500 {
        if holds() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("not within 30s: {what}");
}

/// The processes that a process has started and that still live.
fn children(parent: u32) -> Vec<u32> {
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    processes.filter(|id| parent_and_state(*id).is_some_and(|(its, state)| its == parent && state != "Z")).collect()
}

fn parent_and_state(id: u32) -> Option<(u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.to_owned();
    Some((fields.next()?.parse().ok()?, state))
}

fn lives(id: u32) -> bool {
    parent_and_state(id).is_some_and(|(_, state)| state != "Z")
}

fn kill(signal: &str, id: u32) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
}

/// Starts the scenario that never ends and answers the program with its scenario's process, once that is at work.
fn start_long(folder: &Folder, arguments: &[&str]) -> (Child, u32) {
    let program = folder.start(arguments);
    wait_until("the scenario's process is there", || !children(program.id()).is_empty());
    let child = children(program.id())[0];
    (program, child)
}

#[test]
fn help_has_examples_and_fits_into_a_hundred_columns() {
    for command in [
        "",
        "test",
        "conformance",
        "report",
        "list",
        "steps",
        "cloud",
        "interrupt",
        "rebalance",
        "terminate",
        "exhaust",
        "restore",
        "completions",
    ] {
        let ended =
            in_repository(&[command, "--help"].iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>());
        ended.says(0, &["Usage: trysquare", "Examples", "Exit codes: 0 "]);
        let wide: Vec<&str> = ended.out.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:?}");
    }
    in_repository(&["--version"]).says(0, &["trysquare "]);
    in_repository(&["steps"]).says(0, &["{duration} passes"]);
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_is_wrong() {
    for (arguments, text) in [
        (&["test", "--wrong"][..], "--wrong"),
        (&["frob"], "frob"),
        (&["test", "--seed", "x"], "--seed"),
        (&["test", "--seed", "-1"], "'-1' for '--seed <N>'"),
        (&["test", "--jobs", "0"], "1..=256"),
        (&["test", "--backend", "moon"], "possible values: embedded"),
        (&["test", "--format", "xml"], "possible values: text, json"),
        (&["test", "/nowhere/at/all"], "no feature file or folder at /nowhere/at/all"),
        (&["test", "--tags", "@a and"], "is not a tag expression"),
        (&["list", "--tags", "essential"], "write for instance"),
        (&["test", "--name", "no scenario has this title"], "no scenario is selected"),
        (&["test", "--tags", "@esential"], "the nearest tag is @essential"),
        (&["test", "features/interruption:3"], "a line can be named of a file only"),
        (
            &["test", "features/interruption/spot_notice.feature:1"],
            ":1: no scenario starts at this line; the nearest starts at line ",
        ),
        (&["list", "README.md"], "README.md is not a .feature file"),
    ] {
        in_repository(arguments).says(2, &[text]);
    }
}

#[test]
fn a_backend_that_is_not_there_yet_ends_with_3_and_a_sentence() {
    let folder = Folder::with("x.feature", QUICK);
    folder.run(&["test", "x.feature", "--backend", "eks"]).says(3, &["the backend eks is not there yet"]);
}

#[test]
fn what_only_kind_has_is_refused_elsewhere_and_kind_needs_the_chart() {
    let folder = Folder::with("x.feature", QUICK);
    folder
        .run(&["test", "x.feature", "--image", "kindest/node:v1.36.4"])
        .says(3, &["--image, --controller-image and --keep-clusters are for --backend kind"]);
    folder
        .run(&["test", "x.feature", "--controller", "upstream", "--iam", "enforce"])
        .says(3, &["--iam enforce is for our controller"]);
    folder.run(&["test", "x.feature", "--without", "pods/list"]).says(2, &["\"pods/list\" is no permission"]);
}

#[test]
fn a_folder_without_features_and_a_file_without_scenarios_are_told_apart() {
    let folder = Folder::with("bare.feature", "Feature: F\n");
    std::fs::create_dir(folder.0.join("empty")).unwrap();
    folder.run(&["test", "empty"]).says(2, &["empty holds no .feature file"]);
    folder.run(&["test", "bare.feature"]).says(2, &["bare.feature holds no scenario"]);
    folder.run(&["test"]).says(2, &["no feature file or folder at features"]);
}

#[test]
fn a_syntax_error_names_its_own_line_and_not_a_later_one() {
    let scenario = "Feature: F\n  Scenario: S\n    When 1m passes\n";
    for (text, complaint) in [
        (
            format!("{scenario}  Scenaro: T\n    When 1m passes\n"),
            "x.feature:4: not valid Gherkin: \"Scenaro: T\" cannot stand here",
        ),
        (format!("{scenario}    Nonsense here\n"), "x.feature:4: not valid Gherkin: \"Nonsense here\""),
        (format!("{scenario}    \"\"\"\n    open\n"), "x.feature:4: not valid Gherkin: this text block has no closing"),
        (
            format!("{scenario}      | a | b |\n      | a |\n"),
            "x.feature:5: not valid Gherkin: the rows of a table differ",
        ),
        (String::new(), "x.feature:1: not valid Gherkin: a feature file begins with \"Feature: TITLE\""),
        (format!("# language: xx\n{scenario}"), "there is no language \"xx\""),
    ] {
        let folder = Folder::with("x.feature", &text);
        folder.run(&["test", "x.feature"]).says(2, &[complaint]);
    }
}

#[test]
fn a_misspelt_keyword_does_not_make_a_scenario_that_passes() {
    let folder = Folder::with("x.feature", "Feature: F\n\n  Scenario: S\n    Whn 1m passes\n");
    folder
        .run(&["test", "x.feature"])
        .says(2, &["x.feature:3: scenario \"S\" has no steps", "\"Whn 1m passes\" is read as a description"]);
}

#[test]
fn all_undefined_steps_are_named_with_their_line_and_the_nearest_known_step() {
    let text = "Feature: F\n  Scenario: S\n    # a note\n    When 5m pass by\n    Then the manifest \"x\" applied\n";
    let folder = Folder::with("x.feature", text);
    folder.run(&["test", "x.feature"]).says(2, &[
        "x.feature:4: no step reads \"5m pass by\"; the nearest is \"{duration} passes\"",
        "x.feature:5: no step reads \"the manifest \\\"x\\\" applied\"; the nearest is \"the manifest {string} is applied\"",
    ]);
}

#[test]
fn an_undefined_step_in_another_file_does_not_keep_a_scenario_from_running() {
    let folder = Folder::with("good.feature", QUICK);
    folder.write("new.feature", "Feature: G\n  Scenario: New\n    When something new happens\n");
    folder.run(&["test", ".", "--name", "quick"]).says(0, &["1 passed"]);
    folder.run(&["test", "."]).says(2, &["new.feature:3: no step reads"]);
}

#[test]
fn an_outline_stands_for_its_rows_and_says_where_it_does_not() {
    let outline = "Feature: F\n  Scenario Outline: Wait <t>\n    When <t> passes\n";
    let rows = format!("{outline}\n    Examples:\n      | t |\n\n      # a note\n      | 1m |\n      | 2m |\n");
    let folder = Folder::with("x.feature", &rows);
    folder.run(&["list", "x.feature"]).says(0, &["x.feature:9", "x.feature:10", "2 scenarios"]);
    folder.run(&["list", "x.feature:2"]).says(0, &["2 scenarios"]);
    folder.run(&["list", "x.feature:10"]).says(0, &["Wait 2m", "1 scenario\n"]);
    for (text, complaint) in [
        (outline.to_owned(), "x.feature:2: the outline \"Wait <t>\" has no row of examples"),
        (format!("{outline}    Examples:\n      | t |\n"), "has no row of examples"),
        (rows.replace("| t |", "| u |"), "x.feature:3: <t> is no column of the examples, which are: u"),
        (rows.replace("| 2m |", "| 2m | 3m |"), "x.feature:10: not valid Gherkin: the rows of a table differ"),
    ] {
        folder.write("x.feature", &text);
        folder.run(&["test", "x.feature"]).says(2, &[complaint]);
    }
}

#[test]
fn a_number_too_large_for_its_type_does_not_panic_or_run_for_ever() {
    for step in ["99999999999999999999s passes", "99999999999999999999 objects exist"] {
        let folder = Folder::with("x.feature", &format!("Feature: F\n  Scenario: S\n    When {step}\n"));
        folder.run(&["test", "x.feature"]).says(2, &["x.feature:3: no step reads"]);
    }
}

#[test]
fn a_scenario_named_twice_runs_once() {
    let folder = Folder::with("sub/x.feature", QUICK);
    std::os::unix::fs::symlink("..", folder.0.join("sub/up")).unwrap();
    folder.run(&["list", ".", "sub", "./sub/x.feature"]).says(0, &["1 scenario\n"]);
}

#[test]
fn a_wrong_manifest_is_answered_in_the_api_servers_own_words_with_the_path() {
    let pool = |extra: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec:\n  {extra}\n  template:\n    spec:\n      \
             requirements: [{{key: kubernetes.io/arch, operator: OPERATOR, values: [amd64]}}]\n      \
             nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}}\n"
        )
    };
    let good = pool("weight: 1").replace("OPERATOR", "In");
    let cases = [
        ("good", good.clone(), 0, "1 passed"),
        ("unknown-field", pool("wieght: 1").replace("OPERATOR", "In"), 1, ".spec.wieght: field not declared in schema"),
        ("quantity", pool("limits: {cpu: ten}").replace("OPERATOR", "In"), 1, "spec.limits.cpu: Invalid value: \"ten\""),
        ("operator", pool("weight: 1").replace("OPERATOR", "Is"), 1, "spec.template.spec.requirements[0].operator: Unsupported value: \"Is\""),
        (
            "pod",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b, resources: {requests: {cpu: much}}}]}\n".into(),
            1,
            "(spec.containers[0].resources.requests[cpu])",
        ),
        ("twice", good.replace("  weight: 1", "  weight: 1\n  weight: 2"), 1, "duplicate entry with key \"weight\""),
        ("yaml", "kind: Pod\n  metadata: [".into(), 1, "not valid YAML"),
        ("text", "no object\n".into(), 1, "not a Kubernetes object"),
        ("nothing", "---\n".into(), 1, "it holds no object"),
        ("kind", good.replace("kind: NodePool", "kind: NodePol"), 1, "no matches for kind \"NodePol\" in version \"karpenter.sh/v1\"\n"),
        ("nameless", good.replace("{name: p}", "{}"), 1, "the object has no metadata.name"),
    ];
    let folder = Folder::new();
    for (name, manifest, code, text) in cases {
        folder.write(&format!("manifests/{name}.yaml"), &manifest);
        let steps = "    Given a cluster set up as the guides describe, its controller not yet started\n";
        let scenario =
            format!("Feature: F\n  Scenario: {name}\n{steps}    When the manifest \"{name}.yaml\" is applied\n");
        folder.write("sub/x.feature", &scenario);
        let ended = folder.run(&["test", "sub/x.feature"]);
        ended.says(code, &[text]);
        if code == 1 {
            ended.says(1, &["sub/x.feature:4: When the manifest", &format!("manifest manifests/{name}.yaml: ")]);
        }
        // Rust's own types are nothing to a user.
        assert!(!ended.out.contains("Status {") && !ended.out.contains("struct "), "{}", ended.out);
    }
}

#[test]
fn a_missing_manifest_is_named_and_found_also_from_the_folder_of_the_feature() {
    let folder = Folder::with("manifests/m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n");
    let given = "Feature: F\n  Scenario: S\n    Given a cluster set up as the guides describe, its controller not yet started\n";
    folder.write("sub/x.feature", &format!("{given}    When the manifest \"absent.yaml\" is applied\n"));
    folder.run(&["test", "sub/x.feature"]).says(1, &["cannot read the manifest manifests/absent.yaml: No such file"]);
    run_in(&folder.0.join("sub"), &["test", "x.feature"]).says(1, &["/manifests/absent.yaml"]);
}

#[test]
fn a_report_that_cannot_be_written_is_noticed_before_the_scenarios_run() {
    let folder = Folder::with("x.feature", LONG);
    folder.write("file", "");
    folder.write("taken/report.json/inside", "");
    for (report, text) in [
        ("file", "cannot make the folder file/journals"),
        ("/proc/x", "/proc/x"),
        ("taken", "cannot write taken/report.json"),
    ] {
        folder.run(&["test", "x.feature", "--report", report]).says(2, &[text]);
    }
}

#[test]
fn the_report_is_what_its_documentation_says() {
    let folder = Folder::with("x.feature", "Feature: <F> & \"G\"\n  @a.b\n  Scenario: S <1>\n    When 1m passes\n");
    folder.write("y.feature", "Feature: H\n  Scenario: Fails\n    Given the manifest \"<absent>.yaml\" is applied\n");
    folder.write("out/journals/0007-1.jsonl", "left by an earlier run");
    folder.write("out/journals/mine.jsonl", "not of the program");
    let ended = folder.run(&["test", ".", "--report", "out", "--twice", "--format", "json"]);
    ended.says(1, &[]);
    let text = std::fs::read_to_string(folder.0.join("out/report.json")).unwrap();
    assert_eq!(ended.out, text + "\n", "--format json prints what report.json holds");
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let whole = ["catalogue", "command", "scenarios", "schema_version", "started_at", "summary", "trysquare_version"];
    assert_eq!(keys(&report), whole);
    assert_eq!(keys(&report["summary"]), ["failed", "passed", "skipped", "virtual_s", "wall_s"]);
    assert_eq!((&report["summary"]["passed"], &report["summary"]["failed"]), (&1.into(), &1.into()));
    let [passed, failed] = report["scenarios"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(report["command"], serde_json::json!(["test", ".", "--report", "out", "--twice", "--format", "json"]));
    let of_result = [
        "backend",
        "chronicle",
        "controller",
        "journal",
        "repeat",
        "scenario",
        "seed",
        "verdict",
        "virtual_s",
        "wall_s",
    ];
    assert_eq!(keys(passed), of_result);
    assert_eq!(passed["chronicle"]["ended_ms"], 62_000);
    assert_eq!(passed["chronicle"]["steps"], serde_json::json!([{"began_ms": 0, "ended_ms": 60_000}]));
    assert_eq!(keys(&passed["scenario"]), ["feature", "line", "name", "path", "steps", "tags"]);
    assert_eq!(keys(&passed["journal"]), ["calls", "entries", "sha256"]);
    // The minute of the scenario, and the two seconds in which the invariants are looked at once more.
    assert_eq!(passed["virtual_s"], 62.0);
    assert_eq!(passed["scenario"]["tags"], serde_json::json!(["a.b"]));
    assert_eq!(passed["repeat"]["identical"], true);
    assert_eq!(keys(&failed["verdict"]), ["last_observed", "message", "outcome", "step", "timeline"]);
    assert_eq!(failed["verdict"]["outcome"], "failed");
    let documentation = include_str!("../../docs/report.md");
    for key in keys(&report)
        .into_iter()
        .chain(keys(passed))
        .chain(keys(&failed["verdict"]))
        .chain(keys(&passed["journal"]))
        .chain(keys(&passed["chronicle"]))
    {
        assert!(documentation.contains(&key), "{key} is not documented");
    }
    let mut journals: Vec<_> = std::fs::read_dir(folder.0.join("out/journals"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    journals.sort();
    assert_eq!(journals, ["0000-1.jsonl", "0000-2.jsonl", "0001-1.jsonl", "0001-2.jsonl", "mine.jsonl"]);
    let junit = std::fs::read_to_string(folder.0.join("out/junit.xml")).unwrap();
    assert!(junit.contains(r#"<testsuite name="&lt;F&gt; &amp; &quot;G&quot;" tests="1" failures="0">"#), "{junit}");
    assert!(junit.contains(r#"<testsuites tests="2" failures="1" skipped="0""#), "{junit}");
    assert_well_formed(&junit);
}

#[test]
fn the_page_of_a_report_is_there_and_can_be_drawn_anew() {
    let folder = Folder::with("x.feature", QUICK);
    folder.run(&["test", "x.feature", "--report", "out"]).says(0, &["1 passed", "report: out/report.html"]);
    let page = || std::fs::read_to_string(folder.0.join("out/report.html")).unwrap();
    let first = page();
    assert!(first.starts_with("<!DOCTYPE html>") && first.contains("1 passed, 0 failed, 0 skipped"), "{first}");
    folder.write("out/report.html", "spoilt");
    folder.run(&["report", "out"]).says(0, &["report: out/report.html"]);
    assert_eq!(page(), first);
}

#[test]
fn a_report_that_cannot_be_read_is_named_with_what_would_be_right() {
    let folder = Folder::new();
    folder.write("other/report.json", r#"{"schema_version": 99}"#);
    folder.write("broken/report.json", "[]");
    for (name, text) in [
        ("absent", "cannot read absent/report.json; name a folder that --report wrote"),
        ("other", "other/report.json has schema version 99; this program reads version 1"),
        ("broken", "broken/report.json is no report of trysquare"),
    ] {
        folder.run(&["report", name]).says(2, &[text]);
    }
}

fn keys(value: &serde_json::Value) -> Vec<String> {
    let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}

/// Every element is closed in its order, and no bare markup character stands in a text.
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = xml.split_once("?>").unwrap().1;
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap();
        assert!(!text.contains('>'), "{piece}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
        for entity in piece.split('&').skip(1) {
            assert!(["lt;", "gt;", "amp;", "quot;", "#10;"].iter().any(|known| entity.starts_with(known)), "{piece}");
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_reader_that_closes_its_pipe_causes_no_panic() {
    let folder = Folder::with("x.feature", QUICK);
    for (arguments, code) in [
        (&["list", "x.feature"][..], 0),
        (&["steps"], 0),
        (&["steps", "--format", "json"], 0),
        (&["test", "x.feature"], 0),
    ] {
        let mut program = folder.start(arguments);
        // The read ends go before a word is written, or soon after: either must do.
        drop((program.stdout.take(), program.stderr.take()));
        assert_eq!(program.wait().unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_told() {
    let folder = Folder::with("x.feature", QUICK);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = folder.command(&["list", "x.feature"]).stdout(full).output().map(Ended::from).unwrap();
    ended.says(2, &["cannot write to standard output"]);
}

#[test]
fn ctrl_c_leaves_no_process_and_no_file_behind() {
    let folder = Folder::with("x.feature", LONG);
    std::fs::create_dir(folder.0.join("tmp")).unwrap();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut command = folder.command(&["test", "x.feature", "--twice"]);
        let program =
            command.env("TMPDIR", folder.0.join("tmp")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the scenario's process is there", || !children(program.id()).is_empty());
        let child = children(program.id())[0];
        kill(signal, program.id());
        let ended = Ended::from(program.wait_with_output().unwrap());
        ended.says(code, &["trysquare: interrupted after 0 of 1 scenarios"]);
        wait_until("the scenario's process is gone", || !lives(child));
        assert_eq!(std::fs::read_dir(folder.0.join("tmp")).unwrap().count(), 0);
    }
}

#[test]
fn ctrl_c_while_the_next_scenario_starts_leaves_no_file_behind() {
    let rows = "      | 1m |\n".repeat(300);
    let text =
        format!("Feature: F\n  Scenario Outline: Quick\n    When <t> passes\n    Examples:\n      | t |\n{rows}");
    let folder = Folder::with("x.feature", &text);
    std::fs::create_dir(folder.0.join("tmp")).unwrap();
    let mut command = folder.command(&["test", "x.feature", "--twice", "--jobs", "8"]);
    let mut program = command.env("TMPDIR", folder.0.join("tmp")).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(program.stderr.take().unwrap()).lines();
    assert_eq!(told.next().unwrap().unwrap(), "passed  Quick");
    kill("-INT", program.id());
    assert!(told.last().unwrap().unwrap().contains("of 300 scenarios"));
    assert_eq!(program.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(folder.0.join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_program_that_is_killed_takes_its_scenarios_with_it() {
    let folder = Folder::with("x.feature", LONG);
    let (mut program, child) = start_long(&folder, &["test", "x.feature"]);
    program.kill().unwrap();
    program.wait().unwrap();
    wait_until("the scenario's process is gone", || !lives(child));
}

#[test]
fn a_scenario_whose_process_is_killed_fails_with_that_reason_and_the_others_go_on() {
    let folder = Folder::with("x.feature", LONG);
    folder.write("y.feature", QUICK);
    let (program, child) = start_long(&folder, &["test", ".", "--jobs", "1"]);
    kill("-KILL", child);
    let ended = Ended::from(program.wait_with_output().unwrap());
    ended.says(
        1,
        &["FAILED   Long", "ended without a result, with signal: 9 (SIGKILL)", "passed   Quick", "1 passed, 1 failed"],
    );
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let folder = Folder::with("x.feature", QUICK);
    let runs: Vec<Child> = (0..2).map(|_| folder.start(&["test", "x.feature", "--twice"])).collect();
    for run in runs {
        Ended::from(run.wait_with_output().unwrap()).says(0, &["identical", "1 passed"]);
    }
}

#[test]
fn a_task_that_is_none_is_refused_by_the_scenarios_process() {
    let mut program = Command::new(TRYSQUARE);
    let mut program = program
        .arg("scenario-process")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(b"{}\n").unwrap();
    Ended::from(program.wait_with_output().unwrap()).says(2, &["no task on standard input"]);
}

#[test]
fn each_scenario_is_listed_with_its_rows_and_what_they_need() {
    let text = "@essential\nFeature: Nodes come\n  @provisioning.pending-pod-creates-node\n  Scenario: First\n    When 1m passes\n";
    let folder = Folder::with("x.feature", text);
    let listed = folder.run(&["list", "x.feature"]);
    listed.says(0, &["Nodes come", "x.feature:4", "@essential @provisioning.pending-pod-creates-node", "1 scenario\n"]);
    // As the catalogue has it.
    listed.says(0, &["  kubelet scheduler\n"]);
    let json: serde_json::Value =
        serde_json::from_str(&folder.run(&["list", "x.feature", "--format", "json"]).out).unwrap();
    assert_eq!(json[0]["rows"], serde_json::json!(["provisioning.pending-pod-creates-node"]));
    assert_eq!(json[0]["needs"], serde_json::json!(["kubelet", "scheduler"]));
    assert_eq!(json[0]["name"], "First");
}

#[test]
fn the_rows_of_the_catalogue_say_whether_a_scenario_covers_them() {
    let text = "Feature: F\n  @provisioning.pending-pod-creates-node\n  Scenario: First\n    When 1m passes\n";
    let folder = Folder::with("x.feature", text);
    let catalogue = include_str!("../../features/behaviours.yaml");
    let rows = catalogue.lines().filter(|line| line.starts_with("- id:")).count();
    let summary = format!("{rows} rows: 1 covered, {} not covered\n", rows - 1);
    folder.run(&["list", "x.feature", "--rows"]).says(0, &[&summary, "not covered"]);
    let name = ["list", "x.feature", "--rows", "--name", "pending-pod-creates"];
    folder.run(&name).says(0, &["core   1 scenario", "1 row: 1 covered, 0 not covered\n"]);
    folder.run(&["list", "x.feature", "--rows", "--tags", "@covered"]).says(0, &["1 row: 1 covered, 0 not covered\n"]);
    let tags = ["list", "x.feature", "--rows", "--tags", "@provisioning.only-unschedulable-pods", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&folder.run(&tags).out).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!((&json[0]["covered"], &json[0]["level"]), (&serde_json::json!(false), &serde_json::json!("core")));
    assert_eq!(json[0]["needs"], serde_json::json!(["scheduler"]));
}

#[test]
fn steps_are_found_by_words() {
    in_repository(&["steps", "PASSES"]).says(0, &["time\n  {duration} passes\n"]);
    let both = in_repository(&["steps", "manifest", "applied"]);
    both.says(0, &["the manifest {string} is applied"]);
    assert!(!both.out.contains("{duration} passes"), "{both:?}");
    in_repository(&["steps", "zeppelin"]).says(1, &["no sentence holds \"zeppelin\"", "trysquare steps"]);
}

#[test]
fn completions_are_scripts_that_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = in_repository(&["completions", shell]);
        ended.says(0, &["interrupt", "exhaust", "completions", "endpoint-url"]);
        assert!(!ended.out.contains("scenario-process"), "{shell} would offer what is not for people");
    }
    let script = in_repository(&["completions", "bash"]).out;
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success(), "bash reads it without complaint");
    in_repository(&["completions", "tcsh"]).says(2, &["possible values: bash, zsh, fish"]);
}

#[test]
fn the_problem_of_the_readme_is_explained_and_a_misspelt_field_is_named() {
    let catalogues = "controller/core/tests/data/parity";
    // Both pools would do, and the heavier one is asked first (core spec §3).
    in_repository(&["explain", "docs/problem.jsonl", "--catalogues", catalogues])
        .says(0, &["a new node of NodePool high for 3 × web"]);
    let folder = Folder::with("wrong.jsonl", "{\"id\": \"a\", \"nodePool\": []}\n");
    folder.run(&["explain", "wrong.jsonl"]).says(2, &["line 1", "unknown field `nodePool`", "`nodePools`"]);
}
