//! What a command needed, as rules: one for each host, with the ports that it took.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netbox_config::presets::BUILTIN;
use netbox_config::{Decision, Host, HostFacts, HostName, Mode, Policy, Port, Rule, Source, Target, Via};
use netbox_proxy::events::{Refused, Summary};

/// More rules than this are no list that a person reads.
pub const MOST_RULES: usize = 256;

/// From how many names on that have a parent in common a wildcard is mentioned.
const SIBLINGS: usize = 3;

/// What a run in audit mode took that no rule allows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The rules that allow it, sorted.
    pub rules: Vec<String>,
    /// What shorter rules there would be. They allow more, so they are for a person to write.
    pub shorter: Vec<String>,
    /// What no rule can allow, in words.
    pub hopeless: Vec<String>,
}

/// One host and how it was spoken to.
type Key = (Host, bool);

/// Makes rules from the sums of a run.
///
/// # Errors
/// They are too many, in words.
pub fn needs(summary: &Summary) -> Result<Needs, String> {
    let mut ports: BTreeMap<Key, BTreeSet<u16>> = BTreeMap::new();
    let mut needs = Needs::default();
    for took in &summary.audited {
        match target(took) {
            Some((key, port)) => drop(ports.entry(key).or_default().insert(port)),
            None => needs.hopeless.push(hopeless(took)),
        }
    }
    if ports.len() > MOST_RULES || summary.others_audited > 0 {
        return Err(format!("it took more than {MOST_RULES} hosts, which is no list that a person reads"));
    }
    needs.shorter = shorter(ports.keys().filter_map(|(host, _)| match host {
        Host::Name(name) => Some(name),
        Host::Address(_) => None,
    }));
    needs.shorter.extend(presets(&ports));
    needs.rules = ports.iter().map(|((host, raw), ports)| rule(host, *raw, ports)).collect();
    Ok(needs)
}

/// What is to be allowed. The host is as an event shows it: one that had to be escaped is none.
fn target(took: &Refused) -> Option<(Key, u16)> {
    let raw = took.hint.as_ref()?.starts_with("tcp://");
    let host = match took.host.parse::<IpAddr>() {
        Ok(address) => Host::from_ip(address),
        Err(_) => Host::Name(HostName::parse_wire(took.host.as_bytes()).ok()?),
    };
    Some(((host, raw), took.port?))
}

fn rule(host: &Host, raw: bool, ports: &BTreeSet<u16>) -> String {
    let is_usual = !raw && ports.iter().all(|port| [80, 443].contains(port));
    let scheme = if raw { "tcp://" } else { "" };
    let host = match host {
        // Without ports, an IPv6 address needs brackets only where it could be taken for one with a port.
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        host => host.to_string(),
    };
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    if is_usual { host } else { format!("{scheme}{host}:{}", ports.join(",")) }
}

fn hopeless(took: &Refused) -> String {
    let port = took.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port} ({})", took.host, took.reason)
}

/// Names that have their parent in common, where that is one owner's.
fn shorter<'n>(names: impl Iterator<Item = &'n HostName>) -> Vec<String> {
    let mut children: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in names {
        if let Some((_, parent)) = name.as_str().split_once('.') {
            children.entry(parent).or_default().insert(name.as_str());
        }
    }
    let wildcard = |(parent, children): (&str, BTreeSet<&str>)| {
        let text = format!("*.{parent}");
        let rule = Rule::parse(&text, Source::Flag("learn")).ok().filter(|rule| rule.warnings().is_empty())?;
        let many = children.len();
        (many >= SIBLINGS)
            .then(|| format!("{many} of them are below `{parent}`, all of which `{}` would allow", rule.text()))
    };
    children.into_iter().filter_map(wildcard).collect()
}

