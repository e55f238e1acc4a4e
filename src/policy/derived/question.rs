//! What the tools are asked, and what their answers come to.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use netbox_config::derived::go::{self, GoVariables};
use netbox_config::derived::{Named, Reading, is_public};
use netbox_config::{HostName, Port, Source};

use super::answers::{Answers, Key};
use super::files::Around;
use super::gather::Gathered;
use super::tool::{self, Answer, Reachable, Tool};
use crate::policy::expanded::DerivedRule;

/// Variables that what was prepared is told by.
type Prepared = io::Result<Vec<(&'static str, PathBuf)>>;

/// How a tool is asked for the hosts that it goes to.
pub struct Question {
    preset: &'static str,
    /// Names of the program.
    programs: &'static [&'static str],
    /// What it is told to do: fetch one small package that every index of its kind has.
    words: &'static [&'static str],
    /// Variables of the caller's that it gets: which index, and how to trust and to log in to it. An ending `*` stands for
    /// any ending.
    variables: &'static [&'static str],
    /// Variables that are set.
    settings: &'static [(&'static str, &'static str)],
    /// What it needs in the empty directory that it starts in.
    prepare: fn(&Path, &Around) -> Prepared,
    /// The answer is what it prints rather than where it goes.
    is_told: bool,
    /// Downloads may lie elsewhere than the index.
    has_downloads: bool,
}

/// All of them.
const QUESTIONS: [Question; 5] = [
    Question {
        preset: "npm",
        programs: &["npm"],
        words: &[
            "pack",
            "--no-workspaces",
            "--fetch-retries=0",
            "--cache=cache",
            "--update-notifier=false",
            "is-number",
        ],
        variables: &["npm_config_*", "NPM_CONFIG_*"],
        settings: &[],
        // It looks upward for the package that it is in.
        prepare: |directory, _| fs::write(directory.join("package.json"), "{}").map(|()| Vec::new()),
        is_told: false,
        has_downloads: true,
    },
    Question {
        preset: "pip",
        programs: &["pip3", "pip"],
        words: &[
            "download",
            "--no-deps",
            "--no-cache-dir",
            "--retries=0",
            "--disable-pip-version-check",
            "--no-input",
            "six",
        ],
        // Not PIP_FIND_LINKS: what lies there would be taken instead.
        variables: &[
            "PIP_CERT",
            "PIP_CLIENT_CERT",
            "PIP_CONFIG_FILE",
            "PIP_EXTRA_INDEX_URL",
            "PIP_INDEX_URL",
            "PIP_TRUSTED_HOST",
            "VIRTUAL_ENV",
        ],
        settings: &[],
        prepare: |_, _| Ok(Vec::new()),
        is_told: false,
        has_downloads: true,
    },
    Question {
        preset: "cargo",
        programs: &["cargo"],
        words: &["fetch", "--quiet"],
        variables: &["CARGO_HTTP_*", "CARGO_REGISTRIES_*", "CARGO_REGISTRY_*", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"],
        settings: &[("CARGO_NET_RETRY", "0")],
        prepare: prepare_cargo,
        is_told: false,
        has_downloads: true,
    },
    Question {
        preset: "maven",
        programs: &["mvn"],
        words: &["-B", "-q", "-Dmaven.repo.local=repository", "dependency:get", "-Dartifact=junit:junit:4.12"],
        variables: &["JAVA_HOME", "MAVEN_HOME", "M2_HOME"],
        settings: &[],
        prepare: |_, _| Ok(Vec::new()),
        is_told: false,
        has_downloads: false,
    },
    Question {
        preset: "go",
        programs: &["go"],
        words: &["env", "GOPROXY", "GOSUMDB"],
        variables: &["GOENV", "GOPROXY", "GOROOT", "GOSUMDB"],
        settings: &[("GOTOOLCHAIN", "local")],
        prepare: |_, _| Ok(Vec::new()),
        is_told: true,
        has_downloads: false,
    },
];

/// cargo gets a package to fetch for, and a home of its own, so that it takes nothing that it has fetched before.
fn prepare_cargo(directory: &Path, around: &Around) -> Prepared {
    let manifest = "[package]\nname = \"ask\"\nversion = \"0.0.0\"\n\n[lib]\npath = \"lib.rs\"\n\n[dependencies]\ncfg-if = \"1\"\n";
    fs::write(directory.join("Cargo.toml"), manifest)?;
    fs::write(directory.join("lib.rs"), "")?;
    let home = directory.join("cargo");
    fs::create_dir(&home)?;
    if let Some(own) = around.named_or_home("CARGO_HOME", ".cargo").filter(|own| !around.is_in_project(own)) {
        for name in ["config", "config.toml", "credentials", "credentials.toml"] {
            if own.join(name).exists() {
                symlink(own.join(name), home.join(name))?;
            }
        }
    }
    let mut variables = vec![("CARGO_HOME", home)];
    if around.variable("RUSTUP_HOME").is_none() {
        variables.extend(around.in_home(".rustup").map(|path| ("RUSTUP_HOME", path)));
    }
    Ok(variables)
}

/// Whether it is an index that told of this.
pub fn is_of_index(source: &Source) -> bool {
    QUESTIONS.iter().any(|question| *source == question.source_of_downloads())
}

/// What is known before an index is asked.
#[derive(Debug)]
pub struct Known {
    /// Hosts that no file of the project names, as `host:port`.
    own: Vec<String>,
    /// Whether the project names others.
    has_project: bool,
}

impl Known {
    /// Of hosts, with whether a file of the project names each.
    pub fn new(hosts: impl Iterator<Item = (String, bool)>) -> Self {
        let (of_project, own): (Vec<_>, Vec<_>) = hosts.partition(|(_, of_project)| *of_project);
        Self { own: own.into_iter().map(|(host, _)| host).collect(), has_project: !of_project.is_empty() }
    }
}

/// The question of a preset whose tool is asked.
pub fn of(preset: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.preset == preset)
}

