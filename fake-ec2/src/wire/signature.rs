//! Signature version 4: what a request says of who signed it, and whether the signature is right.
//!
//! Any region is accepted in a scope; whatever it says, the one region of the account answers. The dates of signatures are
//! held against the clock that was given, not against one that the control API has set forward: clients sign by theirs. The
//! signatures of the single chunks of an `aws-chunked` body are not checked, which no service here asks for.

use super::{Call, Protocol, header, percent_decode};
use crate::error::ApiError;
use bytes::Bytes;
use http::{HeaderMap, Request};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use ring::hmac;
use std::fmt::Write;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Parameters of a presigned URL, and of the older signatures, which are no parameters of the action.
pub(crate) const PARAMETERS: [&str; 12] = [
    "AWSAccessKeyId",
    "SecurityToken",
    "Signature",
    "SignatureMethod",
    "SignatureVersion",
    "Timestamp",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// The longest that a presigned URL may be good for: a week.
// fidelity: documented(IAM User Guide, Elements of an AWS API request signature: X-Amz-Expires is at most 604800)
const MAX_EXPIRES_S: i64 = 604_800;

/// Why a request is not believed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    Unsigned,
    /// Parts are missing or cannot be read.
    Incomplete(String),
    UnknownKey,
    WrongToken,
    ExpiredToken,
    /// Too long ago, or in the future; as AWS says it.
    Outdated(String),
    /// With what was signed here, as AWS shows it.
    Mismatch(String),
}

/// A secret and, for temporary credentials, the token that goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Secret {
    pub(crate) key: String,
    pub(crate) token: Option<String>,
    pub(crate) expired: bool,
}

/// Who signed, as far as can be said without checking: access key ID and service.
pub(crate) fn credential(request: &Request<Bytes>) -> (String, Option<String>) {
    let of_header = header(request.headers(), "authorization").and_then(|value| value.split_once("Credential="));
    let of_header = of_header.map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or(rest).to_owned());
    let scope = of_header.or_else(|| parameter(request, "X-Amz-Credential")).unwrap_or_default();
    let mut parts = scope.split('/');
    (parts.next().unwrap_or_default().to_owned(), parts.nth(2).map(str::to_owned))
}

/// The token of temporary credentials.
pub(crate) fn security_token(request: &Request<Bytes>) -> Option<String> {
    let of_header = header(request.headers(), "x-amz-security-token").map(str::to_owned);
    of_header.or_else(|| parameter(request, "X-Amz-Security-Token"))
}

/// A parameter of the URL.
fn parameter(request: &Request<Bytes>, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    let value =
        |part: &str| part.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value));
    query.split('&').find_map(value)
}

/// A signature and what it says it covers.
struct Signature {
    access_key_id: String,
    /// Date, region, service and `aws4_request`.
    scope: [String; 4],
    signed_headers: Vec<String>,
    signature: String,
    /// As it is written, `20260101T000000Z`.
    date: String,
    at: Timestamp,
    /// Of a presigned URL.
    expires_s: Option<i64>,
}

/// Holds a request's signature against the secret of the key that it names.
pub(crate) fn verify(
    request: &Request<Bytes>,
    protocol: Protocol,
    now: Timestamp,
    secret_of: impl FnOnce(&str) -> Option<Secret>,
) -> Result<(), Distrust> {
    let signature = Signature::read(request)?;
    let secret = secret_of(&signature.access_key_id).ok_or(Distrust::UnknownKey)?;
    if secret.token.is_some() && security_token(request) != secret.token {
        return Err(Distrust::WrongToken);
    }
    if secret.expired {
        return Err(Distrust::ExpiredToken);
    }
    signature.check_date(protocol, now)?;
    let canonical = signature.canonical_request(request);
    let to_sign = format!("{ALGORITHM}\n{}\n{}\n{}", signature.date, signature.scope.join("/"), hex_digest(&canonical));
    let key = signature.key(&secret.key);
    let given = unhex(&signature.signature).unwrap_or_default();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), to_sign.as_bytes(), &given).map_err(|_| {
        Distrust::Mismatch(format!(
            "The Canonical String for this request should have been\n'{canonical}'\n\nThe String-to-Sign should have been\n\
             '{to_sign}'"
        ))
    })
}

impl Signature {
    fn read(request: &Request<Bytes>) -> Result<Self, Distrust> {
        match header(request.headers(), "authorization") {
            Some(value) => Self::of_header(value, request.headers()),
            None if parameter(request, "X-Amz-Signature").is_some()
                || parameter(request, "X-Amz-Algorithm").is_some() =>
            {
                Self::of_query(request)
            }
            None => Err(Distrust::Unsigned),
        }
    }

