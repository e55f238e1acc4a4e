//! Derived presets: what the tools here are configured with, and nothing that anybody else wrote before it is trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::outcome::Outcome;
use crate::programs::{CURL, UNSHARE, curl};
use crate::run::Run;
use crate::tests;
use crate::world::World;

tests![
    a_tool_is_asked_where_it_goes_and_its_index_where_downloads_lie needs [CURL],
    a_tool_is_asked_where_processes_are_hidden needs [CURL, UNSHARE],
    an_answer_is_remembered_and_no_tool_is_asked_again needs [CURL],
    a_tool_that_goes_nowhere_is_an_error_that_points_to_learn needs [],
    a_tool_in_the_project_is_not_run needs [CURL],
    a_tool_in_a_folder_for_everybody_is_not_run needs [],
    a_tool_starts_in_an_empty_folder_that_no_other_sandbox_has needs [CURL],
    what_a_tool_is_asked_with_is_out_of_reach_of_every_sandbox needs [CURL],
    what_is_left_out_is_told needs [CURL],
    a_variable_that_leads_into_the_project_tells_a_tool_nothing needs [CURL],
    the_users_own_files_count_as_they_are needs [CURL],
    a_service_is_for_no_project needs [],
    a_file_that_is_none_is_an_error_at_once needs [],
    no_password_of_a_url_is_shown needs [],
];

/// A user with a home, and a repository in it.
pub(super) struct User<'w> {
    world: &'w World,
    pub(super) home: PathBuf,
    pub(super) project: PathBuf,
}

impl<'w> User<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let home = world.fresh_path("home");
        let project = home.join("src/project");
        fs::create_dir_all(project.join(".git")).expect("own folder");
        fs::create_dir_all(home.join("bin")).expect("own folder");
        Self { world, home, project }
    }

    pub(super) fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.home.join(path);
        fs::create_dir_all(path.parent().expect("below the home")).expect("own folder");
        fs::write(path, text).expect("own folder");
        self
    }

    /// An `npm` that asks an index where a package is, and fetches it.
    pub(super) fn has_npm(&self, index: &str, files: &str) -> &Self {
        self.has_program("bin/npm", &format!("curl -sf {index} >/dev/null && curl -sf {files}"))
    }

    pub(super) fn has_program(&self, path: &str, script: &str) -> &Self {
        self.write(path, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.home.join(path), Permissions::from_mode(0o755)).expect("own file");
        self
    }

    /// A run in the project, with the home's `bin` before all other folders of programs.
    pub(super) fn in_project(&self, run: Run<'w>) -> Run<'w> {
        let mut path = self.home.join("bin").into_os_string();
        path.push(":");
        path.push(self.world.search_path());
        run.env("HOME", &self.home).env("PATH", path).folder(&self.project)
    }

    pub(super) fn netbox(&self, flags: &[&str], command: &[&str]) -> Outcome {
        self.in_project(self.world.netbox(flags)).exec(command)
    }

    /// `netbox WORDS` without events: what may not begin.
    pub(super) fn words(&self, words: &[&str]) -> Outcome {
        self.in_project(self.world.netbox_words()).exec(words)
    }

    fn remembered(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.home.join(".local/state/netbox/derived").join(name)).ok()
    }
}

fn a_tool_is_asked_where_it_goes_and_its_index_where_downloads_lie(world: &World) {
    let zone = world.zone();
    let (index, files, other) = (zone.host("derived-index"), zone.host("derived-files"), zone.host("derived-other"));
    let (index_url, files_url, other_url) = (index.http("/"), files.https("/"), other.http("/"));
    let user = User::new(world);
    user.has_npm(&index_url, &files_url);
    let mark = world.mark();
    let shown = user.words(&["run", "--allow", "@npm", "--dry-run", "--", "true"]);
    shown.exits_with(0).says("derived-index.example.com:80  (--allow via @npm (npm's own default))");
    // Whoever only asks what would run makes nobody call an index.
    shown.does_not_say("derived-files");
    world.assert_untouched(mark, &index);

    let client = curl(&["--include", &index_url, &files_url, &other_url]);
    let outcome = user.netbox(&["--allow", "@npm"], &client);
    outcome.allowed(&index.name, 80, "listed");
    let rule = outcome.allowed(&files.name, 443, "listed")["rule"].clone();
    assert_eq!(rule["source"], "--allow via @npm (where npm's index has its downloads)", "{outcome}");
    outcome.refused(&other.name, 80, "not-listed");
    world.assert_reached(mark, &index);
}