impl Question {
    /// Adds the index that the tool takes when no text names one, and where its downloads lie as far as that is known.
    ///
    /// # Errors
    /// No text names a host, and the tool cannot be asked.
    pub fn answer_default(&self, gathered: Gathered, around: &Around, answers: &Answers) -> Result<Gathered, String> {
        let mut gathered = gathered;
        if gathered.reading.takes_default {
            match self.ask_default(around, answers) {
                Ok(reading) => gathered.reading.add(reading).map_err(|misread| misread.to_string())?,
                // A tool that is not there takes no index either.
                Err(_) if !gathered.reading.named.is_empty() => {}
                Err(why) => return Err(format!("{} names no host, and {why}", gathered.what)),
            }
        }
        let known = Known::new(
            gathered.reading.named.iter().map(|named| (named.to_string(), around.is_of_project(&named.source))),
        );
        if let Some(hosts) = self.remembered_downloads(&known, around, answers) {
            let downloads = self.named(&hosts, &self.source_of_downloads());
            let reading = Reading { named: downloads, ..Default::default() };
            gathered.reading.add(reading).map_err(|misread| misread.to_string())?;
        }
        Ok(gathered)
    }

    fn ask_default(&self, around: &Around, answers: &Answers) -> Result<Reading, String> {
        let tool = self.find(around)?;
        let key = Key::new(self.preset, "default", &tool, &tool::environment(self.variables, around), &[]);
        let words = match answers.recall(&key) {
            Some(words) => words,
            None => {
                let Answer { refused, lines, .. } = self.ask(&tool, around, Reachable::Nothing)?;
                let words = if self.is_told { lines } else { refused };
                if !words.is_empty() {
                    answers.remember(&key, &words);
                }
                words
            }
        };
        let source = format!("{}'s own default", tool.name());
        if self.is_told {
            let answer = words.join("\n");
            return go::resolve(&GoVariables::of_answer(&answer, &source)).map_err(|misread| misread.to_string());
        }
        let named = self.named(&words, &Source::Tool(source.into()));
        if named.is_empty() {
            return Err(format!("`{}`, which was asked, goes to none", tool.name()));
        }
        Ok(Reading { named, ..Default::default() })
    }

