//! Tables for people: columns as wide as what is in them, two spaces apart.

/// One cell, with what it is to look like on a terminal.
pub(crate) struct Cell {
    text: String,
    /// The code of an ANSI colour or weight.
    code: Option<&'static str>,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: None }
    }

    pub(crate) fn green(self) -> Self {
        Self { code: Some("32"), ..self }
    }

    pub(crate) fn yellow(self) -> Self {
        Self { code: Some("33"), ..self }
    }

    pub(crate) fn dim(self) -> Self {
        Self { code: Some("2"), ..self }
    }

    fn bold(self) -> Self {
        Self { code: Some("1"), ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// A heading and rows.
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[Cell; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(headings: [&str; COLUMNS]) -> Self {
        Self { rows: vec![headings.map(|heading| Cell::new(heading).bold())] }
    }

    pub(crate) fn row(&mut self, cells: [Cell; COLUMNS]) {
        self.rows.push(cells);
    }

    /// The codes of colours do not count for the width. The last column is not padded.
    pub(crate) fn render(&self, colours: bool) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                match cell.code.filter(|_| colours && !cell.text.is_empty()) {
                    Some(code) => line.extend(["\u{1b}[", code, "m", &cell.text, "\u{1b}[0m"]),
                    None => line += &cell.text,
                }
                line.extend(std::iter::repeat_n(' ', width - cell.width() + 2));
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colours() {
        let mut table = Table::new(["ID", "STATE", "ZONE"]);
        table.row([Cell::new("i-1"), Cell::new("running").green(), Cell::new("a")]);
        table.row([Cell::new("i-22"), Cell::new(""), Cell::new("b")]);
        let plain = "ID    STATE    ZONE\ni-1   running  a\ni-22           b\n";
        assert_eq!(table.render(false), plain);
        let coloured = table.render(true);
        assert!(coloured.contains("i-1   \u{1b}[32mrunning\u{1b}[0m  a\n"), "{coloured:?}");
    }
}
