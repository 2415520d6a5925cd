//! The CreateFleet request, and reading an answer that may hold instances and failures at once (spec §4.4, §2.4.1). Pure.

use crate::error::Meaning;
use crate::launch_template::sdk_tags;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::operation::create_fleet::{CreateFleetInput, CreateFleetOutput};
use aws_sdk_ec2::types::{
    DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType, InstanceType,
    OnDemandOptionsRequest, ResourceType, SpotAllocationStrategy, SpotOptionsRequest, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use controller_core::catalog::CapacityType;
use std::collections::BTreeMap;

/// One launch. Equal requests are merged into one call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetRequest {
    pub(crate) capacity_type: CapacityType,
    pub(crate) context: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Whether prices were set by hand, so that their order counts and not EC2's.
    pub(crate) prioritized: bool,
    pub(crate) configs: Vec<FleetConfig>,
}

/// A launch template with the ways of using it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetConfig {
    pub(crate) template: String,
    pub(crate) overrides: Vec<Override>,
}

/// One way: a type in a subnet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) instance_type: String,
    pub(crate) subnet_id: String,
    pub(crate) image_id: String,
    pub(crate) zone: String,
    pub(crate) price: f64,
}

impl FleetRequest {
    /// Identifies equal requests.
    pub(crate) fn key(&self) -> String {
        format!("{self:?}")
    }

    /// The request for `count` instances.
    pub(crate) fn to_input(&self, count: i32) -> CreateFleetInputBuilder {
        let spot = self.capacity_type == CapacityType::Spot;
        let capacity = TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(count)
            .default_target_capacity_type(if spot {
                DefaultTargetCapacityType::Spot
            } else {
                DefaultTargetCapacityType::OnDemand
            })
            .build();
        let spot_strategy = match self.prioritized {
            true => SpotAllocationStrategy::CapacityOptimizedPrioritized,
            false => SpotAllocationStrategy::PriceCapacityOptimized,
        };
        let on_demand_strategy = match self.prioritized {
            true => FleetOnDemandAllocationStrategy::Prioritized,
            false => FleetOnDemandAllocationStrategy::LowestPrice,
        };
        let tags = [ResourceType::Instance, ResourceType::Volume, ResourceType::Fleet]
            .map(|kind| TagSpecification::builder().resource_type(kind).set_tags(Some(sdk_tags(&self.tags))).build());
        CreateFleetInput::builder()
            .r#type(FleetType::Instant)
            .set_context(self.context.clone())
            .target_capacity_specification(capacity)
            .set_spot_options(spot.then(|| SpotOptionsRequest::builder().allocation_strategy(spot_strategy).build()))
            .set_on_demand_options(
                (!spot).then(|| OnDemandOptionsRequest::builder().allocation_strategy(on_demand_strategy).build()),
            )
            .set_tag_specifications(Some(tags.to_vec()))
            .set_launch_template_configs(Some(self.configs.iter().map(FleetConfig::to_request).collect()))
    }
}

impl FleetConfig {
    fn to_request(&self) -> FleetLaunchTemplateConfigRequest {
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_name(&self.template)
            .version("$Latest")
            .build();
        let overrides = self.overrides.iter().map(|choice| {
            FleetLaunchTemplateOverridesRequest::builder()
                .instance_type(InstanceType::from(choice.instance_type.as_str()))
                .subnet_id(&choice.subnet_id)
                .image_id(&choice.image_id)
                .availability_zone(&choice.zone)
                .priority(choice.price)
                .build()
        });
        FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(template)
            .set_overrides(Some(overrides.collect()))
            .build()
    }
}

/// One instance that was launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) instance_id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) image_id: String,
    pub(crate) subnet_id: String,
}

/// One way that did not work. What it was is empty where the answer does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) subnet_id: String,
}

impl FleetError {
    pub(crate) fn meaning(&self) -> Meaning {
        crate::error::meaning(&self.code, &self.message, 200)
    }
}

/// What one of the merged requests got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetShare {
    pub(crate) launched: Option<Launched>,
    pub(crate) errors: Vec<FleetError>,
}

/// Deals the answer out to `count` requests: instances in order, all failures to each. Instances beyond that are nobody's;
/// garbage collection ends them.
pub(crate) fn deal(answer: &CreateFleetOutput, count: usize) -> Vec<FleetShare> {
    let mut launched = launched(answer).into_iter();
    let mut errors = errors(answer);
    let taken: Vec<Option<Launched>> = (0..count).map(|_| launched.next()).collect();
    if taken.iter().any(Option::is_none) && errors.is_empty() {
        // EC2 should say why. Without a reason this is a failure to be tried again, not a lack of capacity (quirks Q23, Q24).
        let text = "too few instances returned".to_owned();
        errors.push(FleetError { code: text.clone(), message: text, ..FleetError::default() });
    }
    let surplus = launched.count();
    if surplus > 0 {
        tracing::error!(surplus, "more instances were launched than asked for");
    }
    taken.into_iter().map(|launched| FleetShare { launched, errors: errors.clone() }).collect()
}

