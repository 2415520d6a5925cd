//! The chart's CRD files are what the code says, and the schemas are ones an API server accepts.

use controller_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::path::PathBuf;

const HOW: &str = "Generated from controller/api; to regenerate: UPDATE_CRDS=1 cargo test -p controller-api";

fn definition(plural: &str) -> Value {
    let found = crds().into_iter().find(|definition| definition.spec.names.plural == plural);
    serde_json::to_value(found.expect(plural)).unwrap()
}

fn schema(plural: &str, pointer: &str) -> Value {
    let definition = definition(plural);
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema.pointer(pointer).unwrap_or_else(|| panic!("{plural} has no {pointer}")).clone()
}

/// Calls `visit` with the path and content of every schema within a definition.
fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            walk(&format!("{path}[]"), inner, visit);
        }
    }
}

fn walk_all(mut visit: impl FnMut(&str, &Value)) {
    for plural in ["nodepools", "nodeclaims", "ec2nodeclasses"] {
        walk(plural, &schema(plural, ""), &mut visit);
    }
}

#[test]
fn the_charts_files_are_what_the_code_says() {
    let directory = PathBuf::from("../../deploy/chart/crds");
    for definition in crds() {
        let CustomResourceDefinition { spec, .. } = &definition;
        let path = directory.join(format!("{}_{}.yaml", spec.group, spec.names.plural));
        let text = format!("# {HOW}\n{}", serde_yaml_ng::to_string(&definition).unwrap());
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is out of date. {HOW}", path.display());
    }
}

#[test]
fn schemas_are_structural() {
    walk_all(|path, schema| {
        let object = schema.as_object().unwrap_or_else(|| panic!("{path} is no object"));
        for keyword in ["$ref", "nullable", "title", "oneOf", "allOf", "not", "const", "uniqueItems", "definitions"] {
            assert!(!object.contains_key(keyword), "{path} has {keyword}");
        }
        let int_or_string = object.get("x-kubernetes-int-or-string") == Some(&json!(true));
        assert_eq!(object.contains_key("type"), !int_or_string, "{path} has a type unless it is int-or-string");
        assert_eq!(object.contains_key("anyOf"), int_or_string, "{path} has no alternatives but int-or-string");
        assert!(object.get("type").is_none_or(Value::is_string), "{path} has one type");
        assert!(
            !(object.contains_key("properties") && object.contains_key("additionalProperties")),
            "{path} has either properties or additional ones"
        );
        assert!(object.get("additionalProperties").is_none_or(Value::is_object), "{path} says what its values are");
        if object.get("type") == Some(&json!("array")) {
            assert!(object.contains_key("items"), "{path} says what its items are");
        }
        if let Some(format) = object.get("format") {
            assert!(["int32", "int64", "date-time"].contains(&format.as_str().unwrap()), "{path} has format {format}");
        }
        assert_ne!(object.get("default"), Some(&Value::Null), "{path} has a default");
    });
}

#[test]
fn every_field_of_ours_is_described() {
    walk_all(|path, schema| {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let described = property["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described || name == "metadata", "{path}.{name} has no description");
        }
    });
}

#[test]
fn every_rule_has_a_message() {
    walk_all(|path, schema| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            assert!(rule["message"].as_str().is_some_and(|message| !message.is_empty()), "{path}: {rule}");
        }
    });
}

/// The API server refuses a definition whose rules could cost too much; unbounded lists and maps make them.
#[test]
fn every_list_and_map_that_a_rule_walks_is_bounded() {
    walk_all(|path, schema| {
        let walks = schema["x-kubernetes-validations"].to_string().contains("self.all(");
        // The class's own tags are the one exception: upstream sets no bound, and one comparison per key stays cheap.
        if walks && path != "ec2nodeclasses.spec.tags" {
            let bound = if schema["type"] == "array" { "maxItems" } else { "maxProperties" };
            assert!(schema[bound].is_u64(), "{path} has no {bound}");
        }
    });
}

