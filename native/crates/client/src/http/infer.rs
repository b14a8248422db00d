//! One inference over HTTP, from the call to its answer.

use std::time::{Duration, Instant};

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use kushi_core::{DataType, Error, ErrorKind, Timings};

use super::body::Outgoing;
use super::request::{self, Form};
use super::server::{JSON_LENGTH, Server};
use super::{answer, fault, path};
use crate::{Answer, Carried, InferCall, WantedOutput};

/// How long this client will wait, from the moment the request arrives.
const TIMEOUT: HeaderName = HeaderName::from_static("kushi-timeout-us");
/// Asks our own server where the time went, and carries its answer.
const TIMINGS: HeaderName = HeaderName::from_static("kushi-timings");

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

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
        .inspect_err(|_| server.forget_inputs())?;
    let turn = server.turn().await?;
    let json_length = message.json_length;
    let path = path::model(&call.model, &call.version) + "/infer";
    let mut request = server.request(Method::POST, &path, Outgoing::new(message.pieces))?;
    describe(request.headers_mut(), json_length, deadline);
    if let Some(trace) = &call.trace {
        carry(request.headers_mut(), trace);
    }
    let reply = server.exchange(&turn, request).await?;
    drop(turn);
    if reply.status != StatusCode::OK {
        let refusal = fault::refusal(&server.address, &reply);
        if by_position && matches!(refusal.kind, ErrorKind::InvalidInput | ErrorKind::ModelNotFound) {
            // It may have other inputs by now.
            server.forget_inputs();
        }
        return Err(refusal);
    }
    let mut answer = answer::read(&reply.body, reply.json_length, server.max_answer_bytes)
        .map_err(|text| fault::unreadable(&server.address, text))?;
    check_classes(server, call, &answer)?;
    answer.timings = reply.headers.get(TIMINGS).and_then(timings);
    Ok(answer)
}

/// A server that does not know classes answers such an output as it is.
fn check_classes(server: &Server, call: &InferCall, answer: &Answer) -> Result<(), Error> {
    for WantedOutput { name, .. } in call.outputs.iter().filter(|output| output.classes > 0) {
        let mut as_it_is = answer.outputs.iter().filter(|(_, tensor)| tensor.datatype != DataType::Bytes);
        if as_it_is.any(|(answered, _)| answered == name) {
            let text = format!(
                "cannot ask {} for the classes of output '{name}': the server has no extension 'classification'",
                server.address
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    Ok(())
}

/// What the caller has set for all its calls stays.
fn carry(headers: &mut HeaderMap, trace: &Carried) {
    if headers.contains_key(TRACE_PARENT) {
        return;
    }
    for (name, text) in [(TRACE_PARENT, &trace.parent), (TRACE_STATE, &trace.state)] {
        if let Ok(value) = HeaderValue::from_str(text)
            && !text.is_empty()
        {
            headers.insert(name, value);
        }
    }
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
    headers.insert(TIMINGS, HeaderValue::from_static("true"));
    if let Some(deadline) = deadline {
        let left = deadline.saturating_duration_since(Instant::now()).as_micros().max(1);
        headers.insert(TIMEOUT, HeaderValue::from(u64::try_from(left).unwrap_or(u64::MAX)));
    }
}

/// `QUEUE,INPUT,INFER,OUTPUT` in nanoseconds.
fn timings(header: &HeaderValue) -> Option<Timings> {
    let mut parts =
        header.to_str().ok()?.split(',').map(|part| part.trim().parse().map(Duration::from_nanos));
    let mut next = || parts.next()?.ok();
    Some(Timings { queue: next()?, compute_input: next()?, compute_infer: next()?, compute_output: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_timings_and_ignores_what_is_none() {
        let read = |text: &'static str| timings(&HeaderValue::from_static(text)).map(|t| t.compute_output);
        assert_eq!(read("1,2,3,4000"), Some(Duration::from_micros(4)));
        for text in ["", "1,2,3", "a,b,c,d", "-1,2,3,4"] {
            assert_eq!(read(text), None);
        }
    }
}
