//! What a server hears.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use kushi_client::relay::{Failure, Request};

use crate::driver::{answer, drive, pair, request};

/// All that has come, and no more.
fn heard(request: Request) -> String {
    let (mut connection, mut server) = pair();
    connection.ask(request);
    drive(&mut connection, |_| true);
    drop(connection);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn refused(headers: &[(&str, &str)], body: &[u8], is_complete: bool) -> String {
    request("POST", "/v2", headers, body, is_complete).err().unwrap().text
}

#[test]
fn a_body_is_framed_by_what_there_is_of_it() {
    for (headers, body, is_complete, expected) in [
        (&[][..], "", true, "\r\n"),
        (&[("content-length", "0")], "", true, "content-length: 0\r\n\r\n"),
        (&[("content-length", "3")], "abc", true, "content-length: 3\r\n\r\nabc"),
        (&[("content-length", "3")], "a", false, "content-length: 3\r\n\r\na"),
        (&[], "abc", true, "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        (&[], "abc", false, "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        (
            &[("transfer-encoding", "chunked")],
            "abc",
            true,
            "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (&[("transfer-encoding", "chunked")], "", true, "\r\n"),
    ] {
        for method in ["POST", "GET", "DELETE"] {
            let request = request(method, "/v2", headers, body.as_bytes(), is_complete).unwrap();
            assert_eq!(heard(request), format!("{method} /v2 HTTP/1.1\r\n{expected}"));
        }
    }
}

#[test]
fn what_belongs_to_a_connection_stays_on_it() {
    let headers = [
        ("connection", "keep-alive, X-Mine ,content-length"),
        ("x-mine", "1"),
        ("te", "trailers"),
        ("trailer", "x-late"),
        ("expect", "100-continue"),
        ("upgrade", "h2c"),
        ("host", "a"),
        ("content-length", "1"),
        ("x-passed", "\u{e9}"),
    ];
    let expected = "POST /v2 HTTP/1.1\r\nx-passed: \u{e9}\r\nhost: a\r\ncontent-length: 1\r\n\r\n1";
    assert_eq!(heard(request("POST", "/v2", &headers, b"1", true).unwrap()), expected);
}

#[test]
fn what_no_server_takes_is_refused() {
    let length = "content-length";
    assert_eq!(
        refused(&[(length, "1"), (length, "1")], b"", false),
        "the request has more than one content-length"
    );
    assert_eq!(refused(&[(length, "0x1")], b"", false), "the content-length is '0x1', expected a number");
    assert_eq!(refused(&[(length, "2")], b"a", true), "the request body ended early");
    assert_eq!(
        refused(&[(length, "2")], b"abc", false),
        "the request body is longer than its content-length"
    );
    assert_eq!(refused(&[("a", "b\nc")], b"", true), "the header 'a' has a value that is none");
    let both = [(length, "2"), ("transfer-encoding", "chunked")];
    assert_eq!(refused(&both, b"", false), "the request has both a content-length and a transfer-encoding");
    for path in ["", "v2", "*", "/v2 b", "/v2\r\n"] {
        assert_eq!(request("GET", path, &[], b"", true).err().unwrap().status, 400, "{path}");
    }
    let many: Vec<String> = (0..40_000).map(|number| format!("a{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(request("GET", "/v2", &many, b"", true).err().unwrap().status, 431);
}

#[test]
fn a_body_that_ends_early_or_late_ends_its_connection() {
    for (rest, is_complete, misfit) in [
        (&b"b"[..], true, "the request body ended early"),
        (b"bcd", false, "the request body is longer than its content-length"),
    ] {
        let (mut connection, mut server) = pair();
        connection.ask(request("POST", "/v2", &[("content-length", "3")], b"a", false).unwrap());
        drive(&mut connection, |_| true);
        connection.push(rest.to_vec().into(), is_complete);
        let Err(Failure::Misfit(found)) = answer(&mut connection) else { panic!("it was answered") };
        assert_eq!(found.to_string(), misfit);
        assert!(!connection.is_idle());
        drop(connection);
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).unwrap();
        assert!(heard.len() <= "POST /v2 HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc".len());
    }
}

#[test]
fn an_answer_before_the_body_is_complete_is_the_last_on_its_connection() {
    let (mut connection, mut server) = pair();
    connection.ask(request("POST", "/v2", &[("content-length", "3")], b"a", false).unwrap());
    drive(&mut connection, |_| true);
    server.write_all(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(answer(&mut connection).unwrap().status, 404);
    assert!(!connection.is_idle());
    connection.push(b"bc".to_vec().into(), true);
    drive(&mut connection, |_| true);
}

#[test]
fn a_server_that_does_not_read_stops_the_client() {
    let (mut connection, server): (_, UnixStream) = pair();
    connection.ask(request("POST", "/v2", &[("content-length", "67108864")], b"", false).unwrap());
    drive(&mut connection, |_| true);
    let mut pushed = 0;
    while connection.has_room() {
        connection.push(vec![0; 1 << 16].into(), false);
        connection.drive(false);
        pushed += 1 << 16;
        assert!(pushed < 16 << 20, "it takes more and more");
    }
    assert!(connection.drive(false).room);
    drop(server);
}
