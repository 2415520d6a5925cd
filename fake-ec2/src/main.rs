//! The program: one account on a socket, in real time.
//!
//! Standard output holds what a shell can read: comments and `export` lines. Everything else goes to standard error.

use clap::{Parser, ValueEnum};
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, Config, FakeEc2, Iam, SocketOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The command line is wrong.
const USAGE: u8 = 2;
/// The address cannot be listened on.
const LISTEN: u8 = 3;
/// Something failed while it ran.
const FAILED: u8 = 1;

const AFTER_HELP: &str = "\
Examples:
  fake-ec2                                       a free port, and an account with nothing in it
  fake-ec2 --bootstrap demo                      with subnets, roles, a queue, an EKS cluster
  fake-ec2 --bootstrap demo --without-prerequisites --iam enforce
                                                 and a stack is to make roles and queue
  fake-ec2 --listen 127.0.0.1:4566 --families m5,c7g
  fake-ec2 --format json | jq -r .endpointUrl    for programs
  curl http://127.0.0.1:4566/_trysquare/         what it can be told besides AWS's own calls

Paste the printed lines into a shell; `aws ec2 describe-instances` then asks this program.

Exit codes: 0 ended by Ctrl-C or SIGTERM, 1 failed while running, 2 wrong usage, 3 cannot listen.";

/// EC2, SQS, SSM, IAM, STS, Pricing, EKS, EventBridge and CloudFormation of one account, in memory, over their real protocols
#[derive(Parser)]
#[command(name = "fake-ec2", version = version(), after_help = AFTER_HELP, max_term_width = 100)]
struct Arguments {
    /// Where to listen; port 0 takes a free one. There are no passwords: whoever can connect can do everything.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// The region to play.
    #[arg(long, default_value = "us-west-2", value_parser = region)]
    region: String,
    /// The account that owns everything: twelve digits.
    #[arg(long, default_value = "123456789012", value_parser = account)]
    account: String,
    /// Where ids come from: the same seed and the same requests give the same ids.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Sets up what Karpenter's getting-started guide does for a cluster of this name: a VPC with three subnets, security
    /// groups, the node role, the interruption queue with its event rules, and the EKS cluster.
    #[arg(long, value_name = "CLUSTER", value_parser = cluster)]
    bootstrap: Option<String>,
    /// With --bootstrap: leaves out the node role, the queue and its rules, which a CloudFormation stack is to make.
    #[arg(long, requires = "bootstrap")]
    without_prerequisites: bool,
    /// With --bootstrap: the issuer of the cluster's service account tokens [default: one such as EKS gives].
    #[arg(long, value_name = "URL", requires = "bootstrap", value_parser = issuer)]
    oidc_issuer: Option<String>,
    /// With --bootstrap: a file with the issuer's JSON Web Key Set, as `kubectl get --raw /openid/v1/jwks` prints it; tokens
    /// that none of them has signed are refused. Without it tokens are believed.
    #[arg(long, value_name = "FILE", requires = "bootstrap")]
    oidc_keys: Option<PathBuf>,
    /// Whether IAM policies decide who may do what. Access keys the account has not issued are its administrator's.
    #[arg(long, value_enum, default_value = "off")]
    iam: IamMode,
    /// What policies are told of aws:SecureTransport; a request's header X-Forwarded-Proto overrules it.
    #[arg(long, value_name = "BOOLEAN", default_value_t = true, action = clap::ArgAction::Set)]
    secure_transport: bool,
    /// Offer these instance families alone, such as m5,c7g [default: the whole catalogue].
    #[arg(long, value_name = "FAMILY,…", value_delimiter = ',')]
    families: Vec<String>,
    /// A further host name or address under which /_trysquare/ answers, such as a container's; may be repeated.
    #[arg(long, value_name = "NAME")]
    control_host: Vec<String>,
    /// How much to tell on standard error; info is a line for each call.
    #[arg(long, value_enum, default_value = "warn")]
    log: Level,
    /// How to print where it listens.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IamMode {
    /// Whoever can connect can do everything.
    Off,
    /// Sessions of roles may do what the policies of the role allow.
    Enforce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people and shells.
    Text,
    /// For programs: one line.
    Json,
}

