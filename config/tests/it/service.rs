//! `[service]`: what it may hold, what is said of what it may not, and whose rules are for whom.

use std::path::{Path, PathBuf};
use std::time::Duration;

use netbox_config::service::{EventsTarget, Member, TokenHash};
use netbox_config::{
    CommandLine, Compiled, Decision, Entry, Expansions, HostFacts, Layer, List, Mode, PolicyFile, ServiceSettings,
    Source, Stack, TenantLimits,
};

fn parse(text: &str) -> PolicyFile {
    PolicyFile::parse(Layer::User, Path::new("config.toml"), text.as_bytes()).unwrap()
}

fn settings(text: &str) -> ServiceSettings {
    parse(text).service().unwrap().clone()
}

/// What is said of it, without the path.
fn errors(text: &str) -> Vec<String> {
    let errors = PolicyFile::parse(Layer::User, Path::new("config.toml"), text.as_bytes()).expect_err(text);
    errors.iter().map(|error| error.to_string().strip_prefix("config.toml:").unwrap().to_owned()).collect()
}

fn hash(token: &str) -> String {
    TokenHash::of(token.as_bytes()).to_string()
}

#[test]
fn a_service_may_hold_all_that_is_documented() {
    let text = format!(
        r#"
[service]
listen = ["unix:/run/netbox/control.sock", "127.0.0.1:3128", "[::1]:0"]
metrics = "127.0.0.1:9464"
events = "unix-datagram:/run/events.sock"
drain = "1m30s"
[service.limits]
connections = 1_000
connections_per_client = 200
half_open = 0x10
bandwidth = "1 Gbit/s"
bytes = "10 GB"
[service.user_limits]
connections = 5000
[service.user.alice]
ceiling = ["*.example.com"]
user_limits = {{ bandwidth = "1 GB/s", bytes = "1 TB" }}
deny = ["evil.example.com"]
mode = "audit"
limits = {{ new_connections_per_second = 50, dns_queries_per_second = 20 }}
[service.group.staff]
ceiling = []
[service.role.ci]
allow = ["git.example.com"]
tokens = ["{}", "{}"]
admin = true
[service.role.guests]
mode = "none"
[[service.listener]]
address = "0.0.0.0:8443"
role = "guests"
any = true
tls = {{ certificate = "/etc/netbox/proxy.crt", key = "/etc/netbox/proxy.key" }}
"#,
        hash("one"),
        hash("two"),
    );
    let settings = settings(&text);
    let control: Vec<_> = settings.control.iter().map(|(path, at)| (path.clone(), at.to_string())).collect();
    assert_eq!(control, [(PathBuf::from("/run/netbox/control.sock"), "config.toml:3:12".to_owned())]);
    let listeners: Vec<_> = settings
        .listeners
        .iter()
        .map(|listener| (listener.address.to_string(), listener.role.as_deref(), listener.tls.is_some(), listener.any))
        .collect();
    assert_eq!(
        listeners,
        [
            ("127.0.0.1:3128".to_owned(), None, false, false),
            ("[::1]:0".to_owned(), None, false, false),
            ("0.0.0.0:8443".to_owned(), Some("guests"), true, true),
        ]
    );
    assert_eq!(settings.metrics.as_ref().unwrap().0.port(), 9464);
    assert_eq!(settings.events.as_ref().unwrap().0, EventsTarget::UnixDatagram("/run/events.sock".into()));
    assert_eq!(settings.drain, Some(Duration::from_secs(90)));
    let limits = TenantLimits {
        connections: Some(1000),
        connections_per_client: Some(200),
        half_open: Some(16),
        bandwidth: Some(125_000_000),
        bytes: Some(10_000_000_000),
        ..TenantLimits::default()
    };
    assert_eq!(settings.limits, limits);
    assert_eq!(settings.user_limits, TenantLimits { connections: Some(5000), ..TenantLimits::default() });
    assert_eq!(settings.roles().map(|(name, _)| &**name).collect::<Vec<_>>(), ["ci", "guests"]);
    let role = settings.role("ci").unwrap();
    assert!(role.is_admin() && role.has_tokens() && !settings.role("guests").unwrap().is_admin());
    assert_eq!(
        role.tokens().map(|(hash, _)| *hash).collect::<Vec<_>>(),
        ["one", "two"].map(|t| TokenHash::of(t.as_bytes()))
    );
    assert_eq!(role.source().to_string(), "config.toml:23:15");
    assert!(settings.role("c").is_none());
}

