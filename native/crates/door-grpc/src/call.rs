//! One call, from its head to its answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use kushi_core::Parameter;
use kushi_dataplane::Parent;
use tokio::time::timeout_at;

use crate::answer::{Answer, Outlet, TIMINGS};
use crate::coding::{self, AnswerCoding};
use crate::door::GrpcContext;
use crate::line::OpenCall;
use crate::message::{Inlet, Messages};
use crate::method::{self, Method};
use crate::status::{INTERNAL, Status, UNIMPLEMENTED};
use crate::{health, infer, load_report, management, reflection, stream, timeout};

/// Asks for streams whose errors end them.
const GRPC_ERROR: &str = "triton_grpc_error";

/// What a call says beside its messages.
pub(crate) struct Head<'a> {
    pub(crate) method: Method<'a>,
    pub(crate) frame: Frame,
    /// Messages of the client may be compressed.
    takes_compressed: bool,
    coding: Option<AnswerCoding>,
    load: Option<load_report::Asked>,
    /// Of a stream: an error ends it instead of being one of its messages.
    pub(crate) fails_at_once: bool,
}

/// What of it goes with each request.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) arrived: Instant,
    pub(crate) deadline: Option<Instant>,
    /// Metadata that became parameters.
    pub(crate) forwarded: Vec<(String, Parameter)>,
    /// The trace that the call comes with; read where it may matter.
    pub(crate) trace: Option<Carried>,
    pub(crate) tells_timings: bool,
}

/// A trace, as metadata says it.
#[derive(Clone)]
pub(crate) struct Carried {
    parent: HeaderValue,
    state: Option<HeaderValue>,
}

impl Carried {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let parent = headers.get("traceparent")?.clone();
        Some(Self { parent, state: headers.get("tracestate").cloned() })
    }

    pub(crate) fn read(&self) -> Option<Parent> {
        Parent::read(self.parent.as_bytes(), self.state.as_ref().map(HeaderValue::as_bytes))
    }
}

pub(crate) async fn serve(
    context: Rc<GrpcContext>,
    open: &OpenCall,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (parts, body) = request.into_parts();
    let head = match read(&context, &parts) {
        Ok(head) => head,
        Err(status) => return Answer::failed(status).send(Outlet::plain(&context, open, respond)).await,
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

/// What is asked for, and how.
fn read<'a>(context: &GrpcContext, parts: &'a Parts) -> Result<Head<'a>, Status> {
    let arrived = Instant::now();
    let headers = &parts.headers;
    if parts.method != http::Method::POST {
        return Err(Status::new(INTERNAL, format!("the method is {}, a call is a POST", parts.method)));
    }
    if !headers.get(CONTENT_TYPE).is_some_and(is_of_grpc) {
        return Err(Status::new(INTERNAL, "the content type is not that of gRPC"));
    }
    let path = parts.uri.path();
    let method = method::find(path);
    let method = method.ok_or_else(|| Status::new(UNIMPLEMENTED, format!("there is no method {path}")))?;
    context.grpc.restrictions.check(method.category(), headers)?;
    let patience = headers.get("grpc-timeout").map(|text| timeout::parse(text.as_bytes())).transpose()?;
    let forwarded = match &context.grpc.forwarding {
        Some(forwarding) if method.is_inference() => {
            forwarding.parameters(headers.iter().filter(|(name, _)| is_metadata(name)))?
        }
        _ => Vec::new(),
    };
    // Looked for where somebody may be traced alone.
    let trace = context.grpc.plane.traces.is_on().then(|| Carried::of(headers)).flatten();
    let tells_timings = headers.get(TIMINGS).is_some_and(|value| value == "true");
    let deadline = patience.and_then(|patience| arrived.checked_add(patience));
    Ok(Head {
        method,
        frame: Frame { arrived, deadline, forwarded, trace, tells_timings },
        takes_compressed: coding::of_request(headers)?,
        coding: coding::of_answer(headers, context.grpc.compression_level),
        load: method.is_inference().then(|| load_report::Asked::read(headers)).flatten(),
        fails_at_once: headers.get(GRPC_ERROR).is_some_and(|value| value == "true"),
    })
}

/// With the format of its messages, or parameters.
fn is_of_grpc(content_type: &HeaderValue) -> bool {
    let rest = content_type.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Whether a header is the client's own: the others are how gRPC itself travels.
fn is_metadata(name: &HeaderName) -> bool {
    name != CONTENT_TYPE && name != TE && !name.as_str().starts_with("grpc-")
}

/// A call with one message and one answer.
async fn one(messages: Messages<'_>, mut outlet: Outlet<'_>, head: Head<'_>) -> Result<(), h2::Error> {
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
        Some(answer) => answer.unwrap_or_else(Answer::failed).send(outlet).await,
        None => Ok(()),
    }
}

/// What fails when the client's time is over has failed for that reason.
async fn answer(context: &GrpcContext, head: Head<'_>, messages: Messages<'_>) -> Result<Answer, Status> {
    let deadline = head.frame.deadline;
    let answered = found(context, head, messages).await;
    answered.map_err(|status| match deadline {
        Some(deadline) if deadline <= Instant::now() => Status::deadline_exceeded(),
        _ => status,
    })
}

async fn found(context: &GrpcContext, head: Head<'_>, mut messages: Messages<'_>) -> Result<Answer, Status> {
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
