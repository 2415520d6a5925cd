//! Feature files as data: which scenarios there are, with their steps and tags, and which of them a run selects.

use gherkin::tagexpr::TagOperation;
use gherkin::{Feature, GherkinEnv};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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
    /// A file without a scenario.
    #[error("{0} holds no scenario")]
    NoScenario(PathBuf),
    /// A file of another kind.
    #[error("{0} is not a .feature file")]
    OtherFile(PathBuf),
    /// A path that the report could not name.
    #[error("the name of {0:?} is not UTF-8")]
    Name(PathBuf),
    /// A line that begins no scenario.
    #[error("{path}:{line}: no scenario starts at this line; the nearest starts at line {nearest}")]
    NoScenarioAt {
        /// The file.
        path: PathBuf,
        /// The line that was asked for.
        line: usize,
        /// The line of the scenario nearest to it.
        nearest: usize,
    },
    /// A line number after a folder.
    #[error("{0}: a line can be named of a file only, and this is a folder")]
    LineOfFolder(String),
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
    #[error("{path}:{line}: not valid Gherkin: {problem}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line at which reading stopped.
        line: usize,
        /// What is wrong there, and what would be right.
        problem: String,
    },
    /// A scenario that shows nothing: a misspelt keyword turns its steps into a description.
    #[error(
        "{location}: scenario {name:?} has no steps (a step begins with Given, When, Then, And or But){}",
        .description.as_ref().map(|text| format!("; {text:?} is read as a description")).unwrap_or_default()
    )]
    NoSteps {
        /// File and line.
        location: String,
        /// The scenario's title.
        name: String,
        /// The first line below its title.
        description: Option<String>,
    },
    /// An outline that stands for no scenario.
    #[error("{location}: the outline {name:?} has no row of examples")]
    NoExamples {
        /// File and line.
        location: String,
        /// The outline's title.
        name: String,
    },
    /// A placeholder that no column fills.
    #[error("{location}: <{placeholder}> is no column of the examples, which are: {columns}")]
    Placeholder {
        /// File and line.
        location: String,
        /// The name between the angle brackets.
        placeholder: String,
        /// The columns there are.
        columns: String,
    },
    /// The expression after `--tags` does not parse.
    #[error("--tags {0:?} is not a tag expression; write for instance \"@essential and not @slow\"")]
    TagExpression(String),
}

/// Reads every scenario of the named files and folders, once each, in the order of their paths and lines. A path may end
/// in `:LINE` to name the scenario, or the outline, that stands there.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Scenario>, FeatureError> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut taken = BTreeSet::new();
    for given in paths {
        let (path, line) = split_line(given);
        if line.is_some() && path.is_dir() {
            return Err(FeatureError::LineOfFolder(given.display().to_string()));
        }
        let files = feature_files(&path, &mut BTreeSet::new())?;
        if files.is_empty() {
            return Err(FeatureError::Empty(path));
        }
        let mut found = Vec::new();
        for file in files {
            let file_id = canonical(&file);
            found.extend(scenarios_of(&file)?.into_iter().map(|placed| (file_id.clone(), placed)));
        }
        let Some((_, first)) = found.first() else { return Err(FeatureError::NoScenario(path)) };
        if let Some(line) = line {
            let nearest = found.iter().map(|(_, placed)| placed.scenario.line).min_by_key(|other| other.abs_diff(line));
            let nearest = nearest.unwrap_or(first.scenario.line);
            found.retain(|(_, placed)| placed.scenario.line == line || placed.outline_line == line);
            if found.is_empty() {
                return Err(FeatureError::NoScenarioAt { path, line, nearest });
            }
        }
        // Whoever names a folder and a file in it means each scenario once.
        let new = found.into_iter().filter(|(file, placed)| taken.insert((file.clone(), placed.scenario.line)));
        scenarios.extend(new.map(|(_, placed)| placed.scenario));
    }
    Ok(scenarios)
}

/// A scenario, with the line of the outline that it is a row of, or else its own.
struct Placed {
    scenario: Scenario,
    outline_line: usize,
}

