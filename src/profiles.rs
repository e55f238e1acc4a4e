//! Profiles that netbox needs in some places, and brings: AppArmor's, where that takes the capabilities of user namespaces
//! from programs without one, and a seccomp profile for containers.

use std::path::Path;

/// AppArmor's, as it is installed.
pub const APPARMOR: &str = include_str!("../packaging/apparmor/netbox");
/// For a container engine.
pub const SECCOMP: &str = include_str!("../packaging/container/seccomp.json");

/// Where AppArmor's takes netbox to be: no user can put another program there.
const PLACES: [&str; 2] = ["/usr/bin/netbox", "/usr/local/bin/netbox"];

/// What root does to install AppArmor's, for netbox at this path.
pub fn how_to_install(own: &Path) -> String {
    let is_in_place = PLACES.iter().any(|place| own == Path::new(place));
    let own = netbox_config::quote(own.as_os_str().as_encoded_bytes()).to_string();
    let own = own.trim_matches('`');
    let place = if is_in_place { own } else { PLACES[1] };
    let mut commands = format!(
        "`{place} doctor --apparmor-profile | sudo tee /etc/apparmor.d/netbox`, then `sudo apparmor_parser --replace \
         /etc/apparmor.d/netbox`"
    );
    if !is_in_place {
        commands.insert_str(0, &format!("`sudo install -m 755 {own} {place}`, then "));
    }
    format!(
        "AppArmor takes the capabilities of user namespaces from programs that have no profile here \
         (`kernel.apparmor_restrict_unprivileged_userns`). Give netbox its own: {commands}; and run `{place}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_for_the_places_that_are_roots_alone() {
        let head = APPARMOR.lines().find(|line| line.starts_with("profile netbox ")).expect("it is there");
        assert!(head.starts_with("profile netbox /usr/{,local/}bin/netbox "), "{head}");
        assert_eq!(APPARMOR.matches("\n  userns,").count(), 2);
        assert_eq!(APPARMOR.matches("\n  deny capability,").count(), 1, "for the command");
    }

    #[test]
    fn netbox_is_put_into_its_place_first() {
        let elsewhere = how_to_install(Path::new("/home/a/netbox"));
        assert!(
            elsewhere.contains(": `sudo install -m 755 /home/a/netbox /usr/local/bin/netbox`, then "),
            "{elsewhere}"
        );
        let there = how_to_install(Path::new("/usr/bin/netbox"));
        assert!(there.contains(": `/usr/bin/netbox doctor --apparmor-profile | sudo tee"), "{there}");
    }
}
