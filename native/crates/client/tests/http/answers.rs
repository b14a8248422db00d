//! What comes back to the caller.

use std::time::Duration;

use kushi_core::{DataType, Parameter};

use crate::scripted::{
    Act, Scripted, answer, binary_answer, good_answer, infer, json_answer, small_call, tensor,
};

fn bytes_of(answer: &kushi_client::Answer, place: usize) -> &[u8] {
    answer.outputs[place].1.data.as_bytes()
}

#[test]
fn binary_and_json_outputs_mix() {
    let json = r#"{"id":"7","model_name":"m","model_version":"3","parameters":{"b":true,"i":-1,"d":1.5,"s":"x","none":null},"outputs":[
        {"name":"A","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}},
        {"name":"B","datatype":"INT32","shape":[2,2],"data":[[1,-2],[3,4]]},
        {"name":"C","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}},
        {"name":"D","datatype":"BYTES","shape":[2],"data":["é",""]},
        {"name":"E","datatype":"FP32","shape":[],"data":[NaN]},
        {"name":"F","datatype":"FP64","shape":[0,3]},
        {"name":"G","datatype":"BOOL","shape":[2],"data":[true,false]}]}"#;
    let server = Scripted::always(binary_answer(json, b"\x01\x02\x03\x04\x01\0\0\0a\0\0\0\0"));
    let answer = infer(&server.client(), small_call()).unwrap();
    assert_eq!((answer.model.as_str(), answer.version.as_str(), answer.id.as_str()), ("m", "3", "7"));
    let expected = [
        ("b", Parameter::Bool(true)),
        ("i", Parameter::Int(-1)),
        ("d", Parameter::Double(1.5)),
        ("s", Parameter::String("x".into())),
    ];
    assert_eq!(answer.parameters, expected.map(|(name, value)| (name.to_owned(), value)));
    let names: Vec<&str> = answer.outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A", "B", "C", "D", "E", "F", "G"]);
    assert_eq!(bytes_of(&answer, 0), [1, 2, 3, 4]);
    assert_eq!(bytes_of(&answer, 1), [1, -2, 3, 4].map(i32::to_le_bytes).concat());
    assert_eq!(bytes_of(&answer, 2), b"\x01\0\0\0a\0\0\0\0");
    assert_eq!(bytes_of(&answer, 3), b"\x02\0\0\0\xc3\xa9\0\0\0\0");
    assert_eq!(bytes_of(&answer, 4).len(), 4);
    assert_eq!(answer.outputs[5].1.shape[..], [0, 3]);
    assert_eq!(bytes_of(&answer, 6), [1, 0]);
    assert_eq!(answer.timings, None);
}

#[test]
fn chunked_answers_are_put_together() {
    let whole = good_answer();
    let start = whole.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let body = &whole[start..];
    let mut chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ninference-header-content-length: {}\r\n\r\n",
        body.len() - 1
    )
    .into_bytes();
    for piece in body.chunks(10) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let server = Scripted::always(chunked);
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(bytes_of(&infer(&client, small_call()).unwrap(), 0), [7]);
    }
}

#[test]
fn large_tensors_are_aligned_slices_of_one_body() {
    let size = 3 << 20;
    let json = format!(
        r#"{{"model_name":"m","outputs":[{{"name":"A","datatype":"UINT8","shape":[{size}],"parameters":{{"binary_data_size":{size}}}}},{{"name":"B","datatype":"FP64","shape":[1],"parameters":{{"binary_data_size":8}}}}]}}"#
    );
    let mut tensors: Vec<u8> = (0..size).map(|byte| (byte % 251) as u8).collect();
    tensors.extend(1.5_f64.to_le_bytes());
    let server = Scripted::always(binary_answer(&json, &tensors));
    let answer = infer(&server.client(), small_call()).unwrap();
    assert_eq!([bytes_of(&answer, 0), bytes_of(&answer, 1)].concat(), tensors);
    let start = bytes_of(&answer, 0).as_ptr();
    assert_eq!(start as usize % 64, 0);
    assert_eq!(bytes_of(&answer, 1).as_ptr(), start.wrapping_add(size));
}

#[test]
fn timings_come_from_servers_that_tell() {
    let mut answer = good_answer();
    let end_of_status = answer.windows(2).position(|window| window == b"\r\n").unwrap() + 2;
    answer.splice(end_of_status..end_of_status, *b"kushi-timings: 1000,2000,3000,4000\r\n");
    let server = Scripted::always(answer);
    let timings = infer(&server.client(), small_call()).unwrap().timings.unwrap();
    assert_eq!(timings.queue, Duration::from_micros(1));
    assert_eq!(timings.compute_output, Duration::from_micros(4));
    assert_eq!(server.heard().last().unwrap().headers["kushi-timings"], "true");
}

#[test]
fn a_truth_value_is_0_or_1() {
    let json =
        r#"{"outputs":[{"name":"O","datatype":"BOOL","shape":[3],"parameters":{"binary_data_size":3}}]}"#;
    let server = Scripted::always(binary_answer(json, &[0, 255, 1]));
    assert_eq!(bytes_of(&infer(&server.client(), small_call()).unwrap(), 0), [0, 1, 1]);
}

#[test]
fn a_server_without_the_extension_is_spoken_to_in_json() {
    let server = Scripted::serve(|heard| {
        Act::Answer(match heard.path.as_str() {
            "/v2" => json_answer(200, r#"{"name":"x","extensions":[]}"#),
            _ => json_answer(
                200,
                r#"{"model_name":"m","id":null,"parameters":null,"outputs":[{"name":"O","parameters":null,"datatype":"INT64","shape":[1,2],"data":[5,6]}]}"#,
            ),
        })
    });
    let client = server.client();
    let answer = infer(&client, small_call()).unwrap();
    assert_eq!(bytes_of(&answer, 0), [5_i64, 6].map(i64::to_le_bytes).concat());
    let heard = server.heard().pop().unwrap();
    assert_eq!(
        String::from_utf8(heard.body).unwrap(),
        r#"{"inputs":[{"name":"A","shape":[1],"datatype":"INT8","data":[3]}]}"#
    );
    assert!(!heard.headers.contains_key("inference-header-content-length"));
    let mut half = small_call();
    half.inputs[0].tensor = tensor(DataType::Fp16, &[1], vec![0, 0]);
    let refused = infer(&client, half).unwrap_err();
    assert_eq!(
        refused.message,
        format!(
            "cannot send input 'A' to {}: FP16 travel only in binary, and the server has no extension 'binary_tensor_data'",
            server.url
        )
    );
}

#[test]
fn a_gateway_that_hides_the_servers_metadata_gets_json() {
    let server = Scripted::serve(|heard| {
        Act::Answer(match heard.path.as_str() {
            "/v2" => answer(404, "", b"nothing here"),
            _ => json_answer(200, r#"{"outputs":[{"name":"O","datatype":"INT8","shape":[1],"data":[1]}]}"#),
        })
    });
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(bytes_of(&infer(&client, small_call()).unwrap(), 0), [1]);
    }
    assert_eq!(server.paths(), ["/v2", "/v2/models/m/infer", "/v2/models/m/infer"]);
}
