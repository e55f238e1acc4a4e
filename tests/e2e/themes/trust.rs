//! The project's policy file counts once it was trusted: these bytes, at this place. Whoever can write to the project,
//! such as its author or a command that ran there before, gains nothing by it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sha2::{Digest, Sha256};

use crate::outcome::Outcome;
use crate::programs::{CURL, curl};
use crate::project::{FILE, Project, text};
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    an_unknown_file_gives_nothing_where_nobody_can_be_asked needs [CURL],
    a_trusted_file_counts_until_a_byte_of_it_changes needs [CURL],
    a_digest_lets_exactly_those_bytes_count needs [CURL],
    what_only_narrows_needs_no_trust needs [CURL],
    what_is_not_proved_to_narrow_needs_it needs [],
    a_nearer_file_is_a_change needs [],
    a_file_that_is_gone_is_a_change_where_it_denied_something needs [],
    a_repository_that_begins_below_is_a_change_where_the_file_denied_something needs [],
    a_link_is_no_project_file needs [],
    a_file_that_is_swapped_all_the_time_never_counts needs [],
    a_change_during_the_run_changes_nothing needs [CURL],
    the_command_cannot_widen_the_next_run needs [CURL],
    nothing_is_trusted_inside needs [],
    trust_is_for_a_place needs [],
    trust_can_be_listed_and_ended needs [],
    a_damaged_memory_is_an_error needs [],
    many_can_be_trusted_at_once needs [],
];

pub(crate) const RAN: [&str; 2] = ["echo", "it ran"];

pub(crate) fn allow(host: &Host) -> String {
    format!("allow = [\"{}\"]\n", host.name)
}

/// The run was refused for what the project's file is, and nothing was started.
#[track_caller]
pub(crate) fn refused(outcome: &Outcome, why: &str) {
    outcome.exits_with(125).does_not_say("it ran").complains(why);
    assert!(outcome.events.is_empty(), "nothing was begun: {outcome}");
}

fn an_unknown_file_gives_nothing_where_nobody_can_be_asked(world: &World) {
    let host = world.zone().host("evil-clone");
    let project = Project::with(world, &allow(&host));
    let client = curl(&["http://evil-clone.example.com/"]);
    let mark = world.mark();
    let outcome = project.netbox(&[]).exec(&client);
    refused(&outcome, "is not trusted");
    outcome.complains(&format!("`netbox trust {}`", text(&project.path(FILE)))).complains("--trust-project sha256:");
    outcome.complains(&format!("allows {} (netbox.toml:1:11)", host.name));
    project.netbox(&["--no-config"]).exec(&client).refused(&host.name, 80, "not-listed");
    // Nor from a folder below, nor beside rules of the command line.
    fs::create_dir(project.path("below")).expect("own folder");
    refused(&project.netbox(&[]).folder(&project.path("below")).exec(&client), "is not trusted");
    refused(&project.netbox(&["--allow", "other.example.com"]).exec(&client), "is not trusted");
    world.assert_untouched(mark, &host);
    project.netbox(&["--config", FILE]).exec(&client).exits_with(0).says("hello");
}