/// A release names its commit in the environment of its build; any other build does not pretend to know.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        option_env!("TRYSQUARE_COMMIT").map_or_else(|| version.into(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.replace("localhost", "127.0.0.1");
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:4566, [::1]:4566 or 0.0.0.0:0".into())
}

fn region(text: &str) -> Result<String, String> {
    match fake_ec2::regions().contains(&text) {
        true => Ok(text.into()),
        false => Err(format!("the catalogue holds {}", fake_ec2::regions().join(", "))),
    }
}

fn account(text: &str) -> Result<String, String> {
    match text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.into()),
        false => Err("an account has twelve digits, such as 123456789012".into()),
    }
}

fn cluster(text: &str) -> Result<String, String> {
    match fake_ec2::is_cluster_name(text) {
        true => Ok(text.into()),
        false => {
            Err("a cluster's name has up to 100 letters, digits, - and _, and begins with a letter or digit".into())
        }
    }
}

/// IAM's rule for URLs of identity providers.
fn issuer(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        true => Ok(text.into()),
        false => Err("an issuer is a URL that begins with https://, such as https://oidc.example/id/1".into()),
    }
}

/// What ends the program early: a sentence with the next step, and the exit code.
struct Failure {
    code: u8,
    message: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log(arguments.log);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure { code: FAILED, message: format!("cannot start threads: {error}") }),
    };
    let outcome = runtime.block_on(run(&arguments));
    // Connections that still wait are not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "fake-ec2: {}", failure.message);
    ExitCode::from(failure.code)
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Failure { code: FAILED, message: format!("{what}: {error}") }
    };
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed("cannot watch for Ctrl-C"))?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed("cannot watch for SIGTERM"))?;
    let config = Config {
        region: arguments.region.clone(),
        account: arguments.account.clone(),
        seed: arguments.seed,
        families: arguments.families.clone(),
        iam: match arguments.iam {
            IamMode::Off => Iam::Off,
            IamMode::Enforce => Iam::Enforce,
        },
        secure_transport: arguments.secure_transport,
        ..Config::default()
    };
    let ec2 = FakeEc2::new(config.clone(), Clock::system());
    check_families(&ec2, &config)?;
    let listener =
        TcpListener::bind(arguments.listen).await.map_err(|error| cannot_listen(arguments.listen, &error))?;
    let address = listener.local_addr().map_err(failed("cannot tell where it listens"))?;
    let keys = arguments.oidc_keys.as_deref().map(read_keys).transpose()?;
    let stage = arguments.bootstrap.as_deref().map(|cluster| {
        ec2.cloud().bootstrap(Bootstrap {
            prerequisites: !arguments.without_prerequisites,
            oidc_issuer: arguments.oidc_issuer.clone().unwrap_or_default(),
            ..Bootstrap::named(cluster)
        })
    });
    if let (Some(stage), Some(keys)) = (&stage, keys) {
        ec2.cloud().set_issuer_keys(&stage.oidc_issuer, &keys);
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
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "listens beyond this machine, and asks nobody for a password");
    }
    let started = Started { url: url(address), arguments, stage };
    print(&match arguments.format {
        Format::Text => started.text(),
        Format::Json => format!("{}\n", started.json()),
    })
    .map_err(failed("cannot write to standard output"))?;
    let options = SocketOptions { control_hosts: arguments.control_host.clone(), ..SocketOptions::default() };
    tokio::select! {
        biased;
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
        result = ec2.serve_with(listener, options) => result.map_err(failed("cannot serve any longer")),
    }
}

/// A JSON Web Key Set.
fn read_keys(path: &Path) -> Result<Value, Failure> {
    let failure = |what: String| Failure { code: USAGE, message: format!("--oidc-keys {}: {what}", path.display()) };
    let text = std::fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    let keys: Value = serde_json::from_str(&text).map_err(|error| failure(format!("it is not JSON: {error}")))?;
    match keys.get("keys").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty()) {
        true => Ok(keys),
        false => Err(failure("it has no member `keys` with the issuer's keys, as a JSON Web Key Set has".into())),
    }
}

