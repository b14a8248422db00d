//! What the core tells of the requests of a trace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kushi_core::{Course, ModelSpec, Request, Response, Span};

use crate::recording::{Recording, RequestRecord, TensorRecord};

/// Above the request that a door makes.
pub(crate) struct DoorSpan(pub(crate) Arc<Recording>);

impl Span for DoorSpan {
    /// The request has the id of its trace, however often it is handed in.
    fn open(&self, spec: &ModelSpec, request: &Request, now: Instant) -> Arc<dyn Span> {
        let ids = Ids { id: self.0.id, parent_id: 0, parent_span_id: self.0.span_id };
        RequestSpan::begin(&self.0, &ids, spec, request, now)
    }

    fn respond(&self, _spec: &ModelSpec, _response: &Response) {}

    fn end(&self, _course: &Course<'_>) {}
}

/// Of one request.
struct RequestSpan {
    recording: Arc<Recording>,
    about: Mutex<RequestRecord>,
    id: u64,
    span_id: u64,
}

struct Ids {
    id: u64,
    parent_id: u64,
    parent_span_id: u64,
}

impl RequestSpan {
    fn begin(
        recording: &Arc<Recording>,
        ids: &Ids,
        spec: &ModelSpec,
        request: &Request,
        now: Instant,
    ) -> Arc<dyn Span> {
        let named = spec.inputs.iter().zip(&request.inputs);
        let inputs = named.filter_map(|(input, tensor)| Some((&*input.name, tensor.as_ref()?)));
        let inputs = inputs.filter(|_| recording.level.tensors);
        let span_id = recording.new_span_id();
        let about = RequestRecord {
            id: ids.id,
            parent_id: ids.parent_id,
            span_id,
            parent_span_id: ids.parent_span_id,
            model: spec.name.clone(),
            version: spec.version,
            request_id: request.id.clone(),
            is_ensemble: spec.platform == "ensemble",
            began: now,
            computed: None,
            ended: now,
            error: None,
            tensors: inputs.filter_map(|(name, tensor)| recording.tensor(true, name, tensor)).collect(),
        };
        Arc::new(Self { recording: recording.clone(), about: Mutex::new(about), id: ids.id, span_id })
    }
}

impl Span for RequestSpan {
    fn open(&self, spec: &ModelSpec, request: &Request, now: Instant) -> Arc<dyn Span> {
        let ids = Ids { id: self.recording.new_id(), parent_id: self.id, parent_span_id: self.span_id };
        Self::begin(&self.recording, &ids, spec, request, now)
    }

    fn respond(&self, spec: &ModelSpec, response: &Response) {
        if !self.recording.level.tensors {
            return;
        }
        let output = |(index, tensor): &(u16, _)| {
            self.recording.tensor(false, &spec.outputs[usize::from(*index)].name, tensor)
        };
        let outputs: Vec<TensorRecord> = response.outputs.iter().filter_map(output).collect();
        self.about.lock().unwrap_or_else(PoisonError::into_inner).tensors.extend(outputs);
    }

    fn end(&self, course: &Course<'_>) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        let record = RequestRecord {
            model: std::mem::take(&mut about.model),
            request_id: std::mem::take(&mut about.request_id),
            tensors: std::mem::take(&mut about.tensors),
            computed: course.computed.filter(|_| !about.is_ensemble),
            ended: course.ended,
            error: course.result.err().map(|error| error.message.to_string()),
            ..*about
        };
        drop(about);
        self.recording.add(record);
    }

    fn carried(&self) -> Option<String> {
        if !self.recording.is_collected {
            return None;
        }
        let parent = format!("00-{:032x}-{:016x}-01", self.recording.trace_id, self.span_id);
        Some(match self.recording.state() {
            "" => format!(r#"{{"traceparent":"{parent}"}}"#),
            state => {
                let state = state.replace('\\', "\\\\").replace('"', "\\\"");
                format!(r#"{{"traceparent":"{parent}","tracestate":"{state}"}}"#)
            }
        })
    }
}
