//! As the machine's real root: what installs packages and gives privileges up works as without netbox, and what root's files can
//! do outside is said. What root cannot do inside is in `escape::root`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use super::programs::greeting;
use crate::programs::{CURL, DPKG, SETPRIV, SU};
use crate::tests;
use crate::world::World;

tests![of root:
    files_get_owners_and_modes needs [],
    a_package_is_built_installed_and_removed needs [DPKG],
    another_user_is_become_and_reaches_what_is_allowed needs [SU, SETPRIV, CURL],
    who_became_another_user_has_that_users_rights needs [SETPRIV],
    the_hosts_network_stays_as_it_is needs [],
    root_without_capabilities_is_told_which_it_takes needs [SETPRIV, CURL],
    what_roots_files_can_do_is_said_on_every_run needs [],
];

/// The user that owns nothing.
const NOBODY: &str = "65534";

fn folder(world: &World) -> PathBuf {
    let folder = world.fresh_path("home");
    fs::create_dir(&folder).expect("own folder");
    folder
}

fn files_get_owners_and_modes(world: &World) {
    let folder = folder(world);
    let script = "
        set -e
        echo text >file; chown 65534:12345 file; chmod 4750 file; stat -c '%u %g %a' file
        mkdir tree; touch tree/one; chown -R 12345 tree; stat -c '%u' tree/one
        install -o 65534 -g 65534 -m 600 file secret; cat secret; rm -r file tree secret
    ";
    for run in [world.bare(), world.netbox(&["--mode", "none"])] {
        let outcome = run.folder(&folder).exec(&["sh", "-c", script]);
        assert_eq!(outcome.exits_with(0).stdout(), "65534 12345 4750\n12345\ntext\n", "{outcome}");
    }
    // Outside it is seen as well.
    world.netbox(&["--mode", "none"]).folder(&folder).exec(&["sh", "-c", "touch one; chown 65534 one"]).exits_with(0);
    assert_eq!(fs::metadata(folder.join("one")).expect("it was made").uid(), 65534);
}

/// With the scripts that packages bring along, and files of several owners, into a root folder of the test's own.
fn a_package_is_built_installed_and_removed(world: &World) {
    let script = r#"
        set -e
        mkdir -p package/DEBIAN package/usr/share/of-the-tests root admin/info admin/updates admin/triggers
        touch admin/status admin/available
        printf 'Package: of-the-tests\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: for tests\n' \
            >package/DEBIAN/control
        printf '#!/bin/sh\necho configured >"$DPKG_ROOT/configured"\nchown 65534 "$DPKG_ROOT/configured"\n' >package/DEBIAN/postinst
        chmod 755 package/DEBIAN/postinst
        echo text >package/usr/share/of-the-tests/file; chown 12345 package/usr/share/of-the-tests/file
        dpkg-deb --build package it.deb
        dpkg() { command dpkg --admindir="$PWD/admin" --instdir="$PWD/root" --force-script-chrootless --log=/dev/null "$@"; }
        dpkg -i it.deb
        stat -c '%u' root/configured root/usr/share/of-the-tests/file
        dpkg --purge of-the-tests
        test ! -e root/usr/share/of-the-tests && echo removed
    "#;
    for run in [world.bare(), world.netbox(&["--mode", "none"])] {
        let outcome = run.folder(&folder(world)).exec(&["sh", "-c", script]);
        outcome.exits_with(0).says("65534\n12345\n").says("removed\n");
    }
}

fn another_user_is_become_and_reaches_what_is_allowed(world: &World) {
    let (listed, other) = (world.zone().host("as-another"), world.zone().host("as-another-other"));
    let flags = ["--allow", &*listed.name];
    let fetch = format!("id -u; curl -sS --max-time 30 {} {}", listed.http("/"), other.http("/"));
    let become_nobody: [&[&str]; 2] = [
        &["su", "nobody", "-s", "/bin/sh", "-c"],
        &["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh", "-c"],
    ];
    let mark = world.mark();
    for words in become_nobody {
        let words = [words, &[&*fetch]].concat();
        let outcome = world.netbox(&flags).exec(&words);
        outcome.exits_with(0).says("65534\n").says(&greeting(&listed)).says("no rule allows this host");
        outcome.refused(&other.name, 80, "not-listed");
    }
    world.assert_untouched(mark, &other);
}

