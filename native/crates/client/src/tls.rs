//! TLS towards a server: whom the client trusts, and what it shows of itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kushi_core::{Error, ErrorKind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{Connect, TlsConnector};

const AUTHORITIES: &str = "ca_cert";
const CERTIFICATE: &str = "client_cert";
const KEY: &str = "client_key";

/// Files in PEM form.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The authorities that are trusted, in the place of the system's.
    pub authorities: Option<PathBuf>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Takes any server for the right one.
    pub insecure: bool,
}

/// How a client speaks TLS to one server.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    /// Whose certificate the server must have.
    name: ServerName<'static>,
}

impl Tls {
    /// `host` is whom the server's certificate must name.
    pub fn new(host: &str, options: &TlsOptions) -> Result<Self, Error> {
        Self::speaking(kushi_tls::HTTP_1_1, host, options)
    }

    /// `protocol`: the name of what is spoken inside, as ALPN has it.
    pub(crate) fn speaking(protocol: &[u8], host: &str, options: &TlsOptions) -> Result<Self, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::invalid(format!("'{host}' is no name that a certificate could have")))?;
        let internal = |error: rustls::Error| Error::new(ErrorKind::Internal, error.to_string());
        let provider = kushi_tls::provider();
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(internal)?;
        let builder = if options.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            builder.with_root_certificates(trusted(options.authorities.as_deref())?)
        };
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = kushi_tls::certificates(certificate, CERTIFICATE)?;
                builder
                    .with_client_auth_cert(chain, kushi_tls::private_key(key, KEY)?)
                    .map_err(|error| kushi_tls::refused((certificate, CERTIFICATE), (key, KEY), &error))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self { connector: Arc::new(config).into(), name })
    }

    pub(crate) fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: S) -> Connect<S> {
        self.connector.connect(self.name.clone(), socket)
    }
}

fn trusted(authorities: Option<&Path>) -> Result<RootCertStore, Error> {
    if let Some(path) = authorities {
        return kushi_tls::authorities(path, AUTHORITIES);
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        let text = "this system has no certificates of authorities: install them (the package is mostly called \
                    ca-certificates), or give the client that of the server's authority as ca_cert";
        return Err(Error::new(ErrorKind::ConfigInvalid, text));
    }
    Ok(store)
}

/// What went wrong, if the error is one of TLS.
pub(crate) fn error_text(error: &io::Error) -> Option<String> {
    use rustls::Error as Fault;
    Some(match error.get_ref()?.downcast_ref::<Fault>()? {
        Fault::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is of no authority that this client trusts (ca_cert)".to_owned()
        }
        Fault::InvalidCertificate(reason) => format!("its certificate {}", kushi_tls::fault(reason)),
        Fault::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        Fault::AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a client certificate (client_cert, client_key)".to_owned()
        }
        Fault::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it speaks another protocol there: its gRPC and its HTTP have a port each".to_owned()
        }
        Fault::AlertReceived(alert) => format!("it refuses the connection: {alert:?}"),
        other => format!("TLS failed: {other}"),
    })
}

/// Takes every certificate; that its key is the server's is still checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
