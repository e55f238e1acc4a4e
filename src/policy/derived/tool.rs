//! Runs a tool to see where it would go.
//!
//! It runs in a sandbox of its own, with nothing to reach or with its index alone, from an empty directory, by its absolute
//! path, and with a few of the caller's variables. The sandbox is netbox itself, started again. The hosts that it refuses
//! are the answer: no output of the tool is understood, and nothing that the tool says of itself is believed.
//!
//! Other sandboxes of this user may run meanwhile, and can write to most of the home. Tools look for configuration where they
//! start and upward from there, so that directory is in the asked sandbox's own `/dev/shm`, where no other one is. What it
//! begins with is copied from the state directory, which is read-only in every sandbox. What netbox reads back has no name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::Value;
use tempfile::TempDir;

use super::files::Around;
use crate::policy::owner::{self, Demand};
use crate::policy::{places, way};

/// How long it may take. An index that is slow is asked another time.
const PATIENCE: &str = "30s";

/// More of what it prints, and of what netbox tells of it, is not read.
const MOST_BYTES: u64 = 1 << 20;

/// Variables that every tool gets: who the user is, what netbox is to protect from it and how, and which certificates count.
const VARIABLES: [&str; 16] = [
    "CURL_CA_BUNDLE",
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "NETBOX_ALLOW_WEAKER",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// A program.
#[derive(Debug)]
pub struct Tool {
    /// Absolute.
    pub path: PathBuf,
    /// Changes when it is replaced.
    pub state: String,
}

impl Tool {
    /// What it is called.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The first of these programs in the caller's `PATH`, as far as that leads to folders outside the project, and to a
/// program that lies outside of it too.
pub fn find(programs: &[&str], around: &Around) -> Option<Tool> {
    let folders: Vec<_> = folders(around).collect();
    programs.iter().flat_map(|program| folders.iter().map(move |folder| folder.join(program))).find_map(|path| {
        is_fit(&path, around).then_some(())?;
        let metadata = fs::metadata(&path).ok()?;
        let is_program = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        let state = format!("{} {} {}", metadata.ino(), metadata.size(), metadata.mtime_nsec() + metadata.mtime());
        is_program.then_some(Tool { path, state })
    })
}

/// The folders of programs in which the project has no hand, and nobody else.
fn folders(around: &Around) -> impl Iterator<Item = PathBuf> {
    let path = around.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    std::env::split_paths(path).filter(|folder| is_fit(folder, around))
}

/// Whether neither the project nor anybody else has a hand in what lies there, nor in any directory on the way: an
/// environment or a folder of packages of the project's is often the first in `PATH`.
fn is_fit(path: &Path, around: &Around) -> bool {
    let leads = || way::lead(path, Demand::ThisOrRoot).ok().flatten();
    path.is_absolute() && !around.is_below_top(path) && leads().is_some_and(|is| !around.is_below_top(&is))
}

/// The caller's variables of these names, and those that every tool gets. None that leads into the project: what the tool
/// read there would be taken for the user's word.
pub fn environment(names: &[&str], around: &Around) -> Vec<(String, OsString)> {
    let is_wanted = |name: &str| {
        let fits = |wanted: &&str| match wanted.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *wanted,
        };
        VARIABLES.contains(&name) || names.iter().any(fits)
    };
    let mut environment: Vec<(String, OsString)> = around
        .variables()
        .filter(|(name, value)| is_wanted(name) && !value.split(':').any(|path| around.is_in_project(Path::new(path))))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    // Folders of the project are no place to find an interpreter in either.
    let path = std::env::join_paths(folders(around)).unwrap_or_default();
    environment.push(("PATH".to_owned(), path));
    environment
}

/// What it may reach.
#[derive(Clone, Copy, Debug)]
pub enum Reachable<'a> {
    Nothing,
    These(&'a [String]),
}

/// Where the tool starts, inside.
const START: &str = "/dev/shm/ask";

/// Copies what was prepared to where the tool starts, and becomes the tool.
const SCRIPT: &str = r#"cp -R -P "$1" "$2" && cd "$2" && shift 2 && exec "$@""#;

/// What a tool begins with: a folder, which goes with it.
#[derive(Debug)]
pub struct Room {
    folder: TempDir,
}

impl Room {
    /// A new one that nobody else can look into, where no sandbox can write.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> io::Result<Self> {
        let state = places::state().ok_or(io::ErrorKind::NotFound)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&state)?;
        let metadata = fs::symlink_metadata(&state)?;
        owner::check_directory(&state, &metadata, Demand::ThisOrRoot).map_err(|why| io::Error::other(why.text))?;
        Ok(Self { folder: tempfile::Builder::new().prefix("ask.").tempdir_in(state)? })
    }

    /// What is put there, the tool finds where it starts.
    pub fn directory(&self) -> &Path {
        self.folder.path()
    }

    /// Where the tool finds what is prepared at a path.
    pub fn inside(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.directory()).map_or_else(|_| path.to_owned(), |rest| Path::new(START).join(rest))
    }

    /// A file without a name, for what the tool says and for netbox's events. Not of this folder: a file of what decides
    /// later runs cannot be handed to a command.
    fn file() -> io::Result<File> {
        tempfile::tempfile()
    }
}

