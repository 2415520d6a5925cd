//! A configuration from named fields: those of a reset, and those of a configuration file, which are the same.

use super::Refusal;
use super::ask::Fields;
use crate::cloud::capacity::CapacityType;
use crate::cloud::catalogue::{Catalogue, regions};
use crate::cloud::quota::VcpuClass;
use crate::cloud::throttle::{Rate, Throttling};
use crate::config::{Config, Iam, Limits, NetworkLimits, Pace, Profile};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A day: longer than any test waits for an instance.
const MAX_PACE_MS: u64 = 86_400_000;

/// More vCPUs, and more units of fleets, than any account has.
const MAX_COUNT: u64 = 100_000_000;

/// What the fields say, over what there was.
pub(super) fn read(config: Config, fields: &mut Fields) -> Result<Config, Refusal> {
    let Config {
        region,
        account,
        seed,
        profile,
        families,
        kubernetes_version,
        pace,
        event_delay,
        consistency_delay,
        limits,
        throttling,
        iam,
        secure_transport,
        verify_signatures,
        access_keys,
    } = config;
    let config = Config {
        region: fields.text("region")?.map(check_region).transpose()?.unwrap_or(region),
        account: fields.text("account")?.map(check_account).transpose()?.unwrap_or(account),
        seed: fields.number("seed", 0..=u64::MAX)?.unwrap_or(seed),
        profile: fields.text("profile")?.map(|name| read_profile(&name)).transpose()?.unwrap_or(profile),
        iam: fields.text("iam")?.map(|mode| read_iam(&mode)).transpose()?.unwrap_or(iam),
        families: fields.texts("families")?.unwrap_or(families),
        kubernetes_version: match fields.text("kubernetesVersion")? {
            Some(version) => check_kubernetes_version(version)?,
            None => kubernetes_version,
        },
        pace: match fields.object("pace")? {
            Some(fields) => read_pace(pace, fields)?,
            None => pace,
        },
        event_delay: duration(fields, "eventDelayMs", event_delay)?,
        consistency_delay: duration(fields, "consistencyDelayMs", consistency_delay)?,
        limits: match fields.object("limits")? {
            Some(fields) => read_limits(limits, fields)?,
            None => limits,
        },
        throttling: match fields.object("throttling")? {
            Some(fields) => read_throttling(throttling, fields)?,
            None => throttling,
        },
        secure_transport: fields.boolean("secureTransport")?.unwrap_or(secure_transport),
        verify_signatures: fields.boolean("verifySignatures")?.unwrap_or(verify_signatures),
        access_keys: match fields.object("accessKeys")? {
            Some(mut fields) => read_access_keys(&fields.whole())?,
            None => access_keys,
        },
    };
    check_families(&config)?;
    Ok(config)
}

impl Config {
    /// Refuses what the catalogue does not have, by a sentence that says what it has.
    pub fn check(&self) -> Result<(), String> {
        check_families(self).map_err(sentence)
    }

    /// Reads a configuration file: YAML with the fields of a reset. What it leaves out is as it was.
    ///
    /// The error names the field, its value and what would be right.
    pub fn from_yaml(self, text: &str) -> Result<Self, String> {
        let value: Value = match text.trim().is_empty() {
            true => Value::Object(Default::default()),
            false => serde_yaml_ng::from_str(text).map_err(|error| format!("it is not YAML: {error}"))?,
        };
        let value = if value.is_null() { Value::Object(Default::default()) } else { value };
        let mut fields = Fields::of_document(value).map_err(sentence)?;
        let config = read(self, &mut fields).map_err(sentence)?;
        fields.finish().map_err(sentence)?;
        Ok(config)
    }
}

fn sentence(refusal: Refusal) -> String {
    match refusal.expected {
        Some(expected) => format!("{}; expected is {expected}", refusal.error),
        None => refusal.error,
    }
}

fn check_region(region: String) -> Result<String, Refusal> {
    match regions().contains(&region.as_str()) {
        true => Ok(region),
        false => {
            let error = format!("the catalogue holds no region {region:?}");
            Err(Refusal::invalid("region", error, regions().join(", ")))
        }
    }
}

