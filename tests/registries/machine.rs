//! The machine as the clients find it: an ordinary user, an empty home, and the configuration that says where this
//! machine's registries are.
//!
//! Root starts every client as the test user. A Rust toolchain in root's home is closed to that user: the test process
//! has a mount namespace of its own, in which the toolchain is also at `/mnt`, for reading alone. Nothing outside sees
//! that, and no clean-up can reach what is behind it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{User, getuid};
use tempfile::TempDir;

use crate::test_user::test_user;

/// Where the test user finds the Rust toolchain.
const TOOLCHAIN: &str = "/mnt";

/// Where programs are that every user may run.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that tell the clients of registries and of certificate authorities; in lower case, as npm takes both.
const CONFIGURATION: [&str; 13] = [
    "curl_ca_bundle",
    "lang",
    "node_extra_ca_certs",
    "npm_config_cafile",
    "npm_config_registry",
    "pip_cert",
    "pip_config_file",
    "pip_default_timeout",
    "pip_extra_index_url",
    "pip_index_url",
    "requests_ca_bundle",
    "ssl_cert_dir",
    "ssl_cert_file",
];

/// The same for cargo, whose variables have the names of registries in them.
const CARGO_CONFIGURATION: [&str; 5] =
    ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_DEFAULT", "CARGO_SOURCE_"];

/// Files in the home folder that do, cargo's apart.
const FILES: [&str; 3] = [".npmrc", ".config/pip/pip.conf", ".pip/pip.conf"];

/// As whom a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// An ordinary user: whoever runs the tests, or the test user where that is root.
    User,
    /// The machine's root.
    Root,
}

/// What every client gets.
#[derive(Debug)]
pub struct Machine {
    folder: TempDir,
    /// A copy of netbox in it: the folder that it was built in may be closed to the user.
    pub netbox: PathBuf,
    /// The user for `As::User`, where the tests run as root.
    user: Option<User>,
    path: OsString,
    environment: Vec<(OsString, OsString)>,
    files: Vec<(PathBuf, Vec<u8>)>,
    rooms: AtomicU32,
}

impl Machine {
    /// Copies netbox, opens the toolchain, and reads the caller's configuration; the process must be single-threaded.
    ///
    /// # Panics
    ///
    /// When a step fails.
    pub fn prepare(built: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("netbox-registries.")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let netbox = folder.path().join("netbox");
        fs::copy(built, &netbox).unwrap_or_else(|error| panic!("cannot copy `{}`: {error}", built.display()));
        let user = getuid().is_root().then(test_user);
        let path = if user.is_some() {
            open_toolchain();
            format!("{TOOLCHAIN}/bin:{SYSTEM_PATH}").into()
        } else {
            std::env::var_os("PATH").unwrap_or_else(|| SYSTEM_PATH.into())
        };
        let environment = std::env::vars_os().filter(|(name, _)| is_configuration(name)).collect();
        Self { folder, netbox, user, path, environment, files: configuration_files(), rooms: AtomicU32::new(0) }
    }

    /// The first of these programs that is nowhere in the clients' `PATH`.
    pub fn missing(&self, programs: &[&'static str]) -> Option<&'static str> {
        let is_there = |program: &&&'static str| std::env::split_paths(&self.path).any(|at| at.join(program).exists());
        programs.iter().find(|program| !is_there(program)).copied()
    }

    /// Whether a client can run as this.
    pub fn can_be(&self, who: As) -> bool {
        who == As::User || self.user.is_some()
    }

    /// A new folder of a client's own, to work in and with a home: it finds nothing that another one fetched.
    pub fn room(&self, who: As) -> Room {
        let number = self.rooms.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(number.to_string());
        let room = Room { home: folder.join("home"), work: folder.join("work"), events: folder.join("events") };
        for folder in [&room.home, &room.work] {
            fs::create_dir_all(folder).expect("own folder");
        }
        for (name, text) in &self.files {
            let file = room.home.join(name);
            fs::create_dir_all(file.parent().expect("a file in the home folder")).expect("own folder");
            fs::write(&file, text).expect("own folder");
            // Such a file may hold a password.
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("own file");
        }
        match (who, &self.user) {
            (As::User, Some(user)) => give(&folder, user),
            // apt fetches as a user of its own where that user may write.
            (As::Root, _) => {
                if let Some(user) = User::from_name("_apt").expect("the user database can be read") {
                    give(&room.work, &user);
                }
            }
            (As::User, None) => {}
        }
        room
    }

    /// A command in a room, as this user, with the configuration and nothing else of the caller's environment.
    pub fn command(&self, who: As, room: &Room, program: &OsStr) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]).arg(program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("PATH", &self.path).env("HOME", &room.home).env("CARGO_HOME", room.home.join(".cargo"));
        command.current_dir(&room.work).stdin(Stdio::null());
        if let (As::User, Some(user)) = (who, &self.user) {
            // This drops the supplementary groups as well.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

/// What one run of a client has for itself.
#[derive(Debug)]
pub struct Room {
    home: PathBuf,
    /// Where it starts.
    pub work: PathBuf,
    /// Where netbox writes events.
    pub events: PathBuf,
}

impl Room {
    /// Whether there is a file with this ending that is not empty, in the home or where it started.
    pub fn has(&self, extension: &str) -> bool {
        has(&self.home, extension) || has(&self.work, extension)
    }
}

fn has(folder: &Path, extension: &str) -> bool {
    fs::read_dir(folder).expect("own folder").map(|entry| entry.expect("own folder")).any(|entry| {
        let kind = entry.file_type().expect("own file");
        let path = entry.path();
        let is_it = path.extension().is_some_and(|is| is == extension);
        if kind.is_dir() { has(&path, extension) } else { is_it && entry.metadata().is_ok_and(|file| file.len() > 0) }
    })
}

/// Gives a folder, and all that is in it, to a user.
fn give(folder: &Path, user: &User) {
    chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root gives");
    if folder.is_dir() {
        for entry in fs::read_dir(folder).expect("own folder") {
            give(&entry.expect("own folder").path(), user);
        }
    }
}

fn open_toolchain() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(&rustc).args(["--print", "sysroot"]).output().expect("`rustc`");
    let sysroot = String::from_utf8_lossy(&asked.stdout);
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    let none = None::<&str>;
    let bind = |from: Option<&str>, to: &str, flags| mount(from, to, none, flags, none).expect("a mount");
    bind(None, "/", MsFlags::MS_PRIVATE | MsFlags::MS_REC);
    bind(Some(sysroot.trim_end()), TOOLCHAIN, MsFlags::MS_BIND);
    bind(None, TOOLCHAIN, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
}

fn is_configuration(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    CONFIGURATION.contains(&name.to_ascii_lowercase().as_str())
        || CARGO_CONFIGURATION.iter().any(|beginning| name.starts_with(beginning))
}

/// The caller's files of configuration, by the place in the home folder where their programs look for them.
fn configuration_files() -> Vec<(PathBuf, Vec<u8>)> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let files = FILES.iter().map(|file| (PathBuf::from(file), home.join(file)));
    let files = files.chain([(".cargo/config.toml".into(), cargo.join("config.toml"))]);
    files.filter_map(|(place, file)| Some((place, fs::read(file).ok()?))).collect()
}
