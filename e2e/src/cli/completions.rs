//! `trysquare completions`: what a shell needs to complete this program's command line.

use super::{CliError, PASSED, print};
use clap::Command;
use clap_complete::Shell;

const AFTER_HELP: &str = "\
Examples:
  source <(trysquare completions bash)                     for this shell
  trysquare completions zsh > ~/.zfunc/_trysquare          for every zsh, with ~/.zfunc in fpath
  trysquare completions fish > ~/.config/fish/completions/trysquare.fish

Exit codes: 0 printed, 2 wrong usage.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: &Arguments, program: &Command) -> Result<u8, CliError> {
    // Hidden commands are not for people, and the scripts would offer them.
    let offered = program.get_subcommands().filter(|command| !command.is_hide_set());
    let mut program = Command::new("trysquare").version("").args(program.get_arguments()).subcommands(offered);
    let shell = match arguments.shell {
        Name::Bash => Shell::Bash,
        Name::Zsh => Shell::Zsh,
        Name::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "trysquare", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(PASSED)
}
