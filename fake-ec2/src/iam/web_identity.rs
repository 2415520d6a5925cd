//! Tokens of OpenID Connect providers, as `AssumeRoleWithWebIdentity` takes them.
//!
//! A token is believed to be signed by its issuer unless the issuer's keys are known here: the fake opens no connections
//! and so cannot fetch them. Everything else is checked as STS does.

use super::facts::{Facts, Keys};
use super::policy::{Asker, Kind, Policy, Question, Verdict};
use crate::cloud::Cloud;
use crate::cloud::identity::{OidcProvider, Role};
use crate::config::Iam;
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
    let (header, claims) = parse(token)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let missing = |name: &str| invalid(format!("Missing a required claim: {name}"));
    let issuer = text("iss").ok_or_else(|| missing("iss"))?;
    let subject = text("sub").ok_or_else(|| missing("sub"))?.to_owned();
    let provider = provider(cloud, issuer)
        .ok_or_else(|| invalid(format!("No OpenIDConnect provider found in your account for {issuer}")))?;
    let audience = audiences(&claims).find(|audience| provider.client_ids.contains(*audience));
    let audience = audience.ok_or_else(|| invalid("Incorrect token audience"))?.to_owned();
    check(cloud, now, token, &header, &claims)?;
    let (provider_arn, host_and_path) = (provider.arn.clone(), provider.host_and_path.clone());
    Ok(Identity { provider_arn, host_and_path, subject, audience })
}

/// What a token says, if it is still good; whose it is, and for whom, is left to the caller.
pub(crate) fn claims(cloud: &Cloud, now: Timestamp, token: &str) -> Result<Value, ApiError> {
    let (header, claims) = parse(token)?;
    check(cloud, now, token, &header, &claims)?;
    Ok(claims)
}

