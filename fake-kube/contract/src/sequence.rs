//! Sequences as they stand in files: one rule each, in a sentence, and the requests that show it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One rule and the requests that show it.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The file's name without its extension.
    pub name: String,
    /// What the server promises, in a sentence.
    pub rule: String,
    /// Whether `metadata.managedFields` is compared. Elsewhere it is left out of the comparison.
    pub managed_fields: bool,
    /// Whether the sequence asks for what everybody shares, so that no other may run beside it.
    pub alone: bool,
    /// The requests, in order.
    pub steps: Vec<Step>,
    /// The text of the file: what it says itself is never masked.
    pub text: String,
    /// The file.
    pub path: PathBuf,
}

/// One step of a sequence.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Step {
    /// A request and its reply.
    Request(Request),
    /// A watch that stays open.
    Watch(Watch),
    /// What a watch has told since it was last asked.
    Events(Events),
}

/// A request and what is expected of its reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Method and path, such as `GET /api/v1/nodes`.
    pub request: String,
    /// The expected status code.
    pub expect: u16,
    /// The media type of the body; of a patch without `application/` and what follows it.
    #[serde(default, rename = "type")]
    pub media: Option<String>,
    /// The form that is asked for.
    #[serde(default)]
    pub accept: Option<String>,
    /// The body: sent as JSON, or as it is where it is a text.
    #[serde(default)]
    pub body: Option<Value>,
    /// Values of the reply that later steps use as `${name}`, by JSON pointer into the body.
    #[serde(default)]
    pub keep: BTreeMap<String, String>,
    /// Ask again until the body holds these values at these pointers; what controllers do takes a moment.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// Values that the body must hold at these pointers, whatever the other server says.
    #[serde(default)]
    pub see: BTreeMap<String, Value>,
    /// Where replies may differ without saying anything, by pattern of JSON pointer.
    #[serde(default)]
    pub mask: Vec<String>,
    /// Where the servers do differ, by pattern of JSON pointer, and why this is accepted.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

/// A watch that stays open under a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The path with its query.
    pub watch: String,
    /// The name by which `events` asks for it.
    #[serde(rename = "as")]
    pub name: String,
    /// The form that is asked for.
    #[serde(default)]
    pub accept: Option<String>,
}

/// What a watch has told since it was last asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// The name of the watch.
    pub events: String,
    /// Type and name of every event, such as `ADDED a`; bookmarks have no name.
    pub expect: Vec<String>,
    /// Whether the server then ends the watch.
    #[serde(default)]
    pub end: bool,
    /// Whether bookmarks count. Their times are the server's own, so they are dropped unless they end the beginning.
    #[serde(default)]
    pub bookmarks: bool,
    /// Where events may differ without saying anything.
    #[serde(default)]
    pub mask: Vec<String>,
    /// Where the servers do differ, and why this is accepted.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: String,
    #[serde(default)]
    managed_fields: bool,
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    include: Option<String>,
    steps: Vec<Value>,
}

/// A file that is not a sequence.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// It cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its text is not YAML or lacks something.
    #[error("{}: {detail}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
}

/// Reads the sequences of a file or a folder, in the order of their names.
pub fn load(path: &Path) -> Result<Vec<Sequence>, SequenceError> {
    if path.is_file() {
        return Ok(vec![read(path)?]);
    }
    let unreadable = |source| SequenceError::Unreadable { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            files.push(file);
        }
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(path: &Path) -> Result<Sequence, SequenceError> {
    let malformed = |detail: String| SequenceError::Malformed { path: path.to_owned(), detail };
    let text =
        std::fs::read_to_string(path).map_err(|source| SequenceError::Unreadable { path: path.to_owned(), source })?;
    let file: File = serde_yaml_ng::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let mut steps = Vec::new();
    if let Some(include) = &file.include {
        let path = path.with_file_name("include").join(format!("{include}.yaml"));
        let included = read(&path)?;
        steps.extend(included.steps);
    }
    for (index, step) in file.steps.into_iter().enumerate() {
        steps.push(parse_step(step).map_err(|error| malformed(format!("step {}: {error}", index + 1)))?);
    }
    Ok(Sequence {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        rule: file.rule,
        managed_fields: file.managed_fields,
        alone: file.alone,
        steps,
        text,
        path: path.to_owned(),
    })
}

/// By its first key, so that a mistake is told in the words of the step that was meant.
fn parse_step(step: Value) -> Result<Step, serde_json::Error> {
    Ok(if step.get("watch").is_some() {
        Step::Watch(serde_json::from_value(step)?)
    } else if step.get("events").is_some() {
        Step::Events(serde_json::from_value(step)?)
    } else {
        Step::Request(serde_json::from_value(step)?)
    })
}

impl Step {
    /// The step in one line.
    pub fn title(&self) -> String {
        match self {
            Self::Request(step) => step.request.clone(),
            Self::Watch(step) => format!("watch {}", step.watch),
            Self::Events(step) => format!("events of {}", step.events),
        }
    }

    /// Where the servers may differ without saying anything.
    pub fn mask(&self) -> &[String] {
        match self {
            Self::Request(step) => &step.mask,
            Self::Watch(_) => &[],
            Self::Events(step) => &step.mask,
        }
    }

    /// Where the servers do differ, and why this is accepted.
    pub fn differs(&self) -> impl Iterator<Item = (&String, &String)> {
        match self {
            Self::Request(step) => Some(&step.differs),
            Self::Watch(_) => None,
            Self::Events(step) => Some(&step.differs),
        }
        .into_iter()
        .flatten()
    }
}
