//! Calls as messages, written from where their parts lie: in a frame for our own engine, or for gRPC.
//!
//! The bytes are those of a [`ModelInferRequest`](kushi_oip::ModelInferRequest); the message is not built
//! first because each of its strings would be copied twice.

use bytes::Bytes;
use kushi_core::{Error, Parameter, Tensor};
use kushi_oip::wire::{self, put_bytes, put_number, put_numbers, put_text};
use kushi_oip::{HEADER_BYTES, Kind, SlotRange, put_entry, put_parameter, write_header};
use smallvec::SmallVec;

use crate::call::{InferCall, WantedOutput};

/// What a call needs beside its inputs' bytes, as long as its strings are short.
const USUAL_BYTES: usize = 256;
/// Inputs up to this size are copied into one piece with what describes them.
const COPIED_BYTES: usize = 16 << 10;
/// What gRPC has before a message: whether it is compressed, and its length.
pub(crate) const GRPC_HEAD_BYTES: usize = 5;

/// What asks a server of streams to say when a request has had its last answer.
const TELLS_END: &str = "triton_enable_empty_final_response";

/// Appends the frame of a call, of this kind, and answers the length of its body. An input that has a slot travels there, every
/// other one in the frame.
pub(crate) fn infer(
    out: &mut Vec<u8>,
    kind: Kind,
    id: u64,
    call: &InferCall,
    slots: &[Option<SlotRange>],
    timeout_us: u64,
) -> usize {
    let inputs = || call.inputs.iter().zip(slots);
    let inline =
        || inputs().filter(|(_, slot)| slot.is_none()).map(|(input, _)| input.tensor.data.as_bytes());
    let start = out.len();
    out.reserve(HEADER_BYTES + USUAL_BYTES + inline().map(|bytes| bytes.len() + 8).sum::<usize>());
    write_header(out, kind, id, 0);
    put_preamble(out, call);
    for (input, slot) in inputs() {
        put_input(out, input.name.as_deref().unwrap_or_default(), &input.tensor, *slot);
    }
    for output in &call.outputs {
        put_output(out, output);
    }
    for bytes in inline() {
        put_bytes(out, 7, bytes);
    }
    if timeout_us != 0 {
        put_number(out, 1001, timeout_us);
    }
    if let Some(trace) = &call.trace {
        put_text(out, 1002, &trace.parent);
        put_text(out, 1003, &trace.state);
    }
    let length = out.len() - start - HEADER_BYTES;
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    length
}

/// The pieces of a call's message, the first with the head of the message. `names` are the model's, for inputs given by
/// position.
pub(crate) fn grpc(
    call: &InferCall,
    names: &[String],
    in_stream: bool,
) -> Result<SmallVec<[Bytes; 4]>, Error> {
    let short: usize = call.inputs.iter().map(|input| input.tensor.data.len().min(COPIED_BYTES) + 64).sum();
    let mut open = Vec::with_capacity(GRPC_HEAD_BYTES + USUAL_BYTES + short);
    open.resize(GRPC_HEAD_BYTES, 0);
    put_preamble(&mut open, call);
    if in_stream {
        put_parameter(&mut open, 4, TELLS_END, &Parameter::Bool(true));
    }
    for (place, input) in call.inputs.iter().enumerate() {
        let name = input.name.as_ref().or_else(|| names.get(place)).ok_or_else(|| too_many(call, names))?;
        put_input(&mut open, name, &input.tensor, None);
    }
    for output in &call.outputs {
        put_output(&mut open, output);
    }
    let mut pieces = SmallVec::<[Bytes; 4]>::new();
    for input in &call.inputs {
        let data = &input.tensor.data;
        wire::put_length(&mut open, 7, data.len());
        if data.len() <= COPIED_BYTES {
            open.extend_from_slice(data.as_bytes());
        } else {
            pieces.push(std::mem::take(&mut open).into());
            pieces.push(data.clone().into_bytes());
        }
    }
    if !open.is_empty() {
        pieces.push(open.into());
    }
    with_head(pieces)
}

