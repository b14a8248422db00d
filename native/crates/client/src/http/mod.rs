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

use kushi_core::Error;

pub(crate) use self::server::Server;
use crate::background::Remote;
use crate::{Answer, Call, CallAnswer, InferCall};

impl Remote for Server {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error> {
        infer::infer(self, call, deadline).await
    }

    async fn call(&self, call: &Call, _: Option<Instant>) -> Result<CallAnswer, Error> {
        verbs::call(self, call).await
    }
}
