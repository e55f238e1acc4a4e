//! What was trusted: one file for each directory that holds, or held, a project's file.
//!
//! The record keeps the bytes that were accepted, so that what has changed since can be shown, and what was taken from the
//! project's other files by derived presets. It lies in `$XDG_STATE_HOME/netbox/trust`, which is read-only inside a
//! sandbox. A record is replaced whole, by a temporary file and rename(2): of two writers at once the later one wins,
//! and neither loses what the other wrote of another directory, so there is no lock.
//!
//! A record that cannot be read, or that somebody else could have written, is an error: never a missing one, since a
//! trusted file may deny what outer files allow.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Refused, find, places, read, shell_word, shown};

/// Of the form of a record. A later netbox that trusts more (files that a policy extends) counts on.
const VERSION: u64 = 1;

/// Larger than any record: a file of 1 MiB in which every byte is escaped, and what was derived.
const LARGEST: u64 = 16 << 20;

/// What was trusted in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The directory: absolute, without links.
    pub place: PathBuf,
    /// The content of the project's file there, unless only derived rules were trusted.
    pub content: Option<String>,
    /// What derived presets took from files of the project.
    pub derived: BTreeSet<Derived>,
}

/// A rule that a derived preset took from a file of the project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Derived {
    /// The preset's name, without `@`.
    pub preset: String,
    /// The rule as text, such as `registry.example.com:443`.
    pub rule: String,
}

impl Record {
    /// Where the file lies, or lay.
    pub fn file(&self) -> PathBuf {
        self.place.join(find::NAME)
    }
}

/// The directory with the records.
#[derive(Debug)]
pub struct Store {
    /// Nothing where the user has no home: then nothing is trusted, and nothing can be.
    directory: Option<PathBuf>,
}

impl Store {
    /// That of this user.
    pub fn of_user() -> Self {
        Self { directory: places::state().map(|state| state.join("trust")) }
    }

    /// The record of a directory.
    ///
    /// # Errors
    /// There is one, and it cannot be relied on.
    pub fn record(&self, place: &Path) -> Result<Option<Record>, Refused> {
        self.nearest(std::iter::once(place), |_| true)
    }

