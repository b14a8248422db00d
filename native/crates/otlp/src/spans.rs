//! A trace as spans, named as Triton names them: `InferRequest` is what the door did, below it stands a span for each
//! request with the name of its model, and below that `compute`.

use std::time::{Instant, UNIX_EPOCH};

use kushi_trace::{Finished, RequestRecord, new_span_id};

use crate::messages::{Event, KeyValue, Kind, Span, Status, StatusCode};

/// How many spans a trace becomes.
pub(crate) fn count(trace: &Finished) -> usize {
    let below = |request: &RequestRecord| 1 + usize::from(request.computed.is_some());
    1 + if trace.level.timestamps { trace.requests.iter().map(below).sum() } else { 0 }
}

pub(crate) fn of(trace: &Finished) -> Vec<Span> {
    let writer = Writer { trace };
    let mut spans = Vec::with_capacity(count(trace));
    let times: Vec<_> = trace.events.iter().map(|(event, at)| (event.name(), *at)).collect();
    let parent = trace.parent.as_ref().map_or(0, |parent| parent.span_id);
    let mut root =
        writer.span("InferRequest", (trace.span_id, parent), (trace.began.monotonic, trace.ended), &times);
    root.kind = Kind::Server.into();
    root.attributes.push(KeyValue::text("triton.model_name", &trace.model));
    let own = trace.requests.iter().find(|request| request.id == trace.id);
    root.status = status(trace.error.as_ref().or_else(|| own?.error.as_ref()));
    spans.push(root);
    if trace.level.timestamps {
        trace.requests.iter().for_each(|request| writer.request(&mut spans, request));
    }
    spans
}

struct Writer<'a> {
    trace: &'a Finished,
}

impl Writer<'_> {
    fn request(&self, spans: &mut Vec<Span>, request: &RequestRecord) {
        let times = [
            ("REQUEST_START", request.began),
            ("QUEUE_START", request.began),
            ("REQUEST_END", request.ended),
        ];
        let ids = (request.span_id, request.parent_span_id);
        let mut span = self.span(&request.model, ids, (request.began, request.ended), &times);
        span.attributes.extend([
            KeyValue::text("triton.model_name", &request.model),
            KeyValue::int("triton.model_version", request.version),
            KeyValue::int("triton.trace_id", request.id),
            KeyValue::int("triton.trace_parent_id", request.parent_id),
        ]);
        if !request.request_id.is_empty() {
            span.attributes.push(KeyValue::text("triton.request_id", &request.request_id));
        }
        span.status = status(request.error.as_ref());
        spans.push(span);
        if let Some(computed) = &request.computed {
            let times = [
                ("COMPUTE_START", computed.started),
                ("COMPUTE_INPUT_END", computed.input_done),
                ("COMPUTE_OUTPUT_START", computed.output_started),
                ("COMPUTE_END", request.ended),
            ];
            let ids = (new_span_id(), request.span_id);
            spans.push(self.span("compute", ids, (computed.started, request.ended), &times));
        }
    }

    fn span(
        &self,
        name: &str,
        (own, parent): (u64, u64),
        (began, ended): (Instant, Instant),
        times: &[(&str, Instant)],
    ) -> Span {
        let event =
            |&(name, at): &(&str, Instant)| Event { time_unix_nano: self.unix_ns(at), name: name.into() };
        Span {
            trace_id: self.trace.trace_id.to_be_bytes().into(),
            span_id: own.to_be_bytes().into(),
            trace_state: self.trace.parent.as_ref().map(|parent| parent.state.clone()).unwrap_or_default(),
            parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().into() },
            name: name.into(),
            kind: Kind::Internal.into(),
            start_time_unix_nano: self.unix_ns(began),
            end_time_unix_nano: self.unix_ns(ended),
            attributes: Vec::new(),
            events: times.iter().map(event).collect(),
            status: None,
        }
    }

    /// By the clock on the wall when the trace began, so that all of it fits together.
    fn unix_ns(&self, at: Instant) -> u64 {
        let began = self.trace.began;
        let wall = began.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let after = at.saturating_duration_since(began.monotonic);
        let before = began.monotonic.saturating_duration_since(at);
        (wall + after).saturating_sub(before).as_nanos() as u64
    }
}

fn status(error: Option<&String>) -> Option<Status> {
    error.map(|message| Status { message: message.clone(), code: StatusCode::Error.into() })
}
