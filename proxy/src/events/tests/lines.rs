//! A line is one line and bounded, whatever stands in it.

use proptest::prelude::*;
use proptest::string::string_regex;

use super::*;

#[test]
fn a_text_is_cut_at_its_budget_and_shows_it() {
    assert_eq!(line::cut("abcdef", 6), "abcdef");
    assert_eq!(line::cut("abcdefg", 6), "abc…");
    assert_eq!(line::cut("abc\u{1b}", 6), "abc…");
    assert_eq!(line::cut("ééé", 6), "ééé");
    assert_eq!(line::cut("éééé", 6), "é…");
    assert_eq!(line::cut("a\"\\\u{202e}\u{7f}", 99), "a\\\"\\\\\\u202e\\u007f");
    assert_eq!(line::cut("\u{e0041}", 99), "\\udb40\\udc41");
}

/// Texts that are long, or full of what must be escaped, or anything.
fn hostile() -> impl Strategy<Value = String> {
    let nasty =
        "[\u{0}-\u{20}\"\\\\\u{7f}-\u{a0}\u{ad}\u{61c}\u{200b}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}]";
    prop_oneof![
        any::<String>(),
        string_regex(&format!("{nasty}{{0,40}}")).unwrap(),
        string_regex(&format!("{nasty}{{3000,4000}}")).unwrap(),
        ".{2000,6000}",
        Just("\u{e0041}".repeat(5000)),
    ]
}

fn check_line(line: &str, texts: &[(&str, &str)]) -> Result<(), TestCaseError> {
    prop_assert!(line.len() <= MAX_LINE, "{} bytes", line.len());
    prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
    let raw = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    prop_assert!(!line.trim_end_matches('\n').chars().any(raw));
    let event: Value = serde_json::from_str(line).map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (pointer, text) in texts {
        let shown = event.pointer(pointer).and_then(Value::as_str).unwrap();
        match shown.strip_suffix('…') {
            Some(beginning) if shown != *text => prop_assert!(text.starts_with(beginning)),
            _ => prop_assert_eq!(shown, *text),
        }
    }
    Ok(())
}

/// One line as it is written.
fn line_of(fill: impl FnOnce(&mut Line) -> &'static str) -> String {
    let mut line = Line::new();
    let event = fill(&mut line);
    String::from_utf8(line.finish(session(), event)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_texts_give_one_bounded_line(
        [host, text, source, sni, method, url, exe, hint, near] in proptest::array::uniform9(hostile()),
        id: u64, port: u16, pid: u32,
    ) {
        let decision = DecisionEvent {
            rule: Some(RuleRef { text: text.as_str().into(), source: source.as_str().into() }),
            would: Some(Reason::AddressNotListed),
            sni: Some(sni.clone()),
            method: Some(method.clone()),
            url: Some(url.clone()),
            process: Some(Process { pid, exe: Some(exe.clone()) }),
            hint: Some(hint.clone()),
            near: Some(near.clone()),
            ..DecisionEvent::new(id, host.as_str(), Some(port), Via::Connect, Reason::AddressNotListed)
        };
        let line = line_of(|line| { line.decision(&decision); "decision" });
        check_line(&line, &[
            ("/host", &host), ("/rule/text", &text), ("/rule/source", &source), ("/sni", &sni), ("/method", &method),
            ("/url", &url), ("/process/exe", &exe), ("/hint", &hint), ("/near", &near),
        ])?;
    }

    #[test]
    fn any_command_gives_one_bounded_line(
        argv0 in hostile(), policy in hostile(), walls in proptest::collection::vec(hostile(), 0..12),
        doors in proptest::collection::vec(hostile(), 0..12),
    ) {
        let line = line_of(|line| {
            line.text("argv0", &argv0, line::ARGV0);
            line.text("policy", &policy, line::DIGEST);
            line.list("walls", &walls, line::WALLS);
            line.list("doors", &doors, line::DOORS);
            line.number("pid", u32::MAX.into());
            "start"
        });
        check_line(&line, &[("/argv0", &argv0), ("/policy", &policy)])?;
    }
}

/// The longest decision that there can be: every text over its budget, every number and word at its longest.
#[test]
fn the_budgets_add_up() {
    let long = "\u{1b}".repeat(5000);
    let decision = DecisionEvent {
        rule: Some(RuleRef { text: long.as_str().into(), source: long.as_str().into() }),
        would: Some(Reason::AddressNotListed),
        sni: Some(long.clone()),
        method: Some(long.clone()),
        url: Some(long.clone()),
        process: Some(Process { pid: u32::MAX, exe: Some(long.clone()) }),
        hint: Some(long.clone()),
        near: Some(long.clone()),
        ..DecisionEvent::new(u64::MAX, long, Some(u16::MAX), Via::Connect, Reason::AddressNotListed)
    };
    let line = line_of(|line| {
        line.decision(&decision);
        "decision"
    });
    assert!(line.len() <= MAX_LINE, "{} bytes", line.len());
}
