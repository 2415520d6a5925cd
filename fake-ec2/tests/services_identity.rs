//! IAM and EKS over the wire: policy versions, tags and pages; clusters, access entries and their policies.

mod common;

use bytes::Bytes;
use common::{Account, values};
use http::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const ALLOW: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#;
const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"eks.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;

async fn iam(account: &Account, action: &str, params: &[(&str, &str)]) -> String {
    let (status, body) = account.iam(action, params).await;
    assert_eq!(status, 200, "{action}: {body}");
    body
}

async fn iam_refused(account: &Account, action: &str, params: &[(&str, &str)]) -> (u16, String) {
    let (status, body) = account.iam(action, params).await;
    (status, values(&body, "Code").into_iter().next().unwrap_or(body))
}

/// The sizes of the pages of a list of IAM, and every `name` in them.
async fn iam_pages(account: &Account, action: &str, params: &[(&str, &str)], name: &str) -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut items, mut marker) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let mut all = params.to_vec();
        if let Some(marker) = &marker {
            all.push(("Marker", marker));
        }
        let body = iam(account, action, &all).await;
        let part = values(&body, name);
        sizes.push(part.len());
        items.extend(part);
        marker = values(&body, "Marker").pop();
        assert_eq!(values(&body, "IsTruncated"), [marker.is_some().to_string()]);
        if marker.is_none() {
            return (sizes, items);
        }
    }
}

async fn eks(account: &Account, method: Method, path: &str, body: Value) -> (u16, Value) {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).body(bytes).unwrap();
    let response = account.ec2.handle(request).await;
    let code = response.headers().get("x-amzn-errortype").map(|code| json!(code.to_str().unwrap()));
    let status = response.status().as_u16();
    (status, code.unwrap_or_else(|| serde_json::from_slice(response.body()).unwrap()))
}

async fn get(account: &Account, path: &str) -> Value {
    let (status, value) = eks(account, Method::GET, path, Value::Null).await;
    assert_eq!(status, 200, "{path}: {value}");
    value
}

async fn post(account: &Account, path: &str, body: Value) -> Value {
    let (status, value) = eks(account, Method::POST, path, body).await;
    assert_eq!(status, 200, "{path}: {value}");
    value
}

#[tokio::test(start_paused = true)]
async fn a_policy_has_five_versions_at_most_and_one_that_counts() {
    let account = Account::new();
    let create = [("PolicyName", "p"), ("PolicyDocument", ALLOW)];
    let arn = values(&iam(&account, "CreatePolicy", &create).await, "Arn").remove(0);
    let arn = arn.as_str();
    let deny = ALLOW.replace("Allow", "Deny");
    for (number, as_default) in [(2, "true"), (3, "false"), (4, "false"), (5, "false")] {
        let more = [("PolicyArn", arn), ("PolicyDocument", deny.as_str()), ("SetAsDefault", as_default)];
        let body = iam(&account, "CreatePolicyVersion", &more).await;
        assert_eq!(values(&body, "VersionId"), [format!("v{number}")]);
        assert_eq!(values(&body, "IsDefaultVersion"), [as_default]);
    }
    let sixth = [("PolicyArn", arn), ("PolicyDocument", deny.as_str())];
    assert_eq!(iam_refused(&account, "CreatePolicyVersion", &sixth).await, (409, "LimitExceeded".into()));
    let version = |id: &'static str| [("PolicyArn", arn), ("VersionId", id)];
    assert_eq!(iam_refused(&account, "DeletePolicyVersion", &version("v2")).await, (409, "DeleteConflict".into()));
    iam(&account, "SetDefaultPolicyVersion", &version("v1")).await;
    iam(&account, "DeletePolicyVersion", &version("v2")).await;
    assert_eq!(iam_refused(&account, "GetPolicyVersion", &version("v2")).await, (404, "NoSuchEntity".into()));
    let body = iam(&account, "GetPolicyVersion", &version("v1")).await;
    assert!(values(&body, "Document")[0].contains("Allow"));
    assert_eq!(values(&iam(&account, "GetPolicy", &[("PolicyArn", arn)]).await, "DefaultVersionId"), ["v1"]);
    let (sizes, ids) =
        iam_pages(&account, "ListPolicyVersions", &[("PolicyArn", arn), ("MaxItems", "3")], "VersionId").await;
    assert_eq!((sizes, ids), (vec![3, 1], vec!["v5".into(), "v4".into(), "v3".into(), "v1".into()]));
    // Numbers are not used again.
    assert_eq!(values(&iam(&account, "CreatePolicyVersion", &sixth).await, "VersionId"), ["v6"]);
    assert_eq!(iam_refused(&account, "DeletePolicy", &[("PolicyArn", arn)]).await, (409, "DeleteConflict".into()));
    for id in ["v3", "v4", "v5", "v6"] {
        iam(&account, "DeletePolicyVersion", &version(id)).await;
    }
    iam(&account, "DeletePolicy", &[("PolicyArn", arn)]).await;
    let aws = [("PolicyArn", "arn:aws:iam::aws:policy/AdministratorAccess"), ("PolicyDocument", ALLOW)];
    assert_eq!(iam_refused(&account, "CreatePolicyVersion", &aws).await, (403, "AccessDenied".into()));
}

