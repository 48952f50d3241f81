//! Amounts of CPU, memory and anything else countable: `1500m`, `1Gi`, `12e6`.
//!
//! A value is kept exactly, in billionths, with the family of suffixes it was written in; printing gives
//! Kubernetes' canonical form, so `1024Mi` and `1Gi` print alike.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::{Add, AddAssign, Sub, SubAssign},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// Beyond this, arithmetic saturates: a margin below i128's own end (1.7e38) that keeps products in range.
const LIMIT: i128 = 100_000_000_000_000_000_000_000_000_000_000_000_000;

/// Which suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `Ki`, `Mi`, …
    BinarySi,
    /// `m`, `k`, `M`, …
    #[default]
    DecimalSi,
}

/// An exact amount. Equality and order are by value, not by spelling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// A suffix that does not exist.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// A number that cannot be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
}

/// Decimal suffixes from 10^-9 to 10^18, three powers apart.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes from 2^10 to 2^60, ten powers apart.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Nothing.
    pub const fn zero() -> Self {
        Self { nanos: 0, format: Format::DecimalSi }
    }

    /// A whole number.
    pub const fn from_value(value: i64) -> Self {
        Self { nanos: value as i128 * NANO, format: Format::DecimalSi }
    }

    /// A number of thousandths.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * (NANO / 1000), format: Format::DecimalSi }
    }

    /// The same amount, printed with other suffixes.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self { nanos: self.nanos, format }
    }

    /// Which suffixes it prints with.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Reads a quantity as Kubernetes does.
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(InvalidQuantity::Format),
        };
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let whole = &rest[..digits(rest)];
        let mut rest = &rest[whole.len()..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            fraction = &after[..digits(after)];
            rest = &after[fraction.len()..];
        }
        let suffix = split_suffix(rest)?;
        let (base2, exponent, format) = read_suffix(suffix)?;
        if whole.is_empty() && fraction.is_empty() {
            return Err(InvalidQuantity::Numeric);
        }
        let magnitude = magnitude(whole.trim_start_matches('0'), fraction, base2, exponent);
        // A binary suffix on less than one would print as a fraction of it, so it goes over to thousandths.
        let format = if format == Format::BinarySi && magnitude < NANO && magnitude > 0 {
            Format::DecimalSi
        } else {
            format
        };
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }

    /// So many times it.
    #[must_use]
    pub fn times(self, count: i64) -> Self {
        let nanos = self.nanos.saturating_mul(i128::from(count)).clamp(-LIMIT, LIMIT);
        Self { nanos, format: self.format }
    }

    /// Whether it is nothing.
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// In thousandths, rounded away from zero, saturating.
    pub fn milli(&self) -> i64 {
        self.scaled(NANO / 1000)
    }

    /// In whole units, rounded away from zero, saturating.
    pub fn value(&self) -> i64 {
        self.scaled(NANO)
    }

    /// As the nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    fn scaled(&self, unit: i128) -> i64 {
        let (quotient, rest) = (self.nanos / unit, self.nanos % unit);
        let rounded = if rest == 0 { quotient } else { quotient + self.nanos.signum() };
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    fn combine(self, other: Self, nanos: i128) -> Self {
        // An empty sum takes the spelling of what is first added to it.
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: nanos.clamp(-LIMIT, LIMIT), format }
    }
}

/// The suffix at the end of the number; an error if anything follows it that may not.
fn split_suffix(text: &str) -> Result<&str, InvalidQuantity> {
    let letters = text.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let mut end = letters;
    let bytes = text.as_bytes();
    if end < bytes.len() && matches!(bytes[end], b'-' | b'+') {
        end += 1;
    }
    end += bytes[end..].iter().take_while(|b| b.is_ascii_digit()).count();
    if end < bytes.len() { Err(InvalidQuantity::Format) } else { Ok(text) }
}

/// Whether the exponent is one of two, the exponent, and the format.
fn read_suffix(suffix: &str) -> Result<(bool, i32, Format), InvalidQuantity> {
    if let Some(i) = DECIMAL.iter().position(|s| *s == suffix) {
        return Ok((false, i as i32 * 3 - 9, Format::DecimalSi));
    }
    if let Some(i) = BINARY.iter().position(|s| *s == suffix) {
        return Ok((true, (i as i32 + 1) * 10, Format::BinarySi));
    }
    match suffix.as_bytes() {
        [b'e' | b'E', rest @ ..] if !rest.is_empty() => {
            let exponent = suffix[1..].parse::<i32>().map_err(|_| InvalidQuantity::Suffix)?;
            Ok((false, exponent, Format::DecimalExponent))
        }
        _ => Err(InvalidQuantity::Suffix),
    }
}

