//! Finds the genuine programs: where a variable says, in `KUBEBUILDER_ASSETS`, in the cache that `make tools` fills, or, those
//! that people install for themselves, in `PATH`.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

/// The versions that `make tools` builds, one `NAME=VERSION` a line.
const VERSIONS: &str = include_str!("../../tools/versions");

/// A genuine program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The API server of Kubernetes.
    KubeApiserver,
    /// The controllers of Kubernetes.
    KubeControllerManager,
    /// The scheduler of Kubernetes.
    KubeScheduler,
    /// The store of the API server.
    Etcd,
    /// Upstream's controller.
    Karpenter,
    /// What installs charts.
    Helm,
    /// What makes clusters of containers.
    Kind,
}

impl Tool {
    /// Its name, as it is called on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Etcd => "etcd",
            Self::Karpenter => "karpenter",
            Self::Helm => "helm",
            Self::Kind => "kind",
        }
    }

    /// The version that `make tools` builds.
    pub fn version(self) -> &'static str {
        let key = match self {
            Self::KubeApiserver | Self::KubeControllerManager | Self::KubeScheduler => "KUBERNETES=",
            Self::Etcd => "ETCD=",
            Self::Karpenter => "KARPENTER=",
            Self::Helm => "HELM=",
            Self::Kind => "KIND=",
        };
        VERSIONS.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim()
    }

    /// Whether any version of it serves: it is a tool, not what something is compared with.
    fn is_installed_by_people(self) -> bool {
        matches!(self, Self::Helm | Self::Kind)
    }

    /// The variable that names its path, as the test environments of controller-runtime have it.
    fn variable(self) -> String {
        format!("TEST_ASSET_{}", self.name().replace('-', "_").to_uppercase())
    }

    /// Finds it.
    ///
    /// # Errors
    /// Where it is nowhere, and where a variable names something that is not there.
    pub fn find(self) -> Result<PathBuf, Missing> {
        self.find_in(&variable)
    }

    fn find_in(self, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Missing> {
        if let Some(path) = variable(&self.variable()) {
            return if path.is_file() {
                Ok(path)
            } else {
                Err(Missing { tools: vec![self], named: Some((self.variable(), path)) })
            };
        }
        let assets = variable("KUBEBUILDER_ASSETS").map(|folder| folder.join(self.name()));
        let built =
            cache(variable).map(|folder| folder.join("tools").join(format!("{}-{}", self.name(), self.version())));
        let installed = variable("PATH").filter(|_| self.is_installed_by_people());
        let installed = installed.iter().flat_map(env::split_paths).map(|folder| folder.join(self.name()));
        let found = assets.into_iter().chain(built).chain(installed).find(|path| path.is_file());
        found.ok_or(Missing { tools: vec![self], named: None })
    }
}

/// What is kept from one run to the next on this machine.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    cache(&variable)
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|value| !value.as_os_str().is_empty())
}

fn cache(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("trysquare"))
}

/// The folder of the CRDs that belong to a program of upstream's controller.
pub fn upstream_crds(controller: &Path) -> PathBuf {
    let mut name = controller.as_os_str().to_owned();
    name.push("-crds");
    name.into()
}

/// Finds several, and names all that are missing at once.
///
/// # Errors
/// Where any is missing.
pub fn find_all<const N: usize>(tools: [Tool; N]) -> Result<[PathBuf; N], Missing> {
    let mut missing = Missing { tools: Vec::new(), named: None };
    let found = tools.map(|tool| {
        tool.find().unwrap_or_else(|error| {
            missing.tools.extend(error.tools);
            missing.named = missing.named.take().or(error.named);
            PathBuf::new()
        })
    });
    if missing.tools.is_empty() { Ok(found) } else { Err(missing) }
}

/// Programs that are not there.
#[derive(Debug)]
pub struct Missing {
    tools: Vec<Tool>,
    /// A variable that names a path at which there is nothing.
    named: Option<(String, PathBuf)>,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((variable, path)) = &self.named {
            return write!(formatter, "{variable} is {}, where there is no file", path.display());
        }
        let names: Vec<String> = self.tools.iter().map(|tool| format!("{} {}", tool.name(), tool.version())).collect();
        write!(
            formatter,
            "{} missing: `make tools` builds what is missing (needs Go), or name a folder that holds it in KUBEBUILDER_ASSETS",
            names.join(", ") + if names.len() == 1 { " is" } else { " are" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_version() {
        let tools = [
            Tool::KubeApiserver,
            Tool::KubeControllerManager,
            Tool::KubeScheduler,
            Tool::Etcd,
            Tool::Karpenter,
            Tool::Helm,
            Tool::Kind,
        ];
        for tool in tools {
            assert!(tool.version().starts_with('v'), "{tool:?}");
        }
    }

    #[test]
    fn what_the_fakes_say_they_are_is_what_they_are_compared_with() {
        assert_eq!(crate::account::KUBERNETES_VERSION, Tool::KubeApiserver.version());
    }

    #[test]
    fn a_variable_that_names_nothing_is_told_and_not_passed_over() {
        let variable = |name: &str| (name == "TEST_ASSET_ETCD").then(|| PathBuf::from("/nowhere/etcd"));
        let error = Tool::Etcd.find_in(&variable).unwrap_err().to_string();
        assert_eq!(error, "TEST_ASSET_ETCD is /nowhere/etcd, where there is no file");
    }

    #[test]
    fn what_is_missing_is_named_with_the_way_to_get_it() {
        let error = Tool::Etcd.find_in(&|_| None).unwrap_err().to_string();
        assert!(
            error.starts_with("etcd v3.") && error.contains("is missing") && error.contains("make tools"),
            "{error}"
        );
    }

    #[test]
    fn kubebuilders_folder_comes_before_the_cache() {
        let folder = std::env::temp_dir().join(format!("trysquare-tools-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("etcd"), "").unwrap();
        let variable = |name: &str| (name == "KUBEBUILDER_ASSETS").then(|| folder.clone());
        let found = Tool::Etcd.find_in(&variable).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, folder.join("etcd"));
    }
}
