//! Images by alias and by selector, and which instance types each one runs on (spec §2.4.2, §4.6).

use crate::cache::Cache;
use crate::error::AwsError;
use crate::instances::filter;
use crate::network::Query;
use crate::resolved::ResolvedNodeClass;
use aws_sdk_ec2::types::{ArchitectureValues, Filter};
use controller_api::{Ami, AmiFamily, AmiSelectorTerm, NodeSelectorRequirementWithMinValues, Operator, labels};
use controller_clock::Clock;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a published parameter is believed; one that a term names, which its owner may change at will, for less.
const PUBLISHED_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const NAMED_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Parameters kept: each class uses at most a few dozen.
const PARAMETERS: usize = 1_000;
/// Node classes whose images are kept; clusters have a handful.
const CLASSES: usize = 256;

/// Why a class's images cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// AWS failed; what was known before stands.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// No parameter of the alias exists.
    #[error("failed to discover any AMIs for alias {0:?}")]
    AliasWithoutImages(String),
    /// This alias cannot work: reason and message of the condition.
    #[error("{message}")]
    Unsupported {
        /// The condition's reason.
        reason: &'static str,
        /// The condition's message.
        message: String,
    },
}

/// Which accelerators an image drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
}

impl Variant {
    fn requirements(self) -> Vec<(&'static str, Operator)> {
        let (gpu, accelerator) = (labels::INSTANCE_GPU_COUNT_LABEL, labels::INSTANCE_ACCELERATOR_COUNT_LABEL);
        match self {
            Self::Standard => vec![(accelerator, Operator::DoesNotExist), (gpu, Operator::DoesNotExist)],
            Self::Nvidia => vec![(gpu, Operator::Exists)],
            Self::Neuron => vec![(accelerator, Operator::Exists)],
        }
    }
}

/// An image as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    id: String,
    name: String,
    created: Timestamp,
    deprecated_at: Option<Timestamp>,
    architecture: &'static str,
}

/// One DescribeImages call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ImageQuery {
    filters: Vec<(String, Vec<String>)>,
    owners: Vec<String>,
    /// Variants that the source of an id tells; images without any run on every type of their architecture.
    variants: BTreeMap<String, BTreeSet<Variant>>,
}

/// Looks images up.
#[derive(Debug)]
pub(crate) struct Images {
    ec2: aws_sdk_ec2::Client,
    ssm: aws_sdk_ssm::Client,
    clock: Clock,
    parameters: Cache<String, String>,
    images: Cache<String, Vec<Ami>>,
}

impl Images {
    pub(crate) fn new(ec2: aws_sdk_ec2::Client, ssm: aws_sdk_ssm::Client, clock: Clock, lifetime: Duration) -> Self {
        Self {
            ec2,
            ssm,
            parameters: Cache::new(clock.clone(), PUBLISHED_LIFETIME, PARAMETERS),
            images: Cache::new(clock.clone(), lifetime, CLASSES),
            clock,
        }
    }

    /// The images of a class, newest first.
    pub(crate) async fn resolve(
        &self,
        class: &ResolvedNodeClass<'_>,
        kubernetes: &str,
    ) -> Result<Vec<Ami>, ImageError> {
        let queries = self.queries(&class.spec.ami_selector_terms, kubernetes).await?;
        let key = format!("{}-{}-{queries:?}", class.uid, class.generation);
        if let Some(known) = self.images.get(&key) {
            return Ok(known);
        }
        let now = self.clock.now();
        let mut found = Vec::new();
        for query in &queries {
            for image in self.describe(query).await? {
                let variants = query.variants.get(&image.id);
                let variants = variants.map_or_else(|| vec![None], |set| set.iter().copied().map(Some).collect());
                found.extend(
                    variants.into_iter().map(|variant| (requirements(image.architecture, variant), image.clone())),
                );
            }
        }
        let images = choose(found, now);
        tracing::debug!(count = images.len(), "discovered amis");
        if !images.is_empty() {
            self.images.insert(key, images.clone());
        }
        Ok(images)
    }

    async fn queries(&self, terms: &[AmiSelectorTerm], kubernetes: &str) -> Result<Vec<ImageQuery>, ImageError> {
        if let Some(alias) = terms.iter().find_map(|term| term.alias.as_deref()) {
            return Ok(vec![self.alias_query(alias, kubernetes).await?]);
        }
        let mut ids: BTreeSet<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
        for name in terms.iter().filter_map(|term| term.ssm_parameter.as_deref()) {
            let value = self.parameter(name, NAMED_LIFETIME).await?;
            ids.extend(value.filter(|value| value.starts_with("ami-")));
        }
        let others = terms.iter().filter(|term| term.id.is_none() && term.ssm_parameter.is_none()).map(term_query);
        let mut queries: Vec<ImageQuery> = others.collect();
        if !ids.is_empty() {
            let filters = vec![("image-id".to_owned(), ids.into_iter().collect())];
            queries.push(ImageQuery { filters, ..ImageQuery::default() });
        }
        Ok(queries)
    }

