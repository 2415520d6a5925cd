//! The kit: runs the features on a backend and reports.
//!
//! Reading order: [`features`] (what is to be shown), [`steps`] (the vocabulary), [`world`] (what a scenario holds),
//! [`scenario`] (one scenario in its own process), [`runner`] (many of them), [`report`].

pub mod account;
pub mod backend;
mod catalogue;
pub mod chronicle;
pub mod cli;
pub mod cloud;
pub mod compatibility;
pub mod conformance;
pub mod contract;
pub mod control_plane;
pub mod eventually;
pub mod fake_cluster;
pub mod features;
mod http_exchange;
pub mod invariants;
pub mod kind;
pub mod kubelet;
mod loopback;
pub mod params;
pub mod permissions;
mod place;
mod pods;
pub mod recorder;
pub mod release;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod serve;
pub mod steps;
mod story;
mod temporary;
pub mod things;
pub mod tied;
pub mod tools;
pub mod under_test;
pub mod verdict;
pub mod world;
