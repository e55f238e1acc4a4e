//! A response's head, by which the end of its body is found.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for method in ["GET", "HEAD"] {
        netbox_proxy::fuzzing::response(bytes, method);
    }
});
