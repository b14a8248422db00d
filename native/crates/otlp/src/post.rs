//! One request to a collector, on a connection of its own.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    USER_AGENT,
};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kushi_core::{Error, ErrorKind};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::LocalRuntime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What is read of an answer: nothing in it is looked at.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Why spans did not arrive.
pub(crate) struct PostFailure {
    pub text: String,
    /// The same may arrive later.
    pub is_passing: bool,
}

/// Where a collector is.
pub(crate) struct Collector {
    uri: Uri,
    host: String,
    port: u16,
    authority: HeaderValue,
    headers: HeaderMap,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Collector {
    pub(crate) fn new(url: &str, headers: &[(String, String)]) -> Result<Self, Error> {
        let wrong = || {
            let text = format!(
                "cannot read the url of the collector of traces '{url}', expected http://HOST:PORT/PATH"
            );
            Error::new(ErrorKind::ConfigInvalid, text)
        };
        let uri: Uri = url.trim().parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|found| !found.as_str().contains('@')).ok_or_else(wrong)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (port, tls) = match uri.scheme_str() {
            Some("http") => (80, None),
            Some("https") => (443, Some(tls(&host)?)),
            _ => return Err(wrong()),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(port);
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        Ok(Self { uri, host, port, authority, headers: read_headers(headers)?, tls })
    }

    /// Answers once the collector has taken all, or `patience` is over.
    pub(crate) fn post(
        &self,
        runtime: &LocalRuntime,
        body: Bytes,
        patience: Duration,
    ) -> Result<(), PostFailure> {
        let posted = runtime.block_on(async { timeout(patience, self.connect_and_post(body)).await });
        posted.unwrap_or_else(|_| Err(passing(&"it does not answer in time")))
    }

    async fn connect_and_post(&self, body: Bytes) -> Result<(), PostFailure> {
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| passing(&error))?;
        match &self.tls {
            None => self.send(stream, body).await,
            Some((connector, name)) => {
                let stream =
                    connector.connect(name.clone(), stream).await.map_err(|error| passing(&error))?;
                self.send(stream, body).await
            }
        }
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        body: Bytes,
    ) -> Result<(), PostFailure> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| passing(&error))?;
        let driver = tokio::task::spawn_local(connection);
        let answered = self.ask(&mut sender, body).await;
        driver.abort();
        answered
    }

    async fn ask(
        &self,
        sender: &mut http1::SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> Result<(), PostFailure> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .body(Full::new(body))
            .map_err(|error| PostFailure { text: error.to_string(), is_passing: false })?;
        let version = concat!("kushi/", env!("CARGO_PKG_VERSION"));
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, self.authority.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(version));
        let answer = sender.send_request(request).await.map_err(|error| passing(&error))?;
        let status = answer.status();
        // So that the collector can write it; what it says changes nothing.
        let _ = Limited::new(answer.into_body(), MOST_ANSWER_BYTES).collect().await;
        if status.is_success() {
            return Ok(());
        }
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(PostFailure { text: format!("it answers with status {status}"), is_passing })
    }
}

fn read_headers(given: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        // Its value may be secret.
        let wrong = || {
            let text =
                format!("'{name}' cannot be a header for the collector of traces, or has a wrong value");
            Error::new(ErrorKind::ConfigInvalid, text)
        };
        let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name) {
            return Err(wrong());
        }
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn passing(error: &dyn Display) -> PostFailure {
    PostFailure { text: error.to_string(), is_passing: true }
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let wrong = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| wrong(format!("'{host}' is no name that a certificate could have")))?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(kushi_tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![kushi_tls::HTTP_1_1.to_vec()];
    Ok((Arc::new(config).into(), name))
}
