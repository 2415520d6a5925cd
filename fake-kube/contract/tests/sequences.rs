//! Every sequence against fake-kube alone: it answers with the expected statuses, and as a genuine server did when it was
//! last asked (`recorded/`, written by `trysquare contract --record`).

use std::path::Path;
use std::time::Duration;

use controller_clock::Clock;
use fake_kube::{FakeKube, Options, actors};
use fake_kube_contract::player::{Manner, play};
use fake_kube_contract::{compare, masks, recorded, sequence};
use tokio::task::JoinSet;

/// `CONTRACT_SEQUENCES=text` plays only those with the text in their name.
#[tokio::test(start_paused = true)]
async fn fake_kube_answers_as_the_genuine_server_did() {
    // Tests run in their package's folder.
    let folder = Path::new("");
    #[allow(clippy::disallowed_methods)] // A test's own switch.
    let wanted = std::env::var("CONTRACT_SEQUENCES").unwrap_or_default();
    let sequences = sequence::load(&folder.join("sequences")).unwrap();
    let mut wrong = Vec::new();
    for (index, sequence) in sequences.iter().filter(|sequence| sequence.name.contains(&wanted)).enumerate() {
        let clock = Clock::virtual_from("2026-06-01T00:00:00Z".parse().unwrap());
        let cluster = FakeKube::new(Options { seed: index as u64, ..Options::new(clock) });
        let mut running = JoinSet::new();
        running.spawn(actors::run(cluster.clone(), actors::Options::default()));
        let client = kube::Client::new(cluster.service(), "default");
        let manner = Manner { unique: "sequen".into(), quiet: Duration::from_secs(1) };
        let transcript = play(&client, sequence, &manner).await;
        drop(running);
        let mut found = transcript.faults.clone();
        let recorded = recorded::read(&folder.join("recorded"), sequence).unwrap();
        match recorded {
            None => found.push("what a genuine server answers is not recorded".into()),
            Some(genuine) if genuine.len() != transcript.records.len() => {
                let (recorded, played) = (genuine.len(), transcript.records.len());
                found.push(format!("{recorded} replies of a genuine server are recorded, {played} were played"));
            }
            Some(genuine) => {
                let (differences, unmet) =
                    compare::differences(sequence, &genuine, &masks::masked(sequence, &transcript));
                found.extend(differences.into_iter().filter(|difference| difference.reason.is_none()).map(|found| {
                    format!(
                        "{} at {}: genuine {:?}, fake-kube {:?}",
                        found.step, found.pointer, found.left, found.right
                    )
                }));
                found.extend(unmet);
            }
        }
        if !found.is_empty() {
            wrong.push(format!("{} ({}):\n  {}", sequence.name, sequence.rule, found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "\n{} sequences differ\n{}", wrong.len(), wrong.join("\n"));
}
