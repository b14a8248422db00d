//! Strings, in networks whose operators are made for them.

use std::sync::Arc;

use kushi_core::{Buffer, DataType, ModelSpec, Shape, Tensor};
use kushi_engine_openvino::OpenVinoEngine;
use kushi_testkit::{echo_spec, tensor_spec};

use crate::asked::Asked;
use crate::models::Directory;
use crate::{compile, read};

/// `OUT` is `IN`, taken apart and put together again.
const THERE_AND_BACK: &str = r#"<?xml version="1.0"?>
<net name="m" version="11">
  <layers>
    <layer id="0" name="IN" type="Parameter" version="opset1">
      <data shape="?" element_type="string"/>
      <output><port id="0" precision="STRING" names="IN"><dim>-1</dim></port></output>
    </layer>
    <layer id="1" name="unpack" type="StringTensorUnpack" version="opset15">
      <input><port id="0" precision="STRING"><dim>-1</dim></port></input>
      <output>
        <port id="1" precision="I32"><dim>-1</dim></port>
        <port id="2" precision="I32"><dim>-1</dim></port>
        <port id="3" precision="U8"><dim>-1</dim></port>
      </output>
    </layer>
    <layer id="2" name="pack" type="StringTensorPack" version="opset15">
      <input>
        <port id="0" precision="I32"><dim>-1</dim></port>
        <port id="1" precision="I32"><dim>-1</dim></port>
        <port id="2" precision="U8"><dim>-1</dim></port>
      </input>
      <output><port id="3" precision="STRING" names="OUT"><dim>-1</dim></port></output>
    </layer>
    <layer id="3" name="result" type="Result" version="opset1">
      <input><port id="0" precision="STRING"><dim>-1</dim></port></input>
    </layer>
  </layers>
  <edges>
    <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
    <edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>
    <edge from-layer="1" from-port="2" to-layer="2" to-port="1"/>
    <edge from-layer="1" from-port="3" to-layer="2" to-port="2"/>
    <edge from-layer="2" from-port="3" to-layer="3" to-port="0"/>
  </edges>
</net>"#;

fn joined(elements: &[&[u8]]) -> Vec<u8> {
    let element = |bytes: &&[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    elements.iter().map(element).collect::<Vec<_>>().concat()
}

#[test]
fn strings_keep_zero_bytes_and_other_encodings() {
    let directory = Directory::new();
    let path = directory.join("model.xml");
    std::fs::write(&path, THERE_AND_BACK).expect("the network is written");
    let tensor = |name| tensor_spec(name, DataType::Bytes, &[-1]);
    let spec = ModelSpec {
        max_batch_size: 0,
        batching: None,
        inputs: vec![tensor("IN")],
        outputs: vec![tensor("OUT")],
        inline: false,
        ..echo_spec()
    };
    let engine = OpenVinoEngine::new(compile(&read(&path), 1), &spec).expect("the specification fits");
    let asked = Asked::new(spec, Arc::new(engine));
    let long = vec![b'x'; 100_000];
    let several: [&[u8]; 8] =
        [b"", b"plain", b"\0", b"a\0b\0", b"\xff\xfe\x80", "žluťoučký".as_bytes(), &long, b""];
    for round in 0..20 {
        for elements in [&several[..], &several[1..2], &several[..1], &several[4..]] {
            let data = joined(elements);
            let shape = Shape::from_slice(&[elements.len() as i64]);
            let tensor = Tensor { datatype: DataType::Bytes, shape, data: Buffer::host(data.clone()) };
            asked.ask(round, vec![tensor]);
            assert_eq!(asked.answer(round), Ok(data));
        }
    }
}
