//! The images that AWS publishes, and the public SSM parameters that name them.
//!
//! // fidelity: assumed: AMI ids, release dates and the set of releases are invented; names, owners and parameter paths
//! follow the EKS and Bottlerocket documentation.

use super::{Image, Images};
use crate::cloud::ids::digits;
use jiff::Timestamp;

/// The account that publishes EKS images in most regions.
const EKS_IMAGES: &str = "602401143452";
const BOTTLEROCKET_IMAGES: &str = "092701018921";
const WINDOWS_IMAGES: &str = "801119661308";

/// The releases published before the virtual epoch: Amazon Linux date, Bottlerocket version, day of publication.
const RELEASES: [(&str, &str, &str); 2] =
    [("20251120", "1.50.0", "2025-11-20T00:00:00Z"), ("20251217", "1.52.0", "2025-12-17T00:00:00Z")];

/// What one release of one family publishes.
struct Publication {
    name: String,
    /// Parameter paths: of this release, and of the newest.
    paths: [String; 2],
    architecture: &'static str,
    owner: &'static str,
    platform: Option<&'static str>,
    root_device: &'static str,
}

impl Publication {
    fn linux(name: String, paths: [String; 2], architecture: &'static str, owner: &'static str) -> Self {
        Self { name, paths, architecture, owner, platform: None, root_device: "/dev/xvda" }
    }
}

impl Images {
    /// The world's images for this Kubernetes minor and the six before it.
    pub(crate) fn published(seed: u64, kubernetes_version: &str) -> Self {
        let mut images = Self::default();
        let newest: u32 = kubernetes_version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(36);
        for minor in newest.saturating_sub(6)..=newest {
            for (linux, bottlerocket, day) in RELEASES {
                let at = day.parse().unwrap_or(Timestamp::UNIX_EPOCH);
                images.release(seed, &format!("1.{minor}"), linux, bottlerocket, at);
            }
        }
        images
    }

    /// Publishes a release of every family for one Kubernetes minor; the "recommended" and "latest" parameters follow.
    pub(crate) fn release(&mut self, seed: u64, kubernetes: &str, linux: &str, bottlerocket: &str, at: Timestamp) {
        for publication in publications(kubernetes, linux, bottlerocket) {
            let id = format!("ami-{}", digits(seed, &["image", &publication.name]));
            let snapshot = format!("snap-{}", digits(seed, &["snapshot", &publication.name]));
            let image = Image {
                id: id.clone(),
                description: format!("{} (invented)", publication.name),
                architecture: publication.architecture.into(),
                owner_alias: Some("amazon".into()),
                // fidelity: documented(EC2 User Guide: public images are deprecated two years after creation by default)
                deprecated_at: at.checked_add(jiff::SignedDuration::from_hours(2 * 365 * 24)).ok(),
                platform: publication.platform.map(Into::into),
                root_device: publication.root_device.into(),
                block_devices: vec![Image::root(publication.root_device, Some(snapshot))],
                state: "available".into(),
                public: true,
                ..Image::new(publication.name, publication.owner, at)
            };
            self.images.insert(id.clone(), image);
            for path in publication.paths {
                self.set_parameter(&path, &id, at);
            }
        }
    }
}

// fidelity: documented(EKS User Guide, Retrieve recommended AMI IDs; Bottlerocket and Windows pages beside it)
fn publications(kubernetes: &str, linux: &str, bottlerocket: &str) -> Vec<Publication> {
    let mut all = Vec::new();
    let release = format!("v{linux}");
    let root = format!("/aws/service/eks/optimized-ami/{kubernetes}");
    for (architecture, variant) in
        [("x86_64", "standard"), ("x86_64", "nvidia"), ("x86_64", "neuron"), ("arm64", "standard"), ("arm64", "nvidia")]
    {
        let name = format!("amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{release}");
        let path = |last: &str| format!("{root}/amazon-linux-2023/{architecture}/{variant}/{last}/image_id");
        let paths = [path(&name), path("recommended")];
        all.push(Publication::linux(name, paths, architecture, EKS_IMAGES));
    }
    // fidelity: documented(EKS User Guide, AL2 end of support: 1.32 is the last version with AL2 images)
    if kubernetes.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor <= 32) {
        for (prefix, directory, architecture) in [
            ("amazon-eks-node", "amazon-linux-2", "x86_64"),
            ("amazon-eks-arm64-node", "amazon-linux-2-arm64", "arm64"),
            ("amazon-eks-gpu-node", "amazon-linux-2-gpu", "x86_64"),
        ] {
            let name = format!("{prefix}-{kubernetes}-{release}");
            let path = |last: &str| format!("{root}/{directory}/{last}/image_id");
            let paths = [path(&name), path("recommended")];
            all.push(Publication::linux(name, paths, architecture, EKS_IMAGES));
        }
    }
    for variant in ["", "-nvidia"] {
        for architecture in ["x86_64", "arm64"] {
            let arch_in_name = if architecture == "arm64" { "aarch64" } else { architecture };
            let name = format!("bottlerocket-aws-k8s-{kubernetes}{variant}-{arch_in_name}-v{bottlerocket}-00000000");
            let path = |last: &str| {
                format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{variant}/{architecture}/{last}/image_id")
            };
            let paths = [path(bottlerocket), path("latest")];
            all.push(Publication::linux(name, paths, architecture, BOTTLEROCKET_IMAGES));
        }
    }
    for year in ["2019", "2022", "2025"] {
        let product = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}");
        let path = format!("/aws/service/ami-windows-latest/{product}/image_id");
        let (dotted, paths) = (format!("{}.{}.{}", &linux[..4], &linux[4..6], &linux[6..]), [path.clone(), path]);
        let (architecture, owner, platform) = ("x86_64", WINDOWS_IMAGES, Some("windows"));
        all.push(Publication {
            name: format!("{product}-{dotted}"),
            paths,
            architecture,
            owner,
            platform,
            root_device: "/dev/sda1",
        });
    }
    all
}
