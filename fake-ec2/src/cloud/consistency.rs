//! Eventual consistency: for a while after a change, Describe calls answer what was before it.

use super::tags::Tags;
use super::{Cloud, after};
use jiff::Timestamp;

impl Cloud {
    /// Keeps a resource's tags as Describe calls go on seeing them, before they are changed.
    // fidelity: documented(EC2 Developer Guide, Eventual consistency); assumed: for how long.
    pub(crate) fn keep_seen_tags(&mut self, now: Timestamp, ids: &[&str]) {
        if self.config.consistency_delay.is_zero() {
            return;
        }
        self.seen_tags.retain(|_, (_, until)| *until > now);
        let until = after(now, self.config.consistency_delay);
        for id in ids {
            // A second change within the delay does not bring the first one forward.
            if let Some(tags) = self.tags_of(id).cloned().filter(|_| !self.seen_tags.contains_key(*id)) {
                self.seen_tags.insert((*id).to_owned(), (tags, until));
            }
        }
    }

    /// The tags that Describe calls see of a resource.
    pub(crate) fn seen_tags<'a>(&'a self, now: Timestamp, id: &str, own: &'a Tags) -> &'a Tags {
        self.seen_tags.get(id).filter(|(_, until)| *until > now).map_or(own, |(tags, _)| tags)
    }

    /// Whether an index of the present tags would mislead.
    pub(crate) fn sees_earlier_tags(&self) -> bool {
        !self.seen_tags.is_empty()
    }
}
