//! An inference request on its way out: JSON, followed by the binary tensors where the server takes them.

use bytes::Bytes;
use kushi_core::{DataType, Error, ErrorKind, Parameter};
use kushi_oip::json::write;
use kushi_oip::tensor_json;
use smallvec::SmallVec;

use crate::encode::too_many;
use crate::{Draft, InferCall, WantedOutput};

/// Binary tensors up to this size are copied behind the JSON; larger ones are sent where they lie.
const COPIED_BYTES: usize = 16 << 10;

/// A body, and the length of its JSON when tensors may follow it.
pub(super) struct Message {
    pub pieces: SmallVec<[Bytes; 4]>,
    pub json_length: Option<usize>,
}

/// How tensors travel to a server.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    Binary,
    /// The server is named where it cannot be done.
    Json {
        server: &'a dyn std::fmt::Display,
    },
}

/// `names` are the model's, for inputs given by position.
pub(super) fn write(call: &InferCall, names: &[String], form: Form<'_>) -> Result<Message, Error> {
    let mut json = Vec::with_capacity(512);
    json.push(b'{');
    if !call.id.is_empty() {
        json.extend_from_slice(b"\"id\":");
        write::string(&mut json, call.id.as_bytes());
        json.push(b',');
    }
    write_parameters(&mut json, call, matches!(form, Form::Binary))?;
    json.extend_from_slice(b"\"inputs\":[");
    for (place, input) in call.inputs.iter().enumerate() {
        comma(&mut json, place);
        let name = match &input.name {
            Some(name) => name,
            None => names.get(place).ok_or_else(|| too_many(call, names))?,
        };
        write_input(&mut json, name, input, form)?;
    }
    json.push(b']');
    if !call.outputs.is_empty() {
        json.extend_from_slice(b",\"outputs\":[");
        for (place, output) in call.outputs.iter().enumerate() {
            comma(&mut json, place);
            write_output(&mut json, output, matches!(form, Form::Binary));
        }
        json.push(b']');
    }
    json.push(b'}');
    Ok(match form {
        Form::Binary => with_tensors(json, call),
        Form::Json { .. } => Message { pieces: SmallVec::from_iter([json.into()]), json_length: None },
    })
}

fn comma(json: &mut Vec<u8>, place: usize) {
    if place > 0 {
        json.push(b',');
    }
}

fn write_parameters(json: &mut Vec<u8>, call: &InferCall, binary: bool) -> Result<(), Error> {
    let start = json.len();
    let member = |json: &mut Vec<u8>, name: &str| {
        json.extend_from_slice(if json.len() == start { b"\"parameters\":{" } else { b"," });
        write::string(json, name.as_bytes());
        json.push(b':');
    };
    if binary {
        member(json, "binary_data_output");
        json.extend_from_slice(b"true");
    }
    if call.priority > 0 {
        member(json, "priority");
        write::integer(json, call.priority);
    }
    if let Some(timeout_us) = call.timeout_us {
        member(json, "timeout");
        write::integer(json, timeout_us);
    }
    for (name, value) in &call.parameters {
        member(json, name);
        match value {
            Parameter::Double(value) if !value.is_finite() => {
                return Err(Error::invalid(format!(
                    "parameter '{name}' is {value}, which JSON cannot carry"
                )));
            }
            _ => write::parameter(json, value),
        }
    }
    if json.len() > start {
        json.extend_from_slice(b"},");
    }
    Ok(())
}

