//! HTTP to protocol to action to answer; the clock, the lock and the waiting are here and nowhere else. `socket` listens.

use crate::actions::{self, Context, Step};
use crate::bootstrap::Bootstrap;
use crate::clock::AccountClock;
use crate::cloud::Cloud;
use crate::config::Config;
use crate::connector::InProcessClient;
use crate::control::Control;
use crate::error::ApiError;
use crate::fault::{Faults, Origin, Outcome};
use crate::iam;
use crate::iam::caller::Caller;
use crate::journal::{Denial, Journal, JournalEntry};
use crate::lenient;
use crate::waiting::{Bells, Waiter};
use crate::wire::signature::{self, Distrust};
use crate::wire::{self, Call};
use bytes::Bytes;
use controller_clock::Clock;
use http::{Request, Response};
use jiff::Timestamp;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// An observer of the journal.
pub(crate) type Observer = Box<dyn Fn(&JournalEntry) + Send + Sync>;

/// The fake. Clones are handles to the same account.
#[derive(Clone)]
pub struct FakeEc2 {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) clock: AccountClock,
    /// As it was started: what a reset goes back to.
    pub(crate) config: Config,
    pub(crate) bootstraps: Mutex<Vec<Bootstrap>>,
    cloud: Mutex<Cloud>,
    /// Rings after every change that someone may wait for. Waiters are woken in the order in which they came, which
    /// keeps runs repeatable (a watch channel would pick at random).
    changed: Notify,
    /// Who waits for a queue.
    pub(crate) bells: Bells,
    /// How many [`FakeEc2::run`] let time pass.
    runs: AtomicUsize,
    /// Holds a permit if something has changed that was not saved.
    pub(crate) unsaved: Notify,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) journal: Mutex<Journal>,
    pub(crate) observers: Mutex<Vec<Arc<Observer>>>,
}

/// What a request came to.
pub(crate) enum Exchange {
    Answered(Response<Bytes>),
    /// The connection breaks in the middle of the body.
    Truncated(Response<Bytes>),
    /// The connection broke.
    Lost,
}

/// When a request came, and how large its body was.
#[derive(Clone, Copy)]
struct Arrived {
    at: Timestamp,
    bytes: usize,
}

impl std::fmt::Debug for FakeEc2 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FakeEc2")
    }
}

