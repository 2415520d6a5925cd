//! The program: one account on a socket, in real time; and a few words with one that runs.
//!
//! Standard output holds what a shell can read: comments and `export` lines. Everything else goes to standard error.

mod program;

use clap::Parser;
use program::arguments::{Arguments, Command, Level};
use program::{Failure, catalogue, remote, serve};
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log(arguments.log);
    let outcome = match &arguments.command {
        None => serve::serve(&arguments),
        Some(Command::Actions { format }) => catalogue::print_actions(*format),
        Some(Command::Bootstrap(options)) => remote::bootstrap(options),
        Some(Command::Health { url }) => remote::health(url),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            let _ = writeln!(std::io::stderr(), "fake-ec2: {message}");
            ExitCode::from(code)
        }
    }
}

fn log(level: Level) {
    let level = match level {
        Level::Off => "off",
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    // hyper's warnings tell of clients that leave, which is theirs to do.
    let filter = tracing_subscriber::EnvFilter::new(format!("{level},hyper=error,hyper_util=error"));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !plain)
        .init();
}
