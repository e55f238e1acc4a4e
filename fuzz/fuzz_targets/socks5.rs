//! SOCKS5 greetings, logins and requests: more bytes do not change what was decided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_config::{Host, Target, Via};
use netbox_proxy::fuzzing::{proxy_authorization, socks5_greeting, socks5_login, socks5_request};

fuzz_target!(|bytes: &[u8]| {
    // Whatever it is, it is hashed or refused.
    let _ = proxy_authorization(bytes);
    for end in 0..bytes.len().min(300) {
        if let Some(decided) = socks5_login(&bytes[..end]) {
            assert_eq!(socks5_login(bytes), Some(decided));
        }
        if let Some(decided) = socks5_greeting(&bytes[..end]) {
            assert_eq!(socks5_greeting(bytes), Some(decided));
        }
        if let Some(decided) = socks5_request(&bytes[..end]) {
            assert_eq!(socks5_request(bytes), Some(decided));
        }
    }
    if let Some(Ok((host, port, length))) = socks5_request(bytes) {
        assert!(length <= bytes.len());
        let target = Target::new(host.clone(), port, Via::Socks5);
        let again = Target::parse_authority(target.to_string().as_bytes(), Via::Socks5).expect("its own spelling is right");
        assert_eq!(again.host(), &host);
        // A name that is asked for stands in the bytes, NUL and all that follows one included.
        if let Host::Name(name) = &host {
            let written = String::from_utf8_lossy(&bytes[5..length - 2]).to_ascii_lowercase();
            assert_eq!(written.strip_suffix('.').unwrap_or(&written), name.to_string());
        }
    }
});
