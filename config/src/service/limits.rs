//! How much a tenant may use.

/// Bounds of one tenant: a sandbox or a role. What says nothing is bounded by what stands outside of it: the
/// `[service.limits]`, and then what netbox itself sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Connections that are open at once.
    pub connections: Option<u64>,
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
            half_open: join(self.half_open, other.half_open),
            new_connections_per_second: join(self.new_connections_per_second, other.new_connections_per_second),
            bandwidth: join(self.bandwidth, other.bandwidth),
            bytes: join(self.bytes, other.bytes),
            dns_queries_per_second: join(self.dns_queries_per_second, other.dns_queries_per_second),
        }
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