    /// The first record of these directories that is as `wanted`.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn nearest<'p>(
        &self,
        places: impl Iterator<Item = &'p Path>,
        wanted: impl Fn(&Record) -> bool,
    ) -> Result<Option<Record>, Refused> {
        let Some((path, directory)) = self.open()? else { return Ok(None) };
        for place in places {
            let name = file_name(place);
            let path = path.join(&name);
            if let Some((file, metadata)) = read::open_regular(&directory, &name, &path)? {
                own(&path, &metadata)?;
                let record = parse(file).and_then(|record| {
                    if record.place == place { Ok(record) } else { Err("it is of another directory".into()) }
                });
                let record = record.map_err(|why| corrupt(&path, &why))?;
                if wanted(&record) {
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// Every record.
    ///
    /// # Errors
    /// One of them cannot be relied on.
    pub fn all(&self) -> Result<Vec<Record>, Refused> {
        let Some((path, directory)) = self.open()? else { return Ok(Vec::new()) };
        let cannot = |error: io::Error| Refused::new(format!("cannot read {}: {error}", shown(path)));
        let mut records = Vec::new();
        for entry in fs::read_dir(path).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            // What is being written has another name.
            if !name.as_encoded_bytes().ends_with(b".json") {
                continue;
            }
            let path = path.join(&name);
            if let Some((file, metadata)) = read::open_regular(&directory, &name, &path)? {
                own(&path, &metadata)?;
                records.push(parse(file).map_err(|why| corrupt(&path, &why))?);
            }
        }
        records.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(records)
    }

    /// Writes a record, over that which there was of its directory.
    ///
    /// # Errors
    /// It cannot be written, as inside a sandbox.
    pub fn write(&self, record: &Record) -> Result<(), Refused> {
        let Some(place) = record.place.to_str() else {
            let text = format!("the name of {} is not UTF-8, and netbox cannot remember it", shown(&record.place));
            return Err(Refused::new(text).hint("name the file with `--config`"));
        };
        let path = self.directory.as_deref().ok_or_else(homeless)?;
        let derived: Vec<_> = record.derived.iter().map(|derived| json!([derived.preset, derived.rule])).collect();
        let sha256 = record.content.as_ref().map(|content| read::hex(&Sha256::digest(content)));
        let value = json!({
            "version": VERSION, "place": place, "sha256": sha256, "content": record.content, "derived": derived,
        });
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            let file_name = file_name(&record.place);
            let mut temporary = OsString::from(".");
            temporary.push(&file_name);
            temporary.push(format!(".{}", std::process::id()));
            let temporary = path.join(temporary);
            // Left behind by a process that had the same number and was killed.
            let _ = fs::remove_file(&temporary);
            let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
            let written = options.and_then(|mut file| {
                file.write_all(value.to_string().as_bytes())?;
                file.sync_all()?;
                fs::rename(&temporary, path.join(&file_name))
            });
            if written.is_err() {
                // It may not be there at all.
                let _ = fs::remove_file(&temporary);
            }
            written?;
            File::open(path)?.sync_all()
        };
        write().map_err(|error| cannot_write(path, &error))?;
        // What was written would else be found to be of no use when it is needed.
        self.open().map(drop)
    }

    /// Removes the record of a directory. The value is whether there was one.
    ///
    /// # Errors
    /// It cannot be removed, as inside a sandbox.
    pub fn remove(&self, place: &Path) -> Result<bool, Refused> {
        let path = self.directory.as_deref().ok_or_else(homeless)?;
        match fs::remove_file(path.join(file_name(place))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(cannot_write(path, &error)),
            Ok(()) => {
                let synced = File::open(path).and_then(|directory| directory.sync_all());
                synced.map(|()| true).map_err(|error| cannot_write(path, &error))
            }
        }
    }

    /// The directory, open and judged, if it exists.
    fn open(&self) -> Result<Option<(&Path, File)>, Refused> {
        let Some(path) = self.directory.as_deref() else { return Ok(None) };
        let cannot = |why: &dyn std::fmt::Display| Refused::new(format!("cannot read {}: {why}", shown(path)));
        let directory = match read::directory(path) {
            Ok(directory) => directory,
            Err(errno) => {
                return match places::is_there(path) {
                    Ok(false) => Ok(None),
                    Ok(true) => Err(cannot(&errno.desc())),
                    Err(error) => Err(cannot(&error)),
                };
            }
        };
        own(path, &directory.metadata().map_err(|error| cannot(&error))?)?;
        if let Some(above) = path.parent() {
            own(above, &fs::metadata(above).map_err(|error| cannot(&error))?)?;
        }
        Ok(Some((path, directory)))
    }
}

/// The name of a directory's record: every directory has one, and it fits.
fn file_name(place: &Path) -> OsString {
    format!("{}.json", read::hex(&Sha256::digest(place.as_os_str().as_encoded_bytes()))).into()
}

/// Nobody else may write what netbox remembers, not even a group of the user's own: it makes these files itself.
fn own(path: &Path, metadata: &fs::Metadata) -> Result<(), Refused> {
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = format!("{} could have been written by somebody else, and says what is trusted", shown(path));
    Err(Refused::new(text).hint(format!(
        "if it is yours, close it: `chown {} {word} && chmod go-rwx {word}`; else remove it, and trust anew",
        geteuid(),
        word = shell_word(path)
    )))
}

fn parse(file: File) -> Result<Record, String> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("it is too large".into());
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if value["version"] != VERSION {
        return Err("it is of another version of netbox".into());
    }
    let text = |value: &Value, what: &str| value.as_str().map(str::to_owned).ok_or(format!("it has no {what}"));
    let content = match &value["content"] {
        Value::Null => None,
        content => Some(text(content, "content")?),
    };
    let digest = content.as_ref().map(|content| read::hex(&Sha256::digest(content)));
    if value["sha256"].as_str() != digest.as_deref() {
        return Err("its content and its digest differ".into());
    }
    let pairs = value["derived"].as_array().ok_or("it has no list of what was derived")?;
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([preset, rule]) => Ok(Derived { preset: text(preset, "preset")?, rule: text(rule, "rule")? }),
        _ => Err("what was derived is no pair".to_owned()),
    };
    Ok(Record {
        place: text(&value["place"], "place")?.into(),
        content,
        derived: pairs.iter().map(pair).collect::<Result<_, _>>()?,
    })
}

fn corrupt(path: &Path, why: &str) -> Refused {
    let why = netbox_config::escaped(why.as_bytes()).to_string();
    Refused::new(format!("{}, which says what is trusted, cannot be read: {why}", shown(path)))
        .hint(format!("remove it (`rm {}`), and trust the project's file anew", shell_word(path)))
}

fn homeless() -> Refused {
    Refused::new("there is no place to remember what is trusted").hint("set HOME, or XDG_STATE_HOME")
}

