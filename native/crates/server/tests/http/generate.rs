//! Streams of answers, as many as the engine gives.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kushi_core::{Batch, Error, ErrorKind, Response, Sent};
use kushi_server::Server;
use kushi_testkit::{Act, PATIENCE, echo_spec, int32, send_when_room, until};
use smallvec::smallvec;

use crate::options::options;
use crate::site::{Answer, Client, Site};

const EVENT: &str = "data: {\"model_name\":\"echo\",\"model_version\":\"1\"}\n\n";

fn ask(site: &Site, verb: &str) -> Client {
    let mut client = site.connect();
    let asked = client.post_to(&format!("/v2/models/echo/{verb}"), "", b"{\"INPUT\":[1]}");
    asked.unwrap_or_else(|error| panic!("{error}"));
    client
}

fn status_and_text(answer: &Answer) -> (u16, String) {
    (answer.status, answer.text())
}

#[test]
fn a_stream_has_an_event_for_each_response() {
    let site = Site::default();
    site.puppet.script([Act::Respond(3), Act::Silence, Act::Respond(1)]);
    for count in [3, 0, 1] {
        let answer = ask(&site, "generate_stream").receive();
        assert_eq!(status_and_text(&answer), (200, EVENT.repeat(count)));
    }
    let answer = ask(&site, "generate_stream").receive();
    let echo = "data: {\"OUTPUT\":1,\"model_name\":\"echo\",\"model_version\":\"1\"}\n\n";
    assert_eq!(status_and_text(&answer), (200, echo.into()));
}

#[test]
fn one_answer_is_all_that_generate_takes() {
    let site = Site::default();
    site.puppet.script([Act::Respond(3), Act::Silence]);
    for _ in 0..2 {
        let answer = ask(&site, "generate").receive();
        let text = "generate expects model to produce exactly 1 response, use generate stream for model that generates \
                    various number of responses";
        assert_eq!((answer.status, answer.refusal()), (500, text.into()));
    }
}

