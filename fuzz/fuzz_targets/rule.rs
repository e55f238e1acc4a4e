//! Rules, as they stand in a policy or on the command line: what is taken is the same rule when it is written out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netbox_config::{Rule, Source, split_rules};

fuzz_target!(|text: &str| {
    let source = || Source::Flag("--allow");
    if let Ok(rule) = Rule::parse(text, source()) {
        let written = rule.to_string();
        let again = Rule::parse(&written, source()).expect("its own spelling is right");
        assert_eq!(again.to_string(), written);
        assert!(Rule::parse_deny(text, source()).is_ok(), "what may be allowed may be denied");
    }
    if let Ok(rules) = split_rules(text) {
        for rule in rules {
            let _ = Rule::parse(&rule, source());
        }
    }
});
