//! What is a rule, what it is stored as, and what is said of what is none.

use std::path::Path;

use netbox_config::{Rule, RuleWarning, Source, split_rules};

use crate::FLAG;

#[test]
fn rules_are_stored_in_canonical_form() {
    for (text, stored) in [
        ("github.com", "github.com"),
        ("GitHub.com.", "github.com"),
        ("intranet", "intranet"),
        ("a_b.example", "a_b.example"),
        ("r3---sn-x.example", "r3---sn-x.example"),
        ("*.GitHub.com", "*.github.com"),
        (".github.com.", ".github.com"),
        ("*.localhost", "*.localhost"),
        ("github.com:443,22", "github.com:22,443"),
        ("github.com:8000-8100", "github.com:8000-8100"),
        ("github.com:*", "github.com:*"),
        ("*.github.com:1-65535", "*.github.com:*"),
        ("*", "*"),
        ("*:8443", "*:8443"),
        ("tcp://DB.example.com:5432", "tcp://db.example.com:5432"),
        ("tcp://*.example.com:*", "tcp://*.example.com:*"),
        ("tcp://[2001:db8::1]:5432", "tcp://[2001:db8::1]:5432"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("bücher.example.", "xn--bcher-kva.example"),
        ("bu\u{308}cher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("*.президент.рф:443", "*.xn--d1abbgf6aiiy.xn--p1ai:443"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7/32", "203.0.113.7"),
        ("10.1.0.0/16:5432", "10.1.0.0/16:5432"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("2001:DB8:0::1", "[2001:db8::1]"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("2001:db8::/32", "[2001:db8::/32]"),
        ("2001:db8::/32:443", "[2001:db8::/32]:443"),
        ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
        ("[2001:db8::]/32:443", "[2001:db8::/32]:443"),
        ("::1", "[::1]"),
        ("::/0", "[::/0]"),
        ("1:2:3:4:5:6:7:8", "[1:2:3:4:5:6:7:8]"),
    ] {
        let rule = Rule::parse(text, FLAG).unwrap();
        assert_eq!(rule.to_string(), stored, "{text}");
        assert_eq!(rule.text(), text);
        assert_eq!(rule.is_raw(), text.starts_with("tcp://"));
    }
}

#[test]
fn errors_quote_the_rule_name_the_place_and_say_what_to_write() {
    for (text, said) in [
        ("", "column 1: an empty rule; write a host: `example.com`"),
        ("  ", "column 1: an empty rule; write a host: `example.com`"),
        (" github.com", "column 1: a space, and a rule has none; write `github.com`"),
        ("git hub.com", "column 4: a space, and a rule has none; write a rule for each host"),
        ("github.com\0.evil.example", "column 11: a control character"),
        ("@pip", "column 1: a preset where a host is meant; write the hosts themselves"),
        ("a.example,b.example", "column 10: a list, and a rule is one host; write a rule for each host"),
        ("https://github.com", "column 1: a URL where a host is meant; write `github.com`"),
        ("http://github.com:8080/x", "column 1: a URL where a host is meant; write `github.com:8080`"),
        ("https://user:pw@github.com/x?y", "column 1: a URL where a host is meant; write `github.com`"),
        ("TCP://github.com:22", "column 1: a URL where a host is meant; write `tcp://github.com:22`"),
        ("udp://github.com:53", "column 1: UDP is not supported, netbox carries TCP"),
        ("github.com/path", "column 11: a path, and a rule is a host; write `github.com`"),
        ("*.github.com/path", "column 13: a path, and a rule is a host; write `*.github.com`"),
        ("github.com:443/path", "column 15: a path, and a rule is a host; write `github.com:443`"),
        ("user@github.com", "column 5: user information, and a rule is a host; write `github.com`"),
        ("git@github.com:o/r.git", "column 4: user information, and a rule is a host; write `github.com:22`"),
        (
            "github.com:0",
            "column 12: `0` is no port: ports are 1 to 65535; \
             write `github.com:443`, `github.com:22,443` or `github.com:8000-8100`",
        ),
        (
            "github.com:22,65536",
            "column 15: `65536` is no port: ports are 1 to 65535; \
             write `github.com:443`, `github.com:22,443` or `github.com:8000-8100`",
        ),
        ("github.com:ssh", "column 12: `ssh` is no port: a service is written by its number; write `github.com:22`"),
        ("github.com:", "column 12: a port is missing; write `github.com` for 443 and 80, or `github.com:443`"),
        (
            "tcp://github.com:ssh",
            "column 18: `ssh` is no port: a service is written by its number; write `tcp://github.com:22`",
        ),
        ("github.com:9-1", "column 12: a range of ports that runs backwards; write `1-9`"),
        (
            "github.com:22,*",
            "column 15: a `*` after a list of ports: it may mean every port, or every host; \
             write `github.com:*` alone for every port",
        ),
        (
            "tcp://db.example.com",
            "column 21: a raw rule names its port; write `tcp://db.example.com:5432` with the port that is meant",
        ),
        ("*.", "column 3: a wildcard over nothing; write `*.example.com`, or `*` for every host"),
        (".", "column 2: a wildcard over nothing; write `*.example.com`, or `*` for every host"),
        (
            "*github.com",
            "column 1: a `*` that is not a whole first label; \
             write `*.github.com` for the names below it, `.github.com` for it and the names below it",
        ),
        (
            "api.*.com",
            "column 5: a `*` that is not a whole first label; \
             write it at the beginning only, and a dot behind it: `*.example.com`",
        ),
        ("*.10.0.0.1", "column 3: a wildcard over an address; write a range with a prefix length: `10.0.0.0/8`"),
        (
            "*.com",
            "column 1: a wildcard over `com`, where everyone registers names; \
             write the names of one owner: `*.example.com`",
        ),
        (
            ".co.uk",
            "column 1: a wildcard over `co.uk`, where everyone registers names; \
             write the names of one owner: `*.example.co.uk`",
        ),
        (
            "*.ck",
            "column 1: a wildcard over `ck`, where everyone registers names; \
             write the names of one owner: `*.www.example.ck`",
        ),
        ("github..com", "column 8: a label of the host name is empty"),
        ("git_hub.com!", "column 12: `!` is no character of a host name"),
        ("-x.example", "column 1: a host name does not start with a hyphen"),
        ("a.xn--.example", "column 3: an `xn--` label is not valid Punycode"),
        ("a.xn--example-.example", "column 3: an `xn--` label is not valid Punycode"),
        (
            "git\u{200b}hub.com",
            "column 4: some characters are folded away: they come to `github.com`; write `github.com`",
        ),
        (
            "\u{212a}ernel.org",
            "column 1: some characters are folded away: they come to `kernel.org`; write `kernel.org`",
        ),
        (
            "b\u{200b}ücher.example",
            "column 2: some characters are folded away: they come to `xn--bcher-kva.example`; \
             write `xn--bcher-kva.example`",
        ),
        (
            "bücher\u{3002}example",
            "column 7: some characters are folded away: they come to `xn--bcher-kva.example`; \
             write `xn--bcher-kva.example`",
        ),
        ("a\u{2100}.example", "column 2: the host name is not valid under IDNA (UTS 46)"),
        (
            "127.1",
            "column 1: not an IPv4 address in its usual form, and no host name either; \
             write four decimal numbers without leading zeros: `127.0.0.1`",
        ),
        (
            "443",
            "column 1: not an IPv4 address in its usual form, and no host name either; \
             write a port behind its host: `example.com:443`",
        ),
        (
            "10.0.0.1-10.0.0.9",
            "column 1: a range of addresses is written with a prefix length; \
             write `10.0.0.0/24`, or each address alone",
        ),
        ("10.0.0.0/33", "column 10: `33` is no prefix length of 0 to 32; write a number: `10.0.0.0/8`"),
        ("2001:db8::/129", "column 12: `129` is no prefix length of 0 to 128; write a number: `[2001:db8::/32]`"),
        (
            "10.0.0.1/8",
            "column 10: the address has bits beyond its prefix length; \
             write `10.0.0.0/8` for the range, `10.0.0.1` for the address",
        ),
        (
            "[2001:db8::1/32]:443",
            "column 14: the address has bits beyond its prefix length; \
             write `[2001:db8::/32]` for the range, `[2001:db8::1]` for the address",
        ),
        ("::ffff:10.0.0.0/104", "column 1: an IPv4-mapped address, which is the IPv4 address; write `10.0.0.0/8`"),
        ("[::ffff:a00:1]:80", "column 2: an IPv4-mapped address, which is the IPv4 address; write `10.0.0.1`"),
        ("fe80::1%eth0", "column 8: an address with a zone is not supported; write the address without it"),
        ("[fe80::1%eth0]:80", "column 9: an address with a zone is not supported; write the address without it"),
        ("[github.com]:443", "column 2: square brackets hold an IPv6 address, and this is none; write `github.com`"),
        ("[::1", "column 2: square brackets hold an IPv6 address, and this is none"),
        ("::1]", "column 4: square brackets hold an IPv6 address, and this is none; write `[2001:db8::1]:443`"),
        (
            "2001:db8::1:443",
            "column 12: an IPv6 address that may also be an address and a port; \
             write `[2001:db8::1]:443` for the port, `[2001:db8::1:443]` for the address",
        ),
        (
            "2001:db8::1:443,80",
            "column 12: neither an IPv6 address nor a host and a port; write `[2001:db8::1]:443,80`",
        ),
        (
            "2001:db8::zz",
            "column 1: neither an IPv6 address nor a host and a port; \
             write an IPv6 address and its port as `[2001:db8::1]:443`",
        ),
    ] {
        let error = Rule::parse(text, FLAG).unwrap_err();
        let quoted = netbox_config::quote(text.as_bytes());
        assert_eq!(error.to_string(), format!("--allow: rule {quoted}, {said}"));
        assert_eq!(error.source(), Some(&FLAG));
    }
}

#[test]
fn these_are_no_rules_either() {
    for text in [
        "*.*",
        "**",
        "*..",
        "..",
        ".*",
        "*.*.com",
        "git*.com",
        "github.*",
        "*.api.*.com",
        "..github.com",
        ".github..com",
        "0177.0.0.1",
        "2130706433",
        "0x7f000001",
        "300.1.1.1",
        "1.2.3",
        "1.2.3.4.5",
        "foo.09",
        "foo.0x",
        "256.0.0.1/8",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/8/9",
        "10.0/8",
        "*.127.1",
        "*.10.0.0.0/8",
        ".[::1]",
        "*[::1]",
        "[10.0.0.1]",
        "[]",
        "[::1]x",
        "[::1]:",
        "[::1]443",
        "[::1]/",
        "[::1/128]/128",
        ":443",
        ":",
        "tcp://",
        "tcp://:80",
        "tcp://https://github.com",
        "tcp://tcp://github.com:22",
        "github.com:443:80",
        "github.com:-1",
        "github.com:+443",
        "github.com:0443",
        "github.com:22,",
        "github.com:,22",
        "github.com:1-",
        "github.com:1-2-3",
        "github.com:４４３",
        "github.com:*,22",
        "１２７.0.0.1",
        "::1%lo",
        "a::g",
        "xn--.com",
        "bücher.example..",
        "bücher..example",
        "\u{202e}moc.buhtig",
        "github.com\n",
        "github.com\u{a0}",
        "@",
        "a@",
        "://",
        "*@*",
        "a//b",
    ] {
        let error = Rule::parse(text, FLAG).unwrap_err();
        assert!(error.offset() <= text.len() && text.is_char_boundary(error.offset()), "{error}");
        assert!(Rule::parse_deny(text, FLAG).is_err(), "{text}");
    }
}

#[test]
fn a_rule_is_not_longer_than_a_name_and_its_ports_can_be() {
    let ports: Vec<_> = (1000..1700).map(|port| port.to_string()).collect();
    assert!(Rule::parse(&format!("github.com:{}", ports.join(",")), FLAG).is_ok());
    let long = format!("github.com:{}", "1,".repeat(4096));
    assert!(Rule::parse(&long, FLAG).unwrap_err().to_string().ends_with("a rule has at most 4096 bytes"));
    assert!(Rule::parse(&"a.".repeat(1000), FLAG).is_err());
    assert!(Rule::parse(&"ü.".repeat(1000), FLAG).is_err());
}

#[test]
fn an_error_in_a_file_points_into_the_file() {
    let source = Source::File { path: Path::new("netbox.toml").into(), line: 3, column: 10 };
    let error = Rule::parse("api.*.com", source).unwrap_err();
    assert_eq!(
        error.to_string(),
        "netbox.toml:3:14: rule `api.*.com`: a `*` that is not a whole first label; \
         write it at the beginning only, and a dot behind it: `*.example.com`"
    );
}

#[test]
fn columns_count_characters_and_offsets_count_bytes() {
    let error = Rule::parse("bücher.example:0", FLAG).unwrap_err();
    assert_eq!((error.offset(), error.column()), (16, 16));
    let error = Rule::parse("büücher.example:0", FLAG).unwrap_err();
    assert_eq!((error.offset(), error.column()), (18, 17));
}

#[test]
fn what_allows_much_has_a_warning() {
    for (text, warnings) in [
        ("*", &[RuleWarning::EveryHost][..]),
        ("*:8443", &[RuleWarning::EveryHost]),
        ("*.github.io", &[RuleWarning::PrivateSuffix]),
        (".github.io", &[RuleWarning::PrivateSuffix]),
        ("0.0.0.0/0", &[RuleWarning::MixedRange]),
        ("::/0", &[RuleWarning::MixedRange]),
        ("168.63.0.0/16", &[RuleWarning::MixedRange]),
        ("github.io", &[]),
        ("foo.github.io", &[]),
        ("*.foo.github.io", &[]),
        ("*.github.com", &[]),
        ("*.intranet", &[]),
        ("10.0.0.0/8", &[]),
        ("203.0.113.0/24", &[]),
    ] {
        assert_eq!(Rule::parse(text, FLAG).unwrap().warnings(), warnings, "{text}");
        assert_eq!(Rule::parse_deny(text, FLAG).unwrap().warnings(), [], "{text}");
    }
}

#[test]
fn a_public_suffix_may_be_denied_and_never_allowed() {
    for text in ["*.com", ".co.uk", "*.ck", "*.рф"] {
        assert!(Rule::parse(text, FLAG).is_err(), "{text}");
        let deny = Rule::parse_deny(text, FLAG).unwrap();
        let error = netbox_config::Policy::new(netbox_config::Mode::Allowlist, vec![deny], vec![]).unwrap_err();
        assert!(error.to_string().contains("everyone registers"), "{error}");
    }
}

/// Whoever follows a hint that is a whole rule gets no second error.
#[test]
fn hints_that_are_rules_parse() {
    for text in [
        "https://github.com",
        "ssh://git@github.com:22/o/r",
        "github.com/path",
        "*.github.com/path",
        "user@github.com",
        "git@github.com:o/r.git",
        "*.ck",
        "*.com",
        "[github.com]",
        "[10.0.0.1]",
        "::ffff:10.0.0.0/104",
        "10.0.0.1/8",
        "2001:db8::1/32",
        "2001:db8::1:443",
        "2001:db8::1:443,80",
        "tcp://example.com",
        "github.com:https",
        "github.com:x",
        "github.com:",
        "*github.com",
        "\u{212a}ernel.org",
    ] {
        let error = Rule::parse(text, FLAG).unwrap_err();
        let hint = error.hint().unwrap();
        let rules: Vec<_> = hint.split('`').skip(1).step_by(2).collect();
        assert!(!rules.is_empty(), "{hint}");
        for rule in rules {
            assert!(Rule::parse(rule, FLAG).is_ok(), "{text}: {hint}");
        }
    }
}

#[test]
fn errors_of_a_list_name_the_list() {
    let error = split_rules("host:22,*").unwrap_err().with_source(FLAG);
    assert_eq!(
        error.to_string(),
        "--allow: rule `host:22,*`, column 9: a `*` after a list of ports: it may mean every port, or every host; \
         write `host:*` for every port, `*` before it for every host"
    );
    assert!(!split_rules("a\x1b[2J,443").unwrap_err().to_string().contains('\x1b'));
}
