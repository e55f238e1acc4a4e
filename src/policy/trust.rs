//! Does what the project's files say count?
//!
//! It does where a person accepted it before: these bytes, at this place, and these hosts of derived presets (all that the
//! presets of the project's policy file come to, and of others what files of the project say). Two things need nobody's
//! word: a file whose bytes are pinned on the command line, and one that is proved to allow nothing more than what holds
//! without it. What was trusted and has gone, or has another file in front of it, is
//! a change as well, since it may have denied something: it is let go only where that is proved to allow nothing more.
//!
//! Nothing is asked or written here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use netbox_config::{Compiled, Layer, PolicyFile, Stack};
use sha2::{Digest, Sha256};

use super::expanded::{self, Expanded};
use super::find::Place;
use super::read::{self, Text};
use super::store::{Derived, Record, Store};
use super::{Refused, change::Change, effective::Standing, shown};

/// What is judged.
pub struct Candidate<'a> {
    /// All layers, with the project's file in its own.
    pub stack: &'a Stack<'a>,
    /// What the stack's derived presets came to.
    pub expanded: &'a [Expanded],
    /// Where the run takes place.
    pub place: &'a Place,
    /// The project's file, if one was found.
    pub text: Option<&'a Text>,
    /// Whether the project's file was looked for: else it has not gone.
    pub searched: bool,
    /// The digest that `--trust-project` gives.
    pub pinned: Option<&'a str>,
}

/// Whether it does.
#[derive(Debug)]
pub enum Verdict {
    /// It does; there is no standing where there is nothing of the project's.
    Counts(Option<Standing>),
    /// Only a person can say.
    Asks(Box<Change>),
}

/// Why a file that was trusted does not count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// It is no longer there.
    Gone,
    /// It is there, and the project's file that was found, if any, is another.
    Hidden,
}

impl Candidate<'_> {
    /// The directory whose record it is.
    pub fn directory(&self) -> PathBuf {
        let of_file = self.text.and_then(|text| text.path.parent());
        of_file.or(self.place.root.as_deref()).unwrap_or(&self.place.working).to_owned()
    }

    /// What would be trusted.
    pub fn record(&self) -> Result<Record, Refused> {
        let content = self.text.map(Text::content).transpose()?;
        Ok(Record { place: self.directory(), content, derived: expanded::in_need_of_trust(self.expanded) })
    }

    /// The digest of what the project says: that of the file alone, unless derived presets read other files of it. What the
    /// machine is configured with is not in it, since another one may be configured otherwise.
    pub fn digest(&self) -> Option<String> {
        let text = self.text?;
        let derived = expanded::of_project(self.expanded);
        if derived.is_empty() {
            return Some(text.digest());
        }
        let mut hash = Sha256::new_with_prefix(&text.bytes);
        for Derived { preset, rule } in derived {
            // No policy file holds a zero byte.
            hash.update(format!("\0{preset}\0{rule}"));
        }
        Some(read::hex(&hash.finalize()))
    }

    fn compile(&self, stack: &Stack<'_>, known: &BTreeSet<Derived>) -> Option<Compiled> {
        stack.compile(&expanded::expansions(self.expanded, |derived| known.contains(derived))).ok()
    }
}

