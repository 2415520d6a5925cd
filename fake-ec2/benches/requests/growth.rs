//! What a request costs in a large account beside a small one. Two programs run side by side and are asked in turn, so that
//! whatever else the machine does slows both.

use crate::Fallible;
use crate::client;
use crate::compare::message;
use crate::measure::{Round, quantile};
use crate::server::Server;
use crate::stage::{self, Stage};
use serde_json::json;
use std::time::{Duration, Instant};

/// How many times smaller the small account is.
const SMALLER: usize = 100;

/// Instances that share a tag.
const GROUP: usize = 10;

/// Both accounts hold a multiple of it.
const PAGE: &str = "10";

/// Launches per side: enough for a median, few beside what is already there.
const MOST_LAUNCHES: usize = 1_000;

pub(crate) struct Growth {
    pub(crate) instances: [usize; 2],
    pub(crate) messages: [usize; 2],
    pub(crate) rows: Vec<Row>,
    /// Of the large account, with its journal.
    pub(crate) resident_mib: f64,
}

pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) items: usize,
    /// Median and 99th percentile of the small and the large account.
    pub(crate) small: [Duration; 2],
    pub(crate) large: [Duration; 2],
}

impl Row {
    pub(crate) fn ratio(&self) -> f64 {
        self.large[0].as_secs_f64() / self.small[0].as_secs_f64()
    }
}

/// Makes the round that asks an account.
type Prepare = fn(&Account) -> Fallible<Round>;

/// A server that holds so much, and what asks for some of it.
struct Account {
    server: Server,
    stage: Stage,
    ids: Vec<String>,
}

impl Account {
    fn with(instances: usize, messages: usize) -> Fallible<Self> {
        let server = Server::fake_ec2()?;
        let mut connection = server.connect();
        let mut stage = Stage::set(&mut connection)?;
        let subnets = connection.text(&client::ec2("DescribeSubnets", &[]))?;
        let subnets = stage::texts(&subnets, "subnetId")?;
        let mut ids = Vec::new();
        for group in 0..instances / GROUP {
            stage.subnet = subnets[group % subnets.len()].clone();
            ids.extend(stage.launch(&mut connection, GROUP, &format!("group-{group}"))?);
        }
        for batch in 0..messages / 10 {
            let entry = |number| json!({"Id": format!("{number}"), "MessageBody": format!("message {batch}-{number}")});
            let entries: Vec<_> = (0..10).map(entry).collect();
            connection
                .send(&client::sqs("SendMessageBatch", &json!({"QueueUrl": stage.queue_url, "Entries": entries})))?;
        }
        Ok(Self { server, stage, ids })
    }
}

pub(crate) fn measure(instances: usize, time: Duration) -> Fallible<Growth> {
    let instances = [instances / SMALLER, instances];
    let messages = [instances[0] * 10, instances[1] * 10];
    let small = Account::with(instances[0], messages[0])?;
    let large = Account::with(instances[1], messages[1])?;
    let mut rows = Vec::new();
    let kinds: [(&str, usize, Prepare); 5] = [
        ("DescribeInstances by id", usize::MAX, by_id),
        ("DescribeInstances by tag", usize::MAX, by_tag),
        ("DescribeInstances, a page of 10", usize::MAX, page),
        ("RunInstances of 1", MOST_LAUNCHES, launch),
        ("Send, Receive, DeleteMessage", usize::MAX, |account| Ok(message(&account.stage, &[], 0))),
    ];
    for (what, most_rounds, round) in kinds {
        let sides = [(&small, round(&small)?), (&large, round(&large)?)];
        rows.push(in_turn(what, sides, time, most_rounds).map_err(|error| format!("{what}: {error}"))?);
    }
    Ok(Growth { instances, messages, rows, resident_mib: large.server.resident_mib()? })
}

fn in_turn(what: &'static str, sides: [(&Account, Round); 2], time: Duration, most: usize) -> Fallible<Row> {
    let mut sides = sides.map(|(account, round)| (account.server.connect(), round, Vec::<Duration>::new()));
    let mut items = [0, 0];
    let began = Instant::now();
    // The first eighth of the time warms both up.
    let mut warm = false;
    while began.elapsed() < time && sides[0].2.len() < most {
        if !warm && began.elapsed() > time / 8 {
            warm = true;
            sides.iter_mut().for_each(|side| side.2.clear());
        }
        for (side, items) in sides.iter_mut().zip(&mut items) {
            let (connection, round, times) = side;
            let sent = Instant::now();
            *items = round(connection)?;
            times.push(sent.elapsed());
        }
        if items[0] != items[1] {
            return Err(format!("{} items in the small account, {} in the large one", items[0], items[1]).into());
        }
    }
    let [small, large] = sides.map(|(_, _, mut times)| {
        times.sort();
        [quantile(&times, 0.5), quantile(&times, 0.99)]
    });
    Ok(Row { what, items: items[0], small, large })
}

fn by_id(account: &Account) -> Fallible<Round> {
    let id = &account.ids[account.ids.len() / 2];
    Ok(instances(client::ec2("DescribeInstances", &[("InstanceId.1", id)])))
}

fn by_tag(_: &Account) -> Fallible<Round> {
    let filter = [("Filter.1.Name", "tag:Name"), ("Filter.1.Value.1", "group-5")];
    Ok(instances(client::ec2("DescribeInstances", &filter)))
}

/// The last page: whoever finds it by walking walks far.
fn page(account: &Account) -> Fallible<Round> {
    let mut connection = account.server.connect();
    let mut request = client::ec2("DescribeInstances", &[("MaxResults", PAGE)]);
    loop {
        let answer = connection.text(&request)?;
        let Some(token) = stage::texts(&answer, "nextToken")?.pop() else { return Ok(instances(request)) };
        request = client::ec2("DescribeInstances", &[("MaxResults", PAGE), ("NextToken", &token)]);
    }
}

fn launch(account: &Account) -> Fallible<Round> {
    let parameters = [
        ("ImageId", account.stage.image.as_str()),
        ("SubnetId", &account.stage.subnet),
        ("InstanceType", "m5.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    Ok(instances(client::ec2("RunInstances", &parameters)))
}

fn instances(request: Vec<u8>) -> Round {
    Box::new(move |connection| stage::items(std::str::from_utf8(connection.send(&request)?)?, "instancesSet"))
}
