//! Whether instances could be launched from a class: kubelet configuration, tags, and dry runs that show whether the
//! controller may make the calls (spec §1.6.3).

use crate::cache::Cache;
use crate::error::{AwsError, Meaning, failure_reason};
use crate::launch::{ClaimFacts, TemplateGroup, service_cidr, template};
use crate::launch_template::sdk_tags;
use crate::node_class::{DEPENDENCIES, Findings, NodeClassContext, VALIDATION, Verdict};
use crate::provider::AwsCloud;
use crate::resolved::ResolvedNodeClass;
use aws_sdk_ec2::types as sdk;
use aws_smithy_types::retry::RetryConfig;
use controller_api::{AmiFamily, Ec2NodeClass, NodePool, labels};
use controller_clock::Clock;
use controller_core::catalog::{CapacityType, InstanceType};
use controller_core::cloud::CloudError;
use controller_core::requirement::Requirement;
use controller_core::requirements::Requirements;
use controller_core::resources::PODS;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Outcomes kept; one for each class and recent content of it.
const OUTCOMES: usize = 256;
const REQUEUE: Duration = Duration::from_secs(10 * 60);
/// What is tried when no NodePool says what it would launch.
const FALLBACK_TYPES: [&str; 2] = ["m5.large", "m6g.large"];

/// Outcomes of dry runs, by class and content.
#[derive(Debug)]
pub(crate) struct Validations(Cache<(String, String), Verdict>);

impl Validations {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Cache::new(clock, LIFETIME, OUTCOMES))
    }

    /// Drops what is known of a class.
    pub(crate) fn forget(&self, class: &str) {
        self.0.retain(|(name, _), _| name != class);
    }
}

/// How a dry run ended.
enum Outcome {
    Passed,
    /// Stands until something changes.
    Refused(Verdict),
    /// Says nothing lasting; tried again.
    Undecided(Option<Verdict>, CloudErrorOrAws),
}

type CloudErrorOrAws = Box<dyn std::error::Error + Send + Sync>;

/// Judges `ValidationSucceeded`.
pub(crate) async fn validate(
    cloud: &AwsCloud,
    node_class: &Ec2NodeClass,
    context: &NodeClassContext,
    findings: &mut Findings,
) {
    findings.requeue(REQUEUE);
    let status = findings.status.clone();
    let class = ResolvedNodeClass::with_status(node_class, &status);
    if class.family == AmiFamily::AL2023
        && let Err(error) = service_cidr(cloud).await
    {
        findings.judge(VALIDATION, Verdict::no("ClusterCIDRResolutionFailed", "Failed to detect the cluster CIDR"));
        return findings.fail("cluster CIDR", error);
    }
    if let Some(verdict) = offline(&class, findings) {
        return findings.judge(VALIDATION, verdict);
    }
    let tags = match class.tags(&cloud.settings.cluster_name, "") {
        Ok(tags) => tags,
        Err(error) => return findings.judge(VALIDATION, Verdict::no("TagValidationFailed", error.to_string())),
    };
    let key = (class.name.to_owned(), fingerprint(node_class, &class));
    if let Some(known) = cloud.validations.0.get(&key) {
        return findings.judge(VALIDATION, known);
    }
    let outcome = match cloud.settings.disable_dry_run {
        true => Outcome::Passed,
        false => dry_run(cloud, &class, context, tags).await,
    };
    match outcome {
        Outcome::Passed => {
            cloud.validations.0.insert(key, Verdict::True);
            findings.judge(VALIDATION, Verdict::True);
        }
        Outcome::Refused(verdict) => {
            cloud.validations.0.insert(key, verdict.clone());
            findings.judge(VALIDATION, verdict);
        }
        Outcome::Undecided(verdict, error) => {
            if let Some(verdict) = verdict {
                findings.judge(VALIDATION, verdict);
            }
            findings.fail("launch authorization", error);
        }
    }
}

/// What can be judged without AWS.
fn offline(class: &ResolvedNodeClass<'_>, findings: &Findings) -> Option<Verdict> {
    if class.family.is_windows() || class.family == AmiFamily::Bottlerocket {
        let message = format!("the AMI family {} is not supported by this controller yet", class.family.as_str());
        return Some(Verdict::no("UnsupportedAMIFamily", message));
    }
    if let Some(problem) = class.kubelet.problem(class.family) {
        return Some(Verdict::no(problem.reason, problem.message));
    }
    let dependencies = DEPENDENCIES.map(|condition| findings.verdict_on(condition));
    let message = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";
    if dependencies.iter().any(|verdict| matches!(verdict, Verdict::False(..))) {
        return Some(Verdict::no("DependenciesNotReady", message));
    }
    let unknown = dependencies.iter().any(|verdict| matches!(verdict, Verdict::Unknown(..)));
    unknown.then(|| Verdict::Unknown("DependenciesNotReady".to_owned(), message.to_owned()))
}

