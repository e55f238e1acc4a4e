//! `tests/cases/target.jsonl` at the three doors, driven from the file: a new line is a new test.

use super::*;
use crate::capture::tests::target_cases::{Case, cases, tell};

/// What CONNECT and SOCKS5 do not take, and an absolute-form request does: it may leave the port out.
const PORT_LEFT_OUT: [&str; 2] = ["T059", "T194"];

/// Sends a case to the explicit door. `outcome` says what an answer means.
async fn drive(case: &Case, door: &str, bytes: &[u8], outcome: impl Fn(&[u8]) -> &'static str) -> Option<String> {
    let (mut world, _servers) = case.world().await;
    let mut client = world.explicit().await;
    send(&mut client, bytes).await;
    // All that a tunnel is told, or the end of a refusal.
    client.shutdown().await.unwrap();
    let answer = all(&mut client).await;
    drop(client);
    let (lookups, dials) = (world.net.lookups.lock().unwrap().clone(), world.net.dials.lock().unwrap().clone());
    let events = world.events().await;
    let expected = case.line["expect"].as_str().unwrap();
    let (outcome, reason) = (outcome(&answer), reasons(&events)[0].to_owned());
    let fine = expected == outcome || case.texts("also_ok").contains(&outcome);
    // In clear text to the port of TLS, it is refused all the same.
    let fine = fine || (door == "absolute-form" && case.port() == Some(443) && reason == "not-tls");
    let verdict = of(&events, "decision")[0]["verdict"].as_str().unwrap().to_owned();
    let told = verdict == outcome && of(&events, "decision").len() == 1;
    // Only what is refused for its addresses was looked up.
    let quiet = outcome == "allow" || (dials.is_empty() && (lookups.is_empty() || reason == "non-public"));
    let failure = || format!("{} by {door}: {outcome} ({reason}), not {expected}; {lookups:?} {dials:?}", case.id);
    (!fine || !told || !quiet).then(failure)
}

fn by_status(answer: &[u8]) -> &'static str {
    match answer.get(9..12) {
        Some(b"200") => "allow",
        Some(b"403") => "deny",
        Some(b"400" | b"431" | b"501") => "error",
        _ => "nothing that was foreseen",
    }
}

#[tokio::test]
async fn targets_hold_by_connect() {
    let mut failures = Vec::new();
    for case in cases() {
        let request = [b"CONNECT ", &case.input()[..], b" HTTP/1.1\r\nHost: x.example\r\n\r\n"].concat();
        failures.extend(drive(&case, "CONNECT", &request, by_status).await);
    }
    assert_eq!(failures, [""; 0]);
    tell("CONNECT", cases().len());
}

/// The host is written as in the authority, with its brackets, and without.
#[tokio::test]
async fn targets_hold_by_socks5() {
    let by_reply = |answer: &[u8]| match answer {
        [5, 0, 5, 0, ..] => "allow",
        [5, 0, 5, 2, ..] => "deny",
        [5, 0, 5, 1, ..] => "error",
        _ => "nothing that was foreseen",
    };
    let (mut failures, mut driven) = (Vec::new(), 0);
    for case in cases() {
        let input = case.input();
        // No request can say that there is no port, or one beyond 16 bits, or so long a name.
        let Some(port) = case.port() else { continue };
        let host = &input[..input.iter().rposition(|byte| *byte == b':').unwrap()];
        if host.len() > 255 {
            continue;
        }
        let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
        for name in [host].into_iter().chain(bare.filter(|bare| bare.contains(&b':'))) {
            failures.extend(drive(&case, "SOCKS5", &[GREETING, &named(name, port)].concat(), by_reply).await);
        }
        driven += 1;
    }
    assert_eq!(failures, [""; 0]);
    assert!(driven >= 145, "{driven} cases");
    tell("SOCKS5", driven);
}

/// In HTTP/1.0, which needs no `Host`: the target stands in one place.
#[tokio::test]
async fn targets_hold_by_absolute_form() {
    let (mut failures, mut driven) = (Vec::new(), 0);
    for case in cases().into_iter().filter(|case| !PORT_LEFT_OUT.contains(&case.id.as_str())) {
        driven += 1;
        let request = [b"GET http://", &case.input()[..], b"/ HTTP/1.0\r\n\r\n"].concat();
        failures.extend(drive(&case, "absolute-form", &request, by_status).await);
    }
    assert_eq!(failures, [""; 0]);
    tell("the absolute form", driven);
}
