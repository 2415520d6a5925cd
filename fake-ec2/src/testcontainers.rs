//! The image of fake-ec2 for tests written with [testcontainers](https://testcontainers.com): each container is a cloud of
//! its own, which is gone with the container. Only with the feature `testcontainers`.
//!
//! ```no_run
//! use fake_ec2::testcontainers::{Endpoint, FakeEc2Image};
//! use testcontainers::runners::AsyncRunner as _;
//!
//! # async fn test() -> Result<(), testcontainers::TestcontainersError> {
//! let container = FakeEc2Image::default().with_region("eu-west-1").with_bootstrap("demo").start().await?;
//! let endpoint = Endpoint::of(&container).await?;
//! println!("for SDKs: {}", endpoint.url()); // http://127.0.0.1:PORT; credentials may be any
//! println!("to exhaust, interrupt, look: {}", endpoint.control_url()); // …/_trysquare/
//! # Ok(())
//! # }
//! ```
//!
//! With `testcontainers::runners::SyncRunner` and [`Endpoint::of_blocking`] the same without a runtime. What testcontainers
//! knows of every image, such as `with_tag` and `with_network`, is there too; its `with_cmd` takes the place of every option
//! named here.

use crate::config::Profile;
use ::testcontainers::core::wait::LogWaitStrategy;
use ::testcontainers::core::{ContainerPort, CopyToContainer, WaitFor};
use ::testcontainers::{Container, ContainerAsync, Image, TestcontainersError};
use std::fmt::Display;

/// As `make image-fake-ec2` and the registry call it.
const NAME: &str = "ghcr.io/trysquare/fake-ec2";

/// Where the image listens.
const PORT: u16 = 4566;

/// Where the settings file is in the container.
const CONFIG: &str = "/fake-ec2.yaml";

/// How fake-ec2 is started in a container: the image of this crate's version, an empty account and the program's defaults,
/// unless told otherwise. The container is ready when it listens.
#[derive(Clone, Debug)]
pub struct FakeEc2Image {
    ports: [ContainerPort; 1],
    region: Option<String>,
    account: Option<String>,
    seed: Option<u64>,
    profile: Option<Profile>,
    bootstrap: Option<String>,
    config: Option<CopyToContainer>,
    arguments: Vec<String>,
}

impl Default for FakeEc2Image {
    fn default() -> Self {
        Self {
            ports: [ContainerPort::Tcp(PORT)],
            region: None,
            account: None,
            seed: None,
            profile: None,
            bootstrap: None,
            config: None,
            arguments: Vec::new(),
        }
    }
}

impl FakeEc2Image {
    /// The region to play; [`regions`](crate::regions) names those in the catalogue.
    pub fn with_region(self, region: impl Into<String>) -> Self {
        Self { region: Some(region.into()), ..self }
    }

    /// The account that owns everything: twelve digits.
    pub fn with_account(self, account: impl Into<String>) -> Self {
        Self { account: Some(account.into()), ..self }
    }

    /// Where ids come from: the same seed and the same requests give the same ids.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// How close to AWS it plays.
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Sets up what Karpenter's getting-started guide does for a cluster of this name: a VPC with three subnets, security
    /// groups, the node role, the interruption queue with its event rules, and the EKS cluster.
    pub fn with_bootstrap(self, cluster: impl Into<String>) -> Self {
        Self { bootstrap: Some(cluster.into()), ..self }
    }

    /// What a settings file says, in YAML: `std::fs::read_to_string` reads one of this machine, so that the program may read
    /// it whoever owns it here. What the other methods say goes over it.
    pub fn with_config(self, yaml: impl Into<String>) -> Self {
        Self { config: Some(CopyToContainer::new(yaml.into().into_bytes(), CONFIG)), ..self }
    }

    /// A further name under which the control API answers, besides loopback ones: the container's in a network of
    /// containers, or the host of a Docker engine that is elsewhere. May be repeated.
    pub fn with_control_host(self, name: impl Into<String>) -> Self {
        self.with_arguments(["--control-host".to_owned(), name.into()])
    }

