//! What was refused or failed, in a few lines on stderr when the run is over.

use std::fmt::Write as _;
use std::io::Write as _;

use netbox_proxy::events::{Events, Refused, Summary};

use crate::cli::When;
use crate::say::Voice;

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
        // One write, so that lines of a command that still runs elsewhere do not come between. A closed stderr is no
        // reason to fail.
        let _ = std::io::stderr().write_all(text.as_bytes());
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
    list(&mut text, "refused", &summary.refused, summary.others);
    list(&mut text, "would be refused", &summary.audited, 0);
    list(&mut text, "failed", &summary.failures, 0);
    Some(text)
}

/// One line for each kind, and one for those that are too many.
fn list(text: &mut String, what: &str, groups: &[Refused], others: u64) {
    for group in groups.iter().take(SHOWN) {
        let port = group.port.map(|port| format!(":{port}")).unwrap_or_default();
        // An IPv6 address before a port needs its brackets.
        let host = if group.host.is_empty() {
            "what named no host".to_owned()
        } else if group.host.contains(':') && !group.host.starts_with('[') && group.port.is_some() {
            format!("[{}]", group.host)
        } else {
            group.host.clone()
        };
        let _ = write!(text, "  {what} {host}{port} ({})", group.reason);
        if group.count > 1 {
            let _ = write!(text, ", {} times", group.count);
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