/// Netbox asks by calling itself.
fn a_tool_is_asked_where_processes_are_hidden(world: &World) {
    let index = world.zone().host("derived-hidden");
    let url = index.http("/");
    let user = User::new(world);
    user.has_npm(&url, &url);
    let hide = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    let namespaces = ["unshare", "--user", "--map-current-user", "--keep-caps", "--pid", "--mount", "--fork"];
    let hidden = [&namespaces[..], &["sh", "-c", hide, "sh"]].concat();
    let run = user.in_project(world.netbox(&["--allow", "@npm"])).under(&hidden);
    run.exec(&curl(&[&url])).exits_with(0).says("hello derived-hidden");
}

fn an_answer_is_remembered_and_no_tool_is_asked_again(world: &World) {
    let (index, files) = (world.zone().host("derived-once"), world.zone().host("derived-once-files"));
    let (index_url, files_url) = (index.http("/"), files.http("/"));
    let user = User::new(world);
    let count = user.home.join("count");
    let script = format!("echo asked >> {}; curl -sf {index_url} && curl -sf {files_url}", count.display());
    user.has_program("bin/npm", &script);
    let asked = || fs::read_to_string(&count).map_or(0, |text| text.lines().count());
    let client = curl(&[&index_url, &files_url]);
    for _ in 0..3 {
        user.netbox(&["--allow", "@npm"], &client).exits_with(0).says("hello derived-once-files");
        // For its index, and for where downloads lie.
        assert_eq!(asked(), 2);
    }
    assert!(user.remembered("npm-default.json").expect("it is kept").contains("derived-once.example.com:80"));
    // Another tool at its place has to say it itself, and where it got no answer it asks again.
    user.has_program("bin/npm", &format!("echo asked >> {}; curl -sf {index_url} && exit 1", count.display()));
    for asked_by_then in [4, 5] {
        user.netbox(&["--allow", "@npm"], &curl(&[&index_url])).exits_with(0);
        assert_eq!(asked(), asked_by_then);
    }
    user.has_program("bin/npm", &format!("{script} "));
    user.netbox(&["--allow", "@npm"], &client).exits_with(0);
    assert_eq!(asked(), 7);
}

fn a_tool_that_goes_nowhere_is_an_error_that_points_to_learn(world: &World) {
    let user = User::new(world);
    user.has_program("bin/npm", "exit 0");
    let outcome = user.words(&["run", "--allow", "@npm", "--", "true"]);
    outcome.complains("npm's configuration names no host, and `npm`, which was asked, goes to none");
    outcome.complains("netbox learn");
    assert_ne!(outcome.code, Some(0), "{outcome}");
}

fn a_tool_in_the_project_is_not_run(world: &World) {
    let (good, evil) = (world.zone().host("derived-good"), world.zone().host("derived-evil"));
    let (good_url, evil_url) = (good.http("/"), evil.http("/"));
    let user = User::new(world);
    user.has_npm(&good_url, &good_url);
    user.has_program("src/project/bin/npm", &format!("touch ../ran; curl -sf {evil_url}"));
    let ran = user.project.join("ran");
    let mut path = user.project.join("bin").into_os_string();
    for folder in [user.home.join("bin").into_os_string(), world.search_path()] {
        path.push(":");
        path.push(folder);
    }
    let run = |run: Run<'_>, words: &[&str]| user.in_project(run).env("PATH", &path).exec(words);
    // It is what the caller's shell would find.
    run(world.bare(), &["sh", "-c", "cd bin && npm && rm -f ../ran"]).says("hello derived-evil");
    let outcome = run(world.netbox(&["--allow", "@npm"]), &curl(&["--include", &good_url, &evil_url]));
    outcome.allowed(&good.name, 80, "listed");
    outcome.refused(&evil.name, 80, "not-listed");
    assert!(!ran.exists(), "{outcome}");
}

