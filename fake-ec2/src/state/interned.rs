//! Texts that the program itself has as constants (types, states, statuses), read back from JSON into constants.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The type of such a field. Under its own name: what is written as a reference, serde would have live in the JSON.
pub(crate) type Constant = &'static str;

/// The longest such text: some 40 characters, as `UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS` has.
const MAX_BYTES: usize = 128;

/// How many different ones are kept. Types and statuses together are below two thousand; whoever sends made-up ones is
/// refused before they take half a megabyte.
const MAX_TEXTS: usize = 4_000;

static TEXTS: LazyLock<Mutex<BTreeSet<Constant>>> = LazyLock::new(Mutex::default);

pub(crate) fn serialize<S: Serializer>(text: &Constant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Constant, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return Ok(known);
    }
    if text.len() > MAX_BYTES || texts.len() >= MAX_TEXTS {
        return Err(Error::custom("a type or status that no fake-ec2 has written"));
    }
    let kept: Constant = Box::leak(text.into_boxed_str());
    texts.insert(kept);
    Ok(kept)
}
