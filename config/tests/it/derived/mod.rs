//! What each tool's own configuration comes to: tables of texts, and properties of texts that nobody wrote.

mod apt;
mod cargo;
mod git;
mod go;
mod hostile;
mod lockfile;
mod maven;
mod npm;
mod pip;

use std::path::Path;

use netbox_config::derived::{LeftOut, Misread, Page, Reading};

fn page<'a>(path: &str, text: &'a str) -> Page<'a> {
    Page::new(Path::new(path), text)
}

/// A reading in one line: each host with where it stands, what is left out likewise, and `default`.
fn show(reading: Result<Reading, Misread>) -> String {
    let reading = match reading {
        Ok(reading) => reading,
        Err(misread) => return format!("error {misread}"),
    };
    let named = reading.named.iter().map(|named| format!("{named} {}", named.source));
    let left_out = reading.left_out.iter().map(|LeftOut { why, source }| format!("not {source}: {why}"));
    let default = reading.takes_default.then(|| "default".to_owned());
    named.chain(left_out).chain(default).collect::<Vec<_>>().join("; ")
}
