//! Where a rule was written, so that whoever is refused or allowed by it can find it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a rule was written. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A flag of the command line: `--allow`.
    Flag(&'static str),
    /// A variable of the environment: `NETBOX_ALLOW`.
    Environment(&'static str),
    /// A place in a file. Line and column count from 1, columns in characters.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
        /// The column of the rule's first character, from 1.
        column: usize,
    },
    /// A line of a file that belongs to another tool: `.npmrc:2`.
    Line {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
    },
    /// What a tool answered, by the words that asked it: `pip config list`.
    Tool(Arc<str>),
    /// A place as somebody else says it, who asks for the rule.
    Asked(Arc<str>),
    /// A rule that a preset stands for.
    Preset {
        /// Where the preset was named in a list of rules.
        used: Arc<Source>,
        /// The presets that led to the rule, without their `@`: the one that was named first, the one that holds the
        /// rule last.
        chain: Arc<[Arc<str>]>,
        /// Where the last of them has the rule; nothing where netbox itself brings it.
        from: Option<Arc<Source>>,
    },
}

impl Source {
    /// The presets that led to the rule, without their `@`, outermost first. Empty for a rule that is written out.
    pub fn presets(&self) -> &[Arc<str>] {
        match self {
            Self::Preset { chain, .. } => chain,
            _ => &[],
        }
    }

    /// Where a preset that led here was named, or the source itself.
    pub fn written(&self) -> &Source {
        match self {
            Self::Preset { used, .. } => used,
            _ => self,
        }
    }
}

impl fmt::Display for Source {
    /// `--allow`, `NETBOX_ALLOW`, `netbox.toml:3:10`, `netbox.toml:3:10 via @github`,
    /// `netbox.toml:3:10 via @npm (.npmrc:2)`. Control and invisible characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Environment(name) => f.write_str(name),
            Self::File { path, line, column } => {
                escape(f, &path.to_string_lossy())?;
                write!(f, ":{line}:{column}")
            }
            Self::Line { path, line } => {
                escape(f, &path.to_string_lossy())?;
                write!(f, ":{line}")
            }
            Self::Tool(words) | Self::Asked(words) => escape(f, words),
            Self::Preset { used, chain, from } => {
                used.fmt(f)?;
                chain.iter().try_for_each(|name| {
                    f.write_str(" via @")?;
                    escape(f, name)
                })?;
                match from {
                    Some(from) => write!(f, " ({from})"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Writes what is harmless as it is, run by run: there may be a source for each of thousands of rules.
fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let is_harmless = |c: char| c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric();
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_harmless(c)) {
        f.write_str(&rest[..at])?;
        let mut behind = rest[at..].chars();
        behind.next().map_or(Ok(()), |c| write!(f, "{}", c.escape_unicode()))?;
        rest = behind.as_str();
    }
    f.write_str(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Source {
        Source::File { path: Path::new(path).into(), line: 3, column: 10 }
    }

    #[test]
    fn a_source_reads_like_a_compilers() {
        for (source, shown) in [
            (Source::Flag("--allow"), "--allow"),
            (Source::Environment("NETBOX_ALLOW"), "NETBOX_ALLOW"),
            (file("dir/netbox.toml"), "dir/netbox.toml:3:10"),
            (file("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\u{a}b:3:10"),
            (Source::Line { path: Path::new(".npmrc").into(), line: 2 }, ".npmrc:2"),
            (Source::Tool("pip config list".into()), "pip config list"),
            (Source::Asked("netbox.toml:3:10 via @a\n".into()), "netbox.toml:3:10 via @a\\u{a}"),
        ] {
            assert_eq!(source.to_string(), shown);
        }
    }

    #[test]
    fn a_source_tells_the_presets_that_led_to_it() {
        let preset = |chain: &[&str], from: Option<Source>| Source::Preset {
            used: file("netbox.toml").into(),
            chain: chain.iter().map(|name| Arc::from(*name)).collect(),
            from: from.map(Arc::new),
        };
        let npmrc = Source::Line { path: Path::new(".npmrc").into(), line: 2 };
        for (source, shown) in [
            (preset(&["github"], None), "netbox.toml:3:10 via @github"),
            (preset(&["npm"], Some(npmrc)), "netbox.toml:3:10 via @npm (.npmrc:2)"),
            (preset(&["all", "github"], None), "netbox.toml:3:10 via @all via @github"),
        ] {
            assert_eq!(source.to_string(), shown);
            assert_eq!(source.written(), &file("netbox.toml"));
        }
    }
}