fn launched(answer: &CreateFleetOutput) -> Vec<Launched> {
    let mut all = Vec::new();
    for item in answer.instances() {
        let choice = item.launch_template_and_overrides().and_then(|used| used.overrides());
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        let of_item = item.instance_type().or(choice.and_then(|choice| choice.instance_type()));
        let common = Launched {
            instance_id: String::new(),
            instance_type: text(of_item.map(InstanceType::as_str)),
            zone: text(choice.and_then(|choice| choice.availability_zone()).or(item.availability_zone())),
            image_id: text(choice.and_then(|choice| choice.image_id())),
            subnet_id: text(choice.and_then(|choice| choice.subnet_id()).or(item.subnet_id())),
        };
        all.extend(item.instance_ids().iter().map(|id| Launched { instance_id: id.clone(), ..common.clone() }));
    }
    all
}

fn errors(answer: &CreateFleetOutput) -> Vec<FleetError> {
    let read = |error: &aws_sdk_ec2::types::CreateFleetError| {
        let choice = error.launch_template_and_overrides().and_then(|used| used.overrides());
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        FleetError {
            code: text(error.error_code()),
            message: text(error.error_message()),
            instance_type: text(choice.and_then(|choice| choice.instance_type()).map(InstanceType::as_str)),
            zone: text(choice.and_then(|choice| choice.availability_zone())),
            subnet_id: text(choice.and_then(|choice| choice.subnet_id())),
        }
    };
    answer.errors().iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::types::{
        CreateFleetError, CreateFleetInstance, FleetLaunchTemplateOverrides, LaunchTemplateAndOverridesResponse,
    };

    fn used(instance_type: &str, zone: &str) -> LaunchTemplateAndOverridesResponse {
        let overrides = FleetLaunchTemplateOverrides::builder()
            .instance_type(InstanceType::from(instance_type))
            .availability_zone(zone)
            .subnet_id("subnet-a")
            .image_id("ami-1")
            .build();
        LaunchTemplateAndOverridesResponse::builder().overrides(overrides).build()
    }

    fn instances(ids: &[&str]) -> CreateFleetInstance {
        CreateFleetInstance::builder()
            .set_instance_ids(Some(ids.iter().map(|id| (*id).to_owned()).collect()))
            .instance_type(InstanceType::from("m5.large"))
            .launch_template_and_overrides(used("m5.large", "us-west-2a"))
            .build()
    }

    fn no_capacity() -> CreateFleetError {
        CreateFleetError::builder()
            .error_code("InsufficientInstanceCapacity")
            .error_message("no capacity")
            .launch_template_and_overrides(used("m5.xlarge", "us-west-2b"))
            .build()
    }

    fn ids(shares: &[FleetShare]) -> Vec<Option<&str>> {
        shares.iter().map(|share| share.launched.as_ref().map(|launched| launched.instance_id.as_str())).collect()
    }

    #[test]
    fn instances_are_dealt_out_in_order_and_failures_go_to_everybody() {
        let answer = CreateFleetOutput::builder()
            .instances(instances(&["i-1", "i-2"]))
            .instances(instances(&["i-3"]))
            .errors(no_capacity())
            .build();
        let shares = deal(&answer, 4);
        assert_eq!(ids(&shares), [Some("i-1"), Some("i-2"), Some("i-3"), None]);
        let expected = FleetError {
            code: "InsufficientInstanceCapacity".to_owned(),
            message: "no capacity".to_owned(),
            instance_type: "m5.xlarge".to_owned(),
            zone: "us-west-2b".to_owned(),
            subnet_id: "subnet-a".to_owned(),
        };
        assert!(shares.iter().all(|share| share.errors == [expected.clone()]));
        let launched = shares[0].launched.as_ref().unwrap();
        assert_eq!((launched.zone.as_str(), launched.image_id.as_str()), ("us-west-2a", "ami-1"));
    }

    #[test]
    fn too_few_instances_without_a_reason_are_a_failure_to_try_again() {
        let answer = CreateFleetOutput::builder().instances(instances(&["i-1"])).build();
        let shares = deal(&answer, 2);
        assert_eq!(ids(&shares), [Some("i-1"), None]);
        assert_eq!(shares[1].errors[0].code, "too few instances returned");
        assert_eq!(shares[1].errors[0].meaning(), Meaning::Other, "not a lack of capacity");
        let nothing = deal(&CreateFleetOutput::builder().build(), 1);
        assert_eq!((ids(&nothing), nothing[0].errors.len()), (vec![None], 1));
    }

    #[test]
    fn answers_without_overrides_are_read_all_the_same() {
        let bare = CreateFleetError::builder().error_code("InsufficientInstanceCapacity").build();
        let shares = deal(&CreateFleetOutput::builder().errors(bare).build(), 1);
        assert_eq!(shares[0].errors[0].instance_type, "");
    }
}
