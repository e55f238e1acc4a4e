//! Instants as RFC 3339 writes them, in UTC with microseconds.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time, shown as `2026-11-30T22:13:05.000250Z`. Times before 1970 show as its beginning, and times after
/// 9999 as its end.
#[derive(Clone, Copy)]
pub struct Timestamp(SystemTime);

/// The last second that RFC 3339's four digits of a year can hold.
const LAST_SECOND: u64 = 253_402_300_799;

impl Timestamp {
    pub fn now() -> Self {
        Self(SystemTime::now())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = since.as_secs().min(LAST_SECOND);
        let (year, month, day) = civil(second / 86_400);
        let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
    }
}

/// Year, month and day of a number of days since 1970-01-01. Years begin in March here, so that the leap day is their
/// last: then the months' lengths repeat (31, 30, 31, 30, 31 is 153 days), and 400 years are 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, micros: u64) -> String {
        Timestamp(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros)).to_string()
    }

    /// From `date -u -d @SECONDS +%FT%TZ`.
    #[test]
    fn known_instants() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (68_169_599, "1972-02-28T23:59:59"),
            (68_169_600, "1972-02-29T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_000_000_000, "2001-09-09T01:46:40"),
            (1_234_567_890, "2009-02-13T23:31:30"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (1_798_761_600, "2027-01-01T00:00:00"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (253_402_300_799, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(at(seconds, 0), format!("{text}.000000Z"));
        }
    }

    #[test]
    fn microseconds_have_six_digits() {
        assert_eq!(at(1, 25), "1970-01-01T00:00:01.000025Z");
        assert_eq!(at(1, 999_999), "1970-01-01T00:00:01.999999Z");
    }

    #[test]
    fn a_clock_that_is_far_off_still_gives_a_valid_year() {
        assert_eq!(Timestamp(UNIX_EPOCH - Duration::from_secs(5)).to_string(), "1970-01-01T00:00:00.000000Z");
        assert!(at(u64::MAX / 4, 0).starts_with("9999-12-31T23:59:59."));
    }
}
