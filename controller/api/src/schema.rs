//! What the schemas hold beyond the shape of the types: CEL rules, list and map types, int-or-string quantities, and the
//! clean-up that makes a JSON schema a structural one.
//!
//! Fields refer to these functions and constants by `#[schemars(…)]`; [`crds`] puts everything together. Rules keep within
//! the API server's cost budget because every list and map they walk is bounded.

use crate::labels::{
    CAPACITY_TYPE_LABEL, HOSTNAME_LABEL, NODE_CLASS_LABEL, NODE_POOL_LABEL, WELL_KNOWN_LABELS, domain,
};
use crate::{
    AWS_GROUP, AmiFamily, Ec2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus, GROUP, NodeClaim, NodeClaimSpec,
    NodeClaimStatus, NodePool, NodePoolSpec, NodePoolStatus,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

// Patterns (core spec §1.1, AWS spec §1.2).

pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
pub(crate) const DURATION: &str = r"^([0-9]+(s|m|h))+$";
pub(crate) const DURATION_OR_NEVER: &str = r"^(([0-9]+(s|m|h))+|Never)$";
pub(crate) const BUDGET_NODES: &str = r"^((100|[0-9]{1,2})%|[0-9]+)$";
pub(crate) const CRON: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
const BUDGET_DURATION: &str = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
pub(crate) const NO_SLASH: &str = r"^[^/]*$";
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const REASON_OR_EMPTY: &str = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";
const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
pub(crate) const CAPACITY_RESERVATION_ID: &str = r"^cr-[0-9a-z]+$";
pub(crate) const ACCOUNT_ID: &str = r"^[0-9]{12}$";
const VOLUME_SIZE: &str = r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";

// CEL rules, each with its message (core spec §1.2.4, AWS spec §1.3).

pub(crate) type Rules = &'static [(&'static str, &'static str)];

pub(crate) const NODE_POOL_RULES: Rules = &[
    (
        "has(self.replicas) == has(oldSelf.replicas)",
        "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
    ),
    (
        "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 || (self.limits.size() == 1 && 'nodes' in self.limits)",
        "only 'limits.nodes' is supported on static NodePools",
    ),
    ("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools"),
];

pub(crate) const NODE_CLASS_REF_RULES: Rules = &[
    ("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
    ("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
];

pub(crate) const BUDGETS_RULES: Rules =
    &[("self.all(x, has(x.schedule) == has(x.duration))", "'schedule' must be set with 'duration'")];

const OPERATORS: [&str; 8] = ["Gte", "Lte", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

// `has(x.values)` first, because a rule that fails to evaluate is refused without its message.
const REQUIREMENTS_RULES: Rules = &[
    (
        "self.all(x, x.operator != 'In' || (has(x.values) && x.values.size() != 0))",
        "requirements with operator 'In' must have a value defined",
    ),
    (
        "self.all(x, !(x.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(x.values) && x.values.size() == 1 && int(x.values[0]) >= 0))",
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
    ),
    (
        "self.all(x, x.operator != 'In' || !has(x.minValues) || (has(x.values) && x.values.size() >= x.minValues))",
        "requirements with 'minValues' must have at least that many values specified in the 'values' field",
    ),
];

const SELECTOR_TAGS_RULES: Rules =
    &[("self.all(k, k != '' && self[k] != '')", "empty tag keys or values aren't supported")];

// The rules on `id` and `name` of subnets, security groups and reservations refuse a list only if *every* term mixes;
// upstream accepts lists in which some do (AWS spec §1.3, quirk Q1), and so must a drop-in.
pub(crate) const SUBNET_TERMS_RULES: Rules = &[
    ("self.size() != 0", "subnetSelectorTerms cannot be empty"),
    ("self.all(x, has(x.tags) || has(x.id))", "expected at least one, got none, ['tags', 'id']"),
    (
        "!self.all(x, has(x.id) && has(x.tags))",
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term",
    ),
];

pub(crate) const SECURITY_GROUP_TERMS_RULES: Rules = &[
    ("self.size() != 0", "securityGroupSelectorTerms cannot be empty"),
    ("self.all(x, has(x.tags) || has(x.id) || has(x.name))", "expected at least one, got none, ['tags', 'id', 'name']"),
    (
        "!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))",
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
    ),
    (
        "!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))",
        "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
    ),
];

// An empty list has no term that mixes, so the last rule must let it pass.
pub(crate) const CAPACITY_RESERVATION_TERMS_RULES: Rules = &[
    (
        "self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))",
        "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",
    ),
    (
        "self.size() == 0 || !self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))",
        "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
    ),
];

pub(crate) const PLACEMENT_GROUP_RULES: Rules = &[
    ("has(self.name) || has(self.id)", "expected at least one, got none, ['name', 'id']"),
    ("!(has(self.name) && has(self.id))", "'name' and 'id' are mutually exclusive"),
];

pub(crate) const AMI_TERMS_RULES: Rules = &[
    (
        "self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))",
        "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
    ),
    (
        "!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))",
        "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
    ),
    (
        "!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))",
        "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
    ),
    (
        "!self.exists(x, has(x.alias)) || self.size() == 1",
        "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
    ),
];

pub(crate) const ALIAS_RULES: Rules = &[
    ("self.matches('^[a-zA-Z0-9]+@.+$')", "'alias' is improperly formatted, must match the format 'family@version'"),
    (
        "self.find('^[^@]+') in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",
        "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'",
    ),
    (
        "!(self.find('^[^@]+') in ['windows2019', 'windows2022', 'windows2025']) || self.endsWith('@latest')",
        "windows families may only specify version 'latest'",
    ),
];

pub(crate) const TAGS_RULES: Rules = &[
    ("self.all(k, k != '')", "empty tag keys aren't supported"),
    ("self.all(k, k != 'eks:eks-cluster-name')", "tag contains a restricted tag matching eks:eks-cluster-name"),
    (
        "self.all(k, !k.startsWith('kubernetes.io/cluster'))",
        "tag contains a restricted tag matching kubernetes.io/cluster/",
    ),
    ("self.all(k, k != 'karpenter.sh/nodepool')", "tag contains a restricted tag matching karpenter.sh/nodepool"),
    ("self.all(k, k != 'karpenter.sh/nodeclaim')", "tag contains a restricted tag matching karpenter.sh/nodeclaim"),
    (
        "self.all(k, k != 'karpenter.k8s.aws/ec2nodeclass')",
        "tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass",
    ),
];

pub(crate) const BLOCK_DEVICE_MAPPINGS_RULES: Rules = &[(
    "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
    "must have only one blockDeviceMappings with rootVolume",
)];

pub(crate) const EBS_RULES: Rules = &[
    ("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize must be defined"),
    (
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "snapshotID must be set when volumeInitializationRate is set",
    ),
];

pub(crate) const NETWORK_INTERFACES_RULES: Rules = &[
    (
        "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && x.interfaceType == 'interface')",
        "networkInterfaces must include a primary interface with interfaceType='interface'",
    ),
    (
        "self.all(x, self.filter(y, y.networkCardIndex == x.networkCardIndex && (y.deviceIndex == x.deviceIndex || (x.interfaceType == 'efa-only' && y.interfaceType == 'efa-only'))).size() == 1)",
        "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card",
    ),
];

pub(crate) const CONNECTION_TRACKING_RULES: Rules = &[(
    "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
)];

const EC2_NODE_CLASS_RULES: Rules = &[
    ("has(self.role) != has(self.instanceProfile)", "must specify exactly one of ['role', 'instanceProfile']"),
    (
        "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
    ),
];

// Transforms: each adds to the schema of the field or type that names it.

/// Adds CEL rules.
pub(crate) fn rules(rules: Rules) -> impl FnMut(&mut Schema) {
    move |schema| rules.iter().for_each(|(rule, message)| add_rule(schema.ensure_object(), rule, message))
}

fn add_rule(schema: &mut Map<String, Value>, rule: &str, message: &str) {
    let rules = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    rules
        .as_array_mut()
        .expect("only this function writes the rules")
        .push(json!({ "rule": rule, "message": message }));
}

/// Restricts a text to these values.
pub(crate) fn one_of(values: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("enum".to_owned(), json!(values));
    }
}

/// Turns an enum's documented variants, each a schema of its own, into one list of values.
pub(crate) fn plain_enum(schema: &mut Schema) {
    if let Some(Value::Array(variants)) = schema.remove("oneOf") {
        let values: Vec<_> = variants.iter().filter_map(|variant| variant.get("const").cloned()).collect();
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), json!(values));
    }
}

/// The default as users know it; the API server fills in the nested ones.
pub(crate) fn disruption_default(schema: &mut Schema) {
    schema.insert("default".to_owned(), json!({ "consolidateAfter": "0s" }));
}

pub(crate) fn selector_tags(schema: &mut Schema) {
    schema.insert("maxProperties".to_owned(), json!(20));
    rules(SELECTOR_TAGS_RULES)(schema);
}

/// Upstream puts the bounds of one value on the list, where the API server ignores them; values are checked at run time
/// (core spec §1.2.6).
pub(crate) fn requirement_values(schema: &mut Schema) {
    schema.insert("maxLength".to_owned(), json!(63));
    schema.insert("pattern".to_owned(), json!(LABEL_VALUE));
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
}

/// Requirements of a NodeClaim.
pub(crate) fn requirements(schema: &mut Schema) {
    requirements_with(schema, &[CORE_DOMAIN, HOSTNAME]);
}

/// Requirements of a NodePool: the pool's own label is not theirs to choose.
pub(crate) fn node_pool_requirements(schema: &mut Schema) {
    requirements_with(schema, &[CORE_DOMAIN, NODE_POOL, HOSTNAME]);
}

fn requirements_with(schema: &mut Schema, restrictions: &[KeyRestriction]) {
    schema.insert("maxItems".to_owned(), json!(100));
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
    rules(REQUIREMENTS_RULES)(schema);
    // The API server lists the operators in this order when it refuses another, and names the format of a number that is
    // none: both as upstream's definitions make it.
    schema
        .pointer_mut("/items/properties/operator/enum")
        .into_iter()
        .for_each(|operators| *operators = json!(OPERATORS));
    let min_values = schema.pointer_mut("/items/properties/minValues").and_then(Value::as_object_mut);
    min_values.expect("items of requirements have a least number of values").remove("format");
    let key = schema.pointer_mut("/items/properties/key").and_then(Value::as_object_mut);
    let key = key.expect("items of requirements have a key");
    for restriction in restrictions.iter().chain(&[AWS_DOMAIN]) {
        add_rule(key, &restriction.rule("self"), &restriction.message());
    }
}

/// One thing a label's key must not be.
enum KeyRestriction {
    Domain(&'static str),
    Label(&'static str),
}

const CORE_DOMAIN: KeyRestriction = KeyRestriction::Domain(GROUP);
const AWS_DOMAIN: KeyRestriction = KeyRestriction::Domain(AWS_GROUP);
const NODE_POOL: KeyRestriction = KeyRestriction::Label(NODE_POOL_LABEL);
const HOSTNAME: KeyRestriction = KeyRestriction::Label(HOSTNAME_LABEL);

impl KeyRestriction {
    /// The rule for the key that `key` stands for. A domain is compared by how it ends, so `mykarpenter.sh` counts too.
    fn rule(&self, key: &str) -> String {
        match self {
            Self::Label(label) => format!(r#"{key} != "{label}""#),
            Self::Domain(name) => {
                let allowed = json!(allowed_in(name));
                format!(r#"{key} in {allowed} || !{key}.find("^([^/]+)").endsWith("{name}")"#)
            }
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Label(label) => format!("label {label:?} is restricted"),
            Self::Domain(name) => format!("label domain {name:?} is restricted"),
        }
    }
}

/// Labels of a restricted domain that the schema lets pass. The class's own label is among them because NodeClaims
/// require it; on a NodePool the run-time validation refuses it.
fn allowed_in(name: &str) -> Vec<&'static str> {
    match name {
        GROUP => vec![CAPACITY_TYPE_LABEL, NODE_POOL_LABEL],
        _ => {
            WELL_KNOWN_LABELS.iter().copied().chain([NODE_CLASS_LABEL]).filter(|label| domain(label) == name).collect()
        }
    }
}

/// The rules of the whole class.
pub(crate) fn ec2_node_class(schema: &mut Schema) {
    rules(EC2_NODE_CLASS_RULES)(schema);
    for family in AmiFamily::ALL.into_iter().filter(|family| *family != AmiFamily::Custom) {
        let (name, alias) = (family.as_str(), family.as_str().to_lowercase());
        let article = if name.starts_with('A') { "an" } else { "a" };
        add_rule(
            schema.ensure_object(),
            &format!(
                "!has(self.amiFamily) || self.amiFamily in ['{name}', 'Custom'] || \
                 !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == '{alias}')"
            ),
            &format!("if set, amiFamily must be '{name}' or 'Custom' when using {article} {name} alias"),
        );
    }
}

// Schemas of fields whose Rust type is another's or says too little.

pub(crate) fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        },
    })
}

