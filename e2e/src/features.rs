//! Feature files as data: which scenarios there are, with their steps and tags, and which of them a run selects.

use gherkin::tagexpr::TagOperation;
use gherkin::{Feature, GherkinEnv};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One scenario, with the steps of its background before its own and its outline's examples filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// The feature's title.
    pub feature: String,
    /// The scenario's title.
    pub name: String,
    /// The feature file.
    pub path: PathBuf,
    /// The line of the scenario, or of its row of examples.
    pub line: usize,
    /// Tags of the feature and of the scenario, without the `@`.
    pub tags: Vec<String>,
    /// What is done and asked, in order.
    pub steps: Vec<Step>,
}

/// One line of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `Given`, `When`, `Then`, `And` or `But`, as written.
    pub keyword: String,
    /// The sentence.
    pub text: String,
    /// The line in the feature file.
    pub line: usize,
    /// The text block below the step, if there is one.
    pub docstring: Option<String>,
    /// The table below the step, row by row.
    pub table: Vec<Vec<String>>,
}

impl Scenario {
    /// Where the scenario stands, as editors accept it.
    pub fn location(&self) -> String {
        format!("{}:{}", self.path.display(), self.line)
    }

    /// The rows of the catalogue that the scenario restates: its tags that contain a dot.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(String::as_str).filter(|tag| tag.contains('.'))
    }
}

/// Why the features could not be read. Each names the file and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// The path is neither a file nor a folder.
    #[error("no feature file or folder at {0}; name an existing .feature file, or a folder that holds some")]
    NoSuchPath(PathBuf),
    /// A folder without a feature file.
    #[error("{0} holds no .feature file")]
    Empty(PathBuf),
    /// The file or folder could not be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is not Gherkin.
    #[error("{path}:{line}: not valid Gherkin: expected {expected}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line at which reading stopped.
        line: String,
        /// What would have been read there.
        expected: String,
    },
    /// The expression after `--tags` does not parse.
    #[error("--tags {0:?} is not a tag expression; write for instance \"@essential and not @slow\"")]
    TagExpression(String),
}

/// Reads every scenario of the named files and folders, in the order of their paths and lines. A path may end in `:LINE`
/// to name the scenario that stands there.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Scenario>, FeatureError> {
    let mut scenarios = Vec::new();
    for given in paths {
        let (path, line) = split_line(given);
        let before = scenarios.len();
        for file in feature_files(&path)? {
            scenarios.extend(scenarios_of(&file)?.into_iter().filter(|scenario| line.is_none_or(|l| scenario.line == l)));
        }
        if scenarios.len() == before {
            return Err(match line {
                Some(line) => FeatureError::NoSuchPath(format!("{}:{line} (no scenario starts at that line)", path.display()).into()),
                None => FeatureError::Empty(path),
            });
        }
    }
    Ok(scenarios)
}

fn split_line(path: &Path) -> (PathBuf, Option<usize>) {
    let text = path.to_string_lossy();
    match text.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse().ok()?))) {
        Some((path, line)) => (path.into(), Some(line)),
        None => (path.into(), None),
    }
}

fn feature_files(path: &Path) -> Result<Vec<PathBuf>, FeatureError> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !path.is_dir() {
        return Err(FeatureError::NoSuchPath(path.to_owned()));
    }
    let unreadable = |source| FeatureError::Unreadable { path: path.to_owned(), source };
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path).map_err(unreadable)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            files.extend(feature_files(&entry)?);
        } else if entry.extension().is_some_and(|extension| extension == "feature") {
            files.push(entry);
        }
    }
    Ok(files)
}

fn scenarios_of(path: &Path) -> Result<Vec<Scenario>, FeatureError> {
    let feature = Feature::parse_path(path, GherkinEnv::default()).map_err(|error| match error {
        gherkin::ParseFileError::Reading { path, source } => FeatureError::Unreadable { path, source },
        gherkin::ParseFileError::Parsing { path, source, .. } => {
            let text = source.to_string();
            let position = text.strip_prefix("Error at ").unwrap_or(&text);
            let mut parts = position.splitn(3, ':');
            let line = parts.next().unwrap_or_default().to_owned();
            let mut expected: Vec<&str> = parts.nth(1).unwrap_or_default().trim().trim_matches(['{', '}']).split(", ").collect();
            expected.sort_unstable();
            FeatureError::Syntax { path, line, expected: expected.join(", ") }
        }
    })?;
    let mut scenarios = Vec::new();
    let groups = std::iter::once((None, &feature.scenarios)).chain(feature.rules.iter().map(|rule| (Some(rule), &rule.scenarios)));
    for (rule, members) in groups {
        let backgrounds = [feature.background.as_ref(), rule.and_then(|rule| rule.background.as_ref())];
        let before: Vec<Step> = backgrounds.into_iter().flatten().flat_map(|background| background.steps.iter().map(step)).collect();
        for scenario in members {
            let tags = feature.tags.iter().chain(rule.iter().flat_map(|rule| &rule.tags)).chain(&scenario.tags).cloned();
            let whole = Scenario {
                feature: feature.name.clone(),
                name: scenario.name.clone(),
                path: path.to_owned(),
                line: scenario.position.line,
                tags: tags.collect(),
                steps: before.iter().cloned().chain(scenario.steps.iter().map(step)).collect(),
            };
            scenarios.extend(filled_in(whole, &scenario.examples));
        }
    }
    scenarios.sort_by_key(|scenario| scenario.line);
    Ok(scenarios)
}

