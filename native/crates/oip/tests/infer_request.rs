//! Requests read where they lie, held against the messages that they are.

use bytes::Bytes;
use kushi_core::{ErrorKind, Parameter};
use kushi_oip::infer_parameter::Choice;
use kushi_oip::infer_request::{InferRequest, MAX_DIMENSIONS, MAX_PARAMETERS, MAX_TENSORS};
use kushi_oip::{
    InferInputTensor, InferParameter, InferRequestedOutputTensor, InferTensorContents, ModelInferRequest,
    SlotRange,
};
use proptest::prelude::*;
use prost::Message;

fn input(name: &str) -> InferInputTensor {
    InferInputTensor { name: name.into(), datatype: "FP32".into(), shape: vec![1], ..Default::default() }
}

fn output(name: &str) -> InferRequestedOutputTensor {
    InferRequestedOutputTensor { name: name.into(), ..Default::default() }
}

/// An output with parameters, some of which have no meaning here.
fn ranked(name: &str, classification: Option<Choice>) -> InferRequestedOutputTensor {
    let binary = ("binary_data".to_owned(), InferParameter { choice: Some(Choice::Bool(true)) });
    let ranked =
        classification.map(|choice| ("classification".to_owned(), InferParameter { choice: Some(choice) }));
    InferRequestedOutputTensor { parameters: [binary].into_iter().chain(ranked).collect(), ..output(name) }
}

fn with(key: &str, choice: Option<Choice>) -> ModelInferRequest {
    let parameters = [(key.to_owned(), InferParameter { choice })].into();
    ModelInferRequest { parameters, ..Default::default() }
}

