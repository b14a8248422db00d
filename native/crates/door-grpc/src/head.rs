//! What a call says beside its messages.

use std::time::Instant;

use http::header::{CONTENT_TYPE, HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use kushi_core::Parameter;
use kushi_dataplane::Parent;

use crate::coding::{self, AnswerCoding};
use crate::context::GrpcContext;
use crate::method::{self, Method};
use crate::status::{INTERNAL, Status, UNIMPLEMENTED};
use crate::{load_report, timeout};

/// Asks where the time went, and carries the answer.
pub(crate) const TIMINGS: &str = "kushi-timings";
/// Asks for streams whose errors end them.
const GRPC_ERROR: &str = "triton_grpc_error";

/// What a call says beside its messages.
pub(crate) struct Head<'a> {
    pub(crate) method: Method<'a>,
    pub(crate) frame: Frame,
    /// Messages of the client may be compressed.
    pub(crate) takes_compressed: bool,
    pub(crate) coding: Option<AnswerCoding>,
    pub(crate) load: Option<load_report::AskedReport>,
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

/// What is asked for, and how.
pub(crate) fn read<'a>(context: &GrpcContext, parts: &'a Parts) -> Result<Head<'a>, Status> {
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
        load: method.is_inference().then(|| load_report::AskedReport::read(headers)).flatten(),
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
