//! Key pairs: public keys under a name. Ed25519 pairs are made here; RSA keys can only be imported.

use super::ids::Ids;
use super::queue::md5_hex;
use super::tags::Tags;
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::{Deserialize, Serialize};

/// A key pair, of which AWS keeps the public half.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct KeyPair {
    pub id: String,
    pub name: String,
    /// `rsa` or `ed25519`.
    pub key_type: String,
    pub fingerprint: String,
    /// As OpenSSH writes it.
    pub public_key: String,
    pub created_at: Timestamp,
    pub tags: Tags,
}

/// A public key that was read or made.
#[derive(Debug)]
pub(crate) struct PublicKey {
    pub(crate) key_type: &'static str,
    /// As OpenSSH encodes it.
    blob: Vec<u8>,
}

const RSA: &str = "ssh-rsa";
const ED25519: &str = "ssh-ed25519";
/// The lengths of RSA keys that can be imported, in bits.
// fidelity: documented(EC2 User Guide, Create key pairs: RSA keys of 1024, 2048 and 4096 bits can be imported)
const RSA_BITS: [usize; 3] = [1024, 2048, 4096];

impl PublicKey {
    /// Reads a key in OpenSSH's format, or in that of RFC 4716.
    // fidelity: documented(EC2 User Guide, Create key pairs: supported formats); keys in bare DER are not read.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let refuse = || ApiError::client("InvalidKey.Format", "Key is not in valid OpenSSH public key format");
        let text = text.trim();
        let base64: String = match text.strip_prefix("---- BEGIN SSH2 PUBLIC KEY ----") {
            Some(rest) => {
                let (body, _) = rest.split_once("---- END SSH2 PUBLIC KEY ----").ok_or_else(refuse)?;
                body.lines().filter(|line| !line.contains(':')).map(str::trim).collect()
            }
            None => text.split_whitespace().nth(1).ok_or_else(refuse)?.to_owned(),
        };
        let blob = STANDARD.decode(base64).map_err(|_| refuse())?;
        let parts = strings(&blob).ok_or_else(refuse)?;
        match parts.as_slice() {
            [name, key] if *name == ED25519.as_bytes() && key.len() == 32 => Ok(Self { key_type: "ed25519", blob }),
            [name, _, modulus] if *name == RSA.as_bytes() => {
                let bits = modulus.iter().skip_while(|byte| **byte == 0).count() * 8;
                if !RSA_BITS.contains(&bits) {
                    let message =
                        format!("Key length of {bits} bits is not supported: it has to be 1024, 2048 or 4096");
                    return Err(ApiError::client("InvalidKey.Format", message));
                }
                Ok(Self { key_type: "rsa", blob })
            }
            _ => Err(refuse()),
        }
    }

    /// The key as one line of OpenSSH's.
    pub(crate) fn line(&self, comment: &str) -> String {
        let name = if self.key_type == "rsa" { RSA } else { ED25519 };
        format!("{name} {} {comment}", STANDARD.encode(&self.blob))
    }

    /// MD5 of an RSA key in DER, SHA-256 of an Ed25519 key.
    // fidelity: documented(EC2 User Guide, Verify the fingerprint of your key pair); assumed: that the base64 is padded
    pub(crate) fn fingerprint(&self) -> String {
        if self.key_type == "ed25519" {
            return STANDARD.encode(digest(&SHA256, &self.blob));
        }
        let parts = strings(&self.blob).expect("the key was read from its parts");
        let hex = md5_hex(&rsa_der(parts[1], parts[2]));
        let pairs: Vec<&str> = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]).collect();
        pairs.join(":")
    }
}

/// A new Ed25519 key and its private half as OpenSSH keeps it. It comes from the seed, as all that is made here does: it
/// protects nothing.
pub(crate) fn generate_ed25519(ids: &mut Ids, comment: &str) -> (PublicKey, String) {
    let seed: Vec<u8> = (0..4).flat_map(|_| ids.next().to_be_bytes()).collect();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("32 bytes are a seed");
    let public = pair.public_key().as_ref();
    let mut blob = Vec::new();
    [ED25519.as_bytes(), public].iter().for_each(|part| put(&mut blob, part));
    // The two equal numbers tell a reader that it deciphered rightly; without a cipher they say nothing.
    let mut private = [0; 8].to_vec();
    [ED25519.as_bytes(), public, &[&seed, public].concat(), comment.as_bytes()]
        .iter()
        .for_each(|part| put(&mut private, part));
    (1..).take((8 - private.len() % 8) % 8).for_each(|padding| private.push(padding));
    let mut file = b"openssh-key-v1\0".to_vec();
    [b"none".as_slice(), b"none", b""].iter().for_each(|part| put(&mut file, part));
    file.extend(1u32.to_be_bytes());
    [&blob, &private].iter().for_each(|part| put(&mut file, part));
    let base64 = STANDARD.encode(file);
    let lines: Vec<&str> = (0..base64.len()).step_by(70).map(|at| &base64[at..base64.len().min(at + 70)]).collect();
    let pem = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n", lines.join("\n"));
    (PublicKey { key_type: "ed25519", blob }, pem)
}

/// Writes a string as SSH does: its length, then itself.
fn put(out: &mut Vec<u8>, part: &[u8]) {
    out.extend((part.len() as u32).to_be_bytes());
    out.extend(part);
}

/// The strings of which an OpenSSH key consists.
fn strings(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        parts.push(part);
        blob = rest;
    }
    Some(parts)
}

/// `SubjectPublicKeyInfo` of an RSA key.
fn rsa_der(exponent: &[u8], modulus: &[u8]) -> Vec<u8> {
    /// The identifier 1.2.840.113549.1.1.1, rsaEncryption, and its empty parameters.
    const ALGORITHM: [u8; 15] = [0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let key = tagged(0x30, &[tagged(2, modulus), tagged(2, exponent)].concat());
    let bits = tagged(3, &[&[0], key.as_slice()].concat());
    tagged(0x30, &[&ALGORITHM, bits.as_slice()].concat())
}

/// A DER value with its tag and length.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut out = vec![tag];
    match content.len() {
        short if short < 128 => out.push(short as u8),
        _ => {
            out.push(0x80 | significant.len() as u8);
            out.extend(significant);
        }
    }
    out.extend(content);
    out
}
