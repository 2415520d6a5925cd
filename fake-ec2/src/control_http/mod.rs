//! The control API: what [`Control`](crate::Control) does, over HTTP and JSON, under `/_trysquare/` on the socket that
//! also speaks AWS's protocols. `openapi.json` describes it for programs, the README for people.
//!
//! It has no password, so it must not be reached by accident: a page in a browser can send requests to a loopback
//! address, and a name of its own can lead there (DNS rebinding). [`Door`] refuses both.

mod account;
mod account_clock;
mod ask;
mod config;
mod fault;
mod journal;
mod lenient;
mod market;
mod reset;
mod snapshot;
mod view;

use crate::cloud::Cloud;
use crate::cloud::capacity::CapacityType;
use crate::error::ApiError;
use crate::fault::FaultId;
use crate::server::{FakeEc2, lock};
use crate::wire::{MAX_BODY_BYTES, percent_decode};
use ask::Fields;
use bytes::Bytes;
pub use config::is_access_key_id;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

const PREFIX: &str = "/_trysquare";

const OPENAPI: &str = include_str!("openapi.json");

/// The longest wait for a change. Clients and what lies between give up an idle connection after a minute.
const MAX_WAIT_S: u64 = 50;

/// Fault rules at a time. Each call is held against each of them; a person keeps a handful.
const MAX_FAULTS: usize = 1_000;

/// The largest snapshot: some 20,000 instances. Every other request is bounded as those to AWS are.
pub(crate) const MAX_SNAPSHOT_BYTES: usize = 64 << 20;

/// Whether a path belongs to the control API.
pub(crate) fn concerns(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) || path == lenient::RESET
}

/// How large a body may be.
pub(crate) fn max_body_bytes(method: &Method, path: &str) -> usize {
    match *method == Method::PUT && concerns(path) && below_prefix(path) == "/snapshot" {
        true => MAX_SNAPSHOT_BYTES,
        false => MAX_BODY_BYTES,
    }
}

/// Why a request was refused, as JSON says it.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    error: String,
    field: Option<String>,
    expected: Option<String>,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), field: None, expected: None }
    }

    fn invalid(field: &str, error: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { field: Some(field.into()), expected: Some(expected.into()), ..Self::new(StatusCode::BAD_REQUEST, error) }
    }
}

type Outcome = Result<Value, Refusal>;

/// One thing that can be asked for.
struct Route {
    method: Method,
    /// Below the prefix; `{id}` stands for any one segment.
    path: &'static str,
    summary: &'static str,
    perform: Perform,
}

/// What a route does with the segment for `{id}` and the fields.
enum Perform {
    Now(fn(&FakeEc2, &str, &mut Fields) -> Outcome),
    /// It may wait for something to happen.
    Later(for<'a> fn(&'a FakeEc2, &'a mut Fields) -> Answering<'a>),
    /// It reads the body by itself.
    Whole(fn(&FakeEc2, &[u8]) -> Outcome),
}

type Answering<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

