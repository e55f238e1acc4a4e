//! What a refusal says about the rule that almost covered it.

use netbox_config::{Decision, HostFacts, Mode, Policy, Rule, Source};

use crate::{FLAG, policy, target};

/// What is said, or nothing.
fn near(policy: &Policy, text: &str) -> String {
    let target = target(text);
    match policy.decide(&target, &HostFacts::default()) {
        Decision::Allow(_) => panic!("{text} is allowed"),
        Decision::Refuse(refusal) => {
            policy.near_miss(&target, &refusal).map(|near| near.to_string()).unwrap_or_default()
        }
    }
}

fn check(allow: &[&str], table: &[(&str, &str)]) {
    let policy = policy(Mode::Allowlist, allow, &["denied.example.com"]);
    for (text, expected) in table {
        assert_eq!(near(&policy, text), *expected, "{text}");
    }
}

#[test]
fn a_wildcard_that_misses_its_apex_is_named() {
    check(
        &["*.github.com", "*.example.org:8443", "*.github.io"],
        &[
            ("github.com:443", "`*.github.com` (--allow) does not cover `github.com` itself; `.github.com` would"),
            // On the rule's own ports the apex would not help, or would open more than was asked for.
            ("github.com:22", "`*.github.com` (--allow) does not cover `github.com` itself"),
            ("example.org:8443", "`*.example.org:8443` (--allow) does not cover `example.org` itself"),
            ("example.org:443", "`*.example.org:8443` (--allow) does not cover `example.org` itself"),
            ("github.com.:80", "`*.github.com` (--allow) does not cover `github.com` itself; `.github.com` would"),
        ],
    );
}

#[test]
fn a_host_that_is_listed_on_other_ports_is_named_with_them() {
    check(
        &["github.com", "*.example.com:8000-8100", "one.example.com:443", "*", "10.0.0.0/8:5432", "10.1.0.0/16:22"],
        &[
            ("github.com:22", "`github.com` (--allow) is for ports 80, 443, not for 22"),
            ("one.example.com:22", "`one.example.com:443` (--allow) is for port 443, not for 22"),
            ("two.example.com:22", "`*.example.com:8000-8100` (--allow) is for ports 8000-8100, not for 22"),
            ("elsewhere.example:22", "`*` (--allow) is for ports 80, 443, not for 22"),
            ("10.2.0.1:443", "`10.0.0.0/8:5432` (--allow) is for port 5432, not for 443"),
        ],
    );
    // Plain HTTP where only HTTPS is listed.
    check(
        &["one.example.com:443"],
        &[("one.example.com:80", "`one.example.com:443` (--allow) is for port 443, not for 80")],
    );
}

#[test]
fn a_name_below_or_beside_a_listed_one_is_told_apart_from_it() {
    check(
        &["allowed.example", "api.github.com", "*.deep.example.net", "www.example.co.uk"],
        &[
            (
                "api.allowed.example:443",
                "`allowed.example` (--allow) does not cover names below it, such as `api.allowed.example`",
            ),
            (
                "a.b.allowed.example:22",
                "`allowed.example` (--allow) does not cover names below it, such as `a.b.allowed.example`",
            ),
            (
                "raw.github.com:443",
                "`api.github.com` (--allow) is of the same domain and does not cover `raw.github.com`",
            ),
            ("github.com:443", "`api.github.com` (--allow) is of the same domain and does not cover `github.com`"),
            (
                "other.example.net:443",
                "`*.deep.example.net` (--allow) is of the same domain and does not cover `other.example.net`",
            ),
            (
                "example.co.uk:443",
                "`www.example.co.uk` (--allow) is of the same domain and does not cover `example.co.uk`",
            ),
            ("other.co.uk:443", ""),
            ("notgithub.com:443", ""),
            ("com:443", ""),
            ("unlike.example:443", ""),
        ],
    );
}

