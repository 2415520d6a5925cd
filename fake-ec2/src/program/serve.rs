//! The account on a socket, until Ctrl-C or SIGTERM.

use super::arguments::{Arguments, Format, IamMode, ProfileName};
use super::started::Stage;
use super::{FAILED, Failure, LISTEN, STATE, USAGE, print};
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, Config, FakeEc2, Iam, Profile, SocketOptions, StateFile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// moto's server listens there.
const LENIENT_PORT: u16 = 5000;

/// Files that a process may have open: one for each connection, and some besides.
const WANTED_FILES: u64 = 4_096;

pub(crate) fn serve(arguments: &Arguments) -> Result<(), Failure> {
    raise_file_limit();
    // One thread: nearly every request needs the whole account for its few microseconds of work, and to wake another thread
    // takes longer than that.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(FAILED, format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(run(arguments));
    // Connections that still wait are not waited for.
    runtime.shutdown_background();
    outcome
}

/// The usual limit of 1,024 is meant for programs that wait by `select`, which this one does not. Where it cannot be raised,
/// further connections wait.
fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < WANTED_FILES) {
        let wanted = maximum.map_or(WANTED_FILES, |maximum| maximum.min(WANTED_FILES));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |what: &'static str| move |error: Error| Failure::new(FAILED, format!("{what}: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed("cannot watch for Ctrl-C"))?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed("cannot watch for SIGTERM"))?;
    let unusable = |error: fake_ec2::StateError| Failure::new(STATE, format!("--state {error}"));
    let mut state = arguments.state.as_ref().map(StateFile::open).transpose().map_err(unusable)?;
    let config = config(arguments, state.as_ref().and_then(StateFile::config))?;
    let ec2 = FakeEc2::new(config.clone(), Clock::system());
    if let Some(state) = &mut state {
        state.load(&ec2);
    }
    let wanted = listen_address(arguments, &config);
    let listener = TcpListener::bind(wanted).await.map_err(|error| cannot_listen(wanted, &error))?;
    let address = listener.local_addr().map_err(failed("cannot tell where it listens"))?;
    let made = set_up(arguments, &ec2)?;
    if let Some(state) = &state {
        // What cannot be written is better known now than at the end.
        state.save(&ec2).map_err(|error| Failure::new(STATE, format!("the state cannot be written: {error}")))?;
    }
    ec2.cloud().observe(Box::new(|call| {
        tracing::info!(
            service = call.service.name(),
            status = call.status,
            error = call.error_code.as_deref(),
            "{}",
            call.action
        );
    }));
    if !address.ip().is_loopback() && !config.verify_signatures {
        tracing::warn!(%address, "listens beyond this machine, and asks nobody for a password");
    }
    let stage = Stage {
        url: url(address),
        region: config.region.clone(),
        account: config.account.clone(),
        access_key: config.access_keys.clone().into_iter().next().filter(|_| config.verify_signatures),
        made,
    };
    print(&match arguments.format {
        Format::Text => stage.text(),
        Format::Json => format!("{}\n", stage.json()),
    })?;
    let options = SocketOptions { control_hosts: arguments.control_host.clone(), ..SocketOptions::default() };
    let keeping = async {
        match &state {
            Some(state) => state.keep(&ec2).await,
            None => std::future::pending().await,
        }
    };
    let served = tokio::select! {
        biased;
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
        () = keeping => Ok(()),
        result = ec2.serve_with(listener, options) => result.map_err(failed("cannot serve any longer")),
    };
    if let Some(state) = &state {
        state.save(&ec2).map_err(failed("the state could not be written at the end"))?;
    }
    served
}

