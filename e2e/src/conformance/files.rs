//! The folder of a conformance report: its files, and the runs that it is made of, so that it is whole wherever it is taken.

use super::{Document, badge, junit, markdown, page};
use crate::report;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// The document.
pub(crate) const DOCUMENT: &str = "conformance.json";
const PAGE: &str = "conformance.html";
const MARKDOWN: &str = "conformance.md";
const JUNIT: &str = "junit.xml";
const BADGE: &str = "badge.svg";

/// The folder of the runs.
const RUNS: &str = "runs";

/// Makes the folder and tries to write there, so that long runs do not end without their report. An earlier report goes.
pub(crate) fn prepare(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for name in [DOCUMENT, PAGE, MARKDOWN, JUNIT, BADGE] {
        let file = folder.join(name);
        std::fs::File::create(&file)
            .and_then(|_| std::fs::remove_file(&file))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Writes every file.
pub(crate) fn write(folder: &Path, document: &Document) -> anyhow::Result<()> {
    let base = base(folder);
    save(folder, DOCUMENT, serde_json::to_string_pretty(document)? + "\n")?;
    save(folder, PAGE, page::render(document, &base))?;
    save(folder, MARKDOWN, markdown::render(document, &base))?;
    save(folder, JUNIT, junit::render(document))?;
    let mut names: Vec<String> = Vec::new();
    for (index, column) in document.columns.iter().enumerate() {
        // Programs in different folders may have the same name.
        let twins = names.iter().filter(|name| **name == column.slug()).count();
        let number = if twins > 0 { format!("-{}", twins + 1) } else { String::new() };
        names.push(column.slug());
        let drawn = badge::render(column, document.rows.len());
        if index == 0 {
            save(folder, BADGE, drawn.clone())?;
        }
        save(folder, &format!("badge-{}{number}.svg", column.slug()), drawn)?;
    }
    Ok(())
}

/// Where the page is.
pub(crate) fn page(folder: &Path) -> PathBuf {
    folder.join(PAGE)
}

fn save(folder: &Path, name: &str, content: String) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// What leads from a file in the folder to the root of the repository: within a checkout a relative path, elsewhere its
/// address.
fn base(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let above = absolute.ancestors().position(|above| above.join(super::differences::PAGE).is_file());
    above.map_or_else(|| format!("{}/blob/main/", env!("CARGO_PKG_REPOSITORY")), |depth| "../".repeat(depth))
}

/// Chooses a folder for a run beside the report that no other run has, as a path from there.
pub(crate) fn folder_for_run(slug: &str, taken: &mut Vec<String>) -> String {
    let names = std::iter::once(slug.to_owned()).chain((2..).map(|number| format!("{slug}-{number}")));
    let mut paths = names.map(|name| format!("{RUNS}/{name}"));
    let path = paths.find(|path| !taken.contains(path)).expect("there are numbers enough");
    taken.push(path.clone());
    path
}

/// The path of a run's folder from the report's, if it lies in it.
pub(crate) fn inside(folder: &Path, run: &Path) -> Option<String> {
    let (folder, run) = (folder.canonicalize().ok()?, run.canonicalize().ok()?);
    let path = run.strip_prefix(folder).ok()?.to_str()?;
    (!path.is_empty()).then(|| path.to_owned())
}

/// Copies a run's files into a folder beside the report: links into someone else's folder break when either is moved.
pub(crate) fn copy_run(from: &Path, to: &Path) -> anyhow::Result<()> {
    report::prepare(to)?;
    let about = |path: &Path| format!("cannot copy {} to {}", path.display(), to.display());
    for name in ["report.json", report::PAGE, "junit.xml"] {
        let file = from.join(name);
        if file.is_file() {
            std::fs::copy(&file, to.join(name)).with_context(|| about(&file))?;
        }
    }
    for folder in [report::journals, report::logs] {
        let folder_from = folder(from);
        if folder_from.is_dir() {
            copy_folder(&folder_from, &folder(to)).with_context(|| about(&folder_from))?;
        }
    }
    Ok(())
}

/// The scenarios whose processes left logs in a run's folder, by their number.
pub(crate) fn logged(run: &Path) -> std::collections::BTreeSet<usize> {
    let entries = std::fs::read_dir(report::logs(run)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Copies files and the folders in which they lie; links are followed nowhere.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_column_do_not_share_a_folder() {
        let mut taken = vec!["runs/ours-embedded".to_owned()];
        assert_eq!(folder_for_run("ours-embedded", &mut taken), "runs/ours-embedded-2");
        assert_eq!(folder_for_run("ours-embedded", &mut taken), "runs/ours-embedded-3");
        assert_eq!(folder_for_run("upstream-embedded", &mut taken), "runs/upstream-embedded");
    }
}
