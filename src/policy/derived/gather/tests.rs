//! Where the files are, and which counts: folders with files, and what a preset comes to there.

use super::super::DerivedRule;
use super::*;

/// What a preset comes to in a folder with these files: the rules with where they are from, a `*` at those that a file
/// of the project wrote, and `default` where the tool is to be asked.
fn show(preset: &str, variables: &[(&str, &str)], files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("own folder");
    fs::create_dir_all(top.join("project/deep")).expect("own folder");
    for (path, text) in files {
        let path = top.join(path);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("own folder");
        fs::write(path, text).expect("own folder");
    }
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| (*name, value.replace("TOP", &top.to_string_lossy()))).collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let around = Around::in_folder(&top, &variables);
    let gathered = gather(preset, &around);
    let takes_default = gathered.as_ref().is_ok_and(|gathered| gathered.reading.takes_default);
    let shown = match gathered.and_then(|gathered| gathered.into_rules(&around)) {
        Ok(rules) => {
            let rule =
                |rule: &DerivedRule| format!("{}{} {}", if rule.of_project { "*" } else { "" }, rule.rule, rule.source);
            rules.iter().map(rule).chain(takes_default.then(|| "default".into())).collect::<Vec<_>>().join("; ")
        }
        Err(why) => format!("error {why}"),
    };
    shown.replace(&format!("{}/", top.display()), "/")
}

#[test]
fn npm_reads_the_projects_file_and_then_the_users_and_the_machines() {
    let project = ("project/.npmrc", "registry=https://project.example.com/");
    let user = ("home/.npmrc", "registry=https://user.example.com/\n@a:registry=https://a.example.com/");
    let machine = ("etc/npmrc", "@b:registry=https://b.example.com/");
    for (variables, files, expected) in [
        (&[][..], &[project, user][..], "*project.example.com:443 /project/.npmrc:1; a.example.com:443 /home/.npmrc:2"),
        (
            &[("NPM_CONFIG_REGISTRY", "https://env.example.com/")],
            &[project, machine],
            "env.example.com:443 npm_config_registry; b.example.com:443 /etc/npmrc:1",
        ),
        (&[], &[machine], "b.example.com:443 /etc/npmrc:1; default"),
        (&[], &[("project/deep/.npmrc", "registry=https://deep.example.com/")], "*deep.example.com:443 .npmrc:1"),
        (
            &[("npm_config_userconfig", "/nowhere/npmrc")],
            &[user, project],
            "*project.example.com:443 /project/.npmrc:1",
        ),
        (
            &[],
            &[("project/.npmrc", "registry=https://${X}/")],
            "error /project/.npmrc:1: the host is in a variable; write it out, or allow it by a rule of its own",
        ),
        (
            &[],
            &[("home/.npmrc", "registry=http://localhost:4873/")],
            "error npm's configuration names no host that it can stand for; /home/.npmrc:1: `localhost` is no public name; allow it by a rule of its own",
        ),
    ] {
        assert_eq!(show("npm", variables, files), expected);
    }
}

#[test]
fn pip_reads_the_machines_file_then_the_users_and_requirements() {
    let machine = ("etc/pip.conf", "[global]\nindex-url = https://machine.example.com/");
    let user = ("home/.config/pip/pip.conf", "[global]\nindex-url = https://user.example.com/");
    let wants = ("project/requirements-dev.txt", "-i https://wanted.example.com/\na @ https://files.example.com/a.whl");
    for (variables, files, expected) in [
        (&[][..], &[machine, user][..], "user.example.com:443 /home/.config/pip/pip.conf:2"),
        (
            &[],
            &[machine, wants],
            "machine.example.com:443 /etc/pip.conf:2; *wanted.example.com:443 /project/requirements-dev.txt:1; *files.example.com:443 /project/requirements-dev.txt:2",
        ),
        (&[("PIP_CONFIG_FILE", "/dev/null")], &[machine, user], "error pip's configuration names no host"),
        (&[("PIP_NO_INDEX", "1")], &[machine], ""),
        (&[("PIP_INDEX_URL", "https://env.example.com/")], &[machine], "env.example.com:443 PIP_INDEX_URL"),
    ] {
        assert_eq!(show("pip", variables, files), expected);
    }
}

