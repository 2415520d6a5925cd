//! What the schema cannot tell: the checks of NodePools and of pods' requirements at run time (core spec §1.8).
//!
//! Every function gathers all errors rather than the first. Messages are upstream's, because operators search for them.

use crate::labels::{
    NODE_POOL_LABEL, RESTRICTED_LABEL_DOMAINS, WELL_KNOWN_LABELS, is_restricted, normalize, well_known_values,
};
use crate::names::{label_value_problems, qualified_name_problems};
use crate::{NodePool, NodeSelectorRequirementWithMinValues, Operator};
use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeSet;

/// Why something a user wrote cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ValidationError {
    /// An operator nobody knows.
    #[error("key {key} has an unsupported operator {operator} not in {}", list(&Operator::ALL.map(Operator::as_str)))]
    UnsupportedOperator { key: String, operator: String },
    /// A label that belongs to the controller.
    #[error(
        "using label {key} is not allowed as it might interfere with the internal provisioning logic; specify a well \
         known label: {}, or a custom label that does not use a restricted domain: {}",
        list(WELL_KNOWN_LABELS),
        list(RESTRICTED_LABEL_DOMAINS)
    )]
    RestrictedLabel { key: String },
    /// None of the values is one the label can have.
    #[error("no valid values found in {} for {key}, expected one of: {}, got: {}", list(.values), list(.known), list(.values))]
    NoValidValues { key: String, values: Vec<String>, known: &'static [&'static str] },
    /// Fewer valid values than `minValues` asks for.
    #[error(
        "not enough valid values found in {} for {key}, expected at least {min_values} valid values from: {}, got: {valid}",
        list(.values), list(.known)
    )]
    NotEnoughValidValues {
        key: String,
        values: Vec<String>,
        known: &'static [&'static str],
        valid: usize,
        min_values: i64,
    },
    /// A key that no label can have.
    #[error("key {key} is not a qualified name, {problem}")]
    NotAQualifiedName { key: String, problem: String },
    /// A value that no label can have.
    #[error("invalid value {value} for key {key}, {problem}")]
    InvalidValue { key: String, value: String, problem: String },
    /// `In` without values.
    #[error("key {key} with operator {operator} must have a value defined")]
    NoValues { key: String, operator: Operator },
    /// Fewer values than `minValues` asks for.
    #[error("key {key} with operator {operator} must have at least minimum number of values defined in 'values' field")]
    TooFewValues { key: String, operator: Operator },
    /// A comparison with anything but one integer from 0 up.
    #[error("key {key} with operator {operator} must have a single positive integer value")]
    NotOneInteger { key: String, operator: Operator },
    /// A requirement of a pool that cannot be used, with everything that is wrong with it.
    #[error("invalid value: {} in requirements, restricted", message(.0))]
    Requirement(Vec<ValidationError>),
    /// A pool that requires its own label.
    #[error("invalid key: {0:?} in requirements, restricted")]
    RequirementKey(&'static str),
    /// A pool that labels nodes with its own label.
    #[error("invalid key name {0:?} in labels, restricted")]
    TemplateLabel(&'static str),
    /// A label of a pool's template that no label can be.
    #[error("invalid key name {key:?} in labels, {problem:?}")]
    TemplateLabelKey { key: String, problem: String },
    /// A label of a pool's template with a value no label can have.
    #[error("invalid value: {value} for label[{key}], {problem}")]
    TemplateLabelValue { key: String, value: String, problem: String },
    /// A label of a pool's template that belongs to the controller.
    #[error("invalid key name {key:?} in labels, {problem}")]
    TemplateLabelRestricted { key: String, problem: Box<ValidationError> },
    /// A taint's key, value or effect that no taint can have.
    #[error("invalid value: {problem} in {field}")]
    InvalidTaint { field: &'static str, problem: String },
    /// Two taints that differ at most in value.
    #[error("duplicate taint Key/Effect pair {key}={effect}")]
    DuplicateTaint { key: String, effect: String },
}

/// Values a label cannot have, beside enough that it can: worth an error in the log (`please correct found invalid values,
/// proceeding with valid values`) but no failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValuesIgnored {
    /// The label.
    pub key: String,
    /// Values that count.
    pub valid: Vec<String>,
    /// Values that do not.
    pub invalid: Vec<String>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Reasons not to use what was checked; it is fine if there are none.
    pub errors: Vec<ValidationError>,
    /// Things to log that do no harm.
    pub ignored: Vec<InvalidValuesIgnored>,
}

impl Findings {
    /// Whether what was checked can be used.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    /// All errors in one text, as a condition's message shows them.
    pub fn message(&self) -> String {
        message(&self.errors)
    }
}

/// Checks one requirement. `operator` is text because pods may carry any.
pub fn validate_requirement(key: &str, operator: &str, values: &[String], min_values: Option<i64>) -> Findings {
    let key = normalize(key);
    let operator_text = operator;
    let operator = operator.parse::<Operator>().ok();
    let mut findings = Findings::default();
    if operator.is_none() {
        let operator = operator_text.to_owned();
        findings.errors.push(ValidationError::UnsupportedOperator { key: key.to_owned(), operator });
    }
    findings.errors.extend(restriction(key));
    if operator == Some(Operator::In) {
        check_known_values(key, values, min_values, &mut findings);
    }
    let not_a_name = |problem| ValidationError::NotAQualifiedName { key: key.to_owned(), problem };
    findings.errors.extend(qualified_name_problems(key).into_iter().map(not_a_name));
    for value in values {
        let invalid = |problem| ValidationError::InvalidValue { key: key.to_owned(), value: value.clone(), problem };
        findings.errors.extend(label_value_problems(value).into_iter().map(invalid));
    }
    if let Some(operator) = operator {
        check_value_count(key, operator, values, min_values, &mut findings.errors);
    }
    findings
}

/// Checks one requirement of the API.
pub fn validate_api_requirement(requirement: &NodeSelectorRequirementWithMinValues) -> Findings {
    let NodeSelectorRequirementWithMinValues { key, operator, values, min_values } = requirement;
    validate_requirement(key, operator.as_str(), values, *min_values)
}

/// Checks a whole pool, as the NodePool validation controller does (core spec §5.12).
pub fn validate_node_pool(pool: &NodePool) -> Findings {
    let template = &pool.spec.template;
    let mut findings = Findings::default();
    for (key, value) in template.labels() {
        check_template_label(key, value, &mut findings.errors);
    }
    check_taints(template.spec.taints(), template.spec.startup_taints(), &mut findings.errors);
    for requirement in &template.spec.requirements {
        let Findings { errors, ignored } = validate_api_requirement(requirement);
        findings.errors.extend((!errors.is_empty()).then_some(ValidationError::Requirement(errors)));
        findings.ignored.extend(ignored);
    }
    let own = template.spec.requirements.iter().filter(|requirement| requirement.key == NODE_POOL_LABEL);
    findings.errors.extend(own.map(|_| ValidationError::RequirementKey(NODE_POOL_LABEL)));
    findings
}

fn restriction(key: &str) -> Option<ValidationError> {
    is_restricted(key).then(|| ValidationError::RestrictedLabel { key: key.to_owned() })
}

fn check_known_values(key: &str, values: &[String], min_values: Option<i64>, findings: &mut Findings) {
    let Some(known) = well_known_values(key) else { return };
    let (valid, invalid): (Vec<String>, Vec<String>) =
        values.iter().cloned().partition(|value| known.contains(&value.as_str()));
    let (key, values) = (key.to_owned(), values.to_vec());
    if valid.is_empty() {
        findings.errors.push(ValidationError::NoValidValues { key, values, known });
    } else if let Some(min_values) = min_values.filter(|least| (valid.len() as i64) < *least) {
        let valid = valid.len();
        findings.errors.push(ValidationError::NotEnoughValidValues { key, values, known, valid, min_values });
    } else if !invalid.is_empty() {
        findings.ignored.push(InvalidValuesIgnored { key, valid, invalid });
    }
}

fn check_value_count(
    key: &str,
    operator: Operator,
    values: &[String],
    min_values: Option<i64>,
    errors: &mut Vec<ValidationError>,
) {
    let key = || key.to_owned();
    if operator == Operator::In && values.is_empty() {
        errors.push(ValidationError::NoValues { key: key(), operator });
    }
    if operator == Operator::In && min_values.is_some_and(|least| (values.len() as i64) < least) {
        errors.push(ValidationError::TooFewValues { key: key(), operator });
    }
    let is_one_integer = || matches!(values, [value] if value.parse::<i64>().is_ok_and(|number| number >= 0));
    if operator.is_numeric() && !is_one_integer() {
        errors.push(ValidationError::NotOneInteger { key: key(), operator });
    }
}

fn check_template_label(key: &str, value: &str, errors: &mut Vec<ValidationError>) {
    if key == NODE_POOL_LABEL {
        errors.push(ValidationError::TemplateLabel(NODE_POOL_LABEL));
    }
    let (key, value) = (key.to_owned(), value.to_owned());
    let not_a_name = |problem| ValidationError::TemplateLabelKey { key: key.clone(), problem };
    errors.extend(qualified_name_problems(&key).into_iter().map(not_a_name));
    let invalid = |problem| ValidationError::TemplateLabelValue { key: key.clone(), value: value.clone(), problem };
    errors.extend(label_value_problems(&value).into_iter().map(invalid));
    if let Some(problem) = restriction(&key).map(Box::new) {
        errors.push(ValidationError::TemplateLabelRestricted { key, problem });
    }
}

/// The same key and effect may not stand twice, be it as taint or as startup taint.
fn check_taints(taints: &[Taint], startup_taints: &[Taint], errors: &mut Vec<ValidationError>) {
    let mut seen = BTreeSet::new();
    let startup_taints = startup_taints.iter().map(|taint| ("startupTaints", taint));
    for (field, taint) in taints.iter().map(|taint| ("taints", taint)).chain(startup_taints) {
        let mut problems = qualified_name_problems(&taint.key);
        if let Some(value) = taint.value.as_deref().filter(|value| !value.is_empty()) {
            problems.extend(qualified_name_problems(value));
        }
        if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
            problems.push(format!("{:?}", taint.effect));
        }
        errors.extend(problems.into_iter().map(|problem| ValidationError::InvalidTaint { field, problem }));
        if !seen.insert((&taint.key, &taint.effect)) {
            let (key, effect) = (taint.key.clone(), taint.effect.clone());
            errors.push(ValidationError::DuplicateTaint { key, effect });
        }
    }
}

fn message(errors: &[ValidationError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A list as Go prints it.
fn list<T: AsRef<str>>(items: &[T]) -> String {
    format!("[{}]", items.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" "))
}
