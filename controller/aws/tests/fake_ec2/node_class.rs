//! What a class resolves to: status, conditions, near misses, instance profile, dry runs, finalisation.

use crate::support::{Scene, conditions, node_class, pass};
use controller_aws::{NearMissResource, NodeClassContext};
use fake_ec2::{ApiError, FaultRule};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_class_with_everything_in_place_becomes_ready() {
    let scene = Scene::new().await;
    let before = scene.journal_len();
    let mut class = node_class(json!({}));
    let resolution = scene.resolve(&mut class).await;
    assert!(resolution.failures.is_empty(), "{:?}", resolution.failures);
    let all = conditions(&class);
    assert!(all.values().all(|status| status == "True"), "{all:#?}");
    let status = class.status.as_ref().unwrap();
    let mut subnets: Vec<&str> = status.subnets.iter().map(|subnet| subnet.zone.as_str()).collect();
    subnets.sort();
    assert_eq!(subnets, ["us-west-2a", "us-west-2b", "us-west-2c"]);
    assert!(status.subnets.iter().all(|subnet| subnet.zone_id.starts_with("usw2-az")));
    assert_eq!(status.security_groups[0].id, scene.made.security_group_id);
    assert_eq!(status.amis.len(), 5, "{:#?}", status.amis);
    assert!(status.instance_profile.starts_with("demo_"));
    assert_eq!(
        scene.trace(before),
        [
            "GetParameter ×5",
            "DescribeImages",
            "DescribeSubnets",
            "DescribeSecurityGroups",
            "CreateInstanceProfile",
            "AddRoleToInstanceProfile",
            "DescribeCluster",
            "DescribeLaunchTemplates!InvalidLaunchTemplateName.NotFoundException",
            "CreateLaunchTemplate",
            "CreateFleet!DryRunOperation",
            "RunInstances!DryRunOperation",
        ]
    );
    assert_eq!(resolution.requeue_after.as_secs(), 60);

    let before = scene.journal_len();
    scene.resolve(&mut class).await;
    assert_eq!(scene.trace(before), [""; 0], "everything is remembered for a while");
    pass(61).await;
    scene.resolve(&mut class).await;
    assert_eq!(scene.trace(before), ["DescribeImages", "DescribeSubnets", "DescribeSecurityGroups"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_discovery_tag_is_named_with_what_nearly_matched() {
    let scene = Scene::new().await;
    for subnet in &scene.made.subnet_ids[1..] {
        scene.ec2.cloud().set_tags(subnet, [("karpenter.sh/discovery", "other")]).unwrap();
    }
    scene.ec2.cloud().remove_tag(&scene.made.subnet_ids[0], "karpenter.sh/discovery").unwrap();
    let mut class = node_class(json!({"securityGroupSelectorTerms": [{"tags": {"nobody": "has this"}}]}));
    let resolution = scene.resolve(&mut class).await;
    let all = conditions(&class);
    assert_eq!(all["SubnetsReady"], "False SubnetsNotFound: SubnetSelector did not match any Subnets");
    assert_eq!(
        all["SecurityGroupsReady"],
        "False SecurityGroupsNotFound: SecurityGroupSelector did not match any SecurityGroups"
    );
    assert_eq!(
        all["ValidationSucceeded"],
        "False DependenciesNotReady: Awaiting AMI, Instance Profile, Security Group, and Subnet resolution"
    );
    assert!(all["Ready"].starts_with("False UnhealthyDependents"), "{}", all["Ready"]);
    let texts: Vec<String> = resolution.near_misses.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "no subnet matches karpenter.sh/discovery=demo, but 2 subnets with karpenter.sh/discovery=other",
            "no security group carries the tag key \"nobody\"",
        ]
    );
    assert_eq!(resolution.near_misses[0].resource, NearMissResource::Subnets);
    assert_eq!(resolution.requeue_after.as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_tag_put_back_makes_the_class_ready_at_the_next_look() {
    let scene = Scene::new().await;
    for subnet in &scene.made.subnet_ids {
        scene.ec2.cloud().remove_tag(subnet, "karpenter.sh/discovery").unwrap();
    }
    let mut class = node_class(json!({}));
    scene.resolve(&mut class).await;
    assert!(conditions(&class)["Ready"].starts_with("False"));
    for subnet in &scene.made.subnet_ids {
        scene.ec2.cloud().set_tags(subnet, [("karpenter.sh/discovery", "demo")]).unwrap();
    }
    scene.resolve(&mut class).await;
    assert_eq!(conditions(&class)["Ready"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named_and_remembered_until_something_changes() {
    let scene = Scene::new().await;
    for (action, reason) in
        [("CreateFleet", "CreateFleetAuthCheckFailed"), ("RunInstances", "RunInstancesAuthCheckFailed")]
    {
        let fault = scene.ec2.cloud().fault(FaultRule::unauthorized(action));
        let mut class = node_class(json!({"tags": {"try": action}}));
        scene.resolve(&mut class).await;
        let expected = format!(
            "False {reason}: Controller isn't authorized to call ec2:{action}: User is not authorized to perform this \
             operation because no identity-based policy allows it"
        );
        assert_eq!(conditions(&class)["ValidationSucceeded"], expected);
        scene.ec2.cloud().remove_fault(fault);
        scene.resolve(&mut class).await;
        assert_eq!(conditions(&class)["ValidationSucceeded"], expected, "remembered");
        class.metadata.annotations = Some([("touched".to_owned(), "1".to_owned())].into());
        scene.resolve(&mut class).await;
        assert_eq!(conditions(&class)["ValidationSucceeded"], "True", "an annotation asks for a new check");
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_that_passes_changes_no_condition_and_is_reported_for_retry() {
    let scene = Scene::new().await;
    let mut class = scene.ready_class().await;
    pass(61).await;
    scene.ec2.cloud().fault(FaultRule::throttled("DescribeSubnets"));
    scene.ec2.cloud().fault(FaultRule::error("GetInstanceProfile", ApiError::new(500, "ServiceFailure", "no")));
    pass(15 * 60).await;
    let resolution = scene.resolve(&mut class).await;
    let steps: Vec<&str> = resolution.failures.iter().map(|failure| failure.step).collect();
    assert_eq!(steps, ["subnets", "instance profile"]);
    assert_eq!(conditions(&class)["Ready"], "True");
    assert_eq!(class.status.as_ref().unwrap().subnets.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_parameter_that_fails_does_not_drop_a_variant() {
    let scene = Scene::new().await;
    scene.ec2.cloud().fault(
        FaultRule::error("GetParameter", ApiError::new(500, "InternalServerError", "no"))
            .calls(fake_ec2::Calls::After(2)),
    );
    let mut class = node_class(json!({}));
    let resolution = scene.resolve(&mut class).await;
    assert_eq!(resolution.failures[0].step, "amis");
    assert!(class.status.as_ref().unwrap().amis.is_empty());
    assert!(conditions(&class)["AMIsReady"].starts_with("Unknown"), "{:?}", conditions(&class));
}

#[tokio::test(start_paused = true)]
async fn families_and_selectors_of_later_stages_are_refused_in_words() {
    let scene = Scene::new().await;
    let ready = async |spec: serde_json::Value, condition: &str| {
        let mut class = node_class(spec);
        scene.resolve(&mut class).await;
        conditions(&class)[condition].clone()
    };
    let windows = json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]});
    assert!(ready(windows, "AMIsReady").await.starts_with("False UnsupportedAlias"));
    let placement = json!({"placementGroupSelector": {"name": "group"}});
    assert!(ready(placement, "PlacementGroupReady").await.starts_with("False PlacementGroupResolutionFailed"));
    let kubelet = json!({"kubelet": {"maxPod": 3}});
    assert!(
        ready(kubelet, "ValidationSucceeded").await.starts_with("False InvalidKubeletConfiguration: unknown field")
    );
    let tags = json!({"tags": {"karpenter.sh/nodepool": "mine"}});
    assert_eq!(
        ready(tags, "ValidationSucceeded").await,
        "False TagValidationFailed: tags failed validation requirements, karpenter.sh/nodepool"
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_role_gets_a_new_profile_and_the_old_one_is_collected_later() {
    let scene = Scene::new().await;
    let mut class = scene.ready_class().await;
    let old = class.status.as_ref().unwrap().instance_profile.clone();
    scene.ec2.cloud().add_role("OtherRole");
    class.spec.role = Some("teams/OtherRole".to_owned());
    scene.resolve(&mut class).await;
    let new = class.status.as_ref().unwrap().instance_profile.clone();
    assert_ne!(old, new);
    pass(16 * 60).await;
    scene.resolve(&mut class).await;
    assert_eq!(class.status.as_ref().unwrap().instance_profile, new, "a path in the role makes no new profiles");
    let in_use = [new.clone()].into();
    assert_eq!(scene.cloud.collect_instance_profiles(&in_use).await.unwrap(), [""; 0], "protected for an hour");
    pass(60 * 60).await;
    assert_eq!(scene.cloud.collect_instance_profiles(&in_use).await.unwrap(), [old]);
    let left: Vec<String> = scene.ec2.cloud().instance_profiles().into_iter().map(|profile| profile.name).collect();
    assert_eq!(left, [new]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_role_is_reported_and_not_tried_again_at_once() {
    let scene = Scene::new().await;
    let mut class = node_class(json!({"role": "Nobody"}));
    let resolution = scene.resolve(&mut class).await;
    assert_eq!(resolution.failures[0].step, "instance profile");
    assert!(conditions(&class)["InstanceProfileReady"].starts_with("Unknown"));
    assert!(scene.ec2.cloud().instance_profiles().is_empty(), "nothing stays behind");
    let before = scene.calls("CreateInstanceProfile").len();
    scene.resolve(&mut class).await;
    assert_eq!(scene.calls("CreateInstanceProfile").len(), before);
    scene.ec2.cloud().add_role("Nobody");
    pass(61).await;
    scene.resolve(&mut class).await;
    assert_eq!(conditions(&class)["Ready"], "True");
}

#[tokio::test(start_paused = true)]
async fn finalisation_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    assert_eq!((scene.ec2.cloud().instance_profiles().len(), scene.ec2.cloud().launch_templates().len()), (1, 1));
    scene.cloud.finalize_node_class(&class).await.unwrap();
    assert_eq!((scene.ec2.cloud().instance_profiles().len(), scene.ec2.cloud().launch_templates().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn deprecated_images_give_way_to_their_successors() {
    let scene = Scene::new().await;
    let mut class = scene.ready_class().await;
    let ids = |class: &controller_api::Ec2NodeClass| -> Vec<String> {
        class.status.iter().flat_map(|status| &status.amis).map(|ami| ami.id.clone()).collect()
    };
    let old = ids(&class);
    scene.ec2.cloud().release_images("1.36", "20260201", "1.61.0");
    pass(5 * 60).await;
    scene.resolve(&mut class).await;
    assert_eq!(ids(&class), old, "a parameter is believed for a day");
    for id in &old {
        scene.ec2.cloud().deprecate_image(id).unwrap();
    }
    pass(61).await;
    scene.cloud.refresh_parameters().await.unwrap();
    let context = NodeClassContext::default();
    class.status = Some(scene.cloud.resolve_node_class(&class, &context).await.status);
    assert!(ids(&class).iter().all(|id| !old.contains(id)), "{old:?} {:?}", ids(&class));
}