fn split_line(path: &Path) -> (PathBuf, Option<usize>) {
    let text = path.to_string_lossy();
    match text.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse().ok()?))) {
        Some((before, line)) if !path.exists() => (before.into(), Some(line)),
        _ => (path.into(), None),
    }
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The feature files under a path. A folder is visited once, also where links lead around in a circle.
fn feature_files(path: &Path, visited: &mut BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, FeatureError> {
    let is_feature = path.extension().is_some_and(|extension| extension == "feature");
    if path.is_file() {
        return match (is_feature, path.to_str()) {
            (false, _) => Err(FeatureError::OtherFile(path.to_owned())),
            (true, None) => Err(FeatureError::Name(path.to_owned())),
            (true, Some(_)) => Ok(vec![path.to_owned()]),
        };
    }
    if !path.is_dir() {
        return Err(FeatureError::NoSuchPath(path.to_owned()));
    }
    if !visited.insert(canonical(path)) {
        return Ok(Vec::new());
    }
    let unreadable = |source| FeatureError::Unreadable { path: path.to_owned(), source };
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(unreadable)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|extension| extension == "feature") {
            files.extend(feature_files(&entry, visited)?);
        }
    }
    Ok(files)
}

fn scenarios_of(path: &Path) -> Result<Vec<Placed>, FeatureError> {
    let source = Source::read(path)?;
    source.check()?;
    let feature = Feature::parse_path(path, GherkinEnv::default()).map_err(|error| match error {
        gherkin::ParseFileError::Reading { path, source } => FeatureError::Unreadable { path, source },
        gherkin::ParseFileError::Parsing { error, source: stopped, .. } => {
            source.syntax_error(&stopped.to_string(), error.as_ref())
        }
    })?;
    let mut scenarios = Vec::new();
    let groups = std::iter::once((None, &feature.scenarios))
        .chain(feature.rules.iter().map(|rule| (Some(rule), &rule.scenarios)));
    for (rule, members) in groups {
        let backgrounds = [feature.background.as_ref(), rule.and_then(|rule| rule.background.as_ref())];
        let before: Vec<Step> = backgrounds
            .into_iter()
            .flatten()
            .flat_map(|background| &background.steps)
            .map(|s| source.step(s))
            .collect();
        for scenario in members {
            let tags =
                feature.tags.iter().chain(rule.iter().flat_map(|rule| &rule.tags)).chain(&scenario.tags).cloned();
            let whole = Scenario {
                feature: feature.name.clone(),
                name: scenario.name.clone(),
                path: path.to_owned(),
                line: source.line_of_text(scenario.position.line),
                tags: tags.collect(),
                steps: before.iter().cloned().chain(scenario.steps.iter().map(|step| source.step(step))).collect(),
            };
            if scenario.steps.is_empty() {
                let description = scenario
                    .description
                    .as_deref()
                    .and_then(|text| text.lines().next())
                    .map(|line| line.trim().to_owned());
                return Err(FeatureError::NoSteps { location: whole.location(), name: whole.name, description });
            }
            let outline_line = whole.line;
            if scenario.examples.is_empty()
                && !scenario.keyword.contains("Outline")
                && !scenario.keyword.contains("Template")
            {
                scenarios.push(Placed { scenario: whole, outline_line });
            } else {
                let rows = source.filled_in(&whole, &scenario.examples)?;
                scenarios.extend(rows.into_iter().map(|scenario| Placed { scenario, outline_line }));
            }
        }
    }
    scenarios.sort_by_key(|placed| placed.scenario.line);
    Ok(scenarios)
}

/// The lines of a feature file: the parser's positions may lie on a comment or an empty line above what they are about.
struct Source<'path> {
    path: &'path Path,
    text: String,
}

impl<'path> Source<'path> {
    fn read(path: &'path Path) -> Result<Self, FeatureError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FeatureError::Unreadable { path: path.to_owned(), source })?;
        Ok(Self { path, text })
    }

