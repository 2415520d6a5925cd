//! fake-ec2 as the cloud of a scenario, and as what the kubelets see of their machines. It is asked over its control API and
//! AWS's own protocols, whether it lives in this process or in another.

use super::{Cloud, CloudCall, Instance, SpotOffer};
use crate::kubelet::{Machine, Machines};
use anyhow::{Context, bail};
use base64::Engine as _;
use bytes::Bytes;
use controller_clock::Clock;
use fake_ec2::{Bootstrapped, JournalEntry};
use http::{Method, Request, Response, StatusCode};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// fake-ec2 as it is reached: in this process, or over HTTP alone.
#[allow(async_fn_in_trait)] // The kit runs on one thread.
pub trait Ec2: Clone + 'static {
    /// Sends a request that speaks one of AWS's protocols.
    async fn aws(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>>;

    /// Sends a request to the control API.
    async fn control(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>>;

    /// Every instance, terminated ones too while they are described, by id.
    async fn instances(&self) -> anyhow::Result<Vec<Instance>>;

    /// Waits until instances have changed since `seen`; answers the new count. Start with 0.
    async fn instances_changed(&self, seen: u64) -> anyhow::Result<u64>;

    /// Every call so far, oldest first.
    async fn journal(&self) -> anyhow::Result<Vec<Arc<JournalEntry>>>;

    /// Whether the instance behind a provider id exists.
    async fn instance_exists(&self, provider_id: &str) -> anyhow::Result<bool> {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        Ok(self.instances().await?.iter().any(|instance| instance.id == id && instance.state != "terminated"))
    }

    /// What the control API answers to a GET.
    async fn read(&self, path: &str) -> anyhow::Result<Value> {
        self.command(Method::GET, path, &Value::Null).await
    }

    /// What the control API answers to a request with this body, if it does as it is told.
    async fn command(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let about = || format!("{method} {path}");
        let request = Request::builder().method(&method).uri(format!("/_trysquare{path}"));
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.control(request.body(body)?).await?;
        let answer: Value = serde_json::from_slice(response.body()).with_context(about)?;
        if response.status() == StatusCode::OK {
            return Ok(answer);
        }
        let text = |member: &str| answer[member].as_str();
        bail!(
            "fake-ec2 refuses {}: {}; expected {}",
            about(),
            text("error").unwrap_or(response.status().as_str()),
            text("expected").unwrap_or("another request")
        )
    }
}

/// fake-ec2 as the cloud of a scenario.
pub struct FakeCloud<E> {
    ec2: E,
    clock: Clock,
    cluster: String,
    region: String,
    stage: Bootstrapped,
    seen_revision: Cell<u64>,
}

impl<E: Ec2> FakeCloud<E> {
    /// The account after its stage was set.
    pub fn new(ec2: E, clock: Clock, cluster: &str, region: &str, stage: Bootstrapped) -> Self {
        Self { ec2, clock, cluster: cluster.into(), region: region.into(), stage, seen_revision: Cell::new(0) }
    }

    /// Every resource of a kind.
    async fn resources(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        match self.ec2.read(&format!("/resources/{kind}")).await?[kind].take() {
            Value::Array(resources) => Ok(resources),
            other => bail!("the answer of fake-ec2 has no {kind}, but {other}"),
        }
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
    async fn run_instance(&self, more: &[(&str, String)]) -> anyhow::Result<String> {
        let images = self.resources("images").await?;
        let image = images.iter().find(|image| image["architecture"] == "x86_64").context("there is no image")?;
        let mut form = vec![
            ("Action", "RunInstances".into()),
            ("Version", "2016-11-15".into()),
            ("MinCount", "1".into()),
            ("MaxCount", "1".into()),
            ("InstanceType", "m5.large".into()),
            ("ImageId", text(image, "id")?.to_owned()),
            ("SubnetId", self.stage.subnet_ids.first().context("there is no subnet")?.clone()),
        ];
        form.extend_from_slice(more);
        let answer = self.ask(&form).await?;
        let id = answer.split("<instanceId>").nth(1).and_then(|rest| rest.split('<').next());
        Ok(id.context("the answer names no instance")?.to_owned())
    }

    /// Puts a form request as an administrator's SDK would, and answers the body.
    async fn ask(&self, form: &[(&str, String)]) -> anyhow::Result<String> {
        let encoded: Vec<String> =
            form.iter().map(|(key, value)| format!("{key}={}", percent_encoded(value))).collect();
        let request = http::Request::post("/")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("user-agent", "administrator")
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
        self.run_instance(&form).await
    }

    async fn launch_in_node_group(&self, group: &str) -> anyhow::Result<String> {
        let profile = self.node_group_role(group).await?;
        let user_data = self.node_group_user_data(group).await?;
        let instance = self.run_instance(&[("IamInstanceProfile.Name", profile), ("UserData", user_data)]).await?;
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
        let subnets = self.resources("subnets").await?;
        let subnet = subnets.iter().find(|subnet| subnet["zone"] == zone);
        let subnet = subnet.with_context(|| format!("there is no subnet in {zone}"))?;
        self.set_tag(text(subnet, "id")?, key, value).await
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

    async fn exhaust_spot(&self, exhausted: bool) -> anyhow::Result<()> {
        let path = if exhausted { "/capacity/exhaust" } else { "/capacity/restore" };
        self.post(path, json!({"instanceType": "*", "zone": "*", "capacityType": "spot"})).await.map(drop)
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
mod tests {
    use super::*;
    use crate::account::{self, Account, Pace};
    use crate::cloud::RemoteEc2;
    use fake_ec2::{Config, FakeEc2};
    use jiff::Timestamp;
    use std::rc::Rc;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    /// A fake-ec2 on a socket that was started otherwise than any test wants it, and what lets it live.
    struct Served {
        inside: FakeEc2,
        url: String,
        server: JoinSet<()>,
    }

    impl Served {
        async fn new() -> Self {
            let inside =
                FakeEc2::new(Config { region: "eu-west-1".into(), seed: 99, ..Config::default() }, Clock::system());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let (mut server, serving) = (JoinSet::new(), inside.clone());
            server.spawn(async move { serving.serve(listener).await.unwrap() });
            Self { inside, url, server }
        }

        fn remote(&self) -> RemoteEc2 {
            RemoteEc2::at(&self.url).unwrap()
        }

        async fn describe(&self, times: usize) {
            for _ in 0..times {
                let request = Request::post("/").body("Action=DescribeVpcs&Version=2016-11-15".into()).unwrap();
                assert_eq!(self.inside.handle(request).await.status(), 200);
            }
        }
    }

    fn options() -> account::Options {
        account::Options {
            clock: Clock::system(),
            seed: 7,
            region: "us-west-2".into(),
            families: vec!["m5".into()],
            served: Some(("https://cluster.test:6443".into(), "Y2VydA==".into())),
            pace: Pace {
                ec2: fake_ec2::Pace { pending: Duration::from_secs(3600), ..Default::default() },
                ..Default::default()
            },
        }
    }

    /// Everything a scenario may do, each followed by a look at what came of it. Answered is what must be the same however the
    /// account is reached.
    async fn everything<E: Ec2>(account: &Account<E>) -> Vec<String> {
        let cloud = &account.cloud;
        let mut seen = vec![format!("{:?}", cloud.stage)];
        cloud.have_queue(false).await.unwrap();
        assert_eq!(cloud.queue_length().await.unwrap_err().to_string(), "there is no queue");
        seen.push(format!("{:#}", cloud.send_to_queue("lost").await.unwrap_err()));
        cloud.have_queue(true).await.unwrap();
        cloud.send_to_queue("{").await.unwrap();
        assert_eq!(cloud.queue_length().await.unwrap(), 1);

        assert!(cloud.admits(&cloud.stage.node_role_name).await.unwrap());
        cloud.admit_node_role(false).await.unwrap();
        assert!(!cloud.admits(&cloud.stage.node_role_name).await.unwrap());
        cloud.admit_node_role(true).await.unwrap();
        assert!(cloud.admits(&cloud.stage.node_role_name).await.unwrap());

        cloud.tag_subnets("a", "all").await.unwrap();
        cloud.tag_subnet_in("us-west-2b", "a", "one").await.unwrap();
        cloud.tag_security_group("b", "group").await.unwrap();
        let tags = |resources: Vec<Value>, key: &str| -> Vec<String> {
            resources.iter().filter_map(|one| Some(one["tags"][key].as_str()?.to_owned())).collect()
        };
        let mut of_subnets = tags(cloud.resources("subnets").await.unwrap(), "a");
        of_subnets.sort();
        assert_eq!(of_subnets, ["all", "all", "one"]);
        assert_eq!(tags(cloud.resources("securityGroups").await.unwrap(), "b"), ["group"]);
        assert!(cloud.tag_subnet_in("us-west-2z", "a", "b").await.unwrap_err().to_string().contains("us-west-2z"));

        let plain = cloud.launch(&BTreeMap::from([("Name".into(), "by hand".into())])).await.unwrap();
        let grouped = cloud.launch_in_node_group("workers").await.unwrap();
        assert!(cloud.admits("demo-workers-NodeInstanceRole").await.unwrap());
        let spot = [("InstanceMarketOptions.MarketType", "spot".to_owned())];
        cloud.exhaust_spot(true).await.unwrap();
        assert!(cloud.run_instance(&spot).await.unwrap_err().to_string().contains("InsufficientInstanceCapacity"));
        cloud.exhaust_spot(false).await.unwrap();
        let bought = cloud.run_instance(&spot).await.unwrap();
        seen.push(format!("{:#}", cloud.interrupt(&plain).await.unwrap_err()));
        seen.push(format!("{:#}", cloud.interrupt("i-0").await.unwrap_err()));
        cloud.interrupt(&bought).await.unwrap();
        cloud.recommend_rebalance(&bought).await.unwrap();
        cloud.terminate(&plain).await.unwrap();
        cloud.impair(&grouped).await.unwrap();
        cloud.schedule_maintenance(&grouped, "instance-retirement").await.unwrap();
        seen.push(format!("{:#}", cloud.schedule_maintenance(&grouped, "party").await.unwrap_err()));

        let instances = cloud.instances().await.unwrap();
        let find = |id: &str| instances.iter().find(|instance| instance.id == id).unwrap();
        assert_eq!((find(&plain).state.as_str(), find(&plain).tags["Name"].as_str()), ("shutting-down", "by hand"));
        assert_eq!(find(&grouped).tags["aws:autoscaling:groupName"], "eks-workers");
        assert!(find(&grouped).user_data.contains("https://cluster.test:6443"), "{:?}", find(&grouped));
        assert_eq!(find(&grouped).role.as_deref(), Some("demo-workers-NodeInstanceRole"));
        // As published; two virtual CPUs and 8 GiB.
        assert_eq!(
            (find(&grouped).usd_per_hour, find(&grouped).vcpus, find(&grouped).memory_mib),
            (Some(0.096), 2, 8192)
        );
        assert!(find(&bought).spot && find(&bought).reclaim_at.is_some());
        let timeless = |mut instance: Instance| {
            instance.state_since = Timestamp::UNIX_EPOCH;
            instance.launched_at = Timestamp::UNIX_EPOCH;
            instance.reclaim_at = instance.reclaim_at.map(|_| Timestamp::UNIX_EPOCH);
            format!("{instance:?}")
        };
        seen.extend(instances.iter().cloned().map(timeless));
        let machines = cloud.machines().await.unwrap();
        assert_eq!(machines.len(), 2, "the one that is shutting down is no machine any more");
        assert!(machines.iter().all(|machine| !machine.running && machine.architecture == "amd64"));
        let whole = account.ec2.read("/instances").await.unwrap();
        let whole = whole["instances"].as_array().unwrap().iter().find(|one| one["id"] == *grouped).unwrap().clone();
        assert!(
            whole["systemImpairedSince"].is_string() && whole["scheduledEvents"][0]["code"] == "instance-retirement"
        );
        assert!(account.ec2.instance_exists(&format!("aws:///us-west-2a/{grouped}")).await.unwrap());
        assert!(!account.ec2.instance_exists("aws:///us-west-2a/i-0").await.unwrap());

        cloud.release_images("20270101").await.unwrap();
        let images = cloud.resources("images").await.unwrap();
        let newest = "amazon-eks-node-al2023-x86_64-standard-1.36-v20270101";
        assert!(images.iter().any(|image| image["name"] == newest), "{images:?}");
        let template = [
            ("Action", "CreateLaunchTemplate".to_owned()),
            ("Version", "2016-11-15".into()),
            ("LaunchTemplateName", "mine".into()),
            ("LaunchTemplateData.InstanceType", "m5.large".into()),
        ];
        cloud.ask(&template).await.unwrap();
        assert_eq!(cloud.launch_templates().await.unwrap(), BTreeSet::from(["mine".to_owned()]));
        let role = "demo-workers-NodeInstanceRole".to_owned();
        assert_eq!(cloud.instance_profiles().await.unwrap(), BTreeMap::from([(role.clone(), Some(role))]));
        seen.push(format!("{:?}", cloud.spot_offers().await.unwrap()));

        cloud.deny("RunInstances").await.unwrap();
        let denied = cloud.launch(&BTreeMap::new()).await.unwrap_err().to_string();
        assert!(denied.contains("UnauthorizedOperation") && denied.contains("ec2:RunInstances"), "{denied}");
        let calls = cloud.calls().await.unwrap();
        let named = |name: &str| calls.iter().filter(|call| call.name == name).count();
        assert_eq!(
            (named("ec2:RunInstances"), named("ec2:TerminateInstances"), named("iam:CreateInstanceProfile")),
            (5, 1, 1)
        );
        seen.extend(calls.iter().map(|call| format!("{} {} {:?}", call.name, call.status, call.parameters)));
        seen
    }

    #[tokio::test]
    async fn whatever_a_scenario_does_has_the_same_effect_over_http_as_in_process() {
        let served = Served::new().await;
        let remote = Account::reset(served.remote(), options()).await.unwrap();
        let over_http = everything(&remote).await;
        assert_eq!(everything(&Account::new(options())).await, over_http);
        // Whatever was done, the next account is as the first was.
        let again = Account::reset(served.remote(), options()).await.unwrap();
        assert_eq!(again.cloud.instances().await.unwrap(), []);
        assert_eq!(again.cloud.calls().await.unwrap().len(), 0);
        assert_eq!(everything(&again).await, over_http);
        drop(served.server);
    }

    #[tokio::test]
    async fn a_follower_is_told_every_call_once_also_those_that_somebody_else_read() {
        let served = Served::new().await;
        served.describe(3).await;
        let remote = Account::reset(served.remote(), options()).await.unwrap();
        let told = Rc::new(std::cell::RefCell::new(Vec::new()));
        let telling = told.clone();
        let following = remote.ec2.follow_calls(move |entry| telling.borrow_mut().push(entry.sequence));
        let making = async {
            // More than one page, and more while the follower waits.
            served.describe(1_200).await;
            assert_eq!(remote.cloud.calls().await.unwrap().len(), 1_200);
            served.describe(1).await;
            while told.borrow().len() < 1_201 {
                tokio::task::yield_now().await;
            }
            served.describe(2).await;
            assert_eq!(remote.cloud.calls().await.unwrap().len(), 1_203);
            while told.borrow().len() < 1_203 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = following => panic!("{ended:?}"),
            made = tokio::time::timeout(Duration::from_secs(60), making) => made.unwrap(),
        }
        assert_eq!(*told.borrow(), (4..=1_206).collect::<Vec<u64>>());
        let last = remote.ec2.journal().await.unwrap().pop().unwrap();
        let inside = served.inside.cloud().journal().pop().unwrap();
        assert_eq!(format!("{last:?}"), format!("{inside:?}"));
    }

    #[tokio::test]
    async fn a_change_of_an_instance_is_waited_for_and_seen() {
        let served = Served::new().await;
        let remote = Account::reset(served.remote(), options()).await.unwrap();
        remote.cloud.changed().await.unwrap();
        let (changed, launched) = tokio::join!(
            tokio::time::timeout(Duration::from_secs(60), remote.cloud.changed()),
            remote.cloud.launch(&BTreeMap::new())
        );
        changed.unwrap().unwrap();
        assert_eq!(remote.cloud.machines().await.unwrap()[0].id, launched.unwrap());
    }

    #[tokio::test]
    async fn a_fake_that_was_set_back_or_started_anew_under_its_reader_is_an_error() {
        let served = Served::new().await;
        let remote = Account::reset(served.remote(), options()).await.unwrap();
        served.describe(2).await;
        let second = Account::reset(served.remote(), options()).await.unwrap();
        let error = format!("{:#}", remote.cloud.calls().await.unwrap_err());
        assert!(error.contains("lost 2 calls after number 0"), "{error}");
        served.describe(1).await;
        assert_eq!(second.cloud.calls().await.unwrap().len(), 1);
        let other = Served::new().await;
        let moved = RemoteEc2::at(&other.url).unwrap().following(&second.ec2);
        let error = format!("{:#}", moved.journal().await.unwrap_err());
        assert!(
            error.contains("after is 3, and only 0 calls were made") && error.contains("expected 0 to 0"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_account_that_cannot_be_had_is_told_with_its_address_and_field() {
        let served = Served::new().await;
        let refused = async |options: account::Options| {
            format!("{:#}", Account::reset(served.remote(), options).await.err().expect("this was to be refused"))
        };
        let error = refused(account::Options { families: vec!["m55".into()], ..options() }).await;
        assert!(
            error.contains("POST /reset") && error.contains("no instance family \"m55\"") && error.contains("m5, "),
            "{error}"
        );
        let error = refused(account::Options { region: "mars-1".into(), ..options() }).await;
        assert!(error.contains("\"mars-1\"") && error.contains("us-west-2"), "{error}");
        let error = refused(account::Options { served: Some(("http://a".into(), "!".into())), ..options() }).await;
        assert!(error.contains("https://"), "{error}");
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let nobody = RemoteEc2::at(&format!("http://127.0.0.1:{port}")).unwrap();
        let error = format!("{:#}", Account::reset(nobody, options()).await.err().expect("nobody listens"));
        assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("refused"), "{error}");
    }
}
