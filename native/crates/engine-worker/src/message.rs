//! What stands in payloads: a batch on its way to a worker, and the answers on their way back.
//!
//! The other end is `runners/worker/messages.py`. What comes back is not trusted: a worker runs code of a user's.

use bytes::{Buf, BufMut, Bytes};
use kushi_core::{
    Batch, Buffer, DataType, Error, ErrorKind, ModelSpec, Parameter, Request, Response, SequenceId, Shape,
    Tensor, element_count,
};

pub(crate) const ALIGNMENT: usize = 64;
const RESPONSE_BYTES: usize = 24;
const OUTPUT_BYTES: usize = 20;
/// Of what a worker says of itself, in the log and in errors.
pub(crate) const TEXT_BYTES: usize = 64 << 10;

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
    let parameters = parameters_text(&request.parameters);
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
pub(crate) fn parameters_text(parameters: &[(String, Parameter)]) -> String {
    if parameters.is_empty() {
        return String::new();
    }
    let value = |parameter: &Parameter| match parameter {
        Parameter::Bool(value) => (*value).into(),
        Parameter::Int(value) => (*value).into(),
        Parameter::Double(value) => (*value).into(),
        Parameter::String(value) => value.as_str().into(),
    };
    let members = parameters.iter().map(|(name, parameter)| (name.clone(), value(parameter)));
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

/// What a worker says, as far as `most_bytes` go: a copy, since it can still write where the payload lies.
pub(crate) fn text_of(payload: &Bytes, most_bytes: usize) -> String {
    let text = payload[..payload.len().min(most_bytes)].to_vec();
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The heads of a payload, whose length goes before them: a copy, since what was checked must not change any more.
pub(crate) fn heads_of(payload: &Bytes) -> Result<Vec<u8>, Garbage> {
    let short = || Garbage("the heads of a message are cut short");
    let (length, rest) = payload.split_first_chunk().ok_or_else(short)?;
    rest.get(..u32::from_le_bytes(*length) as usize).map(<[u8]>::to_vec).ok_or_else(short)
}

/// The bytes of the tensors behind the heads of a payload, one after the other.
pub(crate) struct Tensors<'a> {
    payload: &'a Bytes,
    at: usize,
}

impl<'a> Tensors<'a> {
    pub(crate) fn behind(heads: &[u8], payload: &'a Bytes) -> Self {
        Self { payload, at: size_of::<u32>() + heads.len() }
    }

    /// Numbers are not copied: any bytes are some. Strings are, since whoever reads them goes by the lengths in them.
    pub(crate) fn next(&mut self, datatype: DataType, length: usize) -> Result<Buffer, Garbage> {
        let start = self.at.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(length).filter(|&end| end <= self.payload.len());
        self.at = end.ok_or(Garbage("a tensor lies outside of its message"))?;
        let data = self.payload.slice(start..self.at);
        Ok(Buffer::host(if datatype.size().is_some() { data } else { Bytes::copy_from_slice(&data) }))
    }
}

/// The answers in a payload: heads, and the bytes of all their tensors behind them in the same order, each aligned.
pub(crate) fn read_answers(payload: &Bytes, count: u32, outputs: usize) -> Result<Vec<Answer>, Garbage> {
    let heads = heads_of(payload)?;
    let mut rest = &heads[..];
    let mut answers = Vec::with_capacity(count.min(1024) as usize);
    let mut lengths = Vec::with_capacity(count.min(1024) as usize * outputs.min(16));
    for _ in 0..count {
        if rest.len() < RESPONSE_BYTES {
            return Err(Garbage("an answer is cut short"));
        }
        let (position, flags) = (rest.get_u32_le() as usize, rest.get_u32_le());
        let (code, length) = (rest.get_u32_le(), rest.get_u32_le() as usize);
        let (parameters_length, tensors) = (rest.get_u32_le() as usize, rest.get_u32_le());
        let text = String::from_utf8_lossy(read_bytes(&mut rest, length)?).into_owned();
        let parameters = read_parameters(read_bytes(&mut rest, parameters_length)?)?;
        let is_response = flags & HAS_RESPONSE != 0 && flags & HAS_ERROR == 0;
        if tensors > 0 && !is_response {
            return Err(Garbage("an answer has outputs and is no response"));
        }
        let mut response = Response { parameters, ..Response::default() };
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
    let mut data = Tensors::behind(&heads, payload);
    let tensors = answers.iter_mut().flat_map(|answer| &mut answer.response).flat_map(|one| &mut one.outputs);
    for ((_, tensor), length) in tensors.zip(lengths) {
        tensor.data = data.next(tensor.datatype, length)?;
    }
    Ok(answers)
}

fn read_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Garbage> {
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Garbage("a text is cut short"))?;
    *rest = behind;
    Ok(bytes)
}

/// A JSON object; nothing where there are none.
pub(crate) fn read_parameters(json: &[u8]) -> Result<Vec<(String, Parameter)>, Garbage> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(|_| Garbage("the parameters of a message cannot be read"))?;
    Ok(members.into_iter().filter_map(|(name, value)| Some((name, parameter(value)?))).collect())
}

