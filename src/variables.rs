//! The variables of the environment that netbox reads and sets: one table, from which the manual pages and the reference
//! are made.

use std::ffi::OsStr;

/// `--allow`.
pub const ALLOW: &str = "NETBOX_ALLOW";
/// `--deny`.
pub const DENY: &str = "NETBOX_DENY";
/// `--mode`.
pub const MODE: &str = "NETBOX_MODE";
/// `--config`.
pub const CONFIG: &str = "NETBOX_CONFIG";
/// `--profile`.
pub const PROFILE: &str = "NETBOX_PROFILE";
/// `--events`.
pub const EVENTS: &str = "NETBOX_EVENTS";
/// `--via`.
pub const VIA: &str = "NETBOX_VIA";
/// `--allow-weaker`.
pub const ALLOW_WEAKER: &str = "NETBOX_ALLOW_WEAKER";
/// Set inside.
pub const INSIDE: &str = "NETBOX";
/// Set inside.
pub const SESSION: &str = "NETBOX_SESSION";

/// One variable, for people.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    /// The commands that read it, or set it for what they run.
    pub commands: &'static [&'static str],
    /// One paragraph, in the style of a flag's help.
    pub meaning: &'static str,
}

const OF_A_POLICY: &[&str] = &["run", "check", "proxy serve"];

/// All of them. An empty variable counts as one that is not set.
pub const VARIABLES: [Variable; 10] = [
    Variable {
        name: ALLOW,
        commands: OF_A_POLICY,
        meaning: "Rules as in `--allow`, separated by commas. They add to those of the flag; `--mode none` on the command \
                  line sets them aside.",
    },
    Variable {
        name: DENY,
        commands: OF_A_POLICY,
        meaning: "Rules as in `--deny`, separated by commas. They add to those of the flag.",
    },
    Variable { name: MODE, commands: OF_A_POLICY, meaning: "As `--mode`, which wins over it." },
    Variable {
        name: CONFIG,
        commands: OF_A_POLICY,
        meaning: "As `--config`, with a path from `/`. The flag wins over it, and `--no-config` sets it aside.",
    },
    Variable { name: PROFILE, commands: OF_A_POLICY, meaning: "As `--profile`, which wins over it." },
    Variable {
        name: ALLOW_WEAKER,
        commands: &["run"],
        meaning: "As `--allow-weaker`, separated by commas, for an image of a container. They add to those of the flag.",
    },
    Variable { name: EVENTS, commands: &["run", "proxy serve"], meaning: "As `--events`, which wins over it." },
    Variable {
        name: VIA,
        commands: &["run", "proxy status", "proxy reload", "proxy drain"],
        meaning: "As `--via`, which wins over it.",
    },
    Variable {
        name: INSIDE,
        commands: &["run"],
        meaning: "`1` in the environment of the command: it runs in a sandbox. A word to programs; nothing relies on it.",
    },
    Variable {
        name: SESSION,
        commands: &["run"],
        meaning: "In the environment of the command: the number of the run, as it stands in the events.",
    },
];

/// Those that a command reads or sets; all of them for netbox as a whole, which has the empty name.
pub fn of_command(name: &str) -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().filter(move |variable| name.is_empty() || variable.commands.contains(&name))
}

/// Whether the name is netbox's own: `NETBOX` and `NETBOX_*`, in any case.
pub fn is_own(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    name == INSIDE || name.starts_with("NETBOX_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The names that stand between quotation marks in the sources.
    fn named_in(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                named_in(&path, names);
            } else {
                let text = fs::read_to_string(&path).expect("the sources are text");
                let is_name = |part: &&str| part.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                let quoted = text.split('"').filter(is_name).filter_map(|part| part.strip_prefix("NETBOX_"));
                names.extend(quoted.filter(|rest| !rest.is_empty()).map(|rest| format!("NETBOX_{rest}")));
            }
        }
    }

    #[test]
    fn each_variable_that_the_sources_name_is_in_the_table() {
        let mut names = BTreeSet::new();
        named_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
        // For those who work on netbox, by the name of the test that reads it.
        names.remove("NETBOX_WRITE_REFERENCE");
        assert!(names.contains(ALLOW), "the sources were read: {names:?}");
        for name in names {
            assert!(VARIABLES.iter().any(|variable| variable.name == name), "`{name}` is not in the table");
        }
    }

    #[test]
    fn own_names_are_told_from_others() {
        for own in ["NETBOX", "NETBOX_ALLOW", "netbox_x", "NETBOX_"] {
            assert!(is_own(own.as_ref()), "{own}");
        }
        for other in ["NETBOXES", "XNETBOX", "NET", ""] {
            assert!(!is_own(other.as_ref()), "{other}");
        }
    }
}
