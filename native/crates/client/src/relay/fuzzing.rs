//! What must hold whatever a server or a client sends, for the fuzz targets in `native/fuzz` and the tests that
//! repeat what they have found.

use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

use super::{Connection, Destination, Ordinary, Request};

/// More turns than the bytes of an answer can give reason to.
const TURNS: usize = 1000;

/// What a server sends, in two pieces, before it closes. The first byte says where the one ends, and what is
/// asked.
pub fn answer(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let method = if choice % 2 == 0 { "GET" } else { "HEAD" };
    let cut = bytes.len() * usize::from(choice) / 256;
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    if ours.set_nonblocking(true).is_err() || theirs.set_nonblocking(true).is_err() {
        return;
    }
    let mut connection = Connection::new(ours.into(), None);
    let target: [&[u8]; 1] = [b"/v2"];
    let Ok(request) = Request::new(method, &target, [], &Destination::default(), Bytes::new(), true) else {
        return;
    };
    connection.ask(request);
    assert!(connection.drive(true).bytes, "it waits for the answer");
    let mut length = 0;
    for piece in [&bytes[..cut], &bytes[cut..]] {
        if theirs.write_all(piece).is_err() {
            break;
        }
        length += come_to_rest(&mut connection);
    }
    let was_idle = connection.is_idle();
    drop(theirs);
    length += come_to_rest(&mut connection);
    assert!(length <= bytes.len(), "more than the server has sent");
    assert!(!connection.is_idle(), "it goes on without a server");
    assert!(
        connection.is_whole() || connection.failure_of_answer().is_some(),
        "somebody would wait for ever"
    );
    assert!(!was_idle || connection.is_whole(), "it was idle before the answer was whole");
}

/// The bytes of the answer's body that have come meanwhile.
fn come_to_rest(connection: &mut Connection) -> usize {
    let mut length = 0;
    for _ in 0..TURNS {
        let interest = connection.drive(true);
        length += connection.take_body().map(|piece| piece.len()).sum::<usize>();
        let moves = interest.turn || connection.has_body();
        if let Some(head) = connection.take_head() {
            assert!((200..600).contains(&head.status));
            assert!(head.headers().filter(|(name, _)| *name == "content-length").count() <= 1);
        }
        if !moves {
            return length;
        }
    }
    panic!("it moves without reason");
}

/// What stands behind a request on its connection.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nhost: b\r\n\r\n";
const MOST_MISSING_BYTES: usize = 4096;

