//! The same manifests given to both controllers, each on a cluster of its own, and what they make of them compared.

use super::normal::leaves;
use super::observation::observe;
use crate::backend::{Backend, BackendName, RealTime, Setting};
use crate::invariants::Invariants;
use crate::recorder::Recorder;
use crate::scenario::On;
use crate::things::manifests::apply_file;
use crate::under_test::UnderTest;
use anyhow::{Context, bail};
use controller_clock::Clock;
use fake_kube::ServingCertificate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long an input may take until nothing changes any more.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);
/// Nothing changes any more where nothing has for this long: boots, tags and retries come sooner.
const QUIET_FOR: Duration = Duration::from_secs(25);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The seed of every account, so that both controllers meet the same ids and prices.
const SEED: u64 = 1;
/// What stands for a field that is not there.
const ABSENT: &str = "(absent)";

/// A difference that is meant, or cannot be helped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// The paths it is about; `*` stands for any text.
    pub path: String,
    /// The inputs it is about; none named is all.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Why.
    pub reason: String,
}

impl Accepted {
    fn is_about(&self, input: &str) -> bool {
        self.inputs.is_empty() || self.inputs.iter().any(|name| name == input)
    }
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where it stands.
    pub path: String,
    /// What our controller made.
    pub ours: String,
    /// What the other made.
    pub upstream: String,
    /// Why it is accepted; none: it is a fault.
    pub reason: Option<String>,
}

/// What came of one input.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The input's name.
    pub input: String,
    /// How many fields were compared.
    pub fields: usize,
    /// Those that differ.
    pub differences: Vec<Difference>,
    /// What kept the input from being compared.
    pub error: Option<String>,
}

impl Comparison {
    /// An input that could not be compared.
    pub fn failed(input: &Path, error: &anyhow::Error) -> Self {
        Self { input: title(input), fields: 0, differences: Vec::new(), error: Some(format!("{error:#}")) }
    }

    /// Whether nothing differs but what is accepted.
    pub fn is_equal(&self) -> bool {
        self.error.is_none() && self.faults().next().is_none()
    }

    /// The differences that nothing accepts.
    pub fn faults(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.reason.is_none())
    }
}

/// The inputs of a folder: its manifests, by name.
pub fn inputs(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    let mut paths: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    if paths.is_empty() {
        bail!("the folder {} holds no .yaml file", folder.display());
    }
    paths.sort();
    Ok(paths)
}

/// Gives an input to both controllers at once and compares.
///
/// # Errors
/// Where a controller does not run, or an input is refused.
pub async fn compare(input: &Path, accepted: &[Accepted], keep: Option<&Path>) -> anyhow::Result<Comparison> {
    let certificate = ServingCertificate::generate(&["localhost", "127.0.0.1"], Clock::system().now())?;
    let name = title(input);
    let logs = |which: &str| keep.map(|folder| folder.join(&name).join(which));
    let (ours, upstream) = futures::future::try_join(
        carry_out(UnderTest::Ours, input, certificate.clone(), logs("ours")),
        carry_out(UnderTest::Upstream, input, certificate.clone(), logs("upstream")),
    )
    .await?;
    for (which, observed) in [("ours", &ours), ("upstream", &upstream)] {
        if let Some(folder) = logs(which) {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("observed.json"), serde_json::to_vec_pretty(observed)?)?;
        }
    }
    let accepted: Vec<Accepted> = accepted.iter().filter(|one| one.is_about(&name)).cloned().collect();
    let (ours, upstream) = (leaves(&ours), leaves(&upstream));
    let fields = ours.keys().chain(upstream.keys()).collect::<BTreeSet<_>>().len();
    Ok(Comparison { input: name, fields, differences: differences(&ours, &upstream, &accepted), error: None })
}

fn title(input: &Path) -> String {
    input.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

async fn carry_out(
    controller: UnderTest,
    input: &Path,
    certificate: ServingCertificate,
    logs: Option<PathBuf>,
) -> anyhow::Result<Value> {
    let title = controller.to_string();
    let on = On::with(BackendName::Embedded, controller);
    let setting = Setting { on, place: None, certificate: Some(certificate), logs };
    let families = ["c5", "c6i", "m5", "m6g", "m6i", "r5", "r6i"].map(str::to_owned).into();
    let mut backend = RealTime::start(setting, SEED, families, Recorder::default(), Invariants::default()).await?;
    apply_file(&backend.kube(), input).await?;
    backend.start_controller(0).await?;
    let started = Instant::now();
    let mut last: Option<(Value, Instant)> = None;
    loop {
        backend.check_alive().with_context(|| title.clone())?;
        let now = observe(&backend).await?;
        match &last {
            Some((before, since)) if *before == now => {
                if since.elapsed() >= QUIET_FOR {
                    return Ok(now);
                }
            }
            _ => last = Some((now, Instant::now())),
        }
        if started.elapsed() > SETTLED_WITHIN {
            return Ok(last.map(|(value, _)| value).unwrap_or_default());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn differences(
    ours: &BTreeMap<String, String>,
    upstream: &BTreeMap<String, String>,
    accepted: &[Accepted],
) -> Vec<Difference> {
    let paths: BTreeSet<&String> = ours.keys().chain(upstream.keys()).collect();
    let differing = paths.into_iter().filter(|path| ours.get(*path) != upstream.get(*path));
    differing
        .map(|path| {
            let shown = |all: &BTreeMap<String, String>| all.get(path).map_or(ABSENT, String::as_str).to_owned();
            let reason = accepted.iter().find(|one| matches(&one.path, path)).map(|one| one.reason.clone());
            Difference { path: path.clone(), ours: shown(ours), upstream: shown(upstream), reason }
        })
        .collect()
}

/// Whether a text is what a pattern says, in which `*` stands for any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("a / b", "a / b", true),
            ("a / b", "a / bc", false),
            ("a / *", "a / b / c", true),
            ("a / * / c", "a / b / c", true),
            ("a / * / c", "a / b / d", false),
            ("*c", "a / b / c", true),
            ("*b*", "a / b / c", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn what_differs_is_told_with_its_reason_if_there_is_one() {
        let tree = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
        };
        let (ours, upstream) = (tree(&[("a", "1"), ("b", "2"), ("c", "3")]), tree(&[("a", "1"), ("b", "4")]));
        let accepted = [Accepted { path: "c".into(), inputs: Vec::new(), reason: "for a reason".into() }];
        let found = differences(&ours, &upstream, &accepted);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].path.as_str(), found[0].upstream.as_str(), &found[0].reason), ("b", "4", &None));
        assert_eq!((found[1].upstream.as_str(), found[1].reason.as_deref()), (ABSENT, Some("for a reason")));
    }
}
