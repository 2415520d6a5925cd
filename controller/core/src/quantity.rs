//! Exact Kubernetes quantities.
//!
//! A quantity is a whole number of billionths, the finest step the API knows, together with the notation it was written
//! in. Arithmetic is exact; numbers beyond the range (about 1.7 × 10²⁹ units, far above the API's own cap) saturate.
//! The canonical text is the one Kubernetes prints: an integer mantissa with the largest suffix that loses nothing.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Suffixes of the decimal notation with their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// Suffixes of the binary notation; each stands for one more power of 1024.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An amount of a resource. Two quantities are equal when their values are, whatever their notation.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// `1500m`, `2G`.
    Decimal,
    /// `1e3`.
    Exponent,
    /// `512Mi`.
    Binary,
}

/// A text that is no Kubernetes quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: {problem}")]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Quantity {
    /// Nothing of it.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::Decimal };

    /// A whole number of units, such as pods or CPU cores.
    pub const fn units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS, notation: Notation::Decimal }
    }

    /// Thousandths of a unit, such as milli-CPU.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, notation: Notation::Decimal }
    }

    /// Billionths of a unit.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self { nanos, notation: Notation::Decimal }
    }

    /// Bytes, written with binary suffixes (`512Mi`).
    pub const fn bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS, notation: Notation::Binary }
    }

    /// Mebibytes (`512Mi`).
    pub const fn mebibytes(mebibytes: i64) -> Self {
        Self { nanos: mebibytes as i128 * 1_048_576 * NANOS, notation: Notation::Binary }
    }

    /// Reads an API quantity.
    pub fn from_api(quantity: &ApiQuantity) -> Result<Self, QuantityError> {
        quantity.0.parse()
    }

    /// The canonical text as an API quantity.
    pub fn to_api(self) -> ApiQuantity {
        ApiQuantity(self.to_string())
    }

    /// Thousandths, fractions of one rounded away from zero.
    pub fn milli(self) -> i128 {
        divide_away_from_zero(self.nanos, NANOS_PER_MILLI)
    }

    /// Whole units, fractions rounded away from zero.
    pub fn value(self) -> i128 {
        divide_away_from_zero(self.nanos, NANOS)
    }

    /// Billionths, exactly.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether the value is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The value as a floating-point number, for prices and shares.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    /// The notation a sum or difference is written in: that of the left side unless it is zero, as in Kubernetes.
    fn joined(self, nanos: i128, other: Self) -> Self {
        Self { nanos, notation: if self.is_zero() { other.notation } else { self.notation } }
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.joined(self.nanos.saturating_add(other.nanos), other)
    }
}

impl std::ops::Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.joined(self.nanos.saturating_sub(other.nanos), other)
    }
}

impl std::ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = |problem| QuantityError { text: text.to_owned(), problem };
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(wrong("it is empty")),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let digits_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong("it has no digits"));
        }
        if fraction.contains('.') {
            return Err(wrong("it has two decimal points"));
        }
        let (notation, scale) = read_suffix(suffix).ok_or_else(|| wrong("its suffix is unknown"))?;
        let magnitude = scaled(whole, fraction, scale);
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, notation })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary =
            self.notation == Notation::Binary && self.nanos % NANOS == 0 && (self.nanos / NANOS).unsigned_abs() >= 1024;
        if binary { write_binary(f, self.nanos / NANOS) } else { write_decimal(f, self.nanos, self.notation) }
    }
}

/// What a suffix multiplies by.
enum Scale {
    Ten(i32),
    Two(u32),
}

fn read_suffix(suffix: &str) -> Option<(Notation, Scale)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Notation::Decimal, Scale::Ten(*power)));
    }
    if let Some(index) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Notation::Binary, Scale::Two(10 * (index as u32 + 1))));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent too long for an i32 saturates like any other number beyond the range.
    let power = exponent.parse().unwrap_or(if exponent.starts_with('-') { i32::MIN } else { i32::MAX });
    Some((Notation::Exponent, Scale::Ten(power)))
}

/// `whole.fraction` times `scale`, in billionths. A rest finer than a billionth rounds away from zero, so that asking
/// for something never becomes asking for nothing.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let (power_of_ten, factor) = match scale {
        Scale::Ten(power) => (i64::from(power), 1),
        Scale::Two(power) => (0, 1i128 << power),
    };
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').skip_while(|d| *d == 0).collect();
    // The value is digits × factor × 10^power. A negative power cuts digits off the end. With a binary factor nine of
    // those are kept for the multiplication and cut from the product: a fraction's digits after the eighteenth, which
    // are lost, amount to less than a byte even of an Ei, and more of them would overflow.
    let power = power_of_ten + 9 - fraction.len() as i64;
    let cut_later = if factor == 1 { 0 } else { (-power).clamp(0, 9) };
    let kept = (digits.len() as i64 + (power + cut_later).min(0)).max(0) as usize;
    let (kept, rest) = digits.split_at(kept.min(digits.len()));
    let mut value = kept.iter().fold(0i128, |value, digit| value.saturating_mul(10).saturating_add(i128::from(*digit)));
    value = value.saturating_mul(factor);
    // Forty tens saturate whatever is not zero.
    (0..power.clamp(0, 40)).for_each(|_| value = value.saturating_mul(10));
    let divisor = 10i128.pow(cut_later as u32);
    let is_exact = rest.iter().all(|digit| *digit == 0) && value % divisor == 0;
    (value / divisor).saturating_add(i128::from(!is_exact))
}