    // fidelity: documented(IAM API Reference, Common errors: IncompleteSignature); assumed: the sentences of
    // IncompleteSignature
    fn of_header(value: &str, headers: &HeaderMap) -> Result<Self, Distrust> {
        let Some(rest) = value.strip_prefix(ALGORITHM) else {
            let algorithm = value.split(' ').next().unwrap_or_default();
            return Err(Distrust::Incomplete(format!("Unsupported AWS 'algorithm': '{algorithm}'.")));
        };
        let member = |name: &str| {
            let parts = rest.split(',').map(str::trim);
            parts
                .filter_map(|part| part.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        let (credential, signed, signature) = (member("Credential"), member("SignedHeaders"), member("Signature"));
        let date = header(headers, "x-amz-date").map(str::to_owned).or_else(|| date_header(headers));
        let missing: String = [
            (credential.is_none(), "'Credential' parameter"),
            (signature.is_none(), "'Signature' parameter"),
            (signed.is_none(), "'SignedHeaders' parameter"),
            (date.is_none(), "existence of either a 'X-Amz-Date' or a 'Date' header"),
        ]
        .iter()
        .filter(|(missing, _)| *missing)
        .map(|(_, what)| format!("Authorization header requires {what}. "))
        .collect();
        let (Some(credential), Some(signed), Some(signature), Some(date)) = (credential, signed, signature, date)
        else {
            return Err(Distrust::Incomplete(format!("{missing}Authorization={value}")));
        };
        Self::new(&credential, &signed, signature, date, None)
    }

    fn of_query(request: &Request<Bytes>) -> Result<Self, Distrust> {
        let required = |name: &str| {
            let missing = || Distrust::Incomplete(format!("AWS query-string parameters must include '{name}'."));
            parameter(request, name).ok_or_else(missing)
        };
        if required("X-Amz-Algorithm")? != ALGORITHM {
            return Err(Distrust::Incomplete("Unsupported AWS 'algorithm'.".into()));
        }
        let expires = required("X-Amz-Expires").ok();
        let expires_s: i64 = match expires.as_deref().map(str::parse) {
            None => 300,
            Some(Ok(seconds @ 0..=MAX_EXPIRES_S)) => seconds,
            Some(_) => {
                let message = "X-Amz-Expires must be a non-negative number of at most 604800 seconds.";
                return Err(Distrust::Incomplete(message.into()));
            }
        };
        Self::new(
            &required("X-Amz-Credential")?,
            &required("X-Amz-SignedHeaders")?,
            required("X-Amz-Signature")?,
            required("X-Amz-Date")?,
            Some(expires_s),
        )
    }

    fn new(
        credential: &str,
        signed: &str,
        signature: String,
        date: String,
        expires_s: Option<i64>,
    ) -> Result<Self, Distrust> {
        let incomplete = |message: String| Err(Distrust::Incomplete(message));
        let parts: Vec<&str> = credential.split('/').collect();
        let [access_key_id, day, region, service, terminator] = parts.as_slice() else {
            let message =
                "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term";
            return incomplete(format!("{message}, got '{credential}'"));
        };
        let Some(at) = instant(&date) else {
            return incomplete(format!("Date must be in ISO-8601 'basic format'. Got '{date}'."));
        };
        if *terminator != "aws4_request" {
            let message =
                format!("Credential should be scoped with a valid terminator: 'aws4_request', not '{terminator}'.");
            return Err(Distrust::Mismatch(message));
        }
        if !date.starts_with(day) {
            return Err(Distrust::Mismatch(format!(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{day}' != '{}', \
                 from '{date}'.",
                date.get(..8).unwrap_or(&date)
            )));
        }
        let signed_headers: Vec<String> = signed.split(';').map(str::to_ascii_lowercase).collect();
        if !signed_headers.iter().any(|name| name == "host") {
            let message = "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.";
            return Err(Distrust::Mismatch(message.into()));
        }
        let scope = [day, region, service, terminator].map(|part| (*part).to_owned());
        Ok(Self { access_key_id: (*access_key_id).to_owned(), scope, signed_headers, signature, date, at, expires_s })
    }

    // fidelity: documented(IAM User Guide, Troubleshoot signed requests: `Signature expired`, `Signature not yet current`);
    // observed(2022-01, aws/aws-cli issue 6676: 15 minutes for the query services; 2018-07, m0ngr31/kanzi issue 270: 5 for those
    // that speak JSON)
    fn check_date(&self, protocol: Protocol, now: Timestamp) -> Result<(), Distrust> {
        let tolerance_min = if protocol.speaks_json() { 5 } else { 15 };
        let tolerance = SignedDuration::from_mins(tolerance_min);
        let good_for = self.expires_s.map_or(tolerance, SignedDuration::from_secs);
        let (date, stamp) = (&self.date, basic(now));
        if self.at > now + tolerance {
            let latest = basic(now + tolerance);
            return Err(Distrust::Outdated(format!(
                "Signature not yet current: {date} is still later than {latest} ({stamp} + {tolerance_min} min.)"
            )));
        }
        if self.at + good_for < now {
            let earliest = basic(now - good_for);
            let minutes = good_for.as_mins();
            return Err(Distrust::Outdated(format!(
                "Signature expired: {date} is now earlier than {earliest} ({stamp} - {minutes} min.)"
            )));
        }
        Ok(())
    }

    // fidelity: documented(IAM User Guide, Create a signed AWS API request)
    fn canonical_request(&self, request: &Request<Bytes>) -> String {
        let headers: String =
            self.signed_headers.iter().map(|name| format!("{name}:{}\n", canonical_header(name, request))).collect();
        let payload = match header(request.headers(), "x-amz-content-sha256") {
            Some(special) if special.starts_with("STREAMING-") || special == "UNSIGNED-PAYLOAD" => special.to_owned(),
            _ => hex(digest(&SHA256, request.body()).as_ref()),
        };
        format!(
            "{}\n{}\n{}\n{headers}\n{}\n{payload}",
            request.method(),
            canonical_path(request.uri().path()),
            canonical_query(request.uri().query().unwrap_or_default()),
            self.signed_headers.join(";"),
        )
    }

    fn key(&self, secret: &str) -> hmac::Tag {
        let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
        let [day, region, service, terminator] = &self.scope;
        let key = sign(format!("AWS4{secret}").as_bytes(), day);
        let key = sign(key.as_ref(), region);
        let key = sign(key.as_ref(), service);
        sign(key.as_ref(), terminator)
    }
}

/// All values of a header, spaces joined to one.
fn canonical_header(name: &str, request: &Request<Bytes>) -> String {
    let values =
        request.headers().get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let values: Vec<String> = values.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    match (name, values.is_empty(), request.uri().authority()) {
        // In process there may be an absolute URL alone.
        ("host", true, Some(authority)) => authority.to_string(),
        _ => values.join(","),
    }
}

/// Without `.` and `..`, each segment encoded once more than it was sent.
fn canonical_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
        match segment {
            ".." => drop(segments.pop()),
            segment => segments.push(encoded(segment.as_bytes())),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

fn canonical_query(query: &str) -> String {
    let decoded = |text: &str| encoded(percent_decode(&text.replace('+', " ")).as_bytes());
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            byte => write!(text, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    text
}

/// `20260101T000000Z`
fn instant(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", text).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

fn basic(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A `Date` header, as `X-Amz-Date` is written.
fn date_header(headers: &HeaderMap) -> Option<String> {
    let date = header(headers, "date")?;
    jiff::fmt::rfc2822::parse(date).ok().map(|at| basic(at.timestamp()))
}

fn hex_digest(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

const MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
                        Access Key and signing method. Consult the service documentation for details.";

impl Distrust {
    /// In the words of each protocol.
    // fidelity: documented(Common errors of the EC2, IAM, SQS and SSM API References); observed(2018-03,
    // teralytics/prometheus-ecs-discovery issue 7: InvalidSignatureException of JSON services); assumed: that EC2 answers a
    // wrong signature as it does an unknown key
    pub(crate) fn error(&self, call: &Call) -> ApiError {
        let json = call.protocol.speaks_json();
        let ec2 = call.protocol == Protocol::Ec2Query;
        let refused = |json_code: &'static str, query_code: &'static str, message: &str| match call.protocol {
            Protocol::Json10 | Protocol::Json11 => ApiError::client(json_code, message),
            Protocol::Rest => ApiError::new(403, json_code, message),
            Protocol::Query | Protocol::Ec2Query => ApiError::new(403, query_code, message),
        };
        match self {
            Self::Unsigned => call.missing_token(),
            Self::UnknownKey | Self::WrongToken => call.invalid_token(),
            Self::ExpiredToken => call.expired_token(),
            Self::Incomplete(message) if json => ApiError::client("IncompleteSignatureException", message),
            Self::Incomplete(message) => ApiError::client("IncompleteSignature", message),
            Self::Outdated(_) if ec2 => ApiError::client("RequestExpired", "Request has expired."),
            Self::Mismatch(_) if ec2 => call.invalid_token(),
            Self::Outdated(message) => refused("InvalidSignatureException", "SignatureDoesNotMatch", message),
            Self::Mismatch(detail) => {
                let message = match detail.starts_with("The Canonical String") {
                    true => format!("{MISMATCH}\n\n{detail}"),
                    false => detail.clone(),
                };
                refused("InvalidSignatureException", "SignatureDoesNotMatch", &message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn secret(id: &str) -> Option<Secret> {
        (id == "AKIDEXAMPLE").then(|| Secret { key: SECRET.into(), token: None, expired: false })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// From AWS's documentation: the request for IAM's ListUsers that its examples sign.
    fn list_users() -> http::request::Builder {
        Request::get("/?Action=ListUsers&Version=2010-05-08")
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .header("host", "iam.amazonaws.com")
            .header("x-amz-date", "20150830T123600Z")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date, \
                 Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            )
    }

    #[test]
    fn the_documented_signatures_are_right() {
        let now = at("2015-08-30T12:40:00Z");
        let request = list_users().body(Bytes::new()).unwrap();
        assert_eq!(verify(&request, Protocol::Query, now, secret), Ok(()));
        // `get-vanilla` of the test suite for signature version 4.
        let request =
            Request::get("/").header("host", "example.amazonaws.com").header("x-amz-date", "20150830T123600Z").header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, \
                 Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            );
        assert_eq!(verify(&request.body(Bytes::new()).unwrap(), Protocol::Query, now, secret), Ok(()));
    }

    #[test]
    fn what_was_changed_after_signing_is_noticed() {
        let now = at("2015-08-30T12:36:00Z");
        for request in [
            list_users().body(Bytes::from_static(b"x")),
            list_users().uri("/?Action=ListRoles&Version=2010-05-08").body(Bytes::new()),
            list_users().method("POST").body(Bytes::new()),
            list_users().header("host", "other").body(Bytes::new()),
        ] {
            let outcome = verify(&request.unwrap(), Protocol::Query, now, secret);
            assert!(matches!(outcome, Err(Distrust::Mismatch(_))), "{outcome:?}");
        }
        let other = |_: &str| Some(Secret { key: "other".into(), token: None, expired: false });
        let request = list_users().body(Bytes::new()).unwrap();
        assert!(matches!(verify(&request, Protocol::Query, now, other), Err(Distrust::Mismatch(_))));
        assert_eq!(verify(&request, Protocol::Query, now, |_| None), Err(Distrust::UnknownKey));
    }

    #[test]
    fn dates_are_good_for_a_quarter_of_an_hour() {
        let request = list_users().body(Bytes::new()).unwrap();
        for (now, expected) in [
            ("2015-08-30T12:51:00Z", None),
            ("2015-08-30T12:21:00Z", None),
            (
                "2015-08-30T12:51:01Z",
                Some(
                    "Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z (20150830T125101Z - 15 min.)",
                ),
            ),
            (
                "2015-08-30T12:20:59Z",
                Some(
                    "Signature not yet current: 20150830T123600Z is still later than 20150830T123559Z (20150830T122059Z + 15 min.)",
                ),
            ),
        ] {
            let outcome = verify(&request, Protocol::Query, at(now), secret);
            assert_eq!(outcome, expected.map_or(Ok(()), |text| Err(Distrust::Outdated(text.into()))), "{now}");
        }
    }

    #[test]
    fn half_signatures_are_incomplete() {
        for header in [
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE, SignedHeaders=host, Signature=00",
            "Basic dXNlcjpwYXNz",
            "AWS4-HMAC-SHA256",
        ] {
            let request = Request::get("/").header("x-amz-date", "20150830T123600Z").header("authorization", header);
            let outcome =
                verify(&request.body(Bytes::new()).unwrap(), Protocol::Query, at("2015-08-30T12:36:00Z"), secret);
            assert!(matches!(outcome, Err(Distrust::Incomplete(_))), "{header}: {outcome:?}");
        }
        let unsigned = Request::get("/").body(Bytes::new()).unwrap();
        let outcome = verify(&unsigned, Protocol::Query, at("2015-08-30T12:36:00Z"), secret);
        assert_eq!(outcome, Err(Distrust::Unsigned));
    }

    #[test]
    fn paths_and_queries_have_one_form() {
        assert_eq!(canonical_path("/"), "/");
        assert_eq!(canonical_path("/clusters/demo/../x/./arn%3Aaws"), "/clusters/x/arn%253Aaws");
        assert_eq!(canonical_query("b=2&a=x%20y&a=+&X-Amz-Signature=0"), "a=%20&a=x%20y&b=2");
    }
}
