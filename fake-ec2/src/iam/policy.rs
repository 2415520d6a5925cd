//! Policy documents: read once, with IAM's complaints, into statements that can be asked.

use super::condition::Condition;
use super::facts::Facts;
use super::pattern::Pattern;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Where a policy stands, which decides what its statements have to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Attached to a role: no principals.
    Identity,
    /// A role's trust policy: principals, no resources.
    Trust,
    /// On a queue: principals and resources.
    Resource,
}

/// A policy as text and as understood.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Policy {
    pub(crate) text: String,
    /// Whether its version knows policy variables.
    variables: bool,
    statements: Vec<Statement>,
}

#[derive(Clone, Debug)]
struct Statement {
    allows: bool,
    principals: Option<Principals>,
    actions: Selection,
    resources: Option<Selection>,
    conditions: Vec<Condition>,
}

/// `Action` or `NotAction`, `Resource` or `NotResource`.
#[derive(Clone, Debug)]
struct Selection {
    negated: bool,
    patterns: Vec<String>,
}

/// `Principal` or `NotPrincipal`.
#[derive(Clone, Debug, Default)]
struct Principals {
    negated: bool,
    everyone: bool,
    /// Kind (`AWS`, `Service`, `Federated`) and value.
    named: Vec<(String, String)>,
}

/// Who asks, as principals of policies name it.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// `AWS`, `Service` or `Federated`.
    pub(crate) kind: &'static str,
    /// The names under which a policy may mean it: a session's ARN, its role's, its account's.
    pub(crate) names: Vec<String>,
}

/// One permission that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// `ec2:RunInstances`
    pub(crate) action: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) facts: Facts<'a>,
}

/// What policies say to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// No statement applies.
    Silent,
    Allowed,
    /// A statement denies it, whatever else allows it.
    Denied,
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.text
    }
}

/// As it was saved. Only policies of identities are kept read; those of queues and trust stay texts.
impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text, Kind::Identity).map_err(|error| error.message)
    }
}

impl Policy {
    /// Reads a document.
    // fidelity: documented(IAM API Reference: MalformedPolicyDocument; IAM User Guide, JSON policy elements); observed(2026-08): wording
    pub(crate) fn parse(text: &str, kind: Kind) -> Result<Self, ApiError> {
        let document: Value = serde_json::from_str(text).map_err(|_| malformed("Syntax errors in policy."))?;
        let document = document.as_object().ok_or_else(|| malformed("Syntax errors in policy."))?;
        if let Some(unknown) = document.keys().find(|key| !["Version", "Id", "Statement"].contains(&key.as_str())) {
            return Err(malformed(format!("Syntax errors in policy. The element {unknown} is not known.")));
        }
        let variables = match document.get("Version").map(Value::as_str) {
            None | Some(Some("2008-10-17")) => false,
            Some(Some("2012-10-17")) => true,
            Some(_) => return Err(malformed("The policy must contain a valid version string.")),
        };
        let statements = match document.get("Statement") {
            Some(Value::Array(statements)) if !statements.is_empty() => statements.iter().collect(),
            Some(statement @ Value::Object(_)) => vec![statement],
            _ => return Err(malformed("Syntax errors in policy. A Statement is missing.")),
        };
        let mut ids = BTreeSet::new();
        let mut read = Vec::new();
        for statement in statements {
            let statement = statement.as_object().ok_or_else(|| malformed("Syntax errors in policy."))?;
            if let Some(id) = statement.get("Sid") {
                check_id(id, kind, &mut ids)?;
            }
            read.push(Statement::parse(statement, kind)?);
        }
        Ok(Self { text: text.to_owned(), variables, statements: read })
    }

    /// What this policy says. `asker` matters to policies with principals alone.
    pub(crate) fn verdict(&self, question: &Question<'_>, asker: &Asker) -> Verdict {
        let applying = self.statements.iter().filter(|statement| statement.applies(question, asker, self.variables));
        let verdict = |statement: &Statement| if statement.allows { Verdict::Allowed } else { Verdict::Denied };
        applying.map(verdict).max().unwrap_or(Verdict::Silent)
    }
}

fn check_id<'a>(id: &'a Value, kind: Kind, ids: &mut BTreeSet<&'a str>) -> Result<(), ApiError> {
    let id = id.as_str().ok_or_else(|| malformed("Syntax errors in policy. A Sid is not a text."))?;
    if kind != Kind::Resource && !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(malformed(
            "Statement IDs (SID) must be alpha-numeric. Check that your input satisfies the regular expression [0-9A-Za-z]*",
        ));
    }
    match id.is_empty() || ids.insert(id) {
        true => Ok(()),
        false => Err(malformed("Statement IDs (SID) in a single policy must be unique.")),
    }
}

