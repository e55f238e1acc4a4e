//! JSON Schemas of the policy files, for editors: made from the tables that the parser reads by, and checked against it.
//!
//! `docs/netbox.schema.json` is that of a project's file; `docs/netbox-config.schema.json` that of the user's and the
//! system's, which may hold more. They know keys and types. What a rule may be, and that no key stands twice, the parser
//! alone knows; `netbox policy lint` asks it.

#![cfg(test)]

mod service;

use std::{env, fs};

use serde_json::{Value, json};
use toml::de::{DeTable, DeValue};

use crate::ech::Ech;
use crate::entry::LONGEST_NAME;
use crate::layer::Layer;
use crate::mode::Mode;
use crate::policy_file::PolicyFile;
use crate::reading::{FILE_KEYS, PRESET_KEYS, PROFILE_KEYS};
use crate::service::TokenHash;

const RENEW: &str = "NETBOX_WRITE_REFERENCE=1 cargo test -p netbox-config schema";

/// The layers whose files differ in what they may hold, and where the schema of each is.
const DOCUMENTS: [(Layer, &str); 2] =
    [(Layer::Project, "docs/netbox.schema.json"), (Layer::User, "docs/netbox-config.schema.json")];

/// The keys of a table that files of the layer may hold.
pub(crate) fn table(layer: Layer, keys: &[&str]) -> Value {
    let held = keys.iter().filter(|key| layer != Layer::Project || !["ceiling", "service"].contains(*key));
    let properties: serde_json::Map<_, _> = held.map(|key| ((*key).to_owned(), property(layer, key))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// What a key may hold. A key that the parser has and this does not know fails the tests.
pub(crate) fn property(layer: Layer, key: &str) -> Value {
    match key {
        "version" => about("The version of this format. May be left out.", json!({ "type": "integer", "const": 1 })),
        "allow" => about(
            "What may be reached: `github.com`, `*.github.com`, `.github.com`, `host:22,443`, `10.1.0.0/16:5432`, \
             `tcp://host:5432`, or a preset such as `@github`.",
            rules(),
        ),
        "deny" => about("What may not be reached, whatever else allows it. Without ports: on no port.", rules()),
        "ceiling" => {
            about("Outside of these rules nothing is allowed, in this file or any that is inside it.", rules())
        }
        "mode" => about(
            "What happens to what no rule names.",
            json!({ "type": "string", "enum": Mode::ALL.map(Mode::as_str) }),
        ),
        "ech" => about(
            "What is done about TLS Encrypted Client Hello: `allow` it, judged by its outer name, or `refuse` it, which \
             refuses current browsers too.",
            json!({ "type": "string", "enum": [Ech::Allow.as_str(), Ech::Refuse.as_str()] }),
        ),
        "profile" => about(
            "Rules that are added with `--profile NAME`.",
            json!({ "type": "object", "propertyNames": name(), "additionalProperties": table(layer, &PROFILE_KEYS) }),
        ),
        "preset" => about("Lists of rules that `@NAME` stands for.", {
            let mut preset = table(layer, &PRESET_KEYS);
            preset["required"] = json!(PRESET_KEYS);
            json!({ "type": "object", "propertyNames": name(), "additionalProperties": preset })
        }),
        "service" => about("Where `netbox proxy serve` listens, and who its tenants are.", service::table()),
        _ => panic!("the schema does not know the key `{key}`"),
    }
}

/// A schema with what it is about.
pub(crate) fn about(about: &str, mut value: Value) -> Value {
    value["description"] = about.into();
    value
}

pub(crate) fn rules() -> Value {
    json!({ "type": "array", "items": { "type": "string", "minLength": 1 }, "maxItems": PolicyFile::MOST_RULES })
}

pub(crate) fn name() -> Value {
    json!({ "pattern": "^[a-z0-9_-]+$", "maxLength": LONGEST_NAME })
}

fn schema(layer: Layer) -> Value {
    let mut schema = table(layer, &FILE_KEYS);
    let whose = if layer == Layer::Project { "a project (`netbox.toml`)" } else { "a user or of the system" };
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema["title"] = format!("The policy file of {whose}").into();
    schema["$comment"] = format!("Made from the parser's tables by `{RENEW}`; do not edit it here.").into();
    schema
}

#[test]
fn the_schemas_in_the_documentation_are_up_to_date() {
    for (layer, path) in DOCUMENTS {
        let wanted = format!("{:#}\n", schema(layer));
        let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
        if env::var_os("NETBOX_WRITE_REFERENCE").is_some_and(|value| value == "1") {
            fs::write(&path, &wanted).expect("the schema can be written to");
        }
        let present = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(present, wanted, "{path} is stale; renew it with `{RENEW}`");
    }
}

/// Whether a schema of the few words that ours have accepts a value.
fn accepts(schema: &Value, value: &Value) -> bool {
    schema.as_object().unwrap().iter().all(|(word, wanted)| match word.as_str() {
        "type" => match wanted.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            other => panic!("the type `{other}`"),
        },
        "anyOf" => wanted.as_array().unwrap().iter().any(|schema| accepts(schema, value)),
        "minimum" => value.as_i64().is_none_or(|number| number >= wanted.as_i64().unwrap()),
        "const" => value == wanted,
        "enum" => wanted.as_array().unwrap().contains(value),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= wanted.as_u64().unwrap()),
        "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= wanted.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().unwrap()),
        "pattern" => {
            let is_name = |text: &str| {
                let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
                !text.is_empty() && text.bytes().all(fits)
            };
            let is_hash = |text: &str| TokenHash::parse(text).is_some();
            match wanted.as_str().unwrap() {
                "^[a-z0-9_-]+$" => value.as_str().is_none_or(is_name),
                "^sha256:[0-9a-f]{64}$" => value.as_str().is_none_or(is_hash),
                other => panic!("the pattern `{other}`"),
            }
        }
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(wanted, item))),
        "propertyNames" => {
            value.as_object().is_none_or(|object| object.keys().all(|key| accepts(wanted, &Value::String(key.clone()))))
        }
        "required" => value.as_object().is_none_or(|object| {
            wanted.as_array().unwrap().iter().all(|key| object.contains_key(key.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(key, value)| wanted.get(key).is_none_or(|schema| accepts(schema, value)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let known = |key: &String| schema.get("properties").is_some_and(|known| known.get(key).is_some());
            object.iter().filter(|(key, _)| !known(key)).all(|(_, value)| match wanted {
                Value::Bool(allowed) => *allowed,
                schema => accepts(schema, value),
            })
        }),
        "$schema" | "$comment" | "title" | "description" => true,
        other => panic!("the word `{other}`"),
    })
}

fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => number.as_str().parse::<i64>().map_or(Value::Null, Value::from),
        DeValue::Float(_) | DeValue::Datetime(_) => json!(1.5),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => table_to_json(table),
    }
}

