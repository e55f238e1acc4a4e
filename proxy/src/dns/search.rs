//! The host's search domains, out of `resolv.conf(5)`.

use netbox_config::HostName;

/// How many are kept. The C library has no limit; a person has not that many.
pub const MAX_SEARCH_DOMAINS: usize = 32;

/// The search list that `resolv_conf` sets: of all `search` and `domain` lines the last one counts, and the keyword
/// stands at the beginning of its line. What is no host name (`.` alone) is left out.
#[must_use]
pub fn search_domains(resolv_conf: &str) -> Vec<HostName> {
    let mut domains = Vec::new();
    for line in resolv_conf.lines() {
        // A keyword with a space before it is none for the C library.
        let Some((keyword, list)) = line.split_once([' ', '\t']) else { continue };
        let count = match keyword {
            "search" => MAX_SEARCH_DOMAINS,
            "domain" => 1,
            _ => continue,
        };
        let names = list.split_ascii_whitespace().take(count);
        domains = names.filter_map(|name| HostName::parse_wire(name.as_bytes()).ok()).collect();
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(resolv_conf: &str) -> Vec<String> {
        search_domains(resolv_conf).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_last_of_search_and_domain_counts() {
        assert_eq!(domains("search a.example b.example\nnameserver 203.0.113.1\n"), ["a.example", "b.example"]);
        assert_eq!(domains("search a.example\ndomain c.example d.example\n"), ["c.example"]);
        assert_eq!(domains("domain c.example\nsearch\ta.example \t b.example"), ["a.example", "b.example"]);
    }

    #[test]
    fn odd_files_are_read() {
        assert!(domains("").is_empty());
        assert_eq!(domains("; search x.example\r\n# search y.example\r\nsearch Corp.Example. .\r\n"), ["corp.example"]);
        assert!(domains(" search a.example\nsearching b.example\nsearch\n").is_empty());
        assert_eq!(domains("search ok.example bad..example 1.2.3.4 -x.example"), ["ok.example"]);
    }

    #[test]
    fn the_list_is_bounded() {
        let long: String = (0..1000).map(|number| format!(" d{number}.example")).collect();
        assert_eq!(domains(&format!("search{long}")).len(), MAX_SEARCH_DOMAINS);
    }
}
