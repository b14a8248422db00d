//! The health protocol of gRPC: what probes of Kubernetes ask, and what load balancers watch.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kushi_core::ErrorKind;
use kushi_dataplane::{AskedVersion, Verb, VerbAnswer};
use kushi_net::Answering;
use prost::Message;

use crate::answer::{self, CallAnswer, Outlet};
use crate::closing::closing;
use crate::context::GrpcContext;
use crate::management;
use crate::message::Messages;
use crate::messages::{HealthCheckRequest, HealthCheckResponse};
use crate::status::{INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, Status};

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// Between two looks at something that is watched.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Of a server, at the same time. A client has one for each channel.
const MOST_WATCHES: usize = 4096;
/// Of these one connection may have so many: a client that takes all needs many connections, which are bounded too.
const MOST_OF_ONE: usize = 256;

/// One that is open.
struct OpenWatch<'a>(&'a GrpcContext);

impl<'a> OpenWatch<'a> {
    fn take(context: &'a GrpcContext) -> Result<Self, Status> {
        let own = context.watches.get();
        if own >= MOST_OF_ONE {
            return Err(exhausted(format!(
                "{MOST_OF_ONE} watches of this connection are open, it has no more"
            )));
        }
        if context.grpc.watches.fetch_add(1, Ordering::Relaxed) >= MOST_WATCHES {
            context.grpc.watches.fetch_sub(1, Ordering::Relaxed);
            return Err(exhausted(format!("{MOST_WATCHES} watches are open, this server has no more")));
        }
        context.watches.set(own + 1);
        Ok(Self(context))
    }
}

fn exhausted(text: String) -> Status {
    Status::new(RESOURCE_EXHAUSTED, text + ": ask by Check")
}

impl Drop for OpenWatch<'_> {
    fn drop(&mut self) {
        self.0.watches.set(self.0.watches.get() - 1);
        self.0.grpc.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn check(
    context: &GrpcContext,
    message: &[u8],
    answering: Answering,
) -> Result<CallAnswer, Status> {
    let service = service(message)?;
    let status = status(context, &service).await;
    if status == SERVICE_UNKNOWN {
        return Err(Status::new(NOT_FOUND, format!("Request for unknown model: '{service}' is not found")));
    }
    Ok(CallAnswer::new(management::encoded(&HealthCheckResponse { status }), answering))
}

/// Tells what is now, and then each change.
pub(crate) async fn watch(mut messages: Messages<'_>, outlet: Outlet<'_>) -> Result<(), h2::Error> {
    let context = outlet.context;
    let service = match messages.the_only_one().await {
        // A server that drains does not wait for it.
        Ok((message, answering)) => {
            drop(answering);
            service(&message)
        }
        Err(status) => Err(status),
    };
    let begun = service.and_then(|service| Ok((service, OpenWatch::take(context)?)));
    let (service, _place) = match begun {
        Ok(begun) => begun,
        Err(status) => return CallAnswer::failed(status).send(outlet).await,
    };
    let entered = context.io.connections.enter();
    let mut stream = outlet.open()?;
    let mut told = None;
    loop {
        let now = status(context, &service).await;
        if told.replace(now) != Some(now) {
            stream.send(management::encoded(&HealthCheckResponse { status: now })).await?;
        }
        tokio::select! {
            biased;
            over = stream.over() => return stream.end(&over?),
            () = closing(&entered) => return stream.end(&answer::closed()),
            () = tokio::time::sleep(LOOK_PAUSE) => {}
        }
    }
}

fn service(message: &[u8]) -> Result<String, Status> {
    let request = HealthCheckRequest::decode(message);
    Ok(request.map_err(|error| Status::new(INVALID_ARGUMENT, error.to_string()))?.service)
}

/// Of the server where no service is named, and otherwise of the model of that name.
async fn status(context: &GrpcContext, service: &str) -> i32 {
    let verb = match service {
        "" | "inference.GRPCInferenceService" => Verb::ServerReady,
        _ => Verb::ModelReady { model: service.to_owned(), version: AskedVersion::Any },
    };
    let is_model = verb != Verb::ServerReady;
    match management::ask(context, verb).await {
        Ok(VerbAnswer::Health(true)) => SERVING,
        Err(error) if is_model && error.kind == ErrorKind::ModelNotFound => SERVICE_UNKNOWN,
        _ => NOT_SERVING,
    }
}
