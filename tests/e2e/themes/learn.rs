//! `netbox learn`: what a command needed is written down, and no more than that.

use std::fs;
use std::path::PathBuf;

use crate::outcome::Outcome;
use crate::programs::{CURL, PYTHON, curl, probe};
use crate::run::Run;
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

tests![
    what_a_command_needed_is_written_and_then_enough needs [CURL, PYTHON],
    a_host_that_a_server_leads_to_is_needed_too needs [CURL],
    nothing_is_written_unasked needs [CURL],
    a_yes_at_the_terminal_writes_it needs [CURL],
    a_no_at_the_terminal_does_not needs [CURL],
    what_is_refused_is_told_and_not_proposed needs [CURL],
    what_was_only_looked_up_is_not_proposed needs [PYTHON],
    what_fails_on_the_far_side_is_not_proposed needs [CURL],
    comments_and_order_of_a_file_stay needs [CURL],
    a_profile_learns_for_itself needs [CURL],
    a_named_file_is_the_one_that_is_written needs [CURL],
    a_file_that_is_not_trusted_stays_so needs [CURL],
    a_file_that_the_command_changes_is_left_alone needs [CURL],
    what_the_command_does_to_other_files_is_not_trusted needs [CURL],
    the_exit_code_is_the_commands_and_a_failure_is_told needs [CURL],
    a_command_that_does_not_run_teaches_nothing needs [],
    flags_that_make_no_sense_are_usage_errors needs [],
    inside_a_sandbox_nothing_is_learned needs [],
    the_file_is_at_the_root_of_the_repository needs [CURL],
];

const NOTHING: &[&str] = &[];

/// A user with a home and a folder to work in.
struct User<'w> {
    world: &'w World,
    home: PathBuf,
    work: PathBuf,
}

impl<'w> User<'w> {
    fn new(world: &'w World) -> Self {
        let home = world.fresh_path("home");
        let work = home.join("work");
        fs::create_dir_all(&work).expect("own folder");
        Self { world, home, work }
    }

    fn at_home(&self, run: Run<'w>) -> Run<'w> {
        run.env("HOME", &self.home).folder(&self.work)
    }

    fn words(&self, before: &[&str], command: &[impl AsRef<str>]) -> Outcome {
        let words: Vec<&str> = before.iter().copied().chain(command.iter().map(AsRef::as_ref)).collect();
        self.at_home(self.world.netbox_words()).exec(&words)
    }

    fn learn(&self, flags: &[&str], command: &[impl AsRef<str>]) -> Outcome {
        self.words(&[&["learn"], flags, &["--"]].concat(), command)
    }

    /// A run with what the files say.
    fn run(&self, command: &[impl AsRef<str>]) -> Outcome {
        self.at_home(self.world.netbox(&[])).exec(command)
    }

    fn file(&self) -> Option<String> {
        fs::read_to_string(self.work.join("netbox.toml")).ok()
    }

    fn has_file(&self, text: &str) {
        fs::write(self.work.join("netbox.toml"), text).expect("own folder");
        self.words(&["trust"], NOTHING).exits_with(0);
    }

    /// The rules in the file, a line each.
    fn rules(&self) -> Vec<String> {
        let text = self.file().expect("it is written");
        let quoted =
            text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split('"').skip(1).step_by(2));
        quoted.map(str::to_owned).collect()
    }
}

fn what_a_command_needed_is_written_and_then_enough(world: &World) {
    let zone = world.zone();
    let (one, two) = (zone.host("learn-one"), zone.host("learn-two"));
    let script = format!(
        "curl -sf {} && curl -sf http://{} && {}",
        one.https("/"),
        two.port(8080),
        probe(world, &["tcp", &one.name, "5432", "said"]).join(" ")
    );
    let command = ["sh", "-c", &script];
    let user = User::new(world);
    let outcome = user.learn(&["--yes"], &command);
    outcome.exits_with(0).complains("+allow = [").complains("wrote");
    assert_eq!(user.rules(), ["learn-one.example.com:443,5432", "learn-two.example.com:8080"], "{outcome}");
    // It is trusted, and it is enough; and without it the command fails.
    user.run(&command).exits_with(0).says("hello learn-one").says("hello learn-two").says("said");
    fs::write(user.work.join("netbox.toml"), "allow = []\n").expect("own folder");
    user.words(&["trust"], NOTHING).exits_with(0);
    assert_ne!(user.run(&command).code, Some(0));
}

fn a_host_that_a_server_leads_to_is_needed_too(world: &World) {
    let (first, second) = (world.zone().host("learn-first"), world.zone().host("learn-second"));
    let url = first.http(&format!("/redirect?to={}", second.http("/")));
    let user = User::new(world);
    let outcome = user.learn(&["--yes"], &curl(&["--location", &url]));
    outcome.exits_with(0).says("hello learn-second");
    assert_eq!(user.rules(), [first.name, second.name], "{outcome}");
}

