//! Anything but inference: a request of the protocol's other routes, by its path.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use kushi_core::Error;
use kushi_oip::json::write;

use super::body::Outgoing;
use super::fault;
use super::server::Server;
use crate::{Call, CallAnswer};

pub(super) async fn call(server: &Server, call: &Call) -> Result<CallAnswer, Error> {
    let method = Method::from_bytes(call.method.as_bytes());
    let method =
        method.map_err(|_| Error::invalid(format!("cannot ask with the method '{}'", call.method)))?;
    if !call.path.starts_with('/') {
        let text = format!("cannot ask for the path '{}', expected one that begins with '/'", call.path);
        return Err(Error::invalid(text));
    }
    let turn = server.turn().await?;
    let mut request = server.request(method, &call.path, Outgoing::new([call.body.clone()]))?;
    if !call.body.is_empty() {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let reply = server.exchange(&turn, request).await;
    drop(turn);
    if call.path.starts_with("/v2/repository/") && !call.path.ends_with("/index") {
        // A model that was loaded or unloaded may have other inputs.
        server.forget_inputs();
    }
    let reply = reply?;
    let status = reply.status.as_u16();
    if reply.status.is_success() {
        return Ok(CallAnswer { status, kind: None, body: reply.body });
    }
    let refusal = fault::refusal(&server.address, &reply);
    Ok(CallAnswer { status, kind: Some(refusal.kind), body: error_body(&refusal.message) })
}

/// As our own server writes it, whatever the other end has sent.
fn error_body(message: &str) -> Bytes {
    let mut body = b"{\"error\":".to_vec();
    write::string(&mut body, message.as_bytes());
    body.push(b'}');
    body.into()
}
