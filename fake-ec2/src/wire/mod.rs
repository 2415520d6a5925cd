//! Which protocol is this request, and what does it ask? And back: an answer or a refusal in that protocol.
//!
//! Protocols: EC2 query, IAM/STS/SQS query, JSON 1.0 (SQS), JSON 1.1 (SSM, Pricing, EventBridge), EKS REST. The request itself
//! says which service is meant: by its target header, its path, the scope of its signature, its API version or the host it
//! was sent to, in this order. `signature` checks what it is signed with, where that is wanted.

mod body;
mod endpoint;
pub(crate) mod error;
pub(crate) mod pagination;
pub(crate) mod query;
pub(crate) mod signature;
pub(crate) mod xml;

use crate::error::ApiError;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use query::Form;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request larger than this is refused. SQS allows messages of 1 MiB, EC2 user data of 16 KiB; a fleet request over the
/// whole catalogue stays under 1 MiB.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;

/// The AWS services this crate plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is named for what it is.
pub enum Service {
    Ec2,
    Sqs,
    Ssm,
    Iam,
    Sts,
    Pricing,
    Eks,
    EventBridge,
    CloudFormation,
    EksAuth,
}

impl Service {
    /// The name in endpoints and credential scopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Sqs => "sqs",
            Self::Ssm => "ssm",
            Self::Iam => "iam",
            Self::Sts => "sts",
            Self::Pricing => "pricing",
            Self::Eks => "eks",
            Self::EventBridge => "events",
            Self::CloudFormation => "cloudformation",
            Self::EksAuth => "eks-auth",
        }
    }

    /// Every one of them.
    pub(crate) const ALL: [Self; 10] = [
        Self::Ec2,
        Self::Sqs,
        Self::Ssm,
        Self::Iam,
        Self::Sts,
        Self::Pricing,
        Self::Eks,
        Self::EventBridge,
        Self::CloudFormation,
        Self::EksAuth,
    ];

    /// The service that [`Service::name`] calls so.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }

    // The API versions of the query services; unsigned requests are told apart by them.
    fn by_version(version: &str) -> Option<Self> {
        match version {
            "2016-11-15" => Some(Self::Ec2),
            "2010-05-08" => Some(Self::Iam),
            "2011-06-15" => Some(Self::Sts),
            "2012-11-05" => Some(Self::Sqs),
            "2010-05-15" => Some(Self::CloudFormation),
            _ => None,
        }
    }

    // As in `sqs.us-west-2.amazonaws.com`.
    fn by_host(host: &str) -> Option<Self> {
        host.contains(".amazonaws.com").then(|| host.split('.').next().and_then(Self::by_name))?
    }

    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::Ec2 => Protocol::Ec2Query,
            Self::Iam | Self::Sts | Self::CloudFormation | Self::Sqs => Protocol::Query,
            Self::Ssm | Self::Pricing | Self::EventBridge => Protocol::Json11,
            Self::Eks | Self::EksAuth => Protocol::Rest,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ec2Query,
    Query,
    Json10,
    Json11,
    Rest,
}

impl Protocol {
    pub(crate) fn speaks_json(self) -> bool {
        matches!(self, Self::Json10 | Self::Json11 | Self::Rest)
    }
}

/// What a request carries.
#[derive(Debug)]
pub(crate) enum Payload {
    Form(Form),
    Json(Value),
}

/// What a request says of whoever sends it.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The access key it is signed with; empty if it is not signed.
    pub(crate) access_key_id: String,
    /// The token that comes with temporary credentials.
    pub(crate) security_token: Option<String>,
    pub(crate) user_agent: String,
    /// Whether it came over TLS, if whoever passes it on says so.
    pub(crate) secure_transport: Option<bool>,
    /// Where it was sent, unless that is AWS's own name.
    pub(crate) endpoint: Option<String>,
}

/// A request that has been understood as far as service and action.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) protocol: Protocol,
    pub(crate) action: String,
    pub(crate) sender: Sender,
    pub(crate) payload: Payload,
}