    /// The lines from a number on that hold something, with their numbers.
    fn lines_from(&self, line: usize) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines().map(str::trim)).skip(line.saturating_sub(1));
        lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
    }

    fn line_of_text(&self, line: usize) -> usize {
        self.lines_from(line).next().map_or(line, |(number, _)| number)
    }

    fn step(&self, step: &gherkin::Step) -> Step {
        Step {
            keyword: step.keyword.trim().to_owned(),
            text: step.value.clone(),
            line: self.line_of_text(step.position.line),
            docstring: step.docstring.clone(),
            table: step.table.as_ref().map(|table| table.rows.clone()).unwrap_or_default(),
        }
    }

    /// One scenario for each row of examples of an outline.
    fn filled_in(&self, outline: &Scenario, examples: &[gherkin::Examples]) -> Result<Vec<Scenario>, FeatureError> {
        let mut scenarios = Vec::new();
        for block in examples {
            let Some(table) = &block.table else { continue };
            let Some((header, rows)) = table.rows.split_first() else { continue };
            for step in &outline.steps {
                if let Some(placeholder) =
                    placeholders(&step.text).find(|name| !header.iter().any(|column| column == name))
                {
                    return Err(FeatureError::Placeholder {
                        location: format!("{}:{}", self.path.display(), step.line),
                        placeholder: placeholder.to_owned(),
                        columns: header.join(", "),
                    });
                }
            }
            let lines = self.lines_from(table.position.line).skip(1).map(|(number, _)| number);
            for (row, line) in rows.iter().zip(lines) {
                let fill = |text: &str| {
                    header
                        .iter()
                        .zip(row)
                        .fold(text.to_owned(), |text, (key, value)| text.replace(&format!("<{key}>"), value))
                };
                let mut scenario = outline.clone();
                scenario.name = fill(&outline.name);
                scenario.line = line;
                scenario.tags.extend(block.tags.iter().cloned());
                for step in &mut scenario.steps {
                    step.text = fill(&step.text);
                    step.docstring = step.docstring.as_deref().map(fill);
                    step.table.iter_mut().flatten().for_each(|cell| *cell = fill(cell));
                }
                scenarios.push(scenario);
            }
        }
        if scenarios.is_empty() {
            return Err(FeatureError::NoExamples { location: outline.location(), name: outline.name.clone() });
        }
        Ok(scenarios)
    }

    /// What the parser lets pass or names at a line further down: a line that is neither keyword nor description, a row
    /// with more cells than the first, a text block without end.
    fn check(&self) -> Result<(), FeatureError> {
        // Every part may begin with free text, which its first step or row ends.
        let (mut part, mut free) = (Part::Feature, true);
        let mut fence: Option<(&str, usize)> = None;
        let mut cells: Option<usize> = None;
        for (line, text) in (1..).zip(self.text.lines().map(str::trim)) {
            if let Some((mark, _)) = fence {
                fence = fence.filter(|_| !text.contains(mark));
                continue;
            }
            if text.starts_with("# language") || text.starts_with("#language") {
                // Its keywords are other words.
                return Ok(());
            }
            if text.is_empty() || text.starts_with(['#', '@']) {
                continue;
            }
            let before = cells.take();
            if let Some(next) = Part::begun_by(text) {
                (part, free) = (next, true);
            } else if let (true, Some(mark)) =
                (part == Part::Scenario, ["\"\"\"", "```"].into_iter().find(|mark| text.starts_with(mark)))
            {
                fence = (!text[mark.len()..].contains(mark)).then_some((mark, line));
            } else if text.starts_with('|') {
                let count = text.replace("\\\\", "").replace("\\|", "").matches('|').count();
                if before.is_some_and(|before| before != count) {
                    return Err(self.wrong(line, "the rows of a table differ in their number of cells".into()));
                }
                cells = Some(count);
                free = part == Part::Feature;
            } else if part == Part::Scenario && STEP_KEYWORDS.iter().any(|keyword| text.starts_with(keyword)) {
                free = part == Part::Feature;
            } else if !free {
                return Err(self.wrong(line, format!("{text:?} cannot stand here; {CAN_STAND}")));
            }
        }
        match fence {
            Some((mark, line)) => Err(self.wrong(line, format!("this text block has no closing {mark}"))),
            None => Ok(()),
        }
    }

    fn wrong(&self, line: usize, problem: String) -> FeatureError {
        FeatureError::Syntax { path: self.path.to_owned(), line, problem }
    }

    /// What the parser's tokens say, as a person would.
    fn syntax_error(&self, stopped: &str, error: Option<&gherkin::EnvError>) -> FeatureError {
        let stopped = stopped.strip_prefix("Error at ").unwrap_or(stopped);
        let position = stopped.split(':').next().and_then(|line| line.parse().ok()).unwrap_or(1);
        let here = self.lines_from(position).next();
        let problem = match (error, here) {
            (Some(gherkin::EnvError::UnsupportedLanguage(language)), _) => format!("there is no language {language:?}"),
            _ if !self.lines_from(1).any(|(_, text)| text.starts_with("Feature:")) => {
                "a feature file begins with \"Feature: TITLE\"".to_owned()
            }
            (_, Some((_, text))) => format!("{text:?} cannot stand here; {CAN_STAND}"),
            (_, None) => "the file ends too early".to_owned(),
        };
        self.wrong(here.map_or_else(|| self.text.lines().count().max(1), |(number, _)| number), problem)
    }
}

