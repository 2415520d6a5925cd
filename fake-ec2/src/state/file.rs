//! The account in a file: read at the start, written a little after each change and at the end.
//!
//! A write goes to a temporary file in the same folder, is flushed to the disk and then takes the old one's name, so that the
//! file is always whole. A file that is not a state is refused and left as it is.

use super::{Snapshot, StateError};
use crate::cloud::catalogue::Catalogue;
use crate::config::Config;
use crate::server::FakeEc2;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// From a change to its write: what a client does in one go is written once.
const DELAY: Duration = Duration::from_millis(200);

/// From a write that failed to the next try.
const RETRY: Duration = Duration::from_secs(2);

/// A file that holds one account.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// What was in it; taken once.
    saved: Option<Box<Snapshot>>,
    /// Held for as long as this value lives, so that two programs do not write over each other.
    _lock: File,
}

impl StateFile {
    /// Reads the file, which need not be there yet.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StateError> {
        let path = path.into();
        let in_file = |error: &dyn std::fmt::Display| StateError(format!("{}: {error}", path.display()));
        let lock = beside(&path, ".lock").and_then(File::create).map_err(|error| in_file(&error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_file(&"another fake-ec2 keeps its state there")),
            Err(TryLockError::Error(error)) => return Err(in_file(&error)),
        }
        let saved = match fs::read(&path) {
            Ok(json) => Some(Box::new(Snapshot::read(&json).map_err(|error| {
                in_file(&format!("{error}; the file is left as it is: move it away, or name another one"))
            })?)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(in_file(&error)),
        };
        Ok(Self { path, saved, _lock: lock })
    }

    /// How the account in it was set up, if there is one. Its region, account and seed are what it goes on with.
    pub fn config(&self) -> Option<&Config> {
        self.saved.as_ref().map(|saved| &saved.cloud.config)
    }

    /// Puts the saved account in the place of this one; how it behaves from now on is for this one's configuration to say.
    /// Answers whether there was one.
    pub fn load(&mut self, ec2: &FakeEc2) -> bool {
        let Some(mut saved) = self.saved.take() else { return false };
        let config = &mut saved.cloud.config;
        let Config { region, account, seed, .. } = config.clone();
        *config = Config { region, account, seed, ..ec2.inner.config.clone() };
        saved.cloud.catalogue = Catalogue::new(&config.region, &config.families);
        ec2.restore(*saved);
        true
    }

    /// Writes the account as it is now.
    pub fn save(&self, ec2: &FakeEc2) -> io::Result<()> {
        write(&self.path, &Snapshot::of(ec2).to_json())
    }

    /// Writes the account after each change, until dropped.
    pub async fn keep(&self, ec2: &FakeEc2) {
        loop {
            ec2.inner.unsaved.notified().await;
            tokio::time::sleep(DELAY).await;
            while let Err(error) = self.save_apart(ec2).await {
                tracing::error!(file = %self.path.display(), %error, "the state could not be written; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Where it keeps nobody waiting.
    #[allow(clippy::disallowed_methods)] // Files are written in real time alone.
    async fn save_apart(&self, ec2: &FakeEc2) -> io::Result<()> {
        let (path, snapshot) = (self.path.clone(), Snapshot::of(ec2));
        let written = tokio::task::spawn_blocking(move || write(&path, &snapshot.to_json())).await;
        written.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn write(path: &Path, json: &[u8]) -> io::Result<()> {
    let temporary = beside(path, ".new")?;
    let mut file = File::create(&temporary)?;
    file.write_all(json)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The new name, too, is to survive a loss of power.
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file of the same folder: a hidden one of the same name and an ending.
fn beside(path: &Path, ending: &str) -> io::Result<PathBuf> {
    let name =
        path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "this is not the name of a file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(ending);
    Ok(folder(path).join(hidden))
}