/// The command line over the file over the profile's defaults; a saved account stays what it was.
fn config(arguments: &Arguments, saved: Option<&Config>) -> Result<Config, Failure> {
    let mut config = Config::default();
    if let Some(Config { region, account, seed, .. }) = saved {
        config = Config { region: region.clone(), account: account.clone(), seed: *seed, ..config };
    }
    if let Some(path) = &arguments.config {
        let wrong = |what: String| Failure::new(USAGE, format!("--config {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        config = config.from_yaml(&text).map_err(wrong)?;
    }
    config.region = arguments.region.clone().unwrap_or(config.region);
    config.account = arguments.account.clone().unwrap_or(config.account);
    config.seed = arguments.seed.unwrap_or(config.seed);
    match arguments.profile {
        None => {}
        Some(ProfileName::Strict) => config.profile = Profile::Strict,
        Some(ProfileName::Lenient) => config.profile = Profile::Lenient,
    }
    match arguments.iam {
        None => {}
        Some(IamMode::Off) => config.iam = Iam::Off,
        Some(IamMode::Enforce) => config.iam = Iam::Enforce,
    }
    config.secure_transport = arguments.secure_transport.unwrap_or(config.secure_transport);
    if !arguments.families.is_empty() {
        config.families.clone_from(&arguments.families);
    }
    config.verify_signatures |= arguments.verify_signatures;
    config.access_keys.extend(arguments.access_key.iter().cloned());
    config.check().map_err(|error| Failure::new(USAGE, format!("--families: {error}")))?;
    if config.verify_signatures && config.access_keys.is_empty() {
        let message = "signatures are to be checked, and there is no key to check them with: add --access-key ID=SECRET, or \
                       accessKeys to the file of --config";
        return Err(Failure::new(USAGE, message));
    }
    saved.map_or(Ok(()), |saved| check_saved(&config, saved))?;
    Ok(config)
}

/// Ids, prices and instants of a saved account belong to its region, account and seed.
fn check_saved(config: &Config, saved: &Config) -> Result<(), Failure> {
    let differs = |what: &str, wanted: &dyn std::fmt::Display, present: &dyn std::fmt::Display| {
        let message = format!(
            "--state: the {what} of the saved account is {present}, and not {wanted}; leave it out, or name another file"
        );
        Err(Failure::new(STATE, message))
    };
    match (config, saved) {
        _ if config.region != saved.region => differs("region", &config.region, &saved.region),
        _ if config.account != saved.account => differs("account", &config.account, &saved.account),
        _ if config.seed != saved.seed => differs("seed", &config.seed, &saved.seed),
        _ => Ok(()),
    }
}

/// What `--bootstrap` asks for, unless the saved account has it already.
fn set_up(arguments: &Arguments, ec2: &FakeEc2) -> Result<Option<(String, Bootstrapped)>, Failure> {
    let keys = arguments.oidc_keys.as_deref().map(read_keys).transpose()?;
    let Some(cluster) = &arguments.bootstrap else { return Ok(None) };
    let made = ec2.cloud().ensure_bootstrap(Bootstrap {
        prerequisites: !arguments.without_prerequisites,
        oidc_issuer: arguments.oidc_issuer.clone().unwrap_or_default(),
        ..Bootstrap::named(cluster)
    });
    if let Some(keys) = keys {
        ec2.cloud().set_issuer_keys(&made.oidc_issuer, &keys);
    }
    Ok(Some((cluster.clone(), made)))
}

fn listen_address(arguments: &Arguments, config: &Config) -> SocketAddr {
    let port = if config.profile == Profile::Lenient { LENIENT_PORT } else { 0 };
    arguments.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// A JSON Web Key Set.
fn read_keys(path: &Path) -> Result<Value, Failure> {
    let failure = |what: String| Failure::new(USAGE, format!("--oidc-keys {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    let keys: Value = serde_json::from_str(&text).map_err(|error| failure(format!("it is not JSON: {error}")))?;
    match keys.get("keys").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty()) {
        true => Ok(keys),
        false => Err(failure("it has no member `keys` with the issuer's keys, as a JSON Web Key Set has".into())),
    }
}

fn cannot_listen(address: SocketAddr, error: &Error) -> Failure {
    let next = match error.kind() {
        ErrorKind::AddrInUse => {
            format!("something else listens there; end it, or take a free port with --listen {}:0", host(address.ip()))
        }
        ErrorKind::PermissionDenied => "ports below 1024 belong to root; choose a greater one, or 0 for any".into(),
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address; use 127.0.0.1, or 0.0.0.0 for all it has".into()
        }
        _ => "choose another address with --listen".into(),
    };
    Failure::new(LISTEN, format!("cannot listen on {address}: {error}; {next}"))
}

/// As it stands in a URL; all addresses at once are reached by the loopback one.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) if address.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{}:{}", host(address.ip()), address.port())
}
