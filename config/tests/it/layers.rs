//! How layers, profiles, modes, ceilings and presets add up, as tables.

use std::path::Path;

use netbox_config::{
    CommandLine, Compiled, Decision, Ech, Entry, Expansions, HostFacts, HostName, Layer, List, Mode, PolicyFile,
    Reason, Source, Stack,
};

use crate::{host, target};

const SYSTEM: &str = "/etc/netbox/config.toml";
const USER: &str = "config.toml";
const PROJECT: &str = "netbox.toml";

/// The files and the command line of a run.
#[derive(Default)]
pub struct Run {
    files: Vec<PolicyFile>,
    command_line: CommandLine,
    profile: Option<&'static str>,
    pub expansions: Expansions,
}

impl Run {
    pub fn file(mut self, layer: Layer, text: &str) -> Self {
        let path = match layer {
            Layer::System => SYSTEM,
            Layer::User => USER,
            _ => PROJECT,
        };
        let file = PolicyFile::parse(layer, Path::new(path), text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        self.files.push(file);
        self
    }

    pub fn allow(mut self, text: &str) -> Self {
        self.command_line.allow.push(Entry::parse(text, List::Allow, Source::Flag("--allow")).unwrap());
        self
    }

    fn mode(mut self, mode: Mode) -> Self {
        self.command_line.mode = Some((mode, Source::Flag("--mode")));
        self
    }

    pub fn profile(self, name: &'static str) -> Self {
        Self { profile: Some(name), ..self }
    }

    pub fn stack(&self) -> Stack<'_> {
        let stack = Stack::new(&self.command_line).with_profile(self.profile);
        self.files.iter().fold(stack, Stack::with_file)
    }

    fn compile(&self) -> Compiled {
        self.stack().compile(&self.expansions).unwrap_or_else(|errors| panic!("{errors}"))
    }

    pub fn errors(&self) -> Vec<String> {
        let errors = self.stack().compile(&self.expansions).expect_err("it does not compile");
        errors.iter().map(ToString::to_string).collect()
    }

    /// `rule (source)` of every rule, `-` before those that deny, `^` before those of ceilings.
    pub fn rules(&self) -> Vec<String> {
        let sign = |key| match key {
            "deny" => "-",
            "ceiling" => "^",
            _ => "",
        };
        let shown = |rule: netbox_config::EffectiveRule<'_>| {
            format!("{} {}{} ({})", rule.layer, sign(rule.kind.as_str()), rule.rule.text(), rule.rule.source())
        };
        self.compile().rules().map(shown).collect()
    }
}

/// `listed`, or `denied by …`.
fn verdict(compiled: &Compiled, text: &str) -> String {
    match compiled.policy().decide(&target(text), &HostFacts::default()) {
        Decision::Allow(permit) => permit.reason().to_string(),
        Decision::Refuse(refusal) => match (refusal.ceiling(), refusal.rule()) {
            (Some(place), _) => format!("{} outside {place}", refusal.reason()),
            (None, Some(rule)) => format!("{} by {}", refusal.reason(), rule.source),
            (None, None) => refusal.reason().to_string(),
        },
    }
}

#[test]
fn every_rule_knows_its_layer_and_place() {
    let run = Run::default()
        .file(Layer::System, "deny = [\"evil.example\"]\nceiling = [\".example\", \".test\"]")
        .file(Layer::User, "allow = [\"a.example\"]")
        .file(Layer::Project, "allow = [\n  \"b.example\",\n  \"é.test:22\",\n]")
        .allow("c.example");
    assert_eq!(
        run.rules(),
        [
            "user a.example (config.toml:1:11)",
            "project b.example (netbox.toml:2:4)",
            "project é.test:22 (netbox.toml:3:4)",
            "command-line c.example (--allow)",
            "system -evil.example (/etc/netbox/config.toml:1:10)",
            "system ^.example (/etc/netbox/config.toml:2:13)",
            "system ^.test (/etc/netbox/config.toml:2:25)",
        ]
    );
}

#[test]
fn no_layer_lifts_the_deny_rules_of_another() {
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        let run = Run::default()
            .file(Layer::System, "deny = [\"a.example\"]")
            .file(Layer::User, "deny = [\"b.example\"]\nallow = [\"a.example\"]")
            .file(Layer::Project, "deny = [\"c.example\"]\nallow = [\"*.example\"]")
            .allow("*")
            .mode(mode);
        let compiled = run.compile();
        assert_eq!(verdict(&compiled, "a.example:443"), "denied by /etc/netbox/config.toml:1:10");
        assert_eq!(verdict(&compiled, "b.example:443"), "denied by config.toml:1:10");
        assert_eq!(verdict(&compiled, "c.example:443"), "denied by netbox.toml:1:10");
        let passes = if mode == Mode::Open { "open" } else { "listed" };
        assert_eq!(verdict(&compiled, "d.example:443"), passes);
    }
}

