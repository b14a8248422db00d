//! Messages of a server as values. Tensors stay where they arrived.

use std::time::Duration;

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Error, ErrorKind, Parameter, Shape, Tensor, Timings, element_count};
use kushi_oip::typed_contents::{self, Fault};
use kushi_oip::wire::{Fields, Value, WireError};
use kushi_oip::{Failure, SlotRange};
use prost::Message;
use smallvec::SmallVec;

use crate::call::{Answer, CallAnswer};

/// The server broke the protocol; nothing more can be believed that comes from it.
pub(crate) type Violation = String;

fn unreadable(error: WireError) -> Violation {
    format!("an unreadable answer: {error}")
}

/// An output whose bytes have not been found yet.
#[derive(Default)]
struct DecodedOutput<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: Shape,
    /// Its elements in typed fields, as some servers answer.
    contents: Option<&'a [u8]>,
    slot: Option<SlotRange>,
}

/// Reads a [`ModelInferResponse`](kushi_oip::ModelInferResponse). `view` shows the bytes of a range, if the server has
/// announced such a slot.
pub(crate) fn answer(
    body: &Bytes,
    mut view: impl FnMut(SlotRange) -> Option<Buffer>,
) -> Result<Answer, Violation> {
    let mut answer = Answer {
        model: String::new(),
        version: String::new(),
        id: String::new(),
        parameters: Vec::new(),
        outputs: Vec::new(),
        timings: None,
    };
    let mut outputs: SmallVec<[DecodedOutput<'_>; 4]> = SmallVec::new();
    let mut raw: SmallVec<[&[u8]; 4]> = SmallVec::new();
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next_field().map_err(unreadable)? {
        match field {
            1 => answer.model = value.text().map_err(unreadable)?.into(),
            2 => answer.version = value.text().map_err(unreadable)?.into(),
            3 => answer.id = value.text().map_err(unreadable)?.into(),
            4 => answer.parameters.extend(parameter(value).map_err(unreadable)?),
            5 => outputs.push(output(value).map_err(unreadable)?),
            6 => raw.push(value.bytes().map_err(unreadable)?),
            1001 => answer.timings = Some(timings(value).map_err(unreadable)?),
            _ => {}
        }
    }
    let has_raw = !raw.is_empty();
    let mut raw = raw.into_iter();
    answer.outputs.reserve_exact(outputs.len());
    for output in outputs {
        let data = match (output.slot, output.contents) {
            (Some(range), _) => view(range).ok_or_else(|| {
                let SlotRange { slot, offset, length } = range;
                format!("an output in {length} bytes at {offset} of slot {slot}, where there are none")
            })?,
            (None, Some(contents)) if !has_raw => Buffer::host(typed(&output, contents)?),
            (None, _) => {
                let bytes = raw.next().ok_or("an answer with fewer contents than outputs")?;
                Buffer::host(body.slice_ref(bytes))
            }
        };
        answer.outputs.push(tensor(output, data)?);
    }
    Ok(answer)
}

fn typed(output: &DecodedOutput<'_>, contents: &[u8]) -> Result<Bytes, Violation> {
    let DecodedOutput { name, datatype, .. } = output;
    let wrong =
        |what: &dyn std::fmt::Display| format!("the contents of output '{name}' of {datatype}: {what}");
    let known = datatype.parse::<DataType>().map_err(|()| wrong(&"an unknown type"))?;
    match typed_contents::bytes(contents, known) {
        Ok(bytes) => Ok(bytes.unwrap_or_default().freeze()),
        Err(Fault::Type(other)) => Err(wrong(&format_args!("they are of {other}"))),
        Err(Fault::Several) => Err(wrong(&"they are of several types")),
        Err(Fault::Unreadable(error)) => Err(wrong(&error)),
    }
}

fn output(message: Value<'_>) -> Result<DecodedOutput<'_>, WireError> {
    let mut output = DecodedOutput::default();
    let mut fields = Fields::new(message.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        match field {
            1 => output.name = value.text()?,
            2 => output.datatype = value.text()?,
            3 => value.varints(|dim| {
                output.shape.push(dim as i64);
                Ok(())
            })?,
            5 => output.contents = Some(value.bytes()?),
            1001 => {
                let [slot, offset, length] = numbers(value)?;
                output.slot = Some(SlotRange { slot, offset, length });
            }
            _ => {}
        }
    }
    Ok(output)
}

fn tensor(output: DecodedOutput<'_>, data: Buffer) -> Result<(String, Tensor), Violation> {
    let DecodedOutput { name, datatype, shape, .. } = output;
    let Ok(datatype) = datatype.parse::<DataType>() else {
        return Err(format!("output '{name}' of the unknown type '{datatype}'"));
    };
    let bytes = element_count(&shape).and_then(|count| count.checked_mul(datatype.size().unwrap_or(0)));
    if bytes.is_none_or(|bytes| datatype.size().is_some() && bytes != data.len()) {
        return Err(format!("output '{name}' of {datatype} {shape:?} in {} bytes", data.len()));
    }
    Ok((name.into(), Tensor { datatype, shape, data }))
}

fn timings(message: Value<'_>) -> Result<Timings, WireError> {
    let [queue, compute_input, compute_infer, compute_output] = numbers(message)?.map(Duration::from_nanos);
    Ok(Timings { queue, compute_input, compute_infer, compute_output })
}

/// The fields of a message that has nothing but numbers, from 1 on.
fn numbers<const N: usize>(message: Value<'_>) -> Result<[u64; N], WireError> {
    let mut numbers = [0; N];
    let mut fields = Fields::new(message.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        if let Some(number) = numbers.get_mut(field as usize - 1) {
            *number = value.varint()?;
        }
    }
    Ok(numbers)
}

/// `None` for a kind that is unknown here.
fn parameter(entry: Value<'_>) -> Result<Option<(String, Parameter)>, WireError> {
    let (mut key, mut found) = ("", None);
    let mut fields = Fields::new(entry.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        match field {
            1 => key = value.text()?,
            2 => found = choice(value)?,
            _ => {}
        }
    }
    Ok(found.map(|value| (key.into(), value)))
}

fn choice(message: Value<'_>) -> Result<Option<Parameter>, WireError> {
    let mut found = None;
    let mut fields = Fields::new(message.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        found = match field {
            1 => Some(Parameter::Bool(value.varint()? != 0)),
            2 => Some(Parameter::Int(value.varint()? as i64)),
            3 => Some(Parameter::String(value.text()?.into())),
            4 => Some(Parameter::Double(value.double()?)),
            5 => Some(Parameter::Int(value.varint()?.try_into().unwrap_or(i64::MAX))),
            _ => found,
        };
    }
    Ok(found)
}

pub(crate) fn failure(body: &[u8]) -> Result<Error, Violation> {
    let Failure { kind, message } =
        Failure::decode(body).map_err(|error| format!("an unreadable failure: {error}"))?;
    Ok(Error::new(ErrorKind::named(&kind).unwrap_or(ErrorKind::Internal), message))
}

pub(crate) fn call_answer(body: Bytes) -> Result<CallAnswer, Violation> {
    let message = kushi_oip::CallAnswer::decode(body)
        .map_err(|error| format!("an unreadable answer to a call: {error}"))?;
    let status = message.status.try_into().map_err(|_| format!("the status {}", message.status))?;
    let kind = (!message.kind.is_empty())
        .then(|| ErrorKind::find(&message.kind, status).unwrap_or(ErrorKind::Internal));
    Ok(CallAnswer { status, kind, body: message.body })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use kushi_oip::infer_parameter::Choice;
    use kushi_oip::{InferOutputTensor, InferParameter, ModelInferResponse, Timings as WireTimings};

    use super::*;

    fn output(datatype: &str, shape: &[i64]) -> InferOutputTensor {
        InferOutputTensor {
            name: "Y".into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
            ..InferOutputTensor::default()
        }
    }

    fn read(output: InferOutputTensor, raw: &[&'static [u8]]) -> Result<Answer, Violation> {
        let message = ModelInferResponse {
            outputs: vec![output],
            raw_output_contents: raw.iter().map(|&bytes| Bytes::from_static(bytes)).collect(),
            ..ModelInferResponse::default()
        };
        answer(&message.encode_to_vec().into(), |range| {
            let bytes = Bytes::from_static(b"01234567");
            (range.slot == 1).then(|| Buffer::host(bytes.slice(range.offset as usize..)))
        })
    }

    #[test]
    fn outputs_are_views_of_the_frame_or_of_a_slot() {
        let message = ModelInferResponse {
            outputs: vec![
                InferOutputTensor {
                    slot: Some(SlotRange { slot: 1, offset: 4, length: 4 }),
                    ..output("FP32", &[])
                },
                output("INT16", &[2]),
            ],
            raw_output_contents: vec![Bytes::from_static(b"abcd")],
            timings: Some(WireTimings { queue_ns: 1500, ..WireTimings::default() }),
            ..ModelInferResponse::default()
        };
        let body = Bytes::from(message.encode_to_vec());
        let answer = answer(&body, |_| Some(Buffer::host(&b"slot"[..]))).unwrap();
        assert_eq!(answer.outputs[0].1.data.as_bytes(), b"slot");
        let inline = answer.outputs[1].1.data.as_bytes();
        assert_eq!(inline, b"abcd");
        assert!(body.as_ptr_range().contains(&inline.as_ptr()), "the bytes were not copied");
        assert_eq!(answer.timings.unwrap().queue, Duration::from_nanos(1500));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let slot = |slot| Some(SlotRange { slot, offset: 0, length: 8 });
        assert!(read(output("INT16", &[2]), &[b"abcd"]).is_ok());
        assert!(read(InferOutputTensor { slot: slot(1), ..output("INT64", &[1]) }, &[]).is_ok());
        for (output, raw) in [
            (output("INT16", &[3]), &[&b"abcd"[..]][..]),
            (output("INT16", &[-2]), &[b"abcd"]),
            (output("INT64", &[i64::MAX, 9]), &[b"abcd"]),
            (output("INT17", &[2]), &[b"abcd"]),
            (output("INT16", &[2]), &[]),
            (InferOutputTensor { slot: slot(2), ..output("INT64", &[1]) }, &[]),
        ] {
            read(output, raw).unwrap_err();
        }
    }

    #[test]
    fn a_failure_keeps_its_kind_and_its_text() {
        let read = |kind: &str| {
            let message = Failure { kind: kind.into(), message: "why".into() };
            failure(&message.encode_to_vec()).unwrap()
        };
        assert_eq!(read("overloaded"), Error::new(ErrorKind::Overloaded, "why"));
        assert_eq!(read("invalid_input").kind, ErrorKind::InvalidInput);
        assert_eq!(read("of the future").kind, ErrorKind::Internal);
    }

    #[test]
    fn what_else_an_answer_says_is_read() {
        let choices = [
            ("flag", Choice::Bool(true), Parameter::Bool(true)),
            ("count", Choice::Int64(-3), Parameter::Int(-3)),
            ("large", Choice::Uint64(u64::MAX), Parameter::Int(i64::MAX)),
            ("ratio", Choice::Double(0.25), Parameter::Double(0.25)),
            ("text", Choice::String("x".into()), Parameter::String("x".into())),
        ];
        let given = choices
            .iter()
            .map(|(key, choice, _)| ((*key).to_owned(), InferParameter { choice: Some(choice.clone()) }));
        let message = ModelInferResponse {
            model_name: "m".into(),
            model_version: "3".into(),
            id: "request".into(),
            parameters: given.chain([("unknown".to_owned(), InferParameter { choice: None })]).collect(),
            ..ModelInferResponse::default()
        };
        let read = answer(&message.encode_to_vec().into(), |_| None).unwrap();
        assert_eq!((&*read.model, &*read.version, &*read.id), ("m", "3", "request"));
        let expected: HashMap<_, _> =
            choices.into_iter().map(|(key, _, value)| (key.to_owned(), value)).collect();
        assert_eq!(read.parameters.into_iter().collect::<HashMap<_, _>>(), expected);
        assert_eq!(read.timings, None);
    }
}
