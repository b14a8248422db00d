//! A batch on its way to a worker. The other end is `runners/worker/messages.py`.

use bytes::BufMut;
use kushi_core::{Batch, ModelSpec, Request, SequenceId};

use crate::parts::{ALIGNMENT, Payload, SEQUENCE_END, SEQUENCE_START, number, parameters_text};

/// The requests of a batch that have not ended.
pub(crate) fn batch_payload(batch: &Batch) -> Payload<'_> {
    let mut heads = Vec::with_capacity(batch.len() * 128);
    // Where the offset of each tensor is to be written.
    let mut places: Vec<(usize, &[u8])> = Vec::with_capacity(batch.len() * 2);
    for request in (0..batch.len()).filter_map(|index| batch.request(index)) {
        write_request(batch.spec(), request, &mut heads, &mut places);
    }
    let mut at = heads.len();
    let mut tensors = Vec::with_capacity(places.len());
    for (place, data) in places {
        at = at.next_multiple_of(ALIGNMENT);
        heads[place..place + 8].copy_from_slice(&(at as u64).to_le_bytes());
        tensors.push((at, data));
        at += data.len();
    }
    Payload { heads, tensors, length: at }
}

fn write_request<'a>(
    spec: &ModelSpec,
    request: &'a Request,
    heads: &mut Vec<u8>,
    places: &mut Vec<(usize, &'a [u8])>,
) {
    let parameters = parameters_text(&request.parameters);
    let (flags, id, text) = sequence(request);
    let trace = request.context.span().and_then(|span| span.carried()).unwrap_or_default();
    heads.put_u32_le(flags);
    heads.put_u32_le(request.priority);
    heads.put_u64_le(request.timeout_us.unwrap_or(0));
    heads.put_u64_le(id);
    heads.put_u32_le(request.id.len() as u32);
    heads.put_u32_le(parameters.len() as u32);
    heads.put_u32_le(text.len() as u32);
    heads.put_u32_le(trace.len() as u32);
    heads.put_u32_le(request.inputs.iter().flatten().count() as u32);
    heads.put_u32_le(request.wanted.len() as u32);
    heads.put_slice(request.id.as_bytes());
    heads.put_slice(parameters.as_bytes());
    heads.put_slice(text.as_bytes());
    heads.put_slice(trace.as_bytes());
    for (position, tensor) in request.inputs.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        let shape = spec.inputs[position].to_engine(&tensor.shape, spec.batch_dims());
        heads.put_u32_le(position as u32);
        heads.put_u32_le(number(tensor.datatype));
        heads.put_u32_le(shape.len() as u32);
        places.push((heads.len(), tensor.data.as_bytes()));
        heads.put_u64_le(0);
        heads.put_u64_le(tensor.data.len() as u64);
        for &dim in &shape {
            heads.put_i64_le(dim);
        }
    }
    for &position in &request.wanted {
        heads.put_u32_le(u32::from(position));
    }
}

/// The flags, and the number or the text that names it.
fn sequence(request: &Request) -> (u32, u64, &str) {
    let Some(sequence) = &request.sequence else { return (0, 0, "") };
    let start = if sequence.start { SEQUENCE_START } else { 0 };
    let end = if sequence.end { SEQUENCE_END } else { 0 };
    match &sequence.id {
        SequenceId::Number(number) => (start | end, *number, ""),
        SequenceId::Text(text) => (start | end, 0, text),
    }
}
