//! Where plain clients come in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::source::Source;

/// A listener for programs that are told of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where. With port 0 the system chooses one.
    pub address: SocketAddr,
    /// Whose its connections are, whatever they say; nothing where their token says it, or, where no role has tokens, that
    /// they are of the policy at the top of the file.
    pub role: Option<Arc<str>>,
    /// Whether it speaks TLS, and by which files.
    pub tls: Option<TlsFiles>,
    /// Whether an address that other machines reach may do without a token.
    pub any: bool,
    /// Where it is written.
    pub source: Source,
}

/// The files of a TLS listener, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// The certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Listener {
    /// Whether no other machine reaches it.
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// What to write where it would be open to whoever reaches it.
    pub(super) fn way_to_close(&self) -> String {
        let role = self.role.as_deref().unwrap_or("NAME");
        format!(
            "write a loopback address, give a role a token (`netbox proxy token new {role}`), or write `any = true` in its \
             `[[service.listener]]`"
        )
    }
}