/// 2^63 - 1 in billionths: where Kubernetes caps what it cannot read as an integer of 18 digits and a power of ten.
const MOST: i128 = i64::MAX as i128 * NANO;

/// The value in billionths, rounded up, capped.
fn magnitude(whole: &str, fraction: &str, base2: bool, exponent: i32) -> i128 {
    // Digits as one integer and a power of ten. Trailing zeros of a fraction carry nothing; digits beyond the
    // 30th below the point cannot change the result but by rounding up, which `lost` remembers.
    let fraction = fraction.trim_end_matches('0');
    let mut digits: i128 = 0;
    let mut power = if base2 { 0 } else { exponent };
    let mut lost = false;
    const FULL: i128 = LIMIT / 1000;
    for (i, b) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let in_fraction = i >= whole.len();
        if digits < FULL / 10 {
            digits = digits * 10 + i128::from(b - b'0');
            power = power.saturating_sub(i32::from(in_fraction));
        } else {
            lost |= b != b'0';
            power = power.saturating_add(i32::from(!in_fraction));
        }
    }
    if digits == 0 {
        return 0;
    }
    let mut value = digits;
    if base2 {
        for _ in 0..exponent {
            // A long fraction gives way; only the end of the digits says what is too much.
            if value > i128::MAX / 2 {
                lost |= value % 10 != 0;
                value /= 10;
                power += 1;
            }
            value *= 2;
        }
    }
    let mut power = power.saturating_add(9);
    while power > 0 && value < LIMIT {
        value = value.saturating_mul(10).min(LIMIT);
        power -= 1;
    }
    while power < 0 && value > 0 {
        lost |= value % 10 != 0;
        value /= 10;
        power += 1;
    }
    let most = if base2 || whole.len() + fraction.len() > 18 { MOST } else { LIMIT };
    let capped = if value >= most { MOST } else { value + i128::from(lost) };
    capped.max(i128::from(power < 0 || lost))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANO;
        // Less than one of the smallest binary suffix, or not whole: decimal says it without rounding.
        if self.format == Format::BinarySi && self.nanos % NANO == 0 && whole.abs() >= 1024 {
            let mut n = whole;
            let mut steps = 0;
            while n % 1024 == 0 && steps < BINARY.len() {
                n /= 1024;
                steps += 1;
            }
            let suffix = if steps == 0 { "" } else { BINARY[steps - 1] };
            return write!(f, "{n}{suffix}");
        }
        let mut n = self.nanos;
        let mut thousands = 0;
        while n % 1000 == 0 && (self.format == Format::DecimalExponent || thousands < DECIMAL.len() - 1) {
            n /= 1000;
            thousands += 1;
        }
        if self.format == Format::DecimalExponent {
            match thousands as i32 * 3 - 9 {
                0 => write!(f, "{n}"),
                exponent => write!(f, "{n}e{exponent}"),
            }
        } else {
            write!(f, "{n}{}", DECIMAL[thousands])
        }
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

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, self.nanos.saturating_add(other.nanos))
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, self.nanos.saturating_sub(other.nanos))
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::zero(), Add::add)
    }
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        Self::parse(text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Users write `cpu: 2` as often as `cpu: "2"`.
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text.trim().to_owned(),
            serde_json::Value::Number(number) => number.to_string(),
            serde_json::Value::Null => return Ok(Self::zero()),
            other => {
                return Err(de::Error::custom(format!("a quantity is a string or a number, not {other}")));
            }
        };
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn the_canonical_form_is_kubernetes() {
        for (text, want) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+3", "3"),
            ("-1.5Gi", "-1536Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1023", "1023"),
            ("1000Ki", "1000Ki"),
            ("1.1Ki", "1126400m"),
            ("0.0001Ki", "102400u"),
            ("1000000", "1M"),
            ("12e6", "12e6"),
            ("12E6", "12e6"),
            ("1e3", "1e3"),
            ("1200e3", "1200e3"),
            ("100E", "100E"),
            ("1e-3", "1e-3"),
            ("1e0", "1"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("9223372036854775807", "9223372036854775807"),
            ("1e40", "9223372036854775807"),
            ("0000123", "123"),
            ("0.1e-2147483648", "1e-9"),
            ("123456789012345678901234567890123456789012345e2147483647", "9223372036854775807"),
            ("123456789012345678901234567890123456789012345", "9223372036854775807"),
        ] {
            assert_eq!(q(text).to_string(), want, "{text}");
        }
    }

    #[test]
    fn bad_quantities_are_told() {
        use InvalidQuantity::{Format, Numeric, Suffix};
        for (text, want) in [
            ("", Format),
            (" 1", Format),
            ("1 ", Format),
            ("abc", Format),
            ("1.2.3", Format),
            ("1Gi1x", Format),
            ("1ki", Suffix),
            ("1kk", Suffix),
            ("1e", Suffix),
            ("1e99999999999", Suffix),
            ("Gi", Numeric),
            (".", Numeric),
            ("-", Numeric),
        ] {
            assert_eq!(Quantity::parse(text), Err(want), "{text:?}");
        }
    }

    #[test]
    fn a_long_fraction_is_no_larger_than_a_short_one() {
        for (long, short) in [
            ("92232.502057780380301402077580030141Mi", "96712788013"),
            ("1.50000000000000000000000000000001Gi", "1610612736000000001n"),
            ("0.00000000000000000000000000000001Ei", "1n"),
            ("7.999999999999999999999999999999999Ei", "9223372036854775807"),
        ] {
            let (long, short) = (Quantity::parse(long).unwrap(), Quantity::parse(short).unwrap());
            assert!((long.nanos - short.nanos).abs() <= long.nanos / 1000, "{long} is not about {short}");
        }
    }

    #[test]
    fn values_are_rounded_up() {
        assert_eq!((q("1.2").value(), q("1001u").milli(), q("-1.2").value()), (2, 2, -2));
        assert_eq!((q("2").milli(), q("1Ki").value(), q("100E").value()), (2000, 1024, i64::MAX));
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    }

    #[test]
    fn sums_keep_the_first_format() {
        assert_eq!((q("1Gi") + q("1G")).to_string(), "2073741824");
        assert_eq!((Quantity::zero() + q("1Gi") + q("1Gi")).to_string(), "2Gi");
        assert_eq!((q("2") - q("500m")).to_string(), "1500m");
        assert_eq!(["1Gi", "512Mi"].map(q).into_iter().sum::<Quantity>().to_string(), "1536Mi");
        assert!(q("1Gi") > q("1G") && q("1024Mi") == q("1Gi"));
    }

    #[test]
    fn json_numbers_are_read() {
        for (json, want) in [("2", "2"), ("0.5", "500m"), ("\" 1Gi \"", "1Gi"), ("null", "0"), ("1e3", "1e3")]
        {
            let read: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(read, q(want), "{json}");
        }
        assert!(serde_json::from_str::<Quantity>("[]").is_err());
        assert_eq!(serde_json::to_string(&q("1000m")).unwrap(), "\"1\"");
    }

    fn formats() -> impl Strategy<Value = Format> {
        prop::sample::select(vec![Format::DecimalSi, Format::BinarySi, Format::DecimalExponent])
    }

    fn quantities() -> impl Strategy<Value = Quantity> {
        let scale = prop::sample::select(vec![1, 1000, 1024, NANO, NANO * 1024, NANO * 1024 * 1024]);
        (any::<i32>(), scale, formats())
            .prop_map(|(n, scale, format)| Quantity { nanos: i128::from(n) * scale, format })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(quantity in quantities()) {
            let text = quantity.to_string();
            let read = Quantity::parse(&text).unwrap();
            prop_assert_eq!(read, quantity);
            // Whole numbers of the binary format have no suffix that would tell it: they are read as decimal.
            let again = if read.format == quantity.format { text } else { read.to_string() };
            prop_assert_eq!(Quantity::parse(&again).unwrap().to_string(), again);
        }

        #[test]
        fn order_follows_the_value(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(Quantity::from_milli(a).cmp(&Quantity::from_milli(b)), a.cmp(&b));
        }

        #[test]
        fn differences_undo_sums(a in quantities(), b in quantities()) {
            prop_assert_eq!(a + b - b, a);
        }

        #[test]
        fn nothing_makes_it_panic(text in "[-+0-9.eEinumkKMGTPé]{0,60}") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let _ = quantity.to_string();
                let _ = quantity.milli();
            }
        }
    }
}
