//! Who a pod is: towards the API server by a token of its ServiceAccount, towards AWS by what EKS makes of it.
//!
//! On EKS a webhook adds the variables when a pod is made, so what is associated later comes into force with the next pods.
//! Here they are looked up once for each pod, when it starts.

use super::Surroundings;
use crate::control_plane;
use anyhow::{Context, ensure};
use fake_ec2::PodIdentityAssociation;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the API server's tokens of pods are good for: a kubelet asks for an hour and a few seconds.
const TOKEN_S: i64 = 3607;
/// How long those for AWS are good for (the webhook's default).
const AWS_TOKEN_S: i64 = 24 * 60 * 60;
/// When they are renewed: a kubelet does so after four fifths of the shortest life.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(TOKEN_S as u64 * 4 / 5);

/// The annotations by which a ServiceAccount is given a role (EKS User Guide, IAM roles for service accounts).
const ROLE: &str = "eks.amazonaws.com/role-arn";
const AUDIENCE: &str = "eks.amazonaws.com/audience";
const REGIONAL: &str = "eks.amazonaws.com/sts-regional-endpoints";

/// The audience of tokens for the pod identity agent (EKS User Guide, EKS Pod Identity).
pub(super) const AGENT_AUDIENCE: &str = "pods.eks.amazonaws.com";

/// The ServiceAccount of a pod.
pub(super) fn account_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default")
}

/// What a pod is to AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Whatever it asks for: policies decide nothing.
    Anyone,
    /// Nobody, as neither way gives it a role.
    Nobody,
    /// The role of a pod identity association, by way of the agent.
    Association,
    /// The role that its ServiceAccount names, by a token for STS.
    Annotation { role_arn: String, audience: String, regional: bool },
}

impl Identity {
    /// What the webhook would find. An association comes first where there are both.
    pub(super) async fn of(pod: &Pod, surroundings: &Surroundings) -> anyhow::Result<Self> {
        if !surroundings.identities {
            return Ok(Self::Anyone);
        }
        let (namespace, name) = (pod.namespace().unwrap_or_default(), account_of(pod));
        if association(surroundings, &namespace, name).is_some() {
            return Ok(Self::Association);
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(surroundings.kube.clone(), &namespace);
        let account = accounts.get(name).await.with_context(|| format!("serviceaccount {namespace}/{name}"))?;
        Ok(Self::annotated(account.annotations()))
    }

    fn annotated(annotations: &BTreeMap<String, String>) -> Self {
        let Some(role_arn) = annotations.get(ROLE).cloned() else { return Self::Nobody };
        let audience = annotations.get(AUDIENCE).cloned().unwrap_or_else(|| "sts.amazonaws.com".into());
        Self::Annotation {
            role_arn,
            audience,
            regional: annotations.get(REGIONAL).is_none_or(|value| value != "false"),
        }
    }

    /// The audience of its token for AWS.
    fn audience(&self) -> Option<&str> {
        match self {
            Self::Anyone | Self::Nobody => None,
            Self::Association => Some(AGENT_AUDIENCE),
            Self::Annotation { audience, .. } => Some(audience),
        }
    }

    /// What its containers are told.
    fn environment(&self, agent_url: &str, token: &Path) -> Vec<(&'static str, String)> {
        let token = token.display().to_string();
        match self {
            // fake-ec2 takes any key for the administrator's.
            Self::Anyone => {
                vec![("AWS_ACCESS_KEY_ID", "trysquare".into()), ("AWS_SECRET_ACCESS_KEY", "trysquare".into())]
            }
            Self::Nobody => Vec::new(),
            Self::Association => vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent_url.to_owned()),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token),
            ],
            Self::Annotation { role_arn, regional, .. } => {
                let endpoints = if *regional { "regional" } else { "legacy" };
                vec![
                    ("AWS_ROLE_ARN", role_arn.clone()),
                    ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
                    ("AWS_STS_REGIONAL_ENDPOINTS", endpoints.into()),
                ]
            }
        }
    }

    /// For people.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Anyone => "AWS allows it everything".into(),
            Self::Nobody => "no pod identity association and no annotation gives its ServiceAccount a role".into(),
            Self::Association => "its role is that of a pod identity association".into(),
            Self::Annotation { role_arn, .. } => {
                format!("its role is {role_arn}, by the annotation of its ServiceAccount")
            }
        }
    }
}

