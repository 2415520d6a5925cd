//! The server on a socket: TLS, HTTP/1.1, and a bound for everything a peer may do.
//!
//! The limits of connections are measured in the machine's time, because their peers live in it: the cluster's own time
//! may stand still or leap. HTTP/2 is not offered; official clients then use HTTP/1.1.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::{Span, Timestamp, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinSet,
    time::Sleep,
};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::{
    FakeKube,
    server::{Body, ConnectionLost, KubeService},
    status::Status,
    store::to_bytes,
};

/// A connection over the limit is told so, as long as few others are being told. Twice as many would tell nobody more:
/// whoever opens connections this fast does not read.
const REFUSALS: usize = 64;

/// Pause after a failed accept: what causes one (no file descriptors left) does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The HTTP library takes no smaller buffer.
const LEAST_HEAD_BYTES: usize = 8 * 1024;

/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// What one server accepts from its peers. The times are the machine's, never the cluster's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once; further ones are refused with 429. A cluster of controllers and people holds some
    /// hundred, and each may buffer a request of 3 MiB.
    pub connections: usize,
    /// How long the TLS handshake may take.
    pub handshake: Duration,
    /// How long a request's head may take; an idle connection is closed after as long.
    pub head: Duration,
    /// How long a request's body may take.
    pub body: Duration,
    /// How long a peer may leave an answer unread.
    pub unread: Duration,
    /// Size of a request's head in bytes, 8 KiB at least. Long selectors stand in the request line.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_000,
            handshake: Duration::from_secs(10),
            // The genuine server: 32 seconds for the head, 90 for idle connections.
            head: Duration::from_secs(90),
            body: Duration::from_secs(60),
            unread: Duration::from_secs(60),
            head_bytes: 64 * 1024,
        }
    }
}

/// A serving certificate and the authority that signed it, made for one server.
#[derive(Clone)]
pub struct ServingCertificate {
    authority_pem: String,
    certificate_pem: String,
    private_key_pem: String,
    configuration: Arc<ServerConfig>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A certificate for no name would fit no client.
    #[error("names: a serving certificate needs at least one DNS name or IP address")]
    NoNames,
    /// A name that no certificate can carry.
    #[error("names: {name:?} is neither a DNS name nor an IP address")]
    Name {
        /// The name.
        name: String,
    },
    /// The ten years from the given instant leave the calendar.
    #[error("now: {now} is too late for a certificate of ten years")]
    Validity {
        /// The instant.
        now: Timestamp,
    },
    /// Generating or signing failed.
    #[error("the certificate could not be made")]
    Generation(#[from] rcgen::Error),
    /// The TLS library does not take the certificate.
    #[error("the certificate could not be used")]
    Tls(#[from] rustls::Error),
}

impl std::fmt::Debug for ServingCertificate {
    /// The private key is nobody's to print.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServingCertificate").field("authority_pem", &self.authority_pem).finish_non_exhaustive()
    }
}

impl ServingCertificate {
    /// Makes an authority and a certificate for DNS names and IP addresses, valid from the day before `now` for ten
    /// years. `now` is the time of the clients' machines, not of the cluster.
    pub fn generate(names: &[&str], now: Timestamp) -> Result<Self, CertificateError> {
        if names.is_empty() {
            return Err(CertificateError::NoNames);
        }
        for name in names {
            let fits = name.parse::<std::net::IpAddr>().is_ok()
                || rustls::pki_types::DnsName::try_from(name.trim_start_matches("*.")).is_ok();
            if !fits {
                return Err(CertificateError::Name { name: (*name).to_owned() });
            }
        }
        let today = now.to_zoned(TimeZone::UTC).date();
        let dates = (today.checked_sub(Span::new().days(1)), today.checked_add(Span::new().years(10)));
        let (Ok(first), Ok(last)) = dates else { return Err(CertificateError::Validity { now }) };
        // Months and days of a date are positive.
        let midnight = |date: Date| {
            rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        let dated = |mut parameters: CertificateParams, name: &str| {
            parameters.not_before = midnight(first);
            parameters.not_after = midnight(last);
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters
        };

        let mut authority = dated(CertificateParams::new(Vec::new())?, "fake-kube certificate authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut leaf = dated(CertificateParams::new(names)?, "kube-apiserver");
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?;

        let (certificate_pem, private_key_pem) = (certificate.pem(), key.serialize_pem());
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        // Named here, so that whoever embeds this server stays free in the choice of a default provider.
        let mut configuration = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { authority_pem, certificate_pem, private_key_pem, configuration: Arc::new(configuration) })
    }

    /// The authority's certificate: what a kubeconfig holds as `certificate-authority-data`, in base64.
    pub fn certificate_authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// The server's certificate, for a server that is another program.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The key of the server's certificate, for a server that is another program.
    pub fn private_key_pem(&self) -> &str {
        &self.private_key_pem
    }

    /// A kubeconfig for a server at this URL, such as `https://127.0.0.1:6443`. It carries a token, which the server
    /// does not look at, because kubectl asks people for a user name when there is none.
    pub fn kubeconfig(&self, server: &str) -> String {
        let configuration = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake-kube",
            "clusters": [{ "name": "fake-kube", "cluster": {
                "server": server, "certificate-authority-data": STANDARD.encode(&self.authority_pem),
            } }],
            "users": [{ "name": "admin", "user": { "token": "anyone" } }],
            "contexts": [{ "name": "fake-kube", "context": { "cluster": "fake-kube", "user": "admin" } }],
        });
        // JSON is YAML, and a kubeconfig either.
        format!("{configuration:#}\n")
    }
}

