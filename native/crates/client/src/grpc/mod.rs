//! A server that is spoken to over gRPC: all calls share one connection, and all streams another one.

mod exchange;
mod fault;
mod incoming;
mod infer;
mod line;
mod server;
mod stream;

use std::time::Instant;

use bytes::Bytes;
use hyper::header::HeaderMap;
use kushi_core::{Error, ErrorKind};
use kushi_oip::json::write;
use kushi_oip::wire::Fields;

use self::exchange::ExchangeFailure;
pub(crate) use self::server::Server;
use crate::background::Remote;
use crate::{Answer, Call, CallAnswer, InferCall, Streamed, encode};

/// A verb that only our own servers have.
const METRICS: &str = "Metrics";

impl Server {
    fn metrics(&self, message: &Bytes) -> Result<CallAnswer, Error> {
        let mut body = Bytes::new();
        let mut fields = Fields::new(message);
        while let Some((field, value)) =
            fields.next_field().map_err(|error| fault::unreadable(&self.address, error))?
        {
            if field == 1 {
                let text = value.bytes().map_err(|error| fault::unreadable(&self.address, error))?;
                body = message.slice_ref(text);
            }
        }
        Ok(CallAnswer { status: 200, kind: None, body })
    }
}

fn metrics_refused(failure: ExchangeFailure) -> Error {
    match Error::from(failure) {
        Error { kind: ErrorKind::Unsupported, .. } => {
            let text = "this server has no call for metrics over gRPC: ask its port for them";
            Error::new(ErrorKind::Unsupported, text)
        }
        error => error,
    }
}

impl Remote for Server {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error> {
        infer::infer(self, call, deadline).await
    }

    async fn stream(
        &self,
        call: &InferCall,
        deadline: Option<Instant>,
        deliver: &dyn Fn(Streamed),
    ) -> Result<(), Error> {
        stream::stream(self, call, deadline, deliver).await
    }

    /// The arguments are the message of the method, and so is what it answers.
    async fn call(&self, call: &Call, deadline: Option<Instant>) -> Result<CallAnswer, Error> {
        let message = encode::grpc_message(&call.arguments);
        let asked = self.ask(&call.verb, &[message], &HeaderMap::new(), deadline).await;
        if call.verb == METRICS {
            return asked.map_err(metrics_refused).and_then(|reply| self.metrics(&reply.message));
        }
        if matches!(&*call.verb, "RepositoryModelLoad" | "RepositoryModelUnload") {
            // The model may have other inputs now.
            self.inputs.forget();
        }
        match asked {
            Ok(reply) => Ok(CallAnswer { status: 200, kind: None, body: reply.message }),
            Err(ExchangeFailure::Refused(error)) => Ok(CallAnswer {
                status: error.kind.http_status(),
                kind: Some(error.kind),
                body: Bytes::from(write::error(&error.message)),
            }),
            Err(ExchangeFailure::Lost(error)) => Err(error),
        }
    }
}
