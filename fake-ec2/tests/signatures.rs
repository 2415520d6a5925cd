//! `verify_signatures`: what is signed right is done, and everything else is refused in the words of its protocol.

mod common;

use bytes::Bytes;
use common::{Account, text, values};
use fake_ec2::Config;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use ring::{digest, hmac};
use serde_json::Value;
use std::collections::BTreeMap;

const KEY: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");

fn account() -> Account {
    Account::with(Config {
        verify_signatures: true,
        access_keys: BTreeMap::from([(KEY.0.to_owned(), KEY.1.to_owned())]),
        families: vec!["m5".into()],
        ..Config::default()
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A POST to `/` as a client signs it.
#[derive(Clone)]
struct Signing<'a> {
    key: (&'a str, &'a str),
    token: Option<&'a str>,
    region: &'a str,
    service: &'a str,
    target: Option<&'a str>,
    at: Timestamp,
    body: &'a str,
}

impl Signing<'_> {
    fn ec2(at: Timestamp, body: &str) -> Signing<'_> {
        Signing { key: KEY, token: None, region: "us-west-2", service: "ec2", target: None, at, body }
    }

    fn signature(&self, to_sign: &str) -> String {
        let day = self.at.strftime("%Y%m%d").to_string();
        let mut key = format!("AWS4{}", self.key.1).into_bytes();
        for part in [day.as_str(), self.region, self.service, "aws4_request"] {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), to_sign.as_bytes()).as_ref())
    }

    fn request(&self) -> Request<Bytes> {
        let date = self.at.strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![("host", "example.test:4566"), ("x-amz-date", date.as_str())];
        headers.extend(self.token.map(|token| ("x-amz-security-token", token)));
        headers.extend(self.target.map(|target| ("x-amz-target", target)));
        headers.sort();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let hash = hex(digest::digest(&digest::SHA256, self.body.as_bytes()).as_ref());
        let canonical = format!("POST\n/\n\n{lines}\n{}\n{hash}", names.join(";"));
        let scope = format!("{}/{}/{}/aws4_request", &date[..8], self.region, self.service);
        let digest = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let signature = self.signature(&format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}"));
        let mut request = Request::post("/").header(
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
                self.key.0,
                names.join(";")
            ),
        );
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(self.body.to_owned().into()).unwrap()
    }
}

/// Status and error code, whatever the protocol.
fn outcome(response: &Response<Bytes>) -> (u16, String) {
    let body = text(response);
    let of_json = || {
        let value: Value = serde_json::from_str(&body).unwrap_or_default();
        let kind = value["__type"].as_str().map(str::to_owned);
        let header = || Some(response.headers().get("x-amzn-errortype")?.to_str().unwrap().to_owned());
        kind.or_else(header).unwrap_or_default()
    };
    let code = values(&body, "Code").into_iter().next().unwrap_or_else(of_json);
    (response.status().as_u16(), code.rsplit('#').next().unwrap_or_default().to_owned())
}

const VPCS: &str = "Action=DescribeVpcs&Version=2016-11-15";
const WHO: &str = "Action=GetCallerIdentity&Version=2011-06-15";

#[tokio::test(start_paused = true)]
async fn right_signatures_are_taken_for_any_region() {
    let account = account();
    for region in ["us-west-2", "eu-central-1", "moon-1"] {
        let signing = Signing { region, ..Signing::ec2(account.clock.now(), VPCS) };
        let response = account.ec2.handle(signing.request()).await;
        assert_eq!(outcome(&response), (200, String::new()), "{region}");
    }
    // The account's own region answers.
    let zones = Signing {
        region: "eu-central-1",
        ..Signing::ec2(account.clock.now(), "Action=DescribeAvailabilityZones&Version=2016-11-15")
    };
    let zones = text(&account.ec2.handle(zones.request()).await);
    assert_eq!(values(&zones, "regionName")[0], "us-west-2");
}

