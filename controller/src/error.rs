//! Why a reconcile failed, and what its loop does about it.

use controller_core::cloud::CloudError;
use std::fmt;

/// A failed reconcile. The loop retries it with back-off; a conflict is retried at once and without a word, since it only
/// says that somebody else wrote first.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// The Kubernetes API refused or could not be reached.
    #[error("{context}")]
    Kube {
        /// What was being done, on which object.
        context: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The cloud refused or could not be reached.
    #[error("{context}")]
    Cloud {
        /// What was being done, on which object.
        context: String,
        /// The provider's error.
        #[source]
        source: Box<CloudError>,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

impl ReconcileError {
    /// Whether the object was changed by somebody else in between.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if is_conflict(source))
    }

    /// Whether the object (or the instance) does not exist any more.
    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Self::Kube { source, .. } => is_not_found(source),
            Self::Cloud { source, .. } => source.is_not_found(),
            Self::Other(_) => false,
        }
    }
}

/// Names what was being done when a call failed.
pub(crate) trait Context<T> {
    /// Turns the error into a [`ReconcileError`] that says `what`.
    fn context(self, what: impl fmt::Display) -> Result<T, ReconcileError>;
}

impl<T> Context<T> for Result<T, kube::Error> {
    fn context(self, what: impl fmt::Display) -> Result<T, ReconcileError> {
        self.map_err(|source| ReconcileError::Kube { context: what.to_string(), source: Box::new(source) })
    }
}

impl<T> Context<T> for Result<T, CloudError> {
    fn context(self, what: impl fmt::Display) -> Result<T, ReconcileError> {
        self.map_err(|source| ReconcileError::Cloud { context: what.to_string(), source: Box::new(source) })
    }
}

impl From<kube::Error> for ReconcileError {
    fn from(source: kube::Error) -> Self {
        Self::Kube { context: "calling the Kubernetes API".into(), source: Box::new(source) }
    }
}

impl From<CloudError> for ReconcileError {
    fn from(source: CloudError) -> Self {
        Self::Cloud { context: "calling the cloud provider".into(), source: Box::new(source) }
    }
}

/// Whether the API server answered that the object was changed in between (409 `Conflict`).
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict")
}

/// Whether the API server answered that an object of this name exists (409 `AlreadyExists`).
pub(crate) fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// Whether the API server answered that the object does not exist (404).
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// An error with its causes, as a log line or an event shows it. Upstream's errors read outermost first, joined by commas.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(", ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
