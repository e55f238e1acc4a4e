use proptest::prelude::*;

use super::*;

/// The `server_name` extension with these entries of a type and a name.
pub(crate) fn server_names(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = entries.iter().flat_map(|(kind, name)| [&[*kind], &vector16(name)[..]].concat()).collect();
    extension(SERVER_NAME, &vector16(&list))
}

pub(crate) fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &vector16(content)[..]].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

/// A ClientHello message with these extensions; without any extension block if there is none.
pub(crate) fn message(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([32].into_iter().chain([9; 32]));
    body.extend(vector16(&[0x13, 0x01, 0x13, 0x02]));
    body.extend([1, 0]);
    body.extend(extensions.map(vector16).unwrap_or_default());
    handshake(CLIENT_HELLO, &body)
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, length[1], length[2], length[3]], body].concat()
}

/// A message in records of at most `size` bytes.
pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1], &vector16(part)[..]].concat()).collect()
}

/// The first flight of a client that wants to talk to `name`, with other extensions around the name.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let grease = extension(0x0a0a, b"");
    let alpn = extension(16, &vector16(b"\x02h2\x08http/1.1"));
    let shares = extension(51, &vector16(&[5; 1216]));
    let all = [grease, server_names(&[(0, name.as_bytes())]), alpn, shares].concat();
    records(&message(Some(&all)), MAX_RECORD)
}

/// The same with an Encrypted Client Hello.
pub(crate) fn encrypted_hello(name: &str) -> Vec<u8> {
    with(&[&server_names(&[(0, name.as_bytes())]), &extension(0xfe0d, &[7; 200])])
}

/// A hello with nothing but these extensions.
fn with(extensions: &[&[u8]]) -> Vec<u8> {
    records(&message(Some(&extensions.concat())), MAX_RECORD)
}

fn found(name: &str) -> Hello {
    Hello::Whole { sni: Some(HostName::parse_wire(name.as_bytes()).unwrap()), ech: false }
}

/// What a message becomes when one of its bytes is another.
fn changed(mut bytes: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    bytes[at] = to;
    bytes
}

#[test]
fn the_server_name_is_found() {
    assert_eq!(read(&hello("example.com")), found("example.com"));
    assert_eq!(read(&hello("Example.COM.")), found("example.com"));
    let sni = HostName::parse_wire(b"example.com").ok();
    assert_eq!(read(&encrypted_hello("example.com")), Hello::Whole { sni, ech: true });
    assert_eq!(read(&with(&[])), Hello::Whole { sni: None, ech: false });
    assert_eq!(read(&records(&message(None), MAX_RECORD)), Hello::Whole { sni: None, ech: false });
}

#[test]
fn every_prefix_is_incomplete_and_every_cut_reads_the_same() {
    let hello = hello("example.com");
    for cut in 0..hello.len() {
        assert_eq!(read(&hello[..cut]), Hello::Incomplete, "{cut}");
    }
}

#[test]
fn a_hello_may_be_cut_into_records_anywhere() {
    let message = message(Some(&server_names(&[(0, b"example.com")])));
    for cut in 1..message.len() {
        let (one, two) = message.split_at(cut);
        let bytes = [records(one, MAX_RECORD), records(two, MAX_RECORD)].concat();
        assert_eq!(read(&bytes), found("example.com"), "{cut}");
        assert_eq!(read(&bytes[..bytes.len() - 1]), Hello::Incomplete, "{cut}");
    }
    assert_eq!(read(&records(&message, 1)), found("example.com"));
    assert!(message.len() <= MAX_RECORDS);
}

#[test]
fn too_many_records_or_bytes_are_refused_before_they_have_come() {
    let long = message(Some(&extension(21, &[0; 1000])));
    assert_eq!(read(&records(&long, 1)), Hello::Malformed);
    assert_eq!(read(&records(&long, 1)[..6 * MAX_RECORDS + 5]), Hello::Malformed);
    let announced = [HANDSHAKE, 3, 1, 0x40, 0, CLIENT_HELLO, 1, 0, 0];
    assert_eq!(read(&announced), Hello::Malformed);
    let largest = message(Some(&extension(21, &vec![0; MAX_MESSAGE - 85])));
    assert_eq!(largest.len(), MAX_MESSAGE);
    assert_eq!(read(&records(&largest, MAX_RECORD)), Hello::Whole { sni: None, ech: false });
    assert!(records(&largest, MAX_MESSAGE / MAX_RECORDS).len() == MAX_BYTES);
}

#[test]
fn what_follows_in_further_records_is_not_looked_at() {
    let change_cipher_spec = [20, 3, 3, 0, 1, 1];
    let early_data = [23, 3, 3, 0, 4, 1, 2, 3, 4];
    let bytes = [hello("example.com"), change_cipher_spec.into(), early_data.into(), b"\x16garbage".into()].concat();
    assert_eq!(read(&bytes), found("example.com"));
}

