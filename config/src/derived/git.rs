//! `@git`: the hosts of a repository's remotes and submodules.
//!
//! Read: `remote.*.url` and `pushurl`, `submodule.*.url`, and the rewriting of `url.*.insteadOf` and `pushInsteadOf`, of
//! the repository's `config`, its `.gitmodules`, and the configuration of the user and the machine. (git-config(1),
//! gitmodules(5), "GIT URLS" in git-fetch(1).)

mod syntax;

use std::collections::BTreeMap;

use crate::derived::page::Page;
use crate::derived::url::{self, Meaning};
use crate::derived::{Fault, Misread, Reading, Setting, WhyNot};

use syntax::Entry;

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitFile {
    /// By section and subsection.
    remotes: BTreeMap<(String, String), Remote>,
    rewrites: Vec<Rewrite>,
    includes: Vec<Setting>,
}

/// A remote, or a submodule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remote {
    urls: Vec<Setting>,
    push_urls: Vec<Setting>,
}

/// A URL that begins with `beginning` begins with `base` instead.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rewrite {
    beginning: String,
    base: String,
    for_push: bool,
}

/// More rewritings in force than this are an error: each is tried for each URL.
const MOST_REWRITES: usize = 256;

impl GitFile {
    /// Other files that it takes in, as they are written there: `include.path`, and `includeIf.*.path` whatever its
    /// condition.
    pub fn includes(&self) -> impl Iterator<Item = &str> {
        self.includes.iter().map(|setting| setting.value.as_str())
    }
}

/// Reads one file.
///
/// # Errors
///
/// It has not the syntax of git's configuration.
pub fn parse(page: &Page) -> Result<GitFile, Misread> {
    let mut file = GitFile::default();
    for entry in syntax::entries(page) {
        let Entry { section, subsection, key, value, offset } = entry?;
        let setting = || Setting { value: value.clone(), source: page.source(offset) };
        match (section.as_str(), key.as_str()) {
            ("remote" | "submodule", "url" | "pushurl") => {
                let setting = setting();
                let remote = file.remotes.entry((section, subsection)).or_default();
                let list = if key == "url" { &mut remote.urls } else { &mut remote.push_urls };
                list.push(setting);
            }
            ("url", "insteadof" | "pushinsteadof") => {
                if file.rewrites.len() == MOST_REWRITES {
                    return Err(page.misread(offset, Fault::Syntax("more rewritings of URLs than netbox reads".into())));
                }
                file.rewrites.push(Rewrite { beginning: value, base: subsection, for_push: key == "pushinsteadof" });
            }
            ("include" | "includeif", "path") => file.includes.push(setting()),
            _ => {}
        }
    }
    Ok(file)
}

/// The hosts of the remotes and submodules in `repository`, as the rewritings there and in `elsewhere` (the
/// configuration of the user and the machine) make them.
///
/// # Errors
///
/// The URL of a remote cannot be read.
pub fn resolve(repository: &[GitFile], elsewhere: &[GitFile]) -> Result<Reading, Misread> {
    let rewrites: Vec<&Rewrite> = repository.iter().chain(elsewhere).flat_map(|file| &file.rewrites).collect();
    let mut reading = Reading::default();
    for include in repository.iter().flat_map(|file| &file.includes) {
        let why = "another file that the repository's configuration takes in, which netbox does not read";
        reading.leave_out(WhyNot::Elsewhere(why), || include.source.clone());
    }
    for remote in repository.iter().flat_map(|file| file.remotes.values()) {
        for url in &remote.urls {
            take(&mut reading, url, longest(&rewrites, &url.value, false))?;
            // A URL to push to follows from the one to fetch from, unless one is given.
            if let Some(push) = longest(&rewrites, &url.value, true).filter(|_| remote.push_urls.is_empty()) {
                take(&mut reading, url, Some(push))?;
            }
        }
        for url in &remote.push_urls {
            take(&mut reading, url, longest(&rewrites, &url.value, false))?;
        }
    }
    Ok(reading)
}

/// The rewriting with the longest beginning counts.
fn longest<'r>(rewrites: &[&'r Rewrite], url: &str, for_push: bool) -> Option<&'r Rewrite> {
    let fits = |rewrite: &&&Rewrite| rewrite.for_push == for_push && url.starts_with(&rewrite.beginning);
    rewrites.iter().filter(fits).max_by_key(|rewrite| rewrite.beginning.len()).copied()
}

fn take(reading: &mut Reading, url: &Setting, rewrite: Option<&Rewrite>) -> Result<(), Misread> {
    let rewritten = rewrite.map(|rewrite| rewrite.base.clone() + &url.value[rewrite.beginning.len()..]);
    let meaning = meaning(rewritten.as_deref().unwrap_or(&url.value));
    let meaning = meaning.map_err(|fault| Misread { place: url.source.clone(), fault })?;
    reading.take(meaning, || url.source.clone())
}

/// The meaning of a URL, of `[user@]host:path`, which is ssh, or of a path.
fn meaning(text: &str) -> Result<Meaning, Fault> {
    // `helper::address` runs a program, which connects to whatever it likes.
    let before_slash = text.split('/').next().unwrap_or_default();
    if let Some((helper, _)) = before_slash.split_once("::")
        && !helper.contains([':', '@', '['])
    {
        return Ok(Meaning::LeftOut(WhyNot::Elsewhere(
            "a remote helper, and where that connects to netbox does not know",
        )));
    }
    if text.contains("://") {
        return url::meaning(text);
    }
    let Some((authority, _)) = before_slash.split_once(':') else { return Ok(Meaning::Nothing) };
    if text.starts_with('[') || authority.contains('[') {
        return Err(Fault::Unclear);
    }
    url::of_authority(authority, url::SSH)
}
