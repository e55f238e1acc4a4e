//! Lock files in formats of their own, or in YAML: written by one program each, in one form, a value a line. So they are
//! read by line. What is hidden from that in another spelling of YAML is not found, hence not allowed.

use crate::derived::page::Page;
use crate::derived::{Misread, Reading};

/// `yarn.lock`: of version 1, and of later ones.
pub(super) fn yarn(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    for (offset, line) in page.lines() {
        let Some((key, value)) = line.trim_start().split_once([' ', ':']) else { continue };
        let value = unquote(value);
        let place = || page.source(offset);
        match key {
            "resolved" if value.contains("://") => reading.take_url(value, place)?,
            "resolution" => {
                // `name@npm:1.0.0::__archiveUrl=https%3A%2F%2F…`, or `name@https://…`.
                if let Some((_, url)) = value.split_once("__archiveUrl=") {
                    let url = url.split(['&', '#']).next().unwrap_or_default();
                    reading.take_url(&decode(url), place)?;
                } else if let Some((before, _)) = value.split_once("://") {
                    let scheme = before.rfind('@').map_or(0, |at| at + 1);
                    reading.take_url(&value[scheme..], place)?;
                }
            }
            _ => {}
        }
    }
    Ok(reading)
}

/// `pnpm-lock.yaml`: `resolution: {integrity: …, tarball: URL}`, or `tarball: URL` in a line of its own.
pub(super) fn pnpm(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    for (offset, line) in page.lines() {
        for key in ["tarball: ", "repo: "] {
            for (at, _) in line.match_indices(key) {
                let is_key = line[..at].ends_with([' ', '{', ',']) || at == 0;
                let value = line[at + key.len()..].split([',', '}', ' ']).next().unwrap_or_default();
                let value = unquote(value);
                if is_key && value.contains("://") {
                    reading.take_url(value, || page.source(offset))?;
                }
            }
        }
    }
    Ok(reading)
}

/// `Gemfile.lock`: `remote: URL` in each section.
pub(super) fn gemfile(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    for (offset, line) in page.lines() {
        if let Some(url) = line.strip_prefix("  remote: ").map(str::trim).filter(|url| url.contains("://")) {
            reading.take_url(url, || page.source(offset))?;
        }
    }
    Ok(reading)
}

fn unquote(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

/// Undoes percent encoding. A byte that is not ASCII stays encoded: no host has one.
fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(u8::is_ascii);
        match byte {
            Some(byte) => {
                decoded.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded + rest
}
