//! The contract of fake-kube: hand-written request sequences, one rule of the API each, that it answers as a genuine
//! kube-apiserver does, and clusters in which its scheduler decides as the genuine one does.
//!
//! Reading order: [`sequence`] (what stands in the files), [`player`] (plays it to one server), [`masks`] (what two
//! servers cannot agree on), [`compare`]; [`scheduler`] stands for itself.

pub mod compare;
pub mod masks;
pub mod player;
pub mod recorded;
pub mod scheduler;
pub mod sequence;