fn check_account(account: String) -> Result<String, Refusal> {
    match account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(account),
        false => {
            let expected = "twelve digits in quotes, such as \"123456789012\"";
            Err(Refusal::invalid("account", format!("{account:?} is no account"), expected))
        }
    }
}

fn check_kubernetes_version(version: String) -> Result<String, Refusal> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match version.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
        true => Ok(version),
        false => {
            let error = format!("{version:?} is no Kubernetes version");
            Err(Refusal::invalid("kubernetesVersion", error, "a minor version in quotes, such as \"1.36\""))
        }
    }
}

fn read_profile(name: &str) -> Result<Profile, Refusal> {
    match name {
        "strict" => Ok(Profile::Strict),
        "lenient" => Ok(Profile::Lenient),
        other => Err(Refusal::invalid("profile", format!("there is no profile {other:?}"), "strict or lenient")),
    }
}

fn read_iam(mode: &str) -> Result<Iam, Refusal> {
    match mode {
        "off" => Ok(Iam::Off),
        "enforce" => Ok(Iam::Enforce),
        other => Err(Refusal::invalid("iam", format!("{other:?} says not whether policies decide"), "off or enforce")),
    }
}

fn check_families(config: &Config) -> Result<(), Refusal> {
    let families = |chosen: &[String]| -> BTreeSet<&'static str> {
        let catalogue = Catalogue::new(&config.region, chosen);
        catalogue.offerings().iter().map(|offering| offering.instance_type.family()).collect()
    };
    let offered = families(&config.families);
    let Some(missing) = config.families.iter().find(|family| !offered.contains(family.as_str())) else {
        return Ok(());
    };
    let error = format!("{} has no instance family {missing:?}", config.region);
    let all: Vec<&str> = families(&[]).into_iter().collect();
    Err(Refusal::invalid("families", error, all.join(", ")))
}

fn duration(fields: &mut Fields, name: &str, present: Duration) -> Result<Duration, Refusal> {
    Ok(fields.number(name, 0..=MAX_PACE_MS)?.map_or(present, Duration::from_millis))
}

fn read_pace(pace: Pace, mut fields: Fields) -> Result<Pace, Refusal> {
    let pace = Pace {
        pending: duration(&mut fields, "pendingMs", pace.pending)?,
        shutting_down: duration(&mut fields, "shuttingDownMs", pace.shutting_down)?,
        stopping: duration(&mut fields, "stoppingMs", pace.stopping)?,
        terminated_visible: duration(&mut fields, "terminatedVisibleMs", pace.terminated_visible)?,
        status_checks: duration(&mut fields, "statusChecksMs", pace.status_checks)?,
    };
    fields.finish()?;
    Ok(pace)
}

fn count(fields: &mut Fields, name: &str) -> Result<Option<u32>, Refusal> {
    Ok(fields.number(name, 0..=MAX_COUNT)?.map(|count| count as u32))
}

fn read_network_limits(limits: NetworkLimits, mut fields: Fields) -> Result<NetworkLimits, Refusal> {
    let mut read = |name: &str, present: u32| Ok::<_, Refusal>(count(&mut fields, name)?.unwrap_or(present));
    let limits = NetworkLimits {
        vpcs: read("vpcs", limits.vpcs)?,
        subnets_per_vpc: read("subnetsPerVpc", limits.subnets_per_vpc)?,
        cidr_blocks_per_vpc: read("cidrBlocksPerVpc", limits.cidr_blocks_per_vpc)?,
        security_groups: read("securityGroups", limits.security_groups)?,
        rules_per_security_group: read("rulesPerSecurityGroup", limits.rules_per_security_group)?,
        security_groups_per_interface: read("securityGroupsPerInterface", limits.security_groups_per_interface)?,
        route_tables_per_vpc: read("routeTablesPerVpc", limits.route_tables_per_vpc)?,
        routes_per_route_table: read("routesPerRouteTable", limits.routes_per_route_table)?,
        internet_gateways: read("internetGateways", limits.internet_gateways)?,
        network_interfaces: count(&mut fields, "networkInterfaces")?.or(limits.network_interfaces),
    };
    fields.finish()?;
    Ok(limits)
}

