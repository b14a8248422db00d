//! The JSON part of an inference request: what is wanted, and where each tensor's bytes are.
//!
//! Checks run in Triton's order, whatever the order of the members, so that a request with two
//! faults hears of the same one.

use std::borrow::Cow;

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Error, ErrorKind, InputDraft, Parameter, Shape};
use smallvec::SmallVec;

use crate::http::tensor_json;
use crate::json::read::{self, Value};
use crate::json::{Fault, Scanner, Span};

/// Inputs and requested outputs of one request, together.
const MAX_TENSORS: usize = 1024;

pub(crate) struct InferRequest<'a> {
    pub id: String,
    pub parameters: Vec<(String, Parameter)>,
    pub timeout_us: Option<u64>,
    pub inputs: SmallVec<[InputDraft<'a>; 4]>,
    pub outputs: SmallVec<[Output<'a>; 4]>,
    /// How outputs travel that the request does not list.
    pub binary_by_default: bool,
}

pub(crate) struct Output<'a> {
    pub name: Cow<'a, str>,
    pub binary: bool,
}

/// The members that matter, by their place in the document; the first of a name counts.
#[derive(Default)]
struct Document {
    id: Option<Span>,
    parameters: Option<Span>,
    inputs: Option<List<InputSpans>>,
    outputs: Option<List<OutputSpans>>,
    tensors: usize,
}

enum List<T> {
    Items(Vec<T>),
    NotAnArray,
}

#[derive(Default)]
struct InputSpans {
    name: Option<Span>,
    datatype: Option<Span>,
    shape: Option<Span>,
    data: Option<Span>,
    binary_data_size: Option<Span>,
    shared_memory_region: Option<Span>,
}

#[derive(Default)]
struct OutputSpans {
    name: Option<Span>,
    binary_data: Option<Span>,
}

/// Reads the first `json_length` bytes of `body` as JSON; the rest is binary tensor data.
pub(crate) fn parse<'a>(
    body: &'a Bytes,
    json_length: usize,
    model: &str,
    max_input_bytes: usize,
) -> Result<InferRequest<'a>, Error> {
    let json = &body[..json_length];
    let document = scan(json).map_err(|fault| match fault {
        Fault::TooDeep => Error::invalid(format!("Unable to parse 'data': {fault}")),
        Fault::Syntax { .. } => unreadable(fault.to_string()),
    })?;
    let mut request = InferRequest {
        id: String::new(),
        parameters: Vec::new(),
        timeout_us: None,
        inputs: SmallVec::new(),
        outputs: SmallVec::new(),
        binary_by_default: false,
    };
    if let Some(id) = &document.id {
        let id = text(json, Some(id), "id")?;
        request.id = id.split('\0').next().unwrap_or_default().to_owned();
    }
    if document.tensors > MAX_TENSORS {
        return Err(Error::invalid(format!(
            "request has {} inputs and outputs, at most {MAX_TENSORS} are allowed",
            document.tensors
        )));
    }
    if let Some(parameters) = document.parameters {
        request.read_parameters(&json[parameters])?;
    }
    let inputs = items(document.inputs, "inputs")?.ok_or_else(|| missing("inputs"))?;
    let mut tail = Tail { body, at: json_length };
    for spans in &inputs {
        let draft = input(json, spans, &request, &mut tail, model, max_input_bytes)?;
        request.inputs.push(draft);
    }
    if tail.at < body.len() {
        return Err(Error::invalid(format!("unexpected additional input data for model '{model}'")));
    }
    for spans in items(document.outputs, "outputs")?.unwrap_or_default() {
        request.read_output(json, &spans)?;
    }
    Ok(request)
}

fn scan(json: &[u8]) -> Result<Document, Fault> {
    let mut document = Document::default();
    Scanner::new(json).document(|scanner| {
        if !scanner.is_object() {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            let Document { id, parameters, inputs, outputs, tensors } = &mut document;
            if key.is("inputs") && inputs.is_none() {
                *inputs = Some(scan_list(scanner, tensors, scan_input)?);
            } else if key.is("outputs") && outputs.is_none() {
                *outputs = Some(scan_list(scanner, tensors, scan_output)?);
            } else if key.is("id") {
                keep(id, scanner)?;
            } else if key.is("parameters") {
                keep(parameters, scanner)?;
            } else {
                scanner.skip()?;
            }
            Ok(())
        })
    })?;
    Ok(document)
}

fn keep(place: &mut Option<Span>, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let span = scanner.skip()?;
    place.get_or_insert(span);
    Ok(())
}