static ROUTES: [Route; 39] = [
    route(Method::GET, "/", "What there is to ask for", index),
    route(Method::GET, "/health", "Whether it answers", health),
    route(Method::GET, "/ready", "Whether it can be used: the same, as it is ready once it answers", health),
    route(Method::GET, "/openapi.json", "This API as OpenAPI 3.1", openapi),
    route(Method::POST, "/reset", "Sets the account back to how it was started, or to another start", reset::reset),
    route(Method::POST, "/bootstrap", "Makes what a cluster's set-up makes before Karpenter", reset::make_bootstrap),
    route(Method::GET, "/clock", "The account's time, and how it differs from the machine's", account_clock::show),
    route(Method::POST, "/clock", "Sets the account's time forward, or lets it run faster", account_clock::set),
    route(Method::GET, "/snapshot", "The whole account as JSON", snapshot::take),
    Route {
        method: Method::PUT,
        path: "/snapshot",
        summary: "Puts an account as GET answered it in the place of this one",
        perform: Perform::Whole(snapshot::restore),
    },
    route(Method::GET, "/state", "Instances, queues, clusters, and where capacity is short", state),
    route(Method::GET, "/resources/{id}", "Every resource of a kind, such as subnets", account::resources),
    route(Method::GET, "/instances", "Every instance with all that is known of it", account::instances),
    waiting("/instances/changed", "Waits until an instance has changed", |ec2, fields| {
        Box::pin(account::instances_changed(ec2, fields))
    }),
    route(
        Method::POST,
        "/instances/{id}/interrupt",
        "Sends a spot notice; the reclaim follows after two minutes",
        interrupt,
    ),
    route(Method::POST, "/instances/{id}/rebalance", "Sends a rebalance recommendation", rebalance),
    route(Method::POST, "/instances/{id}/terminate", "Terminates an instance from outside", terminate),
    route(Method::POST, "/instances/{id}/impair", "Lets a status check fail, or pass again", account::impair),
    route(Method::POST, "/instances/{id}/maintenance", "Schedules maintenance", account::schedule_maintenance),
    route(Method::POST, "/capacity/exhaust", "Lets pools refuse launches", exhaust),
    route(Method::POST, "/capacity/restore", "Lets pools launch again", restore),
    route(Method::POST, "/prices", "Sets a price from now on, or withdraws a spot offering", market::set_price),
    route(Method::POST, "/subnets/{id}", "Sets how many addresses a subnet has left", market::set_addresses),
    route(Method::POST, "/tags", "Sets tags of a resource, those of AWS's own prefix too", account::set_tags),
    route(Method::POST, "/roles", "Makes a role that EC2 may assume", account::add_role),
    route(
        Method::POST,
        "/images",
        "Publishes a release of the images for a Kubernetes version",
        account::release_images,
    ),
    route(Method::POST, "/queues", "Makes a queue", account::add_queue),
    route(Method::DELETE, "/queues/{id}", "Deletes a queue with all that is in it", account::remove_queue),
    route(Method::POST, "/queues/{id}/messages", "Puts any text into a queue", account::send_message),
    route(Method::POST, "/clusters/{id}/access-entries", "Lets a principal into a cluster", account::add_access_entry),
    route(
        Method::DELETE,
        "/clusters/{id}/access-entries",
        "Shuts a principal out of a cluster",
        account::remove_access_entry,
    ),
    route(Method::GET, "/faults", "The fault rules, in the order in which they are tried", list_faults),
    route(Method::POST, "/faults", "Adds a fault rule", add_fault),
    route(Method::DELETE, "/faults", "Removes every fault rule", clear_faults),
    route(Method::GET, "/faults/{id}", "One fault rule", show_fault),
    route(Method::DELETE, "/faults/{id}", "Removes a fault rule", remove_fault),
    waiting("/journal", "The latest API calls, or those after one, oldest first", |ec2, fields| {
        Box::pin(journal::calls(ec2, fields))
    }),
    route(Method::GET, "/events", "The latest events on the bus, oldest first", journal::events),
    route(Method::POST, "/events", "Puts an event on the bus", journal::send_event),
];

const fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    perform: fn(&FakeEc2, &str, &mut Fields) -> Outcome,
) -> Route {
    Route { method, path, summary, perform: Perform::Now(perform) }
}

const fn waiting(
    path: &'static str,
    summary: &'static str,
    perform: for<'a> fn(&'a FakeEc2, &'a mut Fields) -> Answering<'a>,
) -> Route {
    Route { method: Method::GET, path, summary, perform: Perform::Later(perform) }
}

impl Route {
    /// The segment that stands for `{id}`, or nothing, if this is the route of `path`.
    fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self.path.split_once("{id}") {
            None => (self.path == path).then_some(""),
            Some((before, after)) => {
                let id = path.strip_prefix(before)?.strip_suffix(after)?;
                (!id.is_empty() && !id.contains('/')).then_some(id)
            }
        }
    }
}

