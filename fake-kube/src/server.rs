//! HTTP: a request in, the state asked, a reply out. Nothing here decides what a write means.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use crate::{
    deletion::{self, DeleteOptions, Deleted},
    fault::{Outcome, Subject},
    journal::Payload,
    kinds::{Builtin, Kind},
    openapi,
    patch::{MEDIA_TYPES, Patch},
    protobuf,
    read::{ListRequest, Rendering, not_acceptable, render, rendering},
    review,
    route::{self, ResourceRoute, Route},
    state::{Caller, Server, State},
    status::{FieldError, Status, go_json_error},
    store::{Stored, to_bytes, without_type},
    subresource::{
        inside::{self, LogRequest},
        scale,
    },
    table,
    watch::{self, Disturbance},
    write::{FieldValidation, Part, WriteOptions, Written},
};

/// The body of a reply.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A connection that broke, by a fault rule: before or after the server acted, the caller cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection closed before message completed")]
pub struct ConnectionLost;

/// Larger bodies are refused, as the genuine server does.
const MAX_BODY: usize = 3 * 1024 * 1024;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// By this type clients tell aggregated discovery from the older form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The server as a `tower::Service`. Cheap to clone.
#[derive(Clone)]
pub struct KubeService(Arc<Server>);

impl KubeService {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self(server)
    }
}

impl<B> tower::Service<Request<B>> for KubeService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
{
    type Response = Response<Body>;
    type Error = ConnectionLost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, ConnectionLost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = read(body).await?;
            server
                .handle(parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default(), &parts.headers, body)
                .await
        })
    }
}

/// Reads a body; `None` if it is larger than allowed. Of what is too large no more is kept, and as much again is taken in
/// and dropped, so that a client that sends before it reads gets to see the refusal.
async fn read<B: http_body::Body<Data = Bytes>>(body: B) -> Result<Option<Bytes>, ConnectionLost> {
    let mut body = std::pin::pin!(body);
    if body.size_hint().lower() > 2 * MAX_BODY as u64 {
        return Ok(None);
    }
    let (mut kept, mut size) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        // A body that breaks off is a connection that broke.
        let Ok(data) = frame.map_err(|_| ConnectionLost)?.into_data() else { continue };
        size += data.len();
        if size > 2 * MAX_BODY {
            break;
        }
        if size > MAX_BODY {
            kept = BytesMut::new();
        } else {
            kept.extend_from_slice(&data);
        }
    }
    Ok((size <= MAX_BODY).then(|| kept.freeze()))
}

/// What is sent back.
enum Answer {
    Bytes {
        code: u16,
        media: &'static str,
        body: Bytes,
    },
    /// A stored object, rendered when sent and shared with the journal.
    Object {
        code: u16,
        kind: Arc<Kind>,
        stored: Arc<Stored>,
        rendering: Rendering,
        warnings: Vec<String>,
    },
    Stream {
        media: &'static str,
        body: Body,
    },
}

impl Answer {
    fn json(code: u16, value: &Value) -> Self {
        Self::Bytes { code, media: JSON, body: to_bytes(value) }
    }
}

