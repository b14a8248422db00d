//! Drain and close.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kushi_core::{ErrorKind, Placement};
use kushi_testkit::{PATIENCE, echo_spec, until};

use crate::site::{Client, Site, server};

#[test]
fn a_drain_in_slices_answers_what_was_received_and_refuses_the_rest() {
    let site = Site::default();
    site.puppet.hold();
    let (mut early, mut late) = (site.connect(), site.connect());
    early.send(1, "");
    site.puppet.await_batches(1);
    assert_eq!(site.server.drain(Duration::ZERO), 1);
    late.send(2, "");
    assert_eq!(late.receive().status, 503);
    assert_eq!(site.server.drain(Duration::from_millis(1)), 1);
    site.puppet.release_all();
    assert_eq!(site.server.drain(PATIENCE), 0);
    assert!(early.receive().echoes(1));
    assert!(early.try_receive().is_err() && late.try_receive().is_err());
}

#[test]
fn a_drain_waits_for_a_client_that_reads_slowly() {
    const ELEMENTS: usize = 8 << 20;
    let site = Site::default();
    let mut client = site.connect();
    client.send_binary(ELEMENTS);
    until("the answer", || site.runner.statistics().success.count == 1);
    // Until long after the patience with clients that have sent half a request.
    for _ in 0..4 {
        assert_eq!(site.server.drain(Duration::from_millis(400)), 1, "most of the answer has not left");
    }
    let reader = thread::spawn(move || client.receive());
    assert_eq!(site.server.drain(PATIENCE), 0);
    site.server.close();
    let answer = reader.join().unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > 4 * ELEMENTS);
}

#[test]
fn closing_under_load_brings_every_engine_home() {
    for placement in [Placement::Threads, Placement::Inline] {
        let mut spec = echo_spec();
        spec.instances = 2;
        spec.inline = placement == Placement::Inline;
        let site = Site::new(2, spec);
        thread::scope(|scope| {
            let (report, ended) = mpsc::channel();
            for value in 0..8 {
                let (mut client, report) = (site.connect(), report.clone());
                scope.spawn(move || {
                    keep_asking(&mut client, value);
                    let _ = report.send(());
                });
            }
            until("the placement", || site.runner.placement() == placement);
            site.server.close();
            for _ in 0..8 {
                assert!(ended.recv_timeout(PATIENCE).is_ok(), "a client still waits");
            }
        });
        assert_eq!(Arc::strong_count(&site.puppet), 1, "somebody holds an engine");
        site.server.close();
    }
}

/// Until the server goes away.
fn keep_asking(client: &mut Client, value: i32) {
    let body =
        format!(r#"{{"inputs":[{{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[{value}]}}]}}"#);
    while client.post("echo", "", body.as_bytes()).is_ok() {
        match client.try_receive() {
            Ok(answer) => assert!(answer.echoes(value) || answer.status == 503, "{answer:?}"),
            Err(_) => return,
        }
    }
}

#[test]
fn a_closed_server_opens_no_doors() {
    let server = server(1);
    server.close();
    let path = temporary("closed");
    let refusals = [
        server.serve_http("127.0.0.1", 0, false).map(drop),
        server.serve_metrics("127.0.0.1", 0, false).map(drop),
        server.serve_http_unix(&path),
    ];
    for refusal in refusals {
        assert_eq!(refusal.map_err(|error| error.kind), Err(ErrorKind::ShuttingDown));
    }
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let path = temporary("precious");
    std::fs::write(&path, "precious").unwrap();
    let refusal = server(1).serve_http_unix(&path);
    assert_eq!(refusal.map_err(|error| error.kind), Err(ErrorKind::ConfigInvalid));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_socket_file_goes_with_its_server_and_not_with_the_one_before() {
    let path = temporary("socket");
    let (before, after) = (server(1), server(1));
    before.serve_http_unix(&path).unwrap();
    assert!(after.serve_http_unix(&path).is_err(), "somebody listens there");
    std::fs::remove_file(&path).unwrap();
    after.serve_http_unix(&path).unwrap();
    before.close();
    assert!(path.exists());
    after.close();
    assert!(!path.exists());
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kushi-{}-{name}", std::process::id()))
}