impl FakeEc2 {
    /// Answers a request to the control API without a socket. In process nobody is kept out.
    pub async fn control(&self, request: Request<Bytes>) -> Response<Bytes> {
        answer(self, None, &request).await
    }
}

pub(crate) async fn answer(ec2: &FakeEc2, door: Option<&Door<'_>>, request: &Request<Bytes>) -> Response<Bytes> {
    if request.uri().path() == lenient::RESET {
        return lenient::answer(ec2, door, request);
    }
    let allowed = allowed_methods(request.uri().path());
    let outcome = match door.map_or(Ok(()), |door| door.admit(request)) {
        Ok(()) => {
            let outcome = perform(ec2, request).await;
            // Nearly every other method changes something.
            if *request.method() != Method::GET && outcome.is_ok() {
                ec2.touch();
            }
            outcome
        }
        Err(refusal) => Err(refusal),
    };
    let (status, body) = match outcome {
        Ok(body) => (StatusCode::OK, body),
        Err(Refusal { status, error, field, expected }) => {
            (status, json!({"error": error, "field": field, "expected": expected}))
        }
    };
    let mut response = Response::new(Bytes::from(format!("{body:#}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED
        && let Ok(allowed) = HeaderValue::try_from(allowed)
    {
        headers.insert(header::ALLOW, allowed);
    }
    response
}

async fn perform(ec2: &FakeEc2, request: &Request<Bytes>) -> Outcome {
    let path = below_prefix(request.uri().path());
    let known = ROUTES.iter().find_map(|route| {
        let id = route.matches(path).filter(|_| route.method == *request.method())?;
        Some((route, percent_decode(id)))
    });
    let Some((route, id)) = known else {
        let allowed = allowed_methods(request.uri().path());
        return Err(match allowed.is_empty() {
            true => Refusal {
                field: Some("path".into()),
                expected: Some(everything().join(", ")),
                ..Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at {PREFIX}{path}"))
            },
            false => Refusal {
                field: Some("method".into()),
                expected: Some(allowed),
                ..Refusal::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    format!("{PREFIX}{path} does not take {}", request.method()),
                )
            },
        });
    };
    let mut fields = match *request.method() == Method::POST {
        _ if matches!(route.perform, Perform::Whole(_)) => Fields::of_query(""),
        true => Fields::of_body(request.body())?,
        false => Fields::of_query(request.uri().query().unwrap_or_default()),
    };
    match route.perform {
        Perform::Now(perform) => perform(ec2, &id, &mut fields),
        Perform::Later(perform) => perform(ec2, &mut fields).await,
        Perform::Whole(perform) => perform(ec2, request.body()),
    }
}

/// `waitS`: how long an answer may take where there is nothing new yet.
fn wait(fields: &mut Fields) -> Result<Duration, Refusal> {
    Ok(Duration::from_secs(fields.number("waitS", 0..=MAX_WAIT_S)?.unwrap_or(0)))
}

/// `/_trysquare` and `/_trysquare/` are the same; so is a slash at the end of any path.
fn below_prefix(path: &str) -> &str {
    match path.strip_prefix(PREFIX).unwrap_or(path).trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

fn allowed_methods(path: &str) -> String {
    let path = below_prefix(path);
    let methods: Vec<&str> =
        ROUTES.iter().filter(|route| route.matches(path).is_some()).map(|route| route.method.as_str()).collect();
    methods.join(", ")
}

fn everything() -> Vec<String> {
    ROUTES.iter().map(|route| format!("{} {PREFIX}{}", route.method, route.path)).collect()
}

/// Who may come in.
pub(crate) struct Door<'a> {
    /// Further names to be called by.
    pub(crate) hosts: &'a [String],
}

impl Door<'_> {
    fn admit(&self, request: &Request<Bytes>) -> Result<(), Refusal> {
        let forbid = |field: &str, error: String, expected: &str| {
            Err(Refusal { status: StatusCode::FORBIDDEN, ..Refusal::invalid(field, error, expected) })
        };
        let headers = request.headers();
        // No page is served here, so whatever a page sends was meant to abuse.
        if headers.contains_key(header::ORIGIN) {
            let error = "requests of web pages are refused: this one has an Origin header";
            return forbid("Origin", error.into(), "no Origin header, as command-line tools and SDKs send none");
        }
        let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
        if site.is_some_and(|site| site != b"none") {
            let error = "requests of web pages are refused: this one has a Sec-Fetch-Site header";
            return forbid("Sec-Fetch-Site", error.into(), "none, as for an address that a person typed");
        }
        // What starts containers asks for these under whatever name it reaches them by, and learns nothing to abuse.
        if *request.method() == Method::GET && ["/health", "/ready"].contains(&below_prefix(request.uri().path())) {
            return Ok(());
        }
        let hosts = hosts(request.uri().host(), headers);
        if hosts.is_empty() {
            return forbid("Host", "the request has no Host header".into(), "the host name it was sent to");
        }
        match hosts.iter().find(|host| !self.is_ours(host)) {
            None => Ok(()),
            Some(host) => forbid(
                "Host",
                format!("requests for the host {host:?} are refused: a web page could have made them"),
                "localhost, an address, or a name given with --control-host",
            ),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = host_name(host).trim_end_matches('.').to_ascii_lowercase();
        if self.hosts.iter().any(|host| host.trim_end_matches('.').eq_ignore_ascii_case(&name)) {
            return true;
        }
        // A page reaches what it should not by making its own name mean this address; an address has no name to change. Which
        // one clients use is not to be known here: a container is reached by that of its host.
        name.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
    }
}

/// What a request says it was sent to: an absolute URI and the header must both be right.
fn hosts(uri: Option<&str>, headers: &HeaderMap) -> Vec<String> {
    let of_headers = headers.get_all(header::HOST).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into());
    uri.map(str::to_owned).into_iter().chain(of_headers).collect()
}

/// Without the port, and an IPv6 address without its brackets.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn index(_: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let paths: Vec<Value> = ROUTES
        .iter()
        .map(|route| {
            let path = format!("{PREFIX}{}", route.path);
            json!({"method": route.method.as_str(), "path": path, "summary": route.summary})
        })
        .collect();
    Ok(json!({"name": "fake-ec2", "version": env!("CARGO_PKG_VERSION"), "paths": paths}))
}

