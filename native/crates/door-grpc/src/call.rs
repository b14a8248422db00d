//! One call, from its head to its answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use http::request::Parts;
use kushi_core::Error;
use kushi_net::SmallRequest;
use kushi_oip::Category;
use tokio::time::timeout_at;

use crate::answer::{CallAnswer, Outlet};
use crate::context::GrpcContext;
use crate::head::{self, Head};
use crate::line::OpenCall;
use crate::message::{Inlet, Messages};
use crate::method::Method;
use crate::status::Status;
use crate::{health, infer, management, reflection, stream};

/// Those of a connection that are open at the same time.
const UNCOUNTED_CALLS: usize = 64;
/// What a call holds beside its messages, and beside what every request does: its place on the connection.
const CALL_BYTES: usize = 4 << 10;

pub(crate) async fn serve(
    context: Rc<GrpcContext>,
    open: &OpenCall,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (Parts { method, uri, headers, .. }, body) = request.into_parts();
    let head = head::read(&context, &method, &uri, &headers);
    // A call may last, and they may be large.
    drop((uri, headers));
    let head = match head {
        Ok(head) => head,
        Err(status) => return CallAnswer::failed(status).send(Outlet::plain(&context, open, respond)).await,
    };
    // Until the end of the call.
    let _room = match room(&context, open, &head) {
        Ok(room) => room,
        Err(error) => {
            return CallAnswer::failed(error.into()).send(Outlet::plain(&context, open, respond)).await;
        }
    };
    let (coding, load, deadline) = (head.coding, head.load, head.frame.deadline);
    let outlet = Outlet { context: &context, open, respond, coding, load, deadline };
    let most_bytes = head.method.most_bytes(context.grpc.limits.max_message_bytes);
    let inlet = Inlet { context: &context, takes_compressed: head.takes_compressed, most_bytes };
    match head.method {
        Method::StreamInfer => {
            stream::serve(Messages::of_stream(inlet, body), context.clone(), outlet, head).await
        }
        Method::HealthWatch => health::watch(Messages::only(inlet, body), outlet).await,
        Method::Reflection => reflection::serve(Messages::of_stream(inlet, body), outlet).await,
        _ => one(Messages::only(inlet, body), outlet, head).await,
    }
}

/// What a call holds by itself counts where a connection has many. Whether the server is well is answered in any case.
fn room(context: &GrpcContext, open: &OpenCall, head: &Head) -> Result<Option<SmallRequest>, Error> {
    let (small, budget) = (&context.small_requests, &context.io.net.budget);
    let forwarded = head.frame.forwarded_bytes;
    if open.calls_of_connection() <= UNCOUNTED_CALLS && forwarded == 0 {
        return Ok(None);
    }
    if head.method.category() == Category::Health {
        return Ok(Some(small.owe(CALL_BYTES, budget)));
    }
    small.begin(CALL_BYTES + forwarded, budget).map(Some)
}

/// A call with one message and one answer.
async fn one(messages: Messages<'_>, mut outlet: Outlet<'_>, head: Head) -> Result<(), h2::Error> {
    let answered = {
        let mut answering = std::pin::pin!(answer(outlet.context, head, messages));
        // A client that gives a call up takes its request with it.
        poll_fn(|task| {
            if let Poll::Ready(answer) = answering.as_mut().poll(task) {
                return Poll::Ready(Some(answer));
            }
            outlet.respond.poll_reset(task).map(|_| None)
        })
        .await
    };
    match answered {
        Some(answer) => answer.unwrap_or_else(CallAnswer::failed).send(outlet).await,
        None => Ok(()),
    }
}

/// What fails when the client's time is over has failed for that reason.
async fn answer(context: &GrpcContext, head: Head, messages: Messages<'_>) -> Result<CallAnswer, Status> {
    let deadline = head.frame.deadline;
    let answered = found(context, head, messages).await;
    answered.map_err(|status| match deadline {
        Some(deadline) if deadline <= Instant::now() => Status::deadline_exceeded(),
        _ => status,
    })
}

async fn found(context: &GrpcContext, head: Head, mut messages: Messages<'_>) -> Result<CallAnswer, Status> {
    let (message, answering) = match head.frame.deadline {
        Some(deadline) => {
            let came = timeout_at(deadline.into(), messages.the_only_one()).await;
            came.unwrap_or_else(|_| Err(Status::deadline_exceeded()))?
        }
        None => messages.the_only_one().await?,
    };
    match head.method {
        Method::Manage(name) => management::perform(context, name, message, answering).await,
        Method::HealthCheck => health::check(context, &message, answering).await,
        _ => infer::infer(context, message, answering, head.frame).await,
    }
}
