//! fake-ec2 as the AWS SDK for Rust sees it, on a socket and in real time. The steps are those of
//! `fake-ec2/tests/clients/smoke/README.md`; `make clients-smoke` prints them, as every other client's.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{
    DefaultTargetCapacityType, Filter, FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetType, InstanceStateName, InstanceType, LaunchTemplateSpecification,
    LaunchTemplateTagSpecificationRequest, RequestLaunchTemplateData, Reservation, ResourceType, Tag, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::retry::RetryConfig;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Config, FakeEc2, Pace};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const IMAGE: &str = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";

/// Longer than six instances take to end, many times over.
const PATIENCE: Duration = Duration::from_secs(60);

struct Smoke {
    ec2: aws_sdk_ec2::Client,
    sqs: aws_sdk_sqs::Client,
    ssm: aws_sdk_ssm::Client,
}

/// What the later steps name.
struct Stage {
    subnets: Vec<String>,
    template: String,
}

#[tokio::test]
async fn every_step_of_the_smoke_scripts() {
    let pace = Pace { shutting_down: Duration::from_secs(1), ..Pace::default() };
    let fake = FakeEc2::new(Config { pace, ..Config::default() }, Clock::system());
    fake.cloud().bootstrap(Bootstrap::named("demo"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // Ends with this function.
    let mut server = JoinSet::new();
    server.spawn(async move { fake.serve(listener).await });

    let smoke = Smoke::new(&endpoint);
    let stage = smoke.stage().await;
    let mut all = smoke.fleet(&stage).await;
    let ran = smoke.run(&stage).await;
    all.extend(ran.clone());
    smoke.filter(&ran).await;
    smoke.pages(&all).await;
    smoke.tags(&ran[0]).await;
    smoke.errors(&stage).await;
    smoke.terminate(&all).await;
    smoke.queue().await;
}

fn done(step: &str) {
    println!("ok  {step}");
}

/// The code and HTTP status of a refusal.
fn refusal<T, E: ProvideErrorMetadata>(result: Result<T, SdkError<E, HttpResponse>>) -> (String, u16) {
    let Err(error) = result else { panic!("an answer instead of a refusal") };
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    (error.code().unwrap_or_default().to_owned(), status)
}

fn discovery() -> Filter {
    filter("tag:karpenter.sh/discovery", &["demo"])
}

fn filter(name: &str, values: &[&str]) -> Filter {
    Filter::builder().name(name).set_values(Some(values.iter().map(|value| (*value).to_owned()).collect())).build()
}

fn tag(key: &str, value: &str) -> Tag {
    Tag::builder().key(key).value(value).build()
}

fn ids_of(reservations: &[Reservation]) -> Vec<String> {
    let instances = reservations.iter().flat_map(Reservation::instances);
    instances.filter_map(|instance| instance.instance_id().map(str::to_owned)).collect()
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

impl Smoke {
    fn new(endpoint: &str) -> Self {
        let credentials = Credentials::new("placeholder", "placeholder", None, None, "smoke");
        let http =
            aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-west-2"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(endpoint)
            .http_client(http)
            // A step is to see the first answer.
            .retry_config(RetryConfig::disabled())
            .build();
        Self {
            ec2: aws_sdk_ec2::Client::new(&config),
            sqs: aws_sdk_sqs::Client::new(&config),
            ssm: aws_sdk_ssm::Client::new(&config),
        }
    }

    async fn stage(&self) -> Stage {
        let parameter = self.ssm.get_parameter().name(IMAGE).send().await.unwrap();
        let image = parameter.parameter().and_then(|parameter| parameter.value()).unwrap();
        let subnets = self.ec2.describe_subnets().filters(discovery()).send().await.unwrap();
        let subnets: Vec<_> =
            subnets.subnets().iter().filter_map(|subnet| subnet.subnet_id().map(str::to_owned)).collect();
        assert_eq!(subnets.len(), 3, "subnets");
        let groups = self.ec2.describe_security_groups().filters(discovery()).send().await.unwrap();
        let groups: Vec<_> =
            groups.security_groups().iter().filter_map(|group| group.group_id().map(str::to_owned)).collect();
        assert_eq!(groups.len(), 1, "security groups");
        let tags = LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(ResourceType::Instance)
            .tags(tag("smoke", "template"))
            .build();
        let data = RequestLaunchTemplateData::builder()
            .image_id(image)
            .instance_type(InstanceType::M5Large)
            .set_security_group_ids(Some(groups))
            .tag_specifications(tags)
            .build();
        let request = self.ec2.create_launch_template().launch_template_name("smoke").launch_template_data(data);
        let created = request.send().await.unwrap();
        let template = created.launch_template().unwrap();
        assert_eq!(template.latest_version_number(), Some(1), "version of the template");
        done("a stage: image, subnets, security group, launch template");
        Stage { subnets, template: template.launch_template_id().unwrap().to_owned() }
    }

    async fn fleet(&self, stage: &Stage) -> Vec<String> {
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_id(&stage.template)
            .version("$Latest")
            .build();
        let over = |instance_type| {
            let over = FleetLaunchTemplateOverridesRequest::builder().instance_type(instance_type);
            over.subnet_id(&stage.subnets[0]).build()
        };
        let config = FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(template)
            .overrides(over(InstanceType::M5Large))
            .overrides(over(InstanceType::C5Large))
            .build();
        let capacity = TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(2)
            .default_target_capacity_type(DefaultTargetCapacityType::OnDemand)
            .build();
        let request = self.ec2.create_fleet().r#type(FleetType::Instant).target_capacity_specification(capacity);
        let answer = request.launch_template_configs(config).send().await.unwrap();
        assert!(answer.errors().is_empty(), "errors of the fleet: {:?}", answer.errors());
        let ids: Vec<String> =
            answer.instances().iter().flat_map(|instance| instance.instance_ids().iter().cloned()).collect();
        assert_eq!(ids.len(), 2, "instances of the fleet");
        done("a fleet launches 2 instances");
        ids
    }

    async fn run(&self, stage: &Stage) -> Vec<String> {
        let tags = TagSpecification::builder().resource_type(ResourceType::Instance).tags(tag("smoke", "run")).build();
        let template = LaunchTemplateSpecification::builder().launch_template_id(&stage.template).build();
        let request = self.ec2.run_instances().launch_template(template).subnet_id(&stage.subnets[1]);
        let answer = request.min_count(4).max_count(4).tag_specifications(tags).send().await.unwrap();
        let states: Vec<_> =
            answer.instances().iter().filter_map(|instance| instance.state()?.name().cloned()).collect();
        assert_eq!(states, vec![InstanceStateName::Pending; 4], "states of what was run");
        done("RunInstances launches 4 instances");
        answer.instances().iter().filter_map(|instance| instance.instance_id().map(str::to_owned)).collect()
    }

    async fn filter(&self, ran: &[String]) {
        let filtered = async |filters: Vec<Filter>| {
            let answer = self.ec2.describe_instances().set_filters(Some(filters)).send().await.unwrap();
            sorted(&ids_of(answer.reservations()))
        };
        let by_tag = || filter("tag:smoke", &["run"]);
        assert_eq!(filtered(vec![by_tag()]).await, sorted(ran), "by tag");
        let m5 = filter("instance-type", &["m5.*", "m6?.large"]);
        assert_eq!(filtered(vec![by_tag(), m5]).await, sorted(ran), "by tag and type");
        let c5 = filter("instance-type", &["c5.*"]);
        assert!(filtered(vec![by_tag(), c5]).await.is_empty(), "by another type");
        done("filters: joined by and, their values by or, with wildcards");
    }

    async fn pages(&self, all: &[String]) {
        let mut pages = self.ec2.describe_instances().into_paginator().page_size(5).send();
        let (mut sizes, mut seen) = (Vec::new(), Vec::new());
        while let Some(page) = pages.next().await {
            let ids = ids_of(page.unwrap().reservations());
            sizes.push(ids.len());
            seen.extend(ids);
        }
        assert_eq!(sizes, [5, 1], "sizes of pages");
        assert_eq!(sorted(&seen), sorted(all), "all pages");
        done("pages: each instance once");
    }

    async fn tags(&self, id: &str) {
        let described = async || -> BTreeMap<String, String> {
            let request = self.ec2.describe_tags().filters(filter("resource-id", &[id]));
            let answer = request.filters(filter("key", &["step", "owner"])).send().await.unwrap();
            let pairs = answer.tags().iter();
            pairs.map(|tag| (tag.key().unwrap().to_owned(), tag.value().unwrap().to_owned())).collect()
        };
        let owner = ("owner".to_owned(), "Zoë".to_owned());
        let create = self.ec2.create_tags().resources(id).tags(tag("step", "a <b> & c")).tags(tag("owner", "Zoë"));
        create.send().await.unwrap();
        let both = BTreeMap::from([owner.clone(), ("step".to_owned(), "a <b> & c".to_owned())]);
        assert_eq!(described().await, both, "tags");
        let key = Tag::builder().key("step").build();
        self.ec2.delete_tags().resources(id).tags(key).send().await.unwrap();
        assert_eq!(described().await, BTreeMap::from([owner]), "tags after one is deleted");
        done("tags: created, described, deleted");
    }

    async fn errors(&self, stage: &Stage) {
        let unknown = self.ec2.describe_instances().instance_ids("i-0123456789abcdef0").send().await;
        assert_eq!(refusal(unknown), ("InvalidInstanceID.NotFound".into(), 400), "an unknown id");
        let malformed = self.ec2.describe_instances().instance_ids("instance").send().await;
        assert_eq!(refusal(malformed), ("InvalidInstanceID.Malformed".into(), 400), "no id");
        let template = LaunchTemplateSpecification::builder().launch_template_id(&stage.template).build();
        let request = self.ec2.run_instances().launch_template(template).subnet_id(&stage.subnets[0]);
        let dry_run = request.min_count(1).max_count(1).dry_run(true).send().await;
        assert_eq!(refusal(dry_run), ("DryRunOperation".into(), 412), "a dry run");
        done("errors: code and status of three");
    }

    #[allow(clippy::disallowed_methods)] // The fake lives in real time here, and so does who waits for it.
    async fn terminate(&self, all: &[String]) {
        let ended = self.ec2.terminate_instances().set_instance_ids(Some(all.to_vec())).send().await.unwrap();
        let states = ended.terminating_instances().iter().filter_map(|one| one.current_state()?.name().cloned());
        assert_eq!(states.collect::<Vec<_>>(), vec![InstanceStateName::ShuttingDown; 6], "states");
        let all_terminated = async || loop {
            let answer = self.ec2.describe_instances().set_instance_ids(Some(all.to_vec())).send().await.unwrap();
            let mut instances = answer.reservations().iter().flat_map(Reservation::instances);
            let terminated = Some(&InstanceStateName::Terminated);
            if instances.all(|instance| instance.state().and_then(|state| state.name()) == terminated) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        tokio::time::timeout(PATIENCE, all_terminated()).await.expect("all instances are terminated in time");
        done("all 6 instances are terminated");
    }

    async fn queue(&self) {
        let created = self.sqs.create_queue().queue_name("smoke-json").send().await.unwrap();
        let url = created.queue_url().unwrap();
        let body = "a \"body\" with <marks> & ümläuts";
        // Hidden for a second, so that only a poll that waits finds it.
        self.sqs.send_message().queue_url(url).message_body(body).delay_seconds(1).send().await.unwrap();
        let poll = self.sqs.receive_message().queue_url(url).wait_time_seconds(20).max_number_of_messages(10);
        let received = poll.send().await.unwrap();
        let bodies: Vec<_> = received.messages().iter().map(|message| message.body()).collect();
        assert_eq!(bodies, [Some(body)], "received");
        let handle = received.messages()[0].receipt_handle().unwrap();
        self.sqs.delete_message().queue_url(url).receipt_handle(handle).send().await.unwrap();
        let (visible, hidden) = (
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        );
        let request = self.sqs.get_queue_attributes().queue_url(url);
        let answer = request.attribute_names(visible.clone()).attribute_names(hidden.clone()).send().await.unwrap();
        let left = |name| answer.attributes().and_then(|attributes| attributes.get(name)).map(String::as_str);
        assert_eq!((left(&visible), left(&hidden)), (Some("0"), Some("0")), "left in the queue");
        let missing = self.sqs.get_queue_url().queue_name("nowhere").send().await;
        // The code of the query protocol, which the answer carries in a header.
        assert_eq!(refusal(missing), ("AWS.SimpleQueueService.NonExistentQueue".into(), 400), "an unknown queue");
        done("SQS over JSON: sent, received by a long poll, deleted");
    }
}
