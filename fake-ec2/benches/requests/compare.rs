//! The rows in which fake-ec2 stands beside moto_server.

use crate::Fallible;
use crate::client::{self, Connection};
use crate::measure::{Effort, Round, Timing, measure as time_rounds};
use crate::server::Server;
use crate::stage::{self, Stage};
use serde_json::{Value, json};
use std::time::Duration;

/// The instances of the account that DescribeInstances is asked for.
const INSTANCES: usize = 1_000;

/// DescribeInstanceTypes takes this many names at most, and answers no more in one page.
const INSTANCE_TYPES: usize = 100;

/// Launches on each connection: together fewer than the addresses of one of moto's default subnets.
const MOST_LAUNCHES: usize = 500;

/// One request, or one round of requests, on both sides.
pub(crate) struct Comparison {
    pub(crate) what: &'static str,
    /// What the project promises: so many times the requests per second that moto answers at its best.
    pub(crate) target: f64,
    /// On one connection, then on several.
    pub(crate) rows: [Row; 2],
}

/// A row on so many connections.
pub(crate) struct Row {
    pub(crate) connections: usize,
    pub(crate) fake: Timing,
    pub(crate) moto: Option<Timing>,
}

impl Row {
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.moto.as_ref().map(|moto| self.fake.per_second / moto.per_second)
    }
}

impl Comparison {
    /// The requests per second of both sides, each with the number of connections that suits it better.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let best = |rates: [Option<f64>; 2]| rates.into_iter().flatten().reduce(f64::max);
        let fake = best(self.rows.each_ref().map(|row| Some(row.fake.per_second)))?;
        let moto = best(self.rows.each_ref().map(|row| row.moto.as_ref().map(|moto| moto.per_second)))?;
        Some(fake / moto)
    }
}

struct Workload {
    what: &'static str,
    target: f64,
    most_rounds: usize,
    /// Makes the round for each connection of a server on which this stage has been set.
    round: fn(&Stage, &[String], usize) -> Round,
}

const WORKLOADS: [Workload; 5] = [
    Workload { what: "DescribeInstances, 1,000", target: 100.0, most_rounds: usize::MAX, round: describe_instances },
    Workload {
        what: "DescribeInstanceTypes, 100",
        target: 100.0,
        most_rounds: usize::MAX,
        round: describe_instance_types,
    },
    Workload { what: "CreateFleet instant of 1", target: 50.0, most_rounds: MOST_LAUNCHES, round: create_fleet },
    Workload { what: "RunInstances of 1", target: 50.0, most_rounds: MOST_LAUNCHES, round: run_instances },
    Workload { what: "Send, Receive, DeleteMessage", target: 50.0, most_rounds: usize::MAX, round: message },
];

pub(crate) fn measure(
    fake: &Server,
    moto: Option<&Server>,
    several: usize,
    time: Duration,
) -> Fallible<Vec<Comparison>> {
    let types = common_instance_types(fake, moto)?;
    let set = |server: &Server| -> Fallible<Stage> {
        let mut connection = server.connect();
        let stage = Stage::set(&mut connection)?;
        stage.launch(&mut connection, INSTANCES, "described")?;
        wait_until_running(&mut connection)?;
        Ok(stage)
    };
    let fake_stage = set(fake)?;
    let moto_stage = moto.map(set).transpose()?;
    let row = |workload: &Workload, connections: usize| -> Fallible<Row> {
        let effort = Effort { time, most_rounds: workload.most_rounds };
        let side = |server: &Server, stage: &Stage| -> Fallible<Timing> {
            time_rounds(server.address, connections, effort, &|number| (workload.round)(stage, &types, number))
                .map_err(|error| format!("{}: {error}", workload.what).into())
        };
        let fake = side(fake, &fake_stage)?;
        let moto = moto.zip(moto_stage.as_ref()).map(|(moto, stage)| side(moto, stage)).transpose()?;
        if let Some(moto) = moto.as_ref().filter(|moto| moto.items != fake.items) {
            let (ours, theirs) = (fake.items, moto.items);
            return Err(format!("{}: {ours} items from fake-ec2, {theirs} from moto", workload.what).into());
        }
        Ok(Row { connections, fake, moto })
    };
    let compared = WORKLOADS.iter().map(|workload| {
        let Workload { what, target, .. } = *workload;
        Ok(Comparison { what, target, rows: [row(workload, 1)?, row(workload, several)?] })
    });
    compared.collect()
}

