//! What files of the project say to derived presets counts once it was trusted, and not what came later.

use std::path::Path;

use crate::outcome::Outcome;
use crate::programs::{CURL, curl};
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

use super::derived::User;

tests![
    a_file_of_the_project_counts_once_it_is_trusted needs [CURL],
    a_command_that_edits_the_projects_files_gains_nothing needs [CURL],
    a_command_that_edits_the_files_of_a_trusted_policy_gains_nothing needs [CURL],
    what_was_accepted_for_one_profile_stays_accepted_beside_another needs [],
    a_trusted_policy_covers_where_the_downloads_of_its_index_lie needs [CURL],
    an_index_that_the_project_replaces_is_not_where_downloads_lie needs [CURL],
];

/// Asserts that nothing ran, since this host is not trusted.
#[track_caller]
fn assert_asks(outcome: &Outcome, host: &str, ran: &Path) {
    outcome.exits_with(125).complains(host).complains("not trusted").complains("netbox trust");
    assert!(!ran.exists(), "{outcome}");
}

fn a_file_of_the_project_counts_once_it_is_trusted(world: &World) {
    let registry = world.zone().host("derived-project");
    let url = registry.http("/");
    let user = User::new(world);
    user.write("src/project/.npmrc", &format!("registry={url}\n"));
    user.has_program("bin/npm", "exit 0");
    let ran = user.project.join("ran");
    let run = ["run", "--allow", "@npm", "--", "touch", "ran"];
    let mark = world.mark();
    assert_asks(&user.words(&run), "derived-project.example.com:80", &ran);
    world.assert_untouched(mark, &registry);
    user.words(&["trust", "--allow", "@npm"]).exits_with(0).says("derived-project.example.com:80");
    user.netbox(&["--allow", "@npm"], &curl(&[&url])).exits_with(0).says("hello derived-project");
}

fn a_command_that_edits_the_projects_files_gains_nothing(world: &World) {
    let (good, evil) = (world.zone().host("derived-kept"), world.zone().host("derived-edited"));
    let good_url = good.http("/");
    let edits = [
        ("@npm", ".npmrc", format!("registry={good_url}\n"), "@x:registry=http://derived-edited.example.com/"),
        (
            "@git",
            ".git/config",
            format!("[remote \"origin\"]\n\turl = {good_url}x.git\n"),
            "[remote \"x\"] url = http://derived-edited.example.com/x.git",
        ),
        (
            "@pip",
            "requirements.txt",
            format!("-i {good_url}\n"),
            "--extra-index-url http://derived-edited.example.com/",
        ),
        (
            "@lockfile",
            "yarn.lock",
            format!("  resolved \"{good_url}x.tgz\"\n"),
            "  resolved \"http://derived-edited.example.com/x.tgz\"",
        ),
    ];
    for (preset, file, before, edit) in edits {
        let user = User::new(world);
        // Tools that name nothing themselves.
        for tool in ["npm", "pip3"] {
            user.has_program(&format!("bin/{tool}"), &format!("curl -sf {good_url}"));
        }
        user.write(&format!("src/project/{file}"), &before);
        user.words(&["trust", "--allow", preset]).exits_with(0);
        let script = format!("curl -sf {good_url} && echo '{edit}' >> {file}");
        user.netbox(&["--allow", preset], &["sh", "-c", &script]).exits_with(0).says("hello derived-kept");
        let ran = user.project.join("ran");
        let mark = world.mark();
        let outcome = user.words(&["run", "--allow", preset, "--", "touch", "ran"]);
        assert_asks(&outcome, "derived-edited.example.com:80", &ran);
        world.assert_untouched(mark, &evil);
        // And it is not the edit that broke it.
        user.words(&["trust", "--allow", preset]).exits_with(0);
        let url = evil.http("/");
        user.netbox(&["--allow", preset], &curl(&[&url])).exits_with(0).says("hello derived-edited");
    }
}

