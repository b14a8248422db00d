//! Calls and answers on one stream.

use std::time::Instant;

use kushi_client::Call;
use kushi_client::local::Outcome;
use kushi_core::{Error, ErrorKind};
use kushi_oip::{CallAnswer, Failure, Kind};
use prost::Message;

use crate::peer::{MS, answers, ask, call_with, greeted, hear, pair};

#[test]
fn calls_leave_together_before_the_server_has_said_hello() {
    let (mut connection, mut peer) = pair();
    let ids = [ask(&mut connection, "a"), ask(&mut connection, "b")];
    assert!(connection.flush(Instant::now()).unwrap());
    assert_eq!(peer.next().kind, Kind::Hello);
    assert_eq!([peer.next_infer().0, peer.next_infer().0], ids);
}

#[test]
fn answers_come_in_any_order() {
    let (mut connection, mut peer) = greeted();
    let (a, b) = (ask(&mut connection, "a"), ask(&mut connection, "b"));
    connection.flush(Instant::now()).unwrap();
    peer.answer(b, b"for b");
    peer.answer(a, b"for a");
    let ended = hear(&mut connection).unwrap();
    assert_eq!(answers(&ended), [("b", b"for b".to_vec()), ("a", b"for a".to_vec())]);
    assert_eq!(connection.in_flight(), 0);
}

#[test]
fn half_frames_wait_for_their_other_half() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    let mut out = bytes::BytesMut::new();
    kushi_oip::write_message(&mut out, Kind::Answer, id, &crate::peer::response(b"whole"));
    let (last, first) = out.split_last().unwrap();
    for byte in first {
        peer.raw(&[*byte]);
        assert!(hear(&mut connection).unwrap().is_empty());
    }
    peer.raw(&[*last]);
    assert_eq!(answers(&hear(&mut connection).unwrap()), [("a", b"whole".to_vec())]);
}

#[test]
fn large_answers_in_frames_come_whole() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    let data = vec![7; 5 << 20];
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        let mut out = bytes::BytesMut::new();
        kushi_oip::write_message(&mut out, Kind::Answer, id, &crate::peer::response(&sent));
        for part in out.chunks(100_000) {
            peer.raw(part);
        }
        peer
    });
    let mut ended = Vec::new();
    while ended.is_empty() {
        connection.receive(Instant::now(), &mut ended).unwrap();
    }
    assert_eq!(answers(&ended), [("a", data)]);
    writer.join().unwrap();
}

#[test]
fn failures_and_other_calls_are_answered_by_their_kind() {
    let (mut connection, mut peer) = greeted();
    let failing = ask(&mut connection, "fails");
    let call = Call { verb: "ModelReady".into(), arguments: "{}".into(), patience: None };
    let called = connection.call(&call, "told", None, Instant::now()).unwrap();
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next_infer().0, failing);
    let asked = kushi_oip::Call::decode(peer.next().body).unwrap();
    assert_eq!((&*asked.verb, &asked.arguments[..]), ("ModelReady", &b"{}"[..]));
    peer.say(Kind::Failure, failing, &Failure { kind: "overloaded".into(), message: "too much".into() });
    let refusal = CallAnswer { status: 404, body: "{}".into(), kind: "model_not_found".into() };
    peer.say(Kind::CallAnswer, called, &refusal);
    let mut ended = hear(&mut connection).unwrap().into_iter();
    let first = ended.next().unwrap();
    assert_eq!(first.outcome.unwrap_err(), Error::new(ErrorKind::Overloaded, "too much"));
    let Ok(Outcome::CallAnswer(answer)) = ended.next().unwrap().outcome else { panic!() };
    assert_eq!((answer.status, answer.kind), (404, Some(ErrorKind::ModelNotFound)));
}

#[test]
fn a_call_that_was_given_up_is_cancelled_and_its_end_is_not_reported() {
    let (mut connection, mut peer) = greeted();
    let id = ask(&mut connection, "a");
    assert_eq!(connection.cancel(id), Some("a"));
    assert_eq!(connection.cancel(id), None, "nobody waits for it twice");
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next().kind, Kind::Infer);
    let cancel = peer.next();
    assert_eq!((cancel.kind, cancel.id), (Kind::Cancel, id));
    assert_eq!(connection.in_flight(), 1, "until the server has ended it");
    peer.say(Kind::Failure, id, &Failure { kind: "cancelled".into(), message: String::new() });
    assert!(hear(&mut connection).unwrap().is_empty());
    assert_eq!(connection.in_flight(), 0);
}

