//! Public suffixes: names such as `com` or `co.uk` below which strangers register.

/// What a wildcard over a name would open, by the public-suffix list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuffixKind {
    /// Names of one owner, or of a top level that the list does not know (`intranet`).
    Ordinary,
    /// A suffix of the ICANN section, or a name all of whose children are: everyone's names.
    Icann,
    /// A suffix of the private section (`github.io`): the names of one provider's customers.
    Private,
}

/// What kind of name it is, in lower-case A-labels.
pub(crate) fn kind(name: &str) -> SuffixKind {
    let own = kind_of_exactly(name);
    if own == SuffixKind::Ordinary {
        // Of `*.ck` the list says that every child of `ck` is a suffix, and not that `ck` is one.
        return kind_of_exactly(&format!("any-label.{name}"));
    }
    own
}

fn kind_of_exactly(name: &str) -> SuffixKind {
    match psl::suffix(name.as_bytes()) {
        Some(suffix) if suffix.as_bytes() == name.as_bytes() => match suffix.typ() {
            Some(psl::Type::Icann) => SuffixKind::Icann,
            Some(psl::Type::Private) => SuffixKind::Private,
            None => SuffixKind::Ordinary,
        },
        _ => SuffixKind::Ordinary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_by_section() {
        for (name, expected) in [
            ("com", SuffixKind::Icann),
            ("co.uk", SuffixKind::Icann),
            ("uk", SuffixKind::Icann),
            ("ck", SuffixKind::Icann),
            ("com.ck", SuffixKind::Icann),
            ("www.ck", SuffixKind::Ordinary),
            ("xn--p1ai", SuffixKind::Icann),
            ("arpa", SuffixKind::Icann),
            ("github.io", SuffixKind::Private),
            ("s3.amazonaws.com", SuffixKind::Private),
            ("github.com", SuffixKind::Ordinary),
            ("amazonaws.com", SuffixKind::Ordinary),
            ("foo.github.io", SuffixKind::Ordinary),
            ("intranet", SuffixKind::Ordinary),
            ("localhost", SuffixKind::Ordinary),
            ("corp.internal", SuffixKind::Ordinary),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
