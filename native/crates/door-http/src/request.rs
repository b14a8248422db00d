//! The JSON part of an inference request: its parameters, and what is wanted of which tensors.
//!
//! Checks run in Triton's order, whatever the order of the members, so that a request with two
//! faults hears of the same one.

use std::sync::Arc;

use bytes::Bytes;
use kushi_core::{Error, InputData, InputDraft, Parameter, Sequence, SequenceId};
use kushi_dataplane::check_region_bytes;
use kushi_oip::json::read::{self, Value};
use kushi_oip::json::{Fault, Scanner};
use kushi_shm::Regions;
use smallvec::SmallVec;

use crate::document::{List, OutputSpans, scan};
use crate::inputs::{self, Names, Scope, Tail};
use crate::limits::MAX_PARAMETERS;
use crate::members::{NOT_UNSIGNED, boolean, missing, number, text, unreadable, unsigned};
use crate::outputs::{WantedOutput, Way};
use crate::shared_memory::{self, InputSource};

#[derive(Default)]
pub(crate) struct InferRequest<'a> {
    pub id: String,
    /// Without those that have a meaning.
    pub parameters: Vec<(String, Parameter)>,
    pub priority: u32,
    pub timeout_us: Option<u64>,
    pub sequence: Option<Box<Sequence>>,
    pub inputs: SmallVec<[InputDraft<'a, InputSource<'a>>; 4]>,
    pub outputs: Vec<WantedOutput<'a>>,
    /// How outputs travel that the request does not list.
    pub binary_by_default: bool,
}

/// Reads the first `json_length` bytes of `body` as JSON; the rest is binary tensor data.
pub(crate) fn parse<'a>(
    body: &'a Bytes,
    json_length: usize,
    scope: Scope<'a>,
) -> Result<InferRequest<'a>, Error> {
    let json = &body[..json_length];
    let limits = scope.limits;
    let document = scan(json, limits).map_err(|fault| match fault {
        Fault::TooDeep(_) => Error::invalid(format!("Unable to parse 'data': {fault}")),
        Fault::Syntax { .. } => unreadable(fault.to_string()),
    })?;
    let mut request = InferRequest::default();
    if let Some(id) = &document.id {
        let id = text(json, Some(id), "id")?;
        id.split('\0').next().unwrap_or_default().clone_into(&mut request.id);
    }
    if document.tensors > limits.max_tensors {
        return Err(Error::invalid(format!(
            "request has {} inputs and outputs, at most {} are allowed (--http-max-tensors)",
            document.tensors, limits.max_tensors
        )));
    }
    if let Some(parameters) = document.parameters {
        request.read_parameters(&json[parameters])?;
    }
    let inputs = items(document.inputs, "inputs")?.ok_or_else(|| missing("inputs"))?;
    let mut tail = Tail { body, at: json_length };
    let mut names = Names::default();
    for spans in &inputs {
        let draft = inputs::read(json, spans, &request.id, &mut names, &mut tail, scope)?;
        request.inputs.push(draft);
    }
    if tail.at < body.len() {
        let text = format!("unexpected additional input data for model '{}'", scope.model);
        return Err(Error::invalid(text));
    }
    let mut names = Names::default();
    for spans in items(document.outputs, "outputs")?.unwrap_or_default() {
        request.read_output(json, &spans, &mut names, scope.regions)?;
    }
    request.check_region_bytes()?;
    Ok(request)
}

impl<'a> InferRequest<'a> {
    fn read_parameters(&mut self, object: &[u8]) -> Result<(), Error> {
        if read::value(object) != Value::Object {
            return Err(unreadable("failed to get request params.: attempt to get members for non-object"));
        }
        let mut members: SmallVec<[_; 4]> = SmallVec::new();
        let mut count = 0_usize;
        // The span is well formed: the first pass has been over it.
        let _ = Scanner::new(object).object(|scanner, key| {
            let span = scanner.skip()?;
            count += 1;
            if count <= MAX_PARAMETERS {
                members.push((key, span));
            }
            Ok(())
        });
        if count > MAX_PARAMETERS {
            let text = format!("request has {count} parameters, at most {MAX_PARAMETERS} are allowed");
            return Err(Error::invalid(text));
        }
        for (key, span) in members {
            let value = read::value(&object[span.clone()]);
            if key.is("timeout") {
                self.timeout_us = Some(unsigned(value, "timeout")?);
            } else if key.is("priority") {
                self.priority = unsigned(value, "priority")?.try_into().unwrap_or(u32::MAX);
            } else if key.is("binary_data_output") {
                self.binary_by_default = boolean(value, "binary_data_output")?;
            } else if key.is("sequence_id") {
                Sequence::of(&mut self.sequence).id = match number(value) {
                    Some(id) => SequenceId::Number(id),
                    None => SequenceId::Text(text(object, Some(&span), "sequence_id")?.into_owned()),
                };
            } else if key.is("sequence_start") {
                Sequence::of(&mut self.sequence).start = boolean(value, "sequence_start")?;
            } else if key.is("sequence_end") {
                Sequence::of(&mut self.sequence).end = boolean(value, "sequence_end")?;
            } else {
                let name = key.to_text();
                if name.starts_with("triton_") {
                    let text = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.";
                    return Err(Error::invalid(text));
                }
                let value = read::parameter(value).ok_or_else(|| {
                    Error::invalid(format!(
                        "parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
                    ))
                })?;
                self.parameters.push((name, value));
            }
        }
        Ok(())
    }

