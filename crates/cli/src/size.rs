//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

use page::ByteCount;

/// The smallest budget: an agent's tables and buffers, and enough frames for a program to get from one fault to the
/// next.
pub(crate) const BUDGET_BYTES_MIN: u64 = 16 << 20;

/// `--ram`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ram {
    /// So many bytes.
    Bytes(ByteCount),
    /// Hundredths of the machine's memory or of the cgroup's limit.
    Percent(f64),
    /// What is free, less a reserve.
    Auto,
}

impl FromStr for Ram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        if let Some(number) = text.strip_suffix('%') {
            return match decimal(number.trim_end()) {
                Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percent(percent)),
                _ => Err("a percentage lies between 0% and 100%".to_owned()),
            };
        }
        match size(text) {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(reason) => Err(format!("{reason}, a percentage such as 50%, or auto")),
        }
    }
}

/// Reads `4096`, `256M`, `1.5G`, `2GiB`, `64kb`. Multiples are binary whatever the suffix.
pub(crate) fn size(text: &str) -> Result<ByteCount, String> {
    let expected = || "expected a size such as 256M or 1.5G".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number = decimal(number).ok_or_else(expected)?;
    let shift = match suffix.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(expected()),
    };
    let bytes = number * (1_u64 << shift) as f64;
    // Above 2^53 a double is not exact any more; no machine has eight petabytes.
    if bytes >= (1_u64 << 53) as f64 {
        return Err("too large".to_owned());
    }
    Ok(ByteCount(bytes as u64))
}

/// A plain decimal number: what `f64` accepts without signs, exponents, and names such as `inf`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Prints a number of bytes with the largest binary unit that leaves at least one before the point.
pub(crate) struct Human(pub(crate) u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["TiB", "GiB", "MiB", "KiB"];
        for (unit, shift) in units.iter().zip([40, 30, 20, 10]) {
            if self.0 >= 1 << shift {
                let value = self.0 as f64 / (1_u64 << shift) as f64;
                // A whole number stays one: 16 MiB, not 16.0 MiB.
                let digits = usize::from(!self.0.is_multiple_of(1 << shift));
                return write!(f, "{value:.digits$} {unit}");
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_sizes() {
        let cases = [
            ("4096", 4096),
            ("4096B", 4096),
            ("1k", 1 << 10),
            ("256M", 256 << 20),
            ("256m", 256 << 20),
            ("256MB", 256 << 20),
            ("256MiB", 256 << 20),
            ("256 MiB", 256 << 20),
            ("1.5G", 3 << 29),
            (".5g", 1 << 29),
            ("2tib", 2 << 40),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn bad_sizes() {
        for text in
            ["", "M", ".", "-1M", "+1M", "1e3", "inf", "nan", "12X", "1.2.3M", "0x10", "256 M B", "9999999T", "5%"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ram() {
        assert_eq!("AUTO".parse(), Ok(Ram::Auto));
        assert_eq!("50%".parse(), Ok(Ram::Percent(50.0)));
        assert_eq!("12.5%".parse(), Ok(Ram::Percent(12.5)));
        assert_eq!("1G".parse(), Ok(Ram::Bytes(ByteCount(1 << 30))));
        for text in ["0%", "101%", "%", "-5%", "fast", "autos"] {
            assert!(text.parse::<Ram>().is_err(), "{text}");
        }
    }

    #[test]
    fn human() {
        for (bytes, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1 << 24, "16 MiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(Human(bytes).to_string(), text);
        }
    }
}
