//! fake-ec2 as the cloud of a scenario, and as what the kubelets see of their machines. It is asked over its control API and
//! AWS's own protocols, whether it lives in this process or in another.

use super::{Cloud, CloudCall, Ec2, Instance, SpotOffer};
use crate::kubelet::{Machine, Machines};
use crate::permissions::iam;
use anyhow::{Context, bail};
use base64::Engine as _;
use controller_clock::Clock;
use fake_ec2::{Bootstrapped, JournalEntry};
use http::Method;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Whom the tokens are for that controllers get sessions with.
pub(crate) const STS: &str = "sts.amazonaws.com";

/// fake-ec2 as the cloud of a scenario.
pub struct FakeCloud<E> {
    ec2: E,
    clock: Clock,
    cluster: String,
    region: String,
    stage: Bootstrapped,
    /// Who signs the tokens of the cluster's ServiceAccounts, as IAM writes it.
    issuer: String,
    seen_revision: Cell<u64>,
}

impl<E: Ec2> FakeCloud<E> {
    /// The account after its stage was set.
    pub fn new(ec2: E, clock: Clock, cluster: &str, region: &str, stage: Bootstrapped) -> Self {
        let issuer = stage.oidc_issuer.trim_start_matches("https://").to_owned();
        Self { ec2, clock, cluster: cluster.into(), region: region.into(), stage, issuer, seen_revision: Cell::new(0) }
    }

    /// Who signs the tokens of the cluster's ServiceAccounts, as IAM writes it.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The ARN of the role that nodes are given.
    pub(crate) fn node_role_arn(&self) -> String {
        self.stage.node_role_arn.clone()
    }

    /// Deploys the stack as an administrator does, for a controller with tokens of the cluster's, and admits the nodes' role.
    pub(crate) async fn deploy_stack(&self) -> anyhow::Result<()> {
        self.associate_oidc_provider(true).await?;
        let stack = [
            ("Action", "CreateStack".to_owned()),
            ("Version", "2010-05-15".into()),
            ("StackName", iam::stack()),
            ("TemplateBody", iam::TEMPLATE.into()),
            ("Capabilities.member.1", iam::CAPABILITY.into()),
            ("Parameters.member.1.ParameterKey", "ClusterName".into()),
            ("Parameters.member.1.ParameterValue", self.cluster.clone()),
            ("Parameters.member.2.ParameterKey", "OidcIssuer".into()),
            ("Parameters.member.2.ParameterValue", self.issuer.clone()),
        ];
        self.ask(&stack).await.context("deploying the CloudFormation template")?;
        self.admit(&self.stage.node_role_arn).await
    }

    /// Every resource of a kind.
    async fn resources(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        match self.ec2.read(&format!("/resources/{kind}")).await?[kind].take() {
            Value::Array(resources) => Ok(resources),
            other => bail!("the answer of fake-ec2 has no {kind}, but {other}"),
        }
    }

    /// The cluster's subnet in a zone.
    async fn subnet_in(&self, zone: &str) -> anyhow::Result<String> {
        let subnets = self.resources("subnets").await?;
        let subnet = subnets.iter().find(|subnet| subnet["zone"] == zone);
        text(subnet.with_context(|| format!("there is no subnet in {zone}"))?, "id").map(str::to_owned)
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.ec2.command(Method::POST, path, &body).await
    }

    async fn of_instance(&self, instance: &str, command: &str, body: Value) -> anyhow::Result<()> {
        self.post(&format!("/instances/{instance}/{command}"), body).await.map(drop)
    }

    async fn eks_cluster(&self) -> anyhow::Result<Value> {
        let clusters = self.resources("clusters").await?;
        clusters.into_iter().find(|cluster| cluster["name"] == *self.cluster).context("there is no EKS cluster")
    }

    async fn admit(&self, role_arn: &str) -> anyhow::Result<()> {
        let entry = json!({"principalArn": role_arn, "type": "EC2_LINUX"});
        self.post(&format!("/clusters/{}/access-entries", self.cluster), entry).await.map(drop)
    }