pub(crate) fn volume_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": VOLUME_SIZE })
}

pub(crate) fn budget_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": BUDGET_DURATION })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

pub(crate) fn template_labels(_: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "maxProperties": 100,
        "x-kubernetes-map-type": "atomic",
    });
    for restriction in [CORE_DOMAIN, NODE_POOL, HOSTNAME, AWS_DOMAIN] {
        let rule = format!("self.all(x, {})", restriction.rule("x"));
        add_rule(schema.ensure_object(), &rule, &restriction.message());
    }
    schema
}

pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["key", "effect"],
            "properties": {
                "key": { "type": "string", "minLength": 1, "pattern": QUALIFIED_NAME, "description": "The taint's key." },
                "value": { "type": "string", "pattern": QUALIFIED_NAME, "description": "The taint's value." },
                "effect": {
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                    "description": "What happens to pods that do not tolerate the taint.",
                },
                "timeAdded": { "type": "string", "format": "date-time", "description": "When the taint was added." },
            },
        },
        "x-kubernetes-list-type": "atomic",
    })
}

pub(crate) fn ami_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "description": "The label." },
                "operator": { "type": "string", "description": "How the label relates to the values." },
                "values": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "The values.",
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}

pub(crate) fn node_pool_conditions(_: &mut SchemaGenerator) -> Schema {
    keyed_by_type(conditions(
        &["lastTransitionTime", "message", "reason", "status", "type"],
        json!({ "minLength": 1, "pattern": REASON }),
    ))
}

