//! Random clusters before both schedulers.

use super::{Difference, Progress, Section};
use anyhow::{Context, anyhow};
use fake_kube_contract::scheduler::{Arena, Verdict, case};
use std::collections::BTreeMap;
use std::time::Duration;

/// The genuine scheduler hears of nodes some milliseconds later, by another watch than of pods.
const SETTLE: Duration = Duration::from_millis(300);

/// Compares the verdicts on every pod of so many random cases.
pub(super) async fn section(
    genuine: &kube::Client,
    fake: &kube::Client,
    seed: u64,
    cases: usize,
    progress: &Progress<'_>,
) -> anyhow::Result<Section> {
    let unique: String = {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        std::iter::repeat_with(|| random.lowercase()).take(6).collect()
    };
    let told = |error: String| anyhow!(error);
    let theirs = Arena::new(genuine, &unique, SETTLE).await.map_err(told).context("the genuine server")?;
    let ours = Arena::new(fake, &unique, Duration::from_millis(20)).await.map_err(told).context("fake-kube")?;
    let mut section = Section { name: "scheduler", cases, ..Section::default() };
    let (mut scheduled, mut refused) = (0, BTreeMap::<String, usize>::new());
    for number in 0..cases {
        let seed = seed.wrapping_add(number as u64);
        let case = case(seed, &format!("{unique}-{number}"));
        let (left, right) = futures::join!(theirs.judge(&case), ours.judge(&case));
        let left = left.map_err(told).context("the genuine server")?;
        let right = right.map_err(told).context("fake-kube")?;
        for ((pod, left), right) in case.pods.iter().zip(&left).zip(&right) {
            match left {
                Verdict::Refused(message) => *refused.entry(without_numbers(message)).or_default() += 1,
                _ => scheduled += 1,
            }
            if left != right {
                let (left, right) = (verdict(left), verdict(right));
                let nodes: Vec<String> = case.nodes.iter().map(ToString::to_string).collect();
                section.differences.push(Difference {
                    case: format!("--seed {seed} --cases 1"),
                    found: format!(
                        "pod {}\n  genuine:   {left}\n  fake-kube: {right}\n  nodes: {}\n  bound: {}",
                        pod,
                        nodes.join("\n         "),
                        case.bound.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n         "),
                    ),
                    reason: None,
                });
            }
        }
        progress("scheduler", number + 1, cases);
    }
    let total: usize = refused.values().sum();
    section.notes.push(format!(
        "{} pods: {scheduled} scheduled, {total} refused in {} sentences that differ by more than numbers",
        scheduled + total,
        refused.len()
    ));
    Ok(section)
}

fn without_numbers(message: &str) -> String {
    message.chars().filter(|character| !character.is_ascii_digit()).collect()
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Scheduled => "scheduled".into(),
        Verdict::Refused(message) => message.clone(),
        Verdict::Silent => "nothing".into(),
    }
}
