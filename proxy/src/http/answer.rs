//! The responses that netbox gives itself. Every one of them closes the connection, but for the one that asks for a token.

use std::fmt::Write as _;

use netbox_config::{Reason, Refusal, Target};

use super::head::HeadError;
use crate::refuse::{failure, sentence};

const BAD_GATEWAY: &str = "502 Bad Gateway";

/// A response of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: &'static str,
    /// The error type of `Proxy-Status` (RFC 9209 §2.3).
    error: &'static str,
    /// Whether it asks for a token.
    challenges: bool,
    /// The `details` of `Proxy-Status` (RFC 9209 §2.1.4): the reason's word.
    details: Option<Reason>,
    text: String,
}

/// In which ways a token can be sent (RFC 9110 §11.7.1). The one that every client knows comes first.
const CHALLENGES: &str =
    "Proxy-Authenticate: Basic realm=\"netbox\", charset=\"UTF-8\"\r\nProxy-Authenticate: Bearer realm=\"netbox\"\r\n";

impl Answer {
    /// The same, with the reason where a program finds it.
    pub(crate) fn with_details(self, reason: Reason) -> Self {
        Self { details: Some(reason), ..self }
    }

    /// What the policy refuses, that of a role of a service if there is one: 403.
    pub(crate) fn refused(target: &Target, refusal: &Refusal, role: Option<&str>) -> Self {
        let mut text = format!("netbox: {}\n", sentence(&target.to_string(), refusal));
        // Writing to a string does not fail, here and below.
        if let Some(rule) = refusal.rule().filter(|_| refusal.ceiling().is_none() && !refusal.is_by_outer()) {
            let _ = writeln!(text, "rule: {} ({})", rule.text, rule.source);
        }
        if let Some(near) = refusal.near_miss() {
            let _ = writeln!(text, "near: {near}");
        }
        if let Some(hint) = refusal.hint(target) {
            let _ = match role {
                Some(role) => writeln!(text, "hint: `{hint}` in `allow` of `[service.role.{role}]` would allow it"),
                None => writeln!(text, "hint: `--allow {hint}` would allow it"),
            };
        }
        Self { status: "403 Forbidden", error: "http_request_denied", challenges: false, details: None, text }
    }

    /// What is permitted and cannot be reached: 502, or 504 where time ran out.
    pub(crate) fn unreached(target: &Target, reason: Reason) -> Self {
        let (status, error) = match reason {
            Reason::DnsNotFound | Reason::DnsFailed => (BAD_GATEWAY, "dns_error"),
            Reason::Refused => (BAD_GATEWAY, "connection_refused"),
            Reason::Unreachable => (BAD_GATEWAY, "destination_ip_unroutable"),
            Reason::Timeout => ("504 Gateway Timeout", "connection_timeout"),
            _ => (BAD_GATEWAY, "proxy_internal_error"),
        };
        Self {
            status,
            error,
            challenges: false,
            details: None,
            text: format!("netbox: {}\n", failure(&target.to_string(), reason)),
        }
    }

    /// What is permitted and was sent, and got no response that could be passed on: 502.
    pub(crate) fn unanswered(target: &Target) -> Self {
        let text = format!("netbox: `{target}` is allowed, and gave no whole and well-formed response\n");
        Self { status: BAD_GATEWAY, error: "http_response_incomplete", challenges: false, details: None, text }
    }

    /// What cannot be parsed, or not in one way only: 400, 431 or 501.
    pub(crate) fn unreadable(error: &HeadError) -> Self {
        let status = match error {
            HeadError::Malformed(_) => "400 Bad Request",
            HeadError::TooLarge => "431 Request Header Fields Too Large",
            HeadError::Unsupported(_) => "501 Not Implemented",
        };
        Self {
            status,
            error: "http_request_error",
            challenges: false,
            details: None,
            text: format!("netbox: the request is refused: {error}\n"),
        }
    }

    /// What lacks a token, or has one that is not known: 407.
    pub(crate) fn unauthenticated() -> Self {
        let text = "netbox: nobody is let in here without a token that is known (unauthenticated)\n\
                    hint: give it as the password of the proxy: `http://netbox:TOKEN@HOST:PORT`; a new one is known \
                    after `netbox proxy reload`\n";
        let status = "407 Proxy Authentication Required";
        Self { status, error: "http_request_denied", challenges: true, details: None, text: text.to_owned() }
    }

    /// What was let in, and its tenant has as many connections as it may have: 403.
    pub(crate) fn full() -> Self {
        let text = "netbox: whoever this is has reached a limit of theirs (limit)\n".to_owned();
        Self { status: "403 Forbidden", error: "http_request_denied", challenges: false, details: None, text }
    }

    /// Whether it asks for a token, with which the same client may come again.
    pub(crate) fn asks_for_a_token(&self) -> bool {
        self.challenges
    }

    /// The response; without the body, where it answers HEAD.
    pub(crate) fn bytes(&self, method: Option<&str>) -> Vec<u8> {
        self.written(method, "close")
    }

