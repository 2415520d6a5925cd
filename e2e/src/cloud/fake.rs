//! fake-ec2 as the cloud of a scenario, and as what the kubelets see of their machines.

use super::{Cloud, CloudCall, Instance, SpotOffer};
use crate::kubelet::{Machine, Machines};
use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use controller_clock::Clock;
use fake_ec2::{Bootstrapped, CapacityType, FakeEc2, FaultRule, Impairment, JournalEntry, State};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// fake-ec2 in process.
pub struct FakeCloud {
    ec2: FakeEc2,
    clock: Clock,
    cluster: String,
    region: String,
    stage: Bootstrapped,
    seen_revision: Cell<u64>,
}

impl FakeCloud {
    /// The account after its stage was set.
    pub fn new(ec2: FakeEc2, clock: Clock, cluster: &str, region: &str, stage: Bootstrapped) -> Self {
        Self { ec2, clock, cluster: cluster.into(), region: region.into(), stage, seen_revision: Cell::new(0) }
    }

    /// Takes away the tags by which a controller finds subnets and security groups.
    pub(crate) fn remove_discovery_tags(&self) {
        for resource in self.stage.subnet_ids.iter().chain([&self.stage.security_group_id]) {
            // It was just made; one that is gone has no tag either.
            let _ = self.ec2.cloud().remove_tag(resource, "karpenter.sh/discovery");
        }
    }

    /// The role of a node group's instances, which EKS admits to the cluster. The group's instance profile has its name.
    async fn node_group_role(&self, group: &str) -> anyhow::Result<String> {
        let role = format!("{}-{group}-NodeInstanceRole", self.cluster);
        if self.ec2.cloud().instance_profiles().iter().any(|profile| profile.name == role) {
            return Ok(role);
        }
        let arn = self.ec2.cloud().add_role(&role);
        self.ec2.cloud().set_access_entry(&self.cluster, &arn, Some("EC2_LINUX"))?;
        let form = |action: &str| {
            vec![("Action", action.into()), ("Version", "2010-05-08".into()), ("InstanceProfileName", role.clone())]
        };
        self.ask(&form("CreateInstanceProfile")).await?;
        self.ask(&[form("AddRoleToInstanceProfile"), vec![("RoleName", role.clone())]].concat()).await?;
        Ok(role)
    }

