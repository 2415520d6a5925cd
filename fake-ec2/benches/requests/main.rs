//! How many requests fake-ec2 answers in a second, beside `moto_server`; what a request costs in a large account; how soon the
//! program is there and what it takes. `make bench-fake-ec2` runs it.
//!
//! Both servers are programs of their own on a loopback socket and get the same requests, in one run, after the same stage has
//! been set and both are warm. Every answer has to hold as many items on one side as on the other, or the run fails.

// It measures: the time that passes is what it is about.
#![allow(clippy::disallowed_methods)]

mod client;
mod compare;
mod floor;
mod growth;
mod measure;
mod report;
mod server;
mod stage;

use clap::{Parser, ValueEnum};
use server::Server;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Any failure, worded for whoever runs this.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// fake-ec2's speed, absolutely and beside moto_server.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `moto_server`; without it fake-ec2 is measured alone.
    #[arg(long, value_name = "FILE")]
    moto: Option<PathBuf>,
    /// How long to measure each row on each side.
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    seconds: u64,
    /// How many connections are several.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Instances and messages in the large account, messages ten times as many.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    instances: usize,
    /// A table for people, or JSON for programs.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// What `cargo bench` passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-fake-ec2: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Fallible<()> {
    let time = Duration::from_secs(arguments.seconds);
    let start = server::start_and_memory()?;
    let growth = growth::measure(arguments.instances, time)?;
    let floor = floor::measure(time)?;
    let fake = Server::fake_ec2()?;
    let moto = arguments.moto.as_deref().map(Server::moto).transpose()?;
    let rows = compare::measure(&fake, moto.as_ref(), arguments.connections, time)?;
    match arguments.format {
        Format::Text => print!("{}", report::text(&start, &rows, &growth, floor)),
        Format::Json => println!("{}", report::json(&start, &rows, &growth, floor)),
    }
    Ok(())
}
