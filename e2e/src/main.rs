//! The `trysquare` program.

fn main() -> std::process::ExitCode {
    e2e::cli::main(option_env!("TRYSQUARE_COMMIT"))
}
