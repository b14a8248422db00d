//! A server that is spoken to over HTTP/1.1.

mod answer;
mod body;
mod connections;
mod fault;
mod infer;
mod metadata;
mod path;
mod request;
mod server;
mod verbs;

use std::time::Instant;

use kushi_core::{Error, ErrorKind};

pub(crate) use self::server::Server;
use crate::background::Remote;
use crate::{Answer, Call, CallAnswer, InferCall, Streamed};

impl Remote for Server {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error> {
        infer::infer(self, call, deadline).await
    }

    async fn stream(&self, call: &InferCall, _: Option<Instant>, _: &dyn Fn(Streamed)) -> Result<(), Error> {
        let text = format!(
            "cannot ask {} for a stream of answers of model '{}': HTTP carries one answer as tensors; give the client the \
             server's grpc:// url",
            self.address, call.model
        );
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    async fn call(&self, call: &Call, _: Option<Instant>) -> Result<CallAnswer, Error> {
        verbs::call(self, call).await
    }
}
