//! The chronicle of a scenario on the embedded backend, against what is known of the scenario from elsewhere: its own
//! sentences, the pace and the prices of fake-ec2, and the journal.

use e2e::chronicle::{InstancePhase, Lane, NodeClaimPhase, NodePhase, Phase, PodPhase, Stage};
use e2e::features::{self, Scenario};
use e2e::runner::{self, Options, Progress};
use e2e::verdict::{ScenarioResult, Verdict};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The fourth step waits for a minute, the sixth gives notice.
const FEATURE: &str = "Feature: F
  Scenario: A notice after a quiet minute
    Given a cluster set up as the guides describe
    And the manifest \"ec2-node-class.yaml\" is applied
    And the manifest \"node-pool.yaml\" is applied
    And the manifest \"nginx.yaml\" is applied
    And all 10 pods of Deployment \"nginx\" are Running within 3m
    When 1m passes
    And a spot interruption notice arrives for the instance
    Then all 10 pods of Deployment \"nginx\" are Running on another node within 120s of the notice
";
const PASSES: usize = 5;
const NOTICE: usize = 6;

fn scenario() -> (PathBuf, Scenario) {
    let folder = std::env::temp_dir().join(format!("trysquare-chronicle-{}", std::process::id()));
    let manifests = Path::new("../features/manifests");
    std::fs::create_dir_all(folder.join("manifests")).unwrap();
    for name in ["ec2-node-class.yaml", "node-pool.yaml", "nginx.yaml"] {
        std::fs::copy(manifests.join(name), folder.join("manifests").join(name)).unwrap();
    }
    let path = folder.join("x.feature");
    std::fs::write(&path, FEATURE).unwrap();
    let scenario = features::load(&[path]).unwrap().remove(0);
    (folder, scenario)
}

fn run(scenario: &Scenario) -> ScenarioResult {
    struct Silent;
    impl Progress for Silent {
        fn ended(&self, _: &ScenarioResult) {}
    }
    let options = Options::usual(PathBuf::from(env!("CARGO_BIN_EXE_trysquare")));
    runner::run(std::slice::from_ref(scenario), &options, &Silent).unwrap().remove(0)
}

fn phases<F, P: Phase>(lane: &Lane<F, P>) -> Vec<P> {
    lane.phases.iter().map(|entered| entered.phase).collect()
}

#[track_caller]
fn entered_ms<F, P: Phase>(lane: &Lane<F, P>, phase: P) -> u64 {
    let found = lane.phases.iter().find(|entered| entered.phase == phase);
    found.unwrap_or_else(|| panic!("{} never was {phase:?}: {:?}", lane.name, lane.phases)).at_ms
}

