//! The attributes of a queue that can be set, as they are understood.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest message, and the largest batch.
// fidelity: documented(SQS Developer Guide, Quotas: 1 MiB since August 2025)
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) visibility_timeout_s: i64,
    pub(crate) delay_s: i64,
    pub(crate) retention_s: i64,
    pub(crate) wait_s: i64,
    pub(crate) maximum_bytes: usize,
    /// Of a FIFO queue; a queue stays what it was created as.
    pub(crate) fifo: Option<FifoSettings>,
    pub(crate) redrive: Option<RedrivePolicy>,
    pub(crate) redrive_allow: Option<RedriveAllowPolicy>,
    /// `Policy`, and what changes nothing here: encryption.
    pub(crate) texts: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FifoSettings {
    pub(crate) content_based_deduplication: bool,
    /// Whether duplicates are looked for in each group alone (`DeduplicationScope`).
    pub(crate) by_group: bool,
    /// Whether the throughput limit is one of each group; it changes nothing here.
    pub(crate) limit_by_group: bool,
}

/// Where messages go that are received too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RedrivePolicy {
    pub(crate) dead_letter_target_arn: String,
    pub(crate) max_receive_count: u32,
}

/// Whose dead-letter queue a queue may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RedriveAllowPolicy {
    Everybody,
    Nobody,
    /// The ARNs of the sources.
    ByQueue(Vec<String>),
}

impl Default for Settings {
    // fidelity: documented(SQS API Reference, CreateQueue: attribute defaults)
    fn default() -> Self {
        Self {
            visibility_timeout_s: 30,
            delay_s: 0,
            retention_s: 345_600,
            wait_s: 0,
            maximum_bytes: MAX_MESSAGE_BYTES,
            fifo: None,
            redrive: None,
            redrive_allow: None,
            texts: BTreeMap::from([("SqsManagedSseEnabled".to_owned(), "true".to_owned())]),
        }
    }
}

impl Settings {
    /// The attributes by their names, as they are answered.
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        let Self {
            visibility_timeout_s,
            delay_s,
            retention_s,
            wait_s,
            maximum_bytes,
            fifo,
            redrive,
            redrive_allow,
            texts,
        } = self;
        let mut all = texts.clone();
        let mut set = |name: &str, value: String| drop(all.insert(name.to_owned(), value));
        set("VisibilityTimeout", visibility_timeout_s.to_string());
        set("DelaySeconds", delay_s.to_string());
        set("MessageRetentionPeriod", retention_s.to_string());
        set("ReceiveMessageWaitTimeSeconds", wait_s.to_string());
        set("MaximumMessageSize", maximum_bytes.to_string());
        if let Some(FifoSettings { content_based_deduplication, by_group, limit_by_group }) = fifo {
            set("FifoQueue", "true".into());
            set("ContentBasedDeduplication", content_based_deduplication.to_string());
            set("DeduplicationScope", if *by_group { "messageGroup" } else { "queue" }.into());
            set("FifoThroughputLimit", if *limit_by_group { "perMessageGroupId" } else { "perQueue" }.into());
        }
        if let Some(policy) = redrive {
            set("RedrivePolicy", policy.to_json());
        }
        if let Some(policy) = redrive_allow {
            set("RedriveAllowPolicy", policy.to_json());
        }
        all
    }
}

impl RedrivePolicy {
    fn to_json(&self) -> String {
        let Self { dead_letter_target_arn, max_receive_count } = self;
        serde_json::json!({"deadLetterTargetArn": dead_letter_target_arn, "maxReceiveCount": max_receive_count})
            .to_string()
    }
}

impl RedriveAllowPolicy {
    /// Whether the queue with this ARN may send its dead letters.
    pub(crate) fn allows(&self, source_arn: &str) -> bool {
        match self {
            Self::Everybody => true,
            Self::Nobody => false,
            Self::ByQueue(sources) => sources.iter().any(|source| source == source_arn),
        }
    }

    fn to_json(&self) -> String {
        match self {
            Self::Everybody => serde_json::json!({"redrivePermission": "allowAll"}),
            Self::Nobody => serde_json::json!({"redrivePermission": "denyAll"}),
            Self::ByQueue(sources) => serde_json::json!({"redrivePermission": "byQueue", "sourceQueueArns": sources}),
        }
        .to_string()
    }
}
