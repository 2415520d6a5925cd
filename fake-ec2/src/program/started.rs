//! What there is to say once a fake listens, or a cluster has been set up in it.

use fake_ec2::Bootstrapped;
use serde_json::{Value, json};
use std::fmt::Write;

/// Where a fake listens, and what was set up in it.
pub(super) struct Stage {
    pub(super) url: String,
    pub(super) region: String,
    pub(super) account: String,
    /// What clients have to sign with; anything will do where that is not checked.
    pub(super) access_key: Option<(String, String)>,
    /// The name of the cluster, and what belongs to it.
    pub(super) made: Option<(String, Bootstrapped)>,
}

impl Stage {
    /// The settings of a client. boto3 and the AWS command line read the region from `AWS_DEFAULT_REGION`, the newer SDKs
    /// from `AWS_REGION`.
    fn environment(&self) -> [(&'static str, &str); 5] {
        let (id, secret) = match &self.access_key {
            Some((id, secret)) => (id.as_str(), secret.as_str()),
            None => ("placeholder", "placeholder"),
        };
        [
            ("AWS_ENDPOINT_URL", &self.url),
            ("AWS_REGION", &self.region),
            ("AWS_DEFAULT_REGION", &self.region),
            ("AWS_ACCESS_KEY_ID", id),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ]
    }

    pub(super) fn text(&self) -> String {
        let Self { url, region, account, access_key: _, made } = self;
        let mut text = format!("# fake-ec2 plays {region} of account {account} at {url}\n");
        if let Some((cluster, made)) = made {
            let Bootstrapped { vpc_id, subnet_ids, security_group_id, node_role_name, oidc_issuer, queue_url, .. } =
                made;
            let subnets = subnet_ids.join(" ");
            let _ =
                writeln!(text, "# cluster {cluster}: {vpc_id}, subnets {subnets}, security group {security_group_id},");
            match queue_url {
                Some(_) => {
                    let _ = write!(text, "# node role {node_role_name}, queue {cluster}; ");
                }
                None => text.push_str("# no node role and no queue yet; "),
            }
            let _ = writeln!(text, "discovery tag karpenter.sh/discovery={cluster}");
            let _ = writeln!(text, "# service account tokens of {oidc_issuer}");
        }
        for (name, value) in self.environment() {
            let _ = writeln!(text, "export {name}={}", quoted(value));
        }
        let _ = writeln!(text, "# What else it can be told: curl {url}/_trysquare/ (Ctrl-C ends it)");
        text
    }

    pub(super) fn json(&self) -> Value {
        let Self { url, region, account, access_key: _, made } = self;
        let bootstrap = made.as_ref().map(|(cluster, made)| {
            let mut shown = json!(made);
            shown["cluster"] = cluster.as_str().into();
            shown["queueUrl"] = json!(made.queue_url.as_deref().map(|of_aws| queue_url(url, of_aws)));
            shown
        });
        let environment: serde_json::Map<String, Value> =
            self.environment().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        json!({
            "endpointUrl": url,
            "controlUrl": format!("{url}/_trysquare/"),
            "region": region,
            "account": account,
            "bootstrap": bootstrap,
            "environment": environment,
        })
    }
}

/// A queue's URL as GetQueueUrl answers it here: AWS's host would take a client away from the fake.
fn queue_url(endpoint: &str, of_aws: &str) -> String {
    let path = of_aws.splitn(4, '/').nth(3).unwrap_or_default();
    format!("{endpoint}/{path}")
}

/// As a shell takes it for one word.
fn quoted(value: &str) -> String {
    match value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@%+=[]".contains(&byte)) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::{queue_url, quoted};

    #[test]
    fn a_queue_is_where_the_fake_listens() {
        let of_aws = "https://sqs.us-west-2.amazonaws.com/123456789012/demo";
        assert_eq!(queue_url("http://127.0.0.1:4566", of_aws), "http://127.0.0.1:4566/123456789012/demo");
    }

    #[test]
    fn secrets_are_one_word_of_a_shell() {
        assert_eq!(quoted("wJalr/K7M+bPx="), "wJalr/K7M+bPx=");
        assert_eq!(quoted("a b'c$"), r"'a b'\''c$'");
    }
}
