//! Where a rule was written, so that whoever is refused or allowed by it can find it.

use std::fmt;
use std::path::PathBuf;

/// Where a rule was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A flag of the command line: `--allow`.
    Flag(&'static str),
    /// A variable of the environment: `NETBOX_ALLOW`.
    Environment(&'static str),
    /// A place in a file. Line and column count from 1, columns in characters.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column of the rule's first character, from 1.
        column: usize,
    },
}

impl fmt::Display for Source {
    /// `--allow`, `NETBOX_ALLOW` or `netbox.toml:3:10`. Control and invisible characters of a path are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Environment(name) => f.write_str(name),
            Self::File { path, line, column } => {
                for c in path.to_string_lossy().chars() {
                    if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
                        write!(f, "{c}")?;
                    } else {
                        write!(f, "{}", c.escape_unicode())?;
                    }
                }
                write!(f, ":{line}:{column}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_reads_like_a_compilers() {
        let file = |path: &str| Source::File { path: path.into(), line: 3, column: 10 };
        for (source, shown) in [
            (Source::Flag("--allow"), "--allow"),
            (Source::Environment("NETBOX_ALLOW"), "NETBOX_ALLOW"),
            (file("dir/netbox.toml"), "dir/netbox.toml:3:10"),
            (file("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\u{a}b:3:10"),
        ] {
            assert_eq!(source.to_string(), shown);
        }
    }
}
