//! The scene a Karpenter user sets before the first node: network, roles, queue and rules, cluster.

use crate::cloud::catalogue::Zone;
use crate::cloud::cluster::ControlPlane;
use crate::cloud::identity::{AccessEntry, Cluster, OidcProvider, Role};
use crate::cloud::ids::digits;
use crate::cloud::network::{Cidr, SecurityGroup, Subnet};
use crate::cloud::queue::Queue;
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, bus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Whether to make what the getting-started stack makes: the node role, the queue and its rules. Without them there is
    /// what the cluster's own set-up makes, and a stack may be created on top.
    pub prerequisites: bool,
    /// The issuer of the cluster's service account tokens, which becomes an identity provider of the account; empty for one
    /// such as EKS gives.
    pub oidc_issuer: String,
}

/// What stands for the certificate of an API server that is not there.
pub(crate) const CERTIFICATE_AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";

impl Bootstrap {
    /// The usual installation of a cluster of this name.
    pub fn named(cluster_name: &str) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            zones: Vec::new(),
            vpc_cidr: "192.168.0.0/16".into(),
            endpoint: format!("https://{cluster_name}.eks.example"),
            certificate_authority: CERTIFICATE_AUTHORITY.into(),
            queue: Some(cluster_name.into()),
            prerequisites: true,
            oidc_issuer: String::new(),
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
    /// Without the prerequisites, the name that the stack will use.
    pub node_role_name: String,
    pub node_role_arn: String,
    pub queue_url: Option<String>,
    pub oidc_issuer: String,
    pub oidc_provider_arn: String,
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
    let Bootstrap { cluster_name, zones, vpc_cidr, endpoint, certificate_authority, queue, prerequisites, oidc_issuer } =
        options;
    let cidr = Cidr::parse(vpc_cidr).filter(|cidr| cidr.is_network_size()).or_else(|| Cidr::parse("192.168.0.0/16"));
    let cidr = cidr.expect("the constant range is well-formed");
    let discovery = Tags::from([("karpenter.sh/discovery".to_owned(), cluster_name.clone())]);
    let named = |name: String| Tags::from([("Name".to_owned(), name)]);
    let Cloud { network, ids, .. } = &mut *cloud;
    let vpc_id = network.create_vpc(ids, cidr, "default", false, named(format!("{cluster_name}/VPC")));
    // As eksctl sets it, so that nodes have the names EKS expects.
    network.vpcs.entry(vpc_id.clone()).and_modify(|vpc| vpc.dns_hostnames = true);
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
    let group_name = format!("eks-cluster-sg-{cluster_name}");
    let mut group = SecurityGroup::new(&mut cloud.ids, &group_name, &group_name, &vpc_id, discovery);
    // fidelity: documented(EKS User Guide, Security group requirements: the cluster's group lets its members in and all out)
    group.let_members_in(&mut cloud.ids);
    let security_group_id = group.id.clone();
    cloud.network.groups.insert(security_group_id.clone(), group);
    let node_role_name = format!("KarpenterNodeRole-{cluster_name}");
    let node_role_arn = cloud.arn("iam", &format!("role/{node_role_name}"));
    if *prerequisites {
        add_role(cloud, now, &node_role_name, "ec2.amazonaws.com");
    }
    let queue_url =
        queue.as_ref().filter(|_| *prerequisites).map(|queue| add_interruption_queue(cloud, now, queue, cluster_name));
    let oidc_issuer = match oidc_issuer.is_empty() {
        true => self::oidc_issuer(cloud, cluster_name),
        false => oidc_issuer.clone(),
    };
    // As eksctl does where a cluster's configuration says `withOIDC`.
    let oidc_provider_arn = add_oidc_provider(cloud, now, &oidc_issuer, &["sts.amazonaws.com"]);
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
        oidc_issuer: oidc_issuer.clone(),
        pod_identity_associations: BTreeMap::new(),
        control_plane: ControlPlane::default(),
    };
    cloud.clusters.insert(cluster_name.clone(), cluster);
    if *prerequisites {
        let entry = access_entry(cloud, now, cluster_name, &node_role_arn, "EC2_LINUX");
        if let Some(cluster) = cloud.clusters.get_mut(cluster_name) {
            cluster.access_entries.insert(node_role_arn.clone(), entry);
        }
    }
    Bootstrapped {
        vpc_id,
        subnet_ids,
        security_group_id,
        node_role_name,
        node_role_arn,
        queue_url,
        oidc_issuer,
        oidc_provider_arn,
    }
}

