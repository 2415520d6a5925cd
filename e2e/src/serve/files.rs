//! What a shell is told: a kubeconfig, and variables to paste.

use super::Options;
use anyhow::{Context, bail};
use base64::Engine;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The first line of a file of variables, before the number of the process.
const MARK: &str = "# trysquare serve, process ";

/// What kubeconfigs of servers hold, with fake-kube and with a genuine control plane.
const KUBECONFIG_MARKS: [&str; 2] = ["\"current-context\": \"fake-kube\"", "\"current-context\": \"trysquare\""];

/// Where everything is, once it is served.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoints {
    /// The API server's URL.
    pub kube_url: String,
    /// The kubeconfig that leads to it.
    pub kubeconfig: PathBuf,
    /// The URL of EC2, SQS and the others.
    pub aws_url: String,
    /// The AWS region.
    pub region: String,
    /// The controller's metrics, if it runs.
    pub metrics_url: Option<String>,
    /// The folder of the logs of the controller's pods, where they run.
    pub pod_logs: Option<PathBuf>,
}

impl Endpoints {
    /// Lines for a POSIX shell. The credentials are placeholders: fake-ec2 takes any for the administrator's.
    pub fn exports(&self) -> String {
        let kubeconfig = self.kubeconfig.display().to_string();
        let variables = [
            ("KUBECONFIG", kubeconfig.as_str()),
            ("AWS_ENDPOINT_URL", &self.aws_url),
            ("AWS_REGION", &self.region),
            // The one that boto3 and the AWS CLI read.
            ("AWS_DEFAULT_REGION", &self.region),
            ("AWS_ACCESS_KEY_ID", "trysquare"),
            ("AWS_SECRET_ACCESS_KEY", "trysquare"),
        ];
        let logs = self.pod_logs.as_ref().map(|folder| ("TRYSQUARE_POD_LOGS", folder.display().to_string()));
        let variables = variables.into_iter().chain(logs.as_ref().map(|(name, folder)| (*name, folder.as_str())));
        variables.map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect()
    }
}

/// A word as a POSIX shell reads it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(super) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The files of a running server. They go with it.
pub(super) struct Files {
    endpoints: Endpoints,
    written: Vec<(PathBuf, String)>,
}

impl Files {
    pub(super) fn write(
        options: &Options,
        mut endpoints: Endpoints,
        kubeconfig: &str,
        port: u16,
    ) -> anyhow::Result<Self> {
        let path = match &options.kubeconfig {
            Some(path) => std::path::absolute(path)?,
            None => own_folder()?.join(format!("kubeconfig-{port}")),
        };
        endpoints.kubeconfig = path.clone();
        let mut files = Self { endpoints, written: Vec::new() };
        files.put(&path, kubeconfig, &KUBECONFIG_MARKS)?;
        if let Some(path) = &options.environment_file {
            let exports = format!("{MARK}{}\n{}", std::process::id(), files.endpoints.exports());
            files.put(path, &exports, &[MARK])?;
        }
        Ok(files)
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Writes a file that goes at the end. One that is there already is only replaced if it carries the mark of those that a
    /// server wrote which could not remove them.
    fn put(&mut self, path: &Path, content: &str, marks: &[&str]) -> anyhow::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            let there = fs::read_to_string(path).unwrap_or_default();
            if !marks.iter().any(|mark| there.contains(mark)) {
                bail!(
                    "{} is there already, and would be removed at the end; name a file that is not there",
                    path.display()
                );
            }
            let owner = there.lines().next().and_then(|line| line.strip_prefix(MARK));
            if let Some(owner) = owner.filter(|owner| Path::new("/proc").join(owner).exists()) {
                bail!("{} belongs to the server of process {owner}, which runs; name another file", path.display());
            }
        }
        let failed = || format!("cannot write {}", path.display());
        let name = path.file_name().with_context(failed)?.to_string_lossy();
        // Complete at once, as scripts wait for it to appear; readable by its owner alone, as kubectl wants a kubeconfig.
        let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
        let written =
            file.and_then(|mut file| file.write_all(content.as_bytes())).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written.with_context(failed)?;
        self.written.push((path.to_owned(), content.to_owned()));
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for (path, content) in &self.written {
            // Not one that somebody has put in its place.
            if fs::read_to_string(path).is_ok_and(|there| there == *content) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The folder of this user's running servers.
fn own_folder() -> anyhow::Result<PathBuf> {
    #[allow(clippy::disallowed_methods)] // The program's own start, not a decision.
    let of = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let folder =
        cache.context("neither HOME nor XDG_CACHE_HOME is set; give --kubeconfig FILE")?.join("trysquare/serve");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make the folder {}; give --kubeconfig FILE", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_and_quotes_survives_the_shell() {
        assert_eq!(quoted("/home/a/k"), "/home/a/k");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
