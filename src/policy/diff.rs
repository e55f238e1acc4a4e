//! Files and their changes, as a person is shown them: hostile text escaped, lines folded by netbox and not by the
//! terminal, where a part of one could pass for a line of netbox's own; and not without end.

use std::fmt::{self, Display};
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// The most lines that are shown at once, as they are folded. What is left out is said, and nobody is asked about it.
pub const MOST_LINES: usize = 400;

/// Where lines are folded.
const WIDEST: usize = 100;

/// How long the shortest diff is looked for; after that, any will do.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a person is shown. Displays as lines, each with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    text: String,
    lines: usize,
    /// Whether that is all there is.
    pub is_all: bool,
}

impl Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The whole of a file, each line after `  | `.
pub fn whole(text: &str) -> Shown {
    cut(text.split_terminator('\n').map(|line| ("  | ", line)))
}

/// What leads from `old` to `new`, with three lines around each change, as `diff -u` shows it.
pub fn changes(old: &str, new: &str) -> Shown {
    // Lines of our own making: a carriage return alone ends none of them.
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&old, &new);
    let diff = diff.unified_diff();
    let hunks: Vec<_> = diff.iter_hunks().map(|hunk| (hunk.header().to_string(), hunk)).collect();
    let lines = hunks.iter().flat_map(|(header, hunk)| {
        let changes = hunk.iter_changes().flat_map(|change| {
            let sign = match change.tag() {
                ChangeTag::Equal => "   ",
                ChangeTag::Delete => "  -",
                ChangeTag::Insert => "  +",
            };
            let (line, rest) = match change.value().strip_suffix('\n') {
                Some(line) => (line, None),
                None => (change.value(), Some(("   ", "(no newline at the end of the file)"))),
            };
            std::iter::once((sign, line)).chain(rest)
        });
        std::iter::once(("  ", header.as_str())).chain(changes)
    });
    cut(lines)
}

/// At most so many lines, each behind its sign.
fn cut<'t>(lines: impl Iterator<Item = (&'static str, &'t str)>) -> Shown {
    let mut shown = Shown { text: String::new(), lines: 0, is_all: true };
    let mut lines = lines.peekable();
    while let Some((sign, line)) = lines.peek() {
        let before = (shown.text.len(), shown.lines);
        // More bytes than that do not fit anyway.
        let is_long = line.len() > MOST_LINES * WIDEST * 4;
        if !is_long {
            shown.fold(sign, &netbox_config::escaped(line.as_bytes()).to_string());
        }
        if is_long || shown.lines > MOST_LINES {
            shown.text.truncate(before.0);
            shown.lines = before.1;
            break;
        }
        lines.next();
    }
    match lines.count() {
        0 => {}
        more => {
            shown.is_all = false;
            shown.text.push_str(&format!("  ({more} more lines are not shown)\n"));
        }
    }
    shown
}

impl Shown {
    fn fold(&mut self, sign: &str, line: &str) {
        self.text.push_str(sign);
        self.lines += 1;
        let mut column = 0;
        for c in line.chars() {
            // A tab takes eight at most.
            column += if c == '\t' { 8 } else { 1 };
            if column > WIDEST {
                self.text.push_str("\n  : ");
                self.lines += 1;
                column = 1;
            }
            self.text.push(c);
        }
        self.text.push('\n');
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
            changes(old, new).to_string(),
            "  @@ -1,4 +1,5 @@\n   # one\n   allow = [\n   \t\"a.example\",\n  -]\n  +\t\"evil.example\",\n  +]\n   (no newline at the end of the file)\n"
        );
        assert_eq!(changes(old, old).to_string(), "");
    }

    #[test]
    fn nothing_of_a_file_steers_the_terminal_or_is_hidden() {
        let text = "a\u{1b}[2K\r# x\u{202e}\n\n\u{a0}\n";
        assert_eq!(whole(text).to_string(), "  | a\\x1b[2K\\x0d# x\\u{202e}\n  | \n  | \\u{a0}\n");
        assert!(changes("", text).to_string().contains("+a\\x1b[2K\\x0d# x\\u{202e}\n"));
    }

    #[test]
    fn a_long_line_does_not_begin_anew_where_the_terminal_ends() {
        let line = format!("#{}netbox: all is well", " ".repeat(WIDEST - 1));
        assert_eq!(whole(&line).to_string(), format!("  | #{}\n  : netbox: all is well\n", " ".repeat(WIDEST - 1)));
        let tabs = format!("#{}netbox: all is well", "\t".repeat(13));
        assert!(whole(&tabs).to_string().contains("\n  : "));
        assert!(whole(&line).is_all && changes("", &line).is_all);
    }

    #[test]
    fn what_is_too_much_is_cut_and_that_is_said() {
        let shown = whole(&"x\n".repeat(MOST_LINES + 2));
        assert!(!shown.is_all && shown.to_string().ends_with("  (2 more lines are not shown)\n"));
        assert!(whole(&"x\n".repeat(MOST_LINES)).is_all);
        // A line counts as often as it is folded, and what does not fit whole is left out.
        assert!(whole(&"é".repeat(WIDEST * MOST_LINES)).is_all);
        let shown = whole(&format!("first\n{}\nlast", "é".repeat(WIDEST * MOST_LINES)));
        assert_eq!((shown.is_all, &*shown.to_string()), (false, "  | first\n  (2 more lines are not shown)\n"));
        assert!(!whole(&"x".repeat(1 << 20)).is_all);
    }

    #[test]
    fn the_largest_files_are_compared_in_time() {
        // As different as can be: tens of thousands of lines each, none in common.
        let of = |start: u32| (0..60_000).map(|n| format!("{}\n", start + n * 2)).collect::<String>();
        assert!(changes(&of(0), &of(1)).to_string().contains("more lines are not shown"));
    }
}
