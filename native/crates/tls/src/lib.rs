//! Certificates and keys in PEM files, as TLS takes them, for both ends of a connection.
//!
//! What cannot be used is an error that names its role, the file, and what was expected. No text shows
//! anything of what a file holds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kushi_core::{Error, ErrorKind, os_text};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocol that is spoken inside.
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// The cryptography of all connections.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// All certificates of a file, in its order; at least one.
pub fn certificates(path: &Path, role: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path, role)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(unusable(path, role, "expected certificates in PEM form, found none")),
    }
}

/// The first private key of a file.
pub fn private_key(path: &Path, role: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read(path, role)?).map_err(|_| {
        unusable(path, role, "expected a private key in PEM form, without a passphrase, found none")
    })
}

/// The certificates of a file as those of authorities.
pub fn authorities(path: &Path, role: &str) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, role)? {
        store.add(certificate).map_err(|error| unusable(path, role, &error.to_string()))?;
    }
    Ok(store)
}

fn read(path: &Path, role: &str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| unusable(path, role, &format!("cannot be read: {}", os_text(&error))))
}

/// An error about a file whose certificate TLS does not take. Without extensions, `openssl x509` writes version 1.
pub fn refused(path: &Path, role: &str, error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(reason) => {
            unusable(path, role, &format!("expected a certificate of X.509 version 3, got {reason}"))
        }
        error => unusable(path, role, &error.to_string()),
    }
}

/// An error about a file in this role.
pub fn unusable(path: &Path, role: &str, what: &str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, format!("{role} '{}': {what}", path.display()))
}
