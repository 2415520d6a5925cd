//! The same account on a socket, in real time, and what it bears from those who connect.

mod served;

use fake_ec2::{ApiError, Calls, FaultRule, Outcome, SocketOptions};
use served::{Served, message};
use std::time::Duration;

const VPCS: &str = "Action=DescribeVpcs&Version=2016-11-15";

fn hasty() -> SocketOptions {
    let timeout = Duration::from_millis(200);
    SocketOptions { head_timeout: timeout, body_timeout: timeout, answer_timeout: timeout, ..SocketOptions::default() }
}

fn lost(action: &str, outcome: Outcome) -> FaultRule {
    FaultRule { outcome, ..FaultRule::error(action, ApiError::client("", "")) }
}

#[tokio::test]
async fn a_socket_answers_like_the_library() {
    let served = Served::new().await;
    let answer = served.ec2("Action=DescribeSubnets").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body.matches("<availableIpAddressCount>8187</availableIpAddressCount>").count(), 3);
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    let request = format!("POST / HTTP/1.1\r\nhost: ec2\r\ncontent-length: {}\r\n\r\n{VPCS}", VPCS.len());
    client.write(&request.repeat(3)).await;
    client.write(&message("POST / HTTP/1.1\r\nhost: ec2", VPCS)).await;
    assert_eq!(client.rest().await.matches("HTTP/1.1 200 OK").count(), 4);
}

