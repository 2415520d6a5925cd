//! The account set back to its start, so that one program serves many tests one after the other. Every reset begins from how
//! the program was started, never from an earlier reset.

use super::ask::Fields;
use super::{Outcome, Refusal};
use crate::bootstrap::{Bootstrap, Bootstrapped, bootstrap, is_cluster_name};
use crate::cloud::Cloud;
use crate::cloud::catalogue::{Catalogue, regions};
use crate::config::{Config, Iam, Pace};
use crate::server::{FakeEc2, lock};
use base64::Engine as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A day: longer than any test waits for an instance.
const MAX_PACE_MS: u64 = 86_400_000;

pub(super) fn reset(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let config = config(ec2.inner.config.clone(), fields)?;
    let bootstraps = match fields.object("bootstrap")? {
        Some(of_body) => vec![read_bootstrap(of_body)?],
        None => lock(&ec2.inner.bootstraps).clone(),
    };
    fields.finish()?;
    lock(&ec2.inner.faults).clear();
    let mut answer = ec2.locked(|cloud, now| {
        let before = std::mem::replace(cloud, Cloud::new(config, now));
        // They go on: whoever waits for a change is to see this one.
        cloud.revision = before.revision + 1;
        cloud.instance_revision = before.instance_revision + 1;
        let stages: Vec<Value> =
            bootstraps.iter().map(|options| stage(options, &bootstrap(cloud, now, options))).collect();
        json!({
            "now": now,
            "region": cloud.config.region,
            "account": cloud.config.account,
            "seed": cloud.config.seed,
            "bootstraps": stages,
            "instanceRevision": cloud.instance_revision,
        })
    });
    let mut journal = lock(&ec2.inner.journal);
    journal.clear();
    answer["journal"] = journal.count().into();
    Ok(answer)
}

fn stage(options: &Bootstrap, stage: &Bootstrapped) -> Value {
    let mut shown = json!(stage);
    shown["cluster"] = options.cluster_name.as_str().into();
    shown
}

/// The configuration that the fields ask for.
fn config(mut config: Config, fields: &mut Fields) -> Result<Config, Refusal> {
    if let Some(region) = fields.text("region")? {
        if !regions().contains(&region.as_str()) {
            let error = format!("the catalogue holds no region {region:?}");
            return Err(Refusal::invalid("region", error, regions().join(", ")));
        }
        config.region = region;
    }
    config.seed = fields.number("seed", 0..=u64::MAX)?.unwrap_or(config.seed);
    if let Some(mode) = fields.text("iam")? {
        config.iam = iam(&mode)?;
    }
    if let Some(families) = fields.texts("families")? {
        config.families = families;
    }
    check_families(&config)?;
    if let Some(pace) = fields.object("pace")? {
        config.pace = self::pace(config.pace, pace)?;
    }
    Ok(config)
}

fn iam(mode: &str) -> Result<Iam, Refusal> {
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

fn pace(pace: Pace, mut fields: Fields) -> Result<Pace, Refusal> {
    let mut read = |name: &str, present: Duration| {
        let given = fields.number(name, 0..=MAX_PACE_MS)?;
        Ok(given.map_or(present, Duration::from_millis))
    };
    let pace = Pace {
        pending: read("pendingMs", pace.pending)?,
        shutting_down: read("shuttingDownMs", pace.shutting_down)?,
        stopping: read("stoppingMs", pace.stopping)?,
        terminated_visible: read("terminatedVisibleMs", pace.terminated_visible)?,
        status_checks: read("statusChecksMs", pace.status_checks)?,
    };
    fields.finish()?;
    Ok(pace)
}

fn read_bootstrap(mut fields: Fields) -> Result<Bootstrap, Refusal> {
    let (cluster, endpoint) = (fields.text("cluster")?, fields.text("endpoint")?);
    let authority = fields.text("certificateAuthority")?;
    let prerequisites = fields.boolean("prerequisites")?.unwrap_or(true);
    let oidc_issuer = fields.text("oidcIssuer")?.unwrap_or_default();
    fields.finish()?;
    let name = "a name of an EKS cluster: up to 100 letters, digits, - and _, beginning with a letter or digit";
    let cluster = fields.required("cluster", cluster, name)?;
    if !is_cluster_name(&cluster) {
        let error = format!("{cluster:?} is no name of an EKS cluster");
        return Err(Refusal::invalid(&fields.name("cluster"), error, name));
    }
    let mut options = Bootstrap { prerequisites, oidc_issuer, ..Bootstrap::named(&cluster) };
    if let Some(endpoint) = endpoint {
        if !endpoint.starts_with("https://") {
            let error = format!("the endpoint {endpoint:?} does not begin with https://");
            return Err(Refusal::invalid(&fields.name("endpoint"), error, "the URL of the cluster's API server"));
        }
        options.endpoint = endpoint;
    }
    if let Some(authority) = authority {
        if base64::engine::general_purpose::STANDARD.decode(&authority).is_err() {
            let error = "the certificate authority is not base64";
            return Err(Refusal::invalid(&fields.name("certificateAuthority"), error, "a PEM file in base64"));
        }
        options.certificate_authority = authority;
    }
    Ok(options)
}
