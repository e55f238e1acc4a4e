//! The judgement of each address that a permitted target has, right before it is dialled.
//!
//! A name is judged as a name, and then its addresses are judged as addresses: whoever answers for an allowed name must
//! not be able to point it at the host, its neighbours or a metadata service, at one time or at another (DNS rebinding).
//! Only [`Policy::vet`] makes a [`VettedAddr`], and only a [`VettedAddr`] is dialled.

use std::net::{IpAddr, SocketAddr};

use crate::address::AddressClass;
use crate::facts::HostFacts;
use crate::host::Host;
use crate::judge::{Permit, class_on_host};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// An address and port that may be dialled. Only [`Policy::vet`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VettedAddr(SocketAddr);

impl VettedAddr {
    /// The address to dial, in canonical form: an IPv4-mapped address is the IPv4 address.
    pub fn socket_addr(self) -> SocketAddr {
        self.0
    }
}

impl Policy {
    /// Judges one address of a permitted target, on the target's port.
    ///
    /// # Errors
    ///
    /// In this order: netbox's own listeners are `self`; what a deny rule covers is `denied`; an address of the host's
    /// interfaces is `self` unless an allow rule is about exactly that one; what is outside a ceiling is `denied`: the
    /// target, and the address as well if it is not public or the host's, since a rule outside a ceiling opens nothing; an
    /// address that is not public is `non-public` unless an allow rule names it on this port, in mode `open`, or with a
    /// permit for exactly that port of the host's loopback. Where the target is itself an address, any other address is
    /// `address-not-listed`.
    ///
    /// The refusal's [`Refusal::address`] is the address.
    pub fn vet(&self, permit: &Permit, address: IpAddr, facts: &HostFacts) -> Result<VettedAddr, Refusal> {
        let address = address.to_canonical();
        let port = permit.target().port();
        if let Host::Address(judged) = permit.target().host()
            && *judged != address
        {
            return Err(Refusal::new(Reason::AddressNotListed).with_address(address));
        }
        self.check_never(address, port, facts)
            .and_then(|()| self.check_ceilings(permit.target().host(), port))
            .and_then(|()| match class_on_host(address, facts) {
                AddressClass::Public if !facts.is_own(address) => Ok(()),
                _ => self.check_ceilings_of_address(address, port),
            })
            .and_then(|()| if permit.is_unguarded() { Ok(()) } else { self.check_guard(address, port, facts) })
            .map(|()| VettedAddr(SocketAddr::new(address, port.get())))
            .map_err(|refusal| refusal.with_address(address))
    }
}
