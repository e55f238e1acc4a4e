//! Lock files in TOML.

use toml::de::{DeTable, DeValue};

use crate::derived::page::Page;
use crate::derived::{Misread, Reading, WhyNot};

/// `poetry.lock`, `uv.lock`, `pdm.lock`, `pylock.toml`: the URLs under the keys that each of them has for one.
pub(super) fn python(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    let document = crate::derived::toml(page)?;
    walk(page, document.get_ref(), &mut reading)?;
    Ok(reading)
}

/// As deep as the parser lets a text be, which is not deep.
fn walk(page: &Page, table: &DeTable, reading: &mut Reading) -> Result<(), Misread> {
    for (key, value) in table {
        let counts = matches!(key.get_ref().as_ref(), "url" | "registry" | "git" | "index");
        match value.get_ref() {
            DeValue::String(url) if counts && url.contains("://") => {
                reading.take_url(url, || page.source(value.span().start))?;
            }
            value => walk_value(page, value, reading)?,
        }
    }
    Ok(())
}

fn walk_value(page: &Page, value: &DeValue, reading: &mut Reading) -> Result<(), Misread> {
    match value {
        DeValue::Table(table) => walk(page, table, reading),
        DeValue::Array(list) => list.iter().try_for_each(|value| walk_value(page, value.get_ref(), reading)),
        _ => Ok(()),
    }
}

/// `Cargo.lock`: where packages from git and from sparse registries are.
pub(super) fn cargo(page: &Page) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    let document = crate::derived::toml(page)?;
    let packages = document.get_ref().get("package").and_then(|value| value.get_ref().as_array());
    for package in packages.into_iter().flatten() {
        let Some(source) = package.get_ref().as_table().and_then(|package| package.get("source")) else { continue };
        let Some(url) = source.get_ref().as_str() else { continue };
        let place = || page.source(source.span().start);
        if url.starts_with("registry+") {
            reading.leave_out(WhyNot::Elsewhere("a registry by its name; `@cargo` stands for where it is"), place);
        } else if url.contains("://") {
            reading.take_url(url, place)?;
        }
    }
    Ok(reading)
}
