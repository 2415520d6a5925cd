//! Tags and their rules.

use crate::error::ApiError;
use std::collections::BTreeMap;

/// The tags of one resource.
pub type Tags = BTreeMap<String, String>;

const MAX_TAGS: usize = 50;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 256;

/// Refuses tags EC2 would refuse on a resource that already carries `present`.
// fidelity: documented(EC2 User Guide, Tag your Amazon EC2 resources: tag restrictions)
pub(crate) fn check(present: &Tags, added: &Tags) -> Result<(), ApiError> {
    for (key, value) in added {
        if key.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("aws:")) {
            return Err(ApiError::invalid_value(format!(
                "Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use"
            )));
        }
        if key.chars().count() > MAX_KEY {
            return Err(ApiError::invalid_value("Tag key exceeds the maximum length of 128 characters"));
        }
        if value.chars().count() > MAX_VALUE {
            return Err(ApiError::invalid_value("Tag value exceeds the maximum length of 256 characters"));
        }
    }
    let fresh = added.keys().filter(|key| !present.contains_key(*key)).count();
    if present.len() + fresh > MAX_TAGS {
        return Err(ApiError::client(
            "TagLimitExceeded",
            "The maximum number of Tags for a resource has been reached.",
        ));
    }
    Ok(())
}
