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
const CERTIFICATE: &str = "--http-server-cert";
const KEY: &str = "--http-server-key";
const AUTHORITIES: &str = "--http-root-cert";

/// Files in PEM form.
#[derive(Clone)]
pub struct TlsOptions {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate of one of these authorities.
    pub client_authorities: Option<PathBuf>,
}

pub struct Tls {
    options: TlsOptions,
    current: ArcSwap<ServerConfig>,
    files: Mutex<Files>,
    complaints: Complaints,
}

struct Files {
    /// What the current configuration was read from.
    seen: Vec<Option<Stamp>>,
    /// Why what is there now cannot be used.
    fault: Option<Error>,
}

/// What changes when a file does: device, inode, size, time of the last change.
type Stamp = (u64, u64, u64, i64, i64);

impl Tls {
    pub fn new(options: &TlsOptions) -> Result<Self, Error> {
        // Before they are read: what is written meanwhile is read once more.
        let seen = stamps(options);
        Ok(Self {
            options: options.clone(),
            current: ArcSwap::from_pointee(read(options)?),
            files: Mutex::new(Files { seen, fault: None }),
            complaints: Complaints::default(),
        })
    }

    /// Says why a client was not let in, if that is its certificate: the client itself hears little.
    pub fn note_failed(&self, error: &io::Error, client: Option<SocketAddr>) {
        log::debug!("a TLS handshake failed: {error}");
        if let Some(what) = refusal(error) {
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
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.options);
        // A pipe can be read once; a file that is away may come back.
        if (stamps == files.seen && files.fault.is_none()) || stamps.contains(&None) {
            return;
        }
        match read(&self.options) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                *files = Files { seen: stamps, fault: None };
                log::info!(
                    "the files of the TLS certificate have changed, new connections use what they hold"
                );
            }
            Err(error) => {
                // A certificate is replaced before its key, or a file is being written: it is looked at again.
                if files.fault.as_ref() != Some(&error) {
                    log::error!(
                        "the files of the TLS certificate have changed, what they held before stays in use: {error}"
                    );
                }
                files.fault = Some(error);
            }
        }
    }
}

/// Looks at the files of the certificate again and again, beside the thread that it runs on.
pub async fn watch(net: Arc<Net>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        let net = net.clone();
        let look = move || net.tls.iter().for_each(Tls::look);
        if tokio::task::spawn_blocking(look).await.is_err() {
            log::error!("the files of the TLS certificate could not be looked at");
        }
    }
}

fn refusal(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::NoCertificatesPresented => {
            Some("it shows no certificate (--http-use-ssl-mutual)".to_owned())
        }
        rustls::Error::InvalidCertificate(reason) => {
            Some(format!("its certificate {} ({AUTHORITIES})", kushi_tls::fault(reason)))
        }
        _ => None,
    }
}

fn stamps(options: &TlsOptions) -> Vec<Option<Stamp>> {
    let paths = [Some(&options.certificate), Some(&options.key), options.client_authorities.as_ref()];
    paths.into_iter().flatten().map(|path| stamp(path)).collect()
}

/// `None` for what is no file, or is not there.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

fn read(options: &TlsOptions) -> Result<ServerConfig, Error> {
    let chain = kushi_tls::certificates(&options.certificate, CERTIFICATE)?;
    let key = kushi_tls::private_key(&options.key, KEY)?;
    let provider = kushi_tls::provider();
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let builder = match &options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authorities = kushi_tls::authorities(path, AUTHORITIES)?.into();
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
            let verifier =
                verifier.map_err(|error| kushi_tls::unusable(path, AUTHORITIES, &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        kushi_tls::refused((&options.certificate, CERTIFICATE), (&options.key, KEY), &error)
    })?;
    config.alpn_protocols = vec![kushi_tls::HTTP_1_1.to_vec()];
    Ok(config)
}
