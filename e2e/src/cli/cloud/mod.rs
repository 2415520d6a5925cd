//! What a person does to the cloud while it is served: spot notices, capacity that runs out, a look at the instances.
//!
//! Every command speaks to the control API of a fake-ec2 (`/_trysquare/`) and to nothing else; `client` makes sure of it.

mod client;
mod instances;

use super::{CliError, Format, PASSED, output, print, print_json};
use anyhow::anyhow;
use client::Client;
use instances::{Instance, State};
use serde_json::{Value, json};

const EXIT_CODES: &str = "\
These commands speak only to the /_trysquare/ paths of a fake-ec2, never to AWS.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no fake-ec2 answers.";

/// What can be done to a cloud that is served.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Shows the served instances, and where capacity is short.
    #[command(visible_alias = "instances", after_help = format!("\
Examples:
  trysquare cloud                          the instances there are
  trysquare cloud --all                    those that have ended too
  trysquare cloud --format json | jq .instances[].id

{EXIT_CODES}"))]
    Cloud(Look),
    /// Sends a spot notice: AWS takes the instance back two minutes later.
    #[command(after_help = format!("\
Examples:
  trysquare interrupt i-0123456789abcdef0
  trysquare interrupt default-x7k2p                                 by the NodeClaim's name
  trysquare interrupt ip-192-168-0-5.us-west-2.compute.internal     by the node's name

{EXIT_CODES}"))]
    Interrupt(Chosen),
    /// Sends a rebalance recommendation, as AWS may before a spot notice.
    #[command(after_help = format!("\
Examples:
  trysquare rebalance i-0123456789abcdef0

{EXIT_CODES}"))]
    Rebalance(Chosen),
    /// Terminates an instance from outside, as somebody with the console would.
    #[command(after_help = format!("\
Examples:
  trysquare terminate i-0123456789abcdef0 i-0fedcba9876543210

{EXIT_CODES}"))]
    Terminate(Chosen),
    /// Lets pools run out of capacity: launches from them are refused.
    #[command(after_help = format!("\
Examples (quote the *, or the shell fills in file names):
  trysquare exhaust m5.large us-west-2a spot     one pool
  trysquare exhaust '*' '*' spot                 no spot capacity at all
  trysquare exhaust '*' us-west-2b '*'           a whole zone

{EXIT_CODES}"))]
    Exhaust(Pools),
    /// Gives pools their capacity back; without arguments all of them.
    #[command(after_help = format!("\
Examples:
  trysquare restore                              everything
  trysquare restore m5.large '*' spot            spot m5.large in every zone

{EXIT_CODES}"))]
    Restore(SomePools),
}

/// Where the cloud is, and how to answer.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the fake-ec2 listens: `trysquare serve` and `fake-ec2` print it.
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL", hide_env_values = true)]
    endpoint_url: Option<String>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(clap::Args)]