fn messages(plural: &str, pointer: &str) -> Vec<String> {
    let rules = schema(plural, pointer)["x-kubernetes-validations"].clone();
    rules.as_array().unwrap().iter().map(|rule| rule["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn node_pool_rules_carry_upstreams_messages() {
    assert_eq!(
        messages("nodepools", "/properties/spec"),
        [
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
            "only 'limits.nodes' is supported on static NodePools",
            "'weight' is not supported on static NodePools",
        ]
    );
    let restricted = [
        "label domain \"karpenter.sh\" is restricted",
        "label \"karpenter.sh/nodepool\" is restricted",
        "label \"kubernetes.io/hostname\" is restricted",
        "label domain \"karpenter.k8s.aws\" is restricted",
    ];
    let template = "/properties/spec/properties/template/properties";
    assert_eq!(messages("nodepools", &format!("{template}/metadata/properties/labels")), restricted);
    let spec = format!("{template}/spec/properties");
    assert_eq!(messages("nodepools", &format!("{spec}/requirements/items/properties/key")), restricted);
    assert_eq!(
        messages("nodepools", &format!("{spec}/requirements")),
        [
            "requirements with operator 'In' must have a value defined",
            "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
            "requirements with 'minValues' must have at least that many values specified in the 'values' field",
        ]
    );
    assert_eq!(
        messages("nodepools", &format!("{spec}/nodeClassRef")),
        ["nodeClassRef.group is immutable", "nodeClassRef.kind is immutable"]
    );
    for field in ["group", "kind", "name"] {
        let path = format!("{spec}/nodeClassRef/properties/{field}");
        assert_eq!(messages("nodepools", &path), [format!("{field} may not be empty")]);
    }
    assert_eq!(
        messages("nodepools", "/properties/spec/properties/disruption/properties/budgets"),
        ["'schedule' must be set with 'duration'"]
    );
}

#[test]
fn node_claim_rules_differ_from_the_pools_where_they_must() {
    assert_eq!(messages("nodeclaims", "/properties/spec"), ["spec is immutable"]);
    assert_eq!(
        messages("nodeclaims", "/properties/spec/properties/requirements/items/properties/key"),
        [
            "label domain \"karpenter.sh\" is restricted",
            "label \"kubernetes.io/hostname\" is restricted",
            "label domain \"karpenter.k8s.aws\" is restricted",
        ]
    );
    let reference = schema("nodeclaims", "/properties/spec/properties/nodeClassRef");
    assert_eq!(reference.get("x-kubernetes-validations"), None);
}

#[test]
fn node_class_rules_carry_the_messages_of_the_specification() {
    let spec = messages("ec2nodeclasses", "/properties/spec");
    for message in [
        "must specify exactly one of ['role', 'instanceProfile']",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
        "if set, amiFamily must be 'AL2023' or 'Custom' when using an AL2023 alias",
        "if set, amiFamily must be 'Bottlerocket' or 'Custom' when using a Bottlerocket alias",
    ] {
        assert!(spec.iter().any(|found| found == message), "{message} is not in {spec:#?}");
    }
    assert_eq!(messages("ec2nodeclasses", "/properties/spec/properties/role"), ["role cannot be empty"]);
    assert_eq!(
        messages("ec2nodeclasses", "/properties/spec/properties/instanceProfile"),
        ["instanceProfile cannot be empty"]
    );
}

#[test]
fn the_schema_fills_in_upstreams_defaults() {
    let pool =
        |pointer: &str| schema("nodepools", &format!("/properties/spec/properties/{pointer}"))["default"].clone();
    assert_eq!(pool("disruption"), json!({ "consolidateAfter": "0s" }));
    assert_eq!(pool("disruption/properties/consolidateAfter"), "0s");
    assert_eq!(pool("disruption/properties/consolidationPolicy"), "WhenEmptyOrUnderutilized");
    assert_eq!(pool("disruption/properties/budgets"), json!([{ "nodes": "10%" }]));
    assert_eq!(pool("disruption/properties/budgets/items/properties/nodes"), "10%");
    assert_eq!(pool("template/properties/spec/properties/expireAfter"), "720h");
    assert_eq!(schema("nodepools", "/properties/status/properties/nodes")["default"], 0);
    assert_eq!(schema("nodeclaims", "/properties/spec/properties/expireAfter")["default"], "720h");
    assert_eq!(
        schema("ec2nodeclasses", "/properties/spec/properties/metadataOptions")["default"],
        json!({
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        })
    );
    let hop_limit = "/properties/spec/properties/metadataOptions/properties/httpPutResponseHopLimit";
    assert_eq!(schema("ec2nodeclasses", hop_limit)["default"], 1);
    // Nothing else: a default that sneaks in changes what users' objects mean.
    let mut defaults = Vec::new();
    walk_all(|path, schema| defaults.extend(schema.get("default").map(|_| path.to_owned())));
    assert_eq!(defaults.len(), 15, "{defaults:#?}");
}

#[test]
fn only_these_fields_are_required() {
    let mut required = Vec::new();
    walk_all(|path, schema| {
        // Items of status lists are the controller's own business.
        if !path.contains(".status") {
            let names = schema["required"].as_array().into_iter().flatten();
            required.extend(names.map(|name| format!("{path}.{}", name.as_str().unwrap())));
        }
    });
    required.sort();
    let expected = "
        ec2nodeclasses.spec
        ec2nodeclasses.spec.amiSelectorTerms
        ec2nodeclasses.spec.networkInterfaces[].deviceIndex
        ec2nodeclasses.spec.networkInterfaces[].interfaceType
        ec2nodeclasses.spec.networkInterfaces[].networkCardIndex
        ec2nodeclasses.spec.securityGroupSelectorTerms
        ec2nodeclasses.spec.subnetSelectorTerms
        nodeclaims.spec
        nodeclaims.spec.nodeClassRef
        nodeclaims.spec.nodeClassRef.group
        nodeclaims.spec.nodeClassRef.kind
        nodeclaims.spec.nodeClassRef.name
        nodeclaims.spec.requirements
        nodeclaims.spec.requirements[].key
        nodeclaims.spec.requirements[].operator
        nodeclaims.spec.startupTaints[].effect
        nodeclaims.spec.startupTaints[].key
        nodeclaims.spec.taints[].effect
        nodeclaims.spec.taints[].key
        nodepools.spec
        nodepools.spec.template
        nodepools.spec.template.spec
        nodepools.spec.template.spec.nodeClassRef
        nodepools.spec.template.spec.nodeClassRef.group
        nodepools.spec.template.spec.nodeClassRef.kind
        nodepools.spec.template.spec.nodeClassRef.name
        nodepools.spec.template.spec.requirements
        nodepools.spec.template.spec.requirements[].key
        nodepools.spec.template.spec.requirements[].operator
        nodepools.spec.template.spec.startupTaints[].effect
        nodepools.spec.template.spec.startupTaints[].key
        nodepools.spec.template.spec.taints[].effect
        nodepools.spec.template.spec.taints[].key
    ";
    assert_eq!(required, expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn names_columns_and_subresources_are_upstreams() {
    let pool = definition("nodepools");
    let version = &pool["spec"]["versions"][0];
    assert_eq!(pool["metadata"]["name"], "nodepools.karpenter.sh");
    assert_eq!(pool["spec"]["scope"], "Cluster");
    assert_eq!(pool["spec"]["names"]["categories"], json!(["karpenter"]));
    assert_eq!(
        version["subresources"],
        json!({
            "status": {},
            "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes" },
        })
    );
    let columns = |definition: &Value| -> Vec<String> {
        let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        columns
            .iter()
            .map(|column| {
                let [name, type_, path] = ["name", "type", "jsonPath"].map(|key| column[key].as_str().unwrap());
                format!("{name} {type_} {path} {}", column["priority"].as_i64().unwrap_or(0))
            })
            .collect()
    };
    assert_eq!(
        columns(&pool),
        [
            "NodeClass string .spec.template.spec.nodeClassRef.name 0",
            "Nodes string .status.nodes 0",
            "Ready string .status.conditions[?(@.type==\"Ready\")].status 0",
            "Age date .metadata.creationTimestamp 0",
            "Weight integer .spec.weight 1",
            "CPU string .status.resources.cpu 1",
            "Memory string .status.resources.memory 1",
        ]
    );
    assert_eq!(
        columns(&definition("nodeclaims")),
        [
            r"Type string .metadata.labels.node\.kubernetes\.io/instance-type 0",
            r"Capacity string .metadata.labels.karpenter\.sh/capacity-type 0",
            r"Zone string .metadata.labels.topology\.kubernetes\.io/zone 0",
            "Node string .status.nodeName 0",
            "Ready string .status.conditions[?(@.type==\"Ready\")].status 0",
            "Age date .metadata.creationTimestamp 0",
            "ImageID string .status.imageID 1",
            "ID string .status.providerID 1",
            r"NodePool string .metadata.labels.karpenter\.sh/nodepool 1",
            "NodeClass string .spec.nodeClassRef.name 1",
            "Drifted string .status.conditions[?(@.type==\"Drifted\")].status 1",
        ]
    );
    let class = definition("ec2nodeclasses");
    assert_eq!(class["spec"]["names"]["kind"], "EC2NodeClass");
    assert_eq!(class["spec"]["names"]["singular"], "ec2nodeclass");
    assert_eq!(class["spec"]["names"]["shortNames"], json!(["ec2nc", "ec2ncs"]));
    assert_eq!(
        columns(&class),
        [
            "Ready string .status.conditions[?(@.type==\"Ready\")].status 0",
            "Age date .metadata.creationTimestamp 0",
            "Role string .spec.role 1",
        ]
    );
    for plural in ["nodepools", "nodeclaims", "ec2nodeclasses"] {
        let version = definition(plural)["spec"]["versions"][0].clone();
        assert_eq!(
            (&version["name"], &version["served"], &version["storage"]),
            (&json!("v1"), &json!(true), &json!(true))
        );
        assert_eq!(version["subresources"]["status"], json!({}));
    }
}