const ELEMENTS: [&str; 9] =
    ["Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"];

impl Statement {
    fn parse(statement: &Map<String, Value>, kind: Kind) -> Result<Self, ApiError> {
        if let Some(unknown) = statement.keys().find(|key| !ELEMENTS.contains(&key.as_str())) {
            return Err(malformed(format!("Syntax errors in policy. The element {unknown} is not known.")));
        }
        let allows = match statement.get("Effect").map(Value::as_str) {
            Some(Some("Allow")) => true,
            Some(Some("Deny")) => false,
            Some(Some(other)) => return Err(malformed(format!("Invalid effect: {other}"))),
            _ => return Err(malformed("Missing required field Effect")),
        };
        let actions = selection(statement, "Action", "NotAction")?
            .ok_or_else(|| malformed("Policy statement must contain actions."))?;
        for action in &actions.patterns {
            check_action(action)?;
        }
        let resources = selection(statement, "Resource", "NotResource")?;
        let principals = principals(statement)?;
        match (kind, &resources, &principals) {
            (Kind::Identity, _, Some(_)) => return Err(malformed("Policy document should not specify a principal.")),
            (Kind::Trust, Some(_), _) => return Err(malformed("Has prohibited field Resource")),
            (Kind::Trust | Kind::Resource, _, None) => return Err(malformed("Missing required field Principal")),
            (Kind::Identity | Kind::Resource, None, _) => {
                return Err(malformed("Policy statement must contain resources."));
            }
            _ => {}
        }
        for resource in resources.iter().flat_map(|resources| &resources.patterns) {
            if resource != "*" && !resource.starts_with("arn:") && !resource.starts_with("${") {
                return Err(malformed(format!("Resource {resource} must be in ARN format or \"*\".")));
            }
        }
        Ok(Self { allows, principals, actions, resources, conditions: conditions(statement)? })
    }

    fn applies(&self, question: &Question<'_>, asker: &Asker, variables: bool) -> bool {
        let Question { action, resource, facts } = question;
        let action_matches =
            |pattern: &String| Pattern::plain(pattern).lowercase().matches(&action.to_ascii_lowercase());
        let resource_matches = |pattern: &String| {
            let pattern = match variables {
                true => Pattern::with_variables(pattern, facts),
                false => Some(Pattern::plain(pattern)),
            };
            pattern.is_some_and(|pattern| pattern.matches_arn(resource))
        };
        self.actions.selects(action_matches)
            && self.resources.as_ref().is_none_or(|resources| resources.selects(resource_matches))
            && self.principals.as_ref().is_none_or(|principals| principals.include(asker))
            && self.conditions.iter().all(|condition| condition.holds(facts, variables))
    }
}

impl Selection {
    fn selects(&self, matches: impl Fn(&String) -> bool) -> bool {
        self.patterns.iter().any(matches) != self.negated
    }
}

impl Principals {
    // fidelity: documented(IAM User Guide, JSON policy elements: Principal; an account stands for everyone in it)
    fn include(&self, asker: &Asker) -> bool {
        let named = |(kind, value): &(String, String)| {
            kind == asker.kind && (value == "*" || asker.names.iter().any(|name| name == value))
        };
        (self.everyone || self.named.iter().any(named)) != self.negated
    }
}

fn selection(statement: &Map<String, Value>, plain: &str, negated: &str) -> Result<Option<Selection>, ApiError> {
    let (value, negated) = match (statement.get(plain), statement.get(negated)) {
        (Some(_), Some(_)) => return Err(malformed(format!("Policy statement has both {plain} and {negated}."))),
        (Some(value), None) => (value, false),
        (None, Some(value)) => (value, true),
        (None, None) => return Ok(None),
    };
    let patterns = texts(value).ok_or_else(|| malformed(format!("Syntax errors in policy. {plain} is not a text.")))?;
    Ok((!patterns.is_empty()).then_some(Selection { negated, patterns }))
}