/// Built-in presets that stand for two or more of these.
fn presets(ports: &BTreeMap<Key, BTreeSet<u16>>) -> Vec<String> {
    let covers = |policy: &Policy, host: &Host, port: u16| {
        let target = Port::new(port).map(|port| Target::new(host.clone(), port, Via::Connect));
        target.is_some_and(|target| matches!(policy.decide(&target, &HostFacts::default()), Decision::Allow(_)))
    };
    let mut told = Vec::new();
    for preset in BUILTIN {
        let rules = preset.rules.iter().filter_map(|text| Rule::parse(text, Source::Flag("preset")).ok()).collect();
        let Ok(policy) = Policy::new(Mode::Allowlist, rules, Vec::new()) else { continue };
        let covered = ports.iter().filter(|((host, _), ports)| ports.iter().all(|port| covers(&policy, host, *port)));
        let many = covered.count();
        if many >= 2 {
            told.push(format!("`@{}` stands for {many} of them, and for more hosts of that service", preset.name));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use netbox_config::Reason;

    use super::*;

    fn took(host: &str, port: u16, reason: Reason, hint: Option<&str>) -> Refused {
        let hint = hint.map(str::to_owned);
        Refused { host: host.to_owned(), port: Some(port), reason, count: 1, hint, near: None, by: None }
    }

    fn of(audited: Vec<Refused>) -> Needs {
        needs(&Summary { audited, ..Summary::default() }).expect("not too many")
    }

    fn unlisted(host: &str, port: u16) -> Refused {
        took(host, port, Reason::NotListed, Some("any"))
    }

    #[test]
    fn a_host_is_one_rule_with_its_ports() {
        let needs = of(vec![
            unlisted("b.example.com", 443),
            unlisted("a.example.com", 5432),
            unlisted("b.example.com", 80),
            unlisted("a.example.com", 443),
            took("203.0.113.7", 22, Reason::AddressNotListed, Some("any")),
            took("2001:db8::1", 443, Reason::AddressNotListed, Some("any")),
            took("2001:db8::1", 8443, Reason::AddressNotListed, Some("any")),
            took("raw.example.com", 443, Reason::NotTls, Some("tcp://raw.example.com:443")),
            took("port.example.com", 8080, Reason::PortNotListed, Some("any")),
        ]);
        let expected = [
            "a.example.com:443,5432",
            "b.example.com",
            "port.example.com:8080",
            "tcp://raw.example.com:443",
            "203.0.113.7:22",
            "[2001:db8::1]:443,8443",
        ];
        assert_eq!(needs.rules, expected);
        assert!(needs.rules.iter().all(|rule| Rule::parse(rule, Source::Flag("test")).is_ok()));
        assert_eq!(needs.hopeless, [""; 0]);
    }

    #[test]
    fn what_no_rule_can_mean_is_told() {
        let needs = of(vec![
            took("x.example.com", 443, Reason::SniMismatch, None),
            took("\\u{202e}evil", 443, Reason::NotListed, Some("any")),
        ]);
        assert_eq!(needs.rules, [""; 0]);
        assert_eq!(needs.hopeless, ["x.example.com:443 (sni-mismatch)", "\\u{202e}evil:443 (not-listed)"]);
    }

    #[test]
    fn shorter_rules_are_told_and_not_made() {
        let names =
            ["a.cdn.example.com", "b.cdn.example.com", "c.cdn.example.com", "a.com", "b.com", "c.com", "github.com"];
        let github = ["api.github.com", "codeload.github.com"];
        let needs = of(names.iter().chain(&github).map(|name| unlisted(name, 443)).collect());
        assert_eq!(needs.rules.len(), 9);
        assert!(needs.rules.iter().all(|rule| !rule.contains(['*', '@'])));
        let expected = [
            "3 of them are below `cdn.example.com`, all of which `*.cdn.example.com` would allow",
            "`@github` stands for 3 of them, and for more hosts of that service",
        ];
        assert_eq!(needs.shorter, expected);
    }

    #[test]
    fn too_many_hosts_are_no_list() {
        let many = (0..=MOST_RULES).map(|number| unlisted(&format!("h{number}.example.com"), 443)).collect();
        assert!(needs(&Summary { audited: many, ..Summary::default() }).is_err());
        let more = Summary { audited: vec![unlisted("a.example.com", 443)], others_audited: 1, ..Summary::default() };
        assert!(needs(&more).is_err());
    }
}
