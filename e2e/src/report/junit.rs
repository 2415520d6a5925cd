//! `junit.xml`, as CI systems read it: a suite per feature, a case per scenario. Times are wall time.

use super::Summary;
use crate::verdict::{ScenarioResult, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) fn render(results: &[ScenarioResult], summary: &Summary) -> String {
    let mut suites: BTreeMap<&str, Vec<&ScenarioResult>> = BTreeMap::new();
    for result in results {
        suites.entry(&result.scenario.feature).or_default().push(result);
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (tests, failed, skipped, time) = (results.len(), summary.failed, summary.skipped, summary.wall_s);
    // Writing to a String cannot fail.
    let _ = writeln!(xml, r#"<testsuites tests="{tests}" failures="{failed}" skipped="{skipped}" time="{time:.3}">"#);
    for (feature, members) in suites {
        let failed = members.iter().filter(|result| result.failed()).count();
        let _ =
            writeln!(xml, r#"  <testsuite name="{}" tests="{}" failures="{failed}">"#, escape(feature), members.len());
        for result in members {
            let name = escape(&result.scenario.name);
            let class = escape(&result.scenario.path.display().to_string());
            let _ = write!(xml, r#"    <testcase name="{name}" classname="{class}" time="{:.3}">"#, result.wall_s);
            xml.push_str(&outcome(result));
            xml.push_str("</testcase>\n");
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn outcome(result: &ScenarioResult) -> String {
    match (&result.verdict, &result.repeat) {
        (Verdict::Failed(failure), _) => {
            let observed = failure.last_observed.iter().map(|seen| format!("last observed: {seen}\n"));
            let story: String = observed.chain(failure.timeline.iter().map(|line| format!("{line}\n"))).collect();
            format!(
                "<failure message=\"{}\">{}\n{}</failure>",
                escape(&failure.message),
                escape(&failure.step),
                escape(&story)
            )
        }
        (Verdict::Skipped { missing }, _) => format!(r#"<skipped message="the backend lacks {}"/>"#, escape(missing)),
        (Verdict::Passed, Some(repeat)) if !repeat.identical => {
            let difference = repeat.first_difference.as_deref().unwrap_or("the journals differ");
            format!(r#"<failure message="the second run differs">{}</failure>"#, escape(difference))
        }
        (Verdict::Passed, _) => String::new(),
    }
}

/// Escapes text for XML, and replaces the characters that XML 1.0 cannot hold at all. Line ends are written by number, or
/// else they would become spaces in attributes.
pub(crate) fn escape(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\n' => "&#10;".to_owned(),
            c if (c.is_control() && c != '\t') || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}'.to_string(),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1b}\u{ffff}\n"), "a&lt;b &amp; &quot;c&quot;\u{fffd}\u{fffd}&#10;");
    }
}
