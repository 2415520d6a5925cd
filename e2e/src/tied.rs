//! Child processes that never outlive this one, however it ends: also where it is killed, or panics.
//!
//! The child is this program first. It asks the kernel to be killed when its parent's thread ends, and then becomes the
//! program that was asked for. Elsewhere than on Linux there is no such promise: a child is ended when its owner is dropped.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The hidden subcommand that becomes the program.
pub(crate) const SUBCOMMAND: &str = "tied-process";

/// A command that runs a program as a process tied to the calling thread. It sees these variables and no others.
pub fn command(
    program: &Path,
    arguments: &[OsString],
    environment: &BTreeMap<String, String>,
) -> anyhow::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg(SUBCOMMAND).arg(std::process::id().to_string()).arg("--").arg(program).args(arguments);
    command.env_clear().envs(environment);
    // A group of its own: Ctrl-C reaches this process only, which ends its children in their order.
    command.process_group(0);
    Ok(command)
}

/// This program's file, as it was when it started: a build meanwhile may have put another in its place.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { std::env::current_exe().context("cannot find this program's own file") }
}

/// In the child: ties the process to its parent and becomes the program.
pub(crate) fn become_program(parent: u32, words: &[OsString]) -> anyhow::Result<()> {
    let [program, arguments @ ..] = words else { bail!("no program is named") };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL)).context("tying the process to its parent")?;
        // It may have gone before the tie was made.
        if getppid().map(|id| id.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
            bail!("the process that started this one has ended");
        }
    }
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", Path::new(program).display()))
}
