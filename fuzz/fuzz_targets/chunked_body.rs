//! A chunked body, whose end decides where the next request begins.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| netbox_proxy::fuzzing::chunks(input.1, input.0.into()));
