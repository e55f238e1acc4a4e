//! Rules in other scripts: what they come to is a name that travels.

use netbox_config::HostName;
use proptest::prelude::*;
use proptest::string::string_regex;

/// What a rule comes to is not converted again when it is parsed, as what arrives is; it would be valid there, and the same.
#[track_caller]
fn assert_travels(text: &str) {
    if let Ok(name) = HostName::parse_rule(text) {
        assert_eq!(HostName::parse_wire(name.as_str().as_bytes()), Ok(name), "{text:?}");
    }
}

/// Within a label, and as one. What is left out are the ideographs and the syllables of Korean, each of which is itself, and
/// what is nobody's.
#[test]
fn every_character_comes_to_what_travels() {
    let blocks = ['\u{80}'..'\u{3500}', '\u{a000}'..'\u{ac10}', '\u{f900}'..'\u{20010}', '\u{2f800}'..'\u{2fa20}'];
    for character in blocks.into_iter().flatten().chain('\u{e0000}'..'\u{e0200}') {
        assert_travels(&format!("a{character}b.example"));
        assert_travels(&format!("{character}.example"));
    }
}

/// Characters that vanish are told by asking for each alone, and the answers are kept: more than there is room for.
#[test]
fn what_vanishes_does_so_however_often_it_is_asked_about() {
    let vanish: Vec<char> = ('\u{80}'..'\u{3000}')
        .filter(|character| {
            let text = format!("a{character}é.example");
            let refused = HostName::parse_rule(&text);
            assert_eq!(HostName::parse_rule(&text), refused, "{text:?}");
            refused.is_err_and(|error| error.to_string().contains("folded away"))
        })
        .collect();
    for character in ['\u{ad}', '\u{200b}', '\u{2060}'] {
        assert!(vanish.contains(&character), "{character:?}");
    }
    for character in ['ß', 'ü', 'и', 'א', 'क', 'ნ'] {
        assert!(!vanish.contains(&character), "{character:?}");
    }
}

proptest! {
    #[test]
    fn every_mixture_comes_to_what_travels(
        text in string_regex("[\\p{L}\\p{M}\\p{Nd}a-zA-Z-]{1,8}(\\.(xn--)?[\\p{L}\\p{M}a-z]{1,6}){0,2}").unwrap(),
    ) {
        assert_travels(&text);
    }
}