#[tokio::test(start_paused = true)]
async fn each_protocol_refuses_in_its_words() {
    let account = account();
    let now = account.clock.now();
    let ec2 = Signing::ec2(now, VPCS);
    let sts = Signing { service: "sts", body: WHO, ..ec2.clone() };
    let sqs = Signing { service: "sqs", target: Some("AmazonSQS.ListQueues"), body: "{}", ..ec2.clone() };
    let ssm = Signing { service: "ssm", target: Some("AmazonSSM.GetParameter"), body: "{}", ..ec2.clone() };
    for (signing, wrong_secret, unknown_key, old, unsigned) in [
        (
            &ec2,
            (401, "AuthFailure"),
            (401, "AuthFailure"),
            (400, "RequestExpired"),
            (403, "MissingAuthenticationToken"),
        ),
        (
            &sts,
            (403, "SignatureDoesNotMatch"),
            (403, "InvalidClientTokenId"),
            (403, "SignatureDoesNotMatch"),
            (403, "MissingAuthenticationToken"),
        ),
        (
            &sqs,
            (400, "InvalidSignatureException"),
            (400, "UnrecognizedClientException"),
            (400, "InvalidSignatureException"),
            (400, "MissingAuthenticationTokenException"),
        ),
        (
            &ssm,
            (400, "InvalidSignatureException"),
            (400, "UnrecognizedClientException"),
            (400, "InvalidSignatureException"),
            (400, "MissingAuthenticationTokenException"),
        ),
    ] {
        let mut bare = signing.request();
        bare.headers_mut().remove("authorization");
        let mut half = signing.request();
        let value = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/us-west-2/ec2/aws4_request";
        half.headers_mut().insert("authorization", value.parse().unwrap());
        let incomplete = if signing.target.is_some() { "IncompleteSignatureException" } else { "IncompleteSignature" };
        for (request, (status, code)) in [
            (Signing { key: (KEY.0, "guess"), ..signing.clone() }.request(), wrong_secret),
            (Signing { key: ("AKIAUNKNOWN", KEY.1), ..signing.clone() }.request(), unknown_key),
            (Signing { at: now - SignedDuration::from_mins(16), ..signing.clone() }.request(), old),
            (Signing { at: now + SignedDuration::from_mins(16), ..signing.clone() }.request(), old),
            (bare, unsigned),
            (half, (400, incomplete)),
        ] {
            let response = account.ec2.handle(request).await;
            assert_eq!(outcome(&response), (status, code.to_owned()), "{}: {}", signing.service, text(&response));
        }
    }
    let journal = account.ec2.cloud().journal();
    assert_eq!(journal.len(), 24);
    assert_eq!(journal[0].error_code.as_deref(), Some("AuthFailure"));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_changed_is_noticed() {
    let account = account();
    let mut request = Signing { service: "sts", body: WHO, ..Signing::ec2(account.clock.now(), VPCS) }.request();
    *request.body_mut() = Bytes::from(format!("{WHO}&x=y"));
    let response = account.ec2.handle(request).await;
    assert_eq!(outcome(&response), (403, "SignatureDoesNotMatch".into()));
    assert!(text(&response).contains("The Canonical String for this request should have been"), "{}", text(&response));
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_accounts_own_sts_are_good_with_their_token_until_they_end() {
    let account = account();
    let credentials = account.ec2.cloud().assume_role(&account.setup.node_role_name, "me").unwrap();
    let key = (credentials.access_key_id.as_str(), credentials.secret_access_key.as_str());
    let token = Some(credentials.session_token.as_str());
    let now = account.clock.now();
    let sts = Signing { key, token, service: "sts", body: WHO, ..Signing::ec2(now, VPCS) };
    let response = account.ec2.handle(sts.request()).await;
    assert_eq!(response.status(), 200);
    assert!(values(&text(&response), "Arn")[0].ends_with("assumed-role/KarpenterNodeRole-demo/me"));
    for (signing, expected) in [
        (Signing { token: None, ..sts.clone() }, (403, "InvalidClientTokenId")),
        (Signing { token: Some("other"), ..sts.clone() }, (403, "InvalidClientTokenId")),
    ] {
        assert_eq!(outcome(&account.ec2.handle(signing.request()).await), (expected.0, expected.1.to_owned()));
    }
    tokio::time::sleep(std::time::Duration::from_secs(3_601)).await;
    let late = Signing { at: account.clock.now(), ..sts.clone() };
    assert_eq!(outcome(&account.ec2.handle(late.request()).await), (403, "ExpiredToken".into()));
}

#[tokio::test(start_paused = true)]
async fn session_tokens_of_a_user_are_good_too() {
    let account = account();
    let now = account.clock.now();
    let body = "Action=GetSessionToken&Version=2011-06-15";
    let given = account.ec2.handle(Signing { service: "sts", body, ..Signing::ec2(now, VPCS) }.request()).await;
    let given = text(&given);
    let value = |name: &str| values(&given, name).remove(0);
    let (id, secret, token) = (value("AccessKeyId"), value("SecretAccessKey"), value("SessionToken"));
    let signing = Signing { key: (&id, &secret), token: Some(&token), ..Signing::ec2(now, VPCS) };
    assert_eq!(account.ec2.handle(signing.request()).await.status(), 200);
    let bare = Signing { token: None, ..signing };
    assert_eq!(outcome(&account.ec2.handle(bare.request()).await), (401, "AuthFailure".into()));
}

#[tokio::test(start_paused = true)]
async fn a_presigned_url_is_good_for_as_long_as_it_says() {
    let account = account();
    let at = account.clock.now();
    let date = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let signing = Signing { service: "sts", ..Signing::ec2(at, "") };
    let scope = format!("{}/us-west-2/sts/aws4_request", &date[..8]);
    let query = format!(
        "{WHO}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F{}&X-Amz-Date={date}&X-Amz-Expires=60&X-Amz-SignedHeaders=host",
        KEY.0,
        scope.replace('/', "%2F"),
    );
    let empty = hex(digest::digest(&digest::SHA256, b"").as_ref());
    let canonical = format!("GET\n/\n{query}\nhost:example.test\n\nhost\n{empty}");
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let signature = signing.signature(&format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}"));
    let get = |signature: &str| {
        let url = format!("/?{query}&X-Amz-Signature={signature}");
        Request::get(url).header("host", "example.test").body(Bytes::new()).unwrap()
    };
    let response = account.ec2.handle(get(&signature)).await;
    assert_eq!(response.status(), 200, "{}", text(&response));
    let wrong = signature.replace(['0', '1', '2', '3'], "4");
    assert_eq!(outcome(&account.ec2.handle(get(&wrong)).await), (403, "SignatureDoesNotMatch".into()));
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    let late = account.ec2.handle(get(&signature)).await;
    assert_eq!(outcome(&late), (403, "SignatureDoesNotMatch".into()));
    assert!(text(&late).contains("Signature expired"), "{}", text(&late));
    // Neither the signature nor what belongs to it is a parameter of the action.
    let asked = &account.ec2.cloud().journal()[0].params;
    assert_eq!(asked, &serde_json::json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_forward_does_not_outdate_signatures() {
    let account = account();
    let body = r#"{"mode": "offset", "offsetMs": 86400000}"#;
    let request = Request::post("/_trysquare/clock").body(Bytes::from(body)).unwrap();
    assert_eq!(account.ec2.control(request).await.status(), 200);
    let response = account.ec2.handle(Signing::ec2(account.clock.now(), VPCS).request()).await;
    assert_eq!(response.status(), 200);
}
