//! Queue URLs name the endpoint that was asked. Some clients send to the host of a queue's URL, whatever endpoint they have been
//! given (both versions of the AWS SDK for JavaScript); with AWS's host in it they would leave for AWS.
//!
//! The model knows AWS's names alone; the exchange is made here, in the answers that hold queue URLs and nothing else of a
//! caller's choice.

use super::Service;
use http::HeaderMap;

/// The URL a request was sent to, without a path; `None` if it is AWS's own, as it is in process.
pub(super) fn asked(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(http::header::HOST)?.to_str().ok()?;
    // What stands in answers has to be harmless in XML and JSON.
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || host.contains(".amazonaws.com") || !host.bytes().all(harmless) {
        return None;
    }
    let forwarded =
        headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"));
    let scheme = if forwarded { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// The answer with the queue URLs that whoever asked at `endpoint` can use.
// fidelity: documented(SQS Developer Guide, Queue and message identifiers: a queue's URL begins with the endpoint)
pub(super) fn name(endpoint: Option<&str>, service: Service, action: &str, answer: String) -> String {
    let holds_urls = matches!(action, "CreateQueue" | "GetQueueUrl" | "ListQueues" | "ListDeadLetterSourceQueues");
    let Some(endpoint) = endpoint.filter(|_| service == Service::Sqs && holds_urls) else { return answer };
    let mut parts = answer.split("https://sqs.");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        named.push_str(endpoint);
        // From the region on: `us-west-2.amazonaws.com/123456789012/demo`.
        named.push_str(&part[part.find('/').unwrap_or(part.len())..]);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_host(host: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::HOST, host.parse().unwrap())])
    }

    #[test]
    fn aws_is_asked_at_its_own_names_and_anything_else_at_its_host() {
        assert_eq!(asked(&with_host("localhost:4566")).unwrap(), "http://localhost:4566");
        assert_eq!(asked(&with_host("[::1]:4566")).unwrap(), "http://[::1]:4566");
        assert_eq!(asked(&with_host("sqs.us-west-2.amazonaws.com")), None);
        assert_eq!(asked(&with_host("<a>")), None, "it would be markup in an answer");
        let mut forwarded = with_host("fake.example");
        forwarded.insert("x-forwarded-proto", "https".parse().unwrap());
        assert_eq!(asked(&forwarded).unwrap(), "https://fake.example");
    }

    #[test]
    fn queue_urls_and_only_those_name_the_endpoint() {
        let aws =
            r#"{"QueueUrls":["https://sqs.us-west-2.amazonaws.com/1/a","https://sqs.us-west-2.amazonaws.com/1/b"]}"#;
        let here = r#"{"QueueUrls":["http://here:1/1/a","http://here:1/1/b"]}"#;
        let named = |endpoint, service, action| name(endpoint, service, action, aws.to_owned());
        assert_eq!(named(Some("http://here:1"), Service::Sqs, "ListQueues"), here);
        assert_eq!(named(None, Service::Sqs, "ListQueues"), aws);
        assert_eq!(named(Some("http://here:1"), Service::Sqs, "ReceiveMessage"), aws, "a message is as it was sent");
        assert_eq!(named(Some("http://here:1"), Service::Ssm, "ListQueues"), aws);
    }
}
