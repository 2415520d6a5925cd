//! Timestamps on the wire: RFC 3339 in whole seconds, as Kubernetes' `metav1.Time` writes them.

use jiff::{Timestamp, fmt::strtime};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};

pub(crate) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", *time).map_err(S::Error::custom)?.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    Timestamp::deserialize(deserializer)
}

/// The same for an optional field.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(deserializer)
    }
}