fn check(cloud: &Cloud, now: Timestamp, token: &str, header: &Value, claims: &Value) -> Result<(), ApiError> {
    let missing = || invalid("Missing a required claim: exp");
    let expires = claims.get("exp").and_then(Value::as_i64).ok_or_else(missing)?;
    if expires <= now.as_second() {
        let message = format!(
            "Token expired: current date/time {} must be before the expiration date/time {expires}",
            now.as_second()
        );
        return Err(ApiError::client("ExpiredTokenException", message));
    }
    let keys = claims.get("iss").and_then(Value::as_str).and_then(|issuer| cloud.identity.issuer_keys.get(issuer));
    keys.map_or(Ok(()), |keys| check_signature(keys, header, token))
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

/// Whether EKS may hand a role to pods of a cluster.
// fidelity: documented(EKS User Guide, Pod Identity role: sts:AssumeRole and sts:TagSession for pods.eks.amazonaws.com)
pub(crate) fn trusts_pods(cloud: &Cloud, role_arn: &str, cluster_arn: &str, common: &Keys) -> bool {
    if cloud.config.iam == Iam::Off {
        return true;
    }
    let Some(role) = cloud.identity.roles.values().find(|role| role.arn == role_arn) else { return false };
    let Ok(trust) = Policy::parse(&role.trust_policy, Kind::Trust) else { return false };
    let mut own = Keys::default();
    own.set("aws:SourceArn", cluster_arn);
    own.set("aws:SourceAccount", cloud.config.account.as_str());
    let asker = Asker { kind: "Service", names: vec!["pods.eks.amazonaws.com".into()] };
    ["sts:AssumeRole", "sts:TagSession"].iter().all(|action| {
        let question = Question { action, resource: role_arn, facts: Facts { own: &own, common } };
        trust.verdict(&question, &asker) == Verdict::Allowed
    })
}

/// Header and claims of a JSON Web Token.
fn parse(token: &str) -> Result<(Value, Value), ApiError> {
    parts(token).ok_or_else(|| {
        invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
    })
}

fn parts(token: &str) -> Option<(Value, Value)> {
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
pub(crate) fn audiences(claims: &Value) -> impl Iterator<Item = &str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A key made for this test by `openssl genrsa`, and a token that it has signed.
    const MODULUS: &str = "o6UO6xFKlRapPPNfGBvPiO0vflOjoPg1JLPAEu3TcOam8BOWTmPEktA9yiWFIWrwD9zvS1YeuBqbyAycSRyZduZZjs_zhMPIIdh1CeAuwrpsG0\
        d-EYmniDZn16pzBmbugA5WGwc1r_VwwDQZfTRUo30xMshoODn1iw_kgPVsRNrb-SEsTu3TkjrIaW7NIKXdNA-6pED_uovN_Yxql2eUnYRirm4M\
        9rZ8EURCAM1wIXgsvo0PqgvZ-Ik4jpB_dSQVHpotSN_LHmfKDxkohugJcxLfpwkKsa6Xo1GQsVFXbvAi0lfNuHfL8KlCnUHe0OcPBCArzG4VJK\
        zPrBPeIYQc2w";
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.eyJpc3MiOiJodHRwczovL29pZGMuZXhhbXBsZS9pZCIsInN1YiI6InN5c3RlbTpzZXJ2aWNlYW\
        Njb3VudDprdWJlLXN5c3RlbTprYXJwZW50ZXIiLCJhdWQiOlsic3RzLmFtYXpvbmF3cy5jb20iXSwiZXhwIjo0MTAyNDQ0ODAwfQ.E7nGLVLyy\
        5GzDXkBLuMVtl4cWEuveAwoKDxGl5ueu7knSf1OhNFQnnzLT6rqW57AkGVoZbSD_91ZfJ0rhuNJLDn9p498BGbDPgBqYZ2dC5bqgqYC2sK06tN\
        OGTfn45leWBgi6iCCCMfCnjUg6J0d83taNfqsYKzn9xoJSFFNSJ3Z_JF0aLLzcQbY5gzvSWqaruZT9AKfhr-P0khjo564-jJR7rgW79m6pJfoH\
        NAYqYkvjVhv47Jovwkk2fa3LHBWMf6m8ed7dUlnBvvrqf-lmCPjlZC19gBLZKHZG95DqmyDbKBZFFaIDwPFMOTkLvhTI7992wQhomgSWfK8aMR\
        MeQ";

    fn verdict(key: &Value, token: &str) -> Result<(), String> {
        let (header, _) = parse(token).map_err(|error| error.message)?;
        check_signature(&json!({"keys": [key]}), &header, token).map_err(|error| error.message)
    }

    #[test]
    fn a_token_is_checked_against_the_issuers_keys() {
        let key = |id: &str| json!({"kty": "RSA", "kid": id, "n": MODULUS, "e": "AQAB"});
        assert_eq!(verdict(&key("k1"), TOKEN), Ok(()));
        let unknown = verdict(&key("k2"), TOKEN).unwrap_err();
        assert!(unknown.starts_with("Couldn't retrieve verification key"), "{unknown}");
        // Another subject under the same signature.
        let parts: Vec<&str> = TOKEN.split('.').collect();
        let claims = URL_SAFE_NO_PAD.encode(json!({"iss": "https://oidc.example/id", "sub": "somebody"}).to_string());
        let forged = [parts[0], &claims, parts[2]].join(".");
        assert_eq!(verdict(&key("k1"), &forged).unwrap_err(), "The signature of the ID Token could not be verified.");
        let unsigned =
            [&URL_SAFE_NO_PAD.encode(json!({"alg": "none", "kid": "k1"}).to_string()), parts[1], ""].join(".");
        assert!(verdict(&key("k1"), &unsigned).is_err());
    }

    #[test]
    fn elliptic_keys_sign_too() {
        use ring::signature::KeyPair;
        let random = ring::rand::SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = signature::EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = signature::EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(json!({"alg": "ES256"})), part(json!({"iss": "x"})));
        let signed = pair.sign(&random, message.as_bytes()).unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref()));
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let key = json!({"kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)});
        assert_eq!(verdict(&key, &token), Ok(()));
        assert!(verdict(&key, &token.replace('.', ".e")).is_err());
    }
}
