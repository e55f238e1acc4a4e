//! Who is who in the sandbox's user namespaces (user_namespaces(7)).
//!
//! A user keeps their own uid and gid and has no other. Root keeps every id that is mapped where netbox runs, so that
//! programs such as apt can change to their own users. In both user namespaces every id means what it means outside.

use std::fs;
use std::path::Path;

use nix::unistd::{Pid, getegid, geteuid};

use crate::error::{At, Failure, Step};

/// Whether netbox runs as root, be it of the machine or of a user namespace.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Maps the ids of a new user namespace, whose first process is `child`, from the namespace of the caller.
pub(crate) fn write_outer(child: Pid) -> Result<(), Failure> {
    // In the `/proc` of another pid namespace the child's number is somebody else's.
    let own = fs::read_link("/proc/self").at(Step::IdMaps, "`/proc/self`")?;
    if own.as_os_str() != std::process::id().to_string().as_str() {
        return Err(Failure::outcome(Step::IdMaps, "`/proc` belongs to another pid namespace"));
    }
    let directory = Path::new("/proc").join(child.to_string());
    if is_root() {
        return write_all(&directory, Step::IdMaps);
    }
    // Without it the kernel does not let an unprivileged user map a group: leaving a group could gain access.
    write(&directory, "setgroups", "deny", Step::IdMaps)?;
    write(&directory, "uid_map", &format!("{0} {0} 1", geteuid()), Step::IdMaps)?;
    write(&directory, "gid_map", &format!("{0} {0} 1", getegid()), Step::IdMaps)
}

/// Maps every id of the caller's user namespace into the nested one of the process with this directory in `/proc`.
pub(crate) fn write_nested(directory: &Path) -> Result<(), Failure> {
    write_all(directory, Step::NestedUserNamespace)
}

fn write_all(directory: &Path, step: Step) -> Result<(), Failure> {
    for name in ["uid_map", "gid_map"] {
        let own = fs::read_to_string(Path::new("/proc/self").join(name)).at(step, name)?;
        write(directory, name, &identity(&own), step)?;
    }
    Ok(())
}

/// The map that maps each id of `own` (lines of "inside outside count") to itself.
fn identity(own: &str) -> String {
    let mut map = String::new();
    for line in own.lines() {
        let mut words = line.split_whitespace();
        if let (Some(inside), Some(_), Some(count)) = (words.next(), words.next(), words.next()) {
            map.push_str(&format!("{inside} {inside} {count}\n"));
        }
    }
    map
}

fn write(directory: &Path, name: &str, text: &str, step: Step) -> Result<(), Failure> {
    fs::write(directory.join(name), text).at(step, name)
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn every_id_is_mapped_to_itself() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
        assert_eq!(identity(""), "");
    }
}
