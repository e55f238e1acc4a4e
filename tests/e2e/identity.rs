//! As whom the tests run: as an ordinary user, unless `NETBOX_E2E_AS=root` says otherwise.
//!
//! The tests of a tool for ordinary users prove nothing when they run as root, and a build often does. So a root
//! process gives itself up, for good, before it does anything else.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, User, getuid, setgroups, setresgid, setresuid};
use tempfile::TempDir;

use crate::system_files;
use crate::test_user::test_user;

/// Who runs the tests, and where.
#[derive(Debug)]
pub struct Identity {
    /// The user and group that programs under test have.
    pub uid: Uid,
    /// See `uid`.
    pub gid: Gid,
    /// Whether that is the machine's real root.
    pub real_root: bool,
    /// Whether there are system files (`system_files`).
    pub has_system_files: bool,
    /// A folder of the run's own, which every user can read.
    pub folder: TempDir,
    /// A copy of netbox in it: the folder that it was built in may be closed to the user.
    pub netbox: PathBuf,
    /// The folder with the programs of the toolchain that built the tests.
    pub toolchain: Option<PathBuf>,
}

impl Identity {
    /// Makes the folder, copies netbox there and drops to the test user; the process must be single-threaded.
    ///
    /// # Panics
    ///
    /// When a step fails: going on as root would test something else.
    pub fn assume(built: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("netbox-e2e.")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let netbox = folder.path().join("netbox");
        fs::copy(built, &netbox).unwrap_or_else(|error| panic!("cannot copy `{}`: {error}", built.display()));
        let real_root = getuid().is_root() && std::env::var("NETBOX_E2E_AS").is_ok_and(|who| who == "root");
        // Before the system files: with them `/etc` is read-only.
        let user = (getuid().is_root() && !real_root).then(test_user);
        let has_system_files = getuid().is_root() && {
            let made = system_files::make();
            if let Err(why) = &made {
                eprintln!("there are no system policy files, and no tests of these: {why}");
            }
            made.is_ok()
        };
        let mut toolchain = toolchain();
        if let Some(user) = user {
            toolchain = toolchain.map(|toolchain| lend(&toolchain));
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("own folder");
            become_user(&user);
        }
        std::env::set_current_dir(folder.path()).expect("own folder");
        let (uid, gid) = (getuid(), nix::unistd::getgid());
        let toolchain = toolchain.map(|toolchain| toolchain.join("bin"));
        Self { uid, gid, real_root, has_system_files, folder, netbox, toolchain }
    }
}

/// Where cargo is, which started the tests, with the compiler beside it.
fn toolchain() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").map(PathBuf::from)?;
    Some(cargo.parent()?.parent()?.to_owned())
}

/// Mounts the toolchain where the test user may go, which root's home is not; for this process and what it starts.
fn lend(toolchain: &Path) -> PathBuf {
    // Somewhere that exists and that no test looks at. `system_files` has another such place.
    const PLACE: &str = "/media";
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace, as root");
    let change = |source: Option<&Path>, place: &str, flags| mount(source, place, None::<&str>, flags, None::<&str>);
    change(None, "/", MsFlags::MS_REC | MsFlags::MS_PRIVATE).expect("private mounts");
    change(Some(toolchain), PLACE, MsFlags::MS_BIND).expect("the toolchain, where everybody may go");
    change(None, PLACE, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY).expect("read-only");
    PLACE.into()
}

fn become_user(user: &User) {
    setgroups(&[]).expect("no supplementary groups");
    setresgid(user.gid, user.gid, user.gid).expect("the test user's group");
    setresuid(user.uid, user.uid, user.uid).expect("the test user");
    // A process that changed its user is not dumpable, and /proc/self then belongs to root: it could not write the
    // maps of its own user namespace.
    nix::sys::prctl::set_dumpable(true).expect("dumpable");
    assert!(setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_err(), "still root");
}
