//! What was refused or failed, in a few lines on stderr when the run is over.

use std::fmt::Write as _;

use netbox_proxy::events::{Events, Reached, Refused, Summary};

use crate::cli::When;
use crate::say::{self, Voice};

/// How many refusals are told one by one.
const SHOWN: usize = 10;

/// Writes the last event, and says on stderr what there is to be said.
pub fn conclude(events: &Events, code: u8, when: When, voice: Voice) {
    events.exit(code.into());
    if events.dropped() > 0 {
        voice.warn(format_args!("{} events could not be written", events.dropped()));
    }
    let wanted = match when {
        When::Auto => !voice.quiet,
        When::Always => true,
        When::Never => false,
    };
    let always = when == When::Always || voice.verbose;
    if wanted && let Some(text) = compose(&events.summary(), always) {
        // In one piece, so that lines of a command that still runs elsewhere do not come between.
        say::plain(&text);
    }
}

/// The summary, or nothing where `always` is not set and there is nothing that the person has to know.
fn compose(summary: &Summary, always: bool) -> Option<String> {
    let refused = summary.denied + summary.malformed;
    if refused == 0 && summary.failed == 0 && summary.audited.is_empty() && !always {
        return None;
    }
    let mut text = format!("netbox: {} allowed, {refused} refused", summary.allowed);
    if summary.failed > 0 {
        let _ = write!(text, ", {} allowed but failed on the far side", summary.failed);
    }
    text.push('\n');
    if always {
        reached(&mut text, summary);
    }
    list(&mut text, "refused", &summary.refused, summary.others);
    list(&mut text, "would be refused", &summary.audited, summary.others_audited);
    list(&mut text, "failed", &summary.failures, 0);
    Some(text)
}

/// One line for each host, and one for those that are too many.
fn reached(text: &mut String, summary: &Summary) {
    for Reached { host, port, count, sent, received } in summary.reached.iter().take(SHOWN) {
        let _ = write!(text, "  reached {}", place(host, *port));
        if *count > 1 {
            let _ = write!(text, ", {count} times");
        }
        let _ = writeln!(text, ", {} sent, {} received", size(*sent), size(*received));
    }
    let rest = summary.reached.len().saturating_sub(SHOWN);
    match (rest, summary.others_reached) {
        (0, 0) => {}
        (rest, 0) => {
            let _ = writeln!(text, "  and more: {rest} further hosts");
        }
        (rest, others) => {
            let _ = writeln!(text, "  and more: {rest} further hosts, and {others} connections to others");
        }
    }
}

/// Bytes as a person reads them: `512 B`, `1.4 kB`, `12 MB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let power = bytes.checked_ilog(1000).unwrap_or(0);
    let (unit, scale) = (units[power as usize], 1000_u64.pow(power));
    match bytes / scale {
        whole if power > 0 && whole < 10 => format!("{whole}.{} {unit}", bytes % scale * 10 / scale),
        whole => format!("{whole} {unit}"),
    }
}

/// `host:port`, as far as it is known.
pub fn place(host: &str, port: Option<u16>) -> String {
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    if host.is_empty() {
        return format!("what named no host{port}");
    }
    // An IPv6 address before a port needs its brackets.
    if host.contains(':') && !host.starts_with('[') && !port.is_empty() {
        return format!("[{host}]{port}");
    }
    format!("{host}{port}")
}

/// One line for each kind, and one for those that are too many.
fn list(text: &mut String, what: &str, groups: &[Refused], others: u64) {
    for group in groups.iter().take(SHOWN) {
        let _ = write!(text, "  {what} {} ({})", place(&group.host, group.port), group.reason);
        if group.count > 1 {
            let _ = write!(text, ", {} times", group.count);
        }
        if let Some(by) = &group.by {
            let _ = write!(text, "; by {by}");
        }
        if let Some(hint) = &group.hint {
            let _ = write!(text, "; to allow it: --allow '{hint}'");
        }
        text.push('\n');
        if let Some(near) = &group.near {
            let _ = writeln!(text, "    near: {near}");
        }
    }
    let rest = groups.len().saturating_sub(SHOWN) as u64 + others;
    if rest > 0 {
        let _ = writeln!(text, "  and more: {rest} further kinds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_never_rounded_up() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1999, "1.9 kB"),
            (10_999, "10 kB"),
            (999_999, "999 kB"),
            (5_400_000, "5.4 MB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
