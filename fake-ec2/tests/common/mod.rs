//! What the tests share: an account with the usual installation, raw requests, and a peep-hole into XML.

#![allow(dead_code, unreachable_pub)] // Each test file uses its part.

use bytes::Bytes;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, Config, FakeEc2};
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::Value;

pub struct Account {
    pub ec2: FakeEc2,
    pub clock: Clock,
    pub setup: Bootstrapped,
    pub epoch: Timestamp,
}

impl Account {
    pub fn new() -> Self {
        Self::with(Config { families: ["m5", "c5", "m6g", "c5d"].map(String::from).to_vec(), ..Config::default() })
    }

    pub fn with(config: Config) -> Self {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::virtual_from(epoch);
        let ec2 = FakeEc2::new(config, clock.clone());
        let setup = ec2.cloud().bootstrap(Bootstrap::named("demo"));
        Self { ec2, clock, setup, epoch }
    }

    /// Milliseconds since the epoch.
    pub fn elapsed_ms(&self) -> i64 {
        self.clock.now().as_millisecond() - self.epoch.as_millisecond()
    }

    pub async fn form(&self, version: &str, action: &str, params: &[(&str, &str)]) -> (u16, String) {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("Action", action).append_pair("Version", version);
        for (key, value) in params {
            body.append_pair(key, value);
        }
        let response = self.ec2.handle(Request::post("/").body(body.finish().into()).unwrap()).await;
        (response.status().as_u16(), text(&response))
    }

    pub async fn ec2(&self, action: &str, params: &[(&str, &str)]) -> (u16, String) {
        self.form("2016-11-15", action, params).await
    }

    /// The answer of a call that must succeed.
    pub async fn ok(&self, action: &str, params: &[(&str, &str)]) -> String {
        let (status, body) = self.ec2(action, params).await;
        assert_eq!(status, 200, "{action}: {body}");
        body
    }

    /// Status and code of a call that must be refused.
    pub async fn refused(&self, action: &str, params: &[(&str, &str)]) -> (u16, String) {
        let (status, body) = self.ec2(action, params).await;
        (status, values(&body, "Code").into_iter().next().unwrap_or(body))
    }

    /// Each of these calls must be refused with its code and status 400.
    pub async fn refuses(&self, cases: &[Refused<'_>]) {
        for (action, params, code) in cases {
            assert_eq!(self.refused(action, params).await, (400, (*code).to_owned()), "{action} {params:?}");
        }
    }

    pub async fn iam(&self, action: &str, params: &[(&str, &str)]) -> (u16, String) {
        self.form("2010-05-08", action, params).await
    }

    pub async fn json(&self, target: &str, input: Value) -> (u16, Value, Response<Bytes>) {
        let request = Request::post("/").header("x-amz-target", target).body(input.to_string().into()).unwrap();
        let response = self.ec2.handle(request).await;
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default(), response)
    }

    pub async fn sqs(&self, action: &str, input: Value) -> Value {
        let (status, value, _) = self.json(&format!("AmazonSQS.{action}"), input).await;
        assert_eq!(status, 200, "{action}: {value}");
        value
    }