/// What an earlier [`bootstrap`] made for a cluster, if there is one of this name.
pub(crate) fn bootstrapped(cloud: &Cloud, cluster_name: &str) -> Option<Bootstrapped> {
    let cluster = cloud.clusters.get(cluster_name)?;
    let node_role_name = format!("KarpenterNodeRole-{cluster_name}");
    let oidc_host = cluster.oidc_issuer.trim_start_matches("https://").trim_end_matches('/');
    Some(Bootstrapped {
        vpc_id: cluster.vpc_id.clone(),
        subnet_ids: cluster.subnet_ids.clone(),
        security_group_id: cluster.security_group_id.clone(),
        node_role_arn: cloud.arn("iam", &format!("role/{node_role_name}")),
        node_role_name,
        queue_url: cloud.queues.contains_key(cluster_name).then(|| cloud.queue_url(cluster_name)),
        oidc_issuer: cluster.oidc_issuer.clone(),
        oidc_provider_arn: cloud.arn("iam", &format!("oidc-provider/{oidc_host}")),
    })
}

/// The queue, a policy that lets events in, and the rules that send them.
fn add_interruption_queue(cloud: &mut Cloud, now: Timestamp, name: &str, cluster_name: &str) -> String {
    for (rule, pattern) in interruption_rules() {
        add_rule(cloud, &format!("{cluster_name}-{rule}"), pattern, name);
    }
    let url = add_queue(cloud, now, name);
    let policy = serde_json::json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]}, "Action": "sqs:SendMessage",
        "Resource": cloud.arn("sqs", name)}]});
    if let Some(queue) = cloud.queues.get_mut(name) {
        queue.settings.texts.insert("Policy".into(), policy.to_string());
    }
    url
}

/// The issuer of a cluster's service account tokens.
// fidelity: observed(2026-08): EKS's issuers end in 32 hexadecimal digits
pub(crate) fn oidc_issuer(cloud: &Cloud, cluster: &str) -> String {
    let seed = cloud.config.seed;
    let id = digits(seed, &["oidc", cluster]) + &digits(seed, &["issuer", cluster]);
    format!("https://oidc.eks.{}.amazonaws.com/id/{}", cloud.config.region, id[1..33].to_ascii_uppercase())
}

/// An identity provider for an issuer, in the place of an earlier one; its ARN is answered.
pub(crate) fn add_oidc_provider(cloud: &mut Cloud, now: Timestamp, issuer: &str, client_ids: &[&str]) -> String {
    let host_and_path = issuer.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let arn = cloud.arn("iam", &format!("oidc-provider/{host_and_path}"));
    let client_ids = client_ids.iter().map(|id| (*id).to_owned()).collect();
    let (created_at, tags) = (now, Tags::new());
    let provider =
        OidcProvider { arn: arn.clone(), host_and_path, client_ids, thumbprints: Vec::new(), created_at, tags };
    cloud.identity.oidc_providers.insert(arn.clone(), provider);
    arn
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
        description: String::new(),
        max_session_s: crate::cloud::roles::SESSION_S,
        tags: Tags::new(),
        inline_policies: BTreeMap::new(),
        attached_policies: BTreeSet::new(),
        permissions_boundary: None,
    };
    cloud.identity.roles.insert(name, role);
    arn
}

pub(crate) fn add_queue(cloud: &mut Cloud, now: Timestamp, name: &str) -> String {
    let mut queue = Queue::new(now);
    // fidelity: documented(Karpenter getting-started template: the queue keeps messages for 300 seconds)
    queue.settings.retention_s = 300;
    cloud.queues.entry(name.into()).or_insert(queue);
    cloud.queue_url(name)
}

pub(crate) fn add_rule(cloud: &mut Cloud, name: &str, pattern: Value, queue: &str) {
    let arn = cloud.arn("events", &format!("rule/{name}"));
    let targets = BTreeMap::from([("target".to_owned(), bus::Target::queue(cloud.arn("sqs", queue)))]);
    let rule = bus::Rule { arn, pattern, enabled: true, description: String::new(), targets, tags: Tags::new() };
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
        policies: BTreeMap::new(),
        created_at: now,
        modified_at: now,
        tags: Tags::new(),
    }
}
