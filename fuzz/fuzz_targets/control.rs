//! What a client says to the shared service: read the same however it is cut, and again as it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_proxy::fuzzing::control;

fuzz_target!(|input: (u16, &[u8])| control(input.1, input.0.into()));
