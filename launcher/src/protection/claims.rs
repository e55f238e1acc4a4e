//! What a run has found under the names that decide later runs, told to the runs that start meanwhile.
//!
//! Theory of operation. For as long as a name means something else than it should, a run that starts would take that for what
//! it should mean, and would stand by it later. So each run binds, for each name that it watches, an abstract unix socket
//! (unix(7)) that says which user, which name in which directory and which inode. Such sockets belong to a network namespace: programs in a
//! sandbox see none of the host's and can make none there; and they are gone with their process, whatever it dies of. Who
//! starts binds its own and then looks at the others'. Where one of the same user says another inode for the same name, there
//! is no run; and there is none where a name means another thing by then, since whoever said so may have put it right and
//! be gone. Of two that start at the same moment, at least one sees the other.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket,
};
use nix::sys::stat::{lstat, stat};
use nix::unistd::geteuid;

use super::restore::is_in_place;
use super::watch::random;
use super::way::Name;
use crate::error::{At, Failure, Step};
use crate::inode::Inode;

/// All abstract sockets of this network namespace, among others (proc_net(5)). They begin with `@` there.
const SOCKETS: &str = "/proc/self/net/unix";

/// What a run says.
#[derive(Debug)]
pub(super) struct Claims {
    _sockets: Vec<OwnedFd>,
}

impl Claims {
    /// Says what these names mean. In the process that lives as long as the run.
    ///
    /// # Errors
    /// Another run of this user's says that one of them means something else; or it cannot be told.
    pub(super) fn make(names: &[Name]) -> Result<Self, Failure> {
        let step = Step::Protection;
        let user = geteuid().as_raw();
        let prefixes = names.iter().map(|name| prefix(user, name)).collect::<nix::Result<Vec<_>>>();
        let prefixes = prefixes.at(step, "a directory on the way")?;
        let said = names.iter().zip(&prefixes).map(|(name, prefix)| say(&format!("{prefix}{}", meaning(name))));
        let sockets = said.collect::<nix::Result<Vec<_>>>().at(step, "telling other runs")?;
        // Anybody may have bound a name that is no text.
        let others = fs::read(SOCKETS).at(step, SOCKETS)?;
        let others = String::from_utf8_lossy(&others);
        let mut said = names.iter().zip(&prefixes);
        let disputed = said.find(|(name, prefix)| is_disputed(&others, user, prefix, &meaning(name)));
        match disputed.map(|(name, _)| name).or_else(|| names.iter().find(|name| !is_in_place(name))) {
            None => Ok(Self { _sockets: sockets }),
            Some(name) => Err(Failure::outcome(step, account(&name.path))),
        }
    }
}

fn account(path: &Path) -> String {
    format!(
        "{} is not what another run of netbox has found there: something in that run has replaced it",
        path.display()
    )
}

/// The same for everything that this name of this user's might mean, in this mount namespace: in another one, a container's or
/// a service's with a home of its own, something else may be mounted there, and nobody has replaced it. It is the directory that
/// counts, and not its path; a directory that was replaced is found by its own name.
fn prefix(user: u32, name: &Name) -> nix::Result<String> {
    let directory = Inode::of(&lstat(name.path.parent().unwrap_or(&name.path))?);
    let mounts = Inode::of(&stat("/proc/self/ns/mnt")?);
    let place = format!("{:x}/{:x}.{:x}/", mounts.number, directory.device, directory.number);
    let bytes = place.as_bytes().iter().chain(name.path.file_name().unwrap_or_default().as_encoded_bytes());
    // FNV-1a: what counts is that every netbox comes to the same, and that the whole is no longer than such a name may be.
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    Ok(format!("netbox-name:{user}:{hash:016x}:"))
}

fn meaning(name: &Name) -> String {
    format!("{:x}.{:x}:", name.inode.device, name.inode.number)
}

/// Binds and listens: the kernel tells of a listener who it is.
fn say(text: &str) -> nix::Result<OwnedFd> {
    let own = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    loop {
        let address = UnixAddr::new_abstract(format!("{text}{:016x}", random()).as_bytes())?;
        match bind(own.as_raw_fd(), &address) {
            Err(Errno::EADDRINUSE) => {}
            bound => break bound?,
        }
    }
    listen(&own, Backlog::MAXCONN)?;
    Ok(own)
}

/// Whether somebody of this user says that a name with this prefix means something else.
fn is_disputed(sockets: &str, user: u32, prefix: &str, meaning: &str) -> bool {
    let names = sockets.lines().filter_map(|line| line.split_once(" @").map(|(_, name)| name));
    let others = names.filter(|name| name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with(meaning)));
    others.into_iter().any(|other| is_of(other, user))
}

/// Whether who listens there is this user. Who cannot be asked counts as such.
fn is_of(name: &str, user: u32) -> bool {
    let asked = || -> nix::Result<u32> {
        let own =
            socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        connect(own.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        Ok(getsockopt(&own, PeerCredentials)?.uid())
    };
    match asked() {
        Ok(uid) => uid == user,
        // It is gone.
        Err(Errno::ECONNREFUSED) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Protected;
    use super::*;

    #[test]
    fn a_name_that_means_two_things_is_disputed_while_the_first_lives() {
        let guard = tempfile::tempdir().unwrap();
        let home = guard.path().canonicalize().unwrap();
        let find = || Protected::directory(&home.join(".config/netbox"), 0o700).unwrap().pins;
        let before = find();
        let first = Claims::make(&before).unwrap();
        let same = Claims::make(&find()).unwrap();
        fs::rename(home.join(".config"), home.join("gone")).unwrap();
        let after = find();
        let refused = Claims::make(&after).unwrap_err().to_string();
        assert!(refused.contains(&format!("{}/.config is not what another run", home.display())), "{refused}");
        drop((first, same));
        assert!(Claims::make(&after).is_ok());
        // Who has found what was there before, or what is there no more, has found what it should not.
        assert!(Claims::make(&before).is_err());
        fs::rename(home.join(".config"), home.join("other")).unwrap();
        fs::rename(home.join("gone"), home.join(".config")).unwrap();
        assert!(Claims::make(&after).is_err());
        assert!(Claims::make(&before).is_ok());
    }

    #[test]
    fn what_another_user_says_does_not_count() {
        let (prefix, meaning) = (format!("netbox-name:test-{:x}:", random()), "1:2:");
        let _said = say(&format!("{prefix}3:4:")).unwrap();
        let sockets = fs::read_to_string(SOCKETS).unwrap();
        let own = geteuid().as_raw();
        assert!(is_disputed(&sockets, own, &prefix, meaning));
        assert!(!is_disputed(&sockets, own + 1, &prefix, meaning));
        assert!(!is_disputed(&sockets, own, &prefix, "3:4:"));
        assert!(!is_disputed(&sockets, own, "netbox-name:other:", meaning));
    }
}
