//! The scene a Karpenter user sets before the first node: network, roles, queue and rules, cluster.

use crate::cloud::catalogue::Zone;
use crate::cloud::identity::{AccessEntry, Cluster, Role};
use crate::cloud::network::{Cidr, SecurityGroup, Subnet, Vpc};
use crate::cloud::queue::Queue;
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, bus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What [`Control::bootstrap`](crate::Control::bootstrap) sets up: what the getting-started guide makes a user create before Karpenter can run.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// Names the EKS cluster, the queue, the discovery tag's value, the roles.
    pub cluster_name: String,
    /// Names of the zones that get a private subnet; empty means the first three of the region.
    pub zones: Vec<String>,
    /// The VPC's range; each subnet is a /19 of it.
    pub vpc_cidr: String,
    /// The address of the cluster's API server.
    pub endpoint: String,
    /// The cluster's CA, base64.
    pub certificate_authority: String,
    /// The queue for interruption messages; `None` for an installation without one.
    pub queue: Option<String>,
}

impl Bootstrap {
    /// The usual installation of a cluster of this name.
    pub fn named(cluster_name: &str) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            zones: Vec::new(),
            vpc_cidr: "192.168.0.0/16".into(),
            endpoint: format!("https://{cluster_name}.eks.example"),
            certificate_authority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t".into(),
            queue: Some(cluster_name.into()),
        }
    }
}

/// Whether EKS takes this name for a cluster.
pub fn is_cluster_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= 100 && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// What [`Control::bootstrap`](crate::Control::bootstrap) created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Bootstrapped {
    pub vpc_id: String,
    /// In the order of the zones.
    pub subnet_ids: Vec<String>,
    pub security_group_id: String,
    pub node_role_name: String,
    pub node_role_arn: String,
    pub queue_url: Option<String>,
}

