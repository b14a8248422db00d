//! The answers of a worker. The other end is `runners/worker/messages.py`.

use bytes::{Buf, Bytes};
use kushi_core::{Buffer, Error, ErrorKind, ModelSpec, Response, Shape, Tensor};

use crate::parts::{FINAL, Garbage, Tensors, datatype, heads_of, read_parameters};

const RESPONSE_BYTES: usize = 24;
const OUTPUT_BYTES: usize = 20;

const HAS_RESPONSE: u32 = 1;
const HAS_ERROR: u32 = 4;

/// One answer: to the request at this place of the batch.
pub(crate) struct WorkerAnswer {
    pub(crate) position: usize,
    pub(crate) response: Option<Response>,
    /// It is the last one.
    pub(crate) end: Option<Result<(), Error>>,
}

/// The answers in a payload: heads, and the bytes of all their tensors behind them in the same order, each aligned.
pub(crate) fn read_answers(
    payload: &Bytes,
    count: u32,
    outputs: usize,
) -> Result<Vec<WorkerAnswer>, Garbage> {
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
        answers.push(WorkerAnswer { position, response: is_response.then_some(response), end });
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
        0 => ErrorKind::UnknownError,
        2 => ErrorKind::ModelNotFound,
        3 => ErrorKind::InvalidInput,
        4 => ErrorKind::Overloaded,
        5 => ErrorKind::Unsupported,
        6 => ErrorKind::AlreadyExists,
        7 => ErrorKind::Cancelled,
        _ => ErrorKind::EngineFailed,
    }
}

/// The outputs with the shapes that clients see.
pub(crate) fn reshape(spec: &ModelSpec, response: &mut Response) {
    for (place, tensor) in &mut response.outputs {
        spec.outputs[usize::from(*place)].give_shape(tensor, spec.batch_dims());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use bytes::BufMut;
    use kushi_core::DataType;
    use kushi_shm::{Slot, View};
    use proptest::prelude::*;

    use crate::parts::{ALIGNMENT, number, parameters_text, text_of};

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