/// Everything the outcome depends on; annotations too, so that touching one asks for a new check (quirk Q8).
fn fingerprint(node_class: &Ec2NodeClass, class: &ResolvedNodeClass<'_>) -> String {
    let status = class.status;
    let facts = serde_json::json!([
        status.subnets,
        status.security_groups,
        status.amis,
        status.instance_profile,
        node_class.spec,
        node_class.metadata.annotations,
    ]);
    Sha256::digest(facts.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn dry_run(
    cloud: &AwsCloud,
    class: &ResolvedNodeClass<'_>,
    context: &NodeClassContext,
    tags: std::collections::BTreeMap<String, String>,
) -> Outcome {
    let types = match cloud.resolver.instance_types(class, &cloud.pricing, &cloud.unavailable) {
        Ok(types) => types,
        Err(error) => return Outcome::Undecided(None, error.into()),
    };
    let pools: Vec<Requirements> = context.node_pools.iter().map(|pool| pool_requirements(pool)).collect();
    let Some((instance_type, image_id)) = representative(class, &types, &pools) else {
        return Outcome::Undecided(None, "no instance type runs any of the images".into());
    };
    let max_pods = u32::try_from(instance_type.capacity.get(PODS).value()).unwrap_or(0);
    let group = TemplateGroup { image_id, max_pods, efas: 0 };
    let facts = ClaimFacts { tags: tags.clone(), ..ClaimFacts::default() };
    let prepared = template(cloud, class, &facts, &group, CapacityType::OnDemand, tenancy(&pools)).await;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(CloudError::NodeClassNotReady(message)) => {
            return Outcome::Refused(Verdict::no("UserDataInvalid", message));
        }
        Err(error) => return Outcome::Undecided(None, error.into()),
    };
    let name = match cloud.templates.ensure(&prepared).await {
        Ok(name) => name,
        Err(error) if error.meaning() == Meaning::UserDataTooLarge => {
            let reason = failure_reason(&error.to_string());
            let message =
                format!("ec2:CreateLaunchTemplate rejected the rendered user data as too large: {}", reason.message);
            return Outcome::Refused(Verdict::no("UserDataSizeLimitExceeded", message));
        }
        Err(error) => return judge("CreateLaunchTemplate", error),
    };
    if let Err(error) = create_fleet(cloud, class, &instance_type.name, &name, &tags).await {
        return judge("CreateFleet", error);
    }
    match run_instances(cloud, class, &instance_type.name, &name, &tags).await {
        Ok(()) => Outcome::Passed,
        Err(error) if error.meaning() == Meaning::InstanceProfileMissing => {
            // A profile that the controller has just made may take a moment to be seen; only a foreign one is missing.
            let verdict = class.spec.instance_profile.as_ref().map(|profile| {
                Verdict::no("InstanceProfileNotFound", format!("Instance profile \"{profile}\" not found"))
            });
            Outcome::Undecided(verdict, error.into())
        }
        Err(error) => judge("RunInstances", error),
    }
}

fn judge(action: &str, error: AwsError) -> Outcome {
    if error.meaning() != Meaning::Unauthorized {
        return Outcome::Undecided(None, error.into());
    }
    let message = failure_reason(&error.to_string()).message;
    let message = format!("Controller isn't authorized to call ec2:{action}: {message}");
    Outcome::Refused(Verdict::no(&format!("{action}AuthCheckFailed"), message))
}

/// What a NodePool's nodes must be.
fn pool_requirements(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut requirements = Requirements::from_api(&template.spec.requirements);
    for (key, value) in template.labels() {
        requirements.add(Requirement::equals(key, value.as_str()));
    }
    requirements
}

/// A type that the pools would launch, with its image; one without accelerators if there is any.
fn representative<'a>(
    class: &ResolvedNodeClass<'_>,
    types: &'a [Arc<InstanceType>],
    pools: &[Requirements],
) -> Option<(&'a Arc<InstanceType>, String)> {
    let runnable: Vec<(&Arc<InstanceType>, String)> = types
        .iter()
        .filter_map(|instance_type| Some((instance_type, class.image_for(&instance_type.requirements)?.to_owned())))
        .collect();
    let plain = |instance_type: &InstanceType| {
        instance_type.requirements.forbids(labels::INSTANCE_GPU_COUNT_LABEL)
            && instance_type.requirements.forbids(labels::INSTANCE_ACCELERATOR_COUNT_LABEL)
    };
    let wanted = |instance_type: &InstanceType| pools.iter().any(|pool| pool.intersects(&instance_type.requirements));
    let preferences: [&dyn Fn(&InstanceType) -> bool; 4] = [
        &|instance_type| wanted(instance_type) && plain(instance_type),
        &wanted,
        &|instance_type| FALLBACK_TYPES.contains(&instance_type.name.as_str()),
        &|_| true,
    ];
    let first = |preference: &&dyn Fn(&InstanceType) -> bool| {
        runnable.iter().find(|(instance_type, _)| preference(instance_type)).cloned()
    };
    preferences.iter().find_map(first)
}