fn a_trusted_file_counts_until_a_byte_of_it_changes(world: &World) {
    let host = world.zone().host("trusted");
    let project = Project::with(world, &allow(&host));
    let client = curl(&["http://trusted.example.com/"]);
    let outcome = project.words().exec(&["trust"]);
    outcome.exits_with(0).says(text(&project.path(FILE))).says(&host.name).says("sha256:");
    let outcome = project.netbox(&[]).exec(&client);
    let decision = outcome.exits_with(0).allowed(&host.name, 80, "listed");
    assert_eq!(decision["rule"]["source"], "netbox.toml:1:11", "{outcome}");
    for changed in [allow(&host) + "\n", allow(&host).replace("trusted", "trustee"), allow(&host).replace(' ', "")] {
        project.write(FILE, changed);
        refused(&project.netbox(&[]).exec(&client), "has changed since it was trusted");
    }
    project.write(FILE, allow(&host));
    project.netbox(&[]).exec(&client).exits_with(0).says("hello");
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn a_digest_lets_exactly_those_bytes_count(world: &World) {
    let host = world.zone().host("pinned");
    let project = Project::with(world, &allow(&host));
    let client = curl(&["http://pinned.example.com/"]);
    let right = format!("sha256:{}", digest(&allow(&host)));
    let outcome = project.netbox(&["--trust-project", &right]).exec(&client);
    outcome.exits_with(0).allowed(&host.name, 80, "listed");
    // It is for one run.
    refused(&project.netbox(&[]).exec(&client), &right);
    let mark = world.mark();
    let wrong = format!("sha256:{}", digest("x"));
    let outcome = project.netbox(&["--trust-project", &wrong]).exec(&client);
    refused(&outcome, &right);
    outcome.complains(&wrong);
    project.write(FILE, allow(&host) + "\n");
    refused(&project.netbox(&["--trust-project", &right]).exec(&client), "has the digest");
    fs::remove_file(project.path(FILE)).expect("own folder");
    refused(&project.netbox(&["--trust-project", &right]).exec(&client), "there is no `netbox.toml`");
    world.assert_untouched(mark, &host);
    for bad in ["sha256:", &right[7..], "sha256:xyz", &right[..70], "md5:00"] {
        project.netbox(&["--trust-project", bad]).exec(&RAN).exits_with(2).complains("--trust-project");
    }
    for with in [&["--config", "x.toml"][..], &["--no-config"]] {
        let flags = [&["--trust-project", &right], with].concat();
        project.netbox(&flags).exec(&RAN).exits_with(2);
    }
    // Whoever may write to it: the bytes are known.
    project.write(FILE, allow(&host));
    fs::set_permissions(project.path(FILE), fs::Permissions::from_mode(0o666)).expect("own folder");
    refused(&project.netbox(&[]).exec(&RAN), "0666");
    project.netbox(&["--trust-project", &right]).exec(&client).exits_with(0).says("hello");
}

fn what_only_narrows_needs_no_trust(world: &World) {
    let (kept, denied) = (world.zone().host("kept"), world.zone().host("narrowed"));
    let user = format!("allow = [\"{}\", \"{}\"]\n", kept.name, denied.name);
    let clients = [curl(&["http://kept.example.com/"]), curl(&["http://narrowed.example.com/"])];
    let project = Project::new(world).and_user(&user);
    for client in &clients {
        project.netbox(&[]).exec(client).exits_with(0).says("hello");
    }
    project.write(FILE, format!("deny = [\"{}\"]\n", denied.name));
    project.netbox(&[]).exec(&clients[0]).exits_with(0).says("hello");
    project.netbox(&[]).exec(&clients[1]).refused(&denied.name, 80, "denied");
    project.write(FILE, "mode = \"none\"\n");
    project.netbox(&[]).exec(&clients[0]).refused(&kept.name, 80, "mode-none");
    // What the user allows anyway is nothing more.
    project.write(FILE, allow(&kept) + "[profile.x]\nmode = \"none\"\n");
    let outcome = project.netbox(&["--dry-run", "--json"]).exec(&["true"]);
    outcome.exits_with(0).says("\"standing\":\"narrows\"");
    project.write(FILE, "");
    project.netbox(&[]).exec(&clients[1]).exits_with(0).says("hello");
}

fn what_is_not_proved_to_narrow_needs_it(world: &World) {
    let project = Project::new(world)
        .and_user("allow = [\"a.example.com\", \"*.b.example.com\"]\ndeny = [\"c.b.example.com\"]\n");
    for text in [
        "allow = [\"other.example.com\"]\n",
        "allow = [\"a.example.com:22\"]\n",
        "allow = [\"b.example.com\"]\n",
        "allow = [\"tcp://a.example.com:443\"]\n",
        "allow = [\"10.0.0.1\"]\n",
        "mode = \"audit\"\n",
        "mode = \"open\"\ndeny = [\"a.example.com\"]\n",
        "deny = [\"a.example.com\"]\n[preset.x]\nallow = [\"evil.example\"]\n[profile.y]\nallow = [\"@x\"]\n",
    ] {
        project.write(FILE, text);
        let flags: &[&str] = if text.contains("profile") { &["--profile", "y"] } else { &[] };
        refused(&project.netbox(flags).exec(&RAN), "is not trusted");
    }
    // And what narrows, beside what was trusted and narrowed more.
    let project = Project::trusted(world, "deny = [\"a.example.com\"]\n").and_user("allow = [\"a.example.com\"]\n");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    project.write(FILE, "deny = [\"z.example.com\"]\n");
    refused(&project.netbox(&[]).exec(&RAN), "has changed since it was trusted");
}

fn a_nearer_file_is_a_change(world: &World) {
    let project = Project::trusted(world, "deny = [\"a.example.com\"]\n").and_user("allow = [\"a.example.com\"]\n");
    let below = project.path("below");
    project.write("below/netbox.toml", "allow = [\"evil.example\"]\n");
    refused(&project.netbox(&[]).folder(&below).exec(&RAN), "below/netbox.toml` is not trusted");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    // It would allow no more than without any file, but more than the trusted one.
    project.write("below/netbox.toml", "deny = [\"z.example.com\"]\n");
    refused(&project.netbox(&[]).folder(&below).exec(&RAN), "no longer denies a.example.com");
    // This one allows no more than either.
    project.write("below/netbox.toml", "deny = [\"a.example.com\", \"b.example.com\"]\n");
    project.netbox(&[]).folder(&below).exec(&RAN).exits_with(0);
    project.write("below/netbox.toml", "deny = [\"z.example.com\"]\n");
    project.words().folder(&below).exec(&["trust"]).exits_with(0);
    project.netbox(&[]).folder(&below).exec(&RAN).exits_with(0).says("it ran");
    // And when that is gone again, the outer one counts, which it did not for this folder.
    fs::remove_file(project.path("below/netbox.toml")).expect("own folder");
    refused(&project.netbox(&[]).folder(&below).exec(&RAN), "was trusted and is gone");
}

fn a_file_that_is_gone_is_a_change_where_it_denied_something(world: &World) {
    let denied = world.zone().host("gone");
    let project = Project::trusted(world, &format!("deny = [\"{}\"]\n", denied.name)).and_user(&allow(&denied));
    let file = text(&project.path(FILE)).to_owned();
    project.netbox(&[]).exec(&RAN).exits_with(0);
    fs::remove_file(&file).expect("own folder");
    let outcome = project.netbox(&[]).exec(&RAN);
    refused(&outcome, "was trusted and is gone");
    outcome.complains(&format!("`netbox untrust {file}`")).complains("no longer denies gone.example.com");
    let terminal = Terminal::new();
    let running = project.netbox(&[]).on(&terminal).start(&RAN);
    let shown = terminal.shows("[y/N] ");
    assert!(shown.contains("-deny = ["), "`{shown}`");
    terminal.enter_line("n");
    running.finish().exits_with(125);
    // Put back, it counts as before; let go, it is not missed.
    project.write(FILE, format!("deny = [\"{}\"]\n", denied.name));
    project.netbox(&[]).exec(&RAN).exits_with(0);
    fs::remove_file(&file).expect("own folder");
    project.words().exec(&["untrust", &file]).exits_with(0).says("no longer trusted");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    // One that allowed something is not missed: less is allowed without it.
    let project = Project::trusted(world, &allow(&denied));
    fs::remove_file(project.path(FILE)).expect("own folder");
    project.netbox(&[]).exec(&RAN).exits_with(0);
}

fn a_repository_that_begins_below_is_a_change_where_the_file_denied_something(world: &World) {
    let project = Project::trusted(world, "mode = \"none\"\n").and_user("allow = [\"a.example.com\"]\n");
    let below = project.path("below");
    fs::create_dir(&below).expect("own folder");
    let mode = |outcome: &Outcome| outcome.exits_with(0).stdout().contains("mode     none");
    let show = ["run", "--dry-run", "--", "true"];
    assert!(mode(&project.words().folder(&below).exec(&show)));
    fs::create_dir(below.join(".git")).expect("own folder");
    refused(&project.netbox(&[]).folder(&below).exec(&RAN), "where another repository begins");
    // The root that is taken away from a file makes it no file of the project either.
    fs::remove_dir(below.join(".git")).expect("own folder");
    fs::rename(project.path(".git"), project.path("git")).expect("own folder");
    refused(&project.netbox(&[]).folder(&below).exec(&RAN), "does not count");
    assert!(mode(&project.words().exec(&show)), "in its own folder it counts");
    fs::rename(project.path("git"), project.path(".git")).expect("own folder");
    // A repository that is meant to have no policy has an empty one.
    fs::create_dir(below.join(".git")).expect("own folder");
    project.write("below/netbox.toml", "");
    project.words().folder(&below).exec(&["trust"]).exits_with(0);
    assert!(!mode(&project.words().folder(&below).exec(&show)));
}

fn a_link_is_no_project_file(world: &World) {
    let project = Project::trusted(world, "allow = [\"linked.example.com\"]\n");
    fs::rename(project.path(FILE), project.path("other.toml")).expect("own folder");
    symlink("other.toml", project.path(FILE)).expect("own folder");
    let outcome = project.netbox(&[]).exec(&RAN);
    refused(&outcome, "is a symbolic link");
    project.words().exec(&["trust"]).exits_with(2).complains("is a symbolic link");
}

fn a_file_that_is_swapped_all_the_time_never_counts(world: &World) {
    let good = "allow = [\"good.example.com\"]\n";
    let project = Project::trusted(world, good);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for text in ["allow = [\"evil.example\"]\n", good] {
                    project.write("new", text);
                    fs::rename(project.path("new"), project.path(FILE)).expect("own folder");
                }
            }
        });
        let mut codes = [0; 3];
        for _ in 0..60 {
            let outcome = project.words().exec(&["check", "evil.example"]);
            assert!(
                !outcome.stdout().contains("allow  "),
                "the bytes that were trusted are not those that count: {outcome}"
            );
            codes[usize::try_from(outcome.code.expect("it ends")).expect("a code")] += 1;
        }
        ended.store(true, Ordering::Relaxed);
        assert!(codes[1] > 0 && codes[2] > 0, "both files were met: {codes:?}");
    });
}