#[test]
fn what_could_be_read_in_two_ways_is_malformed() {
    let a: (u8, &[u8]) = (0, b"a.example");
    let b: (u8, &[u8]) = (0, b"b.example");
    let name = server_names(&[a]);
    let flat = with(&[&name]);
    for (what, bytes) in [
        ("two names", with(&[&server_names(&[a, b])])),
        ("the same name twice", with(&[&server_names(&[a, a])])),
        ("two extensions", with(&[&name, &server_names(&[b])])),
        ("the same extension twice", with(&[&name, &name])),
        ("another type of name", with(&[&server_names(&[(1, b"a.example")])])),
        ("another type before the name", with(&[&server_names(&[(1, b"x"), a])])),
        ("no entry", with(&[&server_names(&[])])),
        ("an empty extension", with(&[&extension(SERVER_NAME, b"")])),
        ("an empty name", with(&[&server_names(&[(0, b"")])])),
        ("a NUL", with(&[&server_names(&[(0, b"a.example\0.b.example")])])),
        ("an IPv4 address", with(&[&server_names(&[(0, b"203.0.113.10")])])),
        ("an IPv6 address", with(&[&server_names(&[(0, b"2001:db8::1")])])),
        ("a port", with(&[&server_names(&[(0, b"a.example:443")])])),
        ("not ASCII", with(&[&server_names(&[(0, "ä.example".as_bytes())])])),
        ("bytes behind the list", with(&[&extension(SERVER_NAME, &[&name[4..], b"x"].concat())])),
        ("a list that is longer than its extension", with(&[&changed(name.clone(), 5, 200)])),
        ("a name that is longer than its list", with(&[&changed(name.clone(), 8, 200)])),
        ("a name that is shorter than its list", with(&[&changed(name.clone(), 8, 3)])),
        ("an extension that is cut", with(&[&name, &[0, 1, 0]])),
        ("bytes behind the extensions", {
            let inner = message(Some(&name));
            records(&handshake(CLIENT_HELLO, &[&inner[4..], b"x"].concat()), MAX_RECORD)
        }),
        ("bytes behind the hello in its record", records(&[message(Some(&name)), vec![0]].concat(), MAX_RECORD)),
        ("a second message in its record", records(&[message(Some(&name)), message(None)].concat(), MAX_RECORD)),
        ("a session id of 33 bytes", changed(flat.clone(), 5 + 4 + 34, 33)),
        ("an odd length of cipher suites", changed(flat.clone(), 5 + 4 + 34 + 33 + 1, 3)),
        ("no cipher suites", changed(flat.clone(), 5 + 4 + 34 + 33 + 1, 0)),
        ("no compression method", changed(flat.clone(), 5 + 4 + 34 + 33 + 6, 0)),
        ("another message", changed(flat.clone(), 5, 2)),
        ("an empty record", vec![HANDSHAKE, 3, 1, 0, 0]),
        ("a record over 2^14 bytes", vec![HANDSHAKE, 3, 1, 0x40, 1]),
        (
            "another record between its parts",
            [&records(&message(Some(&name))[..20], 20), &[20, 3, 3, 0, 1, 1][..]].concat(),
        ),
        ("the start of another record", [&records(&message(Some(&name))[..20], 20), &[20][..]].concat()),
        ("another version between its parts", [&records(&message(Some(&name))[..20], 20), &[22, 2][..]].concat()),
    ] {
        assert_eq!(read(&bytes), Hello::Malformed, "{what}");
    }
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x04", b"\x15\x03\x01", b"\0"]
    {
        assert_eq!(read(bytes), Hello::NotTls, "{bytes:?}");
    }
    for bytes in [&b""[..], b"\x16", b"\x16\x03"] {
        assert_eq!(read(bytes), Hello::Incomplete, "{bytes:?}");
    }
}

/// Bytes that get far into the reader: hellos with a few bytes changed, cut into records of any size.
fn nearly_hellos() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    ("[a-z.\0]{0,20}", changes, 1..200usize, any::<bool>()).prop_map(|(name, changes, size, early)| {
        let extensions = [server_names(&[(0, name.as_bytes())]), extension(21, &[0; 30])];
        let mut message = message(Some(&extensions.concat()));
        let changed = changes.len();
        for (at, to) in changes {
            let at = at.index(message.len());
            message[at] = to;
        }
        let mut bytes = records(&message, size);
        if early && changed > 0 {
            bytes[3 + changed % 2] ^= 1;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn a_verdict_stays_whatever_follows(bytes in nearly_hellos(), rest in proptest::collection::vec(any::<u8>(), 0..20)) {
        let whole = read(&bytes);
        for cut in 0..bytes.len() {
            let early = read(&bytes[..cut]);
            prop_assert!(early == Hello::Incomplete || early == whole, "{cut}: {early:?}, then {whole:?}");
        }
        if whole != Hello::Incomplete {
            prop_assert_eq!(read(&[bytes, rest].concat()), whole);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 3..300)) {
        let _ = read(&bytes);
        bytes[..3].copy_from_slice(&[HANDSHAKE, 3, 1]);
        let _ = read(&bytes);
    }
}
