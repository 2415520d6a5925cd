//! The store of a control plane, over etcd's own JSON interface (https://etcd.io/docs/latest/dev-guide/api_grpc_gateway/):
//! what it holds is noted once, and put back later.
//!
//! Putting back is exact: what was not there is deleted, what changed or is missing is written with its former bytes, in one
//! transaction. The API server and the controllers watch the store and follow. A controller that was just about to write
//! may write once more; so the store is looked at until it has stayed as it was.

use crate::loopback;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything of Kubernetes lies between these (base64 of `/registry/` and `/registry0`).
const FIRST_KEY: &str = "L3JlZ2lzdHJ5Lw==";
const END_KEY: &str = "L3JlZ2lzdHJ5MA==";

/// How long nothing may change before it counts as quiet. Controllers answer a change within some hundredths of a second.
const QUIET: Duration = Duration::from_millis(400);

/// How long it may take to become so.
const QUIET_WITHIN: Duration = Duration::from_secs(60);

/// Keys whose values renew themselves: leases of the control plane's own processes, and objects about the API server.
const RENEWED: [&str; 3] =
    ["/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/apiregistration.k8s.io/"];

/// What the store holds: keys and values, as etcd's JSON has them (base64).
pub(super) type Kept = BTreeMap<String, String>;

pub(super) struct Etcd {
    port: u16,
}

impl Etcd {
    pub(super) fn at(port: u16) -> Self {
        Self { port }
    }

    /// What the store holds once it has stayed the same for a moment.
    pub(super) async fn when_quiet(&self) -> anyhow::Result<Kept> {
        let started = tokio::time::Instant::now();
        let mut last = self.all().await?;
        while started.elapsed() < QUIET_WITHIN {
            // Longer than later: the controllers are just about to start.
            tokio::time::sleep(3 * QUIET).await;
            let now = self.all().await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        bail!("the store of the control plane still changed after {QUIET_WITHIN:?}")
    }

    /// Puts everything back.
    pub(super) async fn set_back(&self, kept: &Kept) -> anyhow::Result<()> {
        let started = tokio::time::Instant::now();
        let mut changed = self.put_back(kept).await?;
        loop {
            tokio::time::sleep(QUIET).await;
            let again = self.put_back(kept).await?;
            if again.is_empty() {
                return Ok(());
            }
            ensure!(
                started.elapsed() < QUIET_WITHIN,
                "the control plane could not be set back: {} change again and again",
                again.iter().chain(&changed).take(5).cloned().collect::<Vec<_>>().join(", ")
            );
            changed = again;
        }
    }

    /// Puts back what differs now, and answers the keys of that.
    async fn put_back(&self, kept: &Kept) -> anyhow::Result<Vec<String>> {
        let now = self.all().await?;
        let extra = now.keys().filter(|key| !kept.contains_key(*key));
        let changed: Vec<_> = kept.iter().filter(|(key, value)| now.get(*key) != Some(value)).collect();
        let deletes = extra.clone().map(|key| json!({"requestDeleteRange": {"key": key}}));
        let puts = changed.iter().map(|(key, value)| json!({"requestPut": {"key": key, "value": value}}));
        let operations: Vec<Value> = deletes.chain(puts).collect();
        let keys = extra.chain(changed.iter().map(|(key, _)| *key)).map(|key| plain(key)).collect();
        if !operations.is_empty() {
            self.ask("/v3/kv/txn", &json!({"success": operations})).await?;
        }
        Ok(keys)
    }

    async fn all(&self) -> anyhow::Result<Kept> {
        let answer = self.ask("/v3/kv/range", &json!({"key": FIRST_KEY, "range_end": END_KEY})).await?;
        let pairs = answer["kvs"].as_array().context("the store holds nothing")?;
        let pair = |pair: &Value| {
            let text = |name: &str| pair[name].as_str().unwrap_or_default().to_owned();
            (text("key"), text("value"))
        };
        let is_kept = |key: &str| {
            let key = plain(key);
            !RENEWED.iter().any(|start| key.starts_with(start))
        };
        Ok(pairs.iter().map(pair).filter(|(key, _)| is_kept(key)).collect())
    }

    async fn ask(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let (status, bytes) = loopback::ask(self.port, request).await.context("asking etcd")?;
        ensure!(status.is_success(), "etcd answered {status}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).context("what etcd answered")
    }
}

/// A key as it is.
fn plain(key: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(key).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
