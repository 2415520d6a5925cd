//! Stacks: what a template makes, what an update changes, and what a failure leaves.

mod common;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Account, text, values};
use fake_ec2::{Bootstrap, Config, Iam};
use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

const TEMPLATE: &str = include_str!("stack.yaml");
const VERSION: &str = "2010-05-15";
const NAMED_IAM: [&str; 1] = ["CAPABILITY_NAMED_IAM"];

/// An account with a cluster and nothing that the stack is to make.
fn account() -> Account {
    let account = Account::with(Config { families: vec!["m5".into()], ..Config::default() });
    account.ec2.cloud().bootstrap(Bootstrap { prerequisites: false, ..Bootstrap::named("bare") });
    account
}

fn request<'a>(template: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut params = vec![
        ("StackName", "s"),
        ("TemplateBody", template),
        ("Parameters.member.1.ParameterKey", "ClusterName"),
        ("Parameters.member.1.ParameterValue", "bare"),
        ("Capabilities.member.1", "CAPABILITY_NAMED_IAM"),
    ];
    params.extend(more);
    params
}

async fn call(account: &Account, action: &str, params: &[(&str, &str)]) -> (u16, String) {
    account.form(VERSION, action, params).await
}

async fn ok(account: &Account, action: &str, params: &[(&str, &str)]) -> String {
    let (status, body) = call(account, action, params).await;
    assert_eq!(status, 200, "{action}: {body}");
    body
}

/// Code and message of a call that must be refused.
async fn refused(account: &Account, action: &str, params: &[(&str, &str)]) -> (String, String) {
    let (status, body) = call(account, action, params).await;
    assert_eq!(status, 400, "{action}: {body}");
    (values(&body, "Code").remove(0), values(&body, "Message").remove(0).replace("&apos;", "'"))
}