fn health(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let waiting = ec2.inner.bells.waiters();
    Ok(ec2.locked(|cloud, now| {
        json!({
            "name": "fake-ec2",
            "version": env!("CARGO_PKG_VERSION"),
            "status": "ok",
            "region": cloud.config.region,
            "account": cloud.config.account,
            "now": now,
            "waitingCalls": waiting,
        })
    }))
}

fn openapi(_: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    Ok(serde_json::from_str(OPENAPI).expect("the description in this crate is JSON, as a test holds"))
}

fn state(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let faults = lock(&ec2.inner.faults).entries().count();
    Ok(ec2.locked(|cloud, now| view::state(cloud, now, faults)))
}

fn interrupt(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let reclaim_at = ec2.locked(|cloud, now| {
        if cloud.instances.get(id).is_some_and(|instance| instance.capacity_type == CapacityType::OnDemand) {
            let expected = choice("a spot instance", view::interruptible(cloud));
            let error = format!("{id} is an on-demand instance, and AWS sends spot notices to spot instances alone");
            return Err(Refusal { status: StatusCode::CONFLICT, ..Refusal::invalid("instance", error, expected) });
        }
        cloud.interrupt(now, id).map_err(|error| of_instance(cloud, error))
    })?;
    Ok(json!({"instance": id, "reclaimAt": reclaim_at}))
}

