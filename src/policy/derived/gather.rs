//! The files of each tool: where they are, and in which order they count.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use netbox_config::Source;
use netbox_config::derived::cargo::CargoFile;
use netbox_config::derived::git::GitFile;
use netbox_config::derived::go::GoVariables;
use netbox_config::derived::pip::PipVariables;
use netbox_config::derived::{Reading, Setting, apt, cargo, git, go, lockfile, maven, npm, pip, requirements};

use super::files::{Around, Text};
use super::told;
use crate::policy::{places, shown};

/// How many files of the user's a git configuration may take in.
const MOST_INCLUDES: usize = 16;

/// What the texts of one tool come to.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The hosts.
    pub reading: Reading,
    /// The tool is told to take everything from this machine: no host is no mistake.
    pub is_local: bool,
    /// What was read, for the message that it names no host.
    pub what: &'static str,
}

impl Gathered {
    fn new(what: &'static str) -> Self {
        Self { what, ..Self::default() }
    }

    fn add(&mut self, reading: Reading) -> Result<(), String> {
        self.reading.add(reading).map_err(|misread| misread.to_string())
    }

    /// Nothing is missing, so nothing is asked for.
    fn or_local(mut self) -> Self {
        self.is_local = !self.reading.takes_default && self.reading.left_out.is_empty();
        self
    }
}

/// Reads what there is of a preset's tool.
///
/// # Errors
/// A file cannot be read or understood.
pub fn gather(preset: &str, around: &Around) -> Result<Gathered, String> {
    match preset {
        "npm" => npm(around),
        "pip" => pip(around),
        "cargo" => cargo(around),
        "apt" => apt(around),
        "go" => go(around),
        "maven" => maven(around),
        "git" => git(around),
        "lockfile" => lockfile(around),
        _ => Err("netbox does not know how to derive it".into()),
    }
}

/// `.npmrc` of the project, the user (`userconfig`) and the machine (`globalconfig`).
fn npm(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("npm's configuration");
    // npm takes the variables of its configuration in either case.
    let either = |name: &str| around.variables().find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let registry = either("npm_config_registry").map(|value| Setting::of_environment("npm_config_registry", value));
    let user = either("npm_config_userconfig").map(PathBuf::from).or_else(|| around.in_home(".npmrc"));
    let global = match either("npm_config_globalconfig") {
        Some(path) => vec![Some(path.into())],
        // Below the prefix that npm was built with, or where Debian has it.
        None => ["usr/local/etc/npmrc", "usr/etc/npmrc", "etc/npmrc"].map(|path| Some(around.of_system(path))).into(),
    };
    let own = around.own_files([user.clone()].into_iter().chain(global))?;
    let own: Vec<_> = own.iter().map(|text| text.parse(npm::parse)).collect::<Result<_, _>>()?;
    let mut projects = Vec::new();
    for directory in &around.project {
        // In the home it is the user's own, and npm takes it as that.
        if user.as_deref() != Some(&directory.join(".npmrc"))
            && let Some(text) = around.project_file(directory, ".npmrc")?
        {
            projects.push(text.parse(npm::parse)?);
        }
    }
    // Which of them npm takes depends on where packages and workspaces begin: each of them counts.
    for project in &projects {
        let files: Vec<_> = [project.clone()].into_iter().chain(own.iter().cloned()).collect();
        gathered.add(told(npm::resolve(registry.clone(), &files))?)?;
    }
    if projects.is_empty() {
        gathered.add(told(npm::resolve(registry, &own))?)?;
    }
    Ok(gathered.or_local())
}

