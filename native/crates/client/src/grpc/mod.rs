//! A server that is spoken to over gRPC: all calls share one connection.

mod exchange;
mod fault;
mod incoming;
mod infer;
mod line;
mod server;

use std::time::Instant;

use bytes::Bytes;
use hyper::header::HeaderMap;
use kushi_core::{Error, ErrorKind};
use kushi_oip::json::write;

pub(crate) use self::server::Server;
use crate::background::Remote;
use crate::{Answer, Call, CallAnswer, InferCall, encode};

impl Remote for Server {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error> {
        infer::infer(self, call, deadline).await
    }

    /// The arguments are the message of the method, and so is what it answers.
    async fn call(&self, call: &Call, deadline: Option<Instant>) -> Result<CallAnswer, Error> {
        if call.verb == "Metrics" {
            let text = "gRPC has no call for metrics: ask the server's port for them, or a client of its http:// url";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let message = encode::grpc_message(&call.arguments);
        let asked = self.ask(&call.verb, &[message], &HeaderMap::new(), deadline).await;
        if matches!(&*call.verb, "RepositoryModelLoad" | "RepositoryModelUnload") {
            // The model may have other inputs now.
            self.inputs.forget();
        }
        match asked {
            Ok(reply) => Ok(CallAnswer { status: 200, kind: None, body: reply.message }),
            Err(exchange::Failure::Refused(error)) => Ok(CallAnswer {
                status: error.kind.http_status(),
                kind: Some(error.kind),
                body: Bytes::from(write::error(&error.message)),
            }),
            Err(exchange::Failure::Lost(error)) => Err(error),
        }
    }
}
