//! EC2, IAM, STS, SQS and CloudFormation in their query protocols: every form is answered by a document.
//!
//! A line is a form. If it begins with a slash, what stands before its first space is the path: SQS is asked at a queue's.
#![no_main]

use bytes::Bytes;
use fake_ec2_fuzz::{Values, is_asked_for, play, word};
use http::{Request, Response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| play(input, request, check));

fn request(line: &[u8]) -> Option<Request<Bytes>> {
    let (path, form) = if line.starts_with(b"/") { word(line) } else { (b"/".as_slice(), line) };
    Request::post(path).body(Bytes::copy_from_slice(form)).ok()
}

/// A refusal names its code and the request, whatever was asked.
fn check(response: &Response<Bytes>) -> Values {
    let body = std::str::from_utf8(response.body()).expect("an answer is text");
    // By its path a request may have been one of EKS.
    if body.starts_with('{') {
        serde_json::from_str::<serde_json::Value>(body).expect("an answer is a document");
        return Values::new();
    }
    let document = roxmltree::Document::parse(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let text = |name: &str| {
        let element = document.descendants().find(|element| element.tag_name().name().eq_ignore_ascii_case(name));
        element.and_then(|element| element.text()).unwrap_or_default()
    };
    assert!(!text("RequestId").is_empty(), "no request id: {body}");
    let root = document.root_element().tag_name().name();
    assert!(root.ends_with("Response"), "{root}");
    if response.status().is_success() {
        assert!(!matches!(root, "Response" | "ErrorResponse"), "an error with status 200: {body}");
    } else {
        assert!(!text("Code").is_empty(), "no code: {body}");
    }
    let leaves = document.descendants().filter(|element| is_asked_for(element.tag_name().name()));
    leaves.filter_map(|leaf| Some((leaf.tag_name().name().to_owned(), leaf.text()?.to_owned()))).collect()
}
