//! A server's answer to an inference request: JSON, followed by the binary tensors.
//!
//! Nothing in it is trusted: whatever does not fit together is refused with a text that says what.

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Shape, Tensor, element_count};
use kushi_oip::json::read::{self, Value};
use kushi_oip::json::{Fault, Key, Scanner, Span, USUAL_DEPTH};
use kushi_oip::tensor_json::{self, Bounds};

use crate::Answer;

/// Of one answer; each costs many times its bytes in JSON.
const MAX_OUTPUTS: usize = 1024;
const MAX_PARAMETERS: usize = 1024;
/// Of one tensor.
const MAX_DIMENSIONS: usize = 1024;

/// Where the members lie that matter; the first of a name counts.
#[derive(Default)]
struct Document {
    is_object: bool,
    id: Option<Span>,
    model: Option<Span>,
    version: Option<Span>,
    parameters: Vec<(String, Span)>,
    outputs: Option<Vec<JsonOutput>>,
}

#[derive(Default)]
struct JsonOutput {
    name: Option<Span>,
    datatype: Option<Span>,
    shape: Option<Span>,
    data: Option<Span>,
    binary_data_size: Option<Span>,
}

/// Reads the first `json_length` bytes of `body`, all of them if it is `None`, as JSON; the rest is tensor
/// data, which the answer shares without a copy. `max_bytes` bounds what comes out of JSON numbers.
pub(super) fn read(body: &Bytes, json_length: Option<usize>, max_bytes: usize) -> Result<Answer, String> {
    let json_length = json_length.unwrap_or(body.len());
    let json = body.get(..json_length).ok_or_else(|| {
        format!("its JSON is said to have {json_length} bytes, and the whole body has {}", body.len())
    })?;
    let document = scan(json).map_err(|fault| format!("it is no JSON: {}", fault.what()))?;
    if !document.is_object {
        return Err("it is no JSON object".to_owned());
    }
    let outputs = document.outputs.ok_or("it has no list 'outputs'")?;
    if outputs.len() > MAX_OUTPUTS {
        return Err(format!("it has more than {MAX_OUTPUTS} outputs"));
    }
    if document.parameters.len() > MAX_PARAMETERS {
        return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
    }
    let text_or_empty = |span: Option<Span>| match span.map(|span| &json[span]) {
        None | Some(b"null") => Some(String::new()),
        Some(span) => text(span),
    };
    let mut answer = Answer {
        model: text_or_empty(document.model).ok_or("its 'model_name' is no text")?,
        version: text_or_empty(document.version).ok_or("its 'model_version' is no text")?,
        id: text_or_empty(document.id).ok_or("its 'id' is no text")?,
        parameters: Vec::new(),
        outputs: Vec::with_capacity(outputs.len()),
        timings: None,
    };
    for (name, span) in document.parameters {
        // The protocol leaves the types open; what has no counterpart here is left out.
        if let Some(value) = read::parameter(read::value(&json[span])) {
            answer.parameters.push((name, value));
        }
    }
    let mut tail = Tail { body, at: json_length, json_bytes_left: max_bytes };
    for output in outputs {
        let name = output.name.clone().and_then(|span| text(&json[span]));
        let name = name.ok_or("it has an output without a name")?;
        let tensor =
            tensor(json, &name, &output, &mut tail).map_err(|text| format!("output '{name}' {text}"))?;
        answer.outputs.push((name, tensor));
    }
    let mut names: Vec<&str> = answer.outputs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("it has the output '{twice}' twice"));
    }
    match body.len() - tail.at {
        0 => Ok(answer),
        left => Err(format!("it has {left} bytes behind its last output")),
    }
}

fn scan(json: &[u8]) -> Result<Document, Fault> {
    let mut document = Document::default();
    Scanner::new(json).document(|scanner| {
        document.is_object = scanner.is_object();
        if !document.is_object {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            if key.is("outputs") && document.outputs.is_none() && scanner.is_array() {
                document.outputs = Some(scan_outputs(scanner)?);
                return Ok(());
            }
            if key.is("parameters") && document.parameters.is_empty() && scanner.is_object() {
                return scanner.object(|scanner, key| {
                    let span = scanner.skip()?;
                    if document.parameters.len() <= MAX_PARAMETERS {
                        document.parameters.push((key.to_text(), span));
                    }
                    Ok(())
                });
            }
            let span = scanner.skip()?;
            for (name, place) in [
                ("id", &mut document.id),
                ("model_name", &mut document.model),
                ("model_version", &mut document.version),
            ] {
                if key.is(name) {
                    place.get_or_insert(span.clone());
                }
            }
            Ok(())
        })
    })?;
    Ok(document)
}