    /// The same, and the connection goes on.
    pub(crate) fn bytes_and_on(&self, method: Option<&str>) -> Vec<u8> {
        self.written(method, "keep-alive")
    }

    fn written(&self, method: Option<&str>, connection: &str) -> Vec<u8> {
        let details = self.details.map(|reason| format!("; details=\"{reason}\"")).unwrap_or_default();
        let mut out = format!(
            "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             Proxy-Status: netbox; error={}{details}\r\n{}Connection: {connection}\r\n\r\n",
            self.status,
            self.text.len(),
            self.error,
            if self.challenges { CHALLENGES } else { "" },
        );
        if method != Some("HEAD") {
            out.push_str(&self.text);
        }
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use netbox_config::{Ceiling, Decision, HostFacts, Mode, Policy, Rule, RuleRef, Source, Via};

    use super::*;

    #[test]
    fn a_refusal_says_what_why_and_what_would_help() {
        let target = Target::parse_authority(b"example.com:8080", Via::Capture).unwrap();
        let bytes = Answer::refused(&target, &Refusal::new(Reason::PortNotListed), None).bytes(Some("GET"));
        let text = "netbox: `example.com:8080` is refused: the host is allowed on other ports only (port-not-listed)\n\
                    hint: `--allow example.com:8080` would allow it\n";
        let expected = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nProxy-Status: netbox; error=http_request_denied\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_refusal_names_the_rule_that_almost_covered_it() {
        let rule = Rule::parse("*.example.com", Source::Flag("--allow")).unwrap();
        let policy = Policy::new(Mode::Allowlist, vec![rule], vec![]).unwrap();
        let target = Target::parse_authority(b"example.com:80", Via::Capture).unwrap();
        let refusal = Refusal::new(Reason::NotListed);
        let near = policy.near_miss(&target, &refusal);
        assert_eq!(
            Answer::refused(&target, &refusal.with_near_miss(near), None).text,
            "netbox: `example.com:80` is refused: no rule allows this host (not-listed)\n\
             near: `*.example.com` (--allow) does not cover `example.com` itself; `.example.com` would\n\
             hint: `--allow example.com` would allow it\n"
        );
    }

    #[test]
    fn a_host_outside_a_ceiling_is_told_where_that_is_and_no_way_out() {
        let target = Target::parse_authority(b"example.com:80", Via::Capture).unwrap();
        let ceiling = Ceiling::new(Source::Flag("--ceiling"), Vec::new());
        let policy = Policy::new(Mode::Open, vec![], vec![]).unwrap().within(vec![ceiling]);
        let Decision::Refuse(refusal) = policy.decide(&target, &HostFacts::default()) else {
            panic!("an empty ceiling leaves nothing")
        };
        assert_eq!(
            Answer::refused(&target, &refusal, None).text,
            "netbox: `example.com:80` is refused: it is outside the ceiling of --ceiling (denied)\n"
        );
    }

    #[test]
    fn a_denied_host_is_told_the_rule_and_no_way_out() {
        let target = Target::parse_authority(b"example.com:80", Via::Capture).unwrap();
        let rule = RuleRef { text: "*.com".into(), source: "--deny".into() };
        let answer = Answer::refused(&target, &Refusal::new(Reason::Denied).with_rule(rule), None);
        assert_eq!(
            answer.text,
            "netbox: `example.com:80` is refused: a deny rule covers it (denied)\nrule: *.com (--deny)\n"
        );
    }

    /// RFC 9209 §2.3 has the types and their status codes.
    #[test]
    fn a_failure_is_no_refusal() {
        let target = Target::parse_authority(b"example.com:443", Via::Connect).unwrap();
        for (reason, status, error) in [
            (Reason::DnsNotFound, "502 Bad Gateway", "dns_error"),
            (Reason::DnsFailed, "502 Bad Gateway", "dns_error"),
            (Reason::Refused, "502 Bad Gateway", "connection_refused"),
            (Reason::Unreachable, "502 Bad Gateway", "destination_ip_unroutable"),
            (Reason::Timeout, "504 Gateway Timeout", "connection_timeout"),
        ] {
            let answer = Answer::unreached(&target, reason);
            assert_eq!((answer.status, answer.error), (status, error));
            assert!(answer.text.starts_with("netbox: `example.com:443` is allowed, and failed: "), "{}", answer.text);
        }
        let answer = Answer::unreached(&target, Reason::DnsNotFound);
        assert_eq!(
            answer.text,
            "netbox: `example.com:443` is allowed, and failed: there is no such name (dns-not-found)\n"
        );
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let answer = Answer::unreadable(&HeadError::TooLarge);
        let (head, get) = (answer.bytes(Some("HEAD")), answer.bytes(None));
        assert!(head.ends_with(b"\r\n\r\n"));
        assert!(head.starts_with(b"HTTP/1.1 431 "));
        assert_eq!(get[head.len()..], *answer.text.as_bytes());
    }
}
