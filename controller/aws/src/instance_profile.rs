//! The IAM instance profile kept for a class's role (spec §4.8).
//!
//! A profile's role is never exchanged: when the class's role changes, a new profile is made and the old one stays until
//! no instance was launched with it and collection finds it.

use crate::cache::Cache;
use crate::error::{AwsError, Meaning};
use crate::resolved::ResolvedNodeClass;
use crate::settings::Settings;
use aws_sdk_iam::types::Tag;
use controller_api::labels;
use controller_clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PROFILE_LIFETIME: Duration = Duration::from_secs(15 * 60);
const ROLE_MISSING_LIFETIME: Duration = Duration::from_secs(60);
const PROTECTION: Duration = Duration::from_secs(60 * 60);
const RECREATION_GUARD: Duration = Duration::from_secs(60);
/// Profiles kept in each cache; one or two for each class.
const PROFILES: usize = 512;

/// Makes, reads and deletes profiles.
#[derive(Debug)]
pub(crate) struct InstanceProfiles {
    client: aws_sdk_iam::Client,
    region: String,
    cluster_name: String,
    /// The role in each profile; `None` for a profile without one.
    roles: Cache<String, Option<String>>,
    missing_roles: Cache<String, AwsError>,
    /// Profiles that collection leaves alone.
    protected: Cache<String, ()>,
    /// The profile just made for a role and class, in case the status does not show it yet.
    recent: Cache<String, String>,
}

impl InstanceProfiles {
    pub(crate) fn new(client: aws_sdk_iam::Client, region: &str, settings: &Settings, clock: Clock) -> Self {
        Self {
            client,
            region: region.to_owned(),
            cluster_name: settings.cluster_name.clone(),
            roles: Cache::new(clock.clone(), PROFILE_LIFETIME, PROFILES),
            missing_roles: Cache::new(clock.clone(), ROLE_MISSING_LIFETIME, PROFILES),
            protected: Cache::new(clock.clone(), PROTECTION, PROFILES),
            recent: Cache::new(clock, RECREATION_GUARD, PROFILES),
        }
    }

    /// The name of the profile that instances of the class get, made if need be.
    pub(crate) async fn ensure(&self, class: &ResolvedNodeClass<'_>) -> Result<String, AwsError> {
        if let Some(name) = &class.spec.instance_profile {
            return Ok(name.clone());
        }
        let role = role_name(class.spec.role.as_deref().unwrap_or_default());
        let current = class.status.instance_profile.as_str();
        if !current.is_empty() && self.role_of(current).await?.as_deref() == Some(role) {
            return Ok(current.to_owned());
        }
        let guard = format!("{role}/{}", class.uid);
        if let Some(recent) = self.recent.get(&guard) {
            return Ok(recent);
        }
        if let Some(error) = self.missing_roles.get(&role.to_owned()) {
            return Err(error);
        }
        let name = self.unique_name();
        self.create(&name, class, role).await?;
        self.recent.insert(guard, name.clone());
        for kept in [name.as_str(), current] {
            self.protected.insert(kept.to_owned(), ());
        }
        Ok(name)
    }

    /// The role in a profile; `None` if there is no such profile or it has no role.
    async fn role_of(&self, profile: &str) -> Result<Option<String>, AwsError> {
        if let Some(known) = self.roles.get(&profile.to_owned()) {
            return Ok(known);
        }
        match self.client.get_instance_profile().instance_profile_name(profile).send().await {
            Ok(answer) => {
                let roles = answer.instance_profile().map(|profile| profile.roles()).unwrap_or_default();
                let role = roles.first().map(|role| role.role_name().to_owned());
                self.roles.insert(profile.to_owned(), role.clone());
                Ok(role)
            }
            Err(error) => match AwsError::new("IAM", "GetInstanceProfile", error) {
                error if error.is_not_found() => Ok(None),
                error => Err(error),
            },
        }
    }

    async fn create(&self, name: &str, class: &ResolvedNodeClass<'_>, role: &str) -> Result<(), AwsError> {
        let tags = self
            .tags(class)
            .into_iter()
            .map(|(key, value)| Tag::builder().key(key).value(value).build().expect("key and value are set"));
        let path = format!("{}{}/", self.path(), class.uid);
        let request = self.client.create_instance_profile().instance_profile_name(name).path(path);
        let created = request.set_tags(Some(tags.collect())).send().await;
        created.map_err(|error| AwsError::new("IAM", "CreateInstanceProfile", error))?;
        let added = self.client.add_role_to_instance_profile().instance_profile_name(name).role_name(role).send().await;
        let Err(error) = added else {
            self.roles.insert(name.to_owned(), Some(role.to_owned()));
            return Ok(());
        };
        let error = AwsError::new("IAM", "AddRoleToInstanceProfile", error);
        if error.is_not_found() && error.message.contains("role") {
            self.missing_roles.insert(role.to_owned(), error.clone());
        }
        // Best effort: what stays behind is collected later.
        let _ = self.delete(name).await;
        Err(error)
    }