fn read(mut file: File) -> String {
    let mut text = Vec::new();
    // What cannot be read says nothing.
    let _ = file.rewind().and_then(|()| file.take(MOST_BYTES).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// What came of it.
#[derive(Debug)]
pub struct Answer {
    /// What it was refused, as `host:port`, each once.
    pub refused: Vec<String>,
    /// What it printed.
    pub lines: Vec<String>,
    /// Whether it did what it was told.
    pub has_succeeded: bool,
}

/// Runs a tool.
///
/// # Errors
/// It cannot be run, or not in a sandbox.
pub fn ask(
    tool: &Tool,
    words: &[&str],
    environment: &[(String, OsString)],
    room: &Room,
    reachable: Reachable,
) -> Result<Answer, String> {
    let cannot = |error: io::Error| format!("`{}` cannot be asked: {error}", tool.name());
    let (output, errors, events) =
        (Room::file().map_err(cannot)?, Room::file().map_err(cannot)?, Room::file().map_err(cannot)?);
    // It is netbox that writes there; it hands the descriptor to no command.
    fcntl(&events, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| cannot(errno.into()))?;
    // Itself, whatever is at its path now.
    let mut netbox = Command::new("/proc/self/exe");
    netbox.args(["run", "--no-config", "--without-derived", "--quiet", "--summary", "never", "--timeout", PATIENCE]);
    match reachable {
        Reachable::Nothing => netbox.args(["--mode", "none"]),
        Reachable::These(hosts) => netbox.args(hosts.iter().flat_map(|host| ["--allow", host])),
    };
    netbox.arg("--events").arg(format!("fd:{}", events.as_raw_fd())).args(["--", "/bin/sh", "-c", SCRIPT, "sh"]);
    netbox.arg(room.directory()).arg(START).arg(&tool.path).args(words);
    netbox.env_clear().envs(environment.iter().map(|(name, value)| (name, value))).current_dir("/");
    netbox.stdin(Stdio::null());
    netbox.stdout(output.try_clone().map_err(cannot)?).stderr(errors.try_clone().map_err(cannot)?);
    netbox.status().map_err(cannot)?;
    let events = read(events);
    // Any exit code may be the tool's own.
    if !of_kind(&events, "start").any(|_| true) {
        let errors = read(errors);
        let why = errors.lines().find_map(|line| line.strip_prefix("netbox: error: ")).unwrap_or("netbox failed");
        return Err(format!("`{}` cannot be asked: {}", tool.name(), netbox_config::escaped(why.as_bytes())));
    }
    let lines = read(output).lines().map(str::to_owned).collect();
    let has_succeeded = of_kind(&events, "exit").any(|event| event["code"] == 0);
    Ok(Answer { refused: refused(&events), lines, has_succeeded })
}

fn of_kind<'e>(events: &'e str, kind: &'e str) -> impl Iterator<Item = Value> + 'e {
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(move |event| event["event"] == kind)
}

/// What was refused for want of a rule.
fn refused(events: &str) -> Vec<String> {
    let of_want = |event: &Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        event["verdict"] == "deny" && ["mode-none", "not-listed", "port-not-listed"].contains(&reason)
    };
    let hosts = of_kind(events, "decision")
        .filter(of_want)
        .filter_map(|event| Some(format!("{}:{}", event["host"].as_str()?, event["port"].as_u64()?)));
    hosts.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a program in it.
    fn program(folder: &Path) {
        fs::create_dir_all(folder).expect("own folder");
        fs::write(folder.join("npm"), "#!/bin/sh\n").expect("own folder");
        fs::set_permissions(folder.join("npm"), Permissions::from_mode(0o755)).expect("own folder");
    }

    #[test]
    fn a_tool_comes_from_where_nobody_else_has_a_hand() {
        let temporary = tempfile::tempdir().expect("a folder");
        let top = temporary.path().canonicalize().expect("own folder");
        let asked = |folder: &str| {
            let path = top.join(folder);
            let around = Around::in_folder(&top, &[("PATH", path.to_str().expect("text"))]);
            find(&["npm"], &around).map(|tool| tool.path)
        };
        for folder in ["bin", "project/bin", "project/node_modules/.bin", "project/deep/venv/bin", "open/bin", "linked"]
        {
            program(&top.join(folder));
        }
        symlink(top.join("project/bin"), top.join("link")).expect("own folder");
        fs::remove_file(top.join("linked/npm")).expect("own folder");
        symlink(top.join("project/bin/npm"), top.join("linked/npm")).expect("own folder");
        assert_eq!(asked("bin"), Some(top.join("bin/npm")));
        for folder in ["project/bin", "project/node_modules/.bin", "project/deep/venv/bin", "link", "linked"] {
            assert_eq!(asked(folder), None, "{folder}");
        }
        assert_eq!(asked("open/bin"), Some(top.join("open/bin/npm")));
        fs::set_permissions(top.join("open"), Permissions::from_mode(0o777)).expect("own folder");
        assert_eq!(asked("open/bin"), None, "anybody could put another `bin` there");
        fs::set_permissions(top.join("bin/npm"), Permissions::from_mode(0o777)).expect("own folder");
        assert_eq!(asked("bin"), None, "anybody could write the program");
    }
}