/// One request, taken apart.
struct Call {
    caller: Caller,
    verb: &'static str,
    route: ResourceRoute,
    kind: Arc<Kind>,
    query: BTreeMap<String, String>,
    content_type: String,
    accept: String,
    body: Bytes,
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl Server {
    async fn handle(
        self: Arc<Self>,
        method: Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response<Body>, ConnectionLost> {
        let token = text(headers, header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
        let user = self.options.users.get(token).map(String::as_str);
        let caller = Caller::http(text(headers, header::USER_AGENT), user);
        let line = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let request = body.clone().filter(|body| !body.is_empty()).map_or(Payload::Empty, Payload::Bytes);
        let (path, query) = &route::current(path, query);
        let (verb, answer) = match route::parse(path) {
            Route::Plain(path) => ("get", self.plain(&method, &path, text(headers, header::ACCEPT))),
            Route::Resource(route) if !self.serves(&route.group) => (route::plain_verb(&method), Ok(nothing_there())),
            Route::Resource(route) => match self.call(caller.clone(), &method, route, query, headers, body) {
                Ok(call) => {
                    let verb = call.verb;
                    let outcome = self.strike(&call);
                    match outcome {
                        Some(Outcome::LoseRequest) => return Err(ConnectionLost),
                        Some(Outcome::LoseReply) => {
                            let answer = self.answer(&call, Disturbance::None);
                            self.reply(&caller, verb, line, request, answer);
                            return Err(ConnectionLost);
                        }
                        Some(Outcome::Delay(delay)) => {
                            tokio::time::sleep(delay).await;
                            (verb, self.answer(&call, Disturbance::None))
                        }
                        Some(Outcome::WatchEnds) => (verb, self.answer(&call, Disturbance::Ends)),
                        Some(Outcome::WatchStalls(silence)) => (verb, self.answer(&call, Disturbance::Stalls(silence))),
                        Some(Outcome::WatchExpires) => (verb, self.answer(&call, Disturbance::Expires)),
                        Some(other) => {
                            let name = call.route.name.as_deref().unwrap_or_default();
                            let refusal = other.refusal(&call.kind, name);
                            (verb, Err(refusal.unwrap_or_else(|| Status::internal("injected fault"))))
                        }
                        None => (verb, self.answer(&call, Disturbance::None)),
                    }
                }
                Err(status) => (route::plain_verb(&method), Err(status)),
            },
        };
        Ok(self.reply(&caller, verb, line, request, answer))
    }

    fn call(
        &self,
        caller: Caller,
        method: &Method,
        route: ResourceRoute,
        query: &str,
        headers: &HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Call, Status> {
        let Some(body) = body else {
            let message = format!("Request entity too large: limit is {MAX_BODY}");
            return Err(Status::new(413, "RequestEntityTooLarge", message));
        };
        let query = route::query(query);
        let watch = query.get("watch").is_some_and(|value| matches!(value.as_str(), "true" | "1"));
        let verb = route::verb(method, &route, watch).ok_or_else(Status::method_not_allowed)?;
        let kind = self.enter().kinds.get(&route.group, &route.version, &route.plural).cloned();
        let kind = kind.ok_or_else(Status::no_such_resource)?;
        if !kind.verbs().contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        if !kind.namespaced && route.namespace.is_some() {
            return Err(Status::no_such_resource());
        }
        let unplaced = kind.namespaced && route.namespace.is_none();
        if unplaced && (route.name.is_some() || matches!(verb, "create" | "deletecollection")) {
            return Err(if route.name.is_some() { Status::no_such_resource() } else { Status::method_not_allowed() });
        }
        Ok(Call {
            caller,
            verb,
            route,
            kind,
            query,
            content_type: text(headers, header::CONTENT_TYPE).to_owned(),
            accept: text(headers, header::ACCEPT).to_owned(),
            body,
        })
    }

    fn serves(&self, group: &str) -> bool {
        self.enter().kinds.groups().contains_key(group)
    }

    fn strike(&self, call: &Call) -> Option<Outcome> {
        let subject = Subject {
            verb: call.verb,
            resource: &call.kind.plural,
            subresource: call.route.subresource.as_deref().unwrap_or_default(),
            namespace: call.route.namespace.as_deref().unwrap_or_default(),
            name: call.route.name.as_deref().unwrap_or_default(),
            user_agent: &call.caller.user_agent,
            in_process: false,
        };
        self.enter().faults.strike(subject)
    }

    fn plain(&self, method: &Method, path: &str, accept: &str) -> Result<Answer, Status> {
        if method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => {
                Ok(Answer::Bytes { code: 200, media: TEXT, body: Bytes::from_static(b"ok") })
            }
            ["healthz" | "livez" | "readyz", ..] => Ok(nothing_there()),
            ["openapi", document @ ..] => {
                if document == ["v2"] && accept.contains(openapi::VERSION_2_PROTOBUF) {
                    let body = openapi::version_2_protobuf(&self.options.kubernetes_version);
                    return Ok(Answer::Bytes { code: 200, media: openapi::VERSION_2_PROTOBUF_MEDIA, body });
                }
                let json =
                    accept.is_empty() || accept.split(',').any(|offer| offer.contains("json") || offer.contains("*/*"));
                if !json {
                    return Err(not_acceptable());
                }
                let body = self.openapi(document).ok_or_else(Status::no_such_resource)?;
                Ok(Answer::Bytes { code: 200, media: JSON, body })
            }
            _ => {
                let aggregated = accept.split(',').any(|offer| {
                    let parts: Vec<&str> = offer.split(';').map(str::trim).collect();
                    parts.contains(&"as=APIGroupDiscoveryList") && parts.contains(&"v=v2")
                });
                let media =
                    if aggregated && matches!(parts.as_slice(), ["api"] | ["apis"]) { AGGREGATED } else { JSON };
                let found = self.enter().discover(path, &self.options.kubernetes_version, aggregated);
                Ok(match found {
                    Some(found) => Answer::Bytes { code: 200, media, body: to_bytes(&found) },
                    // A group that is served has its own words for what it does not hold.
                    None if parts.first() == Some(&"api") || parts.get(1).is_some_and(|group| self.serves(group)) => {
                        return Err(Status::no_such_resource());
                    }
                    None => nothing_there(),
                })
            }
        }
    }

    fn answer(self: &Arc<Self>, call: &Call, disturbance: Disturbance) -> Result<Answer, Status> {
        if call.reaches_inside() {
            return self.inside(call);
        }
        let form = rendering(&call.accept)?.including(call.parameter("includeObject"))?;
        let kind = &call.kind;
        let namespace = call.route.namespace.as_deref();
        match call.verb {
            "watch" => {
                let request = ListRequest::read(&call.query, kind, true)?;
                let lines = watch::open(self, kind, namespace, &request, form, disturbance)?;
                let frames = lines.fuse().map(|line| Ok::<_, Infallible>(http_body::Frame::data(line)));
                Ok(Answer::Stream { media: JSON, body: StreamBody::new(frames).boxed_unsync() })
            }
            "list" => {
                let request = ListRequest::read(&call.query, kind, false)?;
                let body = self.enter().list(kind, namespace, &request, form)?;
                Ok(Answer::Bytes { code: 200, media: JSON, body })
            }
            "deletecollection" => {
                let request = ListRequest::read(&call.query, kind, false)?;
                let options = call.delete_options()?;
                let deleted = self.enter().delete_collection(kind, namespace, &request, &options)?;
                let items: Vec<Value> = deleted
                    .iter()
                    .map(|stored| if kind.custom() { (*stored.value).clone() } else { without_type(&stored.value) })
                    .collect();
                let version = self.enter().store.version().to_string();
                Ok(Answer::json(
                    200,
                    &json!({
                        "kind": kind.list_kind, "apiVersion": kind.api_version(),
                        "metadata": { "resourceVersion": version }, "items": items,
                    }),
                ))
            }
            "get" => {
                let served = match call.route.subresource.as_deref() {
                    None => true,
                    Some("status") => kind.status,
                    Some("scale") => kind.scale.is_some(),
                    Some("ephemeralcontainers" | "resize") => kind.builtin == Builtin::Pod,
                    Some(_) => false,
                };
                if !served {
                    return Err(Status::no_such_resource());
                }
                let state = self.enter();
                let asked = call.parameter("resourceVersion").parse().unwrap_or(0);
                state.check_reached(asked)?;
                let stored = Arc::clone(state.get(kind, namespace.unwrap_or_default(), call.name())?);
                match call.route.subresource.as_deref() {
                    Some("scale") => {
                        let scale = scale::of(kind, &stored.value)?;
                        let shown = match form {
                            Rendering::Table(include) => table::of_scale(scale, include, state.now),
                            _ => scale,
                        };
                        Ok(Answer::json(200, &shown))
                    }
                    _ => Ok(call.object(200, stored, form, Vec::new())),
                }
            }
            _ => {
                let mut state = self.enter();
                match call.route.subresource.as_deref() {
                    Some("binding" | "eviction" | "scale") => call.special(&mut state),
                    None if kind.builtin == Builtin::Binding => call.special(&mut state),
                    Some(_) if call.verb == "create" => Err(Status::no_such_resource()),
                    _ => call.write(&mut state, form),
                }
            }
        }
    }

    /// Logs, and what would need something that runs inside a pod.
    fn inside(self: &Arc<Self>, call: &Call) -> Result<Answer, Status> {
        let kind = &call.kind;
        let stored = Arc::clone(self.enter().get(kind, call.namespace(), call.name())?);
        let subresource = call.route.subresource.as_deref().unwrap_or_default();
        if subresource != "log" {
            return Err(inside::refuse(kind, call.name(), subresource));
        }
        if call.verb != "get" {
            return Err(Status::method_not_allowed());
        }
        let request = LogRequest::read(call.name(), &call.query)?;
        let (text, unfinished) = inside::read(&stored.value, &request, self.clock.now())?;
        if request.follow && unfinished {
            let lines = inside::follow(self, kind, &stored.value, request, text);
            return Ok(Answer::Stream { media: "text/plain", body: StreamBody::new(lines).boxed_unsync() });
        }
        Ok(Answer::Bytes { code: 200, media: "text/plain", body: text.into() })
    }

    /// Renders the answer and writes the journal.
    fn reply(
        &self,
        caller: &Caller,
        verb: &'static str,
        line: String,
        request: Payload,
        answer: Result<Answer, Status>,
    ) -> Response<Body> {
        let retry_after = answer
            .as_ref()
            .err()
            .and_then(|status| status.details.as_ref())
            .map_or(0, |details| details.retry_after_seconds);
        let (code, media, body, warnings) = match answer {
            Ok(Answer::Stream { media, body }) => {
                self.record(caller, verb, line, request, 200, Payload::Empty);
                return respond(200, media, body, &[], 0);
            }
            Ok(Answer::Bytes { code, media, body }) => (code, media, body, Vec::new()),
            Ok(Answer::Object { code, kind, stored, rendering, warnings }) => {
                (code, JSON, render(&kind, &stored, rendering, self.clock.now()), warnings)
            }
            Err(status) => (status.code, JSON, to_bytes(&status.to_json()), status.warnings),
        };
        self.record(caller, verb, line, request, code, Payload::Bytes(body.clone()));
        respond(code, media, Full::new(body).boxed_unsync(), &warnings, retry_after)
    }
}

/// Where no handler is: the words of the server's library.
fn nothing_there() -> Answer {
    Answer::Bytes { code: 404, media: TEXT, body: Bytes::from_static(b"404 page not found\n") }
}

fn respond(code: u16, media: &'static str, body: Body, warnings: &[String], retry_after: u32) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    if retry_after > 0 {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from(retry_after));
    }
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = header::HeaderValue::from_str(&text) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

impl Call {
    fn reaches_inside(&self) -> bool {
        match self.route.subresource.as_deref() {
            Some("log" | "exec" | "attach" | "portforward") => self.kind.builtin == Builtin::Pod,
            Some("proxy") => matches!(self.kind.builtin, Builtin::Pod | Builtin::Node | Builtin::Service),
            _ => false,
        }
    }

    fn name(&self) -> &str {
        self.route.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.route.namespace.as_deref().unwrap_or_default()
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    fn object(&self, code: u16, stored: Arc<Stored>, rendering: Rendering, warnings: Vec<String>) -> Answer {
        Answer::Object { code, kind: Arc::clone(&self.kind), stored, rendering, warnings }
    }

    fn options(&self) -> Result<WriteOptions, Status> {
        let kind = match self.verb {
            "create" => "CreateOptions",
            "patch" => "PatchOptions",
            _ => "UpdateOptions",
        };
        let dry_run = match self.parameter("dryRun") {
            "" => false,
            other => deletion::is_dry_run(kind, other)?,
        };
        let field_validation = match self.parameter("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", &json!(other), &known);
                return Err(Status::invalid_options(kind, &[error]));
            }
        };
        let apply = self.content_type.starts_with("application/apply-patch");
        let given = self.parameter("fieldManager");
        let field_manager = match given {
            // An apply must say who applies; everybody else has a name by the user agent.
            "" if apply => String::new(),
            "" => self.caller.manager().to_owned(),
            given => given.to_owned(),
        };
        Ok(WriteOptions {
            dry_run,
            field_manager,
            names_manager: !given.is_empty(),
            field_validation,
            force: self.parameter("force") == "true",
        })
    }

    fn json(&self) -> Result<Value, Status> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        let options = matches!(self.verb, "delete" | "deletecollection");
        if media == "application/vnd.kubernetes.protobuf" && self.kind.custom() && !options {
            return Err(Status::unsupported_media_type(&["application/json", "application/yaml"]));
        }
        if media == "application/vnd.kubernetes.protobuf" {
            return protobuf::decode(&self.body)
                .map_err(|error| Status::bad_request(format!("error decoding body: {error}")));
        }
        if !matches!(media, "" | "*/*" | "application/json" | "application/yaml" | "text/plain") {
            return Err(Status::unsupported_media_type(&[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ]));
        }
        if options || media == "application/yaml" {
            return parse(&self.body, media == "application/yaml");
        }
        let unrecognized = |why: String| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
                 {why} ({})",
                self.kind.kind,
                summary(&self.body)
            ))
        };
        match serde_json::from_slice(&self.body) {
            Ok(value @ Value::Object(_)) => Ok(value),
            // Null is an object without fields.
            Ok(Value::Null) => Ok(json!({})),
            Ok(other) => {
                let found = if other.is_array() {
                    "array"
                } else if other.is_string() {
                    "string"
                } else {
                    "number"
                };
                Err(unrecognized(format!(
                    "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
                )))
            }
            Err(_) => Err(unrecognized(go_json_error(&self.body))),
        }
    }

    fn delete_options(&self) -> Result<DeleteOptions, Status> {
        if !self.body.is_empty() {
            let said = self.json()?;
            let kind = said["kind"].as_str().unwrap_or("DeleteOptions");
            if kind != "DeleteOptions" {
                let version = said["apiVersion"].as_str().unwrap_or_default();
                return Err(Status::bad_request(format!(
                    "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
                )));
            }
            return DeleteOptions::from_json(&said);
        }
        // Without a body the query says the same.
        let mut said = json!({});
        match self.parameter("gracePeriodSeconds") {
            "" => {}
            seconds => {
                let wrong = || Status::bad_request(format!("strconv.ParseInt: parsing {seconds:?}: invalid syntax"));
                said["gracePeriodSeconds"] = json!(seconds.parse::<i64>().map_err(|_| wrong())?);
            }
        }
        match self.parameter("propagationPolicy") {
            "" => {}
            policy => said["propagationPolicy"] = json!(policy),
        }
        match self.parameter("dryRun") {
            "" => {}
            dry_run => said["dryRun"] = json!([dry_run]),
        }
        DeleteOptions::from_json(&said)
    }

    fn patch(&self) -> Result<Patch, Status> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        Ok(match media {
            "application/json-patch+json" => Patch::Json(parse_patch(&self.body)?),
            "application/merge-patch+json" => Patch::Merge(parse_patch(&self.body)?),
            "application/strategic-merge-patch+json" => Patch::Strategic(parse_patch(&self.body)?),
            "application/apply-patch+yaml" => Patch::Apply(parse(&self.body, true)?),
            _ if self.kind.custom() => {
                return Err(Status::unsupported_media_type(&[MEDIA_TYPES[0], MEDIA_TYPES[1], MEDIA_TYPES[3]]));
            }
            _ => {
                let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                status.details = Some(Box::default());
                return Err(status);
            }
        })
    }

    fn write(&self, state: &mut State, form: Rendering) -> Result<Answer, Status> {
        let (kind, namespace, name) = (&self.kind, self.namespace(), self.name());
        if kind.builtin == Builtin::Review {
            return Ok(Answer::json(201, &review::answered(kind, namespace, self.json()?, &state.timestamp())?));
        }
        let part = Part::of(self.route.subresource.as_deref())?;
        let unserved = match part {
            Part::Whole | Part::Scale => false,
            Part::Status => !kind.status,
            Part::Resize | Part::EphemeralContainers => kind.builtin != Builtin::Pod,
        };
        if unserved {
            return Err(Status::no_such_resource());
        }
        let written = match self.verb {
            "create" => state.create(kind, namespace, self.json()?, &self.options()?)?,
            "update" => state.update(kind, namespace, name, self.json()?, part, &self.options()?)?,
            "patch" => state.patch(kind, namespace, name, self.patch()?, part, &self.options()?)?,
            _ if self.route.subresource.is_some() => {
                let message =
                    format!("{} is not supported on resources of kind {:?}", self.verb, kind.qualified_resource());
                let mut status = Status::new(405, "MethodNotAllowed", message);
                let details = status.details.get_or_insert_default();
                (details.group, details.kind) = (kind.group.clone(), kind.plural.clone());
                return Err(status);
            }
            _ => {
                let options = self.delete_options()?;
                let Deleted { object, gone } = state.delete(kind, namespace, name, &options)?;
                return Ok(self.deleted(object, gone, form));
            }
        };
        let Written { object, warnings, created } = written;
        Ok(self.object(if created { 201 } else { 200 }, object, form, warnings))
    }

    fn deleted(&self, object: Arc<Stored>, gone: bool, form: Rendering) -> Answer {
        let returns_object = matches!(
            self.kind.plural.as_str(),
            "namespaces"
                | "pods"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "podtemplates"
                | "resourcequotas"
                | "services"
                | "serviceaccounts"
                | "csidrivers"
                | "csinodes"
                | "deviceclasses"
                | "resourceclaims"
                | "resourceclaimtemplates"
                | "resourceslices"
                | "storageclasses"
                | "volumeattachments"
        );
        if !gone || (returns_object && !self.kind.custom()) {
            return self.object(200, object, form, Vec::new());
        }
        let mut details = json!({
            "name": self.name(), "kind": self.kind.plural, "uid": object.value["metadata"]["uid"],
        });
        if !self.kind.group.is_empty() {
            details["group"] = json!(self.kind.group);
        }
        Answer::json(
            200,
            &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
        )
    }

    /// Subresources with a body of their own kind.
    fn special(&self, state: &mut State) -> Result<Answer, Status> {
        let (kind, namespace, name) = (&self.kind, self.namespace(), self.name());
        let success = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
        match (self.route.subresource.as_deref(), self.verb) {
            // The older path has the name in the body.
            (None, "create") if kind.builtin == Builtin::Binding => {
                let binding = self.json()?;
                let name = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                state.bind(namespace, &name, &binding)?;
                Ok(Answer::json(201, &success))
            }
            (Some("binding"), "create") if kind.builtin == Builtin::Pod => {
                state.bind(namespace, name, &self.json()?)?;
                Ok(Answer::json(201, &success))
            }
            (Some("eviction"), "create") if kind.builtin == Builtin::Pod => {
                let eviction = self.json()?;
                if eviction["metadata"]["name"] != name {
                    return Err(Status::bad_request("name in URL does not match name in Eviction object"));
                }
                let mut options = DeleteOptions::from_json(&eviction["deleteOptions"])?;
                options.dry_run |= self.options()?.dry_run;
                state.evict(namespace, name, &options)?;
                Ok(Answer::json(201, &success))
            }
            (Some("scale"), "update" | "patch") => {
                let old = Arc::clone(state.get(kind, namespace, name)?);
                let current = scale::of(kind, &old.value)?;
                let wanted = match self.verb {
                    "update" => self.json()?,
                    _ => match self.patch()? {
                        Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply(patch) => {
                            let mut scale = current;
                            crate::patch::merge::apply(&mut scale, patch);
                            scale
                        }
                        patch @ Patch::Json(_) => crate::patch::changed(kind, current, patch)?,
                    },
                };
                let given = wanted["metadata"]["name"].as_str().unwrap_or_default();
                if !given.is_empty() && given != name {
                    return Err(Status::bad_request(format!(
                        "the name of the object ({given}) does not match the name on the URL ({name})"
                    )));
                }
                let object = scale::applied(kind, &old.value, &wanted)?;
                let written = state.replace(kind, namespace, name, &old, object, Part::Scale, &self.options()?)?;
                Ok(Answer::json(200, &scale::of(kind, &written.object.value)?))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}

/// The beginning of a body, as it is quoted where it cannot be read.
fn summary(body: &[u8]) -> String {
    const LONGEST: usize = 30;
    let shown = &body[..body.len().min(LONGEST)];
    let more = if body.len() > LONGEST { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => format!("{}{more}", shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn parse_patch(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body)
        .map_err(|_| Status::bad_request(format!("error decoding patch: {}", go_json_error(body))))
}

fn parse(body: &[u8], yaml: bool) -> Result<Value, Status> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) if yaml => serde_yaml_ng::from_slice(body)
            .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}"))),
        Err(_) => {
            let message = format!("couldn't get version/kind; json parse error: {}", go_json_error(body));
            Err(Status::bad_request(message))
        }
    }
}
