//! A list of rules in one argument: `a,b,c`.

use crate::host::parse_ipv6;
use crate::quote::quote;
use crate::rule_error::{RuleError, RuleFault, Wrong};

/// Splits a list of rules at its commas. An item of digits, or a range of ports, continues the list of ports before it:
/// `host:22,443,b` is the rules `host:22,443` and `b`.
///
/// The rules are not parsed here: see [`Rule::parse`](crate::Rule::parse).
///
/// # Errors
///
/// An empty item; a `*` after a list of ports, which may mean every port or every host; a port that follows no list of
/// ports. [`RuleError::offset`] counts from the beginning of the list.
pub fn split_rules(list: &str) -> Result<Vec<String>, RuleError> {
    let wrong = |at, fault, hint: String| Err(RuleError::new(list, Wrong::new(at, fault).hint(hint)));
    let mut rules: Vec<String> = Vec::new();
    let mut at = 0;
    for item in list.split(',') {
        match rules.last_mut() {
            _ if item.trim().is_empty() => return wrong(at, RuleFault::Blank, blank_hint(list, at).to_owned()),
            _ if item.trim() != item && item.len() < list.len() => {
                let at = at + if item.trim_start() == item { item.trim_end().len() } else { 0 };
                let compact = list.split(',').map(str::trim).collect::<Vec<_>>().join(",");
                let hint = format!("write {}, without spaces", quote(compact.as_bytes()));
                return wrong(at, RuleFault::Space, hint);
            }
            Some(rule) if has_ports(rule) && is_port(item) => {
                rule.push(',');
                rule.push_str(item);
            }
            Some(rule) if has_ports(rule) && item == "*" => {
                let host = rule.rsplit_once(':').map_or(rule.as_str(), |(host, _)| host);
                let hint = format!(
                    "write {} for every port, `*` before it for every host",
                    quote(format!("{host}:*").as_bytes())
                );
                return wrong(at, RuleFault::StarAfterPorts, hint);
            }
            Some(rule) if is_port(item) && !is_port(rule) => {
                let bare_ipv6 = parse_ipv6(rule.as_bytes()).is_some();
                let with_port = if bare_ipv6 { format!("[{rule}]:{item}") } else { format!("{rule}:{item}") };
                let hint = match rule.starts_with('@') {
                    true => "write a host and its port: a preset brings its own".to_owned(),
                    false => format!("write {}", quote(with_port.as_bytes())),
                };
                return wrong(at, RuleFault::StrayPort, hint);
            }
            _ => rules.push(item.to_owned()),
        }
        at += item.len() + 1;
    }
    Ok(rules)
}

/// What to write instead of an item that is empty and begins at `at`.
fn blank_hint(list: &str, at: usize) -> &'static str {
    if list.trim().is_empty() {
        "write a host, such as `example.com`; to allow nothing, write no rule"
    } else if list[at..].trim().is_empty() {
        "end the list without a comma"
    } else {
        "write a host between two commas"
    }
}

/// Whether it can only be meant as a port or a range of ports, right or not.
fn is_port(item: &str) -> bool {
    item.starts_with(|c: char| c.is_ascii_digit()) && item.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

/// Whether a rule ends in a list of ports, by its shape alone.
fn has_ports(rule: &str) -> bool {
    let rule = rule.strip_prefix("tcp://").unwrap_or(rule);
    // Behind a bracket or a slash a colon starts the ports. Elsewhere one colon does, and two are an IPv6 address.
    match rule.rfind([']', '/']) {
        Some(end) => rule[end..].contains(':'),
        None => rule.matches(':').count() == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_rules_and_ports_continue() {
        for (list, expected) in [
            ("a", vec!["a"]),
            ("a,b,c", vec!["a", "b", "c"]),
            ("host:22,443,b", vec!["host:22,443", "b"]),
            ("host:22,8000-8100,9,b:1,2", vec!["host:22,8000-8100,9", "b:1,2"]),
            ("tcp://a:1,2,b", vec!["tcp://a:1,2", "b"]),
            ("[2001:db8::1]:443,80,b", vec!["[2001:db8::1]:443,80", "b"]),
            ("[2001:db8::]/32:443,80", vec!["[2001:db8::]/32:443,80"]),
            ("10.0.0.0/8:443,80", vec!["10.0.0.0/8:443,80"]),
            ("2001:db8::/32,b", vec!["2001:db8::/32", "b"]),
            ("@github,a:22,80,@b", vec!["@github", "a:22,80", "@b"]),
            ("*,a", vec!["*", "a"]),
            ("a,*", vec!["a", "*"]),
            ("a:22,b,*", vec!["a:22", "b", "*"]),
            ("a:22,0x50", vec!["a:22", "0x50"]),
            ("a:22,23-", vec!["a:22,23-"]),
            (" a", vec![" a"]),
        ] {
            assert_eq!(split_rules(list).unwrap(), expected, "{list}");
        }
    }

    #[test]
    fn what_may_mean_two_things_is_an_error_with_its_place() {
        for (list, at, hint) in [
            ("", 0, "write a host, such as `example.com`; to allow nothing, write no rule"),
            (" ", 0, "write a host, such as `example.com`; to allow nothing, write no rule"),
            ("a,,b", 2, "write a host between two commas"),
            (",a", 0, "write a host between two commas"),
            ("a,", 2, "end the list without a comma"),
            ("a, ", 2, "end the list without a comma"),
            ("a, b,c", 2, "write `a,b,c`, without spaces"),
            ("a ,b", 1, "write `a,b`, without spaces"),
            ("host:22, 443", 8, "write `host:22,443`, without spaces"),
            ("host:22,*", 8, "write `host:*` for every port, `*` before it for every host"),
            ("a,443", 2, "write `a:443`"),
            ("a,b,8000-8100", 4, "write `b:8000-8100`"),
            ("@github,443", 8, "write a host and its port: a preset brings its own"),
            ("2001:db8::1,443", 12, "write `[2001:db8::1]:443`"),
        ] {
            let error = split_rules(list).unwrap_err();
            assert_eq!((error.offset(), error.hint()), (at, Some(hint)), "{list}");
        }
    }
}
