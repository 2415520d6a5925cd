//! The only code that writes to Kubernetes. It carries decisions out and makes none.

pub(crate) mod claims;
pub(crate) mod commands;
pub(crate) mod evictions;
pub(crate) mod patch;