    fn tags(&self, class: &ResolvedNodeClass<'_>) -> BTreeMap<String, String> {
        let mut tags = class.spec.tags.clone().unwrap_or_default();
        tags.insert(format!("kubernetes.io/cluster/{}", self.cluster_name), "owned".to_owned());
        tags.insert(crate::CLUSTER_NAME_TAG.to_owned(), self.cluster_name.clone());
        tags.insert(labels::NODE_CLASS_LABEL.to_owned(), class.name.to_owned());
        tags.insert(labels::REGION_LABEL.to_owned(), self.region.clone());
        tags
    }

    /// Deletes a profile, its role first. One that does not exist is as good as deleted.
    async fn delete(&self, name: &str) -> Result<(), AwsError> {
        let answer = self.client.get_instance_profile().instance_profile_name(name).send().await;
        let answer = match answer.map_err(|error| AwsError::new("IAM", "GetInstanceProfile", error)) {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        let roles = answer.instance_profile().map(|profile| profile.roles()).unwrap_or_default();
        for role in roles {
            let request = self.client.remove_role_from_instance_profile().instance_profile_name(name);
            let removed = request.role_name(role.role_name()).send().await;
            ignore_missing(removed.map_err(|error| AwsError::new("IAM", "RemoveRoleFromInstanceProfile", error)))?;
        }
        let deleted = self.client.delete_instance_profile().instance_profile_name(name).send().await;
        ignore_missing(deleted.map_err(|error| AwsError::new("IAM", "DeleteInstanceProfile", error)))?;
        self.roles.remove(&name.to_owned());
        Ok(())
    }

    /// Deletes every profile made for a class.
    pub(crate) async fn delete_all_of(&self, uid: &str) -> Result<(), AwsError> {
        for name in self.list(&format!("{}{uid}/", self.path())).await? {
            self.delete(&name).await?;
        }
        Ok(())
    }

    /// Deletes the profile that early versions made, named after region and class.
    pub(crate) async fn delete_legacy(&self, class: &str) -> Result<(), AwsError> {
        let name = format!("{}_{}", self.cluster_name, fnv1(&format!("{}{class}", self.region)));
        if is_valid_name(&name) { self.delete(&name).await } else { Ok(()) }
    }

    /// Deletes this cluster's profiles that are neither in use nor protected; answers their names. One that cannot be deleted
    /// does not keep the others; it is told and tried again next time.
    pub(crate) async fn collect(&self, in_use: &BTreeSet<String>) -> Result<Vec<String>, AwsError> {
        let mut deleted = Vec::new();
        for name in self.list(&self.path()).await? {
            if in_use.contains(&name) || self.protected.get(&name).is_some() {
                continue;
            }
            match self.delete(&name).await {
                Ok(()) => deleted.push(name),
                Err(error) => tracing::error!(instance_profile = name, %error, "failed deleting instance profile"),
            }
        }
        Ok(deleted)
    }

    async fn list(&self, path: &str) -> Result<Vec<String>, AwsError> {
        let items = self.client.list_instance_profiles().path_prefix(path).into_paginator().items().send();
        let profiles = items.collect::<Result<Vec<_>, _>>().await;
        let profiles = profiles.map_err(|error| AwsError::new("IAM", "ListInstanceProfiles", error))?;
        Ok(profiles.iter().map(|profile| profile.instance_profile_name().to_owned()).collect())
    }

    /// Where this cluster's profiles are.
    fn path(&self) -> String {
        format!("/karpenter/{}/{}/", self.region, self.cluster_name)
    }

    /// A name no other profile has: IAM wants it unique in the account.
    fn unique_name(&self) -> String {
        let random = fastrand::u128(..);
        format!("{}_{}", self.cluster_name, fnv1(&format!("{}{random:032x}", self.region)))
    }
}

fn ignore_missing<T>(result: Result<T, AwsError>) -> Result<(), AwsError> {
    match result {
        Err(error) if error.meaning() != Meaning::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// IAM names a role without its path, so the class's role is compared without it too (quirk Q5).
fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// IAM's rule for profile names.
fn is_valid_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c))
}

/// FNV-1, 64 bits: multiply, then xor.
pub(crate) fn fnv1(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_compared_without_their_path() {
        assert_eq!(role_name("KarpenterNodeRole-demo"), "KarpenterNodeRole-demo");
        assert_eq!(role_name("teams/platform/KarpenterNodeRole-demo"), "KarpenterNodeRole-demo");
    }

    #[test]
    fn the_hash_is_fnv_1() {
        // Published vectors of FNV-1 64.
        assert_eq!(fnv1(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1("a"), 0xaf63_bd4c_8601_b7be);
        assert_eq!(fnv1("foobar"), 0x340d_8765_a4dd_a9c2);
    }
}