#[test]
fn an_empty_table_is_a_service_without_anything() {
    let settings = settings("[service]");
    assert!(settings.control.is_empty() && settings.listeners.is_empty() && settings.roles().next().is_none());
    assert_eq!(settings.limits, TenantLimits::default());
    assert!(parse("").service().is_none());
}

#[test]
fn a_projects_file_has_no_service_and_one_that_is_named_for_a_service_has() {
    let text = "ceiling = [\"*.example.com\"]\n[service.role.ci]\nallow = [\"a.example.com\"]";
    let path = Path::new("netbox.toml");
    let errors = PolicyFile::parse(Layer::Project, path, text.as_bytes()).unwrap_err();
    let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "netbox.toml:1:1: a project's file may not hold `ceiling`; write `ceiling` in `/etc/netbox/config.toml` or \
             `~/.config/netbox/config.toml`",
            "netbox.toml:2:2: a project's file may not hold `service`; write `service` in `/etc/netbox/config.toml` or \
             `~/.config/netbox/config.toml`, or name the file with `netbox proxy serve -c`",
        ]
    );
    let file = PolicyFile::parse_for_service(path, text.as_bytes()).unwrap();
    assert_eq!(file.layer(), Layer::Project);
    assert!(file.service().unwrap().role("ci").is_some());
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_remedy() {
    let address = "write `127.0.0.1:3128`, `[::1]:3128` or `unix:/run/netbox/control.sock`";
    let token = "a token stands here as its hash, `sha256:` and 64 hexadecimal digits; `netbox proxy token new ROLE` makes a token and its hash";
    for (text, said) in [
        ("service = 1", "1:11: `service` is a number, and must be a table; write `[service]`, and the keys of the service below it".to_owned()),
        ("[service]\nlisten = \"127.0.0.1:1\"", format!("2:10: `listen` is a string, and must be a list of strings; {address}")),
        ("[service]\nlisten = [1]", format!("2:11: `listen` holds a number, and must hold strings; {address}")),
        ("[service]\nlisten = [\"localhost:1\"]", "2:12: `localhost:1` is no address to listen on; write an address: `127.0.0.1:1` or `[::1]:1`".to_owned()),
        ("[service]\nlisten = [\"unix:x.sock\"]", format!("2:12: `x.sock` is no path from `/` of at most 107 bytes; {address}")),
        ("[service]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "2:27: the same address stands at config.toml:2:12; leave one of them out".to_owned()),
        ("[service]\nlisten = [\"127.0.0.1:1\"]\nmetrics = \"127.0.0.1:1\"", "3:12: the same address stands at config.toml:2:12; leave one of them out".to_owned()),
        ("[service]\nmetrics = 9464", "2:11: `metrics` is a number, and must be a string; write `127.0.0.1:3128` or `[::1]:3128`".to_owned()),
        ("[service]\nmetrics = \"unix:/x\"", "2:12: `unix:/x` is no address to listen on; control sockets stand in `listen`; write `127.0.0.1:3128`".to_owned()),
        ("[service]\nevents = \"events.jsonl\"", "2:11: `events.jsonl` is no path from `/`; write `/var/log/netbox/events.jsonl` or `unix-datagram:/run/events.sock`".to_owned()),
        ("[service]\nevents = [\"/x\"]", "2:10: `events` is a list, and must be a string; write `/var/log/netbox/events.jsonl` or `unix-datagram:/run/events.sock`".to_owned()),
        ("[service]\ndrain = \"soon\"", "2:10: `drain` is `soon`, and must be a duration such as `30s` or `5m`; write `drain = \"30s\"`".to_owned()),
        ("[service]\ndrain = 0", "2:9: `drain` is `0`, and must be a duration such as `30s` or `5m`; write `drain = \"30s\"`".to_owned()),
        ("[service]\ndrain = false", "2:9: `drain` is a boolean, and must be a string; write `drain = \"30s\"`".to_owned()),
        ("[service]\nport = 1", "2:1: `port` is no key of `[service]`; the keys are `listen`, `metrics`, `events`, `drain`, `limits`, `user_limits`, `user`, `group`, `role`, `listener`".to_owned()),
        ("[service]\nroles = {}", "2:1: `roles` is no key of `[service]`; did you mean `role`?".to_owned()),
        ("[service]\nallow = []", "2:1: `allow` is no key of `[service]`; write `allow` at the top of the file".to_owned()),
        ("[service]\nhooks = []", "2:1: `hooks` is not supported yet; leave it out".to_owned()),
        ("[service]\nlimits = 5", "2:10: `limits` is a number, and must be a table; write `limits = { connections = 1000 }`".to_owned()),
        ("[service.limits]\nconnections = 0", "2:15: `connections` is `0`, and must be a whole number of at least 1; write `connections = 1000`, or leave it out".to_owned()),
        ("[service.limits]\nconnections = -5", "2:15: `connections` is `-5`, and must be a whole number of at least 1; write `connections = 1000`, or leave it out".to_owned()),
        ("[service.limits]\nhalf_open = 99999999999999999999", "2:13: `half_open` is `99999999999999999999`, and must be a whole number of at least 1; write `half_open = 1000`, or leave it out".to_owned()),
        ("[service.limits]\nconnections = \"5\"", "2:15: `connections` is a string, and must be a whole number; write `connections = 1000`, or leave it out".to_owned()),
        ("[service.limits]\nbandwidth = 5", "2:13: `bandwidth` is a number, and must be a string; write the number with its unit, or leave it out".to_owned()),
        ("[service.limits]\nbandwidth = \"5 MB\"", "2:14: `bandwidth` is `5 MB`, and must be a rate such as `100 MB/s` or `1 Gbit/s`; write the number with its unit, or leave it out".to_owned()),
        ("[service.limits]\nbytes = \"5 MB/s\"", "2:10: `bytes` is `5 MB/s`, and must be a number of bytes such as `10 GB`; write the number with its unit, or leave it out".to_owned()),
        ("[service.limits]\nconnection = 5", "2:1: `connection` is no key of `limits`; did you mean `connections`?".to_owned()),
        ("[service]\nuser_limits = 5", "2:15: `user_limits` is a number, and must be a table; write `user_limits = { connections = 1000 }`".to_owned()),
        ("[service.user_limits]\nhalf_open = 5", "2:1: `half_open` is no key of `user_limits`; the keys are `connections`, `new_connections_per_second`, `bandwidth`, `bytes`, `dns_queries_per_second`".to_owned()),
        ("[service.user.alice]\nceiling = []\nlimits = { connections_per_client = 5 }", "3:12: `connections_per_client` is no key of `limits`; leave it out: it is about plain clients, and stands in `[service.limits]` or in a role's".to_owned()),
        ("[service.user]\nalice = 1", "2:9: `alice` is a number, and must be a table; write `[service.user.some-name]`, and its keys below it".to_owned()),
        ("[service]\nuser = []", "2:8: `user` is a list, and must be a table; write `[service.user.some-name]`, and its keys below it".to_owned()),
        ("[service.user.alice]\ndeny = []", "1:15: `[service.user.alice]` has no `ceiling`; write what its sandboxes may ask for: `ceiling = [\"*.example.com\"]`".to_owned()),
        ("[service.user.alice]\nceiling = []\nallow = []", "3:1: `allow` is no key of a user or a group; write `ceiling`: what its sandboxes may ask for".to_owned()),
        ("[service.user.\"a b\"]\nceiling = []", "1:15: `a b` cannot be the name of a user; write the name of a user, or its number in quotes".to_owned()),
        ("[service.user.\"\"]\nceiling = []", "1:15: `` cannot be the name of a user; write the name of a user, or its number in quotes".to_owned()),
        ("[service.group.\"*\"]\nceiling = []", "1:16: `*` cannot be the name of a group; write the name of a group, or its number in quotes".to_owned()),
        ("[service.role.CI]", "1:15: `CI` cannot be the name of a role; write lower-case letters, digits, `-` and `_`".to_owned()),
        ("[service.role]\nci = []", "2:6: `ci` is a list, and must be a table; write `[service.role.some-name]`, and the keys of the role below it".to_owned()),
        ("[service.role.ci]\ntoken = []", "2:1: `token` is no key of a role; did you mean `tokens`?".to_owned()),
        ("[service.role.ci]\nallow = [\"*.com\"]", "2:11: rule `*.com`: a wildcard over `com`, where everyone registers names; write the names of one owner: `*.example.com`".to_owned()),
        ("[service.role.ci]\nadmin = \"yes\"", "2:9: `admin` is a string, and must be `true` or `false`; write `admin = true`".to_owned()),
        ("[service.role.ci]\ntokens = \"x\"", "2:10: `tokens` is a string, and must be a list of strings; `netbox proxy token new ROLE` makes a token and its hash".to_owned()),
        ("[service.role.ci]\ntokens = [\"not-to-be-printed\"]", format!("2:12: {token}")),
        ("[service]\nlistener = {}", "2:12: `listener` is a table, and must be a list of tables; write `[[service.listener]]`, and its keys below it".to_owned()),
        ("[service]\nlistener = [1]", "2:13: `listener` is a number, and must be a table; write `[[service.listener]]`, and its keys below it".to_owned()),
        ("[[service.listener]]\nany = true", "1:1: `[[service.listener]]` has no `address`; write `address = \"127.0.0.1:3128\"`".to_owned()),
        ("[[service.listener]]\naddress = \"unix:/x\"", "2:12: `unix:/x` is no address to listen on; control sockets stand in `listen`; write `127.0.0.1:3128`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\nrole = \"c\"\n[service.role.ci]", "2:12: there is no role `c`; did you mean `ci`?".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\nrole = \"ci\"", "2:12: there is no role `ci`; write its table, such as `[service.role.ci]`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\nrole = 1", "3:8: `role` is a number, and must be a string; write the name of a role in quotes".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\nany = 1", "3:7: `any` is a number, and must be `true` or `false`; write `any = true`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\ntls = true", "3:7: `tls` is a boolean, and must be a table; write `tls = { certificate = \"/etc/netbox/proxy.crt\", key = \"/etc/netbox/proxy.key\" }`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\ntls = { certificate = \"/c\" }", "3:7: `tls` has no `key`; write `key = \"/etc/netbox/proxy.pem\"`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\ntls = { certificate = \"c\", key = \"/k\" }", "3:24: `c` is no path from `/`; write a whole path: `certificate = \"/etc/netbox/proxy.pem\"`".to_owned()),
        ("[[service.listener]]\naddress = \"127.0.0.1:1\"\ntls = { certificate = \"/c\", key = \"/k\", ca = 1 }", "3:41: `ca` is no key of `tls`; the keys are `certificate`, `key`".to_owned()),
    ] {
        assert_eq!(errors(text), [said], "{text}");
    }
}

#[test]
fn a_token_is_of_one_role() {
    let hash = hash("one");
    let text = format!("[service.role.b]\ntokens = [\"{hash}\"]\n[service.role.a]\ntokens = [\"{hash}\"]");
    let said = "4:12: the same token stands at config.toml:2:12; make one for each role: `netbox proxy token new ROLE`";
    assert_eq!(errors(&text), [said]);
}

#[test]
fn a_token_is_asked_for_where_one_could_be_proved() {
    let text = format!("[service.role.ci]\ntokens = [\"{}\"]\n[service.role.guests]", hash("one"));
    let settings = settings(&text);
    for (role, asked) in [(None, true), (Some("ci"), true), (Some("guests"), false), (Some("nobody"), false)] {
        assert_eq!(settings.asks_for_token(role), asked, "{role:?}");
    }
    assert!(!self::settings("[service.role.guests]").asks_for_token(None));
}

#[test]
fn a_listener_that_others_reach_asks_for_a_token_or_says_that_it_is_meant() {
    let exposed = |text: &str| -> Vec<String> { settings(text).exposed().iter().map(ToString::to_string).collect() };
    let tokens = format!("tokens = [\"{}\"]", hash("one"));
    let hint = |role| {
        format!(
            "write a loopback address, give a role a token (`netbox proxy token new {role}`), or write `any = true` in its \
             `[[service.listener]]`"
        )
    };
    for (text, said) in [
        ("[service]\nlisten = [\"127.0.0.1:1\", \"[::1]:2\", \"[::ffff:127.0.0.1]:3\"]".to_owned(), None),
        ("[service]\nlisten = [\"0.0.0.0:1\"]".to_owned(), Some(("2:12", "0.0.0.0:1", "NAME"))),
        (format!("[service]\nlisten = [\"0.0.0.0:1\"]\n[service.role.ci]\n{tokens}"), None),
        (
            format!(
                "[service.role.ci]\n{tokens}\n[service.role.b]\n[[service.listener]]\naddress = \"[::]:1\"\nrole = \"b\""
            ),
            Some(("5:12", "[::]:1", "b")),
        ),
        ("[service.role.b]\n[[service.listener]]\naddress = \"[::]:1\"\nrole = \"b\"\nany = true".to_owned(), None),
    ] {
        let said = said.map(|(place, address, role)| {
            let hint = hint(role);
            format!(
                "config.toml:{place}: other machines reach `{address}`, and nobody is asked for a token there; {hint}"
            )
        });
        assert_eq!(exposed(&text), Vec::from_iter(said), "{text}");
    }
}

#[test]
fn a_user_is_held_to_its_own_table_else_to_those_of_its_groups_else_to_the_one_for_anybody() {
    let settings = settings(
        r#"
[service.user.alice]
ceiling = ["alice.example.com"]
[service.user.1002]
ceiling = ["number.example.com"]
[service.user."*"]
ceiling = []
[service.group.a]
ceiling = ["a.example.com"]
deny = ["x.a.example.com"]
mode = "none"
limits = { connections = 1, bytes = "1 B" }
[service.group.b]
ceiling = ["b.example.com"]
mode = "audit"
limits = { connections = 2 }
[service.group.20]
ceiling = []
"#,
    );
    let member = |id, name: &str| Member { id, name: Some(name.to_owned()) };
    let held = |user: Member, groups: &[Member]| settings.principal(&user, groups).unwrap();
    let at = |user, groups: &[Member]| held(user, groups).source().to_string();
    assert_eq!(at(member(1001, "alice"), &[member(10, "a")]), "config.toml:2:15");
    assert_eq!(at(member(1002, "bob"), &[]), "config.toml:4:15");
    assert_eq!(at(Member { id: 1002, name: None }, &[]), "config.toml:4:15");
    assert_eq!(at(member(1003, "carol"), &[member(9, "c")]), "config.toml:6:15");
    assert_eq!(at(member(1003, "*"), &[]), "config.toml:6:15", "nobody can call himself so");
    assert_eq!(at(member(1003, "carol"), &[member(20, "d")]), "config.toml:17:16");
    let both = held(member(1003, "carol"), &[member(10, "a"), member(11, "b")]);
    assert_eq!(both.limits(), TenantLimits { connections: Some(2), ..TenantLimits::default() });

    let file = parse("[service]");
    let nothing = CommandLine::default();
    let bounds = compiled(&Stack::new(&nothing).with_file(&file).for_principal(Some(&both)));
    assert_eq!(bounds.policy().mode(), Mode::Audit);
    assert_eq!(bounds.policy().deny().len(), 1);
    let ceiling: Vec<_> = bounds.policy().ceilings().iter().map(|ceiling| ceiling.rules().len()).collect();
    assert_eq!(ceiling, [2], "a member of both may ask for what either may");
}

#[test]
fn no_table_speaks_of_whom_none_names() {
    let settings = settings("[service.user.alice]\nceiling = []");
    assert!(settings.principal(&Member { id: 1, name: Some("bob".to_owned()) }, &[]).is_none());
    let named: Vec<_> = settings.named_principals().map(|(what, name, at)| format!("{what} {name} {at}")).collect();
    assert_eq!(named, ["user alice config.toml:1:15"]);
}

fn compiled(stack: &Stack<'_>) -> Compiled {
    stack.compile(&Expansions::default()).unwrap()
}

fn entry(text: &str, list: List) -> Entry {
    Entry::parse(text, list, Source::Flag("--allow")).unwrap()
}

/// System, user, and a role of the user's file.
const LAYERS: [(Layer, &str); 2] = [
    (
        Layer::System,
        "deny = [\"no.example.com\"]\nceiling = [\"*.example.com\"]\n[preset.both]\nallow = [\"a.example.com\", \"b.example.com\"]",
    ),
    (
        Layer::User,
        "allow = [\"top.example.com\"]\nmode = \"audit\"\n[service.role.ci]\nallow = [\"@both\", \"no.example.com\", \"c.example.org\"]\n\
         deny = [\"b.example.com\"]\nmode = \"allowlist\"\n[service.role.plain]\nceiling = [\"c.example.com\"]",
    ),
];

#[test]
fn a_role_reaches_what_it_lists_within_what_binds_everybody() {
    let files = LAYERS.map(|(layer, text)| PolicyFile::parse(layer, Path::new("f"), text.as_bytes()).unwrap());
    let typed = CommandLine {
        allow: vec![entry("typed.example.com", List::Allow)],
        deny: vec![entry("a.example.com:80", List::Deny)],
        mode: Some((Mode::Open, Source::Flag("--mode"))),
    };
    let stack = files.iter().fold(Stack::new(&typed), Stack::with_file);
    let role = compiled(&stack.for_role("ci").unwrap());
    let allows = |policy: &Compiled, target: &str| {
        matches!(policy.policy().decide(&crate::target(target), &HostFacts::default()), Decision::Allow(_))
    };
    for (target, allowed) in [
        ("a.example.com:443", true),
        ("a.example.com:80", false),
        ("b.example.com:443", false),
        ("no.example.com:443", false),
        ("c.example.org:443", false),
        ("top.example.com:443", false),
        ("typed.example.com:443", false),
    ] {
        assert_eq!(allows(&role, target), allowed, "{target}");
    }
    assert_eq!(role.policy().mode(), Mode::Allowlist);
    let plain = compiled(&stack.for_role("plain").unwrap());
    assert_eq!((plain.policy().mode(), plain.policy().ceilings().len()), (Mode::Audit, 2), "as its file says");
    assert!(stack.for_role("other").is_none());
    assert_eq!(compiled(&stack).policy().mode(), Mode::Open);
}

#[test]
fn an_outer_mode_is_the_widest_for_a_role_and_for_sandboxes() {
    let system = PolicyFile::parse(Layer::System, Path::new("s"), b"mode = \"allowlist\"").unwrap();
    let user = parse("[service.role.ci]\nmode = \"open\"\n[service.user.alice]\nceiling = []\nmode = \"audit\"");
    let nothing = CommandLine::default();
    let stack = Stack::new(&nothing).with_file(&system).with_file(&user);
    let role = compiled(&stack.for_role("ci").unwrap());
    assert_eq!((role.policy().mode(), role.warnings().len()), (Mode::Allowlist, 1));
    let alice = user.service().unwrap().principal(&Member { id: 1, name: Some("alice".to_owned()) }, &[]);
    assert_eq!(compiled(&stack.for_principal(alice.as_ref())).policy().mode(), Mode::Allowlist);
    let alone = Stack::new(&nothing).with_file(&user);
    assert_eq!(compiled(&alone.for_principal(alice.as_ref())).policy().mode(), Mode::Audit);
    assert_eq!(compiled(&alone.for_principal(None)).policy().mode(), Mode::Open);
}

#[test]
fn the_innermost_service_is_in_force_as_a_whole() {
    let system = PolicyFile::parse(Layer::System, Path::new("s"), b"[service.role.outer]").unwrap();
    let user = parse("[service.role.inner]");
    let nothing = CommandLine::default();
    let outer = Stack::new(&nothing).with_file(&system);
    assert!(outer.service().unwrap().role("outer").is_some());
    let both = outer.with_file(&user);
    assert!(both.service().unwrap().role("outer").is_none() && both.for_role("inner").is_some());
}

#[test]
fn derived_presets_of_tenants_are_known() {
    let user =
        parse("allow = [\"@pip\"]\n[service.role.ci]\nallow = [\"@npm\"]\n[service.user.alice]\nceiling = [\"@go\"]");
    let nothing = CommandLine::default();
    let stack = Stack::new(&nothing).with_file(&user);
    let names =
        |stack: &Stack<'_>| -> Vec<_> { stack.derived().unwrap().iter().map(|used| used.name.to_string()).collect() };
    assert_eq!(names(&stack), ["pip"]);
    assert_eq!(stack.of_tenants().iter().map(names).collect::<Vec<_>>(), [["npm"], ["go"]]);
}

#[test]
fn what_is_right_and_may_not_be_meant_is_told() {
    let tokens = format!("tokens = [\"{}\"]", hash("one"));
    let text = format!(
        "[service]\nlisten = [\"0.0.0.0:1\"]\n[service.role.ci]\nallow = [\"*\", \"a.example.com\"]\n{tokens}\n[service.role.nobody]\n[[service.listener]]\naddress = \"[::]:2\"\nrole = \"nobody\"\n[service.role.lost]"
    );
    let ids: Vec<_> = parse(&text).lints().iter().map(|lint| format!("{} {}", lint.source(), lint.id())).collect();
    assert_eq!(
        ids,
        [
            "config.toml:2:12 token-in-clear",
            "config.toml:4:11 every-host",
            "config.toml:4:16 shadowed-rule",
            "config.toml:8:12 exposed-listener",
            "config.toml:10:15 unprovable-role",
        ]
    );
}
