//! What went wrong at AWS, and what it means. One table turns codes into meanings; callers ask for the meaning and never
//! compare strings.

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use std::error::Error;

/// The controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither settings, environment nor metadata service name a region.
    #[error("no AWS region is configured; set AWS_REGION")]
    NoRegion,
    /// EC2 does not answer, or refuses us.
    #[error("ec2 api connectivity check failed")]
    Connectivity(#[source] AwsError),
    /// The API server's address is neither configured nor known to EKS.
    #[error("failed detecting cluster endpoint")]
    ClusterEndpoint(#[source] Option<AwsError>),
    /// The Kubernetes version is unknown to EKS.
    #[error("failed detecting the kubernetes version")]
    KubernetesVersion(#[source] Option<AwsError>),
    /// The catalogue of instance types cannot be read.
    #[error("failed discovering instance types")]
    InstanceTypes(#[source] AwsError),
}

/// One failed call of one AWS action. Cheap to clone, because a batch hands one failure to many callers. It has no source: all
/// that the SDK's error tells is here, and whoever prints the chain shall not find it twice.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{service}.{operation}: {}{message}", prefix(code))]
pub struct AwsError {
    /// The service, such as `EC2`.
    pub service: &'static str,
    /// The action, such as `CreateFleet`.
    pub operation: &'static str,
    /// AWS's code; empty when no answer arrived.
    pub code: String,
    /// AWS's text, or what kept the answer from arriving.
    pub message: String,
    /// AWS's id of the request; empty when unknown.
    pub request_id: String,
    /// The answer's HTTP status; 0 without an answer.
    pub status: u16,
}

/// What a caller may do about a failure (spec §2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The thing asked for does not exist.
    NotFound,
    /// The thing to be made exists.
    AlreadyExists,
    /// AWS cannot provide this at the moment.
    Unfulfillable,
    /// Spot is not possible before its service-linked role exists.
    SpotRoleMissing,
    /// The dry run passed.
    DryRunPassed,
    /// We may not do this.
    Unauthorized,
    /// Too many calls.
    Throttled,
    /// The instance profile named in the request does not exist.
    InstanceProfileMissing,
    /// The user data exceeds EC2's limit.
    UserDataTooLarge,
    /// AWS failed.
    ServerFault,
    /// Anything else.
    Other,
}

/// The one table of codes. `message` decides where AWS uses one code for many things.
pub(crate) fn meaning(code: &str, message: &str, status: u16) -> Meaning {
    match code {
        "InvalidCapacityReservationId.NotFound"
        | "InvalidInstanceID.NotFound"
        | "InvalidLaunchTemplateName.NotFoundException"
        | "InvalidLaunchTemplateId.NotFound"
        | "QueueDoesNotExist"
        | "AWS.SimpleQueueService.NonExistentQueue"
        | "NoSuchEntity"
        | "NoSuchEntityException"
        | "ParameterNotFound" => Meaning::NotFound,
        "EntityAlreadyExists" | "EntityAlreadyExistsException" | "InvalidLaunchTemplateName.AlreadyExistsException" => {
            Meaning::AlreadyExists
        }
        "InsufficientInstanceCapacity"
        | "MaxSpotInstanceCountExceeded"
        | "VcpuLimitExceeded"
        | "UnfulfillableCapacity"
        | "Unsupported"
        | "InsufficientFreeAddressesInSubnet"
        | "MaxFleetCountExceeded"
        | "ReservationCapacityExceeded" => Meaning::Unfulfillable,
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => Meaning::SpotRoleMissing,
        "DryRunOperation" => Meaning::DryRunPassed,
        "UnauthorizedOperation" => Meaning::Unauthorized,
        "RequestLimitExceeded" => Meaning::Throttled,
        "InvalidParameterValue" if message.contains("Invalid IAM Instance Profile name") => {
            Meaning::InstanceProfileMissing
        }
        "InvalidUserData.Malformed" if message.contains("User data is limited to") => Meaning::UserDataTooLarge,
        _ if status >= 500 => Meaning::ServerFault,
        _ => Meaning::Other,
    }
}

impl AwsError {
    /// Reads the SDK's error.
    pub(crate) fn new<E>(service: &'static str, operation: &'static str, error: SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let status = error.raw_response().map_or(0, |response| response.status().as_u16());
        let metadata = error.as_service_error().map(|inner| inner.meta());
        let code = metadata.and_then(|meta| meta.code()).unwrap_or_default().to_owned();
        let request_id = metadata.and_then(|meta| meta.extra("aws_request_id")).unwrap_or_default().to_owned();
        let message = match metadata {
            Some(meta) => meta.message().unwrap_or_default().to_owned(),
            None => one_line(&chain(&error)),
        };
        Self { service, operation, code, message, request_id, status }
    }

    /// A failure that only the content of a good answer shows.
    pub(crate) fn of_answer(
        service: &'static str,
        operation: &'static str,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { service, operation, code: code.into(), message: message.into(), request_id: String::new(), status: 200 }
    }

    /// What the failure means.
    pub fn meaning(&self) -> Meaning {
        meaning(&self.code, &self.message, self.status)
    }

    /// Whether the thing asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.meaning() == Meaning::NotFound
    }

    /// Whether the launch template named in a fleet request is gone: the only failure that earns an immediate second try.
    pub fn is_launch_template_missing(&self) -> bool {
        self.code == "InvalidLaunchTemplateName.NotFoundException"
    }

    /// Whether trying again later may help without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        self.status == 0 || matches!(self.meaning(), Meaning::Throttled | Meaning::ServerFault)
    }
}

