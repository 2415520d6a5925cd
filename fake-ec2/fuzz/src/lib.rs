//! What both targets share: an account for each input, names for what the answers bring, and what is true of every answer.
//!
//! An input is a list of requests, one in each line, to one account: what a single request breaks the property tests find, and
//! the model's own defects need a few. Each input begins with the same account at the same instant, so that what is found can be
//! repeated. Where a line says `$instanceId`, it means the last `instanceId` of the answers so far: mutation never guesses an id.

use bytes::Bytes;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Config, FakeEc2};
use http::{Request, Response};
use std::collections::BTreeMap;
use std::time::Duration;

/// More than these say nothing new, and take as long.
const MAX_REQUESTS: usize = 8;

/// Past the end of everything that happens by itself: states, messages, sessions of an hour, what is visible of an end.
const AFTERWARDS: Duration = Duration::from_secs(3 * 3600);

/// The values of an answer, by the names of their elements or members.
pub type Values = BTreeMap<String, String>;

/// Sends what `request` makes of each line, and hands every answer to `check`, which answers the values that are in it.
pub fn play(
    input: &[u8],
    request: impl Fn(&[u8]) -> Option<Request<Bytes>>,
    check: impl Fn(&Response<Bytes>) -> Values,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(async {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().expect("an instant"));
        let families = ["m5", "c5", "m6g", "t3"].map(String::from).to_vec();
        let ec2 = FakeEc2::new(Config { families, ..Config::default() }, clock);
        let mut values = stage(&ec2);
        for line in input.split(|byte| *byte == b'\n').take(MAX_REQUESTS) {
            let Some(request) = request(&filled(line, &values)) else { continue };
            let response = ec2.handle(request).await;
            assert!(matches!(response.status().as_u16(), 200..=299 | 400..=599), "status {}", response.status());
            values.extend(check(&response));
        }
        tokio::time::sleep(AFTERWARDS).await;
        ec2.cloud().instances();
    });
}

/// The usual installation, and the names of what a launch needs of it.
fn stage(ec2: &FakeEc2) -> Values {
    let made = ec2.cloud().bootstrap(Bootstrap::named("demo"));
    let image = ec2.cloud().images().into_iter().find(|image| image.architecture == "x86_64").expect("an image").id;
    let [subnet, ..] = made.subnet_ids.as_slice() else { panic!("there are subnets") };
    [
        ("imageId", image),
        ("subnetId", subnet.clone()),
        ("vpcId", made.vpc_id),
        ("groupId", made.security_group_id),
        ("roleName", made.node_role_name),
        ("QueueUrl", made.queue_url.expect("there is a queue")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The line with values in the place of their names.
fn filled(line: &[u8], values: &Values) -> Vec<u8> {
    let mut parts = line.split(|byte| *byte == b'$');
    let mut filled = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let end = part.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        match std::str::from_utf8(name).ok().and_then(|name| values.get(name)) {
            Some(value) => filled.extend_from_slice(value.as_bytes()),
            None => filled.extend([b"$", name].concat()),
        }
        filled.extend_from_slice(rest);
    }
    filled
}

/// Whether an element or a member is one that later requests ask for.
pub fn is_asked_for(name: &str) -> bool {
    ["Id", "Handle", "Token"].iter().any(|end| name.ends_with(end))
}

/// The request's line up to the first space, and what follows it.
pub fn word(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(space) => (&line[..space], &line[space + 1..]),
        None => (line, &[]),
    }
}
