//! SQS in JSON 1.0, SSM, EventBridge and the price list in JSON 1.1, EKS in REST: every request is answered by a document.
//!
//! A line is a target and a body (`AmazonSQS.ListQueues {}`), or a method, a path and a body (`POST /clusters {}`).
#![no_main]

use bytes::Bytes;
use fake_ec2_fuzz::{Values, is_asked_for, play, word};
use http::{Request, Response};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| play(input, request, check));

fn request(line: &[u8]) -> Option<Request<Bytes>> {
    let (first, rest) = word(line);
    if matches!(first, b"GET" | b"POST" | b"DELETE") {
        let (path, body) = word(rest);
        // Of the other paths the forms of the other target are read.
        let is_rest = [b"/clusters".as_slice(), b"/tags/", b"/access-policies"].iter().any(|one| path.starts_with(one));
        let body = Bytes::copy_from_slice(body);
        return Request::builder().method(first).uri(path).body(body).ok().filter(|_| is_rest);
    }
    // A header that is no text is as good as none.
    let target = std::str::from_utf8(first).ok().filter(|target| target.bytes().all(|byte| byte.is_ascii_graphic()))?;
    Request::post("/").header("x-amz-target", target).body(Bytes::copy_from_slice(rest)).ok()
}

/// A refusal names its type in the document or, where that is REST's way, in a header.
fn check(response: &Response<Bytes>) -> Values {
    let body = String::from_utf8_lossy(response.body());
    let document: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert!(document.is_object(), "{body}");
    assert!(response.headers().contains_key("x-amzn-requestid"), "no request id: {body}");
    if !response.status().is_success() {
        let kind = response.headers().get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        assert!(document["__type"].as_str().or(kind).is_some_and(|kind| !kind.is_empty()), "no type: {body}");
    }
    let mut values = Values::new();
    collect(&document, &mut values);
    values
}

fn collect(value: &Value, values: &mut Values) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(text) if is_asked_for(name) => drop(values.insert(name.clone(), text.to_owned())),
                    _ => collect(member, values),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, values)),
        _ => {}
    }
}
