//! The programs that the tests run inside: real clients where there are some, and a few small ones of the tests' own,
//! each in the language whose library it is there to show.

use std::fs;

use crate::world::World;

/// A program that has to be on the machine.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What is looked for in `PATH`.
    pub name: &'static str,
    /// Debian's package that brings it.
    pub package: &'static str,
}

/// See `Program`.
pub const CURL: Program = Program { name: "curl", package: "curl" };
/// See `Program`.
pub const GIT: Program = Program { name: "git", package: "git" };
/// See `Program`.
pub const SSH: Program = Program { name: "ssh", package: "openssh-client" };
/// See `Program`.
pub const NODE: Program = Program { name: "node", package: "nodejs" };
/// See `Program`.
pub const JAVA: Program = Program { name: "java", package: "default-jdk-headless" };
/// Looks at units; it needs no systemd that runs.
pub const SYSTEMD_ANALYZE: Program = Program { name: "systemd-analyze", package: "systemd" };
/// Comes with Java.
pub const KEYTOOL: Program = Program { name: "keytool", package: "default-jdk-headless" };
/// See `Program`.
pub const PYTHON: Program = Program { name: "python3", package: "python3" };

/// See `Program`.
pub const PIP: Program = Program { name: "pip3", package: "python3-pip" };
/// See `Program`.
pub const SSH_AGENT: Program = Program { name: "ssh-agent", package: "openssh-client" };
/// See `Program`.
pub const PRLIMIT: Program = Program { name: "prlimit", package: "util-linux" };
/// The terminal multiplexer.
pub const TMUX: Program = Program { name: "tmux", package: "tmux" };
/// See `Program`.
pub const BWRAP: Program = Program { name: "bwrap", package: "bubblewrap" };
/// See `Program`.
pub const CHROMIUM: Program = Program { name: "chromium", package: "chromium" };
/// See `Program`.
pub const GO: Program = Program { name: "go", package: "golang-go" };
/// See `Program`. That of the toolchain which builds the tests.
pub const CARGO: Program = Program { name: "cargo", package: "cargo" };
/// See `Program`.
pub const CC: Program = Program { name: "cc", package: "gcc" };
/// See `Program`.
pub const MAKE: Program = Program { name: "make", package: "make" };
/// See `Program`.
pub const NPM: Program = Program { name: "npm", package: "npm" };
/// See `Program`.
pub const VIM: Program = Program { name: "vim", package: "vim" };
/// See `Program`.
pub const LESS: Program = Program { name: "less", package: "less" };
/// See `Program`.
pub const TOP: Program = Program { name: "top", package: "procps" };
/// See `Program`.
pub const SUDO: Program = Program { name: "sudo", package: "sudo" };
/// See `Program`.
pub const STRACE: Program = Program { name: "strace", package: "strace" };
/// See `Program`.
pub const GPG: Program = Program { name: "gpg", package: "gnupg" };
/// See `Program`.
pub const BASH: Program = Program { name: "bash", package: "bash" };
/// See `Program`.
pub const SCRIPT: Program = Program { name: "script", package: "bsdutils" };
/// See `Program`.
pub const UNSHARE: Program = Program { name: "unshare", package: "util-linux" };

/// See `Program`.
pub const APPARMOR_PARSER: Program = Program { name: "apparmor_parser", package: "apparmor" };
/// With `dpkg-deb`.
pub const DPKG: Program = Program { name: "dpkg", package: "dpkg" };
/// See `Program`.
pub const SU: Program = Program { name: "su", package: "util-linux" };
/// See `Program`.
pub const SETPRIV: Program = Program { name: "setpriv", package: "util-linux" };

const OWN: &[(&str, &str)] = &[
    ("probe.py", include_str!("programs/probe.py")),
    ("fetch.py", include_str!("programs/fetch.py")),
    ("late.py", include_str!("programs/late.py")),
    ("rename.py", include_str!("programs/rename.py")),
    ("wheel.py", include_str!("programs/wheel.py")),
    ("serve.py", include_str!("programs/serve.py")),
    ("fast_open.py", include_str!("programs/fast_open.py")),
    ("container.py", include_str!("programs/container.py")),
    ("unix.py", include_str!("programs/unix.py")),
    ("own_unix.py", include_str!("programs/own_unix.py")),
    ("fetch.mjs", include_str!("programs/fetch.mjs")),
    ("tunnel.mjs", include_str!("programs/tunnel.mjs")),
    ("Fetch.java", include_str!("programs/Fetch.java")),
    ("supervise.py", include_str!("programs/supervise.py")),
    ("work/parallel.mjs", include_str!("programs/work/parallel.mjs")),
    ("work/parallel.py", include_str!("programs/work/parallel.py")),
    ("work/Sockets.java", include_str!("programs/work/Sockets.java")),
    ("work/client.go", include_str!("programs/work/client.go")),
    ("escape/calls.py", include_str!("programs/escape/calls.py")),
    ("escape/stand_in.py", include_str!("programs/escape/stand_in.py")),
    ("escape/continuing.py", include_str!("programs/escape/continuing.py")),
    ("escape/sockets.py", include_str!("programs/escape/sockets.py")),
    ("escape/descriptors.py", include_str!("programs/escape/descriptors.py")),
    ("escape/processes.py", include_str!("programs/escape/processes.py")),
    ("escape/kernel.py", include_str!("programs/escape/kernel.py")),
    ("escape/mounts.py", include_str!("programs/escape/mounts.py")),
];

/// Writes the tests' own programs into the world's folder.
pub fn write(world: &World) {
    for folder in ["escape", "work"] {
        fs::create_dir_all(world.path("programs").join(folder)).expect("own folder");
    }
    for (name, text) in OWN {
        fs::write(world.path("programs").join(name), text).expect("own folder");
    }
}

/// The words that run one of the tests' own programs, by the program that interprets it.
pub fn own(world: &World, interpreter: &str, program: &str, arguments: &[&str]) -> Vec<String> {
    let path = world.path("programs").join(program).to_string_lossy().into_owned();
    let own = [interpreter.to_owned(), path];
    own.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect()
}

/// `python3 probe.py …`.
pub fn probe(world: &World, arguments: &[&str]) -> Vec<String> {
    own(world, PYTHON.name, "probe.py", arguments)
}

/// `curl` that says nothing but what it got and why it failed, and takes half a minute at most.
pub fn curl<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["curl", "--silent", "--show-error", "--max-time", "30"], arguments].concat()
}

impl Program {
    /// Whether the program is there, for the user as whom the tests run.
    pub fn is_installed(&self, path: &std::ffi::OsStr) -> bool {
        std::env::split_paths(path).any(|folder| {
            let program = folder.join(self.name);
            nix::unistd::access(&program, nix::unistd::AccessFlags::X_OK).is_ok()
        })
    }
}
