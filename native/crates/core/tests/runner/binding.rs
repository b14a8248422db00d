//! A request is held against its model, with the texts that Triton's clients know.

use std::cell::RefCell;

use kushi_core::{Bound, Buffer, DataType, Error, ErrorKind, InputData, InputDraft, ModelSpec, Shape};
use kushi_testkit::{echo_spec, tensor_spec};
use smallvec::SmallVec;

fn draft(name: &'static str, shape: &[i64], bytes: usize) -> InputDraft<'static> {
    InputDraft {
        name: name.into(),
        datatype: Some(DataType::Int32),
        shape: Shape::from_slice(shape),
        data: Buffer::host(vec![0; bytes]),
    }
}

/// Inputs `A` and `B` of four elements, `C` optional; batches of up to 8.
fn spec() -> ModelSpec {
    let mut inputs = ["A", "B", "C"].map(|name| tensor_spec(name, DataType::Int32, &[4])).to_vec();
    inputs[2].optional = true;
    let outputs = vec![tensor_spec("X", DataType::Int32, &[4]), tensor_spec("Y", DataType::Int32, &[4])];
    ModelSpec { name: "m".into(), inputs, outputs, ..echo_spec() }
}

fn without_optional() -> ModelSpec {
    let mut spec = spec();
    spec.inputs.truncate(2);
    spec
}

fn nothing() -> SmallVec<[InputDraft<'static>; 4]> {
    SmallVec::new()
}

fn bind(spec: &ModelSpec, drafts: &[InputDraft<'static>]) -> Result<Bound, Error> {
    spec.bind("", drafts.iter().cloned().collect(), &[])
}

/// The text behind the prefix that names the request.
fn text(spec: &ModelSpec, drafts: &[InputDraft<'static>]) -> String {
    match bind(spec, drafts) {
        Ok(bound) => panic!("it binds: {bound:?}"),
        Err(Error { kind, message }) => {
            assert_eq!(kind, ErrorKind::InvalidInput);
            message.strip_prefix("[request id: <id_unknown>] ").unwrap_or(&message).to_owned()
        }
    }
}

#[test]
fn inputs_come_into_the_models_order_and_outputs_ascend_once() {
    let drafts = [draft("B", &[2, 4], 32), draft("A", &[2, 4], 32)];
    let bound = spec().bind("", drafts.into_iter().collect(), &["Y", "X", "Y"]);
    let Ok(Bound { inputs, wanted, rows }) = bound else { panic!("it binds") };
    assert_eq!(rows, 2);
    assert_eq!(wanted.as_slice(), [0, 1]);
    assert_eq!(inputs.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn the_text_names_the_request() {
    let error = spec().bind("r7", nothing(), &[]).err();
    assert!(
        error.is_some_and(|error| error.message.starts_with("[request id: r7] expected number of inputs"))
    );
}

#[test]
fn a_wrong_number_of_inputs_lists_what_is_missing() {
    let a = || draft("A", &[1, 4], 16);
    assert_eq!(
        text(&without_optional(), &[a()]),
        "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required input(s) \
         ['B']. Please provide all required input(s)."
    );
    assert_eq!(
        text(&spec(), &[]),
        "expected number of inputs between 2 and 3 but got 0 inputs for model 'm'. Got input(s) [], but missing \
         required input(s) ['A','B']. Please provide all required input(s)."
    );
    assert_eq!(
        text(&without_optional(), &[a(), draft("B", &[1, 4], 16), draft("Z", &[1, 4], 16)]),
        "expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['A','B','Z'], but missing required \
         input(s) ]. Please provide all required input(s). \
         The model has no input(s) ['Z']."
    );
}

#[test]
fn an_optional_input_does_not_stand_in_for_a_required_one() {
    assert_eq!(
        text(&spec(), &[draft("A", &[1, 4], 16), draft("C", &[1, 4], 16)]),
        "expected number of inputs between 2 and 3 but got 2 inputs for model 'm'. Got input(s) ['A','C'], but \
         missing required input(s) ['B']. Please provide all required input(s)."
    );
}

#[test]
fn an_input_given_twice_does_not_stand_in_for_another() {
    let twice = [draft("A", &[1, 4], 16), draft("A", &[1, 4], 16)];
    assert_eq!(text(&without_optional(), &twice), "input 'A' already exists in request");
}

#[test]
fn unknown_names_are_refused_without_a_prefix() {
    let drafts = [draft("A", &[1, 4], 16), draft("Z", &[1, 4], 16)];
    assert_eq!(text(&spec(), &drafts), "unexpected inference input 'Z' for model 'm'");
    let error = spec().bind("", nothing(), &["Z"]).err();
    assert!(error.is_some_and(|error| error.message == "unexpected inference output 'Z' for model 'm'"));
}

#[test]
fn batch_dimensions_must_exist_agree_and_fit() {
    let pair = |a: &[i64], b: &[i64]| {
        let bytes = |shape: &[i64]| shape.iter().product::<i64>().max(0) as usize * 4;
        text(&spec(), &[draft("A", a, bytes(a)), draft("B", b, bytes(b))])
    };
    assert_eq!(pair(&[], &[1, 4]), "input 'A' has no shape but model requires batch dimension for 'm'");
    let differs = "input 'B' batch size does not match other inputs for 'm'";
    assert_eq!(pair(&[1, 4], &[2, 4]), differs);
    assert_eq!(pair(&[0, 4], &[2, 4]), differs);
    let too_large = "inference request batch-size must be <= 8 for 'm'";
    assert_eq!(pair(&[9, 4], &[9, 4]), too_large);
    assert_eq!(pair(&[-1, 4], &[-1, 4]), too_large);
    let lacking = ". Shape [12] of input 'A' lacks the batch dimension, which for one row makes it [1,12]";
    assert_eq!(pair(&[12], &[12]), format!("{too_large}{lacking}"));
}

#[test]
fn types_shapes_and_sizes_must_be_the_models() {
    let one = |a: InputDraft<'static>| text(&spec(), &[a, draft("B", &[1, 4], 16)]);
    let of_type = |datatype| InputDraft { datatype, ..draft("A", &[1, 4], 16) };
    assert_eq!(
        one(of_type(Some(DataType::Fp32))),
        "inference input 'A' data-type is 'FP32', but model 'm' expects 'INT32'"
    );
    assert_eq!(
        one(of_type(None)),
        "inference input 'A' data-type is '<invalid>', but model 'm' expects 'INT32'"
    );
    assert!(
        one(draft("A", &[1, 5], 20))
            .starts_with("unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [1,5]. NOTE:")
    );
    assert_eq!(
        one(draft("A", &[1, 4], 12)),
        "input byte size mismatch for input 'A' for model 'm'. Expected 16, got 12"
    );
    assert_eq!(
        one(draft("A", &[1, -1], 16)),
        "All input dimensions should be specified for input 'A' for model 'm', got [1,-1]"
    );
}

#[test]
fn no_shape_overflows() {
    let mut spec = without_optional();
    for input in &mut spec.inputs {
        input.dims = vec![-1, -1];
    }
    let one = |shape: &[i64]| text(&spec, &[draft("A", shape, 16), draft("B", shape, 16)]);
    for shape in [[1, i64::MAX, 2], [1, 1 << 61, 1], [1, -2, -2]] {
        assert_eq!(one(&shape), "byte size for tensor 'A' exceeds maximum size of 9223372036854775807");
    }
}

#[test]
fn elements_of_bytes_are_counted_and_measured() {
    let mut spec = without_optional();
    spec.inputs.truncate(1);
    spec.inputs[0] = tensor_spec("S", DataType::Bytes, &[2]);
    let strings = |bytes: &[u8]| InputDraft {
        datatype: Some(DataType::Bytes),
        data: Buffer::host(bytes.to_vec()),
        ..draft("S", &[1, 2], 0)
    };
    let whole = b"\x01\0\0\0a\0\0\0\0";
    assert!(bind(&spec, &[strings(whole)]).is_ok());
    for (bytes, expected) in [
        (&whole[..5], "expected 2 string elements for inference input 'S' for model 'm', got 1"),
        (
            &whole[..7],
            "incomplete string length indicator for inference input 'S' for model 'm', expecting 4",
        ),
        (
            b"\0\0\0\0\x05\0\0\0ab",
            "incomplete string data for inference input 'S', expecting string of length 5 but only 2 bytes",
        ),
        (
            b"\0\0\0\0\0\0\0\0\0\0\0\0",
            "unexpected number of string elements 3 for inference input 'S' for model 'm', expecting 2",
        ),
    ] {
        let text = text(&spec, &[strings(bytes)]);
        assert!(text.starts_with(expected), "{text}");
    }
}

/// Bytes that lie elsewhere; notes when they are fetched.
struct Elsewhere<'a>(usize, &'a RefCell<usize>);

impl InputData for Elsewhere<'_> {
    fn byte_size(&self) -> usize {
        self.0
    }

    fn fetch(self) -> Result<Buffer, Error> {
        *self.1.borrow_mut() += 1;
        Ok(Buffer::host(vec![0; self.0]))
    }
}

#[test]
fn bytes_are_fetched_once_all_else_about_an_input_is_right() {
    let fetched = RefCell::new(0);
    let bind = |datatype, shape: &[i64], bytes| {
        let drafts = ["A", "B"].map(|name| InputDraft {
            name: name.into(),
            datatype: Some(datatype),
            shape: Shape::from_slice(shape),
            data: Elsewhere(bytes, &fetched),
        });
        spec().bind("", drafts.into_iter().collect(), &[])
    };
    assert!(bind(DataType::Fp32, &[1, 4], 16).is_err());
    assert!(bind(DataType::Int32, &[1, 5], 20).is_err());
    assert!(bind(DataType::Int32, &[9, 4], 144).is_err());
    assert!(bind(DataType::Int32, &[1, 4], usize::MAX).is_err());
    assert_eq!(*fetched.borrow(), 0);
    let bound = bind(DataType::Int32, &[2, 4], 32);
    assert_eq!(*fetched.borrow(), 2);
    assert_eq!(bound.map(|bound| bound.rows), Ok(2));
}
