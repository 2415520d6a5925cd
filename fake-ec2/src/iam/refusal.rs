//! What a caller without permission is told, in each service's words.

use super::caller::Caller;
use super::policy::Question;
use crate::error::ApiError;
use crate::wire::Service;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Why a permission was not given: which kind of policy said nothing, or denied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NoIdentity,
    NoResource,
    DeniedByIdentity,
    DeniedByResource,
}

impl Reason {
    fn sentence(self, action: &str) -> String {
        match self {
            Self::NoIdentity => format!("because no identity-based policy allows the {action} action"),
            Self::NoResource => format!("because no resource-based policy allows the {action} action"),
            Self::DeniedByIdentity => "with an explicit deny in an identity-based policy".into(),
            Self::DeniedByResource => "with an explicit deny in a resource-based policy".into(),
        }
    }

    fn is_explicit(self) -> bool {
        matches!(self, Self::DeniedByIdentity | Self::DeniedByResource)
    }
}

/// The refusal of one permission by the service that was asked.
// fidelity: documented(IAM User Guide, Troubleshoot access denied error messages; EC2 API Reference, UnauthorizedOperation);
// observed(2026-08): SQS writes its actions in lower case, EC2 leaves out the resource and the encoded message where an
// action has no resources.
pub(crate) fn refuse(service: Service, caller: &Caller, question: &Question<'_>, reason: Reason) -> ApiError {
    let Question { action, resource, .. } = question;
    let action = if service == Service::Sqs { action.to_ascii_lowercase() } else { (*action).to_owned() };
    let on = if *resource == "*" { String::new() } else { format!(" on resource: {resource}") };
    let sentence = format!(
        "User: {} is not authorized to perform: {action}{on} {}",
        if caller.arn.is_empty() { "anonymous" } else { &caller.arn },
        reason.sentence(&action)
    );
    match service {
        Service::Ec2 => {
            let mut message = format!("You are not authorized to perform this operation. {sentence}");
            if *resource != "*" {
                let encoded = encode(caller, question, reason);
                message = format!("{message}. Encoded authorization failure message: {encoded}");
            }
            ApiError::new(403, "UnauthorizedOperation", message)
        }
        Service::Iam | Service::Sts | Service::CloudFormation | Service::Sqs => {
            ApiError::new(403, "AccessDenied", sentence)
        }
        Service::Eks | Service::EksAuth => ApiError::new(403, "AccessDeniedException", sentence),
        Service::Ssm | Service::Pricing | Service::EventBridge => ApiError::client("AccessDeniedException", sentence),
    }
}

/// What was asked and known, for `sts:DecodeAuthorizationMessage`. AWS encrypts it; here it is plain base64.
// fidelity: observed(2026-08): the members of a decoded message
fn encode(caller: &Caller, question: &Question<'_>, reason: Reason) -> String {
    let conditions = question.facts.own.iter().chain(question.facts.common.iter());
    let items: Vec<Value> = conditions
        .map(|(key, values)| {
            let values: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
            json!({"key": key, "values": {"items": values}})
        })
        .collect();
    let message = json!({
        "allowed": false,
        "explicitDeny": reason.is_explicit(),
        "matchedStatements": {"items": []},
        "failures": {"items": []},
        "context": {
            "principal": {"id": caller.user_id(), "arn": caller.arn},
            "action": question.action,
            "resource": question.resource,
            "conditions": {"items": items},
        },
    });
    URL_SAFE_NO_PAD.encode(message.to_string())
}