const STEP_KEYWORDS: [&str; 6] = ["Given ", "When ", "Then ", "And ", "But ", "* "];

const CAN_STAND: &str =
    "a step begins with Given, When, Then, And or But, a row of a table with |, a text block with \"\"\"";

/// The part of a feature file that a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Feature,
    Scenario,
    Examples,
}

impl Part {
    /// The part that begins with a line.
    fn begun_by(text: &str) -> Option<Self> {
        let title = text.split_once(':')?.0;
        match title {
            "Feature" | "Business Need" | "Ability" | "Rule" => Some(Self::Feature),
            "Scenario" | "Scenario Outline" | "Scenario Template" | "Example" | "Background" => Some(Self::Scenario),
            "Examples" | "Scenarios" => Some(Self::Examples),
            _ => None,
        }
    }
}

/// The names between angle brackets.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('<').skip(1).filter_map(|rest| Some(rest.split_once('>')?.0)).filter(|name| !name.is_empty())
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
            .map(|expression| {
                expression.parse::<TagOperation>().map_err(|_| FeatureError::TagExpression(expression.to_owned()))
            })
            .transpose()?;
        Ok(Self { tags, name: name.map(str::to_lowercase) })
    }

    /// Whether the scenario is selected.
    pub fn selects(&self, scenario: &Scenario) -> bool {
        self.tags.as_ref().is_none_or(|expression| holds(expression, &scenario.tags))
            && self.name.as_ref().is_none_or(|text| scenario.name.to_lowercase().contains(text))
    }

    /// A tag of the expression that no scenario carries, with the one most like it: most likely a slip of the pen.
    pub fn unknown_tag<'a>(&self, scenarios: &'a [Scenario]) -> Option<(String, &'a str)> {
        let known: BTreeSet<&str> = scenarios.iter().flat_map(|scenario| &scenario.tags).map(String::as_str).collect();
        let unknown = named(self.tags.as_ref()?).into_iter().find(|tag| !known.contains(tag))?;
        let likeness = |tag: &str| strsim::normalized_levenshtein(tag, unknown);
        let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        Some((unknown.to_owned(), nearest))
    }
}

/// The tags that an expression names, without the `@`.
fn named(expression: &TagOperation) -> Vec<&str> {
    match expression {
        TagOperation::And(a, b) | TagOperation::Or(a, b) => [named(a), named(b)].concat(),
        TagOperation::Not(a) => named(a),
        TagOperation::Tag(tag) => vec![tag.trim_start_matches('@')],
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
        let folder = std::env::temp_dir().join(format!(
            "features-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    const OUTLINE: &str = "@a\nFeature: F\n  Background:\n    Given a cluster\n\n  @b.row-1\n  Scenario Outline: Pods of <size>\n    When <size> pods come\n\n    Examples:\n      | size |\n      | 1 |\n      | 2 |\n";

    #[test]
    fn an_outline_becomes_one_scenario_per_row_with_the_background_first() {
        let scenarios = parse(OUTLINE);
        assert_eq!(scenarios.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["Pods of 1", "Pods of 2"]);
        assert_eq!(
            scenarios[1].steps.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(),
            ["a cluster", "2 pods come"]
        );
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
    fn a_misspelt_first_keyword_does_not_make_a_scenario_that_passes() {
        let folder = tempdir();
        let path = folder.join("bad.feature");
        std::fs::write(&path, "Feature: F\n  Scenario: S\n    Whatever this is\n").unwrap();
        let error = load(std::slice::from_ref(&path)).unwrap_err();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(matches!(&error, FeatureError::NoSteps { .. }), "{error}");
        assert!(
            error.to_string().contains("bad.feature:2: ") && error.to_string().contains("Whatever this is"),
            "{error}"
        );
    }
}
