//! Which outputs of an answer become their best classes.

use std::sync::Arc;

use kushi_core::{Buffer, DataType, Labels, ModelSpec, Response, Shape, Tensor, TensorSpec};
use kushi_testkit::{echo_spec, tensor_spec};

fn scores() -> Tensor {
    let bytes: Vec<u8> = [0.5_f32, 0.25].iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { datatype: DataType::Fp32, shape: Shape::from_slice(&[1, 2]), data: Buffer::host(bytes) }
}

/// Scores `A` and `C` with a label for their first class, scores `B` without, and a mask `M`.
fn spec() -> ModelSpec {
    let labelled =
        |name| TensorSpec { labels: vec!["cat".into()].into(), ..tensor_spec(name, DataType::Fp32, &[-1]) };
    let plain = |name, datatype| tensor_spec(name, datatype, &[-1]);
    let outputs = vec![labelled("A"), plain("B", DataType::Fp32), labelled("C"), plain("M", DataType::Bool)];
    ModelSpec { outputs, ..echo_spec() }
}

#[test]
fn only_outputs_that_are_wanted_so_become_classes() {
    let spec = spec();
    let classes = spec.classes([("C", 1), ("M", 0), ("A", 2)].into_iter()).unwrap();
    assert_eq!([0, 1, 2, 3].map(|output| classes.count(output)), [2, 0, 1, 0]);
    let mut response =
        Response { outputs: [(0, scores()), (1, scores())].into_iter().collect(), ..Response::default() };
    assert_eq!(classes.bytes(&response), 8);
    classes.choose(&spec, &mut response).unwrap();
    let [(0, best), (1, plain)] = &response.outputs[..] else { panic!("two outputs") };
    assert_eq!((best.datatype, &best.shape[..]), (DataType::Bytes, &[1, 2][..]));
    let texts = [&[14, 0, 0, 0][..], b"0.500000:0:cat", &[10, 0, 0, 0], b"0.250000:1"];
    assert_eq!(best.data.as_bytes(), texts.concat());
    assert_eq!(plain.data.as_bytes(), scores().data.as_bytes());
}

#[test]
fn labels_that_come_with_the_answer_are_those_of_outputs_without_labels() {
    let spec = spec();
    let classes = spec.classes([("A", 1), ("B", 1)].into_iter()).unwrap();
    let found = [Labels::from(vec!["dog".into()]), Labels::from(vec!["bird".into()])];
    let outputs = [(0, scores()), (1, scores())].into_iter().collect();
    let mut response = Response { outputs, labels: Some(Arc::new(found)), ..Response::default() };
    classes.choose(&spec, &mut response).unwrap();
    let texts: Vec<_> = response.outputs.iter().map(|(_, best)| &best.data.as_bytes()[4..]).collect();
    assert_eq!(texts, [&b"0.500000:0:cat"[..], b"0.500000:0:bird"]);
}

#[test]
fn a_request_without_classes_has_its_answer_as_it_is() {
    let classes = spec().classes([("A", 0), ("M", 0)].into_iter()).unwrap();
    assert!(classes.is_empty());
    let mut response = Response { outputs: [(0, scores())].into_iter().collect(), ..Response::default() };
    assert_eq!(classes.bytes(&response), 0);
    classes.choose(&spec(), &mut response).unwrap();
    assert_eq!(response.outputs[0].1.datatype, DataType::Fp32);
}

#[test]
fn types_without_an_order_are_refused_before_anything_is_computed() {
    let refused = spec().classes([("A", 1), ("M", 1)].into_iter()).unwrap_err();
    assert_eq!(refused.message, "class result not available for output due to unsupported type 'BOOL'");
}
