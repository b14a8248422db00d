//! Certificates and keys in PEM files, as TLS takes them, for both ends of a connection.
//!
//! What cannot be used is an error that names its role, the file, and what was expected. No text shows
//! anything of what a file holds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kushi_core::{Error, ErrorKind, os_text};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, RootCertStore};

/// The protocol that is spoken inside.
pub const HTTP_1_1: &[u8] = b"http/1.1";
pub const HTTP_2: &[u8] = b"h2";

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
    let key = PrivateKeyDer::from_pem_slice(&read(path, role)?).map_err(|_| {
        unusable(path, role, "expected a private key in PEM form, without a passphrase, found none")
    })?;
    provider().key_provider.load_private_key(key.clone_key()).map_err(|_| {
        let what = "expected a key for RSA of 2048 to 8192 bits, for ECDSA on P-256 or P-384, or for Ed25519";
        unusable(path, role, what)
    })?;
    Ok(key)
}

/// The certificates of a file as those of authorities.
pub fn authorities(path: &Path, role: &str) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, role)? {
        store.add(certificate).map_err(|error| refused((path, role), (path, role), &error))?;
    }
    Ok(store)
}

fn read(path: &Path, role: &str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| unusable(path, role, &format!("cannot be read: {}", os_text(&error))))
}

/// What TLS has against a certificate and its key, each a file and its role.
pub fn refused((path, role): (&Path, &str), key: (&Path, &str), error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            unusable(key.0, key.1, &format!("expected the key of {role} '{}'", path.display()))
        }
        rustls::Error::InvalidCertificate(reason) => {
            unusable(path, role, &format!("a certificate in it {}", fault(reason)))
        }
        error => unusable(path, role, &error.to_string()),
    }
}

/// What is wrong with a certificate: the end of a sentence about it.
pub fn fault(reason: &CertificateError) -> String {
    use CertificateError as Fault;
    let text = match reason {
        Fault::BadEncoding => "cannot be read",
        Fault::BadSignature => "is not signed by the authority that it names",
        Fault::Expired | Fault::ExpiredContext { .. } => "has expired",
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            "is not valid yet, by the clock of this host"
        }
        Fault::Revoked => "has been revoked",
        Fault::UnknownIssuer => "is of no authority that is trusted",
        Fault::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            return format!("is not for this name, but for {}", names.join(", "));
        }
        Fault::NotValidForName => "is not for this name",
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "is for another purpose (extendedKeyUsage)"
        }
        Fault::UnhandledCriticalExtension => "has a critical extension that is not known here",
        Fault::UnsupportedSignatureAlgorithmContext { .. }
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed in a way that is not supported"
        }
        // The parser's own word.
        Fault::Other(other) if other.to_string().contains("UnsupportedCertVersion") => {
            "is not of X.509 version 3: openssl x509 writes that with -extfile"
        }
        other => return format!("is refused: {other}"),
    };
    text.to_owned()
}

/// What is inside of `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"')
}

/// An error about a file in this role.
pub fn unusable(path: &Path, role: &str, what: &str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, format!("{role} '{}': {what}", path.display()))
}