fn scan_outputs(scanner: &mut Scanner<'_>) -> Result<Vec<JsonOutput>, Fault> {
    let mut outputs = Vec::new();
    scanner.array(|scanner| {
        if outputs.len() > MAX_OUTPUTS {
            return scanner.skip().map(drop);
        }
        let mut output = JsonOutput::default();
        if scanner.is_object() {
            scanner.object(|scanner, key| scan_member(&mut output, scanner, key))?;
        } else {
            scanner.skip()?;
        }
        outputs.push(output);
        Ok(())
    })?;
    Ok(outputs)
}

fn scan_member(output: &mut JsonOutput, scanner: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
    if key.is("parameters") && scanner.is_object() {
        return scanner.object(|scanner, key| {
            let span = scanner.skip()?;
            if key.is("binary_data_size") {
                output.binary_data_size.get_or_insert(span);
            }
            Ok(())
        });
    }
    let place = if key.is("name") {
        &mut output.name
    } else if key.is("datatype") {
        &mut output.datatype
    } else if key.is("shape") {
        &mut output.shape
    } else if key.is("data") {
        &mut output.data
    } else {
        return scanner.skip().map(drop);
    };
    let span = scanner.skip()?;
    place.get_or_insert(span);
    Ok(())
}

fn tensor(json: &[u8], name: &str, output: &JsonOutput, tail: &mut Tail<'_>) -> Result<Tensor, String> {
    let datatype = output.datatype.clone().and_then(|span| text(&json[span])).ok_or("has no datatype")?;
    let datatype: DataType =
        datatype.parse().map_err(|()| format!("has the unknown datatype '{datatype}'"))?;
    let shape = shape(output.shape.clone().map(|span| &json[span]))?;
    let count = element_count(&shape).ok_or_else(|| format!("has a shape beyond all bounds: {shape:?}"))?;
    let data = match (&output.binary_data_size, &output.data) {
        (Some(span), None) => tail.take(read::value(&json[span.clone()]))?,
        (None, Some(span)) => tail.read_json(&json[span.clone()], name, datatype, &shape)?,
        (None, None) if count == 0 => Buffer::host(Bytes::new()),
        (None, None) => return Err("has no data".to_owned()),
        (Some(_), Some(_)) => return Err("has both 'data' and 'binary_data_size'".to_owned()),
    };
    check_size(datatype, &shape, count, data.as_bytes())?;
    let data = if datatype == DataType::Bool { normal(data) } else { data };
    Ok(Tensor { datatype, shape, data })
}

fn shape(array: Option<&[u8]>) -> Result<Shape, String> {
    let array = array.filter(|array| read::value(array) == Value::Array).ok_or("has no list 'shape'")?;
    let mut shape = Shape::new();
    for (depth, value) in read::Leaves::new(array) {
        if shape.len() == MAX_DIMENSIONS {
            return Err(format!("has more than {MAX_DIMENSIONS} dimensions"));
        }
        match value {
            Value::Number(number) if depth == 1 => shape.push(read::signed(number).unwrap_or(-1)),
            _ => return Err("has a 'shape' that is no list of numbers".to_owned()),
        }
    }
    Ok(shape)
}

fn check_size(datatype: DataType, shape: &Shape, count: usize, data: &[u8]) -> Result<(), String> {
    let got = data.len();
    let Some(size) = datatype.size() else {
        return match count_strings(data) {
            Some(strings) if strings == count => Ok(()),
            Some(strings) => Err(format!("has {strings} elements, expected {count} for the shape {shape:?}")),
            None => Err("has an element that is cut short".to_owned()),
        };
    };
    match count.checked_mul(size) {
        Some(expected) if expected == got => Ok(()),
        Some(expected) => {
            Err(format!("has {got} bytes, expected {expected} for {datatype} of the shape {shape:?}"))
        }
        None => Err(format!("has a shape beyond all bounds: {shape:?}")),
    }
}

