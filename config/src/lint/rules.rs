//! What a rule says by itself.

use super::{
    EVERY_HOST, HTTP_ONLY, Lint, METADATA, MISSES_APEX, MIXED_RANGE, MULTI_TENANT_WILDCARD, NON_PUBLIC_RANGE,
    UNREACHABLE_RANGE, spelling, tenants,
};
use crate::address::{AddressClass, class_of_range, is_mixed};
use crate::index::Index;
use crate::pattern::HostPattern;
use crate::port::Port;
use crate::quote;
use crate::rule::Rule;

/// What there is to say about a rule that allows.
pub(super) fn allow(rule: &Rule) -> Vec<Lint> {
    let mut lints = spelling::lints(rule);
    lints.extend(breadth(rule));
    lints.extend(ports(rule));
    lints
}

/// What there is to say about a rule that denies or bounds.
pub(super) fn bound(rule: &Rule) -> Vec<Lint> {
    spelling::lints(rule)
}

fn breadth(rule: &Rule) -> Option<Lint> {
    let text = quote(rule.text().as_bytes());
    let lint = |kind, says: String| Some(Lint::new(kind, rule.source(), says));
    match rule.pattern() {
        HostPattern::Every => lint(&EVERY_HOST, format!("{text} allows every public host by name"))
            .map(|lint| lint.with_hint("name the hosts that are needed; `netbox learn` finds them".to_owned())),
        HostPattern::Below(base) | HostPattern::AtOrBelow(base) if tenants::are_below(base.as_str()) => {
            let says = format!("{text} allows the names of every customer of one provider, not those of one owner");
            lint(&MULTI_TENANT_WILDCARD, says)
                .map(|lint| lint.with_hint(format!("write the names that are meant, such as `some-name.{base}`")))
        }
        HostPattern::Range(range) => {
            let class = class_of_range(*range);
            match class {
                AddressClass::Public if is_mixed(*range) => {
                    lint(&MIXED_RANGE, format!("{text} covers addresses that are not public, and does not open them"))
                        .map(|lint| lint.with_hint("write a rule of its own for each range that is meant".to_owned()))
                }
                AddressClass::Public | AddressClass::OnLink => None,
                AddressClass::Unspecified | AddressClass::Multicast | AddressClass::Synthetic => lint(
                    &UNREACHABLE_RANGE,
                    format!("{text} is for addresses at which nothing can be reached ({})", named(class)),
                ),
                AddressClass::Metadata => lint(
                    &METADATA,
                    format!("{text} opens the cloud's metadata service, which hands out this machine's credentials"),
                ),
                _ => lint(
                    &NON_PUBLIC_RANGE,
                    format!("{text} opens addresses that are not public ({}), also to listed names", named(class)),
                ),
            }
        }
        _ => None,
    }
}

fn ports(rule: &Rule) -> Option<Lint> {
    let is_name = !matches!(rule.pattern(), HostPattern::Range(_));
    let written = rule.written_ports().filter(|_| is_name && !rule.is_raw())?;
    if !written.contains(Port::HTTP) || written.contains(Port::HTTPS) {
        return None;
    }
    let says = format!("{} is for plain HTTP, and most hosts send on to HTTPS", quote(rule.text().as_bytes()));
    let all = format!("{}:{},443", rule.pattern(), written);
    let hint = if written.to_string() == "80" {
        format!("write `{}` for both", rule.pattern())
    } else {
        format!("write `{all}` for both")
    };
    Some(Lint::new(&HTTP_ONLY, rule.source(), says).with_hint(hint))
}

/// Wildcards over a whole domain (`*.github.com`) in lists that do not cover the domain itself.
pub(super) fn missed_apexes(rules: &[&Rule]) -> Vec<Lint> {
    let index = Index::of(rules.iter().copied());
    let lint = |rule: &&Rule| {
        let HostPattern::Below(base) = rule.pattern() else { return None };
        let is_whole_domain = psl::domain_str(base.as_str()) == Some(base.as_str());
        if !is_whole_domain || tenants::are_below(base.as_str()) || index.of_name(base).next().is_some() {
            return None;
        }
        let says = format!("{} does not cover `{base}` itself, and no other rule does", quote(rule.text().as_bytes()));
        let both = rule.to_string().replacen("*.", ".", 1);
        Some(Lint::new(&MISSES_APEX, rule.source(), says).with_hint(format!("write `{both}` for both")))
    };
    rules.iter().filter(|rule| rule.source().presets().is_empty()).filter_map(lint).collect()
}

fn named(class: AddressClass) -> &'static str {
    match class {
        AddressClass::Public => "public",
        AddressClass::Unspecified => "the unspecified address",
        AddressClass::Loopback => "loopback",
        AddressClass::Private => "private",
        AddressClass::Cgnat => "shared by a provider's customers",
        AddressClass::LinkLocal => "link-local",
        AddressClass::Metadata => "metadata",
        AddressClass::UniqueLocal => "unique local",
        AddressClass::SiteLocal => "site-local",
        AddressClass::Multicast => "multicast",
        AddressClass::Synthetic => "benchmarks, and netbox's own inside",
        AddressClass::Reserved => "reserved",
        AddressClass::OnLink => "on the link",
    }
}
