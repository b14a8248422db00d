//! The server at the other end: an exchange with it, and what its client has learned about it.
//!
//! All of that is forgotten when a connection was lost: another server may listen there from then on.

use std::cell::Cell;

use bytes::Bytes;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri, Version};
use kushi_core::Error;
use tokio::sync::Mutex;

use super::body::{self, OutgoingBody};
use super::connections::{Connections, Turn};
use super::{fault, metadata, path};
use crate::address::Address;
use crate::inputs::{InputNames, KnownInputs};
use crate::remote::RemoteOptions;
use crate::tls::Tls;

/// Where the JSON of a body ends and its tensors begin.
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

pub(crate) struct Server {
    pub(super) address: Address,
    pub(super) max_answer_bytes: usize,
    /// Sent with every request.
    headers: HeaderMap,
    connections: Connections,
    takes_binary: Cell<Option<bool>>,
    /// Held by the one call that asks; the others wait for what it hears.
    asking: Mutex<()>,
    pub(super) inputs: KnownInputs,
}

/// An answer of any status.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Of the JSON, when tensors follow it.
    pub json_length: Option<usize>,
    pub body: Bytes,
}

impl Server {
    pub(crate) fn new(
        address: Address,
        tls: Option<Tls>,
        headers: HeaderMap,
        options: &RemoteOptions,
    ) -> Self {
        Self {
            address,
            max_answer_bytes: options.max_answer_bytes,
            headers,
            connections: Connections::new(tls, options),
            takes_binary: Cell::new(None),
            asking: Mutex::new(()),
            inputs: KnownInputs::default(),
        }
    }

    /// Whether tensors may follow the JSON of a request as bytes.
    pub(super) async fn takes_binary(&self) -> Result<bool, Error> {
        match self.takes_binary.get() {
            Some(known) => Ok(known),
            // Boxed, as all that is rare: every call sets aside the room for it.
            None => Box::pin(self.ask_takes_binary()).await,
        }
    }

    async fn ask_takes_binary(&self) -> Result<bool, Error> {
        let _turn_to_ask = self.asking.lock().await;
        if let Some(known) = self.takes_binary.get() {
            return Ok(known);
        }
        let reply = self.get("/v2").await?;
        let takes = match reply.status.as_u16() {
            200 => {
                metadata::takes_binary(&reply.body).map_err(|text| fault::unreadable(&self.address, text))?
            }
            // A gateway that lets nothing but inference through.
            401 | 403 | 404 | 405 => false,
            _ => return Err(fault::refusal(&self.address, "/v2", &reply)),
        };
        self.takes_binary.set(Some(takes));
        Ok(takes)
    }

    pub(super) async fn input_names(&self, model: &str, version: &str) -> Result<InputNames, Error> {
        if let Some(known) = self.inputs.get(model, version) {
            return Ok(known);
        }
        let path = path::model(model, version);
        let reply = Box::pin(self.get(&path)).await?;
        if reply.status != StatusCode::OK {
            return Err(fault::refusal(&self.address, &path, &reply));
        }
        let names =
            metadata::input_names(&reply.body).map_err(|text| fault::unreadable(&self.address, text))?;
        Ok(self.inputs.learn(model, version, names))
    }

    fn forget(&self) {
        self.takes_binary.set(None);
        self.inputs.forget();
    }

    async fn get(&self, path: &str) -> Result<Reply, Error> {
        let turn = self.turn().await?;
        let request = self.request(Method::GET, path, OutgoingBody::new([]))?;
        self.exchange(&turn, request).await
    }

    /// Waits for the right to use a connection. Nobody may wait for a second one while holding it.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, Error> {
        self.connections.turn().await
    }

    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        body: OutgoingBody,
    ) -> Result<Request<OutgoingBody>, Error> {
        let uri = Uri::try_from(format!("{}{path}", self.address.prefix));
        let uri = uri.map_err(|_| Error::invalid(format!("cannot ask for the path '{path}'")))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(HOST, self.address.authority.clone());
        Ok(request)
    }

    /// Sends a request once. Only one of which a kept connection has sent nothing, because it had
    /// ended, goes to another connection.
    pub(super) async fn exchange(
        &self,
        turn: &Turn<'_>,
        mut request: Request<OutgoingBody>,
    ) -> Result<Reply, Error> {
        let sent = request.body().sent();
        let (line, response) = loop {
            let kept = turn.kept(|| self.forget()).await;
            let was_kept = kept.is_some();
            let mut line = match kept {
                Some(line) => line,
                None => Box::pin(turn.open(&self.address)).await.inspect_err(|_| self.forget())?,
            };
            match line.sender.try_send_request(request).await {
                Ok(response) => break (line, response),
                Err(mut failure) => {
                    self.forget();
                    match failure.take_message() {
                        Some(unsent) if was_kept => request = unsent,
                        _ => return Err(fault::lost(&self.address, failure.error())),
                    }
                }
            }
        };
        let (head, incoming) = response.into_parts();
        let json_length = head.headers.get(JSON_LENGTH).map(json_length).transpose();
        let json_length = json_length.map_err(|text| fault::unreadable(&self.address, text))?;
        let body = body::read(incoming, json_length, self.max_answer_bytes).await.map_err(|error| {
            self.forget();
            fault::unread(&self.address, &error)
        })?;
        if sent.get() && head.version == Version::HTTP_11 && !closes(&head.headers) {
            turn.keep(line);
        }
        Ok(Reply { status: head.status, headers: head.headers, json_length, body })
    }
}

fn json_length(value: &HeaderValue) -> Result<usize, String> {
    let text = String::from_utf8_lossy(value.as_bytes());
    text.trim().parse().map_err(|_| format!("its {JSON_LENGTH} is '{text}', expected a number"))
}

/// The server has said that this was the connection's last answer.
fn closes(headers: &HeaderMap) -> bool {
    let options =
        headers.get_all(CONNECTION).into_iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    options.into_iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}
