//! What derived presets stand for here: the configuration that the tools on this machine and in this project have.
//!
//! Theory of operation. Three kinds of words are told apart, since anybody may have written the first:
//!
//! 1. **Files of the project** ([`files`]): between the working directory and the root of its repository. Netbox reads
//!    them itself, whatever a tool would do with them. What they name is marked, and counts only once a person has
//!    trusted it (`trust`).
//! 2. **The user's and the machine's own configuration**: files that nobody else may write to, and variables.
//! 3. **What a tool does without any** ([`question`]): the tool is run in a sandbox of its own, and the hosts that netbox
//!    refuses to it are the answer. First with nothing to reach, which tells its index. Then, once the project's files
//!    count, with that index alone, which tells where downloads lie, if that is elsewhere. The answers are remembered
//!    for a day ([`answers`]).
//!
//! Which text counts over which is for `netbox_config::derived`, tool by tool.

mod answers;
mod files;
mod gather;
mod question;
mod tool;

use netbox_config::derived::{Misread, Named, Reading};

use super::expanded::{DerivedRule, Expanded};
use super::find::Place;

use answers::Answers;
use files::Around;
use gather::Gathered;
use question::Known;

/// What the texts around here say of a derived preset, and what its tool does without any. Nothing leaves the machine.
/// Without a place, no file of a project counts.
pub fn expand(preset: &str, place: Option<&Place>) -> Expanded {
    let around = Around::here(place);
    let gathered = gather::gather(preset, &around).and_then(|gathered| match question::of(preset) {
        Some(question) => question.answer_default(gathered, &around, &Answers::of_user()),
        None => Ok(gathered),
    });
    let notes = gathered.as_ref().map_or_else(|_| Vec::new(), |gathered| gathered.notes(preset));
    Expanded {
        preset: preset.to_owned(),
        outcome: gathered.and_then(|gathered| gathered.into_rules(&around)),
        is_projects: false,
        notes,
    }
}

/// Adds where the downloads of a preset's index lie, if an index of the user's own is asked that has not been before.
/// Whether it did: the policy is then to be made anew.
pub fn add_downloads(expanded: &mut Expanded, place: Option<&Place>) -> bool {
    let (Some(question), Ok(rules)) = (question::of(&expanded.preset), &mut expanded.outcome) else { return false };
    // What was remembered of it is not part of the question.
    let known = rules.iter().filter(|rule| !rule.of_index).map(|rule| (rule.rule.clone(), rule.of_project));
    let found = question.answer_downloads(&Known::new(known), &Around::here(place), &Answers::of_user());
    let new: Vec<DerivedRule> =
        found.into_iter().filter(|new| rules.iter().all(|rule| rule.rule != new.rule)).collect();
    let is_new = !new.is_empty();
    rules.extend(new);
    is_new
}

impl Gathered {
    /// What is left out.
    fn notes(&self, preset: &str) -> Vec<String> {
        let left_out = self.reading.left_out.iter();
        left_out.map(|left| format!("{}: `@{preset}` leaves it out: {}", left.source, left.why)).collect()
    }

    /// The rules, or why there are none.
    fn into_rules(self, around: &Around) -> Result<Vec<DerivedRule>, String> {
        let Self { reading, is_local, what } = self;
        if reading.named.is_empty() && !is_local {
            let left_out: Vec<_> =
                reading.left_out.iter().map(|left| format!("{}: {}", left.source, left.why)).collect();
            return Err(match left_out.is_empty() {
                true => format!("{what} names no host"),
                false => format!("{what} names no host that it can stand for; {}", left_out.join("; ")),
            });
        }
        let rule = |named: Named| DerivedRule {
            rule: named.to_string(),
            of_project: around.is_of_project(&named.source),
            of_index: question::is_of_index(&named.source),
            source: named.source,
        };
        Ok(reading.named.into_iter().map(rule).collect())
    }
}

/// A reading, with the error as a person is told it.
fn told(reading: Result<Reading, Misread>) -> Result<Reading, String> {
    reading.map_err(|misread| misread.to_string())
}
