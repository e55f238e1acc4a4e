//! How many connections each client of a tenant has: each address that connections come from.
//!
//! Whoever is given 2^64 addresses of IPv6 is one client: they count by their first 64 bits. Programs of this machine all come
//! from one address, so that nothing is bounded there unless somebody says so.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of what its tenant may have, a client may have this part where nobody says otherwise.
const PART: usize = 2;

/// The clients of a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection of a client, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientPlace {
    clients: Clients,
    client: IpAddr,
}

impl Clients {
    /// One more connection of the client at that address. `None`: it has as many as it may have. `set` is what somebody
    /// said, and `of_tenant` what its tenant may have.
    pub(crate) fn enter(&self, address: IpAddr, set: Option<usize>, of_tenant: usize) -> Option<ClientPlace> {
        let client = client(address);
        let default = if client.is_loopback() { usize::MAX } else { (of_tenant / PART).max(1) };
        let mut clients = self.lock();
        let open = clients.entry(client).or_default();
        if *open >= set.unwrap_or(default) {
            return None;
        }
        *open += 1;
        Some(ClientPlace { clients: self.clone(), client })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(open) = clients.get_mut(&self.client) {
            *open -= 1;
            if *open == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// All addresses of one client as one.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_room_for_others() {
        let clients = Clients::default();
        let enter = |address: &str, set| clients.enter(address.parse().unwrap(), set, 10);
        let mut places: Vec<_> = std::iter::from_fn(|| enter("203.0.113.7", None)).collect();
        assert_eq!(places.len(), 5);
        assert!(enter("::ffff:203.0.113.7", None).is_none(), "the same one");
        assert!(enter("203.0.113.8", None).is_some());
        places.pop();
        assert!(enter("203.0.113.7", None).is_some());
        assert!(enter("203.0.113.7", Some(4)).is_none() && enter("203.0.113.7", Some(6)).is_some());
        drop(places);
        assert!(clients.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_loopback_is_bounded_where_that_is_said() {
        let clients = Clients::default();
        let enter = |address: &str, set| clients.enter(address.parse().unwrap(), set, 2);
        let one = enter("2001:db8::1", None);
        assert!(one.is_some() && enter("2001:db8::2", None).is_none() && enter("2001:db8:0:1::1", None).is_some());
        for address in ["127.0.0.1", "::1"] {
            let places: Vec<_> = (0..5).map(|_| enter(address, None).unwrap()).collect();
            assert!(enter(address, Some(5)).is_none());
            drop(places);
        }
    }
}
