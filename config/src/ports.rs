//! The ports of a rule: single ones, ranges, lists of both, or all.

use std::borrow::Cow;
use std::fmt;

use crate::port::{Port, PortError};

/// A set of ports, never empty: sorted ranges, both ends included, that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ports(Cow<'static, [(u16, u16)]>);

/// Why a text is no list of ports. `at` is the byte offset in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortsError {
    Port { at: usize, text: String, source: PortError },
    Backwards { at: usize, low: Port, high: Port },
    StarInList { at: usize },
}

impl Ports {
    /// Where a rule names none: 443 and 80.
    pub const DEFAULT: Self = Self(Cow::Borrowed(&[(80, 80), (443, 443)]));
    /// `*`: every port.
    pub const ALL: Self = Self(Cow::Borrowed(&[(1, u16::MAX)]));

    /// Parses what stands after the colon of a rule: `22`, `22,443`, `8000-8100`, `22,8000-8100` or `*`.
    pub(crate) fn parse(text: &str) -> Result<Self, PortsError> {
        if text == "*" {
            return Ok(Self::ALL);
        }
        let mut ranges = Vec::new();
        let mut at = 0;
        for item in text.split(',') {
            if item == "*" {
                return Err(PortsError::StarInList { at });
            }
            let port = |at, text: &str| {
                Port::parse(text.as_bytes()).map_err(|source| PortsError::Port { at, text: text.to_owned(), source })
            };
            // A range is known by a digit before its hyphen, so that `-1` is called a bad port.
            let (low, high) = match item.split_once('-') {
                Some((low, high)) if !low.is_empty() && low.bytes().all(|b| b.is_ascii_digit()) => {
                    (port(at, low)?, port(at + low.len() + 1, high)?)
                }
                _ => (port(at, item)?, port(at, item)?),
            };
            if low > high {
                return Err(PortsError::Backwards { at, low, high });
            }
            ranges.push((low.get(), high.get()));
            at += item.len() + 1;
        }
        Ok(Self(Cow::Owned(merge(ranges))))
    }

    /// Whether the port is in the set.
    pub fn contains(&self, port: Port) -> bool {
        let first_not_before = self.0.partition_point(|(_, high)| *high < port.get());
        self.0.get(first_not_before).is_some_and(|(low, _)| *low <= port.get())
    }

    /// The ranges, sorted, both ends included.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.0.iter().copied()
    }

    /// Whether every port of `self` is in one of the others.
    pub(crate) fn is_covered_by<'a>(&self, others: impl Iterator<Item = &'a Self>) -> bool {
        let covered = merge(others.flat_map(Self::ranges).collect());
        self.ranges().all(|(low, high)| covered.iter().any(|(from, to)| *from <= low && high <= *to))
    }

    /// The ports of `self` that are in one of the others, if there are any.
    pub(crate) fn within<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let others = merge(others.flat_map(Self::ranges).collect());
        let common = |(low, high): (u16, u16)| {
            let cut = others.iter().map(move |(from, to)| (low.max(*from), high.min(*to)));
            cut.filter(|(low, high)| low <= high)
        };
        let left: Vec<_> = self.ranges().flat_map(common).collect();
        (!left.is_empty()).then_some(Self(Cow::Owned(left)))
    }
}

fn merge(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match merged.last_mut() {
            Some(last) if u32::from(low) <= u32::from(last.1) + 1 => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

impl fmt::Display for Ports {
    /// As in a rule: `22,443`, `8000-8100`, `*`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("*");
        }
        for (index, (low, high)) in self.ranges().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if low == high {
                write!(f, "{low}")?;
            } else {
                write!(f, "{low}-{high}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16) -> Port {
        Port::new(number).unwrap()
    }

    #[test]
    fn lists_and_ranges_are_sorted_and_merged() {
        for (text, shown) in [
            ("22", "22"),
            ("443,22", "22,443"),
            ("22,22", "22"),
            ("8000-8100", "8000-8100"),
            ("8000-8000", "8000"),
            ("1-10,5-20,21,30", "1-21,30"),
            ("*", "*"),
            ("1-65535", "*"),
            ("1-65534,65535", "*"),
        ] {
            assert_eq!(Ports::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn a_bad_list_names_the_place() {
        for (text, expected) in [
            ("", PortsError::Port { at: 0, text: String::new(), source: PortError::Empty }),
            ("22,", PortsError::Port { at: 3, text: String::new(), source: PortError::Empty }),
            ("22,0", PortsError::Port { at: 3, text: "0".into(), source: PortError::Zero }),
            ("22,65536", PortsError::Port { at: 3, text: "65536".into(), source: PortError::TooLarge }),
            ("1-65536", PortsError::Port { at: 2, text: "65536".into(), source: PortError::TooLarge }),
            ("22-", PortsError::Port { at: 3, text: String::new(), source: PortError::Empty }),
            ("-1", PortsError::Port { at: 0, text: "-1".into(), source: PortError::NotDigits }),
            ("1-2-3", PortsError::Port { at: 2, text: "2-3".into(), source: PortError::NotDigits }),
            ("https", PortsError::Port { at: 0, text: "https".into(), source: PortError::ServiceName }),
            ("9-1", PortsError::Backwards { at: 0, low: port(9), high: port(1) }),
            ("22,*", PortsError::StarInList { at: 3 }),
        ] {
            assert_eq!(Ports::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn what_is_within_others_is_what_both_contain() {
        let lists = ["22", "80,443", "*", "1-100", "90-110,400-500", "443,8000-8100", "65535"]
            .map(|text| Ports::parse(text).unwrap());
        for number in 0..lists.len().pow(3) {
            let [one, two, three] = [1, 7, 49].map(|step| &lists[number / step % lists.len()]);
            let within = one.within([two, three].into_iter());
            for number in
                [1, 22, 79, 80, 89, 90, 100, 101, 110, 111, 400, 443, 500, 501, 8000, 8100, 8101, 65534, 65535]
            {
                let expected =
                    one.contains(port(number)) && (two.contains(port(number)) || three.contains(port(number)));
                let found = within.as_ref().is_some_and(|ports| ports.contains(port(number)));
                assert_eq!(found, expected, "{number} in {one} within {two} or {three}");
            }
            assert_eq!(one.within(std::iter::empty()), None);
        }
    }

    #[test]
    fn contains_agrees_with_the_ranges_at_every_port() {
        let ports = Ports::parse("1-3,80,443,8000-8100,65535").unwrap();
        for number in 1..=u16::MAX {
            let expected = matches!(number, 1..=3 | 80 | 443 | 8000..=8100 | 65535);
            assert_eq!(ports.contains(port(number)), expected, "{number}");
        }
        assert!(Ports::DEFAULT.contains(port(80)) && Ports::DEFAULT.contains(port(443)));
        assert!(!Ports::DEFAULT.contains(port(81)));
    }

    #[test]
    fn several_sets_cover_together() {
        let ports = |text| Ports::parse(text).unwrap();
        let cover = [ports("1-100"), ports("101-200")];
        assert!(ports("50-150").is_covered_by(cover.iter()));
        assert!(!ports("50-201").is_covered_by(cover.iter()));
        assert!(!ports("50").is_covered_by([].iter()));
    }
}