#[test]
fn customers_of_one_provider_are_no_neighbours() {
    check(
        &["mine.github.io", "github.io"],
        &[
            ("theirs.github.io:443", ""),
            (
                "a.mine.github.io:443",
                "`mine.github.io` (--allow) does not cover names below it, such as `a.mine.github.io`",
            ),
        ],
    );
}

#[test]
fn a_look_alike_is_called_one_and_nothing_is_proposed() {
    check(
        &["github.com", "*.internal-tools.example", "node1.cluster.example.com"],
        &[
            (
                "github.com.evil.example:443",
                "`github.com` (--allow) is another host: `github.com.evil.example` only begins like it, and belongs to \
                 `evil.example`",
            ),
            (
                "githib.com:443",
                "`github.com` (--allow) differs from `githib.com` in one character; make sure which of the two is meant",
            ),
            (
                "api.internal-tool.example:443",
                "`*.internal-tools.example` (--allow) differs from `api.internal-tool.example` in one character; make sure \
                 which of the two is meant",
            ),
            ("evilgithub.com:443", ""),
            ("github.com-evil.example:443", ""),
            // Numbered, not misspelt.
            (
                "node2.cluster.example.com:443",
                "`node1.cluster.example.com` (--allow) is of the same domain and does not cover `node2.cluster.example.com`",
            ),
        ],
    );
}

#[test]
fn addresses_have_near_misses_of_their_own() {
    check(
        &["*", "203.0.113.7:443", "0.0.0.0/0:9"],
        &[
            ("[2001:db8::1]:443", "`*` (--allow) is for names, and not for addresses"),
            (
                "[64:ff9b::cb00:7107]:443",
                "`203.0.113.7:443` (--allow) is for 203.0.113.7, and not for the IPv6 address that carries it",
            ),
            (
                "10.1.2.3:9",
                "`0.0.0.0/0:9` (--allow) does not open it: what is not public takes a rule for a range of its kind alone",
            ),
        ],
    );
    check(&["github.com"], &[("203.0.113.7:443", ""), ("127.0.0.1:80", "")]);
}

#[test]
fn what_is_denied_or_in_mode_none_misses_nothing() {
    check(&["example.com"], &[("denied.example.com:443", "")]);
    assert_eq!(near(&policy(Mode::None, &[], &[]), "github.com:443"), "");
}

#[test]
fn a_near_miss_knows_its_rule_and_hides_nothing_in_it() {
    let source = || Source::File { path: std::path::Path::new("a\u{1b}[2J/netbox.toml").into(), line: 3, column: 10 };
    let rule = |text: &str| Rule::parse(text, source()).unwrap();
    let policy = Policy::new(Mode::Allowlist, vec![rule("*.bücher.example")], vec![]).unwrap();
    let target = target("xn--bcher-kva.example:443");
    let Decision::Refuse(refusal) = policy.decide(&target, &HostFacts::default()) else { panic!("allowed") };
    let near = policy.near_miss(&target, &refusal).unwrap();
    assert_eq!(&*near.rule().text, "*.bücher.example");
    assert_eq!(
        near.to_string(),
        "`*.bücher.example` (a\\u{1b}[2J/netbox.toml:3:10) does not cover `xn--bcher-kva.example` itself; \
         `.xn--bcher-kva.example` would"
    );
}

/// With very many rules only what the index finds is told, so that a refusal does not cost what the rules cost.
#[test]
fn names_are_not_compared_with_ten_thousand_rules() {
    let rules = (0..10_000).map(|n| Rule::parse(&format!("host{n}.example.com"), FLAG).unwrap()).collect();
    let policy = Policy::new(Mode::Allowlist, rules, vec![]).unwrap();
    assert_eq!(near(&policy, "other.example.com:443"), "");
    assert_eq!(
        near(&policy, "a.host7.example.com:443"),
        "`host7.example.com` (--allow) does not cover names below it, such as `a.host7.example.com`"
    );
}