#[test]
fn cargo_reads_from_the_working_directory_upward_and_its_home() {
    let replace = |host: &str| {
        format!("[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://{host}/\"\n")
    };
    let (near, top, home) = (replace("near.example.com"), replace("top.example.com"), replace("home.example.com"));
    for (variables, files, expected) in [
        (
            &[][..],
            &[("project/deep/.cargo/config.toml", near.as_str()), ("project/.cargo/config.toml", &top)][..],
            "*near.example.com:443 .cargo/config.toml:4",
        ),
        (
            &[],
            &[(".cargo/config.toml", &top), ("home/.cargo/config.toml", &home)],
            "*top.example.com:443 /.cargo/config.toml:4",
        ),
        (&[], &[("home/.cargo/config", &home)], "home.example.com:443 /home/.cargo/config:4"),
        (
            &[("CARGO_REGISTRIES_MY_CORP_INDEX", "https://corp.example.com/")],
            &[],
            "corp.example.com:443 CARGO_REGISTRIES_MY_CORP_INDEX; default",
        ),
        (
            &[],
            &[(
                "project/.cargo/config.toml",
                "[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"v\"",
            )],
            "",
        ),
    ] {
        assert_eq!(show("cargo", variables, files), expected);
    }
}

#[test]
fn apt_reads_its_lists_and_no_other_names() {
    let one = ("etc/apt/sources.list", "deb http://one.example.com/ x main");
    let two = ("etc/apt/sources.list.d/two.sources", "Types: deb\nURIs: https://two.example.com/");
    let off = ("etc/apt/sources.list.d/three.list.off", "deb http://no.example.com/ x main");
    let odd = ("etc/apt/sources.list.d/o~d.list", "deb http://no.example.com/ x main");
    let expected =
        "one.example.com:80 /etc/apt/sources.list:1; two.example.com:443 /etc/apt/sources.list.d/two.sources:2";
    assert_eq!(show("apt", &[], &[one, two, off, odd]), expected);
    assert_eq!(show("apt", &[], &[]), "error apt's list of sources names no host");
}

#[test]
fn go_reads_its_variables_and_its_file() {
    let file = ("home/.config/go/env", "GOPROXY=https://file.example.com\nGOSUMDB=off\n");
    for (variables, expected) in [
        (&[][..], "file.example.com:443 /home/.config/go/env:1"),
        (&[("GOPROXY", "https://env.example.com")], "env.example.com:443 GOPROXY"),
        (&[("GOENV", "off"), ("GOSUMDB", "sum.example.com")], "sum.example.com:443 GOSUMDB; default"),
        (&[("GOPROXY", "off")], ""),
    ] {
        assert_eq!(show("go", variables, &[file]), expected);
    }
}

#[test]
fn maven_reads_settings_and_projects() {
    let mirror = "<settings><mirrors><mirror><mirrorOf>central</mirrorOf><url>https://mirror.example.com</url></mirror></mirrors></settings>";
    let pom = "<project><repositories><repository><id>r</id><url>https://r.example.com</url></repository></repositories></project>";
    let (settings, pom) = (("home/.m2/settings.xml", mirror), ("project/pom.xml", pom));
    let expected = "mirror.example.com:443 /home/.m2/settings.xml:1; *r.example.com:443 /project/pom.xml:1";
    assert_eq!(show("maven", &[], &[settings, pom]), expected);
    assert_eq!(show("maven", &[], &[pom]), "*r.example.com:443 /project/pom.xml:1; default");
}

