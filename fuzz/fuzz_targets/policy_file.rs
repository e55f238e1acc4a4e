//! Policy files, as anybody's repository may hold one: what is taken is a policy, and it proves to narrow itself; what is
//! not is said in lines that are fit to print, each with a place in the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use netbox_config::{CommandLine, Expansions, Layer, PolicyFile, Source, Stack};

fuzz_target!(|bytes: &[u8]| {
    for layer in [Layer::System, Layer::Project] {
        let file = match PolicyFile::parse(layer, Path::new("netbox.toml"), bytes) {
            Ok(file) => file,
            Err(errors) => {
                for error in &errors {
                    assert!(!error.to_string().contains(char::is_control), "{error}");
                    let Source::File { line, .. } = error.source() else { panic!("{error} has no place") };
                    assert!(*line <= bytes.split(|byte| *byte == b'\n').count(), "{error}");
                }
                continue;
            }
        };
        let nothing = CommandLine::default();
        let stack = Stack::new(&nothing).with_file(&file);
        for profile in [None, file.profiles().next()] {
            match stack.clone().with_profile(profile).compile(&Expansions::default()) {
                Ok(compiled) => {
                    assert!(compiled.narrows(&compiled));
                    assert_eq!(compiled.policy().digest().len(), 64);
                }
                Err(errors) => assert!(errors.iter().all(|error| !error.to_string().contains(char::is_control))),
            }
        }
    }
});
