//! The plain JSON of the extension "generate": its keys are inputs of the model, or parameters.
//!
//! A value is a single element or a list of them; the shape is the model's. What comes back has the
//! outputs by their names, an output of one element without a list, in the order of the names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kushi_core::{
    Buffer, Error, InputDraft, ModelSpec, Parameter, Response, Shape, Tensor, TensorSpec, element_count,
};
use kushi_oip::json::read::{self, Leaves, Value};
use kushi_oip::json::{Fault, Scanner, write};
use kushi_oip::tensor_json;
use kushi_oip::tensor_json::Bounds;
use smallvec::SmallVec;

use crate::limits::HttpLimits;
use crate::limits::MAX_PARAMETERS;
use crate::members::{text, unreadable};

/// What is asked for.
pub(crate) struct GenerateBody<'a> {
    pub id: String,
    pub parameters: Vec<(String, Parameter)>,
    pub inputs: SmallVec<[InputDraft<'a>; 4]>,
}

/// Reads the members in their order: the first that is wrong is the one to hear of.
pub(crate) fn read<'a>(
    json: &'a [u8],
    spec: &ModelSpec,
    limits: &HttpLimits,
) -> Result<GenerateBody<'a>, Error> {
    let mut root = 0..0;
    let scanned = Scanner::with_depth(json, limits.max_json_depth).document(|scanner| {
        root = scanner.skip()?;
        Ok(())
    });
    scanned.map_err(|fault| match fault {
        Fault::TooDeep(_) => Error::invalid(format!("Unable to parse 'data': {fault}")),
        Fault::Syntax { .. } => unreadable(fault.to_string()),
    })?;
    let members = members(&json[root], spec)?;
    let mut id = String::new();
    if let Some((_, value)) = members.iter().flatten().find(|(name, _)| name == "id") {
        let whole = 0..value.len();
        text(value, Some(&whole), "id")?.split('\0').next().unwrap_or_default().clone_into(&mut id);
    }
    let Some(members) = members else { return Err(unreadable("attempt to get members for non-object")) };
    let asked = GenerateBody { id, parameters: Vec::new(), inputs: SmallVec::new() };
    let mut reading = Reading { asked, spec, limits, bytes: 0 };
    for (name, value) in members {
        if name == "parameters" {
            reading.nested(value)?;
        } else {
            reading.member(name, value)?;
        }
    }
    Ok(reading.asked)
}

type Member<'a> = (String, &'a [u8]);

/// Those of a value that has been found well formed; nothing but an object has any.
fn members<'a>(value: &'a [u8], spec: &ModelSpec) -> Result<Option<Vec<Member<'a>>>, Error> {
    if read::value(value) != Value::Object {
        return Ok(None);
    }
    // Each costs many times its bytes in JSON.
    let most = MAX_PARAMETERS + spec.inputs.len() + 1;
    let mut members = Vec::new();
    let mut count = 0_usize;
    let _ = Scanner::new(value).object(|scanner, key| {
        let span = scanner.skip()?;
        count += 1;
        if count <= most {
            members.push((key.to_text(), &value[span]));
        }
        Ok(())
    });
    if count > most {
        let text = format!("request has {count} keys, at most {most} are allowed for model '{}'", spec.name);
        return Err(Error::invalid(text));
    }
    Ok(Some(members))
}

struct Reading<'a, 's> {
    asked: GenerateBody<'a>,
    spec: &'s ModelSpec,
    limits: &'s HttpLimits,
    /// Of the inputs so far.
    bytes: usize,
}

