//! Bodies in chunks, and how many of them there may be.

use std::fmt::Write;

use kushi_server::Server;
use kushi_testkit::echo_spec;

use crate::options::options;
use crate::site::Site;

const MOST: usize = 40;

/// Sends a body of so many chunks, so many bytes at a time. Answers whether there were too many.
fn are_too_many(site: &Site, chunks: usize, chunk_bytes: usize, at_a_time: usize) -> bool {
    let mut client = site.connect();
    client.send_bytes(
        b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let mut body = String::new();
    for _ in 0..chunks {
        let _ = write!(body, "{chunk_bytes:x}\r\n{}\r\n", " ".repeat(chunk_bytes));
    }
    if chunks <= MOST {
        body += "0\r\n\r\n";
    }
    for bytes in body.as_bytes().chunks(at_a_time) {
        client.send_bytes(bytes);
    }
    let answer = client.receive();
    assert_ne!(answer.status, 200);
    answer.text().contains("Chunked request body exceeds maximum of 40 non-empty chunks")
}

#[test]
fn chunks_are_counted_one_by_one_however_they_arrive() {
    let mut options = options(1);
    options.http.limits.max_chunks = MOST;
    let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site::of(server, echo_spec());
    for chunk_bytes in [1, 2, 7] {
        for at_a_time in [1, 3, 11, usize::MAX] {
            let found = [MOST, MOST + 1].map(|chunks| are_too_many(&site, chunks, chunk_bytes, at_a_time));
            assert_eq!(found, [false, true], "chunks of {chunk_bytes} bytes, {at_a_time} at a time");
        }
    }
}