fn write_input(json: &mut Vec<u8>, name: &str, input: &Draft, form: Form<'_>) -> Result<(), Error> {
    let tensor = &input.tensor;
    json.extend_from_slice(b"{\"name\":");
    write::string(json, name.as_bytes());
    json.extend_from_slice(b",\"shape\":[");
    for (place, &dim) in tensor.shape.iter().enumerate() {
        comma(json, place);
        write::integer(json, dim);
    }
    json.extend_from_slice(b"],\"datatype\":\"");
    json.extend_from_slice(tensor.datatype.name().as_bytes());
    match form {
        Form::Binary => {
            json.extend_from_slice(b"\",\"parameters\":{\"binary_data_size\":");
            write::integer(json, tensor.data.len());
            json.extend_from_slice(b"}}");
        }
        Form::Json { server } => {
            check_json(name, tensor.datatype, tensor.data.as_bytes(), server)?;
            json.extend_from_slice(b"\",\"data\":[");
            tensor_json::write(json, tensor.datatype, tensor.data.as_bytes());
            json.extend_from_slice(b"]}");
        }
    }
    Ok(())
}

fn write_output(json: &mut Vec<u8>, WantedOutput { name, classes }: &WantedOutput, binary: bool) {
    json.extend_from_slice(b"{\"name\":");
    write::string(json, name.as_bytes());
    if binary {
        json.extend_from_slice(b",\"parameters\":{\"binary_data\":true");
    }
    if *classes > 0 {
        let start: &[u8] = if binary { b"," } else { b",\"parameters\":{" };
        json.extend_from_slice(start);
        json.extend_from_slice(b"\"classification\":");
        write::integer(json, *classes);
    }
    if binary || *classes > 0 {
        json.push(b'}');
    }
    json.push(b'}');
}

/// Refuses what has no form in JSON.
fn check_json(
    name: &str,
    datatype: DataType,
    data: &[u8],
    server: &dyn std::fmt::Display,
) -> Result<(), Error> {
    let what = match datatype {
        DataType::Fp16 | DataType::Bf16 => datatype.name(),
        DataType::Bytes if !is_text(data) => "BYTES that are no UTF-8 text",
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "cannot send input '{name}' to {server}: {what} travel only in binary, and the server has no extension \
             'binary_tensor_data'"
        ),
    ))
}

fn is_text(mut data: &[u8]) -> bool {
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        if std::str::from_utf8(&rest[..length]).is_err() {
            return false;
        }
        data = &rest[length..];
    }
    true
}

/// Small tensors join the JSON, so that they leave in one write.
fn with_tensors(json: Vec<u8>, call: &InferCall) -> Message {
    let json_length = Some(json.len());
    let mut pieces = SmallVec::new();
    let mut open = json;
    for input in &call.inputs {
        let data = &input.tensor.data;
        if data.len() <= COPIED_BYTES {
            open.extend_from_slice(data.as_bytes());
        } else {
            pieces.push(std::mem::take(&mut open).into());
            pieces.push(data.clone().into_bytes());
        }
    }
    pieces.push(open.into());
    Message { pieces, json_length }
}

#[cfg(test)]
mod tests {
    use kushi_core::{Buffer, Tensor};

    use super::*;

    fn draft(name: Option<&str>, datatype: DataType, shape: &[i64], data: impl Into<Bytes>) -> Draft {
        let tensor = Tensor { datatype, shape: shape.into(), data: Buffer::host(data) };
        Draft { name: name.map(str::to_owned), tensor }
    }

    fn call(inputs: impl IntoIterator<Item = Draft>) -> InferCall {
        InferCall { model: "m".into(), inputs: inputs.into_iter().collect(), ..InferCall::default() }
    }

    fn text(message: &Message) -> String {
        String::from_utf8(message.pieces.concat()).unwrap()
    }

    const JSON: Form<'static> = Form::Json { server: &"http://h" };