/// `None` when the last one is cut short.
fn count_strings(mut data: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !data.is_empty() {
        let (length, rest) = data.split_first_chunk::<4>()?;
        data = rest.get(u32::from_le_bytes(*length) as usize..)?;
        count += 1;
    }
    Some(count)
}

/// A truth value is 0 or 1 for whoever reads it next.
fn normal(data: Buffer) -> Buffer {
    if data.as_bytes().iter().all(|&byte| byte <= 1) {
        return data;
    }
    let truths: Vec<u8> = data.as_bytes().iter().map(|&byte| u8::from(byte != 0)).collect();
    Buffer::host(truths)
}

/// The binary tensor data behind the JSON, handed out in order.
struct Tail<'a> {
    body: &'a Bytes,
    at: usize,
    json_bytes_left: usize,
}

impl Tail<'_> {
    fn take(&mut self, size: Value<'_>) -> Result<Buffer, String> {
        let size = match size {
            Value::Number(number) => read::unsigned(number),
            _ => None,
        };
        let size = size.ok_or("has a 'binary_data_size' that is no number")?;
        let left = self.body.len() - self.at;
        match usize::try_from(size) {
            Ok(size) if size <= left => {
                let data = self.body.slice(self.at..self.at + size);
                self.at += size;
                Ok(Buffer::host(data))
            }
            _ => Err(format!("is said to have {size} bytes, and {left} are left of the body")),
        }
    }

    fn read_json(
        &mut self,
        json: &[u8],
        name: &str,
        datatype: DataType,
        shape: &Shape,
    ) -> Result<Buffer, String> {
        if matches!(datatype, DataType::Fp16 | DataType::Bf16) {
            return Err(format!("is {datatype}, which travels only in binary, and came as JSON"));
        }
        let scalar;
        // The product of no dimensions counts as zero there.
        let shape = if shape.is_empty() {
            scalar = Shape::from_slice(&[1]);
            &scalar
        } else {
            shape
        };
        let bounds = Bounds { bytes: self.json_bytes_left, depth: USUAL_DEPTH };
        let data = tensor_json::read(json, name, Some(datatype), shape, bounds)
            .map_err(|error| format!("has 'data' that cannot be read: {}", error.message))?;
        self.json_bytes_left = self.json_bytes_left.saturating_sub(data.len());
        Ok(data)
    }
}

fn text(span: &[u8]) -> Option<String> {
    match read::value(span) {
        Value::String(raw) => Some(read::text(raw).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = r#"{"id":"a\u00e9","parameters":{"x":[1.5],"s":"t"},"outputs":[
        {"name":"A","datatype":"INT32","shape":[2,2],"data":[[1,-2],[3,4]]},
        {"name":"B","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}"#;

    #[test]
    fn the_answer_that_is_changed_below_is_a_good_one() {
        let body: Bytes = [VALID.as_bytes(), b"\x01\0\0\0z"].concat().into();
        let answer = read(&body, Some(VALID.len()), 1 << 20).unwrap();
        assert_eq!((answer.id.as_str(), answer.outputs.len(), answer.parameters.len()), ("aé", 2, 1));
        assert_eq!(answer.outputs[1].1.data.as_bytes().as_ptr(), body[VALID.len()..].as_ptr());
    }

    #[test]
    fn numbers_never_take_more_memory_than_an_answer_may() {
        let body: Bytes = r#"{"outputs":[{"name":"A","datatype":"FP64","shape":[3],"data":[1,2,3]}]}"#.into();
        let refused = read(&body, None, 23).unwrap_err();
        assert!(refused.starts_with("output 'A' has 'data' that cannot be read"), "{refused}");
        assert!(read(&body, None, 24).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in proptest::option::of(0_usize..300),
        ) {
            let _ = read(&bytes.into(), cut, 1 << 20);
        }

        #[test]
        fn any_change_of_a_good_answer_is_refused_or_read(
            at in 0..VALID.len(),
            byte: u8,
            tail in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            let length = bytes.len();
            bytes.extend_from_slice(&tail);
            let _ = read(&bytes.into(), Some(length), 1 << 20);
        }
    }
}
