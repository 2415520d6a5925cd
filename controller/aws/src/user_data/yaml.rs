//! YAML as Karpenter writes it, to the byte: keys in order, and quotes wherever YAML 1.1 would read something else than a text.
//!
//! nodeadm reads YAML 1.1, in which `yes` is a truth and `12:30` a number; a writer of YAML 1.2 leaves both without quotes.

use serde_json::Value;

/// A document.
pub(super) fn write(value: &Value) -> String {
    let mut text = block(value).join("\n");
    text.push('\n');
    text
}

/// The lines of a value that has a place of its own.
fn block(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            keys.into_iter().flat_map(|key| entry(&text(key), &map[key])).collect()
        }
        Value::Array(items) if !items.is_empty() => items.iter().flat_map(item).collect(),
        Value::Object(_) => vec!["{}".to_owned()],
        Value::Array(_) => vec!["[]".to_owned()],
        Value::String(value) => vec![text(value)],
        other => vec![other.to_string()],
    }
}

fn has_block(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty()) || value.as_array().is_some_and(|items| !items.is_empty())
}

fn entry(key: &str, value: &Value) -> Vec<String> {
    if !has_block(value) {
        return block(value).into_iter().map(|line| format!("{key}: {line}")).collect();
    }
    // Lists stand below their key, not to the right of it.
    let indentation = if value.is_array() { "" } else { "  " };
    let below = block(value).into_iter().map(|line| format!("{indentation}{line}"));
    std::iter::once(format!("{key}:")).chain(below).collect()
}

fn item(value: &Value) -> Vec<String> {
    let lines = block(value).into_iter().enumerate();
    lines.map(|(index, line)| format!("{}{line}", if index == 0 { "- " } else { "  " })).collect()
}

/// A text, with quotes where it needs them.
fn text(text: &str) -> String {
    if text.chars().any(char::is_control) || means_something_else(text) {
        // JSON's quotes are YAML's.
        return Value::from(text).to_string();
    }
    if is_plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// Whether YAML 1.1 reads it as null, a truth, a number or an instant.
fn means_something_else(text: &str) -> bool {
    const WORDS: [&str; 11] = ["", "~", "null", "y", "yes", "n", "no", "true", "false", "on", "off"];
    let lower = text.to_ascii_lowercase();
    // `Yes` and `YES`, but not `yES`.
    let is_one_case =
        text == lower || text == text.to_ascii_uppercase() || text.get(1..).is_some_and(|rest| rest == &lower[1..]);
    if is_one_case && (WORDS.contains(&lower.as_str()) || [".nan", ".inf", "+.inf", "-.inf"].contains(&lower.as_str()))
    {
        return true;
    }
    is_number(text) || is_date(text)
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let digits = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
    let all = |digits: &str, radix: u32| !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    let based = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)];
    if based.iter().any(|(prefix, radix)| digits.strip_prefix(prefix).is_some_and(|rest| all(rest, *radix))) {
        return true;
    }
    // Sixties, such as 12:30.
    if let Some((first, rest)) = digits.split_once(':') {
        let (rest, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
        let is_sixtieth = |part: &str| part.len() <= 2 && part.parse::<u8>().is_ok_and(|number| number < 60);
        return all(first, 10) && rest.split(':').all(is_sixtieth) && (fraction.is_empty() || all(fraction, 10));
    }
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let is_mantissa = match mantissa.split_once('.') {
        None => all(mantissa, 10),
        Some(("", fraction)) => all(fraction, 10),
        Some((whole, fraction)) => all(whole, 10) && (fraction.is_empty() || all(fraction, 10)),
    };
    is_mantissa && all(exponent, 10)
}

/// Whether it begins like 2026-1-2 and goes on with a time, if with anything.
fn is_date(text: &str) -> bool {
    let end = text.find(['T', 't', ' ']).unwrap_or(text.len());
    let parts: Vec<&str> = text[..end].split('-').collect();
    let digits = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let [year, month, day] = parts.as_slice() else { return false };
    let time = text[end..].trim_start_matches(['T', 't', ' ']);
    let is_time = end == text.len() || time.starts_with(|first: char| first.is_ascii_digit());
    digits(year, 4..=4) && digits(month, 1..=2) && digits(day, 1..=2) && is_time
}

