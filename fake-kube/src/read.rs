//! Lists: selection, pages, past versions, and the forms in which objects are shown.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    conversion,
    kinds::Kind,
    select::{FieldSelector, LabelSelector, ListSelector},
    state::State,
    status::{FieldError, Status, go_json_error},
    store::{Stored, to_bytes, without_type},
    table::{self, IncludeObject},
};

/// The options of a list or watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListRequest {
    pub(crate) selector: ListSelector,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
}

impl ListRequest {
    /// Reads the query of a request.
    pub(crate) fn read(query: &BTreeMap<String, String>, kind: &Kind, watch: bool) -> Result<Self, Status> {
        let text = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
        let flag = |key: &str| match text(key) {
            "" => None,
            value => Some(matches!(value, "true" | "1")),
        };
        let number = |key: &str| -> Result<Option<i64>, Status> {
            match text(key) {
                "" => Ok(None),
                given => given
                    .parse()
                    .map(Some)
                    .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {given:?}: invalid syntax"))),
            }
        };
        let fields = FieldSelector::parse(text("fieldSelector"))?;
        fields.check(kind.builtin, &kind.selectable_fields)?;
        let request = Self {
            selector: ListSelector { labels: LabelSelector::parse(text("labelSelector"))?, fields },
            limit: number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_token: text("continue").to_owned(),
            resource_version: text("resourceVersion").to_owned(),
            resource_version_match: text("resourceVersionMatch").to_owned(),
            send_initial_events: flag("sendInitialEvents"),
            bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            timeout_seconds: number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()),
        };
        let errors = request.validate(watch);
        if !errors.is_empty() {
            return Err(Status::invalid_options("ListOptions", &errors));
        }
        Ok(request)
    }

    fn validate(&self, watch: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let matching = self.resource_version_match.as_str();
        let path = "resourceVersionMatch";
        if watch {
            if !matching.is_empty() && self.send_initial_events.is_none() {
                errors.push(FieldError::forbidden(
                    path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if self.send_initial_events.is_some() && matching != "NotOlderThan" {
                errors.push(FieldError::forbidden(
                    path,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
                if !matching.is_empty() {
                    errors.push(FieldError::not_supported(path, &json!(matching), &["NotOlderThan"]));
                }
            }
            return errors;
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if matching.is_empty() {
            return errors;
        }
        if self.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                path,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(path, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if matching == "Exact" && self.resource_version == "0" {
            errors.push(FieldError::forbidden(
                path,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(path, &json!(matching), &["Exact", "NotOlderThan", ""]));
        }
        errors
    }

    /// The version asked for, as a number; empty and `0` mean any.
    pub(crate) fn version(&self) -> Result<u64, Status> {
        match self.resource_version.as_str() {
            "" => Ok(0),
            text => text.parse().map_err(|_| {
                Status::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rendering {
    #[default]
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, as kubectl prints it.
    Table(IncludeObject),
}

impl Rendering {
    /// The form with the `includeObject` of a request.
    pub(crate) fn including(self, include: &str) -> Result<Self, Status> {
        let include = match (self, include) {
            (Self::Table(_), "" | "Metadata") => IncludeObject::Metadata,
            (Self::Table(_), "None") => IncludeObject::None,
            (Self::Table(_), "Object") => IncludeObject::Object,
            (Self::Table(_), other) => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
            (form, _) => return Ok(form),
        };
        Ok(Self::Table(include))
    }
}

/// One object in the wanted form, serialised.
pub(crate) fn render(kind: &Kind, stored: &Stored, rendering: Rendering, now: Timestamp) -> Bytes {
    match rendering {
        Rendering::Whole if !conversion::converts(kind) => stored.bytes(),
        Rendering::Whole => {
            let mut value = (*stored.value).clone();
            conversion::from_storage(kind, &mut value);
            to_bytes(&value)
        }
        Rendering::Metadata => to_bytes(&json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.value["metadata"],
        })),
        Rendering::Table(include) => table::single(kind, stored, include, now),
    }
}

#[derive(Debug)]
struct Token {
    version: u64,
    namespace: String,
    name: String,
}

impl Token {
    fn encode(&self) -> String {
        let token = json!({ "v": "meta.k8s.io/v1", "rv": self.version, "start": [self.namespace, self.name] });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let broken =
            |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| broken("illegal base64 data at input byte 0"))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| broken(&go_json_error(&bytes)))?;
        let incomplete = || broken("encoded start key is empty");
        let part = |index: usize| token["start"][index].as_str().map(str::to_owned).ok_or_else(incomplete);
        Ok(Self { version: token["rv"].as_u64().ok_or_else(incomplete)?, namespace: part(0)?, name: part(1)? })
    }
}

impl State {
    /// Refuses a version that is still to come. The genuine server awaits it for three seconds first.
    pub(crate) fn check_reached(&self, asked: u64) -> Result<(), Status> {
        let current = self.store.version();
        if asked <= current {
            return Ok(());
        }
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let status = Status::new(504, "Timeout", message).retry_after(1);
        Err(status.with_cause("ResourceVersionTooLarge", "Too large resource version", ""))
    }

    /// The body of a list.
    pub(crate) fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        request: &ListRequest,
        rendering: Rendering,
    ) -> Result<Bytes, Status> {
        let current = self.store.version();
        let asked = request.version()?;
        self.check_reached(asked)?;
        if !request.continue_token.is_empty() && asked > 0 {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token =
            if request.continue_token.is_empty() { None } else { Some(Token::decode(&request.continue_token)?) };
        let exact = (request.resource_version_match == "Exact").then_some(asked);
        let version = token.as_ref().map(|token| token.version).or(exact).unwrap_or(current);
        let objects = self.objects_at(kind, namespace, request, version).map_err(|status| {
            if token.is_some() {
                Status::new(
                    410,
                    "Expired",
                    "The provided continue parameter is too old to display a consistent list result. You can start a new \
                     list without the continue parameter.",
                )
            } else {
                status
            }
        })?;
        let start = match &token {
            None => 0,
            Some(token) => objects.partition_point(|stored| {
                let (namespace, name) = place(stored);
                (namespace, name) <= (token.namespace.as_str(), token.name.as_str())
            }),
        };
        let rest = &objects[start..];
        let page = if request.limit > 0 && rest.len() > request.limit { &rest[..request.limit] } else { rest };
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if kind.custom() && rendering == Rendering::Whole {
            metadata["continue"] = json!("");
        }
        if let (true, Some(last)) = (page.len() < rest.len(), page.last()) {
            let (namespace, name) = place(last);
            let token = Token { version, namespace: namespace.to_owned(), name: name.to_owned() };
            metadata["continue"] = json!(token.encode());
            // With a selector the server does not know how many would follow.
            if request.selector.is_everything() {
                metadata["remainingItemCount"] = json!(rest.len() - page.len());
            }
        }
        if let Rendering::Table(include) = rendering {
            let objects = page.iter().map(|stored| &*stored.value);
            return Ok(to_bytes(&table::of(kind, objects, metadata, include, self.now)));
        }
        let (list_kind, api_version) = match rendering {
            Rendering::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (kind.list_kind.clone(), kind.api_version()),
        };
        let head =
            format!("{{\"kind\":{list_kind:?},\"apiVersion\":{api_version:?},\"metadata\":{metadata},\"items\":[");
        let mut body = head.into_bytes();
        for (index, stored) in page.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            let item = match rendering {
                Rendering::Whole if kind.custom() => stored.bytes(),
                Rendering::Whole if !conversion::converts(kind) => stored.bare(),
                Rendering::Whole => {
                    let mut value = (*stored.value).clone();
                    conversion::from_storage(kind, &mut value);
                    to_bytes(&without_type(&value))
                }
                _ => render(kind, stored, rendering, self.now),
            };
            body.extend_from_slice(&item);
        }
        body.extend_from_slice(b"]}");
        Ok(Bytes::from(body))
    }

    /// The selected objects as they were at a version: the present ones with the changes since undone.
    fn objects_at(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        request: &ListRequest,
        version: u64,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        let table = self.store.table(kind.table);
        let mut changed = table.since(version).peekable();
        if changed.peek().is_none() {
            return Ok(self.select(kind, namespace, &request.selector).cloned().collect());
        }
        if !table.can_resume(version) {
            return Err(Status::expired(version, table.oldest()));
        }
        // The first change of an object after the version holds what stood there at the version.
        let mut before: BTreeMap<(&str, &str), Option<&Arc<Stored>>> = BTreeMap::new();
        for event in changed {
            before.entry(place(&event.object)).or_insert(event.previous.as_ref());
        }
        let unchanged = table.iter().filter(|stored| !before.contains_key(&place(stored)));
        let restored = before.values().filter_map(|previous| *previous);
        let mut objects: Vec<Arc<Stored>> = unchanged
            .chain(restored)
            .filter(|stored| namespace.is_none_or(|namespace| stored.value["metadata"]["namespace"] == namespace))
            .filter(|stored| request.selector.matches(&stored.value))
            .cloned()
            .collect();
        objects.sort_by(|a, b| place(a).cmp(&place(b)));
        Ok(objects)
    }
}

fn place(stored: &Stored) -> (&str, &str) {
    let metadata = &stored.value["metadata"];
    (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default())
}

/// What the caller accepts, from the `Accept` header; the first form that is served wins.
pub(crate) fn rendering(accept: &str) -> Result<Rendering, Status> {
    if accept.is_empty() {
        return Ok(Rendering::Whole);
    }
    let mut known = false;
    for offer in accept.split(',') {
        let mut parts = offer.split(';').map(str::trim);
        let media: Cow<str> = parts.next().unwrap_or_default().into();
        let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        if !matches!(media.as_ref(), "application/json" | "*/*" | "application/*" | "application/yaml") {
            continue;
        }
        known = true;
        match parameters.get("as").copied() {
            None => return Ok(Rendering::Whole),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Rendering::Metadata),
            Some("Table") => return Ok(Rendering::Table(IncludeObject::default())),
            Some(_) => {}
        }
    }
    if known {
        return Err(not_acceptable());
    }
    let mut status = Status::new(
        406,
        "NotAcceptable",
        format!("406: Not Acceptable\n\nAvailable representations: {REPRESENTATIONS}"),
    );
    status.details = Some(Box::default());
    Err(status)
}

/// What the genuine server offers, which is what it tells whoever wants something else.
const REPRESENTATIONS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The caller wants a form that is not served.
pub(crate) fn not_acceptable() -> Status {
    Status::new(406, "NotAcceptable", format!("only the following media types are accepted: {REPRESENTATIONS}"))
}
