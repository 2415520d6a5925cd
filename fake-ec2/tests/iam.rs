//! Who may do what: with policies enforced, each call under a role that may, or may not.

mod common;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Account, items, text, values};
use fake_ec2::{Bootstrap, Config, Credentials, FaultRule, Iam};
use http::Request;
use serde_json::{Value, json};

const ROLE: &str = "karpenter";
const SESSION: &str = "arn:aws:sts::123456789012:assumed-role/karpenter/test";
const EC2: &str = "2016-11-15";
const IAM: &str = "2010-05-08";
const STS: &str = "2011-06-15";

/// An account that enforces policies, and a session of a role in it.
struct Enforced {
    account: Account,
    credentials: Credentials,
}

impl Enforced {
    /// The role has these statements.
    fn with(statements: Value) -> Self {
        let account = Account::with(Config { families: vec!["m5".into()], iam: Iam::Enforce, ..Config::default() });
        let cloud = account.ec2.cloud();
        cloud.add_role(ROLE);
        let mut enforced = Self { credentials: cloud.assume_role(ROLE, "test").unwrap(), account };
        enforced.allow(statements);
        enforced
    }

    fn allow(&mut self, statements: Value) {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        self.account.ec2.cloud().put_role_policy(ROLE, "test", &document).unwrap();
    }

    /// A query call of the session.
    async fn call(&self, version: &str, action: &str, params: &[(&str, &str)]) -> (u16, String) {
        let Credentials { access_key_id, session_token, .. } = &self.credentials;
        signed(&self.account, access_key_id, Some(session_token), version, action, params).await
    }

