//! One inference over gRPC, from the call to its answer.

use std::time::Instant;

use bytes::Bytes;
use hyper::header::HeaderMap;
use kushi_core::{Buffer, Error, ErrorKind};

use super::fault;
use super::server::Server;
use crate::beside::{self, check_classes};
use crate::inputs::InputNames;
use crate::{Answer, InferCall, decode, encode};

pub(super) async fn infer(
    server: &Server,
    call: &InferCall,
    deadline: Option<Instant>,
) -> Result<Answer, Error> {
    let names = names(server, call, deadline).await?;
    let message = encode::grpc(call, names.as_deref().unwrap_or_default(), false)
        .inspect_err(|_| server.inputs.forget())?;
    let asked = server.ask("ModelInfer", &message, &headers(call), deadline).await;
    let reply = asked.map_err(Error::from).inspect_err(|error| {
        if names.is_some() && matches!(error.kind, ErrorKind::InvalidInput | ErrorKind::ModelNotFound) {
            // It may have other inputs by now.
            server.inputs.forget();
        }
    })?;
    let mut answer = read(server, &reply.message)?;
    check_classes(&server.address, call, &answer)?;
    answer.timings = beside::timings(&reply.headers);
    Ok(answer)
}

/// Those of the model, where inputs are given by position.
pub(super) async fn names(
    server: &Server,
    call: &InferCall,
    deadline: Option<Instant>,
) -> Result<Option<InputNames>, Error> {
    if call.inputs.iter().all(|input| input.name.is_some()) {
        return Ok(None);
    }
    server.input_names(&call.model, &call.version, deadline).await.map(Some)
}

pub(super) fn headers(call: &InferCall) -> HeaderMap {
    let mut headers = HeaderMap::new();
    beside::ask_timings(&mut headers);
    if let Some(trace) = &call.trace {
        beside::carry(&mut headers, trace);
    }
    headers
}

pub(super) fn read(server: &Server, message: &Bytes) -> Result<Answer, Error> {
    let mut answer =
        decode::answer(message, |_| None).map_err(|text| fault::unreadable(&server.address, text))?;
    for (_, tensor) in &mut answer.outputs {
        // What stands in a message stands there by chance.
        let bytes = tensor.data.as_bytes();
        if bytes.as_ptr().align_offset(tensor.datatype.size().unwrap_or(1)) != 0 {
            tensor.data = Buffer::host(Bytes::copy_from_slice(bytes));
        }
    }
    Ok(answer)
}