fn a_change_during_the_run_changes_nothing(world: &World) {
    let (before, after) = (world.zone().host("edit-before"), world.zone().host("edit-after"));
    let project = Project::trusted(world, &allow(&before));
    let script = "echo started; read -r go
        curl -s --max-time 30 http://edit-after.example.com/; curl -s --max-time 30 http://edit-before.example.com/";
    let mut running = project.netbox(&[]).stdin_open().start(&["sh", "-c", script]);
    running.wait_for_stdout("started");
    project.write(FILE, allow(&after));
    running.write(b"go\n");
    let outcome = running.finish();
    outcome.refused(&after.name, 80, "not-listed");
    outcome.allowed(&before.name, 80, "listed");
}

/// Attacks on the project's file, from its root; each tries on where it fails.
const WIDENINGS: [&str; 10] = [
    "cp evil.toml netbox.toml",
    "cat evil.toml >> netbox.toml",
    "mv evil.toml netbox.toml",
    "rm -f netbox.toml; cp evil.toml netbox.toml",
    "ln -sf evil.toml netbox.toml",
    "mv netbox.toml gone.toml; cp evil.toml netbox.toml",
    "cd ..; mv project gone; mkdir -p project/.git; cp gone/evil.toml project/netbox.toml",
    "cd ..; cp -r project copy; cp copy/evil.toml copy/netbox.toml; mv project gone; mv copy project",
    "chmod 666 netbox.toml; cp evil.toml netbox.toml",
    "ln netbox.toml link; cp evil.toml link",
];

