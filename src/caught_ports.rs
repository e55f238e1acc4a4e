//! On which ports connections are caught where the kernel has no nf_tables: there netbox listens on each of them, and a
//! connect to another one is refused.

use netbox_config::{Mode, Policy};

use crate::ports::Ports;

/// Where a refusal is told in the protocol of the connection.
const WEB: [u16; 2] = [443, 80];
/// Of more ports than there is room for, these come first: where rules are of every port, and where any host may be connected
/// to.
const COMMON: [u16; 10] = [22, 8080, 8443, 9418, 3306, 5432, 6379, 9092, 9200, 27017];

/// Those that the policy speaks of, the most telling first, since there is not room for all that there can be.
pub fn of(policy: &Policy, doors: &Ports) -> Vec<u16> {
    let (single, wide): (Vec<_>, Vec<_>) = policy.allowed_ports().partition(|(low, high)| low == high);
    let is_any = matches!(policy.mode(), Mode::Audit | Mode::Open);
    let is_in_a_range = |port: &u16| wide.iter().any(|(low, high)| (low..=high).contains(&port));
    let common: Vec<_> = COMMON.into_iter().filter(|port| is_any || is_in_a_range(port)).collect();
    let ports = WEB.into_iter().chain(single.into_iter().map(|(port, _)| port)).chain(common);
    let ports = ports.chain(wide.into_iter().flat_map(|(low, high)| low..=high));
    // Somebody inside is about to listen there.
    let is_published = |port: &u16| doors.published.iter().any(|door| door.sandbox_port.get() == *port);
    let mut caught = Vec::new();
    for port in ports.filter(|port| !is_published(port)) {
        // Rules repeat each other, and a range may be of every port.
        if caught.len() == netbox_launcher::MAX_CAUGHT_PORTS {
            break;
        }
        if !caught.contains(&port) {
            caught.push(port);
        }
    }
    caught
}

#[cfg(test)]
mod tests {
    use netbox_config::{Rule, Source};

    use super::*;
    use crate::cli::PublishArgument;

    fn caught(mode: Mode, rules: &[&str], published: &[&str]) -> Vec<u16> {
        let rules = rules.iter().map(|rule| Rule::parse(rule, Source::Flag("--allow")).unwrap()).collect();
        let policy = Policy::new(mode, rules, Vec::new()).unwrap();
        let published: Vec<_> = published.iter().map(|text| PublishArgument::parse(text).unwrap()).collect();
        of(&policy, &Ports::new(&[], &published).unwrap())
    }

    #[test]
    fn single_ports_come_before_ranges_and_each_once() {
        let rules = ["a.example.com:8000-8002", "b.example.com", "c.example.com:22,443"];
        assert_eq!(caught(Mode::Allowlist, &rules, &[]), [443, 80, 22, 8000, 8001, 8002]);
        assert_eq!(caught(Mode::Allowlist, &[], &[]), [443, 80]);
    }

    #[test]
    fn there_is_an_end_to_a_rule_of_every_port() {
        let ports = caught(Mode::Allowlist, &["a.example.com:*", "b.example.com:60000"], &[]);
        assert_eq!(ports.len(), netbox_launcher::MAX_CAUGHT_PORTS);
        assert_eq!(ports[..4], [443, 80, 60000, 22]);
    }

    #[test]
    fn a_port_that_is_published_is_left_to_the_program_inside() {
        assert_eq!(caught(Mode::Allowlist, &["a.example.com:80,3000"], &["9999:3000"]), [443, 80]);
    }
}
