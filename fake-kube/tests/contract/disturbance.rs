//! Faults by rule, and the journal.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fake_kube::{Calls, ConnectionLost, FaultRule, Outcome, resources};
use serde_json::{Value, json};

use crate::kit::*;

fn rule(verb: &str, calls: Calls, outcome: Outcome) -> FaultRule {
    FaultRule { verb: Some(verb.into()), resource: Some("configmaps".into()), calls, outcome, ..FaultRule::default() }
}

#[tokio::test(start_paused = true)]
async fn a_rule_hits_the_call_it_names() {
    let kit = Kit::new();
    kit.kube.fault(rule("create", Calls::Nth(2), Outcome::InternalError));
    let mut codes = Vec::new();
    for name in ["a", "b", "c"] {
        codes.push(kit.post(CONFIG_MAPS, config_map(name)).await.0);
    }
    assert_eq!(codes, [201, 500, 201]);
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_throttling_look_genuine() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    kit.kube.fault(rule("patch", Calls::First(1), Outcome::Conflict));
    kit.kube.fault(rule("patch", Calls::Every, Outcome::TooManyRequests { retry_after_seconds: 3 }));
    let path = format!("{CONFIG_MAPS}/a");
    let (code, status) = kit.merge(&path, json!({})).await;
    assert_eq!(code, 409);
    assert!(text(&status["message"]).contains("the object has been modified"));
    let response = kit.send("PATCH", &path, "application/merge-patch+json", "{}").await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &http::HeaderValue::from(3)));
    kit.kube.clear_faults();
    assert_eq!(kit.merge(&path, json!({})).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_does_nothing_and_a_lost_reply_did() {
    let kit = Kit::new();
    kit.kube.fault(rule("create", Calls::Nth(1), Outcome::LoseRequest));
    kit.kube.fault(rule("create", Calls::Nth(2), Outcome::LoseReply));
    for (name, present) in [("a", 404), ("b", 200)] {
        let lost = kit.send("POST", CONFIG_MAPS, "application/json", &config_map(name).to_string()).await;
        assert_eq!(lost.err(), Some(ConnectionLost));
        assert_eq!(kit.get(&format!("{CONFIG_MAPS}/{name}")).await.0, present, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_in_virtual_time() {
    let kit = Kit::new();
    kit.kube.fault(rule("list", Calls::Every, Outcome::Delay(Duration::from_secs(7))));
    let before = tokio::time::Instant::now();
    kit.get(CONFIG_MAPS).await;
    assert_eq!(before.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn watches_end_stall_or_expire() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}?watch=true");
    kit.kube.fault(rule("watch", Calls::Nth(1), Outcome::WatchExpires));
    kit.kube.fault(rule("watch", Calls::Nth(2), Outcome::WatchStalls(Duration::from_secs(30))));
    assert_eq!(kit.watch(&path).await.next().await.unwrap()["type"], "ERROR");
    let mut stalled = kit.watch(&path).await;
    assert_eq!(stalled.within(29).await, None);
    let mut healthy = kit.watch(&path).await;
    assert_eq!(healthy.brief().await, "ADDED a");
    kit.kube.cut_watches(&resources::CONFIG_MAPS);
    assert!(healthy.ended().await);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_watch_is_told_when_it_resumes() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    kit.made(CONFIG_MAPS, config_map("b")).await;
    kit.kube.compact(&resources::CONFIG_MAPS);
    let version = text(&made["metadata"]["resourceVersion"]).to_owned();
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}")).await;
    assert_eq!(lines.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn in_process_clients_are_hit_only_by_name() {
    let kit = Kit::new();
    kit.kube.fault(rule("create", Calls::Every, Outcome::Conflict));
    let mut named = rule("create", Calls::Every, Outcome::InternalError);
    named.user_agent = Some("kube-scheduler".into());
    kit.kube.fault(named);
    let create = |agent: &str, name: &str| {
        kit.kube.client(agent).create(&resources::CONFIG_MAPS, Some("default"), config_map(name))
    };
    assert!(create("kube-controller-manager", "a").is_ok());
    assert_eq!(create("kube-scheduler", "b").unwrap_err().code, 500);
}

#[tokio::test(start_paused = true)]
async fn the_journal_holds_every_request_in_order() {
    let kit = Kit::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    kit.kube.observe(Box::new(move |entry| {
        sink.lock().unwrap().push(format!("{} {} {} {}", entry.user_agent, entry.verb, entry.path, entry.status));
    }));
    kit.made(CONFIG_MAPS, config_map("a")).await;
    kit.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let client = kit.kube.client("kube-scheduler");
    client.patch_merge(&resources::CONFIG_MAPS, Some("default"), "a", json!({ "data": { "x": "1" } }), None).unwrap();
    kit.delete(&format!("{CONFIG_MAPS}/b"), Value::Null).await;
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "tester/1.0 create /api/v1/namespaces/default/configmaps 201",
            "tester/1.0 list /api/v1/namespaces/default/configmaps?limit=1 200",
            "kube-scheduler patch /api/v1/namespaces/default/configmaps/a 200",
            "tester/1.0 delete /api/v1/namespaces/default/configmaps/b 404",
        ]
    );
    let journal = kit.kube.journal();
    assert_eq!(journal.len(), 4);
    let request: Value = serde_json::from_slice(&journal[0].request.bytes()).unwrap();
    assert_eq!(request["metadata"]["name"], "a");
    let response: Value = serde_json::from_slice(&journal[2].response.bytes()).unwrap();
    assert_eq!(response["data"]["x"], "1");
}
