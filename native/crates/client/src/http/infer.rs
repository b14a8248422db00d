//! One inference over HTTP, from the call to its answer.

use std::time::Instant;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use kushi_core::{Error, ErrorKind};

use super::body::OutgoingBody;
use super::request::{self, Form};
use super::server::{JSON_LENGTH, Server};
use super::{answer, fault, path};
use crate::beside::{self, check_classes};
use crate::{Answer, InferCall};

/// How long this client will wait, from the moment the request arrives.
const TIMEOUT: HeaderName = HeaderName::from_static("kushi-timeout-us");
pub(super) async fn infer(
    server: &Server,
    call: &InferCall,
    deadline: Option<Instant>,
) -> Result<Answer, Error> {
    path::check_model(&call.model, &call.version)?;
    let form =
        if server.takes_binary().await? { Form::Binary } else { Form::Json { server: &server.address } };
    let by_position = call.inputs.iter().any(|input| input.name.is_none());
    let mut names = None;
    if by_position {
        names = Some(server.input_names(&call.model, &call.version).await?);
    }
    let message = request::write(call, names.as_deref().unwrap_or_default(), form)
        .inspect_err(|_| server.inputs.forget())?;
    let turn = server.turn().await?;
    let json_length = message.json_length;
    let path = path::model(&call.model, &call.version) + "/infer";
    let mut request = server.request(Method::POST, &path, OutgoingBody::new(message.pieces))?;
    describe(request.headers_mut(), json_length, deadline);
    if let Some(trace) = &call.trace {
        beside::carry(request.headers_mut(), trace);
    }
    let reply = server.exchange(&turn, request).await?;
    drop(turn);
    if reply.status != StatusCode::OK {
        let refusal = fault::refusal(&server.address, &path, &reply);
        if by_position && matches!(refusal.kind, ErrorKind::InvalidInput | ErrorKind::ModelNotFound) {
            // It may have other inputs by now.
            server.inputs.forget();
        }
        return Err(refusal);
    }
    let mut answer = answer::read(&reply.body, reply.json_length, server.max_answer_bytes)
        .map_err(|text| fault::unreadable(&server.address, text))?;
    check_classes(&server.address, call, &answer)?;
    answer.timings = beside::timings(&reply.headers);
    Ok(answer)
}

fn describe(headers: &mut HeaderMap, json_length: Option<usize>, deadline: Option<Instant>) {
    let content_type = match json_length {
        Some(length) => {
            headers.insert(JSON_LENGTH, HeaderValue::from(length));
            "application/octet-stream"
        }
        None => "application/json",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    beside::ask_timings(headers);
    if let Some(deadline) = deadline {
        let left = deadline.saturating_duration_since(Instant::now()).as_micros().max(1);
        headers.insert(TIMEOUT, HeaderValue::from(u64::try_from(left).unwrap_or(u64::MAX)));
    }
}
