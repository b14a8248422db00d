//! What stands in payloads: a batch on its way to a worker, and the answers on their way back.
//!
//! The other end is `runners/worker/messages.py`. What comes back is not trusted: a worker runs code of a user's.

use bytes::{Buf, BufMut, Bytes};
use kushi_core::{
    Batch, Buffer, DataType, Error, ErrorKind, Parameter, Request, Response, Shape, Tensor, element_count,
};

pub(crate) const ALIGNMENT: usize = 64;
const OUTPUT_BYTES: usize = 20;

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
        write_request(request, &mut heads, &mut places);
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

fn write_request<'a>(request: &'a Request, heads: &mut Vec<u8>, places: &mut Vec<(usize, &'a [u8])>) {
    let parameters = parameters(request);
    heads.put_u32_le(0);
    heads.put_u64_le(request.timeout_us.unwrap_or(0));
    heads.put_u64_le(0);
    heads.put_u32_le(request.id.len() as u32);
    heads.put_u32_le(parameters.len() as u32);
    heads.put_u32_le(0);
    heads.put_u32_le(request.inputs.iter().flatten().count() as u32);
    heads.put_u32_le(request.wanted.len() as u32);
    heads.put_slice(request.id.as_bytes());
    heads.put_slice(parameters.as_bytes());
    for (position, tensor) in request.inputs.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        heads.put_u32_le(position as u32);
        heads.put_u32_le(number(tensor.datatype));
        heads.put_u32_le(tensor.shape.len() as u32);
        places.push((heads.len(), tensor.data.as_bytes()));
        heads.put_u64_le(0);
        heads.put_u64_le(tensor.data.len() as u64);
        for &dim in &tensor.shape {
            heads.put_i64_le(dim);
        }
    }
    for &position in &request.wanted {
        heads.put_u32_le(u32::from(position));
    }
}

/// As JSON; nothing where there are none.
fn parameters(request: &Request) -> String {
    if request.parameters.is_empty() {
        return String::new();
    }
    let value = |parameter: &Parameter| match parameter {
        Parameter::Bool(value) => (*value).into(),
        Parameter::Int(value) => (*value).into(),
        Parameter::Double(value) => (*value).into(),
        Parameter::String(value) => value.as_str().into(),
    };
    let members = request.parameters.iter().map(|(name, parameter)| (name.clone(), value(parameter)));
    serde_json::Value::Object(members.collect()).to_string()
}

/// Triton's number of a data type.
pub(crate) fn number(datatype: DataType) -> u32 {
    DataType::ALL.iter().position(|known| *known == datatype).map_or(0, |position| position as u32 + 1)
}

/// The data type with Triton's number.
pub(crate) fn datatype(number: usize) -> Result<DataType, Garbage> {
    let datatype = number.checked_sub(1).and_then(|index| DataType::ALL.get(index)).copied();
    datatype.ok_or(Garbage("a tensor has an unknown data type"))
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

/// The answers in a payload: heads, and the bytes of all their tensors behind them in the same order, each aligned.
pub(crate) fn read_answers(payload: &Bytes, count: u32, outputs: usize) -> Result<Vec<Answer>, Garbage> {
    let mut rest = &payload[..];
    let mut answers = Vec::with_capacity(count.min(1024) as usize);
    let mut lengths = Vec::with_capacity(count.min(1024) as usize * outputs.min(16));
    for _ in 0..count {
        if rest.len() < 20 {
            return Err(Garbage("an answer is cut short"));
        }
        let (position, flags) = (rest.get_u32_le() as usize, rest.get_u32_le());
        let (code, length, tensors) = (rest.get_u32_le(), rest.get_u32_le() as usize, rest.get_u32_le());
        if length > rest.len() {
            return Err(Garbage("the text of an error is cut short"));
        }
        let text = String::from_utf8_lossy(&rest[..length]).into_owned();
        rest.advance(length);
        let is_response = flags & HAS_RESPONSE != 0 && flags & HAS_ERROR == 0;
        if tensors > 0 && !is_response {
            return Err(Garbage("an answer has outputs and is no response"));
        }
        let mut response = Response { outputs: smallvec::SmallVec::new() };
        for _ in 0..tensors {
            let (place, tensor, length) = read_output(&mut rest)?;
            if place >= outputs
                || response.outputs.last().is_some_and(|(last, _)| usize::from(*last) >= place)
            {
                return Err(Garbage("an answer has outputs that are none of the model"));
            }
            response.outputs.push((place as u16, tensor));
            lengths.push(length);
        }
        let end = if flags & HAS_ERROR != 0 {
            Some(Err(Error::new(error_kind(code), text)))
        } else {
            (flags & FINAL != 0).then_some(Ok(()))
        };
        answers.push(Answer { position, response: is_response.then_some(response), end });
    }
    let mut at = payload.len() - rest.len();
    let tensors = answers.iter_mut().flat_map(|answer| &mut answer.response).flat_map(|one| &mut one.outputs);
    for ((_, tensor), length) in tensors.zip(lengths) {
        let start = at.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(length).filter(|&end| end <= payload.len());
        at = end.ok_or(Garbage("a tensor lies outside of its message"))?;
        tensor.data = Buffer::host(payload.slice(start..at));
    }
    Ok(answers)
}

/// Its place, what it is without its bytes, and how many these are.
fn read_output(rest: &mut &[u8]) -> Result<(usize, Tensor, usize), Garbage> {
    if rest.len() < OUTPUT_BYTES {
        return Err(Garbage("the head of a tensor is cut short"));
    }
    let [place, number, rank] = std::array::from_fn(|_| rest.get_u32_le() as usize);
    let length =
        usize::try_from(rest.get_u64_le()).map_err(|_| Garbage("a tensor has an impossible length"))?;
    if rest.len() / 8 < rank {
        return Err(Garbage("the shape of a tensor is cut short"));
    }
    let shape: Shape = (0..rank).map(|_| rest.get_i64_le()).collect();
    let datatype = datatype(number)?;
    let elements = element_count(&shape).ok_or(Garbage("a tensor has an impossible shape"))?;
    if datatype.size().is_some_and(|size| elements.checked_mul(size) != Some(length)) {
        return Err(Garbage("a tensor has not the length of its shape"));
    }
    Ok((place, Tensor { datatype, shape, data: Buffer::host(Bytes::new()) }, length))
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