    async fn alias_query(&self, alias: &str, kubernetes: &str) -> Result<ImageQuery, ImageError> {
        let (family, version) = alias.split_once('@').unwrap_or((alias, "latest"));
        let mut variants: BTreeMap<String, BTreeSet<Variant>> = BTreeMap::new();
        for (path, of_path) in alias_parameters(AmiFamily::from_alias(family), version, kubernetes)? {
            // Only a parameter that does not exist is passed over. A failure fails the look-up: a variant that vanished
            // for a moment would make its nodes drift (quirk Q26).
            if let Some(id) = self.parameter(&path, PUBLISHED_LIFETIME).await? {
                variants.insert(id, of_path.into_iter().collect());
            }
        }
        if variants.is_empty() {
            return Err(ImageError::AliasWithoutImages(alias.to_owned()));
        }
        let filters = vec![("image-id".to_owned(), variants.keys().cloned().collect())];
        Ok(ImageQuery { filters, owners: Vec::new(), variants })
    }

    /// The value of a parameter; `None` if it does not exist.
    async fn parameter(&self, name: &str, lifetime: Duration) -> Result<Option<String>, AwsError> {
        let key = name.to_owned();
        if let Some(value) = self.parameters.get(&key) {
            return Ok(Some(value));
        }
        match self.ssm.get_parameter().name(name).send().await {
            Ok(answer) => {
                let value = answer.parameter().and_then(|parameter| parameter.value()).map(str::to_owned);
                if let Some(value) = &value {
                    tracing::info!(parameter = name, value, "discovered ssm parameter");
                    self.parameters.insert_for(key, value.clone(), lifetime);
                }
                Ok(value)
            }
            Err(error) => match AwsError::new("SSM", "GetParameter", error) {
                error if error.is_not_found() => Ok(None),
                error => Err(error),
            },
        }
    }

    async fn describe(&self, query: &ImageQuery) -> Result<Vec<Image>, AwsError> {
        let filters: Vec<Filter> = query.filters.iter().map(|(name, values)| filter(name, values)).collect();
        let request = self
            .ec2
            .describe_images()
            .set_filters(Some(filters))
            .filters(filter("state", &["available"]))
            .set_owners((!query.owners.is_empty()).then(|| query.owners.clone()))
            .include_deprecated(true)
            .max_results(1000);
        let images = request.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let images = images.map_err(|error| AwsError::new("EC2", "DescribeImages", error))?;
        Ok(images.iter().filter_map(Image::read).collect())
    }

    /// Forgets published parameters whose image is deprecated, so that the next look-up finds its successor.
    pub(crate) async fn invalidate_deprecated(&self, now: Timestamp) -> Result<(), AwsError> {
        let mut ids = BTreeSet::new();
        self.parameters.retain(|_, value| {
            ids.insert(value.clone());
            true
        });
        if ids.is_empty() {
            return Ok(());
        }
        let filters = vec![("image-id".to_owned(), ids.into_iter().collect())];
        let images = self.describe(&ImageQuery { filters, ..ImageQuery::default() }).await?;
        let deprecated: BTreeSet<String> =
            images.into_iter().filter(|image| image.is_deprecated(now)).map(|image| image.id).collect();
        self.parameters.retain(|_, value| !deprecated.contains(value));
        Ok(())
    }
}

impl Image {
    /// `None` for architectures no node has, and for images without a readable date.
    fn read(image: &aws_sdk_ec2::types::Image) -> Option<Self> {
        Some(Self {
            id: image.image_id()?.to_owned(),
            name: image.name().unwrap_or_default().to_owned(),
            created: image.creation_date()?.parse().ok()?,
            deprecated_at: image.deprecation_time().and_then(|time| time.parse().ok()),
            architecture: match image.architecture()? {
                ArchitectureValues::X8664 => labels::ARCH_AMD64,
                ArchitectureValues::Arm64 => labels::ARCH_ARM64,
                _ => return None,
            },
        })
    }

    fn is_deprecated(&self, now: Timestamp) -> bool {
        self.deprecated_at.is_some_and(|at| at < now)
    }
}

/// The look-up of a term by name or tags.
fn term_query(term: &AmiSelectorTerm) -> ImageQuery {
    let mut filters = Query::tagged(&term.tags).filters;
    let owners = match (&term.owner, &term.name) {
        (Some(owner), _) => vec![owner.clone()],
        (None, Some(_)) => vec!["self".to_owned(), "amazon".to_owned()],
        (None, None) => Vec::new(),
    };
    if let Some(name) = &term.name {
        filters.insert(0, ("name".to_owned(), vec![name.clone()]));
    }
    ImageQuery { filters, owners, variants: BTreeMap::new() }
}

