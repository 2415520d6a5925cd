//! Plays sequences to fake-kube and to the server of a kubeconfig, and prints what differs.
//!
//! `cargo run -p fake-kube-contract --example compare -- KUBECONFIG [--record] [TEXT IN NAME…]`

use std::time::Duration;

use anyhow::Context;
use controller_clock::Clock;
use fake_kube::{FakeKube, Options, actors};
use fake_kube_contract::player::{Manner, play_both};
use fake_kube_contract::{compare, masks, recorded, sequence};
use futures::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().context("the first argument is a kubeconfig")?;
    let (flags, names): (Vec<String>, Vec<String>) = arguments.partition(|argument| argument.starts_with("--"));
    let record = flags.iter().any(|flag| flag == "--record");
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    // A refusal is what is to be seen, not to be tried again.
    config.default_retry = false;
    let genuine = kube::Client::try_from(config)?;
    let cluster = FakeKube::new(Options::new(Clock::system()));
    tokio::spawn(actors::run(cluster.clone(), actors::Options::default()));
    let fake = kube::Client::new(cluster.service(), "default");

    let sequences = sequence::load(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sequences"))?;
    let chosen: Vec<_> = sequences
        .into_iter()
        .filter(|sequence| names.is_empty() || names.iter().any(|name| sequence.name.contains(name)))
        .collect();
    let mut random = fastrand::Rng::new();
    let started: Vec<_> = chosen
        .iter()
        .map(|sequence| {
            let unique = std::iter::repeat_with(|| random.lowercase()).take(6).collect();
            (sequence, Manner { unique, quiet: Duration::from_millis(250) })
        })
        .collect();
    let mut runs = futures::stream::iter(started.iter().map(|(sequence, manner)| {
        let (genuine, fake) = (&genuine, &fake);
        async move { (*sequence, play_both(genuine, fake, sequence, manner).await) }
    }))
    .buffered(8);
    let (mut bad, mut accepted) = (0, 0);
    while let Some((sequence, (theirs, ours))) = runs.next().await {
        let mut lines = Vec::new();
        lines.extend(theirs.faults.iter().map(|fault| format!("  genuine: {fault}")));
        lines.extend(ours.faults.iter().map(|fault| format!("  fake:    {fault}")));
        let (theirs, ours) = (masks::masked(sequence, &theirs), masks::masked(sequence, &ours));
        if record {
            recorded::write(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded"), sequence, &theirs)?;
        }
        let (differences, unmet) = compare::differences(sequence, &theirs, &ours);
        for difference in differences {
            if difference.reason.is_some() {
                accepted += 1;
                continue;
            }
            let text =
                |value: &Option<serde_json::Value>| value.as_ref().map_or("(absent)".into(), |value| value.to_string());
            lines.push(format!(
                "  {} at {}\n      genuine: {}\n      fake:    {}",
                difference.step,
                difference.pointer,
                text(&difference.left),
                text(&difference.right)
            ));
        }
        lines.extend(unmet.iter().map(|unmet| format!("  {unmet}")));
        if !lines.is_empty() {
            bad += 1;
            println!("{}\n{}", sequence.name, lines.join("\n"));
        }
    }
    println!("{} sequences, {bad} differ, {accepted} differences accepted", started.len());
    Ok(())
}
