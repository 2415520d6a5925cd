//! What a refused request is told: AWS's code, its message and the HTTP status.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A refusal as AWS words it. `wire::error` renders it for each protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// AWS's error code, such as `InvalidInstanceID.NotFound`.
    pub code: Cow<'static, str>,
    /// A sentence for people.
    pub message: String,
    /// The HTTP status.
    pub status: u16,
}

impl ApiError {
    /// A refusal with this status.
    pub fn new(status: u16, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), status }
    }

    /// A refusal the client caused (HTTP 400).
    pub fn client(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    pub(crate) fn invalid_value(message: impl Into<String>) -> Self {
        Self::client("InvalidParameterValue", message)
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        Self::client("MissingParameter", format!("The request must contain the parameter {parameter}"))
    }

    /// What a permitted request with `DryRun` is told.
    // fidelity: documented(EC2 API Reference, Common errors: DryRunOperation)
    pub(crate) fn dry_run() -> Self {
        Self::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
    }
}
