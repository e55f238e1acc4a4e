//! Sizes and rates as they are written: `10 GB`, `100 MB/s`, `1 Gbit/s`.

/// Units of bytes, with how many each is.
const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Units of bits, with how many bits each is.
const BITS: [(&str, u64); 3] = [("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];

/// A number of bytes, of at least one.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    scaled(count, of(&BYTES, unit)?)
}

/// Bytes in a second, of at least one.
pub(super) fn bandwidth(text: &str) -> Option<u64> {
    let (count, unit) = split(text.strip_suffix("/s")?)?;
    match of(&BYTES, unit) {
        Some(scale) => scaled(count, scale),
        None => scaled(count, of(&BITS, unit)? / 8),
    }
}

/// A whole number and its unit, with or without one space between them.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    Some((count.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}

fn of(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

fn scaled(count: u64, scale: u64) -> Option<u64> {
    count.checked_mul(scale).filter(|amount| *amount > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_units() {
        for (text, amount) in [("1 B", 1), ("10kB", 10_000), ("2 GiB", 2 << 30), ("3 TB", 3_000_000_000_000)] {
            assert_eq!(bytes(text), Some(amount), "{text}");
            assert_eq!(bandwidth(&format!("{text}/s")), Some(amount), "{text}");
        }
        assert_eq!(bandwidth("100 Mbit/s"), Some(12_500_000));
        assert_eq!(bandwidth("1Gbit/s"), Some(125_000_000));
        for text in [
            "",
            "1",
            "0 B",
            "1 b",
            "1 mb",
            "1  MB",
            " 1 MB",
            "1 MB ",
            "-1 MB",
            "+1 MB",
            "1.5 MB",
            "MB",
            "1 Mbit",
            "99999999 TB",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        for text in ["1 MB", "1 MB/h", "1 MB / s", "0 MB/s", "/s", "1/s"] {
            assert_eq!(bandwidth(text), None, "{text}");
        }
    }
}