#[test]
fn a_call_past_its_deadline_ends_and_is_cancelled() {
    let (mut connection, mut peer) = greeted();
    let now = Instant::now();
    let call = call_with(vec![1]);
    let placed = connection.door().arena().place(&call);
    let id = connection.infer(&call, placed, "late", Some(now + 20 * MS), now).unwrap();
    connection.flush(now).unwrap();
    assert_eq!(peer.next_infer().1.timeout_us, 20_000, "the server knows how long it has");
    let mut ended = Vec::new();
    assert_eq!(connection.tick(now + 19 * MS, &mut ended).unwrap(), Some(now + 20 * MS));
    assert!(ended.is_empty());
    connection.tick(now + 20 * MS, &mut ended).unwrap();
    assert_eq!(ended.pop().unwrap().outcome.unwrap_err().kind, ErrorKind::DeadlineExceeded);
    connection.flush(now).unwrap();
    assert_eq!(peer.next().kind, Kind::Cancel);
    peer.answer(id, b"too late");
    assert!(hear(&mut connection).unwrap().is_empty());
    assert_eq!(connection.next_deadline(), None);
}

#[test]
fn an_answer_that_came_in_time_is_taken_however_late_the_look() {
    let (mut connection, mut peer) = greeted();
    let now = Instant::now();
    let call = call_with(vec![1]);
    let id = connection.infer(&call, [None].into_iter().collect(), "a", Some(now + MS), now).unwrap();
    peer.answer(id, b"in time");
    let mut ended = hear(&mut connection).unwrap();
    assert_eq!(connection.tick(now + 5000 * MS, &mut ended).unwrap(), None);
    assert_eq!(answers(&ended), [("a", b"in time".to_vec())]);
}

#[test]
fn too_many_calls_are_refused_at_once() {
    let (mut connection, _peer) = greeted();
    let call = call_with(Vec::new());
    let mut ask = || connection.infer(&call, [None].into_iter().collect(), "x", None, Instant::now());
    for _ in 0..65_536 {
        ask().unwrap();
    }
    assert_eq!(ask().unwrap_err().kind, ErrorKind::Overloaded);
}

#[test]
fn a_request_too_long_for_a_frame_is_refused_and_leaves_nothing_behind() {
    let (mut connection, mut peer) = greeted();
    let mut call = call_with(vec![1]);
    call.id = "x".repeat(70 << 20);
    let refused = connection.infer(&call, [None].into_iter().collect(), "x", None, Instant::now());
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidInput);
    let id = ask(&mut connection, "a");
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next_infer().0, id);
}

#[test]
fn parts_of_a_stream_come_in_their_order_and_its_end_behind_them() {
    let (mut connection, mut peer) = greeted();
    let call = call_with(vec![1]);
    let placed = connection.door().arena().place(&call);
    let id = connection.infer_in_parts(&call, placed, "a", None, Instant::now()).unwrap();
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next().kind, Kind::Stream);
    for part in [b"1".as_slice(), b"22"] {
        peer.say(Kind::Part, id, &crate::peer::response(part));
    }
    assert!(hear(&mut connection).unwrap().is_empty());
    let parts: Vec<_> = std::iter::from_fn(|| connection.next_part()).collect();
    let bytes = |at: usize| parts[at].answer.outputs[0].1.data.as_bytes();
    assert_eq!((parts.len(), parts[0].call, bytes(0), bytes(1)), (2, id, &b"1"[..], &b"22"[..]));
    peer.say_nothing(Kind::End, id);
    let ended = hear(&mut connection).unwrap();
    assert!(matches!(ended[0].outcome, Ok(Outcome::End)));
    assert_eq!(connection.in_flight(), 0);
}

#[test]
fn an_answer_of_the_wrong_kind_breaks_the_stream() {
    for (asks_for_parts, kind) in [(false, Kind::Part), (false, Kind::End), (true, Kind::Answer)] {
        let (mut connection, mut peer) = greeted();
        let call = call_with(vec![1]);
        let placed = connection.door().arena().place(&call);
        let id = if asks_for_parts {
            connection.infer_in_parts(&call, placed, "a", None, Instant::now()).unwrap()
        } else {
            connection.infer(&call, placed, "a", None, Instant::now()).unwrap()
        };
        peer.say(kind, id, &crate::peer::response(b"x"));
        assert_eq!(hear(&mut connection).unwrap_err().kind, ErrorKind::ConnectionLost);
    }
}