    async fn json(&self, target: &str, input: Value) -> (u16, Value) {
        let request = sign(Request::post("/"), &self.credentials.access_key_id, Some(&self.credentials.session_token));
        let request = request.header("x-amz-target", target).body(input.to_string().into()).unwrap();
        let response = self.account.ec2.handle(request).await;
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    /// Action and resource of the latest call's denial.
    fn denied(&self) -> Option<(String, String)> {
        let entry = self.account.ec2.cloud().journal().pop().unwrap();
        assert_eq!(entry.principal, SESSION);
        entry.denied.clone().map(|denied| (denied.action, denied.resource))
    }
}

fn sign(request: http::request::Builder, key: &str, token: Option<&str>) -> http::request::Builder {
    let scope = format!("AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/x/aws4_request, Signature=0");
    let request = request.header("authorization", scope);
    token.into_iter().fold(request, |request, token| request.header("x-amz-security-token", token))
}

async fn signed(
    account: &Account,
    key: &str,
    token: Option<&str>,
    version: &str,
    action: &str,
    params: &[(&str, &str)],
) -> (u16, String) {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.append_pair("Action", action).append_pair("Version", version).extend_pairs(params);
    let request = sign(Request::post("/"), key, token).body(body.finish().into()).unwrap();
    let response = account.ec2.handle(request).await;
    (response.status().as_u16(), text(&response))
}

/// A call with a key that the account has not issued.
async fn administrator(account: &Account, version: &str, action: &str, params: &[(&str, &str)]) -> (u16, String) {
    signed(account, "placeholder", None, version, action, params).await
}

fn code(body: &str) -> String {
    values(body, "Code").pop().unwrap_or_else(|| body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_describe_call_needs_its_action() {
    let mut enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:DescribeImages", "Resource": "*"}));
    let (status, body) = enforced.call(EC2, "DescribeSubnets", &[]).await;
    assert_eq!((status, code(&body).as_str()), (403, "UnauthorizedOperation"));
    assert_eq!(
        values(&body, "Message"),
        [format!(
            "You are not authorized to perform this operation. User: {SESSION} is not authorized to perform: \
             ec2:DescribeSubnets because no identity-based policy allows the ec2:DescribeSubnets action"
        )]
    );
    assert_eq!(enforced.denied(), Some(("ec2:DescribeSubnets".into(), "*".into())));
    let region = |region: &str| {
        json!({"Effect": "Allow", "Action": "ec2:DescribeSubnets", "Resource": "*",
               "Condition": {"StringEquals": {"aws:RequestedRegion": region}}})
    };
    enforced.allow(region("eu-west-1"));
    assert_eq!(enforced.call(EC2, "DescribeSubnets", &[]).await.0, 403);
    enforced.allow(region("us-west-2"));
    assert_eq!(enforced.call(EC2, "DescribeSubnets", &[]).await.0, 200);
    assert_eq!(enforced.denied(), None);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_whether_it_would_be_permitted() {
    let mut enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:DescribeImages", "Resource": "*"}));
    let dry = [("DryRun", "true")];
    assert_eq!(code(&enforced.call(EC2, "DescribeInstanceTypes", &dry).await.1), "UnauthorizedOperation");
    enforced.allow(json!({"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"}));
    let (status, body) = enforced.call(EC2, "DescribeInstanceTypes", &dry).await;
    assert_eq!((status, code(&body).as_str()), (412, "DryRunOperation"));
}

#[tokio::test(start_paused = true)]
async fn a_parameter_that_is_not_known_is_refused_after_the_permission() {
    let enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}));
    let (_, body) =
        enforced.call(EC2, "RunInstances", &[("MinCount", "1"), ("MaxCount", "1"), ("Nonsense", "1")]).await;
    assert_eq!(code(&body), "UnknownParameter");
}

/// The launch permissions of Karpenter's controller, said shortly; the statements by name.
fn launch_statements() -> Vec<(&'static str, Value)> {
    let launch = json!(["ec2:RunInstances", "ec2:CreateFleet"]);
    let made = ["instance", "volume", "network-interface", "fleet", "launch-template", "spot-instances-request"]
        .map(|kind| format!("arn:aws:ec2:us-west-2:*:{kind}/*"));
    let request = json!({"StringEquals": {"aws:RequestTag/eks:eks-cluster-name": "demo"},
                         "StringLike": {"aws:RequestTag/karpenter.sh/nodepool": "*"}});
    let mut tagging = request.clone();
    tagging["StringEquals"]["ec2:CreateAction"] = json!(["RunInstances", "CreateFleet", "CreateLaunchTemplate"]);
    vec![
        (
            "used",
            json!({"Effect": "Allow", "Action": launch, "Resource": ["arn:aws:ec2:us-west-2::image/*",
                "arn:aws:ec2:us-west-2:*:security-group/*", "arn:aws:ec2:us-west-2:*:subnet/*"]}),
        ),
        (
            "template",
            json!({"Effect": "Allow", "Action": launch, "Resource": "arn:aws:ec2:us-west-2:*:launch-template/*",
                "Condition": {"StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": "demo"}}}),
        ),
        (
            "made",
            json!({"Effect": "Allow", "Action": ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
                "Resource": made, "Condition": request}),
        ),
        ("tagging", json!({"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": made, "Condition": tagging})),
        (
            "passing",
            json!({"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo",
                "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}}),
        ),
    ]
}

/// The tags of everything that is made, for this resource type.
fn tags(prefix: &str, number: usize, kind: &str) -> Vec<(String, String)> {
    let part = format!("{prefix}TagSpecification.{number}.");
    [
        ("ResourceType", kind),
        ("Tag.1.Key", "eks:eks-cluster-name"),
        ("Tag.1.Value", "demo"),
        ("Tag.2.Key", "karpenter.sh/nodepool"),
        ("Tag.2.Value", "default"),
    ]
    .map(|(name, value)| (format!("{part}{name}"), value.to_owned()))
    .to_vec()
}

fn borrowed(params: &[(String, String)]) -> Vec<(&str, &str)> {
    params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

impl Enforced {
    async fn profile(&self) {
        for (action, more) in [
            ("CreateInstanceProfile", None),
            ("AddRoleToInstanceProfile", Some(("RoleName", "KarpenterNodeRole-demo"))),
        ] {
            let params: Vec<_> = [("InstanceProfileName", "nodes")].into_iter().chain(more).collect();
            assert_eq!(administrator(&self.account, IAM, action, &params).await.0, 200);
        }
    }

    async fn create_template(&self) -> (u16, String) {
        let image = self.account.image("x86_64");
        let group = self.account.setup.security_group_id.clone();
        let mut params: Vec<(String, String)> = [
            ("LaunchTemplateName", "nodes"),
            ("LaunchTemplateData.ImageId", &image),
            ("LaunchTemplateData.IamInstanceProfile.Name", "nodes"),
            ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
            ("LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1", &group),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        params.extend(tags("LaunchTemplateData.", 1, "network-interface"));
        params.extend(tags("LaunchTemplateData.", 2, "spot-instances-request"));
        params.extend(tags("", 1, "launch-template"));
        self.call(EC2, "CreateLaunchTemplate", &borrowed(&params)).await
    }

    async fn create_fleet(&self, market: &str) -> (u16, String) {
        let subnet = self.account.setup.subnet_ids[0].clone();
        let mut params: Vec<(String, String)> = [
            ("Type", "instant"),
            ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", market),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "nodes"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", &subnet),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        for (number, kind) in ["instance", "volume", "fleet"].into_iter().enumerate() {
            params.extend(tags("", number + 1, kind));
        }
        self.call(EC2, "CreateFleet", &borrowed(&params)).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_needs_every_one_of_its_statements() {
    let statements = launch_statements();
    let all: Vec<Value> = statements.iter().map(|(_, statement)| statement.clone()).collect();
    let mut enforced = Enforced::with(json!(all));
    enforced.profile().await;
    let (status, body) = enforced.create_template().await;
    assert_eq!(status, 200, "{body}");
    for market in ["on-demand", "spot"] {
        let (status, body) = enforced.create_fleet(market).await;
        assert_eq!((status, items(&body, "instanceIds").len()), (200, 1), "{market}: {body}");
    }
    let ours = |rest: &str| format!("arn:aws:ec2:us-west-2:123456789012:{rest}");
    let template = enforced.account.ec2.cloud().launch_templates()[0].id.clone();
    for (name, action, resource) in [
        ("used", "ec2:CreateFleet", ours(&format!("security-group/{}", enforced.account.setup.security_group_id))),
        ("template", "ec2:CreateFleet", ours(&format!("launch-template/{template}"))),
        ("made", "ec2:CreateFleet", ours("fleet/*")),
        ("tagging", "ec2:CreateTags", ours("fleet/*")),
    ] {
        let rest: Vec<&Value> =
            statements.iter().filter(|(other, _)| *other != name).map(|(_, statement)| statement).collect();
        enforced.allow(json!(rest));
        let (status, body) = enforced.create_fleet("spot").await;
        assert_eq!((status, code(&body).as_str()), (403, "UnauthorizedOperation"), "without {name}: {body}");
        assert_eq!(enforced.denied(), Some((action.to_owned(), resource)), "without {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_is_refused_stands_among_the_fleets_errors() {
    let all: Vec<Value> = launch_statements().into_iter().map(|(_, statement)| statement).collect();
    let mut enforced = Enforced::with(json!(all));
    enforced.profile().await;
    assert_eq!(enforced.create_template().await.0, 200);
    // Everything but RunInstances on instances, then everything but the role.
    let mut without_run = all.clone();
    without_run[2]["Action"] = json!("ec2:CreateFleet");
    let passing = all[..4].to_vec();
    for (statements, action, resource) in [
        (without_run, "ec2:RunInstances", "arn:aws:ec2:us-west-2:123456789012:instance/*"),
        (passing, "iam:PassRole", "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo"),
    ] {
        enforced.allow(json!(statements));
        let (status, body) = enforced.create_fleet("on-demand").await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(values(&body, "errorCode"), ["UnauthorizedOperation"], "{body}");
        let message = values(&body, "errorMessage").pop().unwrap();
        assert!(
            message.contains(&format!(
                "{SESSION} is not authorized to perform: {action} on resource: {resource} because no"
            )),
            "{message}"
        );
        assert!(values(&body, "subnetId").iter().all(|id| *id == enforced.account.setup.subnet_ids[0]), "{body}");
        assert_eq!(enforced.account.ec2.cloud().instances().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn instances_are_ended_by_tag_alone() {
    let all: Vec<Value> = launch_statements().into_iter().map(|(_, statement)| statement).collect();
    let mut enforced = Enforced::with(json!(all));
    enforced.profile().await;
    enforced.create_template().await;
    let id = items(&enforced.create_fleet("on-demand").await.1, "instanceIds").pop().unwrap();
    let ending = json!({"Effect": "Allow", "Action": ["ec2:TerminateInstances", "ec2:CreateTags"], "Resource": "*",
        "Condition": {"StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": "demo"},
                      "ForAllValues:StringEquals": {"aws:TagKeys": ["Name"]}}});
    enforced.allow(ending);
    let tag = |key: &'static str| [("ResourceId.1", id.as_str()), ("Tag.1.Key", key), ("Tag.1.Value", "x")].map(|p| p);
    assert_eq!(code(&enforced.call(EC2, "CreateTags", &tag("team")).await.1), "UnauthorizedOperation");
    assert_eq!(enforced.call(EC2, "CreateTags", &tag("Name")).await.0, 200);
    enforced.account.ec2.cloud().remove_tag(&id, "eks:eks-cluster-name").unwrap();
    let ids = [("InstanceId.1", id.as_str())];
    assert_eq!(code(&enforced.call(EC2, "TerminateInstances", &ids).await.1), "UnauthorizedOperation");
    let resource = format!("arn:aws:ec2:us-west-2:123456789012:instance/{id}");
    assert_eq!(enforced.denied(), Some(("ec2:TerminateInstances".into(), resource)));
    enforced.account.ec2.cloud().set_tags(&id, [("eks:eks-cluster-name", "demo")]).unwrap();
    assert_eq!(enforced.call(EC2, "TerminateInstances", &ids).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn instance_profiles_are_scoped_by_their_tags() {
    let profile = "arn:aws:iam::123456789012:instance-profile/*";
    let mut enforced = Enforced::with(json!([
        {"Effect": "Allow", "Action": "iam:CreateInstanceProfile", "Resource": profile,
         "Condition": {"StringEquals": {"aws:RequestTag/owner": "a"}}},
        {"Effect": "Allow", "Action": "iam:TagInstanceProfile", "Resource": profile,
         "Condition": {"StringEquals": {"aws:RequestTag/owner": "a", "aws:ResourceTag/owner": "a"}}},
        {"Effect": "Allow", "Action": ["iam:AddRoleToInstanceProfile", "iam:GetInstanceProfile"], "Resource": profile,
         "Condition": {"StringEquals": {"aws:ResourceTag/owner": "a"}}},
    ]));
    let named = |name| [("InstanceProfileName", name), ("Path", "/k/"), ("Tags.member.1.Key", "owner")];
    let tagged = |name, value| [&named(name)[..], &[("Tags.member.1.Value", value)]].concat();
    let (status, body) = enforced.call(IAM, "CreateInstanceProfile", &tagged("p", "b")).await;
    assert_eq!((status, code(&body).as_str()), (403, "AccessDenied"));
    let arn = "arn:aws:iam::123456789012:instance-profile/k/p";
    assert_eq!(enforced.denied(), Some(("iam:CreateInstanceProfile".into(), arn.into())));
    assert_eq!(enforced.call(IAM, "CreateInstanceProfile", &tagged("p", "a")).await.0, 200);
    assert_eq!(enforced.call(IAM, "GetInstanceProfile", &[("InstanceProfileName", "p")]).await.0, 200);
    // Handing a role to a profile is handing it to EC2.
    let add = [("InstanceProfileName", "p"), ("RoleName", "KarpenterNodeRole-demo")];
    assert_eq!(code(&enforced.call(IAM, "AddRoleToInstanceProfile", &add).await.1), "AccessDenied");
    let role = "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo";
    assert_eq!(enforced.denied(), Some(("iam:PassRole".into(), role.into())));
    enforced
        .allow(json!({"Effect": "Allow", "Action": ["iam:PassRole", "iam:AddRoleToInstanceProfile"], "Resource": "*"}));
    assert_eq!(enforced.call(IAM, "AddRoleToInstanceProfile", &add).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn json_services_refuse_in_their_own_shapes() {
    let enforced = Enforced::with(json!([
        {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "arn:aws:ssm:us-west-2::parameter/aws/service/*"},
        {"Effect": "Allow", "Action": "sqs:GetQueueUrl", "Resource": "arn:aws:sqs:us-west-2:123456789012:demo"},
    ]));
    let public = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
    assert_eq!(enforced.json("AmazonSSM.GetParameter", json!({"Name": public})).await.0, 200);
    let (status, body) = enforced.json("AmazonSSM.GetParameter", json!({"Name": "/mine"})).await;
    assert_eq!((status, body["__type"].as_str()), (400, Some("AccessDeniedException")));
    let (status, body) = enforced.json("AWSPriceListService.GetProducts", json!({"ServiceCode": "AmazonEC2"})).await;
    assert_eq!((status, body["__type"].as_str()), (400, Some("AccessDeniedException")));
    assert_eq!(enforced.json("AmazonSQS.GetQueueUrl", json!({"QueueName": "demo"})).await.0, 200);
    let url = enforced.account.setup.queue_url.clone().unwrap();
    let (status, body) = enforced.json("AmazonSQS.ReceiveMessage", json!({"QueueUrl": url})).await;
    assert_eq!((status, body["__type"].as_str()), (403, Some("com.amazonaws.sqs#AccessDenied")));
    assert_eq!(
        body["message"],
        format!(
            "User: {SESSION} is not authorized to perform: sqs:receivemessage on resource: \
             arn:aws:sqs:us-west-2:123456789012:demo because no identity-based policy allows the sqs:receivemessage action"
        )
    );
    let request = sign(
        Request::get("/clusters/demo"),
        &enforced.credentials.access_key_id,
        Some(&enforced.credentials.session_token),
    );
    let response = enforced.account.ec2.handle(request.body(Default::default()).unwrap()).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-amzn-errortype"]),
        (403, &"AccessDeniedException".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn a_queues_policy_may_deny_what_is_not_encrypted() {
    let enforced = Enforced::with(json!({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}));
    let url = enforced.account.setup.queue_url.clone().unwrap();
    let policy = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sqs:*",
        "Resource": "arn:aws:sqs:us-west-2:123456789012:demo", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]});
    let set = json!({"QueueUrl": url, "Attributes": {"Policy": policy.to_string()}});
    assert_eq!(enforced.json("AmazonSQS.SetQueueAttributes", set).await.0, 200);
    let receive = json!({"QueueUrl": url});
    assert_eq!(enforced.json("AmazonSQS.ReceiveMessage", receive.clone()).await.0, 200);
    let Credentials { access_key_id, session_token, .. } = &enforced.credentials;
    let request = sign(Request::post("/"), access_key_id, Some(session_token))
        .header("x-amz-target", "AmazonSQS.ReceiveMessage")
        .header("x-forwarded-proto", "http");
    let response = enforced.account.ec2.handle(request.body(receive.to_string().into()).unwrap()).await;
    assert_eq!(response.status(), 403);
    assert!(text(&response).contains("with an explicit deny in a resource-based policy"), "{}", text(&response));
}

#[tokio::test(start_paused = true)]
async fn events_reach_a_queue_only_if_its_policy_lets_them() {
    let enforced = Enforced::with(json!({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}));
    let cloud = enforced.account.ec2.cloud();
    let event = json!({"source": "aws.health", "detail-type": "AWS Health Event", "detail": {}});
    cloud.send_event(&event);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(cloud.queue_counts("demo"), Some((1, 0, 0)));
    let url = enforced.account.setup.queue_url.clone().unwrap();
    let set = json!({"QueueUrl": url, "Attributes": {"Policy": ""}});
    assert_eq!(enforced.json("AmazonSQS.SetQueueAttributes", set).await.0, 200);
    cloud.send_event(&event);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(cloud.queue_counts("demo"), Some((1, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn keys_tell_who_calls() {
    let enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:DescribeVpcs", "Resource": "*"}));
    let (_, body) = enforced.call(STS, "GetCallerIdentity", &[]).await;
    assert_eq!(values(&body, "Arn"), [SESSION]);
    assert!(values(&body, "UserId")[0].ends_with(":test"), "{body}");
    // A key of nobody's making is the administrator's.
    let (status, body) = administrator(&enforced.account, STS, "GetCallerIdentity", &[]).await;
    assert_eq!((status, values(&body, "Arn")), (200, vec!["arn:aws:iam::123456789012:user/placeholder".to_owned()]));
    assert_eq!(administrator(&enforced.account, EC2, "DescribeSubnets", &[]).await.0, 200);
    // A temporary key of nobody's making is nobody's.
    let (status, body) = signed(&enforced.account, "ASIAUNKNOWN", Some("t"), EC2, "DescribeVpcs", &[]).await;
    assert_eq!((status, code(&body).as_str()), (401, "AuthFailure"));
    let key = enforced.credentials.access_key_id.clone();
    let (status, body) = signed(&enforced.account, &key, Some("wrong"), STS, "GetCallerIdentity", &[]).await;
    assert_eq!((status, code(&body).as_str()), (403, "InvalidClientTokenId"));
    let (status, body) = enforced.account.ec2("DescribeVpcs", &[]).await;
    assert_eq!((status, code(&body).as_str()), (403, "MissingAuthenticationToken"));
    tokio::time::sleep(std::time::Duration::from_secs(3601)).await;
    assert_eq!(code(&enforced.call(EC2, "DescribeVpcs", &[]).await.1), "RequestExpired");
    assert_eq!(code(&enforced.call(STS, "GetCallerIdentity", &[]).await.1), "ExpiredToken");
    let (_, body) = enforced.json("AmazonSSM.GetParameter", json!({"Name": "a"})).await;
    assert_eq!(body["__type"], "ExpiredTokenException");
}

#[tokio::test(start_paused = true)]
async fn a_role_is_assumed_by_whom_it_trusts() {
    let account = Account::with(Config { iam: Iam::Enforce, families: vec!["m5".into()], ..Config::default() });
    let cloud = account.ec2.cloud();
    let trust = |principal: Value| json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]});
    let open = cloud.create_role("open", &trust(json!({"AWS": "123456789012"}))).unwrap();
    cloud.create_role("closed", &trust(json!({"Service": "ec2.amazonaws.com"}))).unwrap();
    cloud.create_role("chained", &trust(json!({"AWS": open}))).unwrap();
    let assume = |name: &str| format!("arn:aws:iam::123456789012:role/{name}");
    let by = |name: &str| [("RoleArn", assume(name)), ("RoleSessionName", "s1".to_owned())];
    let ask = |params: [(&'static str, String); 2]| async {
        let params = params;
        administrator(&account, STS, "AssumeRole", &[(params[0].0, &params[0].1), (params[1].0, &params[1].1)]).await
    };
    let (status, body) = ask(by("open")).await;
    assert_eq!(
        (status, values(&body, "Arn")),
        (200, vec!["arn:aws:sts::123456789012:assumed-role/open/s1".to_owned()])
    );
    let (key, token) = (values(&body, "AccessKeyId").remove(0), values(&body, "SessionToken").remove(0));
    for name in ["closed", "chained", "missing"] {
        let (status, body) = ask(by(name)).await;
        assert_eq!((status, code(&body).as_str()), (403, "AccessDenied"), "{name}");
        let told = format!(
            "User: arn:aws:iam::123456789012:user/placeholder is not authorized to perform: sts:AssumeRole on resource: {}",
            assume(name)
        );
        assert!(values(&body, "Message")[0].starts_with(&told), "{body}");
    }
    // Named by the trust policy itself, it needs no policy of its own.
    let chained = assume("chained");
    let params = [("RoleArn", chained.as_str()), ("RoleSessionName", "s2")];
    assert_eq!(signed(&account, &key, Some(&token), STS, "AssumeRole", &params).await.0, 200);
    // Trusted as one of the account, it does.
    let open = assume("open");
    let params = [("RoleArn", open.as_str()), ("RoleSessionName", "s3")];
    let (_, body) = signed(&account, &key, Some(&token), STS, "AssumeRole", &params).await;
    assert!(
        values(&body, "Message")[0].ends_with("because no identity-based policy allows the sts:AssumeRole action"),
        "{body}"
    );
    let short = [("RoleArn", open.as_str()), ("RoleSessionName", "s3"), ("DurationSeconds", "60")];
    assert_eq!(code(&administrator(&account, STS, "AssumeRole", &short).await.1), "ValidationError");
}

/// A token of service account `karpenter`, signed by nobody.
fn token(issuer: &str, subject: &str, audience: Value, expires: i64) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"iss": issuer, "sub": subject, "aud": audience, "exp": expires});
    format!("{}.{}.{}", part(json!({"alg": "RS256", "kid": "1"})), part(claims), URL_SAFE_NO_PAD.encode("none"))
}

#[tokio::test(start_paused = true)]
async fn a_web_identity_is_checked_against_provider_and_trust() {
    let account = Account::with(Config { iam: Iam::Enforce, families: vec!["m5".into()], ..Config::default() });
    let cloud = account.ec2.cloud();
    let issuer = account.setup.oidc_issuer.clone();
    let host = issuer.strip_prefix("https://").unwrap();
    let subject = "system:serviceaccount:kube-system:karpenter";
    let trust = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Federated": account.setup.oidc_provider_arn}, "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {format!("{host}:aud"): "sts.amazonaws.com", format!("{host}:sub"): subject}}}]});
    let role = cloud.create_role("irsa", &trust).unwrap();
    let later = account.epoch.as_second() + 600;
    let ask = |token: String| {
        let (account, role) = (&account, role.clone());
        async move {
            let params = [("RoleArn", role.as_str()), ("RoleSessionName", "s1"), ("WebIdentityToken", &token)];
            let (status, body) = account.form(STS, "AssumeRoleWithWebIdentity", &params).await;
            (
                status,
                values(&body, "Code").pop().unwrap_or_default(),
                values(&body, "Message").pop().unwrap_or_default(),
                body,
            )
        }
    };
    let audience = json!(["sts.amazonaws.com"]);
    let (status, _, _, body) = ask(token(&issuer, subject, audience.clone(), later)).await;
    assert_eq!((status, values(&body, "SubjectFromWebIdentityToken")), (200, vec![subject.to_owned()]), "{body}");
    let key = values(&body, "AccessKeyId").pop().unwrap();
    let session_token = values(&body, "SessionToken").pop().unwrap();
    let (_, who) = signed(&account, &key, Some(&session_token), STS, "GetCallerIdentity", &[]).await;
    assert_eq!(values(&who, "Arn"), ["arn:aws:sts::123456789012:assumed-role/irsa/s1"]);
    for (token, status, code, message) in [
        (
            token(&issuer, "system:serviceaccount:default:other", audience.clone(), later),
            403,
            "AccessDenied",
            "Not authorized to perform sts:AssumeRoleWithWebIdentity",
        ),
        (
            token("https://elsewhere.example/id", subject, audience.clone(), later),
            400,
            "InvalidIdentityToken",
            "No OpenIDConnect provider found in your account for https://elsewhere.example/id",
        ),
        (token(&issuer, subject, json!("kubernetes"), later), 400, "InvalidIdentityToken", "Incorrect token audience"),
        (
            token(&issuer, subject, audience.clone(), 1),
            400,
            "ExpiredTokenException",
            "Token expired: current date/time 1767225600 must be before the expiration date/time 1",
        ),
        (
            "x.y.z".to_owned(),
            400,
            "InvalidIdentityToken",
            "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)",
        ),
    ] {
        let (found, own, told, _) = ask(token).await;
        assert_eq!((found, own.as_str(), told.as_str()), (status, code, message));
    }
    // Known keys are asked; this token is not signed by one.
    cloud.set_issuer_keys(&issuer, &json!({"keys": [{"kid": "1", "kty": "RSA", "n": "AQAB", "e": "AQAB"}]}));
    let (_, code, message, _) = ask(token(&issuer, subject, audience.clone(), later)).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("InvalidIdentityToken", "The signature of the ID Token could not be verified.")
    );
    cloud.remove_oidc_provider(&account.setup.oidc_provider_arn).unwrap();
    let (_, code, message, _) = ask(token(&issuer, subject, audience, later)).await;
    assert_eq!(
        (code.as_str(), message),
        ("InvalidIdentityToken", format!("No OpenIDConnect provider found in your account for {issuer}"))
    );
}

#[tokio::test(start_paused = true)]
async fn policies_are_created_attached_and_deleted_in_order() {
    let account = Account::new();
    let document = json!({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "a:b", "Resource": "*"}})
        .to_string();
    let (status, body) = account.iam("CreatePolicy", &[("PolicyName", "p"), ("PolicyDocument", &document)]).await;
    let arn = "arn:aws:iam::123456789012:policy/p";
    assert_eq!((status, values(&body, "Arn")), (200, vec![arn.to_owned()]));
    let role = [("RoleName", account.setup.node_role_name.as_str())];
    let attach = [role[0], ("PolicyArn", arn)];
    assert_eq!(account.iam("AttachRolePolicy", &attach).await.0, 200);
    let managed = [role[0], ("PolicyArn", "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy")];
    assert_eq!(account.iam("AttachRolePolicy", &managed).await.0, 200);
    let unknown = [role[0], ("PolicyArn", "arn:aws:iam::aws:policy/AmazonEverything")];
    assert_eq!(code(&account.iam("AttachRolePolicy", &unknown).await.1), "NoSuchEntity");
    let (_, body) = account.iam("ListAttachedRolePolicies", &role).await;
    assert_eq!(values(&body, "PolicyName"), ["p", "AmazonEKSWorkerNodePolicy"]);
    assert_eq!(code(&account.iam("DeletePolicy", &[("PolicyArn", arn)]).await.1), "DeleteConflict");
    assert_eq!(account.iam("DetachRolePolicy", &attach).await.0, 200);
    assert_eq!(account.iam("DeletePolicy", &[("PolicyArn", arn)]).await.0, 200);
    assert_eq!(code(&account.iam("GetPolicy", &[("PolicyArn", arn)]).await.1), "NoSuchEntity");
    let bad = [role[0], ("PolicyName", "own"), ("PolicyDocument", "{}")];
    assert_eq!(code(&account.iam("PutRolePolicy", &bad).await.1), "MalformedPolicyDocument");
    let own = [role[0], ("PolicyName", "own"), ("PolicyDocument", document.as_str())];
    assert_eq!(account.iam("PutRolePolicy", &own).await.0, 200);
    let (_, body) = account.iam("GetRolePolicy", &own[..2]).await;
    assert!(values(&body, "PolicyDocument")[0].starts_with("%7B%22Statement%22"), "{body}");
    assert_eq!(values(&account.iam("ListRolePolicies", &role).await.1, "member"), ["own"]);
    let refused = account.iam("DeleteRole", &role).await.1;
    assert_eq!(code(&refused), "DeleteConflict");
    assert_eq!(account.iam("DeleteRolePolicy", &own[..2]).await.0, 200);
    assert_eq!(account.iam("DetachRolePolicy", &managed).await.0, 200);
    assert_eq!(account.iam("DeleteRole", &role).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_spot_role_is_made_once() {
    let account = Account::new();
    let spot = [("AWSServiceName", "spot.amazonaws.com")];
    let (status, body) = account.iam("CreateServiceLinkedRole", &spot).await;
    assert_eq!((status, values(&body, "RoleName")), (200, vec!["AWSServiceRoleForEC2Spot".to_owned()]));
    let (status, body) = account.iam("CreateServiceLinkedRole", &spot).await;
    assert_eq!((status, code(&body).as_str()), (400, "InvalidInput"));
    assert!(body.contains("AWSServiceRoleForEC2Spot has been taken in this account"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn the_encoded_message_can_be_decoded() {
    let enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:DescribeVpcs", "Resource": "*"}));
    let params = [("MinCount", "1"), ("MaxCount", "1"), ("InstanceType", "m5.large")];
    let (_, body) = enforced.call(EC2, "RunInstances", &params).await;
    let message = values(&body, "Message").pop().unwrap();
    let encoded = message.split("Encoded authorization failure message: ").nth(1).expect("an encoded message");
    let (status, body) =
        administrator(&enforced.account, STS, "DecodeAuthorizationMessage", &[("EncodedMessage", encoded)]).await;
    assert_eq!(status, 200);
    assert!(body.contains("ec2:RunInstances") && body.contains("ec2:instancetype"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn without_enforcement_everybody_may_do_everything() {
    let enforced = Enforced::with(json!({"Effect": "Deny", "Action": "*", "Resource": "*"}));
    assert_eq!(enforced.call(EC2, "DescribeVpcs", &[]).await.0, 403);
    enforced.account.ec2.cloud().set_iam(Iam::Off);
    assert_eq!(enforced.call(EC2, "DescribeVpcs", &[]).await.0, 200);
    assert_eq!(enforced.account.ec2("DescribeVpcs", &[]).await.0, 200);
    enforced.account.ec2.cloud().fault(FaultRule::unauthorized("DescribeVpcs"));
    assert_eq!(code(&enforced.account.ec2("DescribeVpcs", &[]).await.1), "UnauthorizedOperation");
}

#[tokio::test(start_paused = true)]
async fn the_prerequisites_can_be_left_out() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let issuer = "https://kubernetes.default.svc";
    let stage =
        cloud.bootstrap(Bootstrap { prerequisites: false, oidc_issuer: issuer.into(), ..Bootstrap::named("bare") });
    assert_eq!((stage.queue_url, stage.oidc_issuer.as_str()), (None, issuer));
    assert_eq!(stage.oidc_provider_arn, "arn:aws:iam::123456789012:oidc-provider/kubernetes.default.svc");
    assert_eq!(stage.subnet_ids.len(), 3);
    assert_eq!(code(&account.iam("GetRole", &[("RoleName", &stage.node_role_name)]).await.1), "NoSuchEntity");
    assert!(cloud.cluster("bare").unwrap().access_entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stage_is_set_by_whoever_may_touch_each_part_of_it() {
    let own = "arn:aws:ec2:us-west-2:123456789012";
    let blue = json!({"StringEquals": {"aws:ResourceTag/team": "blue"}});
    let mut role = Enforced::with(json!([
        {"Effect": "Allow", "Action": "ec2:CreateVpc", "Resource": format!("{own}:vpc/*")},
        {"Effect": "Allow", "Action": "ec2:CreateSubnet", "Resource": [format!("{own}:vpc/*"), format!("{own}:subnet/*")]},
        {"Effect": "Allow", "Action": "ec2:DeleteVpc", "Resource": "*", "Condition": blue},
        {"Effect": "Allow", "Action": "ec2:CreateKeyPair", "Resource": format!("{own}:key-pair/mine")},
    ]));
    let tagged = [
        ("CidrBlock", "10.0.0.0/16"),
        ("TagSpecification.1.ResourceType", "vpc"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "blue"),
    ];
    assert_eq!(role.call(EC2, "CreateVpc", &tagged).await.0, 403, "tags on creation are a permission of their own");
    assert_eq!(role.denied(), Some(("ec2:CreateTags".into(), format!("{own}:vpc/*"))));
    let (status, plain) = role.call(EC2, "CreateVpc", &tagged[..1]).await;
    assert_eq!(status, 200, "{plain}");
    let vpc = values(&plain, "vpcId").remove(0);
    let subnet = [("VpcId", vpc.as_str()), ("CidrBlock", "10.0.0.0/24")];
    let (status, body) = role.call(EC2, "CreateSubnet", &subnet).await;
    assert_eq!(status, 200, "{body}");
    let subnet = values(&body, "subnetId").remove(0);
    assert_eq!(role.call(EC2, "DeleteSubnet", &[("SubnetId", &subnet)]).await.0, 403);
    assert_eq!(role.denied(), Some(("ec2:DeleteSubnet".into(), format!("{own}:subnet/{subnet}"))));
    assert_eq!(role.call(EC2, "DeleteVpc", &[("VpcId", &vpc)]).await.0, 403, "it is not blue");
    assert_eq!(role.denied(), Some(("ec2:DeleteVpc".into(), format!("{own}:vpc/{vpc}"))));
    let key = |name: &'static str| [("KeyName", name), ("KeyType", "ed25519")];
    assert_eq!(role.call(EC2, "CreateKeyPair", &key("mine")).await.0, 200);
    assert_eq!(role.call(EC2, "CreateKeyPair", &key("yours")).await.0, 403);
    role.allow(json!([{"Effect": "Allow", "Action": ["ec2:CreateVpc", "ec2:CreateTags"], "Resource": "*"}]));
    assert_eq!(role.call(EC2, "CreateVpc", &tagged).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn instances_fleets_and_requests_are_resources_of_their_actions() {
    let mut enforced = Enforced::with(json!({"Effect": "Allow", "Action": "ec2:DescribeFleets", "Resource": "*"}));
    assert_eq!(enforced.call(EC2, "DescribeFleets", &[]).await.0, 200);
    let account = &enforced.account;
    let image = account.image("x86_64");
    let run = [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceType", "m5.large"),
        ("ImageId", image.as_str()),
        ("SubnetId", account.setup.subnet_ids[0].as_str()),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "blue"),
    ];
    let (_, body) = administrator(account, EC2, "RunInstances", &run).await;
    let id = values(&body, "instanceId").remove(0);
    let modify = [("InstanceId", id.as_str()), ("DisableApiTermination.Value", "true")];
    let allow = |team: &str| {
        json!({"Effect": "Allow", "Action": "ec2:ModifyInstanceAttribute", "Resource": "arn:aws:ec2:*:*:instance/*",
               "Condition": {"StringEquals": {"aws:ResourceTag/team": team}}})
    };
    enforced.allow(allow("red"));
    assert_eq!(enforced.call(EC2, "ModifyInstanceAttribute", &modify).await.0, 403);
    let instance = format!("arn:aws:ec2:us-west-2:123456789012:instance/{id}");
    assert_eq!(enforced.denied(), Some(("ec2:ModifyInstanceAttribute".into(), instance)));
    enforced.allow(allow("blue"));
    assert_eq!(enforced.call(EC2, "ModifyInstanceAttribute", &modify).await.0, 200);
    let group = [("GroupName", "near"), ("Strategy", "cluster")];
    assert_eq!(enforced.call(EC2, "CreatePlacementGroup", &group).await.0, 403);
    let group_arn = "arn:aws:ec2:us-west-2:123456789012:placement-group/near";
    assert_eq!(enforced.denied(), Some(("ec2:CreatePlacementGroup".into(), group_arn.into())));
}

#[tokio::test(start_paused = true)]
async fn a_boundary_and_a_session_policy_narrow_what_a_role_may() {
    let all = Enforced::with(json!([{"Effect": "Allow", "Action": "*", "Resource": "*"}]));
    let (account, regions) = (&all.account, "DescribeRegions");
    let narrow = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:DescribeVpcs", "Resource": "*"}]});
    let (role, narrow) = ("arn:aws:iam::123456789012:role/karpenter", narrow.to_string());
    let trust = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"sts:ExternalId": "shared"}}}]});
    let update = [("RoleName", ROLE), ("PolicyDocument", &trust.to_string())];
    let administrator = async |action: &str, params: &[(&str, &str)]| {
        let (status, body) = signed(account, "AKIAADMINISTRATOR", None, IAM, action, params).await;
        assert_eq!(status, 200, "{action}: {body}");
        body
    };
    administrator("UpdateAssumeRolePolicy", &update).await;
    let assume = [("RoleArn", role), ("RoleSessionName", "narrow"), ("Policy", narrow.as_str())];
    assert_eq!(all.call(STS, "AssumeRole", &assume).await.0, 403, "the external id is missing");
    let assume = [&assume[..], &[("ExternalId", "shared"), ("SourceIdentity", "alice")]].concat();
    let (status, body) = all.call(STS, "AssumeRole", &assume).await;
    assert_eq!((status, values(&body, "SourceIdentity")), (200, vec!["alice".to_owned()]), "{body}");
    let (key, token) = (values(&body, "AccessKeyId").remove(0), values(&body, "SessionToken").remove(0));
    let narrowed = async |action: &str| signed(account, &key, Some(&token), EC2, action, &[]).await.0;
    assert_eq!((narrowed("DescribeVpcs").await, narrowed(regions).await), (200, 403));

    assert_eq!(all.call(EC2, regions, &[]).await.0, 200);
    let policy = administrator("CreatePolicy", &[("PolicyName", "b"), ("PolicyDocument", &narrow)]).await;
    let arn = values(&policy, "Arn").remove(0);
    let bound = [("RoleName", ROLE), ("PermissionsBoundary", arn.as_str())];
    administrator("PutRolePermissionsBoundary", &bound).await;
    assert_eq!((all.call(EC2, "DescribeVpcs", &[]).await.0, all.call(EC2, regions, &[]).await.0), (200, 403));
}