/// `pip.conf` of the machine, the user and the virtual environment, and requirements files of the project.
fn pip(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("pip's configuration");
    let named = around.variable("PIP_CONFIG_FILE");
    let mut paths = Vec::new();
    // This name means that no file counts.
    if named != Some("/dev/null") {
        let machine =
            around.variable("XDG_CONFIG_DIRS").unwrap_or("/etc/xdg").split(':').filter(|path| path.starts_with('/'));
        paths.extend(machine.map(|path| Some(around.of_system(&path[1..]).join("pip/pip.conf"))));
        paths.push(Some(around.of_system("etc/pip.conf")));
        paths.push(around.in_home(".pip/pip.conf"));
        paths.push(around.configuration().map(|path| path.join("pip/pip.conf")));
        paths.push(around.variable("VIRTUAL_ENV").map(|path| Path::new(path).join("pip.conf")));
        paths.push(named.map(PathBuf::from));
    }
    let files = around.own_files(paths.into_iter().map(|path| path.filter(|path| path.is_absolute())))?;
    let files: Vec<_> = files.iter().map(|text| text.parse(pip::parse)).collect::<Result<_, _>>()?;
    let variables = PipVariables {
        index_url: around.setting("PIP_INDEX_URL"),
        extra_index_url: around.setting("PIP_EXTRA_INDEX_URL"),
        find_links: around.setting("PIP_FIND_LINKS"),
        no_index: around.setting("PIP_NO_INDEX"),
    };
    gathered.add(told(pip::resolve(&variables, &files))?)?;
    for directory in &around.project {
        for name in around.names(directory, |name| name.starts_with("requirements") && name.ends_with(".txt")) {
            if let Some(text) = around.project_file(directory, &name)? {
                let reading = text.parse(requirements::parse)?;
                // Other packages are installed without this file.
                gathered.add(Reading { takes_default: false, ..reading })?;
            }
        }
    }
    Ok(gathered.or_local())
}

/// `.cargo/config.toml` from the working directory upward, and that of `CARGO_HOME`.
fn cargo(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("cargo's configuration");
    let home = around.named_or_home("CARGO_HOME", ".cargo");
    let mut files: Vec<CargoFile> = Vec::new();
    // cargo takes the name without an ending first.
    let names = ["config", "config.toml"];
    // Above the root of the repository too: a tree that somebody else made may name its own root (`.jj` in it, say), or
    // lie in another one.
    for directory in around.project.iter().chain(&around.above).map(|directory| directory.join(".cargo")) {
        // What is closed to this user is closed to cargo.
        let is_there = home.as_ref() != Some(&directory) && places::is_there(&directory).unwrap_or(false);
        for name in names.iter().filter(|_| is_there) {
            if let Some(text) = around.project_file(&directory, name)? {
                files.push(text.parse(cargo::parse)?);
                break;
            }
        }
    }
    if let Some(directory) = home {
        for name in names {
            if let Some(text) = around.own_file(&directory.join(name))? {
                files.push(text.parse(cargo::parse)?);
                break;
            }
        }
    }
    let variables = around.variables().filter_map(|(name, value)| {
        let registry = name.strip_prefix("CARGO_REGISTRIES_")?.strip_suffix("_INDEX")?;
        let setting = Setting { value: value.to_owned(), source: Source::Tool(name.into()) };
        Some((registry.to_ascii_lowercase().replace('_', "-"), setting))
    });
    gathered.add(told(cargo::resolve(&variables.collect::<BTreeMap<_, _>>(), &files))?)?;
    Ok(gathered.or_local())
}

/// `sources.list` and `sources.list.d`.
fn apt(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("apt's list of sources");
    if let Some(text) = around.own_file(&around.of_system("etc/apt/sources.list"))? {
        gathered.add(text.parse(apt::parse_list)?)?;
    }
    let parts = around.of_system("etc/apt/sources.list.d");
    // Other names apt does not read (sources.list(5)).
    let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    for name in around.names(&parts, |name| is_plain(name) && (name.ends_with(".list") || name.ends_with(".sources"))) {
        let Some(text) = around.own_file(&parts.join(&name))? else { continue };
        let parser = if name.ends_with(".list") { apt::parse_list } else { apt::parse_sources };
        gathered.add(text.parse(parser)?)?;
    }
    Ok(gathered)
}

/// `GOPROXY` and `GOSUMDB`: from the environment, and from the file that `go env -w` writes.
fn go(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("go's configuration");
    let mut variables = GoVariables { proxy: around.setting("GOPROXY"), sum_db: around.setting("GOSUMDB") };
    let file = match around.variable("GOENV") {
        Some("off") => None,
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
        None => around.configuration().map(|path| path.join("go/env")),
    };
    if let Some(text) = around.own_files([file])?.first() {
        variables = variables.or(go::parse(&text.page()));
    }
    gathered.add(told(go::resolve(&variables))?)?;
    // `off` and `direct` alone are words too, but no host.
    gathered.is_local = variables.are_complete() && gathered.reading.left_out.is_empty();
    Ok(gathered)
}