fn check_families(ec2: &FakeEc2, config: &Config) -> Result<(), Failure> {
    let offered: BTreeSet<&str> = ec2.cloud().instance_types().iter().map(|one| one.family()).collect();
    let Some(missing) = config.families.iter().find(|family| !offered.contains(family.as_str())) else {
        return Ok(());
    };
    let whole = FakeEc2::new(Config { families: Vec::new(), ..config.clone() }, Clock::system());
    let all: BTreeSet<&str> = whole.cloud().instance_types().iter().map(|one| one.family()).collect();
    let message = format!(
        "--families: {} has no instance family {missing:?}; it has {}",
        config.region,
        all.into_iter().collect::<Vec<_>>().join(", ")
    );
    Err(Failure { code: USAGE, message })
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
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
    Failure { code: LISTEN, message: format!("cannot listen on {address}: {error}; {next}") }
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

/// What there is to say once it listens.
struct Started<'a> {
    url: String,
    arguments: &'a Arguments,
    stage: Option<Bootstrapped>,
}

impl Started<'_> {
    /// The settings of a client. Signatures are not checked, so that any credentials will do; boto3 and the AWS command
    /// line read the region from `AWS_DEFAULT_REGION`, the newer SDKs from `AWS_REGION`.
    fn environment(&self) -> [(&'static str, &str); 5] {
        let region = &self.arguments.region;
        [
            ("AWS_ENDPOINT_URL", &self.url),
            ("AWS_REGION", region),
            ("AWS_DEFAULT_REGION", region),
            ("AWS_ACCESS_KEY_ID", "placeholder"),
            ("AWS_SECRET_ACCESS_KEY", "placeholder"),
        ]
    }

    fn text(&self) -> String {
        let Self { url, arguments, stage } = self;
        let mut text = format!("# fake-ec2 plays {} of account {} at {url}\n", arguments.region, arguments.account);
        if let (Some(cluster), Some(stage)) = (&arguments.bootstrap, stage) {
            let Bootstrapped { vpc_id, subnet_ids, security_group_id, node_role_name, oidc_issuer, queue_url, .. } =
                stage;
            let subnets = subnet_ids.join(" ");
            let _ =
                writeln!(text, "# cluster {cluster}: {vpc_id}, subnets {subnets}, security group {security_group_id},");
            match queue_url {
                Some(_) => {
                    let _ = write!(text, "# node role {node_role_name}, queue {cluster}; ");
                }
                None => text.push_str("# no node role and no queue yet; "),
            }
            let _ = writeln!(text, "discovery tag karpenter.sh/discovery={cluster}");
            let _ = writeln!(text, "# service account tokens of {oidc_issuer}");
        }
        for (name, value) in self.environment() {
            let _ = writeln!(text, "export {name}={value}");
        }
        let _ = writeln!(text, "# What else it can be told: curl {url}/_trysquare/ (Ctrl-C ends it)");
        text
    }

    fn json(&self) -> Value {
        let Self { url, arguments, stage } = self;
        let stage = stage.as_ref().map(|stage| {
            let Bootstrapped {
                vpc_id,
                subnet_ids,
                security_group_id,
                node_role_name,
                node_role_arn,
                queue_url,
                oidc_issuer,
                oidc_provider_arn,
            } = stage;
            json!({
                "cluster": arguments.bootstrap,
                "vpcId": vpc_id,
                "subnetIds": subnet_ids,
                "securityGroupId": security_group_id,
                "nodeRoleName": node_role_name,
                "nodeRoleArn": node_role_arn,
                "queueUrl": queue_url,
                "oidcIssuer": oidc_issuer,
                "oidcProviderArn": oidc_provider_arn,
            })
        });
        let environment: serde_json::Map<String, Value> =
            self.environment().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        json!({
            "endpointUrl": url,
            "controlUrl": format!("{url}/_trysquare/"),
            "region": arguments.region,
            "account": arguments.account,
            "bootstrap": stage,
            "environment": environment,
        })
    }
}

/// A reader that has closed its pipe has seen enough; the program goes on.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
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
