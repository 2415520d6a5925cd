//! Condition keys and their values: what a policy may ask about a request.

use crate::cloud::tags::Tags;
use std::collections::BTreeMap;

/// Condition keys, which are known in any case of their letters, and their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Keys(BTreeMap<String, Vec<String>>);

impl Keys {
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(key.to_ascii_lowercase(), vec![value.into()]);
    }

    /// A key with several values. A key without any is as good as missing.
    pub(crate) fn set_all<T: Into<String>>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        if !values.is_empty() {
            self.0.insert(key.to_ascii_lowercase(), values);
        }
    }

    /// `prefix/key` for each tag, such as `aws:ResourceTag/team`.
    pub(crate) fn tags(&mut self, prefix: &str, tags: &Tags) {
        for (key, value) in tags {
            self.set(&format!("{prefix}/{key}"), value.as_str());
        }
    }

    /// What a request that brings tags says of them.
    // fidelity: documented(IAM User Guide, Global condition keys: aws:RequestTag, aws:TagKeys)
    pub(crate) fn request_tags(&mut self, tags: &Tags) {
        self.tags("aws:RequestTag", tags);
        self.set_all("aws:TagKeys", tags.keys().cloned());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        self.0.iter()
    }
}

/// The keys of one check: those of its resource, and those of the whole request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) own: &'a Keys,
    pub(crate) common: &'a Keys,
}

impl Facts<'_> {
    /// The values of a key, whose name is given in lower case.
    pub(crate) fn values(&self, key: &str) -> Option<&Vec<String>> {
        self.own.0.get(key).or_else(|| self.common.0.get(key))
    }
}
