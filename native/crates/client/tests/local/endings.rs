//! Streams that break, and what becomes of their calls.

use std::time::Instant;

use kushi_core::{Error, ErrorKind};
use kushi_oip::{CallAnswer, Hello, Kind, PROTOCOL, Slot};

use crate::peer::{MS, Peer, answers, ask, ask_with, greeted, hear, pair, pair_of};

fn lost() -> Error {
    Error::new(ErrorKind::ConnectionLost, "gone")
}

#[test]
fn calls_in_flight_end_when_the_server_closes() {
    let (mut connection, mut peer) = greeted();
    ask(&mut connection, "a");
    ask(&mut connection, "b");
    connection.flush(Instant::now()).unwrap();
    peer.next_infer();
    drop(peer);
    let error = hear(&mut connection).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("unix:///nowhere"), "{error}");
    let mut ended = Vec::new();
    assert!(connection.wreck(&error, &mut ended).is_empty());
    assert_eq!(ended.iter().map(|ended| ended.asker).collect::<Vec<_>>(), ["a", "b"]);
    assert!(ended.into_iter().all(|ended| ended.outcome.unwrap_err() == error));
}

#[test]
fn answers_that_came_before_the_end_are_taken_first() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    ask(&mut connection, "b");
    connection.flush(Instant::now()).unwrap();
    peer.answer(id, b"just in time");
    drop(peer);
    let mut ended = Vec::new();
    while connection.receive(Instant::now(), &mut ended).is_ok() {}
    assert_eq!(answers(&ended), [("a", b"just in time".to_vec())]);
}

#[test]
fn answers_that_came_before_the_end_are_taken_although_nothing_can_be_sent_any_more() {
    for has_read in [true, false] {
        let (mut connection, mut peer) = greeted();
        let id = ask(&mut connection, "a");
        connection.flush(Instant::now()).unwrap();
        if has_read {
            peer.next_infer();
        }
        peer.answer(id, b"just in time");
        drop(peer);
        let (late, mut ended) = (Instant::now() + 300 * MS, Vec::new());
        connection.tick(late, &mut ended).unwrap();
        assert!(connection.has_unsent(), "the server is to be asked for a sign of life");
        connection.flush(late).unwrap();
        while connection.receive(late, &mut ended).is_ok() {}
        assert_eq!(answers(&ended), [("a", b"just in time".to_vec())]);
    }
}

#[test]
fn a_call_that_nothing_was_sent_of_goes_over_the_next_stream_once() {
    let (mut broken, peer) = greeted();
    let door = broken.door().clone();
    drop(peer);
    let ids = [ask(&mut broken, "a"), ask_with(&mut broken, "b", vec![5; 100_000])];
    assert!(broken.flush(Instant::now()).unwrap());
    assert_eq!(hear(&mut broken).unwrap_err().kind, ErrorKind::ConnectionLost);
    let mut ended = Vec::new();
    let unsent = broken.wreck(&lost(), &mut ended);
    assert!(ended.is_empty() && !unsent.is_empty());

    let (mut next, mut peer) = pair_of(&door);
    next.adopt(unsent, Instant::now());
    let own = ask(&mut next, "own");
    next.flush(Instant::now()).unwrap();
    peer.hello(PROTOCOL);
    assert_eq!(peer.next().kind, Kind::Hello);
    assert_eq!(peer.next_infer().0, ids[0]);
    assert_eq!(peer.next().kind, Kind::Slot);
    let (id, request) = peer.next_infer();
    assert_eq!((id, request.inputs[0].slot.is_some()), (ids[1], true));
    assert_eq!(peer.next_infer().0, own);
    peer.answer(ids[0], b"after all");
    assert_eq!(answers(&hear(&mut next).unwrap()), [("a", b"after all".to_vec())]);

    drop(peer);
    let unsent = next.wreck(&lost(), &mut ended);
    assert!(unsent.is_empty());
    assert_eq!(ended.len(), 2);
}

