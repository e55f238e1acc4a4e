use std::collections::BTreeMap;
use std::time::Duration;

use netbox_config::Reason;

use super::*;

fn readings() -> Readings {
    let tally = |more: u64| Tally {
        connections: 10 + more,
        decisions: BTreeMap::from([(Reason::Listed, 7), (Reason::NotListed, 3)]),
        ends: BTreeMap::from([("done", 6)]),
        sent: 1000,
        received: 2000 + more,
        dns_queries: 5,
        bounds: BTreeMap::from([("connections", 1)]),
        events_dropped: 0,
    };
    let reading = |label, more| Reading { label, tenants: 2, open: 1, tally: tally(more) };
    Readings {
        version: "0.1.0",
        started: UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
        is_ready: true,
        reloads: (2, 1),
        tenants: vec![reading(Label::Role("c\"i\\\n".into()), 0), reading(Label::User(1000), 5)],
        process: ProcessReading { resident: Some(4096), processor: Some(1.5), ..ProcessReading::default() },
    }
}

/// The samples of a text, and that it is one.
fn samples(text: &str) -> BTreeMap<String, String> {
    assert!(text.ends_with("\n# EOF\n"));
    let mut family = String::new();
    let mut families = Vec::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(!families.contains(&family), "{family} comes twice");
            families.push(family.clone());
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{name} stands in {family}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(name.to_owned(), value.to_owned()).is_none(), "{name} comes twice");
        }
    }
    samples
}

#[test]
fn every_tenant_is_told_apart_for_whoever_may_see_them() {
    let samples = samples(&readings().text(&Viewer::Admin));
    let expected = [
        ("netbox_build_info{version=\"0.1.0\"}", "1"),
        ("netbox_start_time_seconds", "1700000000.500"),
        ("netbox_reloads_total{result=\"failed\"}", "1"),
        ("process_resident_memory_bytes", "4096"),
        ("process_cpu_seconds_total", "1.50"),
        ("netbox_connections_total{kind=\"role\",role=\"c\\\"i\\\\\\n\"}", "10"),
        ("netbox_connections_total{kind=\"sandbox\",uid=\"1000\"}", "15"),
        ("netbox_open_connections{kind=\"sandbox\",uid=\"1000\"}", "1"),
        ("netbox_bytes_total{kind=\"sandbox\",uid=\"1000\",direction=\"received\"}", "2005"),
        ("netbox_decisions_total{kind=\"sandbox\",uid=\"1000\",verdict=\"deny\",reason=\"not-listed\"}", "3"),
        ("netbox_ends_total{kind=\"sandbox\",uid=\"1000\",end=\"done\"}", "6"),
        ("netbox_limits_total{kind=\"sandbox\",uid=\"1000\",limit=\"connections\"}", "1"),
    ];
    for (name, value) in expected {
        assert_eq!(samples.get(name).map(String::as_str), Some(value), "{name} in {samples:#?}");
    }
    assert!(!samples.contains_key("process_open_fds"), "what is not known is not told");
}

#[test]
fn everybody_else_sees_sums_and_no_names() {
    let text = readings().text(&Viewer::Anybody);
    for secret in ["uid", "role", "kind", "1000,"] {
        assert!(!text.contains(&format!("{secret}=")), "{text}");
    }
    let samples = samples(&text);
    assert_eq!(samples["netbox_connections_total"], "25");
    assert_eq!(samples["netbox_tenants"], "4");
    assert_eq!(samples["netbox_bytes_total{direction=\"sent\"}"], "2000");
    assert_eq!(samples["netbox_decisions_total{verdict=\"allow\",reason=\"listed\"}"], "14");
}

#[test]
fn the_bearer_of_a_role_sees_its_own() {
    let text = readings().text(&Viewer::Role("c\"i\\\n".into()));
    assert!(!text.contains("uid=") && !text.contains("kind=\"others\""), "{text}");
    assert_eq!(samples(&text)["netbox_connections_total{kind=\"role\",role=\"c\\\"i\\\\\\n\"}"], "10");
    let nobody = readings().text(&Viewer::Role("c".into()));
    assert!(!nobody.contains("role=") && nobody.ends_with("# EOF\n"), "{nobody}");
}
