//! What was refused, in a few lines on stderr when the run is over.

use std::fmt::Write as _;

use netbox_proxy::events::Summary;

/// How many refusals are told one by one.
const SHOWN: usize = 10;

/// The summary, or nothing where `always` is not set and nothing was refused.
pub fn compose(summary: &Summary, always: bool) -> Option<String> {
    let refused = summary.denied + summary.malformed;
    if refused == 0 && !always {
        return None;
    }
    let mut text = format!("netbox: {} allowed, {refused} refused", summary.allowed);
    if summary.failed > 0 {
        let _ = write!(text, ", {} allowed but failed on the far side", summary.failed);
    }
    text.push('\n');
    for group in summary.refused.iter().take(SHOWN) {
        let port = group.port.map(|port| format!(":{port}")).unwrap_or_default();
        // An IPv6 address before a port needs its brackets.
        let host = if group.host.contains(':') && !group.host.starts_with('[') && group.port.is_some() {
            format!("[{}]", group.host)
        } else {
            group.host.clone()
        };
        let _ = write!(text, "  refused {host}{port} ({})", group.reason);
        if group.count > 1 {
            let _ = write!(text, ", {} times", group.count);
        }
        if let Some(hint) = &group.hint {
            let _ = write!(text, "; to allow it: --allow '{hint}'");
        }
        text.push('\n');
    }
    let rest = summary.refused.len().saturating_sub(SHOWN) as u64;
    if rest + summary.others > 0 {
        let _ = writeln!(text, "  and more: {} further kinds", rest + summary.others);
    }
    Some(text)
}