fn divide_away_from_zero(dividend: i128, divisor: i128) -> i128 {
    dividend / divisor + (dividend % divisor).signum()
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut units: i128) -> fmt::Result {
    let mut power = 0;
    while power < BINARY.len() && units % 1024 == 0 {
        units /= 1024;
        power += 1;
    }
    write!(f, "{units}{}", if power == 0 { "" } else { BINARY[power - 1] })
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: i128, notation: Notation) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    let (mut mantissa, mut power) = (nanos, -9);
    while mantissa % 1000 == 0 && (power < 18 || notation == Notation::Exponent) {
        mantissa /= 1000;
        power += 3;
    }
    match notation {
        Notation::Exponent if power != 0 => write!(f, "{mantissa}e{power}"),
        _ => {
            let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(name, _)| *name);
            write!(f, "{mantissa}{suffix}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        text.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn the_canonical_form_is_the_one_kubernetes_prints() {
        for (text, expected) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("500m", "500m"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1200", "1200"),
            ("12000k", "12M"),
            ("-1.5", "-1500m"),
            ("+2", "2"),
            (".5", "500m"),
            ("5.", "5"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("1Ki", "1Ki"),
            ("1.0001Ki", "1024102400u"),
            ("0.00000000000000000000000000000000000000000000001Gi", "1n"),
            ("1.00000000000000000000000000000000000000000000000", "1"),
            ("1.00000000000000000000000000000000000000000000000Ei", "1Ei"),
            ("7.5Ei", "7680Pi"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("1e3", "1e3"),
            ("12E3", "12e3"),
            ("1e0", "1"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("1500000u", "1500m"),
            ("2G", "2G"),
            ("10G", "10G"),
            ("20Gi", "20Gi"),
            ("1e-3", "1e-3"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_its_text() {
        for text in
            ["", "m", "1.2.3", "1 Gi", "1gi", "1mi", "Gi", "1e", "1e+", "--1", "0x10", "1KI", "½", "1.5.Gi", "1Zi"]
        {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn numbers_beyond_the_range_saturate() {
        let huge: Quantity = "999999999999999999999999999999999999999999999999".parse().unwrap();
        assert!(huge > Quantity::units(i64::MAX));
        assert_eq!(huge + huge, huge);
        assert!("1e999999999999".parse::<Quantity>().unwrap() >= huge);
        assert_eq!("1e-999999999999".parse::<Quantity>().unwrap(), "1n".parse().unwrap());
        assert!(("-1e40".parse::<Quantity>().unwrap() - huge).is_negative());
    }

    #[test]
    fn sums_keep_the_notation_of_the_left_side_unless_it_is_zero() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!((q("128Mi") + q("1G")).to_string(), "1134217728");
        assert_eq!((q("0") + q("128Mi")).to_string(), "128Mi");
        assert_eq!((Quantity::ZERO + q("128Mi") + q("896Mi")).to_string(), "1Gi");
        assert_eq!((q("2") - q("500m")).to_string(), "1500m");
    }

    #[test]
    fn milli_and_whole_values_round_away_from_zero() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(q("1.0001").milli(), 1001);
        assert_eq!(q("-1.0001").milli(), -1001);
        assert_eq!(q("1500m").value(), 2);
    }

    proptest! {
        #[test]
        fn canonical_text_reads_back_as_the_same_value(nanos in any::<i64>(), binary in any::<bool>()) {
            let notation = if binary { Notation::Binary } else { Notation::Decimal };
            let quantity = Quantity { nanos: i128::from(nanos), notation };
            let text = quantity.to_string();
            prop_assert_eq!(text.parse::<Quantity>().unwrap(), quantity);
            prop_assert_eq!(canonical(&text), text);
        }

        #[test]
        fn addition_is_exact_and_order_agrees_with_the_value(a in any::<i64>(), b in any::<i64>()) {
            let (x, y) = (Quantity::from_milli(a), Quantity::from_milli(b));
            prop_assert_eq!((x + y) - y, x);
            prop_assert_eq!(x + y, y + x);
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }

        #[test]
        fn no_text_panics(text in "[-+.0-9a-zA-Z]{0,40}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