#[test]
fn git_reads_the_repository_and_rewrites_as_the_user_says() {
    let config = ("project/.git/config", "[remote \"origin\"]\nurl = gh:a/b\n");
    let modules = ("project/.gitmodules", "[submodule \"x\"]\nurl = https://sub.example.com/x\n");
    let user = ("home/.gitconfig", "[include]\npath = more\n");
    let more = ("home/more", "[url \"https://hub.example.com/\"]\ninsteadOf = gh:\n");
    assert_eq!(
        show("git", &[], &[config, modules, user, more]),
        "*hub.example.com:443 /project/.git/config:2; *sub.example.com:443 /project/.gitmodules:2"
    );
    assert_eq!(show("git", &[], &[user]), "error there is no git repository here");
    assert_eq!(show("git", &[], &[("project/.git/config", "")]), "error the repository's configuration names no host");
    let circle = ("home/.gitconfig", "[include]\npath = .gitconfig\n");
    assert_eq!(show("git", &[], &[config, circle]), "error `/home/.gitconfig` takes in more files than netbox reads");
}

#[test]
fn git_finds_the_configuration_of_a_further_working_tree() {
    let files = [
        ("project/.git", "gitdir: ../main/.git/worktrees/project\n"),
        ("main/.git/worktrees/project/commondir", "../..\n"),
        ("main/.git/worktrees/project/config.worktree", "[remote \"w\"]\nurl = https://own.example.com/\n"),
        ("main/.git/config", "[remote \"origin\"]\nurl = git@git.example.com:a\n"),
    ];
    assert_eq!(
        show("git", &[], &files),
        "*git.example.com:22 /main/.git/config:2; *own.example.com:443 /main/.git/worktrees/project/config.worktree:2"
    );
}

#[test]
fn lock_files_count_from_the_working_directory_to_the_root() {
    let lock = r#"{"packages": {"a": {"resolved": "https://npm.example.com/a.tgz"}}}"#;
    let cargo = "[[package]]\nname = \"a\"\nsource = \"git+https://git.example.com/a#0\"\n";
    assert_eq!(
        show(
            "lockfile",
            &[],
            &[("project/deep/package-lock.json", lock), ("project/Cargo.lock", cargo), ("yarn.lock", "x")]
        ),
        "*npm.example.com:443 package-lock.json:1; *git.example.com:443 /project/Cargo.lock:3"
    );
    assert_eq!(show("lockfile", &[], &[]), "error there is no lock file here that netbox reads");
}

#[test]
fn a_file_of_the_project_that_is_none_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("own folder");
    fs::create_dir_all(top.join("project/deep")).expect("own folder");
    fs::write(top.join("elsewhere"), "registry=https://a.example.com/").expect("own folder");
    let around = Around::in_folder(&top, &[]);
    std::os::unix::fs::symlink("../elsewhere", top.join("project/.npmrc")).expect("own folder");
    let why = gather("npm", &around).expect_err("a link");
    assert!(why.contains("is a symbolic link"), "{why}");
    fs::remove_file(top.join("project/.npmrc")).expect("own folder");
    nix::unistd::mkfifo(&top.join("project/.npmrc"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let why = gather("npm", &around).expect_err("a FIFO");
    assert!(why.contains("is a FIFO"), "{why}");
}

#[test]
fn a_variable_that_leads_into_the_project_makes_nothing_the_users() {
    let npmrc = ("project/conf/npmrc", "registry=https://inner.example.com/");
    let pip = ("project/venv/pip.conf", "[global]\nindex-url = https://inner.example.com/");
    let cargo = ("project/cargo/config.toml", "[registries.x]\nindex = \"sparse+https://inner.example.com/\"");
    let go = ("project/go.env", "GOPROXY=https://inner.example.com\nGOSUMDB=off");
    for (preset, variable, value, file, expected) in [
        (
            "npm",
            "npm_config_userconfig",
            "TOP/project/conf/npmrc",
            npmrc,
            "*inner.example.com:443 /project/conf/npmrc:1",
        ),
        ("pip", "VIRTUAL_ENV", "TOP/project/venv", pip, "*inner.example.com:443 /project/venv/pip.conf:2"),
        (
            "cargo",
            "CARGO_HOME",
            "TOP/project/cargo",
            cargo,
            "*inner.example.com:443 /project/cargo/config.toml:2; default",
        ),
        ("go", "GOENV", "TOP/project/go.env", go, "*inner.example.com:443 /project/go.env:1"),
    ] {
        assert_eq!(show(preset, &[(variable, value)], &[file]), expected);
    }
}
