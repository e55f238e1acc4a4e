//! The user as whom a root process runs programs under test. The tests against real registries have it too.

use std::process::Command;

use nix::unistd::User;

/// It owns nothing.
const TEST_USER: &str = "netbox-test";

/// Finds the test user, or makes it; another test process may be making it at the same time.
///
/// # Panics
///
/// When it can be neither found nor made.
pub fn test_user() -> User {
    let find = || User::from_name(TEST_USER).expect("the user database can be read");
    find()
        .or_else(|| {
            let useradd = Command::new("useradd")
                .args(["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", TEST_USER])
                .output()
                .expect("`useradd` (package passwd)");
            let made = find();
            assert!(made.is_some(), "`useradd` failed: {}", String::from_utf8_lossy(&useradd.stderr));
            made
        })
        .expect("found or made")
}
