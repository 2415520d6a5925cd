//! MIME multipart, as cloud-init reads it. Lines end in LF and the boundary is `//`.

pub(crate) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";
pub(crate) const NODE_CONFIG: &str = "application/node.eks.aws";
const BOUNDARY: &str = "//";

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Part {
    pub(crate) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { content_type: content_type.to_owned(), body: body.into() }
    }
}

/// Whether a text is a multipart archive.
pub(crate) fn is_multipart(text: &str) -> bool {
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// Writes an archive.
pub(crate) fn write(parts: &[Part]) -> String {
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    for (index, part) in parts.iter().enumerate() {
        let between = if index == 0 { "" } else { "\n" };
        text.push_str(&format!("{between}--{BOUNDARY}\nContent-Type: {}\n\n{}", part.content_type, part.body));
    }
    text.push_str(&format!("\n--{BOUNDARY}--\n"));
    text
}

/// Reads an archive's parts; the error says what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Vec<Part>, String> {
    let text = text.replace("\r\n", "\n");
    let (header, body) = text.split_once("\n\n").ok_or("the MIME header has no end")?;
    let content_type = header_value(header, "content-type").ok_or("the MIME header has no Content-Type")?;
    let boundary = content_type
        .split(';')
        .filter_map(|parameter| parameter.trim().split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("boundary"))
        .map(|(_, value)| value.trim_matches('"'))
        .ok_or("the MIME header names no boundary")?;
    let delimiter = format!("\n--{boundary}");
    let body = format!("\n{body}");
    let mut pieces = body.split(delimiter.as_str());
    pieces.next();
    let mut parts = Vec::new();
    for piece in pieces {
        if piece.starts_with("--") {
            return Ok(parts);
        }
        let piece = piece.trim_start_matches([' ', '\t']);
        let piece = piece.strip_prefix('\n').unwrap_or(piece);
        // A part may have no header of its own; then it starts with the empty line.
        let (header, content) = match piece.strip_prefix('\n') {
            Some(content) => ("", content),
            None => piece.split_once("\n\n").unwrap_or((piece, "")),
        };
        let content_type = header_value(header, "content-type").unwrap_or("text/plain");
        parts.push(Part::new(content_type, content));
    }
    Err("the MIME archive is not closed".to_owned())
}

fn header_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let fields = header.lines().filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(field, _)| field.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let parts = [Part::new(SHELL_SCRIPT, "#!/bin/bash\necho 1\n"), Part::new(NODE_CONFIG, "kind: NodeConfig\n")];
        assert_eq!(read(&write(&parts)), Ok(parts.to_vec()));
    }

    #[test]
    fn archives_with_other_boundaries_and_line_ends_are_read() {
        let text = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\r\n\r\n--BOUNDARY\r\n\
                    Content-Type: text/x-shellscript; charset=\"us-ascii\"\r\n\r\necho 1\r\n--BOUNDARY--\r\n";
        assert_eq!(read(text), Ok(vec![Part::new(SHELL_SCRIPT, "echo 1")]));
        assert!(read("MIME-Version: 1.0\n\nx").is_err());
        assert!(read("Content-Type: multipart/mixed; boundary=b\n\n--b\n\nx").is_err());
    }
}