impl<'a> Reading<'a, '_> {
    /// The member `parameters` may have inputs in it too.
    fn nested(&mut self, value: &'a [u8]) -> Result<(), Error> {
        if self.spec.input("parameters").is_some() {
            let text = "Keyword 'parameters' for nested schema also given as input tensor name";
            return Err(Error::invalid(text));
        }
        let Some(members) = members(value, self.spec)? else {
            let text =
                "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object";
            return Err(unreadable(text));
        };
        for (name, value) in members {
            self.member(name, value).map_err(|error| {
                Error::new(error.kind, format!("Converting keyword: 'parameters': {}", error.message))
            })?;
        }
        Ok(())
    }

    fn member(&mut self, name: String, value: &'a [u8]) -> Result<(), Error> {
        match self.spec.input(&name) {
            Some(place) => self.input(name, &self.spec.inputs[place], value),
            None => self.parameter(&name, value),
        }
    }

    fn parameter(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        if self.asked.parameters.len() == MAX_PARAMETERS {
            let text = format!("request has more than {MAX_PARAMETERS} parameters");
            return Err(Error::invalid(text));
        }
        let value = read::parameter(read::value(value)).ok_or_else(|| {
            Error::invalid(format!(
                "parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
            ))
        })?;
        self.asked.parameters.push((name.to_owned(), value));
        Ok(())
    }

    fn input(&mut self, name: String, input: &TensorSpec, value: &'a [u8]) -> Result<(), Error> {
        let count = elements(value);
        let byte_size = match input.datatype.size() {
            Some(size) => count.saturating_mul(size),
            None => string_bytes(value)?,
        };
        // Nothing at all has no shape either: what the model says to that is said when it is bound.
        let (shape, data) = if byte_size == 0 {
            (Shape::new(), Buffer::host(Vec::new()))
        } else {
            self.check_size(&name, byte_size)?;
            let shape = self.shape(&name, input, count)?;
            let bounds = Bounds { bytes: usize::MAX, depth: self.limits.max_json_depth };
            (shape, tensor_json::read_values(value, &name, input.datatype, count, bounds)?)
        };
        if self.asked.inputs.iter().any(|draft| draft.name == name) {
            let error = Error::invalid(format!("input '{name}' already exists in request"));
            return Err(error.of_request(&self.asked.id));
        }
        self.asked.inputs.push(InputDraft { name: name.into(), datatype: Some(input.datatype), shape, data });
        Ok(())
    }

    fn check_size(&mut self, name: &str, byte_size: usize) -> Result<(), Error> {
        let (before, most) = (self.bytes, self.limits.max_input_bytes);
        self.bytes = before.saturating_add(byte_size);
        if self.bytes <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "request size of {before} bytes with input '{name}' of size {byte_size} bytes exceeds the maximum allowed \
             input size of {most}. Use --http-max-input-size to increase the limit."
        )))
    }

    /// Fixed dimensions take their share of the elements, the innermost variable one the rest.
    fn shape(&self, name: &str, input: &TensorSpec, mut count: usize) -> Result<Shape, Error> {
        let no_shape = || {
            Error::invalid(format!("The schema can not convert input '{name}' to tensor with proper shape"))
        };
        let mut shape = Shape::new();
        if self.spec.max_batch_size > 0 {
            shape.push(-1);
        }
        shape.extend_from_slice(&input.dims);
        for &dim in shape.iter().filter(|&&dim| dim > 0) {
            let dim = dim as usize;
            if !count.is_multiple_of(dim) {
                return Err(no_shape());
            }
            count /= dim;
        }
        for dim in shape.iter_mut().rev().filter(|dim| **dim < 0) {
            *dim = count as i64;
            count = 1;
        }
        if count == 1 { Ok(shape) } else { Err(no_shape()) }
    }
}

/// How many there are in the outermost list; a value outside of any is one.
fn elements(value: &[u8]) -> usize {
    if read::value(value) != Value::Array {
        return 1;
    }
    let mut count = 0;
    let _ = Scanner::new(value).array(|scanner| {
        count += 1;
        scanner.skip().map(drop)
    });
    count
}

/// Of the strings with their lengths.
fn string_bytes(value: &[u8]) -> Result<usize, Error> {
    let mut bytes = 0;
    for (_, leaf) in Leaves::new(value) {
        let Value::String(raw) = leaf else {
            let text = "Unable to parse JSON bytes array: attempt to access JSON non-string as string";
            return Err(unreadable(text));
        };
        bytes += 4 + read::unescape(raw).len();
    }
    Ok(bytes)
}