fn the_command_cannot_widen_the_next_run(world: &World) {
    let evil = world.zone().host("next-run-evil");
    let client = curl(&["http://next-run-evil.example.com/"]);
    let attacked = |attack: &str, sandboxed: bool| {
        let project = Project::trusted(world, "allow = [\"next-run-good.example.com\"]\n");
        project.write("evil.toml", allow(&evil));
        let script = ["sh", "-c", &format!("({attack}); echo tried")];
        let run = if sandboxed { project.netbox(&[]) } else { project.bare() };
        run.exec(&script).says("tried");
        project
    };
    let mark = world.mark();
    for attack in WIDENINGS {
        // Without netbox around it the attack changes the file, which then has to be trusted anew.
        assert_eq!(attacked(attack, false).netbox(&[]).exec(&client).code, Some(125), "`{attack}`");
        let outcome = attacked(attack, true).netbox(&[]).exec(&client);
        assert!(matches!(outcome.code, Some(0 | 125)), "after `{attack}`: {outcome}");
        outcome.does_not_say("hello");
    }
    // Nor can it put something over the file for a netbox that it starts itself.
    let netbox = text(world.netbox_path());
    let mounted = format!("unshare -rm sh -c 'mount --bind evil.toml netbox.toml; {netbox} check {}'", evil.name);
    let project = attacked(&mounted, true);
    project.netbox(&[]).exec(&client).does_not_say("hello").refused(&evil.name, 80, "not-listed");
    world.assert_untouched(mark, &evil);
    let project = attacked(WIDENINGS[0], false);
    project.words().exec(&["trust"]).exits_with(0);
    project.netbox(&[]).exec(&client).exits_with(0).says("hello");
}

