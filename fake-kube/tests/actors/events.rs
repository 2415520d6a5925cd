//! Events are forgotten.

use fake_kube::actors::Options;
use fake_kube::{ListSelector, resources};
use serde_json::{Value, json};

use crate::support::Cluster;

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"}, "reason": "Seen", "message": "seen",
    })
}

fn names(cluster: &Cluster) -> Vec<String> {
    let events = cluster.client.list(&resources::EVENTS, Some("default"), &ListSelector::everything());
    events.iter().map(|event| event["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_an_hour_after_its_last_write() {
    let cluster = Cluster::start(Options { event_expiry: true, ..Options::none() });
    cluster.create(&resources::EVENTS, event("once"));
    cluster.create(&resources::EVENTS, event("again"));
    cluster.wait(30 * 60).await;
    cluster.patch(&resources::EVENTS, "again", json!({"count": 2}));
    cluster.wait(30 * 60 - 1).await;
    assert_eq!(names(&cluster), ["again", "once"]);
    cluster.wait(2).await;
    assert_eq!(names(&cluster), ["again"]);
    cluster.wait(30 * 60).await;
    assert!(names(&cluster).is_empty());
}
