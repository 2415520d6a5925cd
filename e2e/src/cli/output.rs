//! Writing to the terminal or a pipe. A reader that has seen enough closes its pipe (`trysquare list | head -1`), which
//! `println!` answers with a panic; here it is the reader's right.

use super::CliError;
use std::io::{ErrorKind, IsTerminal, Write};

/// Writes a text to standard output.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::usage(anyhow::Error::new(error).context("cannot write to standard output")))
        }
        _ => Ok(()),
    }
}

/// Writes a value for programs to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(CliError::usage)?;
    print(&(text + "\n"))
}

/// Writes a line to standard error. Nobody can be told where that fails.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Whether a stream takes colours: a terminal whose user has not said no (<https://no-color.org>).
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
