//! System files, which root alone can make. So they are made before the tests give root up, on a file system of their own:
//! policy files, each in a folder that a test can have as its `/etc/netbox`, and whole `/etc`s.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Somewhere that exists and that no test looks at, nor mounts anything over as `/mnt` is.
const PLACE: &str = "/srv";

/// Where a test finds its own.
pub const TARGET: &std::ffi::CStr = c"/etc/netbox";

/// Each by its name: content, mode and owner.
const FILES: [(&str, &str, u32, u32); 6] = [
    (
        "bounds",
        "deny = [\"system-denied.example.com\"]\nceiling = [\".example.com\"]\nmode = \"allowlist\"\n",
        0o644,
        0,
    ),
    ("allows", "allow = [\"system-allowed.example.com\"]\n[preset.corp]\nallow = [\"corp.example.com\"]\n", 0o644, 0),
    ("broken", "alow = []\n", 0o644, 0),
    ("open", "", 0o666, 0),
    ("closed", "", 0o600, 0),
    ("foreign", "", 0o644, 12_345),
];

/// Folders that a test can have as its `/etc`, with the least that there is, and what `resolv.conf` is in them: nothing, or a
/// link to this.
const ETC: [(&str, Option<&str>); 3] = [
    ("etc-without-resolver", None),
    ("etc-with-a-link", Some("../run/resolver/resolv.conf")),
    ("etc-with-a-dangling-link", Some("../run/nothing/resolv.conf")),
];

/// Makes them; the process must be single-threaded, and root.
///
/// # Errors
/// What this machine does not let root do: the tests of these files are then skipped.
pub fn make() -> Result<(), String> {
    let error = |what: &'static str| move |error: nix::Error| format!("{what}: {error}");
    unshare(CloneFlags::CLONE_NEWNS).map_err(error("a mount namespace"))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(error("private mounts"))?;
    mount(Some("tmpfs"), PLACE, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).map_err(error("a tmpfs"))?;
    let place = Path::new(PLACE);
    for (name, text, mode, owner) in FILES {
        let folder = place.join(name);
        let file = folder.join("config.toml");
        fs::create_dir(&folder)
            .and_then(|()| fs::write(&file, text))
            .and_then(|()| fs::set_permissions(&file, Permissions::from_mode(mode)))
            .and_then(|()| chown(&file, Some(owner), Some(owner)))
            .map_err(|error| format!("`{}`: {error}", file.display()))?;
    }
    for (name, resolver) in ETC {
        let folder = place.join(name);
        let copied = |file| fs::copy(Path::new("/etc").join(file), folder.join(file)).map(drop);
        fs::create_dir(&folder)
            .and_then(|()| ["passwd", "group", "hosts", "nsswitch.conf"].into_iter().try_for_each(copied))
            .and_then(|()| resolver.map_or(Ok(()), |link| symlink(link, folder.join("resolv.conf"))))
            .map_err(|error| format!("`{}`: {error}", folder.display()))?;
    }
    fs::create_dir(place.join("linked"))
        .and_then(|()| symlink("/srv/bounds/config.toml", place.join("linked/config.toml")))
        .and_then(|()| fs::create_dir_all(place.join("etc/netbox")))
        .map_err(|error| format!("`{PLACE}`: {error}"))?;
    // The machine's own `/etc`, with an empty `netbox` in it.
    mount(Some("overlay"), "/etc", Some("overlay"), MsFlags::MS_RDONLY, Some("lowerdir=/srv/etc:/etc"))
        .map_err(error("an overlay over `/etc`"))
}

/// The folder with the file of this name.
pub fn folder(name: &str) -> CString {
    CString::new(format!("{PLACE}/{name}")).expect("a name without zero bytes")
}
