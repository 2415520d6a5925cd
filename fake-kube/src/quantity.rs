//! Quantities in the API server's form: what it accepts, how it writes them back, how they compare.

use std::cmp::Ordering;

/// Why a text is no quantity, in the server's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// A number as nano-units, which is the finest the server keeps, and the family of suffixes it was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The server's largest value is 2^63-1 of the whole unit; larger ones are capped to it.
const LARGEST: i128 = i64::MAX as i128 * 1_000_000_000;

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        let unsigned = text.trim_start_matches(['+', '-']);
        let signs = text.len() - unsigned.len();
        if signs > 1 || unsigned.is_empty() {
            return Err(QuantityError::Format);
        }
        let digits_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !exponent.chars().all(|c| c.is_ascii_digit()) || number.is_empty() && suffix.is_empty() {
            return Err(QuantityError::Format);
        }
        let (family, power, shift) = suffix_of(suffix).ok_or(QuantityError::Suffix)?;
        if number.is_empty() || number == "." {
            return Err(QuantityError::Format);
        }
        // nanos = digits × 10^(9 + power - fraction length) × 2^shift, rounded up, away from zero.
        let digits: String = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > 36 {
            return Ok(Self { nanos: if text.starts_with('-') { -LARGEST } else { LARGEST }, family });
        }
        let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| QuantityError::Format)? };
        let scale = 9 + power - i32::try_from(fraction.len()).unwrap_or(i32::MAX / 2);
        let shifted = mantissa.checked_mul(1_i128 << shift).unwrap_or(i128::MAX);
        let nanos = if scale >= 0 {
            u32::try_from(scale).ok().and_then(|scale| 10_i128.checked_pow(scale)).and_then(|f| shifted.checked_mul(f))
        } else {
            let divisor = scale.unsigned_abs();
            Some(match 10_i128.checked_pow(divisor) {
                Some(divisor) => shifted / divisor + i128::from(shifted % divisor != 0),
                None => i128::from(shifted != 0),
            })
        };
        let nanos = nanos.unwrap_or(LARGEST).min(LARGEST);
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, family })
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether both are the same amount, however written.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }

    /// Whether it is a whole number of units.
    pub(crate) fn is_whole(&self) -> bool {
        self.nanos % 1_000_000_000 == 0
    }

    fn canonical(&self) -> String {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.unsigned_abs();
        if self.family == Family::Binary && nanos >= 1024 * 1_000_000_000 && nanos.is_multiple_of(1_000_000_000) {
            let units = nanos / 1_000_000_000;
            let best = BINARY.iter().rev().find(|(_, shift)| units.is_multiple_of(1_u128 << shift));
            return match best {
                Some((suffix, shift)) => format!("{sign}{}{suffix}", units >> shift),
                None => format!("{sign}{units}"),
            };
        }
        if nanos == 0 {
            return "0".into();
        }
        let best = DECIMAL
            .iter()
            .rev()
            .find(|(_, power)| u32::try_from(power + 9).is_ok_and(|power| nanos.is_multiple_of(10_u128.pow(power))));
        let (suffix, power) = best.copied().unwrap_or(("n", -9));
        let number = nanos / 10_u128.pow(u32::try_from(power + 9).unwrap_or(0));
        match self.family {
            Family::Exponent if power != 0 => format!("{sign}{number}e{power}"),
            _ => format!("{sign}{number}{suffix}"),
        }
    }
}

fn suffix_of(suffix: &str) -> Option<(Family, i32, u32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Family::Decimal, *power, 0));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((Family::Binary, 0, *shift));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Family::Exponent, power.clamp(-100, 100), 0))
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

/// The text the server writes back for a quantity.
pub(crate) fn canonical(text: &str) -> Result<String, QuantityError> {
    Quantity::parse(text).map(|quantity| quantity.canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_back_in_canonical_form() {
        for (given, canonical_form) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1", "1"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("100M", "100M"),
            ("0.1", "100m"),
            ("512Ki", "512Ki"),
            ("-1", "-1"),
            ("0.5Gi", "512Mi"),
            ("2048", "2048"),
            ("1.2345678901", "1234567891n"),
            ("12e6", "12e6"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(canonical_form), "{given}");
        }
    }

    #[test]
    fn bad_quantities_are_refused_with_the_servers_sentences() {
        for text in ["", "abc", "1x", "1..2", "--1", "1 Gi"] {
            assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
        }
        for text in ["1m1", "1GiB1", "1kk"] {
            assert!(canonical(text).is_err(), "{text}");
        }
        assert_eq!(canonical("1kk"), Err(QuantityError::Suffix));
    }

    #[test]
    fn quantities_compare_by_value() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("1Gi") > parse("1G"));
        assert!(parse("999m") < parse("1"));
    }
}