pub(crate) fn ec2_node_class_conditions(_: &mut SchemaGenerator) -> Schema {
    conditions(
        &["lastTransitionTime", "message", "reason", "status", "type"],
        json!({ "minLength": 1, "pattern": REASON }),
    )
}

/// A NodeClaim's conditions may lack a reason.
pub(crate) fn node_claim_conditions(_: &mut SchemaGenerator) -> Schema {
    keyed_by_type(conditions(&["lastTransitionTime", "status", "type"], json!({ "pattern": REASON_OR_EMPTY })))
}

fn keyed_by_type(mut schema: Schema) -> Schema {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    schema
}

fn conditions(required: &[&str], mut reason: Value) -> Schema {
    reason["type"] = json!("string");
    reason["maxLength"] = json!(1024);
    reason["description"] = json!("Why, in one word for programs.");
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": required,
            "properties": {
                "type": { "type": "string", "maxLength": 316, "pattern": CONDITION_TYPE, "description": "Which aspect." },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds.",
                },
                "reason": reason,
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "Why, in a sentence for people.",
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last became another.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The object's generation this was found out for.",
                },
            },
        },
    })
}

// The definitions.

/// The three CustomResourceDefinitions, as the chart ships them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        with_schema::<NodePoolSpec, NodePoolStatus>(
            NodePool::crd(),
            "NodePool says which nodes may be launched for pods that fit nowhere, and when they are removed again.",
        ),
        with_schema::<NodeClaimSpec, NodeClaimStatus>(
            NodeClaim::crd(),
            "NodeClaim is one node that is wanted, from the request to the cloud until its instance is gone.",
        ),
        with_schema::<Ec2NodeClassSpec, Ec2NodeClassStatus>(
            Ec2NodeClass::crd(),
            "EC2NodeClass says how instances are launched: network, image, role, disks and bootstrap.",
        ),
    ]
}

fn with_schema<Spec: JsonSchema, Status: JsonSchema>(
    mut definition: CustomResourceDefinition,
    description: &str,
) -> CustomResourceDefinition {
    let schema = json!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string", "description": "Group and version of the object's schema." },
            "kind": { "type": "string", "description": "Which resource the object is." },
            "metadata": { "type": "object" },
            "spec": structural::<Spec>(),
            "status": structural::<Status>(),
        },
    });
    let schema: JSONSchemaProps = serde_json::from_value(schema).expect("schemas of this crate are valid");
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(schema.clone()) });
    }
    definition
}

fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema);
    schema
}

/// Says in Kubernetes' words what JSON Schema says otherwise. An optional field is one that may be absent: `null` is not
/// another value of it, so the API server drops a null and fills in the default.
fn make_structural(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("title");
    if let Some(Value::Array(types)) = schema.get("type") {
        let type_ = types.iter().find(|type_| *type_ != "null").cloned();
        schema.insert("type".to_owned(), type_.unwrap_or_default());
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
    for keyword in ["items", "additionalProperties"] {
        schema.get_mut(keyword).into_iter().for_each(make_structural);
    }
}