#[test]
fn a_call_is_handed_on_only_once() {
    let (mut first, _) = greeted();
    ask(&mut first, "a");
    let mut ended = Vec::new();
    let unsent = first.wreck(&lost(), &mut ended);
    let (mut second, _) = pair();
    second.adopt(unsent, Instant::now());
    assert!(second.wreck(&lost(), &mut ended).is_empty());
    assert_eq!(ended.pop().unwrap().outcome.unwrap_err(), lost());
}

#[test]
fn a_call_that_was_given_up_is_not_handed_on() {
    let (mut connection, _peer) = greeted();
    let id = ask(&mut connection, "a");
    connection.cancel(id);
    let mut ended = Vec::new();
    assert!(connection.wreck(&lost(), &mut ended).is_empty());
    assert!(ended.is_empty());
}

#[test]
fn only_what_has_not_begun_to_leave_is_handed_on() {
    let (mut connection, peer) = greeted();
    // More than a socket holds, in frames.
    for _ in 0..100 {
        ask_with(&mut connection, "sent or begun", vec![0; 60_000]);
    }
    while connection.flush(Instant::now()).unwrap() {
        ask_with(&mut connection, "sent or begun", vec![0; 60_000]);
    }
    ask(&mut connection, "queued");
    assert!(!connection.flush(Instant::now()).unwrap());
    drop(peer);
    let mut ended = Vec::new();
    let unsent = connection.wreck(&lost(), &mut ended);
    assert!(!unsent.is_empty());
    assert!(!ended.is_empty());
    assert!(ended.iter().all(|ended| ended.asker == "sent or begun"));
    let before = ended.len();
    unsent.fail(&lost(), &mut ended);
    assert_eq!(ended.last().unwrap().asker, "queued");
    assert!(ended.len() > before);
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    type Script = fn(&mut Peer, u64);
    let scripts: [(&str, Script); 9] = [
        ("unknown kind", |peer, _| peer.raw(&[0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("too long a frame", |peer, _| peer.raw(&[255; 16])),
        ("an unreadable answer", |peer, id| {
            let mut out = bytes::BytesMut::new();
            kushi_oip::write_frame(&mut out, Kind::Answer, id, b"\xff\xff\xff");
            peer.raw(&out);
        }),
        ("an answer to nobody", |peer, id| peer.answer(id + 1, b"")),
        ("an answer twice", |peer, id| {
            peer.answer(id, b"");
            peer.answer(id, b"");
        }),
        ("an answer of the wrong kind", |peer, id| {
            let answer = CallAnswer { status: 200, ..CallAnswer::default() };
            peer.say(Kind::CallAnswer, id, &answer);
        }),
        ("a slot without a descriptor", |peer, _| peer.say(Kind::Slot, 0, &Slot { slot: 1, length: 4096 })),
        ("a frame that clients send", |peer, id| peer.say_nothing(Kind::Cancel, id)),
        ("a second hello", |peer, _| peer.hello(PROTOCOL)),
    ];
    for (what, script) in scripts {
        let (mut connection, mut peer) = greeted();
        let id = ask(&mut connection, "a");
        script(&mut peer, id);
        let error = hear(&mut connection).expect_err(what);
        assert_eq!(error.kind, ErrorKind::ConnectionLost, "{what}: {error}");
    }
}

#[test]
fn a_server_that_does_not_begin_with_its_version_is_refused() {
    let (mut connection, mut peer) = pair();
    peer.say_nothing(Kind::Pong, 0);
    assert_eq!(hear(&mut connection).unwrap_err().kind, ErrorKind::ConnectionLost);
    let (mut connection, mut peer) = pair();
    peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(hear(&mut connection).unwrap_err().kind, ErrorKind::ConnectionLost);
}

#[test]
fn a_server_of_another_version_is_named() {
    let (mut connection, mut peer) = pair();
    peer.say(Kind::Hello, 0, &Hello { protocol: 1, version: "9.9".into() });
    let error = hear(&mut connection).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(
        error.message.contains("Kushi 9.9") && error.message.contains(&format!("expected {PROTOCOL}")),
        "{error}"
    );
}