fn table_to_json(table: &DeTable<'_>) -> Value {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref()))).collect()
}

#[test]
fn the_schema_agrees_with_the_parser() {
    let many = |count: usize| format!("deny = [{}]", "\"a.example\",".repeat(count));
    let long = |length: usize| format!("[preset.{}]\nallow = []", "a".repeat(length));
    for text in [
        "",
        "version = 1",
        "version = 2",
        "version = \"1\"",
        "version = 1.0",
        "allow = []",
        "allow = [\"github.com\", \"@github\", \"tcp://a.example:1\", \"[2001:db8::1]:443\"]",
        "allow = \"github.com\"",
        "allow = [1]",
        "allow = [[\"github.com\"]]",
        "allow = [\"\"]",
        "allow = { github = \"github.com\" }",
        "alow = [\"github.com\"]",
        "Allow = [\"github.com\"]",
        "deny = [\"*.com\"]",
        "mode = \"audit\"",
        "mode = \"none\"",
        "mode = \"open\"",
        "mode = \"allowlist\"",
        "mode = \"Audit\"",
        "mode = \"off\"",
        "mode = true",
        "ceiling = [\"*.example.com\"]",
        "ceiling = \"*\"",
        "profile = 1",
        "[profile.ci]",
        "[profile.ci]\nallow = [\"a.example\"]\ndeny = []\nmode = \"audit\"",
        "[profile.ci]\nceiling = [\"a.example\"]",
        "[profile.ci]\nversion = 1",
        "[profile.ci.deeper]\nallow = []",
        "[profile.CI]\nallow = []",
        "[profile.\"\"]\nallow = []",
        "[profile.\"a b\"]\nallow = []",
        "profile.ci = []",
        "[preset.mine]\nallow = [\"@github\"]",
        "[preset.mine]",
        "[preset.mine]\ndeny = [\"a.example\"]",
        "[preset.mine]\nallow = []\nmode = \"audit\"",
        "preset = [\"mine\"]",
        "[[preset]]\nallow = []",
        "[listen]\naddress = \"127.0.0.1:1\"",
        "hooks = [\"touch /tmp/x\"]",
        "extends = \"other.toml\"",
        "service = 1",
        "[service]",
        "[service]\nlisten = [\"127.0.0.1:3128\", \"unix:/run/netbox/control.sock\"]\nmetrics = \"127.0.0.1:9464\"\n\
         events = \"/var/log/netbox.jsonl\"\ndrain = \"30s\"\nlimits = { connections = 5, bandwidth = \"1 MB/s\" }",
        "[service]\nlisten = \"127.0.0.1:3128\"",
        "[service]\nlisten = [1]",
        "[service]\ndrain = 30",
        "[service]\ndrain = 0",
        "[service]\ndrain = true",
        "[service]\nport = 1",
        "[service.limits]\nconnections = 0",
        "[service.limits]\nconnections = \"5\"",
        "[service.limits]\nbytes = 5",
        "[service.limits]\nopen = 5",
        "[service.user.alice]\nceiling = []\nlimits = {}",
        "[service.user.\"*\"]\nceiling = []\ndeny = []\nmode = \"audit\"",
        "[service.user.alice]",
        "[service.user.alice]\nceiling = []\nallow = []",
        "[service.user.\"\"]\nceiling = []",
        "[service.user]\nalice = 1",
        "[service.group.staff]\nceiling = []",
        "[service.group.staff]\nceiling = []\ntokens = []",
        "[service.role.ci]",
        "[service.role.CI]",
        "[service.role.ci]\nallow = []\ndeny = []\nmode = \"none\"\nceiling = []\nlimits = {}\ntokens = []\nadmin = true",
        "[service.role.ci]\nadmin = 1",
        "[service.role.ci]\ntokens = [\"sha256:00\"]",
        "[service.role.ci]\nprofile = \"ci\"",
        "[[service.listener]]\naddress = \"127.0.0.1:1\"\nany = false\ntls = { certificate = \"/c\", key = \"/k\" }",
        "[[service.listener]]",
        "[[service.listener]]\naddress = 1",
        "[[service.listener]]\naddress = \"127.0.0.1:1\"\ntls = { certificate = \"/c\" }",
        "[service]\nlistener = {}",
        &format!("[service.role.ci]\ntokens = [\"sha256:{}\"]", "a0".repeat(32)),
        "when = 2026-12-01",
        &long(LONGEST_NAME),
        &long(LONGEST_NAME + 1),
        &many(PolicyFile::MOST_RULES),
        &many(PolicyFile::MOST_RULES + 1),
    ] {
        let document = DeTable::parse(text).unwrap();
        let value = table_to_json(document.get_ref());
        for (layer, path) in DOCUMENTS {
            let parsed = PolicyFile::parse(layer, path.as_ref(), text.as_bytes());
            assert_eq!(accepts(&schema(layer), &value), parsed.is_ok(), "{layer}: {:.100} {parsed:?}", text);
        }
    }
}

/// What the schema cannot know it lets pass; what is right it never refuses.
#[test]
fn what_only_the_parser_knows_passes_the_schema() {
    for text in ["allow = [\"https://github.com\"]", "allow = [\"*.com\"]", "[preset.github]\nallow = []"] {
        let document = DeTable::parse(text).unwrap();
        let value = table_to_json(document.get_ref());
        assert!(accepts(&schema(Layer::Project), &value), "{text}");
        assert!(PolicyFile::parse(Layer::Project, "x".as_ref(), text.as_bytes()).is_err(), "{text}");
    }
}