/// Whether a text may stand without quotes outside of `[]` and `{}`.
fn is_plain(text: &str) -> bool {
    let indicator = text.starts_with(|first: char| "#,[]{}&*!|>'\"%@`".contains(first));
    let lone = ["-", "?", ":"]
        .iter()
        .any(|mark| text.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')));
    let document = text.starts_with("---") || text.starts_with("...");
    let inside = text.contains(": ") || text.ends_with(':') || text.contains(" #");
    let spaces = text.starts_with(' ') || text.ends_with(' ');
    !(indicator || lone || document || inside || spaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What sigs.k8s.io/yaml v1.6.0, by which Karpenter writes, makes of these.
    #[test]
    fn texts_are_quoted_as_karpenter_quotes_them() {
        for (value, expected) in [
            ("yes", r#""yes""#),
            ("y", r#""y""#),
            ("No", r#""No""#),
            ("OFF", r#""OFF""#),
            ("true", r#""true""#),
            ("~", r#""~""#),
            ("", r#""""#),
            ("100", r#""100""#),
            ("1e3", r#""1e3""#),
            ("1.5", r#""1.5""#),
            (".5", r#"".5""#),
            ("+1", r#""+1""#),
            ("0x1f", r#""0x1f""#),
            ("0o7", r#""0o7""#),
            ("017", r#""017""#),
            ("0b11", r#""0b11""#),
            ("1_000", r#""1_000""#),
            ("12:30", r#""12:30""#),
            ("1:2.5", r#""1:2.5""#),
            (".inf", r#"".inf""#),
            (".nan", r#"".nan""#),
            ("2026-01-02", r#""2026-01-02""#),
            ("2026-01-02T03:04:05Z", r#""2026-01-02T03:04:05Z""#),
            ("a\tb", r#""a\tb""#),
            ("100m", "100m"),
            ("5%", "5%"),
            ("1Gi", "1Gi"),
            ("1m0s", "1m0s"),
            ("1e", "1e"),
            ("+", "+"),
            ("<<", "<<"),
            ("=", "="),
            ("10.100.0.10", "10.100.0.10"),
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("--node-labels=\"a=b,c=d\"", "--node-labels=\"a=b,c=d\""),
            ("-a", "-a"),
            (":a", ":a"),
            ("?a", "?a"),
            ("a#b", "a#b"),
            ("a,b", "a,b"),
            ("a{b", "a{b"),
            ("x\"y", "x\"y"),
            ("it's", "it's"),
            ("ünïcode", "ünïcode"),
            ("-", "'-'"),
            ("- a", "'- a'"),
            ("?", "'?'"),
            ("---", "'---'"),
            ("...", "'...'"),
            ("a: b", "'a: b'"),
            ("a:", "'a:'"),
            ("a #b", "'a #b'"),
            ("#a", "'#a'"),
            ("@x", "'@x'"),
            ("%x", "'%x'"),
            ("*x", "'*x'"),
            ("!x", "'!x'"),
            ("'x", "'''x'"),
            ("\"x", "'\"x'"),
            (",a", "',a'"),
            (" a", "' a'"),
            ("a ", "'a '"),
        ] {
            assert_eq!(text(value), expected, "{value:?}");
            let read: String = serde_yaml_ng::from_str(&text(value)).unwrap();
            assert_eq!(read, value);
        }
    }

    #[test]
    fn maps_and_lists_stand_as_karpenter_writes_them() {
        let value = json!({
            "b": ["x", {"k": "v", "a": []}], "a": {}, "n": null, "i": 42, "f": 0.5, "t": true,
            "l": [["p", "q"], "r"], "yes": 1, "z": {"deep": {"er": "x"}},
        });
        let expected = "a: {}\nb:\n- x\n- a: []\n  k: v\nf: 0.5\ni: 42\nl:\n- - p\n  - q\n- r\n\"n\": null\nt: true\n\
                        \"yes\": 1\nz:\n  deep:\n    er: x\n";
        assert_eq!(write(&value), expected);
    }
}
