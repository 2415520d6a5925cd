//! Lists: order, selection, pages, versions.

use serde_json::{Value, json};

use crate::kit::*;

async fn filled(count: usize) -> Kit {
    let kit = Kit::new();
    for index in 0..count {
        let mut body = config_map(&format!("c{index}"));
        body["metadata"]["labels"] =
            json!({ "tier": if index % 2 == 0 { "even" } else { "odd" }, "index": index.to_string() });
        kit.made(CONFIG_MAPS, body).await;
    }
    kit
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| text(&item["metadata"]["name"])).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_is_ordered_and_names_its_kind_and_version() {
    let kit = filled(3).await;
    let (_, list) = kit.get(CONFIG_MAPS).await;
    assert_eq!((text(&list["kind"]), text(&list["apiVersion"])), ("ConfigMapList", "v1"));
    assert_eq!(names(&list), ["c0", "c1", "c2"]);
    assert_eq!(list["metadata"]["resourceVersion"], kit.kube.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn label_selectors_know_equality_and_sets() {
    let kit = filled(4).await;
    for (selector, expected) in [
        ("tier=even", vec!["c0", "c2"]),
        ("tier!=even", vec!["c1", "c3"]),
        ("tier in (odd, none)", vec!["c1", "c3"]),
        ("index notin (0,1)", vec!["c2", "c3"]),
        ("tier,index=3", vec!["c3"]),
        ("!tier", vec![]),
        ("index>1", vec!["c2", "c3"]),
    ] {
        let encoded: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let (code, list) = kit.get(&format!("{CONFIG_MAPS}?labelSelector={encoded}")).await;
        assert_eq!((code, names(&list)), (200, expected), "{selector}");
    }
    assert_eq!(kit.get(&format!("{CONFIG_MAPS}?labelSelector=a%20b%20c")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn field_selectors_know_only_the_fields_of_their_kind() {
    let kit = filled(2).await;
    let (_, list) = kit.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name=c1")).await;
    assert_eq!(names(&list), ["c1"]);
    let (code, status) = kit.get(&format!("{CONFIG_MAPS}?fieldSelector=data.a=1")).await;
    assert_eq!(
        (code, text(&status["message"])),
        (400, "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    );
    kit.made(PODS, pod("p")).await;
    kit.made(PODS, pod_on("q", "n")).await;
    for (selector, expected) in [
        ("spec.nodeName=n", vec!["q"]),
        ("spec.nodeName=", vec!["p"]),
        ("status.phase=Pending,spec.nodeName!=n", vec!["p"]),
        ("status.phase!=Pending", vec![]),
    ] {
        let (_, list) = kit.get(&format!("/api/v1/pods?fieldSelector={selector}")).await;
        assert_eq!(names(&list), expected, "{selector}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_even_while_objects_change() {
    let kit = filled(5).await;
    let (_, first) = kit.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = text(&first["metadata"]["continue"]).to_owned();
    kit.delete(&format!("{CONFIG_MAPS}/c2"), Value::Null).await;
    kit.made(CONFIG_MAPS, config_map("c9")).await;
    kit.merge(&format!("{CONFIG_MAPS}/c3"), json!({ "data": { "a": "changed" } })).await;
    let (_, second) = kit.get(&format!("{CONFIG_MAPS}?limit=10&continue={token}")).await;
    assert_eq!(names(&second), ["c2", "c3", "c4"]);
    assert_eq!(second["items"][1]["data"]["a"], "1");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"].get("continue").is_none());
    kit.kube.compact(&fake_kube::resources::CONFIG_MAPS);
    kit.made(CONFIG_MAPS, config_map("d")).await;
    let (code, status) = kit.get(&format!("{CONFIG_MAPS}?limit=10&continue={token}")).await;
    assert_eq!((code, text(&status["reason"])), (410, "Expired"));
    assert_eq!(kit.get(&format!("{CONFIG_MAPS}?continue=nonsense")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn an_exact_version_is_served_and_a_future_one_times_out() {
    let kit = filled(1).await;
    let version = kit.kube.resource_version();
    kit.made(CONFIG_MAPS, config_map("x")).await;
    let (_, list) = kit.get(&format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(names(&list), ["c0"]);
    let (code, status) = kit.get(&format!("{CONFIG_MAPS}?resourceVersion=999999")).await;
    assert_eq!((code, text(&status["reason"])), (504, "Timeout"));
    let (code, status) = kit.get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
         resourceVersion is provided"
    );
}
