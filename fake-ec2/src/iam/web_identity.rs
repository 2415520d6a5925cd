//! Tokens of OpenID Connect providers, as `AssumeRoleWithWebIdentity` takes them.
//!
//! A token is believed to be signed by its issuer unless the issuer's keys are known here: the fake opens no connections
//! and so cannot fetch them. Everything else is checked as STS does.

use super::facts::{Facts, Keys};
use super::policy::{Asker, Kind, Policy, Question, Verdict};
use crate::cloud::Cloud;
use crate::cloud::identity::{OidcProvider, Role};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

/// Who a token says its bearer is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) provider_arn: String,
    host_and_path: String,
    pub(crate) subject: String,
    pub(crate) audience: String,
}

/// Reads a token and checks it against the account's providers.
// fidelity: documented(STS API Reference, AssumeRoleWithWebIdentity: InvalidIdentityToken, ExpiredTokenException);
// observed(2026-08): wording; assumed: a token without a known key is believed.
pub(crate) fn identify(cloud: &Cloud, now: Timestamp, token: &str) -> Result<Identity, ApiError> {
    let (header, claims) = parse(token).ok_or_else(|| {
        invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
    })?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let missing = |name: &str| invalid(format!("Missing a required claim: {name}"));
    let issuer = text("iss").ok_or_else(|| missing("iss"))?;
    let subject = text("sub").ok_or_else(|| missing("sub"))?.to_owned();
    let provider = provider(cloud, issuer)
        .ok_or_else(|| invalid(format!("No OpenIDConnect provider found in your account for {issuer}")))?;
    let audience = audiences(&claims).find(|audience| provider.client_ids.contains(*audience));
    let audience = audience.ok_or_else(|| invalid("Incorrect token audience"))?.to_owned();
    let expires = claims.get("exp").and_then(Value::as_i64).ok_or_else(|| missing("exp"))?;
    if expires <= now.as_second() {
        let message = format!(
            "Token expired: current date/time {} must be before the expiration date/time {expires}",
            now.as_second()
        );
        return Err(ApiError::client("ExpiredTokenException", message));
    }
    if let Some(keys) = cloud.identity.issuer_keys.get(issuer) {
        check_signature(keys, &header, token)?;
    }
    let (provider_arn, host_and_path) = (provider.arn.clone(), provider.host_and_path.clone());
    Ok(Identity { provider_arn, host_and_path, subject, audience })
}

/// Whether a role's trust policy lets this identity in.
// fidelity: documented(IAM User Guide, Available keys for AWS OIDC federation: ISSUER:aud, ISSUER:sub)
pub(crate) fn trusted(identity: &Identity, role: &Role, common: &Keys) -> bool {
    let mut own = Keys::default();
    own.set(&format!("{}:aud", identity.host_and_path), identity.audience.as_str());
    own.set(&format!("{}:sub", identity.host_and_path), identity.subject.as_str());
    own.set("aws:FederatedProvider", identity.provider_arn.as_str());
    let asker = Asker { kind: "Federated", names: vec![identity.provider_arn.clone()] };
    let action = "sts:AssumeRoleWithWebIdentity";
    let question = Question { action, resource: &role.arn, facts: Facts { own: &own, common } };
    let trust = Policy::parse(&role.trust_policy, Kind::Trust);
    trust.is_ok_and(|trust| trust.verdict(&question, &asker) == Verdict::Allowed)
}

/// Header and claims of a JSON Web Token.
fn parse(token: &str) -> Option<(Value, Value)> {
    let mut parts = token.split('.');
    let (header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    let part = |text: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(text).ok()?).ok();
    let (header, claims) = (part(header)?, part(claims)?);
    (parts.next().is_none() && header.is_object() && claims.is_object()).then_some((header, claims))
}

fn provider<'a>(cloud: &'a Cloud, issuer: &str) -> Option<&'a OidcProvider> {
    let host_and_path = issuer.strip_prefix("https://")?.trim_end_matches('/');
    cloud.identity.oidc_providers.values().find(|provider| provider.host_and_path == host_and_path)
}

/// `aud` is a text or a list of texts.
fn audiences(claims: &Value) -> impl Iterator<Item = &str> {
    let audiences = claims.get("aud");
    let many = audiences.and_then(Value::as_array).into_iter().flatten();
    audiences.into_iter().chain(many).filter_map(Value::as_str)
}

/// Refuses a token that no key of the set has signed.
fn check_signature(keys: &Value, header: &Value, token: &str) -> Result<(), ApiError> {
    let wanted = header.get("kid").and_then(Value::as_str);
    let known = keys.get("keys").and_then(Value::as_array).into_iter().flatten();
    let mut candidates = known
        .filter(|key| wanted.is_none_or(|wanted| key.get("kid").and_then(Value::as_str) == Some(wanted)))
        .peekable();
    if candidates.peek().is_none() {
        return Err(invalid(
            "Couldn't retrieve verification key from your identity provider, please reference \
             AssumeRoleWithWebIdentity documentation for requirements",
        ));
    }
    let algorithm = header.get("alg").and_then(Value::as_str).unwrap_or_default();
    match candidates.any(|key| signed_by(key, algorithm, token).is_some()) {
        true => Ok(()),
        false => Err(invalid("The signature of the ID Token could not be verified.")),
    }
}

fn signed_by(key: &Value, algorithm: &str, token: &str) -> Option<()> {
    let (message, signature) = token.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let member = |name: &str| URL_SAFE_NO_PAD.decode(key.get(name)?.as_str()?).ok();
    match algorithm {
        "RS256" => {
            let (n, e) = (member("n")?, member("e")?);
            let key = RsaPublicKeyComponents { n: &n, e: &e };
            key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message.as_bytes(), &signature).ok()
        }
        "ES256" => {
            // The uncompressed form of a point: 4, x, y.
            let point = [vec![4], member("x")?, member("y")?].concat();
            let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
            key.verify(message.as_bytes(), &signature).ok()
        }
        _ => None,
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::client("InvalidIdentityToken", message)
}