/// `settings.xml` of the user and the machine, and `pom.xml` of the project.
fn maven(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("Maven's configuration");
    let installed = around.variable("MAVEN_HOME").or(around.variable("M2_HOME"));
    let machine = match installed {
        Some(path) => Path::new(path).join("conf/settings.xml"),
        None => around.of_system("etc/maven/settings.xml"),
    };
    let settings = around.own_files([around.in_home(".m2/settings.xml"), Some(machine)])?;
    let settings: Vec<_> = settings.iter().map(|text| text.parse(maven::parse)).collect::<Result<_, _>>()?;
    let mut projects = Vec::new();
    for directory in &around.project {
        if let Some(text) = around.project_file(directory, "pom.xml")? {
            projects.push(text.parse(maven::parse)?);
        }
    }
    gathered.add(told(maven::resolve(&settings, &projects))?)?;
    Ok(gathered.or_local())
}

/// The configuration of the repository that the working directory is in, its `.gitmodules`, and for rewritings the user's
/// and the machine's configuration.
fn git(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("the repository's configuration");
    let Some(top) = around.project.last().filter(|top| fs::symlink_metadata(top.join(".git")).is_ok()) else {
        return Err("there is no git repository here".into());
    };
    let mut repository: Vec<GitFile> = Vec::new();
    for directory in git_directories(around, top)? {
        for name in ["config", "config.worktree"] {
            if let Some(text) = around.project_file(&directory, name)? {
                repository.push(text.parse(git::parse)?);
            }
        }
    }
    if let Some(text) = around.project_file(top, ".gitmodules")? {
        repository.push(text.parse(git::parse)?);
    }
    let elsewhere = git_of_user(around)?;
    gathered.add(told(git::resolve(&repository, &elsewhere))?)?;
    Ok(gathered)
}

/// Where the repository's configuration lies: in a further working tree, `.git` is a file that says so.
fn git_directories(around: &Around, top: &Path) -> Result<Vec<PathBuf>, String> {
    let dot_git = top.join(".git");
    if fs::symlink_metadata(&dot_git).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(vec![dot_git]);
    }
    let pointer = |text: &Text, from: &Path| {
        let target = text.first_line();
        from.join(target.strip_prefix("gitdir:").unwrap_or(target).trim())
    };
    let Some(text) = around.project_file(top, ".git")? else { return Ok(Vec::new()) };
    let own = pointer(&text, top);
    let common = around.project_file(&own, "commondir")?.map(|text| pointer(&text, &own));
    let plain = |path: PathBuf| path.canonicalize().map_err(|error| format!("cannot read {}: {error}", shown(&path)));
    common.into_iter().chain([own]).map(plain).collect()
}

/// The configuration that holds for every repository, with what it takes in.
fn git_of_user(around: &Around) -> Result<Vec<GitFile>, String> {
    let is_set = |name| around.variable(name).is_some();
    let mut paths: Vec<Option<PathBuf>> = Vec::new();
    if !is_set("GIT_CONFIG_NOSYSTEM") {
        let named = around.variable("GIT_CONFIG_SYSTEM").map(PathBuf::from);
        paths.push(Some(named.unwrap_or_else(|| around.of_system("etc/gitconfig"))));
    }
    match around.variable("GIT_CONFIG_GLOBAL") {
        Some(path) => paths.push(Some(path.into())),
        None => {
            paths.push(around.configuration().map(|path| path.join("git/config")));
            paths.push(around.in_home(".gitconfig"));
        }
    }
    let mut waiting: Vec<PathBuf> = paths.into_iter().flatten().filter(|path| path.is_absolute()).collect();
    let mut files = Vec::new();
    let mut includes = 0;
    while let Some(path) = waiting.pop() {
        let Some(text) = around.own_file(&path)? else { continue };
        let file: GitFile = text.parse(git::parse)?;
        for include in file.includes() {
            includes += 1;
            if includes > MOST_INCLUDES {
                return Err(format!("{} takes in more files than netbox reads", shown(&path)));
            }
            let include = match include.strip_prefix("~/") {
                Some(rest) => around.in_home(rest),
                None => path.parent().map(|directory| directory.join(include)),
            };
            waiting.extend(include);
        }
        files.push(file);
    }
    Ok(files)
}

/// The lock files of the working directory and of those above it, up to the root of the repository.
fn lockfile(around: &Around) -> Result<Gathered, String> {
    let mut gathered = Gathered::new("the lock file");
    let mut is_there = false;
    for directory in &around.project {
        for name in lockfile::names() {
            if let Some(text) = around.project_file(directory, name)? {
                is_there = true;
                gathered.add(text.parse(|page| lockfile::parse(name, page))?)?;
            }
        }
    }
    if !is_there {
        return Err("there is no lock file here that netbox reads".into());
    }
    Ok(gathered)
}
