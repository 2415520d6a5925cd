//! One request over HTTP to a server on this machine.

use crate::http_exchange::{Address, exchange};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};

/// Sends a request to a port of the loopback interface and answers status and body.
pub(crate) async fn ask(port: u16, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, body.collect().await?.to_bytes());
    let response = exchange(&Address::loopback(port), request).await?;
    Ok((response.status(), response.into_body()))
}
