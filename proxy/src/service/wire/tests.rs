use std::fs::File;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::service::frames::{Decoder, Frame, encode};

fn frame(text: &str, descriptors: usize) -> Frame {
    let file = || OwnedFd::from(File::open("/dev/null").unwrap());
    Frame { text: Bytes::copy_from_slice(text.as_bytes()), descriptors: (0..descriptors).map(|_| file()).collect() }
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

fn attach() -> Value {
    json!({
        "session": "00112233445566778899aabbccddeeff",
        "argv0": "curl",
        "policy": { "mode": "allowlist", "ech": "allow", "allow": [{ "rule": "example.com", "at": "--allow" }] },
        "descriptors": ["capture", "dns-udp", "dns-tcp", "explicit", "user-namespace"],
        "events": true,
        "first_id": 1,
        "names": { "listed": 0, "refused": 0 },
    })
}

fn malformed<T: std::fmt::Debug>(read: Result<T, WireError>) -> String {
    match read {
        Err(WireError::Malformed(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_come_out_as_they_went_in_however_they_are_cut() {
    let bytes = [framed(b"{}"), framed(b""), framed(&[b'x'; 1000])].concat();
    for cut in 0..bytes.len() {
        let mut decoder = Decoder::new();
        let mut texts = Vec::new();
        for part in [&bytes[..cut], &bytes[cut..]] {
            decoder.feed(part, Vec::new()).unwrap();
            while let Some(frame) = decoder.next(LONGEST).unwrap() {
                texts.push(frame.text.len());
            }
        }
        assert_eq!(texts, [2, 0, 1000], "{cut}");
        decoder.finish().unwrap();
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_length_alone() {
    for (length, longest) in [(LONGEST + 1, LONGEST), (u32::MAX as usize, LONGEST_ATTACH)] {
        let mut decoder = Decoder::new();
        decoder.feed(&u32::try_from(length).unwrap().to_be_bytes(), Vec::new()).unwrap();
        assert_eq!(decoder.next(longest).unwrap_err(), WireError::Long(length, longest));
    }
    let mut decoder = Decoder::new();
    decoder.feed(&framed(&vec![b' '; LONGEST]), Vec::new()).unwrap();
    assert!(decoder.next(LONGEST).unwrap().is_some(), "the longest is not too long");
}

#[test]
fn half_a_frame_is_told_from_the_end() {
    for (bytes, ends) in [(&b""[..], true), (b"\0", false), (b"\0\0\0", false), (b"\0\0\0\x02{", false)] {
        let mut decoder = Decoder::new();
        decoder.feed(bytes, Vec::new()).unwrap();
        assert!(decoder.next(LONGEST).unwrap().is_none());
        assert_eq!(decoder.finish().is_ok(), ends, "{bytes:?}");
    }
}

#[test]
fn another_version_is_said_whatever_else_it_has() {
    assert_eq!(frame(r#"{"v":2,"want":["all"]}"#, 0).read_hello(), Err(WireError::Version(2)));
    assert_eq!(frame(r#"{"v":0,"what":"attach"}"#, 0).read_hello(), Err(WireError::Version(0)));
    for (what, text) in [
        (What::Attach, "attach"),
        (What::Status, "status"),
        (What::Watch, "watch"),
        (What::Reload, "reload"),
        (What::Drain, "drain"),
    ] {
        let text = format!(r#"{{"v":1,"what":"{text}"}}"#);
        assert_eq!(frame(&text, 0).read_hello(), Ok(Hello { v: 1, what }));
    }
}

#[test]
fn what_is_no_hello_is_malformed() {
    for text in [
        "",
        "{",
        "[]",
        "null",
        "1",
        r#"{"v":1}"#,
        r#"{"what":"attach"}"#,
        r#"{"v":"1","what":"attach"}"#,
        r#"{"v":1.0,"what":"attach"}"#,
        r#"{"v":-1,"what":"attach"}"#,
        r#"{"v":4294967297,"what":"attach"}"#,
        r#"{"v":1,"what":"Attach"}"#,
        r#"{"v":1,"what":"attach","uid":0}"#,
        r#"{"v":1,"v":1,"what":"attach"}"#,
        r#"{"v":1,"what":"attach","what":"drain"}"#,
        r#"{"v":1,"what":"attach"}{}"#,
        r#"{"v":1,"what":"attach"} x"#,
        "{\"v\":1,\"what\":\"att\u{0}ach\"}",
    ] {
        malformed(frame(text, 0).read_hello());
    }
    let bytes = Frame { text: Bytes::from_static(b"{\"v\":1,\"what\":\"\xff\"}"), descriptors: Vec::new() };
    malformed(bytes.read_hello());
}

#[test]
fn a_request_is_read_with_its_descriptors_in_their_order() {
    let (read, handed) = frame(&attach().to_string(), 5).read_attach().unwrap();
    assert_eq!(read.argv0, "curl");
    let kinds: Vec<_> = handed.iter().map(|(kind, _)| *kind).collect();
    let order = [Handed::Capture, Handed::DnsUdp, Handed::DnsTcp, Handed::Explicit, Handed::UserNamespace];
    assert_eq!(kinds, order);
}

#[test]
fn too_many_and_too_few_descriptors_are_told() {
    for came in [0, 1, 4, 6, 32] {
        let error = frame(&attach().to_string(), came).read_attach().unwrap_err();
        assert_eq!(error, WireError::Descriptors { announced: 5, came });
    }
    let error = frame(r#"{"v":1,"what":"attach"}"#, 1).read_hello().unwrap_err();
    assert_eq!(error, WireError::Descriptors { announced: 0, came: 1 });
    let error = frame(r#"{"type":"end"}"#, 2).read::<Said>().unwrap_err();
    assert_eq!(error, WireError::Descriptors { announced: 0, came: 2 });
}

#[test]
fn a_request_with_a_key_too_many_or_too_few_is_malformed() {
    let Value::Object(whole) = attach() else { panic!("an object") };
    for key in whole.keys() {
        let mut without = whole.clone();
        without.remove(key);
        assert!(malformed(frame(&Value::Object(without).to_string(), 5).read_attach()).contains(key.as_str()));
    }
    for path in ["", "/policy", "/policy/allow/0", "/names"] {
        let mut more = attach();
        let at = more.pointer_mut(path).and_then(Value::as_object_mut).expect("an object");
        at.insert("uid".into(), 0.into());
        assert!(malformed(frame(&more.to_string(), 5).read_attach()).contains("uid"), "{path}");
    }
    for (path, value) in [
        ("/descriptors/0", json!("listener")),
        ("/descriptors", json!("capture")),
        ("/events", json!(1)),
        ("/first_id", json!(-1)),
        ("/first_id", json!(1e30)),
        ("/session", json!(null)),
        ("/policy/allow/0", json!("example.com")),
        ("/policy/allow", json!({})),
    ] {
        let mut wrong = attach();
        *wrong.pointer_mut(path).expect("a value") = value.clone();
        malformed(frame(&wrong.to_string(), 5).read_attach());
    }
}

#[test]
fn what_an_attached_client_says_is_one_of_five() {
    let asker = Asker { pid: 7, exe: Some("/usr/bin/curl".into()) };
    for said in [
        Said::Judge { n: 1, destination: "198.18.1.1:443".parse().unwrap(), process: Some(asker.clone()) },
        Said::Judge { n: u64::MAX, destination: "[2001:2::1]:22".parse().unwrap(), process: None },
        Said::Connected { n: 1, source: "10.0.2.100:40000".parse().unwrap(), process: Some(asker) },
        Said::Failed { n: 1 },
        Said::RefusedUdp { destination: "203.0.113.1:123".parse().unwrap() },
        Said::End {},
    ] {
        let bytes = encode(&said);
        assert_eq!(frame(std::str::from_utf8(&bytes[4..]).unwrap(), 0).read::<Said>(), Ok(said));
    }
    for text in [
        r#"{}"#,
        r#"{"type":"judge","n":1}"#,
        r#"{"type":"judge","n":1,"destination":"example.com:443"}"#,
        r#"{"type":"judge","n":1,"destination":"1.2.3.4:443","uid":0}"#,
        r#"{"type":"judge","n":1,"destination":"1.2.3.4:443","process":{"pid":1,"uid":0}}"#,
        r#"{"type":"judge","n":1,"n":2,"destination":"1.2.3.4:443"}"#,
        r#"{"type":"failed","n":1,"type":"end"}"#,
        r#"{"type":"end","more":1}"#,
        r#"{"type":"granted","policy":"","mode":"open","warnings":[]}"#,
        r#"{"type":"attach"}"#,
        r#"{"type":1}"#,
    ] {
        malformed(frame(text, 0).read::<Said>());
    }
}

#[test]
fn what_is_said_of_hostile_bytes_is_short_and_harmless() {
    let hostile = format!(r#"{{"v":1,"what":"attach","\u001b[2J\n{}":1}}"#, "x".repeat(5000));
    let why = malformed(frame(&hostile, 0).read_hello());
    assert!(why.chars().count() <= 200 && !why.contains(char::is_control), "{why:?}");
}

#[test]
fn what_the_service_says_arrives() {
    let refused = Refused::new(RefusedFor::User, "user `bob` may have nothing").hint("ask for an entry");
    for told in [
        Told::Granted { policy: "00".into(), mode: "open".into(), warnings: vec!["narrower".into()] },
        Told::Refused(refused),
        Told::Verdict { n: 3, allow: false },
        Told::Event { line: "{}\n".into() },
        Told::Sums(Sums { allowed: 1, denied: 2, malformed: 3, failed: 4, names: NamesUsed { listed: 5, refused: 6 } }),
        Told::Summary { summary: Box::default(), events_dropped: 9 },
        Told::Revoked { text: "over".into() },
        Told::Draining {},
    ] {
        let bytes = encode(&told);
        assert_eq!(frame(std::str::from_utf8(&bytes[4..]).unwrap(), 0).read::<Told>(), Ok(told));
    }
}
