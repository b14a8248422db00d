//! Large tensors beside the stream.

use std::time::Instant;

use kushi_client::local::{Ended, Outcome};
use kushi_client::{Draft, InferCall};
use kushi_core::{Buffer, DataType, Tensor};
use kushi_oip::{Kind, Release, SlotRange};
use kushi_shm::{Slot, View};
use prost::Message;
use smallvec::smallvec;

use crate::peer::{Peer, answers, ask, ask_with, greeted, hear, pair_of};

const LARGE: usize = 1 << 20;

fn announced(peer: &mut Peer) -> (u64, View) {
    let frame = peer.next();
    assert_eq!(frame.kind, Kind::Slot);
    let slot = kushi_oip::Slot::decode(frame.body).unwrap();
    let descriptor = peer.descriptors.pop_front().unwrap();
    (slot.slot, View::map(descriptor, slot.length).unwrap())
}

fn released(peer: &mut Peer) -> Vec<u64> {
    let frame = peer.next();
    assert_eq!(frame.kind, Kind::Release);
    Release::decode(frame.body).unwrap().slots
}

#[test]
fn a_large_input_travels_in_a_slot_that_is_announced_once() {
    let (mut connection, mut peer) = greeted();
    let id = ask_with(&mut connection, "a", vec![3; LARGE]);
    connection.flush(Instant::now()).unwrap();
    let (slot, view) = announced(&mut peer);
    let (_, request) = peer.next_infer();
    assert!(request.raw_input_contents.is_empty());
    let range = request.inputs[0].slot.unwrap();
    assert_eq!((range.slot, range.length), (slot, LARGE as u64));
    assert!(view.range(range.offset, range.length).unwrap().iter().all(|&byte| byte == 3));
    peer.answer(id, b"");
    hear(&mut connection).unwrap();
    ask_with(&mut connection, "b", vec![4; LARGE]);
    connection.flush(Instant::now()).unwrap();
    let (_, request) = peer.next_infer();
    assert_eq!(request.inputs[0].slot.unwrap().slot, slot, "it is used again");
    assert!(view.range(0, LARGE as u64).unwrap().iter().all(|&byte| byte == 4));
}

#[test]
fn small_inputs_stay_in_the_frame_beside_large_ones() {
    let (mut connection, mut peer) = greeted();
    let tensor = |length: usize| Tensor {
        datatype: DataType::Uint8,
        shape: smallvec![length as i64],
        data: Buffer::host(vec![1; length]),
    };
    let inputs = [10, LARGE, 20].map(|length| Draft { name: None, tensor: tensor(length) });
    let call = InferCall { inputs: inputs.into_iter().collect(), ..InferCall::default() };
    let placed = connection.door().arena().place(&call);
    connection.infer(&call, placed, "a", None, Instant::now()).unwrap();
    connection.flush(Instant::now()).unwrap();
    announced(&mut peer);
    let (_, request) = peer.next_infer();
    assert_eq!(request.raw_input_contents.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), [10, 20]);
    assert_eq!(
        request.inputs.iter().map(|input| input.slot.is_some()).collect::<Vec<_>>(),
        [false, true, false]
    );
}

#[test]
fn an_input_built_in_a_slot_is_not_copied() {
    let (mut connection, mut peer) = greeted();
    let slot = connection.door().arena().take(LARGE).unwrap();
    assert!(slot.write(4096, b"built here"));
    let data = Buffer::host(slot.bytes(4096..LARGE).unwrap());
    let tensor = Tensor { datatype: DataType::Uint8, shape: smallvec![(LARGE - 4096) as i64], data };
    let call =
        InferCall { inputs: [Draft { name: None, tensor }].into_iter().collect(), ..InferCall::default() };
    let placed = connection.door().arena().place(&call);
    connection.infer(&call, placed, "a", None, Instant::now()).unwrap();
    connection.flush(Instant::now()).unwrap();
    assert_eq!(announced(&mut peer).0, slot.id());
    let range = peer.next_infer().1.inputs[0].slot.unwrap();
    assert_eq!(range, SlotRange { slot: slot.id(), offset: 4096, length: (LARGE - 4096) as u64 });
}

