//! The syntax of git's configuration files ("Syntax" in git-config(1)).

use std::iter;

use crate::derived::page::Page;
use crate::derived::{Fault, Misread};

/// No subsection is longer, in bytes: each of its variables holds a copy.
const LONGEST: usize = 4096;

/// One variable.
pub(super) struct Entry {
    /// In lower case.
    pub section: String,
    /// As written; empty where there is none.
    pub subsection: String,
    /// In lower case.
    pub key: String,
    /// Unquoted. A variable without `=` has none, which is `true` to git.
    pub value: String,
    /// Where it stands.
    pub offset: usize,
}

/// The variables of a file, in order; nothing follows an error.
pub(super) fn entries(page: &Page) -> impl Iterator<Item = Result<Entry, Misread>> {
    let mut reader = Reader { rest: page.text(), section: String::new(), subsection: String::new() };
    let mut failed = false;
    iter::from_fn(move || {
        if failed {
            return None;
        }
        let result = reader.next(page)?;
        failed = result.is_err();
        Some(result)
    })
}

struct Reader<'a> {
    rest: &'a str,
    section: String,
    subsection: String,
}

impl Reader<'_> {
    fn next(&mut self, page: &Page) -> Option<Result<Entry, Misread>> {
        loop {
            self.rest = self.rest.trim_start();
            let offset = page.offset_of(self.rest);
            let fault = |what: &str| Some(Err(page.misread(offset, Fault::Syntax(what.to_owned()))));
            match self.rest.chars().next()? {
                '#' | ';' => self.skip_line(),
                '[' => match self.header() {
                    Some((section, subsection)) => (self.section, self.subsection) = (section, subsection),
                    None => return fault("a section that is not `[name]` or `[name \"more\"]`"),
                },
                first if first.is_ascii_alphabetic() => {
                    let Some((key, value)) = self.variable() else {
                        return fault("a variable that is not `name = value`");
                    };
                    let (section, subsection) = (self.section.clone(), self.subsection.clone());
                    return Some(Ok(Entry { section, subsection, key, value, offset }));
                }
                _ => return fault("neither a section, a variable nor a comment"),
            }
        }
    }

    fn skip_line(&mut self) {
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
    }

    /// `[section]`, `[section "subsection"]`, or `[section.subsection]` of old.
    fn header(&mut self) -> Option<(String, String)> {
        let inside = self.rest.strip_prefix('[')?;
        let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'))?;
        let (name, rest) = inside.split_at(end);
        let name = name.to_ascii_lowercase();
        if name.is_empty() {
            return None;
        }
        if let Some(rest) = rest.strip_prefix(']') {
            self.rest = rest;
            let (section, subsection) = name.split_once('.').unwrap_or((&name, ""));
            return Some((section.to_owned(), subsection.to_owned()));
        }
        let quoted = rest.trim_start_matches([' ', '\t']).strip_prefix('"')?;
        let mut subsection = String::new();
        let mut characters = quoted.char_indices();
        loop {
            match characters.next()? {
                (_, '\n') => return None,
                (at, _) if at > LONGEST => return None,
                (at, '"') => {
                    self.rest = quoted[at + 1..].strip_prefix(']')?;
                    return Some((name, subsection));
                }
                (_, '\\') => subsection.push(characters.next().map(|(_, c)| c).filter(|c| *c != '\n')?),
                (_, c) => subsection.push(c),
            }
        }
    }

    /// `name = value`, or `name` alone.
    fn variable(&mut self) -> Option<(String, String)> {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(self.rest.len());
        let (key, rest) = self.rest.split_at(end);
        let key = key.to_ascii_lowercase();
        let rest = rest.trim_start_matches([' ', '\t']);
        match rest.strip_prefix('=') {
            Some(rest) => {
                let (value, rest) = value(rest)?;
                self.rest = rest;
                Some((key, value))
            }
            None if rest.is_empty() || rest.starts_with(['\n', '#', ';']) || rest.starts_with("\r\n") => {
                self.rest = rest;
                self.skip_line();
                Some((key, String::new()))
            }
            None => None,
        }
    }
}

/// A value up to the end of its line, and what comes behind that.
fn value(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let mut value = String::new();
    // How much of it is more than white space at its end.
    let mut solid = 0;
    let mut quoted = false;
    let mut characters = text.char_indices();
    let rest = loop {
        let Some((at, c)) = characters.next() else { break "" };
        match c {
            '\n' if quoted => return None,
            '\n' => break &text[at + 1..],
            '\r' if text[at..].starts_with("\r\n") => {}
            '#' | ';' if !quoted => break text[at..].split_once('\n').map_or("", |(_, rest)| rest),
            '"' => {
                quoted = !quoted;
                solid = value.len();
            }
            '\\' => {
                match characters.next()?.1 {
                    '\n' => {}
                    '\r' if characters.next()?.1 == '\n' => {}
                    'n' => value.push('\n'),
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    c @ ('"' | '\\') => value.push(c),
                    _ => return None,
                }
                solid = value.len();
            }
            c => {
                value.push(c);
                if quoted || !c.is_whitespace() {
                    solid = value.len();
                }
            }
        }
    };
    if quoted {
        return None;
    }
    value.truncate(solid);
    Some((value, rest))
}
