//! The configuration of other tools, as each format in turn: nothing panics, and what comes out is narrow.

#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use netbox_config::derived::{
    MOST_HOSTS, Page, Reading, apt, cargo, git, go, is_public, lockfile, maven, npm, pip, requirements,
};
use netbox_config::{Rule, Source};

fn check(reading: Reading) {
    assert!(reading.named.len() <= MOST_HOSTS);
    for named in &reading.named {
        assert!(is_public(&named.host), "{named}");
        let rule = Rule::parse(&named.to_string(), Source::Flag("fuzz")).expect("a rule");
        assert_eq!(rule.to_string(), named.to_string());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((format, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let page = Page::new(Path::new("file"), text);
    let formats = 10 + lockfile::names().count();
    let reading = match usize::from(*format) % formats {
        0 => npm::parse(&page).and_then(|file| npm::resolve(None, &[file])),
        1 => pip::parse(&page).and_then(|file| pip::resolve(&pip::PipVariables::default(), &[file])),
        2 => requirements::parse(&page),
        3 => cargo::parse(&page).and_then(|file| cargo::resolve(&BTreeMap::new(), &[file])),
        4 => apt::parse_list(&page),
        5 => apt::parse_sources(&page),
        6 => go::resolve(&go::parse(&page)),
        7 => maven::parse(&page).and_then(|file| maven::resolve(&[file.clone()], &[file])),
        8 | 9 => git::parse(&page).and_then(|file| git::resolve(&[file.clone()], &[file])),
        other => lockfile::parse(lockfile::names().nth(other - 10).expect("below the count"), &page),
    };
    if let Ok(reading) = reading {
        check(reading);
    }
});