/// What `AMIsReady` says of an alias of Amazon Linux 2 for a cluster too new for it.
const AL2_UNSUPPORTED: &str = "getting AMI queries, AL2 aliases are no longer supported on EKS 1.33+ \
                               (see https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions-standard.html#kubernetes-1-33)";

/// The parameters that publish an alias's images, with the variants each image serves.
fn alias_parameters(
    family: Option<AmiFamily>,
    version: &str,
    kubernetes: &str,
) -> Result<Vec<(String, Vec<Variant>)>, ImageError> {
    use Variant::{Neuron, Nvidia, Standard};
    let eks = format!("/aws/service/eks/optimized-ami/{kubernetes}");
    let release = |name: String| {
        if version == "latest" { "recommended".to_owned() } else { format!("{name}-{kubernetes}-{version}") }
    };
    match family {
        Some(AmiFamily::AL2) => {
            if minor(kubernetes) >= 33 {
                return Err(ImageError::Unsupported {
                    reason: "UnsupportedAlias",
                    message: AL2_UNSUPPORTED.to_owned(),
                });
            }
            let path = |directory: &str, name: &str| {
                format!("{eks}/{directory}/{}/image_id", release(format!("amazon-eks-{name}")))
            };
            Ok(vec![
                (path("amazon-linux-2", "node"), vec![Standard]),
                (path("amazon-linux-2-arm64", "arm64-node"), vec![Standard]),
                (path("amazon-linux-2-gpu", "gpu-node"), vec![Neuron, Nvidia]),
            ])
        }
        Some(AmiFamily::AL2023) => {
            let images = [
                ("x86_64", "standard", Standard),
                ("x86_64", "nvidia", Nvidia),
                ("x86_64", "neuron", Neuron),
                ("arm64", "standard", Standard),
                ("arm64", "nvidia", Nvidia),
            ];
            let path = |(architecture, name, variant): (&str, &str, Variant)| {
                let release = release(format!("amazon-eks-node-al2023-{architecture}-{name}"));
                (format!("{eks}/amazon-linux-2023/{architecture}/{name}/{release}/image_id"), vec![variant])
            };
            Ok(images.into_iter().map(path).collect())
        }
        Some(AmiFamily::Bottlerocket) => {
            let version = version.trim_start_matches('v');
            let path = |flavour: &str, architecture: &str| {
                format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{architecture}/{version}/image_id")
            };
            Ok(vec![
                (path("", "x86_64"), vec![Standard, Neuron]),
                (path("", "arm64"), vec![Standard]),
                (path("-nvidia", "x86_64"), vec![Nvidia]),
                (path("-nvidia", "arm64"), vec![Nvidia]),
            ])
        }
        other => Err(ImageError::Unsupported {
            reason: "UnsupportedAlias",
            message: match other {
                Some(family) => format!("{} is not supported by this controller", family.as_str()),
                None => "the alias names no known AMI family".to_owned(),
            },
        }),
    }
}

