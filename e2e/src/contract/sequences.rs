//! Every sequence played to both servers, and the replies compared.

use super::{Difference, Options, Progress, Section};
use anyhow::Context as _;
use fake_kube_contract::masks::masked;
use fake_kube_contract::player::{Manner, Transcript, play_both};
use fake_kube_contract::sequence::Sequence;
use fake_kube_contract::{compare, recorded};
use futures::StreamExt as _;
use serde_json::Value;
use std::time::Duration;

/// How many are under way at a time: they wait for controllers and for watches to be quiet more than for the servers.
const AT_A_TIME: usize = 8;

/// A genuine server tells of a change within some milliseconds; a busy machine takes some times that.
const QUIET: Duration = Duration::from_millis(300);

/// How often a sequence with a fault is played again; a fault is one that stays.
const AGAIN: u32 = 2;

/// Longer values are cut: they are told to be looked up.
const LONGEST_VALUE: usize = 600;

/// Plays the sequences to both servers.
pub(super) async fn section(
    genuine: &kube::Client,
    fake: &kube::Client,
    options: &Options,
    progress: &Progress<'_>,
) -> anyhow::Result<Section> {
    let sequences = &options.sequences;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let manners: Vec<Manner> = sequences
        .iter()
        .map(|_| Manner { unique: std::iter::repeat_with(|| random.lowercase()).take(6).collect(), quiet: QUIET })
        .collect();
    let mut section = Section { name: "sequences", cases: sequences.len(), ..Section::default() };
    let plays = sequences
        .iter()
        .zip(&manners)
        .map(|(sequence, manner)| async move { (sequence, play_both(genuine, fake, sequence, manner).await) });
    let mut plays = futures::stream::iter(plays).buffered(AT_A_TIME);
    let mut done = 0;
    while let Some((sequence, (mut theirs, ours))) = plays.next().await {
        done += 1;
        progress("sequences", done, sequences.len());
        let mut found = compared(sequence, &theirs, &ours);
        // What a genuine server answers otherwise the next time, by the order of its controllers or the second it is, is no rule.
        for attempt in 1..=AGAIN {
            if found.iter().all(|difference| difference.reason.is_some()) {
                break;
            }
            let unique = std::iter::repeat_with(|| random.lowercase()).take(6).collect();
            let manner = Manner { unique, quiet: QUIET * (attempt + 1) };
            let ours;
            (theirs, ours) = play_both(genuine, fake, sequence, &manner).await;
            found = compared(sequence, &theirs, &ours);
        }
        section.differences.extend(found);
        if let Some(folder) = &options.record {
            recorded::write(folder, sequence, &masked(sequence, &theirs))
                .with_context(|| format!("recording into {}", folder.display()))?;
        }
    }
    Ok(section)
}

fn compared(sequence: &Sequence, theirs: &Transcript, ours: &Transcript) -> Vec<Difference> {
    let difference = |found: String, reason: Option<String>| Difference { case: sequence.name.clone(), found, reason };
    let mut found = Vec::new();
    for (who, transcript) in [("genuine", theirs), ("fake-kube", ours)] {
        found.extend(transcript.faults.iter().map(|fault| difference(format!("{who}: {}", cut(fault)), None)));
    }
    let (differences, unmet) = compare::differences(sequence, &masked(sequence, theirs), &masked(sequence, ours));
    for compare::Difference { step, pointer, left, right, reason } in differences {
        let (left, right) = (value(left.as_ref()), value(right.as_ref()));
        found.push(difference(format!("{step}: at {pointer}\n  genuine:   {left}\n  fake-kube: {right}"), reason));
    }
    found.extend(unmet.into_iter().map(|unmet| difference(unmet, None)));
    found
}

fn value(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".into(), |value| cut(&value.to_string()))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
