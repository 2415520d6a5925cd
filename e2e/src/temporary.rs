//! Folders that go with the process that made them. What a killed process left behind goes with the next one.

use anyhow::Context;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What their names begin with, before the number of the process.
const PREFIX: &str = "trysquare-";

/// A folder that nobody else may read and that goes with its owner.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes one.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let base = std::env::temp_dir();
        sweep(&base);
        for attempt in 0.. {
            let path = base.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    return made
                        .map(|()| Self(path.clone()))
                        .with_context(|| format!("cannot make the folder {}", path.display()));
                }
            }
        }
        unreachable!("some number is free")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of processes that do not live any more.
fn sweep(base: &Path) {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        let process = name.and_then(|rest| rest.split_once('-')).and_then(|(process, _)| process.parse::<i32>().ok());
        if process.and_then(rustix::process::Pid::from_raw).is_some_and(is_dead) {
            // Somebody else's stays.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn is_dead(process: rustix::process::Pid) -> bool {
    rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_a_living_one_has_stays() {
        let base = std::env::temp_dir().join(format!("sweep-test-{}", std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = base.join(format!("{PREFIX}{}-0", child.id()));
        child.wait().unwrap();
        let alive = base.join(format!("{PREFIX}{}-0", std::process::id()));
        let other = base.join("trysquare-notes");
        for folder in [&dead, &alive, &other] {
            std::fs::create_dir_all(folder).unwrap();
        }
        sweep(&base);
        let left = [dead.exists(), alive.exists(), other.exists()];
        std::fs::remove_dir_all(&base).unwrap();
        assert_eq!(left, [false, true, true]);
    }
}