impl FakeEc2 {
    /// An empty account in one region.
    pub fn new(config: Config, clock: Clock) -> Self {
        let inner = Inner {
            cloud: Mutex::new(account(config.clone(), clock.now())),
            clock: AccountClock::new(clock),
            config,
            bootstraps: Mutex::default(),
            changed: Notify::new(),
            bells: Bells::default(),
            runs: AtomicUsize::new(0),
            unsaved: Notify::new(),
            faults: Mutex::default(),
            journal: Mutex::default(),
            observers: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Answers one request as AWS would. A reply that a fault swallows is answered by an empty 502, and one that it truncates
    /// by half of its body; through [`FakeEc2::http_client`] and [`FakeEc2::serve`] both are broken connections.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        match self.exchange(request).await {
            Exchange::Answered(response) => response,
            Exchange::Truncated(response) => response.map(|body| body.slice(..body.len() / 2)),
            Exchange::Lost => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = http::StatusCode::BAD_GATEWAY;
                response
            }
        }
    }

    /// An HTTP client for the AWS SDK whose requests never leave the process.
    pub fn http_client(&self) -> InProcessClient {
        InProcessClient::new(self.clone())
    }

    /// The handle that sets the scene and looks behind it.
    pub fn cloud(&self) -> Control {
        Control::new(self.clone())
    }

    /// Lets time pass: carries out what is due and delivers events, until dropped. Sleeps from one due instant to the
    /// next, and does nothing while nothing is due. Without it, the same happens whenever somebody asks.
    pub async fn run(&self) {
        let _running = Running::of(self);
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = self.locked(|cloud, _| cloud.next_due());
            tokio::select! {
                biased;
                () = &mut changed => {}
                () = self.sleep_until(next) => {}
            }
        }
    }

    pub(crate) async fn exchange(&self, request: Request<Bytes>) -> Exchange {
        let arrived = Arrived { at: self.inner.clock.now(), bytes: request.body().len() };
        let call = match wire::read(&request) {
            Ok(call) => call,
            Err(unreadable) => {
                tracing::warn!(code = %unreadable.error.code, method = %request.method(), "request could not be read");
                return Exchange::Answered(self.refuse(&unreadable));
            }
        };
        let params = call.params();
        if let Err(error) = self.check_signature(&request, &call) {
            let request_id = self.locked(|cloud, _| cloud.ids.uuid());
            let response = wire::answer(&call, &request_id, Err(error));
            self.record(&call, params, arrived, Some(&response), None);
            return Exchange::Answered(response);
        }
        let fault = self.strike(&call, &params);
        let mut lost_reply = false;
        let mut truncated = false;
        let mut injected = None;
        let mut denied = None;
        match fault {
            None => {}
            Some(Outcome::Error(error)) => injected = Some(error),
            Some(Outcome::Delay(duration)) => tokio::time::sleep(duration).await,
            Some(Outcome::LostReply) => lost_reply = true,
            Some(Outcome::TruncatedBody) => truncated = true,
            Some(Outcome::LostRequest) => {
                self.record(&call, params, arrived, None, None);
                return Exchange::Lost;
            }
            Some(Outcome::Hang) => {
                self.record(&call, params, arrived, None, None);
                return std::future::pending().await;
            }
        }
        let response = match injected {
            Some(error) => {
                let request_id = self.locked(|cloud, _| cloud.ids.uuid());
                wire::answer(&call, &request_id, Err(error))
            }
            None => {
                let (response, refused) = self.perform(&call).await;
                denied = refused;
                response
            }
        };
        if changes(&call.action) {
            self.touch();
        }
        if lost_reply {
            self.record(&call, params, arrived, None, None);
            return Exchange::Lost;
        }
        self.record(&call, params, arrived, Some(&response), denied);
        if truncated { Exchange::Truncated(response) } else { Exchange::Answered(response) }
    }

    fn strike(&self, call: &Call, params: &serde_json::Value) -> Option<Outcome> {
        if lock(&self.inner.faults).is_empty() {
            return None;
        }
        let principal = Caller::of(&lock(&self.inner.cloud), call).arn;
        let from = Origin { access_key_id: &call.sender.access_key_id, principal: &principal };
        lock(&self.inner.faults).strike(call.service, &call.action, params, from)
    }

    /// Where signatures are checked, whether this one is right.
    fn check_signature(&self, request: &Request<Bytes>, call: &Call) -> Result<(), ApiError> {
        if !self.locked(|cloud, _| cloud.config.verify_signatures) {
            return Ok(());
        }
        let secret_of = |key: &str| self.locked(|cloud, now| iam::secret_of(cloud, now, key));
        match signature::verify(request, call.protocol, self.inner.clock.given(), secret_of) {
            Err(Distrust::Unsigned) if iam::is_unsigned(&call.action) => Ok(()),
            checked => checked.map_err(|distrust| distrust.error(call)),
        }
    }

    pub(crate) fn refuse(&self, unreadable: &wire::Unreadable) -> Response<Bytes> {
        let request_id = self.locked(|cloud, _| cloud.ids.uuid());
        wire::error::respond(unreadable.protocol, &request_id, &unreadable.error)
    }

    /// Performs an action, waiting where it has to wait.
    async fn perform(&self, call: &Call) -> (Response<Bytes>, Option<Denial>) {
        let started = self.inner.clock.now();
        let admitted = match self.locked(|cloud, now| {
            let throttled = cloud.admit_call(now, call).map_err(Into::into);
            throttled.and_then(|()| iam::admit(cloud, now, call)).map_err(|refused| (cloud.ids.uuid(), refused))
        }) {
            Ok(admitted) => admitted,
            Err((request_id, refused)) => {
                return (wire::answer(call, &request_id, Err(refused.error)), refused.denied);
            }
        };
        loop {
            let performed = self.locked(|cloud, now| {
                lenient::admit(cloud, now, call);
                match actions::perform(cloud, &Context { now, started, asking: admitted.asking() }, call) {
                    Step::Done(result) => Ok((cloud.ids.uuid(), result)),
                    Step::WaitUntil(deadline) => Err((deadline, self.inner.bells.enter(cloud, call.queue()))),
                }
            });
            match performed {
                Ok((request_id, result)) => {
                    let (result, denied) = match result {
                        Ok(reply) => (Ok(reply), None),
                        Err(refused) => (Err(refused.error), refused.denied),
                    };
                    return (wire::answer(call, &request_id, result), denied);
                }
                Err((deadline, waiter)) => self.wait(waiter, deadline).await,
            }
        }
    }

    /// Waits for a change of the queue, at the latest until then. What comes due meanwhile is carried out by whoever runs;
    /// where nobody does, by those who wait.
    async fn wait(&self, mut waiter: Waiter, deadline: Timestamp) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let alone = self.inner.runs.load(Ordering::Relaxed) == 0;
            let due = if alone { self.locked(|cloud, _| cloud.next_due()) } else { None };
            tokio::select! {
                biased;
                () = &mut waiter.rung => return,
                () = self.sleep_until(Some(due.map_or(deadline, |due| due.min(deadline)))) => {
                    if self.inner.clock.now() >= deadline {
                        return;
                    }
                }
                () = &mut changed, if alone => {}
            }
        }
    }

    /// Runs `work` on the model as it is now, and wakes whoever waits for what it changed.
    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut Cloud, Timestamp) -> T) -> T {
        let mut cloud = lock(&self.inner.cloud);
        // Read under the lock, so that the model never sees time go back.
        let now = self.inner.clock.now();
        let before = cloud.revision;
        cloud.advance(now);
        let result = work(&mut cloud, now);
        let changed = cloud.revision != before;
        if changed {
            self.inner.bells.ring(&cloud);
        }
        drop(cloud);
        if changed {
            self.inner.changed.notify_waiters();
            self.touch();
        }
        result
    }

    /// There is something to save.
    pub(crate) fn touch(&self) {
        self.inner.unsaved.notify_one();
    }

    /// After the clock was set, or the whole account replaced: whoever waits looks again.
    pub(crate) fn wake_everyone(&self) {
        self.inner.bells.ring_all();
        self.inner.changed.notify_waiters();
        self.touch();
    }

    /// Waits until `ready` answers; asked again after every change and every due instant.
    pub(crate) async fn wait_for<T>(&self, ready: impl Fn(&Cloud) -> Option<T>) -> T {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (answer, next_due) = self.locked(|cloud, _| (ready(cloud), cloud.next_due()));
            if let Some(answer) = answer {
                return answer;
            }
            tokio::select! {
                biased;
                () = &mut changed => {}
                () = self.sleep_until(next_due) => {}
            }
        }
    }

    async fn sleep_until(&self, instant: Option<Timestamp>) {
        let Some(instant) = instant else { return std::future::pending().await };
        tokio::time::sleep(self.inner.clock.until(instant)).await;
    }

    fn record(
        &self,
        call: &Call,
        params: serde_json::Value,
        arrived: Arrived,
        response: Option<&Response<Bytes>>,
        denied: Option<Denial>,
    ) {
        let principal = Caller::of(&lock(&self.inner.cloud), call).arn;
        let entry = JournalEntry {
            sequence: 0,
            at: arrived.at,
            answered_at: self.inner.clock.now(),
            service: call.service,
            action: call.action.clone(),
            caller: call.sender.access_key_id.clone(),
            principal,
            denied,
            user_agent: call.sender.user_agent.clone(),
            params,
            request_bytes: arrived.bytes,
            status: response.map_or(0, |response| response.status().as_u16()),
            error_code: response.and_then(error_code),
            response: response.map_or_else(Bytes::new, |response| response.body().clone()),
        };
        let entry = lock(&self.inner.journal).push(entry);
        // Called without any lock held: an observer may ask for the state of things.
        let observers = lock(&self.inner.observers).clone();
        observers.iter().for_each(|observer| observer(&entry));
    }
}

/// Whether there may be something to save after an action, by how AWS names those that only look.
fn changes(action: &str) -> bool {
    !["Describe", "Get", "List"].iter().any(|verb| action.starts_with(verb))
}

/// An account as it begins.
pub(crate) fn account(config: Config, now: Timestamp) -> Cloud {
    let mut cloud = Cloud::new(config, now);
    lenient::furnish(&mut cloud);
    cloud
}

/// Counts a [`FakeEc2::run`] for as long as it lasts.
struct Running<'a>(&'a FakeEc2);

impl<'a> Running<'a> {
    fn of(ec2: &'a FakeEc2) -> Self {
        ec2.inner.runs.fetch_add(1, Ordering::Relaxed);
        Self(ec2)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.inner.runs.fetch_sub(1, Ordering::Relaxed);
        // Those who wait have to see to the time themselves now.
        self.0.wake_everyone();
    }
}

/// A panic while the lock was held is reported where it happened; the data behind it is plain and still whole enough to
/// answer the next request.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error_code(response: &Response<Bytes>) -> Option<String> {
    response.extensions().get::<crate::ApiError>().map(|error| error.code.to_string())
}
