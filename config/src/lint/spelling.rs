//! Names that read as something else than they are compared as.

use idna::uts46::{AsciiDenyList, Hyphens, Uts46};
use unicode_security::{MixedScript, skeleton};

use super::{CONFUSABLE_NAME, Lint, NOT_AS_COMPARED};
use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::quote;
use crate::rule::Rule;

/// What there is to say about how the host of a rule is written.
pub(super) fn lints(rule: &Rule) -> Vec<Lint> {
    let (HostPattern::Exact(name) | HostPattern::Below(name) | HostPattern::AtOrBelow(name)) = rule.pattern() else {
        return Vec::new();
    };
    let shown = in_script(name);
    [compared(rule, &shown), confusable(rule, &shown)].into_iter().flatten().collect()
}

fn compared(rule: &Rule, shown: &str) -> Option<Lint> {
    let text = rule.text();
    let canonical = rule.to_string();
    let pattern = rule.pattern().to_string();
    let is_punycode = text.is_ascii() && !shown.is_ascii();
    let host = text.strip_prefix("tcp://").unwrap_or(text);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if is_punycode && host.eq_ignore_ascii_case(&pattern) {
        return Some(Lint::new(
            &NOT_AS_COMPARED,
            rule.source(),
            format!("{} is the name {}", quoted(text), quoted(shown)),
        ));
    }
    if host == pattern {
        return None;
    }
    let says = format!("{} is compared as {}", quoted(text), quoted(&canonical));
    // Other scripts are there to be read.
    let hint = text.is_ascii().then(|| format!("write {}", quoted(&canonical)));
    Some(Lint::new(&NOT_AS_COMPARED, rule.source(), says).with_hint(hint))
}

fn confusable(rule: &Rule, shown: &str) -> Option<Lint> {
    let odd = |label: &&str| !label.is_ascii() && (plain(label).is_some() || !label.is_single_script());
    let label = shown.split('.').find(odd)?;
    let says = match plain(label) {
        Some(plain) => format!("{} looks like {}, and is another name", quoted(label), quoted(&plain)),
        None => format!("{} has letters of several scripts", quoted(label)),
    };
    let hint = format!("make sure that it is the name which is meant; it is compared as `{}`", rule.pattern());
    Some(Lint::new(&CONFUSABLE_NAME, rule.source(), says).with_hint(hint))
}

/// The plain label that one of another script looks like.
fn plain(label: &str) -> Option<String> {
    let plain: String = skeleton(label).collect();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    plain.bytes().all(is_name).then_some(plain)
}

/// The name as a browser may show it.
fn in_script(name: &HostName) -> String {
    let (shown, valid) = Uts46::new().to_unicode(name.as_str().as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow);
    if valid.is_ok() { shown.into_owned() } else { name.to_string() }
}

fn quoted(text: &str) -> String {
    quote(text.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn said(text: &str) -> Vec<String> {
        let rule = Rule::parse(text, Source::Flag("--allow")).unwrap();
        lints(&rule).into_iter().map(|lint| format!("{} {}; {:?}", lint.id(), lint.text(), lint.hint())).collect()
    }

    #[test]
    fn a_name_is_shown_as_it_is_compared() {
        for plain in ["github.com", "*.github.com:443", "tcp://github.com:22", "10.0.0.0/8", "github.com:443,80", "*"] {
            assert_eq!(said(plain), [""; 0], "{plain}");
        }
        for (text, expected) in [
            ("GitHub.com", "not-as-compared `GitHub.com` is compared as `github.com`; Some(\"write `github.com`\")"),
            ("github.com.", "not-as-compared `github.com.` is compared as `github.com`; Some(\"write `github.com`\")"),
            (
                "tcp://*.GitHub.com:9",
                "not-as-compared `tcp://*.GitHub.com:9` is compared as `tcp://*.github.com:9`; \
                 Some(\"write `tcp://*.github.com:9`\")",
            ),
            ("bücher.example", "not-as-compared `bücher.example` is compared as `xn--bcher-kva.example`; None"),
            (
                "xn--bcher-kva.example:443",
                "not-as-compared `xn--bcher-kva.example:443` is the name `bücher.example`; None",
            ),
        ] {
            assert_eq!(said(text), [expected], "{text}");
        }
    }

    #[test]
    fn a_name_that_looks_like_another_is_called_so() {
        for (text, expected) in [
            ("аррӏе.com", "`аррӏе` looks like `apple`, and is another name"),
            ("xn--80ak6aa92e.com", "`аррӏе` looks like `apple`, and is another name"),
            ("*.gіthub.com", "`gіthub` looks like `github`, and is another name"),
            ("schо\u{308}n.example", "`schо\u{308}n` has letters of several scripts"),
        ] {
            let text_said = said(text);
            assert!(text_said.iter().any(|said| said.starts_with("confusable-name")), "{text}: {text_said:?}");
            if !text.contains('\u{308}') {
                assert!(text_said.iter().any(|said| said.contains(expected)), "{text}: {text_said:?}");
            }
        }
        for text in ["пример.example", "例え.example", "école.example", "παράδειγμα.example", "naïve.example"]
        {
            assert!(said(text).iter().all(|said| !said.starts_with("confusable")), "{text}");
        }
    }
}