    async fn set_tag(&self, resource: &str, key: &str, value: &str) -> anyhow::Result<()> {
        self.post("/tags", json!({"resource": resource, "tags": {key: value}})).await.map(drop)
    }

    /// The role of a node group's instances, which EKS admits to the cluster. The group's instance profile has its name.
    async fn node_group_role(&self, group: &str) -> anyhow::Result<String> {
        let role = format!("{}-{group}-NodeInstanceRole", self.cluster);
        if self.instance_profiles().await?.contains_key(&role) {
            return Ok(role);
        }
        let made = self.post("/roles", json!({"name": role})).await?;
        self.admit(text(&made, "arn")?).await?;
        let form = |action: &str| {
            vec![("Action", action.into()), ("Version", "2010-05-08".into()), ("InstanceProfileName", role.clone())]
        };
        self.ask(&form("CreateInstanceProfile")).await?;
        self.ask(&[form("AddRoleToInstanceProfile"), vec![("RoleName", role.clone())]].concat()).await?;
        Ok(role)
    }

    /// What the AL2023 image of a node group is given to join the cluster.
    async fn node_group_user_data(&self, group: &str) -> anyhow::Result<String> {
        let cluster = self.eks_cluster().await?;
        let config = json!({
            "apiVersion": "node.eks.aws/v1alpha1",
            "kind": "NodeConfig",
            "spec": {
                "cluster": {
                    "name": cluster["name"],
                    "apiServerEndpoint": cluster["endpoint"],
                    "certificateAuthority": cluster["certificateAuthority"],
                    "cidr": cluster["serviceCidr"],
                },
                "kubelet": {
                    "config": {"maxPods": 29},
                    "flags": [format!("--node-labels=eks.amazonaws.com/nodegroup={group},eks.amazonaws.com/capacityType=ON_DEMAND")],
                },
            },
        });
        let lines = [
            "MIME-Version: 1.0",
            "Content-Type: multipart/mixed; boundary=\"//\"",
            "",
            "--//",
            "Content-Type: application/node.eks.aws",
            "",
            &config.to_string(),
            "--//--",
            "",
        ];
        Ok(base64::engine::general_purpose::STANDARD.encode(lines.join("\n")))
    }

    /// Launches one on-demand m5.large with these parameters more.
    async fn run_instance(&self, subnet: &str, more: &[(&str, String)]) -> anyhow::Result<String> {
        let images = self.resources("images").await?;
        let image = images.iter().find(|image| image["architecture"] == "x86_64").context("there is no image")?;
        let mut form = vec![
            ("Action", "RunInstances".into()),
            ("Version", "2016-11-15".into()),
            ("MinCount", "1".into()),
            ("MaxCount", "1".into()),
            ("InstanceType", "m5.large".into()),
            ("ImageId", text(image, "id")?.to_owned()),
            ("SubnetId", subnet.to_owned()),
        ];
        form.extend_from_slice(more);
        let answer = self.ask(&form).await?;
        let id = answer.split("<instanceId>").nth(1).and_then(|rest| rest.split('<').next());
        Ok(id.context("the answer names no instance")?.to_owned())
    }

    fn subnet(&self, number: usize) -> anyhow::Result<&str> {
        let subnets = &self.stage.subnet_ids;
        subnets.get(number % subnets.len().max(1)).map(String::as_str).context("there is no subnet")
    }

    /// Puts a form request as an administrator's SDK would, and answers the body.
    async fn ask(&self, form: &[(&str, String)]) -> anyhow::Result<String> {
        let encoded: Vec<String> =
            form.iter().map(|(key, value)| format!("{key}={}", percent_encoded(value))).collect();
        let request = http::Request::post("/")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("user-agent", "administrator")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=administrator/20260101/us-west-2/any/aws4_request, SignedHeaders=host, Signature=0",
            )
            .body(encoded.join("&").into())?;
        let response = self.ec2.aws(request).await?;
        let body = String::from_utf8_lossy(response.body()).into_owned();
        if response.status() != 200 {
            bail!("{}: {body}", response.status());
        }
        Ok(body)
    }
}