/// The rules of the getting-started guide (aws spec §7.3): name and pattern.
fn interruption_rules() -> [(&'static str, Value); 4] {
    let detail_type =
        |source: &str, detail_type: &str| serde_json::json!({"source": [source], "detail-type": [detail_type]});
    [
        ("ScheduledChangeRule", detail_type("aws.health", "AWS Health Event")),
        ("SpotInterruptionRule", detail_type("aws.ec2", "EC2 Spot Instance Interruption Warning")),
        ("RebalanceRule", detail_type("aws.ec2", "EC2 Instance Rebalance Recommendation")),
        ("InstanceStateChangeRule", detail_type("aws.ec2", "EC2 Instance State-change Notification")),
    ]
}

pub(crate) fn bootstrap(cloud: &mut Cloud, now: Timestamp, options: &Bootstrap) -> Bootstrapped {
    let Bootstrap { cluster_name, zones, vpc_cidr, endpoint, certificate_authority, queue } = options;
    let cidr =
        Cidr::parse(vpc_cidr).or_else(|| Cidr::parse("192.168.0.0/16")).expect("the constant range is well-formed");
    let discovery = Tags::from([("karpenter.sh/discovery".to_owned(), cluster_name.clone())]);
    let named = |name: String| Tags::from([("Name".to_owned(), name)]);
    let vpc_id = cloud.ids.resource("vpc");
    cloud
        .network
        .vpcs
        .insert(vpc_id.clone(), Vpc { id: vpc_id.clone(), cidr, tags: named(format!("{cluster_name}/VPC")) });
    let chosen: Vec<Zone> = match zones.is_empty() {
        true => cloud.catalogue.zones.iter().take(3).cloned().collect(),
        false => zones.iter().filter_map(|zone| cloud.catalogue.zone(zone).cloned()).collect(),
    };
    let mut subnet_ids = Vec::new();
    for (index, zone) in chosen.iter().enumerate() {
        let id = cloud.ids.resource("subnet");
        let mut tags = named(format!("{cluster_name}/SubnetPrivate{}", zone.name));
        tags.extend(discovery.clone());
        let subnet = Subnet::new(id.clone(), vpc_id.clone(), zone, cidr.part(index as u32, 19), tags);
        cloud.network.subnets.insert(id.clone(), subnet);
        subnet_ids.push(id);
    }
    let mut group = |name: &str, tags: Tags| {
        let id = cloud.ids.resource("sg");
        let (name, description, vpc_id) = (name.to_owned(), name.to_owned(), vpc_id.clone());
        cloud.network.groups.insert(id.clone(), SecurityGroup { id: id.clone(), name, description, vpc_id, tags });
        id
    };
    group("default", Tags::new());
    let security_group_id = group(&format!("eks-cluster-sg-{cluster_name}"), discovery);
    let node_role_name = format!("KarpenterNodeRole-{cluster_name}");
    let node_role_arn = add_role(cloud, now, &node_role_name, "ec2.amazonaws.com");
    let queue_url = queue.as_ref().map(|queue| {
        for (name, pattern) in interruption_rules() {
            add_rule(cloud, &format!("{cluster_name}-{name}"), pattern, queue);
        }
        add_queue(cloud, now, queue)
    });
    let cluster = Cluster {
        name: cluster_name.clone(),
        arn: cloud.arn("eks", &format!("cluster/{cluster_name}")),
        version: cloud.config.kubernetes_version.clone(),
        endpoint: endpoint.clone(),
        certificate_authority: certificate_authority.clone(),
        service_cidr: "10.100.0.0/16".into(),
        created_at: now,
        subnet_ids: subnet_ids.clone(),
        vpc_id: vpc_id.clone(),
        security_group_id: security_group_id.clone(),
        access_entries: BTreeMap::new(),
    };
    cloud.clusters.insert(cluster_name.clone(), cluster);
    let entry = access_entry(cloud, now, cluster_name, &node_role_arn, "EC2_LINUX");
    if let Some(cluster) = cloud.clusters.get_mut(cluster_name) {
        cluster.access_entries.insert(node_role_arn.clone(), entry);
    }
    Bootstrapped { vpc_id, subnet_ids, security_group_id, node_role_name, node_role_arn, queue_url }
}

pub(crate) fn add_role(cloud: &mut Cloud, now: Timestamp, name: &str, service: &str) -> String {
    let trust = serde_json::json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Service": service}, "Action": "sts:AssumeRole"}]});
    let arn = cloud.arn("iam", &format!("role/{name}"));
    let (id, name, path) = (cloud.ids.unique("AROA"), name.to_owned(), "/".to_owned());
    let role = Role {
        id,
        name: name.clone(),
        path,
        arn: arn.clone(),
        created_at: now,
        trust_policy: trust.to_string(),
        tags: Tags::new(),
    };
    cloud.identity.roles.insert(name, role);
    arn
}

pub(crate) fn add_queue(cloud: &mut Cloud, now: Timestamp, name: &str) -> String {
    let mut queue = Queue::new(now);
    // fidelity: documented(Karpenter getting-started template: the queue keeps messages for 300 seconds)
    queue.retention_s = 300;
    cloud.queues.entry(name.into()).or_insert(queue);
    cloud.queue_url(name)
}

pub(crate) fn add_rule(cloud: &mut Cloud, name: &str, pattern: Value, queue: &str) {
    let arn = cloud.arn("events", &format!("rule/{name}"));
    let targets = BTreeMap::from([("target".to_owned(), cloud.arn("sqs", queue))]);
    let rule = bus::Rule { arn, pattern, enabled: true, description: String::new(), targets };
    cloud.bus.rules.insert(name.into(), rule);
}

pub(crate) fn access_entry(
    cloud: &mut Cloud,
    now: Timestamp,
    cluster: &str,
    principal_arn: &str,
    kind: &str,
) -> AccessEntry {
    let id = cloud.ids.uuid();
    let path = principal_arn.rsplit(':').next().unwrap_or(principal_arn);
    let arn = cloud.arn("eks", &format!("access-entry/{cluster}/{path}/{id}"));
    // fidelity: documented(EKS User Guide, Access entries: EC2_LINUX entries are given the node group and user name)
    let (user_name, groups) = match kind {
        "EC2_LINUX" | "EC2_WINDOWS" => {
            ("system:node:{{EC2PrivateDNSName}}".to_owned(), vec!["system:nodes".to_owned()])
        }
        _ => (principal_arn.to_owned(), Vec::new()),
    };
    AccessEntry {
        principal_arn: principal_arn.into(),
        arn,
        kind: kind.into(),
        user_name,
        groups,
        created_at: now,
        tags: Tags::new(),
    }
}
