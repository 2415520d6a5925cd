//! A cluster to try with kubectl: the server on a socket, its actors, two nodes and a kubelet that is always content.
//!
//! ```text
//! cargo run -p fake-kube --example serve -- --kubeconfig /tmp/kubeconfig deploy/chart/crds/*.yaml
//! kubectl --kubeconfig /tmp/kubeconfig get nodes
//! ```
//!
//! Nothing runs inside of its pods.

mod kubelet;

use std::{error::Error, path::PathBuf};

use controller_clock::Clock;
use fake_kube::{FakeKube, Options, ServingCertificate, actors};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;

struct Arguments {
    listen: String,
    kubeconfig: PathBuf,
    nodes: usize,
    definitions: Vec<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    const USAGE: &str = "usage: serve [--listen ADDRESS:PORT] [--nodes COUNT] --kubeconfig FILE [CRD.yaml ...]";
    let mut given =
        Arguments { listen: "127.0.0.1:0".into(), kubeconfig: PathBuf::new(), nodes: 2, definitions: vec![] };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--listen" => given.listen = value()?,
            "--kubeconfig" => given.kubeconfig = value()?.into(),
            "--nodes" => {
                let text = value()?;
                given.nodes = text.parse().map_err(|_| format!("--nodes: {text:?} is not a number\n{USAGE}"))?;
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}\n{USAGE}")),
            file => given.definitions.push(file.into()),
        }
    }
    if given.kubeconfig.as_os_str().is_empty() {
        return Err(format!("--kubeconfig says where to write how to reach the server\n{USAGE}"));
    }
    Ok(given)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { listen, kubeconfig, nodes, definitions } = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(2);
        }
    };
    let clock = Clock::system();
    let kube = FakeKube::new(Options::new(clock.clone()));
    for file in &definitions {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let definition = Value::deserialize(document).map_err(|error| format!("{}: {error}", file.display()))?;
            kube.install_crd(definition).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    for number in 1..=nodes {
        kubelet::join(&kube.client("kubelet"), number)?;
    }
    let listener = TcpListener::bind(&listen).await.map_err(|error| format!("--listen {listen}: {error}"))?;
    let address = listener.local_addr()?;
    let certificate =
        ServingCertificate::generate(&["localhost", "127.0.0.1", &address.ip().to_string()], clock.now())?;
    std::fs::write(&kubeconfig, certificate.kubeconfig(&format!("https://{address}")))
        .map_err(|error| format!("--kubeconfig {}: {error}", kubeconfig.display()))?;
    println!("serving on https://{address}; try: kubectl --kubeconfig {} get nodes", kubeconfig.display());
    tokio::select! {
        ended = kube.serve(listener, &certificate) => ended?,
        () = actors::run(kube.clone(), actors::Options::default()) => {}
        () = kubelet::run(kube.client("kubelet")) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
