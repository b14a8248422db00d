//! What an engine owes when it has given its slots back.

use std::iter;
use std::sync::Arc;

use kushi_core::{
    Batching, Buffer, DataType, Error, ErrorKind, ModelSpec, Shape, Step, Tensor, UNANSWERED_PER_SLOT,
};
use kushi_testkit::{Act, Scene, drive, echo_spec, respond, until};

use crate::slot_tokens::{begin, keeping, lead};

#[test]
fn unanswered_batches_are_bounded_and_an_answer_makes_room() {
    for slots in [1, 2] {
        let scene = keeping(slots);
        scene.puppet.usually(Act::Late);
        let most = (slots * UNANSWERED_PER_SLOT) as u64;
        for key in 1..=most {
            begin(&scene, key);
        }
        assert!(lead(&scene, most + 1).is_none(), "every slot is free, and none of use");
        assert_eq!(scene.runner.backlog().requests, 1);
        // The engine may hold on to what it has answered.
        let mut answered = scene.puppet.late();
        answered.end(0, Ok(()));
        assert_eq!(drive(scene.leases.lease()), 1);
        drop(answered);
        assert_eq!(scene.puppet.seen().len() as u64, most + 1);
        for _ in 0..most {
            respond(scene.puppet.late(), 0);
        }
        scene.letters.answers(most as usize + 1);
        until("rest", || scene.runner.at_rest());
    }
}

#[test]
fn a_leader_on_its_way_begins_nothing_beyond_the_bound() {
    let scene = keeping(2);
    scene.puppet.usually(Act::Late);
    let lease = lead(&scene, 0);
    scene.ask(1..=2 * UNANSWERED_PER_SLOT as u64);
    lease.map(drive);
    while !scene.leases.is_empty() {
        drive(scene.leases.lease());
    }
    assert_eq!(scene.puppet.await_batches(2 * UNANSWERED_PER_SLOT).len(), 2 * UNANSWERED_PER_SLOT);
    assert_eq!(scene.runner.backlog().requests, 1);
    for _ in 0..2 * UNANSWERED_PER_SLOT {
        respond(scene.puppet.late(), 0);
    }
    drive(scene.leases.lease());
    respond(scene.puppet.late(), 0);
    scene.letters.answers(2 * UNANSWERED_PER_SLOT + 1);
}

#[test]
fn what_was_given_up_counts_until_the_engine_lets_go_of_it() {
    for gives_up_first in [true, false] {
        let batching =
            Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: false };
        let scene = Scene::keeping(ModelSpec { batching: Some(batching), max_batch_size: 2, ..echo_spec() });
        scene.puppet.usually(Act::Late);
        let mut kept = Vec::new();
        for number in 0..UNANSWERED_PER_SLOT as u64 {
            let (ticket, lease) = scene.lead(scene.request(2 * number, 1));
            scene.submit_rows(2 * number + 1, 1);
            assert!(lease.is_some_and(|lease| matches!(lease.run(), Step::Done | Step::Again(_))));
            let mut batch = scene.puppet.late();
            assert_eq!(batch.len(), 2);
            if !gives_up_first {
                batch.end(1, Ok(()));
            }
            assert!(ticket.cancel());
            assert_eq!(batch.give_up_abandoned(), [0]);
            batch.end(1, Ok(()));
            assert!(!batch.is_open());
            kept.push(batch);
        }
        let next = 2 * UNANSWERED_PER_SLOT as u64;
        assert!(lead(&scene, next).is_none(), "{gives_up_first}: the engine still works on all");
        drop(kept.pop());
        assert_eq!(drive(scene.leases.lease()), 1);
        respond(scene.puppet.late(), 0);
        scene.letters.answers(next as usize + 1);
    }
}

/// Bytes whose owner can be counted.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn inputs_live_until_the_answer_though_the_slot_is_back() {
    let scene = keeping(1);
    scene.puppet.usually(Act::Late);
    let owner = Arc::new(vec![0; 4]);
    let data = Buffer::from_owner(Owner(owner.clone()));
    let input = Tensor { datatype: DataType::Int32, shape: Shape::from_slice(&[1, 1]), data };
    scene.lead(scene.request_of(1, input)).1.map(drive);
    let batch = scene.puppet.late();
    until("the slot at home", || scene.runner.at_rest());
    assert_eq!(Arc::strong_count(&owner), 2);
    respond(batch, 0);
    let answer = scene.letters.answer(1);
    assert_eq!(Arc::strong_count(&owner), 2, "the asker drops them");
    drop(answer);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn what_runs_again_waits_for_no_answer_to_others() {
    let spec = ModelSpec { instances: 2, ..echo_spec() };
    let scene = Scene::keeping(spec);
    let others = 2 * UNANSWERED_PER_SLOT as u64;
    scene.puppet.script(iter::once(Act::Keep).chain(iter::repeat_n(Act::Late, others as usize)));
    let lease = lead(&scene, 1);
    scene.ask([2]);
    lease.map(drive);
    let (mut token, batch) = scene.puppet.kept();
    for key in 0..others - 1 {
        begin(&scene, 10 + key);
    }
    assert!(lead(&scene, 10 + others).is_none(), "no further batch begins");
    // Answers to the others may be held until it has ended: of a model that keeps the order, say.
    token.fail(batch, &Error::new(ErrorKind::EngineFailed, "of somebody's data"));
    let lease = token.give_back();
    // One more has begun, in its place.
    while !scene.leases.is_empty() {
        drive(scene.leases.lease());
    }
    assert_eq!(scene.puppet.seen().len() as u64, 1 + others);
    lease.map(drive);
    let ids: Vec<_> =
        scene.puppet.seen().into_iter().skip(1 + others as usize).map(|seen| seen.ids).collect();
    assert_eq!(ids, [["1"], ["2"]].map(|ids| ids.map(String::from).to_vec()));
    for _ in 0..others {
        respond(scene.puppet.late(), 0);
    }
    scene.letters.answers(2 + others as usize);
    until("rest", || scene.runner.at_rest());
}
