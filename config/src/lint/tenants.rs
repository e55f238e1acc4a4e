//! Names below which strangers have theirs, and which the public-suffix list does not have.

use crate::suffix::{self, SuffixKind};

/// Well-known providers that give each customer a name below one of these, from their own documentation. Sorted.
const SHARED: &[&str] = &[
    "aliyuncs.com",
    "amazonaws.com",
    "atlassian.net",
    "auth0.com",
    "azure.com",
    "b-cdn.net",
    "backblazeb2.com",
    "cloudapp.azure.com",
    "core.windows.net",
    "digitaloceanspaces.com",
    "fastly.net",
    "googleusercontent.com",
    "loca.lt",
    "my.salesforce.com",
    "myqcloud.com",
    "nip.io",
    "okta.com",
    "oraclecloud.com",
    "pipedream.net",
    "railway.app",
    "run.app",
    "sharepoint.com",
    "slack.com",
    "sslip.io",
    "storage.googleapis.com",
    "wasabisys.com",
    "webhook.site",
    "windows.net",
    "zendesk.com",
];

/// Whether a wildcard over this name covers the names of a provider's customers.
pub(super) fn are_below(base: &str) -> bool {
    suffix::kind(base) == SuffixKind::Private || SHARED.binary_search(&base).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_are_known_from_the_list_and_from_ours() {
        assert!(SHARED.is_sorted());
        for (base, expected) in [
            ("github.io", true),
            ("s3.amazonaws.com", true),
            ("amazonaws.com", true),
            ("atlassian.net", true),
            ("github.com", false),
            ("example.com", false),
            ("mine.atlassian.net", false),
            ("mine.github.io", false),
        ] {
            assert_eq!(are_below(base), expected, "{base}");
        }
    }
}