fn refusal(message: &ModelInferRequest) -> String {
    let error = InferRequest::read(&message.encode_to_vec()).map(drop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    error.message.into_owned()
}

#[test]
fn parameters_with_a_meaning_are_taken_apart() {
    for (choice, expected) in [(Choice::Int64(5), 5), (Choice::Uint64(7), 7)] {
        let timeout = with("timeout", Some(choice.clone())).encode_to_vec();
        assert_eq!(InferRequest::read(&timeout).unwrap().queue_timeout_us, Some(expected));
        let priority = with("priority", Some(choice)).encode_to_vec();
        let read = InferRequest::read(&priority).unwrap();
        assert_eq!((u64::from(read.priority), read.parameters.len()), (expected, 0));
    }
    for (choice, expected) in [
        (Choice::Bool(true), Parameter::Bool(true)),
        (Choice::Int64(-3), Parameter::Int(-3)),
        (Choice::Uint64(3), Parameter::Int(3)),
        (Choice::Double(0.25), Parameter::Double(0.25)),
        (Choice::String("s".into()), Parameter::String("s".into())),
    ] {
        let message = with("own", Some(choice)).encode_to_vec();
        assert_eq!(InferRequest::read(&message).unwrap().parameters, [("own".into(), expected)]);
    }
}

#[test]
fn parameters_that_say_nothing_sensible_are_refused() {
    let text = || Some(Choice::String("1".into()));
    for (key, choice, refused) in [
        ("timeout", text(), "invalid value type for 'timeout' parameter, expected int64_param."),
        ("timeout", Some(Choice::Int64(-1)), "invalid value for 'timeout', expected value >= 0."),
        ("priority", Some(Choice::Int64(-1)), "invalid value for 'priority', expected value >= 0."),
        (
            "priority",
            text(),
            "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
        ),
        (
            "triton_x",
            text(),
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        ("own", None, "parameter 'own' has no value"),
        (
            "own",
            Some(Choice::Uint64(u64::MAX)),
            "parameter 'own' is 18446744073709551615, at most 9223372036854775807 is possible",
        ),
    ] {
        assert_eq!(refusal(&with(key, choice)), refused);
    }
}

#[test]
fn a_number_of_classes_that_is_none_is_refused() {
    for (choice, refused) in [
        (Choice::Int64(-1), "invalid value for 'classification' parameter, expected >= 1"),
        (Choice::Int64(0), "invalid value for 'classification' parameter, expected >= 1"),
        (
            Choice::String("1".into()),
            "invalid value type for 'classification' parameter, expected int64_param",
        ),
        (Choice::Uint64(1), "invalid value type for 'classification' parameter, expected int64_param"),
    ] {
        let message = ModelInferRequest { outputs: vec![ranked("Y", Some(choice))], ..Default::default() };
        assert_eq!(refusal(&message), refused);
    }
}

#[test]
fn everything_that_repeats_is_bounded() {
    let many_inputs = ModelInferRequest { inputs: vec![input("X"); MAX_TENSORS + 1], ..Default::default() };
    let many_outputs = ModelInferRequest {
        inputs: vec![input("X")],
        outputs: vec![output("Y"); MAX_TENSORS],
        ..Default::default()
    };
    let many_contents =
        ModelInferRequest { raw_input_contents: vec![Bytes::new(); MAX_TENSORS + 1], ..Default::default() };
    for message in [many_inputs, many_outputs, many_contents] {
        assert_eq!(refusal(&message), "request has more inputs and outputs than 1024, which is the most");
    }
    let deep = InferInputTensor { shape: vec![1; MAX_DIMENSIONS + 1], ..input("X") };
    let deep = ModelInferRequest { inputs: vec![deep], ..Default::default() };
    assert_eq!(refusal(&deep), "input 'X' has more dimensions than 1024, which is the most");
    let parameters = (0..=MAX_PARAMETERS)
        .map(|number| (number.to_string(), InferParameter { choice: Some(Choice::Bool(true)) }))
        .collect();
    let talkative = ModelInferRequest { parameters, ..Default::default() };
    assert_eq!(refusal(&talkative), "request has more parameters than 1024, which is the most");
}

#[test]
fn typed_contents_are_noticed_and_not_read() {
    let contents = InferTensorContents { fp32_contents: vec![1.0], ..Default::default() };
    let message = ModelInferRequest {
        inputs: vec![InferInputTensor { contents: Some(contents), ..input("X") }],
        ..Default::default()
    };
    assert!(InferRequest::read(&message.encode_to_vec()).unwrap().inputs[0].contents.is_some());
}

fn inputs() -> impl Strategy<Value = InferInputTensor> {
    let shape = prop::collection::vec(any::<i64>(), 0..5);
    let slot = prop::option::of(any::<(u64, u64, u64)>());
    (".{0,5}", ".{0,5}", shape, slot).prop_map(|(name, datatype, shape, slot)| InferInputTensor {
        name,
        datatype,
        shape,
        slot: slot.map(|(slot, offset, length)| SlotRange { slot, offset, length }),
        ..Default::default()
    })
}

fn messages() -> impl Strategy<Value = ModelInferRequest> {
    let names = (".{0,9}", ".{0,3}", ".{0,5}", any::<u64>());
    let contents = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3);
    let outputs = prop::collection::vec((".{0,5}", prop::option::of(1..i64::MAX)), 0..3);
    (names, prop::collection::vec(inputs(), 0..4), outputs, contents).prop_map(
        |((model_name, model_version, id, timeout_us), inputs, outputs, contents)| ModelInferRequest {
            model_name,
            model_version,
            id,
            timeout_us,
            inputs,
            outputs: outputs.iter().map(|(name, count)| ranked(name, count.map(Choice::Int64))).collect(),
            raw_input_contents: contents.into_iter().map(Bytes::from).collect(),
            ..Default::default()
        },
    )
}

/// Both readings of the same bytes say the same.
fn check_same(read: &InferRequest<'_>, message: &ModelInferRequest) {
    assert_eq!(read.model_name, message.model_name);
    assert_eq!(read.model_version, message.model_version);
    assert_eq!(read.id, message.id);
    assert_eq!(read.timeout_us, message.timeout_us);
    assert_eq!(read.inputs.len(), message.inputs.len());
    for (read, input) in read.inputs.iter().zip(&message.inputs) {
        assert_eq!((read.name, read.datatype), (&*input.name, &*input.datatype));
        assert_eq!(read.shape[..], input.shape);
        assert_eq!(read.slot, input.slot);
        assert_eq!(read.contents.is_some(), input.contents.is_some());
    }
    assert_eq!(read.outputs.len(), message.outputs.len());
    for (read, output) in read.outputs.iter().zip(&message.outputs) {
        let choice = output.parameters.get("classification").and_then(|count| count.choice.clone());
        let count = choice.unwrap_or(Choice::Int64(0));
        assert_eq!((read.name, Choice::Int64(read.classes as i64)), (&*output.name, count));
    }
    assert_eq!(read.raw_input_contents[..], message.raw_input_contents);
}

#[test]
fn a_message_of_nothing_but_small_fields_is_refused_before_it_is_read_to_its_end() {
    let too_many = "failed to parse the request: it has too many fields";
    let unknown = [0x78, 0].repeat(1 << 19);
    let in_an_input = [&[0x2a][..], &varint(unknown.len()), &unknown].concat();
    let in_a_parameter = [&[0x22][..], &varint(unknown.len()), &unknown].concat();
    for message in [unknown.clone(), in_an_input, in_a_parameter] {
        assert_eq!(InferRequest::read(&message).unwrap_err().to_string(), too_many);
    }
    let few = [0x78, 0].repeat(1000);
    assert!(InferRequest::read(&few).is_ok());
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

proptest! {
    #[test]
    fn any_message_is_read_as_what_it_is(message in messages()) {
        check_same(&InferRequest::read(&message.encode_to_vec()).unwrap(), &message);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = InferRequest::read(&bytes);
    }

    #[test]
    fn a_message_with_changed_bytes_is_read_or_refused(
        message in messages(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = message.encode_to_vec();
        for (index, byte) in changes {
            if !bytes.is_empty() {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
        }
        let _ = InferRequest::read(&bytes);
    }

    #[test]
    fn a_message_that_ends_early_is_read_or_refused(message in messages(), end in any::<prop::sample::Index>()) {
        let bytes = message.encode_to_vec();
        let _ = InferRequest::read(&bytes[..end.index(bytes.len() + 1)]);
    }
}
