//! One line of a file with a mark below a place in it, as compilers show it.

use std::fmt::Write as _;

/// How many characters of a long line are shown, and how many of them before the place.
const SHOWN: usize = 100;
const BEFORE: usize = 40;

/// The line that has this number, with a mark under this column; both count from 1, columns in characters. Nothing where
/// the text has no such line.
///
/// ```text
///   3 | allow = ["*.github.io"]
///     |           ^
/// ```
///
/// Whatever the line holds, the result is two lines that a terminal can neither be steered by nor shown otherwise.
pub fn excerpt(text: &str, line: usize, column: usize) -> Option<String> {
    let content = text.split('\n').nth(line.checked_sub(1)?)?.trim_end_matches('\r');
    let at = column.saturating_sub(1);
    let first = at.saturating_sub(BEFORE);
    let mut shown = String::from(if first > 0 { "…" } else { "" });
    let mut mark = 0;
    let mut characters = content.chars().skip(first);
    for (place, character) in characters.by_ref().take(SHOWN).enumerate() {
        if first + place == at {
            mark = shown.chars().count();
        }
        push(&mut shown, character);
    }
    if content.chars().count() <= at {
        mark = shown.chars().count();
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    let number = line.to_string();
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "  {number} | {}", shown.trim_end());
    let _ = writeln!(out, "  {} | {}^", " ".repeat(number.len()), " ".repeat(mark));
    Some(out)
}

/// What is known to be harmless stands for itself, a tab for a space, and all else for its number.
fn push(shown: &mut String, character: char) {
    match character {
        '\t' => shown.push(' '),
        ' '..='~' => shown.push(character),
        _ if character.is_alphanumeric() && !is_blank(character) => shown.push(character),
        _ => shown.extend(character.escape_unicode()),
    }
}

/// Letters without a shape.
fn is_blank(character: char) -> bool {
    matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_under_the_place() {
        for (text, line, column, expected) in [
            ("allow = [\"a\"]\n", 1, 11, "  1 | allow = [\"a\"]\n    |           ^\n"),
            ("\r\n\tallow = []\r\n", 2, 2, "  2 |  allow = []\n    |  ^\n"),
            ("a", 1, 2, "  1 | a\n    |  ^\n"),
            ("", 1, 1, "  1 | \n    | ^\n"),
            ("bücher = 1", 1, 8, "  1 | bücher = 1\n    |        ^\n"),
            ("a\u{1b}[2J\u{202e}b = 1", 1, 7, "  1 | a\\u{1b}[2J\\u{202e}b = 1\n    |                   ^\n"),
            ("\u{3164}b", 1, 2, "  1 | \\u{3164}b\n    |         ^\n"),
        ] {
            let shown = excerpt(text, line, column).expect("there is such a line");
            assert_eq!(shown, expected, "{text:?}");
        }
        assert_eq!(excerpt("a", 2, 1), None);
        assert_eq!(excerpt("a", 0, 1), None);
    }

    #[test]
    fn of_a_long_line_the_part_around_the_place_is_shown() {
        let text = format!("{}x{}", "a".repeat(500), "b".repeat(500));
        let shown = excerpt(&text, 1, 501).expect("one line");
        let expected = format!("  1 | …{}x{}…\n    | {}^\n", "a".repeat(40), "b".repeat(59), " ".repeat(41));
        assert_eq!(shown, expected);
    }
}