fn rebalance(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    ec2.locked(|cloud, now| {
        let state = cloud.instance(id).map_err(|error| of_instance(cloud, error))?.state;
        if state.is_ending() {
            let error = format!("{id} is {}; there is nothing left to rebalance", state.name());
            let expected = choice("an instance that lives", view::living(cloud));
            return Err(Refusal { status: StatusCode::CONFLICT, ..Refusal::invalid("instance", error, expected) });
        }
        cloud.rebalance(now, id).map_err(|error| of_instance(cloud, error))
    })?;
    Ok(json!({"instance": id}))
}

fn terminate(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let (previous, current) =
        ec2.locked(|cloud, now| cloud.terminate(now, id).map_err(|error| of_instance(cloud, error)))?;
    Ok(json!({"instance": id, "previousState": previous.name(), "state": current.name()}))
}

/// What the model refuses, with the instances for which it would not have.
fn of_instance(cloud: &Cloud, error: ApiError) -> Refusal {
    let status = match error.code.as_ref() {
        "InvalidInstanceID.NotFound" => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    };
    let expected = choice("the id of an instance that lives", view::living(cloud));
    Refusal { status, ..Refusal::invalid("instance", error.message, expected) }
}

/// "a spot instance: i-1, i-2, …"; so few that a person reads them.
fn choice(what: &str, ids: Vec<String>) -> String {
    match ids.as_slice() {
        [] => format!("{what}; there is none"),
        few if few.len() <= 10 => format!("{what}: {}", few.join(", ")),
        many => format!("{what}: {}, … ({} in all; see {PREFIX}/state)", many[..10].join(", "), many.len()),
    }
}

fn exhaust(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let (instance_type, zone, markets) = pools(ec2, fields, Wanted::Named)?;
    Ok(ec2.locked(|cloud, _| {
        markets.iter().for_each(|market| cloud.capacity.exhaust(&instance_type, &zone, *market));
        json!({"capacity": view::capacity(cloud)})
    }))
}

fn restore(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let (instance_type, zone, markets) = pools(ec2, fields, Wanted::AllUnlessNamed)?;
    Ok(ec2.locked(|cloud, _| {
        markets.iter().for_each(|market| cloud.capacity.restore(&instance_type, &zone, *market));
        json!({"capacity": view::capacity(cloud)})
    }))
}

/// Whether a field that is left out means every pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Named,
    AllUnlessNamed,
}

/// `instanceType`, `zone`, `capacityType`: each a name of the region's, or `*`.
fn pools(ec2: &FakeEc2, fields: &mut Fields, wanted: Wanted) -> Result<(String, String, Vec<CapacityType>), Refusal> {
    let mut read = |name: &str| match (fields.text(name)?, wanted) {
        (Some(text), _) => Ok(text),
        (None, Wanted::AllUnlessNamed) => Ok("*".to_owned()),
        (None, Wanted::Named) => Err(Refusal::invalid(name, format!("{name} is missing"), "a name, or * for all")),
    };
    let (instance_type, zone, market) = (read("instanceType")?, read("zone")?, read("capacityType")?);
    fields.finish()?;
    let markets = match market.as_str() {
        "*" => vec![CapacityType::OnDemand, CapacityType::Spot],
        text => vec![text.parse().map_err(|error| Refusal::invalid("capacityType", error, "spot, on-demand or *"))?],
    };
    ec2.locked(|cloud, _| {
        if instance_type != "*" && cloud.catalogue.offering(&instance_type).is_none() {
            let family = instance_type.split('.').next().unwrap_or_default();
            let offerings = cloud.catalogue.offerings().iter().map(|offering| offering.instance_type);
            let near: Vec<&str> =
                offerings.filter(|offered| offered.family() == family).map(|offered| offered.name).collect();
            let expected = match near.is_empty() {
                true => format!("an instance type offered in {}, or * for all", cloud.config.region),
                false => format!("one of its family ({}), or * for all", near.join(", ")),
            };
            let error = format!("the instance type {instance_type:?} is not offered in {}", cloud.config.region);
            return Err(Refusal::invalid("instanceType", error, expected));
        }
        if zone != "*" && cloud.catalogue.zone(&zone).is_none() {
            let zones: Vec<&str> = cloud.catalogue.zones.iter().map(|zone| zone.name).collect();
            let error = format!("{zone:?} is no zone of {}", cloud.config.region);
            return Err(Refusal::invalid("zone", error, format!("{}, or * for all", zones.join(", "))));
        }
        Ok((instance_type, zone, markets))
    })
}

