//! Members of a request that are kept as they came, so that an answer can tell them again. Nothing here acts on them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values by their path in the request: `CpuOptions.CoreCount`, `LicenseSpecification.1.LicenseConfigurationArn`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members(BTreeMap<String, String>);

impl Members {
    /// The value at a path.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Every path with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, value)| (path.as_str(), value.as_str()))
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members of these names.
    pub(crate) fn only(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(path, _)| names.contains(&head(path)));
        Self(kept.map(|(path, value)| (path.clone(), value.clone())).collect())
    }

    /// All but the members of these names.
    pub(crate) fn without(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(path, _)| !names.contains(&head(path)));
        Self(kept.map(|(path, value)| (path.clone(), value.clone())).collect())
    }

    /// Adds the members of another part of the request.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Puts `over` on top: a member it has replaces the whole member of that name.
    pub(crate) fn override_with(&mut self, over: &Self) {
        self.0.retain(|path, _| !over.0.keys().any(|given| head(given) == head(path)));
        self.0.extend(over.0.clone());
    }
}

impl FromIterator<(String, String)> for Members {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Self {
        Self(entries.into_iter().collect())
    }
}

fn head(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_given_again_replaces_the_whole_earlier_one() {
        let members = |entries: &[(&str, &str)]| -> Members {
            entries.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
        };
        let mut own = members(&[("CpuOptions.CoreCount", "2"), ("CpuOptions.ThreadsPerCore", "1"), ("KernelId", "k")]);
        own.override_with(&members(&[("CpuOptions.CoreCount", "4")]));
        assert_eq!(own, members(&[("CpuOptions.CoreCount", "4"), ("KernelId", "k")]));
    }
}
