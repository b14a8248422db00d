//! Streams of answers, as many as the engine gives.

use std::time::{Duration, Instant};

use kushi_core::{Batch, Buffer, DataType, Error, ErrorKind, Response, Sent, Shape, Tensor};
use kushi_server::Server;
use kushi_testkit::{Act, PATIENCE, echo_spec, until};
use smallvec::{SmallVec, smallvec};

use crate::options::options;
use crate::site::{Answer, Client, Site};

/// Less is not counted.
const COUNTED_BYTES: usize = 16 << 10;
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
    assert_eq!(batch.send(0, Response { outputs: SmallVec::default() }), Sent::Accepted);
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

#[test]
fn a_stream_that_its_client_does_not_read_holds_no_more_than_is_allowed() {
    const MOST: usize = 1 << 20;
    for elements in [64, 64 << 10] {
        let mut options = options(1);
        options.limits.max_inflight_bytes = MOST;
        let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
        let site = Site::of(server, echo_spec());
        site.puppet.script([Act::Late]);
        let mut client = ask(&site, "generate_stream");
        let mut batch = site.puppet.late();
        let data = Buffer::host(vec![0; 4 * elements]);
        let mut send = || {
            let tensor = Tensor {
                datatype: DataType::Int32,
                shape: Shape::from_slice(&[1, elements as i64]),
                data: data.clone(),
            };
            batch.send(0, Response { outputs: smallvec![(0, tensor)] }) == Sent::Accepted
        };
        let end = Instant::now() + PATIENCE;
        while site.inflight_bytes() < MOST && send() {
            assert!(Instant::now() < end, "nothing counts");
        }
        // What is being written counts beside that.
        for _ in 0..1000 {
            send();
            assert!(site.inflight_bytes() < MOST + 3 * (4 * elements + COUNTED_BYTES));
        }
        batch.end(0, Ok(()));
        let text = client.receive().text();
        let last = text.trim_end().lines().next_back().unwrap_or_default();
        assert!(last.ends_with("(--max-inflight-bytes)\"}"), "{last}");
        until("nothing", || site.inflight_bytes() == 0);
    }
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
