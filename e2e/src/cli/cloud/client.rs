//! The control API of a fake-ec2 as a client sees it. Before anything else it asks whether a fake-ec2 answers at all, and
//! addresses of AWS are refused unseen.

use super::Options;
use crate::cli::CliError;
use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::Runtime;

/// What to do where there is no cloud to speak to.
const NEXT: &str = "start one with `trysquare serve` or `fake-ec2 --bootstrap demo`, and paste the lines it prints";

/// All answers come at once; only a machine that is very busy takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state of a hundred thousand instances.
const MAX_ANSWER_BYTES: usize = 64 << 20;

pub(super) struct Client {
    runtime: Runtime,
    /// As given, for people.
    url: String,
    host: String,
    port: u16,
}

impl Client {
    /// Finds the cloud that the options name, and makes sure that it is a fake-ec2.
    pub(super) fn connect(options: &Options) -> Result<Self, CliError> {
        let url = options.endpoint_url.as_deref().filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| {
            CliError::usage(anyhow!("no cloud is named: neither AWS_ENDPOINT_URL nor --endpoint-url is set; {NEXT}"))
        })?;
        let (host, port) = address(url).map_err(CliError::usage)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let client = Self { runtime: runtime.map_err(CliError::backend)?, url: url.to_owned(), host, port };
        let (status, body) = client.exchange(Method::GET, "/health", None)?;
        let health: Option<Value> = serde_json::from_slice(&body).ok();
        let name = health.as_ref().and_then(|health| health["name"].as_str());
        match (status, name) {
            (StatusCode::OK, Some("fake-ec2")) => Ok(client),
            // It is one, and does not let us in.
            (StatusCode::FORBIDDEN, None) if health.is_some() => Err(client.refusal(status, &body)),
            _ => Err(CliError::backend(anyhow!(
                "something answers at {url}, but it is no fake-ec2 (GET /_trysquare/health: {status}); {NEXT}"
            ))),
        }
    }

    pub(super) fn get(&self, path: &str) -> Result<Value, CliError> {
        self.value(Method::GET, path, None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.value(Method::POST, path, Some(body))
    }

    fn value(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let (status, answer) = self.exchange(method, path, body)?;
        if status != StatusCode::OK {
            return Err(self.refusal(status, &answer));
        }
        serde_json::from_slice(&answer)
            .with_context(|| format!("the answer of {} to {path} is not JSON", self.url))
            .map_err(CliError::backend)
    }

    /// What the other side says is wrong, and what it would take.
    fn refusal(&self, status: StatusCode, answer: &[u8]) -> CliError {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let text = |member: &str| answer[member].as_str();
        CliError::refused(match (text("error"), text("expected")) {
            (Some(error), Some(expected)) => anyhow!("{error}; expected {expected}"),
            (Some(error), None) => anyhow!("{error}"),
            (None, _) => anyhow!("{} answers {status}", self.url),
        })
    }

    fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Bytes), CliError> {
        let exchange = async {
            tokio::time::timeout(PATIENCE, self.send(method, path, body))
                .await
                .unwrap_or_else(|_| Err(anyhow!("no answer from {} within {} seconds", self.url, PATIENCE.as_secs())))
        };
        self.runtime.block_on(exchange).map_err(CliError::backend)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = tokio::net::TcpStream::connect((self.host.trim_matches(['[', ']']), self.port))
            .await
            .with_context(|| format!("nobody listens at {}; {NEXT}", self.url))?;
        let no_http = || format!("something listens at {}, but does not speak HTTP; {NEXT}", self.url);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.with_context(no_http)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("/_trysquare{path}"))
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("trysquare/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))?;
        let answer = async {
            let response = sender.send_request(request).await.with_context(no_http)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| anyhow!("the answer of {} broke off: {error}", self.url))?;
            Ok((status, body.to_bytes()))
        };
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // The connection may end with the last byte of an answer that is not yet read.
            _ = &mut connection => answer.await,
        }
    }
}

/// Host and port of a plain URL that is not AWS's.
fn address(url: &str) -> anyhow::Result<(String, u16)> {
    let wanted = "write for instance http://127.0.0.1:7444";
    let uri: Uri = url.parse().map_err(|_| anyhow!("the endpoint {url:?} is no URL; {wanted}"))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| anyhow!("the endpoint {url:?} names no host; {wanted}"))?;
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| name.ends_with(end)) {
        return Err(anyhow!("the endpoint {url} is AWS itself, which this command never speaks to; {NEXT}"));
    }
    match uri.scheme_str() {
        Some("http") => Ok((host.to_owned(), uri.port_u16().unwrap_or(80))),
        Some("https") => Err(anyhow!("the endpoint {url} is https, and a fake-ec2 speaks plain http; {wanted}")),
        _ => Err(anyhow!("the endpoint {url:?} does not begin with http://; {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_endpoint_is_a_plain_url_that_is_not_of_aws() {
        assert_eq!(address("http://127.0.0.1:7444").unwrap(), ("127.0.0.1".to_owned(), 7444));
        assert_eq!(address("http://localhost/").unwrap(), ("localhost".to_owned(), 80));
        assert_eq!(address("http://[::1]:80/x").unwrap(), ("[::1]".to_owned(), 80));
        for (url, complaint) in [
            ("https://ec2.us-west-2.amazonaws.com", "is AWS itself"),
            ("http://EC2.us-west-2.amazonaws.com.:80", "is AWS itself"),
            ("http://ec2.us-west-2.api.aws", "is AWS itself"),
            ("https://127.0.0.1:7443", "is https"),
            ("127.0.0.1:7444", "does not begin with http://"),
            ("ftp://127.0.0.1", "does not begin with http://"),
            ("/tmp/socket", "names no host"),
            ("what is this", "is no URL"),
        ] {
            let error = address(url).unwrap_err().to_string();
            assert!(error.contains(complaint), "{url}: {error}");
        }
    }
}