fn nothing_is_trusted_inside(world: &World) {
    let project = Project::trusted(world, "allow = [\"inside.example.com\"]\n");
    project.write("clone/netbox.toml", "allow = [\"evil.example\"]\n");
    let netbox = text(world.netbox_path());
    for script in [
        format!("{netbox} trust clone/netbox.toml; echo \"code $?\""),
        format!("env -u NETBOX {netbox} trust clone/netbox.toml; echo \"code $?\""),
        format!("{netbox} untrust; echo \"code $?\""),
        format!("env -u NETBOX {netbox} untrust; echo \"code $?\""),
    ] {
        let outcome = project.netbox(&[]).exec(&["sh", "-c", &script]);
        outcome.says("code 125").complains("outside");
    }
    project.netbox(&[]).exec(&RAN).exits_with(0);
    refused(&project.netbox(&[]).folder(&project.path("clone")).exec(&RAN), "is not trusted");
    // Outside, the same words work.
    project.words().exec(&["trust", "clone/netbox.toml"]).exits_with(0);
    project.netbox(&[]).folder(&project.path("clone")).exec(&RAN).exits_with(0).says("it ran");
}

fn trust_is_for_a_place(world: &World) {
    let text_of = "allow = [\"place.example.com\"]\n";
    let project = Project::trusted(world, text_of);
    for place in ["copy", "copy/below"] {
        project.write(&format!("{place}/netbox.toml"), text_of);
        refused(&project.netbox(&[]).folder(&project.path(place)).exec(&RAN), "is not trusted");
    }
    // A way there through a link is the same place.
    symlink(&project.folder, project.home.join("link")).expect("own folder");
    project.netbox(&[]).folder(&project.home.join("link")).exec(&RAN).exits_with(0).says("it ran");
    let named = project.home.join("link/copy");
    project.words().exec(&["trust", text(&named)]).exits_with(0).says(text(&project.path("copy/netbox.toml")));
    project.netbox(&[]).folder(&project.path("copy")).exec(&RAN).exits_with(0).says("it ran");
}

