//! The URLs of a requirements file: `--index-url` and its like, packages that are named by their URL, and files that are
//! included from one. (pip's documentation: Requirements File Format.)

use std::borrow::Cow;

use crate::derived::page::Page;
use crate::derived::{Misread, Reading};

/// Options whose value is a URL, or a path, in each of their spellings.
const OPTIONS: [&str; 12] = [
    "-i",
    "--index-url",
    "--pypi-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "-e",
    "--editable",
    "-r",
    "--requirement",
    "-c",
    "--constraint",
];

/// Options that say where packages come from unless a URL names them.
const INDEXES: [&str; 3] = ["-i", "--index-url", "--pypi-url"];

/// Reads one requirements file. `takes_default` in the outcome: it names no index of its own.
///
/// # Errors
///
/// A URL in it cannot be read.
pub fn parse(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading { takes_default: true, ..Reading::default() };
    for (offset, line) in logical_lines(page) {
        let line = without_comment(&line);
        let place = || page.source(offset);
        if !line.starts_with('-') {
            // `name @ URL ; marker`, or the URL alone. What has no scheme is a name or a path.
            let target = line.split_once(" @ ").map_or(line, |(_, url)| url);
            if let Some(url) = target.split_whitespace().next().filter(|url| url.contains("://")) {
                reading.take_url(url, place)?;
            }
            continue;
        }
        let (option, value) = split_option(line);
        if INDEXES.contains(&option) {
            reading.takes_default = false;
        }
        if option == "--no-index" {
            reading.takes_default = false;
        }
        if OPTIONS.contains(&option) && value.contains("://") {
            reading.take_url(value, place)?;
        }
    }
    Ok(reading)
}

/// `--option=value`, `--option value`, `-i value` or `-ivalue`.
fn split_option(line: &str) -> (&str, &str) {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let next = rest.split_whitespace().next().unwrap_or_default();
    if word.starts_with("--") {
        return word.split_once('=').unwrap_or((word, next));
    }
    match word.split_at_checked(2) {
        Some((option, value)) if !value.is_empty() => (option, value),
        _ => (word, next),
    }
}

/// The lines, with those that end in a backslash joined to the next, each with the offset of its beginning.
fn logical_lines<'a>(page: &Page<'a>) -> impl Iterator<Item = (usize, Cow<'a, str>)> {
    let mut lines = page.lines();
    std::iter::from_fn(move || {
        let (offset, line) = lines.next()?;
        let Some(open) = line.strip_suffix('\\') else { return Some((offset, Cow::Borrowed(line))) };
        let mut whole = open.to_owned();
        for (_, next) in lines.by_ref() {
            whole.push_str(next);
            if !next.ends_with('\\') {
                break;
            }
            whole.pop();
        }
        Some((offset, Cow::Owned(whole)))
    })
}

/// A line without white space around it and without its comment, which a space or its beginning announces.
fn without_comment(line: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| *at == 0 || line[..*at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}
