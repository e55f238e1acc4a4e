//! Netbox's part: the names are watched while the command runs, and put right at its end.
//!
//! A directory or link that is moved tells so itself (inotify(7)); so does a link that loses its name, and a directory
//! above tells of one that is removed, as an empty one can be. In the first quarter of a second, and where the kernel has no
//! watch left, the names are looked at every few milliseconds instead, at moments that nobody can foresee: the end of a watch
//! waits for the kernel for some 15 milliseconds, more than all else that a short run takes. At the first sign the sandbox is
//! killed. What is put right is put right when all of its processes are gone, so that nobody stands against it. What cannot be
//! is closed, so that later runs fail on it rather than believe it.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::Protected;
use super::claims::Claims;
use super::restore::{is_in_place, put_back, take_turns};
use super::way::{Kind, Name};
use crate::error::{At, Failure, Step};
use crate::sys;

/// How long it may be, before there is a watch, until the names are looked at again; at the most. Where there is none, that
/// is all there is.
const GLANCE: Duration = Duration::from_millis(8);
const RARE_GLANCE: Duration = Duration::from_millis(500);

/// When a run is no short one.
const BEGIN: Duration = Duration::from_millis(250);

/// A name that decides later runs, and that came to mean something else while the command ran.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The name.
    pub path: PathBuf,
    /// Whether it means again what it meant, and if something had taken its place, where that is now. Or the error number
    /// of the attempt.
    pub outcome: Result<Option<PathBuf>, i32>,
}

/// The watch over one run.
pub(crate) struct Watch {
    names: Arc<Vec<Name>>,
    /// To the end, when all of them are what they were.
    claims: Option<Claims>,
    /// Dropped, the thread ends. Nobody waits for it: what it could still do is to kill a sandbox that is gone, by a handle.
    thread: Option<PipeWriter>,
    is_finished: bool,
}

impl Watch {
    /// Begins to watch the directories and links. `sandbox` is killed when one is gone from its place.
    pub(crate) fn start(protected: &[Protected], sandbox: OwnedFd) -> Result<Self, Failure> {
        let names = protected.iter().flat_map(|protected| &protected.pins).filter(|name| name.kind != Kind::File);
        let mut names: Vec<Name> = names.cloned().collect();
        names.sort_by(|one, other| one.path.cmp(&other.path));
        names.dedup_by(|one, other| one.path == other.path);
        let claims = Claims::make(&names)?;
        let mut watch = Self::over(names, sandbox, watch, BEGIN)?;
        watch.claims = Some(claims);
        Ok(watch)
    }

    /// The same over these names. `inotify` is asked for a watch after `begin`.
    fn over(
        names: Vec<Name>,
        sandbox: OwnedFd,
        inotify: fn(&[Name]) -> nix::Result<Inotify>,
        begin: Duration,
    ) -> Result<Self, Failure> {
        let names = Arc::new(names);
        if names.is_empty() {
            return Ok(Self { names, thread: None, claims: None, is_finished: false });
        }
        let step = Step::Protection;
        let (end, stop) = io::pipe().at(step, "a pipe")?;
        let watched = Arc::clone(&names);
        let body = move || keep_watch(&watched, inotify, begin, &end, &sandbox);
        let thread = thread::Builder::new().name("watch".into()).stack_size(128 * 1024);
        thread.spawn(body).at(step, "a thread")?;
        Ok(Self { names, thread: Some(stop), claims: None, is_finished: false })
    }

    /// The sandbox is about to end: it need not be killed any more.
    pub(crate) fn stop(&mut self) {
        self.thread = None;
    }

    /// Puts right what is not as it was. When the sandbox is gone.
    pub(crate) fn finish(&mut self) -> Vec<Replaced> {
        self.stop();
        self.is_finished = true;
        let mut replaced: Vec<Replaced> = Vec::new();
        if !self.names.iter().all(is_in_place) {
            let _turn = take_turns();
            // From the outermost in: what is inside comes back with it, and stays closed where that is closed.
            for name in self.names.iter().filter(|name| !is_in_place(name)) {
                let is_below_closed = |one: &Replaced| one.outcome.is_err() && name.path.starts_with(&one.path);
                if replaced.iter().any(is_below_closed) {
                    continue;
                }
                let outcome = put_back(name).map_err(|error| error.raw_os_error().unwrap_or(libc::ENOTRECOVERABLE));
                replaced.push(Replaced { path: name.path.clone(), outcome });
            }
        }
        drop(self.claims.take());
        replaced
    }
}