fn prefix(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!("{code}: ") }
}

/// The SDK lists the ways to credentials that it has tried on a line each.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The causes of `error`, outermost first.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// A launch failure as a condition shows it and metrics label it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureReason {
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's message.
    pub message: &'static str,
}

/// Maps a failure's text to a reason; the first match wins (spec §2.7.2).
pub(crate) fn failure_reason(text: &str) -> FailureReason {
    const fn reason(reason: &'static str, message: &'static str) -> FailureReason {
        FailureReason { reason, message }
    }
    let has = |needle: &str| text.contains(needle);
    if has("AuthFailure.ServiceLinkedRoleCreationNotPermitted") {
        return reason(
            "SpotSLRCreationFailed",
            "User does not have sufficient permission to create the Spot ServiceLinkedRole to launch spot instances",
        );
    }
    if has("UnauthorizedOperation") || has("AccessDenied") || has("AuthFailure") {
        return if has("with an explicit deny in a permissions boundary") {
            reason("Unauthorized", "User is not authorized to perform this operation due to a permission boundary")
        } else if has("with an explicit deny in a service control policy") {
            reason("Unauthorized", "User is not authorized to perform this operation due to a service control policy")
        } else if has("Not authorized for images") {
            reason("AMIAuthorizationFailure", "User is not authorized for AMI used in instance launch")
        } else {
            reason(
                "Unauthorized",
                "User is not authorized to perform this operation because no identity-based policy allows it",
            )
        };
    }
    if has("InvalidParameter") && has("belong to different networks") {
        return reason("SecurityGroupSubnetVPCMismatch", "Security groups and subnets must be in the same VPC.");
    }
    const TABLE: [(&str, FailureReason); 14] = [
        (
            "iamInstanceProfile.name is invalid",
            reason("InstanceProfileNameInvalid", "Instance profile name used from EC2NodeClass status does not exist"),
        ),
        (
            "InvalidLaunchTemplateId.NotFound",
            reason("LaunchTemplateNotFound", "Launch template used for instance launch wasn't found"),
        ),
        (
            "User data is limited to",
            reason("UserDataSizeLimitExceeded", "Rendered user data exceeds the EC2 user data size limit"),
        ),
        ("InvalidAMIID.Malformed", reason("InvalidAMIID", "AMI used for instance launch is invalid")),
        (
            "InvalidAMIID.NotFound",
            reason(
                "AMINotFound",
                "AMI used for instance launch either does not exist or you don't have permissions to use it",
            ),
        ),
        ("RequestLimitExceeded", reason("RequestLimitExceeded", "Request limit exceeded")),
        ("InternalError", reason("InternalError", "An internal error has occurred")),
        (
            "not eligible for Free Tier",
            reason("FreeTierIneligible", "The specified instance type is not eligible for Free Tier"),
        ),
        (
            "MaxFleetCountExceeded",
            reason("FleetQuotaExceeded", "A fleet launch was requested but this would exceed your fleet request quota"),
        ),
        (
            "PendingVerification",
            reason(
                "AccountPendingVerification",
                "An instance launch was requested but the request for launching resources in this region is still being \
                 verified",
            ),
        ),
        (
            "MaxSpotInstanceCountExceeded",
            reason(
                "SpotQuotaExceeded",
                "A spot instance launch was requested but this would exceed your spot instance quota",
            ),
        ),
        (
            "VcpuLimitExceeded",
            reason("VCPULimitExceeded", "An instance was requested that would exceed your VCPU quota"),
        ),
        (
            "InsufficientFreeAddressesInSubnet",
            reason(
                "InsufficientFreeAddressesInSubnet",
                "There are not enough free IP addresses to launch an instance in this subnet",
            ),
        ),
        ("", reason("LaunchFailed", "Instance launch failed")),
    ];
    let found = TABLE.iter().find(|(needle, _)| has(needle));
    found.expect("the last row matches every text").1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_one_meaning_each() {
        for (code, message, status, expected) in [
            ("InvalidInstanceID.NotFound", "", 400, Meaning::NotFound),
            ("NoSuchEntity", "", 404, Meaning::NotFound),
            ("EntityAlreadyExists", "", 409, Meaning::AlreadyExists),
            ("InsufficientInstanceCapacity", "", 200, Meaning::Unfulfillable),
            ("InsufficientFreeAddressesInSubnet", "", 200, Meaning::Unfulfillable),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", 200, Meaning::SpotRoleMissing),
            ("DryRunOperation", "", 412, Meaning::DryRunPassed),
            ("UnauthorizedOperation", "", 403, Meaning::Unauthorized),
            ("RequestLimitExceeded", "", 503, Meaning::Throttled),
            (
                "InvalidParameterValue",
                "Value (x) … Invalid IAM Instance Profile name",
                400,
                Meaning::InstanceProfileMissing,
            ),
            ("InvalidParameterValue", "something else", 400, Meaning::Other),
            ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", 400, Meaning::UserDataTooLarge),
            ("InternalError", "", 500, Meaning::ServerFault),
        ] {
            assert_eq!(meaning(code, message, status), expected, "{code} {message}");
        }
    }

    #[test]
    fn a_call_without_an_answer_tells_its_causes_once_and_on_one_line() {
        let tried = "no credentials found in chain. Attempted:\n  Environment: not set\n";
        let error = SdkError::<std::fmt::Error, HttpResponse>::construction_failure(tried);
        let message = one_line(&chain(&error));
        assert!(message.ends_with("no credentials found in chain. Attempted: Environment: not set"), "{message}");
        let error = AwsError::of_answer("EC2", "DescribeInstanceTypes", "", "timed out");
        assert_eq!(error.to_string(), "EC2.DescribeInstanceTypes: timed out");
    }

    #[test]
    fn launch_failures_are_named_by_the_first_matching_text() {
        for (text, expected) in [
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted: no", "SpotSLRCreationFailed"),
            ("UnauthorizedOperation: with an explicit deny in a service control policy", "Unauthorized"),
            ("AuthFailure: Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
            ("InvalidParameter: sg-1 and subnet-1 belong to different networks", "SecurityGroupSubnetVPCMismatch"),
            ("InvalidAMIID.NotFound: x", "AMINotFound"),
            ("RequestLimitExceeded", "RequestLimitExceeded"),
            ("VcpuLimitExceeded", "VCPULimitExceeded"),
            ("InsufficientFreeAddressesInSubnet", "InsufficientFreeAddressesInSubnet"),
            ("Whatever", "LaunchFailed"),
        ] {
            assert_eq!(failure_reason(text).reason, expected, "{text}");
        }
    }
}
