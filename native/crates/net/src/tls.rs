//! TLS of the TCP doors: what is read from the files of certificates, and read again when they change.
//!
//! A connection keeps what it began with. The files are looked at once per second, on a thread where nobody
//! waits for a slow disk; what cannot be used then is logged, and the old ones stay.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use kushi_core::{Complaints, Error, ErrorKind};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use crate::net::Net;

const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Files in PEM form.
#[derive(Clone)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate of one of these authorities.
    pub client_authorities: Option<PathBuf>,
}

/// What is spoken inside.
#[derive(Clone, Copy)]
pub struct Inside {
    /// As the flags have it.
    pub name: &'static str,
    /// As TLS has it.
    pub protocol: &'static [u8],
}

impl Inside {
    fn flag(self, what: &str) -> String {
        format!("--{}-{what}", self.name)
    }

    fn authorities(self) -> String {
        self.flag("root-cert")
    }
}

pub struct Tls {
    files: TlsFiles,
    inside: Inside,
    current: ArcSwap<ServerConfig>,
    known: Mutex<Known>,
    complaints: Complaints,
}

struct Known {
    /// What the current configuration was read from.
    seen: Vec<Option<Stamp>>,
    /// Why what is there now cannot be used.
    fault: Option<Error>,
}

/// What changes when a file does: device, inode, size, time of the last change.
type Stamp = (u64, u64, u64, i64, i64);

impl Tls {
    pub fn new(files: &TlsFiles, inside: Inside) -> Result<Self, Error> {
        // Before they are read: what is written meanwhile is read once more.
        let seen = stamps(files);
        Ok(Self {
            files: files.clone(),
            inside,
            current: ArcSwap::from_pointee(read(files, inside)?),
            known: Mutex::new(Known { seen, fault: None }),
            complaints: Complaints::default(),
        })
    }

    /// Says why a client was not let in, if that is its certificate: the client itself hears little.
    pub fn note_failed(&self, error: &io::Error, client: Option<SocketAddr>) {
        log::debug!("a TLS handshake failed: {error}");
        if let Some(what) = refusal(error, self.inside) {
            let client = client.map_or_else(String::new, |client| format!(" at {}", client.ip()));
            self.complaints.warn("handshake", || format!("a client{client} is refused: {what}"));
        }
    }

    /// For a connection that begins now.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Reads the files that have changed. To be called by one thread, which may have to wait for the disk.
    fn look(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        // A pipe can be read once; a file that is away may come back.
        if (stamps == known.seen && known.fault.is_none()) || stamps.contains(&None) {
            return;
        }
        match read(&self.files, self.inside) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                *known = Known { seen: stamps, fault: None };
                log::info!(
                    "the files of the TLS certificate have changed, new connections use what they hold"
                );
            }
            Err(error) => {
                // A certificate is replaced before its key, or a file is being written: it is looked at again.
                if known.fault.as_ref() != Some(&error) {
                    log::error!(
                        "the files of the TLS certificate have changed, what they held before stays in use: {error}"
                    );
                }
                known.fault = Some(error);
            }
        }
    }
}

/// Looks at the files of the certificate again and again, beside the thread that it runs on.
pub async fn watch(net: Arc<Net>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        let net = net.clone();
        let look = move || net.tls.iter().for_each(|tls| tls.look());
        if tokio::task::spawn_blocking(look).await.is_err() {
            log::error!("the files of the TLS certificate could not be looked at");
        }
    }
}

fn refusal(error: &io::Error, inside: Inside) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::NoCertificatesPresented => {
            Some(format!("it shows no certificate ({})", inside.flag("use-ssl-mutual")))
        }
        rustls::Error::InvalidCertificate(reason) => {
            Some(format!("its certificate {} ({})", kushi_tls::fault(reason), inside.authorities()))
        }
        _ => None,
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<Stamp>> {
    let paths = [Some(&files.certificate), Some(&files.key), files.client_authorities.as_ref()];
    paths.into_iter().flatten().map(|path| stamp(path)).collect()
}

/// `None` for what is no file, or is not there.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

fn read(files: &TlsFiles, inside: Inside) -> Result<ServerConfig, Error> {
    let (certificate, key_role) = (inside.flag("server-cert"), inside.flag("server-key"));
    let chain = kushi_tls::certificates(&files.certificate, &certificate)?;
    let key = kushi_tls::private_key(&files.key, &key_role)?;
    let provider = kushi_tls::provider();
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let role = inside.authorities();
            let authorities = kushi_tls::authorities(path, &role)?.into();
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
            let verifier = verifier.map_err(|error| kushi_tls::unusable(path, &role, &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        kushi_tls::refused((&files.certificate, &certificate), (&files.key, &key_role), &error)
    })?;
    config.alpn_protocols = vec![inside.protocol.to_vec()];
    Ok(config)
}
