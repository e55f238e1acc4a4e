//! The HTTP server behind TLS, with a certificate for whatever name the client asks for.
//!
//! The certificate authority lives for one run of the tests; clients get to know it by the variables that they
//! document for that (`world`).

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Connection, http};
use crate::zone::DOMAIN;

/// The certificate authority of this run, and what the servers show of it.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate, PEM.
    pub certificate: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// Makes a new authority and one certificate for every name that a test can publish.
    pub fn new() -> Self {
        let mut of_authority = CertificateParams::default();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        of_authority.distinguished_name.push(DnType::CommonName, "netbox end-to-end tests");
        let authority_key = KeyPair::generate().expect("a key can be generated");
        let certificate = of_authority.self_signed(&authority_key).expect("the authority signs itself").pem();
        let issuer = Issuer::new(of_authority, authority_key);

        let key = KeyPair::generate().expect("a key can be generated");
        let of_servers = CertificateParams::new([DOMAIN.to_owned(), format!("*.{DOMAIN}")]).expect("valid names");
        let chain: Vec<CertificateDer<'static>> =
            vec![of_servers.signed_by(&key, &issuer).expect("the authority signs").der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key that was just made");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("key and certificate belong together");
        Self { certificate, config: Arc::new(config) }
    }
}

/// Shakes hands, writes down the SNI, and goes on as HTTP.
pub(super) fn serve(connection: &Connection) -> io::Result<()> {
    let tls = ServerConnection::new(Arc::clone(&connection.shared.authority.config)).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, &connection.stream);
    while stream.conn.is_handshaking() && stream.conn.server_name().is_none() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let name = stream.conn.server_name().map(str::to_ascii_lowercase);
    connection.shared.arrivals.first_bytes(connection.entry, name, Some("TLS handshake".to_owned()));
    http::serve(&mut stream, connection)?;
    stream.conn.send_close_notify();
    stream.conn.complete_io(&mut stream.sock).map(drop)
}