#[test]
fn an_engine_of_many_answers_comes_to_its_end_where_one_is_wanted() {
    const MANY: usize = 500;
    let site = Site::default();
    let inputs = r#"{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[1]}]}"#;
    for (verb, body) in [("infer", inputs), ("generate", r#"{"INPUT":[1]}"#)] {
        site.puppet.script([Act::Late]);
        let mut client = site.connect();
        client.post_to(&format!("/v2/models/echo/{verb}"), "", body.as_bytes()).unwrap();
        let mut batch = site.puppet.late();
        assert!((0..MANY).all(|number| send_when_room(&mut batch, 0, numbered(number, 1))));
        batch.end(0, Ok(()));
        assert_eq!(client.receive().status, 500);
    }
}

#[test]
fn a_failure_is_the_event_of_a_stream_and_its_status() {
    let site = Site::default();
    site.puppet.script([Act::Fail(Error::new(ErrorKind::Overloaded, "out of flour"))]);
    let answer = ask(&site, "generate_stream").receive();
    assert_eq!(status_and_text(&answer), (503, "data: {\"error\":\"out of flour\"}\n\n".into()));
}

#[test]
fn a_client_that_hangs_up_frees_its_queue_place() {
    let site = Site::default();
    site.puppet.hold();
    let _first = ask(&site, "generate_stream");
    site.puppet.await_batches(1);
    let second = ask(&site, "generate_stream");
    until("a waiting request", || site.runner.backlog().requests == 1);
    second.hang_up();
    until("an empty queue", || site.runner.backlog().requests == 0);
}

fn send(batch: &mut Batch) {
    assert!(matches!(batch.send(0, Response::default()), Sent::Accepted));
}

#[test]
fn events_leave_as_they_come_and_a_failure_is_the_last_of_them() {
    let site = Site::default();
    site.puppet.script([Act::Late]);
    let mut client = ask(&site, "generate_stream");
    let mut batch = site.puppet.late();
    send(&mut batch);
    assert!(client.receive_head().starts_with("HTTP/1.1 200 "));
    for _ in 0..2 {
        assert_eq!(client.next_chunk().unwrap().as_deref(), Some(EVENT.as_bytes()));
        send(&mut batch);
    }
    batch.end(0, Err(Error::new(ErrorKind::EngineFailed, "out of flour")));
    let mut rest = Vec::new();
    while let Some(chunk) = client.next_chunk().unwrap() {
        rest.extend(chunk);
    }
    assert_eq!(String::from_utf8_lossy(&rest), format!("{EVENT}data: {{\"error\":\"out of flour\"}}\n\n"));
}

#[test]
fn a_client_that_hangs_up_in_a_stream_abandons_its_request() {
    let site = Site::default();
    site.puppet.script([Act::Late]);
    let mut client = ask(&site, "generate_stream");
    let mut batch = site.puppet.late();
    send(&mut batch);
    client.receive_head();
    assert_eq!(client.next_chunk().unwrap().as_deref(), Some(EVENT.as_bytes()));
    assert!(!batch.is_abandoned(0));
    client.hang_up();
    until("an abandoned request", || batch.is_abandoned(0));
}

/// A row of these elements, which begins with its number.
fn numbered(number: usize, elements: usize) -> Response {
    let values = (0..elements).map(|place| if place == 0 { number as i32 } else { i32::MAX });
    Response { outputs: smallvec![(0, int32(&[1, elements as i64], values))], ..Response::default() }
}

/// Sends `count` of them, when there is room for them; false where nobody waits for them any more. Tells whenever it finds
/// no room.
fn send_all(batch: &mut Batch, count: usize, elements: usize, full: &mpsc::Sender<usize>) -> bool {
    (0..count).all(|number| match batch.send(0, numbered(number, elements)) {
        Sent::Full(response) => {
            let _ = full.send(number);
            send_when_room(batch, 0, *response)
        }
        sent => matches!(sent, Sent::Accepted),
    })
}

#[test]
fn a_client_that_stops_to_read_stops_the_engine_and_gets_all_when_it_goes_on() {
    // As text, more than the buffers of its socket hold.
    const ALL_BYTES: usize = 8 << 20;
    for elements in [1 << 10, 64 << 10] {
        let (bytes, count) = (4 * elements, ALL_BYTES / (4 * elements));
        let site = Site::default();
        site.puppet.script([Act::Late]);
        let mut client = ask(&site, "generate_stream");
        let mut batch = site.puppet.late();
        let (full, fulls) = mpsc::channel();
        let engine = thread::spawn(move || {
            let sent = send_all(&mut batch, count, elements, &full);
            batch.end(0, Ok(()));
            sent
        });
        let first = fulls.recv_timeout(PATIENCE);
        assert!(first.is_ok(), "it never found the window full");
        assert!(client.receive_head().starts_with("HTTP/1.1 200 "));
        let mut number = 0;
        while let Some(chunk) = client.next_chunk().unwrap() {
            // The window and the answer that is always allowed; four as text, of three times the size, are being written.
            assert!(site.inflight_bytes() < (1 << 20) + bytes + 4 * 3 * bytes);
            // Those that come together are in one.
            for event in String::from_utf8_lossy(&chunk).split_terminator("\n\n") {
                let begins = format!("data: {{\"OUTPUT\":[{number},2147483647,");
                assert!(event.starts_with(&begins), "{number} of {count}");
                number += 1;
            }
        }
        assert_eq!(number, count);
        assert!(engine.join().is_ok_and(|sent| sent));
        until("nothing", || site.inflight_bytes() == 0);
    }
}

#[test]
fn an_engine_that_waits_for_a_client_to_read_hears_that_it_has_gone() {
    let site = Site::default();
    site.puppet.script([Act::Late]);
    let client = ask(&site, "generate_stream");
    let mut batch = site.puppet.late();
    let (full, fulls) = mpsc::channel();
    let engine = thread::spawn(move || send_all(&mut batch, usize::MAX, 64 << 10, &full));
    assert!(fulls.recv_timeout(PATIENCE).is_ok(), "it never found the window full");
    client.hang_up();
    assert!(engine.join().is_ok_and(|sent| !sent));
    until("nothing", || site.inflight_bytes() == 0);
}

#[test]
fn a_large_answer_ends_its_stream_where_others_hold_all_that_is_allowed() {
    const MOST: usize = 1 << 20;
    let mut options = options(1);
    options.limits.max_inflight_bytes = MOST;
    let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site::of(server, echo_spec());
    site.puppet.script([Act::Late]);
    let mut client = ask(&site, "generate_stream");
    let mut batch = site.puppet.late();
    let mut other = site.connect();
    other.send_head("echo", MOST);
    other.send_bytes(&vec![b' '; MOST - 1]);
    until("a body that is not whole yet", || site.inflight_bytes() == MOST);
    send(&mut batch);
    assert!(matches!(batch.send(0, numbered(1, 64 << 10)), Sent::Accepted));
    until("an end", || batch.is_abandoned(0));
    let text = client.receive().text();
    assert!(text.starts_with(EVENT), "{text}");
    assert!(text.trim_end().ends_with("(--max-inflight-bytes)\"}"), "{text}");
    other.hang_up();
    until("nothing", || site.inflight_bytes() == 0);
}

#[test]
fn a_drain_waits_for_a_stream_and_ends_its_connection_behind_it() {
    let site = Site::default();
    site.puppet.script([Act::Late]);
    let mut client = ask(&site, "generate_stream");
    let mut batch = site.puppet.late();
    send(&mut batch);
    client.receive_head();
    assert_eq!(client.next_chunk().unwrap().as_deref(), Some(EVENT.as_bytes()));
    assert_eq!(site.server.drain(Duration::ZERO), 1);
    send(&mut batch);
    assert_eq!(client.next_chunk().unwrap().as_deref(), Some(EVENT.as_bytes()), "it goes on");
    batch.end(0, Ok(()));
    assert_eq!(client.next_chunk().unwrap(), None);
    assert_eq!(site.server.drain(PATIENCE), 0);
    assert!(client.try_receive().is_err());
}
