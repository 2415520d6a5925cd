//! The badge: how many rows of the catalogue a column shows, as an image for a README.

use super::Column;
use crate::report::page::markup::markup;

/// The width of a character of 11 pixels, on average; `textLength` makes up for the rest.
const CHARACTER: f64 = 6.6;

/// Draws it. Red where a row failed, amber where nothing did and nothing passed, green otherwise.
pub(super) fn render(column: &Column, rows: usize) -> String {
    let label = format!("conformance: {}", short(column));
    let failed = match column.counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let value = format!("{} of {rows} rows{failed}", column.counts.passed);
    let colour = match (column.counts.failed, column.counts.passed) {
        (0, 0) => "#9a6700",
        (0, _) => "#00664b",
        _ => "#b3261e",
    };
    let width = |text: &str| (text.chars().count() as f64 * CHARACTER).round();
    let (left, right) = (width(&label) + 12.0, width(&value) + 12.0);
    let mut out = String::new();
    markup!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"20\" role=\"img\" aria-label=\"{}: {}\">\n\
         <title>{}: {}</title>\n<clipPath id=\"round\"><rect width=\"{}\" height=\"20\" rx=\"3\"/></clipPath>\n",
        left + right,
        label,
        value,
        label,
        value,
        left + right
    );
    markup!(
        out,
        "<g clip-path=\"url(#round)\"><rect width=\"{}\" height=\"20\" fill=\"#4a525a\"/>\
         <rect x=\"{}\" width=\"{}\" height=\"20\" fill=\"{}\"/></g>\n",
        left,
        left,
        right,
        colour
    );
    out.push_str("<g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">\n");
    for (x, text) in [(6.0, &label), (left + 6.0, &value)] {
        markup!(
            out,
            "<text x=\"{}\" y=\"14\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>\n",
            x,
            width(text),
            text
        );
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// A program by its file alone.
fn short(column: &Column) -> String {
    let controller = column.controller.rsplit('/').find(|part| !part.is_empty()).unwrap_or("controller");
    format!("{controller} on {}", column.backend)
}
