//! Everything that decides: which pods go where, which nodes to build, which to take away.
//!
//! Every public function here is a synchronous function over a [`snapshot::Snapshot`], the world at one instant. There
//! is no clock, no I/O, no randomness and no logging in this crate: the instant is part of the snapshot, ties are broken
//! by rules that can be named, and every "no" is returned as a typed reason for others to tell. The same snapshot gives
//! the same answer, whatever order its parts arrived in.
//!
//! Words used throughout, with Karpenter's meaning:
//! - *provisionable*: a pending pod that kube-scheduler found no room for, and that this controller may build a node for;
//! - *reschedulable*: a bound pod that will need another place when its node goes;
//! - *evictable*, *drainable*, *disruptable*: see [`snapshot::Pod`];
//! - *requirement*: the values one label may have; *compatible*: two sets of requirements can be met at once;
//! - *template*: a NodePool as a starting point for nodes; *planned node*: one being packed, not yet launched;
//! - *emptiness*, *drift*, *consolidation*: the reasons to take a node away of our own accord.
//!
//! Reading order: the algebra ([`requirement`], [`requirements`], [`quantity`], [`resources`]), what a decision may see
//! ([`snapshot`]), then the decisions ([`scheduling`], [`disruption`], [`lifecycle`]).

pub mod quantity;
pub mod resources;

pub mod requirement;
pub mod requirements;

pub mod host_ports;
pub mod selector;
pub mod taints;

pub mod catalog;
pub mod cloud;
pub mod settings;

pub mod snapshot;

pub mod scheduling;

pub mod disruption;

pub mod drift_hash;
pub mod explanation;
pub mod lifecycle;

pub mod check;
pub mod problem;