fn principals(statement: &Map<String, Value>) -> Result<Option<Principals>, ApiError> {
    let (value, negated) = match (statement.get("Principal"), statement.get("NotPrincipal")) {
        (Some(value), None) => (value, false),
        (None, Some(value)) => (value, true),
        (None, None) => return Ok(None),
        _ => return Err(malformed("Policy statement has both Principal and NotPrincipal.")),
    };
    let mut principals = Principals { negated, ..Principals::default() };
    match value {
        Value::String(text) if text == "*" => principals.everyone = true,
        Value::Object(kinds) if !kinds.is_empty() => {
            for (kind, value) in kinds {
                let invalid = |value: &str| malformed(format!("Invalid principal in policy: \"{kind}\":\"{value}\""));
                if !["AWS", "Service", "Federated", "CanonicalUser"].contains(&kind.as_str()) {
                    return Err(malformed(format!("Invalid principal type: {kind}")));
                }
                for name in texts(value).ok_or_else(|| invalid(&value.to_string()))? {
                    if kind == "AWS" && !is_aws_principal(&name) {
                        return Err(invalid(&name));
                    }
                    principals.named.push((kind.clone(), name));
                }
            }
        }
        _ => return Err(malformed(format!("Invalid principal in policy: {value}"))),
    }
    Ok(Some(principals))
}

/// An account, an ARN of IAM or STS, or everyone.
fn is_aws_principal(name: &str) -> bool {
    let account = name.len() == 12 && name.bytes().all(|byte| byte.is_ascii_digit());
    account || name == "*" || name.starts_with("arn:aws:iam::") || name.starts_with("arn:aws:sts::")
}

fn conditions(statement: &Map<String, Value>) -> Result<Vec<Condition>, ApiError> {
    let Some(operators) = statement.get("Condition") else { return Ok(Vec::new()) };
    let operators = operators.as_object().ok_or_else(|| malformed("Syntax errors in policy. Condition is no map."))?;
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let invalid = || malformed(format!("Invalid Condition type : {operator}."));
        let keys = keys.as_object().ok_or_else(|| malformed("Syntax errors in policy. A condition is no map."))?;
        for (key, values) in keys {
            if !key.contains(':') {
                let message = "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.";
                return Err(malformed(message));
            }
            let values = texts(values)
                .ok_or_else(|| malformed(format!("Syntax errors in policy. The value of {key} is not a text.")))?;
            conditions.push(Condition::new(operator, key, values).ok_or_else(invalid)?);
        }
    }
    Ok(conditions)
}

/// `*`, or a service and an action.
fn check_action(action: &str) -> Result<(), ApiError> {
    let known = |character: char| character.is_ascii_alphanumeric() || "-_*?".contains(character);
    match action.split_once(':') {
        _ if action == "*" => Ok(()),
        None => Err(malformed("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")),
        Some((vendor, name))
            if !vendor.is_empty() && !name.is_empty() && vendor.chars().chain(name.chars()).all(known) =>
        {
            Ok(())
        }
        Some((vendor, _)) if vendor.chars().all(known) => Err(malformed(format!("Invalid action: {action}"))),
        Some((vendor, _)) => Err(malformed(format!("Vendor {vendor} is not valid"))),
    }
}

/// One value or several; numbers and booleans are written as texts.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        one => text(one).map(|one| vec![one]),
    }
}

fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::client("MalformedPolicyDocument", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iam::facts::Keys;
    use serde_json::json;

    fn asker() -> Asker {
        let names = ["arn:aws:sts::123456789012:assumed-role/r/s", "arn:aws:iam::123456789012:role/r"];
        Asker { kind: "AWS", names: names.map(str::to_owned).to_vec() }
    }

    fn verdict(statements: Value, kind: Kind, action: &str, resource: &str) -> Verdict {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        let policy = Policy::parse(&document.to_string(), kind).expect("a well-formed policy");
        let mut own = Keys::default();
        own.set("aws:ResourceTag/team", "a");
        let facts = Facts { own: &own, common: &Keys::default() };
        policy.verdict(&Question { action, resource, facts }, &asker())
    }

    #[test]
    fn a_denial_wins_over_an_allowance_and_silence_is_neither() {
        let instance = "arn:aws:ec2:us-west-2:123456789012:instance/i-1";
        let allow = json!({"Effect": "Allow", "Action": "ec2:*", "Resource": "*"});
        let deny = json!({"Effect": "Deny", "Action": "EC2:terminate*", "Resource": instance});
        let ask = |statements: Value, action| verdict(statements, Kind::Identity, action, instance);
        assert_eq!(ask(json!([allow, deny]), "ec2:TerminateInstances"), Verdict::Denied);
        assert_eq!(ask(json!([allow, deny]), "ec2:RunInstances"), Verdict::Allowed);
        assert_eq!(ask(json!([allow, deny]), "sqs:SendMessage"), Verdict::Silent);
        assert_eq!(ask(deny, "ec2:TerminateInstances"), Verdict::Denied);
    }

    #[test]
    fn not_action_and_not_resource_select_the_rest() {
        let instance = "arn:aws:ec2:us-west-2:123456789012:instance/i-1";
        let rest = json!({"Effect": "Allow", "NotAction": "iam:*", "NotResource": "arn:aws:ec2:*:*:volume/*"});
        assert_eq!(verdict(rest.clone(), Kind::Identity, "ec2:RunInstances", instance), Verdict::Allowed);
        assert_eq!(verdict(rest.clone(), Kind::Identity, "iam:PassRole", instance), Verdict::Silent);
        let volume = "arn:aws:ec2:us-west-2:123456789012:volume/v";
        assert_eq!(verdict(rest, Kind::Identity, "ec2:RunInstances", volume), Verdict::Silent);
    }

    #[test]
    fn what_has_no_resource_needs_a_star() {
        let scoped = json!({"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "arn:aws:ec2:*:*:instance/*"});
        assert_eq!(verdict(scoped, Kind::Identity, "ec2:DescribeInstances", "*"), Verdict::Silent);
        let all = json!({"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"});
        assert_eq!(verdict(all, Kind::Identity, "ec2:DescribeInstances", "*"), Verdict::Allowed);
    }

    #[test]
    fn every_condition_has_to_hold() {
        let conditions = |team: &str| {
            json!({"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {
                "StringEquals": {"aws:ResourceTag/team": team}, "StringLike": {"aws:resourcetag/Team": "*"}}})
        };
        assert_eq!(verdict(conditions("a"), Kind::Identity, "a:b", "*"), Verdict::Allowed);
        assert_eq!(verdict(conditions("b"), Kind::Identity, "a:b", "*"), Verdict::Silent);
    }

    #[test]
    fn principals_are_matched_by_kind_and_name() {
        let ask = |principal: Value| {
            let statement = json!({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"});
            verdict(statement, Kind::Trust, "sts:AssumeRole", "*")
        };
        assert_eq!(ask(json!("*")), Verdict::Allowed);
        assert_eq!(ask(json!({"AWS": "arn:aws:iam::123456789012:role/r"})), Verdict::Allowed);
        assert_eq!(ask(json!({"AWS": ["arn:aws:iam::123456789012:role/other", "*"]})), Verdict::Allowed);
        assert_eq!(ask(json!({"AWS": "arn:aws:iam::123456789012:role/other"})), Verdict::Silent);
        assert_eq!(ask(json!({"Service": "ec2.amazonaws.com"})), Verdict::Silent);
    }

    #[test]
    fn malformed_documents_are_refused_with_the_reason() {
        let identity = |statement: Value| json!({"Version": "2012-10-17", "Statement": statement}).to_string();
        let good = json!({"Sid": "A", "Effect": "Allow", "Action": "ec2:Run*", "Resource": "*"});
        let with = |key: &str, value: Value| {
            let mut statement = good.clone();
            statement[key] = value;
            identity(statement)
        };
        let without = |key: &str| {
            let mut statement = good.clone();
            statement.as_object_mut().unwrap().remove(key);
            identity(statement)
        };
        for (text, message) in [
            ("{".to_owned(), "Syntax errors in policy."),
            ("[]".to_owned(), "Syntax errors in policy."),
            (json!({"Version": "2012-10-17"}).to_string(), "Syntax errors in policy. A Statement is missing."),
            (
                json!({"Version": "2013", "Statement": good}).to_string(),
                "The policy must contain a valid version string.",
            ),
            (identity(json!([good, good])), "Statement IDs (SID) in a single policy must be unique."),
            (without("Effect"), "Missing required field Effect"),
            (with("Effect", json!("Permit")), "Invalid effect: Permit"),
            (without("Action"), "Policy statement must contain actions."),
            (
                with("Action", json!("RunInstances")),
                "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.",
            ),
            (without("Resource"), "Policy statement must contain resources."),
            (with("Resource", json!("i-1")), "Resource i-1 must be in ARN format or \"*\"."),
            (with("Principal", json!("*")), "Policy document should not specify a principal."),
            (with("Condition", json!({"StringEqual": {"aws:x": "y"}})), "Invalid Condition type : StringEqual."),
            (with("Actions", json!("*")), "Syntax errors in policy. The element Actions is not known."),
        ] {
            let error = Policy::parse(&text, Kind::Identity).expect_err(&text);
            assert_eq!((error.code.as_ref(), error.message.as_str()), ("MalformedPolicyDocument", message), "{text}");
        }
        let trust = |principal: Value| {
            let statement = json!({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"});
            Policy::parse(&identity(statement), Kind::Trust)
        };
        assert!(trust(json!({"Service": "ec2.amazonaws.com"})).is_ok());
        let error = trust(json!({"AWS": "somebody"})).unwrap_err();
        assert_eq!(error.message, "Invalid principal in policy: \"AWS\":\"somebody\"");
    }
}
