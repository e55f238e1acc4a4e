//! Files and their changes, as a person is shown them: every line whole, hostile text escaped, and not without end.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// The most lines that are shown at once. What is left out is said.
const MOST_LINES: usize = 400;

/// The most characters of a line that are shown.
const LONGEST_LINE: usize = 400;

/// How long the shortest diff is looked for; after that, any will do.
const PATIENCE: Duration = Duration::from_millis(200);

/// The whole of a file, each line after `  | `.
pub fn whole(text: &str) -> String {
    cut(text.split_terminator('\n').map(|line| format!("  | {}", clipped(line))))
}

/// What leads from `old` to `new`, with three lines around each change, as `diff -u` shows it.
pub fn changes(old: &str, new: &str) -> String {
    // Lines of our own making: a carriage return alone ends none of them.
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&old, &new);
    let mut lines = Vec::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        lines.push(format!("  {}", hunk.header()));
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let line = change.value();
            lines.push(format!("  {sign}{}", clipped(line.strip_suffix('\n').unwrap_or(line))));
            if !line.ends_with('\n') {
                lines.push("   (no newline at the end of the file)".to_owned());
            }
        }
    }
    cut(lines.into_iter())
}

/// At most so many lines, each with its newline.
fn cut(mut lines: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for line in lines.by_ref().take(MOST_LINES) {
        text.push_str(&line);
        text.push('\n');
    }
    match lines.count() {
        0 => text,
        more => text + &format!("  ({more} more lines are not shown)\n"),
    }
}

fn clipped(line: &str) -> String {
    match line.char_indices().nth(LONGEST_LINE) {
        None => netbox_config::escaped(line.as_bytes()).to_string(),
        Some((at, _)) => {
            let more = line[at..].chars().count();
            format!("{} ({more} more characters are not shown)", netbox_config::escaped(&line.as_bytes()[..at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let old = "# one\nallow = [\n\t\"a.example\",\n]\n";
        let new = "# one\nallow = [\n\t\"a.example\",\n\t\"evil.example\",\n]";
        assert_eq!(
            changes(old, new),
            "  @@ -1,4 +1,5 @@\n   # one\n   allow = [\n   \t\"a.example\",\n  -]\n  +\t\"evil.example\",\n  +]\n   (no newline at the end of the file)\n"
        );
        assert_eq!(changes(old, old), "");
    }

    #[test]
    fn nothing_of_a_file_steers_the_terminal_or_is_hidden() {
        let text = "a\u{1b}[2K\r# x\u{202e}\n\n\u{a0}\n";
        assert_eq!(whole(text), "  | a\\x1b[2K\\x0d# x\\u{202e}\n  | \n  | \\u{a0}\n");
        assert!(changes("", text).contains("+a\\x1b[2K\\x0d# x\\u{202e}\n"));
    }

    #[test]
    fn what_is_too_much_is_cut_and_that_is_said() {
        let text = "x\n".repeat(MOST_LINES + 2);
        assert!(whole(&text).ends_with("  (2 more lines are not shown)\n"));
        let line = "é".repeat(LONGEST_LINE + 7);
        assert_eq!(whole(&line), format!("  | {} (7 more characters are not shown)\n", "é".repeat(LONGEST_LINE)));
    }

    #[test]
    fn the_largest_files_are_compared_in_time() {
        // As different as can be: half a million lines each, none in common.
        let of = |start: u32| (0..60_000).map(|n| format!("{}\n", start + n * 2)).collect::<String>();
        assert!(changes(&of(0), &of(1)).contains("more lines are not shown"));
    }
}
