//! One request with any number of answers, as they come.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, StatusCode};
use kushi_core::{Error, ErrorKind, Parameter};
use kushi_oip::wire::{Fields, WireError};

use super::exchange::{Attempt, ExchangeFailure, send};
use super::incoming::Incoming;
use super::line::Line;
use super::server::Server;
use super::{fault, infer};
use crate::call::Room;
use crate::{InferCall, Streamed, encode};

/// Says of an answer that it is the last one.
const IS_FINAL: &str = "triton_final_response";

pub(super) async fn stream(
    server: &Server,
    call: &InferCall,
    deadline: Option<Instant>,
    deliver: &dyn Fn(Streamed),
) -> Result<(), Error> {
    let names = infer::names(server, call, deadline).await?;
    let message = encode::grpc(call, names.as_deref().unwrap_or_default(), true)
        .inspect_err(|_| server.inputs.forget())?;
    let mut headers = infer::headers(call);
    // An error ends the call, and so has a kind.
    headers.insert("triton_grpc_error", HeaderValue::from_static("true"));
    let answers = Answers { server, deliver, room: Room::new() };
    let work = async |line: &Rc<Line>, request| answers.once(line, request, &message).await;
    Ok(server.attempt(&server.streaming, "ModelStreamInfer", &headers, deadline, work).await?)
}

struct Answers<'a> {
    server: &'a Server,
    deliver: &'a dyn Fn(Streamed),
    room: Room,
}

impl Answers<'_> {
    async fn once(&self, line: &Rc<Line>, request: Request<()>, message: &[Bytes]) -> Result<(), Attempt> {
        let server = self.server;
        let ready = line.sender.clone().ready().await;
        let mut sender = ready.map_err(|error| server.gone(line, &error))?;
        let (response, outgoing) =
            sender.send_request(request, false).map_err(|error| server.gone(line, &error))?;
        // Where sending fails, the response tells why.
        let _ = send(outgoing, message).await;
        let response = response.await.map_err(|error| server.broken(line, &error))?;
        line.has_answered.set(true);
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let error = fault::other_status(&server.address, head.status);
            return Err(Attempt::Failed(ExchangeFailure::Refused(error)));
        }
        let mut incoming = Incoming::new(body, server.max_answer_bytes);
        self.read(&head.headers, &mut incoming)
            .await
            .map_err(|error| Attempt::Failed(ExchangeFailure::Lost(error)))
    }

    async fn read(&self, head: &HeaderMap, incoming: &mut Incoming) -> Result<(), Error> {
        if let Some(ended) = fault::status(head) {
            return ended;
        }
        let address = &self.server.address;
        let mut is_over = false;
        while let Some(message) = incoming.next().await.map_err(|fault| fault::unread(address, &fault))? {
            let (error, answer) = parts(&message).map_err(|error| fault::unreadable(address, error))?;
            if let Some(text) = error {
                return Err(Error::new(ErrorKind::EngineFailed, text));
            }
            if !is_over {
                is_over = self.answer(&answer).await?;
            }
        }
        let trailers = incoming.trailers().await.map_err(|fault| fault::unread(address, &fault))?;
        fault::status(&trailers).unwrap_or_else(|| Err(fault::unreadable(address, "it has no status")))
    }

    /// Whether it was the last one.
    async fn answer(&self, message: &Bytes) -> Result<bool, Error> {
        let mut answer = infer::read(self.server, message)?;
        let is_final =
            |(name, value): &(String, Parameter)| name == IS_FINAL && *value == Parameter::Bool(true);
        let is_last = answer.parameters.iter().any(is_final);
        answer.parameters.retain(|(name, _)| name != IS_FINAL);
        // An end without an answer has nothing to tell.
        if !is_last || !answer.outputs.is_empty() {
            let held = self.room.hold(message.len()).await?;
            (self.deliver)(Streamed::Answer(answer, held));
        }
        Ok(is_last)
    }
}

/// The error and the answer that a message of a stream has.
fn parts(message: &Bytes) -> Result<(Option<String>, Bytes), WireError> {
    let (mut error, mut answer) = (None, Bytes::new());
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field()? {
        match field {
            1 => error = Some(value.text()?.to_owned()).filter(|text| !text.is_empty()),
            2 => answer = message.slice_ref(value.bytes()?),
            _ => {}
        }
    }
    Ok((error, answer))
}
