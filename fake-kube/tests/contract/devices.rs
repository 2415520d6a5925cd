//! Kinds of dynamic resource allocation: a controller built for them does not start where they are not served.

use serde_json::{Value, json};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_controller_that_watches_devices_finds_their_kinds() {
    let kit = Kit::new();
    let (code, found) = kit.get("/apis/resource.k8s.io/v1").await;
    assert_eq!(code, 200);
    // The genuine server's discovery document. Hashes of storage versions are compared elsewhere.
    let mut found = found;
    for resource in found["resources"].as_array_mut().unwrap() {
        resource.as_object_mut().unwrap().remove("storageVersionHash");
    }
    let resource = |name: &str, singular: &str, kind: &str, namespaced: bool| {
        let status = name.ends_with("/status");
        let verbs: &[&str] = if status {
            &["get", "patch", "update"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        };
        json!({ "name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs })
    };
    assert_eq!(
        found["resources"],
        json!([
            resource("deviceclasses", "deviceclass", "DeviceClass", false),
            resource("resourceclaims", "resourceclaim", "ResourceClaim", true),
            resource("resourceclaims/status", "", "ResourceClaim", true),
            resource("resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate", true),
            resource("resourceslices", "resourceslice", "ResourceSlice", false),
        ])
    );
    for list in ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"] {
        let path = format!(
            "/apis/resource.k8s.io/v1/{list}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
             &resourceVersionMatch=NotOlderThan"
        );
        let mut watch = kit.watch(&path).await;
        assert_eq!(text(&watch.next().await.unwrap()["type"]), "BOOKMARK", "{list}");
    }
}

fn slice(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "driver": "gpu.example.com", "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0", "capacity": { "memory": { "value": "80Gi" } } }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn slices_are_selected_by_node_and_driver_and_count_their_generations() {
    let kit = Kit::new();
    let path = "/apis/resource.k8s.io/v1/resourceslices";
    let mut made = kit.made(path, slice("a", "node-1")).await;
    kit.made(path, slice("b", "node-2")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let (_, found) = kit.get(&format!("{path}?fieldSelector=spec.nodeName%3Dnode-2")).await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found:#}");
    assert_eq!(found["items"][0]["metadata"]["name"], "b");
    let (_, found) = kit.get(&format!("{path}?fieldSelector=spec.driver%3Dother.example.com")).await;
    assert_eq!(found["items"], json!([]));
    let (code, refused) = kit.get(&format!("{path}?fieldSelector=spec.pool.name%3Dx")).await;
    assert_eq!((code, text(&refused["message"])), (400, "field label not supported: spec.pool.name"));
    made["spec"]["devices"][0]["name"] = json!("gpu-1");
    let (_, changed) = kit.put(&format!("{path}/a"), made).await;
    assert_eq!(changed["metadata"]["generation"], 2);
    // Deleting returns the object, as for few kinds.
    let (_, deleted) = kit.delete(&format!("{path}/a"), Value::Null).await;
    assert_eq!(text(&deleted["kind"]), "ResourceSlice");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_allocated_through_its_status_alone() {
    let kit = Kit::new();
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let allocated = json!({ "allocation": { "devices": { "results": [
        { "request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0" },
    ] } } });
    let request = json!({ "name": "gpu", "exactly": { "deviceClassName": "gpu.example.com" } });
    let claim = json!({
        "metadata": { "name": "one" }, "spec": { "devices": { "requests": [request] } }, "status": allocated,
    });
    let made = kit.made(path, claim).await;
    // One device, where no number is given.
    let exactly = json!({ "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1 });
    assert_eq!(made["spec"]["devices"]["requests"], json!([{ "name": "gpu", "exactly": exactly }]));
    assert_eq!(made["status"], json!({}));
    let (_, changed) = kit.merge(&format!("{path}/one/status"), json!({ "status": allocated })).await;
    assert_eq!(changed["status"], allocated);
}
