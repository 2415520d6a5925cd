//! The transition rules of conditions (core spec §1.7), one test per rule.

use controller_api::conditions::{self, BoundConditions, ObjectFacts};
use controller_api::{Condition, ConditionSet, Ec2NodeClass, HasConditions, NodeClaim, NodePool};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

/// The instant so many seconds after the object's creation.
fn at(seconds: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

fn claim() -> NodeClaim {
    let mut claim = NodeClaim::default();
    claim.metadata.generation = Some(1);
    claim.metadata.creation_timestamp = Some(Time(at(0)));
    claim
}

/// `type=status(reason) @seconds gGeneration` of each condition in stored order; messages are left out.
fn show(conditions: &[Condition]) -> String {
    let line = |condition: &Condition| {
        let Condition { type_, status, reason, last_transition_time, observed_generation, .. } = condition;
        let seconds = last_transition_time.duration_since(at(0)).as_secs();
        format!("{type_}={status}({reason}) @{seconds} g{observed_generation}")
    };
    conditions.iter().map(line).collect::<Vec<_>>().join(" | ")
}

#[test]
fn binding_makes_root_and_dependents_unknown_since_the_objects_creation() {
    let mut claim = claim();
    let changed = claim.bind(at(100)).get("Launched").unwrap().clone();
    assert_eq!(changed.message, "object is awaiting reconciliation");
    assert_eq!(
        show(claim.conditions()),
        "Launched=Unknown(AwaitingReconciliation) @0 g1 | Registered=Unknown(AwaitingReconciliation) @0 g1 | \
         Initialized=Unknown(AwaitingReconciliation) @0 g1 | Ready=Unknown(ReconcilingDependents) @0 g1"
    );
    assert_eq!(claim.condition("Ready").unwrap().message, "Launched=Unknown, Registered=Unknown, Initialized=Unknown");
}

#[test]
fn binding_again_changes_nothing() {
    let mut claim = claim();
    claim.bind(at(0)).set_true("Launched");
    let before = claim.clone();
    claim.bind(at(50));
    assert_eq!(claim, before);
}

#[test]
fn an_object_that_does_not_exist_yet_is_created_now() {
    let mut claim = NodeClaim::default();
    claim.bind(at(7));
    assert_eq!(claim.condition("Launched").unwrap().last_transition_time, at(7));
}

#[test]
fn the_reason_of_true_is_the_type() {
    let mut claim = claim();
    assert!(claim.bind(at(5)).set_true("Launched"));
    let launched = claim.condition("Launched").unwrap();
    assert_eq!((launched.reason.as_str(), launched.message.as_str()), ("Launched", ""));
    assert_eq!(launched.last_transition_time, at(5));
    assert!(claim.is_true(&["Launched"]));
    assert!(!claim.is_true(&["Launched", "Registered"]));
}

#[test]
fn a_condition_that_is_no_dependent_begins_now() {
    let mut claim = claim();
    claim.bind(at(30)).set_true("Consolidatable");
    assert_eq!(claim.condition("Consolidatable").unwrap().last_transition_time, at(30));
}

#[test]
fn the_time_stays_while_the_status_stays() {
    let mut claim = claim();
    claim.bind(at(1)).set_unknown_with_reason("Launched", "LaunchFailed", "no capacity");
    assert_eq!(claim.condition("Launched").unwrap().last_transition_time, at(0));
    claim.bind(at(2)).set_false("Launched", "Denied", "no rights");
    claim.bind(at(3)).set_false("Launched", "Denied", "still no rights");
    let launched = claim.condition("Launched").unwrap();
    assert_eq!((launched.message.as_str(), launched.last_transition_time), ("still no rights", at(2)));
}

#[test]
fn setting_the_same_again_changes_nothing() {
    let mut claim = claim();
    assert!(claim.bind(at(1)).set_true("Launched"));
    assert!(!claim.bind(at(2)).set_true("Launched"));
    assert!(claim.bind(at(2)).set_true_with_reason("Launched", "Adopted", "found running"));
    claim.metadata.generation = Some(2);
    assert!(claim.bind(at(3)).set_true_with_reason("Launched", "Adopted", "found running"));
    let launched = claim.condition("Launched").unwrap();
    assert_eq!((launched.observed_generation, launched.last_transition_time), (2, at(1)));
}

#[test]
fn the_root_is_true_once_every_dependent_is() {
    let mut claim = claim();
    let mut bound = claim.bind(at(1));
    bound.set_true("Launched");
    bound.set_true("Registered");
    assert_eq!(bound.root().message, "Initialized=Unknown");
    bound.set_true("Initialized");
    let root = bound.root();
    assert!(root.is_true());
    assert_eq!((root.reason.as_str(), root.message.as_str()), ("Ready", ""));
}

#[test]
fn one_false_dependent_makes_the_root_false_and_the_newest_is_named_first() {
    let mut claim = claim();
    claim.bind(at(1)).set_true("Launched");
    claim.bind(at(2)).set_false("Registered", "NodeNotFound", "");
    claim.bind(at(3)).set_false("Initialized", "NodeNotReady", "");
    let root = claim.condition("Ready").unwrap();
    assert!(root.is_false());
    assert_eq!(root.reason, "UnhealthyDependents");
    assert_eq!(root.message, "Initialized=False, Registered=False");
}

#[test]
fn an_outdated_dependent_makes_the_root_unknown_even_if_it_was_false() {
    for launched in [true, false] {
        let mut claim = claim();
        let mut bound = claim.bind(at(1));
        bound.set_true("Registered");
        bound.set_true("Initialized");
        match launched {
            true => bound.set_true("Launched"),
            false => bound.set_false("Launched", "Denied", ""),
        };
        claim.metadata.generation = Some(2);
        let mut bound = claim.bind(at(2));
        bound.set_true("Registered");
        bound.set_true("Initialized");
        assert!(bound.root().is_unknown(), "{launched}");
        assert_eq!(bound.root().reason, "ReconcilingDependents");
        assert_eq!(bound.root().message, if launched { "Launched=True" } else { "Launched=False" });
    }
}

#[test]
fn a_condition_outside_the_set_does_not_touch_the_root() {
    let mut claim = claim();
    let mut bound = claim.bind(at(1));
    for type_ in ["Launched", "Registered", "Initialized"] {
        bound.set_true(type_);
    }
    bound.set_false("ConsistentStateFound", "ConsistencyCheckFailed", "too little memory");
    assert!(bound.root().is_true());
}

#[test]
fn conditions_are_stored_by_time_with_the_root_last() {
    let mut claim = claim();
    claim.bind(at(1)).set_true("Initialized");
    claim.bind(at(2)).set_true("Drifted");
    claim.bind(at(3)).set_true("Launched");
    assert_eq!(
        show(claim.conditions()),
        "Registered=Unknown(AwaitingReconciliation) @0 g1 | Initialized=True(Initialized) @1 g1 | \
         Drifted=True(Drifted) @2 g1 | Launched=True(Launched) @3 g1 | Ready=Unknown(ReconcilingDependents) @0 g1"
    );
}

#[test]
fn a_change_during_deletion_brings_every_generation_up_to_date() {
    let mut claim = claim();
    let mut bound = claim.bind(at(1));
    for type_ in ["Launched", "Registered", "Initialized", "Drifted"] {
        bound.set_true(type_);
    }
    claim.metadata.generation = Some(2);
    claim.metadata.deletion_timestamp = Some(Time(at(5)));
    // Nothing is set, nothing moves.
    claim.bind(at(6));
    assert!(claim.conditions().iter().all(|condition| condition.observed_generation == 1));
    claim.bind(at(7)).set_unknown_with_reason("Drained", "Draining", "");
    assert!(claim.conditions().iter().all(|condition| condition.observed_generation == 2));
    assert!(claim.is_true(&["Ready"]));
}

#[test]
fn without_deletion_a_change_leaves_other_generations_alone() {
    let mut claim = claim();
    claim.bind(at(1)).set_true("Launched");
    claim.metadata.generation = Some(2);
    claim.bind(at(2)).set_true("Registered");
    assert_eq!(claim.condition("Launched").unwrap().observed_generation, 1);
}

#[test]
fn clearing_removes_a_condition_and_orders_the_rest_by_type() {
    let mut claim = claim();
    let mut bound = claim.bind(at(1));
    bound.set_true("Drifted");
    bound.set_true("Consolidatable");
    assert_eq!(bound.clear("Drifted"), Ok(true));
    assert_eq!(bound.clear("Drifted"), Ok(false));
    let types: Vec<_> = claim.conditions().iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Consolidatable", "Initialized", "Launched", "Ready", "Registered"]);
    assert_eq!(claim.condition("Drifted"), None);
}

#[test]
fn what_the_root_depends_on_cannot_be_cleared() {
    let mut claim = claim();
    let error = claim.bind(at(1)).clear("Launched").unwrap_err();
    assert_eq!(error.to_string(), "condition Launched cannot be cleared, the root condition depends on it");
    assert!(claim.bind(at(1)).clear("Ready").is_err());
    assert!(claim.condition("Launched").is_some());
}

#[test]
fn each_kind_has_its_dependents() {
    fn dependents<K: HasConditions>() -> &'static [&'static str] {
        K::SET.dependents
    }
    assert_eq!(dependents::<NodeClaim>(), ["Launched", "Registered", "Initialized"]);
    assert_eq!(dependents::<NodePool>(), ["ValidationSucceeded", "NodeClassReady"]);
    assert_eq!(
        dependents::<Ec2NodeClass>(),
        [
            "AMIsReady",
            "SubnetsReady",
            "SecurityGroupsReady",
            "InstanceProfileReady",
            "ValidationSucceeded",
            "PlacementGroupReady",
            "CapacityReservationsReady",
        ]
    );
    let without = conditions::EC2_NODE_CLASS_WITHOUT_RESERVATIONS;
    assert_eq!(without.dependents, &dependents::<Ec2NodeClass>()[..6]);
    let mut class = Ec2NodeClass::default();
    class.bind_to(without, at(0));
    assert_eq!(class.condition("CapacityReservationsReady"), None);
    assert_eq!(class.conditions().len(), 7);
}