#[test]
fn a_notice_is_told_with_every_life_it_touches() {
    let (folder, scenario) = scenario();
    let result = run(&scenario);
    let again = run(&scenario);
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(result.verdict, Verdict::Passed);
    let chronicle = result.chronicle;
    assert_eq!(chronicle, again.chronicle, "the same seed gives the same chronicle");
    assert_eq!(chronicle.left_out.len(), 0);
    assert_eq!(chronicle.began_at.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(chronicle.ended_ms, (result.virtual_s * 1e3).round() as u64);

    let steps = &chronicle.steps;
    assert_eq!(steps.len(), 8);
    assert_eq!(steps[PASSES].ended_ms - steps[PASSES].began_ms, 60_000);
    assert!(steps.windows(2).all(|pair| pair[0].ended_ms == pair[1].began_ms), "{steps:?}");
    let notice_ms = steps[NOTICE].began_ms;

    // Ten pods that ran when the notice came, and ten in their place.
    let nginx: Vec<_> = chronicle.pods.lanes.iter().filter(|lane| lane.group == "Deployment nginx").collect();
    let (old, new) = nginx.split_at(10);
    assert_eq!(new.len(), 10);
    use PodPhase::{Bound, Evicted, Gone, Pending, Running};
    for pod in old {
        assert_eq!(phases(pod), [Pending, Bound, Running, Evicted, Gone], "{}", pod.name);
        assert!(entered_ms(pod, Running) <= steps[PASSES].began_ms);
        assert!(entered_ms(pod, Evicted) >= notice_ms);
    }
    for pod in new {
        assert_eq!(phases(pod), [Pending, Bound, Running], "{}", pod.name);
        assert!((notice_ms..=steps[7].ended_ms).contains(&entered_ms(pod, Running)));
    }
    // Two DaemonSets of the stage on two nodes.
    assert_eq!(chronicle.pods.seen, 24);

    let [first, second] = chronicle.node_claims.lanes.as_slice() else { panic!("{:?}", chronicle.node_claims) };
    use NodeClaimPhase as Claim;
    let whole =
        [Claim::Created, Claim::Launched, Claim::Registered, Claim::Initialized, Claim::Terminating, Claim::Gone];
    assert_eq!(phases(first), whole);
    assert_eq!(phases(second), whole[..4]);
    assert_eq!((first.facts.reason.as_deref(), second.facts.reason.as_deref()), (Some("SpotInterrupted"), None));
    assert_eq!(first.group, "default");

    let [gone, ready] = chronicle.nodes.lanes.as_slice() else { panic!("{:?}", chronicle.nodes) };
    assert_eq!(Some(&gone.name), first.facts.node.as_ref());
    assert_eq!((phases(gone).first(), phases(gone).last()), (Some(&NodePhase::Joined), Some(&NodePhase::Gone)));
    assert_eq!(phases(ready), [NodePhase::Joined, NodePhase::Ready]);
    assert!(old.iter().all(|pod| pod.facts.node.as_ref() == Some(&gone.name)));

    // The pace at which fake-ec2 boots and ends instances, and what it sells them for.
    let ec2 = fake_ec2::Config { region: "us-west-2".into(), seed: 1, ..Default::default() };
    let pace = ec2.pace.clone();
    let clock = controller_clock::Clock::virtual_from(chronicle.began_at);
    let cloud = fake_ec2::FakeEc2::new(ec2, clock).cloud();
    let [interrupted, running] = chronicle.instances.lanes.as_slice() else { panic!("{:?}", chronicle.instances) };
    use InstancePhase as Instance;
    let whole = [Instance::Pending, Instance::Running, Instance::Notice, Instance::ShuttingDown, Instance::Terminated];
    assert_eq!(phases(interrupted), whole);
    assert_eq!(phases(running), whole[..2]);
    assert_eq!(entered_ms(interrupted, Instance::Notice), notice_ms);
    let lasts = |from, to| u128::from(entered_ms(interrupted, to) - entered_ms(interrupted, from));
    assert_eq!(lasts(Instance::Pending, Instance::Running), pace.pending.as_millis());
    assert_eq!(lasts(Instance::ShuttingDown, Instance::Terminated), pace.shutting_down.as_millis());
    assert_eq!(interrupted.facts.state_reason.as_deref(), Some("Client.UserInitiatedShutdown"));
    let mut total_usd = 0.0;
    for instance in [interrupted, running] {
        let facts = &instance.facts;
        assert_eq!(facts.capacity_type, "spot");
        let price = cloud.spot_price(&facts.instance_type, &facts.zone).unwrap();
        assert_eq!(facts.usd_per_hour, Some(price));
        let ended = instance.phases.iter().find(|entered| entered.phase.stage() == Stage::Ending);
        let until_ms = ended.map_or(chronicle.ended_ms, |entered| entered.at_ms);
        total_usd += price * (until_ms - entered_ms(instance, Instance::Running)) as f64 / 3.6e6;
    }
    assert!((chronicle.cost.total_usd - total_usd).abs() < 1e-6, "{} and {total_usd}", chronicle.cost.total_usd);
    let live_after = chronicle.cost.steps.last().map(|step| Some(step.usd_per_hour));
    assert_eq!(live_after, Some(running.facts.usd_per_hour));

    let evicted: BTreeSet<&str> = chronicle.evictions.iter().map(|eviction| eviction.pod.as_str()).collect();
    assert_eq!(evicted, old.iter().map(|pod| pod.name.as_str()).collect());
    assert!(chronicle.evictions.iter().all(|eviction| eviction.caller == "karpenter" && eviction.evicted_ms.is_some()));

    let calls = |action: &str| -> Vec<&str> {
        let of_action = chronicle.calls.iter().filter(|call| call.action == action);
        of_action.flat_map(|call| call.objects.iter().map(String::as_str)).collect()
    };
    assert_eq!(calls("ec2:CreateFleet"), [interrupted.name.as_str(), running.name.as_str()]);
    assert_eq!(calls("ec2:TerminateInstances"), [interrupted.name.as_str()]);
    let reads = chronicle.calls.iter().filter(|call| call.action.contains(":Describe")).count();
    assert!(reads == 0 && result.journal.calls["ec2:DescribeInstances"] > 0);

    let told = chronicle.events.iter().any(|event| {
        event.reason == "SpotInterrupted"
            && event.object == format!("NodeClaim/{}", first.name)
            && event.at_ms >= notice_ms
    });
    assert!(told, "{:?}", chronicle.events);
    assert!(chronicle.events.iter().all(|event| event.reason != "Scheduled"), "the scheduler's events are not ours");
}