#[test]
fn a_slot_is_used_again_only_when_its_call_has_ended_also_a_cancelled_one() {
    let (mut connection, mut peer) = greeted();
    let arena = connection.door().arena().clone();
    let id = ask_with(&mut connection, "a", vec![0; LARGE]);
    connection.flush(Instant::now()).unwrap();
    let (slot, _) = announced(&mut peer);
    connection.cancel(id);
    assert_ne!(arena.take(LARGE).unwrap().id(), slot, "the server may still read it");
    peer.answer(id, b"");
    hear(&mut connection).unwrap();
    let taken = [arena.take(LARGE).unwrap(), arena.take(LARGE).unwrap()];
    assert!(taken.iter().any(|taken| taken.id() == slot));
}

#[test]
fn each_stream_of_a_client_announces_a_slot_for_itself() {
    let (mut one, mut peer) = greeted();
    let id = ask_with(&mut one, "a", vec![0; LARGE]);
    one.flush(Instant::now()).unwrap();
    let (slot, _) = announced(&mut peer);
    peer.answer(id, b"");
    hear(&mut one).unwrap();
    let (mut other, mut peer) = pair_of(one.door());
    ask_with(&mut other, "b", vec![0; LARGE]);
    other.flush(Instant::now()).unwrap();
    peer.next();
    assert_eq!(announced(&mut peer).0, slot);
}

#[test]
fn slots_that_the_pool_has_dropped_are_forgotten() {
    let (mut connection, mut peer) = greeted();
    let (mut ids, mut slots) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        ids.push(ask_with(&mut connection, "a", vec![0; 65_536]));
        connection.flush(Instant::now()).unwrap();
        slots.push(announced(&mut peer).0);
        peer.next_infer();
    }
    for id in ids {
        peer.answer(id, b"");
        hear(&mut connection).unwrap();
    }
    assert_eq!(connection.in_flight(), 0);
    // None of those that were kept is large enough.
    ask_with(&mut connection, "b", vec![0; LARGE]);
    connection.flush(Instant::now()).unwrap();
    let forget = peer.next();
    assert_eq!(forget.kind, Kind::Forget);
    let forgotten = Release::decode(forget.body).unwrap().slots;
    assert!(forgotten.len() >= 300 - 128);
    assert!(forgotten.iter().all(|slot| slots.contains(slot)));
    assert!(!slots.contains(&announced(&mut peer).0));
}

#[test]
fn the_server_hears_of_a_dropped_slot_with_whatever_is_sent_next() {
    let (mut connection, mut peer) = greeted();
    let arena = connection.door().arena().clone();
    // More than is kept.
    let tensor = Tensor {
        datatype: DataType::Uint8,
        shape: smallvec![300 << 20],
        data: arena.buffer(300 << 20).unwrap(),
    };
    let call = InferCall { inputs: smallvec![Draft { name: None, tensor }], ..InferCall::default() };
    let placed = arena.place(&call);
    let id = connection.infer(&call, placed, "a", None, Instant::now()).unwrap();
    connection.flush(Instant::now()).unwrap();
    let (slot, _) = announced(&mut peer);
    peer.next_infer();
    drop(call);
    peer.answer(id, b"");
    hear(&mut connection).unwrap();
    ask(&mut connection, "small");
    connection.flush(Instant::now()).unwrap();
    peer.next_infer();
    let forget = peer.next();
    assert_eq!(forget.kind, Kind::Forget);
    assert_eq!(Release::decode(forget.body).unwrap().slots, [slot]);
}