#[test]
fn nothing_outside_a_ceiling_is_allowed_in_any_mode_by_any_layer() {
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        let run = Run::default()
            .file(
                Layer::System,
                "ceiling = [\".corp.example\", \"203.0.113.0/24:443\", \"tcp://db.corp.example:5432\"]",
            )
            .file(
                Layer::User,
                "# two lines\nceiling = [\"*.corp.example\", \"203.0.113.0/25:*\", \"db.corp.example:5432\"]",
            )
            .file(
                Layer::Project,
                "allow = [\"*\", \"a.corp.example:22\", \"0.0.0.0/0:*\", \"tcp://db.corp.example:5432\"]",
            )
            .mode(mode);
        let compiled = run.compile();
        let passes = if mode == Mode::Open { "open" } else { "listed" };
        for (text, expected) in [
            ("a.corp.example:443", passes),
            ("a.corp.example:22", "denied outside /etc/netbox/config.toml:1:1"),
            ("corp.example:443", "denied outside config.toml:2:1"),
            ("evil.example:443", "denied outside /etc/netbox/config.toml:1:1"),
            ("203.0.113.7:443", passes),
            ("203.0.113.7:80", "denied outside /etc/netbox/config.toml:1:1"),
            ("203.0.113.200:443", "denied outside config.toml:2:1"),
            ("[2001:db8::1]:443", "denied outside /etc/netbox/config.toml:1:1"),
            ("[::ffff:203.0.113.7]:443", passes),
            ("[64:ff9b::203.0.113.7]:443", "denied outside /etc/netbox/config.toml:1:1"),
            ("db.corp.example:5432", passes),
        ] {
            assert_eq!(verdict(&compiled, text), expected, "{text} in mode {mode}");
        }
        let name = |text: &str| HostName::parse_wire(text.as_bytes()).unwrap();
        assert!(compiled.policy().may_resolve(&name("a.corp.example")));
        assert!(!compiled.policy().may_resolve(&name("corp.example")));
        assert!(!compiled.policy().may_resolve(&name("secret.evil.example")));
    }
}

#[test]
fn an_empty_ceiling_leaves_nothing() {
    let run = Run::default().file(Layer::User, "ceiling = []").allow("*").allow("203.0.113.7");
    let compiled = run.compile();
    for text in ["a.example:443", "203.0.113.7:443"] {
        assert_eq!(verdict(&compiled, text), "denied outside config.toml:1:1");
    }
}

#[test]
fn a_ceiling_allows_nothing_by_itself() {
    let compiled = Run::default().file(Layer::User, "ceiling = [\"a.example\", \"203.0.113.7\"]").compile();
    assert_eq!(verdict(&compiled, "a.example:443"), "not-listed");
    assert_eq!(verdict(&compiled, "203.0.113.7:443"), "address-not-listed");
}

#[test]
fn bytes_go_unseen_only_where_every_ceiling_says_so() {
    let raw = |ceilings: [&str; 2]| {
        let [system, user] = ceilings.map(|rule| format!("ceiling = [\"{rule}\"]"));
        let run = Run::default().file(Layer::System, &system).file(Layer::User, &user).allow("tcp://a.example:443");
        match run.compile().policy().decide(&target("a.example:443"), &HostFacts::default()) {
            Decision::Allow(permit) => permit.is_raw(),
            Decision::Refuse(refusal) => panic!("{refusal:?}"),
        }
    };
    assert!(raw(["tcp://a.example:443", "tcp://*.example:443"]));
    assert!(!raw(["tcp://a.example:443", "a.example"]));
    assert!(!raw(["*", "tcp://a.example:443"]));
}

