//! Builds and installations of a stranger's code: what they run on the way is held like everything else.

use std::fs;
use std::path::{Path, PathBuf};

use super::{at_home, greeting, works};
use crate::programs::{CARGO, CC, CURL, GIT, MAKE, NODE, NPM};
use crate::servers::PASSWORD;
use crate::tests;
use crate::themes::reach::publish_repository;
use crate::world::World;

tests![
    make_and_cc_build needs [MAKE, CC],
    cargo_builds_with_a_build_script_that_is_held needs [CARGO, CC, CURL],
    npm_installs_by_a_lockfile_and_its_scripts_are_held needs [NPM, NODE, CURL],
    a_lockfile_that_names_another_host_says_so needs [NPM],
    git_clones_with_a_credential_helper needs [GIT],
];

fn write(home: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = home.join(name);
        fs::create_dir_all(file.parent().expect("a file is in a folder")).expect("own folder");
        fs::write(file, text).expect("own folder");
    }
}

fn make_and_cc_build(world: &World) {
    let files = [
        ("Makefile", "all: one two\n\t./one && ./two\n%: %.c\n\tcc -pthread -o $@ $<\n"),
        ("one.c", "#include <stdio.h>\nint main(void) { return puts(\"one\") < 0; }\n"),
        ("two.c", "#include <stdio.h>\nint main(void) { return puts(\"two\") < 0; }\n"),
    ];
    works(world, &["--mode", "none"], |home| write(home, &files), &["make", "-j4"], &["one\ntwo\n"]);
}

/// The script runs while the crate is built, and fetches what is nobody's business.
fn cargo_builds_with_a_build_script_that_is_held(world: &World) {
    let host = world.zone().host("build-script");
    let script = r#"
        fn main() {
            let url = std::env::var("URL").unwrap();
            let fetched = std::process::Command::new("curl").args(["--silent", "--fail", &url]).output().unwrap();
            let what = if fetched.status.success() { "fetched" } else { "was held" };
            println!("cargo:rustc-env=SCRIPT={what}");
        }
    "#;
    let files = [
        ("Cargo.toml", "[package]\nname = \"stranger\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"),
        ("build.rs", script),
        ("src/main.rs", "fn main() { println!(\"the script {}\", env!(\"SCRIPT\")); }\n"),
    ];
    let build = |run| {
        let (run, home) = at_home(world, run);
        write(&home, &files);
        let run = run.env("URL", host.http("/")).env("CARGO_HOME", home.join(".cargo"));
        run.exec(&["cargo", "run", "--quiet", "--offline"])
    };
    build(world.bare()).exits_with(0).says("the script fetched\n");
    let mark = world.mark();
    let outcome = build(world.netbox(&["--allow", "other.example.com"]));
    outcome.exits_with(0).says("the script was held\n").refused(&host.name, 80, "not-listed");
    world.assert_untouched(mark, &host);
}

/// A package as registries serve it, below `/files/` of every host.
fn publish_package(world: &World, name: &str, files: &[(&str, &str)]) {
    let folder = world.fresh_path("home");
    write(&folder, files);
    let archive = world.path("files").join(name).to_string_lossy().into_owned();
    world.bare().folder(&folder).exec(&["tar", "-czf", &archive, "package"]).exits_with(0);
}

/// A project that depends on the package which this URL leads to.
fn project(home: &Path, url: &str) {
    let package = r#"{"name": "project", "version": "1.0.0", "dependencies": {"stranger": "1.0.0"}}"#;
    let lock = format!(
        r#"{{"name": "project", "version": "1.0.0", "lockfileVersion": 3, "packages": {{
            "": {{"name": "project", "version": "1.0.0", "dependencies": {{"stranger": "1.0.0"}}}},
            "node_modules/stranger": {{"version": "1.0.0", "resolved": "{url}", "hasInstallScript": true}}}}}}"#
    );
    write(home, &[("package.json", package), ("package-lock.json", &lock)]);
}

const NPM_CI: [&str; 6] = ["npm", "ci", "--foreground-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"];

fn npm_installs_by_a_lockfile_and_its_scripts_are_held(world: &World) {
    let (registry, evil) = (world.zone().host("npm-registry"), world.zone().host("npm-script"));
    let script = format!("curl --silent --fail {} || echo the script was held", evil.http("/"));
    let package = format!(
        r#"{{"name": "stranger", "version": "1.0.0", "main": "index.js", "scripts": {{"postinstall": "{script}"}}}}"#
    );
    let files =
        [("package/package.json", package.as_str()), ("package/index.js", "module.exports = 'from the package';\n")];
    publish_package(world, "stranger-1.0.0.tgz", &files);
    let install = |run| {
        let (run, home) = at_home(world, run);
        project(&home, &registry.http("/files/stranger-1.0.0.tgz"));
        (run.exec(&NPM_CI), home)
    };
    let (outcome, _) = install(world.bare());
    outcome.exits_with(0).says(&greeting(&evil));
    let mark = world.mark();
    let (outcome, home) = install(world.netbox(&["--allow", &registry.name]));
    outcome.exits_with(0).says("the script was held").allowed(&registry.name, 80, "listed");
    outcome.refused(&evil.name, 80, "not-listed");
    world.assert_untouched(mark, &evil);
    let script = "console.log(require('stranger'))";
    world.netbox(&["--mode", "none"]).folder(&home).exec(&["node", "-e", script]).says("from the package\n");
}

fn a_lockfile_that_names_another_host_says_so(world: &World) {
    let host = world.zone().host("npm-elsewhere");
    let (run, home) = at_home(world, world.netbox(&["--allow", "other.example.com"]));
    project(&home, &host.http("/files/elsewhere-1.0.0.tgz"));
    let outcome = run.exec(&NPM_CI);
    assert_ne!(outcome.code, Some(0), "{outcome}");
    outcome.complains("403").complains(&format!("--allow '{}", host.name));
}

/// The helper's server is reached by a unix socket, which is made inside.
fn git_clones_with_a_credential_helper(world: &World) {
    publish_repository(world);
    let host = world.zone().host("git-private");
    let (user, password) = PASSWORD;
    let script = "
        git config --global credential.helper cache
        printf 'protocol=https\\nhost=%s\\nusername=%s\\npassword=%s\\n' \"$1\" \"$2\" \"$3\" | git credential approve
        git clone --quiet \"https://$1/private/project.git\" clone && cat clone/README
        git credential-cache exit
    ";
    let words = ["sh", "-c", script, "sh", &host.name, user, password];
    works(world, &["--allow", &host.name], |_: &PathBuf| {}, &words, &["a file to clone\n"]);
    let without = ["git", "clone", "--quiet", &host.https("/private/project.git"), "clone"];
    let (run, _) = at_home(world, world.netbox(&["--allow", &host.name]));
    run.env("GIT_TERMINAL_PROMPT", "0").exec(&without).exits_with(128).complains("could not read Username");
}
