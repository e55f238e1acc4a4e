//! Durations as they are typed, on the command line and in files: `90s`, `5m`, `1h30m`, `500ms`.

use std::time::Duration;

use crate::quote::quote;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration as it is typed: one or more numbers, each with its unit (`ms`, `s`, `m`, `h`, `d`); a number alone is
/// seconds. Not zero.
///
/// # Errors
///
/// One line that says what to write.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let complaint = || format!("{} is no duration: write `90s`, `5m` or `1h30m`", quote(text.as_bytes()));
    if let Ok(seconds) = number(text) {
        return positive(seconds.checked_mul(1_000)).ok_or_else(complaint);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(complaint)?;
        let (count, behind) = rest.split_at(digits);
        let unit = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(complaint)?;
        let part = number(count).map_err(|()| complaint())?.checked_mul(*scale).ok_or_else(complaint)?;
        total = total.checked_add(part).ok_or_else(complaint)?;
        rest = behind;
    }
    positive(Some(total)).ok_or_else(complaint)
}

fn positive(milliseconds: Option<u64>) -> Option<Duration> {
    milliseconds.filter(|milliseconds| *milliseconds > 0).map(Duration::from_millis)
}

/// Digits only: `u64::from_str` takes a sign.
fn number(text: &str) -> Result<u64, ()> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(());
    }
    text.parse().map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_or_are_seconds() {
        for (text, milliseconds) in
            [("90s", 90_000), ("90", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("500ms", 500), ("1d", 86_400_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in
            ["", "0", "0s", "s", "5x", "-5", "+5", "1.5h", "5 m", "99999999999999999999", "9999999999999999999d", "5m3"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
