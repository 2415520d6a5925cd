//! Snapshots: what stands behind the account's images, and what volumes are made from.

use crate::cloud::instance::Volume;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A snapshot of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Snapshot {
    pub id: String,
    pub volume_id: String,
    pub volume_size_gib: u32,
    pub description: String,
    pub encrypted: bool,
    pub kms_key_id: Option<String>,
    pub started_at: Timestamp,
    pub completed_at: Timestamp,
    pub tags: Tags,
}

impl Snapshot {
    /// `pending` or `completed`.
    pub fn status(&self, now: Timestamp) -> &'static str {
        if self.completed_at <= now { "completed" } else { "pending" }
    }
}

impl Cloud {
    /// Makes a snapshot of a volume; its id is answered.
    // fidelity: assumed: a snapshot takes as long as an instance to run
    pub(crate) fn add_snapshot(&mut self, now: Timestamp, volume: &Volume, description: &str, tags: Tags) -> String {
        let snapshot = Snapshot {
            id: self.ids.resource("snap"),
            volume_id: volume.id.clone(),
            volume_size_gib: volume.size_gib(),
            description: description.into(),
            encrypted: volume.device.encrypted.unwrap_or(false),
            kms_key_id: volume.device.kms_key_id.clone(),
            started_at: now,
            completed_at: after(now, self.config.pace.pending),
            tags,
        };
        let id = snapshot.id.clone();
        self.images.snapshots.insert(id.clone(), snapshot);
        id
    }

    pub(crate) fn snapshot(&self, id: &str) -> Result<&Snapshot, ApiError> {
        self.images.snapshots.get(id).ok_or_else(|| Kind::SNAPSHOT.missing(id))
    }

    // fidelity: documented(EC2 API Reference, DeleteSnapshot; Error codes: InvalidSnapshot.InUse)
    pub(crate) fn delete_snapshot(&mut self, id: &str) -> Result<(), ApiError> {
        self.snapshot(id)?;
        if let Some(image) = self.images.user_of(id) {
            let message = format!("The snapshot {id} is currently in use by {image}");
            return Err(ApiError::client("InvalidSnapshot.InUse", message));
        }
        self.images.snapshots.remove(id);
        Ok(())
    }
}
