//! What people who come from moto's server call to begin anew: `POST /moto-api/reset`, with the `lenient` profile alone.

use super::{Door, reset};
use crate::config::Profile;
use crate::server::{FakeEc2, lock};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

pub(super) const RESET: &str = "/moto-api/reset";

pub(super) fn answer(ec2: &FakeEc2, door: Option<&Door<'_>>, request: &Request<Bytes>) -> Response<Bytes> {
    let (status, body) = reply(ec2, door, request);
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn reply(ec2: &FakeEc2, door: Option<&Door<'_>>, request: &Request<Bytes>) -> (StatusCode, Value) {
    if ec2.inner.config.profile == Profile::Strict {
        let error =
            format!("there is nothing at {RESET} without --profile lenient; POST /_trysquare/reset does the same");
        return (StatusCode::NOT_FOUND, json!({"error": error}));
    }
    if let Some(Err(refusal)) = door.map(|door| door.admit(request)) {
        return (refusal.status, json!({"error": refusal.error, "expected": refusal.expected}));
    }
    if *request.method() != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, json!({"error": "the account is reset by POST"}));
    }
    let bootstraps = lock(&ec2.inner.bootstraps).clone();
    reset::to_start(ec2, ec2.inner.config.clone(), &bootstraps);
    ec2.touch();
    // As moto answers it.
    (StatusCode::OK, json!({"status": "ok"}))
}
