//! Clients that go, and servers that close.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use kushi_core::{DataType, ErrorKind};
use kushi_shm::Slot;
use kushi_testkit::{PATIENCE, until};

use crate::client::{Client, request, request_in};
use crate::site::{
    Site, company, echo_of, mapped_slots, open_descriptors, server, socket_is_there, temporary,
};

#[test]
fn a_client_that_goes_frees_its_queue_places_slots_and_descriptors() {
    let site = Site::alone(echo_of(DataType::Fp32));
    let before = (open_descriptors(), mapped_slots());
    for hangs_up in [false, true] {
        site.puppet.hold();
        let mut client = site.connect();
        let slots: Vec<Slot> = (0..10).map(|_| Slot::new(1 << 18).unwrap()).collect();
        for slot in &slots {
            client.announce(slot);
        }
        let held = site.puppet.seen().len();
        client.infer(1, &request_in(&slots[0], 0, 1 << 15));
        site.puppet.await_batches(held + 1);
        site.puppet.release(held);
        assert_eq!(client.answer().1.outputs.len(), 1, "in a slot of the server's, which is not released");
        client.infer(1, &request_in(&slots[0], 0, 1));
        site.puppet.await_batches(held + 2);
        for id in 2..100 {
            client.infer(id, &request_in(&slots[id as usize % 10], 0, 1));
        }
        until("a queue", || site.runner.backlog().requests == 98);
        if hangs_up {
            client.hang_up();
        } else {
            drop(client);
        }
        until("an empty queue", || site.runner.backlog().requests == 0);
        site.puppet.release_all();
        drop(slots);
        until("nothing left of it", || (open_descriptors(), mapped_slots()) == before);
    }
    assert!(site.connect().stream.peer_addr().is_ok());
}

#[test]
fn half_a_hang_up_is_a_whole_one() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    client.infer(2, &request(2));
    until("a queue", || site.runner.backlog().requests == 1);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.outcome(), None);
    until("an empty queue", || site.runner.backlog().requests == 0);
    site.puppet.release_all();
    assert!(site.answers());
}

#[test]
fn a_drain_answers_what_was_received_refuses_the_rest_and_closes() {
    let site = Site::default();
    site.puppet.hold();
    let (mut early, mut late) = (site.connect(), site.connect());
    early.infer(1, &request(1));
    site.puppet.await_batches(1);
    assert_eq!(site.server.drain(Duration::ZERO), 1);
    late.infer(2, &request(2));
    assert_eq!(late.failure().1, "shutting_down");
    site.puppet.release_all();
    assert_eq!(site.server.drain(PATIENCE), 0);
    assert!(early.echoes(1, 1));
    assert_eq!((early.outcome(), late.outcome()), (None, None));
    assert!(UnixStream::connect(&site.path).is_err());
}

#[test]
fn a_drain_waits_for_a_client_that_reads_slowly() {
    let site = Site::new(echo_of(DataType::Fp32));
    let mut client = site.connect();
    // More than a socket takes, in answers too small for slots.
    let slot = Slot::new(1 << 16).unwrap();
    client.announce(&slot);
    site.puppet.hold();
    for id in 1..100 {
        client.infer(id, &request_in(&slot, 0, 1 << 13));
    }
    until("the requests", || site.runner.inside() == 99);
    site.puppet.release_all();
    until("the answers", || site.runner.statistics().success.count == 99);
    for _ in 0..4 {
        assert_eq!(site.server.drain(Duration::from_millis(300)), 1, "most of the answers have not left");
    }
    let reader = std::thread::spawn(move || (1..100).all(|_| client.answer().1.outputs.len() == 1));
    assert_eq!(site.server.drain(PATIENCE), 0);
    site.server.close();
    assert!(reader.join().unwrap());
}

#[test]
fn closing_under_load_brings_every_engine_home() {
    let site = Site::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = site.connect();
                scope.spawn(move || {
                    let mut asked = 0_u64;
                    loop {
                        asked += 1;
                        let frame = crate::client::frame(kushi_oip::Kind::Infer, asked, &request(1));
                        if client.try_send(&frame, None).is_err() || client.outcome().is_none() {
                            return asked;
                        }
                    }
                })
            })
            .collect();
        until("some load", || site.runner.statistics().success.count > 200);
        site.server.close();
        assert!(clients.into_iter().all(|client| client.join().unwrap() > 1));
    });
    assert_eq!(std::sync::Arc::strong_count(&site.puppet), 1, "somebody holds an engine");
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_its_server() {
    let _company = company();
    let path = temporary("mode");
    let (before, after) = (server(1), server(1));
    before.serve_local(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let refused = after.serve_local(&path).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::ConfigInvalid), "somebody listens there");
    std::fs::remove_file(&path).unwrap();
    after.serve_local(&path).unwrap();
    before.close();
    assert!(socket_is_there(&path), "it is another server's by now");
    after.close();
    assert!(!socket_is_there(&path));
    assert_eq!(after.serve_local(&path).map_err(|error| error.kind), Err(ErrorKind::ShuttingDown));
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced_and_any_other_file_is_not() {
    let _company = company();
    let path = temporary("stale");
    drop(UnixListener::bind(&path).unwrap());
    let server = server(1);
    server.serve_local(&path).unwrap();
    drop(Client::connect(&path));
    let precious = temporary("precious");
    std::fs::write(&precious, "precious").unwrap();
    assert!(server.serve_local(&precious).is_err());
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    std::fs::remove_file(&precious).unwrap();
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let _company = company();
    let path = temporary(&"x".repeat(200));
    let refused = server(1).serve_local(&path).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ConfigInvalid);
    assert!(refused.message.starts_with("cannot listen on the socket"), "{refused}");
}

#[test]
fn a_client_may_connect_before_any_model_is_there() {
    let _company = company();
    let path = temporary("empty");
    let server = server(1);
    server.serve_local(&path).unwrap();
    let mut client = Client::connect(&path);
    client.greet();
    client.infer(1, &request(1));
    assert_eq!(client.failure().1, "model_not_found");
}
