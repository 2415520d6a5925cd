//! Ctrl-C and SIGTERM in the middle of a run: says how far it was and leaves nothing behind. The scenarios' processes end
//! with their standard input, that is with this process, also where it is killed without a word.

use super::tell;
use super::test::Shown;
use anyhow::Context;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::signal::unix::{SignalKind, signal};

/// Watches for signals in a thread of its own until the program ends.
pub(super) fn watch(progress: Arc<Shown>, temporary: Option<PathBuf>) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot watch for signals")?;
    let entered = runtime.enter();
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    drop(entered);
    std::thread::spawn(move || {
        // As shells name the end by a signal: 128 and its number.
        let code = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupted.recv() => 130,
                _ = terminated.recv() => 143,
            }
        });
        progress.lines.store(false, Ordering::Relaxed);
        progress.bar.finish_and_clear();
        tell(&format!(
            "trysquare: interrupted after {} of {} scenarios",
            progress.ended.load(Ordering::Relaxed),
            progress.scenarios
        ));
        crate::kind::delete_all();
        if let Some(folder) = temporary {
            remove(&folder);
        }
        std::process::exit(code);
    });
    Ok(())
}

/// Removes a folder into which processes may be just about to write: a file that appears between the removal of the
/// others and of the folder keeps the folder. Each of at most 256 jobs can do so once.
fn remove(folder: &Path) {
    for _ in 0..256 {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}
