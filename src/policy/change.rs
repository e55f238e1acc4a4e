//! What a person has to decide about the project's files, in words.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;

use netbox_config::{Compiled, Kind};

use super::store::{Derived, Record, Store};
use super::trust::Displaced;
use super::{Refused, diff, find, shell_word, shown};

/// How many rules are listed.
const MOST_RULES: usize = 50;

/// What is not trusted.
#[derive(Debug)]
pub struct Change {
    /// What would be trusted.
    pub record: Record,
    /// Its digest, where there is a file.
    pub digest: Option<String>,
    /// The content that was trusted, where it is another now.
    pub before: Option<String>,
    /// Whether the file's own content is trusted, or there is none.
    pub is_known: bool,
    /// Rules from the project's other files that are not trusted, with where they are from.
    pub derived: Vec<(Derived, String)>,
    /// The trusted file that would count here.
    pub displaced: Option<(Record, Displaced)>,
    /// Where the run takes place.
    pub working: PathBuf,
    /// What it comes to, a line for each difference.
    pub effect: Vec<String>,
    /// What holds without all that.
    pub without: Option<Compiled>,
}

/// How `now` differs from `before`: what it allows more, and what it no longer denies.
pub fn effect(now: Option<&Compiled>, before: Option<&Compiled>) -> Vec<String> {
    let Some(now) = now else { return Vec::new() };
    let mut lines = Vec::new();
    let mode = before.map(|before| before.policy().mode()).unwrap_or_default();
    if now.policy().mode() != mode {
        let source = now.mode_source().map(|(_, source)| format!(" ({source})")).unwrap_or_default();
        lines.push(format!("mode `{}`{source} instead of `{mode}`", now.policy().mode()));
    }
    let texts = |compiled: Option<&Compiled>, kind: Kind| -> HashSet<String> {
        let rules = compiled.into_iter().flat_map(Compiled::rules).filter(|rule| rule.kind == kind);
        rules.map(|rule| rule.rule.text().to_owned()).collect()
    };
    let (allowed, denied) = (texts(before, Kind::Allow), texts(Some(now), Kind::Deny));
    let more = now.rules().filter(|rule| rule.kind == Kind::Allow && !allowed.contains(rule.rule.text()));
    lines.extend(more.map(|rule| format!("allows {} ({})", rule.rule.text(), rule.rule.source())));
    let before = before.into_iter().flat_map(Compiled::rules);
    let less = before.filter(|rule| rule.kind == Kind::Deny && !denied.contains(rule.rule.text()));
    lines.extend(less.map(|rule| format!("no longer denies {} ({})", rule.rule.text(), rule.rule.source())));
    lines
}

impl Change {
    /// All of it for the person who decides, and the question. Nothing, where it is too long to be shown: what nobody has
    /// seen, nobody trusts.
    pub fn describe(&self) -> Option<(String, String)> {
        let mut text = String::new();
        let mut is_all = true;
        // Writing to a string does not fail.
        if let (Some(content), false) = (&self.record.content, self.is_known) {
            let file = shown(&self.record.file());
            let (what, shown) = match &self.before {
                None => ("is not trusted yet", diff::whole(content)),
                Some(before) => ("has changed since it was trusted", diff::changes(before, content)),
            };
            let _ = write!(text, "netbox: {file} {what}:\n\n{shown}\n");
            is_all &= shown.is_all;
        }
        if let Some((record, displaced)) = &self.displaced {
            let _ = writeln!(text, "netbox: {}", self.of_displaced(record, *displaced));
            if self.is_known {
                let shown = diff::changes(record.content.as_deref().unwrap_or_default(), "");
                let _ = write!(text, "\n{shown}\n");
                is_all &= shown.is_all;
            }
        }
        if !self.derived.is_empty() {
            text.push_str("netbox: what derived presets stand for, not trusted yet:\n\n");
            let lines = self.derived.iter().map(|(derived, source)| {
                format!("@{} stands for {} ({source})", derived.preset, escaped(&derived.rule))
            });
            is_all &= list(&mut text, lines);
        }
        if !self.effect.is_empty() {
            text.push_str("netbox: that changes:\n\n");
            is_all &= list(&mut text, self.effect.iter().cloned());
        }
        is_all.then(|| (text, format!("netbox: {}", self.question())))
    }