#[tokio::test(start_paused = true)]
async fn the_version_that_counts_is_the_one_that_decides() {
    let account = Account::new();
    let create = [("PolicyName", "p"), ("PolicyDocument", ALLOW)];
    let arn = values(&iam(&account, "CreatePolicy", &create).await, "Arn").remove(0);
    let role = account.setup.node_role_name.clone();
    iam(&account, "AttachRolePolicy", &[("RoleName", &role), ("PolicyArn", &arn)]).await;
    let action = |account: &Account| {
        account.ec2.cloud().role_policies(&role)[&arn]["Statement"][0]["Effect"].as_str().unwrap().to_owned()
    };
    assert_eq!(action(&account), "Allow");
    let deny = ALLOW.replace("Allow", "Deny");
    let more = [("PolicyArn", arn.as_str()), ("PolicyDocument", &deny), ("SetAsDefault", "true")];
    iam(&account, "CreatePolicyVersion", &more).await;
    assert_eq!(action(&account), "Deny");
    let body = iam(&account, "ListEntitiesForPolicy", &[("PolicyArn", &arn)]).await;
    assert_eq!(values(&body, "RoleName"), [role.as_str()]);
    let users = [("PolicyArn", arn.as_str()), ("EntityFilter", "User")];
    assert!(values(&iam(&account, "ListEntitiesForPolicy", &users).await, "RoleName").is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_list_of_iam_comes_in_pages() {
    let account = Account::new();
    let role = account.setup.node_role_name.clone();
    for index in 0..5 {
        let name = format!("page-{index}");
        iam(&account, "CreateRole", &[("RoleName", &name), ("Path", "/pages/"), ("AssumeRolePolicyDocument", TRUST)])
            .await;
        iam(&account, "PutRolePolicy", &[("RoleName", &role), ("PolicyName", &name), ("PolicyDocument", ALLOW)]).await;
        let arn =
            values(&iam(&account, "CreatePolicy", &[("PolicyName", &name), ("PolicyDocument", ALLOW)]).await, "Arn")
                .remove(0);
        iam(&account, "AttachRolePolicy", &[("RoleName", &role), ("PolicyArn", &arn)]).await;
        iam(&account, "CreateInstanceProfile", &[("InstanceProfileName", &name)]).await;
        iam(&account, "TagRole", &[("RoleName", &role), ("Tags.member.1.Key", &name), ("Tags.member.1.Value", "v")])
            .await;
    }
    let of_role = [("RoleName", role.as_str()), ("MaxItems", "2")];
    for (action, params, name) in [
        ("ListRoles", &[("PathPrefix", "/pages/"), ("MaxItems", "2")], "RoleName"),
        ("ListRolePolicies", &of_role, "member"),
        ("ListAttachedRolePolicies", &of_role, "PolicyArn"),
        ("ListRoleTags", &of_role, "Key"),
        ("ListPolicies", &[("Scope", "Local"), ("MaxItems", "2")], "Arn"),
        ("ListInstanceProfiles", &[("PathPrefix", "/"), ("MaxItems", "2")], "InstanceProfileId"),
    ] {
        let (sizes, items) = iam_pages(&account, action, params, name).await;
        assert_eq!(sizes, [2, 2, 1], "{action}");
        assert!(items.is_sorted() || name == "InstanceProfileId", "{action}: {items:?}");
    }
    for size in ["0", "1001", "many"] {
        assert_eq!(
            iam_refused(&account, "ListRoles", &[("MaxItems", size)]).await,
            (400, "ValidationError".into()),
            "{size}"
        );
    }
    assert_eq!(iam_refused(&account, "ListRoles", &[("Marker", "?")]).await, (400, "InvalidInput".into()));
    let summary = iam(&account, "GetAccountSummary", &[]).await;
    assert!(summary.contains("<key>Policies</key><value>5</value>"), "{summary}");
    assert!(summary.contains("<key>InstanceProfiles</key><value>5</value>"), "{summary}");
}

#[tokio::test(start_paused = true)]
async fn everything_of_iam_has_tags() {
    let account = Account::new();
    let policy = values(&iam(&account, "CreatePolicy", &[("PolicyName", "p"), ("PolicyDocument", ALLOW)]).await, "Arn")
        .remove(0);
    iam(&account, "CreateInstanceProfile", &[("InstanceProfileName", "i")]).await;
    let role = account.setup.node_role_name.clone();
    for (kind, parameter, value) in [
        ("Role", "RoleName", role.as_str()),
        ("InstanceProfile", "InstanceProfileName", "i"),
        ("Policy", "PolicyArn", policy.as_str()),
        ("OpenIDConnectProvider", "OpenIDConnectProviderArn", account.setup.oidc_provider_arn.as_str()),
    ] {
        let named = (parameter, value);
        let tag = |key| [named, ("Tags.member.1.Key", key), ("Tags.member.1.Value", "v")];
        iam(&account, &format!("Tag{kind}"), &tag("a")).await;
        iam(&account, &format!("Tag{kind}"), &tag("b")).await;
        iam(&account, &format!("Untag{kind}"), &[named, ("TagKeys.member.1", "a")]).await;
        let body = iam(&account, &format!("List{kind}Tags"), &[named]).await;
        assert_eq!((values(&body, "Key"), values(&body, "Value")), (vec!["b".into()], vec!["v".into()]), "{kind}");
        let missing = [(parameter, "none"), ("Tags.member.1.Key", "a"), ("Tags.member.1.Value", "v")];
        assert_eq!(
            iam_refused(&account, &format!("Tag{kind}"), &missing).await,
            (404, "NoSuchEntity".into()),
            "{kind}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_says_how_long_its_sessions_may_be() {
    let account = Account::new();
    let create = [
        ("RoleName", "r"),
        ("AssumeRolePolicyDocument", TRUST),
        ("Description", "one"),
        ("MaxSessionDuration", "7200"),
    ];
    let body = iam(&account, "CreateRole", &create).await;
    assert_eq!(
        (values(&body, "Description"), values(&body, "MaxSessionDuration")),
        (vec!["one".into()], vec!["7200".into()])
    );
    let assume = async |seconds: &str| {
        let params =
            [("RoleArn", "arn:aws:iam::123456789012:role/r"), ("RoleSessionName", "s1"), ("DurationSeconds", seconds)];
        account.form("2011-06-15", "AssumeRole", &params).await.0
    };
    assert_eq!((assume("7200").await, assume("7201").await), (200, 400));
    iam(&account, "UpdateRole", &[("RoleName", "r"), ("Description", "two")]).await;
    let body = iam(&account, "GetRole", &[("RoleName", "r")]).await;
    assert_eq!(
        (values(&body, "Description"), values(&body, "MaxSessionDuration")),
        (vec!["two".into()], vec!["3600".into()])
    );
    assert_eq!((assume("3600").await, assume("3601").await), (200, 400));
    for seconds in ["3599", "43201"] {
        let params = [("RoleName", "r"), ("MaxSessionDuration", seconds)];
        assert_eq!(iam_refused(&account, "UpdateRole", &params).await, (400, "ValidationError".into()));
    }
}

fn new_cluster(account: &Account, name: &str) -> Value {
    json!({"name": name, "roleArn": "arn:aws:iam::123456789012:role/control",
        "resourcesVpcConfig": {"subnetIds": account.setup.subnet_ids}, "tags": {"team": "a"}})
}

async fn with_control_role() -> Account {
    let account = Account::new();
    iam(&account, "CreateRole", &[("RoleName", "control"), ("AssumeRolePolicyDocument", TRUST)]).await;
    account
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_created_and_deleted_in_its_time() {
    let account = with_control_role().await;
    let created = post(&account, "/clusters", new_cluster(&account, "new")).await["cluster"].clone();
    assert_eq!((&created["status"], created.get("endpoint")), (&json!("CREATING"), None));
    assert_eq!(created["resourcesVpcConfig"]["vpcId"], account.setup.vpc_id.as_str());
    assert_eq!(created["version"], "1.36");
    let group = created["resourcesVpcConfig"]["clusterSecurityGroupId"].as_str().unwrap();
    account.ok("DescribeSecurityGroups", &[("GroupId.1", group)]).await;
    assert_eq!(
        eks(&account, Method::DELETE, "/clusters/new", Value::Null).await,
        (409, json!("ResourceInUseException"))
    );
    sleep(Duration::from_secs(120)).await;
    let active = get(&account, "/clusters/new").await["cluster"].clone();
    assert_eq!((&active["status"], &active["tags"]), (&json!("ACTIVE"), &json!({"team": "a"})));
    assert!(active["endpoint"].as_str().unwrap().ends_with(".gr7.us-west-2.eks.amazonaws.com"));
    assert_eq!(get(&account, "/clusters").await, json!({"clusters": ["demo", "new"]}));
    let first = get(&account, "/clusters?maxResults=1").await;
    assert_eq!(first["clusters"], json!(["demo"]));
    let token = first["nextToken"].as_str().unwrap();
    assert_eq!(get(&account, &format!("/clusters?maxResults=1&nextToken={token}")).await, json!({"clusters": ["new"]}));
    let (status, deleted) = eks(&account, Method::DELETE, "/clusters/new", Value::Null).await;
    assert_eq!((status, &deleted["cluster"]["status"]), (200, &json!("DELETING")));
    sleep(Duration::from_secs(120)).await;
    assert_eq!(
        eks(&account, Method::GET, "/clusters/new", Value::Null).await,
        (404, json!("ResourceNotFoundException"))
    );
}

#[tokio::test(start_paused = true)]
async fn wrong_clusters_are_refused() {
    let account = with_control_role().await;
    let with = |member: &str, value: Value| {
        let mut input = new_cluster(&account, "new");
        input[member] = value;
        input
    };
    let one = &account.setup.subnet_ids[0];
    for (input, code, status) in [
        (with("name", json!("demo")), "ResourceInUseException", 409),
        (with("name", json!("-x")), "InvalidParameterException", 400),
        (with("roleArn", json!("arn:aws:iam::123456789012:role/none")), "InvalidParameterException", 400),
        (with("version", json!("1.2")), "InvalidParameterException", 400),
        (with("resourcesVpcConfig", json!({})), "InvalidParameterException", 400),
        (with("resourcesVpcConfig", json!({"subnetIds": [one]})), "InvalidParameterException", 400),
        (with("resourcesVpcConfig", json!({"subnetIds": [one, "subnet-0"]})), "InvalidParameterException", 400),
        (with("accessConfig", json!({"authenticationMode": "NONE"})), "InvalidParameterException", 400),
    ] {
        assert_eq!(eks(&account, Method::POST, "/clusters", input.clone()).await, (status, json!(code)), "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_updated_one_thing_at_a_time() {
    let account = Account::new();
    let path = "/clusters/demo/update-config";
    let mode = |mode: &str| json!({"accessConfig": {"authenticationMode": mode}});
    let update = post(&account, path, mode("API")).await["update"].clone();
    assert_eq!((&update["type"], &update["status"]), (&json!("AccessConfigUpdate"), &json!("InProgress")));
    assert_eq!(update["params"], json!([{"type": "AuthenticationMode", "value": "API"}]));
    assert_eq!(get(&account, "/clusters/demo").await["cluster"]["status"], "UPDATING");
    let protect = json!({"deletionProtection": true});
    assert_eq!(eks(&account, Method::POST, path, protect.clone()).await, (409, json!("ResourceInUseException")));
    sleep(Duration::from_secs(60)).await;
    let cluster = get(&account, "/clusters/demo").await["cluster"].clone();
    assert_eq!((&cluster["status"], &cluster["accessConfig"]["authenticationMode"]), (&json!("ACTIVE"), &json!("API")));
    let id = update["id"].as_str().unwrap();
    assert_eq!(get(&account, &format!("/clusters/demo/updates/{id}")).await["update"]["status"], "Successful");
    assert_eq!(get(&account, "/clusters/demo/updates").await, json!({"updateIds": [id]}));
    for (input, code) in [
        (mode("CONFIG_MAP"), "InvalidRequestException"),
        (mode("API"), "InvalidParameterException"),
        (json!({}), "InvalidParameterException"),
        (
            json!({"deletionProtection": true, "accessConfig": {"authenticationMode": "API"}}),
            "InvalidParameterException",
        ),
        (json!({"logging": {}}), "InvalidParameterException"),
        (json!({"resourcesVpcConfig": {"securityGroupIds": ["sg-0"]}}), "InvalidParameterException"),
    ] {
        assert_eq!(eks(&account, Method::POST, path, input.clone()).await, (400, json!(code)), "{input}");
    }
    post(&account, path, protect).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        eks(&account, Method::DELETE, "/clusters/demo", Value::Null).await,
        (400, json!("InvalidRequestException"))
    );
    let endpoint = json!({"resourcesVpcConfig": {"endpointPublicAccess": false, "endpointPrivateAccess": true}});
    assert_eq!(post(&account, path, endpoint).await["update"]["type"], "EndpointAccessUpdate");
    assert_eq!(get(&account, "/clusters/demo").await["cluster"]["resourcesVpcConfig"]["endpointPublicAccess"], false);
}

#[tokio::test(start_paused = true)]
async fn access_entries_are_updated_and_have_access_policies() {
    let account = Account::new();
    let entries = "/clusters/demo/access-entries";
    for name in ["a", "b", "c"] {
        post(&account, entries, json!({"principalArn": format!("arn:aws:iam::123456789012:role/{name}")})).await;
    }
    let first = get(&account, &format!("{entries}?maxResults=3")).await;
    assert_eq!(first["accessEntries"].as_array().unwrap().len(), 3);
    let token = first["nextToken"].as_str().unwrap();
    let second = get(&account, &format!("{entries}?maxResults=3&nextToken={token}")).await;
    assert_eq!((second["accessEntries"].as_array().unwrap().len(), second.get("nextToken")), (1, None));
    let entry = format!("{entries}/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa");
    sleep(Duration::from_secs(5)).await;
    let updated =
        post(&account, &entry, json!({"kubernetesGroups": ["viewers"], "username": "ann"})).await["accessEntry"]
            .clone();
    assert_eq!((&updated["kubernetesGroups"], &updated["username"]), (&json!(["viewers"]), &json!("ann")));
    assert_eq!((&updated["createdAt"], &updated["modifiedAt"]), (&json!(1_767_225_600), &json!(1_767_225_605)));
    let reserved = json!({"kubernetesGroups": ["system:masters"]});
    assert_eq!(eks(&account, Method::POST, &entry, reserved).await, (400, json!("InvalidParameterException")));
    let node = format!("{entries}/{}", account.setup.node_role_arn.replace(':', "%3A").replace('/', "%2F"));
    assert_eq!(
        eks(&account, Method::POST, &node, json!({"username": "x"})).await,
        (400, json!("InvalidRequestException"))
    );

    let listed = get(&account, "/access-policies").await;
    let view = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy";
    assert!(
        listed["accessPolicies"].as_array().unwrap().contains(&json!({"name": "AmazonEKSViewPolicy", "arn": view}))
    );
    let policies = format!("{entry}/access-policies");
    let scope = json!({"type": "namespace", "namespaces": ["team"]});
    let associated = post(&account, &policies, json!({"policyArn": view, "accessScope": scope})).await;
    assert_eq!(associated["associatedAccessPolicy"]["accessScope"], scope);
    assert_eq!(get(&account, &policies).await["associatedAccessPolicies"][0]["policyArn"], view);
    let by_policy = get(&account, &format!("{entries}?associatedPolicyArn={view}")).await;
    assert_eq!(by_policy, json!({"accessEntries": ["arn:aws:iam::123456789012:role/a"]}));
    for (input, code) in [
        (
            json!({"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess", "accessScope": {"type": "cluster"}}),
            "InvalidParameterException",
        ),
        (json!({"policyArn": view, "accessScope": {"type": "namespace"}}), "InvalidParameterException"),
        (json!({"policyArn": view, "accessScope": {"type": "world"}}), "InvalidParameterException"),
    ] {
        assert_eq!(eks(&account, Method::POST, &policies, input.clone()).await, (400, json!(code)), "{input}");
    }
    let cluster_wide = json!({"policyArn": view, "accessScope": {"type": "cluster"}});
    let of_node = format!("{node}/access-policies");
    assert_eq!(eks(&account, Method::POST, &of_node, cluster_wide).await, (400, json!("InvalidRequestException")));
    let one = format!("{policies}/{}", view.replace(':', "%3A").replace('/', "%2F"));
    assert_eq!(eks(&account, Method::DELETE, &one, Value::Null).await.0, 200);
    assert_eq!(eks(&account, Method::DELETE, &one, Value::Null).await, (404, json!("ResourceNotFoundException")));
}

#[tokio::test(start_paused = true)]
async fn pod_identity_associations_change_their_role_and_are_paged() {
    let account = with_control_role().await;
    let path = "/clusters/demo/pod-identity-associations";
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let input = json!({"namespace": "n", "serviceAccount": name, "roleArn": account.setup.node_role_arn});
        ids.push(post(&account, path, input).await["association"]["associationId"].as_str().unwrap().to_owned());
    }
    let first = get(&account, &format!("{path}?maxResults=2")).await;
    assert_eq!(first["associations"].as_array().unwrap().len(), 2);
    let role = "arn:aws:iam::123456789012:role/control";
    let updated = post(&account, &format!("{path}/{}", ids[0]), json!({"roleArn": role})).await;
    assert_eq!((&updated["association"]["roleArn"], &updated["association"]["namespace"]), (&json!(role), &json!("n")));
    for input in [json!({}), json!({"roleArn": "arn:aws:iam::123456789012:role/none"})] {
        assert_eq!(eks(&account, Method::POST, &format!("{path}/{}", ids[0]), input).await.0, 400);
    }
    assert_eq!(eks(&account, Method::POST, &format!("{path}/a-none"), json!({"roleArn": role})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn what_eks_has_can_be_tagged() {
    let account = Account::new();
    let entry =
        post(&account, "/clusters/demo/access-entries", json!({"principalArn": "arn:aws:iam::123456789012:role/a"}))
            .await;
    for arn in
        ["arn:aws:eks:us-west-2:123456789012:cluster/demo", entry["accessEntry"]["accessEntryArn"].as_str().unwrap()]
    {
        let path = format!("/tags/{}", arn.replace(':', "%3A").replace('/', "%2F"));
        post(&account, &path, json!({"tags": {"a": "1", "b": "2", "c": "3"}})).await;
        assert_eq!(eks(&account, Method::DELETE, &format!("{path}?tagKeys=a&tagKeys=b"), Value::Null).await.0, 200);
        assert_eq!(get(&account, &path).await, json!({"tags": {"c": "3"}}));
    }
    let missing = "/tags/arn%3Aaws%3Aeks%3Aus-west-2%3A123456789012%3Acluster%2Fnone";
    assert_eq!(eks(&account, Method::GET, missing, Value::Null).await, (404, json!("NotFoundException")));
}
