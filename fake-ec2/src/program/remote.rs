//! A few words with a fake-ec2 that runs: `bootstrap` and `health`. One request over HTTP/1.0, whose answer ends with the
//! connection, needs no client library and no runtime.

use super::arguments::{Format, Remote};
use super::started::Stage;
use super::{FAILED, Failure, USAGE, print};
use fake_ec2::Bootstrapped;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longer than a loaded fake takes; a container's health check is given up after as long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer that is read: the one of a bootstrap is some kilobytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

pub(crate) fn health(url: &str) -> Result<(), Failure> {
    let (status, body) = ask(url, "GET", "/_trysquare/health", "")?;
    match (status, body["name"].as_str(), body["status"].as_str()) {
        (200, Some("fake-ec2"), Some("ok")) => Ok(()),
        _ => Err(Failure::new(FAILED, format!("{url} is no healthy fake-ec2: it answered {status} {body}"))),
    }
}

pub(crate) fn bootstrap(options: &Remote) -> Result<(), Failure> {
    let Remote { cluster, endpoint_url, without_prerequisites, oidc_issuer, format } = options;
    let request = json!({"cluster": cluster, "prerequisites": !without_prerequisites, "oidcIssuer": oidc_issuer});
    let (status, body) = ask(endpoint_url, "POST", "/_trysquare/bootstrap", &request.to_string())?;
    if status != 200 {
        let error = body["error"].as_str().map_or_else(|| body.to_string(), str::to_owned);
        return Err(Failure::new(FAILED, format!("{endpoint_url} answered {status}: {error}")));
    }
    let unreadable =
        |error| Failure::new(FAILED, format!("{endpoint_url} answered what this program cannot read: {error}"));
    let made: Bootstrapped = serde_json::from_value(body.clone()).map_err(unreadable)?;
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let stage = Stage {
        url: endpoint_url.trim_end_matches('/').to_owned(),
        region: text("region"),
        account: text("account"),
        access_key: None,
        made: Some((cluster.clone(), made)),
    };
    print(&match format {
        Format::Text => stage.text(),
        Format::Json => format!("{}\n", stage.json()),
    })
}

/// Status and JSON of one answer.
fn ask(url: &str, method: &str, path: &str, body: &str) -> Result<(u16, Value), Failure> {
    let wrong = || {
        let message = format!("{url:?} is no address of a fake-ec2; write one such as http://127.0.0.1:4566");
        Failure::new(USAGE, message)
    };
    let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')).ok_or_else(wrong)?;
    if host.is_empty() || host.contains('/') {
        return Err(wrong());
    }
    let address = if host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let failed = |error: std::io::Error| {
        Failure::new(FAILED, format!("{url} does not answer: {error}; is a fake-ec2 running there?"))
    };
    let first = address.to_socket_addrs().map_err(failed)?.next().ok_or_else(wrong)?;
    let mut stream = TcpStream::connect_timeout(&first, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Failure::new(FAILED, format!("{url} does not speak HTTP")))?;
    Ok((status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.chars().take(200).collect()))))
}