#[test]
fn a_rule_outside_a_ceiling_opens_no_address_that_is_not_public() {
    let facts = host(&["203.0.113.2"], &["203.0.113.0/24"]);
    let vet = |ceiling: &str, mode, address: &str| {
        let run = Run::default()
            .file(Layer::System, &format!("ceiling = [{ceiling}]"))
            .allow("*")
            .allow("10.0.0.0/8:443")
            .allow("203.0.113.0/25:443")
            .allow("203.0.113.2:443")
            .mode(mode);
        let compiled = run.compile();
        let Decision::Allow(permit) = compiled.policy().decide(&target("a.example:443"), &facts) else {
            panic!("a.example is inside")
        };
        compiled.policy().vet(&permit, address.parse().unwrap(), &facts).map_err(|refusal| refusal.reason()).err()
    };
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        let names = "\"*\"";
        assert_eq!(vet(names, mode, "198.51.100.7"), None, "public");
        assert_eq!(vet(names, mode, "10.0.0.7"), Some(Reason::Denied), "private");
        assert_eq!(vet(names, mode, "203.0.113.7"), Some(Reason::Denied), "a neighbour");
        assert_eq!(vet(names, mode, "203.0.113.2"), Some(Reason::Denied), "the host's own");
        let both = "\"*\", \"10.0.0.0/8\", \"203.0.113.0/24\"";
        for address in ["198.51.100.7", "10.0.0.7", "203.0.113.7", "203.0.113.2"] {
            assert_eq!(vet(both, mode, address), None, "{address}");
        }
    }
}

#[test]
fn the_innermost_mode_holds_as_far_as_outer_ones_leave_room() {
    use Mode::{Allowlist, Audit, None as Nothing, Open};
    for (system, user, project, typed, expected) in [
        (None, None, None, None, Allowlist),
        (None, None, Some(Audit), None, Audit),
        (None, Some(Open), Some(Audit), None, Audit),
        (None, Some(Allowlist), Some(Open), None, Allowlist),
        (None, Some(Nothing), Some(Allowlist), None, Nothing),
        (None, Some(Nothing), Some(Allowlist), Some(Open), Open),
        (None, Some(Allowlist), None, Some(Nothing), Nothing),
        (Some(Nothing), Some(Allowlist), Some(Open), None, Nothing),
        (Some(Audit), Some(Open), None, None, Audit),
        (Some(Audit), None, None, Some(Allowlist), Allowlist),
        (Some(Open), None, None, Some(Open), Open),
    ] {
        let text = |mode: Option<Mode>| mode.map(|mode| format!("mode = \"{mode}\"")).unwrap_or_default();
        let mut run = Run::default()
            .file(Layer::System, &text(system))
            .file(Layer::User, &text(user))
            .file(Layer::Project, &text(project));
        run.command_line.mode = typed.map(|mode| (mode, Source::Flag("--mode")));
        assert_eq!(run.compile().policy().mode(), expected, "{system:?} {user:?} {project:?} {typed:?}");
    }
}

#[test]
fn a_mode_that_is_not_taken_is_told() {
    let run =
        Run::default().file(Layer::User, "mode = \"none\"").file(Layer::Project, "mode = \"audit\"").allow("a.example");
    let compiled = run.compile();
    assert_eq!(
        compiled.warnings(),
        [
            "netbox.toml:1:8: mode `audit` is wider than `none`, which config.toml:1:8 sets and which holds",
            "config.toml:1:8: mode `none` lets nothing pass, so --allow allows nothing",
        ]
    );
    assert_eq!(
        compiled.mode_source().map(|(layer, source)| (layer, source.to_string())),
        Some((Layer::User, "config.toml:1:8".to_owned()))
    );
}

#[test]
fn a_typed_mode_that_the_system_does_not_leave_open_is_an_error() {
    for (mode, wider) in [(Mode::Allowlist, "none"), (Mode::Open, "audit")] {
        let run = Run::default().file(Layer::System, &format!("mode = \"{wider}\"")).mode(mode);
        assert_eq!(
            run.errors(),
            [format!(
                "--mode: mode `{mode}` is wider than `{wider}`, which /etc/netbox/config.toml:1:8 sets; \
                 leave it out, or write a mode that is as narrow as `{wider}`"
            )]
        );
    }
}

#[test]
fn mode_none_and_allow_rules_are_an_error_on_the_command_line_alone() {
    let run = Run::default().file(Layer::Project, "allow = [\"a.example\"]").mode(Mode::None);
    assert_eq!(verdict(&run.compile(), "a.example:443"), "mode-none");
    let run = run.allow("a.example");
    assert_eq!(
        run.errors(),
        ["--mode: mode `none` allows nothing, and `a.example` (--allow) is an allow rule; leave out one of the two"]
    );
}

