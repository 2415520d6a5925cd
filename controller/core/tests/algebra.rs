//! The laws of the requirement algebra, as properties.

use controller_core::requirement::{Operator, Requirement};
use controller_core::requirements::{AllowUndefined, Requirements};
use proptest::prelude::*;

const KEY: &str = "example.com/key";
/// Values small and few enough that random sets meet.
const VALUES: [&str; 8] = ["0", "1", "2", "3", "7", "-1", "a", "b"];

fn atom(key: &'static str) -> impl Strategy<Value = Requirement> {
    let values = proptest::sample::subsequence(VALUES.to_vec(), 0..=4);
    let operator = proptest::sample::select(Operator::ALL.to_vec());
    (operator, values, -2i64..9, proptest::option::of(1u32..5)).prop_map(
        move |(operator, values, number, min_values)| {
            let requirement = if operator.is_numeric() {
                Requirement::new(key, operator, [number.to_string()])
            } else {
                Requirement::new(key, operator, values)
            };
            requirement.with_min_values(min_values)
        },
    )
}

/// Whatever up to three operators together allow.
fn requirement() -> impl Strategy<Value = Requirement> {
    proptest::collection::vec(atom(KEY), 1..=3)
        .prop_map(|atoms| atoms.into_iter().reduce(|a, b| a.intersection(&b)).expect("at least one"))
}

fn requirements() -> impl Strategy<Value = Requirements> {
    let keys =
        proptest::sample::subsequence(vec!["example.com/a", "example.com/b", "topology.kubernetes.io/zone"], 0..=3);
    keys.prop_flat_map(|keys| keys.into_iter().map(atom).collect::<Vec<_>>()).prop_map(Requirements::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn intersection_is_commutative(a in requirement(), b in requirement()) {
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
    }

    #[test]
    fn intersection_is_associative(a in requirement(), b in requirement(), c in requirement()) {
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
    }

    #[test]
    fn intersection_is_idempotent(a in requirement()) {
        prop_assert_eq!(a.intersection(&a), a);
    }

    #[test]
    fn a_value_is_in_the_intersection_when_it_is_in_both(a in requirement(), b in requirement()) {
        for value in VALUES.into_iter().chain(["5", "100", "-7", "z"]) {
            prop_assert_eq!(a.intersection(&b).has(value), a.has(value) && b.has(value), "{}", value);
        }
    }

    #[test]
    fn two_requirements_intersect_when_their_intersection_is_not_empty(a in requirement(), b in requirement()) {
        let both = a.intersection(&b);
        prop_assert_eq!(a.intersects(&b), both.operator() != Operator::DoesNotExist);
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
    }

    #[test]
    fn what_any_gives_is_allowed(a in requirement()) {
        match a.any() {
            Some(value) => prop_assert!(a.has(&value), "{} has {}", a, value),
            None => prop_assert!(VALUES.iter().all(|value| a.operator() == Operator::DoesNotExist || !a.has(value))),
        }
    }

    #[test]
    fn serialising_loses_nothing_but_exclusions_beside_bounds(a in requirement()) {
        let back = Requirements::from_api(&a.to_api());
        let back = back.get(KEY).expect("serialised");
        let lossy = a.operator() == Operator::NotIn && a.bounds() != (None, None);
        for value in VALUES {
            prop_assert!(back.has(value) == a.has(value) || (lossy && back.has(value)), "{} {} {}", a, back, value);
        }
        prop_assert_eq!(back.min_values, a.min_values);
    }

    #[test]
    fn adding_requirements_in_any_order_gives_the_same(a in requirements(), b in requirements()) {
        let (mut ab, mut ba) = (a.clone(), b.clone());
        ab.add_all(&b);
        ba.add_all(&a);
        prop_assert_eq!(ab, ba);
    }

    #[test]
    fn the_quick_answers_agree_with_those_that_name_the_clash(a in requirements(), b in requirements()) {
        prop_assert_eq!(a.intersects(&b), a.check_intersects(&b).is_ok());
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
        for allow in [AllowUndefined::None, AllowUndefined::WellKnown] {
            prop_assert_eq!(a.is_compatible(&b, allow), a.compatible(&b, allow).is_ok());
        }
    }

    #[test]
    fn what_is_compatible_without_undefined_labels_is_compatible_with_them(a in requirements(), b in requirements()) {
        prop_assert!(!a.is_compatible(&b, AllowUndefined::None) || a.is_compatible(&b, AllowUndefined::WellKnown));
    }
}

fn set(list: &[(&str, Operator, &[&str])]) -> Requirements {
    list.iter().map(|(key, operator, values)| Requirement::new(key, *operator, values.iter().copied())).collect()
}

#[test]
fn compatibility_is_asymmetric() {
    let with = set(&[(KEY, Operator::In, &["a"])]);
    let without = set(&[(KEY, Operator::DoesNotExist, &[])]);
    let empty = Requirements::new();
    for allow in [AllowUndefined::None, AllowUndefined::WellKnown] {
        assert!(without.compatible(&with, allow).is_err());
        assert!(with.compatible(&without, allow).is_err());
        assert!(empty.compatible(&without, allow).is_ok());
        assert!(empty.compatible(&set(&[(KEY, Operator::NotIn, &["a"])]), allow).is_ok());
        assert!(empty.compatible(&with, allow).is_err());
        assert!(without.compatible(&set(&[(KEY, Operator::NotIn, &["a"])]), allow).is_ok());
    }
    let zone = set(&[("topology.kubernetes.io/zone", Operator::In, &["us-west-2a"])]);
    assert!(empty.compatible(&zone, AllowUndefined::WellKnown).is_ok());
    assert!(empty.compatible(&zone, AllowUndefined::None).is_err());
}

#[test]
fn a_clash_is_named_in_upstreams_words() {
    let node = set(&[("kubernetes.io/arch", Operator::In, &["amd64"]), ("team", Operator::Exists, &[])]);
    let error = |wanted: &Requirements, allow| node.compatible(wanted, allow).unwrap_err().to_string();
    let arm = set(&[("kubernetes.io/arch", Operator::In, &["arm64"])]);
    assert_eq!(
        error(&arm, AllowUndefined::WellKnown),
        "key kubernetes.io/arch, kubernetes.io/arch In [arm64] not in kubernetes.io/arch In [amd64]"
    );
    let unknown = set(&[("example.com/none", Operator::Exists, &[])]);
    assert_eq!(error(&unknown, AllowUndefined::None), r#"label "example.com/none" does not have known values"#);
    let typo = set(&[("zone", Operator::In, &["a"])]);
    assert!(
        error(&typo, AllowUndefined::WellKnown).contains(r#"does not have known values (typo of "topology"#),
        "{}",
        error(&typo, AllowUndefined::WellKnown)
    );
    let own = set(&[("example.com/team", Operator::In, &["a"])]);
    assert!(error(&own, AllowUndefined::None).ends_with(r#"(typo of "team"?)"#));
}