/// A member that every answer has.
fn text<'a>(object: &'a Value, member: &str) -> anyhow::Result<&'a str> {
    object[member].as_str().with_context(|| format!("the answer of fake-ec2 has no text {member:?}: {object}"))
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A journal entry of fake-ec2 as scenarios read it.
fn call(entry: &JournalEntry) -> CloudCall {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    CloudCall {
        at: entry.at,
        name: format!("{}:{}", entry.service.name(), entry.action),
        parameters: entry
            .params
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect(),
        status: entry.status,
        answer: entry.response_text(),
    }
}

#[async_trait::async_trait(?Send)]
impl<E: Ec2> Cloud for FakeCloud<E> {
    async fn launch_templates(&self) -> anyhow::Result<BTreeSet<String>> {
        let templates = self.resources("launchTemplates").await?;
        templates.iter().map(|template| Ok(text(template, "name")?.to_owned())).collect()
    }

    async fn instance_profiles(&self) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let profiles = self.resources("instanceProfiles").await?;
        let profile =
            |profile: &Value| Ok((text(profile, "name")?.to_owned(), profile["role"].as_str().map(str::to_owned)));
        profiles.iter().map(profile).collect()
    }

    async fn instances(&self) -> anyhow::Result<Vec<Instance>> {
        self.ec2.instances().await
    }

    async fn calls(&self) -> anyhow::Result<Vec<CloudCall>> {
        Ok(self.ec2.journal().await?.iter().map(|entry| call(entry)).collect())
    }

    async fn spot_offers(&self) -> anyhow::Result<Vec<SpotOffer>> {
        let offerings: Vec<Offering> =
            serde_json::from_value(self.resources("offerings").await?.into()).context("offerings")?;
        Ok(offerings.into_iter().flat_map(Offering::on_the_spot_market).collect())
    }

    async fn interrupt(&self, instance: &str) -> anyhow::Result<()> {
        self.of_instance(instance, "interrupt", json!({})).await
    }

    async fn recommend_rebalance(&self, instance: &str) -> anyhow::Result<()> {
        self.of_instance(instance, "rebalance", json!({})).await
    }

    async fn terminate(&self, instance: &str) -> anyhow::Result<()> {
        let form = [
            ("Action", "TerminateInstances".into()),
            ("Version", "2016-11-15".into()),
            ("InstanceId.1", instance.into()),
        ];
        self.ask(&form).await.map(drop)
    }

    async fn launch(&self, tags: &BTreeMap<String, String>) -> anyhow::Result<String> {
        let mut form = vec![("TagSpecification.1.ResourceType".to_owned(), "instance".to_owned())];
        for (index, (key, value)) in tags.iter().enumerate() {
            form.push((format!("TagSpecification.1.Tag.{}.Key", index + 1), key.clone()));
            form.push((format!("TagSpecification.1.Tag.{}.Value", index + 1), value.clone()));
        }
        let form: Vec<(&str, String)> = form.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        self.run_instance(self.subnet(0)?, &form).await
    }

    async fn launch_in_node_group(&self, group: &str) -> anyhow::Result<String> {
        let profile = self.node_group_role(group).await?;
        let user_data = self.node_group_user_data(group).await?;
        // Auto Scaling spreads a group over its zones.
        let of_group = |instance: &&Instance| instance.tags.get("eks:nodegroup-name").is_some_and(|name| name == group);
        let subnet = self.subnet(self.ec2.instances().await?.iter().filter(of_group).count())?;
        let more = [("IamInstanceProfile.Name", profile), ("UserData", user_data)];
        let instance = self.run_instance(subnet, &more).await?;
        let cluster = self.cluster.as_str();
        let owned = format!("kubernetes.io/cluster/{cluster}");
        let scaling_group = format!("eks-{group}");
        // Auto Scaling sets its tag itself: nobody else may use its prefix.
        let tags = json!({
            "aws:autoscaling:groupName": scaling_group,
            "eks:cluster-name": cluster,
            "eks:nodegroup-name": group,
            owned: "owned",
        });
        self.post("/tags", json!({"resource": instance, "tags": tags})).await?;
        Ok(instance)
    }

    async fn tag_subnet_in(&self, zone: &str, key: &str, value: &str) -> anyhow::Result<()> {
        self.set_tag(&self.subnet_in(zone).await?, key, value).await
    }

    async fn tag_subnets(&self, key: &str, value: &str) -> anyhow::Result<()> {
        for subnet in &self.stage.subnet_ids {
            self.set_tag(subnet, key, value).await?;
        }
        Ok(())
    }

    async fn tag_security_group(&self, key: &str, value: &str) -> anyhow::Result<()> {
        self.set_tag(&self.stage.security_group_id, key, value).await
    }

    async fn send_to_queue(&self, body: &str) -> anyhow::Result<()> {
        self.post(&format!("/queues/{}/messages", self.cluster), json!({"body": body})).await.map(drop)
    }

    async fn have_queue(&self, exists: bool) -> anyhow::Result<()> {
        if exists {
            return self.post("/queues", json!({"name": self.cluster})).await.map(drop);
        }
        self.ec2.command(Method::DELETE, &format!("/queues/{}", self.cluster), &Value::Null).await.map(drop)
    }

    async fn queue_length(&self) -> anyhow::Result<usize> {
        let queues = self.resources("queues").await?;
        let queue = queues.iter().find(|queue| queue["name"] == *self.cluster).context("there is no queue")?;
        let count = |member: &str| queue[member].as_u64().unwrap_or_default() as usize;
        Ok(count("visible") + count("inFlight") + count("delayed"))
    }

    async fn admit_node_role(&self, admit: bool) -> anyhow::Result<()> {
        let arn = &self.stage.node_role_arn;
        if admit {
            return self.admit(arn).await;
        }
        let path = format!("/clusters/{}/access-entries?principalArn={}", self.cluster, percent_encoded(arn));
        self.ec2.command(Method::DELETE, &path, &Value::Null).await.map(drop)
    }

    async fn associate_oidc_provider(&self, associated: bool) -> anyhow::Result<()> {
        let iam = |action: &str| vec![("Action", action.to_owned()), ("Version", "2010-05-08".into())];
        let account = self.stage.node_role_arn.split(':').nth(4).unwrap_or_default();
        let arn = format!("arn:aws:iam::{account}:oidc-provider/{}", self.issuer);
        // What the cluster's stage may have brought already.
        let known = self.ask(&iam("ListOpenIDConnectProviders")).await?.contains(&arn);
        if associated && !known {
            let provider = [("Url", format!("https://{}", self.issuer)), ("ClientIDList.member.1", STS.into())];
            self.ask(&[iam("CreateOpenIDConnectProvider"), provider.into()].concat()).await?;
        } else if !associated && known {
            let provider = [("OpenIDConnectProviderArn", arn)];
            self.ask(&[iam("DeleteOpenIDConnectProvider"), provider.into()].concat()).await?;
        }
        Ok(())
    }

    async fn exhaust(&self, instance_type: &str, zone: &str, market: &str, exhausted: bool) -> anyhow::Result<()> {
        let path = if exhausted { "/capacity/exhaust" } else { "/capacity/restore" };
        self.post(path, json!({"instanceType": instance_type, "zone": zone, "capacityType": market})).await.map(drop)
    }

    async fn withdraw_spot(&self, instance_type: &str, zone: &str) -> anyhow::Result<()> {
        let offering = json!({"instanceType": instance_type, "zone": zone, "capacityType": "spot", "withdrawn": true});
        self.post("/prices", offering).await.map(drop)
    }

    async fn set_free_addresses(&self, zone: &str, count: u32) -> anyhow::Result<()> {
        let subnet = self.subnet_in(zone).await?;
        self.post(&format!("/subnets/{subnet}"), json!({"availableAddresses": count})).await.map(drop)
    }

    async fn fail(&self, action: &str, code: &str, status: u16, calls: Option<usize>) -> anyhow::Result<()> {
        let calls = calls.map_or(json!("all"), |first| json!({"first": first}));
        let outcome = json!({"error": {"code": code, "status": status}});
        self.post("/faults", json!({"action": action, "calls": calls, "outcome": outcome})).await.map(drop)
    }

    async fn heal(&self) -> anyhow::Result<()> {
        self.ec2.command(Method::DELETE, "/faults", &Value::Null).await.map(drop)
    }

    async fn impair(&self, instance: &str) -> anyhow::Result<()> {
        self.of_instance(instance, "impair", json!({"check": "system", "failing": true})).await
    }

    async fn schedule_maintenance(&self, instance: &str, code: &str) -> anyhow::Result<()> {
        let in_a_week = self.clock.now() + SignedDuration::from_hours(7 * 24);
        self.of_instance(instance, "maintenance", json!({"code": code, "notBefore": in_a_week})).await
    }

    async fn release_images(&self, date: &str) -> anyhow::Result<()> {
        let version = self.eks_cluster().await?["version"].take();
        let release = json!({"kubernetesVersion": version, "date": date, "bottlerocketVersion": "9.9.9"});
        self.post("/images", release).await.map(drop)
    }

    async fn deny(&self, action: &str) -> anyhow::Result<()> {
        self.post("/faults", json!({"action": action, "outcome": "unauthorized"})).await.map(drop)
    }

    fn event(&self, detail_type: &str, source: &str, detail: Value) -> Value {
        json!({
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": detail_type,
            "source": source,
            "account": "123456789012",
            "time": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "region": self.region,
            "resources": [],
            "detail": detail,
        })
    }
}

