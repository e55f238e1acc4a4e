//! What this process holds, as `/proc` tells it (proc(5)).

use std::fs;
use std::time::Duration;

use netbox_proxy::metrics::ProcessReading;
use nix::unistd::{SysconfVar, sysconf};

/// What it holds. `None`: there is no `/proc`.
pub fn reading() -> Option<ProcessReading> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(ProcessReading {
        resident: resident(),
        // One of them is open to be counted.
        descriptors: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u64),
        most_descriptors: Some(netbox_launcher::descriptor_limit()),
        processor: processor(&stat, sysconf(SysconfVar::CLK_TCK).ok()??),
    })
}

fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?)
}

/// Seconds in user and system mode: fields 14 and 15, counted from behind the name, which may hold anything.
fn processor(stat: &str, ticks: i64) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok();
    let sum = Duration::from_secs(u64::from(next()?) + u64::from(next()?));
    (ticks > 0).then(|| sum.as_secs_f64() / ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let reading = reading().expect("there is a /proc");
        assert!(reading.resident.is_some_and(|bytes| bytes > 1 << 20), "{reading:?}");
        assert!(reading.descriptors.is_some_and(|count| count >= 3 && count <= reading.most_descriptors.unwrap_or(0)));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 5 1000 200";
        assert_eq!(processor(stat, 100), Some(2.0));
        assert_eq!(processor("7 (x", 100), None);
    }
}
