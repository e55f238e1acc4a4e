//! How text that may be hostile stands in a message: between backticks, escaped, and not without end.

use std::fmt::{self, Write};

/// The most characters of a quoted value that are shown; a longer one ends in `…`.
const SHOWN: usize = 100;

/// Shows bytes in a message: between backticks, with control characters, bidirectional overrides, invisible characters
/// and bytes that are no UTF-8 as escapes, at most 100 characters and then `…`.
///
/// A terminal or a log that shows the result can neither be steered by it nor be made to show another text.
pub fn quote(bytes: &[u8]) -> impl fmt::Display + '_ {
    Quoted(bytes)
}

/// Shows one line of a file: escaped as [`quote`] escapes, but whole, without backticks around it, and with its tabs.
pub fn escaped(bytes: &[u8]) -> impl fmt::Display + '_ {
    Escaped(bytes)
}

struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\t' | '`' => f.write_char(c)?,
                    _ => write_char(f, c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('`')?;
        let mut shown = 0;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if shown == SHOWN {
                    return f.write_str("…`");
                }
                write_char(f, c)?;
                shown += 1;
            }
            for byte in chunk.invalid() {
                if shown == SHOWN {
                    return f.write_str("…`");
                }
                write!(f, "\\x{byte:02x}")?;
                shown += 1;
            }
        }
        f.write_char('`')
    }
}

/// A list of what is harmless, not of what is not: new invisible characters appear with every Unicode version.
fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '`' | '\\' => write!(f, "\\{c}"),
        ' '..='~' => f.write_char(c),
        '\0'..='\x7f' => write!(f, "\\x{:02x}", u32::from(c)),
        // Some letters (Hangul fillers) have no shape, so they count as invisible.
        _ if c.is_alphanumeric() && !matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}') => f.write_char(c),
        _ => write!(f, "\\u{{{:x}}}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        for (bytes, shown) in [
            (b"github.com".as_slice(), "`github.com`"),
            (b"a`b\\c", r"`a\`b\\c`"),
            (b"a\x1b[2J\r\n\0", r"`a\x1b[2J\x0d\x0a\x00`"),
            ("\u{202e}moc.buhtig".as_bytes(), r"`\u{202e}moc.buhtig`"),
            ("git\u{200b}hub".as_bytes(), r"`git\u{200b}hub`"),
            ("bücher".as_bytes(), "`bücher`"),
            ("\u{3164}".as_bytes(), r"`\u{3164}`"),
            (b"\xc0\xae", r"`\xc0\xae`"),
        ] {
            assert_eq!(quote(bytes).to_string(), shown);
        }
    }

    #[test]
    fn a_line_of_a_file_is_shown_whole_and_harmless() {
        for (bytes, shown) in [
            (b"\tallow = [\"a`b\"] # ".as_slice(), "\tallow = [\"a`b\"] # "),
            (b"# \x1b[8m\r", r"# \x1b[8m\x0d"),
            ("# \u{2066}x\\u{202e}".as_bytes(), r"# \u{2066}x\\u{202e}"),
            (b"\xff", r"\xff"),
        ] {
            assert_eq!(escaped(bytes).to_string(), shown);
        }
        assert_eq!(escaped(&[b'a'; 5000]).to_string().len(), 5000);
    }

    #[test]
    fn long_text_is_cut_where_all_can_see_it() {
        let shown = quote(&[b'a'; 5000]).to_string();
        assert_eq!(shown, format!("`{}…`", "a".repeat(100)));
        assert_eq!(quote(&[0xff; 5000]).to_string(), format!("`{}…`", r"\xff".repeat(100)));
    }
}