/// `None` for what is no parameter.
fn parameter(value: serde_json::Value) -> Option<Parameter> {
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
    Ok((place, Tensor { datatype, shape, data: Buffer::host(Bytes::new()) }, length))
}

/// For the codes of `TritonError`.
fn error_kind(code: u32) -> ErrorKind {
    match code {
        2 => ErrorKind::ModelNotFound,
        // For clients of HTTP these three are one.
        0 | 3 | 6 => ErrorKind::InvalidInput,
        4 => ErrorKind::Overloaded,
        5 => ErrorKind::Unsupported,
        7 => ErrorKind::Cancelled,
        _ => ErrorKind::EngineFailed,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use kushi_shm::{Slot, View};
    use proptest::prelude::*;

    use super::*;

    /// An output as a worker describes it.
    #[derive(Clone, Debug)]
    struct Output {
        place: u32,
        number: u32,
        shape: Vec<i64>,
        data: Vec<u8>,
    }

    #[derive(Clone, Debug)]
    struct Described {
        position: u32,
        flags: u32,
        code: u32,
        text: String,
        /// As JSON.
        parameters: String,
        outputs: Vec<Output>,
    }

    fn payload(answers: &[Described]) -> Vec<u8> {
        let (mut heads, mut tensors) = (Vec::new(), Vec::new());
        for answer in answers {
            let lengths = [answer.text.len(), answer.parameters.len(), answer.outputs.len()];
            for number in
                [answer.position, answer.flags, answer.code].into_iter().chain(lengths.map(|it| it as u32))
            {
                heads.put_u32_le(number);
            }
            heads.put_slice(answer.text.as_bytes());
            heads.put_slice(answer.parameters.as_bytes());
            for output in &answer.outputs {
                for number in [output.place, output.number, output.shape.len() as u32] {
                    heads.put_u32_le(number);
                }
                heads.put_u64_le(output.data.len() as u64);
                output.shape.iter().for_each(|&dim| heads.put_i64_le(dim));
                tensors.push(&output.data);
            }
        }
        let mut payload = (heads.len() as u32).to_le_bytes().to_vec();
        payload.extend(heads);
        for data in tensors {
            payload.resize(payload.len().next_multiple_of(ALIGNMENT), 0);
            payload.extend_from_slice(data);
        }
        payload
    }

    fn of_one_output(datatype: DataType, data: &[u8]) -> Vec<u8> {
        let output = Output { place: 0, number: number(datatype), shape: vec![1], data: data.to_vec() };
        let flags = HAS_RESPONSE | FINAL;
        let (text, parameters) = (String::new(), String::new());
        payload(&[Described { position: 0, flags, code: 0, text, parameters, outputs: vec![output] }])
    }

    fn an_output(place: u32) -> impl Strategy<Value = Output> {
        let shape = proptest::collection::vec(any::<i64>(), 0..4);
        let data = proptest::collection::vec(any::<u8>(), 0..40);
        (1..=DataType::ALL.len() as u32, shape, data).prop_map(move |(number, shape, data)| Output {
            place,
            number,
            shape,
            data,
        })
    }

    fn an_answer() -> impl Strategy<Value = Described> {
        let outputs = (an_output(0), an_output(2), 0..3_usize);
        let parameters =
            prop_oneof![Just(String::new()), (0..100_u32).prop_map(|count| format!(r#"{{"n":{count}}}"#))];
        (0..4_u32, 0..8_u32, 0..9_u32, ".{0,10}", parameters, outputs).prop_map(
            |(position, flags, code, text, parameters, (one, two, count))| Described {
                position,
                flags,
                code,
                text,
                parameters,
                outputs: [one, two]
                    .into_iter()
                    .take(if flags & 5 == HAS_RESPONSE { count } else { 0 })
                    .collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn answers_are_read_as_they_were_written(answers in proptest::collection::vec(an_answer(), 0..5)) {
            let payload = Bytes::from(payload(&answers));
            let read = read_answers(&payload, answers.len() as u32, 3).unwrap();
            prop_assert_eq!(read.len(), answers.len());
            for (read, written) in read.into_iter().zip(answers) {
                prop_assert_eq!(read.position, written.position as usize);
                let has_error = written.flags & HAS_ERROR != 0;
                prop_assert_eq!(read.end.is_some(), has_error || written.flags & FINAL != 0);
                if let Some(Err(error)) = read.end {
                    prop_assert_eq!(error.message.as_ref(), &written.text);
                }
                prop_assert_eq!(read.response.is_some(), written.flags & HAS_RESPONSE != 0 && !has_error);
                if let Some(response) = &read.response {
                    prop_assert_eq!(parameters_text(&response.parameters), written.parameters.as_str());
                }
                for ((place, tensor), output) in read.response.iter().flat_map(|it| &it.outputs).zip(written.outputs) {
                    prop_assert_eq!(u32::from(*place), output.place);
                    prop_assert_eq!(number(tensor.datatype), output.number);
                    prop_assert_eq!(tensor.shape.as_slice(), &output.shape[..]);
                    prop_assert_eq!(tensor.data.as_bytes(), &output.data[..]);
                }
            }
        }

        #[test]
        fn answers_that_were_damaged_are_garbage_or_other_answers(
            answers in proptest::collection::vec(an_answer(), 1..4),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
            length in any::<proptest::sample::Index>(),
            count: u32,
        ) {
            let mut payload = payload(&answers);
            for (place, byte) in damage {
                let place = place.index(payload.len());
                payload[place] = byte;
            }
            payload.truncate(length.index(payload.len() + 1));
            let payload = Bytes::from(payload);
            for count in [answers.len() as u32, count] {
                for answer in read_answers(&payload, count, 3).unwrap_or_default() {
                    for (place, tensor) in answer.response.iter().flat_map(|it| &it.outputs) {
                        prop_assert!(*place < 3);
                        prop_assert!(tensor.data.len() <= payload.len());
                        tensor.fills_its_shape();
                    }
                }
            }
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), count: u32) {
            let _ = read_answers(&Bytes::from(bytes), count, 3);
        }
    }

    #[test]
    fn strings_and_texts_do_not_change_with_the_memory_in_which_they_came() {
        let strings = b"\x05\0\0\0hello";
        let written = of_one_output(DataType::Bytes, strings);
        let slot = Slot::new(written.len()).unwrap();
        let theirs = View::map(slot.fd().try_clone_to_owned().unwrap(), slot.len() as u64).unwrap();
        slot.write(0, &written);
        let payload = theirs.range(0, written.len() as u64).unwrap();
        let answer = read_answers(&payload, 1, 1).unwrap().pop().unwrap();
        let text = text_of(&payload.slice(payload.len() - 5..), 3);
        slot.write(0, &vec![0xff; written.len()]);
        assert_eq!(answer.response.unwrap().outputs[0].1.data.as_bytes(), strings);
        assert_eq!(text, "hel");
    }

    #[test]
    fn numbers_stay_where_they_came() {
        let payload = Bytes::from(of_one_output(DataType::Fp32, &[1, 2, 3, 4]));
        let answer = read_answers(&payload, 1, 1).unwrap().pop().unwrap();
        let data = answer.response.unwrap().outputs[0].1.data.as_bytes().as_ptr();
        assert!(payload.as_ptr_range().contains(&data));
    }

    #[test]
    fn a_worker_that_rewrites_its_answer_while_it_is_read_does_no_harm() {
        let written = of_one_output(DataType::Bytes, b"\x05\0\0\0hello");
        let slot = Slot::new(written.len()).unwrap();
        slot.write(0, &written);
        let theirs = View::map(slot.fd().try_clone_to_owned().unwrap(), slot.len() as u64).unwrap();
        let payload = theirs.range(0, written.len() as u64).unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..200_000_usize {
                    let place = number % written.len();
                    slot.write(place, &[(number % 251) as u8]);
                    slot.write(place, &written[place..=place]);
                }
            });
            while !writer.is_finished() {
                for answer in read_answers(&payload, 1, 1).unwrap_or_default() {
                    for (_, tensor) in answer.response.iter().flat_map(|it| &it.outputs) {
                        let fills = tensor.fills_its_shape();
                        assert_eq!(tensor.fills_its_shape(), fills, "what was checked has changed");
                    }
                }
            }
        });
    }
}
