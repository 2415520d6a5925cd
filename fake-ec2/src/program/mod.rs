//! What the program does, one file for each command, and what they share.

pub(crate) mod arguments;
pub(crate) mod catalogue;
pub(crate) mod remote;
pub(crate) mod serve;
mod started;

use std::io::{ErrorKind, Write};

/// Something failed while it ran.
const FAILED: u8 = 1;
/// The command line or a file that it names is wrong.
const USAGE: u8 = 2;
/// The address cannot be listened on.
const LISTEN: u8 = 3;
/// The state file cannot be used.
const STATE: u8 = 4;

/// What ends the program early: a sentence with the next step, and the exit code.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A reader that has closed its pipe has seen enough; the program goes on.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(FAILED, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
