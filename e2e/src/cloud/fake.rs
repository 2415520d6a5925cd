//! fake-ec2 as the cloud of a scenario, and as what the kubelets see of their machines.

use super::{Cloud, CloudCall, Instance, SpotOffer};
use crate::kubelet::{Machine, Machines};
use anyhow::{Context, anyhow, bail};
use controller_clock::Clock;
use fake_ec2::{Bootstrapped, CapacityType, FakeEc2, JournalEntry, State};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;

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
    async fn instances(&self) -> anyhow::Result<Vec<Instance>> {
        let instance = |instance: fake_ec2::Instance| Instance {
            id: instance.id,
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
        let image = self
            .ec2
            .cloud()
            .images()
            .into_iter()
            .find(|image| image.architecture == "x86_64")
            .context("there is no image")?;
        let mut form = vec![
            ("Action".to_owned(), "RunInstances".to_owned()),
            ("Version".into(), "2016-11-15".into()),
            ("MinCount".into(), "1".into()),
            ("MaxCount".into(), "1".into()),
            ("InstanceType".into(), "m5.large".into()),
            ("ImageId".into(), image.id),
            ("SubnetId".into(), self.stage.subnet_ids.first().context("there is no subnet")?.clone()),
            ("TagSpecification.1.ResourceType".into(), "instance".into()),
        ];
        for (index, (key, value)) in tags.iter().enumerate() {
            form.push((format!("TagSpecification.1.Tag.{}.Key", index + 1), key.clone()));
            form.push((format!("TagSpecification.1.Tag.{}.Value", index + 1), value.clone()));
        }
        let form: Vec<(&str, String)> = form.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let answer = self.ask(&form).await?;
        let id = answer.split("<instanceId>").nth(1).and_then(|rest| rest.split('<').next());
        Ok(id.context("the answer names no instance")?.to_owned())
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