    /// Further options of the program, such as `--iam enforce`, each word on its own. May be repeated.
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let Self { ports: _, region, account, seed, profile, bootstrap, config, arguments: _ } = self;
        let profile = profile.map(|profile| match profile {
            Profile::Strict => "strict",
            Profile::Lenient => "lenient",
        });
        [
            ("--region", region.clone()),
            ("--account", account.clone()),
            ("--seed", seed.map(|seed| seed.to_string())),
            ("--profile", profile.map(str::to_owned)),
            ("--bootstrap", bootstrap.clone()),
            ("--config", config.is_some().then(|| CONFIG.to_owned())),
        ]
        .into_iter()
        .filter_map(|(option, value)| Some((option, value?)))
    }
}

impl Image for FakeEc2Image {
    fn name(&self) -> &str {
        NAME
    }

    fn tag(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Its health check says the same, up to a second later. Standard error is read too, so that testcontainers' error holds
    /// what the program has to say against its options.
    fn ready_conditions(&self) -> Vec<WaitFor> {
        vec![WaitFor::log(LogWaitStrategy::stdout_or_stderr("export AWS_ENDPOINT_URL="))]
    }

    fn cmd(&self) -> impl IntoIterator<Item = impl Into<std::borrow::Cow<'_, str>>> {
        let options = self.options().flat_map(|(option, value)| [option.to_owned(), value]);
        options.chain(self.arguments.iter().cloned())
    }

    fn copy_to_sources(&self) -> impl IntoIterator<Item = &CopyToContainer> {
        &self.config
    }

    fn expose_ports(&self) -> &[ContainerPort] {
        &self.ports
    }
}

/// Where a container answers, as this machine reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    control_url: String,
}

impl Endpoint {
    /// That of a container.
    pub async fn of(container: &ContainerAsync<FakeEc2Image>) -> Result<Self, TestcontainersError> {
        Ok(Self::at(container.get_host().await?, container.get_host_port_ipv4(PORT).await?))
    }

    /// That of a container which a `SyncRunner` has started.
    pub fn of_blocking(container: &Container<FakeEc2Image>) -> Result<Self, TestcontainersError> {
        Ok(Self::at(container.get_host()?, container.get_host_port_ipv4(PORT)?))
    }

    /// `AWS_ENDPOINT_URL` of the SDKs and the command line.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What requests of the control API begin with; it ends with a slash.
    pub fn control_url(&self) -> &str {
        &self.control_url
    }

    /// The port is that of IPv4, and `localhost` may be the address of IPv6, where the same port can be another container's.
    fn at(host: impl Display, port: u16) -> Self {
        let host = host.to_string();
        let host = if host == "localhost" { "127.0.0.1" } else { &host };
        let url = format!("http://{host}:{port}");
        Self { control_url: format!("{url}/_trysquare/"), url }
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, FakeEc2Image};
    use crate::config::Profile;
    use ::testcontainers::Image as _;
    use std::borrow::Cow;

    fn arguments(image: &FakeEc2Image) -> Vec<String> {
        image.cmd().into_iter().map(Into::into).map(Cow::into_owned).collect()
    }

    #[test]
    fn what_is_not_set_is_left_to_the_program() {
        assert!(arguments(&FakeEc2Image::default()).is_empty());
        assert_eq!(FakeEc2Image::default().copy_to_sources().into_iter().count(), 0);
    }

    #[test]
    fn each_setting_is_an_option_of_the_program_and_the_last_word_counts() {
        let image = FakeEc2Image::default()
            .with_region("us-east-1")
            .with_region("eu-west-1")
            .with_account("210987654321")
            .with_seed(7)
            .with_profile(Profile::Lenient)
            .with_bootstrap("demo")
            .with_config("region: us-east-2")
            .with_control_host("fake-ec2")
            .with_arguments(["--iam", "enforce"]);
        let expected = "--region eu-west-1 --account 210987654321 --seed 7 --profile lenient --bootstrap demo \
                        --config /fake-ec2.yaml --control-host fake-ec2 --iam enforce";
        assert_eq!(arguments(&image).join(" "), expected);
        assert_eq!(image.copy_to_sources().into_iter().count(), 1);
    }

    #[test]
    fn the_endpoint_of_this_machine_is_that_of_ipv4() {
        let endpoint = Endpoint::at("localhost", 32768);
        assert_eq!(endpoint.url(), "http://127.0.0.1:32768");
        assert_eq!(endpoint.control_url(), "http://127.0.0.1:32768/_trysquare/");
        assert_eq!(Endpoint::at("docker", 1).url(), "http://docker:1");
    }
}