/// `default`, unless every pool allows only dedicated machines.
fn tenancy(pools: &[Requirements]) -> &'static str {
    let dedicated = |pool: &Requirements| !pool.allows(labels::INSTANCE_TENANCY_LABEL, "default");
    if !pools.is_empty() && pools.iter().all(dedicated) { "dedicated" } else { "default" }
}

/// A dry run must not be repeated by the SDK: the answer it hopes for is an error.
fn once() -> aws_sdk_ec2::config::Builder {
    aws_sdk_ec2::config::Builder::new().retry_config(RetryConfig::disabled())
}

fn passed<T>(result: Result<T, AwsError>) -> Result<(), AwsError> {
    match result {
        Err(error) if error.meaning() != Meaning::DryRunPassed => Err(error),
        _ => Ok(()),
    }
}

fn tag_specifications(
    tags: &std::collections::BTreeMap<String, String>,
    kinds: [sdk::ResourceType; 3],
) -> Vec<sdk::TagSpecification> {
    let specification =
        |kind| sdk::TagSpecification::builder().resource_type(kind).set_tags(Some(sdk_tags(tags))).build();
    kinds.map(specification).to_vec()
}

async fn create_fleet(
    cloud: &AwsCloud,
    class: &ResolvedNodeClass<'_>,
    instance_type: &str,
    template: &str,
    tags: &std::collections::BTreeMap<String, String>,
) -> Result<(), AwsError> {
    let overrides = class.status.subnets.iter().map(|subnet| {
        sdk::FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(sdk::InstanceType::from(instance_type))
            .subnet_id(&subnet.id)
            .build()
    });
    let config = sdk::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(
            sdk::FleetLaunchTemplateSpecificationRequest::builder()
                .launch_template_name(template)
                .version("$Latest")
                .build(),
        )
        .set_overrides(Some(overrides.collect()))
        .build();
    let capacity = sdk::TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(1)
        .default_target_capacity_type(sdk::DefaultTargetCapacityType::OnDemand)
        .build();
    let strategy = sdk::OnDemandOptionsRequest::builder()
        .allocation_strategy(sdk::FleetOnDemandAllocationStrategy::LowestPrice)
        .build();
    let kinds = [sdk::ResourceType::Instance, sdk::ResourceType::Volume, sdk::ResourceType::Fleet];
    let request = cloud
        .clients
        .ec2
        .create_fleet()
        .dry_run(true)
        .r#type(sdk::FleetType::Instant)
        .launch_template_configs(config)
        .target_capacity_specification(capacity)
        .on_demand_options(strategy)
        .set_tag_specifications(Some(tag_specifications(tags, kinds)));
    let answer = request.customize().config_override(once()).send().await;
    passed(answer.map_err(|error| AwsError::new("EC2", "CreateFleet", error)))
}

/// Tries each subnet until one passes; the first subnet's error counts.
async fn run_instances(
    cloud: &AwsCloud,
    class: &ResolvedNodeClass<'_>,
    instance_type: &str,
    template: &str,
    tags: &std::collections::BTreeMap<String, String>,
) -> Result<(), AwsError> {
    let kinds = [sdk::ResourceType::Instance, sdk::ResourceType::Volume, sdk::ResourceType::NetworkInterface];
    let mut first_error = None;
    for subnet in &class.status.subnets {
        let template = sdk::LaunchTemplateSpecification::builder().launch_template_name(template).version("$Latest");
        let request = cloud
            .clients
            .ec2
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .launch_template(template.build())
            .instance_type(sdk::InstanceType::from(instance_type))
            .set_network_interfaces(Some(interfaces(class, &subnet.id)))
            .set_tag_specifications(Some(tag_specifications(tags, kinds.clone())));
        let answer = request.customize().config_override(once()).send().await;
        match passed(answer.map_err(|error| AwsError::new("EC2", "RunInstances", error))) {
            Ok(()) => return Ok(()),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(()), Err)
}

fn interfaces(class: &ResolvedNodeClass<'_>, subnet_id: &str) -> Vec<sdk::InstanceNetworkInterfaceSpecification> {
    let own = class.spec.network_interfaces.as_deref().unwrap_or_default();
    if own.is_empty() {
        let only = sdk::InstanceNetworkInterfaceSpecification::builder().device_index(0).subnet_id(subnet_id);
        return vec![only.build()];
    }
    let interface = |own: &controller_api::NetworkInterface| {
        sdk::InstanceNetworkInterfaceSpecification::builder()
            .network_card_index(own.network_card_index)
            .device_index(own.device_index)
            .interface_type(own.interface_type.as_str())
            .subnet_id(subnet_id)
            .build()
    };
    own.iter().map(interface).collect()
}
