//! Writing markup in which every value is escaped.

use std::fmt::{self, Display, Write};

/// Appends markup to a string. The template is a literal; each `{}` in it takes a value, which is escaped. A template cannot
/// name variables itself, so there is no way around the escaping.
macro_rules! markup {
    ($out:expr, $template:literal $(, $value:expr)* $(,)?) => {{
        use std::fmt::Write as _;
        // `concat!` keeps the template from capturing variables. Writing to a String cannot fail.
        let _ = write!($out, concat!($template) $(, $crate::report::page::markup::Escaped(&$value))*);
    }};
}

pub(crate) use markup;

/// A value that shows itself with everything escaped that HTML and SVG give a meaning to, in texts and in attributes.
pub(crate) struct Escaped<'a, T: ?Sized>(pub(crate) &'a T);

impl<T: Display + ?Sized> Display for Escaped<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(formatter), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '&' => self.0.write_str("&amp;"),
            '<' => self.0.write_str("&lt;"),
            '>' => self.0.write_str("&gt;"),
            '"' => self.0.write_str("&quot;"),
            '\'' => self.0.write_str("&#39;"),
            // A page cannot hold these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => self.0.write_char('\u{fffd}'),
            c => self.0.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_value_is_escaped_in_texts_and_attributes() {
        let mut out = String::new();
        markup!(out, "<b title=\"{}\">{}</b>", "\" onclick='x'", "</b><script>&\u{1b}");
        assert_eq!(out, "<b title=\"&quot; onclick=&#39;x&#39;\">&lt;/b&gt;&lt;script&gt;&amp;\u{fffd}</b>");
    }
}