    /// What the AL2023 image of a node group is given to join the cluster.
    fn node_group_user_data(&self, group: &str) -> anyhow::Result<String> {
        let cluster = self.ec2.cloud().cluster(&self.cluster).context("there is no EKS cluster")?;
        let config = json!({
            "apiVersion": "node.eks.aws/v1alpha1",
            "kind": "NodeConfig",
            "spec": {
                "cluster": {
                    "name": cluster.name,
                    "apiServerEndpoint": cluster.endpoint,
                    "certificateAuthority": cluster.certificate_authority,
                    "cidr": cluster.service_cidr,
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
        let images = self.ec2.cloud().images();
        let image = images.into_iter().find(|image| image.architecture == "x86_64").context("there is no image")?;
        let mut form = vec![
            ("Action", "RunInstances".into()),
            ("Version", "2016-11-15".into()),
            ("MinCount", "1".into()),
            ("MaxCount", "1".into()),
            ("InstanceType", "m5.large".into()),
            ("ImageId", image.id),
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
            .body(encoded.join("&").into())?;
        let response = self.ec2.handle(request).await;
        let body = String::from_utf8_lossy(response.body()).into_owned();
        if response.status() != 200 {
            bail!("{}: {body}", response.status());
        }
        Ok(body)
    }
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
impl Cloud for FakeCloud {
    async fn launch_templates(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.ec2.cloud().launch_templates().into_iter().map(|template| template.name).collect())
    }

    async fn instance_profiles(&self) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let profiles = self.ec2.cloud().instance_profiles().into_iter();
        Ok(profiles.map(|profile| (profile.name, profile.role)).collect())
    }

    async fn instances(&self) -> anyhow::Result<Vec<Instance>> {
        let names: BTreeMap<String, String> =
            self.ec2.cloud().images().into_iter().map(|image| (image.id, image.name)).collect();
        let instance = |instance: fake_ec2::Instance| Instance {
            id: instance.id,
            image_name: names.get(&instance.image_id).cloned().unwrap_or_default(),
            image_id: instance.image_id,
            security_groups: instance.security_groups.into_iter().map(|(_, name)| name).collect(),
            instance_type: instance.instance_type.to_owned(),
            zone: instance.zone,
            subnet: instance.subnet_id,
            state: instance.state.name().to_owned(),
            spot: instance.capacity_type == CapacityType::Spot,
            launched_at: instance.launched_at,
            tags: instance.tags,
        };
        Ok(self.ec2.cloud().instances().into_iter().map(instance).collect())
    }

    async fn calls(&self) -> anyhow::Result<Vec<CloudCall>> {
        Ok(self.ec2.cloud().journal().iter().map(|entry| call(entry)).collect())
    }

    async fn spot_offers(&self) -> anyhow::Result<Vec<SpotOffer>> {
        let offers = self.ec2.cloud().offerings();
        let in_zones = |offering: &fake_ec2::Offering| {
            let offer = |(zone, price): (&&str, &f64)| SpotOffer {
                instance_type: offering.instance_type.name.to_owned(),
                zone: (*zone).to_owned(),
                price: *price,
                interruption_band: offering.interruption_band,
                vcpus: offering.instance_type.vcpus,
            };
            offering.spot.iter().map(offer).collect::<Vec<_>>()
        };
        Ok(offers.iter().flat_map(in_zones).collect())
    }

    async fn interrupt(&self, instance: &str) -> anyhow::Result<()> {
        self.ec2.cloud().interrupt(instance).map(drop).map_err(|error| anyhow!("{error:?}"))
    }

    async fn recommend_rebalance(&self, instance: &str) -> anyhow::Result<()> {
        self.ec2.cloud().rebalance(instance).map_err(|error| anyhow!("{error:?}"))
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
        let user_data = self.node_group_user_data(group)?;
        // Auto Scaling spreads a group over its zones.
        let mut instances = self.ec2.cloud().instances();
        instances.retain(|instance| instance.tags.get("eks:nodegroup-name").is_some_and(|name| name == group));
        let subnet = self.subnet(instances.len())?;
        let more = [("IamInstanceProfile.Name", profile), ("UserData", user_data)];
        let instance = self.run_instance(subnet, &more).await?;
        let cluster = self.cluster.as_str();
        let owned = format!("kubernetes.io/cluster/{cluster}");
        let scaling_group = format!("eks-{group}");
        // Auto Scaling sets its tag itself: nobody else may use its prefix.
        let tags = [
            ("aws:autoscaling:groupName", scaling_group.as_str()),
            ("eks:cluster-name", cluster),
            ("eks:nodegroup-name", group),
            (owned.as_str(), "owned"),
        ];
        self.ec2.cloud().set_tags(&instance, tags)?;
        Ok(instance)
    }

    async fn tag_subnet_in(&self, zone: &str, key: &str, value: &str) -> anyhow::Result<()> {
        let subnets = self.ec2.cloud().subnets();
        let subnet = subnets.iter().find(|subnet| subnet.zone == zone);
        let subnet = subnet.with_context(|| format!("there is no subnet in {zone}"))?;
        Ok(self.ec2.cloud().set_tags(&subnet.id, [(key, value)])?)
    }

    async fn tag_subnets(&self, key: &str, value: &str) -> anyhow::Result<()> {
        self.stage.subnet_ids.iter().try_for_each(|subnet| Ok(self.ec2.cloud().set_tags(subnet, [(key, value)])?))
    }

    async fn tag_security_group(&self, key: &str, value: &str) -> anyhow::Result<()> {
        Ok(self.ec2.cloud().set_tags(&self.stage.security_group_id, [(key, value)])?)
    }

    async fn send_to_queue(&self, body: &str) -> anyhow::Result<()> {
        self.ec2.cloud().send_raw_message(&self.cluster, body).map_err(|error| anyhow!("{error:?}"))
    }

    async fn have_queue(&self, exists: bool) -> anyhow::Result<()> {
        if exists {
            self.ec2.cloud().add_queue(&self.cluster);
            return Ok(());
        }
        Ok(self.ec2.cloud().remove_queue(&self.cluster)?)
    }

    async fn queue_length(&self) -> anyhow::Result<usize> {
        let (visible, in_flight, delayed) =
            self.ec2.cloud().queue_counts(&self.cluster).context("there is no queue")?;
        Ok(visible + in_flight + delayed)
    }

    async fn admit_node_role(&self, admit: bool) -> anyhow::Result<()> {
        Ok(self.ec2.cloud().set_access_entry(&self.cluster, &self.stage.node_role_arn, admit.then_some("EC2_LINUX"))?)
    }

    async fn exhaust_spot(&self, exhausted: bool) -> anyhow::Result<()> {
        let cloud = self.ec2.cloud();
        if exhausted {
            cloud.exhaust("*", "*", CapacityType::Spot)
        } else {
            cloud.restore("*", "*", CapacityType::Spot)
        }
        Ok(())
    }

    async fn impair(&self, instance: &str) -> anyhow::Result<()> {
        Ok(self.ec2.cloud().impair(instance, Impairment::System, true)?)
    }

    async fn schedule_maintenance(&self, instance: &str, code: &str) -> anyhow::Result<()> {
        let in_a_week = self.clock.now() + SignedDuration::from_hours(7 * 24);
        let scheduled = self.ec2.cloud().schedule_maintenance(instance, code, in_a_week);
        scheduled.map_err(|error| anyhow!("{error:?}"))
    }

    async fn release_images(&self, date: &str) -> anyhow::Result<()> {
        let cluster = self.ec2.cloud().cluster(&self.cluster).context("there is no EKS cluster")?;
        self.ec2.cloud().release_images(&cluster.version, date, "9.9.9");
        Ok(())
    }

    async fn deny(&self, action: &str) -> anyhow::Result<()> {
        self.ec2.cloud().fault(FaultRule::unauthorized(action));
        Ok(())
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
impl Machines for FakeCloud {
    async fn machines(&self) -> anyhow::Result<Vec<Machine>> {
        let types: BTreeMap<&str, _> =
            self.ec2.cloud().instance_types().into_iter().map(|kind| (kind.name, kind)).collect();
        let profiles = self.ec2.cloud().instance_profiles();
        let machine = |instance: fake_ec2::Instance| {
            let kind = types.get(instance.instance_type)?;
            let profile = instance
                .profile
                .as_ref()
                .and_then(|reference| profiles.iter().find(|profile| profile.arn == reference.arn));
            Some(Machine {
                running: instance.state == State::Running,
                instance_type: instance.instance_type.to_owned(),
                architecture: if instance.architecture == "arm64" { "arm64" } else { "amd64" }.to_owned(),
                vcpus: kind.vcpus,
                memory_mib: kind.memory_mib,
                region: self.region.clone(),
                user_data: instance.user_data_text().unwrap_or_default(),
                role: profile.and_then(|profile| profile.role.clone()).unwrap_or_default(),
                zone: instance.zone,
                zone_id: instance.zone_id,
                private_dns_name: instance.private_dns_name,
                private_ip: instance.private_ip.to_string(),
                launched_at: instance.launched_at,
                id: instance.id,
            })
        };
        Ok(self
            .ec2
            .cloud()
            .instances()
            .into_iter()
            .filter(|instance| !instance.state.is_ending())
            .filter_map(machine)
            .collect())
    }

    async fn changed(&self) {
        self.seen_revision.set(self.ec2.cloud().instances_changed(self.seen_revision.get()).await);
    }

    async fn admits(&self, role: &str) -> anyhow::Result<bool> {
        let cluster = self.ec2.cloud().cluster(&self.cluster).context("there is no EKS cluster")?;
        let of_role = |arn: &str| arn.rsplit('/').next() == Some(role);
        Ok(cluster.access_entries.values().any(|entry| of_role(&entry.principal_arn) && entry.kind == "EC2_LINUX"))
    }
}
