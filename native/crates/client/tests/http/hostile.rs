//! Servers that lie, babble or break off.

use kushi_client::RemoteOptions;
use kushi_core::{Error, ErrorKind};

use crate::scripted::{Act, Scripted, answer, binary_answer, good_answer, infer, json_answer, small_call};

fn refused(act: impl Fn() -> Act + Send + Sync + 'static) -> (Scripted, Error) {
    let server = Scripted::binary(move |_| act());
    let error = infer(&server.client(), small_call()).unwrap_err();
    (server, error)
}

/// Holds against the end of the text what is said about one output in an answer.
fn check_output(output: &str, tensors: &'static [u8], expected: &str) {
    let json = format!(r#"{{"outputs":[{output}]}}"#);
    let (server, error) = refused(move || Act::Answer(binary_answer(&json, tensors)));
    assert_eq!(error.kind, ErrorKind::EngineFailed);
    assert_eq!(error.message, format!("the answer of {} cannot be read: {expected}", server.url));
}

#[test]
fn lying_sizes_are_refused() {
    let binary = |shape: &str, size: &str| {
        format!(
            r#"{{"name":"O","datatype":"INT32","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}"#
        )
    };
    check_output(
        &binary("[2]", "4"),
        &[0; 4],
        "output 'O' has 4 bytes, expected 8 for INT32 of the shape [2]",
    );
    check_output(
        &binary("[1]", "8"),
        &[0; 4],
        "output 'O' is said to have 8 bytes, and 4 are left of the body",
    );
    check_output(
        &binary("[1]", "18446744073709551615"),
        &[0; 4],
        "output 'O' is said to have 18446744073709551615 bytes, and 4 are left of the body",
    );
    check_output(&binary("[1]", "\"4\""), &[0; 4], "output 'O' has a 'binary_data_size' that is no number");
    check_output(&binary("[1]", "-4"), &[0; 4], "output 'O' has a 'binary_data_size' that is no number");
    check_output(&binary("[1]", "4"), &[0; 5], "it has 1 bytes behind its last output");
}

#[test]
fn wrong_shapes_are_refused() {
    let shaped = |shape: &str| {
        format!(r#"{{"name":"O","datatype":"INT8","shape":{shape},"parameters":{{"binary_data_size":1}}}}"#)
    };
    let beyond = |shape: &str| format!("output 'O' has a shape beyond all bounds: {shape}");
    check_output(&shaped("[-1]"), &[0], &beyond("[-1]"));
    check_output(&shaped("[9223372036854775807,2]"), &[0], &beyond("[9223372036854775807, 2]"));
    check_output(&shaped("[99999999999999999999]"), &[0], &beyond("[-1]"));
    check_output(&shaped("7"), &[0], "output 'O' has no list 'shape'");
    check_output(&shaped("[[1]]"), &[0], "output 'O' has a 'shape' that is no list of numbers");
    check_output(&shaped("[\"1\"]"), &[0], "output 'O' has a 'shape' that is no list of numbers");
    let many = format!("[{}1]", "1,".repeat(2000));
    check_output(&shaped(&many), &[0], "output 'O' has more than 1024 dimensions");
}

#[test]
fn broken_outputs_are_refused() {
    check_output("7", b"", "it has an output without a name");
    check_output(r#"{"name":"O"}"#, b"", "output 'O' has no datatype");
    check_output(
        r#"{"name":"O","datatype":"FLOAT","shape":[1]}"#,
        b"",
        "output 'O' has the unknown datatype 'FLOAT'",
    );
    check_output(r#"{"name":"O","datatype":"INT8","shape":[1]}"#, b"", "output 'O' has no data");
    check_output(
        r#"{"name":"O","datatype":"INT8","shape":[1],"data":[1],"parameters":{"binary_data_size":1}}"#,
        &[0],
        "output 'O' has both 'data' and 'binary_data_size'",
    );
    check_output(
        r#"{"name":"O","datatype":"INT8","shape":[1],"data":[1]},{"name":"O","datatype":"INT8","shape":[1],"data":[1]}"#,
        b"",
        "it has the output 'O' twice",
    );
    check_output(
        r#"{"name":"O","datatype":"FP16","shape":[1],"data":[1]}"#,
        b"",
        "output 'O' is FP16, which travels only in binary, and came as JSON",
    );
    check_output(
        r#"{"name":"O","datatype":"INT8","shape":[2],"data":[1]}"#,
        b"",
        "output 'O' has 'data' that cannot be read: Failed to parse 'data' field: shape does not match true shape",
    );
    let strings = |size| {
        format!(r#"{{"name":"O","datatype":"BYTES","shape":[2],"parameters":{{"binary_data_size":{size}}}}}"#)
    };
    check_output(&strings(5), b"\x01\0\0\0a", "output 'O' has 1 elements, expected 2 for the shape [2]");
    check_output(&strings(6), b"\x03\0\0\0ab", "output 'O' has an element that is cut short");
    check_output(&strings(2), b"\x03\0", "output 'O' has an element that is cut short");
}

#[test]
fn garbage_json_is_refused() {
    for (body, expected) in [
        ("", "it is no JSON: the document is empty at byte 0"),
        ("{\"outputs\":[", "it is no JSON: invalid value at byte 12"),
        ("[]", "it is no JSON object"),
        ("{}", "it has no list 'outputs'"),
        (r#"{"outputs":{}}"#, "it has no list 'outputs'"),
        (r#"{"outputs":[],"id":7}"#, "its 'id' is no text"),
        (r#"{"outputs":[],"model_name":[]}"#, "its 'model_name' is no text"),
    ] {
        let (server, error) = refused(move || Act::Answer(json_answer(200, body)));
        assert_eq!(error.message, format!("the answer of {} cannot be read: {expected}", server.url));
    }
    let deep = "[".repeat(100_000);
    let (_, error) = refused(move || Act::Answer(json_answer(200, &deep)));
    assert!(error.message.ends_with("it is no JSON: nested too deeply"), "{error}");
    let many = format!(r#"{{"outputs":[{}]}}"#, vec![r#"{"name":"A"}"#; 100_000].join(","));
    let (_, error) = refused(move || Act::Answer(json_answer(200, &many)));
    assert!(error.message.ends_with("it has more than 1024 outputs"), "{error}");
}

#[test]
fn lying_lengths_of_the_json_are_refused() {
    for (header, expected) in [
        ("99", "its JSON is said to have 99 bytes, and the whole body has 2"),
        ("x", "its inference-header-content-length is 'x', expected a number"),
        ("-1", "its inference-header-content-length is '-1', expected a number"),
    ] {
        let header = format!("inference-header-content-length: {header}\r\n");
        let (server, error) = refused(move || Act::Answer(answer(200, &header, b"{}")));
        assert_eq!(error.message, format!("the answer of {} cannot be read: {expected}", server.url));
    }
}

#[test]
fn a_body_that_breaks_off_is_a_lost_connection() {
    let whole = good_answer();
    let (_, error) = refused(move || Act::Last(whole[..whole.len() - 1].to_vec()));
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(
        error.message.ends_with("was lost before the answer was complete: the server closed it"),
        "{error}"
    );
    let cut = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nabc";
    let (_, error) = refused(|| Act::Last(cut.to_vec()));
    assert_eq!(error.kind, ErrorKind::ConnectionLost, "{error}");
}

#[test]
fn a_body_longer_than_its_length_spoils_its_connection_and_no_other() {
    let server = Scripted::binary(|heard| match heard.connection {
        0 => Act::Answer([good_answer(), b"HTTP/1.1 200 OK\r\n\r\n".to_vec()].concat()),
        _ => Act::Answer(good_answer()),
    });
    let client = server.client();
    for _ in 0..3 {
        infer(&client, small_call()).unwrap();
    }
    assert_eq!(server.heard().last().unwrap().connection, 1);
}

#[test]
fn what_is_no_http_is_refused() {
    for babble in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"\0\0\0\0",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\xff: \x01\r\n\r\n",
    ] {
        let (server, error) = refused(|| Act::Last(babble.to_vec()));
        assert_eq!(error.kind, ErrorKind::EngineFailed, "{error}");
        let expected = format!("the answer of {} cannot be read: it is no HTTP/1.1", server.url);
        assert!(error.message.starts_with(&expected), "{error}");
    }
    let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc";
    let (_, error) = refused(|| Act::Last(chunk.to_vec()));
    assert_eq!(error.kind, ErrorKind::EngineFailed, "{error}");
}

#[test]
fn a_huge_head_is_refused() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(8 << 20)).into_bytes();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(10_000)).into_bytes();
    for head in [long, many] {
        let (server, error) = refused(move || Act::Last(head.clone()));
        assert_eq!(
            error.message,
            format!("the answer of {} cannot be read: its head is too large", server.url)
        );
    }
}

#[test]
fn answers_beyond_the_limit_are_refused_before_they_fill_the_memory() {
    let declared = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n{";
    let mut endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..100 {
        endless.extend_from_slice(b"1000\r\n");
        endless.extend_from_slice(&[b' '; 0x1000]);
        endless.extend_from_slice(b"\r\n");
    }
    for body in [declared.to_vec(), endless] {
        let server = Scripted::binary(move |_| Act::Last(body.clone()));
        let client =
            server.client_with(RemoteOptions { max_answer_bytes: 100_000, ..RemoteOptions::default() });
        let error = infer(&client, small_call()).unwrap_err();
        assert_eq!(
            error.message,
            format!(
                "the answer of {} cannot be read: it has more than 100000 bytes, which is the limit of the client",
                server.url
            )
        );
    }
}
