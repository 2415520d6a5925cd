//! The EKS Pod Identity Agent of every node: takes a pod's token, asks EKS Auth for credentials of the associated role, and
//! answers them as an SDK's container provider reads them.
//!
//! On a node it listens on 169.254.170.23; here on the loopback interface, which SDKs accept as well.

use anyhow::{Context, bail};
use bytes::Bytes;
use fake_ec2::FakeEc2;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Where credentials are asked for.
const PATH: &str = "/v1/credentials";

/// The URL that pods are told.
pub(crate) fn url(listener: &TcpListener) -> anyhow::Result<String> {
    Ok(format!("http://{}{PATH}", listener.local_addr()?))
}

/// Answers until dropped.
pub(crate) async fn serve(listener: TcpListener, ec2: FakeEc2, cluster: String) -> anyhow::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.context("the pod identity agent's socket")?;
        while connections.try_join_next().is_some() {}
        let (ec2, cluster) = (ec2.clone(), cluster.clone());
        connections.spawn_local(async move {
            let service = service_fn(|request| answer(&ec2, &cluster, request));
            // A client that breaks off has had its reasons.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(ec2: &FakeEc2, cluster: &str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let reply = |status: StatusCode, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        Ok(response)
    };
    if request.method() != Method::GET || request.uri().path() != PATH {
        return reply(StatusCode::NOT_FOUND, "text/plain", format!("only GET {PATH} is answered\n"));
    }
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match credentials(ec2, cluster, token.unwrap_or_default()).await {
        Ok(credentials) => reply(StatusCode::OK, "application/json", credentials.to_string()),
        Err(error) => reply(StatusCode::BAD_REQUEST, "text/plain", format!("{error:#}\n")),
    }
}

async fn credentials(ec2: &FakeEc2, cluster: &str, token: &str) -> anyhow::Result<Value> {
    let request = Request::post(format!("/clusters/{cluster}/assume-role-for-pod-identity"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "eks-pod-identity-agent")
        .body(Bytes::from(json!({"token": token}).to_string()))?;
    let response = ec2.handle(request).await;
    let answer: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    if response.status() != StatusCode::OK {
        let code = response.headers().get("x-amzn-errortype").and_then(|value| value.to_str().ok()).unwrap_or_default();
        bail!("EKSAuth.AssumeRoleForPodIdentity: {code}: {}", answer["message"].as_str().unwrap_or_default());
    }
    for_container(&answer)
}

/// The answer of EKS Auth in the words of the container provider.
fn for_container(answer: &Value) -> anyhow::Result<Value> {
    let credentials = &answer["credentials"];
    let expires = credentials["expiration"].as_i64().context("the credentials do not expire")?;
    let account = answer.pointer("/assumedRoleUser/arn").and_then(Value::as_str);
    Ok(json!({
        "AccessKeyId": credentials["accessKeyId"],
        "SecretAccessKey": credentials["secretAccessKey"],
        "Token": credentials["sessionToken"],
        "AccountId": account.and_then(|arn| arn.split(':').nth(4)),
        "Expiration": Timestamp::from_second(expires)?.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_said_in_the_words_of_the_container_provider() {
        let answer = json!({
            "assumedRoleUser": {"arn": "arn:aws:sts::123456789012:assumed-role/R/s"},
            "credentials": {"accessKeyId": "A", "secretAccessKey": "S", "sessionToken": "T", "expiration": 1767225600},
        });
        let expected = json!({
            "AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "AccountId": "123456789012",
            "Expiration": "2026-01-01T00:00:00Z",
        });
        assert_eq!(for_container(&answer).unwrap(), expected);
    }
}