fn read_limits(limits: Limits, mut fields: Fields) -> Result<Limits, Refusal> {
    let mut vcpus_by_class = limits.vcpus_by_class;
    for (market, name) in [(CapacityType::OnDemand, "onDemandVcpusByClass"), (CapacityType::Spot, "spotVcpusByClass")] {
        let Some(mut classes) = fields.object(name)? else { continue };
        for (class_name, class) in VcpuClass::OTHERS {
            vcpus_by_class.extend(count(&mut classes, class_name)?.map(|vcpus| ((market, class), vcpus)));
        }
        classes.finish()?;
    }
    let limits = Limits {
        on_demand_vcpus: count(&mut fields, "onDemandVcpus")?.or(limits.on_demand_vcpus),
        spot_vcpus: count(&mut fields, "spotVcpus")?.or(limits.spot_vcpus),
        vcpus_by_class,
        fleets: count(&mut fields, "fleets")?.unwrap_or(limits.fleets),
        target_capacity_of_a_fleet: count(&mut fields, "targetCapacityOfAFleet")?
            .unwrap_or(limits.target_capacity_of_a_fleet),
        target_capacity_of_all_fleets: count(&mut fields, "targetCapacityOfAllFleets")?
            .unwrap_or(limits.target_capacity_of_all_fleets),
        network: match fields.object("network")? {
            Some(fields) => read_network_limits(limits.network, fields)?,
            None => limits.network,
        },
    };
    fields.finish()?;
    Ok(limits)
}

/// `ec2Documented`, and `rates` by service and action: `{"ec2": {"RunInstances": {"burst": 5, "perSecond": 2}}}`.
fn read_throttling(throttling: Throttling, mut fields: Fields) -> Result<Throttling, Refusal> {
    let ec2_documented = fields.boolean("ec2Documented")?.unwrap_or(throttling.ec2_documented);
    let mut throttling = Throttling { ec2_documented, rates: BTreeMap::new() };
    let services = fields.object("rates")?.map(|mut services| services.whole()).unwrap_or_default();
    fields.finish()?;
    for (service_name, actions) in services.as_object().into_iter().flatten() {
        let service = super::fault::service(service_name)?;
        let below = format!("throttling.rates.{service_name}");
        let actions = Fields::below(&below, actions.clone())?.whole();
        for (action, rate) in actions.as_object().into_iter().flatten() {
            let rate = read_rate(Fields::below(&format!("{below}.{action}"), rate.clone())?)?;
            throttling = throttling.with(service, action, rate);
        }
    }
    Ok(throttling)
}

fn read_rate(mut fields: Fields) -> Result<Rate, Refusal> {
    const NUMBERS: std::ops::RangeInclusive<f64> = 0.0..=1_000_000.0;
    let (burst, per_second) = (fields.decimal("burst", NUMBERS)?, fields.decimal("perSecond", NUMBERS)?);
    fields.finish()?;
    let burst = fields.required("burst", burst, "how many calls may come at once")?;
    Ok(Rate::new(burst, fields.required("perSecond", per_second, "how many calls a second in the long run")?))
}

fn read_access_keys(keys: &Value) -> Result<BTreeMap<String, String>, Refusal> {
    let entries = keys.as_object().into_iter().flatten();
    let read = entries.map(|(id, secret)| {
        // The secret itself is not repeated: errors end up in logs.
        let refuse = |error: String, expected: &str| Refusal::invalid(&format!("accessKeys.{id}"), error, expected);
        if !is_access_key_id(id) {
            return Err(refuse(format!("{id:?} is no access key ID"), "up to 128 letters, digits and _"));
        }
        match secret.as_str().filter(|secret| !secret.is_empty()) {
            Some(secret) => Ok((id.clone(), secret.to_owned())),
            None => Err(refuse(format!("accessKeys.{id} has no secret"), "the secret access key as text")),
        }
    });
    read.collect()
}

/// Whether a text can be an access key ID. IAM's own have sixteen characters and more; people like `test`.
pub fn is_access_key_id(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
