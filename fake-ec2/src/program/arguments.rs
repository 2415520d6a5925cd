//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

const AFTER_HELP: &str = "\
Examples:
  fake-ec2                                       a free port, and an account with nothing in it
  fake-ec2 --bootstrap demo                      with subnets, roles, a queue, an EKS cluster
  fake-ec2 --bootstrap demo --without-prerequisites --iam enforce
                                                 and a stack is to make roles and queue
  fake-ec2 --profile lenient                     in the place of moto's server, port 5000
  fake-ec2 --listen 127.0.0.1:4566 --state account.json
                                                 and it goes on where it ended
  fake-ec2 --format json | jq -r .endpointUrl    for programs
  curl http://127.0.0.1:4566/_trysquare/         what it can be told besides AWS's own calls

Paste the printed lines into a shell; `aws ec2 describe-instances` then asks this program.

Exit codes: 0 ended by Ctrl-C or SIGTERM, or the command succeeded; 1 failed while running, or what runs elsewhere did not
answer as it should; 2 wrong usage, or a file that --config or --oidc-keys names is wrong; 3 cannot listen; 4 the state file
cannot be used.";

/// EC2, SQS, SSM, IAM, STS, Pricing, EKS, EventBridge and CloudFormation of one account, in memory, over their real protocols
#[derive(Parser)]
#[command(name = "fake-ec2", version = version(), after_help = AFTER_HELP, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where to listen; port 0 takes a free one. There are no passwords: whoever can connect can do everything. [default:
    /// 127.0.0.1:0, and 127.0.0.1:5000 with --profile lenient]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The region to play [default: us-west-2].
    #[arg(long, value_parser = region)]
    pub(crate) region: Option<String>,
    /// The account that owns everything: twelve digits [default: 123456789012].
    #[arg(long, value_parser = account)]
    pub(crate) account: Option<String>,
    /// Where ids come from: the same seed and the same requests give the same ids [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How close to AWS it plays [default: strict].
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileName>,
    /// A YAML file with any of the fields region, account, seed, profile, iam, families, kubernetesVersion, pace, eventDelayMs,
    /// consistencyDelayMs, limits, secureTransport, verifySignatures and accessKeys. What the command line says goes over it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Keeps the account in this file: it goes on where it ended. A file that is no state is refused and left as it is.
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Checks the signatures of requests, against --access-key and the keys that the account itself issues.
    #[arg(long)]
    pub(crate) verify_signatures: bool,
    /// An access key of the account's administrator, for --verify-signatures; may be repeated.
    #[arg(long, value_name = "ID=SECRET", value_parser = access_key)]
    pub(crate) access_key: Vec<(String, String)>,
    /// Sets up what Karpenter's getting-started guide does for a cluster of this name: a VPC with three subnets, security
    /// groups, the node role, the interruption queue with its event rules, and the EKS cluster.
    #[arg(long, value_name = "CLUSTER", value_parser = cluster)]
    pub(crate) bootstrap: Option<String>,
    /// With --bootstrap: leaves out the node role, the queue and its rules, which a CloudFormation stack is to make.
    #[arg(long, requires = "bootstrap")]
    pub(crate) without_prerequisites: bool,
    /// With --bootstrap: the issuer of the cluster's service account tokens [default: one such as EKS gives].
    #[arg(long, value_name = "URL", requires = "bootstrap", value_parser = issuer)]
    pub(crate) oidc_issuer: Option<String>,
    /// With --bootstrap: a file with the issuer's JSON Web Key Set, as `kubectl get --raw /openid/v1/jwks` prints it; tokens
    /// that none of them has signed are refused. Without it tokens are believed.
    #[arg(long, value_name = "FILE", requires = "bootstrap")]
    pub(crate) oidc_keys: Option<PathBuf>,
    /// Whether IAM policies decide who may do what. Access keys the account has not issued are its administrator's. [default:
    /// off]
    #[arg(long, value_enum)]
    pub(crate) iam: Option<IamMode>,
    /// What policies are told of aws:SecureTransport; a request's header X-Forwarded-Proto overrules it. [default: true]
    #[arg(long, value_name = "BOOLEAN")]
    pub(crate) secure_transport: Option<bool>,
    /// Offer these instance families alone, such as m5,c7g [default: the whole catalogue].
    #[arg(long, value_name = "FAMILY,…", value_delimiter = ',')]
    pub(crate) families: Vec<String>,
    /// A further host name under which /_trysquare/ answers, such as a container's; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) control_host: Vec<String>,
    /// How much to tell on standard error; info is a line for each call.
    #[arg(long, value_enum, default_value = "warn")]
    pub(crate) log: Level,
    /// How to print where it listens.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Lists every action that is played, by service.
    Actions {
        /// How to print them.
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Asks a running fake-ec2 to set up what the getting-started guide does for a cluster, and prints its settings.
    Bootstrap(Remote),
    /// Asks a running fake-ec2 whether it answers; for a container's health check.
    Health {
        /// Where it listens.
        #[arg(env = "AWS_ENDPOINT_URL", default_value = "http://127.0.0.1:4566")]
        url: String,
    },
}

#[derive(Args)]
pub(crate) struct Remote {
    /// The name of the cluster.
    #[arg(long, value_parser = cluster)]
    pub(crate) cluster: String,
    /// Where the running fake-ec2 listens.
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    pub(crate) endpoint_url: String,
    /// Leaves out the node role, the queue and its rules, which a CloudFormation stack is to make.
    #[arg(long)]
    pub(crate) without_prerequisites: bool,
    /// The issuer of the cluster's service account tokens [default: one such as EKS gives].
    #[arg(long, value_name = "URL", value_parser = issuer)]
    pub(crate) oidc_issuer: Option<String>,
    /// How to print what there is.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IamMode {
    /// Whoever can connect can do everything.
    Off,
    /// Sessions of roles may do what the policies of the role allow.
    Enforce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// As AWS does.
    Strict,
    /// For who comes from moto's server: port 5000, unknown AMI ids, a default VPC, POST /moto-api/reset.
    Lenient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
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

fn access_key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, secret)) if fake_ec2::is_access_key_id(id) && !secret.is_empty() => Ok((id.into(), secret.into())),
        // The secret itself is not repeated.
        _ => Err("write ID=SECRET, where ID has up to 128 letters, digits and _".into()),
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
