//! Texts that nobody wrote: whatever they are, nothing panics, takes long, or comes out that is no public name.

use std::collections::BTreeMap;
use std::fmt::Write;

use netbox_config::derived::{
    MOST_HOSTS, Misread, Reading, apt, cargo, git, go, is_public, lockfile, maven, npm, pip, requirements,
};
use netbox_config::{Rule, Source};
use proptest::prelude::*;

use super::{page, show};

/// Reads a text as each of the formats in turn.
fn read_all(text: &str) -> Vec<Result<Reading, Misread>> {
    let page = || page("file", text);
    let mut readings = vec![
        npm::parse(&page()).and_then(|file| npm::resolve(None, &[file])),
        pip::parse(&page()).and_then(|file| pip::resolve(&pip::PipVariables::default(), &[file])),
        requirements::parse(&page()),
        cargo::parse(&page()).and_then(|file| cargo::resolve(&BTreeMap::new(), &[file])),
        apt::parse_list(&page()),
        apt::parse_sources(&page()),
        go::resolve(&go::parse(&page())),
        maven::parse(&page()).and_then(|file| maven::resolve(&[], &[file])),
        maven::parse(&page()).and_then(|file| maven::resolve(&[file], &[])),
        git::parse(&page()).and_then(|file| git::resolve(&[file], &[])),
    ];
    readings.extend(lockfile::names().map(|name| lockfile::parse(name, &page())));
    readings
}

fn assert_narrow(text: &str) {
    for reading in read_all(text) {
        if let Ok(reading) = &reading {
            assert!(reading.named.len() <= MOST_HOSTS);
            for named in &reading.named {
                assert!(is_public(&named.host), "{named}");
                let rule = Rule::parse(&named.to_string(), Source::Flag("--allow")).expect("a named host is a rule");
                assert_eq!(rule.to_string(), named.to_string());
            }
        }
        let shown = show(reading);
        assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
    }
}

/// Pieces of all formats, which chance puts together.
const PIECES: [&str; 46] = [
    "registry=",
    "@a:registry=",
    "https://",
    "http://",
    "ssh://",
    "git@",
    "a.example.com",
    "b.example",
    "localhost",
    "10.0.0.1",
    "[::1]",
    ":443",
    ":",
    "/",
    "@",
    "*",
    "\\",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    "<url>",
    "</url>",
    "<repository>",
    "<repositories>",
    "\n",
    "\r\n",
    " ",
    "\t",
    "#",
    ";",
    "=",
    ",",
    "resolved",
    "url",
    "[remote \"x\"]",
    "[url \"https://x.example.com\"]",
    "insteadOf",
    "deb ",
    "URIs: ",
    "tarball: ",
    "__archiveUrl=https%3A%2F%2F",
    "GOPROXY=",
    "\u{202e}\u{1b}[2J",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_without_a_panic(text in any::<String>()) {
        assert_narrow(&text);
    }

    #[test]
    fn any_bytes_are(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        assert_narrow(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn pieces_of_the_formats_are(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..40)) {
        assert_narrow(&pieces.concat());
    }
}

#[test]
fn more_hosts_than_a_person_reads_are_an_error() {
    let mut text = String::from("{");
    for number in 0..MOST_HOSTS + 1 {
        let comma = if number == 0 { "" } else { ",\n" };
        let _ = write!(text, "{comma}\"{number}\": {{\"resolved\": \"https://h{number}.example.com/x\"}}");
    }
    text.push('}');
    let shown = show(lockfile::parse("package-lock.json", &page("package-lock.json", &text)));
    assert_eq!(shown, "error package-lock.json:257: names more than 256 hosts; write a rule for those that are meant");
}

/// Texts of a size that only time that grows with its square would make slow, or only recursion would make fail.
#[test]
fn large_and_deep_texts_are_read_in_one_pass() {
    const SIZE: usize = 1 << 17;
    let fill = |piece: &str| piece.repeat(SIZE / piece.len());
    for text in [
        fill("["),
        fill("{\"a\":"),
        fill("<a>"),
        format!("{}{}", fill("<a>"), fill("</a>")),
        format!("<project><repositories>{}", fill("<repository><url>https://a.example.com</url></repository>")),
        fill("a\\\n"),
        fill("\\"),
        fill("\""),
        fill(" \n"),
        fill("a = [[[[\n"),
        format!("a = {}", fill("[")),
        fill("resolved \"https://a.example.com/x\"\n"),
        fill("tarball: https://a.example.com, "),
        fill("https://a@"),
        fill("-i https://a.example.com/ \\\n"),
        fill("@a:registry=https://localhost/\n"),
        fill("[registries.a]\n"),
        format!("[remote \"{}\"]\n{}", "x".repeat(4000), fill("url = https://a.example.com/x\n")),
        format!("[remote \"{}\"]\n", fill("x")),
        format!("[remote \"x\"]\n{}", fill("url = https://10.0.0.1/x\n")),
        fill("URIs: https://a.example.com\n"),
        fill("deb [a=b] https://a.example.com x\n"),
        format!("[global]\nextra-index-url =\n{}", fill(" https://a.example.com\n")),
        fill("%41"),
        format!("resolution: \"a@x::__archiveUrl={}", fill("%41")),
    ] {
        assert_narrow(&text);
    }
}