fn cannot_write(path: &Path, error: &io::Error) -> Refused {
    let refused = Refused::new(format!("cannot change what is trusted, in {}: {error}", shown(path)));
    let closed = [libc::EROFS, libc::EACCES, libc::EPERM, libc::EBUSY].map(Errno::from_raw);
    if error.raw_os_error().is_some_and(|number| closed.contains(&Errno::from_raw(number))) {
        return refused.hint("inside a sandbox of netbox it is read-only: trust, and end trust, outside");
    }
    refused
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("netbox/trust");
        (folder, Store { directory: Some(directory) })
    }

    fn record(place: &str) -> Record {
        let derived = Derived { preset: "npm".into(), rule: "registry.example.com:443".into() };
        Record {
            place: place.into(),
            content: Some("allow = []\n# \"\u{202e}\u{1}\n".into()),
            derived: [derived].into(),
        }
    }

    fn path_of(store: &Store, place: &str) -> PathBuf {
        store.directory.as_ref().expect("there is one").join(file_name(Path::new(place)))
    }

    #[test]
    fn what_was_trusted_is_read_back() {
        let (_folder, store) = store();
        assert_eq!(store.record(Path::new("/p")), Ok(None));
        assert_eq!(store.all(), Ok(Vec::new()));
        let (one, other) = (record("/p"), Record { content: None, ..record("/q q") });
        store.write(&other).expect("can be written");
        store.write(&one).expect("can be written");
        assert_eq!(store.record(Path::new("/p")), Ok(Some(one.clone())));
        assert_eq!(store.all(), Ok(vec![one.clone(), other.clone()]));
        let above = Path::new("/q q/a/b");
        assert_eq!(store.nearest(above.ancestors(), |_| true), Ok(Some(other)));
        assert_eq!(store.nearest(above.ancestors(), |record| record.content.is_some()), Ok(None));
        let changed = Record { content: Some("deny = []".into()), ..one };
        store.write(&changed).expect("can be replaced");
        assert_eq!(store.record(Path::new("/p")), Ok(Some(changed)));
        assert_eq!(store.remove(Path::new("/p")), Ok(true));
        assert_eq!(store.remove(Path::new("/p")), Ok(false));
        assert_eq!(store.record(Path::new("/p")), Ok(None));
    }

    #[test]
    fn nobody_else_can_read_or_write_it() {
        let (_folder, store) = store();
        store.write(&record("/p")).expect("can be written");
        let path = path_of(&store, "/p");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(path.ancestors().skip(1).take(2).map(mode).collect::<Vec<_>>(), [0o700, 0o700]);
        assert_eq!(
            fs::read_dir(path.parent().expect("in a directory")).expect("own").count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn a_record_that_others_could_have_written_is_an_error() {
        let (_folder, store) = store();
        store.write(&record("/p")).expect("can be written");
        let path = path_of(&store, "/p");
        for open in path.ancestors().take(3) {
            let before = fs::metadata(open).expect("own").permissions();
            fs::set_permissions(open, Permissions::from_mode(before.mode() | 0o020)).expect("own");
            let refused = store.record(Path::new("/p")).expect_err("others may write to it");
            assert!(refused.text.contains(&shown(open)), "{refused:?}");
            fs::set_permissions(open, before).expect("own");
        }
        assert!(store.record(Path::new("/p")).expect("as before").is_some());
    }

    #[test]
    fn a_damaged_record_is_an_error_that_says_what_to_do() {
        let (_folder, store) = store();
        store.write(&record("/p")).expect("can be written");
        let path = path_of(&store, "/p");
        let whole = fs::read_to_string(&path).expect("own");
        let damaged = [
            String::new(),
            whole[..whole.len() / 2].to_owned(),
            "{}".to_owned(),
            whole.replace("\"version\":1", "\"version\":2"),
            whole.replace("\"place\":\"/p\"", "\"place\":\"/q\""),
            whole.replace("allow", "deny"),
            whole.replace("[[\"npm\",", "[["),
            whole.replace("\"derived\"", "\"derive\""),
        ];
        for text in damaged {
            fs::write(&path, &text).expect("own");
            let refused = store.record(Path::new("/p")).expect_err(&text);
            assert!(refused.hint.as_ref().is_some_and(|hint| hint.contains("rm /")), "{refused:?}");
        }
        fs::remove_file(&path).expect("own");
        symlink("/etc/passwd", &path).expect("own");
        assert!(store.record(Path::new("/p")).expect_err("a link").text.contains("symbolic link"));
    }

    #[test]
    fn a_name_that_cannot_be_written_down_is_not_trusted() {
        use std::os::unix::ffi::OsStrExt;
        let (_folder, store) = store();
        let place = PathBuf::from(std::ffi::OsStr::from_bytes(b"/p\xff"));
        assert!(store.write(&Record { place, ..record("/p") }).is_err());
    }
}