impl Call {
    /// The name of the queue that a call is about; empty if it is about none.
    pub(crate) fn queue(&self) -> &str {
        let url = match &self.payload {
            Payload::Form(form) => form.peek("QueueUrl"),
            Payload::Json(input) => input.get("QueueUrl").and_then(Value::as_str),
        };
        url.map_or("", |url| url.rsplit('/').next().unwrap_or(url))
    }

    /// The request's parameters as the journal keeps them.
    pub(crate) fn params(&self) -> Value {
        match &self.payload {
            Payload::Form(form) => form.to_json(),
            Payload::Json(value) => value.clone(),
        }
    }
}

/// What an action answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The members of the response element (EC2) or of its result element (query).
    Xml(String),
    Json(Value),
}

/// A request that could not be understood, with the protocol to say so in.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) protocol: Protocol,
    pub(crate) error: ApiError,
}

impl Unreadable {
    /// The body is larger than any action takes. Who reads from a socket says so without having read it.
    pub(crate) fn too_large(protocol: Protocol) -> Self {
        Self { protocol, error: body::too_large() }
    }

    /// The body did not arrive in time.
    // fidelity: assumed: EC2 documents no code for it; the SDKs retry `RequestTimeout` wherever they see it.
    pub(crate) fn too_slow(protocol: Protocol) -> Self {
        let error = ApiError::new(408, "RequestTimeout", "The request body was not received within the time allowed.");
        Self { protocol, error }
    }
}

/// In which protocol a request that cannot be read is told so, by its head alone.
pub(crate) fn protocol_of(uri: &Uri, headers: &HeaderMap) -> Protocol {
    match header(headers, "x-amz-target") {
        Some(target) if target.starts_with("AmazonSQS.") => Protocol::Json10,
        Some(_) => Protocol::Json11,
        None if is_rest(uri.path()) => Protocol::Rest,
        None => {
            let scope = header(headers, "authorization").and_then(|value| value.split("Credential=").nth(1));
            let service = scope.and_then(|scope| scope.split('/').nth(3)).and_then(Service::by_name);
            service
                .or_else(|| host(uri, headers).and_then(Service::by_host))
                .map_or(Protocol::Ec2Query, Service::protocol)
        }
    }
}

fn is_rest(path: &str) -> bool {
    ["/clusters", "/tags/", "/access-policies"].iter().any(|prefix| path.starts_with(prefix))
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    header(headers, "host").or(uri.host())
}

pub(crate) fn read(request: &Request<Bytes>) -> Result<Call, Unreadable> {
    let (uri, headers) = (request.uri(), request.headers());
    let protocol = protocol_of(uri, headers);
    let refuse = |error| Unreadable { protocol, error };
    let (access_key_id, scope) = signature::credential(request);
    let sender = Sender {
        access_key_id,
        security_token: signature::security_token(request),
        user_agent: header(headers, "user-agent").unwrap_or_default().to_owned(),
        secure_transport: header(headers, "x-forwarded-proto").map(|scheme| scheme.eq_ignore_ascii_case("https")),
        endpoint: endpoint::asked(headers),
    };
    if request.body().len() > MAX_BODY_BYTES {
        return Err(Unreadable::too_large(protocol));
    }
    let body = body::decoded(headers, request.body()).map_err(refuse)?;
    if is_rest(uri.path()) && header(headers, "x-amz-target").is_none() {
        return read_rest(request, &body, sender);
    }
    // fidelity: assumed: the code that other methods are told, and that HEAD is one of them
    if !matches!(*request.method(), Method::GET | Method::POST) {
        let message = format!("The HTTP method {} is not valid for this endpoint.", request.method());
        return Err(refuse(ApiError::new(405, "MethodNotAllowed", message)));
    }
    if let Some(target) = header(headers, "x-amz-target") {
        return read_json(target, &body, sender);
    }
    // EC2 and the query services also take GET with the form in the query string.
    let text = if body.is_empty() { uri.query().unwrap_or_default().as_bytes() } else { &body };
    let mut form = Form::parse(text).map_err(refuse)?;
    let service = (scope.as_deref().and_then(Service::by_name))
        .or_else(|| form.peek("Version").and_then(Service::by_version))
        .or_else(|| host(uri, headers).and_then(Service::by_host));
    let protocol = service.map_or(Protocol::Ec2Query, Service::protocol);
    let Some(action) = form.peek("Action").map(str::to_owned) else {
        let error = match protocol.speaks_json() {
            true => ApiError::client("UnknownOperationException", "The request names no operation."),
            false => ApiError::client("MissingAction", "The request must contain the parameter Action"),
        };
        return Err(Unreadable { protocol, error });
    };
    let Some(service) = service else {
        let error = ApiError::client("NoSuchVersion", "The requested version is not supported.");
        return Err(Unreadable { protocol, error });
    };
    // fidelity: documented(SQS Developer Guide, Making Query API requests: requests are sent to the queue's URL)
    if service == Service::Sqs && request.uri().path().matches('/').count() == 2 {
        form.supply("QueueUrl", request.uri().path());
    }
    Ok(Call { service, protocol, action, sender, payload: Payload::Form(form) })
}

