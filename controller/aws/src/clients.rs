//! The SDK's clients: region, endpoint override, credentials, retries, time.
//!
//! Every construction gives every client a retry partition of its own. The SDK's default token bucket is one static per
//! process; a service that fails for a while would spend the retries of all the others, and of every later simulation.

use crate::error::StartError;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime::client::retries::{RetryPartition, TokenBucket};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use controller_clock::Clock;
use std::time::{Duration, SystemTime};

/// Retry tokens of one client, the SDK's own number: a hundred failed attempts in a row, then no more retries until calls
/// succeed again. Reconcilers retry with back-off above it.
const RETRY_TOKENS: usize = 500;

/// Bounds one attempt of one call (spec §2.1, step 1). Longer than a 20 s long poll by far, shorter than forever.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(240);

/// How to reach AWS.
#[derive(Clone, Debug, Default)]
pub struct SdkSettings {
    /// The region. `None`: `AWS_REGION`, the profile, or the instance metadata service.
    pub region: Option<String>,
    /// One endpoint for all services. `None`: AWS's own, or `AWS_ENDPOINT_URL` and its per-service forms.
    pub endpoint_url: Option<String>,
    /// A transport in memory, for simulations. `None`: HTTPS with rustls.
    pub http_client: Option<SharedHttpClient>,
    /// Fixed credentials. `None`: the SDK's default chain (not with `http_client`, where it would open sockets: fixed
    /// placeholder credentials are used then).
    pub credentials: Option<SharedCredentialsProvider>,
    /// The clock requests are signed by, for simulations. `None`: the system's.
    pub simulated_time: Option<Clock>,
}

/// One client per service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The region all clients but pricing talk to.
    pub region: String,
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) eks: aws_sdk_eks::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    pub(crate) pricing: aws_sdk_pricing::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) ssm: aws_sdk_ssm::Client,
}

impl Clients {
    /// Builds the clients. Reads the environment, profiles and the metadata service only as far as `sdk` leaves things
    /// open; a simulation (`http_client` given) reads nothing.
    pub async fn new(sdk: SdkSettings) -> Result<Self, StartError> {
        let shared = match &sdk.http_client {
            Some(_) => simulated(&sdk),
            None => from_environment(&sdk).await,
        };
        let region = shared.region().ok_or(StartError::NoRegion)?.to_string();
        let pricing = shared.to_builder().region(Region::new(pricing_region(&region))).build();
        Ok(Self {
            ec2: aws_sdk_ec2::Client::from_conf(
                aws_sdk_ec2::config::Builder::from(&shared).retry_partition(partition("ec2")).build(),
            ),
            eks: aws_sdk_eks::Client::from_conf(
                aws_sdk_eks::config::Builder::from(&shared).retry_partition(partition("eks")).build(),
            ),
            iam: aws_sdk_iam::Client::from_conf(
                aws_sdk_iam::config::Builder::from(&shared).retry_partition(partition("iam")).build(),
            ),
            pricing: aws_sdk_pricing::Client::from_conf(
                aws_sdk_pricing::config::Builder::from(&pricing).retry_partition(partition("pricing")).build(),
            ),
            sqs: aws_sdk_sqs::Client::from_conf(
                aws_sdk_sqs::config::Builder::from(&shared).retry_partition(partition("sqs")).build(),
            ),
            ssm: aws_sdk_ssm::Client::from_conf(
                aws_sdk_ssm::config::Builder::from(&shared).retry_partition(partition("ssm")).build(),
            ),
            region,
        })
    }
}

/// A configuration that touches neither environment nor sockets.
fn simulated(sdk: &SdkSettings) -> SdkConfig {
    let credentials = sdk.credentials.clone().unwrap_or_else(|| {
        let placeholder = Credentials::new("AKIAIOSFODNN7EXAMPLE", "simulated", None, None, "simulation");
        SharedCredentialsProvider::new(placeholder)
    });
    let mut builder = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(sdk.region.clone().map(Region::new))
        .credentials_provider(credentials)
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build())
        // The protection polls on a timer of its own, which makes a virtual long poll four times as dear.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    builder.set_http_client(sdk.http_client.clone());
    builder.set_endpoint_url(sdk.endpoint_url.clone());
    builder.set_time_source(sdk.simulated_time.clone().map(|clock| SharedTimeSource::new(ClockTime(clock))));
    builder.build()
}

/// The SDK's default chain for everything that `sdk` leaves open, over rustls with ring.
async fn from_environment(sdk: &SdkSettings) -> SdkConfig {
    let https = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(https)
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build());
    if let Ok(name) = AppName::new(concat!("trysquare-", env!("CARGO_PKG_VERSION"))) {
        loader = loader.app_name(name);
    }
    if let Some(region) = &sdk.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &sdk.endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if let Some(credentials) = &sdk.credentials {
        loader = loader.credentials_provider(credentials.clone());
    }
    if let Some(clock) = &sdk.simulated_time {
        loader = loader.time_source(ClockTime(clock.clone()));
    }
    loader.load().await
}

fn partition(service: &'static str) -> RetryPartition {
    RetryPartition::custom(service).token_bucket(TokenBucket::new(RETRY_TOKENS)).build()
}

/// Where the price list of a region is served (spec §2.1).
fn pricing_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// A [`Clock`] as the SDK wants it.
#[derive(Clone, Debug)]
struct ClockTime(Clock);

impl TimeSource for ClockTime {
    fn now(&self) -> SystemTime {
        self.0.now().into()
    }
}

#[cfg(test)]
mod tests {
    use super::pricing_region;

    #[test]
    fn prices_are_asked_where_the_price_list_is_served() {
        for (region, expected) in [
            ("us-west-2", "us-east-1"),
            ("eu-north-1", "eu-central-1"),
            ("ap-northeast-3", "ap-south-1"),
            ("cn-north-1", "cn-northwest-1"),
            ("sa-east-1", "us-east-1"),
        ] {
            assert_eq!(pricing_region(region), expected, "{region}");
        }
    }
}
