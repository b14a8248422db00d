//! Large bodies, which are put together aside.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use kushi_core::ModelSpec;
use kushi_server::{Server, ServerOptions};
use kushi_testkit::{PATIENCE, echo_spec, until};

use crate::options::options;
use crate::site::{Client, Site};

/// What the threads for large bodies wait for before they begin.
static BEGIN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn wait_to_begin() {
    let begin = BEGIN.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(BEGIN.1.wait_while(begin, |begin| !*begin));
}

fn begin() {
    *BEGIN.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    BEGIN.1.notify_all();
}

#[test]
fn a_client_that_has_to_wait_for_the_server_is_not_late() {
    let mut options = ServerOptions { give_way: wait_to_begin, ..options(1) };
    options.limits.body_timeout = Duration::from_secs(1);
    let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site::of(server, echo_spec());
    let mut client = site.connect();
    let answer = thread::spawn(move || {
        client.send_binary(4 << 20);
        client.receive().status
    });
    // Longer than that patience: connections are looked over each second, and the first look finds bytes.
    thread::sleep(Duration::from_millis(3500));
    begin();
    assert_eq!(answer.join().ok(), Some(200));
}

#[test]
fn a_long_answer_of_generate_is_written_aside() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let count = || {
        BEGUN.fetch_add(1, Ordering::SeqCst);
    };
    let options = ServerOptions { give_way: count, ..options(1) };
    let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site::of(server, echo_spec());
    for (elements, threads) in [(1000, 0), (20_000, 1)] {
        let mut client = site.connect();
        let numbers = vec!["1"; elements].join(",");
        let body = format!("{{\"INPUT\":[{numbers}]}}");
        let asked = client.post_to("/v2/models/echo/generate", "", body.as_bytes());
        asked.unwrap_or_else(|error| panic!("{error}"));
        assert!(client.receive().text().starts_with(&format!("{{\"OUTPUT\":[{numbers}],")));
        assert_eq!(BEGUN.load(Ordering::SeqCst), threads);
    }
}

#[test]
fn a_drain_waits_for_a_body_that_has_come_whole_and_is_still_being_put_together() {
    static LOCKED: Mutex<bool> = Mutex::new(true);
    static OPENED: Condvar = Condvar::new();
    let wait = || {
        let locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        drop(OPENED.wait_while(locked, |locked| *locked));
    };
    let server = Server::start(&ServerOptions { give_way: wait, ..options(1) });
    let site = Site::of(server.unwrap_or_else(|error| panic!("{error}")), echo_spec());
    let mut client = site.connect();
    client.send_binary(400_000);
    // Of a body that is still coming, whole steps are counted.
    let held = || {
        let metrics = site.connect().get("/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix("kushi_inflight_bytes "));
        line.and_then(|held| held.parse::<usize>().ok()).unwrap_or(0)
    };
    until("the whole body", || (1_600_000..1_601_000).contains(&held()));
    assert_eq!(site.server.drain(Duration::ZERO), 1);
    *LOCKED.lock().unwrap_or_else(PoisonError::into_inner) = false;
    OPENED.notify_all();
    assert_eq!(client.receive().status, 200);
    assert_eq!(site.server.drain(PATIENCE), 0);
}

#[test]
fn a_drain_waits_for_a_compressed_body_that_is_still_being_opened() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static LOCKED: Mutex<bool> = Mutex::new(true);
    static OPENED: Condvar = Condvar::new();
    let wait = || {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        let locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        drop(OPENED.wait_while(locked, |locked| *locked));
    };
    let server = Server::start(&ServerOptions { give_way: wait, ..options(1) });
    let site = Site::of(server.unwrap_or_else(|error| panic!("{error}")), echo_spec());
    let mut client = site.connect();
    let tensor = r#"{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[7]}"#;
    let text = format!("{{\"inputs\":[{tensor}]}}{}", " ".repeat(100_000));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let body = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    let body = body.unwrap_or_else(|error| panic!("{error}"));
    let sent = client.post("echo", "Content-Encoding: gzip\r\n", &body);
    sent.unwrap_or_else(|error| panic!("{error}"));
    until("a thread for it", || BEGUN.load(Ordering::SeqCst) == 1);
    assert_eq!(site.server.drain(Duration::ZERO), 1);
    *LOCKED.lock().unwrap_or_else(PoisonError::into_inner) = false;
    OPENED.notify_all();
    assert!(client.receive().echoes(7));
    assert_eq!(site.server.drain(PATIENCE), 0);
}

#[test]
fn a_long_event_of_a_stream_is_written_aside_and_counts_until_it_is_read() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let count = || {
        BEGUN.fetch_add(1, Ordering::SeqCst);
    };
    let options = ServerOptions { give_way: count, ..options(1) };
    let server = Server::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site::of(server, echo_spec());
    for (elements, threads) in [(1000, 0), (20_000, 1)] {
        assert_eq!(stream(&site, elements).receive().status, 200);
        assert_eq!(BEGUN.load(Ordering::SeqCst), threads);
    }
    let elements = 8 << 20;
    let mut client = stream(&site, elements);
    until("an answer", || site.runner.statistics().success.count == 3);
    until("a body and an event", || site.inflight_bytes() > 3 * elements);
    assert_eq!(client.receive().status, 200);
    until("nothing", || site.inflight_bytes() == 0);
}

/// Asks for so many ones, two bytes each.
fn stream(site: &Site, elements: usize) -> Client {
    let body = format!("{{\"INPUT\":[{}]}}", vec!["1"; elements].join(","));
    let mut client = site.connect();
    let asked = client.post_to("/v2/models/echo/generate_stream", "", body.as_bytes());
    asked.unwrap_or_else(|error| panic!("{error}"));
    client
}

#[test]
fn a_large_answer_to_a_question_counts_until_it_is_read() {
    const BYTES: usize = 16 << 20;
    let site = Site::new(1, ModelSpec { config_json: " ".repeat(BYTES), ..echo_spec() });
    let mut client = site.connect();
    client.send_bytes(b"GET /v2/models/echo/config HTTP/1.1\r\nHost: site\r\n\r\n");
    until("an answer", || site.inflight_bytes() >= BYTES);
    assert_eq!(client.receive().body.len(), BYTES);
    until("nothing", || site.inflight_bytes() == 0);
}