fn trust_can_be_listed_and_ended(world: &World) {
    let project = Project::trusted(world, "allow = [\"list.example.com\"]\n");
    let file = text(&project.path(FILE)).to_owned();
    for (name, text) in [("changed", "deny = []\n"), ("gone", "")] {
        project.write(&format!("{name}/netbox.toml"), text);
        project.words().exec(&["trust", &format!("{name}/netbox.toml")]).exits_with(0);
    }
    project.write("changed/netbox.toml", "# x\n");
    fs::remove_dir_all(project.path("gone")).expect("own folder");
    let list = project.words().exec(&["trust", "--list"]);
    list.exits_with(0).says(&format!("`{file}`\n")).says("changed/netbox.toml`  (has changed)");
    list.says("gone/netbox.toml`  (is gone)");
    project.words().exec(&["untrust", "gone/netbox.toml"]).exits_with(0).says("no longer trusted");
    project.words().exec(&["untrust"]).exits_with(0).says(&format!("no longer trusted `{file}`"));
    refused(&project.netbox(&[]).exec(&RAN), "is not trusted");
    project.words().exec(&["untrust"]).exits_with(0).says("was not trusted");
    let list = project.words().exec(&["trust", "--list"]);
    assert_eq!(list.exits_with(0).stdout().lines().count(), 1, "{list}");
    for (words, code) in [
        (&["trust", "other.toml"][..], 2),
        (&["trust", "nowhere/netbox.toml"], 2),
        (&["trust", "--list", "x"], 2),
        (&["untrust", "other.toml"], 2),
    ] {
        project.words().exec(words).exits_with(code);
    }
    Project::new(world).words().exec(&["trust"]).exits_with(2).complains("there is no `netbox.toml`");
    let bad = Project::with(world, "alow = []\n");
    bad.words().exec(&["trust"]).exits_with(2).complains("netbox.toml:1:1");
    refused(&bad.netbox(&[]).exec(&RAN), "`allow`");
}

fn a_damaged_memory_is_an_error(world: &World) {
    let project = Project::trusted(world, "allow = [\"memory.example.com\"]\n");
    let folder = project.home.join(".local/state/netbox/trust");
    let entries: Vec<_> = fs::read_dir(&folder).expect("it is there").flatten().collect();
    let [record] = entries.as_slice() else { panic!("{entries:?}") };
    let whole = fs::read(record.path()).expect("own folder");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&record.path()), mode(&folder)), (0o600, 0o700));
    for damaged in [&b""[..], &whole[..whole.len() / 2], b"{}", b"\0\xff"] {
        fs::write(record.path(), damaged).expect("own folder");
        let outcome = project.netbox(&[]).exec(&RAN);
        refused(&outcome, "cannot be read");
        outcome.complains("remove it (`rm ");
    }
    fs::write(record.path(), &whole).expect("own folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("own folder");
    refused(&project.netbox(&[]).exec(&RAN), "could have been written by somebody else");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("own folder");
    project.netbox(&[]).exec(&RAN).exits_with(0).says("it ran");
}

fn many_can_be_trusted_at_once(world: &World) {
    let project = Project::new(world);
    let names: Vec<_> = (0..8).map(|number| format!("{number}/netbox.toml")).collect();
    names.iter().for_each(|name| project.write(name, format!("# {name}\n")));
    let running: Vec<_> = names.iter().map(|name| project.words().start(&["trust", name])).collect();
    for running in running {
        running.finish().exits_with(0);
    }
    let list = project.words().exec(&["trust", "--list"]);
    assert_eq!(list.exits_with(0).stdout().lines().count(), 8, "{list}");
    let again: Vec<_> = (0..8).map(|_| project.words().start(&["trust", &names[0]])).collect();
    for running in again {
        running.finish().exits_with(0);
    }
    let list = project.words().exec(&["trust", "--list"]);
    assert_eq!(list.exits_with(0).stdout().lines().count(), 8, "{list}");
}