fn read_json(target: &str, body: &Bytes, sender: Sender) -> Result<Call, Unreadable> {
    let (prefix, action) = target.split_once('.').unwrap_or((target, ""));
    let (service, protocol) = match prefix {
        "AmazonSQS" => (Service::Sqs, Protocol::Json10),
        "AmazonSSM" => (Service::Ssm, Protocol::Json11),
        "AWSPriceListService" => (Service::Pricing, Protocol::Json11),
        "AWSEvents" => (Service::EventBridge, Protocol::Json11),
        _ => {
            let error = ApiError::client("UnknownOperationException", format!("Unknown target {target}"));
            return Err(Unreadable { protocol: Protocol::Json11, error });
        }
    };
    let value = if body.is_empty() { Ok(Value::Object(Default::default())) } else { serde_json::from_slice(body) };
    match value {
        Ok(value @ Value::Object(_)) => {
            Ok(Call { service, protocol, action: action.to_owned(), sender, payload: Payload::Json(value) })
        }
        _ => {
            let error = ApiError::client("SerializationException", "The request body is not a JSON object.");
            Err(Unreadable { protocol, error })
        }
    }
}

/// EKS: the path and method name the action; path parts and the body become one document.
fn read_rest(request: &Request<Bytes>, body: &Bytes, sender: Sender) -> Result<Call, Unreadable> {
    let refuse = |error| Err(Unreadable { protocol: Protocol::Rest, error });
    let parts: Vec<String> = request.uri().path().trim_matches('/').split('/').map(percent_decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (action, names): (_, &[(&str, &str)]) = match (request.method(), parts.as_slice()) {
        (&Method::GET, ["clusters"]) => ("ListClusters", &[]),
        (&Method::GET, ["clusters", name]) => ("DescribeCluster", &[("name", *name)]),
        (&Method::GET, ["clusters", name, "access-entries"]) => ("ListAccessEntries", &[("name", *name)]),
        (&Method::POST, ["clusters", name, "access-entries"]) => ("CreateAccessEntry", &[("name", *name)]),
        (&Method::GET, ["clusters", name, "access-entries", principal]) => {
            ("DescribeAccessEntry", &[("name", *name), ("principalArn", *principal)])
        }
        (&Method::DELETE, ["clusters", name, "access-entries", principal]) => {
            ("DeleteAccessEntry", &[("name", *name), ("principalArn", *principal)])
        }
        (&Method::GET, ["clusters", name, "pod-identity-associations"]) => {
            ("ListPodIdentityAssociations", &[("name", *name)])
        }
        (&Method::POST, ["clusters", name, "pod-identity-associations"]) => {
            ("CreatePodIdentityAssociation", &[("name", *name)])
        }
        (&Method::GET, ["clusters", name, "pod-identity-associations", id]) => {
            ("DescribePodIdentityAssociation", &[("name", *name), ("associationId", *id)])
        }
        (&Method::DELETE, ["clusters", name, "pod-identity-associations", id]) => {
            ("DeletePodIdentityAssociation", &[("name", *name), ("associationId", *id)])
        }
        (&Method::POST, ["clusters", name, "pod-identity-associations", id]) => {
            ("UpdatePodIdentityAssociation", &[("name", *name), ("associationId", *id)])
        }
        (&Method::POST, ["clusters"]) => ("CreateCluster", &[]),
        (&Method::DELETE, ["clusters", name]) => ("DeleteCluster", &[("name", *name)]),
        (&Method::POST, ["clusters", name, "update-config"]) => ("UpdateClusterConfig", &[("name", *name)]),
        (&Method::GET, ["clusters", name, "updates"]) => ("ListUpdates", &[("name", *name)]),
        (&Method::GET, ["clusters", name, "updates", id]) => ("DescribeUpdate", &[("name", *name), ("updateId", *id)]),
        (&Method::POST, ["clusters", name, "access-entries", principal]) => {
            ("UpdateAccessEntry", &[("name", *name), ("principalArn", *principal)])
        }
        (&Method::GET, ["clusters", name, "access-entries", principal, "access-policies"]) => {
            ("ListAssociatedAccessPolicies", &[("name", *name), ("principalArn", *principal)])
        }
        (&Method::POST, ["clusters", name, "access-entries", principal, "access-policies"]) => {
            ("AssociateAccessPolicy", &[("name", *name), ("principalArn", *principal)])
        }
        (&Method::DELETE, ["clusters", name, "access-entries", principal, "access-policies", policy]) => {
            ("DisassociateAccessPolicy", &[("name", *name), ("principalArn", *principal), ("policyArn", *policy)])
        }
        (&Method::GET, ["access-policies"]) => ("ListAccessPolicies", &[]),
        (&Method::GET, ["tags", arn]) => ("ListTagsForResource", &[("resourceArn", *arn)]),
        (&Method::POST, ["tags", arn]) => ("TagResource", &[("resourceArn", *arn)]),
        (&Method::DELETE, ["tags", arn]) => ("UntagResource", &[("resourceArn", *arn)]),
        (&Method::POST, ["clusters", name, "assume-role-for-pod-identity"]) => {
            ("AssumeRoleForPodIdentity", &[("name", *name)])
        }
        _ => return refuse(ApiError::new(404, "NotFoundException", "No such operation.")),
    };
    let mut document = match body.is_empty() {
        true => serde_json::Map::new(),
        false => match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => map,
            _ => return refuse(ApiError::client("SerializationException", "The request body is not a JSON object.")),
        },
    };
    for (key, value) in form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()) {
        let value = Value::String(value.into_owned());
        // The one list among the parameters of a query.
        let values = (key == "tagKeys").then(|| document.entry("tagKeys").or_insert_with(|| Value::Array(Vec::new())));
        match values.and_then(Value::as_array_mut) {
            Some(values) => values.push(value),
            None => drop(document.insert(key.into_owned(), value)),
        }
    }
    for (key, value) in names {
        document.insert((*key).to_owned(), Value::String((*value).to_owned()));
    }
    let service = if action == "AssumeRoleForPodIdentity" { Service::EksAuth } else { Service::Eks };
    let (protocol, payload) = (Protocol::Rest, Payload::Json(Value::Object(document)));
    Ok(Call { service, protocol, action: action.to_owned(), sender, payload })
}

pub(crate) fn answer(call: &Call, request_id: &str, result: Result<Reply, ApiError>) -> Response<Bytes> {
    let named = |answer| endpoint::name(call.sender.endpoint.as_deref(), call.service, &call.action, answer);
    match result {
        Ok(Reply::Xml(members)) => xml::respond(call.protocol, call.service, &call.action, request_id, named(members)),
        Ok(Reply::Json(value)) => {
            let response = Response::builder()
                .header("content-type", content_type(call.protocol))
                .header("x-amzn-requestid", request_id)
                // An operation without output answers an empty body in JSON protocols too; an object is accepted by all.
                .body(Bytes::from(named(value.to_string())));
            response.expect("a response of constant parts is well-formed")
        }
        Err(error) => error::respond(call.protocol, request_id, &error),
    }
}

pub(crate) fn content_type(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Ec2Query | Protocol::Query => "text/xml;charset=UTF-8",
        Protocol::Json10 => "application/x-amz-json-1.0",
        Protocol::Json11 => "application/x-amz-json-1.1",
        Protocol::Rest => "application/json",
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(crate) fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&percent_decode_bytes(text.as_bytes())).into_owned()
}

pub(crate) fn percent_decode_bytes(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}
