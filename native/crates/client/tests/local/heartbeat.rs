//! Servers that say nothing.

use std::time::Instant;

use kushi_core::ErrorKind;
use kushi_oip::Kind;

use crate::peer::{MS, answers, ask, ask_with, greeted, hear};

#[test]
fn nothing_is_asked_while_no_call_waits() {
    let (mut connection, _peer) = greeted();
    let now = Instant::now();
    assert_eq!(connection.tick(now + 10_000 * MS, &mut Vec::new()).unwrap(), None);
    assert!(!connection.has_unsent());
}

#[test]
fn a_silent_server_is_asked_and_then_given_up() {
    let (mut connection, mut peer) = greeted();
    ask(&mut connection, "a");
    let now = Instant::now();
    let mut ended = Vec::new();
    let due = connection.tick(now, &mut ended).unwrap().unwrap();
    assert!(due <= now + 250 * MS);
    let due = connection.tick(due, &mut ended).unwrap().unwrap();
    connection.flush(now).unwrap();
    assert_eq!([peer.next().kind, peer.next().kind], [Kind::Infer, Kind::Ping]);
    let error = connection.tick(due, &mut ended).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("does not answer"), "{error}");
}

#[test]
fn a_server_that_answers_the_question_may_take_its_time() {
    let (mut connection, mut peer) = greeted();
    ask(&mut connection, "a");
    let mut now = Instant::now();
    let mut ended = Vec::new();
    for _ in 0..20 {
        let due = connection.tick(now + 250 * MS, &mut ended).unwrap().unwrap();
        now = due.checked_sub(MS).unwrap();
        peer.say_nothing(Kind::Pong, 0);
        connection.receive(now, &mut ended).unwrap();
    }
    assert!(ended.is_empty());
    assert_eq!(connection.in_flight(), 1);
}

#[test]
fn a_late_look_finds_the_answers_that_wait_in_the_socket() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    ask(&mut connection, "b");
    let start = Instant::now();
    let mut ended = Vec::new();
    connection.tick(start + 250 * MS, &mut ended).unwrap();
    connection.flush(start).unwrap();
    peer.answer(id, b"long there");
    // Somebody kept this thread for a minute.
    let now = start + 60_000 * MS;
    assert_eq!(connection.tick(now, &mut ended).unwrap(), Some(now + 250 * MS));
    assert_eq!(answers(&ended), [("a", b"long there".to_vec())]);
}

#[test]
fn a_pause_between_calls_is_no_silence() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    connection.flush(Instant::now()).unwrap();
    peer.answer(id, b"");
    hear(&mut connection).unwrap();
    let later = Instant::now() + 3_600_000 * MS;
    let call = crate::peer::call_with(vec![1]);
    connection.infer(&call, [None].into_iter().collect(), "b", None, later).unwrap();
    assert_eq!(connection.tick(later, &mut Vec::new()).unwrap(), Some(later + 250 * MS));
}

#[test]
fn a_server_that_reads_is_alive() {
    let (mut connection, mut peer) = greeted();
    let start = Instant::now();
    while connection.flush(start).unwrap() {
        ask_with(&mut connection, "a", vec![0; 60_000]);
    }
    let mut ended = Vec::new();
    let due = connection.tick(Instant::now() + 250 * MS, &mut ended).unwrap().unwrap();
    // Not enough for the question to have arrived.
    for _ in 0..3 {
        peer.next_infer();
    }
    assert_eq!(connection.tick(due, &mut ended).unwrap(), Some(due + 250 * MS));
}

#[test]
fn the_server_may_ask_too() {
    let (mut connection, mut peer) = greeted();
    peer.say_nothing(Kind::Ping, 41);
    hear(&mut connection).unwrap();
    connection.flush(Instant::now()).unwrap();
    let pong = peer.next();
    assert_eq!((pong.kind, pong.id), (Kind::Pong, 41));
}
