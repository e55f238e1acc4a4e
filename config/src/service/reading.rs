//! From the table `[service]` of a file to [`ServiceSettings`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::address::{ListenAddress, file_path, socket_path};
use super::fault::ServiceFault;
use super::limits::{LIMIT_KEYS, SANDBOX_LIMIT_KEYS, TenantLimits, USER_LIMIT_KEYS};
use super::listener::{Listener, TlsFiles};
use super::principal::{ANY_USER, Principal};
use super::role::Role;
use super::token::TokenHash;
use super::{EventsTarget, ServiceSettings};
use crate::duration::parse_duration;
use crate::entry::List;
use crate::file_error::FileFault;
use crate::policy_file::Section;
use crate::quote::quote;
use crate::reading::{Key, Reader, Value, kind};
use crate::source::Source;
use crate::suggest;

pub(crate) const SERVICE_KEYS: [&str; 10] =
    ["listen", "metrics", "events", "drain", "limits", "user_limits", "user", "group", "role", "listener"];
pub(crate) const PRINCIPAL_KEYS: [&str; 5] = ["ceiling", "deny", "mode", "limits", "user_limits"];
pub(crate) const ROLE_KEYS: [&str; 7] = ["allow", "deny", "mode", "ceiling", "limits", "tokens", "admin"];
pub(crate) const LISTENER_KEYS: [&str; 4] = ["address", "role", "tls", "any"];
pub(crate) const TLS_KEYS: [&str; 2] = ["certificate", "key"];

/// An address to write.
const EXAMPLE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// The longest name of a user or a group (useradd takes 32 bytes; those of a directory service may be longer).
pub(crate) const LONGEST_MEMBER: usize = 256;

