//! What becomes of a server's answer, and of its connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use kushi_client::relay::Failure;

use crate::driver::{answer, drive, get, pair, request};

fn head(stream: &mut UnixStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn an_answer_arrives_however_it_is_framed_and_its_connection_goes_on() {
    for (bytes, status, body) in [
        (OK.to_vec(), 200, "ok"),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: a\r\n\r\n", OK].concat(), 200, "ok"),
        (
            b"HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n"
                .to_vec(),
            404,
            "abc",
        ),
        (b"HTTP/1.1 204 No\r\n\r\n".to_vec(), 204, ""),
        (b"HTTP/1.1 304 No\r\ncontent-length: 7\r\n\r\n".to_vec(), 304, ""),
    ] {
        let (mut connection, mut server) = pair();
        for _ in 0..3 {
            connection.ask(get());
            drive(&mut connection, |_| true);
            assert_eq!(head(&mut server), "GET /v2 HTTP/1.1\r\n\r\n");
            server.write_all(&bytes).unwrap();
            let found = answer(&mut connection).unwrap();
            assert_eq!((found.status, found.body), (status, body.as_bytes().to_vec()));
            assert!(connection.is_idle());
        }
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_the_last() {
    for bytes in [
        &b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let (mut connection, mut server) = pair();
        connection.ask(get());
        drive(&mut connection, |_| true);
        head(&mut server);
        server.write_all(bytes).unwrap();
        drop(server);
        assert_eq!(answer(&mut connection).unwrap().body, b"ok");
        assert!(!connection.is_idle());
    }
}

#[test]
fn what_is_no_answer_is_a_failure() {
    for bytes in [
        &b""[..],
        b"\0\0\0\0",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
        b"HTTP/1.1 600 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let (mut connection, mut server) = pair();
        connection.ask(get());
        drive(&mut connection, |_| true);
        server.write_all(bytes).unwrap();
        drop(server);
        answer(&mut connection).unwrap_err();
        assert!(!connection.is_idle(), "{}", bytes.escape_ascii());
    }
}

#[test]
fn an_answer_that_nobody_has_asked_for_ends_the_connection() {
    let (mut connection, mut server) = pair();
    server.write_all(OK).unwrap();
    connection.ask(get());
    assert_eq!(answer(&mut connection), Err(Failure::Unsent));
    let (mut connection, mut server) = pair();
    connection.ask(get());
    drive(&mut connection, |_| true);
    server.write_all(&[OK, b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nhostile"].concat()).unwrap();
    assert_eq!(answer(&mut connection).unwrap().body, b"ok");
    assert!(!connection.is_idle());
}

#[test]
fn a_server_that_has_closed_has_heard_nothing() {
    let (mut connection, mut server) = pair();
    connection.ask(get());
    drive(&mut connection, |_| true);
    head(&mut server);
    server.write_all(OK).unwrap();
    assert_eq!(answer(&mut connection).unwrap().body, b"ok");
    drop(server);
    connection.ask(request("POST", "/v2", &[], b"body", true).unwrap());
    assert_eq!(answer(&mut connection), Err(Failure::Unsent));
}

#[test]
fn a_server_that_closes_without_a_word_has_not_answered() {
    let (mut connection, mut server) = pair();
    connection.ask(get());
    drive(&mut connection, |_| true);
    head(&mut server);
    drop(server);
    assert_eq!(answer(&mut connection), Err(Failure::Unanswered));
}

#[test]
fn an_early_answer_is_heard_although_the_server_reads_no_more() {
    let (mut connection, mut server) = pair();
    let length = (64 << 20).to_string();
    connection.ask(request("POST", "/v2", &[("content-length", &length)], &vec![0; 1 << 20], false).unwrap());
    drive(&mut connection, |_| true);
    head(&mut server);
    server.write_all(b"HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\nno").unwrap();
    drop(server);
    connection.push(vec![0; 1 << 20].into(), false);
    assert_eq!(answer(&mut connection).unwrap().body, b"no");
    assert!(!connection.is_idle());
}

#[test]
fn a_server_that_never_comes_to_its_answer_takes_no_turn_for_ever() {
    let (mut connection, mut server) = pair();
    connection.ask(get());
    drive(&mut connection, |_| true);
    let writing = thread::spawn(move || {
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        while server.write_all(&interim).is_ok() {}
    });
    for _ in 0..100 {
        // Comes back, though there is always more.
        connection.drive(true);
    }
    drop(connection);
    writing.join().unwrap();
}

#[test]
fn an_answer_that_nobody_takes_stops_the_server() {
    let (mut connection, mut server) = pair();
    connection.ask(get());
    drive(&mut connection, |_| true);
    head(&mut server);
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n").unwrap();
    server.set_nonblocking(true).unwrap();
    let piece = vec![7; 1 << 16];
    let mut sent = 0;
    while let Ok(count) = server.write(&piece) {
        sent += count;
        connection.drive(true);
        assert!(sent < 16 << 20, "it reads on and on");
    }
    assert!(!connection.drive(true).bytes, "it would be woken up for nothing");
    let taken: usize = connection.take_body().map(|piece| piece.len()).sum();
    assert!(taken > 0);
    assert!(connection.drive(true).bytes || connection.has_body());
}