async fn status(account: &Account) -> String {
    values(&ok(account, "DescribeStacks", &[("StackName", "s")]).await, "StackStatus").remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_stack_makes_every_resource_and_its_deletion_takes_all_away() {
    let account = account();
    let cloud = account.ec2.cloud();
    let outputs = cloud.create_stack("s", TEMPLATE, &[("ClusterName", "bare")], &NAMED_IAM).unwrap();
    let role = "arn:aws:iam::123456789012:role/NodeRole-bare";
    assert_eq!(outputs["NodeRoleArn"], role);
    assert_eq!(outputs["QueueUrl"], "https://sqs.us-west-2.amazonaws.com/123456789012/bare");
    assert!(!outputs.contains_key("ProfileName"), "its condition does not hold: {outputs:?}");
    let (_, body) = account.iam("ListAttachedRolePolicies", &[("RoleName", "NodeRole-bare")]).await;
    assert_eq!(values(&body, "PolicyName"), ["AmazonEKSWorkerNodePolicy"]);
    let cluster = cloud.cluster("bare").unwrap();
    assert_eq!(cluster.access_entries[role].kind, "EC2_LINUX");
    let association = cluster.pod_identity_associations.values().next().unwrap();
    assert_eq!((association.namespace.as_str(), association.service_account.as_str()), ("kube-system", "karpenter"));
    let controller = association.role_arn.rsplit('/').next().unwrap().to_owned();
    assert!(
        controller.starts_with("s-ControllerRole-") && controller.len() == "s-ControllerRole-".len() + 12,
        "{controller}"
    );
    let policies = cloud.role_policies(&controller);
    assert_eq!(policies["passing"]["Statement"]["Resource"], role);
    let queue = "arn:aws:sqs:us-west-2:123456789012:bare";
    assert_eq!(policies["arn:aws:iam::123456789012:policy/Controller-bare"]["Statement"][0]["Resource"], queue);
    let url = outputs["QueueUrl"].as_str();
    let attributes = account.sqs("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["All"]})).await;
    assert_eq!(attributes["Attributes"]["MessageRetentionPeriod"], "300");
    assert!(attributes["Attributes"]["Policy"].as_str().unwrap().contains("EC2InterruptionPolicy"), "{attributes}");
    // The rule sends to the queue.
    cloud.send_event(&json!({"source": "aws.health", "detail-type": "AWS Health Event", "detail": {}}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cloud.queue_counts("bare"), Some((1, 0, 0)));
    let body = ok(&account, "DescribeStackResources", &[("StackName", "s")]).await;
    assert_eq!(values(&body, "LogicalResourceId").len(), 9);
    assert!(values(&body, "ResourceStatus").iter().all(|status| status == "CREATE_COMPLETE"), "{body}");

    let body = ok(&account, "DescribeStacks", &[("StackName", "s")]).await;
    assert_eq!(values(&body, "ParameterKey"), ["ClusterName", "RetentionSeconds", "WithProfile"]);
    assert_eq!(values(&body, "ParameterValue"), ["bare", "300", "false"]);
    let id = values(&body, "StackId").remove(0);
    ok(&account, "DeleteStack", &[("StackName", "s")]).await;
    let (code, message) = refused(&account, "DescribeStacks", &[("StackName", "s")]).await;
    assert_eq!((code.as_str(), message.as_str()), ("ValidationError", "Stack with id s does not exist"));
    let body = ok(&account, "DescribeStacks", &[("StackName", &id)]).await;
    assert_eq!(values(&body, "StackStatus"), ["DELETE_COMPLETE"]);
    assert_eq!(cloud.queue_counts("bare"), None);
    let cluster = cloud.cluster("bare").unwrap();
    assert!(cluster.access_entries.is_empty() && cluster.pod_identity_associations.is_empty());
    for (action, name, value) in [
        ("GetRole", "RoleName", "NodeRole-bare"),
        ("GetPolicy", "PolicyArn", "arn:aws:iam::123456789012:policy/Controller-bare"),
        (
            "GetOpenIDConnectProvider",
            "OpenIDConnectProviderArn",
            "arn:aws:iam::123456789012:oidc-provider/oidc.example/bare",
        ),
    ] {
        assert_eq!(account.iam(action, &[(name, value)]).await.0, 404, "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn deploying_goes_through_change_sets() {
    let account = account();
    let set = [("ChangeSetName", "c1"), ("ChangeSetType", "CREATE")];
    let body = ok(&account, "CreateChangeSet", &request(TEMPLATE, &set)).await;
    assert!(
        values(&body, "Id")[0].starts_with("arn:aws:cloudformation:us-west-2:123456789012:changeSet/c1/"),
        "{body}"
    );
    assert_eq!(status(&account).await, "REVIEW_IN_PROGRESS");
    let names = [("StackName", "s"), ("ChangeSetName", "c1")];
    let body = ok(&account, "DescribeChangeSet", &names).await;
    assert_eq!(
        (values(&body, "Status"), values(&body, "ExecutionStatus")),
        (vec!["CREATE_COMPLETE".to_owned()], vec!["AVAILABLE".to_owned()])
    );
    assert_eq!(values(&body, "Action"), ["Add"; 9]);
    ok(&account, "ExecuteChangeSet", &names).await;
    assert_eq!(status(&account).await, "CREATE_COMPLETE");
    // The same once more is no change.
    ok(&account, "CreateChangeSet", &request(TEMPLATE, &[("ChangeSetName", "c2")])).await;
    let body = ok(&account, "DescribeChangeSet", &[("StackName", "s"), ("ChangeSetName", "c2")]).await;
    assert_eq!(values(&body, "Status"), ["FAILED"]);
    assert!(
        values(&body, "StatusReason")[0].starts_with("The submitted information didn&apos;t contain changes."),
        "{body}"
    );
    let (code, _) = refused(&account, "ExecuteChangeSet", &[("StackName", "s"), ("ChangeSetName", "c2")]).await;
    assert_eq!(code, "InvalidChangeSetStatus");
    let (code, message) = refused(&account, "UpdateStack", &request(TEMPLATE, &[])).await;
    assert_eq!((code.as_str(), message.as_str()), ("ValidationError", "No updates are to be performed."));
    // The names of the executed and of the failed set are free, as a quick script finds: the AWS command line names sets by
    // the second. That of a set that can be executed is not.
    let retention =
        [("Parameters.member.2.ParameterKey", "RetentionSeconds"), ("Parameters.member.2.ParameterValue", "600")];
    for name in ["c1", "c2"] {
        let set = [&[("ChangeSetName", name)], &retention[..]].concat();
        ok(&account, "CreateChangeSet", &request(TEMPLATE, &set)).await;
        let (code, _) = refused(&account, "CreateChangeSet", &request(TEMPLATE, &set)).await;
        assert_eq!(code, "AlreadyExistsException");
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_adds_changes_and_removes() {
    let account = account();
    let cloud = account.ec2.cloud();
    cloud.create_stack("s", TEMPLATE, &[("ClusterName", "bare")], &NAMED_IAM).unwrap();
    let before = cloud.cluster("bare").unwrap().pod_identity_associations;
    let template = TEMPLATE.replace("sqs:ReceiveMessage", "sqs:DeleteMessage").replace("  HealthRule:", "  OtherRule:");
    let more = [
        ("Parameters.member.2.ParameterKey", "WithProfile"),
        ("Parameters.member.2.ParameterValue", "true"),
        ("Parameters.member.3.ParameterKey", "RetentionSeconds"),
        ("Parameters.member.3.ParameterValue", "600"),
        ("ChangeSetName", "c"),
    ];
    ok(&account, "CreateChangeSet", &request(&template, &more)).await;
    let names = [("StackName", "s"), ("ChangeSetName", "c")];
    let body = ok(&account, "DescribeChangeSet", &names).await;
    let changes: Vec<(String, String)> =
        values(&body, "Action").into_iter().zip(values(&body, "LogicalResourceId")).collect();
    let expected = [
        ("Modify", "ControllerPolicy"),
        ("Modify", "NodeRole"),
        ("Add", "OtherRule"),
        ("Add", "Profile"),
        ("Modify", "Queue"),
        ("Remove", "HealthRule"),
    ];
    assert_eq!(changes, expected.map(|(action, id)| (action.to_owned(), id.to_owned())));
    ok(&account, "ExecuteChangeSet", &names).await;
    assert_eq!(status(&account).await, "UPDATE_COMPLETE");
    let (_, body) = account
        .iam(
            "GetPolicyVersion",
            &[("PolicyArn", "arn:aws:iam::123456789012:policy/Controller-bare"), ("VersionId", "v1")],
        )
        .await;
    assert!(values(&body, "Document")[0].contains("DeleteMessage"), "{body}");
    let (_, body) = account.iam("ListAttachedRolePolicies", &[("RoleName", "NodeRole-bare")]).await;
    assert_eq!(values(&body, "PolicyName"), ["AmazonEKSWorkerNodePolicy", "AmazonSSMManagedInstanceCore"]);
    let body = ok(&account, "DescribeStacks", &[("StackName", "s")]).await;
    assert!(values(&body, "OutputKey").contains(&"ProfileName".to_owned()), "{body}");
    assert_eq!(cloud.instance_profiles()[0].role.as_deref(), Some("NodeRole-bare"));
    let url = account.sqs("GetQueueUrl", json!({"QueueName": "bare"})).await["QueueUrl"].clone();
    let attributes = account.sqs("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["All"]})).await;
    assert_eq!(attributes["Attributes"]["MessageRetentionPeriod"], "600");
    let (_, rules, _) = account.json("AWSEvents.ListRules", json!({"NamePrefix": "s-"})).await;
    let names: Vec<&str> = rules["Rules"].as_array().unwrap().iter().filter_map(|rule| rule["Name"].as_str()).collect();
    assert!(names.len() == 1 && names[0].starts_with("s-OtherRule-"), "{names:?}");
    assert_eq!(
        cloud.cluster("bare").unwrap().pod_identity_associations.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_rolls_back_and_tells_which_resource() {
    let account = account();
    let unknown = format!("{TEMPLATE}\n").replace(
        "Outputs:\n",
        "  Bucket:\n    Type: AWS::S3::Bucket\n    DependsOn: [Association, QueuePolicy]\nOutputs:\n",
    );
    ok(&account, "CreateStack", &request(&unknown, &[])).await;
    let body = ok(&account, "DescribeStacks", &[("StackName", "s")]).await;
    assert_eq!(values(&body, "StackStatus"), ["ROLLBACK_COMPLETE"]);
    let events = ok(&account, "DescribeStackEvents", &[("StackName", "s")]).await;
    assert!(
        values(&events, "ResourceStatusReason")
            .contains(&"Resource type AWS::S3::Bucket is not played here".to_owned()),
        "{events}"
    );
    assert!(
        values(&events, "ResourceStatusReason")
            .contains(&"The following resource(s) failed to create: [Bucket]. Rollback requested by user.".to_owned()),
        "{events}"
    );
    assert_eq!(account.iam("GetRole", &[("RoleName", "NodeRole-bare")]).await.0, 404);
    assert_eq!(account.ec2.cloud().queue_counts("bare"), None);
    let (_, message) = refused(&account, "UpdateStack", &request(TEMPLATE, &[])).await;
    assert!(message.ends_with("is in ROLLBACK_COMPLETE state and can not be updated."), "{message}");
    ok(&account, "DeleteStack", &[("StackName", "s")]).await;
    // An update that fails leaves the stack as it was.
    ok(&account, "CreateStack", &request(TEMPLATE, &[])).await;
    let broken = unknown.replace("sqs:ReceiveMessage", "sqs:DeleteMessage");
    ok(&account, "UpdateStack", &request(&broken, &[])).await;
    assert_eq!(status(&account).await, "UPDATE_ROLLBACK_COMPLETE");
    let (_, body) = account
        .iam(
            "GetPolicyVersion",
            &[("PolicyArn", "arn:aws:iam::123456789012:policy/Controller-bare"), ("VersionId", "v1")],
        )
        .await;
    assert!(values(&body, "Document")[0].contains("ReceiveMessage"), "{body}");
    let error = account.ec2.cloud().create_stack("t", &unknown, &[("ClusterName", "bare")], &NAMED_IAM).unwrap_err();
    assert!(error.message.contains("already exists"), "{error:?}");
    assert_eq!(error.code, "ROLLBACK_COMPLETE");
}

#[tokio::test(start_paused = true)]
async fn iam_resources_need_a_capability() {
    let account = account();
    let (code, message) = refused(&account, "CreateStack", &request(TEMPLATE, &[])[..4]).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("InsufficientCapabilitiesException", "Requires capabilities : [CAPABILITY_NAMED_IAM]")
    );
    let unnamed = "Resources:\n  R:\n    Type: AWS::IAM::ManagedPolicy\n    Properties: {PolicyDocument: {Version: '2012-10-17', Statement: {Effect: Allow, Action: 'a:b', Resource: '*'}}}\n";
    let (_, message) = refused(&account, "CreateStack", &[("StackName", "s"), ("TemplateBody", unnamed)]).await;
    assert_eq!(message, "Requires capabilities : [CAPABILITY_IAM]");
    let body = ok(&account, "ValidateTemplate", &[("TemplateBody", TEMPLATE)]).await;
    assert_eq!(values(&body, "ParameterKey"), ["ClusterName", "RetentionSeconds", "WithProfile"]);
    assert_eq!(
        values(&body, "CapabilitiesReason"),
        [
            "The following resource(s) require capabilities: [AWS::IAM::InstanceProfile, AWS::IAM::ManagedPolicy, AWS::IAM::Role]"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn wrong_templates_and_parameters_are_refused_before_anything_is_made() {
    let account = account();
    let parameter = |name: &'static str, value: &'static str| {
        let mut params = request(TEMPLATE, &[]);
        params[2].1 = name;
        params[3].1 = value;
        params
    };
    let with = |template: &'static str| vec![("StackName", "s"), ("TemplateBody", template)];
    for (params, message) in [
        (parameter("Cluster", "bare"), "Parameters: [Cluster] do not exist in the template"),
        (parameter("WithProfile", "true"), "Parameters: [ClusterName] must have values"),
        (
            parameter("ClusterName", "not a name"),
            "Parameter 'ClusterName' must match pattern [a-zA-Z0-9][-_a-zA-Z0-9]*",
        ),
        (with("Resources: {}"), "Template format error: At least one Resources member must be defined."),
        (with("Resource: {}"), "Invalid template property or properties [Resource]"),
        (with("{\"Resources\": "), "Template format error: JSON not well-formed. (line 1, column 14)"),
        (
            with("Resources: {Q: {Properties: {}}}"),
            "Template format error: [/Resources/Q] Every Resources object must contain a Type member.",
        ),
        (
            with("Resources: {Q: {Type: 'AWS::SQS::Queue', Properties: {QueueName: !Ref Missing}}}"),
            "Template format error: Unresolved resource dependencies [Missing] in the Resources block of the template",
        ),
        (
            with("Resources: {A: {Type: 'AWS::SQS::Queue', DependsOn: B}, B: {Type: 'AWS::SQS::Queue', DependsOn: A}}"),
            "Circular dependency between resources: [A, B]",
        ),
    ] {
        let (code, told) = refused(&account, "CreateStack", &params).await;
        assert_eq!((code.as_str(), told.as_str()), ("ValidationError", message));
    }
    assert!(values(&ok(&account, "DescribeStacks", &[]).await, "StackName").is_empty());
    // Not a matter of the template, but of the resource.
    let misspelt = "Resources: {Q: {Type: 'AWS::SQS::Queue', Properties: {Name: q}}}";
    ok(&account, "CreateStack", &with(misspelt)).await;
    let events = ok(&account, "DescribeStackEvents", &[("StackName", "s")]).await;
    assert!(events.contains("Encountered unsupported property Name"), "{events}");
}

#[tokio::test(start_paused = true)]
async fn a_stacks_controller_role_is_one_that_pods_get() {
    let account = account();
    let cloud = account.ec2.cloud();
    let outputs = cloud.create_stack("s", TEMPLATE, &[("ClusterName", "bare")], &NAMED_IAM).unwrap();
    cloud.set_iam(Iam::Enforce);
    let issuer = cloud.cluster("bare").unwrap().oidc_issuer;
    let ask = |subject: &str, audience: &str| {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({"iss": issuer, "sub": subject, "aud": [audience], "exp": account.epoch.as_second() + 600,
            "kubernetes.io": {"pod": {"name": "karpenter-0", "uid": "u"}}});
        let token = format!("{}.{}.{}", part(json!({"alg": "none"})), part(claims), part(json!("")));
        let request = Request::post("/clusters/bare/assume-role-for-pod-identity")
            .body(json!({"token": token}).to_string().into());
        let ec2 = account.ec2.clone();
        async move {
            let response = ec2.handle(request.unwrap()).await;
            (response.status().as_u16(), serde_json::from_str::<Value>(&text(&response)).unwrap())
        }
    };
    let (status, answer) = ask("system:serviceaccount:kube-system:karpenter", "pods.eks.amazonaws.com").await;
    assert_eq!(status, 200, "{answer}");
    let credentials = &answer["credentials"];
    let key = credentials["accessKeyId"].as_str().unwrap();
    let signed = |target: &'static str, input: Value| {
        let request = Request::post("/")
            .header(
                "authorization",
                format!("AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/sqs/aws4_request, Signature=0"),
            )
            .header("x-amz-security-token", credentials["sessionToken"].as_str().unwrap())
            .header("x-amz-target", target)
            .body(input.to_string().into())
            .unwrap();
        let ec2 = account.ec2.clone();
        async move { ec2.handle(request).await.status().as_u16() }
    };
    let url = json!({"QueueUrl": outputs["QueueUrl"]});
    assert_eq!(signed("AmazonSQS.ReceiveMessage", url.clone()).await, 200);
    assert_eq!(signed("AmazonSQS.PurgeQueue", url).await, 403);
    let principal = cloud.journal().pop().unwrap().principal.clone();
    assert!(principal.ends_with("/eks-bare-karpenter-0"), "{principal}");
    let (status, answer) = ask("system:serviceaccount:default:other", "pods.eks.amazonaws.com").await;
    assert_eq!(status, 404, "{answer}");
    let (status, answer) = ask("system:serviceaccount:kube-system:karpenter", "sts.amazonaws.com").await;
    assert_eq!(
        (status, answer["message"].as_str()),
        (400, Some("The audience of the token is not pods.eks.amazonaws.com"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stack_has_fifo_queues_with_dead_letters_and_takes_them_away_again() {
    let account = account();
    let template = |redrive: &str| {
        format!(
            r#"
Resources:
  Dead:
    Type: AWS::SQS::Queue
    Properties: {{FifoQueue: true, RedriveAllowPolicy: {{redrivePermission: allowAll}}}}
  Work:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: work.fifo
      FifoQueue: true
      ContentBasedDeduplication: true
      DeduplicationScope: messageGroup
      FifoThroughputLimit: perMessageGroupId
{redrive}
"#
        )
    };
    let redrive = "      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 3}";
    ok(&account, "CreateStack", &[("StackName", "s"), ("TemplateBody", &template(redrive))]).await;
    assert_eq!(status(&account).await, "CREATE_COMPLETE");
    let url = account.sqs("GetQueueUrl", json!({"QueueName": "work.fifo"})).await["QueueUrl"].clone();
    let attributes = async || {
        let input = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        account.sqs("GetQueueAttributes", input).await["Attributes"].clone()
    };
    let told = attributes().await;
    for (name, value) in [
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "true"),
        ("DeduplicationScope", "messageGroup"),
        ("FifoThroughputLimit", "perMessageGroupId"),
    ] {
        assert_eq!(told[name], value, "{name}");
    }
    let policy: Value = serde_json::from_str(told["RedrivePolicy"].as_str().unwrap()).unwrap();
    let dead = policy["deadLetterTargetArn"].as_str().unwrap();
    assert!(dead.contains(":s-Dead-") && dead.ends_with(".fifo"), "{dead}");
    assert_eq!(policy["maxReceiveCount"].to_string().trim_matches('"'), "3");
    ok(&account, "UpdateStack", &[("StackName", "s"), ("TemplateBody", &template(""))]).await;
    assert_eq!(status(&account).await, "UPDATE_COMPLETE");
    assert_eq!(attributes().await["RedrivePolicy"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_access_entry_of_a_stack_has_its_policies() {
    let account = account();
    let template = |namespaces: &str| {
        format!(
            r#"
Resources:
  Admin:
    Type: AWS::EKS::AccessEntry
    Properties:
      ClusterName: bare
      PrincipalArn: arn:aws:iam::123456789012:role/admin
      AccessPolicies:
      - PolicyArn: arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy
        AccessScope: {{Type: namespace, Namespaces: [{namespaces}]}}
"#
        )
    };
    ok(&account, "CreateStack", &[("StackName", "s"), ("TemplateBody", &template("web"))]).await;
    assert_eq!(status(&account).await, "CREATE_COMPLETE");
    let associated = async || {
        let path = "/clusters/bare/access-entries/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fadmin/access-policies";
        let scope =
            "AWS4-HMAC-SHA256 Credential=a/20260101/us-west-2/eks/aws4_request, SignedHeaders=host, Signature=0";
        let request = Request::get(path).header("authorization", scope).body(Default::default()).unwrap();
        let response = account.ec2.handle(request).await;
        let answer: Value = serde_json::from_slice(response.body()).unwrap();
        answer["associatedAccessPolicies"].clone()
    };
    let policies = associated().await;
    assert_eq!(policies[0]["policyArn"], "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy", "{policies}");
    assert_eq!(policies[0]["accessScope"], json!({"type": "namespace", "namespaces": ["web"]}));
    ok(&account, "UpdateStack", &[("StackName", "s"), ("TemplateBody", &template("web, api"))]).await;
    assert_eq!(associated().await[0]["accessScope"]["namespaces"], json!(["web", "api"]));
    // One that does not exist fails the stack.
    let wrong = template("web").replace("ViewPolicy", "NoPolicy");
    ok(&account, "UpdateStack", &[("StackName", "s"), ("TemplateBody", &wrong)]).await;
    assert_eq!(status(&account).await, "UPDATE_ROLLBACK_COMPLETE");
    assert_eq!(associated().await[0]["accessScope"]["namespaces"], json!(["web", "api"]));
}
