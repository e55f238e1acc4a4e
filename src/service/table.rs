//! The state of a service, as a person reads it.

use std::fmt::Write as _;

use netbox_proxy::service::registry::TenantKind;
use netbox_proxy::service::status::{Status, TenantStatus};
use nix::unistd::{Uid, User};

use crate::summary;

/// How many of a tenant's connections and refusals are shown.
const DETAILS: usize = 5;

/// How wide a name may be.
const NAME: usize = 24;

/// The whole text.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    let state = if status.draining { ", taking no more connections" } else { "" };
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        out,
        "netbox {}, process {}, for {}{state}",
        escaped(&status.version),
        status.pid,
        time(status.uptime_seconds)
    );
    let _ = writeln!(out, "listening on {}", escaped(&status.listening.join(" ")));
    if status.reloads + status.reloads_failed > 0 {
        let _ = writeln!(out, "files read anew {} times, and {} times in vain", status.reloads, status.reloads_failed);
    }
    if let Some(error) = &status.reload_error {
        let _ = writeln!(out, "the last time nothing changed: {}", escaped(error));
    }
    out.push('\n');
    let rows: Vec<_> = status.tenants.iter().map(row).collect();
    let header = ["", "tenant", "user", "open", "taken", "refused", "sent", "received", "for"].map(str::to_owned);
    let widths: Vec<_> = (0..header.len())
        .map(|column| rows.iter().chain([&header]).map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    line(&mut out, &header, &widths);
    for (tenant, row) in status.tenants.iter().zip(&rows) {
        line(&mut out, row, &widths);
        details(&mut out, tenant);
    }
    if status.more_tenants > 0 {
        let _ = writeln!(out, "and {} more", status.more_tenants);
    }
    out
}

fn row(tenant: &TenantStatus) -> [String; 9] {
    let name = match tenant.kind {
        TenantKind::Default => "plain clients".to_owned(),
        TenantKind::Role => format!("role {}", escaped(&tenant.name)),
        TenantKind::Sandbox => escaped(&tenant.name),
    };
    [
        tenant.number.to_string(),
        cut(&name),
        tenant.uid.map(user).unwrap_or_default(),
        tenant.open.to_string(),
        tenant.connections.to_string(),
        tenant.refused.values().sum::<u64>().to_string(),
        summary::size(tenant.sent),
        summary::size(tenant.received),
        time(tenant.seconds),
    ]
}

fn line(out: &mut String, row: &[String; 9], widths: &[usize]) {
    // Words on the left, numbers on the right.
    let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
        1 | 2 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
}

fn details(out: &mut String, tenant: &TenantStatus) {
    for flow in tenant.flows.iter().take(DETAILS) {
        let (sent, received) = (summary::size(flow.sent), summary::size(flow.received));
        let age = time(flow.seconds);
        let _ = writeln!(out, "      {}, {sent} sent, {received} received, for {age}", escaped(&flow.target));
    }
    if tenant.open > DETAILS {
        let _ = writeln!(out, "      and more: {} further connections", tenant.open - DETAILS);
    }
    for refusal in tenant.refusals.iter().take(DETAILS) {
        let place = escaped(&summary::place(&refusal.host, refusal.port));
        let _ = write!(out, "      refused {place} ({}), {} times", refusal.reason, refusal.count);
        if let Some(hint) = &refusal.hint {
            let hint = escaped(hint);
            let _ = match tenant.kind {
                TenantKind::Role => write!(out, "; to allow it: `{hint}` in `allow` of the role"),
                TenantKind::Sandbox | TenantKind::Default => write!(out, "; to allow it: --allow '{hint}'"),
            };
        }
        out.push('\n');
    }
    for (limit, count) in &tenant.limits {
        let _ = writeln!(out, "      reached its limit of `{}` {count} times", escaped(limit));
    }
}

/// Words of another process.
fn escaped(text: &str) -> String {
    netbox_config::escaped(text.as_bytes()).to_string()
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn user(uid: u32) -> String {
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| uid.to_string())
}

/// The two greatest units of a time.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netbox_config::Reason;
    use netbox_proxy::service::status::{FlowStatus, RefusalStatus};

    use super::*;

    fn tenant(number: u64, name: &str) -> TenantStatus {
        TenantStatus {
            number,
            kind: TenantKind::Sandbox,
            name: name.into(),
            session: "0".repeat(32),
            uid: Some(0),
            pid: Some(7),
            seconds: 61,
            mode: "allowlist".into(),
            policy: String::new(),
            open: 1,
            connections: 12,
            allowed: 10,
            refused: BTreeMap::from([(Reason::NotListed, 2)]),
            failed: 0,
            revoked: 0,
            sent: 1000,
            received: 5_000_000,
            dns_queries: 3,
            limits: BTreeMap::new(),
            events_dropped: 0,
            flows: vec![FlowStatus {
                target: "github.com:443".into(),
                address: None,
                seconds: 5,
                sent: 1,
                received: 2,
            }],
            refusals: vec![RefusalStatus {
                host: "example.com".into(),
                port: Some(443),
                reason: Reason::NotListed,
                count: 2,
                hint: Some("example.com".into()),
            }],
        }
    }

    fn status(tenants: Vec<TenantStatus>) -> Status {
        Status {
            version: "0.1.0".into(),
            pid: 42,
            uptime_seconds: 3 * 3600 + 120,
            draining: false,
            policy: String::new(),
            listening: vec!["unix:/run/netbox/control.sock".into(), "127.0.0.1:3128".into()],
            reloads: 1,
            reloads_failed: 0,
            reload_error: None,
            tenants,
            more_tenants: 3,
        }
    }

    #[test]
    fn it_is_a_table_with_what_each_does() {
        let role =
            TenantStatus { kind: TenantKind::Role, uid: None, flows: vec![], refusals: vec![], ..tenant(2, "ci") };
        let shown = text(&status(vec![tenant(11, "git"), role]));
        let expected = "\
netbox 0.1.0, process 42, for 3 h 2 min
listening on unix:/run/netbox/control.sock 127.0.0.1:3128
files read anew 1 times, and 0 times in vain

    tenant   user  open  taken  refused    sent  received        for
11  git      root     1     12        2  1.0 kB    5.0 MB  1 min 1 s
      github.com:443, 1 B sent, 2 B received, for 5 s
      refused example.com:443 (not-listed), 2 times; to allow it: --allow 'example.com'
 2  role ci           1     12        2  1.0 kB    5.0 MB  1 min 1 s
and 3 more
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_programs_call_themselves_moves_no_cursor() {
        let shown = text(&status(vec![tenant(1, "\x1b[2Jgit\nroot"), tenant(2, &"x".repeat(500))]));
        assert!(!shown.contains('\x1b') && shown.contains("\\x1b[2Jgit\\x0aroot"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 120), "{shown}");
    }
}