fn nothing_is_written_unasked(world: &World) {
    let host = world.zone().host("learn-unasked");
    let user = User::new(world);
    let outcome = user.learn(&[], &curl(&[&host.http("/")]));
    outcome.exits_with(0).says("hello").complains("+allow = [\"learn-unasked.example.com\"]").complains("`--yes`");
    assert_eq!(user.file(), None, "{outcome}");
}

/// `netbox learn` at a terminal, on which this is typed once the question is there. The value is what it showed.
fn at_a_terminal(user: &User, typed: &str, url: &str) -> String {
    let terminal = Terminal::new();
    let words = [&["learn", "--"][..], &curl(&[url])].concat();
    let run = user.at_home(user.world.netbox_words()).on(&terminal).start(&words);
    let shown = terminal.shows("[y/N] ");
    terminal.enter_line(typed);
    run.finish().exits_with(0);
    shown
}

fn a_yes_at_the_terminal_writes_it(world: &World) {
    let host = world.zone().host("learn-yes");
    let user = User::new(world);
    let url = host.http("/");
    let shown = at_a_terminal(&user, "y", &url);
    assert!(shown.contains("+allow = [\"learn-yes.example.com\"]"), "`{shown}`");
    assert_eq!(user.rules(), [host.name]);
    user.run(&curl(&[&url])).exits_with(0).says("hello learn-yes");
}

fn a_no_at_the_terminal_does_not(world: &World) {
    let host = world.zone().host("learn-no");
    let user = User::new(world);
    for no in ["n", ""] {
        at_a_terminal(&user, no, &host.http("/"));
        assert_eq!(user.file(), None);
    }
}

fn what_is_refused_is_told_and_not_proposed(world: &World) {
    let zone = world.zone();
    let private = std::net::Ipv4Addr::new(10, 77, 0, 22);
    let (denied, inner, taken) =
        (zone.host("learn-denied"), zone.host_at("learn-inner", &[private.into()]), zone.host("learn-taken"));
    let urls = [denied.http("/"), inner.http("/"), taken.http("/")];
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let user = User::new(world);
    let mark = world.mark();
    let outcome = user.learn(&["--yes", "--deny", &denied.name], &curl(&urls));
    outcome.complains("refused, and not proposed: learn-denied.example.com:80 (denied)");
    outcome.complains("refused, and not proposed: learn-inner.example.com:80 (non-public)");
    assert_eq!(user.rules(), [taken.name], "{outcome}");
    world.assert_untouched(mark, &denied);
}

fn what_was_only_looked_up_is_not_proposed(world: &World) {
    let host = world.zone().host("learn-lookup");
    let user = User::new(world);
    let script = format!("import socket; print(socket.getaddrinfo('{}', 80)[0][4][0])", host.name);
    let outcome = user.learn(&["--yes"], &["python3", "-c", &script]);
    outcome.exits_with(0).complains("took no host that is not allowed already");
    assert_eq!(user.file(), None, "{outcome}");
}

fn what_fails_on_the_far_side_is_not_proposed(world: &World) {
    let (missing, there) = (world.zone().host_missing("learn-missing"), world.zone().host("learn-there"));
    let user = User::new(world);
    let command = format!("curl -sf {}; curl -sf {}", missing.http("/"), there.http("/"));
    user.learn(&["--yes"], &["sh", "-c", &command]).exits_with(0);
    assert_eq!(user.rules(), [there.name]);
}

fn comments_and_order_of_a_file_stay(world: &World) {
    let (known, new) = (world.zone().host("learn-known"), world.zone().host("learn-new"));
    let user = User::new(world);
    user.has_file("# ours\nallow = [\n  \"learn-known.example.com\", # the index\n]\ndeny = [\"x.example.com\"]\n");
    let urls = [known.http("/"), new.http("/")];
    let client = curl(&[&urls[0], &urls[1]]);
    let outcome = user.learn(&["--yes"], &client);
    outcome.exits_with(0).complains("+  \"learn-new.example.com\",");
    let expected = "# ours\nallow = [\n  \"learn-known.example.com\", # the index\n  \"learn-new.example.com\",\n]\ndeny = [\"x.example.com\"]\n";
    assert_eq!(user.file().as_deref(), Some(expected), "{outcome}");
    user.run(&client).exits_with(0);
    // A second time there is nothing to learn.
    user.learn(&["--yes"], &client).exits_with(0).complains("took no host that is not allowed already");
    assert_eq!(user.file().as_deref(), Some(expected));
}

fn a_profile_learns_for_itself(world: &World) {
    let host = world.zone().host("learn-profile");
    let user = User::new(world);
    user.has_file("allow = []\n\n[profile.ci]\nallow = []\n");
    user.learn(&["--yes", "--profile", "ci"], &curl(&[&host.http("/")])).exits_with(0);
    let expected = "allow = []\n\n[profile.ci]\nallow = [\"learn-profile.example.com\"]\n";
    assert_eq!(user.file().as_deref(), Some(expected));
}

