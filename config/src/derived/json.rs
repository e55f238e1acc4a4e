//! The strings of a JSON text, each with the keys that lead to it and its place.
//!
//! `serde_json` says whether the text is JSON; it does not say where in the text a value stands. So what is known to be
//! JSON is gone through once more for its strings alone. Neither recurses.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::derived::page::Page;
use crate::derived::{Fault, Misread};

/// A string value.
pub(crate) struct Text<'a> {
    /// The keys that lead to it, outermost first, as they are written; `""` for a place in a list.
    pub keys: &'a [&'a str],
    /// The value.
    pub value: Cow<'a, str>,
    /// Where it stands.
    pub offset: usize,
}

impl Text<'_> {
    /// Its own key.
    pub(crate) fn key(&self) -> &str {
        self.keys.last().copied().unwrap_or_default()
    }

    /// The key of what it is in: `1` is the one right above its own.
    pub(crate) fn above(&self, levels: usize) -> &str {
        self.keys.len().checked_sub(1 + levels).and_then(|at| self.keys.get(at)).copied().unwrap_or_default()
    }
}

/// Calls `take` for each string value, in order.
///
/// # Errors
///
/// The text is no JSON, or what `take` says.
pub(crate) fn each_string(page: &Page, mut take: impl FnMut(Text) -> Result<(), Misread>) -> Result<(), Misread> {
    let text = page.text();
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        // Its own message tells the place, which is in the error already; the text itself it does not quote.
        let offset = page.lines().nth(error.line().saturating_sub(1)).map_or(0, |(offset, _)| offset);
        let kind = if error.is_eof() { "it ends too early" } else { "it is no JSON" };
        return Err(page.misread(offset, Fault::Syntax(kind.into())));
    }
    let bytes = text.as_bytes();
    let mut keys: Vec<&str> = Vec::new();
    // Whether each of the open brackets is an object's.
    let mut objects: Vec<bool> = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                objects.push(*byte == b'{');
                keys.push("");
            }
            b'}' | b']' => {
                objects.pop();
                keys.pop();
            }
            b'"' => {
                let start = at;
                at = end_of_string(bytes, start);
                let inside = text.get(start..at).unwrap_or_default();
                at += 1;
                let is_key = objects.last() == Some(&true) && next_visible(bytes, at) == Some(b':');
                if is_key {
                    if let Some(key) = keys.last_mut() {
                        *key = inside;
                    }
                } else {
                    take(Text { keys: &keys, value: unescape(inside), offset: start })?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The offset of the quote that ends a string whose first byte is at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn next_visible(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at..)?.iter().find(|byte| !byte.is_ascii_whitespace()).copied()
}

fn unescape(inside: &str) -> Cow<'_, str> {
    if !inside.contains('\\') {
        return Cow::Borrowed(inside);
    }
    // It was read as JSON before, so it can be read again.
    Cow::Owned(serde_json::from_str(&format!("\"{inside}\"")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn strings(text: &str) -> Result<Vec<String>, Misread> {
        let page = Page::new(Path::new("x.json"), text);
        let mut strings = Vec::new();
        each_string(&page, |text| {
            let place = page.source(text.offset);
            strings.push(format!("{}={} {place}", text.keys.join("/"), text.value));
            Ok(())
        })?;
        Ok(strings)
    }

    #[test]
    fn each_string_has_its_keys_and_its_place() {
        let text = r#"{"a": "1", "b": {"c": ["2", {"d":"3"}],
            "e" : "4\/\u0035\"" , "f": 6, "g": [[], {}], "": "7"}, "h": "8"}"#;
        let expected = [
            "a=1 x.json:1",
            "b/c/=2 x.json:1",
            "b/c//d=3 x.json:1",
            "b/e=4/5\" x.json:2",
            "b/=7 x.json:2",
            "h=8 x.json:2",
        ];
        assert_eq!(strings(text).unwrap(), expected);
        assert_eq!(strings("\"x\"").unwrap(), ["=x x.json:1"]);
    }

    #[test]
    fn what_is_no_json_is_an_error_with_its_line() {
        for (text, message) in [
            ("", "x.json:1: not valid: it ends too early"),
            ("{\n\"a\": s3cret}", "x.json:2: not valid: it is no JSON"),
            ("{\"a\": \"b\",}", "x.json:1: not valid: it is no JSON"),
            (&"[".repeat(100_000), "x.json:1: not valid: it ends too early"),
        ] {
            assert_eq!(strings(text).unwrap_err().to_string(), message);
        }
    }
}
