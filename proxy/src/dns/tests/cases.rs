//! The cases of `tests/cases/dns.jsonl`, one test for each, by its id.

use std::collections::BTreeSet;
use std::io::Write;

use netbox_config::{Decision, Host, HostFacts, Port, Target, Via};

use super::bytes::*;
use super::*;
use crate::dns::MADE_UP_NAMES;
use crate::dns::answer::{finish, plan};
use crate::dns::synthetic::{LISTED_CAPACITY, SyntheticTable};
use crate::dns::wire::{Question, parse};

/// The cases that need a capture and a dialler: their tests are in `tests/e2e`.
const END_TO_END: [&str; 4] = ["D050", "D051", "D052", "D059"];

const SECRET: &str = "mzxw6ytboi2gc3tdmvzxg43fmrzgkzlgnrqwy43f";

/// A connect to `host`, as the capture would judge it.
fn judged(world: &World, host: &str, port: u16) -> Decision {
    let target = Target::new(Host::Name(name(host)), Port::new(port).unwrap(), Via::Capture);
    world.names.policy.now().decide(&target, &HostFacts::default())
}

/// What `deny` means for a name: nothing left the host, and the address that was answered leads to a refusal.
async fn is_refused_without_a_query(world: &World, host: &str) {
    let (v4, v6) = (world.ask(&query(host, A)).await.v4(), world.ask(&query(host, AAAA)).await.v6());
    assert_eq!(world.asked(), [""; 0]);
    for address in [IpAddr::from(v4), v6.into()] {
        assert_eq!(world.name_of(address), Some(host.to_owned()));
    }
    assert!(matches!(judged(world, host, 443), Decision::Refuse(_)));
    for address in [v4.octets()[1], 19] {
        assert_eq!(address, 19, "from the region of the refused names");
    }
}

#[tokio::test]
async fn the_next_question_goes_by_the_policy_that_is_in_force_then() {
    let world = World::allowing(&["github.com"]).await;
    let before = world.ask(&query("evil.example", A)).await.v4();
    assert_eq!((before.octets()[1], world.asked()), (19, vec![]));
    world.names.policy.replace(Arc::new(policy(Mode::Allowlist, &["evil.example"], &[])));
    let after = world.ask(&query("evil.example", A)).await.v4();
    assert_eq!((after.octets()[1], world.asked()), (18, vec!["evil.example".to_owned()]));
    // A program that remembers the first answer gets through with it too.
    assert_eq!(world.name_of(before), world.name_of(after));
    world.ask(&query("github.com", A)).await;
    assert_eq!(world.asked().len(), 1, "no longer listed, and no longer asked for");
}

#[tokio::test]
async fn d001_a_listed_name_is_resolved_and_gets_a_synthetic_address() {
    let world = World::allowing(&["github.com"]).await;
    let answer = world.ask(&query("github.com", A)).await;
    let expected = [
        // The same id; an answer, recursion desired and available; one question, one answer.
        &[0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..],
        b"\x06github\x03com\x00\x00\x01\x00\x01",
        // The question's name, A, IN, 30 seconds, 198.18.1.1.
        &[0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 1, 1],
    ]
    .concat();
    assert_eq!(answer.bytes, expected);
    assert_eq!(world.asked(), ["github.com"]);
    assert_eq!(world.ask(&query("github.com", AAAA)).await.v6(), "2001:2::1:c612:101".parse::<Ipv6Addr>().unwrap());
    assert_eq!(world.name_of([198, 18, 1, 1]), Some("github.com".to_owned()));
    assert!(matches!(judged(&world, "github.com", 443), Decision::Allow(_)));
}

#[tokio::test]
async fn d003_the_case_of_a_question_is_echoed() {
    let world = World::allowing(&["github.com"]).await;
    let plain = world.ask(&query("github.com", A)).await;
    let mixed = world.ask(&query("GitHub.cOm", A)).await;
    assert_eq!(mixed.v4(), plain.v4());
    assert_eq!(mixed.bytes[12..24], *b"\x06GitHub\x03cOm\x00");
    assert_eq!(world.asked(), ["github.com", "github.com"]);
}