fn scan_list<T>(
    scanner: &mut Scanner<'_>,
    tensors: &mut usize,
    mut item: impl FnMut(&mut Scanner<'_>) -> Result<T, Fault>,
) -> Result<List<T>, Fault> {
    if !scanner.is_array() {
        scanner.skip()?;
        return Ok(List::NotAnArray);
    }
    let mut items = Vec::new();
    scanner.array(|scanner| {
        *tensors += 1;
        if *tensors > MAX_TENSORS {
            return scanner.skip().map(drop);
        }
        items.push(item(scanner)?);
        Ok(())
    })?;
    Ok(List::Items(items))
}

fn scan_input(scanner: &mut Scanner<'_>) -> Result<InputSpans, Fault> {
    let mut spans = InputSpans::default();
    if !scanner.is_object() {
        scanner.skip()?;
        return Ok(spans);
    }
    let mut seen_parameters = false;
    scanner.object(|scanner, key| {
        let place = if key.is("name") {
            &mut spans.name
        } else if key.is("shape") {
            &mut spans.shape
        } else if key.is("datatype") {
            &mut spans.datatype
        } else if key.is("data") {
            &mut spans.data
        } else if key.is("parameters") && !seen_parameters && scanner.is_object() {
            seen_parameters = true;
            return scanner.object(|scanner, key| match () {
                () if key.is("binary_data_size") => keep(&mut spans.binary_data_size, scanner),
                () if key.is("shared_memory_region") => keep(&mut spans.shared_memory_region, scanner),
                () => scanner.skip().map(drop),
            });
        } else {
            return scanner.skip().map(drop);
        };
        keep(place, scanner)
    })?;
    Ok(spans)
}

fn scan_output(scanner: &mut Scanner<'_>) -> Result<OutputSpans, Fault> {
    let mut spans = OutputSpans::default();
    if !scanner.is_object() {
        scanner.skip()?;
        return Ok(spans);
    }
    scanner.object(|scanner, key| {
        if key.is("name") {
            return keep(&mut spans.name, scanner);
        }
        if !key.is("parameters") || !scanner.is_object() {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            if key.is("binary_data") { keep(&mut spans.binary_data, scanner) } else { scanner.skip().map(drop) }
        })
    })?;
    Ok(spans)
}

impl<'a> InferRequest<'a> {
    fn read_parameters(&mut self, object: &[u8]) -> Result<(), Error> {
        if read::value(object) != Value::Object {
            return Err(unreadable("failed to get request params.: attempt to get members for non-object"));
        }
        let mut members = Vec::new();
        // The span is well formed: the first pass has been over it.
        let _ = Scanner::new(object).object(|scanner, key| {
            members.push((key, scanner.skip()?));
            Ok(())
        });
        for (key, span) in members {
            let value = read::value(&object[span]);
            if key.is("timeout") {
                self.timeout_us = Some(unsigned(value, "timeout")?);
            } else if key.is("priority") {
                unsigned(value, "priority")?;
            } else if key.is("binary_data_output") {
                self.binary_by_default = boolean(value, "binary_data_output")?;
            } else {
                let name = key.to_text();
                let value = parameter(value).ok_or_else(|| {
                    Error::invalid(format!(
                        "parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
                    ))
                })?;
                self.parameters.push((name, value));
            }
        }
        Ok(())
    }

    fn read_output(&mut self, json: &'a [u8], spans: &OutputSpans) -> Result<(), Error> {
        let name = text(json, spans.name.as_ref(), "name")?;
        if self.outputs.iter().any(|output| output.name == name) {
            return Err(Error::invalid(format!("{}output '{name}' already exists in request", prefix(&self.id))));
        }
        let binary = match &spans.binary_data {
            Some(span) => boolean(read::value(&json[span.clone()]), "binary_data")?,
            None => false,
        };
        self.outputs.push(Output { name, binary });
        Ok(())
    }
}

fn input<'a>(
    json: &'a [u8],
    spans: &InputSpans,
    request: &InferRequest<'a>,
    tail: &mut Tail<'_>,
    model: &str,
    max_input_bytes: usize,
) -> Result<InputDraft<'a>, Error> {
    check_one_source(spans)?;
    let name = text(json, spans.name.as_ref(), "name")?;
    let datatype = text(json, spans.datatype.as_ref(), "datatype")?.parse::<DataType>().ok();
    let shape = shape(json, spans.shape.as_ref())?;
    if request.inputs.iter().any(|other| other.name == name) {
        return Err(Error::invalid(format!("{}input '{name}' already exists in request", prefix(&request.id))));
    }
    let data = if let Some(span) = &spans.binary_data_size {
        let size = unsigned(read::value(&json[span.clone()]), "binary_data_size")?;
        tail.take(size, &name, model)?
    } else if let Some(span) = &spans.data {
        tensor_json::read(&json[span.clone()], &name, datatype, &shape, max_input_bytes)?
    } else {
        let text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
        return Err(Error::new(ErrorKind::Unsupported, text));
    };
    Ok(InputDraft { name, datatype, shape, data })
}