fn list_faults(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let faults = lock(&ec2.inner.faults);
    let faults: Vec<Value> = faults.entries().map(|(id, rule, matched)| fault::show(id, rule, matched)).collect();
    Ok(json!({ "faults": faults }))
}

fn add_fault(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let rule = fault::read(fields)?;
    let mut faults = lock(&ec2.inner.faults);
    if faults.entries().count() >= MAX_FAULTS {
        let error = format!("there are {MAX_FAULTS} fault rules already; remove some with DELETE {PREFIX}/faults");
        return Err(Refusal::new(StatusCode::CONFLICT, error));
    }
    let shown = rule.clone();
    Ok(fault::show(faults.add(rule), &shown, 0))
}

fn clear_faults(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let mut faults = lock(&ec2.inner.faults);
    let removed = faults.entries().count();
    faults.clear();
    Ok(json!({ "removed": removed }))
}

fn show_fault(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    let faults = lock(&ec2.inner.faults);
    let found = fault_id(id).and_then(|id| faults.entries().find(|(present, ..)| *present == id));
    found.map(|(id, rule, matched)| fault::show(id, rule, matched)).ok_or_else(|| no_fault(id))
}

fn remove_fault(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    match fault_id(id).is_some_and(|id| lock(&ec2.inner.faults).remove(id)) {
        true => Ok(json!({"removed": 1})),
        false => Err(no_fault(id)),
    }
}

fn fault_id(text: &str) -> Option<FaultId> {
    text.parse().ok().map(FaultId)
}

fn no_fault(id: &str) -> Refusal {
    let expected = format!("an id of GET {PREFIX}/faults");
    let refusal = Refusal::invalid("id", format!("there is no fault rule {id:?}"), expected);
    Refusal { status: StatusCode::NOT_FOUND, ..refusal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_openapi_description_lists_exactly_what_there_is() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = described["paths"].as_object().unwrap();
        let described: BTreeSet<String> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .filter(|operation| !operation.starts_with("PARAMETERS "))
            .collect();
        assert_eq!(described, everything().into_iter().collect());
    }

    #[test]
    fn every_reference_of_the_openapi_description_leads_somewhere() {
        let whole: Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(whole["info"]["version"], env!("CARGO_PKG_VERSION"));
        let references: Vec<&str> =
            OPENAPI.split("\"$ref\": \"#").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(references.len() > 10);
        for reference in references {
            assert!(whole.pointer(reference).is_some(), "{reference}");
        }
    }

    #[test]
    fn a_host_is_ours_by_loopback_by_any_address_or_by_a_name_it_was_given() {
        let hosts = ["fake-ec2.kube-system".to_owned()];
        let door = Door { hosts: &hosts };
        for host in [
            "localhost",
            "localhost:4566",
            "x.localhost",
            "LOCALHOST.",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            // A published port of a container, by the address of the host that publishes it.
            "192.0.2.7:32780",
            "[::ffff:127.0.0.1]",
            "[2001:db8::2]",
            "fake-ec2.kube-system:80",
        ] {
            assert!(door.is_ours(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "notlocalhost",
            "127.0.0.1.example.com",
            "192.0.2.7.example.com",
            "localhost:80@example.com",
        ] {
            assert!(!door.is_ours(host), "{host}");
        }
    }
}