/// A request as a server understands it.
#[derive(Debug, PartialEq)]
struct Understood {
    method: String,
    target: String,
    /// Sorted.
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// What a client sends. Of what is ordinary, and whatever is missing of it, a server that reads everything
/// understands the same, and begins the next request behind it. False for what is not ordinary.
pub fn request(bytes: &[u8]) -> bool {
    let Some(ordinary) = Ordinary::read(bytes, 4096, 32) else { return false };
    if ordinary.missing_bytes > MOST_MISSING_BYTES {
        return true;
    }
    let mut sent = bytes.to_vec();
    sent.resize(bytes.len() + ordinary.missing_bytes, b'x');
    let headers = ordinary
        .headers
        .iter()
        .map(|&(name, value)| (String::from_utf8_lossy(name).to_ascii_lowercase(), value.to_vec()));
    let mut expected = Understood {
        method: ordinary.method.into(),
        target: ordinary.target.into(),
        headers: headers.collect(),
        body: sent[ordinary.body_at..].to_vec(),
    };
    expected.headers.sort();
    sent.extend_from_slice(NEXT);
    let understood = understood(&sent);
    assert_eq!(understood.first(), Some(&expected), "another request");
    let targets: Vec<_> = understood.iter().map(|one| one.target.as_str()).collect();
    assert_eq!(targets, [expected.target.as_str(), "/next"], "other requests behind it");
    true
}

/// The requests of a connection, as hyper reads them.
fn understood(sent: &[u8]) -> Vec<Understood> {
    let found = RefCell::new(Vec::new());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return Vec::new() };
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        if client.write_all(sent).await.is_err() || client.shutdown().await.is_err() {
            return;
        }
        let service = service_fn(async |request: hyper::Request<Incoming>| {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            let headers = head.headers.iter();
            let mut headers: Vec<_> =
                headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
            headers.sort();
            let (method, target) = (head.method.to_string(), head.uri.to_string());
            found.borrow_mut().push(Understood { method, target, headers, body });
            Ok::<_, hyper::Error>(hyper::Response::new(Empty::<Bytes>::new()))
        });
        // An error ends it: what came before counts.
        let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service).await;
    });
    found.into_inner()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    const METHODS: [&str; 6] = ["GET", "POST", "HEAD", "PUT", "get", " GET"];
    const TARGETS: [&str; 8] = [
        "/v2/models/m/infer",
        "/v2/a?b=%20&c",
        "/v2/./a",
        "/v2/a/../b",
        "/v2/%2e%2e/a",
        "/v2/a#b",
        "http://a/v2/a",
        "/v2",
    ];
    const VERSIONS: [&str; 4] = ["HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0"];
    const LINES: [&str; 22] = [
        "host: a",
        "Connection: keep-alive",
        "connection: Keep-Alive",
        "connection: close",
        "connection: content-length",
        "content-length: 0",
        "Content-Length: 5",
        "content-length:5 ",
        "content-length: 05",
        "content-length: +5",
        "content-length: 5, 5",
        "content-length: 5000000000",
        "transfer-encoding: chunked",
        "Transfer-Encoding : chunked",
        "upgrade: h2c",
        "expect: 100-continue",
        "te: trailers",
        "content-encoding: gzip",
        "inference-header-content-length: 3",
        "x: \"a\\\tb\"",
        "x-empty:",
        " folded",
    ];
    const BODIES: [&str; 5] =
        ["", "abcde", "0\r\n\r\n", "5\r\nabcde\r\n0\r\n\r\n", "GET /v2/evil HTTP/1.1\r\n\r\n"];

    prop_compose! {
        fn line_end()(end in prop_oneof![30 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\r\n")])
            -> &'static str { end }
    }

    prop_compose! {
        /// Mostly ordinary, with a part here and there that is not.
        fn head()(
            method in prop_oneof![6 => Just("POST"), 4 => Just("GET"), 1 => prop::sample::select(&METHODS[..])],
            target in prop_oneof![8 => prop::sample::select(&TARGETS[..3]), 1 => prop::sample::select(&TARGETS[..])],
            version in prop_oneof![12 => Just("HTTP/1.1"), 1 => prop::sample::select(&VERSIONS[..])],
            lines in prop::collection::vec((prop::sample::select(&LINES[..]), line_end()), 0..6),
            length in prop_oneof![2 => Just(None), 4 => (0..40usize).prop_map(Some)],
            end in line_end(),
        ) -> String {
            let mut head = format!("{method} {target} {version}{end}");
            for (line, end) in lines {
                head.push_str(line);
                head.push_str(end);
            }
            let length = length.map_or(String::new(), |length| format!("content-length: {length}\r\n"));
            head + &length + "\r\n"
        }
    }

    prop_compose! {
        /// What a byte becomes.
        fn change()(place: prop::sample::Index, kind in 0..3u8, byte in prop_oneof![
            3 => prop::sample::select(&b"\r\n\t :;,#?%/.\0\x0b\x7f\xff"[..]), 1 => any::<u8>()])
            -> (prop::sample::Index, u8, u8) { (place, kind, byte) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]
        #[test]
        fn what_is_ordinary_is_understood_by_others_in_the_same_way(
            head in head(),
            body in prop::sample::select(&BODIES[..]),
            changes in prop_oneof![1 => Just(Vec::new()), 2 => prop::collection::vec(change(), 1..4)],
        ) {
            let mut bytes = [head.as_bytes(), body.as_bytes()].concat();
            for (place, kind, byte) in changes {
                let place = place.index(bytes.len());
                match kind {
                    0 => bytes[place] = byte,
                    1 => bytes.insert(place, byte),
                    _ => drop(bytes.remove(place)),
                }
            }
            super::request(&bytes);
        }

        #[test]
        fn usual_requests_are_ordinary(
            target in prop::sample::select(&TARGETS[..3]),
            lines in prop::collection::vec(prop::sample::select(&["host: a", "Connection: keep-alive", "x-empty:"][..]), 0..6),
            body in "[ -~\r\n]{0,60}",
        ) {
            let lines: String = lines.iter().flat_map(|line| [line, "\r\n"]).collect();
            let length = body.len();
            let sent = format!("POST {target} HTTP/1.1\r\n{lines}content-length: {length}\r\n\r\n{body}");
            prop_assert!(super::request(sent.as_bytes()));
        }
    }

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        let seeds: Vec<_> =
            fs::read_dir(folder).unwrap().map(|seed| fs::read(seed.unwrap().path()).unwrap()).collect();
        assert!(!seeds.is_empty());
        seeds
    }

    #[test]
    fn answers_that_a_fuzzer_began_with_or_found_hold() {
        for bytes in seeds("relay_answer") {
            // Cut at every place, and asked in both ways.
            for choice in 0..=255 {
                super::answer(&[&[choice], &bytes[1..]].concat());
            }
        }
    }

    #[test]
    fn requests_that_a_fuzzer_began_with_or_found_hold() {
        for bytes in seeds("relay_request") {
            for end in 0..=bytes.len() {
                super::request(&bytes[..end]);
            }
        }
    }
}