fn a_named_file_is_the_one_that_is_written(world: &World) {
    let host = world.zone().host("learn-named");
    let user = User::new(world);
    fs::write(user.work.join("other.toml"), "allow = []\n").expect("own folder");
    user.learn(&["--yes", "--config", "other.toml"], &curl(&[&host.http("/")])).exits_with(0);
    let text = fs::read_to_string(user.work.join("other.toml")).expect("own folder");
    assert_eq!(text, "allow = [\"learn-named.example.com\"]\n");
    assert_eq!(user.file(), None);
}

fn a_file_that_is_not_trusted_stays_so(world: &World) {
    let host = world.zone().host("learn-untrusted");
    let client = host.http("/");
    let client = curl(&[&client]);
    let user = User::new(world);
    let path = user.work.join("netbox.toml");
    // What it allows passes in audit mode anyway; what it would open does not.
    let text = "allow = [\"10.77.0.0/16\"]\n";
    fs::write(&path, text).expect("own folder");
    let mark = world.mark();
    user.learn(&["--yes"], &client).exits_with(125).complains("is not trusted");
    world.assert_untouched(mark, &host);
    assert_eq!(user.file().as_deref(), Some(text));

    fs::write(&path, "allow = [\"evil.example.com\"]\n").expect("own folder");
    let outcome = user.learn(&["--yes"], &client);
    outcome.exits_with(0).complains("| allow = [\"evil.example.com\", \"learn-untrusted.example.com\"]");
    // What it says to type is what makes it count.
    let word = path.to_str().expect("text");
    outcome.complains("it does not count: what was in it before was not trusted");
    outcome.complains(&format!("`netbox trust {word}`"));
    user.words(&["run", "--"], &["true"]).exits_with(125).complains("is not trusted");
    user.words(&["trust", word], NOTHING).exits_with(0);
    user.run(&client).exits_with(0).says("hello learn-untrusted");
}

fn a_file_that_the_command_changes_is_left_alone(world: &World) {
    let host = world.zone().host("learn-changed");
    let user = User::new(world);
    // A new one: there is nothing yet that could be out of the command's reach.
    let script = format!("curl -sf {} && echo 'allow = [\"evil.example.com\"]' > netbox.toml", host.http("/"));
    let outcome = user.learn(&["--yes"], &["sh", "-c", &script]);
    outcome.exits_with(125).complains("was changed while the command ran");
    assert_eq!(user.file().as_deref(), Some("allow = [\"evil.example.com\"]\n"));
    user.words(&["run", "--"], &["true"]).exits_with(125).complains("is not trusted");
}

fn what_the_command_does_to_other_files_is_not_trusted(world: &World) {
    let registry = world.zone().host("learn-registry");
    let url = registry.http("/");
    let user = User::new(world);
    fs::write(user.work.join(".npmrc"), format!("registry={url}\n")).expect("own folder");
    user.has_file("allow = [\"@npm\"]\n");
    let more = world.zone().host("learn-more");
    let script = format!("curl -sf {} && echo '@x:registry=http://evil.example.com/' >> .npmrc", more.http("/"));
    user.learn(&["--yes"], &["sh", "-c", &script]).exits_with(0);
    assert_eq!(user.rules(), ["@npm".to_owned(), more.name]);
    let outcome = user.words(&["run", "--"], &["true"]);
    outcome.exits_with(125).complains("evil.example.com:80").complains("not trusted");
}

fn the_exit_code_is_the_commands_and_a_failure_is_told(world: &World) {
    let host = world.zone().host("learn-failure");
    let user = User::new(world);
    let script = format!("curl -sf {}; exit 7", host.http("/"));
    let outcome = user.learn(&["--yes"], &["sh", "-c", &script]);
    outcome.exits_with(7).complains("it failed (exit code 7), so it may need more");
    assert_eq!(user.rules(), [host.name]);
}

fn a_command_that_does_not_run_teaches_nothing(world: &World) {
    let user = User::new(world);
    let outcome = user.learn(&["--yes"], &["no-such-command"]);
    outcome.exits_with(127);
    assert!(!outcome.stderr().contains("took no host"), "{outcome}");
}

fn flags_that_make_no_sense_are_usage_errors(world: &World) {
    let user = User::new(world);
    for flags in [&["--mode", "open"][..], &["--no-config"], &["--dry-run"], &["--fail-on-block"]] {
        user.learn(flags, &["true"]).exits_with(2).complains(flags[0]);
    }
}

fn inside_a_sandbox_nothing_is_learned(world: &World) {
    let user = User::new(world);
    let outcome = user.at_home(world.netbox_words()).env("NETBOX", "1").exec(&["learn", "--", "true"]);
    outcome.exits_with(125).complains("inside a sandbox");
}

fn the_file_is_at_the_root_of_the_repository(world: &World) {
    let host = world.zone().host("learn-root");
    let user = User::new(world);
    fs::create_dir_all(user.work.join(".git")).expect("own folder");
    fs::create_dir_all(user.work.join("a/b")).expect("own folder");
    let url = host.http("/");
    let words = [&["learn", "--yes", "--"][..], &curl(&[&url])].concat();
    user.at_home(world.netbox_words()).folder(&user.work.join("a/b")).exec(&words).exits_with(0);
    assert_eq!(user.rules(), [host.name]);
}