/// A message in one piece, with its head.
pub(crate) fn grpc_message(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(GRPC_HEAD_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out.into()
}

fn with_head(mut pieces: SmallVec<[Bytes; 4]>) -> Result<SmallVec<[Bytes; 4]>, Error> {
    let length = pieces.iter().map(Bytes::len).sum::<usize>() - GRPC_HEAD_BYTES;
    let length = u32::try_from(length).map_err(|_| {
        Error::invalid(format!(
            "a request of {length} bytes is too large for gRPC, whose messages have up to 4 GiB"
        ))
    })?;
    let mut first = Vec::from(std::mem::take(&mut pieces[0]));
    first[1..GRPC_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    pieces[0] = first.into();
    Ok(pieces)
}

/// As the core words it.
pub(crate) fn too_many(call: &InferCall, names: &[String]) -> Error {
    let (expected, got, model) = (names.len(), call.inputs.len(), &call.model);
    Error::invalid(format!("expected {expected} inputs but got {got} inputs for model '{model}'"))
        .of_request(&call.id)
}

fn put_preamble(out: &mut Vec<u8>, call: &InferCall) {
    put_text(out, 1, &call.model);
    put_text(out, 2, &call.version);
    put_text(out, 3, &call.id);
    for (key, value) in &call.parameters {
        put_parameter(out, 4, key, value);
    }
    if call.priority != 0 {
        put_entry(out, 4, "priority", |out| put_number(out, 5, u64::from(call.priority)));
    }
    if let Some(timeout_us) = call.timeout_us {
        put_entry(out, 4, "timeout", |out| put_number(out, 2, timeout_us));
    }
}

fn put_input(out: &mut Vec<u8>, name: &str, tensor: &Tensor, slot: Option<SlotRange>) {
    let datatype = tensor.datatype.name();
    let numbers = slot.map(|SlotRange { slot, offset, length }| [(1, slot), (2, offset), (3, length)]);
    let slot_length = |numbers: [(u32, u64); 3]| -> usize {
        numbers.iter().map(|&(field, number)| wire::number_length(field, number)).sum()
    };
    let length = wire::text_length(1, name)
        + wire::text_length(2, datatype)
        + wire::numbers_length(3, &tensor.shape)
        + numbers.map_or(0, |numbers| wire::bytes_length(1001, slot_length(numbers)));
    wire::put_length(out, 5, length);
    put_text(out, 1, name);
    put_text(out, 2, datatype);
    put_numbers(out, 3, &tensor.shape);
    if let Some(numbers) = numbers {
        wire::put_length(out, 1001, slot_length(numbers));
        for (field, number) in numbers {
            put_number(out, field, number);
        }
    }
}

fn put_output(out: &mut Vec<u8>, WantedOutput { name, classes }: &WantedOutput) {
    let mut parameters = Vec::new();
    if *classes > 0 {
        let count = i64::try_from(*classes).unwrap_or(i64::MAX);
        put_parameter(&mut parameters, 2, "classification", &Parameter::Int(count));
    }
    wire::put_length(out, 6, wire::text_length(1, name) + parameters.len());
    put_text(out, 1, name);
    out.extend_from_slice(&parameters);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kushi_core::{Buffer, DataType};
    use kushi_oip::infer_parameter::Choice;
    use kushi_oip::{InferParameter, ModelInferRequest, Reader};
    use prost::Message;
    use smallvec::smallvec;

    use super::*;
    use crate::call::{Carried, Draft};

    fn read(out: &[u8]) -> ModelInferRequest {
        let mut reader = Reader::default();
        reader.push(out);
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!((frame.kind, frame.id), (Kind::Infer, 9));
        ModelInferRequest::decode(frame.body).unwrap()
    }

    fn tensor(datatype: DataType, shape: &[i64], data: &'static [u8]) -> Tensor {
        Tensor { datatype, shape: shape.into(), data: Buffer::host(data) }
    }

    #[test]
    fn a_call_reads_back_as_the_message() {
        let call = InferCall {
            model: "m".into(),
            version: "3".into(),
            id: "request".into(),
            inputs: smallvec![
                Draft { name: Some("A".into()), tensor: tensor(DataType::Fp32, &[2, 300], b"inline") },
                Draft { name: None, tensor: tensor(DataType::Bytes, &[], b"elsewhere") },
                Draft { name: None, tensor: tensor(DataType::Int8, &[0], b"") },
            ],
            outputs: [("Y", 0), ("Z", 3), ("W", usize::MAX)]
                .map(|(name, classes)| WantedOutput { name: name.into(), classes })
                .into(),
            parameters: vec![
                ("flag".into(), Parameter::Bool(false)),
                ("count".into(), Parameter::Int(-7)),
                ("ratio".into(), Parameter::Double(0.5)),
                ("text".into(), Parameter::String(String::new())),
            ],
            priority: 2,
            timeout_us: Some(1000),
            trace: Some(Carried { parent: "p".into(), state: "s".into() }),
            patience: None,
        };
        let range = SlotRange { slot: 1 << 40, offset: 128, length: 9 };
        let mut out = Vec::new();
        infer(&mut out, Kind::Infer, 9, &call, &[None, Some(range), None], 70_000);
        let read = read(&out);
        assert_eq!((&*read.model_name, &*read.model_version, &*read.id), ("m", "3", "request"));
        assert_eq!(read.timeout_us, 70_000);
        assert_eq!((&*read.trace_parent, &*read.trace_state), ("p", "s"));
        let names: Vec<_> = read.inputs.iter().map(|input| (&*input.name, &*input.datatype)).collect();
        assert_eq!(names, [("A", "FP32"), ("", "BYTES"), ("", "INT8")]);
        assert_eq!(read.inputs[0].shape, [2, 300]);
        assert_eq!(read.inputs[1].slot, Some(range));
        assert_eq!(read.raw_input_contents, [Bytes::from("inline"), Bytes::new()]);
        let outputs = read.outputs.iter().map(|output| {
            let classes = output.parameters.get("classification");
            (&*output.name, classes.and_then(|parameter| parameter.choice.clone()))
        });
        let classes = |count| Some(Choice::Int64(count));
        assert_eq!(outputs.collect::<Vec<_>>(), [("Y", None), ("Z", classes(3)), ("W", classes(i64::MAX))]);
        let expected = [
            ("flag", Choice::Bool(false)),
            ("count", Choice::Int64(-7)),
            ("ratio", Choice::Double(0.5)),
            ("text", Choice::String(String::new())),
            ("priority", Choice::Uint64(2)),
            ("timeout", Choice::Int64(1000)),
        ];
        let expected = expected.map(|(key, choice)| (key.into(), InferParameter { choice: Some(choice) }));
        assert_eq!(read.parameters, expected.into());
    }
}
