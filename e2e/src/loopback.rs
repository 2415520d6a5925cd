//! One request over HTTP to a server on this machine.

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;

/// The store of a control plane after a busy scenario is some tens of MiB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Sends a request to a port of the loopback interface and answers status and body.
pub(crate) async fn ask(port: u16, mut request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("127.0.0.1"));
    let about = || format!("asking 127.0.0.1:{port}");
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.with_context(about)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.with_context(about)?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
        anyhow::Ok((status, body.to_bytes()))
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
