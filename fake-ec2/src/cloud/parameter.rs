//! The account's own SSM parameters: versions, labels, types. The public ones that name images are in `image`.

use super::tags::Tags;
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

// fidelity: documented(Systems Manager User Guide, Parameter versions: 100 versions; Parameter labels: 10 of a version)
const MAX_VERSIONS: usize = 100;
const MAX_LABELS: usize = 10;

/// A parameter that the account made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnParameter {
    /// `String`, `StringList` or `SecureString`.
    pub(crate) kind: String,
    pub(crate) description: String,
    pub(crate) tier: String,
    pub(crate) data_type: String,
    /// Of a `SecureString`.
    pub(crate) key_id: Option<String>,
    pub(crate) allowed_pattern: Option<String>,
    pub(crate) tags: Tags,
    /// The oldest first; never empty.
    pub(crate) versions: VecDeque<ParameterVersion>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ParameterVersion {
    pub(crate) number: u64,
    pub(crate) value: String,
    pub(crate) modified_at: Timestamp,
    /// The ARN of whoever wrote it.
    pub(crate) modified_by: String,
    pub(crate) labels: BTreeSet<String>,
}

impl OwnParameter {
    pub(crate) fn latest(&self) -> &ParameterVersion {
        self.versions.back().expect("a parameter begins with a version and keeps the newest")
    }

    /// The version that a selector means: its number or one of its labels.
    pub(crate) fn version(&self, selector: &str) -> Option<&ParameterVersion> {
        self.versions.iter().find(|version| version.number.to_string() == selector || version.labels.contains(selector))
    }

    /// Adds a version; the oldest makes room for it, unless a label holds it.
    // fidelity: documented(SSM API Reference, PutParameter: ParameterMaxVersionLimitExceeded)
    pub(crate) fn add(&mut self, value: String, modified_at: Timestamp, modified_by: String) -> Result<u64, ApiError> {
        if self.versions.len() >= MAX_VERSIONS {
            if self.versions.front().is_some_and(|oldest| !oldest.labels.is_empty()) {
                let message =
                    "The oldest version of the parameter has a label; move the label to make room for a new version.";
                return Err(ApiError::client("ParameterMaxVersionLimitExceeded", message));
            }
            self.versions.pop_front();
        }
        let number = self.latest().number + 1;
        self.versions.push_back(ParameterVersion { number, value, modified_at, modified_by, labels: BTreeSet::new() });
        Ok(number)
    }

    /// Gives a version these labels and takes them from others; labels that are not well-formed are answered.
    // fidelity: documented(SSM API Reference, LabelParameterVersion)
    pub(crate) fn label(&mut self, number: u64, labels: &[&str]) -> Result<Vec<String>, ApiError> {
        let (good, wrong): (Vec<&str>, Vec<&str>) = labels.iter().partition(|label| is_label(label));
        let present = self.versions.iter().find(|version| version.number == number);
        let present = present.ok_or_else(|| no_version(&number.to_string()))?;
        let together: BTreeSet<&str> = present.labels.iter().map(String::as_str).chain(good.iter().copied()).collect();
        if together.len() > MAX_LABELS {
            let message = "A parameter version can have a maximum of ten labels.";
            return Err(ApiError::client("ParameterVersionLabelLimitExceeded", message));
        }
        for version in &mut self.versions {
            version.labels.retain(|label| !good.contains(&label.as_str()));
            if version.number == number {
                version.labels.extend(good.iter().map(|label| (*label).to_owned()));
            }
        }
        Ok(wrong.into_iter().map(str::to_owned).collect())
    }

    /// Takes labels from a version; those it had and those it had not are answered.
    pub(crate) fn unlabel(&mut self, number: u64, labels: &[&str]) -> Result<(Vec<String>, Vec<String>), ApiError> {
        let version = self.versions.iter_mut().find(|version| version.number == number);
        let version = version.ok_or_else(|| no_version(&number.to_string()))?;
        Ok(labels.iter().map(|label| (*label).to_owned()).partition(|label| version.labels.remove(label)))
    }
}

/// Whether a text may be a label.
fn is_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let lower = text.to_ascii_lowercase();
    (1..=100).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && !lower.starts_with("aws")
        && !lower.starts_with("ssm")
}

// fidelity: assumed: wording
pub(crate) fn no_version(selector: &str) -> ApiError {
    let message = format!(
        "Systems Manager could not find version {selector} of the parameter. Verify the version and try again."
    );
    ApiError::client("ParameterVersionNotFound", message)
}
