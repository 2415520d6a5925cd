//! fake-ec2 in a process of its own, reached over HTTP alone: AWS's protocols and the control API on one socket.
//!
//! Nothing is tried twice: a fake-ec2 that does not answer, or that was started anew, is an error of whoever asked.

use super::{Ec2, Instance};
use crate::http_exchange::{Address, exchange};
use anyhow::{Context, anyhow, ensure};
use base64::Engine as _;
use bytes::Bytes;
use fake_ec2::{Bootstrapped, Denial, JournalEntry, Service};
use http::{Method, Request, Response};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long the other side may wait for something new. Well below the minute after which proxies take a connection for dead.
const WAIT_S: u64 = 30;

/// For any answer, beside what the other side may wait: only a machine that is very busy takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many calls are read at once.
const CALLS: usize = 500;

/// A fake-ec2 by its address. Clones share what was read of the journal.
#[derive(Clone)]
pub struct RemoteEc2 {
    address: Address,
    journal: Rc<Journal>,
}

/// What was read of the journal since the last reset. A scenario in real time makes some thousand calls, which fake-ec2 keeps
/// too.
#[derive(Default)]
struct Journal {
    entries: RefCell<Vec<Arc<JournalEntry>>>,
    /// The last that is not of this scenario.
    start: Cell<u64>,
}

impl Journal {
    fn last(&self) -> u64 {
        self.entries.borrow().last().map_or(self.start.get(), |last| last.sequence)
    }

    /// Two readers may ask for the same.
    fn extend(&self, entries: Vec<Arc<JournalEntry>>) {
        let last = self.last();
        self.entries.borrow_mut().extend(entries.into_iter().filter(|entry| entry.sequence > last));
    }
}

/// How an account is to be set up.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// Whether policies decide who may do what.
    pub enforce_iam: bool,
    /// The seed of ids.
    pub seed: u64,
    /// The region.
    pub region: &'a str,
    /// The instance families on offer; none listed is the whole catalogue.
    pub families: &'a [String],
    /// How fast instances come and go.
    pub pace: &'a fake_ec2::Pace,
    /// The stage.
    pub bootstrap: &'a fake_ec2::Bootstrap,
}

impl RemoteEc2 {
    /// The fake-ec2 at such a URL as `http://127.0.0.1:4566`. Nothing is sent yet.
    ///
    /// # Errors
    /// Where the URL is not one of plain HTTP.
    pub fn at(url: &str) -> anyhow::Result<Self> {
        Ok(Self { address: url.parse()?, journal: Rc::default() })
    }

    /// Sets the account up anew. What was before is gone, faults and journal too; whoever uses it has to have ended.
    ///
    /// # Errors
    /// Where nobody answers, or what answers is no fake-ec2 that can be set up so.
    pub async fn reset(&self, start: &Start<'_>) -> anyhow::Result<Bootstrapped> {
        let Start { enforce_iam, seed, region, families, pace, bootstrap } = start;
        let milliseconds = |duration: Duration| duration.as_millis() as u64;
        let mut body = json!({
            "iam": if *enforce_iam { "enforce" } else { "off" },
            "seed": seed,
            "region": region,
            "families": families,
            "pace": {
                "pendingMs": milliseconds(pace.pending),
                "shuttingDownMs": milliseconds(pace.shutting_down),
                "stoppingMs": milliseconds(pace.stopping),
                "terminatedVisibleMs": milliseconds(pace.terminated_visible),
                "statusChecksMs": milliseconds(pace.status_checks),
            },
            "bootstrap": {
                "cluster": bootstrap.cluster_name,
                "endpoint": bootstrap.endpoint,
                "certificateAuthority": bootstrap.certificate_authority,
                "prerequisites": bootstrap.prerequisites,
            },
        });
        if !bootstrap.oidc_issuer.is_empty() {
            body["bootstrap"]["oidcIssuer"] = json!(bootstrap.oidc_issuer);
        }
        let answer = self.command(Method::POST, "/reset", &body).await?;
        let journal = answer["journal"].as_u64().context("the answer to the reset names no place in the journal")?;
        self.journal.entries.borrow_mut().clear();
        self.journal.start.set(journal);
        Bootstrapped::deserialize(&answer["bootstraps"][0]).context("the answer to the reset names no stage")
    }

    /// Tells every call since the last reset, those to come as they are made, for as long as the future lives.
    pub fn follow_calls<T: Fn(&JournalEntry)>(&self, tell: T) -> impl Future<Output = anyhow::Result<()>> + use<T> {
        let ec2 = self.clone();
        async move {
            let mut told = ec2.journal.start.get();
            loop {
                // Somebody who asked for the journal may have read them already.
                let new: Vec<_> = ec2.entries_after(told);
                for entry in new {
                    told = entry.sequence;
                    tell(&entry);
                }
                if ec2.journal.last() == told {
                    ec2.read_journal(WAIT_S).await?;
                }
            }
        }
    }

    /// The same address as if another's journal had been read here.
    #[cfg(test)]
    pub(super) fn following(self, other: &Self) -> Self {
        Self { journal: other.journal.clone(), ..self }
    }

    fn entries_after(&self, sequence: u64) -> Vec<Arc<JournalEntry>> {
        let entries = self.journal.entries.borrow();
        entries[entries.partition_point(|entry| entry.sequence <= sequence)..].to_vec()
    }