fn a_tool_in_a_folder_for_everybody_is_not_run(world: &World) {
    let user = User::new(world);
    user.has_program("bin/npm", "touch ~/ran");
    fs::set_permissions(user.home.join("bin"), Permissions::from_mode(0o777)).expect("own folder");
    let path = user.home.join("bin").into_os_string();
    let words = ["run", "--allow", "@npm", "--", "true"];
    let outcome = user.in_project(world.netbox_words()).env("PATH", path).exec(&words);
    outcome.complains("there is no `npm` to ask");
    assert!(!user.home.join("ran").exists(), "{outcome}");
}

fn a_tool_starts_in_an_empty_folder_that_no_other_sandbox_has(world: &World) {
    let index = world.zone().host("derived-where");
    let url = index.http("/");
    let user = User::new(world);
    user.has_program("bin/npm", &format!("pwd > ~/where; env > ~/environment; curl -sf {url}"));
    let run = user.in_project(world.netbox(&["--allow", "@npm"])).env("SECRET", "s3cret").env("NODE_OPTIONS", "--x");
    run.exec(&curl(&[&url])).exits_with(0);
    let read = |name: &str| fs::read_to_string(user.home.join(name)).expect("it was asked");
    assert_eq!(read("where").trim(), "/dev/shm/ask");
    assert!(!read("environment").contains("s3cret") && !read("environment").contains("NODE_OPTIONS"));
    // Nothing is left of it.
    let left = fs::read_dir(user.home.join(".local/state/netbox")).expect("own folder").flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("ask.")));
    assert!(!user.home.join(".cache").exists());
}

fn what_a_tool_is_asked_with_is_out_of_reach_of_every_sandbox(world: &World) {
    let index = world.zone().host("derived-reach");
    let url = index.http("/");
    let user = User::new(world);
    // It sees the home as every sandbox does. What was prepared is there to be copied, and nothing else is.
    let look = "find ~ -path '*/ask.*' ! -type d > ~/seen; find ~ -path '*/ask.*' -writable > ~/writable";
    let change = "for room in ~/.local/state/netbox/ask.*; do touch $room/.npmrc; mv $room $room.x; done 2> ~/refused";
    user.has_program("bin/npm", &format!("{look}; {change}; curl -sf {url}"));
    user.netbox(&["--allow", "@npm"], &curl(&[&url])).exits_with(0);
    let read = |name: &str| fs::read_to_string(user.home.join(name)).expect("it was asked");
    let seen = read("seen");
    assert_eq!(seen.lines().count(), 1, "{seen}");
    assert!(seen.trim().ends_with("/package.json"), "{seen}");
    assert_eq!(read("writable"), "");
    assert_eq!(read("refused").matches("Read-only file system").count(), 2, "{}", read("refused"));
}

fn a_variable_that_leads_into_the_project_tells_a_tool_nothing(world: &World) {
    let (good, evil) = (world.zone().host("derived-own"), world.zone().host("derived-foreign"));
    let (good_url, evil_url) = (good.http("/"), evil.http("/"));
    let user = User::new(world);
    // An npm that does what the file says, or else goes to its default.
    user.has_program("bin/npm", &format!("curl -sf $(cat ${{npm_config_userconfig:-no}} 2>&- || echo {good_url})"));
    user.write("src/project/npmrc", &evil_url);
    let run = |run: Run<'_>, words: &[&str]| {
        user.in_project(run).env("npm_config_userconfig", user.project.join("npmrc")).exec(words)
    };
    run(world.bare(), &["npm"]).says("hello derived-foreign");
    let client = curl(&["--include", &good_url, &evil_url]);
    let outcome = run(world.netbox(&["--allow", "@npm"]), &client);
    outcome.allowed(&good.name, 80, "listed");
    outcome.refused(&evil.name, 80, "not-listed");
}