/// The association of a ServiceAccount.
pub(super) fn association(
    surroundings: &Surroundings,
    namespace: &str,
    account: &str,
) -> Option<PodIdentityAssociation> {
    let cluster = surroundings.ec2.cloud().cluster(&surroundings.cluster)?;
    let mut all = cluster.pod_identity_associations.into_values();
    all.find(|association| association.namespace == namespace && association.service_account == account)
}

/// The secrets of one pod: files that only this user may read.
pub(super) struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    pub(super) fn make(folder: PathBuf) -> anyhow::Result<Self> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes fresh tokens. Clients read them again, as those in a pod do.
    pub(super) async fn renew(&self, pod: &Pod, identity: &Identity, kube: &kube::Client) -> anyhow::Result<()> {
        self.write("token", &token(kube, pod, None, TOKEN_S).await?)?;
        if let Some(audience) = identity.audience() {
            self.write("aws-token", &token(kube, pod, Some(audience), AWS_TOKEN_S).await?)?;
        }
        Ok(())
    }

    /// What the program is told that only this machine knows, and who it is.
    pub(super) fn environment(
        &self,
        identity: &Identity,
        surroundings: &Surroundings,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let (url, authority) = (&surroundings.kube_url, &surroundings.certificate_authority_pem);
        let mut kubeconfig: serde_json::Value =
            serde_json::from_str(&control_plane::kubeconfig(url, authority, "pod", ""))?;
        // A file, as in a pod: it is read again when it has changed.
        kubeconfig["users"][0]["user"] = serde_json::json!({"tokenFile": self.path("token")});
        self.write("kubeconfig", &kubeconfig.to_string())?;
        let region = surroundings.region.as_str();
        let mut variables = identity.environment(&surroundings.agent_url, &self.path("aws-token"));
        variables.extend([
            ("AWS_ENDPOINT_URL", surroundings.aws_url.clone()),
            // EKS sets both together with an identity. A pod without one asks the instance metadata for the region.
            ("AWS_REGION", region.to_owned()),
            ("AWS_DEFAULT_REGION", region.to_owned()),
            // Out of a pod's reach, as the hop limit of EKS's nodes is 1.
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]);
        let mut environment: BTreeMap<_, _> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        environment.insert("KUBECONFIG".into(), self.path("kubeconfig").display().to_string());
        Ok(environment)
    }

    /// Whole at once, as somebody may be reading.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let (path, draft) = (self.path(name), self.path(&format!(".{name}")));
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| std::fs::rename(&draft, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A token of the pod's ServiceAccount, which ends with the pod.
async fn token(kube: &kube::Client, pod: &Pod, audience: Option<&str>, seconds: i64) -> anyhow::Result<String> {
    let (namespace, account) = (pod.namespace().unwrap_or_default(), account_of(pod));
    let accounts: Api<ServiceAccount> = Api::namespaced(kube.clone(), &namespace);
    let spec = TokenRequestSpec {
        audiences: audience.map(|audience| vec![audience.to_owned()]),
        expiration_seconds: Some(seconds),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        }),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("a token of serviceaccount {namespace}/{account}"))?;
    let token = answer.status.and_then(|status| status.token).unwrap_or_default();
    ensure!(!token.is_empty(), "the API server made no token of serviceaccount {namespace}/{account}");
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_service_account_without_the_annotation_is_nobody() {
        let identity = Identity::annotated(&annotations(&[("eks.amazonaws.com/audience", "a")]));
        assert_eq!(identity, Identity::Nobody);
        assert!(identity.environment("http://agent", Path::new("/t")).is_empty());
    }

    #[test]
    fn an_annotated_service_account_gets_what_the_webhook_gives() {
        let role = "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo";
        let identity = Identity::annotated(&annotations(&[("eks.amazonaws.com/role-arn", role)]));
        assert_eq!(identity.audience(), Some("sts.amazonaws.com"));
        let expected = [
            ("AWS_ROLE_ARN", role.to_owned()),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t".to_owned()),
            ("AWS_STS_REGIONAL_ENDPOINTS", "regional".to_owned()),
        ];
        assert_eq!(identity.environment("http://agent", Path::new("/t")), expected);
    }

    #[test]
    fn an_association_leads_to_the_agent() {
        let expected = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://agent".to_owned()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/t".to_owned()),
        ];
        assert_eq!(Identity::Association.environment("http://agent", Path::new("/t")), expected);
    }
}
