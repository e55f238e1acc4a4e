//! What a connection speaks: no cut changes it, and nothing that is a request to a common parser passes as other bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_proxy::fuzzing::{Classifier, FirstBytes, head};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let mut whole = Classifier::default();
    let verdict = whole.look(bytes);
    let mut parts = Classifier::default();
    let early = parts.look(&bytes[..usize::from(cut) % (bytes.len() + 1)]);
    let late = parts.look(bytes);
    assert_eq!(late, verdict, "a cut changes the verdict");
    if !matches!(early, FirstBytes::Undecided(_)) {
        assert_eq!(early, late, "more bytes change a verdict");
    }
    let at_end = whole.at_end(&verdict);
    // What the strict parser takes for a request is one.
    if netbox_proxy::fuzzing::request(bytes).is_some() && head(bytes).is_some() {
        assert!(matches!(at_end, FirstBytes::Http | FirstBytes::Http2), "a request passes as {at_end:?}");
    }
});
