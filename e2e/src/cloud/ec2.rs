//! The one difference between a fake-ec2 in this process and one elsewhere: how a request gets there, and how what is asked
//! for often is read.

use super::Instance;
use anyhow::{Context, bail};
use bytes::Bytes;
use fake_ec2::JournalEntry;
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;
use std::sync::Arc;

/// fake-ec2 as it is reached: in this process, or over HTTP alone.
#[allow(async_fn_in_trait)] // The kit runs on one thread.
pub trait Ec2: Clone + 'static {
    /// Sends a request that speaks one of AWS's protocols.
    async fn aws(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>>;

    /// Sends a request to the control API.
    async fn control(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>>;

    /// Every instance, terminated ones too while they are described, by id.
    async fn instances(&self) -> anyhow::Result<Vec<Instance>>;

    /// Waits until instances have changed since `seen`; answers the new count. Start with 0.
    async fn instances_changed(&self, seen: u64) -> anyhow::Result<u64>;

    /// Every call so far, oldest first.
    async fn journal(&self) -> anyhow::Result<Vec<Arc<JournalEntry>>>;

    /// Whether the instance behind a provider id exists.
    async fn instance_exists(&self, provider_id: &str) -> anyhow::Result<bool> {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        Ok(self.instances().await?.iter().any(|instance| instance.id == id && instance.state != "terminated"))
    }

    /// What the control API answers to a GET.
    async fn read(&self, path: &str) -> anyhow::Result<Value> {
        self.command(Method::GET, path, &Value::Null).await
    }

    /// What the control API answers to a request with this body, if it does as it is told.
    async fn command(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let about = || format!("{method} {path}");
        let request = Request::builder().method(&method).uri(format!("/_trysquare{path}"));
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.control(request.body(body)?).await?;
        let answer: Value = serde_json::from_slice(response.body()).with_context(about)?;
        if response.status() == StatusCode::OK {
            return Ok(answer);
        }
        let text = |member: &str| answer[member].as_str();
        bail!(
            "fake-ec2 refuses {}: {}; expected {}",
            about(),
            text("error").unwrap_or(response.status().as_str()),
            text("expected").unwrap_or("another request")
        )
    }
}