pub(crate) struct Look {
    /// Show instances that have ended too, as AWS does for an hour.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// An instance id, or the name of its node or NodeClaim.
    #[arg(required = true, value_name = "INSTANCE-OR-NODE")]
    names: Vec<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(crate) struct Pools {
    /// An instance type, or '*' for all.
    #[arg(value_name = "TYPE")]
    instance_type: String,
    /// A zone, or '*' for all.
    zone: String,
    /// How instances are bought.
    market: Market,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(crate) struct SomePools {
    /// An instance type, or '*' for all.
    #[arg(value_name = "TYPE", default_value = "*")]
    instance_type: String,
    /// A zone, or '*' for all.
    #[arg(default_value = "*")]
    zone: String,
    /// How instances are bought.
    #[arg(default_value = "*")]
    market: Market,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Market {
    /// Spare capacity.
    Spot,
    /// At the published price.
    OnDemand,
    /// Both.
    #[value(name = "*")]
    Both,
}

impl Market {
    fn name(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
            Self::Both => "*",
        }
    }
}

pub(crate) fn run(command: &Command) -> Result<u8, CliError> {
    match command {
        Command::Cloud(look) => show(look),
        Command::Interrupt(chosen) => each(Deed::Interrupt, chosen),
        Command::Rebalance(chosen) => each(Deed::Rebalance, chosen),
        Command::Terminate(chosen) => each(Deed::Terminate, chosen),
        Command::Exhaust(Pools { instance_type, zone, market, options }) => {
            capacity("exhaust", options, instance_type, zone, *market)
        }
        Command::Restore(SomePools { instance_type, zone, market, options }) => {
            capacity("restore", options, instance_type, zone, *market)
        }
    }
}

fn show(look: &Look) -> Result<u8, CliError> {
    let state = Client::connect(&look.options)?.get("/state")?;
    match look.options.format {
        Format::Json => print_json(&state)?,
        Format::Text => print(&State::read(&state)?.table(look.all, output::colours(&std::io::stdout())))?,
    }
    Ok(PASSED)
}

/// What is done to single instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Interrupt,
    Rebalance,
    Terminate,
}

impl Deed {
    fn path(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Rebalance => "rebalance",
            Self::Terminate => "terminate",
        }
    }

    /// Why it cannot be done to this instance.
    fn objection(self, instance: &Instance, state: &State) -> Option<String> {
        if self != Self::Interrupt || instance.capacity_type == "spot" {
            return None;
        }
        Some(format!(
            "{} is an on-demand instance, and AWS sends spot notices to spot instances alone; {}. To take it away all \
             the same: trysquare terminate {}",
            instance.described(),
            state.spot_instances(),
            instance.id
        ))
    }

    /// What came of it, for people.
    fn outcome(self, instance: &Instance, state: &State, answer: &Value) -> String {
        let told = match self {
            Self::Interrupt => {
                format!("spot notice sent; AWS takes it back {}", state.when(&answer["reclaimAt"]))
            }
            Self::Rebalance => "rebalance recommendation sent".to_owned(),
            Self::Terminate => {
                let (before, now) = (answer["previousState"].as_str(), answer["state"].as_str().unwrap_or_default());
                match before == Some(now) {
                    true => format!("was {now} already"),
                    false => format!("is {now}"),
                }
            }
        };
        format!("{}: {told}\n", instance.described())
    }
}

/// All names are looked up before anything is done, so that a slip of the pen leaves nothing half done.
fn each(deed: Deed, chosen: &Chosen) -> Result<u8, CliError> {
    let client = Client::connect(&chosen.options)?;
    let state = State::read(&client.get("/state")?)?;
    let mut targets: Vec<&Instance> = Vec::new();
    for name in &chosen.names {
        let instance = state.find(name).map_err(CliError::refused)?;
        if let Some(objection) = deed.objection(instance, &state) {
            return Err(CliError::refused(anyhow!(objection)));
        }
        if !targets.iter().any(|target| target.id == instance.id) {
            targets.push(instance);
        }
    }
    let mut answers = Vec::new();
    for instance in targets {
        let answer = client.post(&format!("/instances/{}/{}", instance.id, deed.path()), &json!({}))?;
        if chosen.options.format == Format::Text {
            print(&deed.outcome(instance, &state, &answer))?;
        }
        answers.push(answer);
    }
    if chosen.options.format == Format::Json {
        print_json(&answers)?;
    }
    Ok(PASSED)
}

fn capacity(what: &str, options: &Options, instance_type: &str, zone: &str, market: Market) -> Result<u8, CliError> {
    let client = Client::connect(options)?;
    let pools = json!({"instanceType": instance_type, "zone": zone, "capacityType": market.name()});
    let answer = client.post(&format!("/capacity/{what}"), &pools)?;
    match options.format {
        Format::Json => print_json(&answer)?,
        Format::Text => print(&instances::shortages(&answer["capacity"]))?,
    }
    Ok(PASSED)
}