fn what_is_left_out_is_told(world: &World) {
    let registry = world.zone().host("derived-public");
    let url = registry.http("/");
    let user = User::new(world);
    user.has_npm(&url, &url);
    user.write(
        ".npmrc",
        &format!("registry={url}\n@inner:registry=http://10.77.0.23/\n@local:registry=http://localhost:4873/\n"),
    );
    let outcome = user.words(&["policy", "show", "--allow", "@npm"]);
    outcome.exits_with(0).says("derived-public.example.com:80").says(".npmrc:2: `@npm` leaves it out: an address");
    outcome.says(".npmrc:3: `@npm` leaves it out: `localhost` is no public name");
    outcome.does_not_say("10.77.0.23").does_not_say("4873");
}

fn the_users_own_files_count_as_they_are(world: &World) {
    let registry = world.zone().host("derived-user");
    let url = registry.http("/");
    let user = User::new(world);
    user.write(".npmrc", &format!("registry={url}\n"));
    user.has_program("bin/npm", "exit 0");
    user.netbox(&["--allow", "@npm"], &curl(&[&url])).exits_with(0).says("hello derived-user");
    // Somebody else could have written it.
    fs::set_permissions(user.home.join(".npmrc"), Permissions::from_mode(0o666)).expect("own file");
    let outcome = user.words(&["run", "--allow", "@npm", "--", "true"]);
    outcome.complains(".npmrc` may be written to by others than its owner");
    assert_ne!(outcome.code, Some(0), "{outcome}");
}

fn a_service_is_for_no_project(world: &World) {
    let user = User::new(world);
    user.write("src/project/.git/config", "[remote \"o\"]\nurl = https://git.example.com/x\n");
    let words = ["proxy", "serve", "--listen", "127.0.0.1:0", "--allow", "@git"];
    let outcome = user.words(&words);
    outcome.complains("there is no git repository here");
    assert_ne!(outcome.code, Some(0), "{outcome}");
}

fn a_file_that_is_none_is_an_error_at_once(world: &World) {
    for (make, why) in [
        ("mkfifo .npmrc", "is a FIFO, not a regular file"),
        ("ln -s /dev/zero .npmrc", "is a symbolic link"),
        ("mkdir .npmrc", "is a directory, not a regular file"),
        ("truncate -s 33M .npmrc", "is larger than 32 MiB"),
        ("printf '\\377' > .npmrc", "is not UTF-8"),
    ] {
        let user = User::new(world);
        user.in_project(world.bare()).exec(&["sh", "-c", make]).exits_with(0);
        let outcome = user.words(&["run", "--allow", "@npm", "--", "touch", "ran"]);
        outcome.complains(why);
        assert!(outcome.code != Some(0) && !user.project.join("ran").exists(), "{outcome}");
    }
}

fn no_password_of_a_url_is_shown(world: &World) {
    for (file, text) in [
        (".npmrc", "//x.example.com/:_authToken=s3cret\nregistry=https://me:s3cret@x.example.com/\n"),
        (".npmrc", "registry=https://me:s3cret@${X}/\n"),
        (".npmrc", "registry=https://me:s3c/s3cret@x.example.com:x/\n"),
        (".npmrc", "registry=https://me:s3cret@localhost/\n"),
    ] {
        let user = User::new(world);
        user.has_program("bin/npm", "exit 0").write(&format!("src/project/{file}"), text);
        let outcome = user.words(&["run", "--allow", "@npm", "--", "true"]);
        assert_ne!(outcome.code, Some(0), "{outcome}");
        assert!(!outcome.stderr().contains("s3cret") && !outcome.stdout().contains("s3cret"), "{outcome}");
    }
}
