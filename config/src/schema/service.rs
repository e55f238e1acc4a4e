//! The part of the schema that is about `[service]`.

use serde_json::{Value, json};

use super::{about, name, property, rules};
use crate::layer::Layer;
use crate::service::limits::{LIMIT_KEYS, SANDBOX_LIMIT_KEYS, USER_LIMIT_KEYS};
use crate::service::reading::{LISTENER_KEYS, LONGEST_MEMBER, PRINCIPAL_KEYS, ROLE_KEYS, SERVICE_KEYS, TLS_KEYS};

/// The whole table.
pub(super) fn table() -> Value {
    object(&SERVICE_KEYS, service)
}

/// A table of these keys, each with what it may hold.
fn object(keys: &[&str], of: fn(&str) -> Value) -> Value {
    let properties: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), of(key))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn service(key: &str) -> Value {
    match key {
        "listen" => about(
            "Where the service listens: control sockets (`unix:/run/netbox/control.sock`) and proxies \
             (`127.0.0.1:3128`).",
            json!({ "type": "array", "items": text() }),
        ),
        "metrics" => about("Where metrics are served: `127.0.0.1:9464`.", text()),
        "events" => about("Where events go: a file, or `unix-datagram:PATH`.", text()),
        "drain" => about(
            "How long flows have to finish once the service is told to end: `30s`.",
            json!({ "anyOf": [text(), count()] }),
        ),
        "limits" => about("What each tenant may use, unless its own table says otherwise.", limits(&LIMIT_KEYS)),
        "user_limits" => about(
            "What all sandboxes of a user may use together, unless its own table says otherwise.",
            limits(&USER_LIMIT_KEYS),
        ),
        "user" => about("What the sandboxes of a user are held to; `\"*\"` is any user without a table.", principals()),
        "group" => about("What the sandboxes of a group's members are held to.", principals()),
        "role" => about(
            "Named policies for plain clients.",
            json!({ "type": "object", "propertyNames": name(), "additionalProperties": object(&ROLE_KEYS, role) }),
        ),
        "listener" => about("Proxies with a role, with TLS, or on addresses that other machines reach.", {
            let mut listener = object(&LISTENER_KEYS, listener);
            listener["required"] = json!(["address"]);
            json!({ "type": "array", "items": listener })
        }),
        _ => panic!("the schema does not know the key `{key}` of `[service]`"),
    }
}

fn limits(keys: &[&str]) -> Value {
    object(keys, |key| match key {
        "connections" => about("Connections that are open at once.", count()),
        "connections_per_client" => about("Connections that one address has open at once.", count()),
        "half_open" => about("Connections that have not said yet what they want.", count()),
        "new_connections_per_second" => about("Connections that are taken in a second.", count()),
        "bandwidth" => about("Bytes in a second, both ways together: `100 MB/s`, `1 Gbit/s`.", text()),
        "bytes" => about("Bytes in all, both ways together: `10 GB`.", text()),
        "dns_queries_per_second" => about("DNS queries that are answered in a second.", count()),
        _ => panic!("the schema does not know the limit `{key}`"),
    })
}

fn principals() -> Value {
    let mut principal = object(&PRINCIPAL_KEYS, |key| match key {
        "ceiling" => about("What the sandboxes may ask for; outside of it nothing is allowed.", rules()),
        "mode" => about("The widest mode that the sandboxes may ask for.", property(Layer::User, "mode")),
        "limits" => about("What each of the sandboxes may use.", limits(&SANDBOX_LIMIT_KEYS)),
        "user_limits" => about("What all sandboxes of one user may use together.", limits(&USER_LIMIT_KEYS)),
        _ => property(Layer::User, key),
    });
    principal["required"] = json!(["ceiling"]);
    let names = json!({ "minLength": 1, "maxLength": LONGEST_MEMBER });
    json!({ "type": "object", "propertyNames": names, "additionalProperties": principal })
}

fn role(key: &str) -> Value {
    match key {
        "limits" => limits(&LIMIT_KEYS),
        "tokens" => about(
            "The hashes of the tokens that prove the role; `netbox proxy token new` makes them.",
            json!({ "type": "array", "items": { "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" } }),
        ),
        "admin" => about("Whether the role may see what other tenants do.", json!({ "type": "boolean" })),
        _ => property(Layer::User, key),
    }
}

fn listener(key: &str) -> Value {
    match key {
        "address" => about("Where it listens: `127.0.0.1:3128`.", text()),
        "role" => about("Whose its connections are. Without it their token says it.", text()),
        "tls" => about("The files of a listener that speaks TLS.", {
            let mut files = object(&TLS_KEYS, |key| match key {
                "certificate" => about("The certificate and those above it, in PEM.", text()),
                "key" => about("The private key, in PEM.", text()),
                _ => panic!("the schema does not know the key `{key}` of `tls`"),
            });
            files["required"] = json!(TLS_KEYS);
            files
        }),
        "any" => {
            about("Whether an address that other machines reach may do without a token.", json!({ "type": "boolean" }))
        }
        _ => panic!("the schema does not know the key `{key}` of a listener"),
    }
}

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 1 })
}