/// One response as an object.
pub(crate) fn write(out: &mut Vec<u8>, spec: &ModelSpec, id: &str, response: &Response) {
    enum Entry<'a> {
        Text(Cow<'a, str>),
        Tensor(&'a Tensor),
        Parameter(&'a Parameter),
    }
    // Of one name the last one counts: what the protocol says, then what the model says beside its outputs.
    let mut entries = BTreeMap::new();
    for (index, tensor) in &response.outputs {
        entries.insert(spec.outputs[usize::from(*index)].name.as_str(), Entry::Tensor(tensor));
    }
    for (name, value) in &response.parameters {
        entries.insert(name, Entry::Parameter(value));
    }
    if !id.is_empty() {
        entries.insert("id", Entry::Text(id.into()));
    }
    entries.insert("model_name", Entry::Text(spec.name.as_str().into()));
    entries.insert("model_version", Entry::Text(spec.version.to_string().into()));
    let mut separator = b'{';
    for (name, entry) in entries {
        out.push(separator);
        separator = b',';
        write::string(out, name.as_bytes());
        out.push(b':');
        match entry {
            Entry::Text(text) => write::string(out, text.as_bytes()),
            Entry::Parameter(value) => write::parameter(out, value),
            Entry::Tensor(tensor) if element_count(&tensor.shape) == Some(1) => write_elements(out, tensor),
            Entry::Tensor(tensor) => {
                out.push(b'[');
                write_elements(out, tensor);
                out.push(b']');
            }
        }
    }
    out.push(b'}');
}

fn write_elements(out: &mut Vec<u8>, tensor: &Tensor) {
    tensor_json::write(out, tensor.datatype, tensor.data.as_bytes());
}

/// What went wrong as an object.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &Error) {
    out.extend_from_slice(b"{\"error\":");
    write::string(out, error.message.as_bytes());
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use kushi_testkit::{echo_spec, tensor_spec};
    use proptest::prelude::*;

    use super::*;

    const VALID: &str =
        r#"{"id":"a\u00e9","INPUT":[1,-2,3],"TEXT":["a",""],"parameters":{"x":1.5,"y":true},"z":"t"}"#;

    fn spec() -> ModelSpec {
        let mut spec = echo_spec();
        spec.inputs.push(tensor_spec("TEXT", kushi_core::DataType::Bytes, &[-1]));
        spec
    }

    fn shape(dims: &[i64], count: usize) -> Option<Vec<i64>> {
        let mut spec = echo_spec();
        spec.inputs = vec![tensor_spec("INPUT", kushi_core::DataType::Int32, dims)];
        let json = format!(r#"{{"INPUT":[{}]}}"#, vec!["1"; count].join(","));
        let asked = read(json.as_bytes(), &spec, &HttpLimits::default()).ok()?;
        Some(asked.inputs[0].shape.to_vec())
    }

    #[test]
    fn elements_fill_fixed_dimensions_and_then_the_innermost_variable_one() {
        assert_eq!(shape(&[4], 8), Some(vec![2, 4]));
        assert_eq!(shape(&[-1], 5), Some(vec![1, 5]));
        assert_eq!(shape(&[-1, 3, -1], 6), Some(vec![1, 1, 3, 2]));
        assert_eq!(shape(&[4], 6), None);
        assert_eq!(shape(&[-1, 3], 4), None);
    }

    #[test]
    fn keys_are_inputs_or_parameters() {
        let (spec, limits) = (spec(), HttpLimits::default());
        let asked = read(VALID.as_bytes(), &spec, &limits).expect("a valid document");
        assert_eq!((asked.id.as_str(), asked.inputs.len()), ("a\u{e9}", 2));
        assert_eq!(asked.inputs[1].data.as_bytes(), b"\x01\0\0\0a\0\0\0\0");
        let names: Vec<&str> = asked.parameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["id", "x", "y", "z"]);
    }

    #[test]
    fn keys_are_bounded() {
        let keys = r#""key":1,"#.repeat(5000);
        for text in [format!("{{{keys}\"id\":\"a\"}}"), format!("{{\"parameters\":{{{keys}\"z\":1}}}}")] {
            let error =
                read(text.as_bytes(), &spec(), &HttpLimits::default()).err().map(|error| error.message);
            let expected = "request has 5001 keys, at most 1027 are allowed for model 'echo'";
            assert!(error.is_some_and(|error| error.ends_with(expected)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, &spec(), &HttpLimits::default());
        }

        #[test]
        fn any_change_of_a_valid_document_is_answered(at in 0..VALID.len(), byte: u8) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = read(&bytes, &spec(), &HttpLimits::default());
        }
    }
}
