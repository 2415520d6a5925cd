//! Quantities of resources as the scheduler counts them: whole numbers, CPU in thousandths, everything else in units,
//! fractions rounded up. The API's text is parsed here and nowhere else in the actors.

use std::collections::BTreeMap;

use serde_json::Value;

/// Amounts by resource name (`cpu` in thousandths of a core). Absent means zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// Reads a `requests`, `overhead`, `capacity` or `allocatable` map. Unreadable quantities count as zero.
    pub(crate) fn parse(map: &Value) -> Self {
        let Some(map) = map.as_object() else { return Self::default() };
        Self(map.iter().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, name: &str, amount: i64) {
        self.0.insert(name.to_owned(), amount);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let total = self.get(name).saturating_add(*amount);
            self.set(name, total);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.get(name).saturating_sub(*amount) {
                0 => drop(self.0.remove(name)),
                rest => self.set(name, rest),
            }
        }
    }

    /// Raises every amount to at least that of `other`.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if *amount > self.get(name) {
                self.set(name, *amount);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

fn amount(resource: &str, quantity: &Value) -> i64 {
    let milli = resource == "cpu";
    match quantity {
        Value::String(text) => parse_quantity(text, milli).unwrap_or(0),
        Value::Number(number) => parse_quantity(&number.to_string(), milli).unwrap_or(0),
        _ => 0,
    }
}

/// Parses Kubernetes' quantity text (`100m`, `1.5Gi`, `2e3`), rounding up to a whole unit or a whole thousandth.
fn parse_quantity(text: &str, milli: bool) -> Option<i64> {
    let text = text.trim();
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Digits beyond the twelfth cannot change a whole thousandth by more than the rounding does.
    let fraction = &fraction[..fraction.len().min(12)];
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (multiplier, exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let exponent = exponent - fraction.len() as i32 + if milli { 3 } else { 0 };
    let value = digits.checked_mul(multiplier)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let value = if exponent >= 0 {
        value.checked_mul(power)?
    } else {
        value.div_euclid(power) + i128::from(value.rem_euclid(power) != 0)
    };
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_round_up_to_whole_units_and_thousandths() {
        for (text, milli, expected) in [
            ("1", true, 1000),
            ("100m", true, 100),
            ("0.5", true, 500),
            ("1.0001", true, 1001),
            ("100u", true, 1),
            ("1Gi", false, 1 << 30),
            ("1.5Gi", false, 3 << 29),
            ("128974848", false, 128_974_848),
            ("129e6", false, 129_000_000),
            ("129M", false, 129_000_000),
            ("1500m", false, 2),
            ("-1", false, -1),
        ] {
            assert_eq!(parse_quantity(text, milli), Some(expected), "{text}");
        }
        assert_eq!(parse_quantity("", false), None);
        assert_eq!(parse_quantity("Gi", false), None);
        assert_eq!(parse_quantity("1Xi", false), None);
    }
}