#[test]
fn an_answer_in_a_slot_is_released_when_its_last_view_dies() {
    let (mut connection, mut peer) = greeted();
    let slot = Slot::new(LARGE).unwrap();
    assert!(slot.write(64, b"answer"));
    let id = ask(&mut connection, "a");
    connection.flush(Instant::now()).unwrap();
    peer.next_infer();
    peer.announce(&slot);
    peer.answer_in(id, SlotRange { slot: slot.id(), offset: 64, length: 6 });
    let ended = hear(&mut connection).unwrap();
    assert_eq!(answers(&ended), [("a", b"answer".to_vec())]);
    let Some(Ended { outcome: Ok(Outcome::Answer(answer)), .. }) = ended.into_iter().next() else { panic!() };
    let view = answer.outputs[0].1.data.clone();
    drop(answer);
    let second = ask(&mut connection, "b");
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next_infer().0, second, "somebody looks at it");
    drop(view);
    connection.flush(Instant::now()).unwrap();
    assert_eq!(released(&mut peer), [slot.id()]);
}

#[test]
fn two_outputs_in_one_slot_release_it_once() {
    let (mut connection, mut peer) = greeted();
    let slot = Slot::new(4096).unwrap();
    let id = ask(&mut connection, "a");
    connection.flush(Instant::now()).unwrap();
    peer.next_infer();
    peer.announce(&slot);
    let mut response = crate::peer::response(b"12");
    response.raw_output_contents.clear();
    response.outputs[0].slot = Some(SlotRange { slot: slot.id(), offset: 0, length: 2 });
    response.outputs.push(response.outputs[0].clone());
    peer.say(Kind::Answer, id, &response);
    drop(hear(&mut connection).unwrap());
    connection.flush(Instant::now()).unwrap();
    assert_eq!(released(&mut peer), [slot.id()]);
}

#[test]
fn the_answer_to_a_cancelled_call_is_released_too() {
    let (mut connection, mut peer) = greeted();
    let slot = Slot::new(4096).unwrap();
    let id = ask(&mut connection, "a");
    connection.cancel(id);
    connection.flush(Instant::now()).unwrap();
    assert_eq!([peer.next().kind, peer.next().kind], [Kind::Infer, Kind::Cancel]);
    peer.announce(&slot);
    peer.answer_in(id, SlotRange { slot: slot.id(), offset: 0, length: 4096 });
    assert!(hear(&mut connection).unwrap().is_empty());
    connection.flush(Instant::now()).unwrap();
    assert_eq!(released(&mut peer), [slot.id()]);
}

#[test]
fn a_view_outlives_the_slot_that_its_sender_forgot_and_the_connection() {
    let (mut connection, mut peer) = greeted();
    let slot = Slot::new(4096).unwrap();
    assert!(slot.write(0, b"kept"));
    let id = ask(&mut connection, "a");
    peer.announce(&slot);
    peer.answer_in(id, SlotRange { slot: slot.id(), offset: 0, length: 4 });
    let ended = hear(&mut connection).unwrap();
    peer.say(Kind::Forget, 0, &Release { slots: vec![slot.id()] });
    hear(&mut connection).unwrap();
    let id = ask(&mut connection, "b");
    peer.answer_in(id, SlotRange { slot: slot.id(), offset: 0, length: 4 });
    hear(&mut connection).unwrap_err();
    drop((connection, slot, peer));
    assert_eq!(answers(&ended), [("a", b"kept".to_vec())]);
}

#[test]
fn ranges_outside_a_slot_end_the_connection() {
    for (offset, length) in [(0, 4097), (4096, 1), (u64::MAX, 2), (1, u64::MAX)] {
        let (mut connection, mut peer) = greeted();
        let slot = Slot::new(4096).unwrap();
        let id = ask(&mut connection, "a");
        peer.announce(&slot);
        peer.answer_in(id, SlotRange { slot: slot.id(), offset, length });
        hear(&mut connection).unwrap_err();
    }
}
