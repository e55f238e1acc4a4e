//! The files of listeners that speak TLS.

use std::path::Path;

use netbox_config::service::TlsFiles;
use netbox_proxy::tls::{Identity, IdentityError};

use crate::policy::{OwnFile, Refused, shown};

/// Reads them.
///
/// # Errors
/// One of them cannot be used, or the key is not secret.
pub fn identity(files: &TlsFiles) -> Result<Identity, Refused> {
    let certificate = read("certificate", &files.certificate, Ok)?;
    let key = read("key", &files.key, OwnFile::secret)?;
    Identity::from_pem(&certificate, &key).map_err(|error| {
        let (what, path) = match error {
            IdentityError::NoCertificate | IdentityError::Certificate(_) => ("certificate", &files.certificate),
            IdentityError::Key(_) | IdentityError::Pair(_) => ("key", &files.key),
        };
        Refused::new(format!("the {what} {}: {error}", shown(path)))
    })
}

fn read(what: &str, path: &Path, check: fn(OwnFile) -> Result<OwnFile, Refused>) -> Result<Vec<u8>, Refused> {
    match OwnFile::read(path).and_then(check) {
        Ok(file) => Ok(file.bytes),
        Err(refused) => Err(Refused { text: format!("the {what} of a listener: {}", refused.text), ..refused }),
    }
}