#[tokio::test]
async fn bytes_that_are_no_http_end_their_connection_alone() {
    let served = Served::new().await;
    for nonsense in ["\u{16}\u{3}\u{1}\u{0}client hello\r\n\r\n", "GET\r\n\r\n", "\r\n\r\n\0\0\0\0\r\n\r\n"] {
        let mut client = served.connect().await;
        client.write(nonsense).await;
        let answer = client.answer().await;
        assert!([0, 400].contains(&answer.status), "{answer:?}");
    }
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\n").await;
    for _ in 0..100 {
        client.write(&format!("x-filler: {}\r\n", "x".repeat(1000))).await;
    }
    let answer = client.answer().await;
    // 0 if the rest of what was sent reset the connection before the answer could be read.
    assert!([0, 431].contains(&answer.status), "{answer:?}");
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_ends_its_connection() {
    let served = Served::with(hasty()).await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\n").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let served = Served::with(hasty()).await;
    let mut never_used = served.connect().await;
    let mut used = served.connect().await;
    used.write(&format!("POST / HTTP/1.1\r\nhost: ec2\r\ncontent-length: {}\r\n\r\n{VPCS}", VPCS.len())).await;
    assert_eq!(never_used.rest().await, "");
    assert!(used.rest().await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_told_so() {
    let served = Served::with(hasty()).await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\ncontent-length: 100\r\n\r\nAction=").await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(answer.body.contains("<Code>RequestTimeout</Code>"), "{answer:?}");
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_before_it_comes() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\ncontent-length: 5000000\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(answer.body.contains("<Code>RequestEntityTooLarge</Code>"), "{answer:?}");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_read_only_so_far() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    for _ in 0..5 {
        client.write(&chunk).await;
    }
    let answer = client.answer().await;
    // 0 if the rest of what was sent reset the connection before the answer could be read.
    assert!([0, 413].contains(&answer.status), "{answer:?}");
    assert!(served.ec2.cloud().journal().is_empty());
}

#[tokio::test]
async fn a_form_of_one_mebibyte_is_taken() {
    let served = Served::new().await;
    let answer =
        served.ec2(&format!("Action=DescribeVpcs&Filter.1.Name=vpc-id&Filter.1.Value.1={}", "x".repeat(1 << 20))).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let served = Served::with(SocketOptions { max_connections: 2, ..SocketOptions::default() }).await;
    let (first, second) = (served.connect().await, served.connect().await);
    let mut third = served.connect().await;
    third.write(&message("POST / HTTP/1.1\r\nhost: ec2", VPCS)).await;
    let early = tokio::time::timeout(Duration::from_millis(300), third.rest()).await;
    assert!(early.is_err(), "answered while two others were open: {early:?}");
    drop(first);
    assert_eq!(third.answer().await.status, 200);
    drop(second);
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_let_go() {
    let served = Served::with(SocketOptions { max_connections: 1, ..hasty() }).await;
    let mut deaf = served.connect().await;
    // Far more than the buffers of both ends hold: some 30 KiB for each of these.
    let question = "GET /?Action=DescribeInstanceTypes&Version=2016-11-15 HTTP/1.1\r\nhost: ec2\r\n\r\n";
    deaf.write(&question.repeat(2_000)).await;
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200, "its place is free again");
    assert!(deaf.rest().await.matches("HTTP/1.1 200 OK").count() < 2_000);
}

#[tokio::test]
async fn a_client_that_leaves_a_long_poll_takes_no_message_with_it() {
    let served = Served::new().await;
    let url = served.setup.queue_url.clone().unwrap();
    // A rule that strikes nothing counts the calls that have come in.
    let counting = r#"{"action":"ReceiveMessage","calls":{"nth":1000},"outcome":"hang"}"#;
    served.done("POST", "/faults", counting).await;
    let poll = format!(r#"{{"QueueUrl":"{url}","WaitTimeSeconds":20}}"#);
    let mut leaving = served.connect().await;
    leaving.write(&message("POST / HTTP/1.1\r\nhost: sqs\r\nx-amz-target: AmazonSQS.ReceiveMessage", &poll)).await;
    while served.done("GET", "/faults/1", "").await["matched"] != 1 {}
    drop(leaving);
    let sent = served.sqs("SendMessage", &format!(r#"{{"QueueUrl":"{url}","MessageBody":"here"}}"#)).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let received = served.sqs("ReceiveMessage", &poll).await;
    assert!(received.body.contains(r#""Body":"here""#), "{received:?}");
    let received: Vec<_> = served
        .ec2
        .cloud()
        .journal()
        .iter()
        .filter(|call| call.action == "ReceiveMessage")
        .map(|call| call.status)
        .collect();
    assert_eq!(received, [200], "the poll that was left is not answered");
}

#[tokio::test]
async fn a_long_poll_is_answered_when_a_message_comes() {
    let served = Served::new().await;
    let url = served.setup.queue_url.clone().unwrap();
    let poll = format!(r#"{{"QueueUrl":"{url}","WaitTimeSeconds":20}}"#);
    let message = format!(r#"{{"QueueUrl":"{url}","MessageBody":"here"}}"#);
    let (received, sent) = tokio::join!(served.sqs("ReceiveMessage", &poll), served.sqs("SendMessage", &message));
    assert_eq!(sent.status, 200, "{sent:?}");
    assert!(received.body.contains(r#""Body":"here""#), "{received:?}");
}

#[tokio::test]
async fn a_lost_request_breaks_the_connection_and_does_nothing() {
    let served = Served::new().await;
    let vpc = &served.setup.vpc_id;
    served.ec2.cloud().fault(lost("CreateTags", Outcome::LostRequest).calls(Calls::Nth(1)));
    let tag = format!("Action=CreateTags&ResourceId.1={vpc}&Tag.1.Key=lost&Tag.1.Value=");
    let mut client = served.connect().await;
    client.write(&message("POST / HTTP/1.1\r\nhost: ec2", &format!("{tag}&Version=2016-11-15"))).await;
    assert_eq!(client.rest().await, "");
    assert!(!served.ec2("Action=DescribeVpcs").await.body.contains("<key>lost</key>"));
    assert_eq!(served.ec2(&tag).await.status, 200, "the next call is not struck");
}

#[tokio::test]
async fn a_lost_reply_breaks_the_connection_after_the_work_is_done() {
    let served = Served::new().await;
    let vpc = &served.setup.vpc_id;
    served.ec2.cloud().fault(lost("CreateTags", Outcome::LostReply));
    let mut client = served.connect().await;
    let tag = format!("Action=CreateTags&ResourceId.1={vpc}&Tag.1.Key=kept&Tag.1.Value=&Version=2016-11-15");
    client.write(&message("POST / HTTP/1.1\r\nhost: ec2", &tag)).await;
    assert_eq!(client.rest().await, "");
    assert!(served.ec2("Action=DescribeVpcs").await.body.contains("<key>kept</key>"));
}

#[tokio::test]
async fn dropping_the_server_closes_its_connections_and_its_port() {
    let mut served = Served::new().await;
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\n").await;
    assert_eq!(served.ec2("Action=DescribeVpcs").await.status, 200);
    served.server.shutdown().await;
    assert_eq!(client.rest().await, "");
    assert!(tokio::net::TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn a_truncated_body_is_announced_whole_and_breaks_off() {
    let served = Served::new().await;
    let whole = served.ec2("Action=DescribeVpcs").await.body.len();
    let rule = r#"{"action": "DescribeVpcs", "calls": {"first": 1}, "outcome": "truncatedBody"}"#;
    served.done("POST", "/faults", rule).await;
    let answer = served.ec2("Action=DescribeVpcs").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains(&format!("content-length: {whole}")), "{answer:?}");
    assert_eq!(answer.body.len(), whole / 2);
    assert_eq!(served.ec2("Action=DescribeVpcs").await.body.len(), whole, "only the first");
}

/// Bytes that a client may send, and the status of the answer.
async fn status(served: &Served, bytes: &[u8]) -> u16 {
    let mut client = served.connect().await;
    client.write_bytes(bytes).await;
    client.answer().await.status
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap()
}

/// A POST with these headers, each with its line end, and this body.
fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST / HTTP/1.1\r\nhost: ec2\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_packed_body_is_unpacked_as_far_as_a_body_may_go() {
    let served = Served::new().await;
    let gzip = "content-encoding: gzip\r\n";
    assert_eq!(status(&served, &post(gzip, &packed(VPCS.as_bytes()))).await, 200);
    assert_eq!(status(&served, &post(gzip, &packed(&vec![b'x'; 5 << 20]))).await, 413);
    assert_eq!(status(&served, &post(gzip, VPCS.as_bytes())).await, 400);
    assert_eq!(status(&served, &post("content-encoding: br\r\n", VPCS.as_bytes())).await, 415);
    assert_eq!(status(&served, &post("content-encoding: identity\r\n", VPCS.as_bytes())).await, 200);
}

#[tokio::test]
async fn chunks_of_http_and_of_aws_are_joined() {
    let served = Served::new().await;
    let (first, second) = VPCS.split_at(10);
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: ec2\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\na\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        second.len()
    );
    assert_eq!(status(&served, chunked.as_bytes()).await, 200);
    let signed = format!("{:x};chunk-signature=0123\r\n{VPCS}\r\n0;chunk-signature=4567\r\n\r\n", VPCS.len());
    let headers = "content-encoding: aws-chunked\r\nx-amz-decoded-content-length: 38\r\n";
    assert_eq!(status(&served, &post(headers, signed.as_bytes())).await, 200);
    assert_eq!(status(&served, &post(headers, VPCS.as_bytes())).await, 400);
}

#[tokio::test]
async fn a_digest_of_the_body_may_be_there_or_not() {
    let served = Served::new().await;
    assert_eq!(status(&served, &post("content-md5: 8rwsyFO0Wb2uDXFTnKBjKw==\r\n", VPCS.as_bytes())).await, 200);
    assert_eq!(status(&served, &post("", VPCS.as_bytes())).await, 200);
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    let length = VPCS.len();
    client
        .write(&format!(
            "POST / HTTP/1.1\r\nhost: ec2\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        ))
        .await;
    assert_eq!(client.some(25).await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write(VPCS).await;
    assert_eq!(client.answer().await.status, 200);
    // A body that will not be taken is not asked for.
    let mut client = served.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: ec2\r\nexpect: 100-continue\r\ncontent-length: 5000000\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 413);
}

#[tokio::test]
async fn an_older_http_is_answered_and_closed() {
    let served = Served::new().await;
    let mut client = served.connect().await;
    client.write(&format!("POST / HTTP/1.0\r\ncontent-length: {}\r\n\r\n{VPCS}", VPCS.len())).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.head.starts_with("http/1.0 200 ok") && answer.body.contains("</DescribeVpcsResponse>"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn other_methods_are_refused() {
    let served = Served::new().await;
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH"] {
        let answer = served.send(&format!("{method} /?{VPCS} HTTP/1.1"), "").await;
        assert_eq!(answer.status, 405, "{answer:?}");
        assert!(answer.body.contains("<Code>MethodNotAllowed</Code>"), "{answer:?}");
    }
    let answer = served.send(&format!("HEAD /?{VPCS} HTTP/1.1"), "").await;
    assert_eq!((answer.status, answer.body.as_str()), (405, ""), "{answer:?}");
    assert_eq!(served.send(&format!("GET /?{VPCS} HTTP/1.1"), "").await.status, 200);
}

#[tokio::test]
async fn a_form_that_is_no_text_is_refused() {
    let served = Served::new().await;
    for body in
        [&b"Action=DescribeVpcs&Version=2016-11-15&x=\xff\xfe"[..], b"Action=DescribeVpcs&Version=2016-11-15&x=%C3%28"]
    {
        let mut client = served.connect().await;
        client.write_bytes(&post("", body)).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("<Code>MalformedQueryString</Code>"), "{answer:?}");
    }
    let many = format!("{VPCS}{}", "&a=b".repeat(60_000));
    assert_eq!(status(&served, &post("", many.as_bytes())).await, 400);
    let json = "x-amz-target: AmazonSQS.ListQueues\r\n";
    assert_eq!(status(&served, &post(json, b"{\"a\": \"\xff\"}")).await, 400);
    assert_eq!(status(&served, &post(json, "[".repeat(100_000).as_bytes())).await, 400);
    assert_eq!(status(&served, &post(json, format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes())).await, 400);
}

#[tokio::test]
async fn the_service_is_told_from_target_scope_version_and_host() {
    let served = Served::new().await;
    let scope = |service: &str| {
        format!(
            "authorization: AWS4-HMAC-SHA256 Credential=K/20260101/eu-west-9/{service}/aws4_request, Signature=0\r\n"
        )
    };
    let who = "Action=GetCallerIdentity";
    for (headers, body, expected) in [
        (scope("sts"), format!("{who}&Version=2011-06-15"), "<GetCallerIdentityResponse"),
        (scope("sts"), who.to_owned(), "<GetCallerIdentityResponse"),
        (String::new(), format!("{who}&Version=2011-06-15"), "<GetCallerIdentityResponse"),
        (scope("s3"), format!("{who}&Version=2011-06-15"), "<GetCallerIdentityResponse"),
        (scope("ec2"), who.to_owned(), "<Code>InvalidAction</Code>"),
        ("x-amz-target: AmazonSQS.ListQueues\r\n".to_owned(), "{}".to_owned(), "\"QueueUrls\""),
        (scope("ssm"), "{}".to_owned(), "UnknownOperationException"),
        (String::new(), who.to_owned(), "<Code>NoSuchVersion</Code>"),
    ] {
        let mut client = served.connect().await;
        client.write_bytes(&post(&headers, body.as_bytes())).await;
        let answer = client.answer().await;
        assert!(answer.body.contains(expected), "{headers}{body}: {answer:?}");
    }
    let mut client = served.connect().await;
    client.write(&message("POST / HTTP/1.1\r\nhost: sts.eu-west-9.amazonaws.com", who)).await;
    assert!(client.answer().await.body.contains("<GetCallerIdentityResponse"));
}