/// The text of an encoded message.
// fidelity: documented(STS API Reference, DecodeAuthorizationMessage: InvalidAuthorizationMessageException)
pub(crate) fn decode(message: &str) -> Result<String, ApiError> {
    let decoded = URL_SAFE_NO_PAD.decode(message).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.filter(|text| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()));
    decoded.ok_or_else(|| {
        ApiError::client("InvalidAuthorizationMessageException", "The authorization message is not valid.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iam::caller::Principal;
    use crate::iam::facts::{Facts, Keys};

    fn told(service: Service, action: &str, resource: &str, reason: Reason) -> (u16, String, String) {
        let arn = "arn:aws:sts::123456789012:assumed-role/karpenter/session".to_owned();
        let caller = Caller { principal: Principal::Administrator, arn, token: None };
        let mut own = Keys::default();
        own.set("aws:RequestTag/team", "a");
        let facts = Facts { own: &own, common: &Keys::default() };
        let error = refuse(service, &caller, &Question { action, resource, facts }, reason);
        (error.status, error.code.into_owned(), error.message)
    }

    #[test]
    fn each_service_words_its_own_refusal() {
        let user = "User: arn:aws:sts::123456789012:assumed-role/karpenter/session is not authorized to perform:";
        let none = Reason::NoIdentity;
        for (service, action, resource, reason, status, code, message) in [
            (
                Service::Ec2,
                "ec2:DescribeImages",
                "*",
                none,
                403,
                "UnauthorizedOperation",
                format!(
                    "You are not authorized to perform this operation. {user} ec2:DescribeImages because no identity-based policy allows the ec2:DescribeImages action"
                ),
            ),
            (
                Service::Iam,
                "iam:GetRole",
                "arn:aws:iam::1:role/a",
                none,
                403,
                "AccessDenied",
                format!(
                    "{user} iam:GetRole on resource: arn:aws:iam::1:role/a because no identity-based policy allows the iam:GetRole action"
                ),
            ),
            (
                Service::Sqs,
                "sqs:ReceiveMessage",
                "arn:aws:sqs:r:1:q",
                Reason::DeniedByResource,
                403,
                "AccessDenied",
                format!(
                    "{user} sqs:receivemessage on resource: arn:aws:sqs:r:1:q with an explicit deny in a resource-based policy"
                ),
            ),
            (
                Service::Ssm,
                "ssm:GetParameter",
                "arn:aws:ssm:r:1:parameter/a",
                none,
                400,
                "AccessDeniedException",
                format!(
                    "{user} ssm:GetParameter on resource: arn:aws:ssm:r:1:parameter/a because no identity-based policy allows the ssm:GetParameter action"
                ),
            ),
            (
                Service::Eks,
                "eks:DescribeCluster",
                "arn:aws:eks:r:1:cluster/a",
                Reason::DeniedByIdentity,
                403,
                "AccessDeniedException",
                format!(
                    "{user} eks:DescribeCluster on resource: arn:aws:eks:r:1:cluster/a with an explicit deny in an identity-based policy"
                ),
            ),
            (
                Service::Pricing,
                "pricing:GetProducts",
                "*",
                none,
                400,
                "AccessDeniedException",
                format!(
                    "{user} pricing:GetProducts because no identity-based policy allows the pricing:GetProducts action"
                ),
            ),
        ] {
            assert_eq!(told(service, action, resource, reason), (status, code.to_owned(), message));
        }
    }

    #[test]
    fn the_encoded_message_tells_what_was_asked() {
        let resource = "arn:aws:ec2:us-west-2:123456789012:instance/*";
        let (_, _, message) = told(Service::Ec2, "ec2:RunInstances", resource, Reason::NoIdentity);
        let (sentence, encoded) =
            message.split_once(". Encoded authorization failure message: ").expect("an encoded message");
        assert!(sentence.ends_with("allows the ec2:RunInstances action"), "{sentence}");
        let decoded: Value = serde_json::from_str(&decode(encoded).unwrap()).unwrap();
        assert_eq!(decoded["allowed"], false);
        assert_eq!(decoded["context"]["action"], "ec2:RunInstances");
        assert_eq!(decoded["context"]["resource"], resource);
        let condition = &decoded["context"]["conditions"]["items"][0];
        assert_eq!(
            (condition["key"].as_str(), condition["values"]["items"][0]["value"].as_str()),
            (Some("aws:requesttag/team"), Some("a"))
        );
        assert_eq!(decode("not base64").unwrap_err().code, "InvalidAuthorizationMessageException");
    }
}