#[async_trait::async_trait(?Send)]
impl<E: Ec2> Machines for FakeCloud<E> {
    async fn machines(&self) -> anyhow::Result<Vec<Machine>> {
        let machine = |instance: Instance| Machine {
            running: instance.state == "running",
            architecture: if instance.architecture == "arm64" { "arm64" } else { "amd64" }.to_owned(),
            region: self.region.clone(),
            instance_type: instance.instance_type,
            vcpus: instance.vcpus,
            memory_mib: instance.memory_mib,
            user_data: instance.user_data,
            role: instance.role.unwrap_or_default(),
            zone: instance.zone,
            zone_id: instance.zone_id,
            private_dns_name: instance.private_dns_name,
            private_ip: instance.private_ip,
            launched_at: instance.launched_at,
            id: instance.id,
        };
        Ok(self.ec2.instances().await?.into_iter().filter(Instance::is_live).map(machine).collect())
    }

    async fn changed(&self) -> anyhow::Result<()> {
        self.seen_revision.set(self.ec2.instances_changed(self.seen_revision.get()).await?);
        Ok(())
    }

    async fn admits(&self, role: &str) -> anyhow::Result<bool> {
        let cluster = self.eks_cluster().await?;
        let is_of_role = |entry: &Value| {
            entry["type"] == "EC2_LINUX"
                && entry["principalArn"].as_str().is_some_and(|arn| arn.rsplit('/').next() == Some(role))
        };
        Ok(cluster["accessEntries"].as_array().into_iter().flatten().any(is_of_role))
    }
}

/// What is sold, as the control API tells it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offering {
    instance_type: String,
    vcpus: u32,
    interruption_band: u8,
    spot_usd: BTreeMap<String, f64>,
}

impl Offering {
    fn on_the_spot_market(self) -> Vec<SpotOffer> {
        let Self { instance_type, vcpus, interruption_band, spot_usd } = self;
        let offer =
            |(zone, price)| SpotOffer { instance_type: instance_type.clone(), zone, price, interruption_band, vcpus };
        spot_usd.into_iter().map(offer).collect()
    }
}

#[cfg(test)]
mod tests;
