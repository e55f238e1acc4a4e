//! A request's head: what is forwarded is read as what was judged, by us and by others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_proxy::fuzzing::request;

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = request(bytes) else { return };
    let Some(authority) = &request.authority else { return };
    let read = authority.parse::<http::uri::Authority>().expect("what is judged is an authority");
    assert!(!read.as_str().contains('@'));
    if request.method != "CONNECT" {
        let forwarded = String::from_utf8_lossy(&request.forwarded).to_ascii_lowercase();
        assert_eq!(forwarded.matches("\r\nhost:").count(), 1, "one `Host` goes on");
        assert!(!forwarded.contains("\r\nproxy-authorization:"), "credentials for netbox stay here");
        assert_eq!(forwarded.matches("\r\n\r\n").count(), 1, "one head goes on");
    }
});