impl Reader<'_> {
    /// The table `[service]`.
    pub(crate) fn service(&mut self, value: &Value<'_>) -> ServiceSettings {
        let mut settings = ServiceSettings::default();
        let hint = "write `[service]`, and the keys of the service below it";
        let Some(table) = self.table("service", value, hint) else { return settings };
        let mut tables = Vec::new();
        for (key, value) in table {
            match &**key.get_ref() {
                "listen" => self.listen(value, &mut settings),
                "metrics" => settings.metrics = self.tcp_address("metrics", value),
                "events" => settings.events = self.events(value),
                "drain" => settings.drain = self.duration("drain", value),
                "limits" => settings.limits = self.limits("limits", value, &LIMIT_KEYS),
                "user_limits" => settings.user_limits = self.limits("user_limits", value, &USER_LIMIT_KEYS),
                "user" => settings.users = self.principals("user", value),
                "group" => settings.groups = self.principals("group", value),
                "role" => self.tables("role", "service.role", value, |reader, name, table| {
                    let role = reader.role(name, table);
                    settings.roles.insert(name.get_ref().as_ref().into(), role);
                }),
                "listener" => tables = self.listeners(value),
                _ => self.unknown_key(key, "`[service]`", &SERVICE_KEYS),
            }
        }
        settings.listeners.extend(tables);
        self.fit_together(&settings);
        settings
    }

    /// What is right by itself and does not fit the rest of the table.
    fn fit_together(&mut self, settings: &ServiceSettings) {
        for listener in &settings.listeners {
            let Some(name) = listener.role.as_deref().filter(|name| !settings.roles.contains_key(*name)) else {
                continue;
            };
            let hint = match suggest::nearest(name, settings.roles.keys().map(|name| &**name)) {
                Some(known) => suggest::did_you_mean(known),
                None => "write its table, such as `[service.role.ci]`".to_owned(),
            };
            self.fault(listener.source.clone(), ServiceFault::UnknownRole(name.to_owned()), hint);
        }
        let tcp = settings.listeners.iter().filter(|listener| listener.address.port() != 0);
        let tcp = tcp.map(|listener| (ListenAddress::Tcp(listener.address), &listener.source));
        let unix = settings.control.iter().map(|(path, source)| (ListenAddress::Unix(path.clone()), source));
        let metrics = settings.metrics.iter().filter(|(address, _)| address.port() != 0);
        let metrics = metrics.map(|(address, source)| (ListenAddress::Tcp(*address), source));
        let addresses: Vec<_> = tcp.chain(unix).chain(metrics).collect();
        self.once(&addresses, ServiceFault::SameAddress, "leave one of them out");
        let tokens: Vec<_> = settings.roles.values().flat_map(Role::tokens).map(|(hash, at)| (*hash, at)).collect();
        self.once(&tokens, ServiceFault::SameToken, "make one for each role: `netbox proxy token new ROLE`");
    }

    /// Whether each of them stands once; of two that are the same the later one is wrong.
    fn once<T: PartialEq>(&mut self, items: &[(T, &Source)], fault: fn(Source) -> ServiceFault, hint: &str) {
        let place = |source: &Source| match source {
            Source::File { line, column, .. } => (*line, *column),
            _ => (0, 0),
        };
        let mut sorted: Vec<_> = items.iter().collect();
        sorted.sort_by_key(|(_, source)| place(source));
        for (number, (item, source)) in sorted.iter().enumerate() {
            if let Some((_, first)) = sorted[..number].iter().find(|(earlier, _)| earlier == item) {
                self.fault((*source).clone(), fault((*first).clone()), hint.to_owned());
            }
        }
    }

    fn listen(&mut self, value: &Value<'_>, settings: &mut ServiceSettings) {
        for (text, at) in self.strings("listen", value, &ListenAddress::remedy("")) {
            let source = self.at(at);
            match ListenAddress::parse(&text) {
                Ok(ListenAddress::Unix(path)) => settings.control.push((path, source)),
                Ok(ListenAddress::Tcp(address)) => {
                    settings.listeners.push(Listener { address, role: None, tls: None, any: false, source });
                }
                Err(fault) => self.fault(source, fault, ListenAddress::remedy(&text)),
            }
        }
    }

    /// The tables `[[service.listener]]`.
    fn listeners(&mut self, value: &Value<'_>) -> Vec<Listener> {
        let hint = "write `[[service.listener]]`, and its keys below it";
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type("listener", value, "a list of tables", hint.to_owned());
            return Vec::new();
        };
        let mut listeners = Vec::new();
        for item in items.iter() {
            let Some(table) = self.table("listener", item, hint) else { continue };
            listeners.extend(self.listener(item, table));
        }
        listeners
    }

    fn listener(&mut self, item: &Value<'_>, table: &DeTable<'_>) -> Option<Listener> {
        let (mut address, mut role, mut tls, mut any) = (None, None, None, false);
        for (key, value) in table {
            match &**key.get_ref() {
                "address" => address = Some(self.tcp_address("address", value)),
                "role" => role = self.string("role", value, "write the name of a role in quotes").map(|(text, _)| text),
                "tls" => tls = self.tls(value),
                "any" => any = self.boolean("any", value),
                _ => self.unknown_key(key, "`[[service.listener]]`", &LISTENER_KEYS),
            }
        }
        let Some(address) = address else {
            self.missing(
                item.span().start,
                "`[[service.listener]]`".to_owned(),
                "address",
                "`address = \"127.0.0.1:3128\"`",
            );
            return None;
        };
        let (address, source) = address?;
        Some(Listener { address, role: role.map(Arc::from), tls, any, source })
    }

    fn tls(&mut self, value: &Value<'_>) -> Option<TlsFiles> {
        let hint = "write `tls = { certificate = \"/etc/netbox/proxy.crt\", key = \"/etc/netbox/proxy.key\" }`";
        let table = self.table("tls", value, hint)?;
        let (mut certificate, mut key_file) = (None, None);
        for (key, value) in table {
            match &**key.get_ref() {
                "certificate" => certificate = Some(self.path("certificate", value)),
                "key" => key_file = Some(self.path("key", value)),
                _ => self.unknown_key(key, "`tls`", &TLS_KEYS),
            }
        }
        for (key, is_there) in [("certificate", certificate.is_some()), ("key", key_file.is_some())] {
            if !is_there {
                let remedy = format!("`{key} = \"/etc/netbox/proxy.pem\"`");
                self.missing(value.span().start, "`tls`".to_owned(), key, &remedy);
            }
        }
        Some(TlsFiles { certificate: certificate??, key: key_file?? })
    }

    fn tcp_address(&mut self, key: &'static str, value: &Value<'_>) -> Option<(SocketAddr, Source)> {
        let hint = "write `127.0.0.1:3128` or `[::1]:3128`";
        let (text, at) = self.string(key, value, hint)?;
        let source = self.at(at);
        match text.parse() {
            Ok(address) => Some((address, source)),
            Err(_) => {
                let hint = if text.starts_with("unix:") {
                    "control sockets stand in `listen`; write `127.0.0.1:3128`".to_owned()
                } else {
                    ListenAddress::remedy_of_tcp(&text, EXAMPLE)
                };
                self.fault(source, ServiceFault::Address(text), hint);
                None
            }
        }
    }

    fn events(&mut self, value: &Value<'_>) -> Option<(EventsTarget, Source)> {
        let hint = "write `/var/log/netbox/events.jsonl` or `unix-datagram:/run/events.sock`";
        let (text, at) = self.string("events", value, hint)?;
        let source = self.at(at);
        let target = match text.strip_prefix("unix-datagram:") {
            Some(path) => socket_path(path).map(EventsTarget::UnixDatagram),
            None => file_path(&text).map(EventsTarget::File),
        };
        target.map_err(|fault| self.fault(source.clone(), fault, hint.to_owned())).ok().map(|target| (target, source))
    }

    fn path(&mut self, key: &'static str, value: &Value<'_>) -> Option<PathBuf> {
        let hint = format!("write a whole path: `{key} = \"/etc/netbox/proxy.pem\"`");
        let (text, at) = self.string(key, value, &hint)?;
        file_path(&text).map_err(|fault| self.fault(self.at(at), fault, hint)).ok()
    }

    fn duration(&mut self, key: &'static str, value: &Value<'_>) -> Option<Duration> {
        let hint = format!("write `{key} = \"30s\"`");
        let (text, at) = match value.get_ref() {
            DeValue::Integer(number) => (number.to_string(), value.span().start),
            _ => self.string(key, value, &hint)?,
        };
        let expected = "a duration such as `30s` or `5m`";
        let wrong = |_| ServiceFault::Quantity { key, found: text.clone(), expected };
        parse_duration(&text).map_err(|error| self.fault(self.at(at), wrong(error), hint)).ok()
    }

    /// The tables `[service.user.NAME]` or `[service.group.NAME]`.
    fn principals(&mut self, what: &'static str, value: &Value<'_>) -> BTreeMap<Arc<str>, Principal> {
        let mut principals = BTreeMap::new();
        let hint = format!("write `[service.{what}.some-name]`, and its keys below it");
        let Some(tables) = self.table(what, value, &hint) else { return principals };
        for (name, table) in tables {
            let text = &**name.get_ref();
            if !(is_member(text) || (what == "user" && text == ANY_USER)) {
                let hint = format!("write the name of a {what}, or its number in quotes");
                self.wrong(name.span().start, FileFault::Name { what, name: text.to_owned() }, hint);
            } else if let Some(keys) = self.table(text, table, &hint) {
                principals.insert(text.into(), self.principal(what, name, keys));
            }
        }
        principals
    }

    fn principal(&mut self, what: &str, name: &Key<'_>, table: &DeTable<'_>) -> Principal {
        let (mut section, mut limits) = (Section::default(), TenantLimits::default());
        let mut user_limits = TenantLimits::default();
        for (key, value) in table {
            match &**key.get_ref() {
                "ceiling" => {
                    section.ceiling = Some((self.at(key.span().start), self.entries("ceiling", value, List::Ceiling)));
                }
                "deny" => section.deny = self.entries("deny", value, List::Deny),
                "mode" => section.mode = self.mode(value),
                "limits" => limits = self.limits("limits", value, &SANDBOX_LIMIT_KEYS),
                "user_limits" => user_limits = self.limits("user_limits", value, &USER_LIMIT_KEYS),
                "allow" => {
                    let fault = FileFault::UnknownKey { key: "allow".to_owned(), place: "a user or a group" };
                    let hint = "write `ceiling`: what its sandboxes may ask for".to_owned();
                    self.wrong(key.span().start, fault, hint);
                }
                _ => self.unknown_key(key, "a user or a group", &PRINCIPAL_KEYS),
            }
        }
        // Without one it would be everything, and nobody would have written that down.
        if section.ceiling.is_none() {
            let table = quote(format!("[service.{what}.{}]", name.get_ref()).as_bytes()).to_string();
            self.missing(
                name.span().start,
                table,
                "ceiling",
                "what its sandboxes may ask for: `ceiling = [\"*.example.com\"]`",
            );
        }
        Principal { at: self.at(name.span().start), section, limits, user_limits }
    }

    fn role(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> Role {
        let (mut section, mut limits) = (Section::default(), TenantLimits::default());
        let (mut tokens, mut admin) = (Vec::new(), false);
        for (key, value) in table {
            match &**key.get_ref() {
                "allow" => section.allow = self.entries("allow", value, List::Allow),
                "deny" => section.deny = self.entries("deny", value, List::Deny),
                "mode" => section.mode = self.mode(value),
                "ceiling" => {
                    section.ceiling = Some((self.at(key.span().start), self.entries("ceiling", value, List::Ceiling)));
                }
                "limits" => limits = self.limits("limits", value, &LIMIT_KEYS),
                "tokens" => tokens = self.tokens(value),
                "admin" => admin = self.boolean("admin", value),
                _ => self.unknown_key(key, "a role", &ROLE_KEYS),
            }
        }
        Role { at: self.at(name.span().start), section, tokens, limits, admin }
    }

    fn tokens(&mut self, value: &Value<'_>) -> Vec<(TokenHash, Source)> {
        let hint = "`netbox proxy token new ROLE` makes a token and its hash";
        let mut tokens = Vec::new();
        for (text, at) in self.strings("tokens", value, hint) {
            let source = self.at(at);
            match TokenHash::parse(&text) {
                Some(hash) => tokens.push((hash, source)),
                None => self.fault(source, ServiceFault::Token, hint.to_owned()),
            }
        }
        tokens
    }

    fn boolean(&mut self, key: &'static str, value: &Value<'_>) -> bool {
        let DeValue::Boolean(value) = value.get_ref() else {
            self.wrong_type(key, value, "`true` or `false`", format!("write `{key} = true`"));
            return false;
        };
        *value
    }

    /// A string, and where its content starts.
    pub(super) fn string(&mut self, key: &str, value: &Value<'_>, hint: &str) -> Option<(String, usize)> {
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(key, value, "a string", hint.to_owned());
            return None;
        };
        Some((text.to_string(), self.start_of(value, text)))
    }

    /// A list of strings, and where the content of each starts.
    fn strings(&mut self, key: &'static str, value: &Value<'_>, hint: &str) -> Vec<(String, usize)> {
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(key, value, "a list of strings", hint.to_owned());
            return Vec::new();
        };
        let mut strings = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => strings.push((text.to_string(), self.start_of(item, text))),
                other => {
                    let fault = ServiceFault::Item { key, found: kind(other) };
                    self.fault(self.at(item.span().start), fault, hint.to_owned());
                }
            }
        }
        strings
    }

    pub(super) fn table<'v, 'i>(&mut self, key: &str, value: &'v Value<'i>, hint: &str) -> Option<&'v DeTable<'i>> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(key, value, "a table", hint.to_owned());
            return None;
        };
        Some(table)
    }

    fn missing(&mut self, offset: usize, table: String, key: &'static str, remedy: &str) {
        self.fault(self.at(offset), ServiceFault::Missing { table, key }, format!("write {remedy}"));
    }

    pub(super) fn fault(&mut self, source: Source, fault: ServiceFault, hint: String) {
        self.error(source, FileFault::Service(fault), Some(hint));
    }
}

/// Whether it can be the name of a user or a group: what `/etc/passwd` can hold, and what a directory service may add.
fn is_member(text: &str) -> bool {
    let is_of_name = |c: char| !c.is_control() && !c.is_whitespace() && !":/*".contains(c);
    !text.is_empty() && text.len() <= LONGEST_MEMBER && text.chars().all(is_of_name)
}
