//! An HTTP client that costs next to nothing beside the servers it measures: one blocking connection, requests as bytes.

use crate::Fallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than moto takes for anything here: a thousand instances take it seconds, and minutes for several connections on a
/// machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(900);

/// A connection that is kept for as long as the server keeps it; moto_server closes it after each answer.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self { address, stream: None, line: String::new(), body: Vec::new() }
    }

    /// Sends a request and reads the whole answer, which must be a success.
    pub(crate) fn send(&mut self, request: &[u8]) -> Fallible<&[u8]> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.address)?,
        };
        stream.get_mut().write_all(request)?;
        let head = self.head(&mut stream)?;
        self.body.clear();
        match head.length {
            Some(length) => {
                self.body.resize(length, 0);
                stream.read_exact(&mut self.body)?;
            }
            None => drop(stream.read_to_end(&mut self.body)?),
        }
        if head.length.is_some() && !head.close {
            self.stream = Some(stream);
        }
        match head.status {
            200 => Ok(&self.body),
            status => Err(format!("{status}: {}", String::from_utf8_lossy(&self.body)).into()),
        }
    }

    /// The answer as text, for what is read while the stage is set.
    pub(crate) fn text(&mut self, request: &[u8]) -> Fallible<String> {
        Ok(String::from_utf8(self.send(request)?.to_vec())?)
    }

    fn head(&mut self, stream: &mut BufReader<TcpStream>) -> Fallible<Head> {
        let mut head = Head { status: 0, length: None, close: false };
        loop {
            self.line.clear();
            if stream.read_line(&mut self.line)? == 0 {
                return Err("the server closed the connection instead of answering".into());
            }
            let line = self.line.trim_end();
            if line.is_empty() {
                return Ok(head);
            }
            if head.status == 0 {
                head.status = line.split(' ').nth(1).unwrap_or_default().parse()?;
                continue;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Some(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("connection") {
                head.close = value.trim().eq_ignore_ascii_case("close");
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(format!("this client does not read the transfer encoding {}", value.trim()).into());
            }
        }
    }
}

struct Head {
    status: u16,
    length: Option<usize>,
    close: bool,
}

fn connect(address: SocketAddr) -> Fallible<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

/// A request of EC2's query protocol.
pub(crate) fn ec2(action: &str, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", action).append_pair("Version", "2016-11-15").extend_pairs(parameters);
    request("ec2", "content-type: application/x-www-form-urlencoded", &form.finish())
}

/// A request of SQS's JSON protocol.
pub(crate) fn sqs(action: &str, input: &serde_json::Value) -> Vec<u8> {
    let headers = format!("content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}");
    request("sqs", &headers, &input.to_string())
}

/// Neither server checks the signature; both read the service from its scope.
fn request(service: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nhost: {service}.us-west-2.amazonaws.com\r\n{headers}\r\nx-amz-date: 20260101T000000Z\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=placeholder/20260101/us-west-2/{service}/aws4_request, \
         SignedHeaders=host;x-amz-date, Signature=0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