fn a_command_that_edits_the_files_of_a_trusted_policy_gains_nothing(world: &World) {
    let good = world.zone().host("derived-policy");
    let good_url = good.http("/");
    let user = User::new(world);
    user.has_npm(&good_url, &good_url);
    user.write("src/project/netbox.toml", "allow = [\"@npm\", \"@git\"]\n");
    user.write("src/project/.npmrc", &format!("registry={good_url}\n"));
    user.write("src/project/.git/config", &format!("[remote \"origin\"]\n\turl = {good_url}x.git\n"));
    let ran = user.project.join("ran");
    user.words(&["run", "--", "touch", "ran"]).exits_with(125);
    user.words(&["trust"]).exits_with(0).says("@npm stands for").says("@git stands for");
    // The last is the user's own: it counts as such beside `--allow`, and here it says what a trusted file stands for.
    for (file, edit, host) in [
        (".npmrc", "@x:registry=http://derived-more.example.com/", "derived-more"),
        (".git/config", "[remote \"x\"] url = ssh://git@derived-more.example.com/x", "derived-more"),
        ("../../.npmrc", "@y:registry=http://derived-mine.example.com/", "derived-mine"),
    ] {
        let script = format!("curl -sf {good_url} && echo '{edit}' >> {file}");
        user.netbox(&[], &["sh", "-c", &script]).exits_with(0).says("hello derived-policy");
        assert_asks(&user.words(&["run", "--", "touch", "ran"]), &format!("{host}.example.com"), &ran);
        user.words(&["trust"]).exits_with(0);
    }
    user.netbox(&[], &["touch", "ran"]).exits_with(0);
}

fn what_was_accepted_for_one_profile_stays_accepted_beside_another(world: &World) {
    let user = User::new(world);
    let profiles = "[profile.a]\nallow = [\"@git\"]\n[profile.b]\nallow = [\"@lockfile\"]\n";
    user.write("src/project/netbox.toml", profiles);
    user.write("src/project/.git/config", "[remote \"o\"]\nurl = https://profile-git.example.com/x\n");
    user.write("src/project/yarn.lock", "  resolved \"https://profile-lock.example.com/x.tgz\"\n");
    for (profile, host) in [("a", "profile-git"), ("b", "profile-lock")] {
        let terminal = Terminal::new();
        let flags = ["--profile", profile];
        let run = user.in_project(world.netbox(&flags)).on(&terminal).start(&["true"]);
        let shown = terminal.shows("[y/N] ");
        assert!(shown.contains(&format!("{host}.example.com:443")), "`{shown}`");
        terminal.enter_line("y");
        run.finish().exits_with(0);
    }
    for profile in ["a", "b", "a"] {
        user.netbox(&["--profile", profile], &["true"]).exits_with(0);
    }
    user.write("src/project/yarn.lock", "  resolved \"https://profile-new.example.com/x.tgz\"\n");
    user.netbox(&["--profile", "a"], &["true"]).exits_with(0);
    user.words(&["run", "--profile", "b", "--", "true"]).exits_with(125).complains("profile-new.example.com:443");
}

fn a_trusted_policy_covers_where_the_downloads_of_its_index_lie(world: &World) {
    let (index, files) = (world.zone().host("derived-trusted"), world.zone().host("derived-trusted-files"));
    let (index_url, files_url) = (index.http("/"), files.http("/"));
    let user = User::new(world);
    user.has_npm(&index_url, &files_url);
    user.write("src/project/netbox.toml", "allow = [\"@npm\"]\n");
    let client = curl(&[&index_url, &files_url]);
    let mark = world.mark();
    // Nobody is called before the file is trusted.
    user.words(&["run", "--", "true"]).exits_with(125).complains("is not trusted");
    user.words(&["trust"]).exits_with(0).says("derived-trusted.example.com:80");
    world.assert_untouched(mark, &index);
    for _ in 0..2 {
        user.netbox(&[], &client).exits_with(0).says("hello derived-trusted-files");
    }
}

fn an_index_that_the_project_replaces_is_not_where_downloads_lie(world: &World) {
    let zone = world.zone();
    let (own, scoped, project) =
        (zone.host("derived-builtin"), zone.host("derived-scoped"), zone.host("derived-replaces"));
    let (own_url, scoped_url, project_url) = (own.http("/"), scoped.http("/"), project.http("/"));
    let user = User::new(world);
    // An npm that knows nothing of the project goes to its own index.
    user.has_npm(&own_url, &own_url);
    user.write(".npmrc", &format!("@corp:registry={scoped_url}\n"));
    user.write("src/project/.npmrc", &format!("registry={project_url}\n"));
    user.words(&["trust", "--allow", "@npm"]).exits_with(0);
    for _ in 0..2 {
        let outcome = user.netbox(&["--allow", "@npm"], &curl(&["--include", &own_url, &scoped_url, &project_url]));
        outcome.refused(&own.name, 80, "not-listed");
        outcome.allowed(&scoped.name, 80, "listed");
        outcome.allowed(&project.name, 80, "listed");
    }
}
