//! What waits for the threads for large bodies, and what that may hold.

use std::sync::{Condvar, Mutex, PoisonError};

use kushi_core::ModelSpec;
use kushi_server::{Limits, Server, ServerOptions};
use kushi_testkit::{PATIENCE, echo_spec, until};

use crate::options::options;
use crate::site::{Client, Site};

/// A body of this size is read at once, and its answer is written aside.
const ELEMENTS: usize = 200_000;
const BYTES: usize = 4 * ELEMENTS;
/// In a body that is too small to be counted, for an answer that is not.
const FEW: usize = 7000;

/// When it is dropped, too: a server does not end while one of its threads waits.
struct Open(fn());

impl Drop for Open {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A server whose one thread for large bodies does not begin before it is told, and what tells it.
macro_rules! site_that_waits {
    ($limits:expr) => {{
        static LOCKED: Mutex<bool> = Mutex::new(true);
        static OPENED: Condvar = Condvar::new();
        let give_way = || {
            let locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
            drop(OPENED.wait_while(locked, |locked| *locked));
        };
        let open = Open(|| {
            *LOCKED.lock().unwrap_or_else(PoisonError::into_inner) = false;
            OPENED.notify_all();
        });
        (site(&ServerOptions { give_way, limits: $limits, ..options(1) }, echo_spec()), open)
    }};
}

fn site(options: &ServerOptions, spec: ModelSpec) -> Site {
    Site::of(Server::start(options).unwrap_or_else(|error| panic!("{error}")), spec)
}

/// Sends a row of zeros in binary, to be echoed in JSON.
fn send_zeros(client: &mut Client, elements: usize) {
    let bytes = 4 * elements;
    let json = format!(
        r#"{{"inputs":[{{"name":"INPUT","datatype":"INT32","shape":[1,{elements}],"parameters":{{"binary_data_size":{bytes}}}}}]}}"#
    );
    let header = format!("Inference-Header-Content-Length: {}\r\n", json.len());
    let body = [json.as_bytes(), &vec![0; bytes]].concat();
    client.post("echo", &header, &body).unwrap_or_else(|error| panic!("{error}"));
}

/// The same in JSON.
fn ask(client: &mut Client, verb: &str, elements: usize) {
    let zeros = vec!["0"; elements].join(",");
    let body = match verb {
        "infer" => format!(
            r#"{{"inputs":[{{"name":"INPUT","datatype":"INT32","shape":[1,{elements}],"data":[{zeros}]}}]}}"#
        ),
        _ => format!(r#"{{"INPUT":[{zeros}]}}"#),
    };
    let asked = client.post_to(&format!("/v2/models/echo/{verb}"), "", body.as_bytes());
    asked.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_tensors_of_an_answer_count_until_it_is_written_and_its_text_until_it_is_read() {
    let limits = Limits { max_inflight_bytes: BYTES + BYTES / 2, ..Limits::default() };
    let (site, open) = site_that_waits!(limits);
    for verb in ["infer", "generate", "generate_stream"] {
        let mut client = site.connect();
        let before = site.runner.statistics().success.count;
        // JSON of half the size.
        ask(&mut client, verb, ELEMENTS / 4);
        until("an answer", || site.runner.statistics().success.count > before);
        until("the tensors", || site.inflight_bytes() >= BYTES / 4);
        client.hang_up();
        until("nothing", || site.inflight_bytes() == 0);
    }
    let (mut client, mut other) = (site.connect(), site.connect());
    send_zeros(&mut client, ELEMENTS);
    until("the tensors in place of the body", || {
        site.runner.statistics().success.count == 4 && site.inflight_bytes() == BYTES
    });
    send_zeros(&mut other, ELEMENTS);
    assert_eq!(other.receive().status, 503);
    drop(open);
    assert_eq!(client.receive().status, 200);
    until("nothing", || site.inflight_bytes() == 0);
    send_zeros(&mut other, ELEMENTS);
    assert_eq!(other.receive().status, 200);
}

#[test]
fn a_large_answer_is_refused_where_others_hold_too_much_and_a_small_one_is_not() {
    const CONFIG: usize = 16 << 20;
    let limits = Limits { max_inflight_bytes: CONFIG / 2, ..Limits::default() };
    let spec = ModelSpec { config_json: " ".repeat(CONFIG), ..echo_spec() };
    let site = site(&ServerOptions { limits, ..options(1) }, spec);
    let mut deaf = site.connect();
    deaf.send_bytes(b"GET /v2/models/echo/config HTTP/1.1\r\nHost: site\r\n\r\n");
    until("an answer", || site.inflight_bytes() >= CONFIG);
    let mut client = site.connect();
    for verb in ["infer", "generate", "generate_stream"] {
        ask(&mut client, verb, FEW);
        let answer = client.receive();
        assert_eq!(answer.status, 503, "{verb}");
        assert!(answer.text().contains("(--max-inflight-bytes)"), "{}", answer.text());
        ask(&mut client, verb, 1);
        assert_eq!(client.receive().status, 200, "{verb}");
    }
    assert_eq!(deaf.receive().status, 200);
    until("nothing", || site.inflight_bytes() == 0);
    ask(&mut client, "infer", FEW);
    assert_eq!(client.receive().status, 200);
}

#[test]
fn what_a_client_that_has_left_asked_for_is_given_up_before_its_turn() {
    let (site, _open) = site_that_waits!(Limits::default());
    // Its answer waits to be written, and what it has sent behind its request stays unread.
    let mut first = site.connect();
    send_zeros(&mut first, ELEMENTS);
    first.send_bytes(b"GET /v2/models/echo HTTP/1.1\r\nHost: site\r\n\r\n");
    until("an answer", || site.runner.statistics().success.count == 1);
    // Its body waits to be put together, and is not read meanwhile.
    let mut second = site.connect();
    send_zeros(&mut second, 550_000);
    until("two segments", || site.inflight_bytes() >= BYTES + (2 << 20));
    first.hang_up();
    second.hang_up();
    until("nothing", || site.inflight_bytes() == 0);
    assert_eq!(site.server.drain(PATIENCE), 0);
}
