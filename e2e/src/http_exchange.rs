//! One request over plain HTTP, on a connection of its own.

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::str::FromStr;

/// The store of a control plane after a busy scenario is some tens of MiB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it stands in a URL.
    host: String,
    port: u16,
}

impl Address {
    /// A port of this machine.
    pub(crate) fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".into(), port }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    /// Reads the address of such a URL as `http://127.0.0.1:4566`.
    fn from_str(url: &str) -> anyhow::Result<Self> {
        let wanted = "such as http://127.0.0.1:4566";
        let uri: Uri = url.parse().map_err(|_| anyhow!("{url:?} is no URL, {wanted}"))?;
        match (uri.scheme_str(), uri.host().filter(|host| !host.is_empty())) {
            (Some("http"), Some(host)) => Ok(Self { host: host.to_owned(), port: uri.port_u16().unwrap_or(80) }),
            _ => Err(anyhow!("{url:?} is no URL of plain HTTP, {wanted}")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Sends a request and reads the whole answer, whatever its status.
pub(crate) async fn exchange(address: &Address, mut request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let host = HeaderValue::try_from(address.to_string()).context("the name of the host")?;
    request.headers_mut().insert(header::HOST, host);
    let about = || format!("asking {address}");
    let stream = tokio::net::TcpStream::connect((address.host.trim_matches(['[', ']']), address.port));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream.await.with_context(about)?))
            .await
            .with_context(about)?;
    let exchange = async {
        let (parts, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
        anyhow::Ok(Response::from_parts(parts, body.to_bytes()))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        outcome = &mut exchange => outcome.with_context(about),
        // The connection may end in the same moment as the answer.
        ended = connection => match ended {
            Ok(()) => exchange.await.with_context(about),
            Err(error) => bail!("{}: {error}", about()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_address_is_read_from_a_url_of_plain_http() {
        let read = |url: &str| url.parse::<Address>().map(|address| address.to_string());
        assert_eq!(read("http://fake-ec2.test:4566/").unwrap(), "fake-ec2.test:4566");
        assert_eq!(read("http://[::1]").unwrap(), "[::1]:80");
        for url in ["https://127.0.0.1:1", "127.0.0.1:1", "/socket", "what is this"] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(url) && error.contains("http://127.0.0.1:4566"), "{error}");
        }
    }
}