fn minor(kubernetes: &str) -> u32 {
    kubernetes.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

/// The requirements of an image, in the order of the status: by length of the key, then by key.
fn requirements(architecture: &str, variant: Option<Variant>) -> Vec<NodeSelectorRequirementWithMinValues> {
    let mut requirements = vec![NodeSelectorRequirementWithMinValues {
        key: labels::ARCH_LABEL.to_owned(),
        operator: Operator::In,
        values: vec![architecture.to_owned()],
        min_values: None,
    }];
    let of_variant = variant.map(Variant::requirements).unwrap_or_default();
    requirements.extend(of_variant.into_iter().map(|(key, operator)| NodeSelectorRequirementWithMinValues {
        key: key.to_owned(),
        operator,
        values: Vec::new(),
        min_values: None,
    }));
    requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    requirements
}

/// Keeps one image for each set of requirements: not deprecated before deprecated, then the newest, then the greater name.
fn choose(found: Vec<(Vec<NodeSelectorRequirementWithMinValues>, Image)>, now: Timestamp) -> Vec<Ami> {
    let rank = |image: &Image| (!image.is_deprecated(now), image.created, image.name.clone());
    let mut best: Vec<(Vec<NodeSelectorRequirementWithMinValues>, Image)> = Vec::new();
    for (requirements, image) in found {
        match best.iter_mut().find(|(known, _)| *known == requirements) {
            Some((_, leader)) if rank(&image) > rank(leader) => *leader = image,
            Some(_) => {}
            None => best.push((requirements, image)),
        }
    }
    best.sort_by(|(of_a, a), (of_b, b)| {
        let keys = |list: &[NodeSelectorRequirementWithMinValues]| format!("{list:?}");
        b.created.cmp(&a.created).then_with(|| a.id.cmp(&b.id)).then_with(|| keys(of_a).cmp(&keys(of_b)))
    });
    best.into_iter()
        .map(|(requirements, image)| Ami {
            deprecated: image.is_deprecated(now),
            id: image.id,
            name: image.name,
            requirements,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check_paths(alias: &str, kubernetes: &str, expected: Expect) {
        let (family, version) = alias.split_once('@').unwrap();
        let text = match alias_parameters(AmiFamily::from_alias(family), version, kubernetes) {
            Ok(paths) => paths.iter().map(|(path, variants)| format!("{path} {variants:?}\n")).collect(),
            Err(error) => format!("{error}\n"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn aliases_name_the_parameters_that_eks_publishes() {
        check_paths(
            "al2023@latest",
            "1.36",
            expect![[r#"
                /aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id [Standard]
                /aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id [Nvidia]
                /aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/image_id [Neuron]
                /aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id [Standard]
                /aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/nvidia/recommended/image_id [Nvidia]
            "#]],
        );
        check_paths(
            "al2@v20240110",
            "1.30",
            expect![[r#"
                /aws/service/eks/optimized-ami/1.30/amazon-linux-2/amazon-eks-node-1.30-v20240110/image_id [Standard]
                /aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/amazon-eks-arm64-node-1.30-v20240110/image_id [Standard]
                /aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/amazon-eks-gpu-node-1.30-v20240110/image_id [Neuron, Nvidia]
            "#]],
        );
        check_paths(
            "bottlerocket@v1.20.0",
            "1.36",
            expect![[r#"
                /aws/service/bottlerocket/aws-k8s-1.36/x86_64/1.20.0/image_id [Standard, Neuron]
                /aws/service/bottlerocket/aws-k8s-1.36/arm64/1.20.0/image_id [Standard]
                /aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.20.0/image_id [Nvidia]
                /aws/service/bottlerocket/aws-k8s-1.36-nvidia/arm64/1.20.0/image_id [Nvidia]
            "#]],
        );
        check_paths(
            "al2@latest",
            "1.33",
            expect![[r#"
                getting AMI queries, AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions-standard.html#kubernetes-1-33)
            "#]],
        );
    }

    fn image(id: &str, name: &str, created: &str, deprecated: Option<&str>, architecture: &'static str) -> Image {
        Image {
            id: id.to_owned(),
            name: name.to_owned(),
            created: created.parse().unwrap(),
            deprecated_at: deprecated.map(|time| time.parse().unwrap()),
            architecture,
        }
    }

    #[test]
    fn the_newest_image_that_is_not_deprecated_stands_for_each_architecture() {
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let images = [
            image("ami-1", "a", "2026-01-01T00:00:00Z", None, "amd64"),
            image("ami-2", "b", "2026-03-01T00:00:00.000Z", None, "amd64"),
            image("ami-3", "c", "2026-05-01T00:00:00Z", Some("2026-05-30T00:00:00Z"), "amd64"),
            image("ami-4", "d", "2026-02-01T00:00:00Z", Some("2026-05-30T00:00:00Z"), "arm64"),
            image("ami-5", "z", "2026-03-01T00:00:00Z", None, "amd64"),
        ];
        let found = images.into_iter().map(|image| (requirements(image.architecture, None), image)).collect();
        let chosen: Vec<_> = choose(found, now).into_iter().map(|ami| (ami.id, ami.deprecated)).collect();
        assert_eq!(chosen, [("ami-5".to_owned(), false), ("ami-4".to_owned(), true)]);
    }

    #[test]
    fn requirements_are_ordered_by_length_of_the_key() {
        let keys: Vec<String> = requirements("amd64", Some(Variant::Standard)).into_iter().map(|r| r.key).collect();
        assert_eq!(
            keys,
            [
                "kubernetes.io/arch",
                "karpenter.k8s.aws/instance-gpu-count",
                "karpenter.k8s.aws/instance-accelerator-count",
            ]
        );
    }

    #[test]
    fn names_are_looked_for_among_own_and_amazon_images_unless_an_owner_is_named() {
        let named = AmiSelectorTerm { name: Some("my-*".to_owned()), ..AmiSelectorTerm::default() };
        assert_eq!(term_query(&named).owners, ["self", "amazon"]);
        let owned = AmiSelectorTerm { owner: Some("123456789012".to_owned()), ..named };
        assert_eq!(term_query(&owned).owners, ["123456789012"]);
        let tagged = AmiSelectorTerm { tags: [("a".to_owned(), "*".to_owned())].into(), ..AmiSelectorTerm::default() };
        assert_eq!(term_query(&tagged).owners, [""; 0]);
        assert_eq!(term_query(&tagged).filters, [("tag-key".to_owned(), vec!["a".to_owned()])]);
    }
}
