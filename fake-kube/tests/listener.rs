//! The server on real sockets: TLS, and every bound of what a peer may do.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use controller_clock::Clock;
use fake_kube::{FakeKube, Limits, Options, ServingCertificate, resources};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const TODAY: &str = "2026-03-01T12:00:00Z";

/// What a test waits for comes well within this, or never.
const PATIENCE: Duration = Duration::from_secs(20);

struct Site {
    kube: FakeKube,
    address: SocketAddr,
    certificate: ServingCertificate,
    task: JoinHandle<std::io::Result<()>>,
}

impl Site {
    async fn new(limits: Limits) -> Self {
        Self::with(limits, |_| {}).await
    }

    #[allow(clippy::disallowed_methods)] // The test ends the server by aborting this very task.
    async fn with(limits: Limits, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap()));
        change(&mut options);
        let kube = FakeKube::new(options);
        // The certificate is checked against the machine's clock: ten years make that safe for a test.
        let certificate = ServingCertificate::generate(&["localhost", "127.0.0.1"], TODAY.parse().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, own) = (kube.clone(), certificate.clone());
        let task = tokio::spawn(async move { server.serve_within(listener, &own, limits).await });
        Self { kube, address, certificate, task }
    }

    async fn connect_as(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let pem = self.certificate.certificate_authority_pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let mut configuration = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        configuration.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(configuration)).connect(name, stream).await
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_as("localhost").await.unwrap()
    }

    /// Sends a request and reads up to the end of the connection.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    /// Opens a watch of config maps and reads the head of its answer.
    async fn watch(&self) -> TlsStream<TcpStream> {
        let mut stream = self.connect().await;
        stream.write_all(get("/api/v1/configmaps?watch=true", "").as_bytes()).await.unwrap();
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        stream
    }

    fn fill(&self, name: &str, bytes: usize) {
        let client = self.kube.client("filler");
        let body = json!({ "metadata": { "name": name }, "data": { "a": "x".repeat(bytes) } });
        client.create(&resources::CONFIG_MAPS, Some("default"), body).unwrap();
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

/// Everything that comes until the server closes; how it closes does not matter.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server never closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn until(stream: &mut (impl AsyncReadExt + Unpin), mark: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(mark) {
            text.push(stream.read_u8().await.unwrap().into());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("nothing comes");
    text
}