    fn read_output(
        &mut self,
        json: &'a [u8],
        spans: &OutputSpans,
        names: &mut Names<'a>,
        regions: &Arc<Regions>,
    ) -> Result<(), Error> {
        check_one_way(json, spans)?;
        let name = text(json, spans.name.as_ref(), "name")?;
        if !names.insert(name.clone()) {
            let error = Error::invalid(format!("output '{name}' already exists in request"));
            return Err(error.of_request(&self.id));
        }
        let classes = match &spans.classification {
            None => 0,
            Some(span) => number(read::value(&json[span.clone()]))
                .ok_or_else(|| unreadable(format!("Unable to set 'classification': {NOT_UNSIGNED}")))?,
        };
        let way = if let Some(range) = shared_memory::range(json, &spans.region, regions)? {
            Way::Region(range)
        } else {
            let value = spans.binary_data.as_ref().map(|span| read::value(&json[span.clone()]));
            let binary = value.map_or(Ok(false), |value| boolean(value, "binary_data"))?;
            if binary { Way::Binary } else { Way::Json }
        };
        let classes = usize::try_from(classes).unwrap_or(usize::MAX);
        self.outputs.push(WantedOutput { name, way, classes });
        Ok(())
    }

    /// What is read from regions is bounded as what comes in a body.
    fn check_region_bytes(&self) -> Result<(), Error> {
        let in_regions = self.inputs.iter().filter(|draft| matches!(draft.data, InputSource::Region(..)));
        check_region_bytes(in_regions.map(|draft| draft.data.byte_size()))
    }
}