impl FakeKube {
    /// Answers connections of a listener until dropped, which ends them all. Returns an error only when it cannot begin.
    pub async fn serve(&self, listener: TcpListener, certificate: &ServingCertificate) -> io::Result<()> {
        self.serve_within(listener, certificate, Limits::default()).await
    }

    /// [`FakeKube::serve`] with limits of one's own.
    pub async fn serve_within(
        &self,
        listener: TcpListener,
        certificate: &ServingCertificate,
        limits: Limits,
    ) -> io::Result<()> {
        let time = MachineTime::start()?;
        let acceptor = TlsAcceptor::from(Arc::clone(&certificate.configuration));
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        time.sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            if connections.len() >= limits.connections + REFUSALS {
                drop(stream);
                continue;
            }
            let service = (connections.len() < limits.connections).then(|| self.service());
            connections.spawn(connection(stream, acceptor.clone(), service, limits, time.clone()));
        }
    }
}

/// One connection from handshake to end; without a service it is one too many.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Option<KubeService>,
    limits: Limits,
    time: MachineTime,
) {
    // Watch events are small and meant to arrive at once. A socket that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let stream = tokio::select! {
        stream = handshake(stream, acceptor) => match stream {
            Ok(Some(stream)) => stream,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
        },
        () = time.sleep(limits.handshake) => return,
    };
    let stream = Impatient { stream, time: time.clone(), patience: limits.unread, stalled: None };
    let answer = service_fn(|request: Request<Incoming>| {
        let service = service.clone();
        let deadline = time.sleep(limits.body);
        async move {
            match service {
                Some(mut service) => service.call(request.map(|body| Timely { body, deadline })).await,
                None => Ok(one_too_many(limits.connections)),
            }
        }
    });
    let served = http1::Builder::new()
        .timer(time.clone())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes.max(LEAST_HEAD_BYTES))
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

type Secured = tokio_rustls::server::TlsStream<TcpStream>;

/// The handshake; a client that speaks plain HTTP is told, in the genuine server's words.
async fn handshake(mut stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<Option<Secured>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] == TLS_HANDSHAKE {
        return acceptor.accept(stream).await.map(Some);
    }
    stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n").await?;
    stream.shutdown().await?;
    Ok(None)
}

fn one_too_many(limit: usize) -> Response<Body> {
    let status = Status::too_many_requests(format!("too many connections: the limit is {limit}"), 1);
    let mut response = Response::new(Full::new(to_bytes(&status.to_json())).boxed_unsync());
    *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// The machine's time, kept by a runtime of its own, so that a paused or leaping one does not decide how long a peer may
/// take. Its thread ends with the last clone.
#[derive(Clone, Debug)]
struct MachineTime {
    runtime: Handle,
    _alive: Arc<oneshot::Sender<()>>,
}

impl MachineTime {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("connection-limits".into()).spawn(move || runtime.block_on(ended))?;
        Ok(Self { runtime: handle, _alive: Arc::new(alive) })
    }

    fn sleep(&self, duration: Duration) -> Rest {
        let _entered = self.runtime.enter();
        Rest(Box::pin(tokio::time::sleep(duration)))
    }
}

/// A wait in machine time.
struct Rest(Pin<Box<Sleep>>);

impl Future for Rest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl hyper::rt::Sleep for Rest {}

impl hyper::rt::Timer for MachineTime {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Self::sleep(self, duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        let _entered = self.runtime.enter();
        Box::pin(Rest(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }

    fn now(&self) -> Instant {
        let _entered = self.runtime.enter();
        tokio::time::Instant::now().into_std()
    }
}

/// A request's body that must have arrived by an instant.
struct Timely {
    body: Incoming,
    deadline: Rest,
}

impl http_body::Body for Timely {
    type Data = Bytes;
    type Error = ConnectionLost;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionLost>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(|_| ConnectionLost))),
            Poll::Pending => {
                ready!(Pin::new(&mut self.deadline).poll(context));
                Poll::Ready(Some(Err(ConnectionLost)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that breaks when its peer takes nothing for too long. Otherwise a watcher that never reads would keep its
/// connection for good: a body is not asked for more while the last of it waits to be sent.
struct Impatient {
    stream: Secured,
    time: MachineTime,
    patience: Duration,
    stalled: Option<Rest>,
}

impl Impatient {
    fn judge<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let (time, patience) = (&self.time, self.patience);
        let stalled = self.stalled.get_or_insert_with(|| time.sleep(patience));
        ready!(Pin::new(stalled).poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(outcome, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(outcome, context)
    }
}