#[test]
fn a_pools_registration_health_does_not_decide_its_readiness() {
    let mut pool = NodePool::default();
    let mut bound = pool.bind(at(0));
    bound.set_true("ValidationSucceeded");
    bound.set_true("NodeClassReady");
    bound.set_false("NodeRegistrationHealthy", "RegistrationFailed", "");
    assert!(pool.is_true(&["Ready"]));
}

/// `Unknown` since the beginning and newest first: among equals the stored order stands.
#[test]
fn any_list_can_be_bound_by_hand() {
    let set = ConditionSet { root: "Ready", dependents: &["B", "A"] };
    let object = ObjectFacts { generation: 3, created: at(0), deleting: false };
    let mut conditions = Vec::new();
    BoundConditions::new(set, object, &mut conditions, at(9));
    assert_eq!(conditions::get(&conditions, "Ready").unwrap().message, "B=Unknown, A=Unknown");
}

#[test]
fn times_are_whole_seconds_on_the_wire() {
    let mut claim = claim();
    claim.bind(at(1) + SignedDuration::from_millis(900)).set_true("Launched");
    let launched = claim.condition("Launched").unwrap();
    assert_eq!(
        serde_json::to_value(launched).unwrap(),
        json!({
            "type": "Launched",
            "status": "True",
            "reason": "Launched",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:01Z",
            "observedGeneration": 1,
        })
    );
    let bare: Condition = serde_json::from_value(
        json!({ "type": "Launched", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:01Z" }),
    )
    .unwrap();
    assert_eq!((bare.reason.as_str(), bare.observed_generation), ("", 0));
}
