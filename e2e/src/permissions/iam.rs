//! The statements of the controller's IAM policies, one action at a time, and the stack that gives them to its role.

use super::Permission;
use crate::account::CLUSTER;
use anyhow::{Context, anyhow, ensure};
use fake_ec2::{Bootstrap, Config, Control, FakeEc2};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the deploy README deploys.
pub(crate) const TEMPLATE: &str = include_str!("../../../deploy/cloudformation/karpenter.yaml");

/// Without it CloudFormation makes no role that has a name.
pub(crate) const CAPABILITY: &str = "CAPABILITY_NAMED_IAM";

/// The stack's name, as the guides have it.
pub(crate) fn stack() -> String {
    format!("Karpenter-{CLUSTER}")
}

/// The role of the controller in the stack.
pub(crate) fn role() -> String {
    format!("KarpenterControllerRole-{CLUSTER}")
}

/// Every permission that the template gives the controller.
pub(crate) fn permissions() -> anyhow::Result<BTreeSet<Permission>> {
    let ec2 = FakeEc2::new(Config::default(), controller_clock::Clock::system());
    ec2.cloud().bootstrap(Bootstrap { prerequisites: false, ..Bootstrap::named(CLUSTER) });
    deploy(&ec2.cloud(), &[])?;
    let documents = ec2.cloud().role_policies(&role());
    ensure!(!documents.is_empty(), "the stack gives the role {} no policy", role());
    Ok(documents.values().flat_map(of_document).collect())
}

/// Deploys the stack.
pub(crate) fn deploy(cloud: &Control, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
    let parameters = [&[("ClusterName", CLUSTER)], parameters].concat();
    let deployed = cloud.create_stack(&stack(), TEMPLATE, &parameters, &[CAPABILITY]);
    deployed
        .map(drop)
        .map_err(|error| anyhow!("deploying the CloudFormation template: {}: {}", error.code, error.message))
}

/// Takes one action of one statement away from the controller's role.
///
/// # Errors
/// Where no policy of it has it.
pub(crate) fn take_away(cloud: &Control, statement: &str, action: &str) -> anyhow::Result<()> {
    let changed = cloud.role_policies(&role()).into_iter().find_map(|(name, document)| {
        let changed = without(&document, statement, action);
        (changed != document).then_some((name, changed))
    });
    let about = || format!("no statement {statement} of the role {} allows {action}", role());
    let (name, document) = changed.with_context(about)?;
    let refused = |error: fake_ec2::ApiError| anyhow!("{}: {}", error.code, error.message);
    if name.starts_with("arn:") {
        cloud.detach_role_policy(&role(), &name).map_err(refused)?;
    }
    if statements(&document).is_empty() {
        return Ok(());
    }
    let own = name.rsplit('/').next().unwrap_or_default();
    cloud.put_role_policy(&role(), own, &document).map_err(refused)
}

fn statements(document: &Value) -> Vec<&Value> {
    match &document["Statement"] {
        Value::Array(statements) => statements.iter().collect(),
        one => vec![one],
    }
}

fn actions(statement: &Value) -> Vec<&str> {
    match &statement["Action"] {
        Value::Array(actions) => actions.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

fn sid(statement: &Value) -> &str {
    statement["Sid"].as_str().unwrap_or_default()
}

fn of_document(document: &Value) -> Vec<Permission> {
    let of_statement = |statement: &&Value| {
        let permission =
            |action: &str| Permission::Iam { statement: sid(statement).to_owned(), action: action.to_owned() };
        actions(statement).into_iter().map(permission).collect::<Vec<_>>()
    };
    statements(document).iter().filter(|statement| statement["Effect"] == "Allow").flat_map(of_statement).collect()
}

/// A policy without one action of one statement.
fn without(document: &Value, statement: &str, action: &str) -> Value {
    let kept: Vec<Value> = statements(document)
        .into_iter()
        .filter_map(|one| {
            if sid(one) != statement {
                return Some(one.clone());
            }
            let others: Vec<&str> = actions(one).into_iter().filter(|other| *other != action).collect();
            let mut changed = one.clone();
            changed["Action"] = json!(others);
            (!others.is_empty()).then_some(changed)
        })
        .collect();
    let mut document = document.clone();
    document["Statement"] = json!(kept);
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_one_action_away_leaves_exactly_the_others() {
        let document = json!({"Version": "2012-10-17", "Statement": [
            {"Sid": "Deletion", "Effect": "Allow", "Resource": "*", "Action": ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"]},
            {"Sid": "Prices", "Effect": "Allow", "Resource": "*", "Action": "pricing:GetProducts"},
        ]});
        let names = |document: &Value| of_document(document).iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = [
            "iam/Deletion/ec2:TerminateInstances",
            "iam/Deletion/ec2:DeleteLaunchTemplate",
            "iam/Prices/pricing:GetProducts",
        ];
        assert_eq!(names(&document), all);
        assert_eq!(names(&without(&document, "Deletion", "ec2:TerminateInstances")), all[1..]);
        assert_eq!(names(&without(&document, "Prices", "pricing:GetProducts")), all[..2]);
        assert_eq!(without(&document, "Nothing", "ec2:TerminateInstances"), document);
    }

    #[test]
    fn the_template_gives_the_controller_what_its_readme_lists() {
        let permissions = permissions().unwrap();
        for known in
            ["iam/AllowScopedDeletion/ec2:TerminateInstances", "iam/AllowInterruptionQueueActions/sqs:ReceiveMessage"]
        {
            assert!(permissions.contains(&known.parse().unwrap()), "{known}");
        }
    }
}
