//! Another controller in the place of this one, and this one in its place: what stays when one takes over from the other, and
//! where the two differ over the same input.
//!
//! [`census`](Census) is what scenarios look at when a controller takes over. [`compare`] gives both controllers the same
//! manifests, each on a cluster of its own, and compares what they make of them field by field.

mod census;
pub mod compare;
mod normal;
mod observation;

pub use census::{Census, Hashes, NodeClaimFacts};