/// An output in a region comes in no other way.
fn check_one_way(json: &[u8], spans: &OutputSpans) -> Result<(), Error> {
    if spans.region.name.is_none() {
        return Ok(());
    }
    if spans.classification.is_some() {
        return Err(Error::invalid("Output can't set both 'shared_memory_region' and 'classification'"));
    }
    match spans.binary_data.as_ref().map(|span| read::value(&json[span.clone()])) {
        None | Some(Value::Bool(false)) => Ok(()),
        Some(Value::Bool(true)) => {
            Err(Error::invalid("Output can't set both 'shared_memory_region' and 'binary_data'"))
        }
        Some(_) => {
            let text = "Unable to set 'binary_data': attempt to access JSON non-boolean as boolean";
            Err(unreadable(text))
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

#[cfg(test)]
mod tests {
    use kushi_core::DataType;
    use proptest::prelude::*;

    use kushi_net::BodyMemory;

    use super::*;
    use crate::HttpLimits;
    use kushi_oip::tensor_json::{self, Bounds};

    const VALID: &str = r#"{"id":"a\u00e9","parameters":{"timeout":5,"x":[1.5],"s":"t"},"inputs":[
        {"name":"A","datatype":"INT32","shape":[2,2],"data":[[1,-2],[3,4]]},
        {"name":"B","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}],
        "outputs":[{"name":"O","parameters":{"binary_data":true}}]}"#;

    #[derive(Default)]
    struct Place {
        regions: Arc<Regions>,
        memory: BodyMemory,
        limits: HttpLimits,
    }

    impl Place {
        fn parse<'a>(&'a self, body: &'a Bytes, json_length: usize) -> Result<InferRequest<'a>, Error> {
            let Self { regions, memory, limits } = self;
            parse(body, json_length, Scope { model: "m", limits, regions, memory })
        }
    }

    fn parse_text(text: &str, tail: &[u8]) -> Result<usize, Error> {
        let body: Bytes = [text.as_bytes(), tail].concat().into();
        Place::default().parse(&body, text.len()).map(|request| request.inputs.len())
    }

    fn bytes<'a>(request: &'a InferRequest<'_>, input: usize) -> &'a [u8] {
        match &request.inputs[input].data {
            InputSource::Here(buffer) => buffer.as_bytes(),
            InputSource::Region(..) => panic!("the bytes are in the request"),
        }
    }

    #[test]
    fn members_may_come_in_any_order_and_the_first_of_a_name_counts() {
        let text = r#"{"outputs":[],"id":"x","id":"y","inputs":[{"data":[1],"shape":[1],"name":"A","datatype":"INT8"}]}"#;
        let body: Bytes = text.as_bytes().to_vec().into();
        let place = Place::default();
        let request = place.parse(&body, body.len()).unwrap();
        assert_eq!((request.id.as_str(), &*request.inputs[0].name), ("x", "A"));
        assert_eq!(bytes(&request, 0), [1]);
    }

    #[test]
    fn binary_data_is_taken_from_behind_the_json_without_a_copy() {
        let text = VALID.replace("\"x\":[1.5],", "");
        let body: Bytes = [text.as_bytes(), b"\x01\0\0\0z"].concat().into();
        let place = Place::default();
        let request = place.parse(&body, text.len()).unwrap();
        assert_eq!(bytes(&request, 1).as_ptr(), body[text.len()..].as_ptr());
        assert_eq!(request.timeout_us, Some(5));
    }

    #[test]
    fn dimensions_and_parameters_are_bounded() {
        let dims = "1,".repeat(5000);
        let text = format!(r#"{{"inputs":[{{"name":"A","datatype":"INT8","data":[],"shape":[{dims}1]}}]}}"#);
        let error = parse_text(&text, b"").unwrap_err();
        assert_eq!(error.message, "input 'A' has more than 1024 dimensions");
        let members = r#""p":1,"#.repeat(5000);
        let error = parse_text(&format!(r#"{{"parameters":{{{members}"q":1}}}}"#), b"").unwrap_err();
        assert_eq!(error.message, "request has 5001 parameters, at most 1024 are allowed");
    }

    #[test]
    fn a_name_that_comes_twice_is_found_among_few_and_many() {
        for (first, second) in [(0, 1), (1, 19), (10, 19)] {
            let name = |place: usize| if place == second { first } else { place };
            let inputs: Vec<String> = (0..20)
                .map(|place| {
                    format!(r#"{{"name":"I{}","datatype":"INT8","shape":[1],"data":[1]}}"#, name(place))
                })
                .collect();
            let error = parse_text(&format!(r#"{{"inputs":[{}]}}"#, inputs.join(",")), b"").unwrap_err();
            let text = format!("[request id: <id_unknown>] input 'I{first}' already exists in request");
            assert_eq!(error.message, text);
        }
    }

    #[test]
    fn too_many_tensors_are_refused_before_they_are_read() {
        let inputs = vec![r#"{"name":"A"}"#; 100_000].join(",");
        let error = parse_text(&format!(r#"{{"inputs":[{inputs}]}}"#), b"").unwrap_err();
        assert_eq!(
            error.message,
            "request has 100000 inputs and outputs, at most 1024 are allowed (--http-max-tensors)"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let body: Bytes = bytes.into();
            let cut = cut.min(body.len());
            let _ = Place::default().parse(&body, cut);
        }

        #[test]
        fn any_change_of_a_valid_request_is_answered(at in 0..VALID.len(), byte: u8, tail in proptest::collection::vec(any::<u8>(), 0..8)) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            let length = bytes.len();
            bytes.extend_from_slice(&tail);
            let _ = Place::default().parse(&bytes.into(), length);
        }

        #[test]
        fn numbers_and_strings_arrive_as_they_were_written(
            numbers in proptest::collection::vec(any::<f64>(), 1..20),
            texts in proptest::collection::vec(any::<String>(), 1..20),
        ) {
            let finite: Vec<f64> = numbers.into_iter().filter(|number| number.is_finite()).collect();
            let text = serde_json::json!({"inputs": [
                {"name": "N", "datatype": "FP64", "shape": [finite.len()], "data": finite},
                {"name": "S", "datatype": "BYTES", "shape": [texts.len()], "data": texts},
            ]}).to_string();
            let body: Bytes = text.into_bytes().into();
            let place = Place::default();
            let request = place.parse(&body, body.len()).unwrap();
            let numbers: Vec<u8> = finite.iter().flat_map(|number| number.to_le_bytes()).collect();
            prop_assert_eq!(bytes(&request, 0), numbers);
            let strings: Vec<u8> = texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()).collect();
            prop_assert_eq!(bytes(&request, 1), strings);
        }

        #[test]
        fn what_is_written_reads_back(values in proptest::collection::vec(any::<f64>(), 1..20)) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut out = b"[".to_vec();
            tensor_json::write(&mut out, DataType::Fp64, &bytes);
            out.push(b']');
            let shape = [values.len() as i64];
            let read = tensor_json::read(&out, "X", Some(DataType::Fp64), &shape, Bounds { bytes: 1 << 20, depth: 100 }).unwrap();
            let same = read.as_bytes().as_chunks::<8>().0.iter().zip(&values);
            for (read, value) in same {
                let read = f64::from_le_bytes(*read);
                prop_assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()));
            }
        }
    }
}
