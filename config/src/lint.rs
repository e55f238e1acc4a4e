//! What is worth knowing about a policy that is right: rules that do nothing, that do more than their writer may have
//! meant, or that read as something else than they are.
//!
//! Lints decide nothing. Each has a stable id, a place, a sentence, and where there is one, the text that would be better.
//! Errors of a file are shown the same way, so that a person sees one list ([`FileErrors::lints`]).

pub(crate) mod cover;
mod errors;
mod file;
mod rules;
mod service;
mod spelling;
mod tenants;

use std::fmt;

use crate::compiled::{Compiled, Kind};
use crate::file_error::FileErrors;
use crate::layer::Layer;
use crate::policy_file::PolicyFile;
use crate::rule::Rule;
use crate::source::Source;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// Probably not what is meant.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One kind of lint.
#[derive(Debug, PartialEq, Eq)]
pub struct LintKind {
    /// The word for scripts; it does not change.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, as a sentence without a full stop.
    pub about: &'static str,
}

macro_rules! kinds {
    ($($name:ident $id:literal $severity:ident $about:literal;)*) => {
        $(pub(crate) static $name: LintKind = LintKind { id: $id, severity: Severity::$severity, about: $about };)*
        /// Every kind of lint, by id; errors of a file are kinds of their own.
        pub static LINT_KINDS: &[&LintKind] = &[$(&$name),*];
    };
}

kinds! {
    CONFUSABLE_NAME "confusable-name" Warning "a name of another script, or of several, that looks like a plain one";
    DEAD_RULE "dead-rule" Warning "an allow rule all of whose targets deny rules take back";
    EMPTY_CEILING "empty-ceiling" Warning "a ceiling without rules, inside of which nothing is allowed";
    EMPTY_PROFILE "empty-profile" Warning "a profile that changes nothing";
    EVERY_HOST "every-host" Warning "`*` allows every public host by name";
    HTTP_ONLY "http-only" Note "a rule with port 80 and without 443";
    METADATA "metadata-address" Warning "a rule that opens the metadata service of a cloud";
    MISSES_APEX "misses-apex" Note "a wildcard over a whole domain beside which the domain itself is not listed";
    MIXED_RANGE "mixed-range" Warning "a range of addresses that are public and that are not";
    MODE_MAKES_USELESS "mode-makes-useless" Warning "allow rules beside a mode in which they do nothing";
    MULTI_TENANT_WILDCARD "multi-tenant-wildcard" Warning "a wildcard over the names of all customers of one provider";
    NON_PUBLIC_RANGE "non-public-range" Note "a rule that opens addresses that are not public, also to listed names";
    NOT_AS_COMPARED "not-as-compared" Note "a name that is compared in another form than it is written in";
    OUTSIDE_CEILING "outside-ceiling" Warning "an allow rule that lies outside a ceiling as a whole";
    SHADOWED_RULE "shadowed-rule" Warning "a rule that adds nothing to another of the same file";
    TOKEN_IN_CLEAR "token-in-clear" Warning "a listener on which tokens come over the network without TLS";
    UNPROVABLE_ROLE "unprovable-role" Note "a role without a token and without a listener of its own";
    UNREACHABLE_RANGE "unreachable-range" Warning "a rule for addresses at which nothing can be reached";
    UNUSED_PRESET "unused-preset" Note "a preset of a project's file that the file does not use";
}

/// One thing that is worth knowing, or that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lint {
    source: Source,
    severity: Severity,
    id: &'static str,
    text: String,
    hint: Option<String>,
}

impl Lint {
    fn new(kind: &'static LintKind, source: &Source, text: impl Into<String>) -> Self {
        Self { source: source.clone(), severity: kind.severity, id: kind.id, text: text.into(), hint: None }
    }

    fn with_hint(self, hint: impl Into<Option<String>>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Where it is: a place in a file, a flag or a variable.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The word for scripts: `shadowed-rule`.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// What it is, in lower case and without a full stop; hostile text in it is escaped.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What to write, as a phrase: "write `.github.com`".
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl FileErrors {
    /// The errors as lints.
    pub fn lints(&self) -> Vec<Lint> {
        self.iter().map(errors::lint).collect()
    }
}

impl PolicyFile {
    /// What is worth knowing about the file by itself, its profiles included, in the order of the places.
    ///
    /// Rules that depend on other files (a preset that another file defines) are left to [`Compiled::lints`].
    pub fn lints(&self) -> Vec<Lint> {
        sorted(file::lints(self))
    }
}

impl Compiled {
    /// What is worth knowing about the rules as the layers add them up: what does nothing beside the others.
    pub fn lints(&self) -> Vec<Lint> {
        let mut lints = Vec::new();
        let of_layer = |layer, kind| -> Vec<&Rule> {
            self.rules().filter(|rule| rule.layer == layer && rule.kind == kind).map(|rule| rule.rule).collect()
        };
        for layer in [Layer::System, Layer::User, Layer::Project, Layer::CommandLine] {
            let (allow, deny) = (of_layer(layer, Kind::Allow), of_layer(layer, Kind::Deny));
            lints.extend(rules::missed_apexes(&allow));
            lints.extend(cover::shadowed_allow(allow));
            lints.extend(cover::shadowed_deny(deny));
        }
        lints.extend(self.without_effect());
        sorted(lints)
    }

    /// The allow rules of which nothing is left, since they are denied or lie outside a ceiling: what a run should tell, for
    /// whoever wrote them counts on them.
    pub fn without_effect(&self) -> Vec<Lint> {
        let mut lints = cover::dead(self.policy());
        lints.extend(cover::outside_ceilings(self.policy()));
        sorted(lints)
    }
}

fn sorted(mut lints: Vec<Lint>) -> Vec<Lint> {
    Lint::sort(&mut lints);
    lints
}

impl Lint {
    /// Brings lints of several files into the order of the files and the places in them, each once.
    pub fn sort(lints: &mut Vec<Self>) {
        lints.sort_by_cached_key(Self::place);
        lints.dedup();
    }

    /// For order: by file, line, column, and the more serious first.
    fn place(&self) -> (String, usize, usize, Severity, &'static str) {
        let (name, line, column) = match self.source.written() {
            Source::File { path, line, column } => (path.to_string_lossy().into_owned(), *line, *column),
            Source::Line { path, line } => (path.to_string_lossy().into_owned(), *line, 0),
            other => (other.to_string(), 0, 0),
        };
        (name, line, column, self.severity, self.id)
    }
}