fn check_one_source(spans: &InputSpans) -> Result<(), Error> {
    let sources = [
        (&spans.data, "'data'"),
        (&spans.binary_data_size, "'binary_data_size'"),
        (&spans.shared_memory_region, "'shared_memory_region'"),
    ];
    let set: SmallVec<[&str; 3]> =
        sources.iter().filter(|(span, _)| span.is_some()).map(|&(_, name)| name).collect();
    if set.len() == 1 {
        return Ok(());
    }
    let found = if set.is_empty() { "no field is set".into() } else { format!("set {}", set.join(" ")) };
    Err(Error::invalid(format!(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
         'shared_memory_region' in 'parameters'. But {found}"
    )))
}

fn shape(json: &[u8], span: Option<&Span>) -> Result<Shape, Error> {
    let span = span.ok_or_else(|| missing("shape"))?;
    let text = &json[span.clone()];
    if read::value(text) != Value::Array {
        return Err(unreadable("Unable to parse 'shape': attempt to access JSON non-array as array"));
    }
    let mut shape = Shape::new();
    for (depth, value) in read::Leaves::new(text) {
        let value = if depth == 1 { value } else { Value::Array };
        // Beyond i64 Triton wraps around; the checks of the model then refuse the result.
        shape.push(unsigned(value, "shape")? as i64);
    }
    Ok(shape)
}

/// The binary tensor data behind the JSON, handed out in order.
struct Tail<'a> {
    body: &'a Bytes,
    at: usize,
}

impl Tail<'_> {
    fn take(&mut self, size: u64, name: &str, model: &str) -> Result<Buffer, Error> {
        let left = self.body.len() - self.at;
        match usize::try_from(size) {
            Ok(size) if size <= left => {
                let data = self.body.slice(self.at..self.at + size);
                self.at += size;
                Ok(Buffer::host(data))
            }
            _ => Err(Error::invalid(format!(
                "unexpected size for input '{name}', expecting {} additional bytes for model '{model}'",
                size - left as u64
            ))),
        }
    }
}

fn items<T>(list: Option<List<T>>, member: &str) -> Result<Option<Vec<T>>, Error> {
    match list {
        None => Ok(None),
        Some(List::Items(items)) => Ok(Some(items)),
        Some(List::NotAnArray) => {
            Err(unreadable(format!("Unable to parse '{member}': attempt to access JSON non-array as array")))
        }
    }
}

fn text<'a>(json: &'a [u8], span: Option<&Span>, member: &str) -> Result<Cow<'a, str>, Error> {
    let span = span.ok_or_else(|| missing(member))?;
    match read::value(&json[span.clone()]) {
        Value::String(raw) => Ok(match read::unescape(raw) {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }),
        _ => Err(unreadable(format!("Unable to parse '{member}': attempt to access JSON non-string as string"))),
    }
}

fn unsigned(value: Value<'_>, member: &str) -> Result<u64, Error> {
    let number = match value {
        Value::Number(number) => read::unsigned(number),
        _ => None,
    };
    number.ok_or_else(|| {
        let what = "attempt to access JSON non-unsigned-integer as unsigned-integer";
        unreadable(format!("Unable to parse '{member}': {what}"))
    })
}

fn boolean(value: Value<'_>, member: &str) -> Result<bool, Error> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(unreadable(format!("Unable to parse '{member}': attempt to access JSON non-boolean as boolean"))),
    }
}

fn parameter(value: Value<'_>) -> Option<Parameter> {
    match value {
        Value::Bool(value) => Some(Parameter::Bool(value)),
        Value::Number(number) => {
            Some(read::signed(number).map_or_else(|| Parameter::Double(read::double(number)), Parameter::Int))
        }
        Value::String(raw) => Some(Parameter::String(String::from_utf8_lossy(&read::unescape(raw)).into_owned())),
        Value::Array | Value::Object | Value::Null => None,
    }
}

fn missing(member: &str) -> Error {
    unreadable(format!("Unable to parse '{member}': attempt to access non-existing object member '{member}'"))
}

fn unreadable(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnreadableInput, text)
}

fn prefix(id: &str) -> String {
    format!("[request id: {}] ", if id.is_empty() { "<id_unknown>" } else { id })
}
