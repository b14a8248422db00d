//! What stands in payloads: a batch on its way to a worker, and the answers on their way back.
//!
//! The other end is `runners/worker/messages.py`. What comes back is not trusted: a worker runs code of a user's.

use bytes::{Buf, BufMut, Bytes};
use kushi_core::{
    Batch, Buffer, DataType, Error, ErrorKind, ModelSpec, Parameter, Request, Response, SequenceId, Shape,
    Tensor, element_count,
};

const ALIGNMENT: usize = 64;
const TENSOR_BYTES: usize = 28;
const RESPONSE_BYTES: usize = 24;

/// Triton's flags of a request.
pub(crate) const SEQUENCE_START: u32 = 1;
pub(crate) const SEQUENCE_END: u32 = 2;

const HAS_RESPONSE: u32 = 1;
pub(crate) const FINAL: u32 = 2;
const HAS_ERROR: u32 = 4;

/// A payload: what was written for it, and the bytes of tensors behind that, each with its offset.
pub(crate) struct Payload<'a> {
    pub(crate) heads: Vec<u8>,
    pub(crate) tensors: Vec<(usize, &'a [u8])>,
    pub(crate) length: usize,
}

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
    let parameters = parameters(request);
    let (flags, id, text) = sequence(request);
    heads.put_u32_le(flags);
    heads.put_u32_le(request.priority);
    heads.put_u64_le(request.timeout_us.unwrap_or(0));
    heads.put_u64_le(id);
    heads.put_u32_le(request.id.len() as u32);
    heads.put_u32_le(parameters.len() as u32);
    heads.put_u32_le(text.len() as u32);
    heads.put_u32_le(request.inputs.iter().flatten().count() as u32);
    heads.put_u32_le(request.wanted.len() as u32);
    heads.put_slice(request.id.as_bytes());
    heads.put_slice(parameters.as_bytes());
    heads.put_slice(text.as_bytes());
    for (position, tensor) in request.inputs.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        let shape = spec.inputs[position].to_engine(&tensor.shape, batch_dims(spec));
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

/// In front of the dimensions that a configuration states.
fn batch_dims(spec: &ModelSpec) -> usize {
    usize::from(spec.max_batch_size > 0)
}

