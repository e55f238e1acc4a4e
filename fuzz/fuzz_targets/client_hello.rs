//! The TLS ClientHello: the name that is judged is the name that a TLS server reads.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use netbox_proxy::fuzzing::{Hello, client_hello};
use rustls::server::Acceptor;

fuzz_target!(|bytes: &[u8]| {
    let whole = client_hello(bytes);
    for end in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let early = client_hello(&bytes[..end]);
        assert!(early == Hello::Incomplete || early == whole, "more bytes change a verdict");
    }
    let Hello::Whole { sni, .. } = whole else { return };
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    let accepted = loop {
        match acceptor.read_tls(&mut rest.by_ref().take(u64::MAX)) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => break accepted,
            Ok(None) => {}
            // It wants more of a hello than netbox does, such as a signature scheme that it knows.
            Err(_) => return,
        }
    };
    // One trailing dot is dropped here, and a name with one is none to rustls.
    if let Some(theirs) = accepted.client_hello().server_name() {
        assert_eq!(sni.map(|name| name.to_string()), Some(theirs.to_ascii_lowercase()));
    }
});
