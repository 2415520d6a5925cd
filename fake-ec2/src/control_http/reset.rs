//! The account set back to its start, so that one program serves many tests one after the other. Every reset begins from how
//! the program was started, never from an earlier reset.

use super::ask::Fields;
use super::{Outcome, Refusal, config};
use crate::bootstrap::{Bootstrap, Bootstrapped, bootstrap, is_cluster_name};
use crate::config::Config;
use crate::server::{FakeEc2, account, lock};
use base64::Engine as _;
use http::StatusCode;
use serde_json::{Value, json};

pub(super) fn reset(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let config = config::read(ec2.inner.config.clone(), fields)?;
    let bootstraps = match fields.object("bootstrap")? {
        Some(of_body) => vec![read_bootstrap(of_body)?],
        None => lock(&ec2.inner.bootstraps).clone(),
    };
    fields.finish()?;
    Ok(to_start(ec2, config, &bootstraps))
}

/// Begins anew with this configuration and these stages, in the time of the clock that was given.
pub(super) fn to_start(ec2: &FakeEc2, config: Config, bootstraps: &[Bootstrap]) -> Value {
    lock(&ec2.inner.faults).clear();
    ec2.inner.clock.set(None);
    let mut answer = ec2.locked(|cloud, now| {
        let before = std::mem::replace(cloud, account(config, now));
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
    ec2.wake_everyone();
    let mut journal = lock(&ec2.inner.journal);
    journal.clear();
    answer["journal"] = journal.count().into();
    answer
}

/// One more stage, as the program's `bootstrap` asks for it. It is not made again by a reset: how the program was started is
/// not changed by it.
pub(super) fn make_bootstrap(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let options = read_bootstrap(std::mem::replace(fields, Fields::of_query("")))?;
    ec2.locked(|cloud, now| {
        let name = &options.cluster_name;
        if cloud.clusters.contains_key(name) {
            let refusal = Refusal::invalid("cluster", format!("there is a cluster {name:?} already"), "another name");
            return Err(Refusal { status: StatusCode::CONFLICT, ..refusal });
        }
        let mut shown = stage(&options, &bootstrap(cloud, now, &options));
        shown["region"] = cloud.config.region.as_str().into();
        shown["account"] = cloud.config.account.as_str().into();
        Ok(shown)
    })
}

fn stage(options: &Bootstrap, stage: &Bootstrapped) -> Value {
    let mut shown = json!(stage);
    shown["cluster"] = options.cluster_name.as_str().into();
    shown
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
