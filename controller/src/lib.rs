//! The node autoscaler as a value that can be run, stopped and run again.
//!
//! [`run`] is the whole controller: it takes its settings, its two clients and its clock, and owns every task it starts.
//! Dropping its future is a crash, calling it again is a restart, and two calls at once are two replicas of which one
//! leads. Deciding is left to `controller-core` and AWS to `controller-aws`; what lives here observes (`mirror`), asks for
//! a decision (`reconcile`), carries it out (`apply`) and tells about it (`events`, `metrics`).

mod app;
pub mod config;
pub mod crd;
mod error;
mod events;
mod leader;
mod look;
mod measured;
pub mod metrics;
mod observability;
pub mod process;
mod server;
pub mod telemetry;

mod mirror;

mod apply;
mod reconcile;

pub use app::{RunHandles, run, run_with};
pub use config::Settings;
pub use look::look;