    /// Reads what is new in the journal, waiting for it that long; answers whether there was anything.
    async fn read_journal(&self, wait_s: u64) -> anyhow::Result<bool> {
        let after = self.journal.last();
        let path = format!("/journal?after={after}&limit={CALLS}&responses=true&waitS={wait_s}");
        let answer = self.read(&path).await?;
        let page: Page = serde_json::from_value(answer).context("a journal that is not understood")?;
        ensure!(page.missing == 0, "the journal of fake-ec2 has lost {} calls after number {after}", page.missing);
        let something = !page.calls.is_empty();
        self.journal.extend(page.calls.into_iter().map(|call| call.entry().map(Arc::new)).collect::<Result<_, _>>()?);
        Ok(something)
    }

    async fn send(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        let patience = PATIENCE + Duration::from_secs(WAIT_S);
        let about = format!("{} {} of the fake-ec2 at {}", request.method(), request.uri().path(), self.address);
        let answer = tokio::time::timeout(patience, exchange(&self.address, request)).await;
        answer.map_err(|_| anyhow!("no answer within {} seconds", patience.as_secs())).flatten().context(about)
    }
}

impl Ec2 for RemoteEc2 {
    async fn aws(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        self.send(request).await
    }

    async fn control(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        self.send(request).await
    }

    async fn instances(&self) -> anyhow::Result<Vec<Instance>> {
        let mut answer = self.read("/instances").await?;
        let shown: Vec<Shown> =
            serde_json::from_value(answer["instances"].take()).context("instances that are not understood")?;
        Ok(shown.into_iter().map(Instance::from).collect())
    }

    async fn instances_changed(&self, seen: u64) -> anyhow::Result<u64> {
        loop {
            let answer = self.read(&format!("/instances/changed?after={seen}&waitS={WAIT_S}")).await?;
            let revision = answer["revision"].as_u64().context("the answer names no revision")?;
            if revision > seen {
                return Ok(revision);
            }
        }
    }

    async fn journal(&self) -> anyhow::Result<Vec<Arc<JournalEntry>>> {
        while self.read_journal(0).await? {}
        Ok(self.journal.entries.borrow().clone())
    }
}

#[derive(Deserialize)]
struct Page {
    calls: Vec<ShownCall>,
    missing: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownCall {
    sequence: u64,
    at: Timestamp,
    answered_at: Timestamp,
    service: String,
    action: String,
    caller: String,
    principal: String,
    denied: Option<ShownDenial>,
    user_agent: String,
    parameters: Value,
    status: Option<u16>,
    error_code: Option<String>,
    request_bytes: usize,
    response: String,
}

#[derive(Deserialize)]
struct ShownDenial {
    action: String,
    resource: String,
}

impl ShownCall {
    fn entry(self) -> anyhow::Result<JournalEntry> {
        let service = Service::by_name(&self.service);
        Ok(JournalEntry {
            sequence: self.sequence,
            at: self.at,
            answered_at: self.answered_at,
            service: service.with_context(|| format!("the journal names a service {:?}", self.service))?,
            action: self.action,
            caller: self.caller,
            principal: self.principal,
            denied: self.denied.map(|ShownDenial { action, resource }| Denial { action, resource }),
            user_agent: self.user_agent,
            params: self.parameters,
            request_bytes: self.request_bytes,
            status: self.status.unwrap_or_default(),
            error_code: self.error_code,
            response: self.response.into(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: String,
    instance_type: String,
    image_id: String,
    image_name: Option<String>,
    zone: String,
    zone_id: String,
    subnet_id: String,
    security_groups: Vec<Named>,
    state: String,
    state_since: Timestamp,
    state_reason: Option<Coded>,
    capacity_type: String,
    launched_at: Timestamp,
    reclaim_at: Option<Timestamp>,
    price_per_hour_usd: Option<f64>,
    tags: BTreeMap<String, String>,
    architecture: String,
    vcpus: u32,
    memory_mib: Option<u64>,
    private_dns_name: String,
    private_ip: String,
    user_data: Option<String>,
    role: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Coded {
    code: String,
}

impl From<Shown> for Instance {
    fn from(shown: Shown) -> Self {
        let user_data = match &shown.user_data {
            // What is not base64 is nothing to the instance.
            Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default(),
            None => Vec::new(),
        };
        Self {
            id: shown.id,
            instance_type: shown.instance_type,
            image_id: shown.image_id,
            image_name: shown.image_name.unwrap_or_default(),
            zone: shown.zone,
            zone_id: shown.zone_id,
            subnet: shown.subnet_id,
            security_groups: shown.security_groups.into_iter().map(|group| group.name).collect(),
            state: shown.state,
            state_since: shown.state_since,
            state_reason: shown.state_reason.map(|reason| reason.code),
            spot: shown.capacity_type == "spot",
            launched_at: shown.launched_at,
            reclaim_at: shown.reclaim_at,
            usd_per_hour: shown.price_per_hour_usd,
            tags: shown.tags,
            architecture: shown.architecture,
            vcpus: shown.vcpus,
            memory_mib: shown.memory_mib.unwrap_or_default(),
            private_dns_name: shown.private_dns_name,
            private_ip: shown.private_ip,
            user_data: String::from_utf8_lossy(&user_data).into_owned(),
            role: shown.role,
        }
    }
}
