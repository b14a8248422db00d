//! What a call says beside its messages.

use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_TYPE, HeaderName, TE};
use http::{HeaderMap, HeaderValue, Uri};
use kushi_core::Parameter;
use kushi_dataplane::{Parent, RouteKey};

use crate::coding::{self, AnswerCoding};
use crate::context::GrpcContext;
use crate::method::{self, Method};
use crate::status::{INTERNAL, Status, UNIMPLEMENTED};
use crate::{load_report, timeout};

/// Asks where the time went, and carries the answer.
pub(crate) const TIMINGS: &str = "kushi-timings";
/// Asks for streams whose errors end them.
const GRPC_ERROR: &str = "triton_grpc_error";

/// What a parameter holds, however short it is.
pub(crate) const PARAMETER_BYTES: usize = 128;
/// What an error quotes of a path.
const MOST_OF_PATH: usize = 200;

/// What a call says beside its messages.
pub(crate) struct Head {
    pub(crate) method: Method,
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
    pub(crate) forwarded: Arc<[(String, Parameter)]>,
    /// What a request holds of them.
    pub(crate) forwarded_bytes: usize,
    /// The trace that the call comes with; read where it may matter.
    pub(crate) trace: Option<Carried>,
    pub(crate) tells_timings: bool,
    /// Metadata that may say which version of a model gets a request.
    pub(crate) keys: Option<Arc<[(String, RouteKey)]>>,
}

impl Frame {
    pub(crate) fn key(&self, name: &str) -> Option<RouteKey> {
        self.keys.as_ref()?.iter().find(|(known, _)| known == name).map(|(_, key)| *key)
    }
}

/// A trace, as metadata says it.
#[derive(Clone)]
pub(crate) struct Carried {
    parent: HeaderValue,
    state: Option<HeaderValue>,
}

impl Carried {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let parent = copied(headers.get("traceparent")?)?;
        Some(Self { parent, state: headers.get("tracestate").and_then(copied) })
    }

    pub(crate) fn read(&self) -> Option<Parent> {
        Parent::read(self.parent.as_bytes(), self.state.as_ref().map(HeaderValue::as_bytes))
    }
}

/// Without the block of headers in which it came.
fn copied(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

/// What is asked for, and how. Nothing of it is kept but what was copied.
pub(crate) fn read(
    context: &GrpcContext,
    http_method: &http::Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Head, Status> {
    let arrived = Instant::now();
    if http_method != http::Method::POST {
        return Err(Status::new(INTERNAL, format!("the method is {http_method}, a call is a POST")));
    }
    if !headers.get(CONTENT_TYPE).is_some_and(is_of_grpc) {
        return Err(Status::new(INTERNAL, "the content type is not that of gRPC"));
    }
    let path = uri.path();
    let method = method::find(path);
    let absent = || format!("there is no method {}", path.get(..MOST_OF_PATH).unwrap_or(path));
    let method = method.ok_or_else(|| Status::new(UNIMPLEMENTED, absent()))?;
    context.grpc.restrictions.check(method.category(), headers)?;
    let patience = headers.get("grpc-timeout").map(|text| timeout::parse(text.as_bytes())).transpose()?;
    let forwarded = match &context.grpc.forwarding {
        Some(forwarding) if method.is_inference() => {
            forwarding.parameters(headers.iter().filter(|(name, _)| is_metadata(name)))?
        }
        _ => Vec::new(),
    };
    let forwarded_bytes = forwarded.iter().map(parameter_bytes).sum();
    // Looked for where somebody may be traced alone.
    let trace = context.grpc.plane.traces.is_on().then(|| Carried::of(headers)).flatten();
    let keys = context.grpc.plane.registry.sticky().and_then(|names| {
        let key = |name: &String| Some((name.clone(), RouteKey::of(headers.get(name)?.as_bytes())));
        let keys: Arc<[_]> = names.iter().filter_map(key).collect();
        (!keys.is_empty()).then_some(keys)
    });
    let tells_timings = headers.get(TIMINGS).is_some_and(|value| value == "true");
    let deadline = patience.and_then(|patience| arrived.checked_add(patience));
    Ok(Head {
        method,
        frame: Frame {
            arrived,
            deadline,
            forwarded: forwarded.into(),
            forwarded_bytes,
            trace,
            tells_timings,
            keys,
        },
        takes_compressed: coding::of_request(headers)?,
        coding: coding::of_answer(headers, context.grpc.compression_level),
        load: method.is_inference().then(|| load_report::AskedReport::read(headers)).flatten(),
        fails_at_once: headers.get(GRPC_ERROR).is_some_and(|value| value == "true"),
    })
}

fn parameter_bytes((name, value): &(String, Parameter)) -> usize {
    let text = if let Parameter::String(text) = value { text.len() } else { 0 };
    PARAMETER_BYTES + name.len() + text
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
