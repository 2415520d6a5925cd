//! The `controller` program.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    controller::process::main(controller::config::Args::parse())
}
