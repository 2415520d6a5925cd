//! Watches: order, resuming, bookmarks, selections, expiry.

use serde_json::{Value, json};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_watch_without_version_begins_with_what_is_there() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(lines.brief().await, "ADDED a");
    assert_eq!(lines.brief().await, "nothing");
    kit.merge(&format!("{CONFIG_MAPS}/a"), json!({ "data": { "a": "2" } })).await;
    assert_eq!(lines.brief().await, "MODIFIED a");
    kit.delete(&format!("{CONFIG_MAPS}/a"), Value::Null).await;
    let event = lines.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], kit.kube.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_after_a_version() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    kit.made(CONFIG_MAPS, config_map("b")).await;
    kit.made("/api/v1/namespaces/kube-system/configmaps", config_map("elsewhere")).await;
    let version = text(&made["metadata"]["resourceVersion"]).to_owned();
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(lines.brief().await, "ADDED b");
    assert_eq!(lines.brief().await, "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_longer_kept_is_told_as_an_error_event() {
    let kit = Kit::with(|options| options.event_log = 2);
    for name in ["a", "b", "c", "d"] {
        kit.made(CONFIG_MAPS, config_map(name)).await;
    }
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1")).await;
    let event = lines.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((event["object"]["code"].as_i64(), text(&event["object"]["reason"])), (Some(410), "Expired"));
    assert!(text(&event["object"]["message"]).starts_with("too old resource version: 1 ("));
    assert!(lines.ended().await);
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_end_their_beginning_with_a_marked_bookmark() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(lines.brief().await, "ADDED a");
    let event = lines.next().await.unwrap();
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(event["object"]["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    assert_eq!(event["object"]["kind"], "ConfigMap");
    let (code, status) = kit.get(&format!("{CONFIG_MAPS}?watch=true&sendInitialEvents=true")).await;
    assert_eq!(code, 422);
    assert!(
        text(&status["message"]).contains("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_if_wanted_and_carry_the_newest_version() {
    let kit = Kit::new();
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true")).await;
    let mut silent = kit.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let beginning = lines.next().await.unwrap();
    assert_eq!(beginning["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    kit.made(PODS, pod("p")).await;
    assert_eq!(lines.within(59).await, None);
    let event = lines.within(2).await.unwrap();
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], kit.kube.resource_version().to_string());
    assert_eq!(lines.within(58).await, None);
    assert!(lines.within(2).await.is_some());
    assert_eq!(silent.within(200).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_timeout() {
    let kit = Kit::new();
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=290")).await;
    assert_eq!(lines.within(289).await, None);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(lines.ended().await);
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let kit = Kit::new();
    let mut lines = kit.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=on%3Dyes")).await;
    kit.made(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(lines.brief().await, "nothing");
    let path = format!("{CONFIG_MAPS}/a");
    kit.merge(&path, json!({ "metadata": { "labels": { "on": "yes" } } })).await;
    assert_eq!(lines.brief().await, "ADDED a");
    kit.merge(&path, json!({ "data": { "a": "2" } })).await;
    assert_eq!(lines.brief().await, "MODIFIED a");
    kit.merge(&path, json!({ "metadata": { "labels": { "on": "no" } } })).await;
    let event = lines.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["on"], "yes", "shown as it was last seen");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], kit.kube.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn many_watchers_see_the_same_and_dropped_ones_leave_nothing() {
    let kit = Kit::new();
    let mut all = Vec::new();
    for _ in 0..50 {
        all.push(kit.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    }
    all.truncate(30);
    kit.made(CONFIG_MAPS, config_map("a")).await;
    for lines in &mut all {
        assert_eq!(lines.brief().await, "ADDED a");
    }
}

#[tokio::test(start_paused = true)]
async fn in_process_watches_start_with_the_present_and_miss_nothing() {
    let kit = Kit::with(|options| options.event_log = 2);
    let client = kit.kube.client("actor");
    let resource = &fake_kube::resources::CONFIG_MAPS;
    client.create(resource, Some("default"), config_map("a")).unwrap();
    let mut watch = client.watch(resource);
    for index in 0..10 {
        client.create(resource, Some("default"), config_map(&format!("b{index}"))).unwrap();
    }
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next() {
        assert!(matches!(event, fake_kube::WatchEvent::Added(_)));
        seen.push(text(&event.object()["metadata"]["name"]).to_owned());
    }
    assert_eq!(seen.len(), 11);
    assert_eq!((seen[0].as_str(), seen[10].as_str()), ("a", "b9"));
    client.delete(resource, Some("default"), "a", Default::default()).unwrap();
    assert!(matches!(watch.next().await, Some(fake_kube::WatchEvent::Deleted(_))));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_asks_for_no_or_an_endless_timeout_is_served() {
    let kit = Kit::new();
    kit.made("/api/v1/namespaces/default/configmaps", config_map("a")).await;
    for seconds in ["0", "9223372036854775807"] {
        let mut lines =
            kit.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds={seconds}")).await;
        let first = lines.within(1).await.unwrap();
        assert_eq!(first["type"], "ADDED", "{seconds}");
    }
}
