//! How much a tenant may use.

use toml::de::DeValue;

use super::fault::ServiceFault;
use super::quantity;
use crate::file_error::FileFault;
use crate::reading::{Reader, Value};

/// The limits of a role, which those of every tenant are filled up with.
pub(crate) const LIMIT_KEYS: [&str; 7] = [
    "connections",
    "connections_per_client",
    "half_open",
    "new_connections_per_second",
    "bandwidth",
    "bytes",
    "dns_queries_per_second",
];
/// Those of a sandbox, which is one client.
pub(crate) const SANDBOX_LIMIT_KEYS: [&str; 6] =
    ["connections", "half_open", "new_connections_per_second", "bandwidth", "bytes", "dns_queries_per_second"];
/// Those of all sandboxes of a user together. What is half open is bounded for all of the service.
pub(crate) const USER_LIMIT_KEYS: [&str; 5] =
    ["connections", "new_connections_per_second", "bandwidth", "bytes", "dns_queries_per_second"];

const COUNT: &str = "a whole number of at least 1";
const BYTES: &str = "a number of bytes such as `10 GB`";
const BANDWIDTH: &str = "a rate such as `100 MB/s` or `1 Gbit/s`";

/// Bounds of one tenant, a sandbox or a role, or of all sandboxes of a user together. What says nothing is bounded by what
/// stands outside of it: the `[service.limits]` or `[service.user_limits]`, and then what netbox itself sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Connections that are open at once.
    pub connections: Option<u64>,
    /// Those of them that come from one address, where the tenant has clients.
    pub connections_per_client: Option<u64>,
    /// Those of them that have not said yet what they want.
    pub half_open: Option<u64>,
    /// Connections that are taken in a second.
    pub new_connections_per_second: Option<u64>,
    /// Bytes in a second, both ways together.
    pub bandwidth: Option<u64>,
    /// Bytes in the tenant's life, both ways together.
    pub bytes: Option<u64>,
    /// DNS queries that are answered in a second.
    pub dns_queries_per_second: Option<u64>,
}

impl TenantLimits {
    /// These, and where they say nothing the defaults.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        self.with(defaults, Option::or)
    }

    /// What whoever is held to one of the two may use: the greater, and no bound where one says nothing.
    #[must_use]
    pub fn widest(self, other: Self) -> Self {
        self.with(other, |one, other| Some(one?.max(other?)))
    }

    fn with(self, other: Self, join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            connections: join(self.connections, other.connections),
            connections_per_client: join(self.connections_per_client, other.connections_per_client),
            half_open: join(self.half_open, other.half_open),
            new_connections_per_second: join(self.new_connections_per_second, other.new_connections_per_second),
            bandwidth: join(self.bandwidth, other.bandwidth),
            bytes: join(self.bytes, other.bytes),
            dns_queries_per_second: join(self.dns_queries_per_second, other.dns_queries_per_second),
        }
    }
}

impl Reader<'_> {
    /// The limits of a table that may have these keys.
    pub(super) fn limits(&mut self, name: &str, value: &Value<'_>, keys: &[&'static str]) -> TenantLimits {
        let mut limits = TenantLimits::default();
        let place = if name == "limits" { "`limits`" } else { "`user_limits`" };
        let hint = format!("write `{name} = {{ connections = 1000 }}`");
        let Some(table) = self.table(name, value, &hint) else { return limits };
        for (key, value) in table {
            match Some(&**key.get_ref()).filter(|name| keys.contains(name)) {
                Some("connections") => limits.connections = self.count("connections", value),
                Some("connections_per_client") => {
                    limits.connections_per_client = self.count("connections_per_client", value);
                }
                Some("half_open") => limits.half_open = self.count("half_open", value),
                Some("new_connections_per_second") => {
                    limits.new_connections_per_second = self.count("new_connections_per_second", value);
                }
                Some("bandwidth") => {
                    limits.bandwidth = self.quantity("bandwidth", value, quantity::bandwidth, BANDWIDTH)
                }
                Some("bytes") => limits.bytes = self.quantity("bytes", value, quantity::bytes, BYTES),
                Some("dns_queries_per_second") => {
                    limits.dns_queries_per_second = self.count("dns_queries_per_second", value);
                }
                _ if **key.get_ref() == *"connections_per_client" => {
                    let fault = FileFault::UnknownKey { key: key.get_ref().to_string(), place };
                    let hint =
                        "leave it out: it is about plain clients, and stands in `[service.limits]` or in a role's";
                    self.wrong(key.span().start, fault, hint.to_owned());
                }
                _ => self.unknown_key(key, place, keys),
            }
        }
        limits
    }

    fn count(&mut self, key: &'static str, value: &Value<'_>) -> Option<u64> {
        let hint = format!("write `{key} = 1000`, or leave it out");
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(key, value, "a whole number", hint);
            return None;
        };
        let count = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|count| *count > 0);
        if count.is_none() {
            let found = self.written(value);
            self.fault(self.at(value.span().start), ServiceFault::Quantity { key, found, expected: COUNT }, hint);
        }
        count
    }

    /// A number with a unit, in quotes.
    fn quantity(
        &mut self,
        key: &'static str,
        value: &Value<'_>,
        parse: fn(&str) -> Option<u64>,
        expected: &'static str,
    ) -> Option<u64> {
        let hint = "write the number with its unit, or leave it out";
        let (text, at) = self.string(key, value, hint)?;
        let amount = parse(&text);
        if amount.is_none() {
            let fault = ServiceFault::Quantity { key, found: text, expected };
            self.fault(self.at(at), fault, hint.to_owned());
        }
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_filled_up_and_widened() {
        let one = TenantLimits { connections: Some(5), bytes: Some(7), ..TenantLimits::default() };
        let other = TenantLimits { connections: Some(9), half_open: Some(3), ..TenantLimits::default() };
        let filled = TenantLimits { half_open: Some(3), ..one };
        assert_eq!(one.or(other), filled);
        assert_eq!(one.widest(other), TenantLimits { connections: Some(9), ..TenantLimits::default() });
    }
}