/// The outputs with the shapes that clients see. One whose shape is not what the configuration says keeps its own.
pub(crate) fn reshape(spec: &ModelSpec, response: &mut Response) {
    for (place, tensor) in &mut response.outputs {
        let output = &spec.outputs[usize::from(*place)];
        let Some(own) = &output.reshape else { continue };
        if tensor.shape.len() != own.len() + batch_dims(spec) {
            continue;
        }
        let shape = output.to_client(&tensor.shape, batch_dims(spec));
        if element_count(&shape) == element_count(&tensor.shape) {
            tensor.shape = shape;
        }
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

/// As JSON; nothing where there are none.
fn parameters(request: &Request) -> String {
    if request.parameters.is_empty() {
        return String::new();
    }
    json(&request.parameters).to_string()
}

pub(crate) fn json(parameters: &[(String, Parameter)]) -> serde_json::Value {
    let value = |parameter: &Parameter| match parameter {
        Parameter::Bool(value) => (*value).into(),
        Parameter::Int(value) => (*value).into(),
        Parameter::Double(value) => (*value).into(),
        Parameter::String(value) => value.as_str().into(),
    };
    let members = parameters.iter().map(|(name, parameter)| (name.clone(), value(parameter)));
    serde_json::Value::Object(members.collect())
}

/// Triton's number of a data type.
fn number(datatype: DataType) -> u32 {
    DataType::ALL.iter().position(|known| *known == datatype).map_or(0, |position| position as u32 + 1)
}

/// One answer: to the request at this place of the batch.
pub(crate) struct Answer {
    pub(crate) position: usize,
    pub(crate) response: Option<Response>,
    /// It is the last one.
    pub(crate) end: Option<Result<(), Error>>,
}

/// What a worker has written that it should not have.
#[derive(Debug)]
pub(crate) struct Garbage(pub(crate) &'static str);

/// The answers in a payload.
pub(crate) fn read_answers(payload: &Bytes, count: u32, outputs: usize) -> Result<Vec<Answer>, Garbage> {
    let mut rest = &payload[..];
    let mut answers = Vec::with_capacity(count.min(1024) as usize);
    for _ in 0..count {
        if rest.len() < RESPONSE_BYTES {
            return Err(Garbage("an answer is cut short"));
        }
        let (position, flags) = (rest.get_u32_le() as usize, rest.get_u32_le());
        let (code, length) = (rest.get_u32_le(), rest.get_u32_le() as usize);
        let (parameters_length, tensors) = (rest.get_u32_le() as usize, rest.get_u32_le());
        let text = read_bytes(&mut rest, length)?;
        let text = String::from_utf8_lossy(text).into_owned();
        let parameters = read_parameters(read_bytes(&mut rest, parameters_length)?)?;
        let mut response = Response { parameters, ..Response::default() };
        for _ in 0..tensors {
            let (place, tensor) = read_tensor(&mut rest, payload)?;
            if place >= outputs
                || response.outputs.last().is_some_and(|(last, _)| usize::from(*last) >= place)
            {
                return Err(Garbage("an answer has outputs that are none of the model"));
            }
            response.outputs.push((place as u16, tensor));
        }
        let end = if flags & HAS_ERROR != 0 {
            Some(Err(Error::new(error_kind(code), text)))
        } else {
            (flags & FINAL != 0).then_some(Ok(()))
        };
        let response = (flags & HAS_RESPONSE != 0 && flags & HAS_ERROR == 0).then_some(response);
        answers.push(Answer { position, response, end });
    }
    Ok(answers)
}

fn read_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Garbage> {
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Garbage("a text is cut short"))?;
    *rest = behind;
    Ok(bytes)
}

/// A JSON object; nothing where there are none.
fn read_parameters(json: &[u8]) -> Result<Vec<(String, Parameter)>, Garbage> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(|_| Garbage("the parameters of an answer cannot be read"))?;
    Ok(members.into_iter().filter_map(|(name, value)| Some((name, parameter(value)?))).collect())
}

/// `None` for what is no parameter.
pub(crate) fn parameter(value: serde_json::Value) -> Option<Parameter> {
    Some(match value {
        serde_json::Value::Bool(value) => Parameter::Bool(value),
        serde_json::Value::String(value) => Parameter::String(value),
        serde_json::Value::Number(value) => match value.as_i64() {
            Some(value) => Parameter::Int(value),
            None => Parameter::Double(value.as_f64()?),
        },
        _ => return None,
    })
}

fn read_tensor(rest: &mut &[u8], payload: &Bytes) -> Result<(usize, Tensor), Garbage> {
    if rest.len() < TENSOR_BYTES {
        return Err(Garbage("the head of a tensor is cut short"));
    }
    let (place, number, rank) = (rest.get_u32_le() as usize, rest.get_u32_le(), rest.get_u32_le() as usize);
    let (offset, length) = (rest.get_u64_le() as usize, rest.get_u64_le() as usize);
    if rest.len() / 8 < rank {
        return Err(Garbage("the shape of a tensor is cut short"));
    }
    let shape: Shape = (0..rank).map(|_| rest.get_i64_le()).collect();
    let datatype = (number as usize).checked_sub(1).and_then(|index| DataType::ALL.get(index)).copied();
    let datatype = datatype.ok_or(Garbage("a tensor has an unknown data type"))?;
    let end = offset.checked_add(length).filter(|&end| end <= payload.len());
    let end = end.ok_or(Garbage("a tensor lies outside of its message"))?;
    let elements = element_count(&shape).ok_or(Garbage("a tensor has an impossible shape"))?;
    if datatype.size().is_some_and(|size| elements.checked_mul(size) != Some(length)) {
        return Err(Garbage("a tensor has not the length of its shape"));
    }
    Ok((place, Tensor { datatype, shape, data: Buffer::host(payload.slice(offset..end)) }))
}

/// For the codes of `TritonError`.
fn error_kind(code: u32) -> ErrorKind {
    match code {
        2 => ErrorKind::ModelNotFound,
        3 => ErrorKind::InvalidInput,
        4 => ErrorKind::Overloaded,
        5 => ErrorKind::Unsupported,
        7 => ErrorKind::Cancelled,
        _ => ErrorKind::EngineFailed,
    }
}
