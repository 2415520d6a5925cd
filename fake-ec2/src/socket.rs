//! The account on a socket: connections and what they may cost, in the time of the runtime (an embedder that sets it forward
//! gives longer limits, as `trysquare serve --speed` does). Whoever connects can be wrong in every
//! way, so all that is read has a bound: heads, bodies, the time to send them, and the number of connections.
//!
//! A client that goes away while it waits (a long poll) is forgotten at once: its request is dropped and takes no
//! messages. A fault that loses a request or an answer breaks the connection without a byte.

use crate::control_http::{self, Door};
use crate::cut::{Broken, Cut};
use crate::server::{Exchange, FakeEc2};
use crate::wire::{self, Protocol, Unreadable};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// The longest request head. A GET carries its whole form in it, and AWS's own endpoints take some 16 KiB.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Bodies beyond this, or of unknown length, are read a few at a time; nearly every request is far smaller.
const LARGE_BODY_BYTES: u64 = 256 << 10;

/// How many large bodies are read at the same time: together 64 MiB at most, but for snapshots, which somebody who may do
/// everything sends.
const LARGE_BODIES: usize = 16;

/// How long to wait after the system refused a connection, which is where file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server on a socket accepts.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Connections at a time; further ones wait to be accepted. A thousand long polls fit, with as many clients besides; each
    /// that waits takes some 20 KiB and one of the process's file descriptors.
    pub max_connections: usize,
    /// For a request's whole head; an idle connection is closed after it too. AWS closes idle connections after about as
    /// long.
    pub head_timeout: Duration,
    /// For a request's whole body.
    pub body_timeout: Duration,
    /// For a client to take the next part of an answer; one that has stopped reading is let go.
    pub answer_timeout: Duration,
    /// Further host names under which the control API answers: a container's or a service's. Loopback names and addresses are
    /// always good.
    pub control_hosts: Vec<String>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            max_connections: 2_048,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(60),
            control_hosts: Vec::new(),
        }
    }
}

/// What all connections share.
struct Server {
    ec2: FakeEc2,
    options: SocketOptions,
    large_bodies: Semaphore,
}

impl FakeEc2 {
    /// Serves on a socket until dropped, in the clock's time: the AWS protocols, and the control API under
    /// `/_trysquare/`. Lets time pass as [`FakeEc2::run`] does.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        self.serve_with(listener, SocketOptions::default()).await
    }

    /// As [`FakeEc2::serve`], with bounds of the caller's.
    pub async fn serve_with(&self, listener: TcpListener, options: SocketOptions) -> io::Result<()> {
        let max_connections = options.max_connections.max(1);
        let server = Arc::new(Server { ec2: self.clone(), options, large_bodies: Semaphore::new(LARGE_BODIES) });
        let mut connections = JoinSet::new();
        let time = self.run();
        tokio::pin!(time);
        loop {
            let accepting = connections.len() < max_connections;
            tokio::select! {
                biased;
                () = &mut time => {}
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if accepting => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(server.clone().connection(stream));
                        if connections.len() == max_connections {
                            tracing::warn!(max_connections, "no more connections are accepted until one closes");
                        }
                    }
                    // The client has gone again; the next one is not worse for it.
                    Err(error) if is_of_client(&error) => {}
                    Err(error) => {
                        tracing::error!(%error, "cannot accept a connection; trying again");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Server {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // An answer is written at once; waiting to join it with a next one costs a client 40 ms.
        let _ = stream.set_nodelay(true);
        let head_timeout = self.options.head_timeout;
        let stream = Patient { stream, patience: self.options.answer_timeout, waiting: None };
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { server.answer(request).await }
        });
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(MAX_HEAD_BYTES);
        if let Err(error) = protocol.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Cut>, Broken> {
        let (head, body) = request.into_parts();
        let limit = control_http::max_body_bytes(&head.method, head.uri.path());
        let protocol = wire::protocol_of(&head.uri, &head.headers);
        let body = match self.read(body, limit, protocol).await {
            Ok(body) => body,
            Err(unreadable) => {
                let mut response = self.ec2.refuse(&unreadable);
                // What is left of the body is not read.
                response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
                return Ok(response.map(Cut::whole));
            }
        };
        let request = Request::from_parts(head, body);
        if control_http::concerns(request.uri().path()) {
            let door = Door { hosts: &self.options.control_hosts };
            return Ok(control_http::answer(&self.ec2, Some(&door), &request).await.map(Cut::whole));
        }
        match self.ec2.exchange(request).await {
            Exchange::Answered(response) => Ok(response.map(Cut::whole)),
            Exchange::Truncated(response) => Ok(response.map(Cut::half)),
            Exchange::Lost => Err(Broken),
        }
    }

    async fn read(&self, body: Incoming, limit: usize, protocol: Protocol) -> Result<Bytes, Unreadable> {
        let length = body.size_hint();
        if length.lower() > limit as u64 {
            return Err(Unreadable::too_large(protocol));
        }
        let reading = async {
            let large = length.upper().is_none_or(|upper| upper > LARGE_BODY_BYTES);
            let _permit = match large {
                true => self.large_bodies.acquire().await.ok(),
                false => None,
            };
            Limited::new(body, limit).collect().await
        };
        match tokio::time::timeout(self.options.body_timeout, reading).await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            // The other error is a connection that broke, where nobody reads the answer.
            Ok(Err(_)) => Err(Unreadable::too_large(protocol)),
            Err(_) => Err(Unreadable::too_slow(protocol)),
        }
    }
}

/// A connection whose writes wait only so long for the other side to read.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            self.waiting = None;
            return Poll::Ready(written);
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