    #[test]
    fn writes_everything_that_was_given() {
        let mut call = call([draft(Some("A\""), DataType::Int8, &[1, 2], &b"ab"[..])]);
        call.id = "7".into();
        call.outputs =
            [("O", 0), ("P", 3)].map(|(name, classes)| WantedOutput { name: name.into(), classes }).into();
        call.priority = 2;
        call.timeout_us = Some(5);
        call.parameters = vec![
            ("b".into(), Parameter::Bool(false)),
            ("i".into(), Parameter::Int(-3)),
            ("d".into(), Parameter::Double(2.0)),
            ("s".into(), Parameter::String("x".into())),
        ];
        let message = write(&call, &[], Form::Binary).unwrap();
        let json = r#"{"id":"7","parameters":{"binary_data_output":true,"priority":2,"timeout":5,"b":false,"i":-3,"d":2.0,"s":"x"},"inputs":[{"name":"A\"","shape":[1,2],"datatype":"INT8","parameters":{"binary_data_size":2}}],"outputs":[{"name":"O","parameters":{"binary_data":true}},{"name":"P","parameters":{"binary_data":true,"classification":3}}]}"#;
        assert_eq!(text(&message), format!("{json}ab"));
        assert_eq!(message.json_length, Some(json.len()));
    }

    #[test]
    fn plain_json_has_no_trace_of_the_extension() {
        let strings = b"\x01\0\0\0a\x02\0\0\0\xc3\xa9";
        let mut call = call([
            draft(Some("A"), DataType::Fp32, &[2], [1.5_f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat()),
            draft(Some("S"), DataType::Bytes, &[2], &strings[..]),
        ]);
        call.outputs =
            [("O", 0), ("P", 3)].map(|(name, classes)| WantedOutput { name: name.into(), classes }).into();
        let message = write(&call, &[], JSON).unwrap();
        assert_eq!(
            text(&message),
            r#"{"inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[1.5,NaN]},{"name":"S","shape":[2],"datatype":"BYTES","data":["a","é"]}],"outputs":[{"name":"O"},{"name":"P","parameters":{"classification":3}}]}"#
        );
        assert_eq!(message.json_length, None);
    }

    #[test]
    fn what_json_cannot_carry_is_refused() {
        for (datatype, data, what) in [
            (DataType::Fp16, &b"\0\0"[..], "FP16"),
            (DataType::Bf16, b"\0\0", "BF16"),
            (DataType::Bytes, b"\x01\0\0\0\xff", "BYTES that are no UTF-8 text"),
        ] {
            let refused = write(&call([draft(Some("A"), datatype, &[1], data)]), &[], JSON).err().unwrap();
            assert_eq!(
                refused.message,
                format!(
                    "cannot send input 'A' to http://h: {what} travel only in binary, and the server has no extension \
                     'binary_tensor_data'"
                )
            );
        }
        let mut call = call([]);
        call.parameters = vec![("p".into(), Parameter::Double(f64::NAN))];
        let refused = write(&call, &[], Form::Binary).err().unwrap();
        assert_eq!(refused.message, "parameter 'p' is NaN, which JSON cannot carry");
    }

    #[test]
    fn positions_become_the_names_of_the_model() {
        let inputs =
            || [draft(None, DataType::Int8, &[1], &b"a"[..]), draft(None, DataType::Int8, &[1], &b"b"[..])];
        let names = ["A".to_owned(), "B".to_owned()];
        let message = write(&call(inputs()), &names, JSON).unwrap();
        assert!(text(&message).contains(r#""name":"B","shape":[1],"datatype":"INT8","data":[98]"#));
        let refused = write(&call(inputs()), &names[..1], JSON).err().unwrap();
        assert_eq!(
            refused.message,
            "[request id: <id_unknown>] expected 1 inputs but got 2 inputs for model 'm'"
        );
    }

    #[test]
    fn large_tensors_are_sent_where_they_lie() {
        let large = Bytes::from(vec![1; COPIED_BYTES + 1]);
        let call = call([
            draft(Some("A"), DataType::Int8, &[1], &b"a"[..]),
            draft(Some("L"), DataType::Int8, &[1], large.clone()),
            draft(Some("B"), DataType::Int8, &[1], &b"b"[..]),
        ]);
        let message = write(&call, &[], Form::Binary).unwrap();
        assert_eq!(message.pieces.len(), 3);
        assert_eq!(message.pieces[1].as_ptr(), large.as_ptr());
        assert_eq!((message.pieces[0].last(), &message.pieces[2][..]), (Some(&b'a'), &b"b"[..]));
    }
}