fn step(step: &gherkin::Step) -> Step {
    Step {
        keyword: step.keyword.trim().to_owned(),
        text: step.value.clone(),
        line: step.position.line,
        docstring: step.docstring.clone(),
        table: step.table.as_ref().map(|table| table.rows.clone()).unwrap_or_default(),
    }
}

/// The scenario itself, or one for each row of examples of an outline.
fn filled_in(outline: Scenario, examples: &[gherkin::Examples]) -> Vec<Scenario> {
    if examples.is_empty() {
        return vec![outline];
    }
    let mut scenarios = Vec::new();
    for block in examples {
        let Some(table) = &block.table else { continue };
        let Some((header, rows)) = table.rows.split_first() else { continue };
        for (index, row) in rows.iter().enumerate() {
            let fill = |text: &str| {
                header.iter().zip(row).fold(text.to_owned(), |text, (key, value)| text.replace(&format!("<{key}>"), value))
            };
            let mut scenario = outline.clone();
            scenario.name = fill(&outline.name);
            scenario.line = table.position.line + 1 + index;
            scenario.tags.extend(block.tags.iter().cloned());
            for step in &mut scenario.steps {
                step.text = fill(&step.text);
                step.docstring = step.docstring.as_deref().map(fill);
                step.table.iter_mut().flatten().for_each(|cell| *cell = fill(cell));
            }
            scenarios.push(scenario);
        }
    }
    scenarios
}

/// Which scenarios a run is about.
#[derive(Debug, Default)]
pub struct Selection {
    tags: Option<TagOperation>,
    name: Option<String>,
}

impl Selection {
    /// Scenarios whose tags satisfy the expression and whose title contains the text, in any case of letters.
    pub fn new(tags: Option<&str>, name: Option<&str>) -> Result<Self, FeatureError> {
        let tags = tags
            .map(|expression| expression.parse::<TagOperation>().map_err(|_| FeatureError::TagExpression(expression.to_owned())))
            .transpose()?;
        Ok(Self { tags, name: name.map(str::to_lowercase) })
    }

    /// Whether the scenario is selected.
    pub fn selects(&self, scenario: &Scenario) -> bool {
        self.tags.as_ref().is_none_or(|expression| holds(expression, &scenario.tags))
            && self.name.as_ref().is_none_or(|text| scenario.name.to_lowercase().contains(text))
    }
}

fn holds(expression: &TagOperation, tags: &[String]) -> bool {
    match expression {
        TagOperation::And(a, b) => holds(a, tags) && holds(b, tags),
        TagOperation::Or(a, b) => holds(a, tags) || holds(b, tags),
        TagOperation::Not(a) => !holds(a, tags),
        TagOperation::Tag(tag) => tags.iter().any(|t| t == tag.trim_start_matches('@')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Scenario> {
        let folder = tempdir();
        let path = folder.join("x.feature");
        std::fs::write(&path, text).unwrap();
        let scenarios = load(std::slice::from_ref(&path)).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        scenarios
    }

    fn tempdir() -> PathBuf {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join(format!("features-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    const OUTLINE: &str = "@a\nFeature: F\n  Background:\n    Given a cluster\n\n  @b.row-1\n  Scenario Outline: Pods of <size>\n    When <size> pods come\n\n    Examples:\n      | size |\n      | 1 |\n      | 2 |\n";

    #[test]
    fn an_outline_becomes_one_scenario_per_row_with_the_background_first() {
        let scenarios = parse(OUTLINE);
        assert_eq!(scenarios.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["Pods of 1", "Pods of 2"]);
        assert_eq!(scenarios[1].steps.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(), ["a cluster", "2 pods come"]);
        assert_eq!(scenarios[1].tags, ["a", "b.row-1"]);
        assert_eq!(scenarios[1].rows().collect::<Vec<_>>(), ["b.row-1"]);
        assert_eq!((scenarios[0].line, scenarios[1].line), (12, 13));
    }

    #[test]
    fn tags_and_names_select() {
        let scenarios = parse(OUTLINE);
        let count = |tags, name| scenarios.iter().filter(|s| Selection::new(tags, name).unwrap().selects(s)).count();
        assert_eq!(count(Some("@a and not @c"), None), 2);
        assert_eq!(count(Some("@b.row-1"), None), 2);
        assert_eq!(count(Some("not @a"), None), 0);
        assert_eq!(count(None, Some("PODS OF 2")), 1);
        assert!(matches!(Selection::new(Some("@a and"), None), Err(FeatureError::TagExpression(_))));
    }

    #[test]
    fn a_missing_path_is_named() {
        let error = load(&["nowhere/at/all".into()]).unwrap_err();
        assert!(error.to_string().contains("nowhere/at/all"), "{error}");
    }

    #[test]
    fn bad_gherkin_names_file_and_line() {
        let folder = tempdir();
        let path = folder.join("bad.feature");
        std::fs::write(&path, "Feature: F\n  Scenario: S\n    Whatever this is\n").unwrap();
        let error = load(std::slice::from_ref(&path)).unwrap_err();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(matches!(&error, FeatureError::Syntax { line, .. } if line == "3"), "{error}");
    }
}
