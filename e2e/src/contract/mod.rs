//! fake-kube compared with a genuine API server: the same requests to both, and the same pods and nodes before both
//! schedulers. What differs is fixed, or listed with its reason.
//!
//! Reading order: [`run`], [`sequences`], [`definitions`], [`scheduler`]; the sequences themselves and the player of them are the crate
//! `fake-kube-contract`.

pub mod definitions;
mod scheduler;
mod sequences;

use crate::control_plane::{ControlPlane, Definitions, Programs, User};
use crate::tools::{Tool, upstream_crds};
use anyhow::Context;
use controller_clock::Clock;
use fake_kube::{FakeKube, actors};
use fake_kube_contract::sequence::{self, Sequence};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A server that takes part in the comparison.
#[derive(Clone)]
pub struct Server {
    /// What it is called in results, such as `fake-kube` or `kube-apiserver v1.36.3`.
    pub name: String,
    /// A client of it that may do everything.
    pub client: kube::Client,
}

/// What one part of the comparison found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// What was compared: `sequences`, `definitions` or `scheduler`.
    pub name: &'static str,
    /// How many cases were compared.
    pub cases: usize,
    /// Where the servers differ.
    pub differences: Vec<Difference>,
    /// What else is worth knowing of the cases, such as how many had which outcome.
    pub notes: Vec<String>,
}

/// A case in which two servers differ.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The case, by the name it has in its file.
    pub case: String,
    /// Where in the answer, and both values.
    pub found: String,
    /// Why this is accepted; none: it is a fault.
    pub reason: Option<String>,
}

/// The parts of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Request sequences.
    Sequences,
    /// Manifests of custom resources.
    Definitions,
    /// Random pods and nodes before both schedulers.
    Scheduler,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// One part; none: all of them.
    pub only: Option<Part>,
    /// The seed of names and of the scheduler's cases.
    pub seed: u64,
    /// How many random clusters the schedulers see.
    pub cases: usize,
    /// Where to keep what the genuine server answered; none: nowhere.
    pub record: Option<PathBuf>,
    /// A folder that is there for the processes' files.
    pub folder: PathBuf,
}

/// Told how many cases of a section are done, and of how many.
pub type Progress<'a> = dyn Fn(&str, usize, usize) + 'a;

/// Reads sequences: a file, a folder of them, or a folder with a folder `sequences`; `name` must be part of their names.
pub fn load(paths: &[PathBuf], name: Option<&str>) -> Result<Vec<Sequence>, sequence::SequenceError> {
    let mut found = Vec::new();
    for path in paths {
        let below = path.join("sequences");
        found.extend(sequence::load(if below.is_dir() { &below } else { path })?);
    }
    found.retain(|sequence| name.is_none_or(|name| sequence.name.contains(name)));
    Ok(found)
}

/// Starts both servers and compares them.
pub async fn run(programs: &Programs, options: &Options, progress: &Progress<'_>) -> anyhow::Result<Vec<Section>> {
    let plane = ControlPlane::start(programs, &options.folder, &Definitions::Ours, None).await?;
    let genuine = client_of(&plane).await?;
    remove_daemon_sets(&genuine).await.context("the stage of the genuine server")?;
    let cluster = FakeKube::new(fake_kube::Options { seed: options.seed, ..fake_kube::Options::new(Clock::system()) });
    let fake = kube::Client::new(cluster.service(), "default");
    let compared = async {
        let wanted = |part| options.only.is_none_or(|only| only == part);
        let mut sections = Vec::new();
        if wanted(Part::Scheduler) {
            sections.push(scheduler::section(&genuine, &fake, options.seed, options.cases, progress).await?);
        }
        if wanted(Part::Sequences) {
            sections.insert(0, sequences::section(&genuine, &fake, options, progress).await?);
        }
        if wanted(Part::Definitions) {
            let server = |name: &str, client: &kube::Client| Server { name: name.to_owned(), client: client.clone() };
            let version = Tool::KubeApiserver.version();
            let servers = [server(&format!("kube-apiserver {version}"), &genuine), server("fake-kube", &fake)];
            progress("definitions", 0, 1);
            let upstream = Tool::Karpenter.find().ok().map(|program| upstream_crds(&program));
            sections.push(definitions::section(&servers, upstream.as_deref()).await?);
            progress("definitions", 1, 1);
        }
        anyhow::Ok(sections)
    };
    tokio::select! {
        sections = compared => sections,
        () = actors::run(cluster.clone(), actors::Options::default()) => anyhow::bail!("fake-kube's actors ended"),
    }
}

/// A client that takes a refusal as the answer: the usual one tries again what a server is too busy for.
async fn client_of(plane: &ControlPlane) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(&plane.access().kubeconfig(User::Administrator))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// The nodes of the scheduler's cases are to hold what the case says, and nothing else.
async fn remove_daemon_sets(client: &kube::Client) -> anyhow::Result<()> {
    let all: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// Where sequences are looked for unless somebody says otherwise.
pub fn default_path() -> &'static Path {
    Path::new("fake-kube/contract")
}