/// Judges it.
///
/// # Errors
/// What is remembered cannot be relied on, or the file is not the one that was pinned.
pub fn judge(candidate: &Candidate<'_>, store: &Store) -> Result<Verdict, Refused> {
    if let Some(pinned) = candidate.pinned {
        return check_pinned(candidate, pinned).map(|()| Verdict::Counts(Some(Standing::Pinned)));
    }
    let derived = expanded::in_need_of_trust(candidate.expanded);
    if !candidate.searched && derived.is_empty() {
        return Ok(Verdict::Counts(None));
    }
    let directory = candidate.directory();
    let record = store.record(&directory)?;
    let before = record.as_ref().and_then(|record| record.content.as_deref());
    let known_derived = record.as_ref().map(|record| record.derived.clone()).unwrap_or_default();
    let is_known = match (candidate.text, before) {
        (Some(text), Some(before)) => text.bytes == before.as_bytes(),
        (Some(_), None) => false,
        (None, _) => true,
    };
    let displaced = displaced(candidate, before.is_some(), store)?;
    if is_known && derived.is_subset(&known_derived) && displaced.is_none() {
        let is_something = candidate.text.is_some() || !derived.is_empty();
        return Ok(Verdict::Counts(is_something.then_some(Standing::Trusted)));
    }
    // What was accepted once and differs now is asked about, whatever the difference is.
    let is_changed = !is_known && before.is_some();
    let outer = if is_known { candidate.stack.clone() } else { candidate.stack.without(Layer::Project) };
    let all = candidate.compile(candidate.stack, &derived);
    let without = candidate.compile(&outer, &known_derived);
    let with_displaced = displaced.as_ref().map(|(record, _)| with_record(candidate, record));
    let narrows =
        |wider: &Option<Compiled>| all.as_ref().zip(wider.as_ref()).is_some_and(|(all, wider)| all.narrows(wider));
    if !is_changed && narrows(&without) && with_displaced.as_ref().is_none_or(narrows) {
        let standing = if is_known { Standing::Trusted } else { Standing::Narrows };
        return Ok(Verdict::Counts(candidate.text.map(|_| standing)));
    }
    // What is new is new against what held until now.
    let until_now = match (before, with_displaced) {
        (Some(before), _) if is_changed => {
            let record = Record { place: directory, content: Some(before.to_owned()), derived: known_derived.clone() };
            with_record(candidate, &record)
        }
        (_, Some(with_displaced)) => with_displaced,
        _ => None,
    };
    let mut record = candidate.record()?;
    if is_known {
        // Another profile may need these.
        record.derived.extend(known_derived.iter().cloned());
    }
    Ok(Verdict::Asks(Box::new(Change {
        record,
        digest: candidate.digest(),
        before: before.filter(|_| is_changed).map(str::to_owned),
        is_known,
        derived: expanded::sources(candidate.expanded, |rule| !known_derived.contains(rule)),
        displaced,
        working: candidate.place.working.clone(),
        effect: super::change::effect(all.as_ref(), until_now.as_ref().or(without.as_ref())),
        without,
    })))
}

/// The file that was trusted and would count here, if there were no other nearer, or if it were still there.
fn displaced(
    candidate: &Candidate<'_>,
    is_trusted: bool,
    store: &Store,
) -> Result<Option<(Record, Displaced)>, Refused> {
    if !candidate.searched {
        return Ok(None);
    }
    let found = candidate.text.and_then(|text| text.path.parent());
    let is_below = |place: &Path| found.is_none_or(|found| place.starts_with(found) && place != found);
    let is_above = |place: &Path| found.is_some_and(|found| found.starts_with(place) && place != found);
    // A directory's own trusted file stands for itself, whatever is trusted above.
    let places =
        candidate.place.working.ancestors().filter(|place| is_below(place) || (!is_trusted && is_above(place)));
    let Some(record) = store.nearest(places, |record| record.content.is_some())? else { return Ok(None) };
    let is_there = super::places::is_there(&record.file()).unwrap_or(true);
    Ok(Some((record, if is_there { Displaced::Hidden } else { Displaced::Gone })))
}

/// What holds with a trusted file in the project's place.
fn with_record(candidate: &Candidate<'_>, record: &Record) -> Option<Compiled> {
    let content = record.content.as_ref()?;
    let file = PolicyFile::parse(Layer::Project, &record.file(), content.as_bytes()).ok()?;
    candidate.compile(&candidate.stack.clone().with_file(&file), &record.derived)
}

fn check_pinned(candidate: &Candidate<'_>, pinned: &str) -> Result<(), Refused> {
    let Some((text, digest)) = candidate.text.zip(candidate.digest()) else {
        return Err(Refused::new("`--trust-project`: there is no `netbox.toml` of a project here"));
    };
    if digest == pinned {
        return Ok(());
    }
    let text = format!("`--trust-project sha256:{pinned}`: {} has the digest sha256:{digest}", shown(&text.path));
    Err(Refused::new(text).hint("read the file, and pin its digest if it is right"))
}