    fn question(&self) -> &'static str {
        match (&self.displaced, self.is_known && self.derived.is_empty()) {
            (Some((_, Displaced::Hidden)), true) => "go on without it, this once?",
            (Some((_, Displaced::Gone)), true) => "go on without it from now on?",
            _ => "trust this from now on?",
        }
    }

    /// Remembers a yes.
    ///
    /// # Errors
    /// It cannot be remembered.
    pub fn accept(&self, store: &Store) -> Result<(), Refused> {
        if !self.is_known || !self.derived.is_empty() {
            store.write(&self.record)?;
        }
        if let Some((record, Displaced::Gone)) = &self.displaced {
            store.remove(&record.place)?;
        }
        Ok(())
    }

    /// Why netbox does not run, where the person said no.
    pub fn declined(&self) -> Refused {
        Refused::new(self.headline())
    }

    /// Why netbox does not run, where there was nobody to ask: no terminal, or a command that asks nothing.
    pub fn unasked(&self, why: &str) -> Refused {
        let mut text = format!("{}{why}", self.headline());
        let (first, more) = self.effect.split_at(self.effect.len().min(3));
        if !first.is_empty() {
            let _ = write!(text, "; that changes: {}", first.join(", "));
        }
        if !more.is_empty() {
            let _ = write!(text, ", and {} more", more.len());
        }
        Refused::new(text).hint(self.remedy())
    }

    fn headline(&self) -> String {
        let file = shown(&self.record.file());
        match (&self.displaced, self.derived.first()) {
            _ if self.before.is_some() => format!("{file} has changed since it was trusted"),
            _ if !self.is_known => format!("{file} is not trusted"),
            (Some((record, displaced)), _) => self.of_displaced(record, *displaced),
            (None, Some((derived, source))) => {
                let rule = escaped(&derived.rule);
                format!("`@{}` stands for `{rule}` ({source}), which is not trusted", derived.preset)
            }
            (None, None) => format!("{file} is not trusted"),
        }
    }

    fn of_displaced(&self, record: &Record, displaced: Displaced) -> String {
        let (file, working) = (shown(&record.file()), shown(&self.working));
        match (displaced, self.record.content.is_some()) {
            (Displaced::Gone, _) => format!("{file} was trusted and is gone"),
            (Displaced::Hidden, true) => format!("{file} is trusted, and another file counts in {working} instead"),
            (Displaced::Hidden, false) => {
                format!("{file} is trusted, and does not count in {working}, where another repository begins")
            }
        }
    }

    fn remedy(&self) -> String {
        if let (Some((record, displaced)), true) = (&self.displaced, self.is_known && self.derived.is_empty()) {
            let untrust = format!("`netbox untrust {}`", shell_word(&record.file()));
            return match displaced {
                Displaced::Gone => format!("put it back, or let it go: {untrust}"),
                Displaced::Hidden => format!(
                    "put a `{}` there (an empty one will do) and trust it, or end the other's trust: {untrust}",
                    find::NAME
                ),
            };
        }
        let trust = match &self.record.content {
            Some(_) => format!("netbox trust {}", shell_word(&self.record.file())),
            // Named on the command line, perhaps: then it has to be named there too.
            None => {
                let mut presets: Vec<_> = self.derived.iter().map(|(derived, _)| derived.preset.as_str()).collect();
                presets.dedup();
                format!("netbox trust --allow @{}", presets.join(",@"))
            }
        };
        match &self.digest {
            Some(digest) => format!(
                "read it, then `{trust}`; for one run of these bytes `--trust-project sha256:{digest}`; to run without \
                 it `--no-config`"
            ),
            None => format!("if that is right, `{trust}`"),
        }
    }
}

/// Not too many lines, and then how many more there are.
pub fn cut(mut lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut first: Vec<_> = lines.by_ref().take(MOST_RULES).collect();
    match lines.count() {
        0 => first,
        more => {
            first.push(format!("(and {more} more)"));
            first
        }
    }
}

/// Whether those are all.
fn list(text: &mut String, mut lines: impl Iterator<Item = String>) -> bool {
    lines.by_ref().take(diff::MOST_LINES).for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push('\n');
    lines.next().is_none()
}

fn escaped(text: &str) -> impl std::fmt::Display + '_ {
    netbox_config::escaped(text.as_bytes())
}