fn who_became_another_user_has_that_users_rights(world: &World) {
    let folder = folder(world);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("own folder");
    fs::write(folder.join("secret"), "of root's\n").expect("own folder");
    fs::set_permissions(folder.join("secret"), Permissions::from_mode(0o600)).expect("own file");
    let script = "cat secret; setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'cat secret; kill -0 $PPID; echo then $?'";
    for run in [world.bare(), world.netbox(&["--mode", "none"])] {
        let outcome = run.folder(&folder).exec(&["sh", "-c", script]);
        assert_eq!(outcome.exits_with(0).stdout(), "of root's\nthen 1\n", "{outcome}");
        outcome.complains("secret: Permission denied");
    }
}

/// Neither by tools, nor by the settings of the kernel, nor by a namespace that is there for everyone to enter.
fn the_hosts_network_stays_as_it_is(world: &World) {
    let links = || {
        world.bare().exec(&["sh", "-c", "ip -o link; ip -o address; ip route; sysctl -a --pattern forward"]).stdout()
    };
    let before = links();
    let script = "
        ip link add x0 type dummy; ip link set lo down; ip route add default via 127.0.0.1; ip netns add of-the-tests
        echo 1 >/proc/sys/net/ipv4/ip_forward; echo x >/proc/sys/kernel/hostname; echo x >/sys/kernel/uevent_helper
        nsenter --net=/proc/1/ns/net true && echo entered
        hostname of-the-tests
        exit 0
    ";
    let outcome = world.netbox(&["--mode", "none"]).exec(&["sh", "-c", script]);
    assert_eq!(outcome.exits_with(0).stdout(), "", "{outcome}");
    assert_eq!(links(), before);
}

/// The kernel lets nobody map root without them. What engines leave by default is enough.
fn root_without_capabilities_is_told_which_it_takes(world: &World) {
    let (listed, other) = (world.zone().host("no-capabilities"), world.zone().host("no-capabilities-other"));
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let fetch = format!("curl -sS --max-time 30 {} {}; touch file && chown 1 file", listed.http("/"), other.http("/"));
    let run = |left: &str| {
        let words = [
            &["setpriv", "--inh-caps=-all", "--bounding-set", left][..],
            &[&netbox, "run", "--allow", &listed.name, "--", "sh", "-c", &fetch],
        ];
        world.bare().folder(&folder(world)).exec(&words.concat())
    };
    let mark = world.mark();
    let outcome = run("-sys_admin,-net_admin,-sys_ptrace,-sys_module,-dac_read_search,-sys_rawio,-sys_resource");
    outcome.exits_with(0).says(&greeting(&listed)).says("no rule allows this host");
    world.assert_untouched(mark, &other);
    for left in ["-all", "-setfcap", "-setuid"] {
        let outcome = run(left);
        outcome.exits_with(125).does_not_say("hello").complains("uid_map: Operation not permitted (EPERM)");
        outcome.complains("root lacks `CAP_SETFCAP`, `CAP_SETUID` or `CAP_SETGID`");
    }
}

fn what_roots_files_can_do_is_said_on_every_run(world: &World) {
    let outcome = world.netbox(&["--mode", "none"]).exec(&["true"]);
    outcome.exits_with(0).complains("warning: running as root: ");
    for place in ["/etc/cron.d", "/etc/systemd/system", "/usr/local/bin", "~/.bashrc"] {
        outcome.complains(place);
    }
    assert_eq!(world.netbox(&["--mode", "none", "--quiet"]).exec(&["true"]).stderr(), "");
}
