//! Every mark of fidelity in the source is one a report can be made of.

use std::path::Path;

fn marks(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            marks(&entry.path(), found);
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            let marked =
                text.lines().filter_map(|line| line.split_once("// fidelity: ").map(|(_, mark)| mark.to_owned()));
            found.extend(marked.map(|mark| (entry.path().display().to_string(), mark)));
        }
    }
}

#[test]
fn marks_say_documented_observed_or_assumed() {
    let mut found = Vec::new();
    marks(Path::new("src"), &mut found);
    assert!(found.len() > 40, "only {} marks", found.len());
    for (file, mark) in found {
        let known = ["documented(", "documented:", "observed(", "assumed:"].iter().any(|kind| mark.starts_with(kind));
        assert!(known, "{file}: {mark}");
    }
}
