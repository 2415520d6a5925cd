//! A controller under test as a process of its own: started with Karpenter's environment, its log read line by line, ended
//! with its owner.

use crate::control_plane::last_lines;
use crate::recorder::Recorder;
use crate::tied;
use crate::tools::{self, Missing, Tool};
use crate::under_test::UnderTest;
use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a controller may take until its health is served. One that takes longer is left to the steps, which say what it
/// does not do.
const STARTED_WITHIN: Duration = Duration::from_secs(15);

/// A log is kept up to here; a controller that floods it shall not fill the disk. Scenarios write some hundred kilobytes.
const KEPT_LOG_BYTES: usize = 64 << 20;

/// A program with its first arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

impl Program {
    /// The program of a controller.
    ///
    /// # Errors
    /// Where it is upstream's and not there, or nothing.
    pub(crate) fn of(controller: &UnderTest) -> anyhow::Result<Self> {
        Ok(match controller {
            UnderTest::Nothing => bail!("nothing at all runs on the embedded backend alone"),
            // What the controller's own program does is a subcommand of this one.
            UnderTest::Ours => Self { path: "/proc/self/exe".into(), arguments: vec!["controller".into()] },
            UnderTest::Upstream => Self { path: Tool::Karpenter.find()?, arguments: Vec::new() },
            UnderTest::Program(path) => Self { path: path.clone(), arguments: Vec::new() },
        })
    }
}

/// Which definitions go with a controller: upstream's have their own, all others are given ours.
pub(crate) fn definitions_of(controller: &UnderTest) -> Result<crate::control_plane::Definitions, Missing> {
    use crate::control_plane::Definitions;
    Ok(match controller {
        UnderTest::Upstream => Definitions::Folder(tools::upstream_crds(&Tool::Karpenter.find()?)),
        UnderTest::Ours | UnderTest::Nothing | UnderTest::Program(_) => Definitions::Ours,
    })
}

/// A running controller.
pub(crate) struct Process {
    child: RefCell<tokio::process::Child>,
    log: PathBuf,
    /// What reads its output.
    readers: JoinSet<()>,
}

impl Process {
    /// Starts one and waits until its health is served on this port, or it ends.
    ///
    /// # Errors
    /// Where it does not run, or ends; with the last lines it wrote.
    pub(crate) async fn start(
        program: &Program,
        environment: &BTreeMap<String, String>,
        log: PathBuf,
        recorder: &Recorder,
    ) -> anyhow::Result<Self> {
        let mut process = Self::spawn(program, environment, log, recorder)?;
        process.wait_for_health(environment.get("HEALTH_PROBE_PORT").and_then(|port| port.parse().ok())).await?;
        Ok(process)
    }

    /// Starts one.
    ///
    /// # Errors
    /// Where it does not run.
    pub(crate) fn spawn(
        program: &Program,
        environment: &BTreeMap<String, String>,
        log: PathBuf,
        recorder: &Recorder,
    ) -> anyhow::Result<Self> {
        let mut command = tokio::process::Command::from(tied::command(&program.path, &program.arguments, environment)?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.path.display()))?;
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let kept = Rc::new(RefCell::new(Log { file, written: 0 }));
        let mut readers = JoinSet::new();
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        readers.spawn_local(read(output.context("its output is piped")?, recorder.clone(), kept.clone()));
        readers.spawn_local(read(errors.context("its errors are piped")?, recorder.clone(), kept));
        Ok(Self { child: RefCell::new(child), log, readers })
    }

    /// The number of the process, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.borrow().id()
    }

    /// Waits until it ends by itself and all that it wrote is in its log.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.child.get_mut().wait().await?;
        while self.readers.join_next().await.is_some() {}
        Ok(status)
    }

    async fn wait_for_health(&mut self, port: Option<u16>) -> anyhow::Result<()> {
        let Some(port) = port.filter(|port| *port != 0) else { return Ok(()) };
        let started = tokio::time::Instant::now();
        while started.elapsed() < STARTED_WITHIN {
            if let Some(ended) = self.ended().await? {
                bail!("{ended}");
            }
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// What to say if it has ended by itself.
    async fn ended(&mut self) -> anyhow::Result<Option<String>> {
        let Some(status) = self.child.get_mut().try_wait()? else { return Ok(None) };
        // What it wrote last is still in the pipe.
        while self.readers.join_next().await.is_some() {}
        Ok(Some(self.farewell(status)))
    }

    /// An error if it has ended by itself.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.child.borrow_mut().try_wait()? {
            Some(status) => Err(anyhow!(self.farewell(status))),
            None => Ok(()),
        }
    }

    fn farewell(&self, status: ExitStatus) -> String {
        format!("it ended with {status}; it said last: {}", last_lines(&self.log, 5))
    }

    /// Ends it at once.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.get_mut().kill().await.context("killing the controller")
    }

    /// Asks it to end, and ends it where it does not.
    pub(crate) async fn stop(&mut self, patience: Duration) -> anyhow::Result<()> {
        if let Some(id) =
            self.child.get_mut().id().and_then(|id| id.try_into().ok()).and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        if tokio::time::timeout(patience, self.child.get_mut().wait()).await.is_err() {
            self.child.get_mut().kill().await.context("killing the controller")?;
        }
        Ok(())
    }

    /// Runs until the token is cancelled, and is asked to end then.
    ///
    /// # Errors
    /// Where it ends by itself; with the last lines it wrote.
    pub(crate) async fn until(mut self, goodbye: CancellationToken, patience: Duration) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            () = goodbye.cancelled() => {}
            ended = self.wait() => {
                let status = ended?;
                bail!("{}", self.farewell(status));
            }
        }
        self.stop(patience).await
    }
}

struct Log {
    file: File,
    written: usize,
}

/// Reads what a controller writes: into its file, and into the record.
async fn read(from: impl AsyncRead + Unpin, recorder: Recorder, kept: Rc<RefCell<Log>>) {
    let mut lines = BufReader::new(from).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        {
            let mut log = kept.borrow_mut();
            if log.written < KEPT_LOG_BYTES {
                // A log that cannot be written is missed when somebody reads it; the scenario goes on.
                let _ = log.file.write_all(&line).and_then(|()| log.file.write_all(b"\n"));
                log.written += line.len() + 1;
            }
        }
        record_line(&recorder, &line);
    }
}

/// A line of JSON as Karpenter writes it, or else a line of text, which is how Go and Rust say that something went wrong.
pub(super) fn record_line(recorder: &Recorder, line: &[u8]) {
    let text = || String::from_utf8_lossy(line).trim_end().to_owned();
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
        if !line.is_empty() {
            recorder.log("ERROR", text(), BTreeMap::new());
        }
        return;
    };
    let mut take = |name: &str| fields.remove(name).map(|value| plain(&value)).unwrap_or_default();
    let (level, message) = (take("level").to_uppercase(), take("message"));
    for name in ["time", "logger", "commit"] {
        take(name);
    }
    let fields = fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
    recorder.log(if level.is_empty() { "INFO" } else { &level }, message, fields);
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // An object's name in a field called as its kind.
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("name") => plain(&fields["name"]),
        other => other.to_string(),
    }
}

/// Keeps what is worth keeping of a log when its scenario failed.
pub(crate) fn keep_log(from: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = from.file_name().with_context(|| format!("{} is no file", from.display()))?;
    std::fs::copy(from, folder.join(name)).with_context(|| format!("cannot keep {}", from.display()))?;
    Ok(())
}