/// Waits for a condition of the server.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_answered_over_http_1_1() {
    let site = Site::new(Limits::default()).await;
    for name in ["localhost", "127.0.0.1"] {
        let stream = site.connect_as(name).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    }
    assert!(site.connect_as("example.com").await.is_err());
    let answer = site.ask(&get("/version", "Connection: close\r\n")).await;
    assert_eq!(body(&answer)["gitVersion"], "v1.36.3");
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let site = Site::new(Limits::default()).await;
    let mut stream = site.connect().await;
    for _ in 0..3 {
        stream.write_all(get("/healthz", "").as_bytes()).await.unwrap();
        assert!(until(&mut stream, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 OK"));
    }
}

#[test]
fn a_certificate_that_no_client_could_use_is_refused_with_the_reason() {
    let make = |names: &[&str], now: &str| {
        ServingCertificate::generate(names, now.parse().unwrap()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(make(&[], TODAY), "names: a serving certificate needs at least one DNS name or IP address");
    assert_eq!(make(&["not a name"], TODAY), "names: \"not a name\" is neither a DNS name nor an IP address");
    assert_eq!(
        make(&["localhost"], "9998-01-01T00:00:00Z"),
        "now: 9998-01-01T00:00:00Z is too late for a certificate of ten years"
    );
}

#[tokio::test]
async fn plain_http_is_told_that_this_is_https() {
    let site = Site::new(Limits::default()).await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    stream.write_all(get("/version", "").as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
}

#[tokio::test]
async fn a_handshake_that_never_comes_ends_the_connection() {
    let site = Site::new(Limits { handshake: Duration::from_millis(50), ..Limits::default() }).await;
    let mut silent = TcpStream::connect(site.address).await.unwrap();
    assert_eq!(rest(&mut silent).await, "");
    let mut broken = TcpStream::connect(site.address).await.unwrap();
    broken.write_all(&[0x16, 3, 1]).await.unwrap();
    assert_eq!(rest(&mut broken).await, "");
}

#[tokio::test]
async fn a_head_that_never_ends_or_is_too_long_is_not_read() {
    let limits = Limits { head: Duration::from_millis(100), head_bytes: 16 * 1024, ..Limits::default() };
    let site = Site::new(limits).await;
    let answer = site.ask("GET /version HTTP/1.1\r\nHost: loc").await;
    assert!(!answer.contains("200 OK"), "{answer}");
    let answer = site.ask(&get("/version", &format!("X-Long: {}\r\n", "x".repeat(20_000)))).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_ends_the_connection_and_changes_nothing() {
    let site = Site::new(Limits { body: Duration::from_millis(100), ..Limits::default() }).await;
    let version = site.kube.resource_version();
    let request =
        "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50";
    let answer = site.ask(&format!("{request}\r\n\r\n{{\"metadata\":")).await;
    assert_eq!(answer, "");
    assert_eq!(site.kube.resource_version(), version);
}

#[tokio::test]
async fn a_body_of_more_than_three_mebibytes_is_refused() {
    let site = Site::new(Limits::default()).await;
    let data = "x".repeat(3 * 1024 * 1024);
    let text = json!({ "metadata": { "name": "large" }, "data": { "a": data } }).to_string();
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let sized = format!("Content-Length: {}\r\n\r\n{text}", text.len());
    for rest in [chunked, sized] {
        let request = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n";
        let answer = site.ask(&format!("{request}Connection: close\r\nContent-Type: application/json\r\n{rest}")).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{}", &answer[..200.min(answer.len())]);
        assert_eq!(body(&answer)["message"], "Request entity too large: limit is 3145728");
    }
    // One that says it is far larger is refused before it is sent.
    let request = "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n";
    assert!(site.ask(request).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so_until_others_end() {
    let site = Site::new(Limits { connections: 3, ..Limits::default() }).await;
    let watches = [site.watch().await, site.watch().await, site.watch().await];
    let answer = site.ask(&get("/version", "")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert_eq!(body(&answer)["message"], "too many connections: the limit is 3");
    drop(watches);
    eventually("the watches are gone", || site.kube.open_watches() == 0).await;
    let answer = site.ask(&get("/version", "Connection: close\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_watch_at_once() {
    let site = Site::new(Limits::default()).await;
    let before = site.kube.open_watches();
    let watch = site.watch().await;
    assert_eq!(site.kube.open_watches(), before + 1);
    drop(watch);
    eventually("the watch is gone", || site.kube.open_watches() == before).await;
    // One that says goodbye as TLS wants it.
    let mut watch = site.watch().await;
    watch.shutdown().await.unwrap();
    drop(watch);
    eventually("the watch is gone", || site.kube.open_watches() == before).await;
}

#[tokio::test]
async fn a_hundred_watchers_leave_nothing_behind_whoever_ends_them() {
    let site = Site::new(Limits::default()).await;
    for ended_by_server in [false, true] {
        let mut watches = Vec::new();
        for _ in 0..100 {
            watches.push(site.watch().await);
        }
        assert_eq!(site.kube.open_watches(), 100);
        site.fill(if ended_by_server { "b" } else { "a" }, 10);
        for watch in &mut watches {
            assert!(until(watch, "}\n").await.contains("ADDED"));
        }
        if ended_by_server {
            site.task.abort();
            for watch in &mut watches {
                rest(watch).await;
            }
        }
        drop(watches);
        eventually("all watches are gone", || site.kube.open_watches() == 0).await;
    }
    assert!(TcpStream::connect(site.address).await.is_err());
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn a_watcher_that_never_reads_costs_bounded_memory_and_is_told_410() {
    let site = Site::with(Limits::default(), |options| {
        options.event_log = 32;
        options.journal_entries = 0;
    })
    .await;
    let mut watch = site.watch().await;
    let before = resident_bytes();
    for index in 0..600 {
        site.fill(&format!("c{index}"), 500_000);
        site.kube
            .client("filler")
            .delete(&resources::CONFIG_MAPS, Some("default"), &format!("c{index}"), Default::default())
            .unwrap();
        tokio::task::yield_now().await;
    }
    // 300 MB of objects and twice as many events have gone by; the log holds 32 of them, some 16 MB and their lines.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 150_000_000, "{grown} bytes");
    let text = rest_of_watch(&mut watch).await;
    assert!(text.contains("\"ADDED\""), "the first events are told");
    let last = text.lines().rfind(|line| line.starts_with("{\"type\":\"ERROR\"")).expect("no error event");
    let event: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    eventually("the watch is gone", || site.kube.open_watches() == 0).await;
}

/// A watch up to its last chunk.
async fn rest_of_watch(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let reading = async {
        while !bytes.ends_with(b"0\r\n\r\n") {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "closed without the last chunk");
            bytes.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the watch never ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_watcher_that_never_reads_loses_its_connection_in_the_end() {
    let site = Site::new(Limits { unread: Duration::from_millis(200), ..Limits::default() }).await;
    let watch = site.watch().await;
    for index in 0..40 {
        site.fill(&format!("c{index}"), 500_000);
    }
    eventually("the watch is gone", || site.kube.open_watches() == 0).await;
    drop(watch);
}

#[tokio::test]
async fn an_idle_watcher_is_not_taken_for_one_that_never_reads() {
    let limits = Limits {
        head: Duration::from_millis(30),
        body: Duration::from_millis(30),
        unread: Duration::from_millis(30),
        ..Limits::default()
    };
    let site = Site::new(limits).await;
    let mut watch = site.watch().await;
    // Another connection is closed for being idle as long as this one.
    let mut idle = site.connect().await;
    rest(&mut idle).await;
    site.fill("late", 10);
    assert!(until(&mut watch, "}\n").await.contains("late"));
}

#[tokio::test]
async fn dropping_the_server_ends_every_connection() {
    let site = Site::new(Limits::default()).await;
    let (mut watch, mut idle) = (site.watch().await, site.connect().await);
    site.task.abort();
    assert!(!rest(&mut watch).await.ends_with("0\r\n\r\n"), "an aborted watch does not end in order");
    rest(&mut idle).await;
    eventually("the watch is gone", || site.kube.open_watches() == 0).await;
    assert!(TcpStream::connect(site.address).await.is_err());
}

/// The cluster's time stands still while peers come and go, and moves when somebody moves it.
#[tokio::test(flavor = "current_thread", start_paused = true)]
#[allow(clippy::disallowed_methods)] // A blocking task is what keeps tokio from leaping ahead of the sockets.
async fn paused_time_moved_by_hand_serves_peers_and_ends_watches() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let holding = tokio::task::spawn_blocking(move || held.recv());
    let site = Site::new(Limits { handshake: Duration::from_millis(50), ..Limits::default() }).await;
    let start = site.kube.clock().now();
    let mut stream = site.connect().await;
    stream.write_all(get("/api/v1/configmaps?watch=true&timeoutSeconds=600", "").as_bytes()).await.unwrap();
    until(&mut stream, "\r\n\r\n").await;
    // The limits of connections pass in the machine's time.
    let mut silent = TcpStream::connect(site.address).await.unwrap();
    let mut nothing = Vec::new();
    assert_eq!(silent.read_to_end(&mut nothing).await.unwrap_or(0), 0);
    assert_eq!(site.kube.clock().now(), start, "time moved by itself");
    // An hour passes at once: the idle connection stays, the watch comes to its timeout.
    let mut kept = site.connect().await;
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(site.kube.open_watches(), 1);
    tokio::time::advance(Duration::from_secs(3_000)).await;
    until(&mut stream, "0\r\n\r\n").await;
    kept.write_all(get("/healthz", "").as_bytes()).await.unwrap();
    until(&mut kept, "\r\n\r\nok").await;
    drop(release);
    holding.await.unwrap().unwrap_err();
}
