//! Sizes as people write them: `256M`, `1.5G`, `4096`.

/// Bytes of a size with an optional suffix K, M, G or T (powers of 1024, `iB` or `B` may follow).
pub fn parse(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.trim_end_matches('b').trim_end_matches('i');
    let (digits, shift) = match number.chars().last() {
        Some('k') => (&number[..number.len() - 1], 10),
        Some('m') => (&number[..number.len() - 1], 20),
        Some('g') => (&number[..number.len() - 1], 30),
        Some('t') => (&number[..number.len() - 1], 40),
        _ => (number, 0),
    };
    match digits.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok((value * f64::from(1 << 10).powi(shift / 10)) as u64),
        _ => Err(format!("`{text}` is no size: write 4096, 256M or 1.5G")),
    }
}

/// A share from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no share: write a number from 0 to 1")),
    }
}

/// A size in MiB with one digit, for people.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("256M"), Ok(256 << 20));
        assert_eq!(parse("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse("2kb"), Ok(2048));
        for bad in ["", "M", "-1", "12Q", "nan", "0x10"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert!(parse_share("1.01").is_err());
        assert!(parse_share("half").is_err());
    }
}
