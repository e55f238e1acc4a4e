//! The system's policy file binds every run on the machine: nothing that a user or a project writes, and no flag, goes
//! round it.

use crate::programs::{CURL, curl};
use crate::project::Project;
use crate::tests;
use crate::world::World;

tests![
    of system files:
    its_deny_holds_against_everything needs [CURL],
    its_ceiling_bounds_everything needs [CURL],
    its_mode_is_the_widest needs [],
    what_it_allows_and_names_counts needs [CURL],
    no_flag_skips_it needs [],
    what_is_wrong_with_it_stops_every_run needs [],
    what_others_could_have_written_stops_every_run needs [],
    it_may_be_a_link_of_roots needs [],
    the_command_cannot_change_it needs [],
    a_service_is_bound_by_it needs [],
];

const RAN: [&str; 2] = ["echo", "it ran"];
const SKIPPING: [&[&str]; 2] = [&[], &["--no-config"]];

fn its_deny_holds_against_everything(world: &World) {
    let host = world.zone().host("system-denied");
    let allow = format!("allow = [\"{}\"]\n", host.name);
    let client = curl(&["http://system-denied.example.com/"]);
    let project = Project::trusted(world, &allow).and_user(&allow);
    let mark = world.mark();
    for flags in [
        &[][..],
        &["--allow", &host.name],
        &["--no-config", "--allow", "*"],
        &["--no-config", "--allow", ".example.com"],
    ] {
        let outcome = project.netbox(flags).system("bounds").exec(&client);
        let decision = outcome.refused(&host.name, 80, "denied");
        assert_eq!(decision["rule"]["source"], "/etc/netbox/config.toml:1:10", "{outcome}");
    }
    world.assert_untouched(mark, &host);
    project.netbox(&[]).exec(&client).exits_with(0).says("hello");
}

fn its_ceiling_bounds_everything(world: &World) {
    let host = world.zone().host("system-bounded");
    let project = Project::trusted(world, "allow = [\"system-bounded.example.com:80,8080\", \"other.test\"]\n");
    let client = curl(&["http://system-bounded.example.com/", "http://system-bounded.example.com:8080/"]);
    project.netbox(&[]).exec(&client).exits_with(0).allowed(&host.name, 8080, "listed");
    let outcome = project.netbox(&[]).system("bounds").exec(&client);
    outcome.allowed(&host.name, 80, "listed");
    outcome.refused(&host.name, 8080, "denied");
    let check = project.words().system("bounds").exec(&["check", "other.test"]);
    check.exits_with(1).says("/etc/netbox/config.toml:2:1");
    let typed = ["check", "--no-config", "--allow", "other.test", "other.test"];
    project.words().system("bounds").exec(&typed).exits_with(1).says("denied");
    project.words().exec(&typed).exits_with(0);
}

fn its_mode_is_the_widest(world: &World) {
    let project = Project::new(world);
    for mode in ["audit", "open"] {
        project.netbox(&["--mode", mode]).exec(&RAN).exits_with(0);
        let outcome = project.netbox(&["--mode", mode]).system("bounds").exec(&RAN);
        outcome.exits_with(2).complains("/etc/netbox/config.toml:3:").does_not_say("it ran");
    }
    let project = Project::trusted(world, "mode = \"open\"\n");
    let outcome = project.netbox(&["--dry-run"]).system("bounds").exec(&["true"]);
    outcome.exits_with(0).says("mode     allowlist");
}

fn what_it_allows_and_names_counts(world: &World) {
    let (allowed, corp) = (world.zone().host("system-allowed"), world.zone().host("corp"));
    let project = Project::with(world, "allow = [\"@corp\"]\n");
    let client = curl(&["http://system-allowed.example.com/", "http://corp.example.com/"]);
    project.netbox(&[]).system("allows").exec(&RAN).exits_with(125).complains("is not trusted");
    project.words().system("allows").exec(&["trust"]).exits_with(0).says("corp.example.com");
    let outcome = project.netbox(&[]).system("allows").exec(&client);
    outcome.exits_with(0).allowed(&allowed.name, 80, "listed");
    let decision = outcome.allowed(&corp.name, 80, "listed");
    let source = decision["rule"]["source"].as_str().unwrap_or_default();
    assert!(source.starts_with("netbox.toml:1:11 via @corp"), "{outcome}");
    let redefined = Project::with(world, "[preset.corp]\nallow = [\"evil.example\"]\n");
    redefined.netbox(&[]).system("allows").exec(&RAN).exits_with(125).complains("netbox.toml:1:");
}

fn no_flag_skips_it(world: &World) {
    let project = Project::new(world);
    for flags in SKIPPING {
        let outcome = project.netbox(flags).system("bounds").exec(&["true"]);
        outcome.exits_with(0);
        let words = [&["run", "--dry-run"], flags, &["--", "true"]].concat();
        project.words().system("bounds").exec(&words).exits_with(0).says("`/etc/netbox/config.toml`  (system, system)");
        project.words().exec(&words).exits_with(0).does_not_say("/etc/netbox");
    }
}

fn what_is_wrong_with_it_stops_every_run(world: &World) {
    let project = Project::new(world);
    for flags in SKIPPING {
        let outcome = project.netbox(flags).system("broken").exec(&RAN);
        outcome.exits_with(125).complains("/etc/netbox/config.toml:1:1: `alow`").does_not_say("it ran");
        let outcome = project.netbox(flags).system("closed").exec(&RAN);
        if world.identity.real_root {
            // Nothing is closed to root.
            outcome.exits_with(0);
        } else {
            outcome.exits_with(125).complains("cannot read `/etc/netbox/config.toml`").does_not_say("it ran");
        }
    }
}

fn what_others_could_have_written_stops_every_run(world: &World) {
    let project = Project::new(world);
    for flags in SKIPPING {
        let outcome = project.netbox(flags).system("open").exec(&RAN);
        outcome.exits_with(125).complains("by others than its owner (mode 0666)").does_not_say("it ran");
        let outcome = project.netbox(flags).system("foreign").exec(&RAN);
        if world.identity.real_root {
            outcome.exits_with(125).complains("does not belong to root").does_not_say("it ran");
        } else {
            // Where root is not mapped, as in this user namespace, nobody can tell root from others; but it is not the
            // user's to write.
            outcome.exits_with(0);
        }
    }
}

fn it_may_be_a_link_of_roots(world: &World) {
    let outcome = Project::new(world).words().system("linked").exec(&["run", "--dry-run", "--", "true"]);
    outcome.exits_with(0).says("system-denied.example.com  (/etc/netbox/config.toml:1:10)");
}

fn the_command_cannot_change_it(world: &World) {
    let script =
        "echo '# evil' >> /etc/netbox/config.toml; mv /etc/netbox /etc/gone; rm -f /etc/netbox/config.toml; echo tried";
    let project = Project::new(world);
    let outcome =
        project.netbox(&[]).system("bounds").exec(&["sh", "-c", &format!("({script}); cat /etc/netbox/config.toml")]);
    outcome.exits_with(0).says("tried").says("system-denied").does_not_say("evil");
}

fn a_service_is_bound_by_it(world: &World) {
    let serve = ["proxy", "serve", "--no-config", "--listen", "127.0.0.1:0"];
    let project = Project::new(world);
    project.words().system("broken").exec(&serve).exits_with(125).complains("/etc/netbox/config.toml:1:1");
    let outcome = project.words().system("bounds").exec(&[&serve[..], &["--mode", "open"]].concat());
    outcome.exits_with(2).complains("/etc/netbox/config.toml:3:");
}
