//! What stands in the payloads of a worker's requests to other models, and of the answers to them.
//!
//! The other end is `runners/worker/call_messages.py`. What a worker writes is not trusted.

use bytes::{Buf, BufMut, Bytes};
use kushi_core::{
    Buffer, Error, ErrorKind, ModelSpec, Parameter, Response, Sequence, SequenceId, Shape, Tensor,
    element_count,
};

use crate::parts::{
    ALIGNMENT, Garbage, Payload, SEQUENCE_END, SEQUENCE_START, Tensors, datatype, heads_of, number,
    parameters_text, read_parameters,
};

const CALL_BYTES: usize = 60;
const DECOUPLED: u32 = 4;
const TENSOR_BYTES: usize = 20;
const NO_BATCH: u64 = u64::MAX;

/// A request, as the model writes it.
pub(crate) struct CallOrder {
    pub(crate) model: String,
    pub(crate) version: i64,
    pub(crate) id: String,
    pub(crate) wanted: Vec<String>,
    /// It takes any number of responses.
    pub(crate) decoupled: bool,
    pub(crate) sequence: Option<Box<Sequence>>,
    /// In microseconds; 0: none.
    pub(crate) timeout: u64,
    pub(crate) parameters: Vec<(String, Parameter)>,
    pub(crate) inputs: Vec<(String, Tensor)>,
    /// The batch that it is executing.
    pub(crate) parent: Option<u64>,
}

pub(crate) fn read_order(payload: &Bytes) -> Result<CallOrder, Garbage> {
    let heads = heads_of(payload)?;
    let mut rest = &heads[..];
    if rest.len() < CALL_BYTES {
        return Err(cut_short());
    }
    let (version, timeout, parent) = (rest.get_i64_le(), rest.get_u64_le(), rest.get_u64_le());
    let (number, flags) = (rest.get_u64_le(), rest.get_u32_le());
    let [model, id, name, parameters, inputs, wanted] = std::array::from_fn(|_| rest.get_u32_le() as usize);
    let model = text(&mut rest, model)?;
    let id = text(&mut rest, id)?;
    let sequence = sequence(flags, number, text(&mut rest, name)?);
    let parameters = read_parameters(take(&mut rest, parameters)?)?;
    let mut tensors = Vec::with_capacity(inputs.min(64));
    for _ in 0..inputs {
        tensors.push(read_tensor(&mut rest)?);
    }
    let mut names = Vec::with_capacity(wanted.min(64));
    for _ in 0..wanted {
        let length = take(&mut rest, 4)?.get_u32_le() as usize;
        names.push(text(&mut rest, length)?);
    }
    let mut data = Tensors::behind(&heads, payload);
    let mut filled = Vec::with_capacity(tensors.len());
    for (name, mut tensor, length) in tensors {
        tensor.data = data.next(tensor.datatype, length)?;
        filled.push((name, tensor));
    }
    Ok(CallOrder {
        model,
        version,
        id,
        wanted: names,
        decoupled: flags & DECOUPLED != 0,
        sequence,
        timeout,
        parameters,
        inputs: filled,
        parent: (parent != NO_BATCH).then_some(parent),
    })
}

/// Named by a text, or by a number where there is none.
fn sequence(flags: u32, number: u64, name: String) -> Option<Box<Sequence>> {
    let (start, end) = (flags & SEQUENCE_START != 0, flags & SEQUENCE_END != 0);
    let id = if name.is_empty() { SequenceId::Number(number) } else { SequenceId::Text(name) };
    let is_one = start || end || id != SequenceId::Number(0);
    is_one.then(|| Box::new(Sequence { id, start, end }))
}

/// Its name, what it is without its bytes, and how many these are.
fn read_tensor(rest: &mut &[u8]) -> Result<(String, Tensor, usize), Garbage> {
    let mut head = take(rest, TENSOR_BYTES)?;
    let (name, number, rank) =
        (head.get_u32_le() as usize, head.get_u32_le() as usize, head.get_u32_le() as usize);
    let length = usize::try_from(head.get_u64_le()).map_err(|_| cut_short())?;
    let mut dims = take(rest, rank.checked_mul(8).ok_or_else(cut_short)?)?;
    let shape: Shape = (0..rank).map(|_| dims.get_i64_le()).collect();
    let datatype = datatype(number)?;
    // Whether its bytes fill it is checked where all requests are: a model may have changed an array meanwhile.
    element_count(&shape).ok_or(Garbage("an input of a call has an impossible shape"))?;
    let name = text(rest, name)?;
    Ok((name, Tensor { datatype, shape, data: Buffer::host(Bytes::new()) }, length))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Garbage> {
    let (taken, others) = rest.split_at_checked(length).ok_or_else(cut_short)?;
    *rest = others;
    Ok(taken)
}

fn text(rest: &mut &[u8], length: usize) -> Result<String, Garbage> {
    let bytes = take(rest, length)?.to_vec();
    String::from_utf8(bytes).map_err(|_| Garbage("a text in a call is not UTF-8"))
}

fn cut_short() -> Garbage {
    Garbage("a call is cut short")
}

/// The outputs that another model has answered with.
pub(crate) fn answer_payload<'a>(spec: &ModelSpec, response: &'a Response) -> Payload<'a> {
    let mut heads = Vec::with_capacity(16 + response.outputs.len() * 64);
    let parameters = parameters_text(&response.parameters);
    put_head(&mut heads, 0, "", &parameters, response.outputs.len());
    for (place, tensor) in &response.outputs {
        let name = spec.outputs[usize::from(*place)].name.as_bytes();
        heads.put_u32_le(name.len() as u32);
        heads.put_u32_le(number(tensor.datatype));
        heads.put_u32_le(tensor.shape.len() as u32);
        heads.put_u64_le(tensor.data.len() as u64);
        for &dim in &tensor.shape {
            heads.put_i64_le(dim);
        }
        heads.put_slice(name);
    }
    let mut at = heads.len();
    let place = |(_, tensor): &'a (u16, Tensor)| {
        let data = tensor.data.as_bytes();
        let start = at.next_multiple_of(ALIGNMENT);
        at = start + data.len();
        (start, data)
    };
    let tensors = response.outputs.iter().map(place).collect();
    Payload { heads, tensors, length: at }
}

/// Why there are none.
pub(crate) fn error_payload(error: &Error) -> Payload<'static> {
    let nameless = match error.kind {
        ErrorKind::Cancelled => "the request was cancelled",
        _ => "an error without a text",
    };
    let text = if error.message.is_empty() { nameless } else { &error.message };
    let mut heads = Vec::with_capacity(12 + text.len());
    put_head(&mut heads, code(error.kind), text, "", 0);
    let length = heads.len();
    Payload { heads, tensors: Vec::new(), length }
}

/// `text` is that of the error with this code.
fn put_head(heads: &mut Vec<u8>, code: u32, text: &str, parameters: &str, outputs: usize) {
    heads.put_u32_le(code);
    heads.put_u32_le(text.len() as u32);
    heads.put_u32_le(parameters.len() as u32);
    heads.put_u32_le(outputs as u32);
    heads.put_slice(text.as_bytes());
    heads.put_slice(parameters.as_bytes());
}

/// As `TritonError` has them.
fn code(kind: ErrorKind) -> u32 {
    match (kind, kind.http_status()) {
        (ErrorKind::UnknownError, _) => 0,
        (ErrorKind::AlreadyExists, _) => 6,
        (ErrorKind::Cancelled, _) => 7,
        (_, 404) => 2,
        (_, 400) => 3,
        (_, 503) => 4,
        (_, 501) => 5,
        _ => 1,
    }
}
