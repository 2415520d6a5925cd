//! Key pairs: CreateKeyPair, ImportKeyPair, DeleteKeyPair, DescribeKeyPairs.

use super::tags::tag_specification;
use super::{finish, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::key_pair::{KeyPair, PublicKey, generate_ed25519};
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Key pairs in a region.
// fidelity: documented(EC2 endpoints and quotas: 5,000 key pairs)
const KEY_PAIRS_PER_REGION: usize = 5_000;

// fidelity: documented(EC2 API Reference, CreateKeyPair: RSA and PEM unless asked otherwise); RSA keys cannot be made here
pub(super) fn create_key_pair(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.required("KeyName")?;
    let (key_type, format) = (query.text("KeyType").unwrap_or("rsa"), query.text("KeyFormat").unwrap_or("pem"));
    let tags = tag_specification(query, &Kind::KEY_PAIR)?;
    finish(query)?;
    for (parameter, value, known) in [("keyType", key_type, ["ed25519", "rsa"]), ("keyFormat", format, ["pem", "ppk"])]
    {
        if !known.contains(&value) {
            let message =
                format!("Value ({value}) for parameter {parameter} is invalid. It has to be {}.", known.join(" or "));
            return Err(ApiError::invalid_value(message));
        }
    }
    if key_type == "rsa" || format == "ppk" {
        let message =
            "RSA keys and the format ppk are not made here: ask for KeyType ed25519, or import a key made elsewhere.";
        return Err(ApiError::client("UnsupportedOperation", message));
    }
    check_name(cloud, name)?;
    let (public, private) = generate_ed25519(&mut cloud.ids, name);
    let pair = add(cloud, now, name, &public, tags);
    let mut xml = Xml::new();
    write_pair(&mut xml, pair);
    xml.text("keyMaterial", private);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, ImportKeyPair)
pub(super) fn import_key_pair(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (name, material) = (query.required("KeyName")?, query.required("PublicKeyMaterial")?);
    let tags = tag_specification(query, &Kind::KEY_PAIR)?;
    finish(query)?;
    let refuse = || ApiError::invalid_value("Invalid base64 encoding of parameter PublicKeyMaterial.");
    let decoded = STANDARD.decode(material).map_err(|_| refuse())?;
    let public = PublicKey::parse(&String::from_utf8_lossy(&decoded))?;
    check_name(cloud, name)?;
    let pair = add(cloud, now, name, &public, tags);
    let mut xml = Xml::new();
    write_pair(&mut xml, pair);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, CreateKeyPair: up to 255 ASCII characters; Error codes: InvalidKeyPair.Duplicate,
// KeyPairLimitExceeded)
fn check_name(cloud: &Cloud, name: &str) -> Result<(), ApiError> {
    if name.len() > 255 || !name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || name.trim() != name {
        let message = format!(
            "Value ({name}) for parameter KeyName is invalid. It may have up to 255 ASCII characters and neither begin nor \
             end with a space."
        );
        return Err(ApiError::invalid_value(message));
    }
    if cloud.key_pairs.contains_key(name) {
        let message = format!("The keypair '{name}' already exists.");
        return Err(ApiError::client("InvalidKeyPair.Duplicate", message));
    }
    if cloud.key_pairs.len() >= KEY_PAIRS_PER_REGION {
        let message = "The maximum number of key pairs has been reached.";
        return Err(ApiError::client("KeyPairLimitExceeded", message));
    }
    Ok(())
}

fn add<'a>(cloud: &'a mut Cloud, now: Timestamp, name: &str, public: &PublicKey, tags: Tags) -> &'a KeyPair {
    let pair = KeyPair {
        id: cloud.ids.resource("key"),
        name: name.into(),
        key_type: public.key_type.into(),
        fingerprint: public.fingerprint(),
        public_key: public.line(name),
        created_at: now,
        tags,
    };
    cloud.key_pairs.entry(name.into()).or_insert(pair)
}

fn write_pair(xml: &mut Xml, pair: &KeyPair) {
    xml.text("keyPairId", &pair.id);
    xml.text("keyName", &pair.name);
    xml.text("keyFingerprint", &pair.fingerprint);
    tag_set(xml, &pair.tags);
}

// fidelity: assumed: a name that nobody has is deleted without complaint, as is commonly seen; documented(EC2 API Reference, Error codes:
// InvalidKeyPair.NotFound)
pub(super) fn delete_key_pair(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (name, id) = (query.text("KeyName"), query.text("KeyPairId"));
    finish(query)?;
    let found = match (name, id) {
        (None, None) => return Err(ApiError::missing("KeyName or KeyPairId")),
        (Some(_), Some(_)) => {
            let message = "The parameter KeyName cannot be used with the parameter KeyPairId";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        (Some(name), None) => cloud.key_pairs.remove(name),
        (None, Some(id)) => {
            let name = cloud.key_pairs.values().find(|pair| pair.id == id).map(|pair| pair.name.clone());
            let name = name.ok_or_else(|| Kind::KEY_PAIR.missing(id))?;
            cloud.key_pairs.remove(&name)
        }
    };
    let mut xml = Xml::new();
    xml.value("return", true);
    xml.optional("keyPairId", found.map(|pair| pair.id));
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeKeyPairs: all in one page)
pub(super) fn describe_key_pairs(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (names, ids, filters) = (query.list("KeyName"), query.list("KeyPairId"), query.filters()?);
    let with_public_key = query.boolean("IncludePublicKey")?.unwrap_or(false);
    finish(query)?;
    filters.check(&["fingerprint", "key-name", "key-pair-id", "tag-key"])?;
    let pairs = &cloud.key_pairs;
    if let Some(missing) = names.iter().find(|name| !pairs.contains_key(**name)) {
        let message = format!("The key pair '{missing}' does not exist");
        return Err(ApiError::client("InvalidKeyPair.NotFound", message));
    }
    if let Some(missing) = ids.iter().find(|id| !pairs.values().any(|pair| pair.id == **id)) {
        return Err(Kind::KEY_PAIR.missing(missing));
    }
    let attribute = |pair: &KeyPair, name: &str, test: Test<'_>| match name {
        "fingerprint" => test(&pair.fingerprint),
        "key-name" => test(&pair.name),
        "key-pair-id" => test(&pair.id),
        _ => false,
    };
    let chosen = pairs
        .values()
        .filter(|pair| names.is_empty() || names.contains(&pair.name.as_str()))
        .filter(|pair| ids.is_empty() || ids.contains(&pair.id.as_str()))
        .filter(|pair| filters.matches(Some(&pair.tags), |name, test| attribute(pair, name, test)));
    let mut xml = Xml::new();
    xml.list("keySet", chosen, |xml, pair| {
        write_pair(xml, pair);
        xml.text("keyType", &pair.key_type);
        xml.time("createTime", pair.created_at);
        if with_public_key {
            xml.text("publicKey", &pair.public_key);
        }
    });
    Ok(xml.into_string())
}