    /// The details of the events in the interruption queue, after a long poll; they are deleted.
    pub async fn events(&self) -> Vec<Value> {
        let url = self.setup.queue_url.clone().unwrap();
        let input = serde_json::json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 2});
        let received = self.sqs("ReceiveMessage", input).await;
        let mut events = Vec::new();
        for message in received["Messages"].as_array().cloned().unwrap_or_default() {
            events.push(serde_json::from_str(message["Body"].as_str().unwrap()).unwrap());
            self.sqs("DeleteMessage", serde_json::json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}))
                .await;
        }
        events
    }

    pub fn image(&self, architecture: &str) -> String {
        let name = format!(
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/{architecture}/standard/recommended/image_id"
        );
        self.ec2.cloud().parameter(&name).unwrap()
    }

    /// A launch template as Karpenter makes it: image, group, profile and user data, no type and no subnet.
    pub async fn template(&self, name: &str) {
        self.iam("CreateInstanceProfile", &[("InstanceProfileName", name)]).await;
        let role = self.setup.node_role_name.as_str();
        self.iam("AddRoleToInstanceProfile", &[("InstanceProfileName", name), ("RoleName", role)]).await;
        let image = self.image("x86_64");
        self.ok(
            "CreateLaunchTemplate",
            &[
                ("LaunchTemplateName", name),
                ("LaunchTemplateData.ImageId", &image),
                ("LaunchTemplateData.UserData", "aGVsbG8="),
                ("LaunchTemplateData.IamInstanceProfile.Name", name),
                ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
                ("LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1", &self.setup.security_group_id),
                ("LaunchTemplateData.TagSpecification.1.ResourceType", "spot-instances-request"),
                ("LaunchTemplateData.TagSpecification.1.Tag.1.Key", "team"),
                ("LaunchTemplateData.TagSpecification.1.Tag.1.Value", "blue"),
                ("TagSpecification.1.ResourceType", "launch-template"),
                ("TagSpecification.1.Tag.1.Key", "eks:eks-cluster-name"),
                ("TagSpecification.1.Tag.1.Value", "demo"),
            ],
        )
        .await;
    }

    /// An instant fleet over these (type, index of the subnet) overrides.
    pub async fn fleet(
        &self,
        market: &str,
        target: u32,
        overrides: &[(&str, usize)],
        more: &[(&str, &str)],
    ) -> (u16, String) {
        let target = target.to_string();
        let mut params: Vec<(String, String)> = [
            ("Type", "instant"),
            ("TargetCapacitySpecification.TotalTargetCapacity", target.as_str()),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", market),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "nodes"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "karpenter.sh/nodepool"),
            ("TagSpecification.1.Tag.1.Value", "default"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
        if market == "spot" {
            params.push(("SpotOptions.AllocationStrategy".into(), "price-capacity-optimized".into()));
        }
        for (index, (instance_type, subnet)) in overrides.iter().enumerate() {
            let prefix = format!("LaunchTemplateConfigs.1.Overrides.{}.", index + 1);
            params.push((format!("{prefix}InstanceType"), (*instance_type).into()));
            params.push((format!("{prefix}SubnetId"), self.setup.subnet_ids[*subnet].clone()));
            params.push((format!("{prefix}AvailabilityZone"), format!("us-west-2{}", ["a", "b", "c"][*subnet])));
        }
        params.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        self.ec2("CreateFleet", &params).await
    }

    /// Launches one instance of this type in the first zone; its id is answered.
    pub async fn launch(&self, market: &str, instance_type: &str) -> String {
        self.template("nodes").await;
        let (status, body) = self.fleet(market, 1, &[(instance_type, 0)], &[]).await;
        assert_eq!(status, 200, "{body}");
        items(&body, "instanceIds").pop().unwrap_or_else(|| panic!("nothing launched: {body}"))
    }
}

/// A call that must be refused: action, parameters, code.
pub type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// The parameters of one filter with one value.
pub fn filter<'a>(name: &'a str, value: &'a str) -> [(&'a str, &'a str); 2] {
    [("Filter.1.Name", name), ("Filter.1.Value.1", value)]
}

/// The content of the first `<name>…</name>`.
pub fn first(xml: &str, name: &str) -> String {
    values(xml, name).into_iter().next().unwrap_or_else(|| panic!("no {name} in {xml}"))
}

pub fn text(response: &Response<Bytes>) -> String {
    String::from_utf8(response.body().to_vec()).unwrap()
}

/// The contents of every `<name>…</name>`, in order.
pub fn values(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = xml.split(&open).skip(1);
    parts.filter_map(|part| part.split_once(&close).map(|(content, _)| content.to_owned())).collect()
}

/// The plain items of every list `name`.
pub fn items(xml: &str, name: &str) -> Vec<String> {
    values(xml, name).iter().flat_map(|list| values(list, "item")).collect()
}
