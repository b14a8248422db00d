//! A trace as Triton writes it: objects of JSON, all with the id of their request.

use std::fmt::Write;
use std::time::Instant;

use crate::outlet::Finished;
use crate::recording::{RequestRecord, TensorRecord};
use crate::tensor_text;

/// Where the monotonic clock began, as nanoseconds that an instant is later than.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    at: Instant,
    ns: u64,
}

impl Origin {
    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Self { at: Instant::now(), ns }
    }

    fn ns(self, instant: Instant) -> u64 {
        let after = instant.saturating_duration_since(self.at).as_nanos() as u64;
        let before = self.at.saturating_duration_since(instant).as_nanos() as u64;
        (self.ns + after).saturating_sub(before)
    }
}

/// Appends the objects of a trace, separated by commas.
pub(crate) fn write(out: &mut String, trace: &Finished, origin: Origin) {
    let mut writer = Writer { out, origin, is_first: true };
    let own = trace.requests.iter().find(|request| request.id == trace.id);
    match own {
        Some(request) => writer.head(request),
        None => writer.object(trace.id, |out| {
            out.push_str(",\"model_name\":");
            string(out, &trace.model);
            out.push_str(",\"model_version\":-1");
        }),
    }
    let mut times: Vec<(&str, Instant)> =
        trace.events.iter().map(|(event, at)| (event.name(), *at)).collect();
    if trace.level.timestamps {
        times.extend(own.into_iter().flat_map(moments));
    }
    // Those of one moment stay as they are.
    times.sort_by_key(|(_, at)| *at);
    writer.times(trace.id, &times);
    writer.tensors(own);
    for request in trace.requests.iter().filter(|request| request.id != trace.id) {
        writer.head(request);
        if trace.level.timestamps {
            writer.times(request.id, &moments(request));
        }
        writer.tensors(Some(request));
    }
}

/// The events of a request in their order.
fn moments(request: &RequestRecord) -> Vec<(&'static str, Instant)> {
    let mut all = vec![("REQUEST_START", request.began), ("QUEUE_START", request.began)];
    if let Some(computed) = &request.computed {
        all.extend([
            ("COMPUTE_START", computed.started),
            ("COMPUTE_INPUT_END", computed.input_done),
            ("COMPUTE_OUTPUT_START", computed.output_started),
            ("COMPUTE_END", request.ended),
        ]);
    }
    all.push(("REQUEST_END", request.ended));
    all
}

struct Writer<'a> {
    out: &'a mut String,
    origin: Origin,
    is_first: bool,
}

impl Writer<'_> {
    fn object(&mut self, id: u64, rest: impl FnOnce(&mut String)) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        // A text takes all.
        let _ = write!(self.out, "{{\"id\":{id}");
        rest(self.out);
        self.out.push('}');
    }

    fn head(&mut self, request: &RequestRecord) {
        self.object(request.id, |out| {
            out.push_str(",\"model_name\":");
            string(out, &request.model);
            let _ = write!(out, ",\"model_version\":{}", request.version);
            if !request.request_id.is_empty() {
                out.push_str(",\"request_id\":");
                string(out, &request.request_id);
            }
            if request.parent_id != 0 {
                let _ = write!(out, ",\"parent_id\":{}", request.parent_id);
            }
        });
    }

    fn times(&mut self, id: u64, times: &[(&str, Instant)]) {
        for &(name, at) in times {
            let ns = self.origin.ns(at);
            self.object(id, |out| {
                let _ = write!(out, ",\"timestamps\":[{{\"name\":\"{name}\",\"ns\":{ns}}}]");
            });
        }
    }

    fn tensors(&mut self, request: Option<&RequestRecord>) {
        let Some(request) = request else { return };
        for tensor in &request.tensors {
            self.tensor(request.id, tensor);
        }
    }

    fn tensor(&mut self, id: u64, tensor: &TensorRecord) {
        let activity = if tensor.is_input { "TENSOR_QUEUE_INPUT" } else { "TENSOR_BACKEND_OUTPUT" };
        let mut data = String::new();
        tensor_text::write(&mut data, tensor.datatype, &tensor.data.bytes);
        let shape: Vec<String> = tensor.shape.iter().map(i64::to_string).collect();
        self.object(id, |out| {
            let _ = write!(out, ",\"activity\":\"{activity}\",\"tensor\":{{\"name\":");
            string(out, &tensor.name);
            out.push_str(",\"data\":");
            string(out, &data);
            let _ =
                write!(out, ",\"shape\":\"{}\",\"dtype\":\"{}\"}}", shape.join(","), tensor.datatype.name());
        });
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            character if character < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
}