#[tokio::test]
async fn d004_an_unlisted_name_gets_an_address_that_is_refused() {
    let world = World::allowing(&["github.com"]).await;
    is_refused_without_a_query(&world, "evil.example").await;
    let explained = world.ask(&with_edns(query("evil.example", A))).await;
    assert_eq!(explained.extended_error(), Some(15), "Blocked");
}

#[tokio::test]
async fn d005_a_secret_in_a_name_does_not_leave() {
    let world = World::allowing(&["github.com"]).await;
    is_refused_without_a_query(&world, &format!("{SECRET}.evil.example")).await;
    for kind in [CNAME, SOA, PTR, MX, TXT, SRV, SVCB, HTTPS, 257, 65_280] {
        assert!(world.ask(&query(&format!("{SECRET}.evil.example"), kind)).await.is_empty());
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d006_a_name_below_an_exact_rule_is_not_listed() {
    let world = World::allowing(&["github.com"]).await;
    is_refused_without_a_query(&world, &format!("{SECRET}.github.com")).await;
}

#[tokio::test]
async fn d007_a_name_below_a_wildcard_is_listed() {
    let world = World::allowing(&["*.github.com"]).await;
    assert_eq!(world.ask(&query(&format!("{SECRET}.github.com"), A)).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
    assert_eq!(world.asked(), [format!("{SECRET}.github.com")]);
}

#[tokio::test]
async fn d008_the_longest_legal_name_is_answered() {
    let world = World::allowing(&["*.github.com"]).await;
    let long = "x".repeat(63);
    let name = format!("{long}.{long}.{long}.{}.github.com", "y".repeat(50));
    assert_eq!(name.len(), 253);
    assert_eq!(world.ask(&query(&name, A)).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
    assert_eq!(world.asked(), [name]);
    let too_long = format!("{long}.{long}.{long}.{}.github.com", "y".repeat(51));
    assert_eq!(world.ask(&query(&too_long, A)).await.code(), ResponseCode::FormErr);
}

#[tokio::test]
async fn d012_https_and_svcb_are_empty() {
    let world = World::allowing(&["github.com"]).await;
    for kind in [HTTPS, SVCB] {
        assert!(world.ask(&query("github.com", kind)).await.is_empty());
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d013_zone_transfers_are_refused() {
    let world = World::allowing(&["github.com"]).await;
    let soa = [&labels("github.com")[..], &[0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0], &[0; 20]].concat();
    let mut ixfr = [query("github.com", IXFR), soa].concat();
    ixfr[9] = 1;
    for message in [query("github.com", AXFR), ixfr, query("github.com", ANY)] {
        assert_eq!(world.ask_stream(&message).await.code(), ResponseCode::Refused);
        assert_eq!(world.ask(&message).await.code(), ResponseCode::Refused);
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d014_reverse_names_do_not_exist() {
    let world = World::allowing(&["github.com"]).await;
    let nibbles = "0.".repeat(32);
    for asked in ["4.3.2.1.in-addr.arpa", &format!("{nibbles}ip6.arpa"), &format!("{SECRET}.in-addr.arpa")] {
        assert_eq!(world.ask(&query(asked, PTR)).await.code(), ResponseCode::NXDomain, "{asked}");
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d015_a_synthetic_address_has_its_name() {
    let world = World::allowing(&["github.com"]).await;
    world.ask(&query("github.com", A)).await;
    world.ask(&query("evil.example", A)).await;
    let v6 = "1.0.1.0.2.1.6.c.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.0.0.0.1.0.0.2.ip6.arpa";
    for (asked, expected) in
        [("1.1.18.198.in-addr.arpa", "github.com."), (v6, "github.com."), ("1.1.19.198.in-addr.arpa", "evil.example.")]
    {
        let answer = world.ask(&query(asked, PTR)).await;
        assert!(matches!(answer.data()[..], [RData::PTR(name)] if name.0.to_string() == expected), "{asked}");
    }
    assert_eq!(world.ask(&query("2.1.18.198.in-addr.arpa", PTR)).await.code(), ResponseCode::NXDomain);
    assert_eq!(world.asked(), ["github.com"]);
}

#[tokio::test]
async fn d016_other_classes_are_refused() {
    let world = World::allowing(&["github.com"]).await;
    for class in [CH, 0, 4, 254, 255] {
        let message = [header([1, 0, 0, 0]), question(&labels("version.bind"), TXT, class)].concat();
        let answer = world.ask(&message).await;
        assert_eq!(answer.code(), ResponseCode::Refused);
        assert!(answer.has_no_records());
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d018_localhost_is_answered_here() {
    let world = World::new(policy(Mode::Open, &[], &[]), Script::default(), &[]).await;
    for asked in ["localhost", "LOCALHOST", "a.b.localhost"] {
        assert_eq!(world.ask(&query(asked, A)).await.v4(), Ipv4Addr::LOCALHOST);
        assert_eq!(world.ask(&query(asked, AAAA)).await.v6(), Ipv6Addr::LOCALHOST);
        assert!(world.ask(&query(asked, TXT)).await.is_empty());
    }
    assert_eq!(world.asked(), [""; 0]);
    assert_eq!(world.ask(&query("notlocalhost", A)).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
}

#[tokio::test]
async fn d020_a_single_label_is_not_expanded() {
    let world = World::new(policy(Mode::Allowlist, &["github.com"], &[]), Script::default(), &["corp.example"]).await;
    is_refused_without_a_query(&world, "intranet").await;
}

#[tokio::test]
async fn d023_a_metadata_name_is_not_listed() {
    let world = World::allowing(&["github.com"]).await;
    is_refused_without_a_query(&world, "metadata.google.internal").await;
}

#[tokio::test]
async fn d024_the_canary_of_browsers_does_not_exist() {
    let world = World::allowing(&["github.com", "*"]).await;
    for kind in [A, AAAA, HTTPS] {
        assert_eq!(world.ask(&query("use-application-dns.net", kind)).await.code(), ResponseCode::NXDomain);
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d025_text_of_a_name_below_is_not_asked_for() {
    let world = World::allowing(&["github.com"]).await;
    let answer = world.ask(&with_edns(query("_acme-challenge.github.com", TXT))).await;
    assert_eq!((answer.code(), answer.has_no_records()), (ResponseCode::NoError, true));
    assert_eq!(answer.extended_error(), Some(15), "Blocked");
    assert_eq!(world.asked(), [""; 0]);
}

/// Each message is answered with FORMERR and nothing is looked up.
async fn are_malformed(messages: impl IntoIterator<Item = Vec<u8>>) {
    let world = World::allowing(&["github.com", "*"]).await;
    for message in messages {
        let answer = world.ask(&message).await;
        assert_eq!(answer.code(), ResponseCode::FormErr, "{message:02x?}");
        assert_eq!(answer.id(), 0x1234);
        assert!(answer.has_no_records());
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d029_a_pointer_to_itself_is_malformed() {
    are_malformed([
        raw_query(&[0xc0, 12], A),
        raw_query(b"\x01a\xc0\x0c", A),
        raw_query(b"\x01a\x01b\xc0\x0e", A),
        // Backwards, into the header.
        raw_query(&[0xc0, 0], A),
    ])
    .await;
}

#[tokio::test]
async fn d031_a_pointer_past_the_end_is_malformed() {
    are_malformed([raw_query(&[0xff, 0xff], A), raw_query(b"\x01a\xc0\x40", A), raw_query(b"\x3fabc", A)]).await;
}

#[tokio::test]
async fn d032_a_chain_of_pointers_is_malformed() {
    // 120 pointers, each to the next one, the last to a name.
    let chain = |start: u16| (0..120).flat_map(move |link| (0xc000 | (start + 2 * link)).to_be_bytes());
    let at_once = [chain(14).collect(), labels("github.com")].concat();
    let after_a_label = [b"\x01a".to_vec(), chain(16).collect(), labels("github.com")].concat();
    are_malformed([raw_query(&at_once, A), raw_query(&after_a_label, A)]).await;
}

#[tokio::test]
async fn d033_reserved_label_lengths_are_malformed() {
    let label = |length: u8| [&[length], &vec![b'a'; length.into()][..], b"\x03com\x00"].concat();
    are_malformed((64..192).map(|length| raw_query(&label(length), A))).await;
}

#[tokio::test]
async fn d035_no_question_is_malformed() {
    are_malformed([header([0, 0, 0, 0]), [header([0, 0, 0, 0]), query("github.com", A)[12..].to_vec()].concat()]).await;
}

#[tokio::test]
async fn d036_two_questions_are_malformed() {
    let two = |first: &str, second: &str| {
        [header([2, 0, 0, 0]), question(&labels(first), A, IN), question(&labels(second), A, IN)].concat()
    };
    are_malformed([
        two("github.com", "evil.example"),
        two("evil.example", "github.com"),
        two("github.com", "github.com"),
    ])
    .await;
}

#[tokio::test]
async fn d039_other_opcodes_are_not_implemented() {
    let world = World::allowing(&["github.com"]).await;
    for opcode in 1..16 {
        let answer = world.ask(&with_flags(opcode << 11 | 0x0100, query("github.com", A))).await;
        assert_eq!(answer.code(), ResponseCode::NotImp);
        assert_eq!(answer.bytes[2] >> 3 & 0xf, u8::try_from(opcode).unwrap(), "its opcode is repeated");
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn d043_an_option_with_data_is_ignored_and_goes_nowhere() {
    let world = World::allowing(&["github.com"]).await;
    // Client subnet (RFC 7871), 8 bytes: family 1, 32 bits, an address.
    let subnet = [0, 8, 0, 8, 0, 1, 32, 0, 203, 0, 113, 99];
    let answer = world.ask(&with_additional(query("github.com", A), &[opt(1232, 0, 0x8000, &subnet)])).await;
    assert_eq!(answer.v4(), Ipv4Addr::new(198, 18, 1, 1));
    assert_eq!(world.asked(), ["github.com"]);
    // An OPT of ours: our size, version 0, the DO flag as it came, no options.
    assert_eq!(answer.bytes[answer.bytes.len() - 11..], [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0]);
}

#[tokio::test]
async fn d044_an_opt_record_out_of_place_is_an_error() {
    let plain = || opt(1232, 0, 0, &[]);
    let in_answers = || {
        let mut message = [query("github.com", A), plain()].concat();
        message[7] = 1;
        message
    };
    let in_authorities = || {
        let mut message = [query("github.com", A), plain()].concat();
        message[9] = 1;
        message
    };
    let named = [&b"\x01a"[..], &plain()].concat();
    let cut_option = opt(1232, 0, 0, &[0, 8, 0, 9, 1, 2]);
    let asked = |records: &[Vec<u8>]| with_additional(query("github.com", A), records);
    are_malformed([asked(&[plain(), plain()]), in_answers(), in_authorities(), asked(&[named]), asked(&[cut_option])])
        .await;

    let world = World::allowing(&["github.com"]).await;
    for version in [1, 255] {
        let answer = world.ask(&asked(&[opt(1232, version, 0, &[])])).await;
        assert_eq!(u16::from(answer.code()), 16, "BADVERS");
        assert_eq!(answer.message.edns.as_ref().unwrap().version(), 0, "says what it speaks");
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn d055_seventy_thousand_listed_names_keep_their_addresses() {
    let world = World::allowing(&["*.github.com"]).await;
    let listed = |number: usize| format!("n{number}.github.com");
    let first = world.ask(&query(&listed(0), A)).await.v4();
    let ask = async |number: usize| {
        let question = Question { name: Ok(name(&listed(number))), kind: A };
        finish(&world.names, plan(&world.names, question)).await
    };
    let mut answered = 0;
    for number in 0..70_000 {
        // At the pace at which names may be made up.
        tokio::time::advance(MADE_UP_NAMES.refill).await;
        answered += ask(number).await.answers.len();
    }
    assert_eq!(answered, LISTED_CAPACITY);
    assert_eq!(world.asked().len(), 70_001);
    assert_eq!(world.ask(&query(&listed(0), A)).await.v4(), first);
    assert_eq!(world.name_of(first), Some(listed(0)));
    assert_eq!(world.ask(&query(&listed(LISTED_CAPACITY - 1), A)).await.v4(), Ipv4Addr::new(198, 18, 255, 254));
    assert_eq!(world.ask(&query(&listed(LISTED_CAPACITY), A)).await.code(), ResponseCode::ServFail);
    assert_eq!(world.ask(&query("evil.example", A)).await.v4(), Ipv4Addr::new(198, 19, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn made_up_names_leave_slowly_and_listed_ones_at_once() {
    let world = World::allowing(&["*.github.com", "api.github.com"]).await;
    for number in 0..MADE_UP_NAMES.most {
        assert_eq!(world.ask(&query(&format!("n{number}.github.com"), A)).await.code(), ResponseCode::NoError);
    }
    let left = world.asked().len();
    for kind in [A, AAAA, TXT] {
        assert_eq!(world.ask(&query("secret.github.com", kind)).await.code(), ResponseCode::ServFail);
    }
    assert_eq!(world.asked().len(), left, "no query leaves");
    for known in ["n7.github.com", "api.github.com"] {
        assert_eq!(world.ask(&query(known, A)).await.code(), ResponseCode::NoError, "{known}");
    }
    tokio::time::advance(MADE_UP_NAMES.refill).await;
    assert_eq!(world.ask(&query("secret.github.com", A)).await.code(), ResponseCode::NoError);
}

#[tokio::test]
async fn d056_an_address_that_was_not_handed_out_has_no_name() {
    let world = World::allowing(&["github.com"]).await;
    world.ask(&query("github.com", A)).await;
    assert!(SyntheticTable::is_synthetic([198, 18, 77, 77].into()));
    assert_eq!(world.name_of([198, 18, 77, 77]), None);
}

#[tokio::test]
async fn d058_an_address_means_nothing_in_another_sandbox() {
    let (one, other) = (World::allowing(&["*.github.com"]).await, World::allowing(&["*.github.com"]).await);
    let address = one.ask(&query("a.github.com", A)).await.v4();
    assert_eq!(other.name_of(address), None);
    other.ask(&query("b.github.com", A)).await;
    other.ask(&query("a.github.com", A)).await;
    assert_eq!(other.name_of(address), Some("b.github.com".to_owned()));
    assert_eq!(one.name_of(address), Some("a.github.com".to_owned()));
}

/// Addresses come from the host's resolver, which keeps 64 of them (`resolve`); records come from a server that is
/// scripted here.
#[tokio::test]
async fn d061_answers_without_end_are_bounded() {
    records::a_thousand_records_are_cut().await;
    records::a_loop_of_aliases_fails().await;
    records::a_server_that_always_truncates_fails().await;
}

/// Every case is a test here or named as one that is elsewhere, and no test is for a case that is not.
#[test]
fn every_case_has_a_test() {
    let cases = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/dns.jsonl")).unwrap();
    let ids = cases.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let ids: BTreeSet<_> = ids.map(|case| case["id"].as_str().unwrap().to_owned()).collect();
    let here = include_str!("cases.rs").lines().filter_map(|line| line.strip_prefix("async fn d"));
    let here = here.filter_map(|rest| rest.split_once('_')).map(|(number, _)| format!("D{number}"));
    let tested: BTreeSet<_> = here.chain(END_TO_END.map(str::to_owned)).collect();
    assert!(!ids.is_empty());
    assert_eq!(ids, tested);
    let themes = ["lookups", "addresses"].map(|theme| {
        let path = format!("{}/../tests/e2e/themes/{theme}.rs", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    });
    for id in END_TO_END {
        let test = format!("\nfn {}_", id.to_lowercase());
        assert!(themes.iter().any(|theme| theme.contains(&test)), "{id} has no test");
    }
    let (all, here) = (ids.len(), ids.len() - END_TO_END.len());
    writeln!(std::io::stderr(), "dns.jsonl: {all} cases, a test for {here} here and for the others end to end")
        .unwrap();
}

/// A message and what it is answered with fit each other also where the question is a listed one with everything at
/// once.
#[tokio::test]
async fn an_answer_repeats_what_it_must() {
    let world = World::allowing(&["github.com"]).await;
    let message = with_edns(with_flags(0x0130, with_id(0xbeef, query("github.com", A))));
    let answer = world.ask(&message).await;
    // RD and CD as they came, RA ours, AD never.
    assert_eq!(answer.bytes[..4], [0xbe, 0xef, 0x81, 0x90]);
    assert!(parse(&answer.bytes).is_none(), "an answer is no query");
}
