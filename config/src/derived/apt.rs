//! `@apt`: the archives in apt's lists of sources.
//!
//! Read: the one-line format (`*.list`) and the deb822 format (`*.sources`), of sources.list(5). Which of apt's indexes
//! an archive has, and whether its packages lie elsewhere, is for apt to find out: an archive that redirects to other
//! hosts, or a list of mirrors, needs rules of its own.

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, WhyNot};

/// Reads a list in the one-line format.
///
/// # Errors
///
/// A line is none of that format.
pub fn parse_list(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    for (offset, line) in page.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((kind, rest)) = line.split_once(char::is_whitespace) else {
            if line.is_empty() {
                continue;
            }
            return Err(syntax(page, offset, "neither `deb` nor `deb-src` with a URI"));
        };
        if kind != "deb" && kind != "deb-src" {
            return Err(syntax(page, offset, "neither `deb` nor `deb-src` with a URI"));
        }
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => {
                options.split_once(']').ok_or_else(|| syntax(page, offset, "options without their `]`"))?.1
            }
            None => rest,
        };
        let Some(uri) = rest.split_whitespace().next() else {
            return Err(syntax(page, offset, "a line without a URI"));
        };
        take(&mut reading, page, offset, uri)?;
    }
    Ok(reading)
}

/// Reads a list in the deb822 format.
///
/// # Errors
///
/// A line is none of that format.
pub fn parse_sources(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    let mut stanza = Stanza::default();
    for (offset, line) in page.lines() {
        if line.trim().is_empty() {
            std::mem::take(&mut stanza).finish(page, &mut reading)?;
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let value = if line.starts_with([' ', '\t']) {
            line
        } else {
            let (field, value) = line.split_once(':').ok_or_else(|| syntax(page, offset, "a line without a field"))?;
            stanza.in_uris = field.eq_ignore_ascii_case("URIs");
            if field.eq_ignore_ascii_case("Enabled") {
                // apt's own list of words for it.
                let word = value.trim().to_ascii_lowercase();
                stanza.is_off = ["no", "false", "without", "off", "disable", "0"].contains(&word.as_str());
            }
            value
        };
        if stanza.in_uris {
            stanza.uris.extend(value.split_whitespace().map(|uri| (page.offset_of(uri), uri)));
        }
    }
    stanza.finish(page, &mut reading)?;
    Ok(reading)
}

/// One source of the deb822 format.
#[derive(Default)]
struct Stanza<'a> {
    uris: Vec<(usize, &'a str)>,
    in_uris: bool,
    is_off: bool,
}

impl Stanza<'_> {
    fn finish(self, page: &Page, reading: &mut Reading) -> Result<(), Misread> {
        if self.is_off {
            return Ok(());
        }
        self.uris.into_iter().try_for_each(|(offset, uri)| take(reading, page, offset, uri))
    }
}

/// Takes one URI. apt writes local ones with a single slash, or none.
fn take(reading: &mut Reading, page: &Page, offset: usize, uri: &str) -> Result<(), Misread> {
    let scheme = uri.split(':').next().unwrap_or_default();
    if ["cdrom", "file", "copy"].contains(&scheme) {
        return Ok(());
    }
    if scheme == "mirror" || scheme.starts_with("mirror+") {
        let why = WhyNot::Elsewhere("a list of mirrors, which are not read; allow the mirrors by rules of their own");
        reading.leave_out(why, || page.source(offset));
        if scheme == "mirror+file" {
            return Ok(());
        }
    }
    // `mirror://` is fetched by HTTP.
    let uri = if scheme == "mirror" { uri.replacen("mirror", "http", 1) } else { uri.to_owned() };
    reading.take_url(&uri, || page.source(offset))
}

fn syntax(page: &Page, offset: usize, what: &str) -> Misread {
    page.misread(offset, Fault::Syntax(what.to_owned()))
}