    /// Where downloads of the index lie that is among what is known, if somewhere else. Asks the index; no answer is none.
    pub fn answer_downloads(&self, known: &Known, around: &Around, answers: &Answers) -> Vec<DerivedRule> {
        let is_asked = self.has_downloads && !known.own.is_empty();
        if !is_asked || self.remembered_downloads(known, around, answers).is_some() {
            return Vec::new();
        }
        let Ok(tool) = self.find(around) else { return Vec::new() };
        let Ok(answer) = self.ask(&tool, around, Reachable::These(&known.own)) else { return Vec::new() };
        // Where nothing was refused and nothing fetched, the index did not answer: it is asked again.
        let is_answer = answer.has_succeeded || !answer.refused.is_empty();
        let mut hosts = answer.refused;
        if known.has_project && !hosts.is_empty() {
            // The project's index may stand in the place of the tool's own, which it then went to here.
            let default = self.ask_default(around, answers).unwrap_or_default();
            hosts.retain(|host| default.named.iter().all(|named| named.to_string() != *host));
        }
        if is_answer {
            answers.remember(&self.key_of_downloads(&tool, known, around), &hosts);
        }
        let named = self.named(&hosts, &self.source_of_downloads()).into_iter();
        let rule = |named: Named| DerivedRule {
            rule: named.to_string(),
            source: named.source,
            of_project: false,
            of_index: true,
        };
        named.map(rule).collect()
    }

    fn remembered_downloads(&self, known: &Known, around: &Around, answers: &Answers) -> Option<Vec<String>> {
        if !self.has_downloads || known.own.is_empty() {
            return None;
        }
        let tool = self.find(around).ok()?;
        answers.recall(&self.key_of_downloads(&tool, known, around))
    }

    fn key_of_downloads(&self, tool: &Tool, known: &Known, around: &Around) -> Key {
        let marks = known.has_project.then(|| "beside the project's".to_owned());
        let known: Vec<_> = known.own.iter().cloned().chain(marks).collect();
        Key::new(self.preset, "downloads", tool, &tool::environment(self.variables, around), &known)
    }

    /// What is said of a rule for downloads.
    fn source_of_downloads(&self) -> Source {
        Source::Tool(format!("where {}'s index has its downloads", self.preset).into())
    }

    fn find(&self, around: &Around) -> Result<Tool, String> {
        let names = || self.programs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        tool::find(self.programs, around).ok_or_else(|| format!("there is no {} to ask", names()))
    }

    fn ask(&self, tool: &Tool, around: &Around, reachable: Reachable) -> Result<Answer, String> {
        let room = tool::Room::new().map_err(|error| format!("there is no room to ask in: {error}"))?;
        let mut environment = tool::environment(self.variables, around);
        let prepared = (self.prepare)(room.directory(), around).map_err(|error| format!("cannot prepare: {error}"))?;
        environment
            .extend(prepared.into_iter().map(|(name, path)| (name.to_owned(), room.inside(&path).into_os_string())));
        environment.extend(self.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
        tool::ask(tool, self.words, &environment, &room, reachable)
    }

    /// Those of these hosts that a derived preset can stand for.
    fn named(&self, hosts: &[String], source: &Source) -> Vec<Named> {
        let parse = |text: &String| {
            let (host, port) = text.rsplit_once(':')?;
            let host = HostName::parse_wire(host.as_bytes()).ok().filter(is_public)?;
            Some(Named { host, port: Port::parse(port.as_bytes()).ok()?, source: source.clone() })
        };
        hosts.iter().filter_map(parse).collect()
    }
}