/// The first hundred types that both know.
fn common_instance_types(fake: &Server, moto: Option<&Server>) -> Fallible<Vec<String>> {
    let mut common = stage::all_instance_types(&mut fake.connect())?;
    if let Some(moto) = moto {
        let theirs = stage::all_instance_types(&mut moto.connect())?;
        common.retain(|name| theirs.contains(name));
    }
    Ok(common.into_iter().take(INSTANCE_TYPES).collect())
}

/// What is pending would be written differently a moment later.
fn wait_until_running(connection: &mut Connection) -> Fallible<()> {
    let filter = [("Filter.1.Name", "instance-state-name"), ("Filter.1.Value.1", "running")];
    let request = client::ec2("DescribeInstances", &filter);
    for _ in 0..600 {
        if stage::items(&connection.text(&request)?, "instancesSet")? == INSTANCES {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the instances are not running after a minute".into())
}

fn describe_instances(_: &Stage, _: &[String], _: usize) -> Round {
    let filter = [("Filter.1.Name", "tag:Name"), ("Filter.1.Value.1", "described")];
    parsed_once(client::ec2("DescribeInstances", &filter), "instancesSet")
}

fn describe_instance_types(_: &Stage, types: &[String], _: usize) -> Round {
    let names: Vec<String> = (1..=types.len()).map(|number| format!("InstanceType.{number}")).collect();
    let parameters: Vec<_> = names.iter().map(String::as_str).zip(types.iter().map(String::as_str)).collect();
    parsed_once(client::ec2("DescribeInstanceTypes", &parameters), "instanceTypeSet")
}

fn create_fleet(stage: &Stage, _: &[String], _: usize) -> Round {
    let override_ = "LaunchTemplateConfigs.1.Overrides.1";
    let parameters = [
        ("Type", "instant"),
        ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
        ("TargetCapacitySpecification.OnDemandTargetCapacity", "1"),
        ("TargetCapacitySpecification.DefaultTargetCapacityType", "on-demand"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId", &stage.template),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "1"),
        (&format!("{override_}.InstanceType"), "m5.large"),
        (&format!("{override_}.SubnetId"), &stage.subnet),
    ];
    parsed_each(client::ec2("CreateFleet", &parameters), "instanceIds")
}

fn run_instances(stage: &Stage, _: &[String], _: usize) -> Round {
    let parameters = [
        ("ImageId", stage.image.as_str()),
        ("SubnetId", &stage.subnet),
        ("InstanceType", "m5.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    parsed_each(client::ec2("RunInstances", &parameters), "instancesSet")
}

/// A large answer that is always the same: the first is parsed, the others must have its length. (A request id is always
/// as long.)
fn parsed_once(request: Vec<u8>, list: &'static str) -> Round {
    let mut first: Option<(usize, usize)> = None;
    Box::new(move |connection| {
        let answer = connection.send(&request)?;
        match first {
            Some((length, items)) if length == answer.len() => Ok(items),
            _ => {
                let items = stage::items(std::str::from_utf8(answer)?, list)?;
                first = Some((answer.len(), items));
                Ok(items)
            }
        }
    })
}

fn parsed_each(request: Vec<u8>, list: &'static str) -> Round {
    Box::new(move |connection| stage::items(std::str::from_utf8(connection.send(&request)?)?, list))
}

/// Sends a message, receives one and deletes it. With several connections it may be another's, which is as good.
pub(crate) fn message(stage: &Stage, _: &[String], number: usize) -> Round {
    let queue_url = stage.queue_url.clone();
    let send = client::sqs("SendMessage", &json!({"QueueUrl": queue_url, "MessageBody": format!("from {number}")}));
    let receive = client::sqs("ReceiveMessage", &json!({"QueueUrl": queue_url}));
    Box::new(move |connection| {
        connection.send(&send)?;
        let answer: Value = serde_json::from_slice(connection.send(&receive)?)?;
        let messages = answer["Messages"].as_array().map_or(0, Vec::len);
        let handle = answer["Messages"][0]["ReceiptHandle"].as_str().ok_or("no message was received")?;
        connection.send(&client::sqs("DeleteMessage", &json!({"QueueUrl": queue_url, "ReceiptHandle": handle})))?;
        Ok(messages)
    })
}