#[test]
fn a_profile_adds_to_its_file_and_its_mode_replaces() {
    let text = "allow = [\"a.example\"]\nmode = \"allowlist\"\n[profile.ci]\nallow = [\"b.example\"]\ndeny = [\"c.example\"]\nmode = \"audit\"";
    let run = Run::default().file(Layer::User, text);
    assert_eq!(run.rules(), ["user a.example (config.toml:1:11)"]);
    assert_eq!(run.compile().policy().mode(), Mode::Allowlist);
    let run = run.profile("ci");
    assert_eq!(
        run.rules(),
        [
            "user a.example (config.toml:1:11)",
            "user b.example (config.toml:4:11)",
            "user -c.example (config.toml:5:10)"
        ]
    );
    let compiled = run.compile();
    assert_eq!((compiled.policy().mode(), compiled.profile()), (Mode::Audit, Some("ci")));
}

#[test]
fn a_profile_does_not_widen_its_files_ceiling() {
    let text = "ceiling = [\"a.example\", \"b.example\"]\n[profile.ci]\nceiling = [\"b.example\", \"c.example\"]";
    let run = Run::default().file(Layer::User, text).allow("*").profile("ci");
    let compiled = run.compile();
    assert_eq!(verdict(&compiled, "a.example:443"), "denied outside config.toml:3:1");
    assert_eq!(verdict(&compiled, "b.example:443"), "listed");
    assert_eq!(verdict(&compiled, "c.example:443"), "denied outside config.toml:1:1");
}

#[test]
fn an_unknown_profile_names_the_known_ones() {
    let run = Run::default().profile("ci");
    assert_eq!(run.errors(), ["--profile: there is no profile `ci`; no policy file defines any"]);
    let run = run.file(Layer::User, "[profile.work]\n").file(Layer::Project, "[profile.build]\n");
    assert_eq!(run.errors(), ["--profile: there is no profile `ci`; there are `build`, `work`"]);
    assert_eq!(run.profile("biuld").errors(), ["--profile: there is no profile `biuld`; did you mean `build`?"]);
}

#[test]
fn nothing_is_defined_a_second_time() {
    let run = Run::default()
        .file(Layer::User, "[profile.ci]\n[preset.mine]\nallow = [\"a.example\"]")
        .file(Layer::Project, "[preset.mine]\nallow = [\"b.example\"]");
    assert_eq!(
        run.errors(),
        [
            "netbox.toml:1:9: preset `mine` is defined in config.toml:2:9, and cannot be defined anew; give it another name"
        ]
    );
    let run = Run::default().file(Layer::User, "[profile.ci]\n").file(Layer::Project, "[profile.ci]\n");
    assert_eq!(
        run.errors(),
        [
            "netbox.toml:1:10: profile `ci` is defined in config.toml:1:10, and cannot be defined anew; give it another name"
        ]
    );
}

#[test]
fn the_digest_is_of_the_rules_and_the_ceilings() {
    let digest = |text: &str| Run::default().file(Layer::User, text).compile().policy().digest();
    let same =
        ["ceiling = [\"a.example\", \"b.example\"]", "ceiling = [\"B.example:80,443\", \"a.example\", \"a.example.\"]"];
    assert_eq!(digest(same[0]), digest(same[1]));
    let texts = [
        "",
        same[0],
        "ceiling = []",
        "ceiling = [\"a.example\"]",
        "ceiling = [\"a.example\"]\n[profile.x]\nceiling = [\"b.example\"]",
        "allow = [\"a.example\"]",
        "deny = [\"a.example:80,443\"]",
        "mode = \"audit\"",
    ];
    let digests: std::collections::HashSet<_> = texts.map(digest).into_iter().collect();
    // The profile is not chosen, so its file is the one before it.
    assert_eq!(digests.len(), texts.len() - 1);
    let split = Run::default().file(Layer::User, texts[4]).profile("x").compile().policy().digest();
    assert!(!digests.contains(&split), "two ceilings are not one");
}

#[test]
fn one_file_that_refuses_ech_is_enough() {
    let run = |files: &[(Layer, &str)]| {
        files.iter().fold(Run::default(), |run, (layer, ech)| run.file(*layer, &format!("ech = \"{ech}\"")))
    };
    for (files, expected) in [
        (&[][..], Ech::Allow),
        (&[(Layer::System, "allow"), (Layer::Project, "allow")], Ech::Allow),
        (&[(Layer::User, "refuse"), (Layer::Project, "allow")], Ech::Refuse),
        (&[(Layer::System, "allow"), (Layer::Project, "refuse")], Ech::Refuse),
    ] {
        assert_eq!(run(files).compile().policy().ech(), expected, "{files:?}");
    }
    let (plain, refusing) = (run(&[]).compile(), run(&[(Layer::Project, "refuse")]).compile());
    assert!(refusing.narrows(&plain) && !plain.narrows(&refusing));
    assert_ne!(plain.policy().digest(), refusing.policy().digest());
}
