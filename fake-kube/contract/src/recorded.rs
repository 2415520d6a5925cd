//! What a genuine server answered, kept beside the sequences: one line a step. So fake-kube is held to it where there is no
//! genuine server.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sequence::Sequence;

fn path(folder: &Path, sequence: &Sequence) -> PathBuf {
    folder.join(format!("{}.jsonl", sequence.name))
}

/// Keeps a masked transcript.
pub fn write(folder: &Path, sequence: &Sequence, transcript: &[Value]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let lines: Vec<String> = transcript.iter().map(|record| format!("{record}\n")).collect();
    std::fs::write(path(folder, sequence), lines.concat())
}

/// The transcript that was kept, if one was.
pub fn read(folder: &Path, sequence: &Sequence) -> std::io::Result<Option<Vec<Value>>> {
    match std::fs::read_to_string(path(folder, sequence)) {
        Ok(text) => Ok(Some(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