impl Drop for Watch {
    /// After a fault, when nobody asks.
    fn drop(&mut self) {
        if !self.is_finished {
            self.finish();
        }
    }
}

fn watch(names: &[Name]) -> nix::Result<Inotify> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let is_last =
        |name: &Name| !names.iter().any(|other| other.path != name.path && other.path.starts_with(&name.path));
    let parents: BTreeSet<&Path> =
        names.iter().filter(|name| is_last(name)).filter_map(|name| name.path.parent()).collect();
    for name in names {
        let mut flags = AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
        // Its mode and times are not changed from inside, nor the number of its names but by a removal.
        flags.set(AddWatchFlags::IN_ATTRIB, is_last(name) || name.kind == Kind::Link);
        flags.set(AddWatchFlags::IN_DELETE, parents.contains(name.path.as_path()));
        inotify.add_watch(Path::new(&format!("/proc/self/fd/{}", name.handle.as_raw_fd())), flags)?;
    }
    for parent in parents.into_iter().filter(|parent| !names.iter().any(|name| name.path == *parent)) {
        inotify.add_watch(parent, AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR)?;
    }
    Ok(inotify)
}

/// The thread's life.
fn keep_watch(
    names: &[Name],
    inotify: fn(&[Name]) -> nix::Result<Inotify>,
    begin: Duration,
    end: &PipeReader,
    sandbox: &OwnedFd,
) {
    let begin = Instant::now() + begin;
    // Asked for once.
    let mut watch: Option<nix::Result<Inotify>> = None;
    loop {
        // What comes before it may have been missed, and is looked for below.
        if watch.is_none() && Instant::now() >= begin {
            watch = Some(inotify(names));
        }
        let watching = watch.as_ref().and_then(|watch| watch.as_ref().ok());
        if let Some(inotify) = watching {
            // What they say does not matter, nor how many were lost: now something may have changed.
            while inotify.read_events().is_ok() {}
        }
        if !names.iter().all(is_in_place) {
            let _ = sys::process::kill(sandbox);
            return;
        }
        let patience = match (&watch, watching) {
            (_, Some(_)) => None,
            (None, _) => Some(some_part_of(GLANCE).min(begin.saturating_duration_since(Instant::now()))),
            (Some(_), None) => Some(RARE_GLANCE),
        };
        // Half a second is no more than that type can hold.
        let patience =
            patience.map_or(PollTimeout::NONE, |time| PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
        let descriptors = [Some(end.as_fd()), watching.map(AsFd::as_fd)];
        let mut polled: Vec<_> =
            descriptors.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Interrupted or not, what counts is what is there.
        let _ = poll(&mut polled, patience);
        if polled.first().and_then(PollFd::revents).is_some_and(|events| !events.is_empty()) {
            return;
        }
    }
}

/// Some time up to this one, which cannot be foreseen, of a millisecond at least.
fn some_part_of(time: Duration) -> Duration {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(1 + random() % milliseconds)
}

pub(super) fn random() -> u64 {
    // Each one is seeded by the kernel or follows from one that is, and nobody sees what comes of it.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process;
    use nix::errno::Errno;
    use nix::fcntl::{OFlag, open, openat, renameat};
    use nix::sys::stat::{Mode, mkdirat};
    use nix::unistd::Pid;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    struct Scene {
        _guard: tempfile::TempDir,
        home: PathBuf,
        sandbox: Child,
        watch: Watch,
    }

    /// A watch over `home/.config/netbox`, and a program in the place of the sandbox.
    fn scene(file: Option<&str>, inotify: bool) -> Scene {
        let guard = tempfile::tempdir().unwrap();
        let home = guard.path().canonicalize().unwrap();
        let protected = [Protected::directory(&home.join(".config/netbox"), 0o700).unwrap()];
        if let Some(file) = file {
            fs::write(home.join(".config/netbox").join(file), "mine").unwrap();
        }
        let sandbox = Command::new("sleep").arg("1000").spawn().unwrap();
        let handle = process::open(Pid::from_raw(sandbox.id() as i32)).unwrap();
        let names = protected[0].pins.clone();
        let none = |_: &[Name]| Err(Errno::EMFILE);
        let watch = Watch::over(names, handle, if inotify { watch } else { none }, Duration::ZERO).unwrap();
        Scene { _guard: guard, home, sandbox, watch }
    }

    impl Scene {
        /// Waits for the end of the sandbox. What was put right, by its path in the home folder, and where the other is.
        fn end(&mut self) -> Vec<(String, Option<String>)> {
            assert_eq!(self.sandbox.wait().unwrap().signal(), Some(libc::SIGKILL));
            let home = &self.home;
            let short = |path: PathBuf| path.strip_prefix(home).unwrap().display().to_string();
            let replaced = self.watch.finish();
            replaced.into_iter().map(|one| (short(one.path), one.outcome.unwrap().map(short))).collect()
        }

        fn is_whole(&self) -> bool {
            self.watch.names.iter().all(is_in_place)
        }
    }

    #[test]
    fn a_directory_that_is_moved_ends_the_sandbox_and_comes_back() {
        for inotify in [true, false] {
            let mut scene = scene(Some("config.toml"), inotify);
            let at = |name: &str| scene.home.join(name);
            fs::rename(at(".config"), at("gone")).unwrap();
            fs::create_dir_all(at(".config/netbox")).unwrap();
            assert_eq!(scene.end(), [(".config".to_owned(), Some(".config.replaced-1".to_owned()))]);
            assert!(scene.is_whole() && !scene.home.join("gone").exists());
            assert_eq!(fs::read_to_string(scene.home.join(".config/netbox/config.toml")).unwrap(), "mine");
        }
    }

    #[test]
    fn closed_directories_and_taken_names_keep_nothing_from_coming_back() {
        for are_taken in [false, true] {
            let mut scene = scene(Some("config.toml"), true);
            let at = |name: &str| scene.home.join(name);
            for number in (1..100).filter(|_| are_taken) {
                fs::write(at(&format!(".config.replaced-{number}")), "").unwrap();
            }
            fs::rename(at(".config"), at("gone")).unwrap();
            fs::create_dir_all(at(".config/netbox")).unwrap();
            fs::write(at(".config/netbox/config.toml"), "evil").unwrap();
            for closed in [".config/netbox", ".config", "gone", ""] {
                fs::set_permissions(at(closed), fs::Permissions::from_mode(0o555)).unwrap();
            }
            assert_eq!(scene.sandbox.wait().unwrap().signal(), Some(libc::SIGKILL));
            let replaced = scene.watch.finish();
            let aside = replaced[0].outcome.clone().unwrap().unwrap();
            assert!(replaced.len() == 1 && aside.join("netbox/config.toml").exists(), "{replaced:?}");
            assert!(scene.is_whole());
            assert_eq!(fs::read_to_string(scene.home.join(".config/netbox/config.toml")).unwrap(), "mine");
            fs::set_permissions(aside, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn a_directory_that_has_moved_into_what_took_its_place_comes_back() {
        let mut scene = scene(Some("config.toml"), true);
        let at = |name: &str| scene.home.join(name);
        fs::rename(at(".config"), at("gone")).unwrap();
        fs::create_dir_all(at(".config/netbox")).unwrap();
        fs::rename(at("gone"), at(".config/inside")).unwrap();
        assert_eq!(scene.end(), [(".config".to_owned(), Some(".config.replaced-1".to_owned()))]);
        assert!(scene.is_whole());
    }

    #[test]
    fn a_directory_that_is_hidden_is_found_or_nothing_runs_without_it() {
        // Behind a closed directory, and at the end of a path that is too long to be told.
        for depth in [1, 20] {
            let mut scene = scene(Some("config.toml"), true);
            let mut place = open_directory(&scene.home);
            for _ in 0..depth {
                let name = "x".repeat(250);
                mkdirat(&place, name.as_str(), Mode::S_IRWXU).unwrap();
                place = openat(&place, name.as_str(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
            }
            let configuration = open_directory(&scene.home.join(".config"));
            renameat(&configuration, "netbox", &place, "hidden").unwrap();
            nix::sys::stat::fchmod(&place, Mode::empty()).unwrap();
            assert_eq!(scene.sandbox.wait().unwrap().signal(), Some(libc::SIGKILL));
            let replaced = scene.watch.finish();
            let path = scene.home.join(".config/netbox");
            assert_eq!(replaced.len(), 1);
            if depth == 1 {
                assert_eq!(replaced[0].outcome, Ok(None));
                assert_eq!(fs::read_to_string(path.join("config.toml")).unwrap(), "mine");
            } else {
                assert!(replaced[0].outcome.is_err());
                assert!(fs::metadata(path).unwrap().is_file(), "later runs fail on it");
            }
        }
    }

    fn open_directory(path: &Path) -> OwnedFd {
        open(path, OFlag::O_DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn an_empty_directory_that_is_removed_is_made_again() {
        let mut scene = scene(None, true);
        fs::remove_dir(scene.home.join(".config/netbox")).unwrap();
        assert_eq!(scene.end(), [(".config/netbox".to_owned(), None)]);
        let metadata = fs::metadata(scene.home.join(".config/netbox")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777, 0o700);
    }

    #[test]
    fn an_empty_directory_that_another_is_moved_over_is_made_again() {
        let mut scene = scene(None, true);
        let at = |name: &str| scene.home.join(name);
        fs::create_dir(at("evil")).unwrap();
        fs::write(at("evil/config.toml"), "evil").unwrap();
        fs::rename(at("evil"), at(".config/netbox")).unwrap();
        assert_eq!(scene.end(), [(".config/netbox".to_owned(), Some(".config/netbox.replaced-1".to_owned()))]);
        assert_eq!(fs::read_dir(scene.home.join(".config/netbox")).unwrap().count(), 0);
    }

    #[test]
    fn a_link_that_is_replaced_is_made_again() {
        let guard = tempfile::tempdir().unwrap();
        let home = guard.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("dotfiles/netbox")).unwrap();
        symlink("dotfiles", home.join(".config")).unwrap();
        let protected = [Protected::directory(&home.join(".config/netbox"), 0o700).unwrap()];
        let sandbox = Command::new("sleep").arg("1000").spawn().unwrap();
        let handle = process::open(Pid::from_raw(sandbox.id() as i32)).unwrap();
        let watch = Watch::over(protected[0].pins.clone(), handle, watch, Duration::ZERO).unwrap();
        let mut scene = Scene { _guard: guard, home, sandbox, watch };
        symlink("/tmp", scene.home.join("evil")).unwrap();
        fs::rename(scene.home.join("evil"), scene.home.join(".config")).unwrap();
        assert_eq!(scene.end(), [(".config".to_owned(), Some(".config.replaced-1".to_owned()))]);
        assert_eq!(fs::read_link(scene.home.join(".config")).unwrap(), Path::new("dotfiles"));
    }

    #[test]
    fn what_happens_in_the_directories_is_no_sign() {
        let mut scene = scene(Some("config.toml"), true);
        let at = |name: &str| scene.home.join(name);
        for name in [".config/other", ".config/netbox/new", "other"] {
            fs::write(at(name), "").unwrap();
            fs::remove_file(at(name)).unwrap();
        }
        fs::rename(at(".config/netbox/config.toml"), at(".config/netbox/renamed")).unwrap();
        assert!(scene.watch.finish().is_empty());
        assert!(scene.sandbox.try_wait().unwrap().is_none(), "it lives");
        scene.sandbox.kill().unwrap();
        scene.sandbox.wait().unwrap();
    }
}
